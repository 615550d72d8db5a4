//! The ServiceGateway: which services are registered, and which addresses at which locations back them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};

use super::answer::{Refusal, field, flag, list, nullable, optional_list, text};
use super::load_balancer::BEHIND_SERVICE_GATEWAY;
use super::nat_gateway::{DEFAULT_NAT_GATEWAY, SKU as NAT_GATEWAY_SKU};
use super::path::Kind;
use super::resources::Resource;
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
    /// Service → address → the locations at which the address stands for it: the same as `locations`, the other way round.
    backing: BTreeMap<String, BTreeMap<IpAddr, BTreeSet<IpAddr>>>,
    /// Id of a backend pool in lower case → the services that name it.
    users: BTreeMap<String, BTreeSet<String>>,
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
        let is_full = update(body, "action")? == Update::Full;
        let services = &self.gateway.services;
        let stays = |name: &str, service: &Registration| !is_full || service.is_protected(name);
        let mut changes: BTreeMap<String, Option<Registration>> = BTreeMap::new();
        for request in list(body, "serviceRequests")? {
            let service = field(request, "service").unwrap_or(&Value::Null);
            let name = text(service, "name").to_ascii_lowercase();
            if name.is_empty() {
                return Err(Refusal::bad("InvalidParameter", "a service without a name"));
            }
            if changes.contains_key(&name) {
                return Err(Refusal::bad(
                    "DuplicateServicesInRequest",
                    format!("service {name} stands twice in the request"),
                ));
            }
            let former = services.get(&name).filter(|former| stays(&name, former));
            let change = if flag(request, "isDelete")?.unwrap_or_default() {
                if former.is_some_and(|former| former.is_protected(&name)) {
                    return Err(Refusal::bad(
                        "DefaultServiceCannotBeDeleted",
                        format!("service {name} is the default one"),
                    ));
                }
                None
            } else {
                Some(self.registration(&name, service, former.cloned().unwrap_or_default())?)
            };
            changes.insert(name, change);
        }
        for (name, _) in services.iter().filter(|(name, service)| !stays(name, service)) {
            changes.entry(name.clone()).or_insert(None);
        }
        let unchanged = services.iter().filter(|(name, _)| !changes.contains_key(*name));
        let after = unchanged.map(|(_, service)| service).chain(changes.values().flatten());
        if after.filter(|service| service.is_default).count() > 1 {
            return Err(Refusal::bad(
                "MultipleDefaultServicesNotAllowedInServiceGateway",
                "there is a default service already",
            ));
        }
        let mut removed = changes.iter().filter(|(_, change)| change.is_none()).map(|(name, _)| name);
        if let Some(name) = removed.find(|name| self.gateway.backing.contains_key(*name)) {
            let message = format!("Service {name} cannot be deleted since addresses still name it.");
            return Err(Refusal::bad("ServiceWithOverlayMappingsCannotBeDeleted", message));
        }
        for (name, change) in changes {
            self.gateway.register(&name, change);
        }
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
                let Some(load_balancer) = self.load_balancer_with(id) else {
                    return Err(Refusal::missing_reference(id, &format!("service {name}")));
                };
                check_sku(load_balancer, BEHIND_SERVICE_GATEWAY)?;
                let network =
                    field(pool, "properties").and_then(|properties| field(properties, "virtualNetwork"));
                registration.pools.push(id.to_owned());
                registration.virtual_networks.push(network.cloned().unwrap_or_default());
            }
        }
        match nullable(properties, "publicNatGatewayId") {
            None => {}
            Some(Value::Null) => registration.nat_gateway = None,
            Some(Value::String(id)) => {
                let Some(nat_gateway) = self.resource(Kind::NatGateway, id) else {
                    return Err(Refusal::missing_reference(id, &format!("service {name}")));
                };
                check_sku(nat_gateway, NAT_GATEWAY_SKU)?;
                registration.nat_gateway = Some(id.clone());
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

    /// Registers a service, or removes it.
    fn register(&mut self, name: &str, registration: Option<Registration>) {
        let name = name.to_owned();
        let pools = registration.iter().flat_map(|registration| &registration.pools);
        let pools: Vec<String> = pools.map(|pool| pool.to_ascii_lowercase()).collect();
        let former = match registration {
            Some(registration) => self.services.insert(name.clone(), registration),
            None => self.services.remove(&name),
        };
        for pool in former.into_iter().flat_map(|former| former.pools) {
            remove(&mut self.users, &pool.to_ascii_lowercase(), &name);
        }
        for pool in pools {
            self.users.entry(pool).or_default().insert(name.clone());
        }
    }

    /// The registered services that name this backend pool.
    fn users(&self, pool: &str) -> impl Iterator<Item = &String> {
        self.users.get(&pool.to_ascii_lowercase()).into_iter().flatten()
    }

    /// Whether a registered service names this backend pool.
    pub(super) fn references(&self, pool: &str) -> bool {
        self.users(pool).next().is_some()
    }

    /// The virtual network that is said to be that of a backend pool.
    pub(super) fn virtual_network_of(&self, pool: &str) -> Option<&Value> {
        let user = self.services.get(self.users(pool).next()?)?;
        let mut pools = user.pools.iter().zip(&user.virtual_networks);
        let (_, network) = pools.find(|(named, _)| named.eq_ignore_ascii_case(pool))?;
        Some(network).filter(|network| !network.is_null())
    }

    /// The pods that stand behind a backend pool, by the services that name it, each with the lowest of its locations.
    pub(super) fn pods_of(&self, pool: &str) -> BTreeMap<IpAddr, IpAddr> {
        let mut pods: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
        for (address, locations) in self.users(pool).filter_map(|name| self.backing.get(name)).flatten() {
            for location in locations {
                let lowest = pods.entry(*address).or_insert(*location);
                *lowest = (*lowest).min(*location);
            }
        }
        pods
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
        self.register(name, Some(service));
    }

    pub(super) fn update_address_locations(&mut self, body: &Value) -> Result<(), Refusal> {
        let scope = update(body, "action")?;
        let mut entries = BTreeMap::new();
        for entry in list(body, "addressLocations")? {
            let location = ip(text(entry, "addressLocation"))?;
            if entries.contains_key(&location) {
                return Err(Refusal::bad(
                    "DuplicateLocationsInRequest",
                    format!("location {location} stands twice in the request"),
                ));
            }
            let action = update(entry, "addressUpdateAction")?;
            entries.insert(location, (action, self.addresses(location, entry)?));
        }
        if scope == Update::Full {
            for location in self.locations.keys() {
                entries.entry(*location).or_insert_with(|| (Update::Full, BTreeMap::new()));
            }
        }
        for (location, (action, addresses)) in entries {
            if action == Update::Full || addresses.is_empty() {
                let held = self.locations.get(&location).into_iter().flat_map(BTreeMap::keys);
                let gone: Vec<IpAddr> =
                    held.filter(|address| !addresses.contains_key(*address)).copied().collect();
                for address in gone {
                    self.set_services(location, address, BTreeSet::new());
                }
            }
            for (address, services) in addresses {
                self.set_services(location, address, services);
            }
        }
        Ok(())
    }

    /// Writes which services an address at a location backs.
    fn set_services(&mut self, location: IpAddr, address: IpAddr, services: BTreeSet<String>) {
        let held = self.locations.entry(location).or_default();
        let former = held.remove(&address).unwrap_or_default();
        for name in former.difference(&services) {
            let Some(backed) = self.backing.get_mut(name) else { continue };
            remove(backed, &address, &location);
            if backed.is_empty() {
                self.backing.remove(name);
            }
        }
        for name in services.difference(&former) {
            self.backing.entry(name.clone()).or_default().entry(address).or_default().insert(location);
        }
        if !services.is_empty() {
            held.insert(address, services);
        }
        if held.is_empty() {
            self.locations.remove(&location);
        }
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

/// Removes a value of a set, and the set with its last one.
fn remove<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    let Some(set) = sets.get_mut(key) else { return };
    set.remove(value);
    if set.is_empty() {
        sets.remove(key);
    }
}

/// Refuses what a service may not stand behind.
fn check_sku(resource: &Resource, wanted: &str) -> Result<(), Refusal> {
    let (id, sku) = (resource.id(), resource.sku());
    if sku == wanted {
        return Ok(());
    }
    let message = format!("the SKU of {id} is {sku:?}; behind a service gateway it is exactly {wanted:?}");
    Err(Refusal::bad("InvalidSku", message))
}
