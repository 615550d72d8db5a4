//! What objects must be.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cluster::Key;
use super::kind::Kind;
use super::status::{Cause, Refusal};

/// The finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Refuses a name that is none.
pub(super) fn name(kind: Kind, name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(Refusal::invalid(kind, name, &[cause]));
    }
    // Services have shorter names without dots; all others are DNS subdomains.
    let (is_label, longest) = match kind {
        Kind::Service | Kind::Namespace => (true, 63),
        Kind::Node | Kind::Pod | Kind::EndpointSlice | Kind::Event | Kind::Lease => (false, 253),
    };
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_inner = |c: char| is_edge(c) || c == '-' || (c == '.' && !is_label);
    if name.len() <= longest
        && name.chars().all(is_inner)
        && name.starts_with(is_edge)
        && name.ends_with(is_edge)
    {
        return Ok(());
    }
    let why = if is_label {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
         an alphanumeric character"
    } else {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
         end with an alphanumeric character"
    };
    Err(Refusal::invalid(kind, name, &[Cause::invalid("metadata.name", &json!(name), why)]))
}

/// Refuses another object's identity in a new form of an object.
pub(super) fn identity((kind, _, name): &Key, new: &Value, old: &Value) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    for field in ["name", "uid"] {
        let said = &new["metadata"][field];
        if !said.is_null() && *said != old["metadata"][field] {
            let cause = Cause::invalid(format!("metadata.{field}"), said, "field is immutable");
            // The real server looks at the metadata twice.
            causes.extend([cause.clone(), cause]);
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(*kind, name, &causes)) }
}

/// The refusal of an update that does not say which version it is of.
pub(super) fn version_missing(kind: Kind, name: &str) -> Refusal {
    let cause = Cause::invalid("metadata.resourceVersion", &json!(""), "must be specified for an update");
    Refusal::invalid(kind, name, &[cause])
}

/// Refuses an object that may not be, after one that may have been before.
pub(super) fn object((kind, _, name): &Key, new: &Value, old: Option<&Value>) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    finalizers(new, old, &mut causes);
    match kind {
        Kind::Service => service(new, old, &mut causes),
        Kind::EndpointSlice => endpoint_slice(new, old, &mut causes),
        Kind::Namespace | Kind::Node | Kind::Pod | Kind::Event | Kind::Lease => {}
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(*kind, name, &causes)) }
}

fn finalizers(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let finalizers = list(new, "/metadata/finalizers");
    for (at, finalizer) in finalizers.iter().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        let is_qualified =
            text.split_once('/').is_some_and(|(domain, name)| !domain.is_empty() && !name.is_empty());
        if !is_qualified && !STANDARD_FINALIZERS.contains(&text) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{at}]"), finalizer, why));
        }
    }
    let Some(old) = old.filter(|old| old.pointer("/metadata/deletionTimestamp").is_some()) else { return };
    let held = list(old, "/metadata/finalizers");
    let added: Vec<String> =
        finalizers.iter().filter(|finalizer| !held.contains(finalizer)).map(Value::to_string).collect();
    if !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        let cause = Cause::forbidden("metadata.finalizers", &why);
        causes.extend([cause.clone(), cause]);
    }
}

/// Refuses families that no address can be allocated from, which comes before anything else is looked at.
pub(super) fn families(kind: Kind, name: &str, new: &Value) -> Result<(), Refusal> {
    if kind != Kind::Service {
        return Ok(());
    }
    let families = ["IPv4", "IPv6"];
    let causes: Vec<Cause> = list(new, "/spec/ipFamilies")
        .iter()
        .enumerate()
        .filter(|(_, family)| !families.iter().any(|known| family == known))
        .map(|(at, family)| Cause::unsupported(format!("spec.ipFamilies[{at}]"), family, &families))
        .collect();
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind, name, &causes)) }
}

fn service(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let said = &new["spec"]["type"];
    if !types.iter().any(|known| said == known) {
        causes.push(Cause::unsupported("spec.type", said, &types));
    }
    let ports = list(new, "/spec/ports");
    if ports.is_empty() && said != "ExternalName" && new["spec"]["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    let mut seen = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{at}]");
        if !port["port"].as_u64().is_some_and(|number| (1..=65_535).contains(&number)) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(format!("{field}.port"), &port["port"], why));
        }
        if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if !protocols.iter().any(|known| port["protocol"] == *known) {
            causes.push(Cause::unsupported(format!("{field}.protocol"), &port["protocol"], &protocols));
        }
        if !seen.insert((port["protocol"].to_string(), port["port"].to_string())) {
            causes.push(Cause::invalid(field, port, "Duplicate value"));
        }
    }
    let Some(old) = old else { return };
    let held = &old["spec"]["clusterIPs"];
    let becomes = &new["spec"]["clusterIPs"];
    if said != "ExternalName" && !held.is_null() && held[0] != becomes[0] {
        causes.push(Cause::invalid("spec.clusterIPs[0]", becomes, "may not change once set"));
    }
}

fn endpoint_slice(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let types = ["FQDN", "IPv4", "IPv6"];
    if !types.iter().any(|known| new["addressType"] == *known) {
        causes.push(Cause::unsupported("addressType", &new["addressType"], &types));
    }
    if old.is_some_and(|old| old["addressType"] != new["addressType"]) {
        causes.push(Cause::invalid("addressType", &new["addressType"], "field is immutable"));
    }
}
