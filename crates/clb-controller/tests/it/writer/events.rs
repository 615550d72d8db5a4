//! Events.

use std::time::Duration;

use clb_controller::objects::{Event, EventKind, ObjectRef, ObjectWriter};
use clb_difftracker::{FailureKind, ObjectKey, Outcome, PodRef, ServiceId, Success, Uid};
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::{Value, json};
use tokio::time::advance;

use super::{REFUSED_NOT_FOUND, World, failed, service_key};

const UID: &str = "5dec0346-d61c-4b2e-9d3c-1a2b3c4d5e6f";
/// Of these four texts: the UID, the type, the reason and the message. Another name would be another event after an update.
const NAME: &str = "web.ffd617fbd6d7d9d4";
const DONE: Outcome = Outcome::Succeeded(Success::Done);

fn about(message: &str) -> Event {
    Event {
        about: ObjectRef::Service { id: ServiceId::new(UID).unwrap(), key: service_key() },
        kind: EventKind::Warning,
        reason: "UnsupportedDualStack".into(),
        message: message.to_owned(),
    }
}

fn event(count: u32, last: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "default", "name": NAME},
        "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": "default", "name": "web", "uid": UID},
        "type": "Warning", "reason": "UnsupportedDualStack", "message": "two families", "count": count,
        "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": last,
        "source": {"component": "clb-controller"}, "reportingComponent": "clb-controller",
        "reportingInstance": "replica-a"})
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_on_its_object() {
    let world = World::new();
    assert_eq!(world.writer.write_event(&about("two families")).await, DONE);
    assert_eq!(world.sent_whole(), [("POST events".to_owned(), event(1, "2023-11-14T22:13:20Z"))]);
}

#[tokio::test(start_paused = true)]
async fn the_same_event_told_again_by_whomever_counts_up() {
    let world = World::new();
    world.writer.write_event(&about("two families")).await;
    let created = world.get(&format!("events/{NAME}"));
    world.sent();
    advance(Duration::from_secs(60)).await;
    let other = World::writer_of(&world.client, "replica-b");
    assert_eq!(world.writer.write_event(&about("two families")).await, DONE);
    let patch = json!({"metadata": {"uid": created["metadata"]["uid"],
        "resourceVersion": created["metadata"]["resourceVersion"]},
        "count": 2, "lastTimestamp": "2023-11-14T22:14:20Z"});
    let [(post, _), (get, _), patched] = &world.sent_whole()[..] else { panic!() };
    assert_eq!((post.as_str(), get.as_str()), ("POST events", &*format!("GET events/{NAME}")));
    assert_eq!(patched, &(format!("PATCH events/{NAME} merge"), patch));
    assert_eq!(other.write_event(&about("two families")).await, DONE);
    let held = world.get(&format!("events/{NAME}"));
    assert_eq!((&held["count"], &held["reportingInstance"]), (&json!(3), &json!("replica-a")));
}

#[tokio::test(start_paused = true)]
async fn another_event_is_another_object() {
    let world = World::new();
    let all = [
        about("two families"),
        about("two other families"),
        Event { kind: EventKind::Normal, ..about("two families") },
        Event { reason: "UnsupportedProtocol".into(), ..about("two families") },
        Event {
            about: ObjectRef::Service { id: ServiceId::new("other").unwrap(), key: service_key() },
            ..about("two families")
        },
    ];
    for event in &all {
        assert_eq!(world.writer.write_event(event).await, DONE);
    }
    assert_eq!(world.sent(), ["POST events"; 5]);
    assert_eq!(world.get("events")["items"].as_array().unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_somebody_else_counts_up_in_between_counts_both() {
    let late = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Delay(1_000));
    let world = World::with_faults(late);
    world.writer.write_event(&about("two families")).await;
    world.sent();
    let count = |world: &World| drop(world.ask("PATCH", &format!("events/{NAME}"), json!({"count": 2})));
    let same = about("two families");
    let (outcome, ()) = tokio::join!(world.writer.write_event(&same), world.meanwhile(count));
    assert_eq!(outcome, DONE);
    let one = ["POST events".to_owned(), format!("GET events/{NAME}"), format!("PATCH events/{NAME} merge")];
    assert_eq!(world.sent(), [one.clone(), one].concat());
    assert_eq!(world.get(&format!("events/{NAME}"))["count"], json!(3));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expires_in_between_is_told_anew() {
    for verb in ["POST", "GET"] {
        let nth = if verb == "POST" { 2 } else { 1 };
        let late = FaultPlan::new(0).with(When::Nth(nth), What::verb(verb), How::Delay(1_000));
        let world = World::with_faults(late);
        world.writer.write_event(&about("two families")).await;
        let expire = |world: &World| drop(world.ask("DELETE", &format!("events/{NAME}"), Value::Null));
        let same = about("two families");
        let (outcome, ()) = tokio::join!(world.writer.write_event(&same), world.meanwhile(expire));
        assert_eq!(outcome, DONE, "{verb}");
        assert_eq!(world.get(&format!("events/{NAME}"))["count"], json!(1), "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_never_is_as_it_was_read_is_given_up() {
    let stale = FaultPlan::new(0).with(When::Always, What::verb("GET"), How::Stale(1));
    let world = World::with_faults(stale);
    world.writer.write_event(&about("two families")).await;
    world.ask("PATCH", &format!("events/{NAME}"), json!({"count": 7}));
    world.sent();
    let outcome = world.writer.write_event(&about("two families")).await;
    assert_eq!(failed(&outcome), (true, FailureKind::Conflict));
    assert_eq!(world.sent().len(), 15);
}

#[tokio::test(start_paused = true)]
async fn in_a_namespace_that_is_gone_or_going_nobody_is_left_to_be_told() {
    let world = World::new();
    world.add_service(&["example.com/theirs"], &json!([]));
    let namespace = clb_sim::kube::Request {
        method: "DELETE".to_owned(),
        path: "/api/v1/namespaces/default".to_owned(),
        ..clb_sim::kube::Request::default()
    };
    world.simulation.handle(&namespace);
    let outcome = world.writer.write_event(&about("two families")).await;
    assert_eq!(failed(&outcome), REFUSED_NOT_FOUND);
    let Outcome::Failed(failure) = outcome else { panic!() };
    let message = format!(
        "create an event on Service default/web: events \"{NAME}\" is forbidden: unable to create new content in \
         namespace default because it is being terminated (403)"
    );
    assert_eq!(failure.message, message);
    let key = ObjectKey::new("nowhere", "web");
    let id = ServiceId::new(UID).unwrap();
    let nowhere = Event { about: ObjectRef::Service { id, key }, ..about("two families") };
    assert_eq!(failed(&world.writer.write_event(&nowhere).await), REFUSED_NOT_FOUND);
    assert_eq!(world.sent(), ["POST events", "POST /api/v1/namespaces/nowhere/events"]);
}

#[tokio::test(start_paused = true)]
async fn long_names_and_messages_are_cut_to_what_the_server_takes() {
    let world = World::new();
    let key = ObjectKey::new("default", "p".repeat(253));
    let event = Event {
        about: ObjectRef::Pod(PodRef { uid: Uid::new("u-1"), key: key.clone() }),
        message: "ä".repeat(2_000),
        ..about("")
    };
    assert_eq!(world.writer.write_event(&event).await, DONE);
    let held = &world.get("events")["items"][0];
    assert_eq!(held["message"], json!("ä".repeat(512)));
    assert_eq!(held["metadata"]["name"].as_str().unwrap().len(), 253);
    let involved =
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": key.name, "uid": "u-1"});
    assert_eq!(held["involvedObject"], involved);
}
