//! A Kubernetes API server in memory: Services, EndpointSlices, Nodes, Pods, Events, Leases and Namespaces.
//!
//! [`Cluster`] is a pure state machine: a [`Request`] and the time go in, an [`Answer`] comes out, and a [`Watch`] is asked
//! what it has to say. [`KubeSimulation`] is the same with a clock and faults, and [`KubeSimulator`] over HTTP. Refusals are
//! worded as the recorded ones of a real server are. What is not modelled is refused and named: other resources and subresources.

mod apply;
mod calls;
mod cluster;
mod conditions;
mod controllers;
mod defaults;
mod fields;
mod index;
mod kind;
mod list;
mod load;
mod openapi;
mod patch;
mod pods;
mod replay;
mod rollout;
mod selector;
mod server;
mod status;
mod table;
mod validate;
mod write;

pub use calls::KubeCall;
pub use cluster::{Answer, Cluster, ClusterConfig, Request};
pub use kind::Kind;
pub use list::Watch;
pub use replay::ReplayError;
pub use rollout::{Rollout, RolloutError};
pub use server::{KubeConfig, KubeSimulation, KubeSimulator};
