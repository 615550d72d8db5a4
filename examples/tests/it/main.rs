//! The whole way, over real HTTP: recorded clusters end in the state that is expected of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod recordings;
