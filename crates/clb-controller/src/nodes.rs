//! Nodes as two sources know them: the API server's Node objects, and the machines in Azure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clb_difftracker::{Change, IpFamily, Kind, Node, NodeName, ObjectName, Uid};
use clb_vmss::NodeEvent;

/// What is believed of machines that have no Node object with addresses yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anticipation {
    /// Nothing: a node's addresses are what its Node object says.
    #[default]
    Off,
    /// A machine's address is its node's as soon as the machine is listed, unless it has several of a family: which of them
    /// the node will have, only its Node object says. Endpoints then need not wait for the cloud provider to fill that in.
    On,
}

/// Joins Node objects and machines into one view of the nodes, as changes for the tracker.
///
/// * While a machine is there, or nothing is known of one, the Node object decides.
/// * A machine that a whole listing of its scale set no longer has takes its node with it, though the Node object lingers
///   (Kubernetes keeps it for minutes): nothing answers there any more. The Node is back when a machine of its name is, or
///   when its object was deleted and made again (another UID) or says other addresses, which only another machine can have
///   caused.
/// * A machine that is switched off keeps its place: whether its pods answer is for their readiness to say.
/// * A scale set that cannot be listed says nothing.
///
/// Pure: what came in, out come [`Change`]s, and none for what changes nothing. Hand in every change that goes to the
/// tracker; those of other kinds pass unchanged.
#[derive(Debug, Default)]
pub struct NodeJoin {
    anticipation: Anticipation,
    nodes: BTreeMap<NodeName, Known>,
    /// The nodes that the list of Nodes has named so far, while one is taken in.
    listed: Option<BTreeSet<NodeName>>,
}

#[derive(Debug, Default)]
struct Known {
    object: Option<Node>,
    /// Of the object, where it was told.
    uid: Option<Uid>,
    machine: Machine,
}

#[derive(Debug, Default)]
enum Machine {
    /// Never seen: it may be in no scale set, or not be listed yet.
    #[default]
    Unknown,
    There {
        ips: BTreeSet<IpAddr>,
    },
    /// It was there, and is no more. Kept while the Node object lingers.
    Gone,
}

impl Known {
    /// The node as the tracker should know it.
    fn view(&self, name: &NodeName, anticipation: Anticipation) -> Option<Node> {
        let ips = match (&self.machine, anticipation) {
            (Machine::Gone, _) => return None,
            (Machine::There { ips }, Anticipation::On) => Some(ips),
            (Machine::There { .. } | Machine::Unknown, _) => None,
        };
        let Some(ips) = ips else { return self.object.clone() };
        let ipv4 = only(ips.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None }));
        let ipv6 = only(ips.iter().filter_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None }));
        let object = self.object.clone().unwrap_or(Node { name: name.clone(), ipv4: None, ipv6: None });
        Some(Node { ipv4: object.ipv4.or(ipv4), ipv6: object.ipv6.or(ipv6), ..object })
    }
}

fn only<T>(mut of: impl Iterator<Item = T>) -> Option<T> {
    of.next().filter(|_| of.next().is_none())
}

impl NodeJoin {
    /// A join that knows of no node.
    #[must_use]
    pub fn new(anticipation: Anticipation) -> Self {
        Self { anticipation, ..Self::default() }
    }

    /// Something changed in the cluster.
    #[must_use]
    pub fn handle_change(&mut self, change: Change) -> Vec<Change> {
        match change {
            Change::NodeApplied(node) => self.on_object(node, None),
            Change::Unreadable(ObjectName::Node(name)) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                vec![Change::Unreadable(ObjectName::Node(name))]
            }
            Change::NodeGone(name) => {
                if let Some(listed) = &mut self.listed {
                    listed.remove(&name);
                }
                self.update(&name, |known| known.object = None)
            }
            Change::ResyncBegin(Kind::Node) => {
                self.listed = Some(BTreeSet::new());
                vec![change]
            }
            Change::ResyncDone(Kind::Node) => self.on_list_done(),
            Change::ServiceApplied(_)
            | Change::ServiceGone(_)
            | Change::EndpointSliceApplied(_)
            | Change::EndpointSliceGone(_)
            | Change::PodApplied(_)
            | Change::PodGone(_)
            | Change::Unreadable(_)
            | Change::ResyncBegin(_)
            | Change::ResyncDone(_) => vec![change],
        }
    }

    /// The name of a node as it is kept here, if it is known.
    pub(crate) fn known_name(&self, name: &NodeName) -> Option<&NodeName> {
        self.nodes.get_key_value(name).map(|(name, _)| name)
    }

    /// Whether a node is known, and has no address of this family.
    pub(crate) fn lacks_family(&self, name: &NodeName, family: IpFamily) -> bool {
        let view = self.nodes.get(name).and_then(|known| known.view(name, self.anticipation));
        view.is_some_and(|node| node.location(family).is_none())
    }

    /// Something changed in a scale set.
    #[must_use]
    pub fn handle_machine(&mut self, event: NodeEvent) -> Vec<Change> {
        match event {
            NodeEvent::Added { node, machine } | NodeEvent::Replaced { node, machine } => {
                self.on_machine(&node, Machine::There { ips: machine.ips })
            }
            NodeEvent::IpsChanged { node, ips } => self.on_machine(&node, Machine::There { ips }),
            NodeEvent::Removed { node } => self.on_machine(&node, Machine::Gone),
            NodeEvent::PowerChanged { .. } | NodeEvent::Stale | NodeEvent::Fresh => Vec::new(),
        }
    }

    /// A Node object is there in this form. One of another UID than before is another Node of the same name, whose deletion
    /// was not told.
    #[must_use]
    pub fn handle_node(&mut self, node: Node, uid: Uid) -> Vec<Change> {
        self.on_object(node, Some(uid))
    }

    fn on_object(&mut self, node: Node, uid: Option<Uid>) -> Vec<Change> {
        let name = node.name.clone();
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
        self.update(&name, |known| {
            let is_same = known.object.as_ref() == Some(&node) && known.uid == uid;
            if matches!(known.machine, Machine::Gone) && !is_same {
                known.machine = Machine::Unknown;
            }
            known.object = Some(node);
            known.uid = uid;
        })
    }

    fn on_machine(&mut self, node: &str, machine: Machine) -> Vec<Change> {
        self.update(&NodeName::new(node), |known| known.machine = machine)
    }

    /// The tracker forgets what its list does not name: so it names everything, anticipated nodes included.
    fn on_list_done(&mut self) -> Vec<Change> {
        let Some(listed) = self.listed.take() else { return vec![Change::ResyncDone(Kind::Node)] };
        for (name, known) in &mut self.nodes {
            if !listed.contains(name) {
                known.object = None;
            }
        }
        self.nodes.retain(|_, known| known.is_worth_keeping());
        let views = self.nodes.iter().filter_map(|(name, known)| known.view(name, self.anticipation));
        views.map(Change::NodeApplied).chain([Change::ResyncDone(Kind::Node)]).collect()
    }

    fn update(&mut self, name: &NodeName, change: impl FnOnce(&mut Known)) -> Vec<Change> {
        let known = self.nodes.entry(name.clone()).or_default();
        let before = known.view(name, self.anticipation);
        change(known);
        let after = known.view(name, self.anticipation);
        if !known.is_worth_keeping() {
            self.nodes.remove(name);
        }
        if before == after {
            return Vec::new();
        }
        vec![after.map_or_else(|| Change::NodeGone(name.clone()), Change::NodeApplied)]
    }
}

impl Known {
    fn is_worth_keeping(&self) -> bool {
        self.object.is_some() || matches!(self.machine, Machine::There { .. })
    }
}
