//! Server-side apply, as `kube` and `kubectl` ask for it.

use std::time::Duration;

use clb_sim::kube::{Answer, Cluster, ClusterConfig, Request};
use serde_json::{Value, json};

const PATH: &str = "/api/v1/namespaces/default/services/web";

fn send(cluster: &mut Cluster, content_type: &str, query: &[(&str, &str)], body: Value) -> (u16, Value) {
    let request = Request {
        method: "PATCH".to_owned(),
        path: PATH.to_owned(),
        query: query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        content_type: content_type.to_owned(),
        body,
        ..Request::default()
    };
    match cluster.handle(&request, Duration::from_secs(1)) {
        Answer::Body { status, body } => (status, body),
        Answer::Watch(watch) => panic!("{watch:?}"),
    }
}

fn apply(cluster: &mut Cluster, manager: &str, body: Value) -> (u16, Value) {
    send(cluster, "application/apply-patch+yaml", &[("fieldManager", manager)], body)
}

fn merge(cluster: &mut Cluster, manager: &str, body: Value) -> Value {
    let (status, body) = send(cluster, "application/merge-patch+json", &[("fieldManager", manager)], body);
    assert_eq!(status, 200, "{body}");
    body
}

fn web(labels: Value, ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": labels},
        "spec": {"selector": {"app": "web"}, "ports": ports}})
}

fn cluster() -> Cluster {
    Cluster::new(ClusterConfig::default())
}

/// What a manager owns.
fn owned(object: &Value, manager: &str, operation: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == manager && entry["operation"] == operation);
    entry.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
}

#[test]
fn what_is_applied_first_is_created_and_owned() {
    let mut cluster = cluster();
    let (status, created) = apply(&mut cluster, "me", web(json!({"a": "1"}), json!([{"port": 80}])));
    assert_eq!((status, &created["spec"]["ports"][0]["targetPort"]), (201, &json!(80)));
    let expected = json!([{
        "manager": "me", "operation": "Apply", "apiVersion": "v1", "time": "1970-01-01T00:00:01Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:selector": {}}}
    }]);
    assert_eq!(created["metadata"]["managedFields"], expected);
}

#[test]
fn what_is_applied_again_changes_nothing() {
    let mut cluster = cluster();
    let body = web(json!({"a": "1"}), json!([{"port": 80}]));
    let (_, created) = apply(&mut cluster, "me", body.clone());
    assert_eq!(apply(&mut cluster, "me", body), (200, created));
}

#[test]
fn what_is_no_longer_applied_goes() {
    let mut cluster = cluster();
    apply(
        &mut cluster,
        "me",
        web(json!({"a": "1", "b": "2"}), json!([{"name": "x", "port": 80}, {"name": "y", "port": 81}])),
    );
    merge(&mut cluster, "other", json!({"metadata": {"labels": {"c": "3"}}}));
    let (status, object) =
        apply(&mut cluster, "me", web(json!({"b": "2"}), json!([{"name": "y", "port": 81}])));
    assert_eq!((status, &object["metadata"]["labels"]), (200, &json!({"b": "2", "c": "3"})));
    let ports = object["spec"]["ports"].as_array().unwrap();
    assert_eq!(ports.iter().map(|port| &port["port"]).collect::<Vec<_>>(), [81]);
}

#[test]
fn what_others_own_stays_and_is_a_conflict_unless_it_is_forced() {
    let mut cluster = cluster();
    apply(&mut cluster, "me", web(json!({"a": "1"}), json!([{"port": 80}])));
    let changed = merge(&mut cluster, "editor", json!({"metadata": {"labels": {"a": "2"}}}));
    assert_eq!(owned(&changed, "editor", "Update"), json!({"f:metadata": {"f:labels": {"f:a": {}}}}));
    assert_eq!(owned(&changed, "me", "Apply")["f:metadata"], Value::Null);
    let body = web(json!({"a": "1"}), json!([{"port": 80}]));
    let (status, refusal) = apply(&mut cluster, "me", body.clone());
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409, "reason": "Conflict",
        "message": "Apply failed with 1 conflict: conflict with \"editor\" using v1: .metadata.labels.a",
        "details": {"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"editor\" using v1",
            "field": ".metadata.labels.a"}]}
    });
    assert_eq!((status, refusal), (409, expected));
    let query = [("fieldManager", "me"), ("force", "true")];
    let (status, forced) = send(&mut cluster, "application/apply-patch+yaml", &query, body);
    assert_eq!((status, &forced["metadata"]["labels"]["a"]), (200, &json!("1")));
    assert_eq!(owned(&forced, "editor", "Update"), Value::Null);
    assert_eq!(owned(&forced, "me", "Apply")["f:metadata"], json!({"f:labels": {"f:a": {}}}));
}

#[test]
fn two_who_apply_the_same_own_it_together() {
    let mut cluster = cluster();
    let body = |labels| web(labels, json!([{"port": 80}]));
    apply(&mut cluster, "one", body(json!({"a": "1"})));
    assert_eq!(apply(&mut cluster, "two", body(json!({"a": "1"}))).0, 200);
    let (_, object) = apply(&mut cluster, "one", body(json!({})));
    assert_eq!(object["metadata"]["labels"], json!({"a": "1"}));
    let (_, object) = apply(&mut cluster, "two", body(json!({})));
    assert_eq!(object["metadata"]["labels"], Value::Null);
}

#[test]
fn what_was_there_before_anybody_applied_belongs_to_nobody_who_does() {
    let mut cluster = cluster();
    let mut existing = web(json!({"a": "1"}), json!([{"port": 80}]));
    existing["metadata"]["uid"] = json!("u");
    cluster.load(&existing).unwrap();
    let (status, refusal) = apply(&mut cluster, "me", web(json!({"a": "2"}), json!([{"port": 80}])));
    assert_eq!(status, 409);
    assert!(refusal["message"].as_str().unwrap().contains("before-first-apply"), "{refusal}");
    assert_eq!(apply(&mut cluster, "me", web(json!({"a": "1"}), json!([{"port": 80}]))).0, 200);
}

#[test]
fn an_apply_without_a_manager_or_with_a_field_that_there_is_not_is_refused() {
    let mut cluster = cluster();
    let body = web(json!({}), json!([{"port": 80}]));
    let (status, refusal) = apply(&mut cluster, "", body.clone());
    let message =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!((status, &refusal["message"]), (422, &json!(message)));
    let mut misspelt = body;
    misspelt["spec"]["port"] = json!(80);
    misspelt["spec"]["ports"][0]["tagetPort"] = json!(80);
    let query = [("fieldManager", "me"), ("fieldValidation", "Strict")];
    let (status, refusal) = send(&mut cluster, "application/apply-patch+yaml", &query, misspelt);
    let message = "Service in version \"v1\" cannot be handled as a Service: strict decoding error: \
                   unknown field \"spec.port\", unknown field \"spec.ports[0].tagetPort\"";
    assert_eq!((status, &refusal["message"]), (400, &json!(message)));
}
