//! Scale sets themselves, and how many machines they have.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::answer::{Refusal, Request, Response, field, text};
use super::super::json::{fill, merge, without};
use super::super::path::{Kind, Scope, last};
use super::super::resources::unique_id;
use super::super::state::{Azure, not_found};
use super::life::{Change, Life, Power};
use super::machine::MachineKey;
use super::model::complete_profile;
use super::{Subject, check_version, invalid, key, marked_for_deletion, object, read};

/// The fields that Azure writes.
const READ_ONLY: [&str; 4] = ["id", "name", "type", "etag"];
const READ_ONLY_PROPERTIES: [&str; 3] = ["provisioningState", "uniqueId", "timeCreated"];

/// Where its machines' interfaces are described.
pub(super) const NETWORK_PROFILE: &str = "/properties/virtualMachineProfile/networkProfile";

/// A scale set.
#[derive(Clone, Debug)]
pub(super) struct ScaleSet {
    pub(super) id: String,
    /// What was written and completed, without what Azure alone writes.
    pub(super) body: Value,
    pub(super) etag: u64,
    pub(super) life: Life,
    /// Which model it has; counted.
    pub(super) model: u64,
    /// The number of the next instance, or what the next member is called after.
    pub(super) next: u64,
    created: Duration,
    pub(super) unique: u64,
}

impl ScaleSet {
    pub(super) fn name(&self) -> &str {
        last(&self.id)
    }

    pub(super) fn is_flexible(&self) -> bool {
        let mode = self.body.pointer("/properties/orchestrationMode").and_then(Value::as_str);
        mode.is_some_and(|mode| mode.eq_ignore_ascii_case("Flexible"))
    }

    /// What its machines are made from, if it has such a thing.
    pub(super) fn profile(&self) -> Option<&Value> {
        field(self.body.get("properties")?, "virtualMachineProfile")
    }

    pub(super) fn location(&self) -> &str {
        text(&self.body, "location")
    }

    pub(super) fn sku(&self, name: &str) -> &str {
        field(&self.body, "sku").map(|sku| text(sku, name)).unwrap_or_default()
    }

    fn capacity(&self) -> Result<u64, Refusal> {
        let capacity = self.body.pointer("/sku/capacity").unwrap_or(&Value::Null);
        capacity.as_u64().ok_or_else(|| {
            invalid(
                "sku.capacity",
                format!("sku.capacity is {capacity}; it is a number that is not negative."),
            )
        })
    }

    /// Whether new models reach the instances by themselves.
    fn upgrades_by_itself(&self) -> bool {
        self.body.pointer("/properties/upgradePolicy/mode").and_then(Value::as_str) != Some("Manual")
    }

    /// Writes how many machines there are to be.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.body["sku"]["capacity"] = json!(capacity);
        self.etag += 1;
    }
}

impl Azure {
    pub(super) fn scale_set_body(&self, set: &ScaleSet) -> Value {
        let mut body = set.body.clone();
        let created = self.timestamp(set.created);
        let properties = &mut body["properties"];
        properties["provisioningState"] = json!(set.life.state());
        properties["uniqueId"] = unique_id(set.unique);
        properties["timeCreated"] = json!(created);
        if let Some(Value::Object(profile)) = properties.get_mut("virtualMachineProfile") {
            profile.insert("timeCreated".to_owned(), json!(created));
        }
        body["id"] = json!(set.id);
        body["name"] = json!(set.name());
        body["type"] = json!(Kind::ScaleSet.type_name());
        body["etag"] = json!(super::quoted(set.etag));
        body
    }

    pub(super) fn get_scale_set(&self, scope: Scope<'_>, name: &str) -> Result<Response, Refusal> {
        let set = self.compute.sets.get(&key(scope, Kind::ScaleSet, name));
        let set = set.ok_or_else(|| not_found(scope, Kind::ScaleSet, name))?;
        Ok(read(self.scale_set_body(set), set.etag))
    }

    pub(super) fn put_scale_set(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let key = key(scope, Kind::ScaleSet, name);
        let existing = self.compute.sets.get(&key);
        check_version(request, existing.map(|set| set.etag))?;
        let mut body = object(&request.body)?;
        if text(&request.body, "location").is_empty() {
            let message = "The location property is required for this definition.";
            return Err(Refusal::bad("LocationRequired", message).bare());
        }
        without(&mut body, &READ_ONLY);
        let body = Value::Object(body);
        if let Some(existing) = existing {
            if existing.life.is_deleting() {
                return Err(marked_for_deletion("Virtual Machine Scale Set", name));
            }
            return self.change_scale_set(request, &key, body);
        }
        let (id, body) = (scope.id(Kind::ScaleSet, name), complete(body)?);
        self.check_network(&id, body.pointer(NETWORK_PROFILE))?;
        let mut set = ScaleSet {
            id,
            body,
            etag: 1,
            life: Life::new(),
            model: 1,
            next: 0,
            created: self.now,
            unique: self.counter + 1,
        };
        if set.body.pointer("/sku/capacity").is_none() {
            set.body["sku"]["capacity"] = json!(0);
        }
        self.or_undone(|azure| {
            azure.counter += 1;
            azure.compute.sets.insert(key.clone(), set);
            let creation = azure.begin(Subject::Set(key.clone()), Change::Creating, None);
            let until = creation.max(azure.scale(&key)?);
            Ok(azure.answer_scale_set(request, 201, &key, until))
        })
    }

    pub(super) fn patch_scale_set(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let key = key(scope, Kind::ScaleSet, name);
        let set = self.compute.sets.get(&key).ok_or_else(|| not_found(scope, Kind::ScaleSet, name))?;
        check_version(request, Some(set.etag))?;
        if set.life.is_deleting() {
            return Err(marked_for_deletion("Virtual Machine Scale Set", name));
        }
        let mut patch = object(&request.body)?;
        without(&mut patch, &READ_ONLY);
        let mut body = set.body.clone();
        // Tags are replaced whole, as Azure Resource Manager does it.
        if let (Some(_), Some(body)) = (patch.get("tags"), body.as_object_mut()) {
            body.remove("tags");
        }
        merge(&mut body, &Value::Object(patch));
        self.change_scale_set(request, &key, body)
    }

    /// Writes another body to a scale set. If nothing is different, its ETag stays, as in the recorded traffic.
    fn change_scale_set(&mut self, request: &Request, key: &str, body: Value) -> Result<Response, Refusal> {
        let mut body = complete(body)?;
        let Some(set) = self.compute.sets.get(key) else { return Ok(Response::new(204, Value::Null)) };
        self.check_network(&set.id, body.pointer(NETWORK_PROFILE))?;
        let former = &set.body;
        if body.pointer("/sku/capacity").is_none() {
            body["sku"]["capacity"] = former["sku"]["capacity"].clone();
        }
        for fixed in ["/properties/orchestrationMode", "/location"] {
            if former.pointer(fixed) != body.pointer(fixed) {
                let message = format!("Changing property '{}' is not allowed.", last(fixed));
                return Err(Refusal::new(409, "PropertyChangeNotAllowed", message).bare());
            }
        }
        let differs = |pointer: &str| former.pointer(pointer) != body.pointer(pointer);
        let is_changed = *former != body;
        let is_new_model = differs("/properties/virtualMachineProfile") || differs("/sku/name");
        self.or_undone(|azure| {
            let mut upgrades = false;
            if let Some(set) = azure.compute.sets.get_mut(key) {
                set.body = body;
                set.etag += u64::from(is_changed);
                set.model += u64::from(is_new_model);
                upgrades = is_new_model && set.upgrades_by_itself();
            }
            let update = azure.begin(Subject::Set(key.to_owned()), Change::Updating, None);
            let mut until = update.max(azure.scale(key)?);
            if upgrades {
                let machines: Vec<MachineKey> =
                    azure.compute.machines_of(key).map(|(key, _)| key.clone()).collect();
                until = until.max(azure.upgrade(&machines)?);
            }
            Ok(azure.answer_scale_set(request, 200, key, until))
        })
    }

    /// Does something whole or not at all.
    fn or_undone<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let before = self.clone();
        act(self).inspect_err(|_| *self = before)
    }

    /// The answer to a write of a scale set that goes on until then.
    fn answer_scale_set(&mut self, request: &Request, status: u16, key: &str, until: Duration) -> Response {
        let subject = Subject::Set(key.to_owned());
        if let Some(life) = self.compute.life(&subject) {
            let until = life.begin(Change::Updating, until, None);
            self.compute.agenda.add(until, subject);
        }
        let Some(set) = self.compute.sets.get(key) else { return Response::new(status, Value::Null) };
        let (etag, body) = (set.etag, self.scale_set_body(set));
        self.begun(request, status, etag, body, until)
    }

    pub(super) fn delete_scale_set(
        &mut self,
        request: &Request,
        scope: Scope<'_>,
        name: &str,
    ) -> Result<Response, Refusal> {
        let key = key(scope, Kind::ScaleSet, name);
        let Some(set) = self.compute.sets.get(&key) else { return Ok(Response::new(204, Value::Null)) };
        check_version(request, Some(set.etag))?;
        let machines: Vec<MachineKey> = self.compute.machines_of(&key).map(|(key, _)| key.clone()).collect();
        for machine in machines {
            self.begin(Subject::Machine(machine), Change::Deleting, None);
        }
        let until = self.begin(Subject::Set(key), Change::Deleting, None);
        Ok(self.accepted(request, until))
    }

    /// Makes as many machines as the capacity says, or lets the youngest go. Says when that is done.
    fn scale(&mut self, key: &str) -> Result<Duration, Refusal> {
        let Some(set) = self.compute.sets.get(key) else { return Ok(self.now) };
        let wanted = set.capacity()?;
        let mut present: Vec<(u64, MachineKey)> = self
            .compute
            .machines_of(key)
            .filter(|(_, machine)| !machine.life.is_deleting())
            .map(|(key, machine)| (machine.number, key.clone()))
            .collect();
        present.sort_unstable();
        let mut until = self.now;
        let is_flexible = set.is_flexible();
        let has_profile = set.profile().is_some();
        let mut count = u64::try_from(present.len()).unwrap_or(u64::MAX);
        while count < wanted {
            if !has_profile {
                let message = "Required parameter 'virtualMachineProfile' is missing (null).";
                return Err(invalid("virtualMachineProfile", message));
            }
            let machine = if is_flexible { self.make_member(key)? } else { self.make_instance(key)? };
            until = until.max(self.begin(Subject::Machine(machine), Change::Creating, Some(Power::Running)));
            count += 1;
        }
        while count > wanted {
            let Some((_, machine)) = present.pop() else { break };
            until = until.max(self.begin(Subject::Machine(machine), Change::Deleting, None));
            count -= 1;
        }
        Ok(until)
    }
}

/// Completes the body of a scale set with what Azure adds.
fn complete(mut body: Value) -> Result<Value, Refusal> {
    let properties = body.get("properties").cloned().unwrap_or_else(|| json!({}));
    let mut properties = Value::Object(object(&properties)?);
    if let Some(map) = properties.as_object_mut() {
        without(map, &READ_ONLY_PROPERTIES);
    }
    fill(&mut properties, json!({"orchestrationMode": "Uniform"}));
    let is_flexible = match text(&properties, "orchestrationMode") {
        mode if mode.eq_ignore_ascii_case("Flexible") => true,
        mode if mode.eq_ignore_ascii_case("Uniform") => false,
        mode => return Err(invalid("orchestrationMode", format!("orchestrationMode is {mode:?}."))),
    };
    if is_flexible {
        fill(&mut properties, json!({"singlePlacementGroup": false, "platformFaultDomainCount": 1}));
    } else {
        fill(
            &mut properties,
            json!({
                "singlePlacementGroup": true, "platformFaultDomainCount": 5, "overprovision": true,
                "doNotRunExtensionsOnOverprovisionedVMs": false, "upgradePolicy": {"mode": "Manual"}
            }),
        );
        if let Some(policy) = properties.pointer_mut("/upgradePolicy/automaticOSUpgradePolicy") {
            fill(policy, json!({"useRollingUpgradePolicy": false}));
        }
    }
    if let Some(profile) = properties.get_mut("virtualMachineProfile").filter(|profile| profile.is_object()) {
        complete_profile(profile);
        if let Some(map) = profile.as_object_mut() {
            without(map, &["timeCreated"]);
        }
    }
    body["properties"] = properties;
    if field(&body, "sku").is_none() {
        body["sku"] = Value::Object(Map::new());
    }
    if !text(&body["sku"], "name").is_empty() {
        fill(&mut body["sku"], json!({"tier": "Standard"}));
    }
    Ok(body)
}
