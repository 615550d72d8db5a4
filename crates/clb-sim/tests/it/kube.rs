//! The Kubernetes API, rule by rule, where no recording shows it.

use std::time::Duration;

use clb_sim::kube::{Answer, Cluster, ClusterConfig, Kind, Request, Watch};
use serde_json::{Value, json};

fn request(method: &str, path: &str, body: Value) -> Request {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.split('&').filter_map(pair).collect(),
        content_type: "application/merge-patch+json".to_owned(),
        accept: String::new(),
        body,
    }
}

fn send(cluster: &mut Cluster, method: &str, path: &str, body: Value) -> (u16, Value) {
    match cluster.handle(&request(method, path, body), Duration::from_secs(90)) {
        Answer::Body { status, body } => (status, body),
        Answer::Watch(_) => panic!("a watch"),
    }
}

fn watch(cluster: &mut Cluster, path: &str) -> Watch {
    match cluster.handle(&request("GET", path, Value::Null), Duration::ZERO) {
        Answer::Watch(watch) => watch,
        Answer::Body { body, .. } => panic!("{body}"),
    }
}

fn cluster() -> Cluster {
    Cluster::new(ClusterConfig::default())
}

const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn discovery_names_every_resource_once() {
    let mut cluster = cluster();
    let mut seen = Vec::new();
    for path in ["/api/v1", "/apis/discovery.k8s.io/v1", "/apis/coordination.k8s.io/v1"] {
        let (status, body) = send(&mut cluster, "GET", path, Value::Null);
        assert_eq!(status, 200);
        let names = body["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["name"].as_str().unwrap().to_owned());
        seen.extend(names);
    }
    let expected = [
        "namespaces",
        "namespaces/status",
        "nodes",
        "nodes/status",
        "pods",
        "pods/status",
        "services",
        "services/status",
        "events",
        "endpointslices",
        "leases",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let mut cluster = cluster();
    for (method, path) in [
        ("POST", "/api/v1/namespaces/default/services/x"),
        ("GET", "/api/v1/namespaces/default/configmaps"),
        ("GET", "/api/v1/namespaces/default/pods/x/log"),
        ("POST", "/api/v1/namespaces/default/pods/x/eviction"),
        ("GET", "/apis/apps/v1/deployments"),
    ] {
        let (status, body) = send(&mut cluster, method, path, json!({}));
        let message = format!("the simulator does not model {method} {path}");
        assert_eq!(
            (status, &body["reason"], &body["message"]),
            (501, &json!("NotModelled"), &json!(message))
        );
    }
    // Nobody has these.
    for path in ["/apis/example.com/v1/things", "/api/v1/things"] {
        assert_eq!(send(&mut cluster, "GET", path, Value::Null).0, 404);
    }
    assert_eq!(send(&mut cluster, "DELETE", "/api/v1/namespaces", Value::Null).0, 405);
}

#[test]
fn a_body_of_the_wrong_types_is_refused() {
    let mut cluster = cluster();
    for body in [
        json!({"metadata": {"name": "x", "labels": "no"}}),
        json!({"metadata": {"name": "x"}, "spec": {"ports": "no"}}),
        json!({"metadata": []}),
        json!({"kind": "Pod", "metadata": {"name": "x"}}),
        json!([]),
        Value::Null,
    ] {
        let (status, answer) = send(&mut cluster, "POST", SERVICES, body.clone());
        assert_eq!((status, &answer["reason"]), (400, &json!("BadRequest")), "{body}");
    }
}

#[test]
fn times_with_microseconds_have_six_digits_of_them() {
    let mut cluster = cluster();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    for (name, time, refused) in [
        ("a", "2026-01-01T00:00:00.000000Z", None),
        ("b", "2026-01-01T00:00:00.123456+01:00", None),
        ("c", "2026-01-01T00:00:00Z", Some(("Z", ".000000"))),
        ("d", "2026-01-01T00:00:00.123Z", Some((".123Z", ".000000"))),
        ("e", "2026-01-01T00:00:00.123456789Z", Some(("789Z", "Z07:00"))),
    ] {
        let lease = json!({"metadata": {"name": name}, "spec": {"renewTime": time}});
        let (status, body) = send(&mut cluster, "POST", leases, lease);
        let message = refused.map(|(rest, wanted)| {
            format!(
                "Lease in version \"v1\" cannot be handled as a Lease: parsing time {time:?} as \
                 \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as {wanted:?}"
            )
        });
        let expected = if message.is_some() { 400 } else { 201 };
        assert_eq!((status, body["message"].as_str()), (expected, message.as_deref()), "{time}");
    }
}

#[test]
fn a_bound_pod_stays_until_it_is_deleted_without_grace() {
    let mut cluster = cluster();
    send(&mut cluster, "POST", PODS, pod("p"));
    send(&mut cluster, "POST", &format!("{PODS}/p/binding"), json!({"target": {"name": "n"}}));
    let path = format!("{PODS}/p");
    let (status, body) = send(&mut cluster, "DELETE", &path, Value::Null);
    assert_eq!(status, 200);
    assert_eq!(body["metadata"]["deletionTimestamp"], "1970-01-01T00:02:00Z");
    assert_eq!(body["metadata"]["deletionGracePeriodSeconds"], 30);
    let again = send(&mut cluster, "DELETE", &path, Value::Null).1;
    assert_eq!(again, body);
    let held = json!({"metadata": {"finalizers": ["x/y"]}});
    // A finalizer that comes too late is refused.
    assert_eq!(send(&mut cluster, "PATCH", &path, held).0, 422);
    assert_eq!(send(&mut cluster, "DELETE", &path, json!({"gracePeriodSeconds": 0})).0, 200);
    assert_eq!(send(&mut cluster, "GET", &path, Value::Null).0, 404);
}

#[test]
fn a_pod_held_by_a_finalizer_goes_with_it() {
    let mut cluster = cluster();
    let mut held = pod("p");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    send(&mut cluster, "POST", PODS, held);
    let path = format!("{PODS}/p");
    assert_eq!(
        send(&mut cluster, "DELETE", &path, Value::Null).1["metadata"]["deletionGracePeriodSeconds"],
        0
    );
    let since = format!("{PODS}?watch=1&resourceVersion={}", cluster.version());
    let mut watch = watch(&mut cluster, &since);
    assert_eq!(send(&mut cluster, "PATCH", &path, json!({"metadata": {"finalizers": null}})).0, 200);
    let events = cluster.poll(&mut watch);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("p")));
    assert_eq!(cluster.objects(Kind::Pod).count(), 0);
}

#[test]
fn a_namespace_takes_all_that_is_in_it_and_waits_for_what_is_held() {
    let mut cluster = cluster();
    send(&mut cluster, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}}));
    let services = "/api/v1/namespaces/n/services";
    send(&mut cluster, "POST", services, service("free"));
    let mut held = service("held");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    send(&mut cluster, "POST", services, held);
    let (_, body) = send(&mut cluster, "DELETE", "/api/v1/namespaces/n", Value::Null);
    assert_eq!(body["status"]["phase"], "Terminating");
    let names: Vec<&Value> =
        cluster.objects(Kind::Service).map(|object| &object["metadata"]["name"]).collect();
    assert_eq!(names, [&json!("held")]);
    let (status, refused) = send(&mut cluster, "POST", services, service("late"));
    let why = "unable to create new content in namespace n because it is being terminated";
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("services \"late\" is forbidden: {why}"), "reason": "Forbidden", "code": 403,
        "details": {"name": "late", "kind": "services", "causes": [{"reason": "NamespaceTerminating",
            "message": "namespace n is being terminated", "field": "metadata.namespace"}]}});
    assert_eq!((status, refused), (403, expected));
    // What it says of itself can still be changed.
    send(&mut cluster, "PATCH", "/api/v1/namespaces/n", json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(
        send(&mut cluster, "GET", "/api/v1/namespaces/n", Value::Null).1["metadata"]["labels"]["a"],
        "b"
    );
    send(&mut cluster, "PATCH", &format!("{services}/held"), json!({"metadata": {"finalizers": null}}));
    assert_eq!(send(&mut cluster, "GET", "/api/v1/namespaces/n", Value::Null).0, 404);
}

#[test]
fn a_namespace_that_is_held_itself_goes_when_it_is_let_go() {
    let mut cluster = cluster();
    let path = "/api/v1/namespaces/n";
    let held = json!({"metadata": {"name": "n", "finalizers": ["x/y"]}});
    let (_, created) = send(&mut cluster, "POST", "/api/v1/namespaces", held);
    assert_eq!(created["spec"], json!({"finalizers": ["kubernetes"]}));
    send(&mut cluster, "DELETE", path, Value::Null);
    assert_eq!(send(&mut cluster, "GET", path, Value::Null).1["status"]["phase"], "Terminating");
    send(&mut cluster, "PATCH", path, json!({"metadata": {"finalizers": null}}));
    assert_eq!(send(&mut cluster, "GET", path, Value::Null).0, 404);
}

#[test]
fn a_service_that_no_longer_balances_keeps_its_conditions() {
    let mut cluster = cluster();
    send(&mut cluster, "POST", SERVICES, service("s"));
    let path = format!("{SERVICES}/s");
    let condition = json!({"type": "x/a", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    send(&mut cluster, "PATCH", &format!("{path}/status"), status);
    let (_, body) = send(&mut cluster, "PATCH", &path, json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(body["status"], json!({"loadBalancer": {}, "conditions": [condition]}));
}

#[test]
fn a_service_that_no_longer_balances_loses_its_address() {
    let mut cluster = cluster();
    let mut balanced = service("s");
    balanced["spec"]["type"] = json!("LoadBalancer");
    send(&mut cluster, "POST", SERVICES, balanced);
    let path = format!("{SERVICES}/s");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}}});
    let (_, body) = send(&mut cluster, "PATCH", &format!("{path}/status"), status);
    assert_eq!(body["status"]["loadBalancer"]["ingress"], json!([{"ip": "20.0.0.1", "ipMode": "VIP"}]));
    let (_, body) = send(&mut cluster, "PATCH", &path, json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(body["status"], json!({"loadBalancer": {}}));
}

#[test]
fn metadata_alone_is_shown_to_whoever_asks_for_it() {
    let mut cluster = cluster();
    send(&mut cluster, "POST", SERVICES, service("s"));
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1".to_owned();
    let asked = Request { accept, ..request("GET", SERVICES, Value::Null) };
    let Answer::Body { status: 200, body } = cluster.handle(&asked, Duration::ZERO) else { panic!() };
    assert_eq!(body["kind"], "PartialObjectMetadataList");
    let fields: Vec<&String> = body["items"][0].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["apiVersion", "kind", "metadata"]);
}

#[test]
fn pages_show_one_version_although_things_change_between_them() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        send(&mut cluster, "POST", SERVICES, service(name));
    }
    let (_, first) = send(&mut cluster, "GET", &format!("{SERVICES}?limit=1"), Value::Null);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    send(&mut cluster, "DELETE", &format!("{SERVICES}/b"), Value::Null);
    send(&mut cluster, "POST", SERVICES, service("d"));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = send(&mut cluster, "GET", &format!("{SERVICES}?continue={token}"), Value::Null);
    let names: Vec<&Value> =
        rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, [&json!("b"), &json!("c")]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[test]
fn a_page_that_is_too_old_is_gone_and_says_how_to_go_on() {
    let mut cluster = Cluster::new(ClusterConfig { history: 2 });
    for name in ["a", "b", "c"] {
        send(&mut cluster, "POST", SERVICES, service(name));
    }
    let (_, first) = send(&mut cluster, "GET", &format!("{SERVICES}?limit=1"), Value::Null);
    let mut late = watch(&mut cluster, &format!("{SERVICES}?watch=1&resourceVersion=1"));
    for name in ["d", "e", "f"] {
        send(&mut cluster, "POST", SERVICES, service(name));
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (status, gone) = send(&mut cluster, "GET", &format!("{SERVICES}?continue={token}"), Value::Null);
    assert_eq!((status, &gone["reason"]), (410, &json!("Expired")));
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = send(&mut cluster, "GET", &format!("{SERVICES}?continue={token}"), Value::Null);
    assert_eq!(rest["items"].as_array().unwrap().len(), 5);
    let exact = format!("{SERVICES}?resourceVersion=1&resourceVersionMatch=Exact");
    assert_eq!(send(&mut cluster, "GET", &exact, Value::Null).0, 410);
    let events = cluster.poll(&mut late);
    assert_eq!(
        (events.len(), &events[0]["type"], &events[0]["object"]["code"]),
        (1, &json!("ERROR"), &json!(410))
    );
    assert!(late.has_ended());
}

#[test]
fn a_stale_list_is_what_there_was_so_many_versions_ago() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        send(&mut cluster, "POST", SERVICES, service(name));
    }
    let list = request("GET", SERVICES, Value::Null);
    let names = |cluster: &Cluster, versions| {
        let Some(Answer::Body { status: 200, body: list }) = cluster.stale(&list, versions) else { panic!() };
        list["items"].as_array().unwrap().len()
    };
    assert_eq!([0, 1, 2, 99].map(|versions| names(&cluster, versions)), [3, 2, 1, 0]);
    let b = request("GET", &format!("{SERVICES}/b"), Value::Null);
    let status = |cluster: &Cluster, versions| match cluster.stale(&b, versions) {
        Some(Answer::Body { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 1, 2].map(|versions| status(&cluster, versions)), [200, 200, 404]);
    assert_eq!(cluster.stale(&request("GET", "/api/v1", Value::Null), 1), None);
}

#[test]
fn a_put_creates_what_there_is_not_where_the_real_server_lets_it() {
    let mut cluster = cluster();
    let lease = json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}});
    let event = json!({"metadata": {"name": "x"}, "involvedObject": {"namespace": "default"}});
    let slice = json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []});
    let within = |group: &str, resource: &str| format!("{group}/namespaces/default/{resource}/x");
    let cases = [
        (within("/api/v1", "services"), service("x"), 201),
        (within("/api/v1", "events"), event, 201),
        (within("/apis/coordination.k8s.io/v1", "leases"), lease, 201),
        (within("/apis/discovery.k8s.io/v1", "endpointslices"), slice, 404),
        (within("/api/v1", "pods"), pod("x"), 404),
        ("/api/v1/nodes/x".to_owned(), json!({"metadata": {"name": "x"}}), 404),
        ("/api/v1/namespaces/x".to_owned(), json!({"metadata": {"name": "x"}}), 404),
        (within("/api/v1", "services") + "/status", service("y"), 400),
    ];
    for (path, mut body, expected) in cases {
        assert_eq!(send(&mut cluster, "PUT", &path, body.clone()).0, expected, "{path}");
        assert_eq!(send(&mut cluster, "GET", &path, Value::Null).0, if expected == 404 { 404 } else { 200 });
        // Whoever names a uid means one that there is.
        body["metadata"]["uid"] = json!("7d4a2b9e-0000-0000-0000-000000000000");
        let other = path.replace("/x", "/z");
        body["metadata"]["name"] = json!("z");
        let refused = send(&mut cluster, "PUT", &other, body).0;
        assert_eq!(refused, if expected == 201 { 409 } else { 404 }, "{path}");
    }
}

/// The cells of what is there, as a table.
fn cells(cluster: &mut Cluster, path: &str) -> Vec<Value> {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = Request { accept: accept.to_owned(), ..request("GET", path, Value::Null) };
    let Answer::Body { status: 200, body } = cluster.handle(&request, Duration::from_secs(90 + 300)) else {
        panic!("{path}")
    };
    assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns = body["columnDefinitions"].as_array().unwrap().len();
    let rows = body["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["cells"].as_array().unwrap().len() == columns), "{body}");
    rows.iter().map(|row| row["cells"].clone()).collect()
}

#[test]
fn tables_have_the_real_servers_cells() {
    let mut cluster = cluster();
    let mut balanced = service("b");
    balanced["spec"]["type"] = json!("LoadBalancer");
    balanced["spec"]["clusterIP"] = json!("10.96.0.9");
    balanced["spec"]["ports"] = json!([{"port": 80, "nodePort": 30080}]);
    balanced["spec"]["selector"] = json!({"app": "web", "tier": "front"});
    send(&mut cluster, "POST", SERVICES, balanced);
    let ports = "80:30080/TCP";
    let row = json!(["b", "LoadBalancer", "10.96.0.9", "<pending>", ports, "5m", "app=web,tier=front"]);
    assert_eq!(cells(&mut cluster, SERVICES), [row]);
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}}});
    send(&mut cluster, "PATCH", &format!("{SERVICES}/b/status"), ingress);
    assert_eq!(cells(&mut cluster, &format!("{SERVICES}/b"))[0][3], "20.0.0.1");
    send(&mut cluster, "POST", PODS, pod("p"));
    let none = "<none>";
    let row = json!(["p", "0/1", "Pending", "0", "5m", none, none, none, none]);
    assert_eq!(cells(&mut cluster, PODS), [row]);
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}, "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"kubeletVersion": "v1.33.0"},
        "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.load(&json!({"kind": "NodeList", "items": [node]})).unwrap();
    let node = &cells(&mut cluster, "/api/v1/nodes")[0];
    assert_eq!(
        (&node[1], &node[2], &node[4], &node[5], &node[6]),
        (
            &json!("Ready,SchedulingDisabled"),
            &json!(none),
            &json!("v1.33.0"),
            &json!("10.0.0.1"),
            &json!(none)
        )
    );
    let addresses: Vec<Value> = (1..=5).map(|at| json!({"addresses": [format!("10.1.0.{at}")]})).collect();
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": addresses});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    send(&mut cluster, "POST", slices, slice);
    let row = json!(["s", "IPv4", "80", "10.1.0.1,10.1.0.2,10.1.0.3 + 2 more...", "5m"]);
    assert_eq!(cells(&mut cluster, slices), [row]);
    assert_eq!(cells(&mut cluster, "/api/v1/namespaces/default"), [json!(["default", "Active", "6m30s"])]);
}
