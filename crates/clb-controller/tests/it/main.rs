//! Kubernetes objects at the gate, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::needless_pass_by_value, reason = "JSON is written where it is handed in")]

mod admission;
#[cfg(feature = "kube")]
mod api_server;
mod budget;
mod cluster;
mod convert;
mod driver;
mod driving;
mod executor;
mod fake;
#[cfg(feature = "kube")]
mod following;
mod gateway;
#[cfg(feature = "kube")]
mod ha;
#[cfg(feature = "kube")]
mod lease;
mod lease_model;
mod nodes;
mod outbound;
mod ownership;
mod pods;
mod reading;
mod recordings;
#[cfg(feature = "kube")]
mod rollout;
#[cfg(feature = "kube")]
mod scenarios;
#[cfg(feature = "kube")]
mod watch;
#[cfg(feature = "kube")]
mod watch_property;
#[cfg(feature = "kube")]
mod watching;
#[cfg(feature = "kube")]
mod whole;
#[cfg(feature = "kube")]
mod world;
#[cfg(feature = "kube")]
mod writer;
