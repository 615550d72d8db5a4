//! The Kubernetes side, over `kube`.

mod lease;
mod watch;
mod writer;

pub use watch::{WatchConfig, watch};
