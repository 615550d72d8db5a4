//! Load balancers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::answer::{Refusal, field, list, text};
use super::json::fill;
use super::path::Kind;
use super::resources::{Resource, sku};
use super::state::Azure;

/// What a load balancer may be.
const SKUS: [&str; 2] = ["Standard", BEHIND_SERVICE_GATEWAY];
/// What it must be behind a ServiceGateway.
pub(super) const BEHIND_SERVICE_GATEWAY: &str = "Service";
/// The lists of children that are modelled. Each child has a name and gets an id.
pub(super) const CHILDREN: [&str; 3] =
    ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules"];
/// The lists of children that a load balancer behind a ServiceGateway has no use for.
const OTHER_CHILDREN: [&str; 4] = ["probes", "inboundNatRules", "inboundNatPools", "outboundRules"];

impl Resource {
    /// The children of one kind.
    pub(super) fn children(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.property(kind).and_then(Value::as_array).into_iter().flatten()
    }

    /// Whether a frontend uses this public IP.
    pub(super) fn uses(&self, public_ip: &str) -> bool {
        self.children("frontendIPConfigurations")
            .any(|frontend| frontend_ip(frontend).eq_ignore_ascii_case(public_ip))
    }

    /// Whether it has a backend pool of this id.
    fn has_pool(&self, pool: &str) -> bool {
        self.pools().any(|id| id.eq_ignore_ascii_case(pool))
    }

    /// The ids of its backend pools.
    fn pools(&self) -> impl Iterator<Item = &str> {
        self.children("backendAddressPools").map(|pool| text(pool, "id"))
    }
}

pub(super) fn frontend_ip(frontend: &Value) -> &str {
    field(frontend, "properties")
        .and_then(|properties| field(properties, "publicIPAddress"))
        .map(|public_ip| text(public_ip, "id"))
        .unwrap_or_default()
}

impl Azure {
    pub(super) fn load_balancers(&self) -> impl Iterator<Item = &Resource> {
        self.resources
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::LoadBalancer)
            .map(|(_, resource)| resource)
    }

    /// The load balancer that has a backend pool of this id.
    pub(super) fn load_balancer_with(&self, pool: &str) -> Option<&Resource> {
        let id = pool.to_ascii_lowercase();
        let id = id.split("/backendaddresspools/").next().unwrap_or_default();
        self.resource(Kind::LoadBalancer, id).filter(|load_balancer| load_balancer.has_pool(pool))
    }

    /// Checks a load balancer that is to be written, and gives its children their ids.
    pub(super) fn check_load_balancer(
        &self,
        id: &str,
        body: &Value,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let sku = sku(body);
        if !SKUS.contains(&sku) {
            return Err(Refusal::bad("InvalidSku", format!("the SKU of {id} is {sku:?}")));
        }
        let given = Value::Object(properties.clone());
        for kind in OTHER_CHILDREN {
            if !list(&given, kind)?.is_empty() {
                return Err(Refusal::not_modelled(format_args!("{kind} of a load balancer")));
            }
            properties.insert(kind.to_owned(), json!([]));
        }
        for kind in CHILDREN {
            let mut names = BTreeSet::new();
            let mut children = Vec::new();
            for child in list(&given, kind)? {
                let name = text(child, "name");
                if name.is_empty() || !names.insert(name.to_ascii_lowercase()) {
                    let message = format!("{kind} of {id}: the name {name:?} is empty or stands twice");
                    return Err(Refusal::malformed(message));
                }
                if field(child, "properties").is_some_and(|properties| !properties.is_object()) {
                    return Err(Refusal::malformed(format!("the properties of {kind}/{name} of {id}")));
                }
                let mut child = child.clone();
                child["id"] = json!(format!("{id}/{kind}/{name}"));
                child["type"] = json!(format!("{}/{kind}", Kind::LoadBalancer.type_name()));
                children.push(child);
            }
            properties.insert(kind.to_owned(), Value::Array(children));
        }
        let given = Value::Object(properties.clone());
        for frontend in list(&given, "frontendIPConfigurations")? {
            self.check_frontend(id, sku, frontend_ip(frontend))?;
        }
        let kept = list(&given, "backendAddressPools")?;
        let is_kept = |pool: &str| kept.iter().any(|kept| text(kept, "id").eq_ignore_ascii_case(pool));
        let gone = existing.into_iter().flat_map(Resource::pools).filter(|pool| !is_kept(pool));
        for pool in gone {
            let user = if self.gateway.references(pool) {
                "a service gateway".to_owned()
            } else if let Some(set) = self.scale_set_behind(|named| named.eq_ignore_ascii_case(pool)) {
                format!("virtual machine scale set {set}")
            } else {
                continue;
            };
            let message = format!(
                "Cannot remove backend address pool {pool} from load balancer {id} since it is in use by {user}."
            );
            return Err(Refusal::bad("InUseBackendAddressPoolCannotBeDeleted", message));
        }
        check_rules(&given)?;
        complete_children(properties);
        Ok(())
    }

    /// Checks what a frontend of the load balancer `id` takes its address from.
    fn check_frontend(&self, id: &str, sku: &str, public_ip: &str) -> Result<(), Refusal> {
        self.check_public_ip_of(id, sku, public_ip)?;
        let is_other = |other: &&Resource| other.uses(public_ip) && !other.id().eq_ignore_ascii_case(id);
        match self.load_balancers().find(is_other).or_else(|| self.nat_gateway_with(public_ip)) {
            None => Ok(()),
            Some(other) => {
                let message = format!("{public_ip} is already used by {}", other.id());
                Err(Refusal::bad("PublicIPAddressInUse", message))
            }
        }
    }

    /// Writes into the pools of a load balancer the addresses that stand behind them.
    pub(super) fn fill_pools(&self, load_balancer: &mut Value) {
        let pools =
            load_balancer.pointer_mut("/properties/backendAddressPools").and_then(Value::as_array_mut);
        for pool in pools.into_iter().flatten() {
            let network = self.gateway.virtual_network_of(text(pool, "id"));
            let address = |address: IpAddr| {
                let mut properties = json!({"ipAddress": address});
                if let Some(network) = network {
                    properties["virtualNetwork"] = network.clone();
                }
                json!({"name": address, "properties": properties})
            };
            let addresses = self.gateway.pods_of(text(pool, "id")).into_keys().map(address).collect();
            pool["properties"]["loadBalancerBackendAddresses"] = Value::Array(addresses);
        }
    }

    /// Refuses to delete a load balancer with a pool that a registered service or a scale set names.
    pub(super) fn check_load_balancer_is_free(&self, load_balancer: &Resource) -> Result<(), Refusal> {
        let id = load_balancer.id();
        if load_balancer.pools().any(|pool| self.gateway.references(pool)) {
            let message = format!(
                "Load balancer {id} can not be deleted since its pool is in use by a service gateway."
            );
            return Err(Refusal::bad("InUseLoadBalancerCannotBeDeleted", message));
        }
        let Some(set) = self.scale_set_behind(|pool| load_balancer.has_pool(pool)) else { return Ok(()) };
        let message = format!(
            "Cannot remove load balancer {id} since its backend address pools are in use by virtual machine scale set {set}."
        );
        Err(Refusal::bad("LoadBalancerInUseByVirtualMachineScaleSet", message))
    }
}

/// Ports, references and combinations of a load balancer's rules.
fn check_rules(properties: &Value) -> Result<(), Refusal> {
    let (mut frontends, mut backends) = (BTreeSet::new(), BTreeSet::new());
    for entry in list(properties, "loadBalancingRules")? {
        let name = text(entry, "name");
        let bad = |what: String| Refusal::malformed(format!("rule {name}: {what}"));
        let rule = field(entry, "properties").ok_or_else(|| bad("the properties are missing".to_owned()))?;
        let protocol = text(rule, "protocol").to_ascii_lowercase();
        if protocol != "tcp" && protocol != "udp" {
            return Err(bad(format!("protocol is {protocol:?}")));
        }
        let number = |field_name: &str, range: std::ops::RangeInclusive<u64>| {
            let value = field(rule, field_name);
            let number = value.and_then(Value::as_u64).filter(|number| range.contains(number));
            number.ok_or_else(|| {
                let value = value.unwrap_or(&Value::Null);
                bad(format!("{field_name} is {value}; it is {}–{}", range.start(), range.end()))
            })
        };
        let frontend_port = number("frontendPort", 1..=65_534)?;
        let backend_port = number("backendPort", 1..=65_535)?;
        if field(rule, "idleTimeoutInMinutes").is_some() {
            number("idleTimeoutInMinutes", 4..=30)?;
        }
        let reference = |reference: &str, kind: &str| {
            let id = field(rule, reference).map(|reference| text(reference, "id")).unwrap_or_default();
            if list(properties, kind)?.iter().any(|child| text(child, "id").eq_ignore_ascii_case(id)) {
                return Ok(id.to_ascii_lowercase());
            }
            Err(Refusal::missing_reference(id, text(entry, "id")))
        };
        let frontend = reference("frontendIPConfiguration", "frontendIPConfigurations")?;
        let pool = reference("backendAddressPool", "backendAddressPools")?;
        if !frontends.insert((frontend, protocol.clone(), frontend_port)) {
            return Err(Refusal::bad("RulesUseSameFrontendPortProtocolAndIPConfig", format!("rule {name}")));
        }
        if !backends.insert((pool, protocol, backend_port)) {
            return Err(Refusal::bad("RulesUseSameBackendPortProtocolAndPool", format!("rule {name}")));
        }
    }
    Ok(())
}

/// Adds what Azure adds to the children of a load balancer: as recorded traffic has it, and for rules and pools as its
/// published description does.
fn complete_children(properties: &mut Map<String, Value>) {
    let rules = properties.get("loadBalancingRules").cloned().unwrap_or_default();
    let rules_of = |reference: &str, child: &Value| -> Vec<Value> {
        let is_its = |rule: &&Value| {
            let named = rule.pointer(&format!("/properties/{reference}")).map(|named| text(named, "id"));
            named.is_some_and(|named| named.eq_ignore_ascii_case(text(child, "id")))
        };
        let rules = rules.as_array().into_iter().flatten().filter(is_its);
        rules.map(|rule| json!({"id": rule["id"]})).collect()
    };
    for kind in CHILDREN {
        for child in properties.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            let mut added = json!({});
            let back_reference = match kind {
                "frontendIPConfigurations" => {
                    added = json!({"privateIPAllocationMethod": "Dynamic"});
                    let public_ip = frontend_ip(child).to_owned();
                    child["properties"]["publicIPAddress"] = json!({"id": public_ip});
                    Some("frontendIPConfiguration")
                }
                "backendAddressPools" => Some("backendAddressPool"),
                _ => {
                    added = json!({
                        "enableFloatingIP": false, "idleTimeoutInMinutes": 4, "enableTcpReset": false,
                        "loadDistribution": "Default"
                    });
                    let pool = child["properties"]["backendAddressPool"].clone();
                    child["properties"]["backendAddressPools"] = json!([pool]);
                    None
                }
            };
            let rules = back_reference.map(|reference| rules_of(reference, child)).unwrap_or_default();
            fill(child, json!({"properties": added}));
            child["properties"]["provisioningState"] = json!("Succeeded");
            if let Some(properties) = child["properties"].as_object_mut() {
                properties.remove("loadBalancingRules");
            }
            if !rules.is_empty() {
                child["properties"]["loadBalancingRules"] = Value::Array(rules);
            }
        }
    }
}

/// The children of a load balancer of the kind that a path names, if it is modelled.
pub(super) fn parts_of<'a>(load_balancer: &'a Value, kind: &str) -> Option<&'a Vec<Value>> {
    let kind = CHILDREN.into_iter().find(|known| known.eq_ignore_ascii_case(kind))?;
    load_balancer.get("properties")?.get(kind)?.as_array()
}

/// The refusal of a child of a load balancer that is not there.
pub(super) fn part_not_found(path: &str) -> Refusal {
    Refusal::new(404, "NotFound", format!("Resource {path} not found."))
}
