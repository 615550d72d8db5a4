//! Pods that come, go and are lost, seen by those who send requests: roll-outs with readiness gates, and nodes out of reach.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use clb_sim::SimulatorConfig;
use clb_sim::delivery::{may_lose, sends};
use clb_sim::kube::{KubeConfig, Rollout};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::world::{Replica, SECOND, World};

/// A pod of the Service `web` that sleeps so many seconds before it stops; with our gate, or without.
fn pod(sleeps: u64, is_gated: bool) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i",
        "lifecycle": {"preStop": {"sleep": {"seconds": sleeps}}}}]});
    let mut labels = json!({"app": "web"});
    if is_gated {
        spec["readinessGates"] = json!([{"conditionType": "clb.azure.com/programmed"}]);
        labels["clb.azure.com/readiness-gate"] = json!("enabled");
    }
    json!({"metadata": {"generateName": "web-", "labels": labels}, "spec": spec})
}

/// A cluster that runs by itself, with a Service of three such pods, an Azure that takes its time, and a controller that
/// gathers changes for two seconds before it sends them: what is sent has its effect at once, however late the answer.
async fn serving(sleeps: u64, is_gated: bool) -> (World, Replica, IpAddr) {
    let azure = SimulatorConfig { latency: 3 * SECOND, ..SimulatorConfig::default() };
    let world = World::with(KubeConfig::default(), azure);
    let cluster = world.kube.clone();
    tokio::spawn(async move { cluster.run_controllers().await });
    world.node("n1", "192.168.0.1");
    world.node("n2", "192.168.0.2");
    world.service("web", json!({"selector": {"app": "web"}}));
    for _ in 0..3 {
        world.ask("POST", "/api/v1/namespaces/default/pods", pod(sleeps, is_gated)).unwrap();
    }
    let mut config = World::config();
    config.driver.tracker.batch_window = 2 * SECOND;
    let replica = world.start_with(config);
    world.settle(&replica).await;
    let frontend = world.ingress("web")[0].parse().unwrap();
    assert_eq!(sends(&world.azure, &world.kube, frontend, "TCP", 80).len(), 3);
    (world, replica, frontend)
}

/// Rolls new pods out; for how many of the moments at which somebody could have sent a request it might have been lost.
async fn lost_in_a_rollout(sleeps: u64, is_gated: bool) -> usize {
    let (world, replica, frontend) = serving(sleeps, is_gated).await;
    let selector = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let rollout = Rollout { namespace: "default".to_owned(), selector, template: pod(sleeps, is_gated) };
    let cluster = world.kube.clone();
    let rolling = tokio::spawn(async move { timeout(3_600 * SECOND, rollout.run(&cluster)).await });
    let mut lost = 0;
    let mut rest = 200;
    while rest > 0 {
        lost += usize::from(may_lose(&sends(&world.azure, &world.kube, frontend, "TCP", 80)));
        sleep(Duration::from_millis(100)).await;
        if rolling.is_finished() {
            rest -= 1;
        }
    }
    assert_eq!(rolling.await.unwrap().unwrap().unwrap().len(), 3);
    world.settle(&replica).await;
    let at_the_end = sends(&world.azure, &world.kube, frontend, "TCP", 80);
    assert_eq!((at_the_end.len(), may_lose(&at_the_end)), (3, false));
    lost
}

#[tokio::test(start_paused = true)]
async fn with_gates_and_a_pause_before_pods_stop_a_rollout_loses_no_request() {
    assert_eq!(lost_in_a_rollout(20, true).await, 0);
}

#[tokio::test(start_paused = true)]
async fn without_gates_or_without_that_pause_a_rollout_may_lose_some() {
    // What the test above looks at can be seen to fail.
    assert!(lost_in_a_rollout(0, true).await > 0);
    assert!(lost_in_a_rollout(0, false).await > 0);
}

#[tokio::test(start_paused = true)]
async fn a_gate_opens_when_its_time_is_up_though_azure_cannot_be_programmed() {
    use clb_sim::fault::{FaultPlan, How, What, When};
    let (world, replica, _) = serving(20, true).await;
    let broken = How::Refuse { status: 500, code: "InternalServerError".to_owned() };
    let everything = FaultPlan::new(0).with(When::Always, What::verb("POST"), broken);
    world.azure.set_faults(everything);
    let made = world.ask("POST", "/api/v1/namespaces/default/pods", pod(20, true)).unwrap();
    let path = format!("/api/v1/namespaces/default/pods/{}", made["metadata"]["name"].as_str().unwrap());
    sleep(590 * SECOND).await;
    assert_eq!(world.condition(&path), None);
    sleep(20 * SECOND).await;
    assert_eq!(world.condition(&path), Some(("True".to_owned(), "TimedOut".to_owned())));
    world.azure.set_faults(FaultPlan::default());
    world.settle(&replica).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_lost_with_all_their_nodes_are_kept_for_a_while() {
    let (world, replica, frontend) = serving(20, false).await;
    let backends = || world.azure.with_azure(|azure| azure.ingress(frontend, "tcp", 80)).unwrap().pods.len();
    // One node of two: its pods go, since others are there.
    world.kube.set_node_ready("n1", false).unwrap();
    sleep(60 * SECOND).await;
    let left = backends();
    assert!((1..3).contains(&left), "{left} of 3 pods");
    world.kube.set_node_ready("n2", false).unwrap();
    sleep(60 * SECOND).await;
    assert!(backends() > 0);
    assert!(world.warnings().contains("EndpointsKept"), "{:?}", world.events());
    // Nothing changes as long as that lasts, and then they go.
    sleep(220 * SECOND).await;
    assert!(backends() > 0);
    sleep(120 * SECOND).await;
    assert_eq!(backends(), 0);
    // They are back with their nodes.
    for node in ["n1", "n2"] {
        world.kube.set_node_ready(node, true).unwrap();
    }
    world.settle(&replica).await;
    assert_eq!(backends(), 3);
}
