//! Requests on the gateway: what goes into one, in which order, within which budget.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::{SmallVec, smallvec};

use crate::address::{Address, Addresses, Holding, Holdings, Location, ServiceSet, Target, Urgency, Work};
use crate::ids::ServiceId;
use crate::lifecycle::Step;
use crate::operation::{
    Action, AddressUpdate, AddressesUpdate, GatewayRequest, LocationUpdate, OperationId, PodRequest,
    RegistrationUpdate, ResourceRequest, ServiceRequest, ServiceUpdate,
};
use crate::service::{Queue, ServiceState};
use crate::size;
use crate::source::SourceState;
use crate::table::{Id, Table};
use crate::tracker::{DiffTracker, Timer};

/// The two kinds of requests on the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    #[default]
    Services,
    Addresses,
}

/// The state of the calls on the gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gateway {
    /// Whether one is in flight.
    pub(crate) in_flight: bool,
    /// The kind of the last one. When both kinds have something to do, they take turns.
    pub(crate) last: Lane,
    /// Whether NRP has contradicted what we believe it to hold, so that it has to be read.
    pub(crate) is_contradicted: bool,
    pub(crate) services: LaneState<ServiceState>,
    pub(crate) addresses: LaneState<Address>,
}

/// The state of one kind of calls.
#[derive(Debug)]
pub(crate) struct LaneState<T> {
    /// Failures in a row.
    pub(crate) failures: u32,
    /// Parts of a refused request, each to be sent alone until the entry that NRP refuses stands alone; last first.
    pub(crate) suspects: Vec<Vec<Id<T>>>,
}

impl<T> Clone for LaneState<T> {
    fn clone(&self) -> Self {
        Self { failures: self.failures, suspects: self.suspects.clone() }
    }
}

impl<T> Default for LaneState<T> {
    fn default() -> Self {
        Self { failures: 0, suspects: Vec::new() }
    }
}

/// An operation in flight, and what its outcome needs to know.
#[derive(Clone, Debug)]
pub(crate) enum InFlight {
    Resource {
        service: Id<ServiceState>,
        request: ResourceRequest,
    },
    Service {
        service: Id<ServiceState>,
        request: ServiceRequest,
    },
    Pod {
        pod: Id<SourceState>,
        request: PodRequest,
    },
    /// The gateway is being read since this number.
    Reading {
        began: u64,
    },
    Services {
        updates: Vec<(Id<ServiceState>, RegistrationUpdate)>,
        suspected: bool,
    },
    Addresses(AddressBatch),
}

impl InFlight {
    /// The locations that it changes.
    pub(crate) fn locations(&self) -> Vec<Id<Location>> {
        match self {
            Self::Addresses(batch) => batch.locations.clone(),
            Self::Resource { .. }
            | Self::Service { .. }
            | Self::Pod { .. }
            | Self::Reading { .. }
            | Self::Services { .. } => Vec::new(),
        }
    }
}

/// An `updateAddressLocations` in flight.
#[derive(Clone, Debug)]
pub(crate) struct AddressBatch {
    /// Whether it is a part of a refused request.
    pub(crate) suspected: bool,
    /// All addresses in it: those that were taken from the queue, and those that are sent along to settle a location in
    /// doubt.
    pub(crate) moves: Vec<Move>,
    pub(crate) locations: Vec<Id<Location>>,
}

/// What a batch does to one address.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) address: Id<Address>,
    pub(crate) before: Holdings,
    pub(crate) after: Option<Target>,
    /// Its number in the queue, if it stood there; it comes back to its place when the request fails.
    pub(crate) since: Option<u64>,
}

impl DiffTracker {
    /// The next call on the gateway, if none is in flight and there is something to say.
    pub(crate) fn next_gateway_request(&mut self, operation: OperationId) -> Option<(Action, InFlight)> {
        if self.gateway.in_flight || self.timers.get(Timer::Interval).is_some() {
            return None;
        }
        if self.gateway.is_contradicted && self.timers.get(Timer::Lane(Lane::Services)).is_none() {
            self.gateway.is_contradicted = false;
            self.gateway.in_flight = true;
            let began = self.next_number();
            return Some((Action::Gateway(GatewayRequest::Read), InFlight::Reading { began }));
        }
        let order = match self.gateway.last {
            Lane::Services => [Lane::Addresses, Lane::Services],
            Lane::Addresses => [Lane::Services, Lane::Addresses],
        };
        for lane in order {
            if [Timer::Lane(lane), Timer::Window(lane)]
                .into_iter()
                .any(|timer| self.timers.get(timer).is_some())
            {
                continue;
            }
            let taken = match lane {
                Lane::Services => self.take_services(operation),
                Lane::Addresses => self.take_addresses(),
            };
            if let Some((request, in_flight)) = taken {
                self.gateway.in_flight = true;
                self.gateway.last = lane;
                return Some((Action::Gateway(request), in_flight));
            }
        }
        None
    }

    /// Keeps back what has just begun to wait, if so configured.
    pub(crate) fn open_window(&mut self, lane: Lane) {
        let window = self.config.batch_window;
        if !window.is_zero() && self.timers.get(Timer::Window(lane)).is_none() {
            self.timers.set(Timer::Window(lane), self.now.after(window));
        }
    }

    /// A call on the gateway has ended.
    pub(crate) fn close_call(&mut self) {
        self.gateway.in_flight = false;
        let interval = self.config.min_interval;
        if !interval.is_zero() {
            self.timers.set(Timer::Interval, self.now.after(interval));
        }
    }

    fn take_services(&mut self, operation: OperationId) -> Option<(GatewayRequest, InFlight)> {
        let most = self.config.max_services.max(1);
        let is_queued = |id: &Id<ServiceState>| {
            let queued = self.services.get(*id).and_then(|state| state.queued);
            matches!(queued, Some((Queue::Registrations, _)))
        };
        let suspects = next_suspects(&mut self.gateway.services.suspects, is_queued);
        let suspected = suspects.is_some();
        let picked =
            suspects.unwrap_or_else(|| self.registration_queue.values().copied().take(most).collect());
        let mut updates = Vec::with_capacity(picked.len());
        for id in picked {
            let Step::Registration(update) = self.services[id].next_step(self.is_dual_stack()) else {
                continue;
            };
            if let Some((_, number)) = self.services[id].queued.take() {
                self.registration_queue.remove(&number);
            }
            self.services[id].in_flight = Some(operation);
            updates.push((id, update));
        }
        if updates.is_empty() {
            return None;
        }
        let mut entries: Vec<_> = updates
            .iter()
            .map(|&(id, registration)| ServiceUpdate { service: self.services.key(id).clone(), registration })
            .collect();
        entries.sort_unstable_by(|a, b| a.service.cmp(&b.service));
        Some((GatewayRequest::UpdateServices(entries), InFlight::Services { updates, suspected }))
    }

    fn take_addresses(&mut self) -> Option<(GatewayRequest, InFlight)> {
        let is_queued = |id: &Id<Address>| {
            self.addresses.table.get(*id).is_some_and(|row| matches!(row.work, Work::Queued(_)))
        };
        let suspects = next_suspects(&mut self.gateway.addresses.suspects, is_queued);
        let suspected = suspects.is_some();
        // At least one entry each, so no more than this many can be picked.
        let most = self.config.max_entries.max(1);
        let candidates = suspects.unwrap_or_else(|| self.next_addresses(most));
        let is_crowded = !suspected && self.addresses.queued() > most;
        let moves = Vec::with_capacity(candidates.len());
        let mut draft = Draft { suspected, moves, ..Draft::default() };
        'full: for first in candidates {
            if self.is_in_flight(first) {
                // Sent along with one before it.
                continue;
            }
            let newcomers = if is_crowded { self.newcomers_with(first, &draft) } else { Vec::new() };
            for address in [first].into_iter().chain(newcomers) {
                if !self.is_in_flight(address) && !self.take_address(address, &mut draft, most) {
                    break 'full;
                }
            }
        }
        if draft.moves.is_empty() {
            return None;
        }
        Some(self.send(draft))
    }

    fn is_in_flight(&self, address: Id<Address>) -> bool {
        matches!(self.addresses.table[address].work, Work::InFlight { .. })
    }

    /// Takes an address into a request, with all that must be sent with it. False, and nothing taken, if the request is full.
    fn take_address(&mut self, address: Id<Address>, draft: &mut Draft, most: usize) -> bool {
        let group = self.with_locations_in_doubt(address, draft);
        if group.iter().any(|step| self.names_doubtful(step.after.as_ref())) {
            // A location that is sent whole would have to name, or to drop, what must wait.
            return true;
        }
        let cost = self.cost(&group, draft);
        let fits = draft.cost.entries + cost.entries <= most
            && size::BODY + draft.cost.bytes + cost.bytes <= self.config.max_bytes;
        if !fits && !draft.moves.is_empty() {
            return false;
        }
        self.add(draft, group, &cost);
        true
    }

    /// What waits to be added to the same location, if NRP does not have it yet: when there is more than one request can hold,
    /// a location that is named once, whole, costs less than one that is named in each request.
    fn newcomers_with(&self, address: Id<Address>, draft: &Draft) -> Vec<Id<Address>> {
        let Some(Target { location, .. }) = self.target(address) else { return Vec::new() };
        let row = &self.locations[location];
        if !row.holdings.is_empty() || draft.has(location) {
            return Vec::new();
        }
        let is_newcomer = |other: &Id<Address>| match self.addresses.table[*other].work {
            Work::Queued(key) => key.urgency == Urgency::Addition && *other != address,
            Work::InSync | Work::Waiting | Work::InFlight { .. } | Work::Quarantined => false,
        };
        row.nodes.iter().flat_map(|&node| self.nodes[node].addresses.iter()).filter(is_newcomer).collect()
    }

    /// The addresses to be sent next, at most this many: withdrawals and moves first, but a quarter of the room is for
    /// additions, which would otherwise wait as long as withdrawals never cease.
    fn next_addresses(&self, most: usize) -> Vec<Id<Address>> {
        let Addresses { withdrawals, additions, .. } = &self.addresses;
        let unreserved = most - additions.len().min(most / 4);
        let (first, later) = (withdrawals.iter().take(unreserved), withdrawals.iter().skip(unreserved));
        first.chain(additions.iter()).chain(later).take(most).collect()
    }

    /// An address, and all that must be sent with it: every address of a location in doubt that it touches, since such a
    /// location is sent whole; but not while an entry that NRP refuses is looked for.
    fn with_locations_in_doubt(&self, first: Id<Address>, draft: &Draft) -> Moves {
        let mut group: Moves = smallvec![self.plan(first)];
        if draft.suspected {
            return group;
        }
        let (mut whole, mut seen) = (Vec::new(), BTreeSet::new());
        let mut at = 0;
        while let Some(step) = group.get(at) {
            for location in step.locations().collect::<SmallVec<[_; 2]>>() {
                if !self.locations[location].in_doubt || draft.has(location) || whole.contains(&location) {
                    continue;
                }
                whole.push(location);
                seen.insert(first);
                let row = &self.locations[location];
                let on_nodes = row.nodes.iter().flat_map(|&node| self.nodes[node].addresses.iter());
                let belongs = |address: &Id<Address>| {
                    self.target(*address).is_some_and(|target| target.location == location)
                };
                for other in row.holdings.iter().chain(on_nodes.filter(belongs)) {
                    if !self.is_in_flight(other) && seen.insert(other) {
                        group.push(self.plan(other));
                    }
                }
            }
            at += 1;
        }
        group
    }

    /// What becomes of one address.
    fn plan(&self, address: Id<Address>) -> Move {
        let before = self.addresses.holdings(address);
        let mut after = self.target(address);
        let work = self.addresses.table[address].work;
        if work == Work::Quarantined {
            // Sent along with a location in doubt. NRP would refuse what it refused before, so it keeps what it has, or may
            // have.
            let held = |target: &Target| before.iter().find(|held| held.location == target.location);
            after =
                after.as_ref().and_then(|target| Some((target, held(target)?))).and_then(|(target, held)| {
                    let services: ServiceSet = held
                        .services
                        .iter()
                        .copied()
                        .filter(|service| target.services.contains(service))
                        .collect();
                    (!services.is_empty()).then_some(Target { location: target.location, services })
                });
        }
        let since = match work {
            Work::Queued(key) => Some(key.since),
            Work::InSync | Work::Waiting | Work::InFlight { .. } | Work::Quarantined => None,
        };
        Move { address, before, after, since }
    }

    fn cost(&self, group: &[Move], draft: &Draft) -> Cost {
        let mut cost = Cost::default();
        let mut opened: SmallVec<[Id<Location>; 2]> = SmallVec::new();
        for step in group {
            let ip = self.ip(step.address);
            for location in step.locations() {
                if !draft.has(location) && !opened.contains(&location) {
                    opened.push(location);
                    cost.bytes += size::location(*self.locations.key(location));
                }
                let services = step.services_at(location).into_iter().flatten();
                cost.entries += 1;
                cost.bytes += size::address(ip, services.map(|&id| self.services.key(id).as_str().len()));
            }
        }
        cost
    }

    fn add(&mut self, draft: &mut Draft, group: Moves, cost: &Cost) {
        let none = ServiceSet::new();
        for step in &group {
            self.set_work(step.address, Work::InFlight { is_outdated: false });
            let address = self.ip(step.address);
            for location in step.locations() {
                let services = self.names(step.services_at(location).unwrap_or(&none), &mut draft.names);
                let entries = draft.locations.intern(&location);
                draft.locations[entries].push(AddressUpdate { address, services });
            }
        }
        draft.moves.extend(group);
        draft.cost.entries += cost.entries;
        draft.cost.bytes += cost.bytes;
    }

    /// The names of a set of services, sorted; the same ones for the same set.
    fn names(&self, services: &ServiceSet, known: &mut Table<ServiceSet, Option<Names>>) -> Names {
        let id = known.intern(services);
        let sorted = || {
            let mut names: Vec<_> = services.iter().map(|&id| self.services.key(id).clone()).collect();
            names.sort_unstable();
            names.into()
        };
        known[id].get_or_insert_with(sorted).clone()
    }

    /// Writes the request, and notes what NRP may hold until its outcome is known.
    fn send(&mut self, draft: Draft) -> (GatewayRequest, InFlight) {
        let Draft { suspected, moves, locations: entries, .. } = draft;
        let locations = entries.iter().map(|(_, &location, _)| location).collect();
        let mut updates: Vec<_> = entries
            .into_rows()
            .map(|(id, mut entries)| {
                entries.sort_unstable_by_key(|entry| entry.address);
                let addresses = self.update_of(id, entries, suspected);
                LocationUpdate { location: *self.locations.key(id), addresses }
            })
            .collect();
        updates.sort_unstable_by_key(|update| update.location);
        for step in &moves {
            // Whatever it names, it may still name.
            self.set_holdings(step.address, &step.in_between(), &mut Vec::new());
        }
        let batch = AddressBatch { suspected, moves, locations };
        (GatewayRequest::UpdateAddressLocations(updates), InFlight::Addresses(batch))
    }

    fn update_of(
        &self,
        location: Id<Location>,
        mut entries: Vec<AddressUpdate>,
        suspected: bool,
    ) -> AddressesUpdate {
        let row = &self.locations[location];
        let leaving = entries.iter().filter(|entry| entry.services.is_empty()).count();
        let is_whole = (row.in_doubt && !suspected) || row.holdings.is_empty();
        // Everything that is held is leaving and nothing comes. (Entries that leave are held here, each of them.)
        if leaving == entries.len() && leaving == row.holdings.len() {
            AddressesUpdate::Remove
        } else if is_whole {
            entries.retain(|entry| !entry.services.is_empty());
            AddressesUpdate::Replace(entries)
        } else {
            AddressesUpdate::Merge(entries)
        }
    }
}

/// The topmost part of a refused request of which something is still to be sent.
fn next_suspects<T>(
    suspects: &mut Vec<Vec<Id<T>>>,
    is_queued: impl Fn(&Id<T>) -> bool,
) -> Option<Vec<Id<T>>> {
    while let Some(mut part) = suspects.pop() {
        part.retain(&is_queued);
        if !part.is_empty() {
            return Some(part);
        }
    }
    None
}

impl Move {
    /// The locations that the request names for this address: those that it leaves, and the one where it will be.
    pub(crate) fn locations(&self) -> impl Iterator<Item = Id<Location>> {
        let leaves = self.before.iter().map(|holding| holding.location);
        let target = self.after.as_ref().map(|target| target.location);
        leaves.filter(move |location| Some(*location) != target).chain(target)
    }

    /// What the address names at one of them; `None` where it leaves.
    fn services_at(&self, location: Id<Location>) -> Option<&ServiceSet> {
        self.after.as_ref().filter(|target| target.location == location).map(|target| &target.services)
    }

    /// What NRP may hold of it until the outcome is known: the old, the new, or nothing.
    fn in_between(&self) -> Holdings {
        let mut holdings = Holdings::new();
        for held in &self.before {
            holdings.push(Holding { certain: false, ..held.clone() });
        }
        if let Some(Target { location, services }) = &self.after {
            match holdings.iter_mut().find(|holding| holding.location == *location) {
                Some(holding) => {
                    holding.services.extend_from_slice(services);
                    holding.services.sort_unstable();
                    holding.services.dedup();
                }
                None => {
                    let services = ServiceSet::from_slice(services);
                    holdings.push(Holding { location: *location, services, certain: false });
                }
            }
        }
        holdings
    }

    /// What NRP holds of it when the request has been applied.
    pub(crate) fn applied(&self) -> Holdings {
        let mut holdings = Holdings::new();
        if let Some(Target { location, services }) = &self.after {
            let services = ServiceSet::from_slice(services);
            holdings.push(Holding { location: *location, services, certain: true });
        }
        holdings
    }

    /// The services that the request makes it name.
    pub(crate) fn named(&self) -> ServiceSet {
        self.after.as_ref().map(|target| target.services.clone()).unwrap_or_default()
    }
}

/// The names of a set of services.
type Names = Arc<[ServiceId]>;

/// Addresses that must be sent together; mostly one.
type Moves = SmallVec<[Move; 1]>;

/// A request in the making.
#[derive(Default)]
struct Draft {
    suspected: bool,
    moves: Vec<Move>,
    locations: Table<Id<Location>, Vec<AddressUpdate>>,
    /// The sets of services that stand in it.
    names: Table<ServiceSet, Option<Names>>,
    cost: Cost,
}

impl Draft {
    fn has(&self, location: Id<Location>) -> bool {
        self.locations.id(&location).is_some()
    }
}

/// What a part of a request takes of the budgets.
#[derive(Default)]
struct Cost {
    entries: usize,
    bytes: usize,
}
