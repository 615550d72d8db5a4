//! Words to tell scenarios in: changes, actions, and worlds at rest.

use std::net::IpAddr;

use clb_difftracker::{
    Action, AddressUpdate, AddressesUpdate, Change, Config, EgressName, Endpoint, EndpointSlice,
    GatewayRequest, Intent, Ip, IpFamily, LocationUpdate, Node, NodeName, Notice, ObjectKey, Phase, Pod,
    PodRef, RegistrationUpdate, ResourceRequest, ResourceVersion, Service, ServiceId, ServiceRef,
    ServiceUpdate, Uid,
};

use crate::steps::{id, spec};
use crate::world::World;

pub(crate) const A: u8 = 1;
pub(crate) const B: u8 = 2;

pub(crate) fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<IpAddr>().unwrap())
}

pub(crate) fn name(service: u8) -> ObjectKey {
    ObjectKey::new("default", format!("service-{service}"))
}

pub(crate) fn service(number: u8, intent: Intent) -> Change {
    Change::ServiceApplied(Service::new(id(number), name(number), intent))
}

pub(crate) fn wanted(number: u8, ports: &[u16]) -> Change {
    service(number, Intent::LoadBalancer(spec(IpFamily::V4, ports)))
}

pub(crate) fn slice(slice: &str, service: u8, endpoints: &[(&str, &str)]) -> Change {
    let endpoint = |&(address, node): &(&str, &str)| Endpoint::ready(ip(address), NodeName::new(node));
    Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", slice),
        service: ServiceRef::Name(name(service)),
        endpoints: endpoints.iter().map(endpoint).collect(),
    })
}

pub(crate) fn pod_ref(pod: &str) -> PodRef {
    PodRef { uid: Uid::new(format!("uid-{pod}")), key: ObjectKey::new("default", pod) }
}

/// A pod that leaves through an outbound service, or left through it.
pub(crate) fn pod(pod: &str, egress: &str, is_live: bool, endpoints: &[(&str, &str)]) -> Change {
    let endpoint = |&(address, node): &(&str, &str)| Endpoint::ready(ip(address), NodeName::new(node));
    Change::PodApplied(Pod {
        pod: pod_ref(pod),
        version: ResourceVersion::default(),
        egress: EgressName::new(egress).ok(),
        is_live,
        endpoints: endpoints.iter().map(endpoint).collect(),
        has_finalizer: false,
    })
}

pub(crate) fn leaves(name: &str, egress: &str, endpoints: &[(&str, &str)]) -> Change {
    pod(name, egress, true, endpoints)
}

pub(crate) fn outbound(egress: &str, request: ResourceRequest) -> Action {
    Action::Resource { service: egress_id(egress), adopt: false, request }
}

pub(crate) fn egress_id(egress: &str) -> ServiceId {
    EgressName::new(egress).unwrap().id().clone()
}

pub(crate) fn outbound_service(egress: &str, registration: RegistrationUpdate) -> Action {
    let update = ServiceUpdate { service: egress_id(egress), registration };
    Action::Gateway(GatewayRequest::UpdateServices(vec![update]))
}

/// Addresses that name services by name.
pub(crate) fn named(addresses: &[(&str, &[ServiceId])]) -> Vec<AddressUpdate> {
    let entry = |&(address, services): &(&str, &[ServiceId])| AddressUpdate {
        address: ip(address),
        services: services.into(),
    };
    addresses.iter().map(entry).collect()
}

pub(crate) fn slice_gone(slice: &str) -> Change {
    Change::EndpointSliceGone(ObjectKey::new("default", slice))
}

pub(crate) fn node(node: &str, location: &str) -> Change {
    let ipv4 = Some(location.parse().unwrap());
    Change::NodeApplied(Node { name: NodeName::new(node), ipv4, ipv6: None })
}

pub(crate) fn put_ip(service: u8) -> Action {
    resource(service, ResourceRequest::PutPublicIp(IpFamily::V4))
}

pub(crate) fn put_lb(service: u8, ports: &[u16]) -> Action {
    resource(service, ResourceRequest::PutLoadBalancer(spec(IpFamily::V4, ports)))
}

pub(crate) fn resource(service: u8, request: ResourceRequest) -> Action {
    Action::Resource { service: id(service), adopt: false, request }
}

pub(crate) fn services(updates: &[(u8, RegistrationUpdate)]) -> Action {
    let update = |&(service, registration): &_| ServiceUpdate { service: id(service), registration };
    Action::Gateway(GatewayRequest::UpdateServices(updates.iter().map(update).collect()))
}

pub(crate) fn entries(addresses: &[(&str, &[u8])]) -> Vec<AddressUpdate> {
    let entry = |&(address, services): &(&str, &[u8])| AddressUpdate {
        address: ip(address),
        services: services.iter().copied().map(id).collect(),
    };
    addresses.iter().map(entry).collect()
}

pub(crate) fn locations(updates: &[(&str, AddressesUpdate)]) -> Action {
    let update = |(location, addresses): &(&str, AddressesUpdate)| LocationUpdate {
        location: ip(location),
        addresses: addresses.clone(),
    };
    Action::Gateway(GatewayRequest::UpdateAddressLocations(updates.iter().map(update).collect()))
}

pub(crate) fn replace(addresses: &[(&str, &[u8])]) -> AddressesUpdate {
    AddressesUpdate::Replace(entries(addresses))
}

pub(crate) fn merge(addresses: &[(&str, &[u8])]) -> AddressesUpdate {
    AddressesUpdate::Merge(entries(addresses))
}

/// A world in which writes on Kubernetes objects are no news.
pub(crate) fn world() -> World {
    world_with(Config::default())
}

pub(crate) fn world_with(config: Config) -> World {
    let mut world = World::new(config);
    world.writes_at_once = true;
    world
}

/// A world at rest after these changes.
pub(crate) fn settled(changes: impl IntoIterator<Item = Change>) -> World {
    let mut world = world();
    changes.into_iter().for_each(|change| world.tell(change));
    world.drain();
    world.settle();
    world
}

impl World {
    /// What the changes, taken in together, make the tracker do until it rests.
    pub(crate) fn response(&mut self, changes: impl IntoIterator<Item = Change>) -> Vec<Action> {
        let from = self.taken.len();
        changes.into_iter().for_each(|change| self.tell(change));
        self.drain();
        self.settle();
        self.actions(from)
    }

    /// What was done in Azure; [`World::writes`] has what was done in Kubernetes.
    pub(crate) fn actions(&self, from: usize) -> Vec<Action> {
        self.all_actions(from).into_iter().filter(|action| !is_write(action)).map(without_adoption).collect()
    }

    pub(crate) fn writes(&self, from: usize) -> Vec<Action> {
        self.all_actions(from).into_iter().filter(is_write).collect()
    }

    pub(crate) fn all_actions(&self, from: usize) -> Vec<Action> {
        self.taken[from..].iter().map(|operation| operation.action.clone()).collect()
    }

    pub(crate) fn phases(&self, service: u8) -> Vec<Option<Phase>> {
        let phase = |notice: &Notice| match notice {
            Notice::Phase { service: of, to, .. } if *of == id(service) => Some(*to),
            Notice::Phase { .. }
            | Notice::Rejected { .. }
            | Notice::EgressRefused { .. }
            | Notice::DeletionsHeld { .. }
            | Notice::PodFailed { .. }
            | Notice::Failed { .. }
            | Notice::Quarantined { .. } => None,
        };
        self.notices.iter().filter_map(phase).collect()
    }

    pub(crate) fn flying(&self) -> Vec<Action> {
        self.in_flight.iter().map(|operation| without_adoption(operation.action.clone())).collect()
    }
}

/// A call on the gateway runs, and nothing else.
pub(crate) fn world_with_a_call_in_flight() -> World {
    let mut world = settled([wanted(9, &[80]), node("n9", "192.168.0.9")]);
    world.change(slice("s9", 9, &[("10.0.9.1", "n9")]));
    assert_eq!(world.in_flight.len(), 1);
    world
}

pub(crate) fn is_write(action: &Action) -> bool {
    match action {
        Action::Service { .. } | Action::Pod { .. } => true,
        Action::Gateway(_) | Action::Resource { .. } => false,
    }
}

/// Most scenarios are not about what is registered when.
fn without_adoption(action: Action) -> Action {
    match action {
        Action::Resource { service, request, .. } => Action::Resource { service, adopt: false, request },
        Action::Gateway(_) | Action::Service { .. } | Action::Pod { .. } => action,
    }
}
