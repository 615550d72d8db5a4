//! A model of what Azure holds, written from `wire.md` alone: it knows nothing of the tracker but its operations, and
//! refuses, as a broken rule, whatever must never be sent.

use std::collections::{BTreeMap, BTreeSet};

use clb_difftracker::{
    Action, AddressesUpdate, GatewayRequest, Ip, IpFamily, LoadBalancerSpec, RegistrationUpdate,
    ResourceRequest, ServiceId, Success,
};

/// Location → address → services.
pub(crate) type Locations = BTreeMap<Ip, BTreeMap<Ip, BTreeSet<ServiceId>>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Azure {
    pub(crate) public_ips: BTreeMap<ServiceId, IpFamily>,
    pub(crate) load_balancers: BTreeMap<ServiceId, LoadBalancerSpec>,
    /// Whether with its pool.
    pub(crate) registrations: BTreeMap<ServiceId, bool>,
    pub(crate) locations: Locations,
}

impl Azure {
    /// Applies an action, or names the rule it breaks.
    pub(crate) fn apply(&mut self, action: &Action) -> Result<Success, String> {
        match action {
            Action::Resource { service, request } => self.apply_resource(service, request),
            Action::Gateway(GatewayRequest::UpdateServices(updates)) => {
                assert!(
                    !updates.is_empty() && updates.windows(2).all(|pair| pair[0].service < pair[1].service)
                );
                for update in updates {
                    self.apply_registration(&update.service, update.registration)?;
                }
                Ok(Success::Done)
            }
            Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) => {
                assert!(
                    !updates.is_empty() && updates.windows(2).all(|pair| pair[0].location < pair[1].location)
                );
                for update in updates {
                    self.apply_location(update.location, &update.addresses)?;
                }
                let mut seen = BTreeSet::new();
                match self.locations.values().flat_map(BTreeMap::keys).find(|address| !seen.insert(**address))
                {
                    Some(address) => Err(format!("rule 5: {address} is at two locations")),
                    None => Ok(Success::Done),
                }
            }
        }
    }

    fn apply_resource(&mut self, service: &ServiceId, request: &ResourceRequest) -> Result<Success, String> {
        match request {
            ResourceRequest::PutPublicIp(family) => match self.public_ips.insert(service.clone(), *family) {
                Some(other) if other != *family => {
                    Err(format!("the public IP of {service} cannot change its family"))
                }
                Some(_) | None => Ok(Success::PublicIp(ingress(*family))),
            },
            ResourceRequest::PutLoadBalancer(spec) => {
                if self.public_ips.get(service) != Some(&spec.family()) {
                    return Err(format!("the load balancer of {service} has no public IP"));
                }
                self.load_balancers.insert(service.clone(), spec.clone());
                Ok(Success::Done)
            }
            ResourceRequest::DeleteLoadBalancer => {
                if self.registrations.get(service) == Some(&true) {
                    return Err(format!("rule 4: the pool of {service} is still referenced"));
                }
                self.load_balancers.remove(service);
                Ok(Success::Done)
            }
            ResourceRequest::DeletePublicIp => {
                if self.load_balancers.contains_key(service) {
                    return Err(format!("rule 4: the public IP of {service} is in use"));
                }
                self.public_ips.remove(service);
                Ok(Success::Done)
            }
        }
    }

    fn apply_registration(&mut self, service: &ServiceId, update: RegistrationUpdate) -> Result<(), String> {
        if update != RegistrationUpdate::Register && self.names(service) {
            return Err(format!("rule 3: {service} is still named by an address"));
        }
        match update {
            RegistrationUpdate::Register if !self.load_balancers.contains_key(service) => {
                return Err(format!("{service} is registered without a load balancer"));
            }
            RegistrationUpdate::Register => self.registrations.insert(service.clone(), true),
            RegistrationUpdate::ClearPool => self.registrations.insert(service.clone(), false),
            RegistrationUpdate::Unregister => self.registrations.remove(service),
        };
        Ok(())
    }

    fn apply_location(&mut self, location: Ip, update: &AddressesUpdate) -> Result<(), String> {
        let entries = match update {
            AddressesUpdate::Remove => {
                self.locations.remove(&location);
                return Ok(());
            }
            AddressesUpdate::Replace(entries) => {
                self.locations.remove(&location);
                entries
            }
            AddressesUpdate::Merge(entries) => entries,
        };
        assert!(!entries.is_empty() && entries.windows(2).all(|pair| pair[0].address < pair[1].address));
        let held = self.locations.entry(location).or_default();
        for entry in entries {
            if entry.address.family() != location.family() {
                return Err(format!("{} is under {location}, of the other family", entry.address));
            }
            if let Some(service) = entry.services.iter().find(|id| self.registrations.get(id) != Some(&true))
            {
                return Err(format!("rule 2: {} names {service}, which is not registered", entry.address));
            }
            match entry.services.as_slice() {
                [] => held.remove(&entry.address),
                services => held.insert(entry.address, services.iter().cloned().collect()),
            };
        }
        if held.is_empty() {
            self.locations.remove(&location);
        }
        Ok(())
    }

    /// Whether any address names the service.
    pub(crate) fn names(&self, service: &ServiceId) -> bool {
        self.locations.values().flat_map(BTreeMap::values).any(|services| services.contains(service))
    }

    /// The action would change nothing.
    pub(crate) fn holds(&self, action: &Action) -> bool {
        let mut after = self.clone();
        after.apply(action).is_ok() && after == *self
    }

    /// What the action would take away: (location, address, service).
    pub(crate) fn losses(&self, action: &Action) -> Vec<(Ip, Ip, ServiceId)> {
        let mut after = self.clone();
        let _ = after.apply(action);
        let kept = triples(&after.locations);
        triples(&self.locations).into_iter().filter(|triple| !kept.contains(triple)).collect()
    }
}

pub(crate) fn triples(locations: &Locations) -> BTreeSet<(Ip, Ip, ServiceId)> {
    let flat = |(location, addresses): (&Ip, &BTreeMap<Ip, BTreeSet<ServiceId>>)| {
        let location = *location;
        let each = |(address, services): (&Ip, &BTreeSet<ServiceId>)| {
            let address = *address;
            services.iter().map(move |service| (location, address, service.clone())).collect::<Vec<_>>()
        };
        addresses.iter().flat_map(each).collect::<Vec<_>>()
    };
    locations.iter().flat_map(flat).collect()
}

pub(crate) fn ingress(family: IpFamily) -> Ip {
    match family {
        IpFamily::V4 => Ip::from(std::net::IpAddr::from([20, 0, 0, 1])),
        IpFamily::V6 => Ip::from(std::net::IpAddr::from([0x2603, 0, 0, 0, 0, 0, 0, 1])),
    }
}
