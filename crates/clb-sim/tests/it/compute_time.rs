//! How machines come, change and go over time.

use std::time::Duration;

use clb_sim::azure::{AzureConfig, ComputeConfig, OperationShape, Power};
use clb_sim::{Simulation, SimulatorConfig};
use serde_json::{Value, json};

use crate::compute::*;
use crate::support::*;

/// Number, state and power of each instance.
fn instances(world: &World) -> Vec<(String, &'static str, Power)> {
    let number = |id: &str| id.rsplit('/').next().unwrap().to_owned();
    world
        .0
        .machines()
        .map(|machine| (number(&machine.id), machine.provisioning_state, machine.power))
        .collect()
}

fn state(world: &mut World, set: &str) -> Value {
    world.ok(get(&set_path(set)))["properties"]["provisioningState"].clone()
}

fn one(number: &str, state: &'static str, power: Power) -> (String, &'static str, Power) {
    (number.to_owned(), state, power)
}

#[test]
fn instances_are_created_over_time_and_so_is_their_scale_set() {
    let mut world = slow();
    let created = world.0.handle(&put(&set_path("set"), uniform(1)));
    let operation = header(&created, "azure-asyncoperation").unwrap();
    world.at(9);
    assert_eq!(instances(&world), [one("0", "Creating", Power::Starting)]);
    assert_eq!(state(&mut world, "set"), "Creating");
    let poll = world.ok(follow(operation));
    assert_eq!((&poll["status"], &poll["startTime"]), (&json!("InProgress"), &json!("1970-01-01T00:00:00Z")));
    let codes = |world: &mut World| {
        let view = world.ok(get(&format!("{}/instanceView", instance_path("set", 0))));
        let statuses = view["statuses"].as_array().unwrap();
        statuses.iter().map(|status| status["code"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&mut world), ["ProvisioningState/creating", "PowerState/starting"]);
    world.at(10);
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Running)]);
    assert_eq!(state(&mut world, "set"), "Succeeded");
    assert_eq!(world.ok(follow(operation))["endTime"], "1970-01-01T00:00:10Z");
    assert_eq!(codes(&mut world), ["ProvisioningState/succeeded", "PowerState/running"]);
}

#[test]
fn capacity_changes_take_time_both_ways_and_overlap() {
    let mut world = slow();
    world.ok(put(&set_path("set"), uniform(2)));
    world.at(20).ok(patch(&set_path("set"), json!({"sku": {"capacity": 3}})));
    world.at(25).ok(patch(&set_path("set"), json!({"sku": {"capacity": 1}})));
    assert_eq!(
        instances(&world),
        [
            one("0", "Succeeded", Power::Running),
            one("1", "Deleting", Power::Running),
            one("2", "Deleting", Power::Starting),
        ]
    );
    assert_eq!(world.ok(get(&set_path("set")))["sku"]["capacity"], 1);
    world.at(29);
    assert_eq!((instances(&world).len(), state(&mut world, "set")), (3, json!("Updating")));
    world.at(30);
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Running)]);
    // The longest of what goes on decides.
    assert_eq!(state(&mut world, "set"), "Succeeded");
}

#[test]
fn what_is_being_deleted_is_seen_and_can_only_be_deleted() {
    let mut world = slow();
    world.ok(put(&set_path("set"), uniform(2)));
    world.at(10).ok(delete(&instance_path("set", 1)));
    let marked = |what: &str, name: &str| {
        let message = format!(
            "Operation is not allowed on {what} '{name}' since it is marked for deletion. You can only retry the Delete \
             operation (or wait for an ongoing one to complete)."
        );
        (409, json!({"code": "OperationNotAllowed", "message": message}))
    };
    let body = json!({"properties": {"networkProfileConfiguration": {}}});
    for request in [
        put(&instance_path("set", 1), body),
        post(&format!("{}/start", instance_path("set", 1)), Value::Null),
        post(&format!("{}/reimage", set_path("set")), json!({"instanceIds": ["1"]})),
    ] {
        assert_eq!(world.refusal(request), marked("Virtual Machine", "set_1"));
    }
    assert!(!world.0.reimage(&instance_path("set", 1)));
    // Once more does not take another one away, nor make it last longer.
    let again = world.at(12).0.handle(&delete(&instance_path("set", 1)));
    assert_eq!(again.status, 202);
    assert_eq!(world.ok(get(&set_path("set")))["sku"]["capacity"], 1);
    world.at(15);
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Running)]);
    let operation = header(&again, "azure-asyncoperation").unwrap();
    assert_eq!(world.ok(follow(operation))["status"], "Succeeded");

    world.ok(delete(&set_path("set")));
    assert_eq!(state(&mut world, "set"), "Deleting");
    assert_eq!(instances(&world), [one("0", "Deleting", Power::Running)]);
    for request in [put(&set_path("set"), uniform(1)), patch(&set_path("set"), json!({}))] {
        assert_eq!(world.refusal(request), marked("Virtual Machine Scale Set", "set"));
    }
    world.at(20);
    assert_eq!((instances(&world), world.0.handle(&get(&set_path("set"))).status), (vec![], 404));
    // The next of that name begins anew, and nothing of the old one touches it.
    world.ok(put(&set_path("set"), uniform(1)));
    assert_eq!(instances(&world), [one("0", "Creating", Power::Starting)]);
}

#[test]
fn power_changes_over_time_or_at_once() {
    let mut world = slow();
    world.ok(put(&set_path("set"), uniform(1)));
    world.at(10).ok(post(&format!("{}/powerOff", set_path("set")), Value::Null));
    assert_eq!(instances(&world), [one("0", "Updating", Power::Stopping)]);
    world.at(13);
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Stopped)]);
    assert!(world.0.set_power(&instance_path("SET", 0).to_uppercase(), Power::Running));
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Running)]);
    assert!(world.0.reimage(&instance_path("set", 0)));
    assert_eq!(instances(&world), [one("0", "Updating", Power::Starting)]);
    world.at(16);
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Running)]);
    for unknown in [instance_path("set", 7), vm_path("no"), "no".to_owned()] {
        assert!(!world.0.set_power(&unknown, Power::Stopped));
        assert!(!world.0.fail_provisioning(&unknown));
        assert!(!world.0.reimage(&unknown));
    }
}

#[test]
fn provisioning_fails_when_told_and_is_retried_by_the_next_write() {
    let mut world = slow();
    world.ok(put(&set_path("set"), uniform(1)));
    assert!(world.at(5).0.fail_provisioning(&instance_path("set", 0)));
    assert!(world.0.fail_scale_set(&set_path("SET")));
    assert!(!world.0.fail_scale_set(&set_path("no")));
    world.at(60);
    assert_eq!(instances(&world), [one("0", "Failed", Power::Starting)]);
    assert_eq!(state(&mut world, "set"), "Failed");
    let view = world.ok(get(&format!("{}/instanceView", instance_path("set", 0))));
    assert_eq!(
        view["statuses"][0],
        json!({"code": "ProvisioningState/failed", "level": "Error", "displayStatus": "Provisioning failed",
               "time": "1970-01-01T00:00:00Z"})
    );
    world.ok(post(&format!("{}/start", instance_path("set", 0)), Value::Null));
    world.ok(patch(&set_path("set"), json!({})));
    world.at(63);
    assert_eq!(instances(&world), [one("0", "Succeeded", Power::Running)]);
    assert_eq!(state(&mut world, "set"), "Succeeded");
}

#[test]
fn writes_can_be_operations_of_any_shape() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(1)));
    let grow = patch(&set_path("set"), json!({"sku": {"capacity": 2}}));
    let shape = OperationShape::Failed("AllocationFailed".to_owned());
    let failed = world.0.handle_as(&grow, &shape);
    assert_eq!((failed.status, world.0.machines().count()), (202, 1));
    let operation = header(&failed, "azure-asyncoperation").unwrap();
    assert!(operation.contains("/providers/Microsoft.Compute/locations/"), "{operation}");
    let polls: Vec<Value> = (0..2).map(|_| world.ok(follow(operation))).collect();
    assert_eq!((&polls[0]["status"], &polls[1]["status"]), (&json!("InProgress"), &json!("Failed")));
    assert_eq!(polls[1]["error"]["code"], "AllocationFailed");
    let polled = world.0.handle_as(&grow, &OperationShape::LocationOnly(1));
    let location = header(&polled, "location").unwrap();
    let statuses: Vec<u16> = (0..2).map(|_| world.0.handle(&follow(location)).status).collect();
    assert_eq!((polled.status, statuses, world.0.machines().count()), (202, vec![202, 204], 2));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_simulation_is_tokios() {
    let compute = ComputeConfig { creation: Duration::from_secs(90), ..ComputeConfig::default() };
    let azure = AzureConfig { compute, ..AzureConfig::default() };
    let simulation = Simulation::new(SimulatorConfig { azure, ..SimulatorConfig::default() });
    simulation.with_azure(|azure| azure.handle(&put(&set_path("set"), uniform(1))));
    let state = || simulation.with_azure(|azure| azure.machines().next().unwrap().provisioning_state);
    tokio::time::advance(Duration::from_secs(89)).await;
    assert_eq!(state(), "Creating");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(state(), "Succeeded");
}
