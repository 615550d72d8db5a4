//! Every shape that a long-running operation can have.

use clb_sim::azure::{OperationShape, Request, Response};
use serde_json::{Value, json};

use crate::support::*;

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

fn poll(world: &mut World, path: &str) -> (u16, Value) {
    let response = world.0.handle(&get(path.split('?').next().unwrap()));
    (response.status, response.body)
}

fn write() -> Request {
    put(&public_ip_path("x"), public_ip("IPv4"))
}

/// The answer to a PUT of that shape, and what its operation's polls say.
fn polled(world: &mut World, shape: &OperationShape, polls: usize) -> (u16, Value, Vec<(u16, Value)>) {
    let response = world.0.handle_as(&write(), shape);
    let operation = header(&response, "azure-asyncoperation").unwrap();
    assert_eq!(header(&response, "location"), None);
    let polls = (0..polls).map(|_| poll(world, operation)).collect();
    (response.status, response.body["properties"]["provisioningState"].clone(), polls)
}

fn status(status: &str) -> (u16, Value) {
    (200, json!({"status": status}))
}

#[test]
fn a_polled_write_runs_for_as_many_polls_as_it_is_told() {
    for count in [0, 1, 3] {
        let mut world = World::empty();
        let mut expected = vec![status("InProgress"); count as usize];
        expected.extend([status("Succeeded"), status("Succeeded")]);
        let found = polled(&mut world, &OperationShape::Polled(count), expected.len());
        assert_eq!(found, (201, json!("Updating"), expected));
        assert_eq!(world.ok(get(&public_ip_path("x")))["properties"]["provisioningState"], "Succeeded");
    }
}

#[test]
fn a_plain_write_names_no_operation() {
    let mut world = World::empty();
    let response = world.0.handle_as(&write(), &OperationShape::Plain);
    assert_eq!((response.status, response.headers), (201, vec![]));
    let response = world.0.handle_as(&delete(&public_ip_path("x")), &OperationShape::Plain);
    assert_eq!(response, Response { status: 200, headers: vec![], body: Value::Null });
}

#[test]
fn with_a_location_only_a_write_is_accepted_and_its_polls_say_so() {
    let mut world = World::empty();
    for request in [write(), delete(&public_ip_path("x")), update_services("PartialUpdate", json!([]))] {
        let response = world.0.handle_as(&request, &OperationShape::LocationOnly(2));
        assert_eq!((response.status, &response.body), (202, &Value::Null));
        assert_eq!(header(&response, "azure-asyncoperation"), None);
        let location = header(&response, "location").unwrap();
        let polls: Vec<u16> = (0..3).map(|_| poll(&mut world, location).0).collect();
        assert_eq!(polls, [202, 202, 204]);
    }
    assert_eq!(world.0.handle(&get(&public_ip_path("x"))).status, 404);
}

#[test]
fn a_failed_or_canceled_operation_says_so_in_a_200_and_had_no_effect() {
    let failed = json!({"status": "Failed", "error": {
        "code": "SGWUpdateFailed", "message": "The operation failed.", "details": []
    }});
    let canceled = json!({"status": "Canceled", "error": {
        "code": "Canceled", "message": "Operation was canceled.", "details": []
    }});
    for (shape, end) in
        [(OperationShape::Failed("SGWUpdateFailed".to_owned()), failed), (OperationShape::Canceled, canceled)]
    {
        let mut world = World::empty();
        let before = world.everything();
        let found = polled(&mut world, &shape, 3);
        assert_eq!(
            found,
            (201, json!("Updating"), vec![status("InProgress"), (200, end.clone()), (200, end)])
        );
        assert_eq!(world.everything(), before);
    }
}

#[test]
fn a_lost_operation_is_not_found_and_a_stuck_one_never_ends_and_both_had_their_effect() {
    for (shape, code) in [(OperationShape::Lost, 404), (OperationShape::Stuck, 200)] {
        let mut world = World::empty();
        let (_, _, polls) = polled(&mut world, &shape, 50);
        assert!(polls.iter().all(|(status, _)| *status == code), "{polls:?}");
        assert!(polls.iter().all(|(_, body)| body["status"] != "Succeeded"), "{polls:?}");
        assert_eq!(world.0.handle(&get(&public_ip_path("x"))).status, 200);
    }
}

#[test]
fn an_action_of_the_gateway_can_be_an_operation_too() {
    let mut world = World::empty();
    let register = json!([{"service": {"name": "s", "properties": {"serviceType": "Inbound"}}}]);
    let action = update_services("PartialUpdate", register);
    let failed = world.0.handle_as(&action, &OperationShape::Failed("SGWUpdateFailed".to_owned()));
    assert_eq!((failed.status, failed.body, world.0.services().len()), (202, Value::Null, 0));
    let polled = world.0.handle_as(&action, &OperationShape::Polled(1));
    assert_eq!((polled.status, world.0.services().len()), (202, 1));
    let [operation, location] =
        ["azure-asyncoperation", "location"].map(|name| header(&polled, name).unwrap());
    assert_eq!(poll(&mut world, operation), status("InProgress"));
    assert_eq!(poll(&mut world, location), (204, Value::Null));
}

#[test]
fn a_refused_write_is_refused_in_any_shape() {
    let mut world = World::empty();
    let request = put(&public_ip_path("x"), json!({}));
    let plain = world.0.handle(&request);
    assert_eq!(world.0.handle_as(&request, &OperationShape::Stuck), plain);
    assert_eq!(plain.status, 400);
}
