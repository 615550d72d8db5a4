//! Public IPs and load balancers.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::answer::{Refusal, Request, Response, field, list, text};
use super::path::Kind;
use super::state::{Azure, Completion, not_found};

/// A resource as it is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource(Map<String, Value>);

impl Resource {
    pub(super) fn body(&self) -> Value {
        Value::Object(self.0.clone())
    }

    pub(super) fn id(&self) -> &str {
        self.0.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    /// What it is compared by.
    pub(super) fn key(&self) -> String {
        self.id().to_ascii_lowercase()
    }

    fn property(&self, name: &str) -> Option<&Value> {
        field(self.0.get("properties")?, name)
    }

    fn etag(&self) -> &str {
        self.0.get("etag").and_then(Value::as_str).unwrap_or_default()
    }

    /// The elements of a load balancer's list.
    fn parts(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.property(name).and_then(Value::as_array).into_iter().flatten()
    }

    /// Whether a frontend uses this public IP.
    fn uses(&self, public_ip: &str) -> bool {
        self.parts("frontendIPConfigurations")
            .any(|frontend| frontend_ip(frontend).eq_ignore_ascii_case(public_ip))
    }

    /// Whether it has a backend pool of this id.
    pub(super) fn has_pool(&self, pool: &str) -> bool {
        self.parts("backendAddressPools").any(|part| text(part, "id").eq_ignore_ascii_case(pool))
    }
}

fn frontend_ip(frontend: &Value) -> &str {
    field(frontend, "properties")
        .and_then(|properties| field(properties, "publicIPAddress"))
        .map(|public_ip| text(public_ip, "id"))
        .unwrap_or_default()
}

impl Azure {
    pub(super) fn get(&self, id: &str, kind: Kind, name: &str) -> Result<Response, Refusal> {
        if kind == Kind::ServiceGateway && name.eq_ignore_ascii_case(&self.config.service_gateway) {
            let body = json!({
                "id": id, "name": self.config.service_gateway, "type": "Microsoft.Network/serviceGateways",
                "sku": {"name": "Standard", "tier": "Regional"}, "properties": {"provisioningState": "Succeeded"}
            });
            return Ok(Response::new(200, body));
        }
        let resource = self.resource(kind, id).ok_or_else(|| not_found(name, kind))?;
        Ok(Response::new(200, resource.body()))
    }

    pub(super) fn resource(&self, kind: Kind, id: &str) -> Option<&Resource> {
        self.resources.get(&(kind, id.to_ascii_lowercase()))
    }

    pub(super) fn put(
        &mut self,
        request: &Request,
        id: &str,
        kind: Kind,
        name: &str,
    ) -> Result<Response, Refusal> {
        let existing = self.resource(kind, id).cloned();
        if let Some(wanted) = &request.if_match
            && existing.as_ref().map(Resource::etag) != Some(wanted.as_str())
            && wanted != "*"
        {
            let message = format!("The etag {wanted} does not match the one of {id}.");
            return Err(Refusal::new(412, "PreconditionFailed", message)
                .with_detail("PreconditionFailedEtagMismatch"));
        }
        let Value::Object(mut body) = request.body.clone() else {
            return Err(Refusal::bad("InvalidRequestContent", "the body is not a JSON object"));
        };
        if text(&request.body, "location").is_empty() {
            return Err(Refusal::bad("LocationRequired", format!("the location of {id} is missing")));
        }
        let mut properties = match body.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => {
                return Err(Refusal::bad(
                    "InvalidRequestFormat",
                    format!("the properties of {id} are missing"),
                ));
            }
        };
        match kind {
            Kind::PublicIp => self.check_public_ip(&request.body, &mut properties, existing.as_ref())?,
            Kind::LoadBalancer => self.check_load_balancer(id, name, &request.body, &mut properties)?,
            Kind::ServiceGateway => {}
        }
        self.counter += 1;
        properties.insert("provisioningState".to_owned(), json!("Succeeded"));
        // The spelling of the first PUT stays.
        let id = existing.as_ref().map_or(id, Resource::id).to_owned();
        body.insert("name".to_owned(), json!(id.rsplit('/').next().unwrap_or_default()));
        body.insert("type".to_owned(), json!(format!("Microsoft.Network/{}", kind.segment())));
        body.insert("etag".to_owned(), json!(format!("W/\"{:08}\"", self.counter)));
        body.insert("properties".to_owned(), Value::Object(properties));
        body.insert("id".to_owned(), json!(id));
        let resource = Resource(body);
        let mut answer = resource.body();
        self.resources.insert((kind, resource.key()), resource);
        let operation = match self.config.completion {
            Completion::Immediate => self.operation(),
            Completion::Polled => {
                answer["properties"]["provisioningState"] = json!("Updating");
                self.running_operation()
            }
        };
        let status = if existing.is_some() { 200 } else { 201 };
        Ok(Response::new(status, answer).with_header("azure-asyncoperation", operation))
    }

    pub(super) fn delete(&mut self, id: &str, kind: Kind) -> Result<Response, Refusal> {
        let Some(resource) = self.resource(kind, id) else { return Ok(Response::new(204, Value::Null)) };
        let id = resource.id();
        match kind {
            Kind::PublicIp => {
                if let Some(user) = self.load_balancers().find(|load_balancer| load_balancer.uses(id)) {
                    let message = format!(
                        "Public IP address {id} can not be deleted since it is still allocated to {}.",
                        user.id()
                    );
                    return Err(Refusal::bad("PublicIPAddressCannotBeDeleted", message));
                }
            }
            Kind::LoadBalancer => {
                let is_referenced = |pool: &Value| self.gateway.references(text(pool, "id"));
                if resource.parts("backendAddressPools").any(is_referenced) {
                    let message = format!(
                        "Load balancer {id} can not be deleted since its pool is in use by a service gateway."
                    );
                    return Err(Refusal::bad("InUseLoadBalancerCannotBeDeleted", message));
                }
            }
            Kind::ServiceGateway => {}
        }
        let key = resource.key();
        self.resources.remove(&(kind, key));
        match self.config.completion {
            Completion::Immediate => Ok(Response::new(200, Value::Null)),
            Completion::Polled => {
                let operation = self.running_operation();
                let response = Response::new(202, Value::Null).with_header("location", operation.clone());
                Ok(response.with_header("azure-asyncoperation", operation))
            }
        }
    }

    fn load_balancers(&self) -> impl Iterator<Item = &Resource> {
        self.resources
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::LoadBalancer)
            .map(|(_, resource)| resource)
    }

    fn check_public_ip(
        &mut self,
        body: &Value,
        properties: &mut Map<String, Value>,
        existing: Option<&Resource>,
    ) -> Result<(), Refusal> {
        let sku = field(body, "sku").map(|sku| text(sku, "name")).unwrap_or_default();
        if sku != "StandardV2" {
            return Err(Refusal::bad(
                "InvalidSku",
                format!("the SKU of a public IP is {sku:?}; here only StandardV2 is modelled"),
            ));
        }
        let properties_value = Value::Object(properties.clone());
        if text(&properties_value, "publicIPAllocationMethod") != "Static" {
            return Err(Refusal::bad(
                "StandardSkuPublicIPAddressMustBeStatic",
                "a StandardV2 public IP must be Static",
            ));
        }
        let version = match text(&properties_value, "publicIPAddressVersion") {
            "" | "IPv4" => "IPv4",
            "IPv6" => "IPv6",
            other => {
                return Err(Refusal::bad("InvalidParameter", format!("publicIPAddressVersion is {other:?}")));
            }
        };
        let former = existing.and_then(|existing| existing.property("publicIPAddressVersion")?.as_str());
        if former.is_some_and(|former| former != version) {
            return Err(Refusal::bad(
                "PublicIPAddressVersionCannotBeChanged",
                "the version of a public IP is immutable",
            ));
        }
        let address = existing.and_then(|existing| existing.property("ipAddress").cloned());
        let address = address.unwrap_or_else(|| {
            self.counter += 1;
            let [.., a, b, c] = self.counter.to_be_bytes();
            match version {
                "IPv4" => json!(format!("20.{a}.{b}.{c}")),
                _ => json!(format!("2603:1030::{:x}", self.counter)),
            }
        });
        properties.insert("publicIPAddressVersion".to_owned(), json!(version));
        properties.insert("ipAddress".to_owned(), address);
        Ok(())
    }

    fn check_load_balancer(
        &self,
        id: &str,
        name: &str,
        body: &Value,
        properties: &mut Map<String, Value>,
    ) -> Result<(), Refusal> {
        let sku = field(body, "sku").map(|sku| text(sku, "name")).unwrap_or_default();
        if sku != "Service" {
            let message = format!(
                "the SKU of load balancer {name} is {sku:?}; behind a service gateway it is exactly \"Service\""
            );
            return Err(Refusal::bad("InvalidSku", message));
        }
        for part in ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules"] {
            let Some(Value::Array(items)) = properties.get_mut(part) else { continue };
            let mut names = BTreeSet::new();
            for item in items {
                let child = text(item, "name").to_owned();
                if child.is_empty() || !names.insert(child.to_ascii_lowercase()) {
                    return Err(Refusal::bad(
                        "InvalidRequestFormat",
                        format!("{part} of {name}: the name {child:?} is empty or stands twice"),
                    ));
                }
                item["id"] = json!(format!("{id}/{part}/{child}"));
            }
        }
        let properties = Value::Object(properties.clone());
        for frontend in list(&properties, "frontendIPConfigurations") {
            let public_ip = frontend_ip(frontend);
            if self.resource(Kind::PublicIp, public_ip).is_none() {
                let message = format!("Resource {public_ip} referenced by resource {id} was not found.");
                return Err(Refusal::bad("InvalidResourceReference", message));
            }
            if let Some(other) = self
                .load_balancers()
                .find(|other| other.uses(public_ip) && !other.id().eq_ignore_ascii_case(id))
            {
                let message = format!("{public_ip} is already used by {}", other.id());
                return Err(Refusal::bad("PublicIPAddressInUse", message));
            }
        }
        check_rules(&properties)
    }
}

/// Ports, references and combinations of a load balancer's rules.
fn check_rules(properties: &Value) -> Result<(), Refusal> {
    let (mut frontends, mut backends) = (BTreeSet::new(), BTreeSet::new());
    for rule in list(properties, "loadBalancingRules") {
        let name = text(rule, "name");
        let bad = |what: String| Refusal::bad("InvalidRequestFormat", format!("rule {name}: {what}"));
        let Some(rule) = field(rule, "properties") else {
            return Err(bad("the properties are missing".to_owned()));
        };
        let number = |field_name: &str| field(rule, field_name).and_then(Value::as_u64);
        let protocol = text(rule, "protocol").to_ascii_lowercase();
        if protocol != "tcp" && protocol != "udp" {
            return Err(bad(format!("protocol is {protocol:?}")));
        }
        let frontend_port = number("frontendPort").filter(|port| (1..=65_534).contains(port));
        let backend_port = number("backendPort").filter(|port| (1..=65_535).contains(port));
        let (Some(frontend_port), Some(backend_port)) = (frontend_port, backend_port) else {
            return Err(bad("frontendPort is 1–65534 and backendPort 1–65535".to_owned()));
        };
        if number("idleTimeoutInMinutes").is_some_and(|minutes| !(4..=30).contains(&minutes)) {
            return Err(bad("idleTimeoutInMinutes is 4–30".to_owned()));
        }
        for (part, reference) in [
            ("frontendIPConfigurations", "frontendIPConfiguration"),
            ("backendAddressPools", "backendAddressPool"),
        ] {
            let id = field(rule, reference).map(|reference| text(reference, "id")).unwrap_or_default();
            if !list(properties, part).iter().any(|item| text(item, "id").eq_ignore_ascii_case(id)) {
                return Err(Refusal::bad(
                    "InvalidResourceReference",
                    format!("rule {name}: {reference} {id:?} is not one of this load balancer"),
                ));
            }
        }
        if !frontends.insert((protocol.clone(), frontend_port)) {
            return Err(Refusal::bad("RulesUseSameFrontendPortProtocolAndIPConfig", format!("rule {name}")));
        }
        if !backends.insert((protocol, backend_port)) {
            return Err(Refusal::bad("RulesUseSameBackendPortProtocolAndPool", format!("rule {name}")));
        }
    }
    Ok(())
}
