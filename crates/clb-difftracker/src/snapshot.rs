//! Everything that a tracker knows, as plain values in an order of their own, to look at and to compare.

use alloc::vec::Vec;

use crate::address::Work;
use crate::batch::InFlight;
use crate::change::Intent;
use crate::ids::{Ip, NodeName, ObjectKey, ServiceId};
use crate::operation::OperationId;
use crate::service::{Resources, Wait};
use crate::table::Id;
use crate::tracker::{DiffTracker, Reason};

/// Everything that a tracker knows. Two trackers with equal snapshots do the same from then on, but for the jitter of
/// delays, the numbers of operations, and how long ago something happened, which are left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The services, by identity.
    pub services: Vec<ServiceSnapshot>,
    /// The addresses, by IP.
    pub addresses: Vec<AddressSnapshot>,
    /// The nodes that exist, by name, each with its locations.
    pub nodes: Vec<(NodeName, [Option<Ip>; 2])>,
    /// The locations of which nobody knows for sure what they hold, by IP.
    pub locations_in_doubt: Vec<Ip>,
    /// Addresses waiting for a batch, the next one first.
    pub address_queue: Vec<Ip>,
    /// Services waiting for a place in an `updateServices`, the next one first.
    pub registration_queue: Vec<ServiceId>,
    /// Services waiting for a request of their own, the next one first.
    pub resource_queue: Vec<ServiceId>,
    /// Parts of refused requests that are sent alone to find what NRP refuses, the next one last.
    pub suspected_addresses: Vec<Vec<Ip>>,
    /// The same of services.
    pub suspected_services: Vec<Vec<ServiceId>>,
    /// What deadlines there are for, the earliest first.
    pub deadlines: Vec<Reason>,
    /// Operations in flight, the oldest first, by what they are on; `None` is the gateway.
    pub in_flight: Vec<Option<ServiceId>>,
    /// Whether addresses were the last that the gateway was called for, and would wait for registrations now.
    pub addresses_had_their_turn: bool,
}

/// Everything that is known of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceSnapshot {
    /// Its identity.
    pub id: ServiceId,
    /// Its name in the cluster, where it is or was last known.
    pub key: Option<ObjectKey>,
    /// What it asks for; `None` when it is gone.
    pub intent: Option<Intent>,
    /// What Azure holds of it.
    pub resources: Resources,
    /// How many holdings of addresses name it, or may.
    pub references: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it waits before anything, or before this very step, is tried again.
    pub waits: bool,
    /// Whether an operation is in flight for it, alone or as part of a batch.
    pub in_flight: bool,
}

/// Everything that is known of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddressSnapshot {
    /// The pod's IP.
    pub address: Ip,
    /// Who says that it is on which node, the oldest first.
    pub claims: Vec<(ObjectKey, NodeName)>,
    /// Where NRP holds it, and with which services; `false` where that is not certain.
    pub holdings: Vec<(Ip, Vec<ServiceId>, bool)>,
    /// Whether it is part of the batch in flight.
    pub in_flight: bool,
    /// Whether NRP refuses what it should be.
    pub quarantined: bool,
}

impl DiffTracker {
    /// Everything that the tracker knows. The cost is that of all of it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut services: Vec<_> = self.services.iter().map(|(id, ..)| self.service_snapshot(id)).collect();
        services.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let mut addresses: Vec<_> =
            self.addresses.table.iter().map(|(id, ..)| self.address_snapshot(id)).collect();
        addresses.sort_unstable_by_key(|address| address.address);
        let mut locations_in_doubt: Vec<_> =
            self.locations.iter().filter(|(.., location)| location.in_doubt).map(|(_, ip, _)| *ip).collect();
        locations_in_doubt.sort_unstable();
        let name = |id: Id<_>| self.services.key(id).clone();
        Snapshot {
            services,
            addresses,
            nodes: self.node_snapshots(),
            locations_in_doubt,
            address_queue: self.addresses.queue.values().map(|&id| self.ip(id)).collect(),
            registration_queue: self.registration_queue.values().copied().map(name).collect(),
            resource_queue: self.resource_queue.values().copied().map(name).collect(),
            suspected_addresses: parts(&self.gateway.addresses.suspects, |id| {
                self.addresses.table.get(id).map(|_| self.ip(id))
            }),
            suspected_services: parts(&self.gateway.services.suspects, |id| {
                self.services.get(id).map(|_| self.services.key(id).clone())
            }),
            deadlines: self.timers.iter().map(|timer| self.reason(timer)).collect(),
            in_flight: self.in_flight.iter().map(|in_flight| self.subject(in_flight)).collect(),
            addresses_had_their_turn: self.gateway.last == crate::batch::Lane::Addresses,
        }
    }

    fn subject(&self, (_, in_flight): (&OperationId, &InFlight)) -> Option<ServiceId> {
        match in_flight {
            InFlight::Resource { service, .. } => Some(self.services.key(*service).clone()),
            InFlight::Services { .. } | InFlight::Addresses(_) => None,
        }
    }

    fn service_snapshot(&self, id: Id<crate::service::ServiceState>) -> ServiceSnapshot {
        let state = &self.services[id];
        ServiceSnapshot {
            id: self.services.key(id).clone(),
            key: state.key.clone(),
            intent: state.intent.clone(),
            resources: state.resources.clone(),
            references: state.references,
            failures: state.failures,
            waits: state.wait != Wait::No,
            in_flight: state.in_flight.is_some(),
        }
    }

    fn address_snapshot(&self, id: Id<crate::address::Address>) -> AddressSnapshot {
        let row = &self.addresses.table[id];
        let claim = |claim: &crate::address::Claim| {
            (self.slices.key(claim.slice).clone(), self.nodes.key(claim.node).clone())
        };
        let holding = |held: &crate::address::Holding| {
            let mut services: Vec<_> =
                held.services.iter().map(|&id| self.services.key(id).clone()).collect();
            services.sort_unstable();
            (*self.locations.key(held.location), services, held.certain)
        };
        let mut holdings: Vec<_> = self.addresses.holdings(id).iter().map(holding).collect();
        holdings.sort_unstable();
        AddressSnapshot {
            address: self.ip(id),
            claims: row.claims.iter().map(claim).collect(),
            holdings,
            in_flight: row.work == Work::InFlight,
            quarantined: row.work == Work::Quarantined,
        }
    }
}

/// The parts of refused requests, without what has gone since.
fn parts<T, K>(suspects: &[Vec<Id<T>>], key: impl Fn(Id<T>) -> Option<K>) -> Vec<Vec<K>> {
    suspects.iter().map(|part| part.iter().filter_map(|&id| key(id)).collect()).collect()
}
