//! Writes on Kubernetes objects: finalizers, status, conditions, events.

use std::borrow::Cow;
use std::fmt;

use async_trait::async_trait;
use clb_difftracker::{ObjectKey, Outcome, PodRef, PodRequest, ServiceId, ServiceRequest};

/// The finalizer of ours that keeps a Service until nothing of it is left in Azure.
pub const SERVICE_FINALIZER: &str = "servicegateway.azure.com/service-cleanup";
/// The upstream finalizer that goes with it: added and removed together, in one write.
pub const UPSTREAM_SERVICE_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The finalizer of ours that keeps a pod until the gateway holds none of its addresses.
pub const POD_FINALIZER: &str = "servicegateway.azure.com/pod-cleanup";

/// The type of the condition that says where a Service stands, and of the one that a pod's readiness gate waits for.
pub const PROGRAMMED: &str = "clb.azure.com/programmed";

/// Writes on Kubernetes objects. Whoever embeds the driver brings one for their API server;
/// `KubeWriter` (feature `kube`) is the one for a real one.
///
/// Every write is idempotent and names the object by name and UID: an object of that name with another UID is answered with
/// `NotFound` and left alone. Only what is named is changed: other finalizers, other entries of a status and everything else
/// stay. A success carries the version that was written (`Success::Written`), so that older news from a watch is recognised.
/// A write that the API server may or may not have applied is an unknown outcome.
#[async_trait]
pub trait ObjectWriter: Send + Sync {
    /// Writes on a Service.
    async fn write_service(&self, service: &ServiceId, key: &ObjectKey, request: ServiceRequest) -> Outcome;

    /// Writes on a pod.
    async fn write_pod(&self, pod: &PodRef, request: PodRequest) -> Outcome;

    /// Makes this the object's condition of type [`PROGRAMMED`]. Nothing of the lifecycle depends on it.
    async fn write_condition(&self, object: &ObjectRef, condition: &Condition) -> Outcome;

    /// Tells people of something, as an event on the object. The same event told again counts up. Nothing depends on it.
    async fn write_event(&self, event: &Event) -> Outcome;
}

/// An object that people look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectRef {
    /// A Service.
    Service {
        /// Its UID.
        id: ServiceId,
        /// Its name.
        key: ObjectKey,
    },
    /// A pod.
    Pod(PodRef),
}

impl ObjectRef {
    /// Its UID, of a Service in lower case.
    #[must_use]
    pub fn uid(&self) -> &str {
        match self {
            Self::Service { id, .. } => id.as_str(),
            Self::Pod(pod) => pod.uid.as_str(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Service { key, .. } => key,
            Self::Pod(pod) => &pod.key,
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { key, .. } => write!(f, "Service {key}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}

/// A condition's content; its type is [`PROGRAMMED`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word in UpperCamelCase that says why.
    pub reason: Cow<'static, str>,
    /// A sentence for people; may be empty.
    pub message: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

impl ConditionStatus {
    /// As it stands in objects.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Something that people should hear about an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The object.
    pub about: ObjectRef,
    /// Whether somebody should do something about it.
    pub kind: EventKind,
    /// One word in UpperCamelCase. People filter by these: they never change.
    pub reason: Cow<'static, str>,
    /// A sentence for people.
    pub message: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

impl EventKind {
    /// As it stands in objects.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
