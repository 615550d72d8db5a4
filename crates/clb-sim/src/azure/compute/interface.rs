//! Network interfaces: those of instances, which are a part of them, and those that are resources of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::super::answer::{Refusal, field, list, optional_list, text};
use super::super::json::{fill, without};
use super::super::path::{Kind, Scope, last};
use super::super::resources::{Resource, unique_id};
use super::super::state::Azure;
use super::machine::{Machine, MachineKey};
use super::scale_set::NETWORK_PROFILE;

/// Where an instance says which interfaces it has.
const INSTANCE_NETWORK: &str = "/properties/networkProfileConfiguration";

/// Refuses to delete an interface that a machine has.
pub(in super::super) fn check_interface_is_free(interface: &Resource) -> Result<(), Refusal> {
    let Some(machine) = interface.property("virtualMachine") else { return Ok(()) };
    let message = format!(
        "Network Interface {} is used by existing resource {}. In order to delete the network interface, it must be \
         dissociated from the resource.",
        interface.id(),
        text(machine, "id")
    );
    Err(Refusal::bad("NicInUse", message))
}

/// Gives an interface that is a resource what every one has.
pub(in super::super) fn stamp_interface(body: &mut Map<String, Value>) {
    body.insert("kind".to_owned(), json!("Regular"));
}

/// The addresses of an interface that is a resource.
pub(super) fn addresses(interface: &Resource) -> impl Iterator<Item = IpAddr> {
    interface
        .children("ipConfigurations")
        .filter_map(|ip| text(field(ip, "properties")?, "privateIPAddress").parse().ok())
}

/// The entries of a list of interfaces or ip-configurations: their names and properties.
fn named<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let items = field(value, name).and_then(Value::as_array).into_iter().flatten();
    items.map(|item| (text(item, "name"), field(item, "properties").unwrap_or(&Value::Null)))
}

/// The backend pools that an ip-configuration names.
fn pools_of(ip: &Value) -> impl Iterator<Item = &str> {
    let pools = field(ip, "loadBalancerBackendAddressPools").and_then(Value::as_array);
    pools.into_iter().flatten().map(|pool| text(pool, "id"))
}

/// The backend pools that the interfaces of a model or of an instance name.
fn pools_in(network: &Value) -> impl Iterator<Item = &str> {
    let interfaces = named(network, "networkInterfaceConfigurations");
    let ips = interfaces.flat_map(|(_, interface)| named(interface, "ipConfigurations"));
    ips.flat_map(|(_, ip)| pools_of(ip))
}

/// The interfaces that an instance asks for.
fn configurations(machine: &Machine) -> impl Iterator<Item = (&str, &Value)> {
    let network = machine.body.pointer(INSTANCE_NETWORK).unwrap_or(&Value::Null);
    named(network, "networkInterfaceConfigurations")
}

fn is_ipv6(ip: &Value) -> bool {
    text(ip, "privateIPAddressVersion").eq_ignore_ascii_case("IPv6")
}

/// What Azure adds to every interface.
fn complete(properties: &mut Value, guid: Value) {
    fill(
        properties,
        json!({
            "dnsSettings": {"dnsServers": [], "appliedDnsServers": [],
                "internalDomainNameSuffix": "simulated.bx.internal.cloudapp.net"},
            "enableAcceleratedNetworking": false, "vnetEncryptionSupported": false, "enableIPForwarding": false,
            "disableTcpStateTracking": false, "hostedWorkloads": [], "tapConfigurations": [], "nicType": "Standard",
            "allowPort25Out": true, "defaultOutboundConnectivityEnabled": false, "auxiliaryMode": "None",
            "auxiliarySku": "None"
        }),
    );
    properties["resourceGuid"] = guid;
    properties["provisioningState"] = json!("Succeeded");
}

/// An ip-configuration of an interface as it is read: the first one is the primary one unless something else is said.
fn ip_configuration(interface: &str, name: &str, given: &Value, address: IpAddr, is_first: bool) -> Value {
    let mut properties = given.clone();
    if let Some(subnet) = field(given, "subnet") {
        properties["subnet"] = json!({"id": text(subnet, "id")});
    }
    fill(
        &mut properties,
        json!({"privateIPAllocationMethod": "Dynamic", "primary": is_first, "privateIPAddressVersion": "IPv4"}),
    );
    properties["privateIPAddress"] = json!(address);
    properties["provisioningState"] = json!("Succeeded");
    json!({
        "name": name, "id": format!("{interface}/ipConfigurations/{name}"),
        "type": "Microsoft.Network/networkInterfaces/ipConfigurations", "properties": properties
    })
}

impl Azure {
    /// Gives the ip-configurations of an instance addresses, where they have none, and takes back those of others.
    pub(super) fn assign_addresses(&mut self, key: &MachineKey) -> Result<(), Refusal> {
        let Some(machine) = self.compute.machines.get_mut(key) else { return Ok(()) };
        let mut wanted = BTreeMap::new();
        for (interface, properties) in configurations(machine) {
            for (ip, properties) in named(properties, "ipConfigurations") {
                wanted.insert((interface.to_owned(), ip.to_owned()), is_ipv6(properties));
            }
        }
        let mut former = std::mem::take(&mut machine.addresses);
        let mut fresh = Vec::new();
        let mut assigned = BTreeMap::new();
        for (name, is_ipv6) in wanted {
            let kept = former.get(&name).copied().filter(|address| address.is_ipv6() == is_ipv6);
            let address = match kept {
                Some(address) => address,
                None => match self.compute.addresses.take(is_ipv6) {
                    Ok(address) => {
                        fresh.push(address);
                        address
                    }
                    Err(refusal) => {
                        for address in fresh {
                            self.compute.addresses.put_back(address);
                        }
                        machine.addresses = former;
                        return Err(refusal);
                    }
                },
            };
            assigned.insert(name, address);
        }
        former.retain(|name, address| assigned.get(name) != Some(address));
        machine.addresses = assigned;
        for address in former.into_values() {
            self.compute.addresses.put_back(address);
        }
        Ok(())
    }

    /// What an instance names its interfaces by.
    pub(super) fn interface_references(&self, machine: &Machine) -> Vec<Value> {
        let is_only_one = configurations(machine).nth(1).is_none();
        let reference = |(name, properties): (&str, &Value)| {
            let id = format!("{}/networkInterfaces/{name}", machine.id);
            match field(properties, "primary") {
                Some(primary) if !is_only_one => json!({"id": id, "properties": {"primary": primary}}),
                Some(_) | None => json!({"id": id}),
            }
        };
        configurations(machine).map(reference).collect()
    }

    /// The interfaces of an instance, in the order of its configuration.
    pub(super) fn instance_interfaces(&self, machine: &Machine) -> Vec<Value> {
        let etag = format!("W/\"{:08}\"", machine.etag);
        let interface = |(name, given): (&str, &Value)| {
            let id = format!("{}/networkInterfaces/{name}", machine.id);
            let ips = named(given, "ipConfigurations").enumerate().filter_map(|(at, (ip, given))| {
                let address = machine.addresses.get(&(name.to_owned(), ip.to_owned()))?;
                let mut configuration = ip_configuration(&id, ip, given, *address, at == 0);
                configuration["etag"] = json!(etag);
                Some(configuration)
            });
            let mut properties = given.clone();
            properties["ipConfigurations"] = ips.collect();
            properties["virtualMachine"] = json!({"id": machine.id});
            complete(&mut properties, unique_id(machine.unique));
            json!({"name": name, "id": id, "etag": etag, "properties": properties})
        };
        configurations(machine).map(interface).collect()
    }

    /// Refuses backend pools that are not there, which the interfaces of a scale set or an instance name.
    pub(super) fn check_network(&self, user: &str, network: Option<&Value>) -> Result<(), Refusal> {
        self.check_pools(user, network.into_iter().flat_map(pools_in))
    }

    fn check_pools<'a>(&self, user: &str, mut pools: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
        match pools.find(|pool| self.load_balancer_with(pool).is_none()) {
            Some(missing) => Err(Refusal::missing_reference(missing, user)),
            None => Ok(()),
        }
    }

    /// The id of a scale set whose model, or one of whose instances, names such a backend pool.
    pub(in super::super) fn scale_set_behind(&self, is_meant: impl Fn(&str) -> bool) -> Option<&str> {
        let models = self.compute.sets.values().map(|set| (set, set.body.pointer(NETWORK_PROFILE)));
        let instances = self.compute.machines.values().filter_map(|machine| {
            let set = self.compute.sets.get(machine.set.as_ref()?)?;
            Some((set, machine.body.pointer(INSTANCE_NETWORK)))
        });
        let names_it = |network: &Value| pools_in(network).any(&is_meant);
        let mut all = models.chain(instances);
        all.find(|(_, network)| network.is_some_and(names_it)).map(|(set, _)| set.id.as_str())
    }

    /// Checks an interface that is to be written, and gives it addresses; it keeps those that it has. The machine that it
    /// is of is only read.
    pub(in super::super) fn check_interface(
        &mut self,
        id: &str,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        without(properties, &["virtualMachine", "provisioningState", "resourceGuid"]);
        let mut given = Value::Object(std::mem::take(properties));
        if list(&given, "ipConfigurations")?.is_empty() {
            return Err(Refusal::malformed(format!("{id} has no ip-configuration")));
        }
        let mut names = BTreeSet::new();
        for ip in list(&given, "ipConfigurations")? {
            let name = text(ip, "name");
            if name.is_empty() || !names.insert(name.to_lowercase()) {
                let message = format!("ipConfigurations of {id}: the name {name:?} is empty or stands twice");
                return Err(Refusal::malformed(message));
            }
            if let Some(properties) = field(ip, "properties") {
                optional_list(properties, "loadBalancerBackendAddressPools")?;
            }
        }
        self.check_pools(id, named(&given, "ipConfigurations").flat_map(|(_, ip)| pools_of(ip)))?;
        let held: BTreeSet<IpAddr> = existing.into_iter().flat_map(addresses).collect();
        let mut free = held.clone();
        let mut taken = Vec::new();
        let mut ips = Vec::new();
        for (at, (name, ip)) in named(&given, "ipConfigurations").enumerate() {
            match self.address_for(name, ip, existing, &mut free) {
                Ok(address) => {
                    taken.push(address);
                    ips.push(ip_configuration(id, name, ip, address, at == 0));
                }
                Err(refusal) => {
                    for address in taken.into_iter().filter(|address| !held.contains(address)) {
                        self.compute.addresses.put_back(address);
                    }
                    return Err(refusal);
                }
            }
        }
        for address in free {
            self.compute.addresses.put_back(address);
        }
        given["ipConfigurations"] = Value::Array(ips);
        if let Some(existing) = existing {
            for kept in ["virtualMachine", "primary", "resourceGuid"] {
                if let Some(value) = existing.property(kept) {
                    given[kept] = value.clone();
                }
            }
        }
        let guid = given.get("resourceGuid").cloned().unwrap_or_else(|| unique_id(self.counter + 1));
        complete(&mut given, guid);
        if let Value::Object(given) = given {
            *properties = given;
        }
        Ok(())
    }

    /// The address of an ip-configuration: the one it asks for, the one it had, or a new one. `held` are those that the
    /// interface has and that are not spoken for.
    fn address_for(
        &mut self,
        name: &str,
        given: &Value,
        existing: Option<&Resource>,
        held: &mut BTreeSet<IpAddr>,
    ) -> Result<IpAddr, Refusal> {
        if text(given, "privateIPAllocationMethod").eq_ignore_ascii_case("Static") {
            let wanted = text(given, "privateIPAddress");
            let address: IpAddr = wanted
                .parse()
                .map_err(|_| Refusal::malformed(format!("privateIPAddress of {name} is {wanted:?}")))?;
            if !held.remove(&address) {
                self.compute.addresses.take_this(address)?;
            }
            return Ok(address);
        }
        let former = existing.into_iter().flat_map(|existing| existing.children("ipConfigurations"));
        let former = former.filter(|ip| text(ip, "name").eq_ignore_ascii_case(name));
        let former = former
            .filter_map(|ip| text(field(ip, "properties")?, "privateIPAddress").parse::<IpAddr>().ok())
            .find(|address| address.is_ipv6() == is_ipv6(given) && held.contains(address));
        match former {
            Some(address) => {
                held.remove(&address);
                Ok(address)
            }
            None => self.compute.addresses.take(is_ipv6(given)),
        }
    }

    /// Takes back the addresses of an interface that goes.
    pub(in super::super) fn release_addresses(&mut self, interface: &Resource) {
        for address in addresses(interface) {
            self.compute.addresses.put_back(address);
        }
    }

    /// Makes an interface that is a resource, in the group of `machine`, from what a scale set says of it.
    pub(super) fn make_interface(
        &mut self,
        machine: &str,
        name: &str,
        location: &str,
        configuration: &Value,
    ) -> Result<String, Refusal> {
        let id = Scope::of(machine).id(Kind::NetworkInterface, name);
        let mut body = json!({"location": location, "properties": configuration});
        if let Some(Value::Object(properties)) = body.get_mut("properties") {
            self.check_interface(&id, properties, None)?;
            properties.insert("virtualMachine".to_owned(), json!({"id": machine}));
        }
        if let Value::Object(body) = body {
            self.store(Kind::NetworkInterface, &id, body);
        }
        Ok(id)
    }

    /// Writes to an interface which machine it is of.
    pub(super) fn attach(&mut self, interface: &str, machine: Option<&str>) {
        let Some(resource) = self.resource(Kind::NetworkInterface, interface) else { return };
        let id = resource.id().to_owned();
        let mut body = resource.body();
        if let Some(Value::Object(properties)) = body.get_mut("properties") {
            properties.remove("virtualMachine");
            if let Some(machine) = machine {
                properties.insert("virtualMachine".to_owned(), json!({"id": machine}));
            }
        }
        if let Value::Object(body) = body {
            self.store(Kind::NetworkInterface, &id, body);
        }
    }

    /// Removes the interfaces that go with a virtual machine, and frees the others.
    pub(super) fn detach_interfaces(&mut self, machine: &Value) {
        for (id, properties) in references(machine) {
            if text(properties, "deleteOption").eq_ignore_ascii_case("Delete") {
                self.remove(Kind::NetworkInterface, &id.to_ascii_lowercase());
            } else {
                self.attach(id, None);
            }
        }
    }

    /// Refuses interfaces that are not there, or that another machine has.
    pub(super) fn check_references(&self, machine: &str, body: &Value) -> Result<(), Refusal> {
        for (id, _) in references(body) {
            let Some(interface) = self.resource(Kind::NetworkInterface, id) else {
                let message = format!("Resource {id:?} referenced by resource {machine} was not found.");
                return Err(Refusal::bad("InvalidResourceReference", message).bare());
            };
            let owner = interface.property("virtualMachine").map(|owner| text(owner, "id"));
            if let Some(owner) = owner.filter(|owner| !owner.eq_ignore_ascii_case(machine)) {
                let message = format!("Network Interface {id} is already used by {owner}.");
                return Err(Refusal::bad("NicInUse", message).bare());
            }
        }
        Ok(())
    }
}

/// The interfaces that a virtual machine names: their ids, and what they are to it.
pub(super) fn references(machine: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let interfaces =
        machine.pointer("/properties/networkProfile/networkInterfaces").and_then(Value::as_array);
    interfaces
        .into_iter()
        .flatten()
        .map(|reference| (text(reference, "id"), field(reference, "properties").unwrap_or(&Value::Null)))
}

/// What the interface of a flexible member is called.
pub(super) fn interface_name(configuration: &str, machine: &str) -> String {
    let suffix = last(machine).rsplit('_').next().unwrap_or_default();
    format!("{configuration}-{suffix}")
}
