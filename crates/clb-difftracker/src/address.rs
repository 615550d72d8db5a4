//! One address: who claims it, what NRP holds of it, and whether the two agree.

use smallvec::SmallVec;

use crate::desired::{NodeState, Slice};
use crate::ids::Ip;
use crate::service::{Role, ServiceState};
use crate::table::Id;
use crate::tracker::DiffTracker;

/// The services that an address names, sorted by number. Two fit without an allocation: an address rarely backs more.
pub(crate) type ServiceSet = SmallVec<[Id<ServiceState>; 2]>;

/// What NRP holds of one address: one holding in quiet times, none for an address it does not know, and two while it
/// moves. No two are at the same location.
pub(crate) type Holdings = SmallVec<[Holding; 1]>;

/// A slice says that an address is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) slice: Id<Slice>,
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

/// Where an address should be and what it should name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) location: Id<Location>,
    pub(crate) services: ServiceSet,
}

/// Both sides of one address.
#[derive(Debug, Default)]
pub(crate) struct Address {
    /// Oldest first.
    pub(crate) claims: SmallVec<[Claim; 2]>,
    pub(crate) holdings: Holdings,
}

/// A node's IP.
#[derive(Debug, Default)]
pub(crate) struct Location {
    /// The nodes that have this IP now; more than one only while the cluster contradicts itself.
    pub(crate) nodes: SmallVec<[Id<NodeState>; 1]>,
    /// The addresses that NRP holds here, or may.
    pub(crate) holdings: alloc::collections::BTreeSet<Id<Address>>,
    /// An update of it ended with nobody knowing how. It is settled by sending it whole.
    pub(crate) in_doubt: bool,
}

/// Why an address is not in sync. One that has no such entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It waits for a batch.
    Queued(QueueKey),
    /// It is part of the batch in flight.
    InFlight,
    /// NRP refuses this target.
    Quarantined(Option<Target>),
}

/// A place in the queue of addresses: withdrawals and moves before additions, then the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    pub(crate) urgency: Urgency,
    pub(crate) since: u64,
}

/// What an address waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Traffic goes, or may go, where it should no longer go; services may be waiting to be deleted.
    Withdrawal,
    /// Nothing but more capacity.
    Addition,
}

impl DiffTracker {
    /// Where an address should be now. The latest claim that counts says at which location; the services are those of all
    /// claims that count and name this location, as far as they can be named yet. A claim counts while its Service serves
    /// this family, or is to serve it, and its node is known and has an IP of it.
    pub(crate) fn target(&self, address: Id<Address>) -> Option<Target> {
        let family = self.addresses.key(address).family();
        let mut target: Option<Target> = None;
        for claim in self.addresses[address].claims.iter().rev() {
            let Some(location) = self.nodes[claim.node].location(family) else { continue };
            let slot = self.slices[claim.slice].slot;
            let Some(service) = slot.and_then(|slot| self.slots[slot].service) else { continue };
            let role = self.services[service].role;
            if role != Role::Serving(family) && role != Role::Expecting(family) {
                continue;
            }
            let target = target.get_or_insert_with(|| Target { location, services: ServiceSet::new() });
            if target.location == location
                && role == Role::Serving(family)
                && let Err(at) = target.services.binary_search(&service)
            {
                target.services.insert(at, service);
            }
        }
        target.filter(|target| !target.services.is_empty())
    }

    /// Compares both sides of an address and queues it, or takes it out of the queue. One that is in flight is
    /// compared when its outcome comes.
    pub(crate) fn refresh_address(&mut self, address: Id<Address>) {
        let work = self.work.get(&address);
        if matches!(work, Some(Work::InFlight)) {
            return;
        }
        let target = self.target(address);
        let holdings = &self.addresses[address].holdings;
        if is_in_sync(holdings, target.as_ref()) {
            self.dequeue(address);
            return;
        }
        if matches!(work, Some(Work::Quarantined(refused)) if *refused == target) {
            return;
        }
        let urgency = urgency(holdings, target.as_ref());
        let since = match work {
            Some(Work::Queued(key)) if key.urgency == urgency => return,
            Some(Work::Queued(key)) => key.since,
            Some(Work::Quarantined(_) | Work::InFlight) | None => self.next_number(),
        };
        self.dequeue(address);
        let key = QueueKey { urgency, since };
        self.address_queue.insert(key, address);
        self.work.insert(address, Work::Queued(key));
    }

    fn dequeue(&mut self, address: Id<Address>) {
        match self.work.remove(&address) {
            Some(Work::Queued(key)) => {
                self.address_queue.remove(&key);
            }
            Some(Work::Quarantined(_)) => self.timers.clear(crate::tracker::Timer::Address(address)),
            Some(Work::InFlight) | None => {}
        }
    }

    /// Replaces what NRP holds of an address, and counts anew what depends on it: the references of services and the
    /// holdings of locations. The caller refreshes the services named.
    pub(crate) fn set_holdings(&mut self, address: Id<Address>, holdings: Holdings) {
        let before = core::mem::replace(&mut self.addresses[address].holdings, holdings);
        for holding in &self.addresses[address].holdings {
            self.locations[holding.location].holdings.insert(address);
            for &service in &holding.services {
                self.services[service].references += 1;
            }
        }
        for holding in before {
            let stays = self.addresses[address].holdings.iter().any(|now| now.location == holding.location);
            if !stays {
                self.locations[holding.location].holdings.remove(&address);
                self.forget_location(holding.location);
            }
            for &service in &holding.services {
                self.services[service].references -= 1;
            }
        }
    }

    /// Drops an address that nobody claims, NRP does not hold and no batch carries.
    pub(crate) fn forget_address(&mut self, address: Id<Address>) {
        let row = &self.addresses[address];
        if row.claims.is_empty() && row.holdings.is_empty() && !self.work.contains_key(&address) {
            self.addresses.remove(address);
        }
    }

    /// Drops a location that no node has and NRP does not hold.
    pub(crate) fn forget_location(&mut self, location: Id<Location>) {
        let row = &self.locations[location];
        if row.nodes.is_empty() && row.holdings.is_empty() && !row.in_doubt {
            self.locations.remove(location);
        }
    }

    pub(crate) fn ip(&self, address: Id<Address>) -> Ip {
        *self.addresses.key(address)
    }
}

fn is_in_sync(holdings: &Holdings, target: Option<&Target>) -> bool {
    match (holdings.as_slice(), target) {
        ([], None) => true,
        ([holding], Some(target)) => {
            holding.certain && holding.location == target.location && holding.services == target.services
        }
        ([], Some(_)) | ([_, ..], _) => false,
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
