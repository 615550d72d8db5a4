//! Network interfaces, and the addresses that they get.

use std::net::{Ipv4Addr, Ipv6Addr};

use clb_sim::azure::{Azure, AzureConfig, ComputeConfig, Subnet};
use serde_json::{Value, json};

use crate::compute::*;
use crate::support::*;

/// Four addresses of each family.
fn small() -> World {
    let subnet =
        Subnet { v4: (Ipv4Addr::new(10, 0, 0, 0), 29), v6: (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0), 64) };
    let compute = ComputeConfig { subnet, ..ComputeConfig::default() };
    World(Azure::new(AzureConfig { compute, ..AzureConfig::default() }))
}

fn interface_path(name: &str) -> String {
    format!("{NETWORK}/networkInterfaces/{name}")
}

fn interface(ips: Value) -> Value {
    json!({"location": "eastus", "properties": {"ipConfigurations": ips}})
}

fn ip(name: &str, properties: Value) -> Value {
    json!({"name": name, "properties": properties})
}

fn addresses(world: &mut World, path: &str) -> Vec<Value> {
    let body = world.ok(get(path));
    let ips = body["properties"]["ipConfigurations"].as_array().unwrap();
    ips.iter().map(|ip| ip["properties"]["privateIPAddress"].clone()).collect()
}

#[test]
fn the_interfaces_of_an_instance_are_read_three_ways() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), scale_set_of("Uniform", 2, &["IPv4", "IPv6"])));
    let all = world.ok(get(&format!("{}/networkInterfaces", set_path("set"))));
    assert_eq!(all["value"].as_array().unwrap().len(), 2);
    let of_one = world.ok(get(&format!("{}/networkInterfaces", instance_path("set", 1))));
    assert_eq!(of_one, json!({"value": [all["value"][1]]}));
    let id = format!("{}/networkInterfaces/nic", instance_path("set", 1));
    let alone = world.ok(get(&id));
    assert_eq!(alone, all["value"][1]);
    let etag = "W/\"00000001\"";
    let configuration = |name: &str, version: &str, address: &str, primary: bool| {
        json!({
            "name": name, "id": format!("{id}/ipConfigurations/{name}"), "etag": etag,
            "type": "Microsoft.Network/networkInterfaces/ipConfigurations",
            "properties": {
                "subnet": {"id": "/subnet"}, "privateIPAddress": address, "privateIPAddressVersion": version,
                "privateIPAllocationMethod": "Dynamic", "primary": primary, "provisioningState": "Succeeded"
            }
        })
    };
    let mut properties = alone["properties"].clone();
    assert_eq!(
        properties["ipConfigurations"].take(),
        json!([
            configuration("ip0", "IPv4", "10.224.0.5", true),
            configuration("ip1", "IPv6", "fd00:224::5", false)
        ])
    );
    assert_eq!((&alone["id"], &alone["name"], &alone["etag"]), (&json!(id), &json!("nic"), &json!(etag)));
    assert_eq!(properties["virtualMachine"], json!({"id": instance_path("set", 1)}));
    assert_eq!(properties["primary"], true);
    let status = world.0.machines().nth(1).unwrap();
    assert_eq!(
        status.addresses,
        ["10.224.0.5", "fd00:224::5"].map(|ip| ip.parse::<std::net::IpAddr>().unwrap())
    );
}

#[test]
fn addresses_are_handed_out_from_the_subnet_and_come_back() {
    let mut world = small();
    world.ok(put(&set_path("a"), uniform(2)));
    world.ok(put(&set_path("b"), flexible(1)));
    let used = |world: &World| {
        let machines = world.0.machines();
        machines.flat_map(|machine| machine.addresses).map(|ip| ip.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(used(&world), ["10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    // There is no other. Nothing of what could not be made whole is left.
    for full in [
        patch(&set_path("a"), json!({"sku": {"capacity": 3}})),
        patch(&set_path("b"), json!({"sku": {"capacity": 2}})),
        put(&set_path("c"), uniform(1)),
    ] {
        assert_eq!(world.refused(full), bad("SubnetIsFull"));
    }
    assert_eq!(world.ok(get(&set_path("a")))["sku"]["capacity"], 2);
    assert_eq!(world.0.handle(&get(&set_path("c"))).status, 404);
    world.ok(delete(&instance_path("a", 0)));
    world.ok(patch(&set_path("b"), json!({"sku": {"capacity": 2}})));
    assert_eq!(used(&world), ["10.0.0.5", "10.0.0.6", "10.0.0.4"]);
    world.ok(delete(&set_path("b")));
    world.ok(patch(&set_path("a"), json!({"sku": {"capacity": 3}})));
    assert_eq!(used(&world), ["10.0.0.5", "10.0.0.4", "10.0.0.6"]);
}

#[test]
fn an_instance_that_asks_for_another_family_gets_it_and_keeps_the_rest() {
    let mut world = small();
    world.ok(put(&set_path("set"), uniform(1)));
    let ips = |versions: &[&str]| {
        scale_set_of("Uniform", 1, versions)["properties"]["virtualMachineProfile"]["networkProfile"].clone()
    };
    let path = format!("{}/networkInterfaces/nic", instance_path("set", 0));
    for (versions, expected) in [
        (vec!["IPv4", "IPv6"], vec!["10.0.0.4", "fd00::4"]),
        (vec!["IPv4"], vec!["10.0.0.4"]),
        (vec!["IPv4", "IPv4"], vec!["10.0.0.4", "10.0.0.5"]),
    ] {
        let body = json!({"properties": {"networkProfileConfiguration": ips(&versions)}});
        world.ok(put(&instance_path("set", 0), body));
        assert_eq!(addresses(&mut world, &path), expected);
    }
    let body = json!({"properties": {"networkProfileConfiguration": ips(&["IPv4"; 4])}});
    assert_eq!(world.refused(put(&instance_path("set", 0), body)), bad("SubnetIsFull"));
    assert_eq!(addresses(&mut world, &path), ["10.0.0.4", "10.0.0.5"]);
    assert_eq!(world.ok(get(&set_path("set")))["etag"], "\"4\"");
}

#[test]
fn an_interface_of_its_own_keeps_its_addresses() {
    let mut world = small();
    let created = world.0.handle(&put(&interface_path("nic"), interface(json!([ip("a", json!({}))]))));
    assert_eq!((created.status, created.headers), (201, vec![]));
    assert_eq!(created.body["properties"]["provisioningState"], "Succeeded");
    let both = json!([ip("b", json!({"privateIPAddressVersion": "IPv6"})), ip("a", json!({}))]);
    world.ok(put(&interface_path("nic"), interface(both)));
    assert_eq!(addresses(&mut world, &interface_path("nic")), ["fd00::4", "10.0.0.4"]);
    let fixed = |address: &str| {
        interface(json!([ip(
            "a",
            json!({"privateIPAllocationMethod": "Static", "privateIPAddress": address})
        )]))
    };
    world.ok(put(&interface_path("nic"), fixed("10.0.0.5")));
    assert_eq!(addresses(&mut world, &interface_path("nic")), ["10.0.0.5"]);
    assert_eq!(
        world.refused(put(&interface_path("other"), fixed("10.0.0.5"))),
        bad("PrivateIPAddressIsAllocated")
    );
    for (name, expected) in [("x", "10.0.0.4"), ("y", "10.0.0.6")] {
        world.ok(put(&interface_path(name), interface(json!([ip("a", json!({}))]))));
        assert_eq!(addresses(&mut world, &interface_path(name)), [expected]);
    }
    let deleted = world.0.handle(&delete(&interface_path("nic")));
    assert_eq!((deleted.status, &deleted.body), (200, &Value::Null));
    let operation = header(&deleted, "azure-asyncoperation").unwrap();
    assert_eq!(world.ok(follow(operation)), json!({"status": "Succeeded"}));
    assert_eq!(world.0.handle(&follow(header(&deleted, "location").unwrap())).status, 204);
    world.ok(put(&interface_path("z"), fixed("10.0.0.5")));
}

#[test]
fn an_interface_without_what_it_needs_is_refused() {
    let mut world = small();
    for ips in [
        json!([]),
        json!(null),
        json!([ip("", json!({}))]),
        json!([ip("a", json!({})), ip("A", json!({}))]),
        json!([ip("a", json!({"loadBalancerBackendAddressPools": null}))]),
        json!([ip("a", json!({})), ip("b", json!({"privateIPAllocationMethod": "Static"}))]),
    ] {
        assert_eq!(world.refused(put(&interface_path("nic"), interface(ips))), bad("InvalidRequestFormat"));
    }
    // Nothing was kept of it.
    world.ok(put(&interface_path("nic"), interface(json!([ip("a", json!({}))]))));
    assert_eq!(addresses(&mut world, &interface_path("nic")), ["10.0.0.4"]);
    let etag = world.ok(get(&interface_path("nic")))["etag"].as_str().unwrap().to_owned();
    let again = || put(&interface_path("nic"), interface(json!([ip("a", json!({}))])));
    world.ok(if_match(&etag, again()));
    assert_eq!(world.refused(if_match(&etag, again())), (412, "PreconditionFailed".to_owned()));
}
