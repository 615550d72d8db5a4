//! Node objects and machines, joined.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_controller::nodes::{Anticipation, NodeJoin};
use clb_difftracker::{
    Action, Change, Config, DiffTracker, Endpoint, EndpointSlice, FrontendPort, GatewayRequest, IdleTimeout,
    Intent, Ip, IpFamily, Kind, LoadBalancerSpec, Node, NodeName, ObjectKey, Outcome, Protocol, Rule,
    Service, ServiceId, ServiceRef, Success, Timestamp,
};
use clb_vmss::{Machine, NodeEvent, Power, ProviderId};
use proptest::prelude::*;

fn node(name: &str, ipv4: Option<&str>) -> Node {
    Node { name: NodeName::new(name), ipv4: ipv4.map(|ip| ip.parse().unwrap()), ipv6: None }
}

fn applied(name: &str, ipv4: Option<&str>) -> Change {
    Change::NodeApplied(node(name, ipv4))
}

fn gone(name: &str) -> Change {
    Change::NodeGone(NodeName::new(name))
}

fn machine(ips: &[&str]) -> Machine {
    let id = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0";
    Machine {
        id: id.parse::<ProviderId>().unwrap(),
        vm_id: "m".into(),
        ips: ips.iter().map(|ip| ip.parse::<IpAddr>().unwrap()).collect(),
        power: Power::On,
    }
}

fn added(node: &str, ips: &[&str]) -> NodeEvent {
    NodeEvent::Added { node: node.into(), machine: machine(ips) }
}

fn removed(node: &str) -> NodeEvent {
    NodeEvent::Removed { node: node.into() }
}

#[test]
fn a_machine_that_is_gone_takes_its_node_along_though_the_object_lingers() {
    let mut join = NodeJoin::new(Anticipation::Off);
    assert_eq!(join.handle_change(applied("n1", Some("10.1.0.4"))), [applied("n1", Some("10.1.0.4"))]);
    assert_eq!(join.handle_machine(added("n1", &["10.1.0.4"])), []);
    assert_eq!(join.handle_machine(removed("n1")), [gone("n1")]);
    // The object is told again, by a watch or in a list, and lingers still.
    assert_eq!(join.handle_change(applied("n1", Some("10.1.0.4"))), []);
    let list =
        [Change::ResyncBegin(Kind::Node), applied("n1", Some("10.1.0.4")), Change::ResyncDone(Kind::Node)];
    let told: Vec<_> = list.into_iter().flat_map(|change| join.handle_change(change)).collect();
    assert_eq!(told, [Change::ResyncBegin(Kind::Node), Change::ResyncDone(Kind::Node)]);
    // A machine of its name brings it back.
    assert_eq!(join.handle_machine(added("n1", &["10.1.0.4"])), [applied("n1", Some("10.1.0.4"))]);
}

/// A Service with a pod on each of two nodes.
fn service() -> [Change; 2] {
    let rule = Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(80).unwrap(),
        backend_port: 80.try_into().unwrap(),
    };
    let spec = LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), vec![rule]).unwrap();
    let (id, key) =
        (ServiceId::new("5dec0346-d61c-41a2-97e8-53072ad7a0f2").unwrap(), ObjectKey::new("default", "web"));
    let endpoint =
        |pod: u8, node: &str| Endpoint::ready(Ip::from(IpAddr::from([10, 2, 0, pod])), NodeName::new(node));
    let slice = EndpointSlice {
        key: ObjectKey::new("default", "slice"),
        service: ServiceRef::Name(key.clone()),
        endpoints: [endpoint(1, "n1"), endpoint(2, "n2")].into_iter().collect(),
    };
    let service = Service::new(id, key, Intent::LoadBalancer(spec));
    [Change::ServiceApplied(service), Change::EndpointSliceApplied(slice)]
}

/// Does what the tracker wants done, and says what that was; of addresses, which locations are named.
fn settle(tracker: &mut DiffTracker, changes: Vec<Change>) -> Vec<String> {
    let now = Timestamp::from_millis(0);
    changes.into_iter().for_each(|change| tracker.handle_change(change, now));
    let mut done = Vec::new();
    while let Some(operation) = tracker.poll_operation(now) {
        done.push(match &operation.action {
            Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) => {
                let locations = updates.iter().map(|update| update.location.to_string());
                format!("locations {}", locations.collect::<Vec<_>>().join(" "))
            }
            Action::Gateway(_) => "services".to_owned(),
            Action::Resource { .. } => "resource".to_owned(),
            Action::Service { .. } | Action::Pod { .. } => "object".to_owned(),
        });
        let address = Ip::from(IpAddr::from([20, 0, 0, 1]));
        tracker.handle_outcome(operation.id, Outcome::Succeeded(Success::PublicIp(address)), now);
    }
    done
}

#[test]
fn machines_that_come_and_go_change_locations_and_no_load_balancer() {
    let (mut join, mut tracker) = (NodeJoin::new(Anticipation::On), DiffTracker::new(Config::default()));
    let both = [applied("n1", Some("10.1.0.1")), applied("n2", Some("10.1.0.2"))];
    let changes: Vec<_> = both.into_iter().chain(service()).flat_map(|it| join.handle_change(it)).collect();
    let done = settle(&mut tracker, changes);
    assert!(done.contains(&"locations 10.1.0.1 10.1.0.2".to_owned()), "{done:?}");
    for name in ["n1", "n2"] {
        let listed = join.handle_machine(added(name, &[&format!("10.1.0.{}", &name[1..])]));
        assert_eq!(settle(&mut tracker, listed), [""; 0]);
    }
    // The object lingers; the addresses are drained all the same.
    assert_eq!(settle(&mut tracker, join.handle_machine(removed("n1"))), ["locations 10.1.0.1"]);
    let _ = join.handle_change(gone("n1"));
    // The new machine of the name is known before its object is.
    assert_eq!(settle(&mut tracker, join.handle_machine(added("n1", &["10.1.0.9"]))), ["locations 10.1.0.9"]);
}

#[test]
fn a_node_that_only_another_machine_can_explain_is_back_before_that_is_listed() {
    for again in [vec![applied("n1", Some("10.1.0.9"))], vec![gone("n1"), applied("n1", Some("10.1.0.4"))]] {
        let mut join = NodeJoin::new(Anticipation::Off);
        let _ = join.handle_change(applied("n1", Some("10.1.0.4")));
        let _ = join.handle_machine(added("n1", &["10.1.0.4"]));
        let _ = join.handle_machine(removed("n1"));
        let last = again.last().cloned().unwrap();
        let told: Vec<_> = again.into_iter().flat_map(|change| join.handle_change(change)).collect();
        assert_eq!(told, [last]);
    }
}

#[test]
fn a_machine_is_no_node_before_its_object_says_so_unless_asked_for() {
    let mut join = NodeJoin::new(Anticipation::Off);
    assert_eq!(join.handle_machine(added("n1", &["10.1.0.4"])), []);
    assert_eq!(join.handle_change(applied("n1", None)), [applied("n1", None)]);

    let mut join = NodeJoin::new(Anticipation::On);
    assert_eq!(join.handle_machine(added("n1", &["10.1.0.4"])), [applied("n1", Some("10.1.0.4"))]);
    assert_eq!(join.handle_change(applied("n1", None)), []);
    // What the object says goes before what the machine has.
    assert_eq!(join.handle_change(applied("n1", Some("10.1.0.5"))), [applied("n1", Some("10.1.0.5"))]);
    assert_eq!(join.handle_change(gone("n1")), [applied("n1", Some("10.1.0.4"))]);
    assert_eq!(join.handle_machine(removed("n1")), [gone("n1")]);
    // With pods' addresses on its interface, nobody knows which is the node's.
    assert_eq!(join.handle_machine(added("n2", &["10.1.0.6", "10.1.0.7"])), [applied("n2", None)]);
}

#[test]
fn a_list_of_nodes_names_the_anticipated_ones_too() {
    let mut join = NodeJoin::new(Anticipation::On);
    let _ = join.handle_machine(added("n1", &["10.1.0.4"]));
    let _ = join.handle_change(applied("n2", Some("10.1.0.5")));
    let list =
        [Change::ResyncBegin(Kind::Node), applied("n3", Some("10.1.0.6")), Change::ResyncDone(Kind::Node)];
    let told: Vec<_> = list.into_iter().flat_map(|change| join.handle_change(change)).collect();
    let n3 = applied("n3", Some("10.1.0.6"));
    let expected = [
        Change::ResyncBegin(Kind::Node),
        n3.clone(),
        applied("n1", Some("10.1.0.4")),
        n3,
        Change::ResyncDone(Kind::Node),
    ];
    assert_eq!(told, expected);
}

#[test]
fn power_and_scale_sets_that_cannot_be_listed_change_nothing() {
    let mut join = NodeJoin::new(Anticipation::On);
    let _ = join.handle_machine(added("n1", &["10.1.0.4"]));
    for event in
        [NodeEvent::PowerChanged { node: "n1".into(), power: Power::Off }, NodeEvent::Stale, NodeEvent::Fresh]
    {
        assert_eq!(join.handle_machine(event), []);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Object(u8, u8),
    ObjectGone(u8),
    Machine(u8, u8),
    MachineGone(u8),
    List,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3u8, 1..4u8).prop_map(|(node, ip)| Step::Object(node, ip)),
        (0..3u8).prop_map(Step::ObjectGone),
        (0..3u8, 1..4u8).prop_map(|(node, ip)| Step::Machine(node, ip)),
        (0..3u8).prop_map(Step::MachineGone),
        Just(Step::List),
    ]
}

/// What the tracker makes of what it is told.
#[derive(Default)]
struct Told {
    nodes: BTreeMap<NodeName, Node>,
    listed: Option<BTreeSet<NodeName>>,
}

impl Told {
    fn take(&mut self, change: &Change) {
        match change {
            Change::NodeApplied(node) => {
                self.listed.iter_mut().for_each(|listed| listed.extend([node.name.clone()]));
                self.nodes.insert(node.name.clone(), node.clone());
            }
            Change::NodeGone(name) => drop(self.nodes.remove(name)),
            Change::ResyncBegin(Kind::Node) => self.listed = Some(BTreeSet::new()),
            Change::ResyncDone(Kind::Node) => {
                let listed = self.listed.take().unwrap();
                self.nodes.retain(|name, _| listed.contains(name));
            }
            Change::ServiceApplied(_)
            | Change::ServiceGone(_)
            | Change::EndpointSliceApplied(_)
            | Change::EndpointSliceGone(_)
            | Change::PodApplied(_)
            | Change::PodGone(_)
            | Change::Unreadable(_)
            | Change::ResyncBegin(_)
            | Change::ResyncDone(_) => panic!("{change:?} is not of a node"),
        }
    }
}

proptest! {
    /// Whatever happens, the tracker knows a node that has an object and a machine, and none that has neither.
    #[test]
    fn what_both_sides_know_is_known_and_what_neither_knows_is_not(
        steps in prop::collection::vec(step(), 0..40),
        anticipates: bool,
    ) {
        let anticipation = if anticipates { Anticipation::On } else { Anticipation::Off };
        let mut join = NodeJoin::new(anticipation);
        let mut told = Told::default();
        let (mut objects, mut machines) = (BTreeMap::new(), BTreeMap::new());
        for step in steps {
            let name = |node: u8| format!("n{node}");
            let address = |ip: u8| format!("10.1.0.{ip}");
            let changes = match step {
                Step::Object(node, ip) => {
                    objects.insert(name(node), address(ip));
                    join.handle_change(applied(&name(node), Some(&address(ip))))
                }
                Step::ObjectGone(node) => {
                    objects.remove(&name(node));
                    join.handle_change(gone(&name(node)))
                }
                Step::Machine(node, ip) => {
                    machines.insert(name(node), address(ip));
                    join.handle_machine(added(&name(node), &[&address(ip)]))
                }
                Step::MachineGone(node) => match machines.remove(&name(node)) {
                    Some(_) => join.handle_machine(removed(&name(node))),
                    None => Vec::new(),
                },
                Step::List => {
                    let items = objects.iter().map(|(name, ip)| applied(name, Some(ip)));
                    let list = [Change::ResyncBegin(Kind::Node)].into_iter().chain(items);
                    let list = list.chain([Change::ResyncDone(Kind::Node)]);
                    list.flat_map(|change| join.handle_change(change)).collect()
                }
            };
            changes.iter().for_each(|change| told.take(change));
            for number in 0..3 {
                let (object, machine) = (objects.get(&name(number)), machines.get(&name(number)));
                let known = told.nodes.get(&NodeName::new(name(number)));
                match (object, machine) {
                    (Some(object), Some(_)) => prop_assert_eq!(known, Some(&node(&name(number), Some(object)))),
                    (None, Some(machine)) if anticipates => {
                        prop_assert_eq!(known, Some(&node(&name(number), Some(machine))));
                    }
                    (None, _) => prop_assert_eq!(known, None),
                    // Whether there was a machine decides.
                    (Some(object), None) => {
                        prop_assert!(known.is_none() || known == Some(&node(&name(number), Some(object))));
                    }
                }
            }
        }
    }
}
