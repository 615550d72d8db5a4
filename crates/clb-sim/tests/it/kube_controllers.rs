//! Manifests, and what a cluster does by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clb_sim::kube::{Answer, Cluster, ClusterConfig, Kind, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn node(name: &str, ip: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name},
        "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}]}})
}

fn pod(name: &str, port: u16) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [
        {"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": port}]}
    ]}})
}

fn service(target: Value) -> Value {
    json!({"kind": "Service", "metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"name": "main", "port": 80, "targetPort": target}]
    }})
}

fn loaded(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster::new(ClusterConfig::default());
    objects.iter().for_each(|object| cluster.load(object).unwrap());
    cluster
}

fn settle(cluster: &mut Cluster) {
    for _ in 0..10 {
        let before = cluster.version();
        cluster.run_controllers();
        if cluster.version() == before {
            return;
        }
    }
    panic!("it does not come to rest");
}

fn delete(cluster: &mut Cluster, path: &str) {
    let request = Request { method: "DELETE".to_owned(), path: path.to_owned(), ..Request::default() };
    let Answer::Body { status: 200, .. } = cluster.handle(&request, Duration::ZERO) else { panic!("{path}") };
}

/// The sizes of the slices, smallest first.
fn sizes(cluster: &Cluster) -> Vec<usize> {
    let mut sizes: Vec<usize> = cluster
        .objects(Kind::EndpointSlice)
        .map(|slice| slice["endpoints"].as_array().unwrap().len())
        .collect();
    sizes.sort_unstable();
    sizes
}

/// The pods in the slices, each with its node.
fn endpoints(cluster: &Cluster) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    cluster
        .objects(Kind::EndpointSlice)
        .flat_map(|slice| slice["endpoints"].as_array().unwrap())
        .map(|endpoint| (text(&endpoint["targetRef"]["name"]), text(&endpoint["nodeName"])))
        .collect()
}

#[test]
fn a_manifest_is_loaded_with_its_identity_and_status_and_loaded_again_in_its_place() {
    let mut object = service(json!(8080));
    object["metadata"]["namespace"] = json!("shop");
    object["metadata"]["uid"] = json!("e6e828b3-fa95-4614-b679-2e0d9e36e54e");
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}});
    let list = json!({"kind": "List", "items": [object, node("n", "10.0.0.1")]});
    let cluster = loaded(&[list.clone(), list]);
    let services: Vec<&Value> = cluster.objects(Kind::Service).collect();
    assert_eq!(services.len(), 1);
    assert_eq!(
        (&services[0]["metadata"]["uid"], &services[0]["status"]),
        (&object["metadata"]["uid"], &object["status"])
    );
    let namespaces: BTreeSet<&str> =
        cluster.objects(Kind::Namespace).map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(namespaces, BTreeSet::from(["default", "kube-system", "shop"]));
    assert_eq!(cluster.objects(Kind::Node).count(), 1);
}

#[test]
fn what_cannot_be_loaded_is_said() {
    let mut cluster = Cluster::new(ClusterConfig::default());
    let refused = cluster.load(&json!({"kind": "Deployment"})).unwrap_err();
    assert_eq!(refused, "the kind \"Deployment\" is not modelled");
    let refused = cluster.load(&json!({"kind": "Service", "metadata": {"name": "UPPER"}})).unwrap_err();
    assert!(refused.contains("UPPER"), "{refused}");
}

#[test]
fn pods_are_scheduled_get_addresses_and_stand_in_the_slices_of_their_service() {
    let mut cluster = loaded(&[
        node("n1", "10.0.0.1"),
        node("n2", "10.0.0.2"),
        pod("a", 8080),
        pod("b", 8080),
        service(json!("http")),
    ]);
    settle(&mut cluster);
    let expected = [("a", "n1"), ("b", "n2")].map(|(pod, node)| (pod.to_owned(), node.to_owned()));
    assert_eq!(endpoints(&cluster), BTreeMap::from(expected));
    let slice = cluster.objects(Kind::EndpointSlice).next().unwrap();
    assert_eq!(slice["ports"], json!([{"name": "main", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], "web");
    for endpoint in slice["endpoints"].as_array().unwrap() {
        assert_eq!(endpoint["conditions"], json!({"ready": true, "serving": true, "terminating": false}));
    }
    let hosts: BTreeSet<&str> =
        cluster.objects(Kind::Pod).map(|pod| pod["status"]["hostIP"].as_str().unwrap()).collect();
    assert_eq!(hosts, BTreeSet::from(["10.0.0.1", "10.0.0.2"]));
}

#[test]
fn without_a_node_a_pod_waits() {
    let mut cluster = loaded(&[pod("a", 8080), service(json!(8080))]);
    settle(&mut cluster);
    assert_eq!(sizes(&cluster), [0; 0]);
    assert_eq!(cluster.objects(Kind::Pod).next().unwrap()["status"], json!({"phase": "Pending"}));
}

#[test]
fn a_hundred_endpoints_fill_a_slice_and_gaps_are_filled_up() {
    let mut objects: Vec<Value> = (0..150).map(|at| pod(&format!("p{at:03}"), 8080)).collect();
    objects.extend([node("n", "10.0.0.1"), service(json!(8080))]);
    let mut cluster = loaded(&objects);
    settle(&mut cluster);
    assert_eq!(sizes(&cluster), [50, 100]);
    let full = cluster
        .objects(Kind::EndpointSlice)
        .find(|slice| slice["endpoints"].as_array().unwrap().len() == 100);
    let gone: Vec<String> = full.unwrap()["endpoints"].as_array().unwrap()[..60]
        .iter()
        .map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap().to_owned())
        .collect();
    for name in &gone {
        delete(&mut cluster, &format!("/api/v1/namespaces/default/pods/{name}"));
    }
    settle(&mut cluster);
    assert_eq!(sizes(&cluster), [40, 50]);
    cluster.load(&pod("new", 8080)).unwrap();
    settle(&mut cluster);
    assert_eq!(sizes(&cluster).iter().sum::<usize>(), 91);
    assert_eq!(cluster.objects(Kind::EndpointSlice).count(), 2);
}

#[test]
fn pods_with_different_ports_stand_in_slices_of_their_own() {
    let mut cluster =
        loaded(&[node("n", "10.0.0.1"), pod("a", 8080), pod("b", 9090), service(json!("http"))]);
    settle(&mut cluster);
    let ports: BTreeSet<u64> = cluster
        .objects(Kind::EndpointSlice)
        .map(|slice| slice["ports"][0]["port"].as_u64().unwrap())
        .collect();
    assert_eq!((sizes(&cluster), ports), (vec![1, 1], BTreeSet::from([8080, 9090])));
}

#[test]
fn slices_go_with_their_service() {
    let mut cluster = loaded(&[node("n", "10.0.0.1"), pod("a", 8080), service(json!(8080))]);
    settle(&mut cluster);
    assert_eq!(sizes(&cluster), [1]);
    delete(&mut cluster, "/api/v1/namespaces/default/services/web");
    settle(&mut cluster);
    assert_eq!(sizes(&cluster), [0; 0]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Node(u8),
    /// A pod with an app and a tier, which it may not have had before.
    Pod(u8, u8, bool),
    DeletePod(u8),
    /// A Service of an app, of any tier or of the front.
    Service(u8, u8, bool),
    DeleteService(u8),
    Round,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0..2_u8).prop_map(Step::Node),
        4 => (0..6_u8, 0..3_u8, any::<bool>()).prop_map(|(name, app, is_front)| Step::Pod(name, app, is_front)),
        2 => (0..6_u8).prop_map(Step::DeletePod),
        3 => (0..3_u8, 0..3_u8, any::<bool>()).prop_map(|(name, app, is_front)| Step::Service(name, app, is_front)),
        1 => (0..3_u8).prop_map(Step::DeleteService),
        3 => Just(Step::Round),
    ];
    vec(step, 1..60)
}

fn take(cluster: &mut Cluster, step: Step) {
    let labels = |app: u8, is_front: bool| json!({"app": app.to_string(), "tier": if is_front { "front" } else { "back" }});
    let mut remove = |resource: &str, name: u8| {
        let path = format!("/api/v1/namespaces/default/{resource}/x{name}");
        let request = Request { method: "DELETE".to_owned(), path, ..Request::default() };
        cluster.handle(&request, Duration::ZERO);
    };
    match step {
        Step::Node(name) => cluster.load(&node(&format!("n{name}"), &format!("10.0.0.{name}"))).unwrap(),
        Step::Pod(name, app, is_front) => {
            let name = format!("x{name}");
            let former = cluster.objects(Kind::Pod).find(|pod| pod["metadata"]["name"] == name.as_str());
            let mut object = former.cloned().unwrap_or_else(|| pod(&name, 8080));
            object["kind"] = json!("Pod");
            object["metadata"]["labels"] = labels(app, is_front);
            cluster.load(&object).unwrap();
        }
        Step::Service(name, app, is_front) => {
            let mut object = service(json!(8080));
            object["metadata"]["name"] = json!(format!("x{name}"));
            object["spec"]["selector"] = labels(app, is_front);
            if !is_front {
                object["spec"]["selector"].as_object_mut().unwrap().remove("tier");
            }
            cluster.load(&object).unwrap();
        }
        Step::DeletePod(name) => remove("pods", name),
        Step::DeleteService(name) => remove("services", name),
        Step::Round => cluster.run_controllers(),
    }
}

/// Which pods each Service has: in its slices, and by its selector.
fn had_and_selected(cluster: &Cluster) -> [BTreeSet<(String, String)>; 2] {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let slices = cluster.objects(Kind::EndpointSlice);
    let had = slices.flat_map(|slice| {
        let service = text(&slice["metadata"]["labels"]["kubernetes.io/service-name"]);
        let endpoints = slice["endpoints"].as_array().unwrap().iter();
        endpoints
            .map(move |endpoint| (service.clone(), text(&endpoint["targetRef"]["name"])))
            .collect::<Vec<_>>()
    });
    let pods: Vec<&Value> =
        cluster.objects(Kind::Pod).filter(|pod| pod["status"]["phase"] == "Running").collect();
    let selected = cluster.objects(Kind::Service).flat_map(|service| {
        let selector = service["spec"]["selector"].as_object().unwrap();
        let is_selected =
            |pod: &&&Value| selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value);
        let selected = pods.iter().filter(is_selected);
        selected
            .map(|pod| (text(&service["metadata"]["name"]), text(&pod["metadata"]["name"])))
            .collect::<Vec<_>>()
    });
    [had.collect(), selected.collect()]
}

proptest! {
    #[test]
    fn looking_at_changes_alone_gives_every_service_its_pods(steps in steps(), history in 1..60_usize) {
        let mut cluster = Cluster::new(ClusterConfig { history });
        for step in steps {
            take(&mut cluster, step);
        }
        settle(&mut cluster);
        let [had, selected] = had_and_selected(&cluster);
        prop_assert_eq!(had, selected);
        let running = cluster.objects(Kind::Pod).filter(|pod| pod["status"]["phase"] == "Running").count();
        let has_node = cluster.objects(Kind::Node).next().is_some();
        prop_assert_eq!(running, if has_node { cluster.objects(Kind::Pod).count() } else { 0 });
    }
}
