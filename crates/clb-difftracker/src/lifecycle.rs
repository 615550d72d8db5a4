//! The lifecycle: what Azure and Kubernetes hold of one service, what is wanted of it, and the next step between the two.

use alloc::vec::Vec;

use crate::ids::{Ip, IpFamily};
use crate::load_balancer::LoadBalancerSpec;
use crate::operation::{RegistrationUpdate, ResourceRequest, ServiceRequest};

/// What we believe there is of one thing, and how sure we are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Observed<T> {
    /// It is not there.
    #[default]
    Absent,
    /// It is there, like this.
    Present(T),
    /// An operation on it ended with nobody knowing how. It may be there, like this or as it was before, where deleting
    /// too early would hurt, and it is not there where relying on it would.
    Unknown(T),
}

impl<T> Observed<T> {
    /// What was known of it is no longer sure.
    pub(crate) fn doubt(&mut self) {
        if let Self::Present(there) | Self::Unknown(there) = core::mem::take(self) {
            *self = Self::Unknown(there);
        }
    }

    /// What is there, or may be.
    pub(crate) fn possible(&self) -> Option<&T> {
        match self {
            Self::Absent => None,
            Self::Present(there) | Self::Unknown(there) => Some(there),
        }
    }

    /// What is there for sure.
    pub(crate) fn certain(&self) -> Option<&T> {
        match self {
            Self::Present(there) => Some(there),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// A public IP of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PublicIp {
    /// Its family.
    pub family: IpFamily,
    /// Its address, once it has one.
    pub address: Option<Ip>,
    /// Whether it carries our owner tag. One without it is ours as long as its service is registered in our gateway.
    pub tagged: bool,
}

impl PublicIp {
    fn is_complete(&self, family: IpFamily) -> bool {
        self.family == family && self.tagged
    }
}

/// A NAT gateway of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NatGateway {
    /// As we write it: with the service's public IPs, in our ServiceGateway, with our owner tag.
    Attached {
        /// Whether it has an IPv6 public IP too.
        ipv6: bool,
    },
    /// With our owner tag, in no ServiceGateway: on its way out.
    Detached,
    /// Unlike what we write.
    Other,
}

/// How a service is registered in the ServiceGateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Registration {
    /// As inbound, with its load balancer's backend pool: it can be named by addresses.
    WithPool,
    /// As inbound, its pools cleared, on the way out.
    WithoutPool,
    /// As outbound, with its NAT gateway: it can be named by addresses.
    WithNatGateway,
    /// As outbound, without a NAT gateway, on the way out.
    WithoutNatGateway,
}

impl Registration {
    pub(crate) fn is_inbound(self) -> bool {
        match self {
            Self::WithPool | Self::WithoutPool => true,
            Self::WithNatGateway | Self::WithoutNatGateway => false,
        }
    }
}

/// What Azure holds of one service. Inbound and outbound services share the namespace of names, so there is one of these for
/// a name, whatever it is used for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resources {
    /// Its public IP, `<name>-pip`.
    pub public_ip: Observed<PublicIp>,
    /// Its second public IP, `<name>-pip-v6`, which only outbound services have.
    pub second_public_ip: Observed<PublicIp>,
    /// Its load balancer; `None` is one unlike any that we write.
    pub load_balancer: Observed<Option<LoadBalancerSpec>>,
    /// Its NAT gateway.
    pub nat_gateway: Observed<NatGateway>,
    /// Its registration in the ServiceGateway.
    pub registration: Observed<Registration>,
}

impl Resources {
    /// Whether what a request is about may be there without our owner tag, and was ours when it was read: the gateway had its
    /// service registered.
    pub(crate) fn lacks_tag(&self, request: &ResourceRequest) -> bool {
        let ip = |ip: &Observed<PublicIp>| ip.possible().is_some_and(|ip| !ip.tagged);
        match request {
            ResourceRequest::PutPublicIp(_) | ResourceRequest::DeletePublicIp => ip(&self.public_ip),
            ResourceRequest::PutSecondPublicIp | ResourceRequest::DeleteSecondPublicIp => {
                ip(&self.second_public_ip)
            }
            ResourceRequest::PutLoadBalancer(_) | ResourceRequest::DeleteLoadBalancer => {
                self.load_balancer.possible() == Some(&None)
            }
            ResourceRequest::PutNatGateway { .. }
            | ResourceRequest::DetachNatGateway
            | ResourceRequest::DeleteNatGateway => self.nat_gateway.possible() == Some(&NatGateway::Other),
        }
    }

    /// Whether there is something that only outbound services have.
    fn is_outbound(&self) -> bool {
        !self.second_public_ip.is_absent()
            || !self.nat_gateway.is_absent()
            || self.registration.possible().is_some_and(|registration| !registration.is_inbound())
    }
}

/// What Kubernetes holds of one Service object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServiceObject {
    /// Our finalizers; `false` where some of them are missing.
    pub finalizers: Observed<bool>,
    /// The IPs in its status.
    pub ingress: Observed<Vec<Ip>>,
}

impl ServiceObject {
    fn shows(&self, ip: Ip) -> bool {
        let same_family = |other: &&Ip| other.family() == ip.family();
        self.ingress.certain().is_some_and(|shown| shown.iter().filter(same_family).eq([&ip]))
    }

    /// Whether clients may be told of this IP.
    fn may_show(&self, ip: Ip) -> bool {
        self.ingress.possible().is_some_and(|shown| shown.contains(&ip))
    }

    /// The status does not have this IP any more.
    pub(crate) fn hide(&mut self, ip: Ip) {
        let mut shown = self.ingress.possible().cloned().unwrap_or_default();
        shown.retain(|other| *other != ip);
        self.ingress = if shown.is_empty() { Observed::Absent } else { Observed::Present(shown) };
    }
}

/// What is to become of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal<'a> {
    /// It balances load like this.
    Serve(&'a LoadBalancerSpec),
    /// What serves goes on as it is, and nothing new is made: the Service asks for what it cannot have.
    Keep,
    /// Pods leave through it.
    Egress {
        /// Also with IPv6.
        ipv6: bool,
    },
    /// It stays as it is: it is not ours, or whether it is wanted has to be confirmed first.
    Leave,
    /// Nothing of it is left.
    Remove,
}

/// The next thing to do for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: everything is as it should be.
    Settled,
    /// Its addresses have to be withdrawn first.
    Drain,
    /// A request on a resource of its own.
    Resource(ResourceRequest),
    /// A part of the next `updateServices`.
    Registration(RegistrationUpdate),
    /// A write on its Kubernetes object.
    Object(ServiceRequest),
}

/// The next step from what there is to the goal. `references` counts the addresses that name the service, or may; without
/// an `object`, there is none in Kubernetes.
///
/// This is the whole lifecycle. Whatever happened on the way (a delete during a create, a changed mind, a failure, a
/// restart), the step depends only on where things stand.
pub(crate) fn next_step(
    goal: Goal<'_>,
    object: Option<&ServiceObject>,
    resources: &Resources,
    references: u32,
) -> Step {
    let may_have_finalizers = object.is_some_and(|object| !object.finalizers.is_absent());
    match goal {
        Goal::Leave => Step::Settled,
        Goal::Keep => keeping_step(object, resources, references),
        Goal::Serve(spec) => serving_step(spec, object, resources, references),
        Goal::Egress { ipv6 } => egress_step(ipv6, resources, references),
        Goal::Remove => {
            // Clients should not be told of an address that goes away.
            let address = resources.public_ip.possible().and_then(|ip| ip.address);
            if let Some(ip) = address.filter(|ip| object.is_some_and(|object| object.may_show(*ip))) {
                return Step::Object(ServiceRequest::ClearIngress(ip));
            }
            let step = removal_step(resources, references);
            let is_last = step == Step::Settled && may_have_finalizers;
            if is_last { Step::Object(ServiceRequest::RemoveFinalizers) } else { step }
        }
    }
}

fn lacks_finalizers(object: Option<&ServiceObject>) -> bool {
    object.is_some_and(|object| object.finalizers != Observed::Present(true))
}

fn serving_step(
    spec: &LoadBalancerSpec,
    object: Option<&ServiceObject>,
    resources: &Resources,
    references: u32,
) -> Step {
    let Resources { public_ip, load_balancer, registration, .. } = resources;
    // A public IP cannot change its family: it has to go, and whatever uses it before it.
    let is_other_family = public_ip.possible().is_some_and(|there| there.family != spec.family());
    if lacks_finalizers(object) {
        return Step::Object(ServiceRequest::AddFinalizers);
    }
    if resources.is_outbound() || is_other_family {
        return removal_step(resources, references);
    }
    let Some(address) =
        public_ip.certain().filter(|there| there.is_complete(spec.family())).and_then(|there| there.address)
    else {
        return Step::Resource(ResourceRequest::PutPublicIp(spec.family()));
    };
    if load_balancer.certain().and_then(Option::as_ref) != Some(spec) {
        Step::Resource(ResourceRequest::PutLoadBalancer(spec.clone()))
    } else if registration.certain() != Some(&Registration::WithPool) {
        Step::Registration(RegistrationUpdate::RegisterInbound)
    } else if object.is_some_and(|object| !object.shows(address)) {
        Step::Object(ServiceRequest::SetIngress(address))
    } else {
        Step::Settled
    }
}

/// Nothing new is made, but what serves, or may, and is in doubt is settled by a repetition.
fn keeping_step(object: Option<&ServiceObject>, resources: &Resources, references: u32) -> Step {
    let Resources { public_ip, load_balancer, registration, .. } = resources;
    if resources.is_outbound() {
        return removal_step(resources, references);
    }
    let serves = registration.possible() == Some(&Registration::WithPool);
    let (Some(ip), Some(Some(spec)), true) = (public_ip.possible(), load_balancer.possible(), serves) else {
        return Step::Settled;
    };
    if lacks_finalizers(object) {
        Step::Object(ServiceRequest::AddFinalizers)
    } else if public_ip.certain().is_none_or(|ip| !ip.tagged || ip.address.is_none()) {
        Step::Resource(ResourceRequest::PutPublicIp(ip.family))
    } else if load_balancer.certain().is_none() {
        Step::Resource(ResourceRequest::PutLoadBalancer(spec.clone()))
    } else if registration.certain().is_none() {
        Step::Registration(RegistrationUpdate::RegisterInbound)
    } else {
        match (ip.address, object) {
            (Some(address), Some(object)) if !object.shows(address) => {
                Step::Object(ServiceRequest::SetIngress(address))
            }
            (Some(_) | None, _) => Step::Settled,
        }
    }
}

fn egress_step(ipv6: bool, resources: &Resources, references: u32) -> Step {
    let Resources { public_ip, second_public_ip, load_balancer, nat_gateway, registration } = resources;
    let is_inbound = !load_balancer.is_absent()
        || registration.possible().is_some_and(|registration| registration.is_inbound());
    let is_other_family = public_ip.possible().is_some_and(|there| there.family != IpFamily::V4);
    let is_there = |ip: &Observed<PublicIp>, family| ip.certain().is_some_and(|ip| ip.is_complete(family));
    if is_inbound || is_other_family {
        removal_step(resources, references)
    } else if !is_there(public_ip, IpFamily::V4) {
        Step::Resource(ResourceRequest::PutPublicIp(IpFamily::V4))
    } else if ipv6 && !is_there(second_public_ip, IpFamily::V6) {
        Step::Resource(ResourceRequest::PutSecondPublicIp)
    } else if nat_gateway.certain() != Some(&NatGateway::Attached { ipv6 }) {
        Step::Resource(ResourceRequest::PutNatGateway { ipv6 })
    } else if registration.certain() != Some(&Registration::WithNatGateway) {
        Step::Registration(RegistrationUpdate::RegisterOutbound)
    } else {
        Step::Settled
    }
}

/// What goes next when everything has to: references before what they refer to, and public IPs, which clients know, last.
fn removal_step(resources: &Resources, references: u32) -> Step {
    let Resources { public_ip, second_public_ip, load_balancer, nat_gateway, registration } = resources;
    let is_registered = |as_what| registration.certain() == Some(&as_what);
    let registered_as = registration.possible().copied();
    let untagged = |ip: &Observed<PublicIp>| {
        // Once it is not registered any more, nothing but the tag tells that it is ours.
        ip.possible().filter(|ip| !ip.tagged && registered_as.is_some()).map(|ip| ip.family)
    };
    let may_name_pool = registered_as.is_some() && !is_registered(Registration::WithoutPool);
    let may_name_nat_gateway = registered_as.is_some() && !is_registered(Registration::WithoutNatGateway);
    if references > 0 {
        Step::Drain
    } else if let Some(family) = untagged(public_ip) {
        Step::Resource(ResourceRequest::PutPublicIp(family))
    } else if untagged(second_public_ip).is_some() {
        Step::Resource(ResourceRequest::PutSecondPublicIp)
    } else if !load_balancer.is_absent() && may_name_pool {
        Step::Registration(RegistrationUpdate::ClearPool)
    } else if !load_balancer.is_absent() {
        Step::Resource(ResourceRequest::DeleteLoadBalancer)
    } else if !nat_gateway.is_absent() && may_name_nat_gateway {
        Step::Registration(RegistrationUpdate::ClearNatGateway)
    } else if nat_gateway.possible().is_some_and(|gateway| *gateway != NatGateway::Detached) {
        Step::Resource(ResourceRequest::DetachNatGateway)
    } else if !registration.is_absent() {
        Step::Registration(RegistrationUpdate::Unregister)
    } else if !nat_gateway.is_absent() {
        Step::Resource(ResourceRequest::DeleteNatGateway)
    } else if !public_ip.is_absent() {
        Step::Resource(ResourceRequest::DeletePublicIp)
    } else if !second_public_ip.is_absent() {
        Step::Resource(ResourceRequest::DeleteSecondPublicIp)
    } else {
        Step::Settled
    }
}
