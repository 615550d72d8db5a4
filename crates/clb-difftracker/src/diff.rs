//! What differs between the cluster and Azure, as plain values: what a plan prints.

use alloc::vec::Vec;

use crate::address::{Address, Work};
use crate::ids::{Ip, ObjectKey, ServiceId};
use crate::lifecycle::Resources;
use crate::notice::Phase;
use crate::table::Id;
use crate::tracker::DiffTracker;

/// What differs between the cluster and Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The services that are not as they should be, by name.
    pub services: Vec<ServiceDifference>,
    /// The addresses that are not as they should be, by IP.
    pub addresses: Vec<AddressDifference>,
}

/// A service that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceDifference {
    /// The service.
    pub service: ServiceId,
    /// Its name in the cluster, where it has one.
    pub key: Option<ObjectKey>,
    /// Where it is on its way.
    pub phase: Option<Phase>,
    /// What Azure holds of it.
    pub resources: Resources,
}

/// An address that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressDifference {
    /// The pod's IP.
    pub address: Ip,
    /// Where the gateway holds it, or may, and the services it names there.
    pub held: Vec<(Ip, Vec<ServiceId>)>,
    /// Where it should be, and the services it should name there; `None` for nowhere.
    pub wanted: Option<(Ip, Vec<ServiceId>)>,
}

impl DiffTracker {
    /// What differs between the cluster and Azure now. Services that are still to be registered are no names for addresses
    /// yet: to see everything that would be done, clone the tracker and let each of its operations succeed.
    ///
    /// The cost is that of the difference, and of a look at every address.
    #[must_use]
    pub fn diff(&self) -> Difference {
        let is_dual_stack = self.is_dual_stack();
        let service = |&(_, id): &(_, Id<_>)| {
            let state = &self.services[id];
            ServiceDifference {
                service: self.services.key(id).clone(),
                key: state.key.clone(),
                phase: state.derive_phase(&state.next_step(is_dual_stack), is_dual_stack),
                resources: state.resources.clone(),
            }
        };
        let mut services: Vec<_> = self.unsettled.iter().map(service).collect();
        services.sort_unstable_by(|a, b| a.service.cmp(&b.service));
        let unsettled = self.addresses.table.iter().filter(|(.., address)| address.work != Work::InSync);
        let mut addresses: Vec<_> = unsettled.map(|(id, ..)| self.address_difference(id)).collect();
        addresses.sort_unstable_by_key(|difference| difference.address);
        Difference { services, addresses }
    }

    fn address_difference(&self, id: Id<Address>) -> AddressDifference {
        let names = |services: &[Id<_>]| {
            let mut names: Vec<_> = services.iter().map(|&id| self.services.key(id).clone()).collect();
            names.sort_unstable();
            names
        };
        let place = |location, services: &[Id<_>]| (*self.locations.key(location), names(services));
        let mut held: Vec<_> =
            self.addresses.holdings(id).iter().map(|held| place(held.location, &held.services)).collect();
        held.sort_unstable();
        let wanted = self.target(id).map(|target| place(target.location, &target.services));
        AddressDifference { address: self.ip(id), held, wanted }
    }
}
