//! Sources: EndpointSlices and pods, each of which claims addresses for a service on a node.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::address::{Address, Claim};
use crate::change::{Condition, Endpoint, EndpointSlice, Pod, PodRef, ServiceRef, Source};
use crate::ids::EgressName;
use crate::lifecycle::Observed;
use crate::notice::Notice;
use crate::pod::PodState;
use crate::service::ServiceState;
use crate::table::Id;
use crate::tracker::DiffTracker;

/// A source that exists, or a pod that still has our finalizer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceState {
    /// What it names its service by: always there for a slice that has been taken in, and for a live pod.
    pub(crate) slot: Option<Id<Slot>>,
    /// The list of its kind in which it was last seen.
    pub(crate) seen: u32,
    /// The addresses that it claims, sorted by IP; the claims are with them.
    pub(crate) endpoints: Vec<Id<Address>>,
    /// Those of them that are not ready, sorted by number; mostly none.
    spare: Vec<Id<Address>>,
    /// What only pods have.
    pub(crate) pod: Option<Box<PodState>>,
}

/// A way of naming a service: the place where sources and services meet, whichever comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) service: Option<Id<ServiceState>>,
    pub(crate) sources: BTreeSet<Id<SourceState>>,
    /// How many ready endpoints its sources have.
    ready: usize,
}

impl SourceState {
    fn ready(&self) -> usize {
        self.endpoints.len() - self.spare.len()
    }
}

/// What a slot stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SlotKey {
    /// What slices say.
    Service(ServiceRef),
    /// What pods say.
    Egress(EgressName),
}

impl DiffTracker {
    pub(crate) fn on_slice(&mut self, slice: EndpointSlice) {
        let id = self.sources.intern(&Source::EndpointSlice(slice.key));
        self.sources[id].seen = self.resyncs.slices.number;
        let slot = self.slots.intern(&SlotKey::Service(slice.service));
        self.contribute(id, Some(slot), slice.endpoints.as_slice());
    }

    pub(crate) fn on_slice_gone(&mut self, id: Id<SourceState>) {
        self.contribute(id, None, &[]);
        self.sources.remove(id);
    }

    pub(crate) fn on_pod(&mut self, pod: Pod) {
        self.replace_namesake(&pod.pod);
        let id = self.sources.id(&Source::Pod(pod.pod.clone()));
        if id.is_none() && !(pod.is_live && pod.egress.is_some()) && !pod.has_finalizer {
            return;
        }
        let is_new = id.is_none();
        let name = self.pod_names.intern(&pod.pod.key);
        let id = id.unwrap_or_else(|| self.sources.intern(&Source::Pod(pod.pod)));
        self.pod_names[name] = Some(id);
        self.sources[id].seen = self.resyncs.pods.number;
        let state = self.sources[id].pod.get_or_insert_default();
        if pod.version.is_before(state.version) {
            return;
        }
        state.version = state.version.max(pod.version);
        state.finalizer = match (state.finalizer, pod.has_finalizer) {
            // What is in doubt is settled by a repetition, not by what may have been read before.
            (Observed::Unknown(()), _) => Observed::Unknown(()),
            (_, true) => Observed::Present(()),
            (_, false) => Observed::Absent,
        };
        let endpoints = pod.endpoints.as_slice();
        let (used, uses) = if pod.is_live { (None, pod.egress) } else { (pod.egress, None) };
        state.is_live = uses.is_some();
        state.blind = match used {
            Some(name) if is_new && endpoints.is_empty() => Some(name.id().clone()),
            Some(_) if endpoints.is_empty() => state.blind.take(),
            Some(_) | None => None,
        };
        if let Some(name) = uses {
            let slot = self.slots.intern(&SlotKey::Egress(name));
            self.contribute(id, Some(slot), endpoints);
        } else {
            self.contribute(id, None, &[]);
            for endpoint in endpoints {
                let address = self.addresses.table.intern(&endpoint.address);
                self.linger(id, address);
            }
            self.find_addresses_of(id);
        }
        self.refresh_pod(id);
        self.forget_pod(id);
    }

    pub(crate) fn on_pod_gone(&mut self, id: Id<SourceState>) {
        if let Some(state) = &mut self.sources[id].pod {
            state.is_live = false;
        }
        self.contribute(id, None, &[]);
        self.refresh_pod(id);
        self.forget_pod(id);
    }

    /// A pod of the same name with another UID was deleted, and the news of it is still on its way or lost.
    fn replace_namesake(&mut self, pod: &PodRef) {
        let former = self.pod_names.id(&pod.key).and_then(|name| self.pod_names[name]);
        let is_other = |id: &Id<SourceState>| *self.sources.key(*id) != Source::Pod(pod.clone());
        if let Some(former) = former.filter(is_other) {
            self.on_pod_gone(former);
        }
    }

    /// Makes this what a source contributes: its endpoints, to the service that is named so.
    fn contribute(&mut self, id: Id<SourceState>, slot: Option<Id<Slot>>, endpoints: &[Endpoint]) {
        let ready_before = self.sources[id].ready();
        let former = core::mem::replace(&mut self.sources[id].slot, slot);
        if former != slot {
            if let Some(slot) = slot {
                self.slots[slot].sources.insert(id);
                self.bind_egress(slot);
            }
            if let Some(former) = former {
                self.slots[former].sources.remove(&id);
            }
        }
        let touched = self.replace_endpoints(id, endpoints);
        if former.is_some() && former != slot {
            self.refresh_source(id);
        }
        self.count_ready((former, ready_before), (slot, self.sources[id].ready()));
        for &address in &touched {
            self.refresh_address(address);
            self.refresh_lingering(address);
        }
        touched.into_iter().for_each(|address| self.forget_address(address));
        if let Some(former) = former.filter(|former| slot != Some(*former)) {
            self.unbind_egress(former);
            self.forget_slot(former);
        }
    }

    /// Counts ready endpoints anew; where there are now some and were none, or the other way round, that matters to the
    /// others.
    fn count_ready(
        &mut self,
        (from, before): (Option<Id<Slot>>, usize),
        (to, now): (Option<Id<Slot>>, usize),
    ) {
        let had = [from, to].map(|slot| slot.is_some_and(|slot| self.slots[slot].ready > 0));
        if let Some(from) = from {
            self.slots[from].ready -= before;
        }
        if let Some(to) = to {
            self.slots[to].ready += now;
        }
        for (slot, had) in [from, to].into_iter().zip(had) {
            if let Some(slot) = slot
                && (self.slots[slot].ready > 0) != had
            {
                self.refresh_spare(slot);
            }
        }
    }

    /// Whether a claim counts: all of ready endpoints do, those of others while their service has none that is ready.
    pub(crate) fn is_eligible(&self, claim: Claim, address: Id<Address>, service: Id<ServiceState>) -> bool {
        let spare = &self.sources[claim.source].spare;
        spare.is_empty() || spare.binary_search(&address).is_err() || !self.has_ready(service)
    }

    fn has_ready(&self, service: Id<ServiceState>) -> bool {
        self.services[service].slots.into_iter().flatten().any(|slot| self.slots[slot].ready > 0)
    }

    /// Whether there are ready endpoints has changed here: examines the others of the same service.
    fn refresh_spare(&mut self, slot: Id<Slot>) {
        let service = self.slots[slot].service;
        let slots = service.map(|service| self.services[service].slots).unwrap_or_default();
        for slot in slots.into_iter().flatten() {
            if self.slots[slot].sources.iter().any(|&source| !self.sources[source].spare.is_empty()) {
                self.refresh_slot(slot);
            }
        }
    }

    /// Makes the pods that name an outbound service its own, unless a Service has this name for a UID.
    pub(crate) fn bind_egress(&mut self, slot: Id<Slot>) {
        let SlotKey::Egress(name) = self.slots.key(slot) else { return };
        if self.slots[slot].service.is_some() || self.slots[slot].sources.is_empty() {
            return;
        }
        let name = name.clone();
        let service = self.services.intern(name.id());
        if self.services[service].intent.is_some() {
            let service = self.services[service].key.clone();
            self.notices.push_back(Notice::EgressRefused { egress: name, service });
            return;
        }
        self.slots[slot].service = Some(service);
        self.services[service].egress = Some(slot);
        self.refresh_slot(slot);
        self.refresh_service(service);
    }

    /// An outbound service without pods is not wanted any more.
    fn unbind_egress(&mut self, slot: Id<Slot>) {
        let SlotKey::Egress(_) = self.slots.key(slot) else { return };
        if !self.slots[slot].sources.is_empty() {
            return;
        }
        if let Some(service) = self.slots[slot].service.take() {
            self.services[service].egress = None;
            self.refresh_service(service);
        }
    }

    /// Makes the claims of a source these, and gives the addresses whose claims changed. Both lists are sorted by address,
    /// so that what did not change is only compared, not looked up.
    fn replace_endpoints(&mut self, id: Id<SourceState>, endpoints: &[Endpoint]) -> Vec<Id<Address>> {
        let known = core::mem::take(&mut self.sources[id].endpoints);
        let mut known = known.into_iter().peekable();
        let spare_before = core::mem::take(&mut self.sources[id].spare);
        let mut spare = Vec::new();
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
            if endpoint.condition != Condition::Ready {
                spare.push(address);
            }
            if former.is_some_and(|node| *self.nodes.key(node) == endpoint.node) {
                let was_ready = spare_before.binary_search(&address).is_err();
                if was_ready != (endpoint.condition == Condition::Ready) {
                    touched.push(address);
                }
                continue;
            }
            if former.is_some() {
                self.withdraw_claim(address, id);
            }
            let node = self.nodes.intern(&endpoint.node);
            self.addresses.table[address].claims.push(Claim { source: id, node });
            self.nodes[node].addresses.insert(address);
            touched.push(address);
        }
        for address in known {
            self.withdraw_claim(address, id);
            touched.push(address);
        }
        spare.sort_unstable();
        self.sources[id].endpoints = claimed;
        self.sources[id].spare = spare;
        touched
    }

    /// A source has at most one claim on an address.
    fn claim(&self, address: Id<Address>, source: Id<SourceState>) -> Option<Claim> {
        self.addresses.table[address].claims.iter().copied().find(|claim| claim.source == source)
    }

    fn withdraw_claim(&mut self, address: Id<Address>, source: Id<SourceState>) {
        let Some(Claim { node, .. }) = self.claim(address, source) else { return };
        let claims = &mut self.addresses.table[address].claims;
        claims.retain(|claim| claim.source != source);
        if !claims.iter().any(|claim| claim.node == node) {
            self.nodes[node].addresses.remove(address);
            self.forget_node(node);
        }
        self.linger(source, address);
    }

    /// Examines all addresses of the sources that name their service by this slot.
    pub(crate) fn refresh_slot(&mut self, slot: Id<Slot>) {
        let sources: Vec<_> = self.slots[slot].sources.iter().copied().collect();
        sources.into_iter().for_each(|source| self.refresh_source(source));
    }

    fn refresh_source(&mut self, source: Id<SourceState>) {
        // Every address here is claimed by this source, so none is dropped on the way.
        for at in 0..self.sources[source].endpoints.len() {
            self.refresh_address(self.sources[source].endpoints[at]);
        }
    }

    pub(crate) fn forget_slot(&mut self, slot: Id<Slot>) {
        let row = &self.slots[slot];
        if row.service.is_none() && row.sources.is_empty() {
            self.slots.remove(slot);
        }
    }
}
