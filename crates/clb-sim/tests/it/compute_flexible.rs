//! Flexible scale sets, their members, and plain virtual machines.

use clb_sim::azure::Power;
use serde_json::{Value, json};

use crate::compute::*;
use crate::support::*;

fn members(world: &mut World, set: &str) -> Vec<Value> {
    let filter = format!("'virtualMachineScaleSet/id' eq '{}'", set_path(set));
    let list = with_parameter(get(&format!("{COMPUTE}/virtualMachines")), "$filter", &filter);
    world.ok(list)["value"].as_array().unwrap().clone()
}

fn interface_path(name: &str) -> String {
    format!("{NETWORK}/networkInterfaces/{name}")
}

fn interface() -> Value {
    json!({"location": "eastus", "properties": {"ipConfigurations": [
        {"name": "ip", "properties": {"subnet": {"id": "/subnet"}}}
    ]}})
}

fn machine(interface: &str) -> Value {
    json!({"location": "eastus", "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v3"}, "osProfile": {"adminPassword": "secret"},
        "networkProfile": {"networkInterfaces": [{"id": interface_path(interface), "properties": {"primary": true}}]}
    }})
}

#[test]
fn members_are_virtual_machines_with_interfaces_of_their_own() {
    let mut world = World::empty();
    world.ok(put(&set_path("Flex"), flexible(2)));
    world.ok(put(&set_path("other"), flexible(1)));
    let found = members(&mut world, "FLEX");
    assert_eq!(found.len(), 2);
    assert_eq!(world.ok(get(&format!("{}/virtualMachines", set_path("flex"))))["value"], json!(found));
    let name = found[0]["name"].as_str().unwrap();
    assert!(name.starts_with("Flex_") && name.len() == 13, "{name}");
    let suffix = name.strip_prefix("Flex_").unwrap();
    let mut body = world.ok(get(&vm_path(name)));
    assert_eq!(body, found[0]);
    body["properties"].as_object_mut().unwrap().remove("storageProfile").unwrap();
    let nic = interface_path(&format!("nic-{suffix}"));
    let expected = json!({
        "id": vm_path(name), "name": name, "type": "Microsoft.Compute/virtualMachines", "location": "eastus",
        "etag": "\"1\"", "properties": {
            "vmId": format!("00000000-0000-4000-8000-{:012x}", 2), "provisioningState": "Succeeded",
            "timeCreated": "1970-01-01T00:00:00Z", "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "osProfile": {
                "computerName": "node000000", "adminUsername": "u", "secrets": [],
                "allowExtensionOperations": true, "requireGuestProvisionSignal": true,
                "linuxConfiguration": {"provisionVMAgent": true}
            },
            "virtualMachineScaleSet": {"id": set_path("Flex")},
            "networkProfile": {"networkInterfaces": [
                {"id": nic, "properties": {"primary": true, "deleteOption": "Delete"}}
            ]}
        }
    });
    assert_eq!(body, expected);
    let read = world.ok(get(&nic));
    assert_eq!(read["properties"]["virtualMachine"], json!({"id": vm_path(name)}));
    let ip = "/properties/ipConfigurations/0/properties/privateIPAddress";
    assert_eq!(read.pointer(ip), Some(&json!("10.224.0.4")));
    let statuses = world.ok(expanded(&vm_path(name)))["properties"]["instanceView"]["statuses"].clone();
    assert_eq!(statuses[1]["code"], "PowerState/running");
    assert_eq!(world.ok(get(&format!("{}/instanceView", vm_path(name))))["statuses"], statuses);
    assert_eq!(world.each(&format!("{COMPUTE}/virtualMachines"), "/name").len(), 3);
}

#[test]
fn the_youngest_members_go_first_and_their_interfaces_with_them() {
    let mut world = slow();
    world.ok(put(&set_path("flex"), flexible(3)));
    let names: Vec<Value> = members(&mut world, "flex").iter().map(|it| it["name"].clone()).collect();
    world.at(10).ok(patch(&set_path("flex"), json!({"sku": {"capacity": 2}})));
    let states = |world: &mut World| {
        let states = members(world, "flex");
        states.iter().map(|it| it["properties"]["provisioningState"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(states(&mut world), ["Succeeded", "Succeeded", "Deleting"]);
    assert_eq!(world.each(&format!("{NETWORK}/networkInterfaces"), "/name").len(), 3);
    world.at(15);
    assert_eq!(states(&mut world), ["Succeeded", "Succeeded"]);
    assert_eq!(world.each(&format!("{NETWORK}/networkInterfaces"), "/name").len(), 2);

    let body = json!({"instanceIds": [names[0]]});
    world.ok(post(&format!("{}/delete", set_path("flex")), body));
    world.ok(delete(&vm_path(names[1].as_str().unwrap())));
    assert_eq!(world.ok(get(&set_path("flex")))["sku"]["capacity"], 0);
    world.at(20);
    assert_eq!(members(&mut world, "flex"), [Value::Null; 0]);
    world.ok(patch(&set_path("flex"), json!({"sku": {"capacity": 1}})));
    world.ok(delete(&set_path("flex")));
    world.at(40);
    assert_eq!(world.0.machines().count(), 0);
    assert_eq!(world.each(&format!("{NETWORK}/networkInterfaces"), "/name"), [Value::Null; 0]);
}

#[test]
fn a_plain_machine_takes_interfaces_that_are_there_and_free() {
    let mut world = World::empty();
    let referenced = || put(&vm_path("vm"), machine("nic"));
    assert_eq!(world.refused(referenced()), bad("InvalidResourceReference"));
    world.ok(put(&interface_path("nic"), interface()));
    let created = world.0.handle(&referenced());
    assert_eq!((created.status, header(&created, "etag")), (201, Some("\"1\"")));
    let read = world.ok(get(&vm_path("vm")));
    assert_eq!(read["properties"]["osProfile"], json!({"computerName": "vm"}));
    assert_eq!(read["properties"].get("virtualMachineScaleSet"), None);
    let attached = world.ok(get(&interface_path("nic")));
    assert_eq!(attached["properties"]["virtualMachine"], json!({"id": vm_path("vm")}));
    assert_eq!(world.refused(put(&vm_path("other"), machine("nic"))), bad("NicInUse"));
    assert_eq!(world.refused(delete(&interface_path("nic"))), bad("NicInUse"));
    // A write of the interface leaves the machine to it, and back again.
    world.ok(put(&interface_path("nic"), interface()));
    let mut written = world.ok(get(&interface_path("nic")));
    assert_ne!(written["etag"], attached["etag"]);
    written["etag"] = attached["etag"].clone();
    written["properties"]["ipConfigurations"][0]["etag"] = attached["etag"].clone();
    assert_eq!(written, attached);

    let same = world.0.handle(&put(&vm_path("vm"), read.clone()));
    assert_eq!((same.status, header(&same, "etag")), (200, Some("\"1\"")));
    let tagged = world.0.handle(&patch(&vm_path("vm"), json!({"tags": {"a": "b"}})));
    assert_eq!((tagged.status, header(&tagged, "etag")), (200, Some("\"2\"")));
    let stale = if_match("\"1\"", put(&vm_path("vm"), read));
    assert_eq!(world.refused(stale), (412, "PreconditionFailed".to_owned()));
    world.ok(post(&format!("{}/deallocate", vm_path("vm")), Value::Null));
    assert_eq!(world.0.machines().map(|it| it.power).collect::<Vec<_>>(), [Power::Deallocated]);

    world.ok(delete(&vm_path("vm")));
    assert_eq!(world.0.handle(&get(&vm_path("vm"))).status, 404);
    assert_eq!(world.ok(get(&interface_path("nic")))["properties"].get("virtualMachine"), None);
    world.ok(delete(&interface_path("nic")));
}

#[test]
fn a_machine_can_change_its_interfaces() {
    let mut world = World::empty();
    for name in ["a", "b"] {
        world.ok(put(&interface_path(name), interface()));
    }
    world.ok(put(&vm_path("vm"), machine("a")));
    world.ok(put(&vm_path("vm"), machine("b")));
    let owner = |world: &mut World, name: &str| {
        world.ok(get(&interface_path(name)))["properties"].get("virtualMachine").cloned()
    };
    assert_eq!(owner(&mut world, "a"), None);
    assert_eq!(owner(&mut world, "b"), Some(json!({"id": vm_path("vm")})));
}

#[test]
fn a_machine_can_be_put_into_a_flexible_scale_set() {
    let mut world = World::empty();
    world.ok(put(&interface_path("nic"), interface()));
    // A flexible scale set need not have a model of its machines.
    let empty = json!({"location": "eastus", "properties": {"orchestrationMode": "Flexible"}});
    world.ok(put(&set_path("flex"), empty));
    let grow = patch(&set_path("flex"), json!({"sku": {"capacity": 1}}));
    assert_eq!(world.refused(grow), bad("InvalidParameter"));
    world.ok(put(&set_path("uniform"), uniform(0)));
    let into = |set: &str| {
        let mut body = machine("nic");
        body["properties"]["virtualMachineScaleSet"] = json!({"id": set_path(set)});
        put(&vm_path("vm"), body)
    };
    for wrong in ["uniform", "no"] {
        assert_eq!(world.refused(into(wrong)), bad("InvalidParameter"));
    }
    world.ok(into("FLEX"));
    assert_eq!(members(&mut world, "flex").len(), 1);
    assert_eq!(world.ok(get(&set_path("flex")))["sku"]["capacity"], 1);
    world.ok(delete(&vm_path("vm")));
    assert_eq!(world.ok(get(&set_path("flex")))["sku"]["capacity"], 0);
}

#[test]
fn a_write_of_a_member_gives_its_scale_set_a_new_version() {
    let mut world = World::empty();
    world.ok(put(&set_path("flex"), flexible(1)));
    let member = members(&mut world, "flex").remove(0);
    world.ok(patch(&vm_path(member["name"].as_str().unwrap()), json!({"tags": {"a": "b"}})));
    assert_eq!(members(&mut world, "flex")[0]["etag"], "\"2\"");
    assert_eq!(world.ok(get(&set_path("flex")))["etag"], "\"2\"");
}
