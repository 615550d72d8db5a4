//! Words to tell scenarios in: changes, actions, and worlds at rest.

use std::net::IpAddr;

use clb_difftracker::{
    Action, AddressUpdate, AddressesUpdate, Change, Config, Endpoint, EndpointSlice, GatewayRequest, Intent,
    Ip, IpFamily, LocationUpdate, Node, NodeName, Notice, ObjectKey, Phase, RegistrationUpdate,
    ResourceRequest, Service, ServiceRef, ServiceUpdate,
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
    Change::ServiceApplied(Service { id: id(number), key: name(number), intent })
}

pub(crate) fn wanted(number: u8, ports: &[u16]) -> Change {
    service(number, Intent::LoadBalancer(spec(IpFamily::V4, ports)))
}

pub(crate) fn slice(slice: &str, service: u8, endpoints: &[(&str, &str)]) -> Change {
    let endpoint =
        |&(address, node): &(&str, &str)| Endpoint { address: ip(address), node: NodeName::new(node) };
    Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", slice),
        service: ServiceRef::Name(name(service)),
        endpoints: endpoints.iter().map(endpoint).collect(),
    })
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
    Action::Resource { service: id(service), request }
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

pub(crate) fn world() -> World {
    World::new(Config::default())
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

    pub(crate) fn actions(&self, from: usize) -> Vec<Action> {
        self.taken[from..].iter().map(|operation| operation.action.clone()).collect()
    }

    pub(crate) fn phases(&self, service: u8) -> Vec<Option<Phase>> {
        let phase = |notice: &Notice| match notice {
            Notice::Phase { service: of, to, .. } if *of == id(service) => Some(*to),
            Notice::Phase { .. }
            | Notice::Rejected { .. }
            | Notice::Failed { .. }
            | Notice::Quarantined { .. } => None,
        };
        self.notices.iter().filter_map(phase).collect()
    }

    pub(crate) fn flying(&self) -> Vec<&Action> {
        self.in_flight.iter().map(|operation| &operation.action).collect()
    }
}

/// A call on the gateway runs, and nothing else.
pub(crate) fn world_with_a_call_in_flight() -> World {
    let mut world = settled([wanted(9, &[80]), node("n9", "192.168.0.9")]);
    world.change(slice("s9", 9, &[("10.0.9.1", "n9")]));
    assert_eq!(world.in_flight.len(), 1);
    world
}
