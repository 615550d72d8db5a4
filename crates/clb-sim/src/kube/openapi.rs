//! As much of the OpenAPI documents as `kubectl` asks for before it applies: whether the server checks fields itself.

use serde_json::{Map, Value, json};

use super::kind::Kind;

fn group_path(group: &str) -> String {
    if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") }
}

/// The document of a path below `/openapi/v3`, if there is one.
pub(super) fn document(path: &[&str]) -> Option<Value> {
    let groups = || Kind::ALL.iter().map(|kind| kind.group());
    if path.is_empty() {
        let entry = |group: &str| {
            let path = group_path(group);
            (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}))
        };
        return Some(json!({"paths": groups().map(entry).collect::<Map<_, _>>()}));
    }
    let wanted = path.join("/");
    let group = groups().find(|group| group_path(group) == wanted)?;
    let paths: Map<String, Value> =
        Kind::ALL.into_iter().filter(|kind| kind.group() == group).map(operations).collect();
    Some(json!({"openapi": "3.0.0", "info": {"title": "clb-sim", "version": "v1.33.0"}, "paths": paths}))
}

/// What can be asked about an object of a kind, reduced to the parameter that says who checks its fields.
fn operations(kind: Kind) -> (String, Value) {
    let within = if kind.is_namespaced() { "namespaces/{namespace}/" } else { "" };
    let path = format!("/{}/{within}{}/{{name}}", group_path(kind.group()), kind.resource());
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["dryRun", "fieldManager", "fieldValidation", "force"].map(query);
    let patch = json!({
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group(), "version": "v1", "kind": kind.name()}
    });
    (path, json!({"patch": patch}))
}
