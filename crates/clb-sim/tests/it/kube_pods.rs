//! The life of pods under a simulated cluster's own controllers: readiness, nodes out of reach, and stopping in time.

use std::time::Duration;

use clb_sim::kube::{Answer, Cluster, ClusterConfig, Kind, KubeConfig, KubeSimulation, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A cluster whose controllers run, with these objects.
pub(crate) fn running(objects: &[Value]) -> KubeSimulation {
    let simulation = KubeSimulation::new(KubeConfig::default());
    simulation.with_cluster(|cluster| objects.iter().for_each(|object| cluster.load(object).unwrap()));
    let controllers = simulation.clone();
    tokio::spawn(async move { controllers.run_controllers().await });
    simulation
}

/// Lets everybody finish what they do now.
pub(crate) async fn settled() {
    sleep(Duration::from_millis(1)).await;
}

pub(crate) fn node(name: &str, number: u8) -> Value {
    json!({"kind": "Node", "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{number}")}]}})
}

pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

/// The spec of a pod that sleeps so many seconds before it stops.
pub(crate) fn sleeps(seconds: u64) -> Value {
    let lifecycle = json!({"preStop": {"sleep": {"seconds": seconds}}});
    json!({"containers": [{"name": "c", "image": "i", "lifecycle": lifecycle}, {"name": "d", "image": "i"}]})
}

fn gated() -> Value {
    json!({"readinessGates": [{"conditionType": "x/a"}, {"conditionType": "x/b"}]})
}

pub(crate) fn web() -> Value {
    json!({"kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}})
}

pub(crate) fn ask(simulation: &KubeSimulation, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: STRATEGIC.to_owned(),
        body,
        ..Request::default()
    };
    match simulation.handle(&request) {
        Answer::Body { status, body } => (status, body),
        Answer::Watch(watch) => panic!("{watch:?}"),
    }
}

pub(crate) fn ok(simulation: &KubeSimulation, method: &str, path: &str, body: Value) -> Value {
    let (status, body) = ask(simulation, method, path, body);
    assert!(status < 300, "{method} {path}: {body}");
    body
}

/// Says something about a pod, as a client does.
pub(crate) fn say(simulation: &KubeSimulation, pod: &str, condition: &str, status: &str) {
    let patch = json!({"status": {"conditions": [{"type": condition, "status": status}]}});
    ok(simulation, "PATCH", &format!("{PODS}/{pod}/status"), patch);
}

fn read(simulation: &KubeSimulation, pod: &str) -> Option<Value> {
    let (status, body) = ask(simulation, "GET", &format!("{PODS}/{pod}"), Value::Null);
    (status == 200).then_some(body)
}

fn condition(pod: &Value, of: &str) -> Value {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == of);
    found.cloned().unwrap_or_default()
}

/// What `Ready` says of a pod: status, reason and message.
fn ready(simulation: &KubeSimulation, pod: &str) -> [String; 3] {
    let ready = condition(&read(simulation, pod).unwrap(), "Ready");
    ["status", "reason", "message"].map(|field| ready[field].as_str().unwrap_or_default().to_owned())
}

/// Whether each endpoint is ready, serving and terminating, by pod.
fn endpoints(simulation: &KubeSimulation) -> Vec<(String, [bool; 3])> {
    let conditions = |endpoint: &Value| {
        let pod = endpoint["targetRef"]["name"].as_str().unwrap().to_owned();
        let is = |name: &str| endpoint["conditions"][name].as_bool().unwrap();
        (pod, ["ready", "serving", "terminating"].map(is))
    };
    simulation.with_cluster(|cluster| {
        let slices = cluster.objects(Kind::EndpointSlice);
        slices.flat_map(|slice| slice["endpoints"].as_array().unwrap()).map(conditions).collect()
    })
}

fn endpoint(pod: &str, conditions: [bool; 3]) -> Vec<(String, [bool; 3])> {
    vec![(pod.to_owned(), conditions)]
}

const READY: [bool; 3] = [true, true, false];
const NOT_READY: [bool; 3] = [false, false, false];
const DRAINING: [bool; 3] = [false, true, true];

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_started_is_ready_and_so_are_its_containers() {
    let simulation = running(&[node("n", 1), pod("p", json!({}))]);
    settled().await;
    let since = "1970-01-01T00:00:00Z";
    assert_eq!(
        read(&simulation, "p").unwrap()["status"]["conditions"],
        json!([{"type": "ContainersReady", "status": "True", "lastTransitionTime": since},
            {"type": "Ready", "status": "True", "lastTransitionTime": since}])
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_ready_when_all_of_its_readiness_gates_are_open() {
    let simulation = running(&[node("n", 1), web(), pod("p", gated())]);
    settled().await;
    let closed = |message: &str| ["False", "ReadinessGatesNotReady", message].map(str::to_owned);
    assert_eq!(
        ready(&simulation, "p"),
        closed(
            "corresponding condition of pod readiness gate \"x/a\" does not exist., \
             corresponding condition of pod readiness gate \"x/b\" does not exist."
        )
    );
    assert_eq!(endpoints(&simulation), endpoint("p", NOT_READY));
    say(&simulation, "p", "x/a", "True");
    say(&simulation, "p", "x/b", "Unknown");
    settled().await;
    assert_eq!(
        ready(&simulation, "p"),
        closed("the status of pod readiness gate \"x/b\" is not \"True\", but Unknown")
    );
    sleep(Duration::from_secs(7)).await;
    say(&simulation, "p", "x/b", "True");
    settled().await;
    assert_eq!(ready(&simulation, "p"), ["True", "", ""]);
    assert_eq!(endpoints(&simulation), endpoint("p", READY));
    let opened = condition(&read(&simulation, "p").unwrap(), "Ready");
    assert_eq!(opened["lastTransitionTime"], "1970-01-01T00:00:07Z");
    say(&simulation, "p", "x/a", "False");
    settled().await;
    assert_eq!(ready(&simulation, "p")[0], "False");
}

#[tokio::test(start_paused = true)]
async fn a_gate_may_be_open_before_the_pod_is_started() {
    let simulation = running(&[pod("p", json!({"readinessGates": [{"conditionType": "x/a"}]}))]);
    say(&simulation, "p", "x/a", "True");
    settled().await;
    simulation.with_cluster(|cluster| cluster.load(&node("n", 1)).unwrap());
    settled().await;
    assert_eq!(ready(&simulation, "p"), ["True", "", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_ready_while_its_containers_are_not() {
    let simulation = running(&[node("n", 1), web(), pod("p", json!({}))]);
    settled().await;
    let crashed = json!({"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady",
        "message": "containers with unready status: [c]"});
    ok(&simulation, "PATCH", &format!("{PODS}/p/status"), json!({"status": {"conditions": [crashed]}}));
    settled().await;
    assert_eq!(
        ready(&simulation, "p"),
        ["False", "ContainersNotReady", "containers with unready status: [c]"]
    );
    assert_eq!(endpoints(&simulation), endpoint("p", NOT_READY));
    // A kubelet alone says whether a pod is ready.
    say(&simulation, "p", "Ready", "True");
    settled().await;
    assert_eq!(endpoints(&simulation), endpoint("p", NOT_READY));
    say(&simulation, "p", "ContainersReady", "True");
    settled().await;
    assert_eq!(endpoints(&simulation), endpoint("p", READY));
}

#[tokio::test(start_paused = true)]
async fn a_loaded_pod_that_says_only_that_it_is_ready_is_taken_over() {
    let mut loaded = pod("p", json!({"nodeName": "n"}));
    loaded["status"] = json!({"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    let simulation = running(&[node("n", 1), web(), loaded]);
    settled().await;
    assert_eq!(endpoints(&simulation), endpoint("p", READY));
    for (is_ready, expected) in [(false, NOT_READY), (true, READY)] {
        simulation.set_node_ready("n", is_ready).unwrap();
        settled().await;
        assert_eq!(endpoints(&simulation), endpoint("p", expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_serves_as_long_as_it_sleeps_before_it_stops() {
    let simulation = running(&[node("n", 1), web(), pod("p", sleeps(5))]);
    // Deletions are dated by whole seconds.
    sleep(Duration::from_millis(1_700)).await;
    let deleted = Instant::now();
    let marked = ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "1970-01-01T00:00:31Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(endpoints(&simulation), endpoint("p", DRAINING));
    sleep_until(deleted + Duration::from_millis(4_999)).await;
    assert_eq!(endpoints(&simulation), endpoint("p", DRAINING));
    sleep_until(deleted + Duration::from_millis(5_002)).await;
    assert_eq!((read(&simulation, "p"), endpoints(&simulation)), (None, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_sleep_stops_at_once() {
    let simulation = running(&[node("n", 1), web(), pod("p", json!({}))]);
    settled().await;
    ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    settled().await;
    assert_eq!((read(&simulation, "p"), endpoints(&simulation)), (None, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_is_the_pods_own_and_nobody_sleeps_longer() {
    let mut spec = sleeps(60);
    spec["terminationGracePeriodSeconds"] = json!(3);
    let mut held = pod("p", spec);
    held["metadata"]["finalizers"] = json!(["x/y"]);
    let simulation = running(&[node("n", 1), held]);
    settled().await;
    let deleted = Instant::now();
    let marked = ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 3);
    sleep_until(deleted + Duration::from_millis(2_999)).await;
    assert_eq!(read(&simulation, "p").unwrap()["status"]["phase"], "Running");
    sleep_until(deleted + Duration::from_millis(3_002)).await;
    assert_eq!(read(&simulation, "p").unwrap()["status"]["phase"], "Failed");
    assert_eq!(ready(&simulation, "p"), ["False", "PodFailed", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_stopped_and_is_held_says_so_and_goes_when_it_is_let_go() {
    let mut held = pod("p", sleeps(5));
    held["metadata"]["finalizers"] = json!(["x/y"]);
    let simulation = running(&[node("n", 1), web(), held]);
    settled().await;
    ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(endpoints(&simulation), endpoint("p", DRAINING));
    sleep(Duration::from_secs(5)).await;
    let stopped = read(&simulation, "p").unwrap();
    assert_eq!(stopped["status"]["phase"], "Succeeded");
    assert_eq!(condition(&stopped, "ContainersReady")["status"], "False");
    assert_eq!(ready(&simulation, "p"), ["False", "PodCompleted", ""]);
    assert_eq!(stopped["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(endpoints(&simulation), Vec::new());
    ok(&simulation, "PATCH", &format!("{PODS}/p"), json!({"metadata": {"finalizers": null}}));
    assert_eq!(read(&simulation, "p"), None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_can_be_hurried_and_not_slowed() {
    let simulation = running(&[node("n", 1), pod("p", sleeps(20))]);
    settled().await;
    let path = format!("{PODS}/p");
    ok(&simulation, "DELETE", &path, Value::Null);
    sleep(Duration::from_secs(4)).await;
    for longer in [json!({"gracePeriodSeconds": 60}), Value::Null] {
        let marked = ok(&simulation, "DELETE", &path, longer);
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    }
    let hurried = ok(&simulation, "DELETE", &path, json!({"gracePeriodSeconds": 2}));
    assert_eq!(hurried["metadata"]["deletionGracePeriodSeconds"], 2);
    // It counts from when the deletion was asked for first.
    assert_eq!(hurried["metadata"]["deletionTimestamp"], "1970-01-01T00:00:02Z");
    sleep(Duration::from_millis(1_990)).await;
    assert!(read(&simulation, "p").is_some());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(read(&simulation, "p"), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_the_name_of_one_that_was_killed_sleeps_anew() {
    let simulation = running(&[node("n", 1), pod("p", sleeps(5))]);
    settled().await;
    let path = format!("{PODS}/p");
    ok(&simulation, "DELETE", &path, Value::Null);
    sleep(Duration::from_secs(4)).await;
    simulation.with_cluster(|cluster| {
        let kill = json!({"gracePeriodSeconds": 0});
        let delete = |body: Value| Request {
            method: "DELETE".to_owned(),
            path: path.clone(),
            body,
            ..Request::default()
        };
        let now = Duration::from_secs(4);
        cluster.handle(&delete(kill), now);
        let mut again = pod("p", sleeps(5));
        again["spec"]["nodeName"] = json!("n");
        again["status"] = json!({"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]});
        cluster.load(&again).unwrap();
        cluster.handle(&delete(Value::Null), now);
    });
    sleep(Duration::from_millis(4_900)).await;
    assert!(read(&simulation, "p").is_some());
    sleep(Duration::from_millis(200)).await;
    assert_eq!(read(&simulation, "p"), None);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_ends_what_is_due() {
    let simulation = running(&[node("n", 1), pod("p", sleeps(5))]);
    settled().await;
    ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    settled().await;
    simulation.advance(Duration::from_secs(5));
    settled().await;
    assert_eq!(read(&simulation, "p"), None);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_node_that_is_out_of_reach_are_not_ready_until_it_is_back() {
    let simulation =
        running(&[node("n1", 1), node("n2", 2), web(), pod("a", json!({})), pod("b", json!({}))]);
    settled().await;
    assert_eq!(read(&simulation, "a").unwrap()["spec"]["nodeName"], "n1");
    for status in ["Unknown", "False"] {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        ok(&simulation, "PATCH", "/api/v1/nodes/n1/status", patch);
        settled().await;
        let expected = [endpoint("a", NOT_READY), endpoint("b", READY)].concat();
        assert_eq!(endpoints(&simulation), expected, "{status}");
        simulation.set_node_ready("n1", true).unwrap();
        settled().await;
        let expected = [endpoint("a", READY), endpoint("b", READY)].concat();
        assert_eq!(endpoints(&simulation), expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_out_of_reach_stops_when_its_node_is_back() {
    let simulation = running(&[node("n", 1), web(), pod("p", sleeps(5))]);
    settled().await;
    simulation.set_node_ready("n", false).unwrap();
    ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(endpoints(&simulation), endpoint("p", [false, false, true]));
    simulation.set_node_ready("n", true).unwrap();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(endpoints(&simulation), endpoint("p", DRAINING));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(read(&simulation, "p"), None);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_out_of_reach_or_cordoned_gets_no_new_pods() {
    let simulation = running(&[node("n1", 1), node("n2", 2), node("n3", 3)]);
    simulation.set_node_ready("n1", false).unwrap();
    ok(&simulation, "PATCH", "/api/v1/nodes/n2", json!({"spec": {"unschedulable": true}}));
    for name in ["a", "b"] {
        ok(&simulation, "POST", PODS, pod(name, json!({})));
    }
    // Whoever chose such a node himself waits for it.
    ok(&simulation, "POST", PODS, pod("c", json!({"nodeName": "n1"})));
    settled().await;
    let node_and_phase = |name: &str| {
        let pod = read(&simulation, name).unwrap();
        [&pod["spec"]["nodeName"], &pod["status"]["phase"]].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(
        ["a", "b", "c"].map(node_and_phase),
        [["n3", "Running"], ["n3", "Running"], ["n1", "Pending"]]
    );
    simulation.set_node_ready("n1", true).unwrap();
    settled().await;
    assert_eq!(node_and_phase("c"), ["n1", "Running"]);
}

#[test]
fn a_node_that_there_is_not_is_no_more_ready_than_not() {
    let mut cluster = Cluster::new(ClusterConfig::default());
    assert_eq!(cluster.set_node_ready("n", true), Err("nodes \"n\" not found".to_owned()));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Reach(u8, bool),
    Pod(u8),
    Gate(u8, bool),
    Containers(u8, bool),
    Delete(u8),
    Seconds(u8),
    Round,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..2_u8, any::<bool>()).prop_map(|(node, is_ready)| Step::Reach(node, is_ready)),
        3 => (0..4_u8).prop_map(Step::Pod),
        3 => (0..4_u8, any::<bool>()).prop_map(|(pod, is_open)| Step::Gate(pod, is_open)),
        2 => (0..4_u8, any::<bool>()).prop_map(|(pod, are_ready)| Step::Containers(pod, are_ready)),
        2 => (0..4_u8).prop_map(Step::Delete),
        2 => (1..4_u8).prop_map(Step::Seconds),
        4 => Just(Step::Round),
    ];
    vec(step, 1..60)
}

fn take(cluster: &mut Cluster, now: &mut Duration, step: Step) {
    fn send(cluster: &mut Cluster, now: Duration, method: &str, path: &str, body: Value) {
        let (method, path) = (method.to_owned(), format!("{PODS}{path}"));
        let request =
            Request { method, path, content_type: STRATEGIC.to_owned(), body, ..Request::default() };
        cluster.handle(&request, now);
    }
    fn said(of: &str, is: bool) -> Value {
        let status = if is { "True" } else { "False" };
        json!({"status": {"conditions": [{"type": of, "status": status}]}})
    }
    match step {
        Step::Reach(node, is_ready) => cluster.set_node_ready(&format!("n{node}"), is_ready).unwrap(),
        Step::Pod(name) => {
            let mut spec = sleeps(2);
            spec["readinessGates"] = json!([{"conditionType": "x/a"}]);
            send(cluster, *now, "POST", "", pod(&format!("p{name}"), spec));
        }
        Step::Gate(name, is_open) => {
            send(cluster, *now, "PATCH", &format!("/p{name}/status"), said("x/a", is_open));
        }
        Step::Containers(name, are_ready) => {
            let has_name = |pod: &&Value| pod["metadata"]["name"] == format!("p{name}");
            let pod = cluster.objects(Kind::Pod).find(has_name);
            if pod.is_some_and(|pod| pod["status"]["podIP"].is_string()) {
                let said = said("ContainersReady", are_ready);
                send(cluster, *now, "PATCH", &format!("/p{name}/status"), said);
            }
        }
        Step::Delete(name) => send(cluster, *now, "DELETE", &format!("/p{name}"), Value::Null),
        Step::Seconds(seconds) => {
            *now += Duration::from_secs(u64::from(seconds));
            // Any request tells the cluster the time.
            send(cluster, *now, "GET", "", Value::Null);
        }
        Step::Round => cluster.run_controllers(),
    }
}

proptest! {
    #[test]
    fn looking_at_changes_alone_judges_every_pod_and_stops_it_in_time(steps in steps(), history in 1..60_usize) {
        let mut cluster = Cluster::new(ClusterConfig { history });
        for number in [0, 1] {
            cluster.load(&node(&format!("n{number}"), number)).unwrap();
        }
        let mut now = Duration::ZERO;
        for step in steps.into_iter().chain([Step::Round; 3]) {
            take(&mut cluster, &mut now, step);
        }
        let version = cluster.version();
        cluster.run_controllers();
        prop_assert_eq!(cluster.version(), version, "it does not come to rest");
        let is_true = |object: &Value, of: &str| {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().find(|condition| condition["type"] == of).map(|condition| condition["status"] == "True")
        };
        let nodes: Vec<Value> = cluster.objects(Kind::Node).cloned().collect();
        let is_reachable = |name: &Value| {
            let node = nodes.iter().find(|node| node["metadata"]["name"] == *name).unwrap();
            is_true(node, "Ready").unwrap_or(true)
        };
        for pod in cluster.objects(Kind::Pod).filter(|pod| pod["status"]["podIP"].is_string()) {
            let is_reached = is_reachable(&pod["spec"]["nodeName"]);
            let is_open = is_true(pod, "ContainersReady") == Some(true) && is_true(pod, "x/a") == Some(true);
            prop_assert_eq!(is_true(pod, "Ready"), Some(is_reached && is_open), "{}", pod);
        }
        for pod in cluster.objects(Kind::Pod) {
            let is_reached = pod["spec"]["nodeName"].is_null() || is_reachable(&pod["spec"]["nodeName"]);
            if is_reached && pod["metadata"]["deletionTimestamp"].is_string() {
                prop_assert!(cluster.next_due().is_some_and(|due| due > now && due <= now + Duration::from_secs(2)));
            }
        }
        // With every node back, all that is being deleted is gone in time.
        for number in [0, 1] {
            take(&mut cluster, &mut now, Step::Reach(number, true));
        }
        for step in [Step::Round, Step::Seconds(2), Step::Round] {
            take(&mut cluster, &mut now, step);
        }
        let is_held = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_string();
        prop_assert_eq!(cluster.objects(Kind::Pod).filter(is_held).count(), 0);
        prop_assert_eq!(cluster.next_due(), None);
    }
}
