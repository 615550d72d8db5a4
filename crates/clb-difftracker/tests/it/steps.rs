//! A small world's steps, from random choices or from bytes: what may happen to it, and how it happens.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use clb_difftracker::{
    Action, Change, Condition, Config, EgressName, Endpoint, EndpointSlice, FailureKind, FrontendPort,
    GatewayRequest, IdleTimeout, Intent, Ip, IpFamily, Kind, LoadBalancerSpec, NatGateway, Node, NodeName,
    ObjectKey, Pod, PodRef, Protocol, Registration, RegistrationUpdate, Rejection, ResourceRequest,
    ResourceVersion, Rule, Service, ServiceId, ServiceRef, Uid,
};

use crate::azure::Part;
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
    /// Azure begins to be read.
    BeginReading,
    /// It has been read.
    EndReading,
    /// Something changes in Azure without us, and is read.
    Drift(Drift),
    /// Another process takes over; the bits say which calls in flight were applied.
    Restart(u8),
    /// The first form of an object that was ever told is told again.
    Stale(usize),
}

/// What somebody else does in Azure. A service or address is meant by its place among those there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drift {
    /// An address is not at its location any more.
    DropAddress(usize),
    /// An address names this outbound service of somebody else's too.
    NameForeign(usize),
    /// A whole location is gone.
    DropLocation(usize),
    /// A service that no address names loses its registration.
    Unregister(usize),
    /// A load balancer is not as it was.
    EditLoadBalancer(usize),
    /// A load balancer that nothing refers to is gone.
    DropLoadBalancer(usize),
    /// What a registered service owns has lost its tag.
    Untag(usize),
    /// An inbound service that the cluster does not know is there, whole.
    InboundOrphan(u8),
    /// An outbound service that the cluster may not know is there, whole.
    OutboundOrphan(u8),
}

impl Drift {
    pub(crate) const KINDS: usize = 9;

    pub(crate) fn new(kind: usize, at: u8) -> Self {
        let place = usize::from(at);
        match kind {
            0 => Self::DropAddress(place),
            1 => Self::NameForeign(place),
            2 => Self::DropLocation(place),
            3 => Self::Unregister(place),
            4 => Self::EditLoadBalancer(place),
            5 => Self::DropLoadBalancer(place),
            6 => Self::Untag(place),
            7 => Self::InboundOrphan(at % 4),
            _ => Self::OutboundOrphan(at % 3),
        }
    }
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
    Change::ServiceApplied(Service::new(id(uid), key(uid % 2), intent))
}

/// An outbound service; the last one's name is a Service's UID.
pub(crate) fn egress(number: u8) -> EgressName {
    match number {
        0..2 => EgressName::new(&format!("egress-{number}")).unwrap(),
        _ => EgressName::new(id(1).as_str()).unwrap(),
    }
}

/// Two UIDs share a name.
pub(crate) fn pod_ref(uid: u8) -> PodRef {
    PodRef { uid: Uid::new(format!("pod-{uid}")), key: key(uid % 2) }
}

pub(crate) fn pod(uid: u8, egress: Option<EgressName>, is_live: bool, endpoints: Vec<Endpoint>) -> Change {
    let endpoints = endpoints.into_iter().collect();
    let version = ResourceVersion::default();
    Change::PodApplied(Pod { pod: pod_ref(uid), version, egress, is_live, endpoints, has_finalizer: false })
}

pub(crate) fn endpoint(address: u8, node: u8, condition: Condition) -> Endpoint {
    Endpoint { address: ip(address), node: node_name(node), condition }
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

pub(crate) const LISTS: [Kind; 4] = [Kind::Service, Kind::EndpointSlice, Kind::Pod, Kind::Node];

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

pub(crate) fn walk(config: &Config, steps: &[Step]) -> World {
    let mut world = World::new(config.clone());
    let mut told: Vec<Change> = Vec::new();
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
            Step::BeginReading => world.begin_reading(),
            Step::EndReading => world.end_reading(),
            Step::Drift(drift) => drift_away(&mut world, *drift),
            Step::Restart(applied) => world.restart(config.clone(), *applied),
            Step::Stale(at) => {
                if let Some(change) =
                    told.get(at % told.len().max(1)).filter(|change| is_stale(&world, change))
                {
                    world.tracker.handle_change(change.clone(), world.now);
                    world.drain();
                }
            }
        }
        told.extend(versioned(&world));
    }
    world
}

/// The present forms of all objects that have versions.
fn versioned(world: &World) -> Vec<Change> {
    [Kind::Service, Kind::Pod].into_iter().flat_map(|kind| world.cluster.list(kind)).collect()
}

/// Whether there is a newer form of this very object: one that is gone is not made to rise again.
fn is_stale(world: &World, change: &Change) -> bool {
    match change {
        Change::ServiceApplied(old) => {
            world.cluster.services.get(&old.id).is_some_and(|now| now.version > old.version)
        }
        Change::PodApplied(old) => {
            // One that asks for nothing and has nothing of ours is not remembered.
            let is_known = |now: &Pod| now.has_finalizer || (now.is_live && now.egress.is_some());
            let now = world.cluster.pods.get(&old.pod);
            now.is_some_and(|now| now.version > old.version && is_known(now))
        }
        Change::ServiceGone(_)
        | Change::EndpointSliceApplied(_)
        | Change::EndpointSliceGone(_)
        | Change::PodGone(_)
        | Change::NodeApplied(_)
        | Change::NodeGone(_)
        | Change::Unreadable(_)
        | Change::ResyncBegin(_)
        | Change::ResyncDone(_) => false,
    }
}

/// Somebody else changes Azure, once the calls in flight have ended, which would meet what they cannot know of; then it is
/// read.
fn drift_away(world: &mut World, drift: Drift) {
    while !world.in_flight.is_empty() {
        world.complete(0, End::Succeeds);
    }
    let azure = &mut world.azure;
    let nth = |at: usize, ids: Vec<ServiceId>| (!ids.is_empty()).then(|| ids[at % ids.len()].clone());
    let foreign = ServiceId::new("default-natgw").unwrap();
    let place = |azure: &crate::azure::Azure, at: usize| {
        let places: Vec<_> = azure
            .locations
            .iter()
            .flat_map(|(location, addresses)| addresses.keys().map(move |address| (*location, *address)))
            .collect();
        (!places.is_empty()).then(|| places[at % places.len()])
    };
    match drift {
        Drift::DropAddress(at) => {
            if let Some((location, address)) = place(azure, at) {
                azure.drop_address(location, address);
            }
        }
        Drift::NameForeign(at) => {
            azure.foreign.insert(foreign.clone());
            if let Some((location, address)) = place(azure, at) {
                azure.locations.entry(location).or_default().entry(address).or_default().insert(foreign);
            }
        }
        Drift::DropLocation(at) => {
            if let Some((location, _)) = place(azure, at) {
                azure.locations.remove(&location);
            }
        }
        Drift::Unregister(at) => {
            let ids = azure.registrations.keys().filter(|id| !azure.names(id)).cloned().collect();
            if let Some(id) = nth(at, ids).filter(|id| !azure.untagged.iter().any(|(of, _)| of == id)) {
                azure.registrations.remove(&id);
            }
        }
        Drift::EditLoadBalancer(at) => {
            let ids = azure.load_balancers.keys().cloned().collect();
            if let Some(id) = nth(at, ids) {
                let family = azure.load_balancers[&id].family();
                azure.load_balancers.insert(id, spec(family, &[8080]));
            }
        }
        Drift::DropLoadBalancer(at) => {
            let ids = azure.load_balancers.keys().filter(|id| !azure.registrations.contains_key(id));
            if let Some(id) = nth(at, ids.cloned().collect()) {
                azure.untagged.remove(&(id.clone(), Part::LoadBalancer));
                azure.load_balancers.remove(&id);
            }
        }
        Drift::Untag(at) => {
            if let Some(id) = nth(at, azure.registrations.keys().cloned().collect()) {
                let has = [
                    (Part::PublicIp, azure.public_ips.contains_key(&id)),
                    (Part::SecondPublicIp, azure.second_public_ips.contains(&id)),
                    (Part::LoadBalancer, azure.load_balancers.contains_key(&id)),
                    (Part::NatGateway, azure.nat_gateways.contains_key(&id)),
                ];
                azure
                    .untagged
                    .extend(has.into_iter().filter(|(_, has)| *has).map(|(part, _)| (id.clone(), part)));
            }
        }
        Drift::InboundOrphan(uid) => {
            let id = id(uid);
            if !azure.knows(&id) {
                azure.public_ips.insert(id.clone(), IpFamily::V4);
                azure.load_balancers.insert(id.clone(), spec(IpFamily::V4, &[80]));
                azure.registrations.insert(id, Registration::WithPool);
            }
        }
        Drift::OutboundOrphan(number) => {
            let id = egress(number).id().clone();
            if !azure.knows(&id) {
                azure.public_ips.insert(id.clone(), IpFamily::V4);
                azure.nat_gateways.insert(id.clone(), NatGateway::Attached { ipv6: false });
                azure.registrations.insert(id, Registration::WithNatGateway);
            }
        }
    }
    world.begin_reading();
    world.end_reading();
}

/// An end that could not be: content refused as wrong that Azure holds, or the deletion of what is there refused for want of
/// it. (Any other 404 is possible: the server may be mistaken.)
pub(crate) fn is_contradiction(world: &World, index: usize, end: End) -> bool {
    let (End::Fails(kind) | End::UnknownApplied(kind) | End::UnknownNotApplied(kind)) = end else {
        return false;
    };
    let action = &world.in_flight[index].action;
    let is_held = world.is_held(action);
    let is_deletion = match action {
        Action::Resource { request, .. } => match request {
            ResourceRequest::DeleteLoadBalancer
            | ResourceRequest::DeletePublicIp
            | ResourceRequest::DeleteSecondPublicIp
            | ResourceRequest::DeleteNatGateway
            | ResourceRequest::DetachNatGateway => true,
            ResourceRequest::PutPublicIp(_)
            | ResourceRequest::PutSecondPublicIp
            | ResourceRequest::PutLoadBalancer(_)
            | ResourceRequest::PutNatGateway { .. } => false,
        },
        Action::Service { request, .. } => *request == clb_difftracker::ServiceRequest::RemoveFinalizers,
        Action::Pod { request, .. } => *request == clb_difftracker::PodRequest::RemoveFinalizer,
        Action::Gateway(GatewayRequest::UpdateServices(updates)) => {
            updates.iter().all(|update| update.registration == RegistrationUpdate::Unregister)
        }
        Action::Gateway(GatewayRequest::UpdateAddressLocations(_) | GatewayRequest::Read) => false,
    };
    let is_there = match action {
        Action::Resource { service, request: ResourceRequest::DetachNatGateway, .. } => {
            world.azure.nat_gateways.contains_key(service)
        }
        Action::Resource { .. } | Action::Gateway(_) | Action::Service { .. } | Action::Pod { .. } => {
            !is_held
        }
    };
    match kind {
        FailureKind::NotFound => is_deletion && is_there,
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
            world.tracker.handle_change(change, world.now);
            continue;
        }
        let gone = match change {
            Change::ServiceApplied(service) => Change::ServiceGone(service.id),
            Change::EndpointSliceApplied(slice) => Change::EndpointSliceGone(slice.key),
            Change::NodeApplied(node) => Change::NodeGone(node.name),
            Change::PodApplied(pod) => Change::PodGone(pod.pod),
            Change::ServiceGone(_)
            | Change::EndpointSliceGone(_)
            | Change::PodGone(_)
            | Change::NodeGone(_)
            | Change::Unreadable(_)
            | Change::ResyncBegin(_)
            | Change::ResyncDone(_) => continue,
        };
        world.cluster.apply(gone);
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
        steps.push(match bytes.below(16) {
            0..5 => Step::Change(bytes.change()),
            5 => Step::Burst((0..bytes.below(6)).map(|_| bytes.change()).collect()),
            6 => Step::Relist(LISTS[bytes.below(4)], bytes.next()),
            7 => Step::PassTime,
            8 => Step::BeginReading,
            9 => Step::EndReading,
            10 => Step::Drift(bytes.drift()),
            11 => match bytes.below(3) {
                0 => Step::Restart(bytes.next()),
                _ => Step::Stale(bytes.below(255)),
            },
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

    fn drift(&mut self) -> Drift {
        let at = self.next();
        Drift::new(self.below(Drift::KINDS), at)
    }

    fn endpoints(&mut self) -> Vec<Endpoint> {
        let condition = |number| match number {
            0 => Condition::Terminating,
            1 => Condition::Unreachable,
            _ => Condition::Ready,
        };
        (0..self.below(4)).map(|_| endpoint(self.small(6), self.small(3), condition(self.small(4)))).collect()
    }

    fn change(&mut self) -> Change {
        match self.below(24) {
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
                let endpoints = self.endpoints();
                slice(self.small(4), named, endpoints)
            }
            11 => Change::EndpointSliceGone(key(self.small(4))),
            12..15 => {
                let mut location = |limit| Some(self.small(limit)).filter(|last| *last + 1 < limit);
                let (v4, v6) = (location(4), location(3));
                node(self.small(3), v4, v6)
            }
            15 => Change::NodeGone(node_name(self.small(3))),
            16..23 => {
                let name = Some(self.small(4)).filter(|number| *number < 3).map(egress);
                pod(self.small(4), name, self.below(4) > 0, self.endpoints())
            }
            _ => Change::PodGone(pod_ref(self.small(4))),
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
