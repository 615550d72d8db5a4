//! A small world's steps, from random choices or from bytes: what may happen to it, and how it happens.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use clb_difftracker::{
    Action, Change, Config, Endpoint, EndpointSlice, FailureKind, FrontendPort, GatewayRequest, IdleTimeout,
    Intent, Ip, IpFamily, Kind, LoadBalancerSpec, Node, NodeName, ObjectKey, Protocol, RegistrationUpdate,
    Rejection, ResourceRequest, Rule, Service, ServiceId, ServiceRef,
};

use crate::world::{End, World};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Change(Change),
    /// Several at once, before anything is taken.
    Burst(Vec<Change>),
    /// A list of this kind, from which some objects are missing: by position, those whose bit is set.
    Relist(Kind, u8),
    Complete(usize, End),
    PassTime,
}

pub(crate) fn id(number: u8) -> ServiceId {
    ServiceId::new(&format!("00000000-0000-0000-0000-0000000000{number:02}")).unwrap()
}

pub(crate) fn key(number: u8) -> ObjectKey {
    ObjectKey::new("default", format!("name-{number}"))
}

pub(crate) fn ip(number: u8) -> Ip {
    // The last two are IPv6.
    match number {
        0..4 => Ip::from(IpAddr::from([10, 0, 0, number])),
        _ => Ip::from(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)])),
    }
}

pub(crate) fn spec(family: IpFamily, ports: &[u16]) -> LoadBalancerSpec {
    let rule = |&port: &u16| Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(port).unwrap(),
        backend_port: NonZeroU16::new(port).unwrap(),
    };
    LoadBalancerSpec::new(family, IdleTimeout::default(), ports.iter().map(rule).collect()).unwrap()
}

pub(crate) fn node_name(number: u8) -> NodeName {
    NodeName::new(format!("node-{number}"))
}

pub(crate) fn rejected() -> Intent {
    Intent::Rejected(Rejection { reason: "UnsupportedDualStack".into(), message: "no".into() })
}

/// The UID says which name it bears, as in a cluster, where an object never changes its name.
pub(crate) fn service(uid: u8, intent: Intent) -> Change {
    Change::ServiceApplied(Service { id: id(uid), key: key(uid % 2), intent })
}

pub(crate) fn endpoint(address: u8, node: u8) -> Endpoint {
    Endpoint { address: ip(address), node: node_name(node) }
}

pub(crate) fn slice(name: u8, service: ServiceRef, endpoints: Vec<Endpoint>) -> Change {
    let endpoints = endpoints.into_iter().collect();
    Change::EndpointSliceApplied(EndpointSlice { key: key(name), service, endpoints })
}

pub(crate) fn node(name: u8, v4: Option<u8>, v6: Option<u8>) -> Change {
    Change::NodeApplied(Node {
        name: node_name(name),
        ipv4: v4.map(|last| [192, 168, 0, last].into()),
        ipv6: v6.map(|last| [0xfd01, 0, 0, 0, 0, 0, 0, u16::from(last)].into()),
    })
}

pub(crate) const KINDS: [FailureKind; 9] = [
    FailureKind::Throttled { retry_after: None },
    FailureKind::Throttled { retry_after: Some(Duration::from_secs(17)) },
    FailureKind::Conflict,
    FailureKind::Transient,
    FailureKind::Invalid,
    FailureKind::NotFound,
    FailureKind::Forbidden,
    FailureKind::Quota,
    FailureKind::StillReferenced,
];

pub(crate) fn walk(config: Config, steps: &[Step]) -> World {
    let mut world = World::new(config);
    for step in steps {
        match step {
            Step::Change(change) => world.change(change.clone()),
            Step::Burst(changes) => {
                changes.iter().for_each(|change| world.tell(change.clone()));
                world.drain();
            }
            Step::Relist(kind, missing) => relist(&mut world, *kind, *missing),
            Step::Complete(index, end) => {
                if !world.in_flight.is_empty() {
                    let index = index % world.in_flight.len();
                    let end = if is_contradiction(&world, index, *end) { End::Succeeds } else { *end };
                    world.complete(index, end);
                }
            }
            Step::PassTime => {
                world.pass_time();
            }
        }
    }
    world
}

/// An end that could not be: content refused as wrong that Azure holds, or the deletion of what is there refused for want of
/// it. (Any other 404 is possible: the server may be mistaken.)
pub(crate) fn is_contradiction(world: &World, index: usize, end: End) -> bool {
    let (End::Fails(kind) | End::UnknownApplied(kind) | End::UnknownNotApplied(kind)) = end else {
        return false;
    };
    let action = &world.in_flight[index].action;
    let is_held = world.azure.holds(action);
    let is_deletion = match action {
        Action::Resource {
            request: ResourceRequest::DeleteLoadBalancer | ResourceRequest::DeletePublicIp,
            ..
        } => true,
        Action::Gateway(GatewayRequest::UpdateServices(updates)) => {
            updates.iter().all(|update| update.registration == RegistrationUpdate::Unregister)
        }
        Action::Resource { .. } | Action::Gateway(GatewayRequest::UpdateAddressLocations(_)) => false,
    };
    match kind {
        FailureKind::NotFound => is_deletion && !is_held,
        FailureKind::Invalid | FailureKind::StillReferenced => is_held && !is_deletion,
        FailureKind::Throttled { .. }
        | FailureKind::Conflict
        | FailureKind::Transient
        | FailureKind::Forbidden
        | FailureKind::Quota => false,
    }
}

pub(crate) fn relist(world: &mut World, kind: Kind, missing: u8) {
    let list = world.cluster.list(kind);
    let items = list.len() - 2;
    for (at, change) in list.into_iter().enumerate() {
        let is_missing = (1..=items).contains(&at) && missing & (1 << ((at - 1) % 8)) != 0;
        if !is_missing {
            world.tell(change);
            continue;
        }
        let gone = match change {
            Change::ServiceApplied(service) => Change::ServiceGone(service.id),
            Change::EndpointSliceApplied(slice) => Change::EndpointSliceGone(slice.key),
            Change::NodeApplied(node) => Change::NodeGone(node.name),
            Change::ServiceGone(_)
            | Change::EndpointSliceGone(_)
            | Change::NodeGone(_)
            | Change::ResyncBegin(_)
            | Change::ResyncDone(_) => continue,
        };
        world.cluster.apply(&gone);
    }
    world.drain();
}

/// Reads steps from bytes, any bytes: what a fuzzer finds is a walk.
pub(crate) fn from_bytes(bytes: &[u8]) -> (Config, Vec<Step>) {
    let mut bytes = Bytes(bytes);
    let config = Config {
        max_entries: [1, 2, 3, 5_000][bytes.below(4)],
        max_bytes: [1, 400, 2 * 1024 * 1024][bytes.below(3)],
        max_services: 1 + bytes.below(3),
        max_resource_operations: 1 + bytes.below(3),
        batch_window: Duration::from_millis([0, 500][bytes.below(2)]),
        min_interval: Duration::from_millis([0, 500][bytes.below(2)]),
        ..Config::default()
    };
    let mut steps = Vec::new();
    // Longer walks find nothing that shorter ones do not.
    while !bytes.0.is_empty() && steps.len() < 200 {
        steps.push(match bytes.below(8) {
            0..3 => Step::Change(bytes.change()),
            3 => Step::Burst((0..bytes.below(6)).map(|_| bytes.change()).collect()),
            4 => Step::Relist([Kind::Service, Kind::EndpointSlice, Kind::Node][bytes.below(3)], bytes.next()),
            5 => Step::PassTime,
            _ => Step::Complete(bytes.below(4), bytes.end()),
        });
    }
    (config, steps)
}

/// What is left to read; when nothing is, zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.next()) % limit
    }

    fn small(&mut self, limit: u8) -> u8 {
        self.next() % limit
    }

    fn change(&mut self) -> Change {
        match self.below(16) {
            0..4 => {
                let intent = match self.below(6) {
                    0 => Intent::LoadBalancer(spec(IpFamily::V4, &[80, 443])),
                    1 => Intent::LoadBalancer(spec(IpFamily::V6, &[80])),
                    2 => rejected(),
                    3 => Intent::None,
                    _ => Intent::LoadBalancer(spec(IpFamily::V4, &[80])),
                };
                service(self.small(4), intent)
            }
            4 => Change::ServiceGone(id(self.small(4))),
            5..11 => {
                let named = match self.below(5) {
                    0 => ServiceRef::Uid { namespace: "default".to_string(), id: id(self.small(4)) },
                    _ => ServiceRef::Name(key(self.small(2))),
                };
                let endpoints = (0..self.below(4)).map(|_| endpoint(self.small(6), self.small(3))).collect();
                slice(self.small(4), named, endpoints)
            }
            11 => Change::EndpointSliceGone(key(self.small(4))),
            12..15 => {
                let mut location = |limit| Some(self.small(limit)).filter(|last| *last + 1 < limit);
                let (v4, v6) = (location(4), location(3));
                node(self.small(3), v4, v6)
            }
            _ => Change::NodeGone(node_name(self.small(3))),
        }
    }

    fn end(&mut self) -> End {
        let applied = [FailureKind::Transient, FailureKind::Conflict, FailureKind::Quota];
        match self.below(8) {
            0 => End::Fails(KINDS[self.below(KINDS.len())]),
            1 => End::UnknownApplied(applied[self.below(applied.len())]),
            2 => End::UnknownNotApplied(KINDS[self.below(KINDS.len())]),
            _ => End::Succeeds,
        }
    }
}
