#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
//!
//! # The picture
//!
//! ```text
//!  Kubernetes objects ── convert ──► Change ──► Inbox ─┐
//!                      (admission)                     ▼
//!                                               ┌── Driver ──┐      one task owns the DiffTracker
//!                        Outcome of each call ─►│ DiffTracker│─► Operation
//!                                ▲              └────────────┘       │
//!                                │                                   ├─► LocationAndNrpServiceBatchUpdater ─► ServiceGateway
//!                                ├───────────────────────────────────┼─► ResourceExecutor ─► public IPs, load balancers, …
//!                                └───────────────────────────────────┴─► ObjectWriter ─► finalizers, status
//! ```
//!
//! * [`convert`] and [`admission`] turn Kubernetes objects into [`Change`](clb_difftracker::Change)s, once, at the edge.
//! * [`nodes`] joins what the API server and Azure know of nodes, for those who watch scale sets too.
//! * [`Inbox`] is the coalescing trigger: it wakes the driver once for whatever has come in meanwhile.
//! * [`Driver`] is the loop around the tracker: inputs in, operations out, each call a task of its own with a time limit.
//!   While a call on the ServiceGateway runs, everything that changes goes into the next batch.
//! * [`LocationAndNrpServiceBatchUpdater`] performs the batches, [`ResourceExecutor`] everything on single resources;
//!   whoever embeds the driver brings an [`ObjectWriter`](objects::ObjectWriter) for their API server.
//! * [`reading`] reads what Azure holds, at the start or at any later time, and hands it in like any other input.
//!
//! # What is not here yet
//!
//! Watches (`kube`), an `ObjectWriter` over it, the lease, metrics: they will stand beside the driver and feed it.

pub mod admission;
mod announce;
pub mod batch_updater;
mod clock;
pub mod cluster;
pub mod convert;
mod driver;
mod executor;
#[cfg(feature = "kube")]
pub mod kube;
mod leadership;
pub mod lease;
pub mod nodes;
pub mod objects;
mod outcome;
pub mod readiness;
pub mod reading;
mod story;
pub mod watched;

pub use batch_updater::LocationAndNrpServiceBatchUpdater;
pub use clock::WallClock;
pub use driver::{Driver, DriverConfig, Inbox, ReadingStatus, Status, Stopped, WatchStatus};
pub use executor::{OWNER_TAG, ResourceExecutor};
pub use leadership::Leadership;
