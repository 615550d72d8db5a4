//! The Kubernetes side, over `kube`: watches that feed the driver, writes on objects, the election of a leader, and the whole
//! controller made of them.
//!
//! It is a feature of this crate and not a crate of its own: the [`Controller`] needs both the driver and these parts, and a
//! reader finds the controller where it is called so. Without the feature, this crate is the driver and what it needs.

mod controller;
mod error;
mod lease;
mod signals;
mod stray;
mod watch;
mod writer;

pub use controller::{Controller, ControllerConfig, ControllerError};
pub use lease::Elector;
pub use signals::Signals;
pub use stray::stray_pods;
pub use watch::{WatchConfig, watch};
pub use writer::{FIELD_MANAGER, KubeWriter};
