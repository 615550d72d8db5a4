//! Kubernetes objects at the gate, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod budget;
mod convert;
mod driver;
mod driving;
mod executor;
mod fake;
mod gateway;
mod nodes;
mod outbound;
mod ownership;
mod pods;
mod reading;
#[cfg(feature = "kube")]
mod watch;
#[cfg(feature = "kube")]
mod watch_property;
#[cfg(feature = "kube")]
mod watching;
