//! Outputs: what to do, and how it went.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::change::PodRef;
use crate::ids::{Ip, IpFamily, ObjectKey, ResourceVersion, ServiceId};
use crate::load_balancer::LoadBalancerSpec;
use crate::observation::GatewayContent;

/// Names one operation; never used twice by one tracker, and later operations have greater ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub(crate) u64);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op-{}", self.0)
    }
}

/// Something worth doing now. Whoever takes it owes the tracker exactly one [`Outcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What the outcome must name.
    pub id: OperationId,
    /// What to do.
    pub action: Action,
}

/// What to do.
///
/// Every action is idempotent: after a failure or an unknown outcome the same action, or its opposite, is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A call on the ServiceGateway itself; at most one is in flight.
    Gateway(GatewayRequest),
    /// A call on one resource that belongs to one service; at most one operation per service is in flight.
    Resource {
        /// Whose resource it is.
        service: ServiceId,
        /// Whether the resource may lack any owner tag and is ours all the same, since the ServiceGateway had its service
        /// registered when it was read: then a write adds the tag. Otherwise only what carries our tag may be written or
        /// deleted.
        adopt: bool,
        /// Which, and what to do with it.
        request: ResourceRequest,
    },
    /// A write on one Kubernetes Service; at most one operation per service is in flight.
    Service {
        /// Its UID: an object of this name with another UID is another Service, and is left alone (`NotFound`).
        service: ServiceId,
        /// Its name.
        key: ObjectKey,
        /// What to write.
        request: ServiceRequest,
    },
    /// A write on one pod; at most one per pod is in flight.
    Pod {
        /// Which: an object of this name with another UID is another pod, and is left alone (`NotFound`).
        pod: PodRef,
        /// What to write.
        request: PodRequest,
    },
}

/// What to write on a Kubernetes Service. Finalizers of others are never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceRequest {
    /// Add our finalizers, those that are missing.
    AddFinalizers,
    /// Remove our finalizers: nothing of the Service is left in Azure.
    RemoveFinalizers,
    /// Make this the one IP of its family in the status, and keep everything else there. Not on a Service that is being
    /// deleted or no longer wants a load balancer: that is a `Conflict`.
    SetIngress(Ip),
    /// Remove this IP from the status, and keep everything else there: the Service has stopped being a load balancer of ours.
    ClearIngress(Ip),
}

/// What to write on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodRequest {
    /// Add our finalizer.
    AddFinalizer,
    /// Remove our finalizer: the gateway holds none of the pod's addresses.
    RemoveFinalizer,
}

/// A call on the ServiceGateway. An error of NRP rejects the whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayRequest {
    /// Read all services and all address locations; the answer is [`Success::Gateway`]. Asked for when NRP contradicts
    /// what we believe it to hold.
    Read,
    /// `updateServices`, a partial update: each service at most once, sorted by identity.
    UpdateServices(Vec<ServiceUpdate>),
    /// `updateAddressLocations`, a partial update: each location at most once, sorted.
    UpdateAddressLocations(Vec<LocationUpdate>),
}

/// What becomes of one service's registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUpdate {
    /// The service.
    pub service: ServiceId,
    /// What becomes of it.
    pub registration: RegistrationUpdate,
}

/// What becomes of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationUpdate {
    /// Registered as inbound, its backend pool the one of the service's load balancer.
    RegisterInbound,
    /// Registered as inbound, but with its list of backend pools empty, so that the load balancer can be deleted.
    ClearPool,
    /// Registered as outbound, with the service's NAT gateway.
    RegisterOutbound,
    /// Registered as outbound, but with its NAT gateway `null`, so that the NAT gateway can be deleted.
    ClearNatGateway,
    /// Removed.
    Unregister,
}

/// What becomes of one location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationUpdate {
    /// The node's IP.
    pub location: Ip,
    /// What becomes of it.
    pub addresses: AddressesUpdate,
}

/// What becomes of the addresses of one location. Addresses are sorted, each stands once, and all are of the
/// location's family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressesUpdate {
    /// The location holds exactly these afterwards (location `FullUpdate`); never empty.
    Replace(Vec<AddressUpdate>),
    /// The location holds these as given afterwards and keeps the others (location `PartialUpdate`); never empty.
    Merge(Vec<AddressUpdate>),
    /// The location is gone afterwards (location `PartialUpdate` without addresses).
    Remove,
}

/// What becomes of one address at one location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressUpdate {
    /// The pod's IP.
    pub address: Ip,
    /// All services it backs, sorted; empty removes the address. Shared between addresses that back the same.
    pub services: Arc<[ServiceId]>,
}

/// What to do with one Azure resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceRequest {
    /// Create the service's public IP, `<name>-pip`, or leave it as it is but for our owner tag.
    PutPublicIp(IpFamily),
    /// The same with the IPv6 public IP of an outbound service, `<name>-pip-v6`.
    PutSecondPublicIp,
    /// Create the service's load balancer, or make it this.
    PutLoadBalancer(LoadBalancerSpec),
    /// Delete the load balancer; one that is not there is deleted.
    DeleteLoadBalancer,
    /// Create the service's NAT gateway in our ServiceGateway, with its public IP and, if `ipv6`, its second one; or make it
    /// this.
    PutNatGateway {
        /// Whether it has an IPv6 public IP too.
        ipv6: bool,
    },
    /// Take the NAT gateway out of the ServiceGateway (an explicit `null`) and leave the rest of it as it is but for our owner
    /// tag; one that is not there is out of it.
    DetachNatGateway,
    /// Delete the NAT gateway; one that is not there is deleted.
    DeleteNatGateway,
    /// Delete the public IP; one that is not there is deleted.
    DeletePublicIp,
    /// Delete the second public IP; one that is not there is deleted.
    DeleteSecondPublicIp,
}

impl ResourceRequest {
    /// Whether it deletes, so that `NotFound` means done.
    pub(crate) fn is_deletion(&self) -> bool {
        match self {
            Self::DeleteLoadBalancer
            | Self::DeleteNatGateway
            | Self::DeletePublicIp
            | Self::DeleteSecondPublicIp => true,
            Self::PutPublicIp(_)
            | Self::PutSecondPublicIp
            | Self::PutLoadBalancer(_)
            | Self::PutNatGateway { .. }
            | Self::DetachNatGateway => false,
        }
    }
}

/// How an operation went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, to the end of any long-running operation.
    Succeeded(Success),
    /// It was refused and changed nothing.
    Failed(Failure),
    /// Nobody knows whether, or how much of it, was or still will be applied: a timeout, a lost poll, a cut connection, an
    /// accepted operation that failed on the way. The failure decides when it is tried again, just as if it had been
    /// refused.
    Unknown(Failure),
}

/// What a successful operation taught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Success {
    /// Nothing but that it is done.
    Done,
    /// The public IP that was put has this address. Without one yet, the answer is [`Success::Done`]; an inbound service then
    /// waits and asks again.
    PublicIp(Ip),
    /// The Kubernetes object was written, or found to be as wanted, in this version.
    Written(ResourceVersion),
    /// What the gateway holds.
    Gateway(GatewayContent),
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// For people: the ARM code, message and request ids.
    pub message: alloc::string::String,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The subscription's budget is spent: nothing is sent before this long from now.
    Throttled {
        /// The server's `Retry-After`; without one, the ordinary backoff.
        retry_after: Option<Duration>,
    },
    /// Something else is changing the same thing; try again later.
    Conflict,
    /// The server or the way to it is ill; try again later.
    Transient,
    /// This request can never succeed; do not send it again until its input changes.
    Invalid,
    /// Something that the request needs does not exist.
    NotFound,
    /// We are not allowed to.
    Forbidden,
    /// A quota of the subscription is used up.
    Quota,
    /// NRP's `ServiceWithOverlayMappingsCannotBeDeleted`: addresses still name the service to be removed.
    StillReferenced,
}
