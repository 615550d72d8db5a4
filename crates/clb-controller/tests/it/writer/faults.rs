//! Answers that are late, lost or refusals.

use std::time::Duration;

use clb_controller::objects::{
    Condition, ConditionStatus, Event, EventKind, ObjectRef, ObjectWriter, POD_FINALIZER, SERVICE_FINALIZER,
};
use clb_difftracker::{FailureKind, Outcome, PodRef, PodRequest, ServiceId, ServiceRequest};
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::json;

use super::{World, failed, ip, service_ref};

fn refuse(status: u16, code: &str) -> How {
    How::Refuse { status, code: code.to_owned() }
}

/// Every write that there is, by the path of what it writes.
const WRITES: [&str; 8] = [
    "add finalizers",
    "remove finalizers",
    "set ingress",
    "clear ingress",
    "add finalizer",
    "remove finalizer",
    "condition",
    "event",
];

/// An object for each write to have something to do.
fn prepare(world: &World, write: &str) -> (ServiceId, PodRef) {
    let held: &[&str] = if write == "remove finalizers" { &[SERVICE_FINALIZER] } else { &[] };
    let id = world.add_service(held, &json!([{"ip": "20.0.0.9", "ipMode": "VIP"}]));
    let pod = world.add_pod(if write == "remove finalizer" { &[POD_FINALIZER] } else { &[] });
    (id, pod)
}

async fn perform(world: &World, (id, pod): &(ServiceId, PodRef), write: &str) -> Outcome {
    match write {
        "add finalizers" => world.write(id, ServiceRequest::AddFinalizers).await,
        "remove finalizers" => world.write(id, ServiceRequest::RemoveFinalizers).await,
        "set ingress" => world.write(id, ServiceRequest::SetIngress(ip("20.0.0.1"))).await,
        "clear ingress" => world.write(id, ServiceRequest::ClearIngress(ip("20.0.0.9"))).await,
        "add finalizer" => world.write_pod(pod, PodRequest::AddFinalizer).await,
        "remove finalizer" => world.write_pod(pod, PodRequest::RemoveFinalizer).await,
        "condition" => {
            let message = String::new();
            let condition = Condition { status: ConditionStatus::True, reason: "Programmed".into(), message };
            world.writer.write_condition(&ObjectRef::Pod(pod.clone()), &condition).await
        }
        _ => {
            let (about, message) = (service_ref(id), "hear".to_owned());
            let event = Event { about, kind: EventKind::Normal, reason: "Hear".into(), message };
            world.writer.write_event(&event).await
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sl_07_a_read_that_fails_is_known_to_have_changed_nothing() {
    let throttled = FailureKind::Throttled { retry_after: None };
    for (how, kind) in [
        (refuse(500, "InternalError"), FailureKind::Transient),
        (refuse(503, "ServiceUnavailable"), FailureKind::Transient),
        (refuse(504, "Timeout"), FailureKind::Transient),
        (refuse(401, "Unauthorized"), FailureKind::Transient),
        (refuse(403, "Forbidden"), FailureKind::Forbidden),
        (refuse(400, "BadRequest"), FailureKind::Invalid),
        (refuse(404, "a proxy's"), FailureKind::Transient),
        (How::Throttle { seconds: 7 }, throttled),
        (How::LoseRequest, FailureKind::Transient),
        (How::LoseAnswer, FailureKind::Transient),
        (How::Truncate(10), FailureKind::Transient),
    ] {
        for write in WRITES.into_iter().filter(|write| *write != "event") {
            let faults = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), how.clone());
            let world = World::with_faults(faults);
            let objects = prepare(&world, write);
            let before = world.simulation.with_cluster(|cluster| cluster.version());
            let outcome = perform(&world, &objects, write).await;
            assert_eq!(failed(&outcome), (true, kind), "{write} {how:?}");
            assert_eq!(world.sent().len(), 1, "{write} {how:?}");
            assert_eq!(world.simulation.with_cluster(|cluster| cluster.version()), before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_known_to_have_changed_nothing_only_where_it_was_refused() {
    let throttled = FailureKind::Throttled { retry_after: None };
    for (how, is_refused, kind) in [
        (refuse(403, "Forbidden"), true, FailureKind::Forbidden),
        (refuse(404, "NotFound"), true, FailureKind::NotFound),
        (refuse(413, "RequestEntityTooLarge"), true, FailureKind::Invalid),
        (refuse(422, "Invalid"), true, FailureKind::Invalid),
        (How::Throttle { seconds: 7 }, true, throttled),
        (refuse(500, "InternalError"), false, FailureKind::Transient),
        (refuse(504, "Timeout"), false, FailureKind::Transient),
        (How::LoseRequest, false, FailureKind::Transient),
        (How::LoseAnswer, false, FailureKind::Transient),
        (How::Truncate(10), false, FailureKind::Transient),
    ] {
        for write in WRITES {
            let verb = if write == "event" { "POST" } else { "PATCH" };
            let faults = FaultPlan::new(0).with(When::Nth(1), What::verb(verb), how.clone());
            let world = World::with_faults(faults);
            let objects = prepare(&world, write);
            let before = world.simulation.with_cluster(|cluster| cluster.version());
            let outcome = perform(&world, &objects, write).await;
            assert_eq!(failed(&outcome), (is_refused, kind), "{write} {how:?}");
            let is_applied = matches!(how, How::LoseAnswer | How::Truncate(_));
            let after = world.simulation.with_cluster(|cluster| cluster.version());
            assert_eq!(after - before, u64::from(is_applied), "{write} {how:?}");
            // The same once more is safe, and sends nothing where it was applied; an event counts up.
            assert!(
                matches!(perform(&world, &objects, write).await, Outcome::Succeeded(_)),
                "{write} {how:?}"
            );
            let last = world.simulation.with_cluster(|cluster| cluster.version());
            let is_repeated = !is_applied || write == "event";
            assert_eq!(last - after, u64::from(is_repeated), "{write} {how:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_arrives_twice_is_done_or_found_to_be_done() {
    for write in WRITES {
        let faults = FaultPlan::new(0).with(When::Nth(1), What::verb("PATCH"), How::Repeat).with(
            When::Nth(1),
            What::verb("POST"),
            How::Repeat,
        );
        let world = World::with_faults(faults);
        let objects = prepare(&world, write);
        let outcome = perform(&world, &objects, write).await;
        assert!(matches!(outcome, Outcome::Succeeded(_)), "{write}: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_waited_for() {
    let hour = Duration::from_secs(3_600);
    let faults = FaultPlan::new(0).with(When::Always, What::default(), How::Delay(3_600_000));
    let world = World::with_faults(faults);
    let objects = prepare(&world, "add finalizers");
    let began = tokio::time::Instant::now();
    let outcome = perform(&world, &objects, "add finalizers").await;
    assert_eq!(outcome, world.written("services/web"));
    assert_eq!(began.elapsed(), 2 * hour);
}
