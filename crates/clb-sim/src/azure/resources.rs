//! What all resources have in common: how they are read, written and removed.

use serde_json::{Map, Value, json};

use super::answer::{Refusal, Request, Response, field, text};
use super::compute::{check_interface_is_free, stamp_interface};
use super::json::fill;
use super::load_balancer::CHILDREN;
use super::path::{Kind, Scope, last};
use super::state::{Azure, Completion, not_found};

/// A resource as it is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource(Map<String, Value>);

impl Resource {
    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    pub(super) fn into_fields(self) -> Map<String, Value> {
        self.0
    }

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

    pub(super) fn property(&self, name: &str) -> Option<&Value> {
        field(self.0.get("properties")?, name)
    }

    /// The name of its SKU.
    pub(super) fn sku(&self) -> &str {
        self.0.get("sku").map(|sku| text(sku, "name")).unwrap_or_default()
    }

    fn etag(&self) -> &str {
        self.0.get("etag").and_then(Value::as_str).unwrap_or_default()
    }
}

impl Azure {
    pub(super) fn get(&self, scope: Scope<'_>, kind: Kind, name: &str) -> Result<Response, Refusal> {
        let resource = self.existing(scope, kind, name).ok_or_else(|| not_found(scope, kind, name))?;
        let etag = resource.etag().to_owned();
        Ok(Response::new(200, self.shown(kind, &resource)).with_header("etag", etag))
    }

    /// A resource, the ServiceGateway that is there from the start included.
    pub(super) fn existing(&self, scope: Scope<'_>, kind: Kind, name: &str) -> Option<Resource> {
        if kind == Kind::ServiceGateway {
            return self.service_gateway(scope, name);
        }
        self.resource(kind, &scope.id(kind, name)).cloned()
    }

    /// A resource as it is read, with what others make of it.
    pub(super) fn shown(&self, kind: Kind, resource: &Resource) -> Value {
        let mut body = resource.body();
        match kind {
            Kind::LoadBalancer => self.fill_pools(&mut body),
            Kind::ServiceGateway => {
                let holds_services = self.holds_services(last(resource.id()));
                let services = if holds_services { self.gateway.services_body() } else { Vec::new() };
                body["properties"]["services"] = Value::Array(services);
            }
            Kind::PublicIp
            | Kind::NatGateway
            | Kind::NetworkInterface
            | Kind::ScaleSet
            | Kind::VirtualMachine => {}
        }
        body
    }

    pub(super) fn resource(&self, kind: Kind, id: &str) -> Option<&Resource> {
        self.resources.get(&(kind, id.to_ascii_lowercase()))
    }

    pub(super) fn put(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        kind: Kind,
        name: &str,
    ) -> Result<Response, Refusal> {
        let existing = self.existing(scope, kind, name);
        // The spelling of the first PUT stays.
        let id = existing.as_ref().map_or_else(|| scope.id(kind, name), |existing| existing.id().to_owned());
        check_etag(request, &id, existing.as_ref())?;
        let Value::Object(mut body) = request.body.clone() else {
            return Err(Refusal::bad("InvalidRequestContent", "the body is not a JSON object"));
        };
        if text(&request.body, "location").is_empty() {
            return Err(Refusal::bad("LocationRequired", format!("the location of {id} is missing")));
        }
        let mut properties = match body.remove("properties") {
            None => Map::new(),
            Some(Value::Object(properties)) => properties,
            Some(other) => return Err(Refusal::malformed(format!("the properties of {id} are {other}"))),
        };
        properties.insert("provisioningState".to_owned(), json!("Succeeded"));
        match kind {
            Kind::PublicIp => self.check_public_ip(&id, &mut body, &mut properties, existing.as_ref())?,
            Kind::LoadBalancer => {
                self.check_load_balancer(&id, &request.body, &mut properties, existing.as_ref())?;
            }
            Kind::NatGateway => {
                self.check_nat_gateway(&id, &request.body, &mut properties, existing.as_ref())?;
            }
            Kind::ServiceGateway => Self::check_service_gateway(&id, name, &request.body)?,
            Kind::NetworkInterface => self.check_interface(&id, &mut properties, existing.as_ref())?,
            Kind::ScaleSet | Kind::VirtualMachine => {}
        }
        if matches!(kind, Kind::PublicIp | Kind::LoadBalancer | Kind::NatGateway) {
            let guid = existing.as_ref().and_then(|existing| existing.property("resourceGuid").cloned());
            properties.insert("resourceGuid".to_owned(), guid.unwrap_or_else(|| unique_id(self.counter + 1)));
        }
        body.insert("properties".to_owned(), Value::Object(properties));
        if let Some(sku) = body.get_mut("sku") {
            fill(sku, json!({"tier": "Regional"}));
        }
        let mut answer = self.store(kind, &id, body);
        let status = if existing.is_some() { 200 } else { 201 };
        if kind == Kind::NetworkInterface {
            return Ok(Response::new(status, answer));
        }
        let is_updating = match self.config.completion {
            Completion::Immediate => false,
            Completion::Polled => true,
            Completion::Recorded => existing.is_none() && kind != Kind::LoadBalancer,
        };
        if is_updating {
            answer["properties"]["provisioningState"] = json!("Updating");
            if let (Kind::PublicIp, None, Some(properties)) =
                (kind, &existing, answer["properties"].as_object_mut())
            {
                properties.remove("ipAddress");
            }
        }
        let until = if kind == Kind::PublicIp { self.provisioned_at(&id) } else { self.now };
        let operation = self.operation_until(request, until);
        Ok(Response::new(status, answer)
            .with_header("azure-asyncoperation", operation.status)
            .with_header("azure-asyncnotification", "Enabled"))
    }

    /// Writes a resource that has been checked, and gives it what every one has.
    pub(super) fn store(&mut self, kind: Kind, id: &str, mut body: Map<String, Value>) -> Value {
        self.counter += 1;
        let etag = format!("W/\"{:08}\"", self.counter);
        if kind == Kind::NetworkInterface {
            stamp_interface(&mut body);
            stamp_parts(&mut body, &["ipConfigurations"], &etag);
        } else if kind == Kind::LoadBalancer {
            stamp_parts(&mut body, &CHILDREN, &etag);
        }
        let fields = [
            ("name", json!(last(id))),
            ("type", json!(kind.type_name())),
            ("etag", json!(etag)),
            ("id", json!(id)),
        ];
        body.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        let resource = Resource(body);
        let answer = self.shown(kind, &resource);
        self.resources.insert((kind, resource.key()), resource);
        answer
    }

    pub(super) fn delete(&mut self, request: &Request, id: &str, kind: Kind) -> Result<Response, Refusal> {
        let Some(resource) = self.resource(kind, id) else { return Ok(Response::new(204, Value::Null)) };
        check_etag(request, resource.id(), Some(resource))?;
        match kind {
            Kind::PublicIp => self.check_public_ip_is_free(resource.id())?,
            Kind::LoadBalancer => self.check_load_balancer_is_free(resource)?,
            Kind::NatGateway => self.check_nat_gateway_is_free(resource)?,
            Kind::NetworkInterface => check_interface_is_free(resource)?,
            Kind::ServiceGateway | Kind::ScaleSet | Kind::VirtualMachine => {}
        }
        let key = resource.key();
        self.remove(kind, &key);
        let status = match self.config.completion {
            // Recorded traffic has it that the interface is still being deleted then.
            Completion::Immediate | Completion::Recorded if kind == Kind::NetworkInterface => 200,
            Completion::Immediate => return Ok(Response::new(200, Value::Null)),
            Completion::Polled | Completion::Recorded => 202,
        };
        Ok(self.deleting(request, status))
    }

    /// Removes a resource by its key, with what it holds.
    pub(super) fn remove(&mut self, kind: Kind, key: &str) {
        let Some(resource) = self.resources.remove(&(kind, key.to_owned())) else { return };
        if kind == Kind::NetworkInterface {
            self.release_addresses(&resource);
        }
        if kind == Kind::PublicIp {
            self.unprovisioned.retain(|(_, waiting)| waiting != key);
        }
    }

    /// The answer to a DELETE that is an operation.
    pub(super) fn deleting(&mut self, request: &Request, status: u16) -> Response {
        let operation = self.operation_until(request, self.now);
        Response::new(status, Value::Null)
            .with_header("azure-asyncoperation", operation.status)
            .with_header("location", operation.result)
            .with_header("azure-asyncnotification", "Enabled")
    }
}

pub(super) fn check_etag(request: &Request, id: &str, existing: Option<&Resource>) -> Result<(), Refusal> {
    let Some(wanted) = &request.if_match else { return Ok(()) };
    if existing.is_some_and(|existing| wanted == "*" || wanted == existing.etag()) {
        return Ok(());
    }
    let quoted = |etag: &str| format!("W/\"{}\"", etag.trim_start_matches("W/").trim_matches('"'));
    let held = existing.map_or_else(|| "of none".to_owned(), |existing| quoted(existing.etag()));
    let message = format!(
        "Etag provided in if-match header {} does not match etag {held} of resource {id} in NRP data store.",
        quoted(wanted)
    );
    Err(Refusal::new(412, "PreconditionFailed", "Precondition failed.")
        .with_detail("PreconditionFailedEtagMismatch", message))
}

/// The name of the SKU that a body asks for, empty if there is none.
pub(super) fn sku(body: &Value) -> &str {
    field(body, "sku").map(|sku| text(sku, "name")).unwrap_or_default()
}

/// Gives the parts of a resource its version.
fn stamp_parts(body: &mut Map<String, Value>, lists: &[&str], etag: &str) {
    let Some(Value::Object(properties)) = body.get_mut("properties") else { return };
    for list in lists {
        for part in properties.get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten() {
            part["etag"] = json!(etag);
        }
    }
}

/// A text that looks like a unique id, and is one.
pub(super) fn unique_id(number: u64) -> Value {
    json!(format!("00000000-0000-4000-8000-{number:012x}"))
}

/// The refusal of what is below a resource that is not there.
pub(super) fn parent_not_found(scope: Scope<'_>, kind: Kind, name: &str, part: &str) -> Refusal {
    let message = format!(
        "Failed to perform 'read' on resource(s) of type '{}/{part}', because the parent resource '{}' could not be \
         found.",
        kind.segment(),
        scope.id(kind, name)
    );
    Refusal::new(404, "ParentResourceNotFound", message).bare()
}
