//! One pod that leaves through a NAT gateway of its own, or did: its finalizer, and what holds it.

use alloc::vec::Vec;

use crate::address::Address;
use crate::change::Source;
use crate::ids::{ResourceVersion, ServiceId};
use crate::lifecycle::Observed;
use crate::operation::{OperationId, PodRequest};
use crate::service::Wait;
use crate::source::SourceState;
use crate::table::Id;
use crate::tracker::{DiffTracker, Subject, Timer};

/// What is known of a pod besides what it contributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodState {
    pub(crate) version: ResourceVersion,
    /// Whether it uses its outbound service.
    pub(crate) is_live: bool,
    pub(crate) finalizer: Observed<()>,
    /// The addresses it had and has no more: while it lives those that the gateway holds, or may; then all.
    pub(crate) lingering: Vec<Id<Address>>,
    /// Whether the gateway holds none of them, nor may: as of its last refresh.
    pub(crate) is_free: bool,
    /// The outbound service that it used, when it was first seen without the addresses that it had.
    pub(crate) blind: Option<ServiceId>,
    /// The write in flight on it.
    pub(crate) in_flight: Option<OperationId>,
    /// Failures in a row.
    pub(crate) failures: u32,
    pub(crate) wait: Wait<PodRequest>,
    /// Its place in the queue of writes on objects.
    pub(crate) queued: Option<u64>,
}

impl PodState {
    /// The next write on the pod.
    pub(crate) fn next_step(&self) -> Option<PodRequest> {
        match (self.is_live, &self.finalizer) {
            (true, Observed::Present(())) | (false, Observed::Absent) => None,
            (true, Observed::Absent | Observed::Unknown(())) => Some(PodRequest::AddFinalizer),
            (false, Observed::Present(()) | Observed::Unknown(())) => {
                (self.is_free && self.blind.is_none()).then_some(PodRequest::RemoveFinalizer)
            }
        }
    }

    /// Whether nothing is left to know of it.
    pub(crate) fn is_forgettable(&self) -> bool {
        !self.is_live && self.finalizer.is_absent() && self.in_flight.is_none()
    }
}

impl DiffTracker {
    /// Notes an address that a pod had and has no more: it may not be given to another pod while the gateway holds it.
    pub(crate) fn linger(&mut self, pod: Id<SourceState>, address: Id<Address>) {
        let Some(state) = &mut self.sources[pod].pod else { return };
        if !state.lingering.contains(&address) {
            state.lingering.push(address);
            self.lingering.entry(address).or_default().push(pod);
        }
    }

    /// Examines the pods that had an address: whether the gateway holds it, or who claims it, has changed.
    pub(crate) fn refresh_lingering(&mut self, address: Id<Address>) {
        if let Some(pods) = self.lingering.get(&address).cloned() {
            pods.into_iter().for_each(|pod| self.refresh_pod(pod));
        }
    }

    /// Whether an address holds back the finalizers of pods that had it. One that another pod claims does not: pods on the
    /// host's network share its address, and it is the other one's to wait for.
    fn holds_back(&self, address: Id<Address>) -> bool {
        let row = &self.addresses.table[address];
        let is_pod = |source| matches!(self.sources.key(source), Source::Pod(_));
        (row.is_held() || self.reading.is_first()) && !row.claims.iter().any(|claim| is_pod(claim.source))
    }

    /// A pod has nothing to wait for any more at these addresses.
    fn forget_lingering(&mut self, pod: Id<SourceState>, addresses: Vec<Id<Address>>) {
        for address in addresses {
            if let Some(pods) = self.lingering.get_mut(&address) {
                pods.retain(|other| *other != pod);
                if pods.is_empty() {
                    self.lingering.remove(&address);
                }
            }
            self.forget_address(address);
        }
    }

    /// Of a pod that came without the addresses it had, takes all that may have been its: those that the gateway lists for
    /// its service and no other pod claims. Looks at all addresses, which happens for pods that a restart finds half gone.
    pub(crate) fn find_addresses_of(&mut self, pod: Id<SourceState>) {
        if self.reading.is_first() {
            return;
        }
        let Some(name) = self.sources[pod].pod.as_mut().and_then(|state| state.blind.take()) else { return };
        let Some(service) = self.services.id(&name).filter(|id| self.services[*id].references > 0) else {
            return;
        };
        let names_it = |id: Id<Address>| {
            self.addresses.holdings(id).iter().any(|holding| holding.services.contains(&service))
        };
        let addresses: Vec<_> =
            self.addresses.table.iter().map(|(id, ..)| id).filter(|id| names_it(*id)).collect();
        for address in addresses {
            self.linger(pod, address);
        }
    }

    /// Works out anew what a pod needs, and its place in the queue.
    pub(crate) fn refresh_pod(&mut self, id: Id<SourceState>) {
        let Some(state) = &self.sources[id].pod else { return };
        let is_free = !state.lingering.iter().any(|&address| self.holds_back(address));
        let Some(state) = &mut self.sources[id].pod else { return };
        state.is_free = is_free;
        let step = state.next_step();
        let waits = match &state.wait {
            Wait::No => false,
            Wait::Backoff => true,
            Wait::Parked(parked) => step == Some(**parked),
        };
        if !waits && state.wait != Wait::No {
            state.wait = Wait::No;
            self.timers.clear(Timer::Pod(id));
        }
        let is_wanted = step.is_some() && !waits && state.in_flight.is_none();
        match (state.queued, is_wanted) {
            (None, true) => {
                let number = self.next_number();
                self.object_queue.insert(number, Subject::Pod(id));
                if let Some(state) = &mut self.sources[id].pod {
                    state.queued = Some(number);
                }
            }
            (Some(number), false) => {
                state.queued = None;
                self.object_queue.remove(&number);
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Drops what a living pod need not remember, and a pod that neither contributes nor has anything to be removed from it.
    pub(crate) fn forget_pod(&mut self, id: Id<SourceState>) {
        let Some(state) = &self.sources[id].pod else { return };
        if state.is_live && !state.lingering.is_empty() {
            let past = |address: &Id<Address>| {
                self.sources[id].endpoints.contains(address) || !self.holds_back(*address)
            };
            let (past, rest) = state.lingering.iter().copied().partition(past);
            if let Some(state) = &mut self.sources[id].pod {
                state.lingering = rest;
            }
            self.forget_lingering(id, past);
        }
        if !self.sources[id].pod.as_ref().is_some_and(|state| state.is_forgettable()) {
            return;
        }
        self.timers.clear(Timer::Pod(id));
        if let Source::Pod(pod) = self.sources.key(id)
            && let Some(name) = self.pod_names.id(&pod.key)
            && self.pod_names[name] == Some(id)
        {
            self.pod_names.remove(name);
        }
        let state = self.sources.remove(id).pod.unwrap_or_default();
        self.forget_lingering(id, state.lingering);
    }
}
