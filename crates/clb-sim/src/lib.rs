#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
//!
//! # The picture
//!
//! * [`azure`]: Azure as a pure state machine, request in, answer out;
//! * [`Simulation`]: the same with Azure Resource Manager's front door (tokens, budgets, latency), a record of its
//!   [`traffic`] and [`fault`]s as data; a [`SimulatedTransport`] leads to it from inside the process, under a virtual clock
//!   if one likes;
//! * [`kube`]: a Kubernetes API server in memory;
//! * [`Simulator`]: a simulation that answers HTTP on the loopback interface;
//! * [`delivery`]: what becomes of requests, from Azure to the pods;
//! * [`control`]: a page about both, and a JSON API for scripts;
//! * [`recording`] and [`expected`]: recorded Kubernetes clusters to replay, and what they should end in.

pub mod azure;
mod budget;
mod clock;
mod connection;
pub mod control;
pub mod delivery;
pub mod expected;
pub mod fault;
mod front;
pub mod kube;
pub mod recording;
mod server;
mod serving;
pub mod traffic;
mod transport;
mod yaml;

pub use budget::{Budget, Budgets};
pub use server::{Simulation, Simulator, SimulatorConfig};
pub use transport::SimulatedTransport;
