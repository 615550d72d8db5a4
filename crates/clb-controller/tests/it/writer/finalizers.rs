//! Finalizers of Services and pods.

use clb_controller::objects::{ObjectWriter, POD_FINALIZER, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER};
use clb_difftracker::{FailureKind, Outcome, PodRef, PodRequest, ServiceId, ServiceRequest, Uid};
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::{Value, json};

use super::{REFUSED_CONFLICT, REFUSED_NOT_FOUND, World, failed};
use ServiceRequest::{AddFinalizers, RemoveFinalizers};

const FOREIGN: &str = "example.com/theirs";
const OTHER: &str = "example.com/late";

/// The first read is told a second late.
fn late_read() -> FaultPlan {
    FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Delay(1_000))
}

#[tokio::test(start_paused = true)]
async fn fn_01_both_finalizers_are_added_in_one_patch_after_those_of_others() {
    let world = World::new();
    let id = world.add_service(&[FOREIGN], &json!([]));
    let before = world.get("services/web");
    assert_eq!(world.write(&id, AddFinalizers).await, world.written("services/web"));
    let finalizers = json!([FOREIGN, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER]);
    let patch = json!({"metadata": {"uid": before["metadata"]["uid"],
        "resourceVersion": before["metadata"]["resourceVersion"], "finalizers": finalizers}});
    assert_eq!(
        world.sent_whole(),
        [("GET services/web".to_owned(), Value::Null), ("PATCH services/web merge".to_owned(), patch)]
    );
    assert_eq!(world.get("services/web")["metadata"]["finalizers"], finalizers);
}

#[tokio::test(start_paused = true)]
async fn fn_02_a_half_that_is_missing_is_added_and_nothing_is_there_twice() {
    let world = World::new();
    let id = world.add_service(&[UPSTREAM_SERVICE_FINALIZER, FOREIGN], &json!([]));
    assert_eq!(world.write(&id, AddFinalizers).await, world.written("services/web"));
    let finalizers = json!([UPSTREAM_SERVICE_FINALIZER, FOREIGN, SERVICE_FINALIZER]);
    assert_eq!(world.get("services/web")["metadata"]["finalizers"], finalizers);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_when_both_finalizers_are_there() {
    let world = World::new();
    let id = world.add_service(&[UPSTREAM_SERVICE_FINALIZER, SERVICE_FINALIZER], &json!([]));
    assert_eq!(world.write(&id, AddFinalizers).await, world.written("services/web"));
    assert_eq!(world.sent(), ["GET services/web"]);
}

#[tokio::test(start_paused = true)]
async fn sl_08_a_service_that_is_gone_or_another_one_is_not_found_and_left_alone() {
    let world = World::new();
    let id = ServiceId::new("00000000-0000-0000-0000-000000000000").unwrap();
    for request in [AddFinalizers, RemoveFinalizers] {
        assert_eq!(failed(&world.write(&id, request).await), REFUSED_NOT_FOUND);
    }
    world.add_service(&[SERVICE_FINALIZER], &json!([]));
    let before = world.get("services/web");
    for request in [AddFinalizers, RemoveFinalizers] {
        assert_eq!(failed(&world.write(&id, request).await), REFUSED_NOT_FOUND);
    }
    assert_eq!(world.get("services/web"), before);
    assert_eq!(world.sent(), ["GET services/web"; 4]);
}

#[tokio::test(start_paused = true)]
async fn the_uid_of_a_service_may_be_spelled_in_capitals() {
    let world = World::new();
    let id = world.add_service(&[], &json!([]));
    let id = ServiceId::new(&id.as_str().to_ascii_uppercase()).unwrap();
    assert_eq!(world.write(&id, AddFinalizers).await, world.written("services/web"));
}

#[tokio::test(start_paused = true)]
async fn sl_27_no_finalizer_goes_on_a_service_that_is_being_deleted_or_was_retyped() {
    let world = World::new();
    let id = world.add_service(&[FOREIGN], &json!([]));
    world.ask("PATCH", "services/web", json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(failed(&world.write(&id, AddFinalizers).await), REFUSED_CONFLICT);
    world.ask("PATCH", "services/web", json!({"spec": {"type": "LoadBalancer"}}));
    world.ask("DELETE", "services/web", Value::Null);
    let refused = world.write(&id, AddFinalizers).await;
    assert_eq!(failed(&refused), REFUSED_CONFLICT);
    let Outcome::Failed(failure) = refused else { panic!() };
    let message = "Service default/web is being deleted or asks for no load balancer of ours by now; nothing is written";
    assert_eq!(failure.message, message);
    assert_eq!(world.sent(), ["GET services/web"; 2]);
}

#[tokio::test(start_paused = true)]
async fn sl_33_a_service_of_another_class_gets_no_finalizer_and_no_address() {
    let world = World::new();
    let service = json!({"metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/lb", "ports": [{"port": 80}]}});
    let created = world.ask("POST", "services", service);
    let id = ServiceId::new(created["metadata"]["uid"].as_str().unwrap()).unwrap();
    for request in [AddFinalizers, ServiceRequest::SetIngress(super::ip("20.0.0.1"))] {
        assert_eq!(failed(&world.write(&id, request).await), REFUSED_CONFLICT);
    }
    assert_eq!(world.sent(), ["GET services/web"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_rejected_still_is_ours_to_hold() {
    let world = World::new();
    let id = world.add_service(&[], &json!([]));
    world.ask("PATCH", "services/web", json!({"spec": {"sessionAffinity": "ClientIP"}}));
    assert_eq!(world.write(&id, AddFinalizers).await, world.written("services/web"));
}

#[tokio::test(start_paused = true)]
async fn fn_05_only_our_finalizers_are_removed_whatever_the_service_is_by_now() {
    for deleted in [false, true] {
        let world = World::new();
        let id =
            world.add_service(&[SERVICE_FINALIZER, FOREIGN, UPSTREAM_SERVICE_FINALIZER, OTHER], &json!([]));
        world.ask("PATCH", "services/web", json!({"spec": {"type": "ClusterIP"}}));
        if deleted {
            world.ask("DELETE", "services/web", Value::Null);
        }
        let before = world.get("services/web");
        assert_eq!(world.write(&id, RemoveFinalizers).await, world.written("services/web"));
        let patch = json!({"metadata": {"uid": before["metadata"]["uid"],
            "resourceVersion": before["metadata"]["resourceVersion"], "finalizers": [FOREIGN, OTHER]}});
        assert_eq!(
            world.sent_whole(),
            [("GET services/web".to_owned(), Value::Null), ("PATCH services/web merge".to_owned(), patch)]
        );
        assert_eq!(world.get("services/web")["metadata"]["finalizers"], json!([FOREIGN, OTHER]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_gone_with_its_last_finalizer_and_then_not_found() {
    let world = World::new();
    let id = world.add_service(&[SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER], &json!([]));
    world.ask("DELETE", "services/web", Value::Null);
    assert!(matches!(world.write(&id, RemoveFinalizers).await, Outcome::Succeeded(_)));
    assert_eq!(world.try_ask("GET", "services/web", Value::Null).0, 404);
    assert_eq!(failed(&world.write(&id, RemoveFinalizers).await), REFUSED_NOT_FOUND);
    assert_eq!(world.sent(), ["GET services/web", "PATCH services/web merge", "GET services/web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_without_our_finalizers_has_lost_them() {
    let world = World::new();
    let id = world.add_service(&[FOREIGN], &json!([]));
    assert_eq!(world.write(&id, RemoveFinalizers).await, world.written("services/web"));
    assert_eq!(world.sent(), ["GET services/web"]);
}

#[tokio::test(start_paused = true)]
async fn fn_04_a_finalizer_that_comes_in_between_is_kept() {
    for (request, held, expected) in [
        (AddFinalizers, vec![], vec![OTHER, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER]),
        (RemoveFinalizers, vec![SERVICE_FINALIZER], vec![OTHER]),
    ] {
        let world = World::with_faults(late_read());
        let id = world.add_service(&held, &json!([]));
        let theirs = |world: &World| {
            let finalizers: Vec<_> = held.iter().chain([&OTHER]).collect();
            world.ask("PATCH", "services/web", json!({"metadata": {"finalizers": finalizers}}));
        };
        let (outcome, ()) = tokio::join!(world.write(&id, request), world.meanwhile(theirs));
        assert_eq!(outcome, world.written("services/web"));
        let [get, patch] = ["GET services/web", "PATCH services/web merge"];
        assert_eq!(world.sent(), [get, patch, get, patch]);
        assert_eq!(world.get("services/web")["metadata"]["finalizers"], json!(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn fn_03_a_service_that_is_replaced_in_between_is_not_found_and_its_successor_left_alone() {
    for request in [AddFinalizers, RemoveFinalizers] {
        let world = World::with_faults(late_read());
        let id = world.add_service(&[], &json!([]));
        let held = json!({"metadata": {"finalizers": [SERVICE_FINALIZER]}});
        if request == RemoveFinalizers {
            world.ask("PATCH", "services/web", held);
        }
        let replace = |world: &World| {
            world.ask("PATCH", "services/web", json!({"metadata": {"finalizers": null}}));
            world.replace_service();
        };
        let (outcome, ()) = tokio::join!(world.write(&id, request), world.meanwhile(replace));
        assert_eq!(failed(&outcome), REFUSED_NOT_FOUND);
        assert_eq!(world.sent(), ["GET services/web", "PATCH services/web merge", "GET services/web"]);
        assert_eq!(world.get("services/web")["metadata"]["finalizers"], Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_in_between_is_not_given_a_finalizer() {
    let world = World::with_faults(late_read());
    let id = world.add_service(&[FOREIGN], &json!([]));
    let delete = |world: &World| drop(world.ask("DELETE", "services/web", Value::Null));
    let (outcome, ()) = tokio::join!(world.write(&id, AddFinalizers), world.meanwhile(delete));
    assert_eq!(failed(&outcome), REFUSED_CONFLICT);
    assert_eq!(world.sent(), ["GET services/web", "PATCH services/web merge", "GET services/web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_goes_in_between_is_not_found() {
    let world = World::with_faults(late_read());
    let id = world.add_service(&[], &json!([]));
    let delete = |world: &World| drop(world.ask("DELETE", "services/web", Value::Null));
    let (outcome, ()) = tokio::join!(world.write(&id, AddFinalizers), world.meanwhile(delete));
    assert_eq!(failed(&outcome), REFUSED_NOT_FOUND);
    assert_eq!(world.sent(), ["GET services/web", "PATCH services/web merge"]);
}

#[tokio::test(start_paused = true)]
async fn fn_07_a_pods_finalizer_is_added_and_removed_and_those_of_others_stay() {
    let world = World::new();
    let pod = world.add_pod(&[FOREIGN]);
    let before = world.get("pods/web-0");
    assert_eq!(world.write_pod(&pod, PodRequest::AddFinalizer).await, world.written("pods/web-0"));
    let patch = json!({"metadata": {"uid": before["metadata"]["uid"],
        "resourceVersion": before["metadata"]["resourceVersion"], "finalizers": [FOREIGN, POD_FINALIZER]}});
    assert_eq!(
        world.sent_whole(),
        [("GET pods/web-0".to_owned(), Value::Null), ("PATCH pods/web-0 merge".to_owned(), patch)]
    );
    assert_eq!(world.write_pod(&pod, PodRequest::AddFinalizer).await, world.written("pods/web-0"));
    assert_eq!(world.sent(), ["GET pods/web-0"]);
    assert_eq!(world.write_pod(&pod, PodRequest::RemoveFinalizer).await, world.written("pods/web-0"));
    assert_eq!(world.get("pods/web-0")["metadata"]["finalizers"], json!([FOREIGN]));
    assert_eq!(world.write_pod(&pod, PodRequest::RemoveFinalizer).await, world.written("pods/web-0"));
    assert_eq!(world.sent(), ["GET pods/web-0", "PATCH pods/web-0 merge", "GET pods/web-0"]);
}

#[tokio::test(start_paused = true)]
async fn eg_42_the_pod_that_took_a_pods_name_is_left_alone() {
    let world = World::new();
    let pod = world.add_pod(&[POD_FINALIZER]);
    let old = PodRef { uid: Uid::new("u-0"), key: pod.key.clone() };
    for request in [PodRequest::AddFinalizer, PodRequest::RemoveFinalizer] {
        assert_eq!(failed(&world.write_pod(&old, request).await), REFUSED_NOT_FOUND);
    }
    assert_eq!(world.sent(), ["GET pods/web-0"; 2]);
    assert_eq!(world.get("pods/web-0")["metadata"]["finalizers"], json!([POD_FINALIZER]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_takes_no_finalizer_and_the_tracker_waits_for_the_watch() {
    let world = World::new();
    let pod = world.add_pod(&[FOREIGN]);
    world.ask("DELETE", "pods/web-0", Value::Null);
    assert_eq!(failed(&world.write_pod(&pod, PodRequest::AddFinalizer).await), REFUSED_CONFLICT);
    assert_eq!(world.write_pod(&pod, PodRequest::RemoveFinalizer).await, world.written("pods/web-0"));
    assert_eq!(world.sent(), ["GET pods/web-0"; 2]);
    // With the finalizer on, nothing has to be added.
    let world = World::new();
    let pod = world.add_pod(&[POD_FINALIZER]);
    world.ask("DELETE", "pods/web-0", Value::Null);
    assert_eq!(world.write_pod(&pod, PodRequest::AddFinalizer).await, world.written("pods/web-0"));
    assert_eq!(world.sent(), ["GET pods/web-0"]);
}

#[tokio::test(start_paused = true)]
async fn fn_04_an_object_that_is_never_as_it_was_read_is_tried_five_times_with_growing_pauses() {
    let run = async |instance: &str| {
        // Every read shows the version before.
        let stale = FaultPlan::new(0).with(When::Always, What::verb("GET"), How::Stale(1));
        let world = World::with_faults(stale);
        let id = world.add_service(&[], &json!([]));
        world.ask("PATCH", "services/web", json!({"metadata": {"labels": {"a": "b"}}}));
        let before = world.get("services/web");
        let mut calls = world.simulation.subscribe();
        let writer = World::writer_of(&world.client, instance);
        let outcome = writer.write_service(&id, &super::service_key(), AddFinalizers).await;
        assert_eq!(failed(&outcome), (true, FailureKind::Conflict));
        assert_eq!(world.get("services/web"), before);
        let mut times = Vec::new();
        while let Ok(call) = calls.try_recv() {
            if call.call.verb == "PATCH" {
                assert_eq!(call.status, 409);
                times.push(call.at.as_millis());
            }
        }
        times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
    };
    let pauses = run("replica-a").await;
    assert_eq!(pauses.len(), 4);
    for (pause, least) in pauses.iter().zip([100, 200, 400, 800]) {
        assert!((least..=least + least / 10 + 1).contains(pause), "{pauses:?}");
    }
    assert_eq!(run("replica-a").await, pauses);
    assert_ne!(run("replica-b").await, pauses);
}
