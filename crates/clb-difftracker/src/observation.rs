//! Inputs: what Azure holds, as read at the start or at any later time.

use alloc::vec::Vec;

use crate::ids::{Ip, RESERVED_NAT_GATEWAY, ServiceId};
use crate::lifecycle::{NatGateway, PublicIp, Registration};
use crate::load_balancer::LoadBalancerSpec;
use crate::operation::AddressUpdate;

/// A part of a full reading of what Azure holds.
///
/// A reading may take long, while operations go on: of what an operation has touched since the reading began, or still
/// touches at its end, the operation knows better, and the reading is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A reading begins; it must be told before the first request of it is sent. One that runs already is given up.
    Begin,
    /// The gateway has this service.
    Service(ObservedService),
    /// The gateway has this location.
    Location(ObservedLocation),
    /// There is this resource.
    Resource(ObservedResource),
    /// The reading is complete: what it did not name is not there. Nothing of it counts before. Without a begin, it does
    /// nothing; a reading that failed is simply not ended.
    Done,
}

/// A service that the gateway has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedService {
    /// Its name.
    pub id: ServiceId,
    /// How it is registered; `None` for a way that we do not use.
    pub registration: Option<Registration>,
    /// Whether it is the gateway's default service.
    pub is_default: bool,
}

impl ObservedService {
    /// Whether it is none of ours: the default service, the cluster's own gateway, an inbound service not named after a
    /// Service's UID, or one registered in a way that we do not use.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        let is_ours = |registration: Registration| !registration.is_inbound() || self.id.is_uuid();
        self.is_default || self.id.as_str() == RESERVED_NAT_GATEWAY || !self.registration.is_some_and(is_ours)
    }
}

/// A location that the gateway has, with all its addresses. Addresses without services are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLocation {
    /// The node's IP.
    pub location: Ip,
    /// Its addresses.
    pub addresses: Vec<AddressUpdate>,
}

/// What the gateway holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayContent {
    /// Its services, each once.
    pub services: Vec<ObservedService>,
    /// Its locations, each once.
    pub locations: Vec<ObservedLocation>,
}

/// A resource named after a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedResource {
    /// The service.
    pub service: ServiceId,
    /// Whose it is.
    pub owner: Owner,
    /// What it is.
    pub content: ResourceContent,
}

/// What a resource's owner tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Us.
    Us,
    /// Nothing: ours if the gateway has its service registered.
    Nobody,
    /// Somebody else: it is left alone.
    Other,
}

/// What a resource is. The public IPs' [`PublicIp::tagged`] follows from the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceContent {
    /// The public IP, `<name>-pip`.
    PublicIp(PublicIp),
    /// The second public IP, `<name>-pip-v6`.
    SecondPublicIp(PublicIp),
    /// The load balancer; `None` is one unlike any that we write.
    LoadBalancer(Option<LoadBalancerSpec>),
    /// The NAT gateway.
    NatGateway(NatGateway),
}
