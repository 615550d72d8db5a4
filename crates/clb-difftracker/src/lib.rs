//! The pure state machine that keeps an Azure ServiceGateway equal to a Kubernetes cluster.
//!
//! A Kubernetes Service of type LoadBalancer should reach its pods directly. Azure's network resource provider (NRP)
//! offers this through a *ServiceGateway*: services are registered in it, and each *location* (a node's IP) lists its
//! *addresses* (pod IPs), each with the services it backs. The [`DiffTracker`] knows what the cluster asks for and
//! what the gateway holds, and says what to do next. It does nothing itself: no I/O, no clock, no threads, no
//! randomness.
//!
//! ```text
//!  Change ───────► desired state ──┐                      ┌─► Operation ─► (you call Azure or Kubernetes) ─┐
//!                                  ├─► what differs, ─────┤                                                │
//!  Observation ──► observed state ─┘   and may be done    └─► Notice ────► (you tell people)               │
//!                        ▲                                                                                 │
//!                        └──────────────────────────── Outcome ◄───────────────────────────────────────────┘
//! ```
//!
//! # How it works
//!
//! **Sources own what they contribute.** An EndpointSlice *claims* addresses for its Service on a node, a pod claims
//! its own for the outbound service that it leaves through; replacing or removing a source withdraws exactly its own
//! claims. A claim counts while its Service has, or is to have, a load balancer of the address's family, and its node
//! is known and has an IP of it. Where claims name different locations, the one made last decides. An endpoint that
//! terminates and still serves counts while its Service has no ready one, and so does one whose node is out of reach. A slice may come before its Service or its
//! nodes: its claims begin to count when they do.
//!
//! **Each service has one next step**, a function of what is wanted and what there is (`lifecycle::next_step`):
//! finalizers, public IP, load balancer or NAT gateway, registration, status on the way in; withdrawal of addresses,
//! clearing of references, load balancer or NAT gateway, registration, public IPs, finalizers on the way out. Azure
//! has one namespace for inbound and outbound services, so there is one state for a name: what is there of the other
//! kind goes first. Nothing else is remembered, so there is nothing that a change of mind, a failure or a crash could
//! leave inconsistent.
//!
//! **The difference is kept, not searched.** Each input re-examines the addresses and services that it touches; those
//! that differ stand in queues, oldest first. Taking a batch costs what the batch holds, and nothing ever scans the
//! cluster except the end of a full list, which is as long as the cluster anyway.
//!
//! **One batch at a time.** At most one call on the gateway is in flight. Whatever changes meanwhile waits in the
//! queues and goes into the next batch together.
//!
//! **Nobody knows is an answer.** After an unknown outcome, what the call touched counts as there where deleting too
//! early would hurt, and as not there where relying on it would, until a repetition or a reading settles it.
//!
//! **What is read is a difference like any other.** A full reading of Azure, at the start or later, replaces what was
//! believed, except of what an operation has touched since the reading began. What is not ours is never touched, and
//! what would delete too much at once is not believed before the cluster has been listed again.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod address;
mod batch;
mod change;
mod config;
mod desired;
mod diff;
mod explain;
mod ids;
mod latency;
mod lifecycle;
mod load_balancer;
mod notice;
mod object_outcome;
mod observation;
mod operation;
mod outcome;
mod pod;
mod queue;
mod reading;
mod retry;
mod service;
mod size;
mod snapshot;
mod source;
mod table;
mod timer;
mod tracker;

pub use change::{
    Change, Condition, Endpoint, EndpointSlice, Endpoints, Finalizers, Intent, Kind, Node, ObjectName, Pod,
    PodRef, Rejection, Service, ServiceRef, Source,
};
pub use config::Config;
pub use diff::{AddressDifference, Difference, ServiceDifference};
pub use explain::{Explanation, Programmed, ServiceStatus, Stats};
pub use ids::{
    EgressName, EgressNameError, IdError, Ip, IpFamily, NodeName, ObjectKey, ResourceVersion, ServiceId,
    Timestamp, Uid,
};
pub use latency::{LATENCY_BUCKETS, Latency};
pub use lifecycle::{NatGateway, Observed, PublicIp, Registration, Resources, ServiceObject};
pub use load_balancer::{FrontendPort, IdleTimeout, LoadBalancerSpec, MAX_RULES, Protocol, Rule, SpecError};
pub use notice::{Notice, Phase};
pub use observation::{
    GatewayContent, Observation, ObservedLocation, ObservedResource, ObservedService, Owner, ResourceContent,
};
pub use operation::{
    Action, AddressUpdate, AddressesUpdate, Failure, FailureKind, GatewayRequest, LocationUpdate, Operation,
    OperationId, Outcome, PodRequest, RegistrationUpdate, ResourceRequest, ServiceRequest, ServiceUpdate,
    Success,
};
pub use snapshot::{AddressSnapshot, InFlightSnapshot, PodSnapshot, ServiceSnapshot, Snapshot};
pub use tracker::{DiffTracker, Reason};
