//! The client over real HTTP, and against recorded traffic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod decode;
mod http;
mod models;
mod playback;
mod player;
mod recorded;
