//! What the cluster asks for, by source: nodes, EndpointSlices, Services, and how a change of one is taken in.

use alloc::vec::Vec;

use crate::address::{Address, Claim, Location};
use crate::change::{Change, Finalizers, Intent, Kind, Node, ObjectName, Service, ServiceRef, Source};
use crate::ids::{EgressName, Ip, IpFamily, NodeName, ObjectKey, ResourceVersion};
use crate::lifecycle::{Observed, ServiceObject};
use crate::notice::Notice;
use crate::service::ServiceState;
use crate::source::{SlotKey, SourceState};
use crate::table::{Id, IdSet};
use crate::tracker::DiffTracker;

/// A node that exists, or that some claim names.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    /// Whether it exists. One that does not is waited for.
    exists: bool,
    seen: u32,
    ipv4: Option<Id<Location>>,
    ipv6: Option<Id<Location>>,
    /// The addresses that some claim puts on it.
    pub(crate) addresses: IdSet<Address>,
}

impl NodeState {
    pub(crate) fn location(&self, family: IpFamily) -> Option<Id<Location>> {
        match family {
            IpFamily::V4 => self.ipv4,
            IpFamily::V6 => self.ipv6,
        }
    }

    fn location_mut(&mut self, family: IpFamily) -> &mut Option<Id<Location>> {
        match family {
            IpFamily::V4 => &mut self.ipv4,
            IpFamily::V6 => &mut self.ipv6,
        }
    }
}

/// The list of one kind that is being read, or was last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resync {
    pub(crate) number: u32,
    running: bool,
    /// The list that missed so much that another has to confirm it.
    doubted: Option<u32>,
}

impl DiffTracker {
    pub(crate) fn take_in(&mut self, change: Change) {
        match change {
            Change::ServiceApplied(service) => self.on_service(service),
            Change::ServiceGone(id) => {
                if let Some(id) = self.services.id(&id) {
                    self.on_service_gone(id);
                }
            }
            Change::EndpointSliceApplied(slice) => self.on_slice(slice),
            Change::EndpointSliceGone(key) => {
                if let Some(id) = self.sources.id(&Source::EndpointSlice(key)) {
                    self.on_slice_gone(id);
                }
            }
            Change::PodApplied(pod) => self.on_pod(pod),
            Change::PodGone(pod) => {
                if let Some(id) = self.sources.id(&Source::Pod(pod)) {
                    self.on_pod_gone(id);
                }
            }
            Change::NodeApplied(node) => self.on_node(&node),
            Change::NodeGone(name) => {
                if let Some(id) = self.nodes.id(&name) {
                    self.on_node_gone(id);
                }
            }
            Change::Unreadable(name) => self.on_unreadable(name),
            Change::ResyncBegin(kind) => {
                let resync = self.resync_mut(kind);
                *resync = Resync { number: resync.number.wrapping_add(1), running: true, ..*resync };
            }
            Change::ResyncDone(kind) => {
                if core::mem::take(&mut self.resync_mut(kind).running) {
                    self.drop_unseen(kind);
                    self.confirm_observation(kind);
                }
            }
        }
    }

    /// It is there, so the list has named it; of something that is not known, nothing is known.
    fn on_unreadable(&mut self, name: ObjectName) {
        match name {
            ObjectName::Service(id) => {
                if let Some(id) = self.services.id(&id) {
                    self.services[id].seen = self.resyncs.services.number;
                }
            }
            ObjectName::EndpointSlice(key) => {
                if let Some(id) = self.sources.id(&Source::EndpointSlice(key)) {
                    self.sources[id].seen = self.resyncs.slices.number;
                }
            }
            ObjectName::Pod(pod) => {
                if let Some(id) = self.sources.id(&Source::Pod(pod)) {
                    self.sources[id].seen = self.resyncs.pods.number;
                }
            }
            ObjectName::Node(name) => {
                if let Some(id) = self.nodes.id(&name) {
                    self.nodes[id].seen = self.resyncs.nodes.number;
                }
            }
        }
    }

    fn resync_mut(&mut self, kind: Kind) -> &mut Resync {
        match kind {
            Kind::Service => &mut self.resyncs.services,
            Kind::EndpointSlice => &mut self.resyncs.slices,
            Kind::Pod => &mut self.resyncs.pods,
            Kind::Node => &mut self.resyncs.nodes,
        }
    }

    /// What the list that just ended did not name is gone.
    fn drop_unseen(&mut self, kind: Kind) {
        match kind {
            Kind::Service => {
                let rows = self.services.iter().filter(|(.., state)| state.intent.is_some());
                let rows: Vec<_> = rows.map(|(id, _, state)| (id, state.seen)).collect();
                let gone = self.missing(kind, rows);
                gone.into_iter().for_each(|id| self.on_service_gone(id));
            }
            Kind::EndpointSlice => {
                let rows = self.sources.iter().filter(|(_, key, _)| matches!(key, Source::EndpointSlice(_)));
                let rows: Vec<_> = rows.map(|(id, _, state)| (id, state.seen)).collect();
                let gone = self.missing(kind, rows);
                gone.into_iter().for_each(|id| self.on_slice_gone(id));
            }
            Kind::Pod => {
                let is_live = |state: &SourceState| state.pod.as_ref().is_some_and(|pod| pod.is_live);
                let rows = self.sources.iter().filter(|(.., state)| is_live(state));
                let rows: Vec<_> = rows.map(|(id, _, state)| (id, state.seen)).collect();
                let gone = self.missing(kind, rows);
                gone.into_iter().for_each(|id| self.on_pod_gone(id));
            }
            Kind::Node => {
                let rows = self.nodes.iter().filter(|(.., node)| node.exists);
                let rows: Vec<_> = rows.map(|(id, _, node)| (id, node.seen)).collect();
                let gone = self.missing(kind, rows);
                gone.into_iter().for_each(|id| self.on_node_gone(id));
            }
        }
    }

    /// Those that the list which has just ended did not name; but if they are too many to believe it, only those that the
    /// list before did not name either, and was not believed for.
    fn missing<T>(&mut self, kind: Kind, rows: Vec<(Id<T>, u32)>) -> Vec<Id<T>> {
        let Resync { number, doubted, .. } = *self.resync_mut(kind);
        let of = rows.len();
        let mut missing: Vec<_> = rows.into_iter().filter(|(_, seen)| *seen != number).collect();
        let all = missing.len();
        let is_doubtful = self.config.is_mass_deletion(all, of);
        if is_doubtful {
            // Numbers never wrap in practice: four billion lists are more than a century of one each second.
            missing.retain(|(_, seen)| doubted.is_some_and(|doubted| *seen < doubted));
        }
        let unconfirmed = all - missing.len();
        self.resync_mut(kind).doubted = (unconfirmed > 0).then_some(number);
        if unconfirmed > 0 {
            self.notices.push_back(Notice::DeletionsHeld { kind, missing: unconfirmed, of });
        }
        missing.into_iter().map(|(id, _)| id).collect()
    }

    fn on_service(&mut self, service: Service) {
        let id = self.services.intern(&service.id);
        self.services[id].seen = self.resyncs.services.number;
        if service.version.is_before(self.services[id].version) {
            return;
        }
        self.note_object(id, &service);
        let state = &self.services[id];
        let renamed = state.key.as_ref() != Some(&service.key) || state.intent.is_none();
        let is_same = state.intent.as_ref() == Some(&service.intent);
        if let Intent::Rejected(rejection) = &service.intent
            && !is_same
        {
            self.notices.push_back(Notice::Rejected {
                service: service.id.clone(),
                key: service.key.clone(),
                rejection: rejection.clone(),
            });
        }
        if renamed {
            self.bind(id, &service);
        }
        self.services[id].key = Some(service.key);
        self.services[id].intent = Some(service.intent);
        if let Some(slot) = self.services[id].egress.take() {
            // Its UID is the name of an outbound service, which is refused from now on.
            self.slots[slot].service = None;
            self.bind_egress(slot);
            self.refresh_slot(slot);
        }
        self.refresh_service(id);
    }

    /// Takes in what the object says of our own writes on it. What is in doubt is settled by a repetition, not by what may
    /// have been read before.
    fn note_object(&mut self, id: Id<ServiceState>, service: &Service) {
        let state = &mut self.services[id];
        state.version = state.version.max(service.version);
        let finalizers = match service.finalizers {
            Finalizers::None => Observed::Absent,
            Finalizers::Partial => Observed::Present(false),
            Finalizers::Complete => Observed::Present(true),
        };
        let ingress = match service.ingress.as_slice() {
            [] => Observed::Absent,
            ips => Observed::Present(ips.to_vec()),
        };
        if !matches!(state.object.finalizers, Observed::Unknown(_)) {
            state.object.finalizers = finalizers;
        }
        if !matches!(state.object.ingress, Observed::Unknown(_)) {
            state.object.ingress = ingress;
        }
    }

    /// Makes the slices that name this Service, by name or by UID, its own.
    fn bind(&mut self, id: Id<ServiceState>, service: &Service) {
        self.unbind(id);
        let ObjectKey { namespace, .. } = &service.key;
        let by_uid = ServiceRef::Uid { namespace: namespace.clone(), id: service.id.clone() };
        let names = [ServiceRef::Name(service.key.clone()), by_uid].map(SlotKey::Service);
        for name in &names {
            if let Some(former) = self.slots.id(name).and_then(|slot| self.slots[slot].service) {
                // Another Service of this name: it was deleted, and the news of it is still on its way or lost.
                self.on_service_gone(former);
            }
        }
        let slots = names.map(|name| self.slots.intern(&name));
        self.services[id].slots = slots.map(Some);
        for slot in slots {
            self.slots[slot].service = Some(id);
            self.refresh_slot(slot);
        }
    }

    fn on_service_gone(&mut self, id: Id<ServiceState>) {
        let state = &mut self.services[id];
        state.intent = None;
        // Whatever is said of a Service of this UID from now on is news.
        state.version = ResourceVersion::default();
        state.object = ServiceObject::default();
        self.unbind(id);
        let egress = EgressName::new(self.services.key(id).as_str()).ok();
        if let Some(slot) = egress.and_then(|name| self.slots.id(&SlotKey::Egress(name))) {
            self.bind_egress(slot);
        }
        self.refresh_service(id);
    }

    /// Nothing names this service any more.
    fn unbind(&mut self, id: Id<ServiceState>) {
        for slot in core::mem::take(&mut self.services[id].slots).into_iter().flatten() {
            self.slots[slot].service = None;
            self.refresh_slot(slot);
            self.forget_slot(slot);
        }
    }

    fn on_node(&mut self, node: &Node) {
        let id = self.nodes.intern(&node.name);
        self.nodes[id].exists = true;
        self.nodes[id].seen = self.resyncs.nodes.number;
        let changed = [IpFamily::V4, IpFamily::V6].map(|family| {
            let location = node.location(family).map(|ip| self.locations.intern(&ip));
            self.move_node(id, family, location)
        });
        if changed.contains(&true) {
            self.refresh_node(id);
        }
    }

    /// Whether some node has an IPv6 address, so that pods may leave with IPv6.
    pub(crate) fn is_dual_stack(&self) -> bool {
        self.ipv6_nodes > 0
    }

    fn on_node_gone(&mut self, id: Id<NodeState>) {
        self.nodes[id].exists = false;
        for family in [IpFamily::V4, IpFamily::V6] {
            self.move_node(id, family, None);
        }
        self.refresh_node(id);
        self.forget_node(id);
    }

    /// Gives a node another location in one family, and says whether it is another.
    fn move_node(&mut self, id: Id<NodeState>, family: IpFamily, location: Option<Id<Location>>) -> bool {
        let former = core::mem::replace(self.nodes[id].location_mut(family), location);
        if former == location {
            return false;
        }
        if let Some(location) = location {
            self.locations[location].nodes.push(id);
        }
        if family == IpFamily::V6 {
            let before = self.is_dual_stack();
            self.ipv6_nodes += usize::from(location.is_some());
            self.ipv6_nodes -= usize::from(former.is_some());
            if before != self.is_dual_stack() {
                let outbound = self.services.iter().filter(|(.., state)| state.egress.is_some());
                self.refresh_services(outbound.map(|(id, ..)| id).collect());
            }
        }
        if let Some(former) = former {
            self.locations[former].nodes.retain(|node| *node != id);
            self.forget_location(former);
        }
        true
    }

    fn refresh_node(&mut self, id: Id<NodeState>) {
        let addresses: Vec<_> = self.nodes[id].addresses.iter().collect();
        self.settle_addresses(addresses);
    }

    /// Examines these addresses, each named once, and drops those that nobody needs any more.
    fn settle_addresses(&mut self, addresses: Vec<Id<Address>>) {
        for address in addresses {
            self.refresh_address(address);
            self.forget_address(address);
        }
    }

    pub(crate) fn forget_node(&mut self, node: Id<NodeState>) {
        let row = &self.nodes[node];
        if !row.exists && row.addresses.is_empty() {
            self.nodes.remove(node);
        }
    }

    /// The nodes that exist, by name, with their locations.
    pub(crate) fn node_snapshots(&self) -> Vec<(NodeName, [Option<Ip>; 2])> {
        let ip = |location: Option<Id<Location>>| location.map(|location| *self.locations.key(location));
        let exists = self.nodes.iter().filter(|(.., node)| node.exists);
        let mut nodes: Vec<_> =
            exists.map(|(_, name, node)| (name.clone(), [ip(node.ipv4), ip(node.ipv6)])).collect();
        nodes.sort_unstable();
        nodes
    }

    /// How many addresses wait for a node that is not known, or has no IP of their family.
    pub(crate) fn waiting_for_nodes(&self) -> usize {
        let waits = |claim: &Claim, family| self.nodes[claim.node].location(family).is_none();
        self.addresses
            .table
            .iter()
            .filter(|(_, ip, address)| address.claims.iter().any(|claim| waits(claim, ip.family())))
            .count()
    }
}
