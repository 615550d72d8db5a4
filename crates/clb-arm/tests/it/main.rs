//! The client end to end: over a scripted transport where time matters, over real HTTP where bytes do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod arbitrary;
mod deadlines;
mod hostile;
mod http;
mod logs;
mod operations;
mod pages;
mod proxy;
mod retries;
mod script;
mod tokens;
