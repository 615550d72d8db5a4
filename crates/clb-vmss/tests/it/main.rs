//! Names, reading, caching, polling and writing, from outside: recorded traffic with the real service, and an Azure in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cache;
mod computer_name;
mod fake;
mod inventory;
mod membership;
mod node_stream;
mod poller;
mod provider_id;
mod recorded;
