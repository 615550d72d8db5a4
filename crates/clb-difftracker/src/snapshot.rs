//! Everything that a tracker knows, as plain values in an order of their own, to look at and to compare.

use alloc::vec::Vec;

use crate::address::Work;
use crate::batch::InFlight;
use crate::change::{Intent, PodRef, Source};
use crate::ids::{Ip, NodeName, ObjectKey, ResourceVersion, ServiceId};
use crate::lifecycle::{Observed, Resources, ServiceObject};
use crate::service::{Standing, Wait};
use crate::table::Id;
use crate::tracker::{DiffTracker, Reason, Subject};

/// Everything that a tracker knows. Two trackers with equal snapshots do the same from then on, but for the jitter of
/// delays, the numbers of operations, and how long ago something happened, which are left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The services, by identity.
    pub services: Vec<ServiceSnapshot>,
    /// The addresses, by IP.
    pub addresses: Vec<AddressSnapshot>,
    /// The pods that have, had, or should have our finalizer, by name and UID.
    pub pods: Vec<PodSnapshot>,
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
    /// Kubernetes objects waiting to be written, the next one first.
    pub object_queue: Vec<ObjectKey>,
    /// Parts of refused requests that are sent alone to find what NRP refuses, the next one last.
    pub suspected_addresses: Vec<Vec<Ip>>,
    /// The same of services.
    pub suspected_services: Vec<Vec<ServiceId>>,
    /// What deadlines there are for, the earliest first.
    pub deadlines: Vec<Reason>,
    /// Operations in flight, the oldest first, by what they are on.
    pub in_flight: Vec<InFlightSnapshot>,
    /// Whether the gateway has to be read, since it contradicts what is believed of it.
    pub gateway_is_contradicted: bool,
    /// Whether addresses were the last that the gateway was called for, and would wait for registrations now.
    pub addresses_had_their_turn: bool,
}

/// Everything that is known of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServiceSnapshot {
    /// Its identity.
    pub id: ServiceId,
    /// Its name in the cluster, where it is or was last known.
    pub key: Option<ObjectKey>,
    /// What it asks for; `None` when it is gone.
    pub intent: Option<Intent>,
    /// What Azure holds of it.
    pub resources: Resources,
    /// What its Kubernetes object holds of us.
    pub object: ServiceObject,
    /// The version in which its object was last seen, or written.
    pub version: ResourceVersion,
    /// Whether pods leave through it.
    pub has_pods: bool,
    /// Whether it is not ours.
    pub is_foreign: bool,
    /// Whether a second list has to confirm that it is to be deleted.
    pub is_unconfirmed: bool,
    /// How many holdings of addresses name it, or may.
    pub references: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it waits before anything, or before this very step, is tried again.
    pub waits: bool,
    /// Whether an operation is in flight for it, alone or as part of a batch.
    pub in_flight: bool,
}

/// What an operation in flight is on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum InFlightSnapshot {
    /// The gateway.
    Gateway,
    /// A resource or the object of this service.
    Service(ServiceId),
    /// This pod.
    Pod(PodRef),
}

/// Everything that is known of a pod, but for the addresses that it claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSnapshot {
    /// Which pod it is.
    pub pod: PodRef,
    /// The version in which it was last seen, or written.
    pub version: ResourceVersion,
    /// Whether it uses its outbound service.
    pub is_live: bool,
    /// Whether our finalizer may be on it: `None` if nobody knows.
    pub has_finalizer: Option<bool>,
    /// The addresses it had and that the gateway holds, or may.
    pub lingering: Vec<Ip>,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it waits before anything, or before this very step, is tried again.
    pub waits: bool,
    /// Whether a write is in flight for it.
    pub in_flight: bool,
}

/// Everything that is known of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AddressSnapshot {
    /// The pod's IP.
    pub address: Ip,
    /// Who says that it is on which node, the oldest first.
    pub claims: Vec<(Source, NodeName)>,
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
            pods: self.pod_snapshots(),
            nodes: self.node_snapshots(),
            locations_in_doubt,
            address_queue: self.addresses.in_queue().map(|id| self.ip(id)).collect(),
            registration_queue: self.registration_queue.values().copied().map(name).collect(),
            resource_queue: self.resource_queue.values().copied().map(name).collect(),
            object_queue: self.object_queue.values().map(|subject| self.object_key(*subject)).collect(),
            suspected_addresses: parts(&self.gateway.addresses.suspects, |id| {
                self.addresses.table.get(id).map(|_| self.ip(id))
            }),
            suspected_services: parts(&self.gateway.services.suspects, |id| {
                self.services.get(id).map(|_| self.services.key(id).clone())
            }),
            deadlines: self.timers.iter().map(|timer| self.reason(timer)).collect(),
            in_flight: self.in_flight.values().map(|flying| self.in_flight_snapshot(flying)).collect(),
            gateway_is_contradicted: self.gateway.is_contradicted,
            addresses_had_their_turn: self.gateway.last == crate::batch::Lane::Addresses,
        }
    }

    fn object_key(&self, subject: Subject) -> ObjectKey {
        match subject {
            Subject::Service(id) => self.services[id]
                .key
                .clone()
                .unwrap_or_else(|| ObjectKey::new("", self.services.key(id).as_str())),
            Subject::Pod(id) => self.sources.key(id).key().clone(),
        }
    }

    fn in_flight_snapshot(&self, in_flight: &InFlight) -> InFlightSnapshot {
        match in_flight {
            InFlight::Resource { service, .. } | InFlight::Service { service, .. } => {
                InFlightSnapshot::Service(self.services.key(*service).clone())
            }
            InFlight::Pod { pod, .. } => match self.sources.key(*pod) {
                Source::Pod(pod) => InFlightSnapshot::Pod(pod.clone()),
                Source::EndpointSlice(_) => InFlightSnapshot::Gateway,
            },
            InFlight::Reading { .. } | InFlight::Services { .. } | InFlight::Addresses(_) => {
                InFlightSnapshot::Gateway
            }
        }
    }

    fn pod_snapshots(&self) -> Vec<PodSnapshot> {
        let snapshot = |(_, key, source): (_, &Source, &crate::source::SourceState)| {
            let (Source::Pod(pod), Some(state)) = (key, &source.pod) else { return None };
            let mut lingering: Vec<_> = state.lingering.iter().map(|&address| self.ip(address)).collect();
            lingering.sort_unstable();
            Some(PodSnapshot {
                pod: pod.clone(),
                version: state.version,
                is_live: state.is_live,
                has_finalizer: match state.finalizer {
                    Observed::Absent => Some(false),
                    Observed::Present(()) => Some(true),
                    Observed::Unknown(()) => None,
                },
                lingering,
                failures: state.failures,
                waits: state.wait != Wait::No,
                in_flight: state.in_flight.is_some(),
            })
        };
        let mut pods: Vec<_> = self.sources.iter().filter_map(snapshot).collect();
        pods.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        pods
    }

    fn service_snapshot(&self, id: Id<crate::service::ServiceState>) -> ServiceSnapshot {
        let state = &self.services[id];
        ServiceSnapshot {
            id: self.services.key(id).clone(),
            key: state.key.clone(),
            intent: state.intent.clone(),
            resources: state.resources.clone(),
            object: state.object.clone(),
            version: state.version,
            has_pods: state.egress.is_some(),
            is_foreign: state.standing == Standing::Foreign,
            is_unconfirmed: state.standing == Standing::Unconfirmed,
            references: state.references,
            failures: state.failures,
            waits: state.wait != Wait::No,
            in_flight: state.in_flight.is_some(),
        }
    }

    fn address_snapshot(&self, id: Id<crate::address::Address>) -> AddressSnapshot {
        let row = &self.addresses.table[id];
        let claim = |claim: &crate::address::Claim| {
            (self.sources.key(claim.source).clone(), self.nodes.key(claim.node).clone())
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
            in_flight: matches!(row.work, Work::InFlight { .. }),
            quarantined: row.work == Work::Quarantined,
        }
    }
}

/// The parts of refused requests, without what has gone since.
fn parts<T, K>(suspects: &[Vec<Id<T>>], key: impl Fn(Id<T>) -> Option<K>) -> Vec<Vec<K>> {
    suspects.iter().map(|part| part.iter().filter_map(|&id| key(id)).collect()).collect()
}
