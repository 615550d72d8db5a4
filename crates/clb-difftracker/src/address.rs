//! One address: who claims it, what NRP holds of it, and whether the two agree.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::batch::Lane;
use crate::desired::NodeState;
use crate::ids::Ip;
use crate::queue::Queue;
use crate::service::{Role, ServiceState};
use crate::source::SourceState;
use crate::table::{Id, IdSet, Table};
use crate::tracker::{DiffTracker, Timer};

/// The services that an address names, sorted by number. It takes as much room inline as it would on the heap.
pub(crate) type ServiceSet = SmallVec<[Id<ServiceState>; 4]>;

/// What NRP holds of one address: one holding in quiet times, none for an address it does not know, and two while it
/// moves. No two are at the same location.
pub(crate) type Holdings = SmallVec<[Holding; 1]>;

/// A source says that an address is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) source: Id<SourceState>,
    pub(crate) node: Id<NodeState>,
}

/// NRP lists an address at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) location: Id<Location>,
    /// The services it names, or, if that is not certain, all that it may name.
    pub(crate) services: ServiceSet,
    /// Whether it is known to be there like this. If not, it may be there with any of these services, or not at all.
    pub(crate) certain: bool,
}

/// A holding as it is kept: most addresses name one of a few sets of services.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    location: Id<Location>,
    services: Id<SetUses>,
    certain: bool,
}

/// How many holdings name this very set of services.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetUses(u32);

/// Where an address should be and what it should name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) location: Id<Location>,
    pub(crate) services: ServiceSet,
}

/// Both sides of one address. There are a hundred thousand of these: mind the size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Address {
    /// Oldest first.
    pub(crate) claims: SmallVec<[Claim; 2]>,
    /// What NRP holds; further holdings, which are rare, are kept aside.
    held: Option<Kept>,
    pub(crate) work: Work,
}

/// A node's IP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Location {
    /// The nodes that have this IP now; more than one only while the cluster contradicts itself.
    pub(crate) nodes: SmallVec<[Id<NodeState>; 1]>,
    /// The addresses that NRP holds here, or may.
    pub(crate) holdings: IdSet<Address>,
    /// An update of it ended with nobody knowing how. It is settled by sending it whole.
    pub(crate) in_doubt: bool,
    /// The number of the last operation on it that ended.
    pub(crate) touched: u64,
}

/// What is to be done about an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing: both sides agree.
    #[default]
    InSync,
    /// It waits for a batch.
    Queued(QueueKey),
    /// It names a service whose registration is in doubt, and can be neither sent nor withdrawn before that is settled.
    Waiting,
    /// It is part of the batch in flight.
    InFlight {
        /// Whether something about it has changed since.
        is_outdated: bool,
    },
    /// NRP refuses the target that is kept aside.
    Quarantined,
}

/// A place in the queues of addresses: the oldest, with the smallest number, come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueKey {
    pub(crate) urgency: Urgency,
    pub(crate) since: u64,
}

/// What an address waits for: each has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Traffic goes, or may go, where it should no longer go; services may be waiting to be deleted.
    Withdrawal,
    /// Nothing but more capacity.
    Addition,
}

/// All addresses, and what only a few of them need.
#[derive(Clone, Default)]
pub(crate) struct Addresses {
    pub(crate) table: Table<Ip, Address>,
    sets: Table<ServiceSet, SetUses>,
    /// Holdings beyond the first.
    elsewhere: BTreeMap<Id<Address>, Vec<Kept>>,
    /// The targets that NRP refuses.
    refused: BTreeMap<Id<Address>, Option<Target>>,
    pub(crate) withdrawals: Queue<Address>,
    pub(crate) additions: Queue<Address>,
    /// How many are not in sync.
    pub(crate) unsettled: usize,
}

impl Address {
    /// Whether NRP holds it anywhere, or may.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

impl Addresses {
    /// What NRP holds of an address.
    pub(crate) fn holdings(&self, address: Id<Address>) -> Holdings {
        let expand = |kept: &Kept| Holding {
            location: kept.location,
            services: ServiceSet::from_slice(self.sets.key(kept.services)),
            certain: kept.certain,
        };
        let mut holdings = Holdings::new();
        if let Some(first) = &self.table[address].held {
            holdings.push(expand(first));
            holdings.extend(self.elsewhere.get(&address).into_iter().flatten().map(expand));
        }
        holdings
    }

    /// The locations at which NRP holds an address, or may.
    pub(crate) fn places(&self, address: Id<Address>) -> impl Iterator<Item = Id<Location>> {
        let first = self.table[address].held.as_ref();
        let others = first.and_then(|_| self.elsewhere.get(&address));
        first.into_iter().chain(others.into_iter().flatten()).map(|kept| kept.location)
    }

    fn queue(&mut self, urgency: Urgency) -> &mut Queue<Address> {
        match urgency {
            Urgency::Withdrawal => &mut self.withdrawals,
            Urgency::Addition => &mut self.additions,
        }
    }

    /// Those that wait for a batch, by urgency and age.
    pub(crate) fn in_queue(&self) -> impl Iterator<Item = Id<Address>> {
        self.withdrawals.iter().chain(self.additions.iter())
    }

    /// How many wait for a batch.
    pub(crate) fn queued(&self) -> usize {
        self.withdrawals.len() + self.additions.len()
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.refused.len()
    }

    /// Notes what is to be done about an address, and forgets what was.
    pub(crate) fn set_work(&mut self, address: Id<Address>, work: Work) {
        match core::mem::replace(&mut self.table[address].work, work) {
            Work::InSync => self.unsettled += 1,
            Work::Queued(key) => self.queue(key.urgency).remove(key.since),
            Work::Waiting | Work::InFlight { .. } => {}
            Work::Quarantined => drop(self.refused.remove(&address)),
        }
        match work {
            Work::InSync => self.unsettled -= 1,
            Work::Queued(key) => self.queue(key.urgency).insert(key.since, address),
            Work::Waiting | Work::InFlight { .. } | Work::Quarantined => {}
        }
    }

    /// Sets an address aside whose target NRP refuses.
    pub(crate) fn quarantine(&mut self, address: Id<Address>, refused: Option<Target>) {
        self.set_work(address, Work::Quarantined);
        self.refused.insert(address, refused);
    }

    /// Takes in holdings that differ from those known in nothing but how certain they are, as most do when a batch has
    /// succeeded: nothing that is counted changes. False, and nothing done, if they differ in more.
    fn take_certainty(&mut self, address: Id<Address>, holdings: &[Holding]) -> bool {
        let ([holding], Some(held)) = (holdings, self.table[address].held) else { return false };
        let is_same = held.location == holding.location
            && *self.sets.key(held.services) == holding.services
            && !self.elsewhere.contains_key(&address);
        if is_same {
            self.table[address].held = Some(Kept { certain: holding.certain, ..held });
        }
        is_same
    }

    fn keep(&mut self, holding: &Holding) -> Kept {
        let services = self.sets.intern(&holding.services);
        self.sets[services].0 += 1;
        Kept { location: holding.location, services, certain: holding.certain }
    }

    fn unkeep(&mut self, set: Id<SetUses>) {
        self.sets[set].0 -= 1;
        if self.sets[set].0 == 0 {
            self.sets.remove(set);
        }
    }
}

impl DiffTracker {
    /// Where an address should be now. The latest claim that counts says at which location; the services are those of all
    /// claims that count and name this location, as far as they can be named yet. A claim counts while its Service serves
    /// this family, or is to serve it, and its node is known and has an IP of it.
    pub(crate) fn target(&self, address: Id<Address>) -> Option<Target> {
        let mut target: Option<Target> = None;
        for (location, service) in self.counting_claims(address).rev() {
            let target = target.get_or_insert_with(|| Target { location, services: ServiceSet::new() });
            let can_be_named = match self.services[service].role {
                Role::Serving(_) => true,
                Role::InDoubt(_) => self.is_named(address, location, service),
                Role::Expecting(_) | Role::None => false,
            };
            if target.location == location
                && can_be_named
                && let Err(at) = target.services.binary_search(&service)
            {
                target.services.insert(at, service);
            }
        }
        if self.kept > 0 {
            self.keep_names(address, &mut target);
        }
        target.filter(|target| !target.services.is_empty())
    }

    /// The claims on an address that count, oldest first: at which location, and for which service.
    pub(crate) fn counting_claims(
        &self,
        address: Id<Address>,
    ) -> impl DoubleEndedIterator<Item = (Id<Location>, Id<ServiceState>)> {
        let family = self.addresses.table.key(address).family();
        self.addresses.table[address].claims.iter().filter_map(move |claim| {
            let location = self.nodes[claim.node].location(family)?;
            let service = self.slots[self.sources[claim.source].slot?].service?;
            let counts =
                self.services[service].role.counts_for(family) && self.is_eligible(*claim, address, service);
            counts.then_some((location, service))
        })
    }

    /// Names of services that are not to be touched stay with the address, wherever it is.
    fn keep_names(&self, address: Id<Address>, target: &mut Option<Target>) {
        for holding in self.addresses.holdings(address) {
            for service in holding.services.into_iter().filter(|id| self.services[*id].is_kept()) {
                let target = target.get_or_insert_with(|| Target {
                    location: holding.location,
                    services: ServiceSet::new(),
                });
                if let Err(at) = target.services.binary_search(&service) {
                    target.services.insert(at, service);
                }
            }
        }
    }

    /// Whether a target names a service whose registration is in doubt: then it must not be sent.
    pub(crate) fn names_doubtful(&self, target: Option<&Target>) -> bool {
        let is_doubtful = |&id: &Id<ServiceState>| matches!(self.services[id].role, Role::InDoubt(_));
        target.is_some_and(|target| target.services.iter().any(is_doubtful))
    }

    /// Whether an address at a location names a service, or may.
    fn is_named(&self, address: Id<Address>, location: Id<Location>, service: Id<ServiceState>) -> bool {
        let named = |held: &Holding| held.location == location && held.services.contains(&service);
        self.addresses.holdings(address).iter().any(named)
    }

    /// Compares both sides of an address and queues it, or takes it out of the queue. One that is in flight is
    /// compared when its outcome comes.
    pub(crate) fn refresh_address(&mut self, address: Id<Address>) {
        let work = self.addresses.table[address].work;
        if matches!(work, Work::InFlight { .. }) {
            self.addresses.table[address].work = Work::InFlight { is_outdated: true };
            return;
        }
        let target = self.target(address);
        if self.is_in_sync(address, target.as_ref()) {
            if work != Work::InSync {
                self.set_work(address, Work::InSync);
            }
            return;
        }
        if work == Work::Quarantined && self.addresses.refused.get(&address) == Some(&target) {
            return;
        }
        if self.names_doubtful(target.as_ref()) {
            self.set_work(address, Work::Waiting);
            return;
        }
        let urgency = urgency(&self.addresses.holdings(address), target.as_ref());
        let since = match work {
            Work::Queued(key) if key.urgency == urgency => return,
            Work::Queued(key) => key.since,
            Work::InSync | Work::Waiting | Work::InFlight { .. } | Work::Quarantined => self.next_number(),
        };
        self.set_work(address, Work::Queued(QueueKey { urgency, since }));
    }

    /// Notes what is to be done about an address.
    pub(crate) fn set_work(&mut self, address: Id<Address>, work: Work) {
        if self.addresses.table[address].work == Work::Quarantined {
            self.timers.clear(Timer::Address(address));
        }
        if matches!(work, Work::Queued(_)) && self.addresses.queued() == 0 {
            self.open_window(Lane::Addresses);
        }
        self.addresses.set_work(address, work);
    }

    fn is_in_sync(&self, address: Id<Address>, target: Option<&Target>) -> bool {
        match (self.addresses.table[address].held, target) {
            (None, None) => true,
            (Some(held), Some(target)) => {
                held.certain
                    && held.location == target.location
                    && *self.addresses.sets.key(held.services) == target.services
                    && !self.addresses.elsewhere.contains_key(&address)
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Replaces what NRP holds of an address, and counts anew what depends on it: the references of services and the
    /// holdings of locations. Services that no address names any more, or may, are added to `unnamed`: for these alone
    /// something follows.
    pub(crate) fn set_holdings(
        &mut self,
        address: Id<Address>,
        holdings: &[Holding],
        unnamed: &mut Vec<Id<ServiceState>>,
    ) {
        if self.addresses.take_certainty(address, holdings) {
            return;
        }
        let first = self.addresses.table[address].held.take();
        let others = first.and_then(|_| self.addresses.elsewhere.remove(&address)).unwrap_or_default();
        for holding in holdings {
            for &service in &holding.services {
                self.services[service].references += 1;
            }
            let kept = self.addresses.keep(holding);
            match &mut self.addresses.table[address].held {
                held @ None => *held = Some(kept),
                Some(_) => self.addresses.elsewhere.entry(address).or_default().push(kept),
            }
            let stayed = first.iter().chain(&others).any(|former| former.location == holding.location);
            if !stayed {
                self.locations[holding.location].holdings.insert(address);
            }
        }
        for former in first.into_iter().chain(others) {
            for &service in self.addresses.sets.key(former.services) {
                let references = &mut self.services[service].references;
                *references -= 1;
                if *references == 0 {
                    unnamed.push(service);
                }
            }
            self.addresses.unkeep(former.services);
            if !holdings.iter().any(|now| now.location == former.location) {
                self.locations[former.location].holdings.remove(address);
                self.forget_location(former.location);
            }
        }
        if first.is_none() != holdings.is_empty() {
            self.refresh_lingering(address);
        }
    }

    /// Drops an address that nobody claims, NRP does not hold and no batch carries.
    pub(crate) fn forget_address(&mut self, address: Id<Address>) {
        let row = &self.addresses.table[address];
        if row.claims.is_empty()
            && row.held.is_none()
            && row.work == Work::InSync
            && !self.lingering.contains_key(&address)
        {
            self.addresses.table.remove(address);
        }
    }

    /// Drops a location that no node has and NRP does not hold.
    pub(crate) fn forget_location(&mut self, location: Id<Location>) {
        let Some(row) = self.locations.get(location) else { return };
        if row.nodes.is_empty()
            && row.holdings.is_empty()
            && !row.in_doubt
            && !self.reading.may_contradict(row.touched)
        {
            self.locations.remove(location);
        }
    }

    pub(crate) fn ip(&self, address: Id<Address>) -> Ip {
        *self.addresses.table.key(address)
    }
}

fn urgency(holdings: &Holdings, target: Option<&Target>) -> Urgency {
    let stays = |holding: &Holding| {
        target.is_some_and(|target| {
            holding.location == target.location
                && holding.services.iter().all(|s| target.services.contains(s))
        })
    };
    if holdings.iter().all(stays) { Urgency::Addition } else { Urgency::Withdrawal }
}
