//! Roll-outs, and what becomes of requests meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use clb_sim::delivery::{Delivery, may_lose, sends};
use clb_sim::kube::{Kind, KubeSimulation, Rollout, RolloutError};
use clb_sim::{Simulation, SimulatorConfig};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::kube_pods::{PODS, node, ok, pod, running, say, settled, sleeps, web};
use crate::support::{
    get, inbound, load_balancer, load_balancer_path, public_ip, public_ip_path, put, update_locations,
    update_services,
};

/// Longer than any roll-out here takes.
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A roll-out of pods with a readiness gate.
fn rollout(spec: Value) -> Rollout {
    let mut template = pod("", spec);
    template["metadata"] = json!({"generateName": "new-", "labels": {"app": "web", "version": "2"}});
    template["spec"]["readinessGates"] = json!([{"conditionType": "x/a"}]);
    let selector = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    Rollout { namespace: "default".to_owned(), selector, template }
}

fn names(simulation: &KubeSimulation, is_wanted: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    simulation.with_cluster(|cluster| {
        let pods = cluster.objects(Kind::Pod).filter(|pod| is_wanted(pod));
        pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    })
}

fn says(pod: &Value, condition: &str) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

fn is_ready(pod: &Value) -> bool {
    says(pod, "Ready")
}

fn counts(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

/// Opens the gates of new pods, each so long after it was seen.
async fn open_gates(simulation: KubeSimulation, after: Duration) {
    let mut version = 0;
    loop {
        for name in names(&simulation, |pod| counts(pod) && !says(pod, "x/a") && !is_ready(pod)) {
            sleep(after).await;
            // It may be gone by now.
            if names(&simulation, |pod| pod["metadata"]["name"] == name).len() == 1 {
                say(&simulation, &name, "x/a", "True");
            }
        }
        version = simulation.changed_since(version).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_replaced_one_by_one_and_as_many_as_before_are_always_ready() {
    let old = ["a", "b", "c"].map(|name| pod(name, sleeps(20)));
    let simulation = running(&[&[node("n", 1), web()], &old[..]].concat());
    settled().await;
    tokio::spawn(open_gates(simulation.clone(), Duration::from_secs(3)));
    let watched = simulation.clone();
    let watching = tokio::spawn(async move {
        let (mut version, mut most) = (0, 0);
        loop {
            assert!(names(&watched, |pod| counts(pod) && is_ready(pod)).len() >= 3);
            most = most.max(names(&watched, counts).len());
            tokio::select! {
                now = watched.changed_since(version) => version = now,
                () = sleep(Duration::from_secs(60)) => return most,
            }
        }
    });
    let begun = Instant::now();
    let new = timeout(AN_HOUR, rollout(sleeps(20)).run(&simulation)).await.unwrap().unwrap();
    // Each waits for its gate, and none for an old one to stop.
    assert_eq!(begun.elapsed().as_secs(), 9);
    assert_eq!(names(&simulation, counts), new);
    assert_eq!((new.len(), names(&simulation, |pod| !counts(pod)).len()), (3, 3));
    sleep(Duration::from_secs(21)).await;
    assert_eq!(names(&simulation, |_| true), new);
    assert_eq!(watching.await.unwrap(), 4, "one more than before, never two");
}

#[tokio::test(start_paused = true)]
async fn old_pods_that_are_not_ready_do_not_hold_up_a_rollout_and_new_ones_do() {
    let simulation = running(&[node("n", 1), pod("a", json!({})), pod("b", json!({}))]);
    settled().await;
    say(&simulation, "b", "ContainersReady", "False");
    settled().await;
    let roll = tokio::spawn({
        let simulation = simulation.clone();
        async move { timeout(AN_HOUR, rollout(json!({})).run(&simulation)).await.unwrap() }
    });
    sleep(Duration::from_secs(60)).await;
    let waits = names(&simulation, |pod| counts(pod) && !is_ready(pod));
    assert_eq!((waits.len(), names(&simulation, counts).len()), (2, 3), "{waits:?}");
    // One that somebody takes away is made again.
    let lost = waits.iter().find(|name| name.starts_with("new-")).unwrap();
    ok(&simulation, "DELETE", &format!("{PODS}/{lost}"), Value::Null);
    tokio::spawn(open_gates(simulation.clone(), Duration::from_secs(1)));
    let new = roll.await.unwrap().unwrap();
    assert_eq!((names(&simulation, |_| true), new.len()), (new.clone(), 2));
    assert!(!new.contains(lost));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_whose_gates_nobody_opens_waits() {
    let simulation = running(&[node("n", 1), pod("a", json!({}))]);
    settled().await;
    let waited = timeout(AN_HOUR, rollout(json!({})).run(&simulation)).await;
    assert!(waited.is_err());
    assert_eq!(names(&simulation, |pod| counts(pod) && is_ready(pod)), BTreeSet::from(["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_says_why_it_does_not_go_on() {
    let simulation = running(&[node("n", 1), pod("a", json!({}))]);
    settled().await;
    let mut unselected = rollout(json!({}));
    unselected.template["metadata"]["labels"] = json!({"version": "2"});
    assert_eq!(unselected.run(&simulation).await, Err(RolloutError::NotSelected("app".to_owned())));
    let mut nameless = rollout(json!({}));
    nameless.template["metadata"]["generateName"] = Value::Null;
    let refused = nameless.run(&simulation).await.unwrap_err().to_string();
    assert!(refused.contains("name or generateName is required"), "{refused}");
}

/// An Azure with one load balancer, and the address of its frontend.
fn azure() -> (Simulation, IpAddr) {
    let azure = Simulation::new(SimulatorConfig::default());
    let service = json!([{"service": {"name": "a", "properties": inbound("a")}}]);
    for request in [
        put(&public_ip_path("a"), public_ip("IPv4")),
        put(&load_balancer_path("a"), load_balancer("a", &[("Tcp", 80, 8080)])),
        update_services("PartialUpdate", service),
    ] {
        assert!(azure.with_azure(|azure| azure.handle(&request)).status < 300, "{request:?}");
    }
    let address = azure.with_azure(|azure| azure.handle(&get(&public_ip_path("a"))));
    let address = address.body["properties"]["ipAddress"].as_str().unwrap().parse().unwrap();
    (azure, address)
}

/// Tells Azure that a pod is at a location.
fn place(azure: &Simulation, location: &str, pod: IpAddr) {
    let request = update_locations(
        "PartialUpdate",
        json!([{"addressLocation": location, "addressUpdateAction": "PartialUpdate",
            "addresses": [{"address": pod, "services": ["a"]}]}]),
    );
    assert!(azure.with_azure(|azure| azure.handle(&request)).status < 300);
}

fn address(simulation: &KubeSimulation, name: &str) -> IpAddr {
    simulation.with_cluster(|cluster| {
        let pod = cluster.objects(Kind::Pod).find(|pod| pod["metadata"]["name"] == name).unwrap();
        pod["status"]["podIP"].as_str().unwrap().parse().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_is_served_by_a_pod_whose_containers_run_ready_or_not() {
    let mut gated = sleeps(5);
    gated["readinessGates"] = json!([{"conditionType": "x/a"}]);
    let simulation = running(&[node("n", 1), pod("p", gated)]);
    settled().await;
    let (azure, frontend) = azure();
    let pod_ip = address(&simulation, "p");
    let sent = || sends(&azure, &simulation, frontend, "TCP", 80);
    assert_eq!((sent(), may_lose(&sent())), (Vec::new(), true), "nobody is there");
    place(&azure, "10.0.0.1", pod_ip);
    let to = |served| (vec![Delivery { pod_ip, served }], !served);
    let what_happens = || (sent(), may_lose(&sent()));
    assert_eq!(what_happens(), to(true), "its gate is closed, and it serves");
    assert_eq!(sends(&azure, &simulation, frontend, "udp", 80), Vec::new(), "no such frontend");
    say(&simulation, "p", "ContainersReady", "False");
    assert_eq!(what_happens(), to(false), "its containers crash");
    say(&simulation, "p", "ContainersReady", "True");
    for is_ready in [false, true] {
        simulation.set_node_ready("n", is_ready).unwrap();
        settled().await;
        assert_eq!(what_happens(), to(is_ready), "its node is out of reach or not");
    }
    ok(&simulation, "DELETE", &format!("{PODS}/p"), Value::Null);
    sleep(Duration::from_millis(4_900)).await;
    assert_eq!(what_happens(), to(true), "it sleeps before it stops");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(what_happens(), to(false), "it has stopped");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_lost_that_goes_to_the_wrong_node_or_to_one_of_two_pods_that_is_gone() {
    let simulation = running(&[node("n", 1), pod("p", json!({})), pod("q", json!({}))]);
    settled().await;
    let (azure, frontend) = azure();
    let (p, q) = (address(&simulation, "p"), address(&simulation, "q"));
    place(&azure, "10.0.0.9", p);
    let sent = || sends(&azure, &simulation, frontend, "tcp", 80);
    assert_eq!(sent(), [Delivery { pod_ip: p, served: false }]);
    place(&azure, "10.0.0.1", q);
    assert_eq!(sent(), [Delivery { pod_ip: p, served: false }, Delivery { pod_ip: q, served: true }]);
    assert!(may_lose(&sent()));
}
