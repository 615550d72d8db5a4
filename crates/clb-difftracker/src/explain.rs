//! Views for people: where a service stands, why something is not as it should be, how much there is of everything.

use alloc::vec::Vec;
use core::fmt;

use crate::address::{Address, Work};
use crate::batch::Lane;
use crate::ids::{Ip, IpFamily, NodeName, ObjectKey, ServiceId, Timestamp};
use crate::notice::Phase;
use crate::service::{Role, ServiceState, Step, Wait};
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
    /// A slice puts the address on a node that is not known, or has no IP of the address's family.
    WaitingForNode {
        /// The slice.
        slice: ObjectKey,
        /// The node.
        node: NodeName,
        /// The family that the node would need an IP of.
        family: IpFamily,
    },
    /// A slice names a Service that is not known, or wants no load balancer of the address's family.
    NoService {
        /// The slice.
        slice: ObjectKey,
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
            Self::WaitingForNode { slice, node, family } => {
                write!(f, "waiting for an {family} address of node {node} of slice {slice}")
            }
            Self::NoService { slice } => {
                write!(f, "slice {slice} belongs to no load balancer of this family")
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
    /// Operations in flight.
    pub in_flight: usize,
}

impl DiffTracker {
    /// Whether Azure is known to hold exactly what the cluster asks for, with nothing under way. What is rejected, or
    /// waits for a node, asks for nothing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.in_flight.is_empty()
            && self.addresses.unsettled == 0
            && self.services.iter().all(|(_, _, state)| state.next_step() == Step::Settled)
    }

    /// Where a service stands; `None` for one that wants nothing and has nothing left.
    #[must_use]
    pub fn status(&self, service: &ServiceId) -> Option<ServiceStatus> {
        let state = &self.services[self.services.id(service)?];
        Some(ServiceStatus {
            key: state.key.clone(),
            phase: state.phase?,
            ingress: state.ingress,
            addresses: state.references,
            failures: state.failures,
        })
    }

    /// Why Azure does not hold of a service what it should; empty if it does, or if there is no such service.
    #[must_use]
    pub fn explain_service(&self, service: &ServiceId) -> Vec<Explanation> {
        let Some(id) = self.services.id(service) else { return Vec::new() };
        let ServiceState { in_flight, wait, failures, references, .. } = &self.services[id];
        let step = self.services[id].next_step();
        let lane = matches!(step, Step::Registration(_)).then_some(Lane::Services);
        let state = match step {
            Step::Settled => return Vec::new(),
            _ if in_flight.is_some() => return alloc::vec![Explanation::InFlight],
            Step::Drain => return alloc::vec![Explanation::Draining { addresses: *references }],
            Step::Resource(_) | Step::Registration(_) => match (wait, self.timers.get(Timer::Service(id))) {
                (Wait::Backoff | Wait::Parked(_), Some(at)) => {
                    Explanation::Retrying { failures: *failures, at }
                }
                (Wait::Backoff | Wait::Parked(_) | Wait::No, _) => Explanation::Queued,
            },
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
            Work::InFlight => explanations.push(Explanation::InFlight),
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

    /// Why claims on an address do not count.
    fn explain_claims(&self, address: Id<Address>) -> impl Iterator<Item = Explanation> {
        let family = self.ip(address).family();
        self.addresses.table[address].claims.iter().filter_map(move |claim| {
            let slice = self.slices.key(claim.slice).clone();
            let slot = self.slices[claim.slice].slot;
            let service = slot.and_then(|slot| self.slots[slot].service);
            let role = service.map(|service| self.services[service].role);
            if role.and_then(Role::family) != Some(family) {
                return Some(Explanation::NoService { slice });
            }
            if self.nodes[claim.node].location(family).is_none() {
                let node = self.nodes.key(claim.node).clone();
                return Some(Explanation::WaitingForNode { slice, node, family });
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
            in_flight: self.in_flight.len(),
        }
    }

    /// How many addresses wait for a node that is not known, or has no IP of their family. Looks at all addresses.
    #[must_use]
    pub fn waiting_endpoints(&self) -> usize {
        self.waiting_for_nodes()
    }
}
