//! Conditions on Services and pods.

use std::time::Duration;

use clb_controller::objects::{Condition, ConditionStatus, ObjectRef, ObjectWriter, PROGRAMMED};
use clb_difftracker::{Outcome, PodRef, ServiceId, Uid};
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::{Value, json};
use tokio::time::advance;

use super::{REFUSED_NOT_FOUND, World, failed, service_key, service_ref};

/// When tests begin, and a minute later.
const AT_START: &str = "2023-11-14T22:13:20Z";
const A_MINUTE_LATER: &str = "2023-11-14T22:14:20Z";

fn condition(status: ConditionStatus, message: &str) -> Condition {
    Condition { status, reason: "Programmed".into(), message: message.to_owned() }
}

fn entry(status: &str, message: &str, since: &str) -> Value {
    json!({"type": PROGRAMMED, "status": status, "reason": "Programmed", "message": message, "lastTransitionTime": since})
}

async fn write(world: &World, object: &ObjectRef, status: ConditionStatus, message: &str) -> Outcome {
    world.writer.write_condition(object, &condition(status, message)).await
}

#[tokio::test(start_paused = true)]
async fn a_services_condition_is_applied_alone_and_those_of_others_stay() {
    let world = World::new();
    let id = world.add_service(&[], &json!([{"ip": "20.0.0.1", "ipMode": "VIP"}]));
    let theirs = json!({"type": "example.com/other", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": AT_START});
    world.ask("PATCH", "services/web/status", json!({"status": {"conditions": [theirs]}}));
    let before = world.get("services/web");
    let outcome = write(&world, &service_ref(&id), ConditionStatus::True, "20.0.0.1").await;
    assert_eq!(outcome, world.written("services/web"));
    let ours = entry("True", "20.0.0.1", AT_START);
    let patch = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "uid": before["metadata"]["uid"]}, "status": {"conditions": [ours]}});
    assert_eq!(
        world.sent_whole(),
        [("GET services/web".to_owned(), Value::Null), ("PATCH services/web/status apply".to_owned(), patch)]
    );
    let status = json!({"loadBalancer": before["status"]["loadBalancer"], "conditions": [theirs, ours]});
    assert_eq!(world.get("services/web")["status"], status);
}

#[tokio::test(start_paused = true)]
async fn a_pods_condition_is_merged_by_its_type_and_those_of_others_stay() {
    let world = World::new();
    let pod = world.add_pod(&[]);
    let theirs = json!({"type": "Ready", "status": "False", "lastTransitionTime": AT_START});
    world.ask("PATCH", "pods/web-0/status", json!({"status": {"phase": "Running", "conditions": [theirs]}}));
    let outcome = write(&world, &ObjectRef::Pod(pod.clone()), ConditionStatus::False, "").await;
    assert_eq!(outcome, world.written("pods/web-0"));
    let ours = entry("False", "", AT_START);
    let patch =
        json!({"metadata": {"name": "web-0", "uid": pod.uid.as_str()}, "status": {"conditions": [ours]}});
    assert_eq!(
        world.sent_whole(),
        [("GET pods/web-0".to_owned(), Value::Null), ("PATCH pods/web-0/status strategic".to_owned(), patch)]
    );
    let status = json!({"phase": "Running", "conditions": [theirs, ours]});
    assert_eq!(world.get("pods/web-0")["status"], status);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_condition_is_that_of_its_last_change_of_status() {
    let world = World::new();
    let id = world.add_service(&[], &json!([]));
    let pod = world.add_pod(&[]);
    let objects = [(service_ref(&id), "services/web"), (ObjectRef::Pod(pod), "pods/web-0")];
    for (object, _) in &objects {
        write(&world, object, ConditionStatus::True, "a").await;
    }
    advance(Duration::from_secs(60)).await;
    for (object, path) in &objects {
        assert_eq!(write(&world, object, ConditionStatus::True, "b").await, world.written(path));
        assert_eq!(world.get(path)["status"]["conditions"], json!([entry("True", "b", AT_START)]));
        assert_eq!(write(&world, object, ConditionStatus::Unknown, "b").await, world.written(path));
        assert_eq!(world.get(path)["status"]["conditions"], json!([entry("Unknown", "b", A_MINUTE_LATER)]));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_when_the_condition_says_so_already() {
    let world = World::new();
    let id = world.add_service(&[], &json!([]));
    let pod = world.add_pod(&[]);
    for (object, path) in [(service_ref(&id), "services/web"), (ObjectRef::Pod(pod), "pods/web-0")] {
        write(&world, &object, ConditionStatus::True, "").await;
        let before = world.get(path);
        world.sent();
        advance(Duration::from_secs(60)).await;
        assert_eq!(write(&world, &object, ConditionStatus::True, "").await, world.written(path));
        assert_eq!((world.sent(), world.get(path)), (vec![format!("GET {path}")], before));
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_our_type_that_somebody_else_wrote_becomes_ours() {
    let world = World::new();
    let id = world.add_service(&[], &json!([]));
    let theirs = entry("Unknown", "mine", AT_START);
    world.ask("PATCH", "services/web/status", json!({"status": {"conditions": [theirs]}}));
    let outcome = write(&world, &service_ref(&id), ConditionStatus::True, "").await;
    assert_eq!(outcome, world.written("services/web"));
    assert_eq!(world.get("services/web")["status"]["conditions"], json!([entry("True", "", AT_START)]));
}

#[tokio::test(start_paused = true)]
async fn a_condition_is_written_on_a_service_that_is_being_deleted_or_was_retyped() {
    let world = World::new();
    let id = world.add_service(&["example.com/theirs"], &json!([]));
    world.ask("PATCH", "services/web", json!({"spec": {"type": "ClusterIP"}}));
    world.ask("DELETE", "services/web", Value::Null);
    let outcome = write(&world, &service_ref(&id), ConditionStatus::False, "").await;
    assert_eq!(outcome, world.written("services/web"));
    assert_eq!(world.get("services/web")["status"]["conditions"], json!([entry("False", "", AT_START)]));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_or_another_one_is_not_found_and_left_alone() {
    let world = World::new();
    let key = service_key();
    let service = ServiceId::new("00000000-0000-0000-0000-000000000000").unwrap();
    let pod = PodRef { uid: Uid::new("u-0"), key: clb_difftracker::ObjectKey::new("default", "web-0") };
    let objects = [ObjectRef::Service { id: service, key }, ObjectRef::Pod(pod)];
    for object in &objects {
        assert_eq!(failed(&write(&world, object, ConditionStatus::True, "").await), REFUSED_NOT_FOUND);
    }
    world.add_service(&[], &json!([]));
    world.add_pod(&[]);
    for object in &objects {
        assert_eq!(failed(&write(&world, object, ConditionStatus::True, "").await), REFUSED_NOT_FOUND);
    }
    assert_eq!(world.sent(), ["GET services/web", "GET pods/web-0", "GET services/web", "GET pods/web-0"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_replaced_in_between_is_not_found_and_its_successor_left_alone() {
    let late = || FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Delay(1_000));
    let world = World::with_faults(late());
    let id = world.add_service(&[], &json!([]));
    let object = service_ref(&id);
    let replace = |world: &World| drop(world.replace_service());
    let (outcome, ()) =
        tokio::join!(write(&world, &object, ConditionStatus::True, ""), world.meanwhile(replace));
    assert_eq!(failed(&outcome), REFUSED_NOT_FOUND);
    assert_eq!(world.sent(), ["GET services/web", "PATCH services/web/status apply"]);
    assert_eq!(world.get("services/web")["status"], json!({"loadBalancer": {}}));

    let world = World::with_faults(late());
    let object = ObjectRef::Pod(world.add_pod(&[]));
    let replace = |world: &World| {
        world.ask("DELETE", "pods/web-0", Value::Null);
        world.add_pod(&[]);
    };
    let (outcome, ()) =
        tokio::join!(write(&world, &object, ConditionStatus::True, ""), world.meanwhile(replace));
    assert_eq!(failed(&outcome), REFUSED_NOT_FOUND);
    assert_eq!(world.sent(), ["GET pods/web-0", "PATCH pods/web-0/status strategic"]);
    assert_eq!(world.get("pods/web-0")["status"], json!({"phase": "Pending"}));
}

#[tokio::test(start_paused = true)]
async fn a_change_in_between_does_not_matter_to_a_condition() {
    let late = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Delay(1_000));
    let world = World::with_faults(late);
    let id = world.add_service(&[], &json!([]));
    let object = service_ref(&id);
    let change =
        |world: &World| drop(world.ask("PATCH", "services/web", json!({"metadata": {"labels": {"a": "b"}}})));
    let (outcome, ()) =
        tokio::join!(write(&world, &object, ConditionStatus::True, ""), world.meanwhile(change));
    assert_eq!(outcome, world.written("services/web"));
    assert_eq!(world.sent(), ["GET services/web", "PATCH services/web/status apply"]);
}
