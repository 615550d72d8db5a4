//! ServiceGateways as resources, and tags.
//!
//! The one that the configuration names is in every group from the start, and is the one that holds services. Others can be
//! made, read, tagged and removed; they hold nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::answer::{Refusal, Request, Response, field};
use super::gateway::Gateway;
use super::path::{Kind, Scope};
use super::resources::{Resource, check_etag, sku};
use super::state::{Azure, not_found};

impl Azure {
    /// Whether a name is that of the ServiceGateway that holds services, and it is there.
    pub(super) fn holds_services(&self, name: &str) -> bool {
        !self.gateway.is_gone && name.eq_ignore_ascii_case(&self.config.service_gateway)
    }

    /// A ServiceGateway: one that was written, or the one that is there from the start.
    pub(super) fn service_gateway(&self, scope: Scope<'_>, name: &str) -> Option<Resource> {
        let stored = self.resource(Kind::ServiceGateway, &scope.id(Kind::ServiceGateway, name)).cloned();
        stored.or_else(|| self.holds_services(name).then(|| self.provisioned(scope)))
    }

    /// The ServiceGateway that is there from the start.
    fn provisioned(&self, scope: Scope<'_>) -> Resource {
        let name = &self.config.service_gateway;
        let fields = [
            ("id", json!(scope.id(Kind::ServiceGateway, name))),
            ("name", json!(name)),
            ("type", json!("Microsoft.Network/serviceGateways")),
            ("location", json!("eastus")),
            ("etag", json!("W/\"00000000\"")),
            ("sku", json!({"name": "Standard", "tier": "Regional"})),
            ("properties", json!({"provisioningState": "Succeeded"})),
        ];
        Resource::new(fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
    }

    /// The ServiceGateways of a group.
    pub(super) fn service_gateways(&self, scope: Scope<'_>) -> Vec<Value> {
        let all = self.below(Kind::ServiceGateway, &scope.id(Kind::ServiceGateway, ""));
        let mut all: Vec<Value> = all.map(|one| self.shown(Kind::ServiceGateway, one)).collect();
        let name = &self.config.service_gateway;
        let is_stored = self.resource(Kind::ServiceGateway, &scope.id(Kind::ServiceGateway, name)).is_some();
        if !is_stored && self.holds_services(name) {
            all.push(self.shown(Kind::ServiceGateway, &self.provisioned(scope)));
        }
        all
    }

    /// The ServiceGateways of a subscription: those of every group in which there is anything.
    pub(super) fn all_service_gateways(&self, subscription: &str) -> Vec<Value> {
        let mut groups: BTreeMap<String, Scope<'_>> = BTreeMap::new();
        for resource in self.resources.values() {
            let segments: Vec<&str> = resource.id().split('/').collect();
            if let ["", _, of, _, group, ..] = segments[..]
                && of.eq_ignore_ascii_case(subscription)
            {
                groups.entry(group.to_ascii_lowercase()).or_insert(Scope { subscription: of, group });
            }
        }
        groups.into_values().flat_map(|scope| self.service_gateways(scope)).collect()
    }

    /// Checks a ServiceGateway that is to be written.
    pub(super) fn check_service_gateway(id: &str, name: &str, body: &Value) -> Result<(), Refusal> {
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(Refusal::bad(
                "InvalidResourceName",
                format!("{name:?} is no name of a ServiceGateway"),
            ));
        }
        let sku = sku(body);
        if sku != "Standard" {
            let message = format!("the SKU of {id} is {sku:?}; that of a ServiceGateway is \"Standard\"");
            return Err(Refusal::bad("InvalidSku", message));
        }
        Ok(())
    }

    pub(super) fn put_service_gateway(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let response = self.put(request, scope, Kind::ServiceGateway, name)?;
        if name.eq_ignore_ascii_case(&self.config.service_gateway) {
            self.gateway.is_gone = false;
        }
        Ok(response)
    }

    pub(super) fn delete_service_gateway(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let Some(existing) = self.service_gateway(scope, name) else {
            return Ok(Response::new(204, Value::Null));
        };
        let id = existing.id();
        check_etag(request, id, Some(&existing))?;
        // The one that holds services is the same in every group.
        let holds_services = self.holds_services(name);
        let is_it = |other: &str| {
            let named = other.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(name));
            other.eq_ignore_ascii_case(id) || (holds_services && named)
        };
        if let Some(user) = self.nat_gateways().find(|user| user.service_gateway().is_some_and(is_it)) {
            let user = user.id();
            let message = format!("Service gateway {id} can not be deleted since it is in use by {user}.");
            return Err(Refusal::bad("InUseServiceGatewayCannotBeDeleted", message));
        }
        self.resources.retain(|(kind, other), _| *kind != Kind::ServiceGateway || !is_it(other));
        if holds_services {
            self.gateway = Gateway::gone();
        }
        // So it was recorded, and official clients take nothing else.
        Ok(self.deleting(request, 202))
    }

    /// Sets the tags of a resource in place of those that it has.
    pub(super) fn update_tags(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        kind: Kind,
        name: &str,
    ) -> Result<Response, Refusal> {
        let existing = self.existing(scope, kind, name).ok_or_else(|| not_found(scope, kind, name))?;
        check_etag(request, existing.id(), Some(&existing))?;
        let tags = field(&request.body, "tags").and_then(Value::as_object);
        let tags = tags.filter(|tags| tags.values().all(Value::is_string));
        let Some(tags) = tags else {
            return Err(Refusal::malformed(format!("the tags of {} are texts by name", existing.id())));
        };
        let id = existing.id().to_owned();
        let mut body: Map<String, Value> = existing.into_fields();
        body.insert("tags".to_owned(), json!(tags));
        Ok(Response::new(200, self.store(kind, &id, body)))
    }

    /// Whether an id is that of a ServiceGateway.
    pub(super) fn is_service_gateway(&self, id: &str) -> bool {
        let segments: Vec<&str> = id.split('/').collect();
        let ["", _, subscription, _, group, _, provider, kind, name] = segments[..] else { return false };
        provider.eq_ignore_ascii_case("Microsoft.Network")
            && kind.eq_ignore_ascii_case(Kind::ServiceGateway.segment())
            && self.service_gateway(Scope { subscription, group }, name).is_some()
    }
}
