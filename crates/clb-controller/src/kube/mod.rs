//! The Kubernetes side, over `kube`.

mod error;
mod lease;
mod stray;
mod watch;
mod writer;

pub use stray::stray_pods;
pub use writer::{FIELD_MANAGER, KubeWriter};
