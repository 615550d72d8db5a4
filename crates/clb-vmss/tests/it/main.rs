//! The crate from outside: names, models, the cache, node changes and memberships, against an Azure in memory and recorded traffic.

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
