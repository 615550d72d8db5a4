//! Requests on the gateway: what goes into one, in which order, within which budget.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::address::{Address, Holding, Holdings, Location, ServiceSet, Target, Work};
use crate::ids::{Ip, ServiceId};
use crate::operation::{
    Action, AddressUpdate, AddressesUpdate, GatewayRequest, LocationUpdate, OperationId, RegistrationUpdate,
    ResourceRequest, ServiceUpdate,
};
use crate::service::{Queue, ServiceState, Step};
use crate::size;
use crate::table::Id;
use crate::tracker::{DiffTracker, Timer};

/// The two kinds of requests on the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    #[default]
    Services,
    Addresses,
}

/// The state of the calls on the gateway.
#[derive(Debug, Default)]
pub(crate) struct Gateway {
    /// Whether one is in flight.
    pub(crate) in_flight: bool,
    /// The kind of the last one. When both kinds have something to do, they take turns.
    pub(crate) last: Lane,
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

impl<T> Default for LaneState<T> {
    fn default() -> Self {
        Self { failures: 0, suspects: Vec::new() }
    }
}

/// An operation in flight, and what its outcome needs to know.
#[derive(Debug)]
pub(crate) enum InFlight {
    Resource { service: Id<ServiceState>, request: ResourceRequest },
    Services { updates: Vec<(Id<ServiceState>, RegistrationUpdate)>, suspected: bool },
    Addresses(AddressBatch),
}

/// An `updateAddressLocations` in flight.
#[derive(Debug)]
pub(crate) struct AddressBatch {
    /// The addresses that were taken for it, in the order of taking.
    pub(crate) picked: Vec<Id<Address>>,
    /// Whether it is a part of a refused request.
    pub(crate) suspected: bool,
    /// All addresses in it: also those that are sent along to settle a location in doubt.
    pub(crate) moves: Vec<Move>,
    pub(crate) locations: Vec<Id<Location>>,
}

/// What a batch does to one address.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) address: Id<Address>,
    pub(crate) before: Holdings,
    pub(crate) after: Option<Target>,
}

impl DiffTracker {
    /// The next call on the gateway, if none is in flight and there is something to say.
    pub(crate) fn next_gateway_request(&mut self, operation: OperationId) -> Option<(Action, InFlight)> {
        if self.gateway.in_flight {
            return None;
        }
        let order = match self.gateway.last {
            Lane::Services => [Lane::Addresses, Lane::Services],
            Lane::Addresses => [Lane::Services, Lane::Addresses],
        };
        for lane in order {
            if self.timers.get(Timer::Lane(lane)).is_some() {
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
            let Step::Registration(update) = self.services[id].next_step() else { continue };
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
        let is_queued = |id: &Id<Address>| matches!(self.work.get(id), Some(Work::Queued(_)));
        let suspects = next_suspects(&mut self.gateway.addresses.suspects, is_queued);
        let suspected = suspects.is_some();
        // At least one entry each, so no more than this many can be picked.
        let most = self.config.max_entries.max(1);
        let candidates =
            suspects.unwrap_or_else(|| self.address_queue.values().copied().take(most).collect());
        let mut draft = Draft::default();
        for address in candidates {
            if draft.members.contains(&address) {
                // Sent along to settle a location in doubt.
                draft.picked.push(address);
                continue;
            }
            let group = self.with_locations_in_doubt(address, &draft);
            let cost = self.cost(&group, &draft);
            let fits = draft.entries + cost.entries <= most
                && size::BODY + draft.bytes + cost.bytes <= self.config.max_bytes;
            if !fits && !draft.picked.is_empty() {
                break;
            }
            draft.add(address, group, &cost);
        }
        if draft.picked.is_empty() {
            return None;
        }
        Some(self.send(draft, suspected))
    }

    /// An address, and all that must be sent with it: every address of a location in doubt that it touches, since such a
    /// location is sent whole.
    fn with_locations_in_doubt(&self, first: Id<Address>, draft: &Draft) -> Group {
        let mut group = Group::default();
        let mut pending = alloc::vec![first];
        let mut seen = BTreeSet::from([first]);
        while let Some(address) = pending.pop() {
            let entry = self.plan(address);
            for location in entry.locations() {
                if !self.locations[location].in_doubt
                    || draft.whole.contains(&location)
                    || !group.whole.insert(location)
                {
                    continue;
                }
                let row = &self.locations[location];
                let on_nodes = row.nodes.iter().flat_map(|&node| self.nodes[node].addresses.iter());
                let belongs = |address: &&Id<Address>| {
                    self.target(**address).is_some_and(|target| target.location == location)
                };
                let all = row.holdings.iter().chain(on_nodes.filter(belongs)).copied();
                pending.extend(all.filter(|other| !draft.members.contains(other) && seen.insert(*other)));
            }
            group.moves.push(entry);
        }
        group
    }

    /// What becomes of one address.
    fn plan(&self, address: Id<Address>) -> Move {
        let before = self.addresses[address].holdings.clone();
        let mut after = self.target(address);
        if matches!(self.work.get(&address), Some(Work::Quarantined(_))) {
            // Sent along with a location in doubt. NRP would refuse what it refused before, so it keeps what it has.
            let held =
                |target: &Target| before.iter().find(|held| held.certain && held.location == target.location);
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
        Move { address, before, after }
    }

    fn cost(&self, group: &Group, draft: &Draft) -> Cost {
        let mut cost = Cost::default();
        let mut seen: BTreeSet<Id<Location>> = BTreeSet::new();
        for step in &group.moves {
            let ip = self.ip(step.address);
            for location in step.locations() {
                if !draft.locations.contains(&location) && seen.insert(location) {
                    cost.bytes += size::location(*self.locations.key(location));
                }
                let services = step.services_at(location);
                cost.entries += 1;
                cost.bytes +=
                    size::address(ip, services.iter().map(|&id| self.services.key(id).as_str().len()));
            }
        }
        cost
    }

    /// Marks everything in the draft as in flight, and writes the request.
    fn send(&mut self, draft: Draft, suspected: bool) -> (GatewayRequest, InFlight) {
        let updates = self.write(&draft);
        for step in &draft.moves {
            if let Some(Work::Queued(key)) = self.work.insert(step.address, Work::InFlight) {
                self.address_queue.remove(&key);
            }
            self.timers.clear(Timer::Address(step.address));
            self.set_holdings(step.address, step.in_between());
        }
        let batch = AddressBatch {
            picked: draft.picked,
            suspected,
            moves: draft.moves,
            locations: draft.locations.into_iter().collect(),
        };
        (GatewayRequest::UpdateAddressLocations(updates), InFlight::Addresses(batch))
    }

    fn write(&self, draft: &Draft) -> Vec<LocationUpdate> {
        let mut by_location: BTreeMap<Ip, (Id<Location>, Vec<AddressUpdate>)> = BTreeMap::new();
        for step in &draft.moves {
            for location in step.locations() {
                let services = step.services_at(location);
                let mut services: Vec<ServiceId> =
                    services.iter().map(|&id| self.services.key(id).clone()).collect();
                services.sort_unstable();
                let (_, entries) = by_location
                    .entry(*self.locations.key(location))
                    .or_insert_with(|| (location, Vec::new()));
                entries.push(AddressUpdate { address: self.ip(step.address), services });
            }
        }
        let update = |(location, (id, mut entries)): (Ip, (Id<Location>, Vec<AddressUpdate>))| {
            entries.sort_unstable_by_key(|entry| entry.address);
            LocationUpdate { location, addresses: self.update_of(id, entries) }
        };
        by_location.into_iter().map(update).collect()
    }

    fn update_of(&self, location: Id<Location>, mut entries: Vec<AddressUpdate>) -> AddressesUpdate {
        let row = &self.locations[location];
        let leaving = entries.iter().filter(|entry| entry.services.is_empty()).count();
        let is_whole = row.in_doubt || row.holdings.is_empty();
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
    fn locations(&self) -> impl Iterator<Item = Id<Location>> {
        let leaves = self.before.iter().map(|holding| holding.location);
        let target = self.after.as_ref().map(|target| target.location);
        leaves.filter(move |location| Some(*location) != target).chain(target)
    }

    /// What the address names at one of them.
    fn services_at(&self, location: Id<Location>) -> &[Id<ServiceState>] {
        match &self.after {
            Some(target) if target.location == location => &target.services,
            Some(_) | None => &[],
        }
    }

    /// What NRP may hold of it until the outcome is known: the old, the new, or nothing.
    fn in_between(&self) -> Holdings {
        let mut holdings = self.before.clone();
        holdings.iter_mut().for_each(|holding| holding.certain = false);
        if let Some(Target { location, services }) = &self.after {
            match holdings.iter_mut().find(|holding| holding.location == *location) {
                Some(holding) => {
                    holding.services.extend_from_slice(services);
                    holding.services.sort_unstable();
                    holding.services.dedup();
                }
                None => {
                    holdings.push(Holding { location: *location, services: services.clone(), certain: false });
                }
            }
        }
        holdings
    }

    /// What NRP holds of it when the request has been applied.
    pub(crate) fn applied(&self) -> Holdings {
        let holding = |Target { location, services }: &Target| Holding {
            location: *location,
            services: services.clone(),
            certain: true,
        };
        self.after.iter().map(holding).collect()
    }

    /// The services that the request makes it name.
    pub(crate) fn named(&self) -> ServiceSet {
        self.after.as_ref().map(|target| target.services.clone()).unwrap_or_default()
    }
}

/// A request in the making.
#[derive(Default)]
struct Draft {
    picked: Vec<Id<Address>>,
    moves: Vec<Move>,
    members: BTreeSet<Id<Address>>,
    locations: BTreeSet<Id<Location>>,
    whole: BTreeSet<Id<Location>>,
    entries: usize,
    bytes: usize,
}

impl Draft {
    fn add(&mut self, picked: Id<Address>, group: Group, cost: &Cost) {
        self.picked.push(picked);
        for step in &group.moves {
            self.members.insert(step.address);
            self.locations.extend(step.locations());
        }
        self.moves.extend(group.moves);
        self.whole.extend(group.whole);
        self.entries += cost.entries;
        self.bytes += cost.bytes;
    }
}

/// Addresses that must be sent together.
#[derive(Default)]
struct Group {
    moves: Vec<Move>,
    whole: BTreeSet<Id<Location>>,
}

#[derive(Default)]
struct Cost {
    entries: usize,
    bytes: usize,
}
