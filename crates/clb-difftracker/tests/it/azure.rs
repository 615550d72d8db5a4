//! A model of what Azure holds, written from `wire.md` alone: it knows nothing of the tracker but its operations, and
//! refuses, as a broken rule, whatever must never be sent.

use std::collections::{BTreeMap, BTreeSet};

use clb_difftracker::{
    Action, AddressUpdate, AddressesUpdate, GatewayContent, GatewayRequest, Ip, IpFamily, LoadBalancerSpec,
    NatGateway, Observation, ObservedLocation, ObservedResource, ObservedService, Owner, PublicIp,
    Registration, RegistrationUpdate, ResourceContent, ResourceRequest, ServiceId, Success,
};

/// Location → address → services.
pub(crate) type Locations = BTreeMap<Ip, BTreeMap<Ip, BTreeSet<ServiceId>>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Azure {
    pub(crate) public_ips: BTreeMap<ServiceId, IpFamily>,
    pub(crate) second_public_ips: BTreeSet<ServiceId>,
    pub(crate) load_balancers: BTreeMap<ServiceId, LoadBalancerSpec>,
    pub(crate) nat_gateways: BTreeMap<ServiceId, NatGateway>,
    pub(crate) registrations: BTreeMap<ServiceId, Registration>,
    /// Registered services that are none of ours.
    pub(crate) foreign: BTreeSet<ServiceId>,
    /// Resources that lack our owner tag.
    pub(crate) untagged: BTreeSet<(ServiceId, Part)>,
    pub(crate) locations: Locations,
}

/// The resources of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    PublicIp,
    SecondPublicIp,
    LoadBalancer,
    NatGateway,
}

impl Azure {
    /// Applies an action, or names the rule it breaks.
    pub(crate) fn apply(&mut self, action: &Action) -> Result<Success, String> {
        match action {
            Action::Resource { service, adopt, request } => {
                let success = self.apply_resource(service, request)?;
                self.check_owner(service, *adopt, request)?;
                Ok(success)
            }
            Action::Service { .. } | Action::Pod { .. } => Ok(Success::Done),
            Action::Gateway(GatewayRequest::Read) => Ok(Success::Gateway(self.content())),
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
                if self.registrations.get(service) == Some(&Registration::WithPool) {
                    return Err(format!("rule 4: the pool of {service} is still referenced"));
                }
                self.load_balancers.remove(service);
                Ok(Success::Done)
            }
            ResourceRequest::PutSecondPublicIp => {
                self.second_public_ips.insert(service.clone());
                Ok(Success::PublicIp(ingress(IpFamily::V6)))
            }
            ResourceRequest::PutNatGateway { ipv6 } => {
                let has_ips = self.public_ips.get(service) == Some(&IpFamily::V4)
                    && (!ipv6 || self.second_public_ips.contains(service));
                if !has_ips {
                    return Err(format!("the NAT gateway of {service} lacks a public IP"));
                }
                self.nat_gateways.insert(service.clone(), NatGateway::Attached { ipv6: *ipv6 });
                Ok(Success::Done)
            }
            ResourceRequest::DetachNatGateway => {
                if self.registrations.get(service) == Some(&Registration::WithNatGateway) {
                    return Err(format!("rule 4: the gateway still refers to the NAT gateway of {service}"));
                }
                self.nat_gateways.entry(service.clone()).and_modify(|it| *it = NatGateway::Detached);
                Ok(Success::Done)
            }
            ResourceRequest::DeleteNatGateway => {
                let is_attached = matches!(self.nat_gateways.get(service), Some(NatGateway::Attached { .. }));
                if is_attached || self.registrations.get(service) == Some(&Registration::WithNatGateway) {
                    return Err(format!("rule 4: the NAT gateway of {service} is still referred to"));
                }
                self.nat_gateways.remove(service);
                Ok(Success::Done)
            }
            ResourceRequest::DeletePublicIp => {
                if self.load_balancers.contains_key(service) || self.nat_gateways.contains_key(service) {
                    return Err(format!("rule 4: the public IP of {service} is in use"));
                }
                self.public_ips.remove(service);
                Ok(Success::Done)
            }
            ResourceRequest::DeleteSecondPublicIp => {
                if self.nat_gateways.contains_key(service) {
                    return Err(format!("rule 4: the second public IP of {service} is in use"));
                }
                self.second_public_ips.remove(service);
                Ok(Success::Done)
            }
        }
    }

    /// Rule 6, after the request has been applied: what has no owner tag is touched only while it is registered.
    fn check_owner(
        &mut self,
        service: &ServiceId,
        adopt: bool,
        request: &ResourceRequest,
    ) -> Result<(), String> {
        let part = match request {
            ResourceRequest::PutPublicIp(_) | ResourceRequest::DeletePublicIp => Part::PublicIp,
            ResourceRequest::PutSecondPublicIp | ResourceRequest::DeleteSecondPublicIp => {
                Part::SecondPublicIp
            }
            ResourceRequest::PutLoadBalancer(_) | ResourceRequest::DeleteLoadBalancer => Part::LoadBalancer,
            ResourceRequest::PutNatGateway { .. }
            | ResourceRequest::DetachNatGateway
            | ResourceRequest::DeleteNatGateway => Part::NatGateway,
        };
        if self.foreign.contains(service) {
            return Err(format!("rule 6: {service} is not ours: {request:?}"));
        }
        if self.untagged.remove(&(service.clone(), part)) && !adopt {
            return Err(format!("rule 6: the {part:?} of {service} carries no tag of ours: {request:?}"));
        }
        Ok(())
    }

    fn apply_registration(&mut self, service: &ServiceId, update: RegistrationUpdate) -> Result<(), String> {
        if self.foreign.contains(service) {
            return Err(format!("rule 6: {service} is not ours: {update:?}"));
        }
        let registers =
            matches!(update, RegistrationUpdate::RegisterInbound | RegistrationUpdate::RegisterOutbound);
        if !registers && self.names(service) {
            return Err(format!("rule 3: {service} is still named by an address"));
        }
        let is_attached = matches!(self.nat_gateways.get(service), Some(NatGateway::Attached { .. }));
        match update {
            RegistrationUpdate::RegisterInbound if !self.load_balancers.contains_key(service) => {
                return Err(format!("{service} is registered without a load balancer"));
            }
            RegistrationUpdate::RegisterOutbound if !is_attached => {
                return Err(format!("{service} is registered without a NAT gateway"));
            }
            RegistrationUpdate::RegisterInbound => self.register(service, Registration::WithPool)?,
            RegistrationUpdate::ClearPool => self.register(service, Registration::WithoutPool)?,
            RegistrationUpdate::RegisterOutbound => self.register(service, Registration::WithNatGateway)?,
            RegistrationUpdate::ClearNatGateway => self.register(service, Registration::WithoutNatGateway)?,
            RegistrationUpdate::Unregister => drop(self.registrations.remove(service)),
        }
        Ok(())
    }

    fn register(&mut self, service: &ServiceId, registration: Registration) -> Result<(), String> {
        let is_inbound = |it: &Registration| matches!(it, Registration::WithPool | Registration::WithoutPool);
        match self.registrations.insert(service.clone(), registration) {
            Some(former) if is_inbound(&former) != is_inbound(&registration) => {
                Err(format!("{service} is registered as another kind of service"))
            }
            Some(_) | None => Ok(()),
        }
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
        for entry in entries {
            if entry.address.family() != location.family() {
                return Err(format!("{} is under {location}, of the other family", entry.address));
            }
            if let Some(service) = entry.services.iter().find(|id| !self.can_be_named(id)) {
                return Err(format!("rule 2: {} names {service}, which is not registered", entry.address));
            }
            let held = self.locations.entry(location).or_default();
            match &*entry.services {
                [] => held.remove(&entry.address),
                services => held.insert(entry.address, services.iter().cloned().collect()),
            };
        }
        if self.locations.get(&location).is_some_and(BTreeMap::is_empty) {
            self.locations.remove(&location);
        }
        Ok(())
    }

    /// Whether addresses may name the service.
    pub(crate) fn can_be_named(&self, service: &ServiceId) -> bool {
        let registration = self.registrations.get(service);
        self.foreign.contains(service)
            || matches!(registration, Some(Registration::WithPool | Registration::WithNatGateway))
    }

    /// What a reading of the gateway gives.
    pub(crate) fn content(&self) -> GatewayContent {
        let ours = self.registrations.iter().map(|(id, registration)| ObservedService {
            id: id.clone(),
            registration: Some(*registration),
            is_default: false,
        });
        let foreign = self.foreign.iter().map(|id| ObservedService {
            id: id.clone(),
            registration: Some(Registration::WithNatGateway),
            is_default: true,
        });
        let location = |(location, addresses): (&Ip, &BTreeMap<Ip, BTreeSet<ServiceId>>)| ObservedLocation {
            location: *location,
            addresses: addresses
                .iter()
                .map(|(address, services)| AddressUpdate {
                    address: *address,
                    services: services.iter().cloned().collect(),
                })
                .collect(),
        };
        GatewayContent {
            services: ours.chain(foreign).collect(),
            locations: self.locations.iter().map(location).collect(),
        }
    }

    /// What a full reading gives, without its beginning and its end.
    pub(crate) fn reading(&self) -> Vec<Observation> {
        let GatewayContent { services, locations } = self.content();
        let resource = |service: &ServiceId, part, content| {
            let is_untagged = self.untagged.contains(&(service.clone(), part));
            let owner = if is_untagged { Owner::Nobody } else { Owner::Us };
            Observation::Resource(ObservedResource { service: service.clone(), owner, content })
        };
        let ip = |family| PublicIp { family, address: Some(ingress(family)), tagged: true };
        let public_ips = self
            .public_ips
            .iter()
            .map(|(id, family)| resource(id, Part::PublicIp, ResourceContent::PublicIp(ip(*family))));
        let second = self
            .second_public_ips
            .iter()
            .map(|id| resource(id, Part::SecondPublicIp, ResourceContent::SecondPublicIp(ip(IpFamily::V6))));
        let load_balancers = self.load_balancers.iter().map(|(id, spec)| {
            resource(id, Part::LoadBalancer, ResourceContent::LoadBalancer(Some(spec.clone())))
        });
        let nat_gateways = self
            .nat_gateways
            .iter()
            .map(|(id, gateway)| resource(id, Part::NatGateway, ResourceContent::NatGateway(*gateway)));
        let resources = public_ips.chain(second).chain(load_balancers).chain(nat_gateways);
        let services = services.into_iter().map(Observation::Service);
        let locations = locations.into_iter().map(Observation::Location);
        resources.chain(services).chain(locations).collect()
    }

    pub(crate) fn drop_address(&mut self, location: Ip, address: Ip) {
        let held = self.locations.entry(location).or_default();
        held.remove(&address);
        if held.is_empty() {
            self.locations.remove(&location);
        }
    }

    /// Whether there is anything of the service.
    pub(crate) fn knows(&self, service: &ServiceId) -> bool {
        self.public_ips.contains_key(service)
            || self.second_public_ips.contains(service)
            || self.load_balancers.contains_key(service)
            || self.nat_gateways.contains_key(service)
            || self.registrations.contains_key(service)
            || self.names(service)
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
