//! Views for people: where a service stands, why something is not as it should be, how much there is of everything.

use alloc::vec::Vec;
use core::fmt;

use crate::address::{Address, Work};
use crate::batch::{InFlight, Lane};
use crate::change::{PodRef, Source};
use crate::ids::{Ip, IpFamily, NodeName, ObjectKey, ServiceId, Timestamp};
use crate::latency::Latency;
use crate::lifecycle::Step;
use crate::notice::Phase;
use crate::queue::Queue;
use crate::service::{Role, ServiceState, Standing, Wait};
use crate::source::SourceState;
use crate::table::Id;
use crate::tracker::{DiffTracker, Timer};

/// Where one service stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Its name in the cluster, where it is or was last known.
    pub key: Option<ObjectKey>,
    /// Its phase.
    pub phase: Phase,
    /// The address that clients reach it at, once its public IP has one.
    pub ingress: Option<Ip>,
    /// How many addresses name it in the gateway, or may.
    pub addresses: u32,
    /// Failures in a row of operations for it.
    pub failures: u32,
}

/// Why a service or an address is not, or not yet, as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// A source puts the address on a node that is not known, or has no IP of the address's family.
    WaitingForNode {
        /// The source.
        source: Source,
        /// The node.
        node: NodeName,
        /// The family that the node would need an IP of.
        family: IpFamily,
    },
    /// A slice names a Service that is not known, or wants no load balancer of the address's family; or a pod an outbound
    /// service that it cannot have, or that has no public IP of the family.
    NoService {
        /// The source.
        source: Source,
    },
    /// The endpoint terminates, or its node is out of reach, and its Service has others that are ready.
    NotReady {
        /// The source.
        source: Source,
    },
    /// It is not ours, and stays as it is.
    Foreign,
    /// A full list would have it deleted, with so much else that a second list has to confirm it.
    Unconfirmed,
    /// The pod's finalizer stays while the gateway holds these addresses that the pod had, or may.
    Lingering {
        /// The addresses.
        addresses: Vec<Ip>,
    },
    /// The service is not registered yet, so nothing can name it.
    NotRegistered {
        /// The service.
        service: ServiceId,
    },
    /// The registration of a service that the address names is in doubt, and is being settled first.
    RegistrationInDoubt,
    /// It waits for its turn: for a place in a batch, or among the operations that may run at once.
    Queued,
    /// An operation on it is in flight.
    InFlight,
    /// Addresses still name the service, or may, and have to be withdrawn first.
    Draining {
        /// How many.
        addresses: u32,
    },
    /// An operation failed; the next try is not before this.
    Retrying {
        /// How many failures there were in a row.
        failures: u32,
        /// When.
        at: Timestamp,
    },
    /// NRP refuses it as it should be. It is tried again when that changes, and at this time at the latest.
    Quarantined {
        /// When.
        until: Timestamp,
    },
    /// The subscription's budget is spent: nothing is sent before this.
    Throttled {
        /// When.
        until: Timestamp,
    },
    /// The last call of its kind on the gateway failed: the next one is not before this.
    GatewayRetry {
        /// When.
        at: Timestamp,
    },
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |at: &Timestamp| at.as_millis();
        match self {
            Self::WaitingForNode { source, node, family } => {
                write!(f, "waiting for an {family} address of node {node} of {source}")
            }
            Self::NoService { source: source @ Source::EndpointSlice(_) } => {
                write!(f, "{source} belongs to no load balancer of this family")
            }
            Self::NoService { source: source @ Source::Pod(_) } => {
                write!(f, "{source} has no outbound service of this family")
            }
            Self::NotReady { source } => {
                write!(f, "it is not ready, and the Service of {source} has endpoints that are")
            }
            Self::Foreign => f.write_str("not ours"),
            Self::Unconfirmed => f.write_str("a second full list has to confirm that it is to be deleted"),
            Self::Lingering { addresses } => {
                write!(f, "the gateway still holds, or may hold, {addresses:?}")
            }
            Self::NotRegistered { service } => write!(f, "service {service} is not registered yet"),
            Self::RegistrationInDoubt => {
                f.write_str("the registration of its service is being settled first")
            }
            Self::Queued => f.write_str("waiting for its turn"),
            Self::InFlight => f.write_str("an operation is in flight"),
            Self::Draining { addresses } => write!(f, "{addresses} addresses have to be withdrawn first"),
            Self::Retrying { failures, at } => {
                write!(f, "failed {failures} times; tried again at {} ms", ms(at))
            }
            Self::Quarantined { until } => write!(f, "refused by NRP; tried again at {} ms", ms(until)),
            Self::Throttled { until } => write!(f, "throttled until {} ms", ms(until)),
            Self::GatewayRetry { at } => write!(f, "the last call failed; the next is at {} ms", ms(at)),
        }
    }
}

/// How far an address has come in the gateway. Only services count that are to have a load balancer, or are outbound, and
/// that some source claims the address for where it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programmed {
    /// The services that the gateway is known to list it for, sorted.
    pub acknowledged: Vec<ServiceId>,
    /// Those that it should be listed for and, as far as is known, is not yet; sorted.
    pub awaited: Vec<ServiceId>,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Changes taken in since the start.
    pub changes: u64,
    /// Services that exist in the cluster or have something left in Azure, whether they want a load balancer or not.
    pub services: usize,
    /// Addresses that the cluster or the gateway knows.
    pub addresses: usize,
    /// Addresses of which the gateway does not, or not surely, hold what it should; those in flight and those that NRP
    /// refuses included.
    pub unsettled_addresses: usize,
    /// Addresses that NRP refuses.
    pub quarantined_addresses: usize,
    /// Services with a request of their own to be sent.
    pub queued_resources: usize,
    /// Services waiting for a place in an `updateServices`.
    pub queued_registrations: usize,
    /// Objects to be written in Kubernetes.
    pub queued_objects: usize,
    /// Operations in flight.
    pub in_flight: usize,
    /// Services that are not as they should be.
    pub unsettled_services: usize,
    /// Since when the service that has not been as it should be for longest is not.
    pub oldest_service: Option<Timestamp>,
    /// Since when the address that waits for longest, in the queue or in flight, waits.
    pub oldest_address: Option<Timestamp>,
    /// What readings after the first one found to be other than believed, though no operation of ours was in doubt about it:
    /// registrations, resources and addresses that somebody else changed.
    pub drift: u64,
    /// How long services took from a change to everything being as it should be.
    pub service_latency: Latency,
    /// How long addresses took from a change to the gateway's acknowledgement.
    pub address_latency: Latency,
}

impl DiffTracker {
    /// Whether Azure and Kubernetes are known to hold exactly what the cluster asks for, with nothing under way. What is
    /// rejected, or waits for a node, asks for nothing; and a pod that leaves keeps its finalizer as long as a Service
    /// still balances load to its address.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.in_flight.is_empty()
            && self.addresses.unsettled == 0
            && self.unsettled.is_empty()
            && self.object_queue.is_empty()
            && !self.has_waiting_pod()
            && !self.reading.is_first()
    }

    /// Whether a write on a pod waits until it is tried again.
    fn has_waiting_pod(&self) -> bool {
        let has_step = |id: Id<SourceState>| {
            self.sources[id].pod.as_ref().is_some_and(|state| state.next_step().is_some())
        };
        self.timers.iter().any(|timer| matches!(timer, Timer::Pod(id) if has_step(id)))
    }

    /// Where a service stands; `None` for one that wants nothing and has nothing left.
    #[must_use]
    pub fn status(&self, service: &ServiceId) -> Option<ServiceStatus> {
        let state = &self.services[self.services.id(service)?];
        Some(ServiceStatus {
            key: state.key.clone(),
            phase: state.phase?,
            ingress: state.resources.public_ip.possible().and_then(|ip| ip.address),
            addresses: state.references,
            failures: state.failures,
        })
    }

    /// Why Azure does not hold of a service what it should; empty if it does, or if there is no such service.
    #[must_use]
    pub fn explain_service(&self, service: &ServiceId) -> Vec<Explanation> {
        let Some(id) = self.services.id(service) else { return Vec::new() };
        let ServiceState { in_flight, wait, failures, references, .. } = &self.services[id];
        match self.services[id].standing {
            Standing::Ours => {}
            Standing::Foreign => return alloc::vec![Explanation::Foreign],
            Standing::Unconfirmed => return alloc::vec![Explanation::Unconfirmed],
        }
        let step = self.services[id].next_step(self.is_dual_stack());
        let lane = matches!(step, Step::Registration(_)).then_some(Lane::Services);
        let state = match step {
            Step::Settled => return Vec::new(),
            _ if in_flight.is_some() => return alloc::vec![Explanation::InFlight],
            Step::Drain => return alloc::vec![Explanation::Draining { addresses: *references }],
            Step::Resource(_) | Step::Registration(_) | Step::Object(_) => {
                match (wait, self.timers.get(Timer::Service(id))) {
                    (Wait::Backoff | Wait::Parked(_), Some(at)) => {
                        Explanation::Retrying { failures: *failures, at }
                    }
                    (Wait::Backoff | Wait::Parked(_) | Wait::No, _) => Explanation::Queued,
                }
            }
        };
        [state].into_iter().chain(self.explain_waiting(lane)).collect()
    }

    /// Why the gateway does not hold an address as slices claim it; empty if it does, or if nobody claims it.
    #[must_use]
    pub fn explain_address(&self, address: Ip) -> Vec<Explanation> {
        let Some(id) = self.addresses.table.id(&address) else { return Vec::new() };
        let mut explanations: Vec<_> = self.explain_claims(id).collect();
        match self.addresses.table[id].work {
            Work::InSync => {}
            Work::Waiting => explanations.push(Explanation::RegistrationInDoubt),
            Work::InFlight { .. } => explanations.push(Explanation::InFlight),
            Work::Queued(_) => {
                explanations.push(Explanation::Queued);
                explanations.extend(self.explain_waiting(Some(Lane::Addresses)));
            }
            Work::Quarantined => {
                let until = self.timers.get(Timer::Address(id));
                explanations.extend(until.map(|until| Explanation::Quarantined { until }));
            }
        }
        explanations
    }

    /// Why a pod's finalizer is not as it should be; empty if it is, or if there is no such pod.
    #[must_use]
    pub fn explain_pod(&self, pod: &PodRef) -> Vec<Explanation> {
        let Some(id) = self.sources.id(&Source::Pod(pod.clone())) else { return Vec::new() };
        let Some(state) = &self.sources[id].pod else { return Vec::new() };
        let explanation = if state.in_flight.is_some() {
            Some(Explanation::InFlight)
        } else if let Some(at) = self.timers.get(Timer::Pod(id)) {
            Some(Explanation::Retrying { failures: state.failures, at })
        } else if state.next_step().is_some() {
            Some(Explanation::Queued)
        } else if !state.lingering.is_empty() && !state.is_live {
            let mut addresses: Vec<_> = state.lingering.iter().map(|&address| self.ip(address)).collect();
            addresses.sort_unstable();
            Some(Explanation::Lingering { addresses })
        } else {
            None
        };
        explanation.into_iter().collect()
    }

    /// How far an address has come in the gateway: what the readiness of its pod may wait for.
    #[must_use]
    pub fn programmed(&self, address: Ip) -> Programmed {
        let mut programmed = Programmed::default();
        let Some(id) = self.addresses.table.id(&address) else { return programmed };
        let mut claims: Vec<_> = self.counting_claims(id).collect();
        // The latest one says where it is.
        let Some((location, _)) = claims.last().copied() else { return programmed };
        claims.retain(|claim| claim.0 == location);
        let holdings = self.addresses.holdings(id);
        let [holding] = holdings.as_slice() else {
            programmed.awaited = self.names_of(claims.into_iter().map(|(_, service)| service));
            return programmed;
        };
        let is_held = |service: &Id<ServiceState>| {
            holding.certain && holding.location == location && holding.services.contains(service)
        };
        let (held, rest): (Vec<_>, Vec<_>) =
            claims.into_iter().map(|(_, service)| service).partition(is_held);
        Programmed { acknowledged: self.names_of(held), awaited: self.names_of(rest) }
    }

    fn names_of(&self, services: impl IntoIterator<Item = Id<ServiceState>>) -> Vec<ServiceId> {
        let mut names: Vec<_> = services.into_iter().map(|id| self.services.key(id).clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Why claims on an address do not count.
    fn explain_claims(&self, address: Id<Address>) -> impl Iterator<Item = Explanation> {
        let family = self.ip(address).family();
        self.addresses.table[address].claims.iter().filter_map(move |claim| {
            let source = self.sources.key(claim.source).clone();
            let slot = self.sources[claim.source].slot;
            let service = slot.and_then(|slot| self.slots[slot].service);
            let role = service.map(|service| self.services[service].role);
            if !role.is_some_and(|role| role.counts_for(family)) {
                return Some(Explanation::NoService { source });
            }
            if service.is_some_and(|service| !self.is_eligible(*claim, address, service)) {
                return Some(Explanation::NotReady { source });
            }
            if self.nodes[claim.node].location(family).is_none() {
                let node = self.nodes.key(claim.node).clone();
                return Some(Explanation::WaitingForNode { source, node, family });
            }
            let expecting = service.filter(|_| matches!(role, Some(Role::Expecting(_))));
            expecting
                .map(|service| Explanation::NotRegistered { service: self.services.key(service).clone() })
        })
    }

    /// Why nothing, or nothing of this kind, is sent now.
    fn explain_waiting(&self, lane: Option<Lane>) -> impl Iterator<Item = Explanation> {
        let door = self.timers.get(Timer::Door).map(|until| Explanation::Throttled { until });
        let held = lane.and_then(|lane| self.timers.get(Timer::Lane(lane)));
        door.into_iter().chain(held.map(|at| Explanation::GatewayRetry { at }))
    }

    /// How much there is of everything.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            changes: self.changes,
            services: self.services.len(),
            addresses: self.addresses.table.len(),
            unsettled_addresses: self.addresses.unsettled,
            quarantined_addresses: self.addresses.quarantined(),
            queued_resources: self.resource_queue.len(),
            queued_registrations: self.registration_queue.len(),
            queued_objects: self.object_queue.len(),
            in_flight: self.in_flight.len(),
            unsettled_services: self.unsettled.len(),
            oldest_service: self.unsettled.first().map(|(since, _)| *since),
            oldest_address: self.oldest_waiting().and_then(|number| self.ages.time_of(number)),
            drift: self.drift,
            service_latency: self.ages.services,
            address_latency: self.ages.addresses,
        }
    }

    /// The smallest number of an address in the queue or in flight.
    pub(crate) fn oldest_waiting(&self) -> Option<u64> {
        let queues = [&self.addresses.withdrawals, &self.addresses.additions];
        let queued = queues.into_iter().filter_map(Queue::oldest);
        let moves = self.in_flight.values().flat_map(|flying| match flying {
            InFlight::Addresses(batch) => batch.moves.as_slice(),
            InFlight::Resource { .. }
            | InFlight::Service { .. }
            | InFlight::Pod { .. }
            | InFlight::Reading { .. }
            | InFlight::Services { .. } => &[],
        });
        queued.chain(moves.filter_map(|step| step.since)).min()
    }

    /// How many addresses wait for a node that is not known, or has no IP of their family. Looks at all addresses.
    #[must_use]
    pub fn waiting_endpoints(&self) -> usize {
        self.waiting_for_nodes()
    }
}
