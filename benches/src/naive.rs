//! The yardstick: a differ that compares everything each time something changes, as the existing Go controller does.
//!
//! It knows what should be and what the gateway holds as plain maps, works out all of the former from the objects, and
//! walks both. It has no lifecycle, no failures and no order of sending: what it leaves out only makes it faster.

use std::collections::BTreeMap;
use std::collections::HashMap;

use clb_difftracker::{
    AddressUpdate, AddressesUpdate, Change, Intent, Ip, LocationUpdate, ServiceId, ServiceRef,
};

type Locations = HashMap<Ip, HashMap<Ip, Vec<ServiceId>>>;

/// The naive differ.
#[derive(Default)]
pub struct Naive {
    services: HashMap<clb_difftracker::ObjectKey, clb_difftracker::Service>,
    slices: HashMap<clb_difftracker::ObjectKey, clb_difftracker::EndpointSlice>,
    nodes: HashMap<clb_difftracker::NodeName, clb_difftracker::Node>,
    held: Locations,
}

impl Naive {
    /// Takes in a change.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::ServiceApplied(service) => drop(self.services.insert(service.key.clone(), service)),
            Change::EndpointSliceApplied(slice) => drop(self.slices.insert(slice.key.clone(), slice)),
            Change::NodeApplied(node) => drop(self.nodes.insert(node.name.clone(), node)),
            Change::ServiceGone(_)
            | Change::EndpointSliceGone(_)
            | Change::PodApplied(_)
            | Change::PodGone(_)
            | Change::NodeGone(_)
            | Change::Unreadable(_)
            | Change::ResyncBegin(_)
            | Change::ResyncDone(_) => {}
        }
    }

    /// Compares everything, and takes the difference as sent.
    pub fn batch(&mut self) -> Vec<LocationUpdate> {
        let wanted = self.wanted();
        let mut updates: BTreeMap<Ip, Vec<AddressUpdate>> = BTreeMap::new();
        for (location, addresses) in &wanted {
            let held = self.held.get(location);
            for (address, services) in addresses {
                if held.and_then(|held| held.get(address)) != Some(services) {
                    let update = AddressUpdate { address: *address, services: services.as_slice().into() };
                    updates.entry(*location).or_default().push(update);
                }
            }
        }
        for (location, addresses) in &self.held {
            let wanted = wanted.get(location);
            for address in addresses.keys() {
                if wanted.is_none_or(|wanted| !wanted.contains_key(address)) {
                    let update = AddressUpdate { address: *address, services: [].into() };
                    updates.entry(*location).or_default().push(update);
                }
            }
        }
        self.held = wanted;
        let update =
            |(location, addresses)| LocationUpdate { location, addresses: AddressesUpdate::Merge(addresses) };
        updates.into_iter().map(update).collect()
    }

    fn wanted(&self) -> Locations {
        let mut wanted = Locations::new();
        for slice in self.slices.values() {
            let ServiceRef::Name(name) = &slice.service else { continue };
            let Some(service) = self.services.get(name) else { continue };
            let Intent::LoadBalancer(spec) = &service.intent else { continue };
            for endpoint in slice.endpoints.as_slice() {
                let location = self.nodes.get(&endpoint.node).and_then(|node| node.location(spec.family()));
                let Some(location) = location else { continue };
                let services = wanted.entry(location).or_default().entry(endpoint.address).or_default();
                if let Err(at) = services.binary_search(&service.id) {
                    services.insert(at, service.id.clone());
                }
            }
        }
        wanted
    }
}
