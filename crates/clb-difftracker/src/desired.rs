//! What the cluster asks for, by source: nodes, EndpointSlices, Services, and how a change of one is taken in.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::address::{Address, Claim, Location};
use crate::change::{Change, Endpoint, EndpointSlice, Intent, Kind, Node, Service, ServiceRef};
use crate::ids::{Ip, IpFamily, NodeName, ObjectKey};
use crate::notice::Notice;
use crate::service::ServiceState;
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

/// An EndpointSlice that exists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    /// What it names its Service by; always there once the slice has been taken in.
    pub(crate) slot: Option<Id<Slot>>,
    seen: u32,
    /// The addresses that it claims, sorted by IP; the claims are with them.
    endpoints: Vec<Id<Address>>,
}

/// A way of naming a Service: the place where slices and Services meet, whichever comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) service: Option<Id<ServiceState>>,
    slices: BTreeSet<Id<Slice>>,
}

/// The list of one kind that is being read, or was last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resync {
    number: u32,
    running: bool,
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
            Change::EndpointSliceApplied(slice) => self.on_slice(&slice),
            Change::EndpointSliceGone(key) => {
                if let Some(id) = self.slices.id(&key) {
                    self.on_slice_gone(id);
                }
            }
            Change::NodeApplied(node) => self.on_node(&node),
            Change::NodeGone(name) => {
                if let Some(id) = self.nodes.id(&name) {
                    self.on_node_gone(id);
                }
            }
            Change::ResyncBegin(kind) => {
                let resync = self.resync_mut(kind);
                *resync = Resync { number: resync.number.wrapping_add(1), running: true };
            }
            Change::ResyncDone(kind) => {
                let resync = self.resync_mut(kind);
                if core::mem::take(&mut resync.running) {
                    self.drop_unseen(kind);
                }
            }
        }
    }

    fn resync_mut(&mut self, kind: Kind) -> &mut Resync {
        match kind {
            Kind::Service => &mut self.resyncs.services,
            Kind::EndpointSlice => &mut self.resyncs.slices,
            Kind::Node => &mut self.resyncs.nodes,
        }
    }

    /// What the list that just ended did not name is gone.
    fn drop_unseen(&mut self, kind: Kind) {
        let number = self.resync_mut(kind).number;
        match kind {
            Kind::Service => {
                let unseen = |state: &ServiceState| state.intent.is_some() && state.seen != number;
                let gone: Vec<_> =
                    self.services.iter().filter(|row| unseen(row.2)).map(|row| row.0).collect();
                gone.into_iter().for_each(|id| self.on_service_gone(id));
            }
            Kind::EndpointSlice => {
                let gone: Vec<_> =
                    self.slices.iter().filter(|row| row.2.seen != number).map(|row| row.0).collect();
                gone.into_iter().for_each(|id| self.on_slice_gone(id));
            }
            Kind::Node => {
                let unseen = |node: &NodeState| node.exists && node.seen != number;
                let gone: Vec<_> = self.nodes.iter().filter(|row| unseen(row.2)).map(|row| row.0).collect();
                gone.into_iter().for_each(|id| self.on_node_gone(id));
            }
        }
    }

    fn on_service(&mut self, service: Service) {
        let id = self.services.intern(&service.id);
        self.services[id].seen = self.resyncs.services.number;
        let state = &self.services[id];
        let renamed = state.key.as_ref() != Some(&service.key) || state.intent.is_none();
        if !renamed && state.intent.as_ref() == Some(&service.intent) {
            return;
        }
        if let Intent::Rejected(rejection) = &service.intent
            && state.intent.as_ref() != Some(&service.intent)
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
        self.refresh_service(id);
    }

    /// Makes the slices that name this Service, by name or by UID, its own.
    fn bind(&mut self, id: Id<ServiceState>, service: &Service) {
        self.unbind(id);
        let ObjectKey { namespace, .. } = &service.key;
        let by_uid = ServiceRef::Uid { namespace: namespace.clone(), id: service.id.clone() };
        let names = [ServiceRef::Name(service.key.clone()), by_uid];
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
        self.services[id].intent = None;
        self.unbind(id);
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

    fn on_slice(&mut self, slice: &EndpointSlice) {
        let id = self.slices.intern(&slice.key);
        self.slices[id].seen = self.resyncs.slices.number;
        let slot = self.slots.intern(&slice.service);
        let former = self.slices[id].slot.replace(slot);
        if former != Some(slot) {
            if let Some(former) = former {
                self.slots[former].slices.remove(&id);
                self.forget_slot(former);
            }
            self.slots[slot].slices.insert(id);
        }
        let touched = self.replace_endpoints(id, slice.endpoints.as_slice());
        if former.is_some_and(|former| former != slot) {
            self.refresh_slice(id);
        }
        self.settle_addresses(touched);
    }

    fn on_slice_gone(&mut self, id: Id<Slice>) {
        let touched = self.replace_endpoints(id, &[]);
        if let Some(slot) = self.slices.remove(id).slot {
            self.slots[slot].slices.remove(&id);
            self.forget_slot(slot);
        }
        self.settle_addresses(touched);
    }

    /// Makes the claims of a slice these, and gives the addresses whose claims changed. Both lists are sorted by address,
    /// so that what did not change is only compared, not looked up.
    fn replace_endpoints(&mut self, id: Id<Slice>, endpoints: &[Endpoint]) -> Vec<Id<Address>> {
        let known = core::mem::take(&mut self.slices[id].endpoints);
        let mut known = known.into_iter().peekable();
        let mut claimed = Vec::with_capacity(endpoints.len());
        let mut touched = Vec::new();
        for endpoint in endpoints {
            while let Some(address) = known.next_if(|&known| self.ip(known) < endpoint.address) {
                self.withdraw_claim(address, id);
                touched.push(address);
            }
            let same = known.next_if(|&known| self.ip(known) == endpoint.address);
            let address = match same {
                Some(address) => address,
                None => self.addresses.table.intern(&endpoint.address),
            };
            let former = same.and_then(|address| self.claim(address, id)).map(|claim| claim.node);
            claimed.push(address);
            if former.is_some_and(|node| *self.nodes.key(node) == endpoint.node) {
                continue;
            }
            if former.is_some() {
                self.withdraw_claim(address, id);
            }
            let node = self.nodes.intern(&endpoint.node);
            self.addresses.table[address].claims.push(Claim { slice: id, node });
            self.nodes[node].addresses.insert(address);
            touched.push(address);
        }
        for address in known {
            self.withdraw_claim(address, id);
            touched.push(address);
        }
        self.slices[id].endpoints = claimed;
        touched
    }

    /// A slice has at most one claim on an address.
    fn claim(&self, address: Id<Address>, slice: Id<Slice>) -> Option<Claim> {
        self.addresses.table[address].claims.iter().copied().find(|claim| claim.slice == slice)
    }

    fn withdraw_claim(&mut self, address: Id<Address>, slice: Id<Slice>) {
        let Some(Claim { node, .. }) = self.claim(address, slice) else { return };
        let claims = &mut self.addresses.table[address].claims;
        claims.retain(|claim| claim.slice != slice);
        if !claims.iter().any(|claim| claim.node == node) {
            self.nodes[node].addresses.remove(address);
            self.forget_node(node);
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

    /// Examines all addresses of the slices that name their Service by this slot.
    pub(crate) fn refresh_slot(&mut self, slot: Id<Slot>) {
        let slices: Vec<_> = self.slots[slot].slices.iter().copied().collect();
        slices.into_iter().for_each(|slice| self.refresh_slice(slice));
    }

    fn refresh_slice(&mut self, slice: Id<Slice>) {
        // Every address here is claimed by this slice, so none is dropped on the way.
        for at in 0..self.slices[slice].endpoints.len() {
            self.refresh_address(self.slices[slice].endpoints[at]);
        }
    }

    /// Examines these addresses, each named once, and drops those that nobody needs any more.
    fn settle_addresses(&mut self, addresses: Vec<Id<Address>>) {
        for address in addresses {
            self.refresh_address(address);
            self.forget_address(address);
        }
    }

    fn forget_slot(&mut self, slot: Id<Slot>) {
        let row = &self.slots[slot];
        if row.service.is_none() && row.slices.is_empty() {
            self.slots.remove(slot);
        }
    }

    fn forget_node(&mut self, node: Id<NodeState>) {
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
