//! Load balancers.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::answer::{Refusal, field, list, text};
use super::path::Kind;
use super::resources::{Resource, sku};
use super::state::Azure;

/// The lists of children that are modelled. Each child has a name and gets an id.
const CHILDREN: [&str; 3] = ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules"];
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
    pub(super) fn has_pool(&self, pool: &str) -> bool {
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

    /// Checks a load balancer that is to be written, and gives its children their ids.
    pub(super) fn check_load_balancer(
        &self,
        id: &str,
        body: &Value,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let sku = sku(body);
        if sku != "Service" {
            let message =
                format!("the SKU of {id} is {sku:?}; behind a service gateway it is exactly \"Service\"");
            return Err(Refusal::bad("InvalidSku", message));
        }
        let given = Value::Object(properties.clone());
        for kind in OTHER_CHILDREN {
            if !list(&given, kind)?.is_empty() {
                return Err(Refusal::not_modelled(format_args!("{kind} of a load balancer")));
            }
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
                let mut child = child.clone();
                child["id"] = json!(format!("{id}/{kind}/{name}"));
                children.push(child);
            }
            properties.insert(kind.to_owned(), Value::Array(children));
        }
        let properties = Value::Object(properties.clone());
        for frontend in list(&properties, "frontendIPConfigurations")? {
            self.check_frontend(id, frontend_ip(frontend))?;
        }
        let kept = list(&properties, "backendAddressPools")?;
        let is_kept = |pool: &str| kept.iter().any(|kept| text(kept, "id").eq_ignore_ascii_case(pool));
        let mut former = existing.into_iter().flat_map(Resource::pools);
        if let Some(pool) = former.find(|pool| self.gateway.references(pool) && !is_kept(pool)) {
            let message = format!("Backend address pool {pool} is in use by a service gateway.");
            return Err(Refusal::bad("InUseBackendAddressPoolCannotBeDeleted", message));
        }
        check_rules(&properties)
    }

    /// Checks what a frontend of the load balancer `id` takes its address from.
    fn check_frontend(&self, id: &str, public_ip: &str) -> Result<(), Refusal> {
        if self.resource(Kind::PublicIp, public_ip).is_none() {
            let message = format!("Resource {public_ip:?} referenced by resource {id} was not found.");
            return Err(Refusal::bad("InvalidResourceReference", message));
        }
        let is_other = |other: &&Resource| other.uses(public_ip) && !other.id().eq_ignore_ascii_case(id);
        match self.load_balancers().find(is_other).or_else(|| self.nat_gateway_with(public_ip)) {
            None => Ok(()),
            Some(other) => {
                let message = format!("{public_ip} is already used by {}", other.id());
                Err(Refusal::bad("PublicIPAddressInUse", message))
            }
        }
    }

    /// Refuses to delete a load balancer with a pool that a registered service names.
    pub(super) fn check_load_balancer_is_free(&self, load_balancer: &Resource) -> Result<(), Refusal> {
        if !load_balancer.pools().any(|pool| self.gateway.references(pool)) {
            return Ok(());
        }
        let id = load_balancer.id();
        let message =
            format!("Load balancer {id} can not be deleted since its pool is in use by a service gateway.");
        Err(Refusal::bad("InUseLoadBalancerCannotBeDeleted", message))
    }
}

/// Ports, references and combinations of a load balancer's rules.
fn check_rules(properties: &Value) -> Result<(), Refusal> {
    let (mut frontends, mut backends) = (BTreeSet::new(), BTreeSet::new());
    for rule in list(properties, "loadBalancingRules")? {
        let name = text(rule, "name");
        let bad = |what: String| Refusal::malformed(format!("rule {name}: {what}"));
        let rule = field(rule, "properties").ok_or_else(|| bad("the properties are missing".to_owned()))?;
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
            let message = format!("rule {name}: {reference} {id:?} is not one of this load balancer");
            Err(Refusal::bad("InvalidResourceReference", message))
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
