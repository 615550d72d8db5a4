//! What whoever watches a cluster tells the driver.

use std::fmt;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What a watch of one of the five sets of objects says.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// All Services.
    Services(WatchEvent<Service>),
    /// All EndpointSlices.
    EndpointSlices(WatchEvent<EndpointSlice>),
    /// All Nodes.
    Nodes(WatchEvent<Node>),
    /// The pods with an egress label ([`EGRESS_LABEL`](crate::convert::EGRESS_LABEL)).
    Pods(WatchEvent<Pod>),
    /// The pods whose readiness waits for us ([`GATE_LABEL`](crate::readiness::GATE_LABEL)).
    GatedPods(WatchEvent<Pod>),
}

/// The sets of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchedSet {
    /// All Services.
    Services,
    /// All EndpointSlices.
    EndpointSlices,
    /// All Nodes.
    Nodes,
    /// The pods with an egress label.
    Pods,
    /// The pods whose readiness waits for us.
    GatedPods,
}

impl WatchedSet {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Services, Self::EndpointSlices, Self::Nodes, Self::Pods, Self::GatedPods];
}

impl fmt::Display for WatchedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Services => "services",
            Self::EndpointSlices => "endpointslices",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::GatedPods => "gatedpods",
        })
    }
}

/// What matters of an event to whoever only wants to know how the watch fares.
pub(crate) enum Progress<'a> {
    Listed,
    Heard,
    Interrupted(&'a Interruption),
}

impl Watched {
    /// Which set it is about.
    #[must_use]
    pub fn set(&self) -> WatchedSet {
        match self {
            Self::Services(_) => WatchedSet::Services,
            Self::EndpointSlices(_) => WatchedSet::EndpointSlices,
            Self::Nodes(_) => WatchedSet::Nodes,
            Self::Pods(_) => WatchedSet::Pods,
            Self::GatedPods(_) => WatchedSet::GatedPods,
        }
    }

    pub(crate) fn progress(&self) -> Progress<'_> {
        match self {
            Self::Services(event) => event.progress(),
            Self::EndpointSlices(event) => event.progress(),
            Self::Nodes(event) => event.progress(),
            Self::Pods(event) | Self::GatedPods(event) => event.progress(),
        }
    }
}

impl<K> WatchEvent<K> {
    fn progress(&self) -> Progress<'_> {
        match self {
            Self::ListDone => Progress::Listed,
            Self::Interrupted(why) => Progress::Interrupted(why),
            Self::ListBegan
            | Self::Applied(_)
            | Self::Deleted(_)
            | Self::Malformed { .. }
            | Self::Resumed => Progress::Heard,
        }
    }
}

/// What a watch of one set of objects says: a whole list, and then each change of it.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<K> {
    /// A whole list begins. What it has not named by its end is gone.
    ListBegan,
    /// The list that began is whole.
    ListDone,
    /// An object is there in this form, as listed or as changed.
    Applied(Box<K>),
    /// An object was deleted, or is not one of the set any more. This is what its last form said of it.
    Deleted(Box<ObjectMeta>),
    /// An object is there in a form that cannot be read. What is known of it stays.
    Malformed {
        /// What can be read of it.
        metadata: Box<ObjectMeta>,
        /// What is wrong with it.
        error: String,
    },
    /// A list or a watch did not go on as it should, and is begun anew.
    Interrupted(Interruption),
    /// A watch that was interrupted is well again, and has nothing else to tell.
    Resumed,
}

/// Why a list or a watch is begun anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// The API server cannot be reached or refuses; what it said, or why it could not be asked.
    #[error("{0}")]
    Failed(String),
    /// The watch is too old to be resumed (410): everything is listed again.
    #[error("the watch has expired")]
    Expired,
    /// A list was older than what was seen before: a server that lags behind. It is not believed, and asked for again.
    #[error("the list of version {listed} is older than version {seen}, which was seen before")]
    Stale {
        /// The list's version.
        listed: u64,
        /// The version that was seen.
        seen: u64,
    },
    /// The watch told something older after something newer: everything is listed again.
    #[error("the watch went back from version {seen} to version {told}")]
    OutOfOrder {
        /// The version that was seen.
        seen: u64,
        /// The version that came after it.
        told: u64,
    },
}
