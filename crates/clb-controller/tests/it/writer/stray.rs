//! Pods that hold our finalizer and have no egress label.

use clb_controller::convert::EGRESS_LABEL;
use clb_controller::kube::stray_pods;
use clb_controller::objects::POD_FINALIZER;
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::{Value, json};

use super::World;

fn add(world: &World, name: &str, finalizers: &[&str], labels: &Value) {
    let pod = json!({"metadata": {"name": name, "finalizers": finalizers, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.ask("POST", "pods", pod);
}

async fn strays(world: &World) -> Vec<String> {
    let pods = stray_pods(&world.client).await.unwrap();
    pods.into_iter().map(|pod| pod.metadata.name.unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn eg_55_pods_that_hold_our_finalizer_without_the_label_are_found_and_read_whole() {
    let world = World::new();
    add(&world, "watched", &[POD_FINALIZER], &json!({EGRESS_LABEL: "team-a"}));
    add(&world, "emptied", &[POD_FINALIZER], &json!({EGRESS_LABEL: ""}));
    add(&world, "foreign", &["example.com/theirs"], &json!({}));
    add(&world, "stray", &["example.com/theirs", POD_FINALIZER], &json!({"app": "web"}));
    let pods = stray_pods(&world.client).await.unwrap();
    assert_eq!(world.sent(), ["GET /api/v1/pods", "GET pods/stray"]);
    let [pod] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!(pod.spec.as_ref().unwrap().containers[0].name, "c");
    assert_eq!(serde_json::to_value(pod).unwrap(), world.get("pods/stray"));
}

#[tokio::test(start_paused = true)]
async fn eg_55_all_pages_are_looked_through() {
    let world = World::new();
    for number in 0..1_001 {
        let finalizers: &[&str] = if number % 500 == 0 { &[POD_FINALIZER] } else { &[] };
        add(&world, &format!("pod-{number:04}"), finalizers, &json!({}));
    }
    assert_eq!(strays(&world).await, ["pod-0000", "pod-0500", "pod-1000"]);
    let list = "GET /api/v1/pods";
    let expected = [list, "GET pods/pod-0000", list, "GET pods/pod-0500", list, "GET pods/pod-1000"];
    assert_eq!(world.sent(), expected);
}

#[tokio::test(start_paused = true)]
async fn eg_55_one_that_goes_or_is_labelled_meanwhile_is_no_stray() {
    let late = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Delay(1_000));
    let world = World::with_faults(late);
    for name in ["gone", "labelled", "stray"] {
        add(&world, name, &[POD_FINALIZER], &json!({}));
    }
    let change = |world: &World| {
        world.ask("PATCH", "pods/gone", json!({"metadata": {"finalizers": null}}));
        world.ask("DELETE", "pods/gone", Value::Null);
        world.ask("PATCH", "pods/labelled", json!({"metadata": {"labels": {EGRESS_LABEL: "team-a"}}}));
    };
    let (found, ()) = tokio::join!(strays(&world), world.meanwhile(change));
    assert_eq!(found, ["stray"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_no_empty_list() {
    let faults = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::LoseAnswer);
    let world = World::with_faults(faults);
    assert!(stray_pods(&world.client).await.is_err());
}
