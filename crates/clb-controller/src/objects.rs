//! Writes on Kubernetes objects: finalizers and status.

use async_trait::async_trait;
use clb_difftracker::{ObjectKey, Outcome, PodRef, PodRequest, ServiceId, ServiceRequest};

/// The finalizer of ours that keeps a Service until nothing of it is left in Azure.
pub const SERVICE_FINALIZER: &str = "servicegateway.azure.com/service-cleanup";
/// The upstream finalizer that goes with it: added and removed together, in one write.
pub const UPSTREAM_SERVICE_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The finalizer of ours that keeps a pod until the gateway holds none of its addresses.
pub const POD_FINALIZER: &str = "servicegateway.azure.com/pod-cleanup";

/// Writes on Kubernetes objects. Whoever embeds the driver brings one for their API server.
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
}
