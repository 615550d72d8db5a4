#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
//!
//! # The picture
//!
//! ```text
//!                        ┌──────────────────────────── Controller (feature `kube`) ───────────────────────────┐
//!  Services, slices, ──► watch ──► Watched ──► Inbox ─┐                                                       │
//!  Nodes, pods                                        ▼                                                       │
//!  scale sets ──► NodePoller ──► NodeEvent ──► ┌─── Driver ────┐   one task owns all of it                    │
//!                                              │ ClusterView   │   what objects mean together, as Changes     │
//!                 Outcome of each call ───────►│ DiffTracker   │──► Operation                                 │
//!                           ▲                  │ Announcer     │──► conditions, events                        │
//!                           │                  └───────▲───────┘       │                                      │
//!                           │    Elector ──► Leadership┘               ├─► LocationAndNrpServiceBatchUpdater ─► ServiceGateway
//!                           ├──────────────────────────────────────────┼─► ResourceExecutor ─► public IPs, load balancers, …
//!                           └──────────────────────────────────────────┴─► KubeWriter ─► finalizers, status, …
//!                        └────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * [`convert`] and [`admission`] turn Kubernetes objects into [`Change`](clb_difftracker::Change)s, once, at the edge.
//! * [`cluster`] is what objects mean together: named ports, [readiness gates](readiness), nodes out of reach; [`nodes`] joins what
//!   the API server and Azure know of nodes, for those who watch scale sets too.
//! * [`Inbox`] is the coalescing trigger: it wakes the driver once for whatever has come in meanwhile.
//! * [`Driver`] is the loop around the tracker: inputs in, operations out, each call a task of its own with a time limit.
//!   While a call on the ServiceGateway runs, everything that changes goes into the next batch.
//! * [`LocationAndNrpServiceBatchUpdater`] performs the batches, [`ResourceExecutor`] everything on single resources, an
//!   [`ObjectWriter`](objects::ObjectWriter) what is written on Kubernetes objects.
//! * [`reading`] reads what Azure holds, at the begin of each term and at any later time, and hands it in like any other input.
//! * [`lease`] elects a leader of several replicas: all watch, one sends, and none sends after its lease could have been lost.
//! * `kube` is the Kubernetes side: watches, writes, the elector, and the `Controller` that puts everything together.
//!
//! # Replaceable parts
//!
//! | part | its own is |
//! | --- | --- |
//! | calls on Azure | any [`NrpApi`](clb_nrp::NrpApi), and any [`VmssApi`](clb_vmss::VmssApi) behind a `NodePoller` |
//! | source of changes | whoever has an [`Inbox`]: [`watched`](Inbox::watched) for objects, [`change`](Inbox::change) for changes of one's own |
//! | writes on objects | any [`ObjectWriter`](objects::ObjectWriter) |
//! | election | whoever holds the sender of a channel of [`Leadership`] |
//! | policy | [`AdmissionPolicy`](admission::AdmissionPolicy), [`ReadinessConfig`](readiness::ReadinessConfig), the tracker's `Config` |
//!
//! # Time and chance
//!
//! Time is tokio's, chance comes from seeds in the configuration, nothing depends on the order of a hash map, and whatever waits
//! for several things asks them in a fixed order. On a runtime of one thread with paused time, the same inputs give the same run.

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
