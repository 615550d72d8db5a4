//! What is sent to an object, as it was read, to make it as it should be.

use std::net::IpAddr;

use clb_difftracker::Ip;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DynamicObject, Patch};
use serde_json::{Value, json};

use crate::objects::{Condition, ObjectRef, PROGRAMMED};

/// A patch.
pub(super) enum Edit {
    /// Of all but the status.
    Object(Patch<Value>),
    /// Of the status.
    Status(Patch<Value>),
}

impl Edit {
    /// Adds those finalizers that are missing; the others keep their order.
    pub(super) fn add_finalizers(metadata: &ObjectMeta, ours: &[&str]) -> Option<Self> {
        let held = metadata.finalizers.as_deref().unwrap_or_default();
        let missing: Vec<&str> =
            ours.iter().copied().filter(|ours| !held.iter().any(|held| held == ours)).collect();
        if missing.is_empty() {
            return None;
        }
        let whole: Vec<&str> = held.iter().map(String::as_str).chain(missing).collect();
        Some(finalizers(metadata, &whole))
    }

    /// Removes those finalizers that are there; the others keep their order.
    pub(super) fn remove_finalizers(metadata: &ObjectMeta, ours: &[&str]) -> Option<Self> {
        let held = metadata.finalizers.as_deref().unwrap_or_default();
        let others: Vec<&str> = held.iter().map(String::as_str).filter(|held| !ours.contains(held)).collect();
        (others.len() < held.len()).then(|| finalizers(metadata, &others))
    }

    /// Makes this the one IP of its family in a Service's status.
    pub(super) fn set_ingress(read: &DynamicObject, ip: Ip) -> Option<Self> {
        let held = entries(read, "/status/loadBalancer/ingress");
        let mut is_there = false;
        let mut wanted: Vec<Value> = Vec::new();
        for entry in held {
            match address(entry) {
                Some(address) if address == ip && !is_there => {
                    is_there = true;
                    wanted.push(entry.clone());
                }
                Some(address) if address.family() == ip.family() => wanted.extend(without_address(entry)),
                Some(_) | None => wanted.push(entry.clone()),
            }
        }
        if !is_there {
            wanted.push(json!({"ip": ip.to_string()}));
        }
        ingress(read, held, wanted)
    }

    /// Removes this IP from a Service's status, however it is spelled.
    pub(super) fn clear_ingress(read: &DynamicObject, ip: Ip) -> Option<Self> {
        let held = entries(read, "/status/loadBalancer/ingress");
        let is_it = |entry: &Value| address(entry) == Some(ip);
        let left = |entry: &Value| if is_it(entry) { without_address(entry) } else { Some(entry.clone()) };
        ingress(read, held, held.iter().filter_map(left).collect())
    }

    /// Makes this the object's condition of our type, and leaves those of other types alone.
    pub(super) fn condition(
        object: &ObjectRef,
        read: &DynamicObject,
        condition: &Condition,
        now: &Time,
    ) -> Option<Self> {
        let Condition { status, reason, message } = condition;
        let held = entries(read, "/status/conditions").iter().find(|held| held["type"] == PROGRAMMED);
        let says =
            |held: &Value, field: &str, wanted: &str| held[field].as_str().unwrap_or_default() == wanted;
        let is_kept = held.is_some_and(|held| says(held, "status", status.as_str()));
        if let Some(held) = held
            && is_kept
            && says(held, "reason", reason)
            && says(held, "message", message)
        {
            return None;
        }
        let since = held.map(|held| &held["lastTransitionTime"]).filter(|since| is_kept && since.is_string());
        let conditions = json!([{
            "type": PROGRAMMED, "status": status.as_str(), "reason": reason, "message": message,
            "lastTransitionTime": since.map_or_else(|| json!(now), Value::clone),
        }]);
        // No version as a precondition: nobody else writes this entry, and the server merges it with the others.
        let metadata = json!({"name": object.key().name, "uid": read.metadata.uid});
        let status = json!({"conditions": conditions});
        Some(Self::Status(match object {
            ObjectRef::Service { .. } => Patch::Apply(
                json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "status": status}),
            ),
            ObjectRef::Pod(_) => Patch::Strategic(json!({"metadata": metadata, "status": status})),
        }))
    }
}

/// What has to be as it was read for a list to be written whole.
fn preconditions(metadata: &ObjectMeta) -> Value {
    json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version})
}

fn finalizers(metadata: &ObjectMeta, whole: &[&str]) -> Edit {
    let mut patch = preconditions(metadata);
    patch["finalizers"] = if whole.is_empty() { Value::Null } else { json!(whole) };
    Edit::Object(Patch::Merge(json!({"metadata": patch})))
}

fn ingress(read: &DynamicObject, held: &[Value], wanted: Vec<Value>) -> Option<Edit> {
    if wanted == held {
        return None;
    }
    let wanted = if wanted.is_empty() { Value::Null } else { Value::Array(wanted) };
    let metadata = preconditions(&read.metadata);
    let patch = json!({"metadata": metadata, "status": {"loadBalancer": {"ingress": wanted}}});
    Some(Edit::Status(Patch::Merge(patch)))
}

fn entries<'a>(read: &'a DynamicObject, pointer: &str) -> &'a [Value] {
    read.data.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn address(entry: &Value) -> Option<Ip> {
    entry["ip"].as_str()?.parse::<IpAddr>().ok().map(Ip::from)
}

/// What is left of an entry whose IP goes: nothing, unless it is a host name too.
fn without_address(entry: &Value) -> Option<Value> {
    let mut left = entry.as_object().filter(|entry| entry.get("hostname").is_some_and(is_text))?.clone();
    left.remove("ip");
    // The server refuses a mode without an IP.
    left.remove("ipMode");
    Some(Value::Object(left))
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}
