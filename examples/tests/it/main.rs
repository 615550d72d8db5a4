//! The whole way: recorded clusters end in the state that is expected of them, over real HTTP, and scale sets are followed
//! and changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod machines;
mod recordings;
