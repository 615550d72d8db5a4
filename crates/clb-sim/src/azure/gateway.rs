//! The ServiceGateway: which services are registered, and which addresses at which locations back them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};

use super::answer::{Refusal, field, flag, list, nullable, optional_list, text};
use super::nat_gateway::DEFAULT_NAT_GATEWAY;
use super::path::Kind;
use super::state::Azure;

/// Location → address → names of services, in lower case.
pub type Locations = BTreeMap<IpAddr, BTreeMap<IpAddr, BTreeSet<String>>>;

/// A registered service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// `Inbound`, `Outbound` or `InboundOutbound`.
    pub service_type: String,
    /// Whether pods that name no outbound service leave through it.
    pub is_default: bool,
    /// The ids of its backend pools.
    pub pools: Vec<String>,
    /// The virtual network of each pool, as it was given.
    virtual_networks: Vec<Value>,
    /// The id of its NAT gateway.
    pub nat_gateway: Option<String>,
}

impl Registration {
    fn is_protected(&self, name: &str) -> bool {
        self.is_default || name == DEFAULT_NAT_GATEWAY
    }
}

/// The state of the one ServiceGateway.
#[derive(Clone, Debug, Default)]
pub(super) struct Gateway {
    /// By name in lower case.
    services: BTreeMap<String, Registration>,
    locations: Locations,
    /// Whether it was deleted and not made anew.
    pub(super) is_gone: bool,
}

/// Whether what is not named stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Update {
    Full,
    Partial,
}

fn update(object: &Value, name: &str) -> Result<Update, Refusal> {
    match text(object, name) {
        action if action.eq_ignore_ascii_case("FullUpdate") => Ok(Update::Full),
        action if action.eq_ignore_ascii_case("PartialUpdate") => Ok(Update::Partial),
        other => Err(Refusal::bad(
            "InvalidParameter",
            format!("{name} is {other:?}; it is FullUpdate or PartialUpdate"),
        )),
    }
}

impl Azure {
    /// The services that are registered, by name in lower case.
    #[must_use]
    pub fn services(&self) -> &BTreeMap<String, Registration> {
        &self.gateway.services
    }

    /// The locations and their addresses.
    #[must_use]
    pub fn locations(&self) -> &Locations {
        &self.gateway.locations
    }

    /// The addresses that stand at several locations, and where: accepted, as nothing says that Azure refuses it, but a
    /// pod is on one node only.
    #[must_use]
    pub fn addresses_at_several_locations(&self) -> BTreeMap<IpAddr, BTreeSet<IpAddr>> {
        let mut locations: BTreeMap<IpAddr, BTreeSet<IpAddr>> = BTreeMap::new();
        for (location, addresses) in &self.gateway.locations {
            for address in addresses.keys() {
                locations.entry(*address).or_default().insert(*location);
            }
        }
        locations.retain(|_, locations| locations.len() > 1);
        locations
    }

    pub(super) fn update_services(&mut self, body: &Value) -> Result<(), Refusal> {
        let mut services = self.gateway.services.clone();
        if update(body, "action")? == Update::Full {
            services.retain(|name, service| service.is_protected(name));
        }
        let mut named = BTreeSet::new();
        for request in list(body, "serviceRequests")? {
            let service = field(request, "service").unwrap_or(&Value::Null);
            let name = text(service, "name").to_ascii_lowercase();
            if name.is_empty() {
                return Err(Refusal::bad("InvalidParameter", "a service without a name"));
            }
            if !named.insert(name.clone()) {
                return Err(Refusal::bad(
                    "DuplicateServicesInRequest",
                    format!("service {name} stands twice in the request"),
                ));
            }
            if flag(request, "isDelete")?.unwrap_or_default() {
                if services.get(&name).is_some_and(|service| service.is_protected(&name)) {
                    return Err(Refusal::bad(
                        "DefaultServiceCannotBeDeleted",
                        format!("service {name} is the default one"),
                    ));
                }
                services.remove(&name);
            } else {
                let former = services.get(&name).cloned().unwrap_or_default();
                let registration = self.registration(&name, service, former)?;
                services.insert(name, registration);
            }
        }
        if services.values().filter(|service| service.is_default).count() > 1 {
            return Err(Refusal::bad(
                "MultipleDefaultServicesNotAllowedInServiceGateway",
                "there is a default service already",
            ));
        }
        let names = |service: &String| {
            self.gateway.locations.values().flat_map(BTreeMap::values).any(|names| names.contains(service))
        };
        if let Some(name) =
            self.gateway.services.keys().find(|&name| !services.contains_key(name) && names(name))
        {
            let message = format!("Service {name} cannot be deleted since addresses still name it.");
            return Err(Refusal::bad("ServiceWithOverlayMappingsCannotBeDeleted", message));
        }
        self.gateway.services = services;
        Ok(())
    }

    /// What a service becomes: fields that are absent stay as they were, `null` clears.
    fn registration(
        &self,
        name: &str,
        service: &Value,
        mut registration: Registration,
    ) -> Result<Registration, Refusal> {
        let properties = field(service, "properties").unwrap_or(&Value::Null);
        match field(properties, "serviceType") {
            Some(kind) => {
                let kind = kind.as_str().unwrap_or_default();
                let known = ["Inbound", "Outbound", "InboundOutbound"];
                let known = known.into_iter().find(|known| known.eq_ignore_ascii_case(kind));
                let unknown =
                    || Refusal::bad("InvalidParameter", format!("serviceType of {name} is {kind:?}"));
                known.ok_or_else(unknown)?.clone_into(&mut registration.service_type);
            }
            None if registration.service_type.is_empty() => {
                return Err(Refusal::bad("InvalidParameter", format!("service {name} has no serviceType")));
            }
            None => {}
        }
        if let Some(is_default) = flag(properties, "isDefault")? {
            registration.is_default = is_default;
        }
        if let Some(pools) = optional_list(properties, "loadBalancerBackendPools")? {
            registration.pools.clear();
            registration.virtual_networks.clear();
            for pool in pools {
                let id = text(pool, "id");
                let load_balancer = id.to_ascii_lowercase();
                let load_balancer = load_balancer.split("/backendaddresspools/").next().unwrap_or_default();
                if !self.resource(Kind::LoadBalancer, load_balancer).is_some_and(|it| it.has_pool(id)) {
                    let message = format!("Resource {id} referenced by service {name} was not found.");
                    return Err(Refusal::bad("InvalidResourceReference", message));
                }
                let network =
                    field(pool, "properties").and_then(|properties| field(properties, "virtualNetwork"));
                registration.pools.push(id.to_owned());
                registration.virtual_networks.push(network.cloned().unwrap_or_default());
            }
        }
        match nullable(properties, "publicNatGatewayId") {
            None => {}
            Some(Value::Null) => registration.nat_gateway = None,
            Some(Value::String(id)) if self.resource(Kind::NatGateway, id).is_some() => {
                registration.nat_gateway = Some(id.clone());
            }
            Some(Value::String(id)) => {
                let message = format!("Resource {id} referenced by service {name} was not found.");
                return Err(Refusal::bad("InvalidResourceReference", message));
            }
            Some(other) => {
                return Err(Refusal::malformed(format!("publicNatGatewayId of {name} is {other}")));
            }
        }
        Ok(registration)
    }
}

impl Gateway {
    /// Of one that was deleted, and its services and locations with it.
    pub(super) fn gone() -> Self {
        Self { is_gone: true, ..Self::default() }
    }

    /// Whether a registered service names this backend pool.
    pub(super) fn references(&self, pool: &str) -> bool {
        self.services.values().flat_map(|service| &service.pools).any(|id| id.eq_ignore_ascii_case(pool))
    }

    /// A registered service that names this NAT gateway.
    pub(super) fn service_with_nat_gateway(&self, id: &str) -> Option<&str> {
        let names = |service: &Registration| {
            service.nat_gateway.as_ref().is_some_and(|held| held.eq_ignore_ascii_case(id))
        };
        self.services.iter().find(|(_, service)| names(service)).map(|(name, _)| name.as_str())
    }

    pub(super) fn add_default_outbound(&mut self, name: &str, nat_gateway: String) {
        let service_type = "Outbound".to_owned();
        let nat_gateway = Some(nat_gateway);
        let service = Registration { service_type, is_default: true, nat_gateway, ..Registration::default() };
        self.services.insert(name.to_owned(), service);
    }

    pub(super) fn update_address_locations(&mut self, body: &Value) -> Result<(), Refusal> {
        let scope = update(body, "action")?;
        let mut locations = self.locations.clone();
        let mut named = BTreeSet::new();
        for entry in list(body, "addressLocations")? {
            let location = ip(text(entry, "addressLocation"))?;
            if !named.insert(location) {
                return Err(Refusal::bad(
                    "DuplicateLocationsInRequest",
                    format!("location {location} stands twice in the request"),
                ));
            }
            let action = update(entry, "addressUpdateAction")?;
            let addresses = self.addresses(location, entry)?;
            if action == Update::Full || addresses.is_empty() {
                locations.remove(&location);
            }
            let held = locations.entry(location).or_default();
            for (address, services) in addresses {
                if services.is_empty() {
                    held.remove(&address);
                } else {
                    held.insert(address, services);
                }
            }
            if held.is_empty() {
                locations.remove(&location);
            }
        }
        if scope == Update::Full {
            locations.retain(|location, _| named.contains(location));
        }
        self.locations = locations;
        Ok(())
    }

    /// The addresses that an entry lists, each with the services it names.
    fn addresses(
        &self,
        location: IpAddr,
        entry: &Value,
    ) -> Result<BTreeMap<IpAddr, BTreeSet<String>>, Refusal> {
        let mut addresses = BTreeMap::new();
        for item in list(entry, "addresses")? {
            let address = ip(text(item, "address"))?;
            if address.is_ipv4() != location.is_ipv4() {
                let code = if location.is_ipv4() {
                    "IPv4LocationCannotContainIPv6Addresses"
                } else {
                    "IPv6LocationCannotContainIPv4Addresses"
                };
                return Err(Refusal::bad(code, format!("address {address} at location {location}")));
            }
            let mut services = BTreeSet::new();
            for name in list(item, "services")? {
                let name = name.as_str().unwrap_or_default().to_ascii_lowercase();
                if !self.services.contains_key(&name) {
                    let message =
                        format!("address {address} names service {name:?}, which is not registered");
                    return Err(Refusal::bad("ServiceNotFoundInServiceGateway", message));
                }
                services.insert(name);
            }
            if addresses.insert(address, services).is_some() {
                let message = format!("address {address} stands twice at location {location}");
                return Err(Refusal::bad("DuplicateAddressesInRequest", message));
            }
        }
        Ok(addresses)
    }

    pub(super) fn services_body(&self) -> Vec<Value> {
        let body = |(name, service): (&String, &Registration)| {
            let pools = service.pools.iter().zip(&service.virtual_networks).map(|(id, network)| {
                let name = id.rsplit('/').next();
                json!({"id": id, "name": name, "properties": {"virtualNetwork": network}})
            });
            json!({"name": name, "properties": {
                "serviceType": service.service_type,
                "isDefault": service.is_default,
                "loadBalancerBackendPools": pools.collect::<Vec<_>>(),
                "publicNatGatewayId": service.nat_gateway,
            }})
        };
        self.services.iter().map(body).collect()
    }

    pub(super) fn locations_body(&self) -> Vec<Value> {
        let address = |(address, services): (&IpAddr, &BTreeSet<String>)| json!({"address": address, "services": services});
        let location = |(location, addresses): (&IpAddr, &BTreeMap<_, _>)| json!({"addressLocation": location, "addresses": addresses.iter().map(address).collect::<Vec<_>>()});
        self.locations.iter().map(location).collect()
    }
}

/// An IP; an IPv4-mapped IPv6 address is the IPv4 address it maps.
fn ip(text: &str) -> Result<IpAddr, Refusal> {
    let bad = |_| Refusal::bad("InvalidAddress", format!("{text:?} is not an IP address"));
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(bad)
}
