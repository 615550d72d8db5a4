//! Views for people: where a service stands, and how much there is of everything.

use crate::ids::{Ip, ObjectKey, ServiceId};
use crate::notice::Phase;
use crate::service::Step;
use crate::tracker::DiffTracker;

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
