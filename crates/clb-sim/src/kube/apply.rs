//! Server-side apply: who owns which fields, and what an applied configuration makes of an object.

use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Cluster, Key, Request};
use super::fields::{FieldSet, Path, overlay};
use super::kind::Kind;
use super::list::whole;
use super::status::Refusal;
use super::write::{Identity, Managed, check_fields, read};

/// Who owns the fields of an object that nobody has applied before, as a real server calls it.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
struct Owner {
    manager: String,
    is_apply: bool,
    is_status: bool,
    time: Value,
    fields: FieldSet,
}

impl Owner {
    fn is(&self, manager: &str, is_apply: bool, is_status: bool) -> bool {
        self.manager == manager && self.is_apply == is_apply && self.is_status == is_status
    }
}

fn owners(object: &Value) -> Vec<Owner> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let owner = |entry: &Value| Owner {
        manager: entry["manager"].as_str().unwrap_or_default().to_owned(),
        is_apply: entry["operation"] == "Apply",
        is_status: entry["subresource"] == "status",
        time: entry["time"].clone(),
        fields: FieldSet::from_json(&entry["fieldsV1"]),
    };
    entries.iter().map(owner).collect()
}

fn written(kind: Kind, owners: &[Owner]) -> Value {
    let entry = |owner: &Owner| {
        let operation = if owner.is_apply { "Apply" } else { "Update" };
        let mut entry = json!({"manager": owner.manager, "operation": operation, "apiVersion": kind.api_version(),
            "time": owner.time, "fieldsType": "FieldsV1", "fieldsV1": owner.fields.to_json()});
        if owner.is_status {
            entry["subresource"] = json!("status");
        }
        entry
    };
    owners.iter().filter(|owner| !owner.fields.is_empty()).map(entry).collect()
}

/// Gives these fields to an owner, whose time is now if that changes what it has.
fn give(
    owners: &mut Vec<Owner>,
    manager: &str,
    is_apply: bool,
    is_status: bool,
    fields: FieldSet,
    now: &str,
) {
    match owners.iter_mut().find(|owner| owner.is(manager, is_apply, is_status)) {
        Some(owner) if owner.fields == fields => {}
        Some(owner) => {
            owner.fields = fields;
            owner.time = json!(now);
        }
        None => {
            let manager = manager.to_owned();
            owners.push(Owner { manager, is_apply, is_status, time: json!(now), fields });
        }
    }
}

/// What `managedFields` says after an update: whoever changes a field owns it, and alone. Only objects that somebody has
/// applied say who owns what.
pub(super) fn after_update(
    kind: Kind,
    old: &Value,
    new: &Value,
    (manager, is_status): (&str, bool),
    now: &str,
) -> Value {
    let mut owners = owners(old);
    if owners.is_empty() {
        return Value::Null;
    }
    let all = FieldSet::of(new, is_status);
    let changed: Vec<Path> = all.iter().filter(|path| path.differs(old, new)).cloned().collect();
    for owner in owners.iter_mut().filter(|owner| owner.is_status == is_status) {
        let is_it = owner.is(manager, false, is_status);
        owner.fields.retain(|path| path.get(new).is_some() && (is_it || !changed.contains(path)));
    }
    if !changed.is_empty() {
        let held = owners.iter().find(|owner| owner.is(manager, false, is_status));
        let mut fields = held.map(|owner| owner.fields.clone()).unwrap_or_default();
        changed.into_iter().for_each(|path| fields.insert(path));
        give(&mut owners, manager, false, is_status, fields, now);
    }
    written(kind, &owners)
}

impl Cluster {
    /// Applies a configuration: what it says is so, and what its manager no longer says goes, unless others own it.
    pub(super) fn apply(
        &mut self,
        key: &Key,
        request: &Request,
        is_status: bool,
        is_dry: bool,
    ) -> Result<(u16, Value), Refusal> {
        let (kind, namespace, name) = key;
        let manager = request.parameter("fieldManager");
        if manager.is_empty() {
            return Err(Refusal::no_field_manager());
        }
        check_fields(*kind, request, &request.body)?;
        let mut applied = read(*kind, request.body.clone())?;
        let said = applied["metadata"]["name"].as_str().unwrap_or_default();
        if said != name {
            let message =
                format!("the name of the object ({said}) does not match the name on the URL ({name})");
            return Err(Refusal::bad_request(message));
        }
        let fields = FieldSet::of(&applied, is_status);
        let now = self.timestamp(Duration::ZERO);
        let Some(old) = self.objects.get(key).cloned() else {
            if is_status {
                return Err(Refusal::not_found(*kind, name));
            }
            let mut owners = Vec::new();
            give(&mut owners, manager, true, false, fields, &now);
            applied["metadata"]["managedFields"] = written(*kind, &owners);
            let namespace = kind.is_namespaced().then_some(namespace.as_str());
            let created = self.create_object(*kind, namespace, applied, Identity::New, is_dry)?;
            return Ok((201, whole(*kind, &created)));
        };
        let mut owners = owners(&old);
        if owners.is_empty() {
            for is_status in [false, true] {
                give(&mut owners, BEFORE_FIRST_APPLY, false, is_status, FieldSet::of(&old, is_status), &now);
            }
        }
        let is_forced = request.is_set("force");
        let mut conflicts = Vec::new();
        for owner in owners.iter_mut().filter(|owner| !owner.is(manager, true, is_status)) {
            let is_contested = |path: &Path| fields.contains(path) && path.differs(&old, &applied);
            if is_forced {
                owner.fields.retain(|path| !is_contested(path));
            } else {
                let contested = owner.fields.iter().filter(|path| is_contested(path));
                conflicts.extend(contested.map(|path| (owner.manager.clone(), path.shown())));
            }
        }
        if !conflicts.is_empty() {
            return Err(Refusal::apply_conflict(*kind, &conflicts));
        }
        let mut new = old.as_ref().clone();
        if let Some(former) = owners.iter().find(|owner| owner.is(manager, true, is_status)) {
            let mut gone = former.fields.clone();
            let others = || owners.iter().filter(|owner| !owner.is(manager, true, is_status));
            gone.retain(|path| !fields.reaches(path) && !others().any(|owner| owner.fields.reaches(path)));
            gone.remove_from(&mut new);
        }
        overlay(&mut new, &applied);
        give(&mut owners, manager, true, is_status, fields, &now);
        let managed = Managed::As(written(*kind, &owners));
        let updated = self.update(key, &old, new, managed, (is_status, is_dry))?;
        Ok((200, updated))
    }
}
