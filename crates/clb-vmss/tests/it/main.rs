//! Names and ids of scale set instances, from outside.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is the point")]

mod cache;
mod computer_name;
mod fake;
mod inventory;
mod membership;
mod node_stream;
mod poller;
mod provider_id;
mod recorded;
