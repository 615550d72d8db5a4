//! A synthetic cluster of any size, and a tracker that is in step with it.

use std::net::IpAddr;
use std::num::NonZeroU16;

use clb_difftracker::{
    Action, Change, Config, DiffTracker, Endpoint, EndpointSlice, FrontendPort, GatewayRequest, IdleTimeout,
    Intent, Ip, IpFamily, LoadBalancerSpec, LocationUpdate, Node, NodeName, ObjectKey, Operation, Outcome,
    Protocol, ResourceRequest, Rule, Service, ServiceId, ServiceRef, Success, Timestamp,
};

/// Endpoints in one slice, as the EndpointSlice controller makes them.
pub const SLICE: usize = 100;

/// Pods on one node, a usual setting.
pub const NODE: usize = 100;

/// A cluster of pods, each behind two Services.
pub struct Cluster {
    addresses: usize,
    nodes: Vec<NodeName>,
}

impl Cluster {
    /// A cluster of this many pods, a multiple of [`SLICE`].
    pub fn new(addresses: usize) -> Self {
        let nodes = (0..addresses.div_ceil(NODE)).map(|number| NodeName::new(node_name(number))).collect();
        Self { addresses, nodes }
    }

    /// How many pods there are.
    pub fn addresses(&self) -> usize {
        self.addresses
    }

    /// Everything in it: nodes, Services and slices.
    pub fn changes(&self) -> Vec<Change> {
        let nodes = self.nodes.iter().enumerate().map(|(number, name)| node(number, name));
        let groups = self.addresses / SLICE;
        let services = (0..2 * groups).map(service);
        let slices = (0..2 * groups).map(|number| self.slice(number, SLICE));
        nodes.chain(services).chain(slices).collect()
    }

    /// One of its Services; each has [`SLICE`] endpoints.
    pub fn service(&self, number: usize) -> Service {
        service_of(number)
    }

    /// A slice with its first `endpoints` endpoints. Slices `2n` and `2n + 1` hold the same pods for two Services. The
    /// pods of one slice are on different nodes.
    pub fn slice(&self, number: usize, endpoints: usize) -> Change {
        let nodes = self.nodes.len();
        let endpoint = |at: usize| {
            let pod = number / 2 * SLICE + at;
            Endpoint::ready(ip(10, pod), self.nodes[(pod * 7) % nodes].clone())
        };
        Change::EndpointSliceApplied(EndpointSlice {
            key: ObjectKey::new("default", format!("service-{number}-abcde")),
            service: ServiceRef::Name(service_name(number)),
            endpoints: (0..endpoints).map(endpoint).collect(),
        })
    }
}

fn ip(first: u8, number: usize) -> Ip {
    let [_, a, b, c] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    Ip::from(IpAddr::from([first, a, b, c]))
}

fn node_name(number: usize) -> String {
    format!("aks-pool1-12345678-vmss{number:06}")
}

fn node(number: usize, name: &NodeName) -> Change {
    let IpAddr::V4(location) = ip(172, number).get() else { unreachable!("made of four bytes") };
    Change::NodeApplied(Node { name: name.clone(), ipv4: Some(location), ipv6: None })
}

fn service_name(number: usize) -> ObjectKey {
    ObjectKey::new("default", format!("service-{number}"))
}

#[allow(clippy::expect_used)]
fn service_of(number: usize) -> Service {
    let rule = Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(80).expect("80 is a valid frontend port"),
        backend_port: NonZeroU16::new(8080).expect("8080 is not zero"),
    };
    let spec =
        LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), vec![rule]).expect("one rule is valid");
    let id = ServiceId::new(&format!("00000000-0000-0000-0000-{number:012}"))
        .expect("digits and dashes are valid");
    Service::new(id, service_name(number), Intent::LoadBalancer(spec))
}

fn service(number: usize) -> Change {
    Change::ServiceApplied(service_of(number))
}

/// A tracker that has taken in all changes, with every service registered and no address sent yet.
pub fn registered(changes: Vec<Change>) -> DiffTracker {
    let mut tracker = DiffTracker::new(Config {
        max_resource_operations: usize::MAX,
        max_object_operations: usize::MAX,
        ..Config::default()
    });
    let slices = changes.iter().position(|change| matches!(change, Change::EndpointSliceApplied(_)));
    let mut changes = changes.into_iter();
    for change in changes.by_ref().take(slices.unwrap_or(usize::MAX)) {
        tracker.handle_change(change, NOW);
    }
    settle(&mut tracker, |_| ());
    changes.for_each(|change| tracker.handle_change(change, NOW));
    tracker
}

/// A tracker in step with the cluster.
pub fn in_sync(cluster: &Cluster) -> DiffTracker {
    let mut tracker = registered(cluster.changes());
    settle(&mut tracker, |_| ());
    assert!(tracker.is_synced(), "everything succeeded");
    tracker
}

/// Lets every operation succeed until none is left, shows each address update, and says how many entries there were.
pub fn settle(tracker: &mut DiffTracker, mut show: impl FnMut(&[LocationUpdate])) {
    while let Some(Operation { id, action }) = tracker.poll_operation(NOW) {
        let success = match &action {
            Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) => {
                show(updates);
                Success::Done
            }
            Action::Resource { request: ResourceRequest::PutPublicIp(_), .. } => Success::PublicIp(ip(20, 1)),
            Action::Gateway(GatewayRequest::UpdateServices(_) | GatewayRequest::Read)
            | Action::Resource { .. }
            | Action::Service { .. }
            | Action::Pod { .. } => Success::Done,
        };
        tracker.handle_outcome(id, Outcome::Succeeded(success), NOW);
    }
    while tracker.poll_notice().is_some() {}
}

/// Nothing here waits.
pub const NOW: Timestamp = Timestamp::from_millis(0);
