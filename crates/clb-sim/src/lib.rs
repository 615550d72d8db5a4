#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
//!
//! # The picture
//!
//! * [`azure`]: Azure as a pure state machine, request in, answer out;
//! * [`Simulator`]: the same over HTTP on the loopback interface, with a latency and a record of its [`traffic`];
//! * [`recording`] and [`expected`]: recorded Kubernetes clusters to replay, and what they should end in.

pub mod azure;
pub mod expected;
pub mod recording;
mod server;
pub mod traffic;

pub use server::{Simulator, SimulatorConfig};
