//! Outputs: what to do, and how it went.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::ids::{Ip, IpFamily, ServiceId};
use crate::load_balancer::LoadBalancerSpec;

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
    /// A call on one resource that belongs to one service; at most one per service is in flight.
    Resource {
        /// Whose resource it is.
        service: ServiceId,
        /// Which, and what to do with it.
        request: ResourceRequest,
    },
}

/// A call on the ServiceGateway. An error of NRP rejects the whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayRequest {
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
    Register,
    /// Registered as inbound, but with its list of backend pools empty, so that the load balancer can be deleted.
    ClearPool,
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
    /// All services it backs, sorted; empty removes the address.
    pub services: Vec<ServiceId>,
}

/// What to do with one Azure resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceRequest {
    /// Create the service's public IP, or leave it as it is.
    PutPublicIp(IpFamily),
    /// Create the service's load balancer, or make it this.
    PutLoadBalancer(LoadBalancerSpec),
    /// Delete the load balancer; one that is not there is deleted.
    DeleteLoadBalancer,
    /// Delete the public IP; one that is not there is deleted.
    DeletePublicIp,
}

/// How an operation went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, to the end of any long-running operation. A public IP that has been put has an address.
    Succeeded(Success),
    /// It was refused and changed nothing.
    Failed(Failure),
    /// Nobody knows whether, or how much of it, was or still will be applied: a timeout, a lost poll, a cut connection, an
    /// accepted operation that failed on the way. The failure decides when it is tried again, just as if it had been
    /// refused.
    Unknown(Failure),
}

/// What a successful operation taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    /// Nothing but that it is done.
    Done,
    /// The public IP has this address.
    PublicIp(Ip),
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
