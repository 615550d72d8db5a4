//! Names and ids of scale set instances, from outside.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is the point")]

mod computer_name;
mod node_stream;
mod provider_id;
mod recorded;
