//! NAT gateways, and the default outbound service.

use clb_sim::azure::{Azure, AzureConfig, ResourceGroup};
use serde_json::{Value, json};

use crate::support::*;

/// The public IPs `four`, `other` and `six`, of the version that the name says.
fn addressed() -> World {
    let mut world = World::empty();
    for (name, version) in [("four", "IPv4"), ("other", "IPv4"), ("six", "IPv6")] {
        world.ok(put(&public_ip_path(name), public_ip(version)));
    }
    world
}

fn with_default() -> World {
    let group = ResourceGroup { subscription: "s".to_owned(), name: "rg".to_owned() };
    World(Azure::new(AzureConfig { default_outbound: Some(group), ..AzureConfig::default() }))
}

fn properties(world: &mut World, name: &str) -> Value {
    world.ok(get(&nat_gateway_path(name)))["properties"].take()
}

fn register(name: &str, properties: Value) -> clb_sim::azure::Request {
    update_services("PartialUpdate", json!([{"service": {"name": name, "properties": properties}}]))
}

#[test]
fn a_nat_gateway_is_read_as_it_was_written() {
    let mut world = addressed();
    let mut body = nat_gateway(&["four"], &["six"]);
    body["tags"] = json!({"clb-owner": "c"});
    let written = world.ok(put(&nat_gateway_path("out"), body));
    let expected = json!({
        "id": nat_gateway_path("out"), "name": "out", "type": "Microsoft.Network/natGateways",
        "etag": written["etag"], "location": "eastus", "sku": {"name": "StandardV2", "tier": "Regional"},
        "tags": {"clb-owner": "c"},
        "properties": {
            "publicIpAddresses": [{"id": public_ip_path("four")}],
            "publicIpAddressesV6": [{"id": public_ip_path("six")}],
            "serviceGateway": {"id": service_gateway_path()}, "provisioningState": "Succeeded",
            "idleTimeoutInMinutes": 4, "type": "Public", "resourceGuid": "00000000-0000-4000-8000-00000000000a"
        }
    });
    assert_eq!(written, expected);
    assert_eq!(world.ok(get(&nat_gateway_path("OUT"))), expected);
}

#[test]
fn what_a_second_write_does_not_say_stays_and_null_clears() {
    let mut world = addressed();
    world.ok(put(&nat_gateway_path("out"), nat_gateway(&["four"], &["six"])));
    let before = properties(&mut world, "out");
    let write = |properties: Value| {
        let body = json!({"location": "eastus", "sku": {"name": "StandardV2"}, "properties": properties});
        put(&nat_gateway_path("out"), body)
    };
    world.ok(write(json!({})));
    assert_eq!(properties(&mut world, "out"), before);
    world.ok(write(json!({"serviceGateway": null, "publicIpAddresses": []})));
    let expected = json!({
        "publicIpAddresses": [], "publicIpAddressesV6": [{"id": public_ip_path("six")}],
        "provisioningState": "Succeeded", "idleTimeoutInMinutes": 4, "type": "Public",
        "resourceGuid": "00000000-0000-4000-8000-00000000000a"
    });
    assert_eq!(properties(&mut world, "out"), expected);
}

#[test]
fn what_a_nat_gateway_may_not_be_is_refused() {
    let mut world = addressed();
    world.ok(put(&nat_gateway_path("used"), nat_gateway(&["other"], &[])));
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
    let changed = |pointer: &str, value: Value| {
        let mut body = nat_gateway(&["four"], &["six"]);
        *body.pointer_mut(pointer).unwrap() = value;
        body
    };
    for (body, code) in [
        (changed("/sku/name", json!("standardv2")), "InvalidSku"),
        (changed("/properties/publicIpAddresses", Value::Null), "InvalidRequestFormat"),
        (
            changed("/properties/serviceGateway/id", json!("/x/serviceGateways/servicegateway")),
            "InvalidResourceReference",
        ),
        (
            changed("/properties/serviceGateway/id", json!(format!("{NETWORK}/serviceGateways/other"))),
            "InvalidResourceReference",
        ),
        (nat_gateway(&["absent"], &[]), "InvalidResourceReference"),
        (nat_gateway(&["four", "FOUR"], &[]), "InvalidRequestFormat"),
        (nat_gateway(&["six"], &[]), "NatGatewayPublicIpVersionMismatch"),
        (nat_gateway(&[], &["four"]), "NatGatewayPublicIpVersionMismatch"),
        (nat_gateway(&["other"], &[]), "PublicIPAddressInUse"),
        (nat_gateway(&["a"], &[]), "PublicIPAddressInUse"),
    ] {
        assert_eq!(world.refused(put(&nat_gateway_path("x"), body.clone())), bad(code), "{body}");
    }
    world.ok(put(&nat_gateway_path("used"), nat_gateway(&["other", "four"], &[])));
}

#[test]
fn a_load_balancer_may_not_take_the_public_ip_of_a_nat_gateway() {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(put(&nat_gateway_path("out"), nat_gateway(&["a"], &[])));
    let taken = put(&load_balancer_path("a"), load_balancer("a", &[]));
    assert_eq!(world.refused(taken), bad("PublicIPAddressInUse"));
}

#[test]
fn an_outbound_service_goes_in_order_only() {
    let mut world = addressed();
    world.ok(put(&nat_gateway_path("out"), nat_gateway(&["four"], &["six"])));
    let set = json!({"serviceType": "Outbound", "publicNatGatewayId": nat_gateway_path("OUT")});
    world.ok(register("out", set));
    let in_use = bad("InUseNatGatewayCannotBeDeleted");
    assert_eq!(world.refused(delete(&nat_gateway_path("out"))), in_use);
    world.ok(register("out", json!({"publicNatGatewayId": null})));
    assert_eq!(world.refused(delete(&nat_gateway_path("out"))), in_use);
    let mut body = nat_gateway(&["four"], &["six"]);
    body["properties"]["serviceGateway"] = Value::Null;
    world.ok(put(&nat_gateway_path("out"), body));
    for public_ip in ["four", "six"] {
        let code = "PublicIPAddressCannotBeDeleted";
        assert_eq!(world.refused(delete(&public_ip_path(public_ip))), bad(code));
    }
    assert_eq!(world.0.handle(&delete(&nat_gateway_path("Out"))).status, 200);
    assert_eq!(world.0.handle(&delete(&nat_gateway_path("out"))).status, 204);
    world.ok(delete(&public_ip_path("four")));
    world.ok(delete(&public_ip_path("six")));
    world.ok(update_services("PartialUpdate", json!([{"isDelete": true, "service": {"name": "out"}}])));
    assert!(world.0.services().is_empty());
}

#[test]
fn the_default_outbound_service_is_there_from_the_start_and_stays() {
    let mut world = with_default();
    let expected = json!([{"name": "default-natgw", "properties": {
        "serviceType": "Outbound", "isDefault": true, "loadBalancerBackendPools": [],
        "publicNatGatewayId": nat_gateway_path("default-natgw")
    }}]);
    assert_eq!(world.rows("services"), expected);
    let before = properties(&mut world, "default-natgw");
    assert_eq!(
        before,
        json!({
            "publicIpAddresses": [{"id": format!("{NETWORK}/publicIPAddresses/default-natgw-pip")}],
            "serviceGateway": {"id": service_gateway_path()}, "provisioningState": "Succeeded",
            "idleTimeoutInMinutes": 4, "type": "Public", "resourceGuid": "00000000-0000-4000-8000-000000000002"
        })
    );
    world.ok(update_services("FullUpdate", json!([])));
    let remove =
        update_services("PartialUpdate", json!([{"isDelete": true, "service": {"name": "Default-NatGw"}}]));
    assert_eq!(world.refused(remove), bad("DefaultServiceCannotBeDeleted"));
    assert_eq!(
        world.refused(delete(&nat_gateway_path("default-natgw"))),
        bad("InUseNatGatewayCannotBeDeleted")
    );
    assert_eq!(
        world.refused(delete(&public_ip_path("default-natgw"))),
        bad("PublicIPAddressCannotBeDeleted")
    );
    assert_eq!(world.rows("services"), expected);
    assert_eq!(properties(&mut world, "default-natgw"), before);
}

#[test]
fn lists_of_a_group_and_of_a_subscription_come_in_pages() {
    let mut world = World::with(2, clb_sim::azure::Completion::Immediate);
    for name in ["a", "b", "c"] {
        world.ok(put(&public_ip_path(name), public_ip("IPv4")));
        world.ok(put(&nat_gateway_path(name), nat_gateway(&[], &[])));
        let elsewhere = nat_gateway_path(name).replace("/rg/", "/rg2/");
        world.ok(put(&elsewhere, nat_gateway(&[], &[])));
    }
    let mut names = |path: &str| {
        let (mut names, mut next) = (Vec::new(), Some(get(path)));
        while let Some(request) = next.take() {
            let body = world.ok(request);
            let page = body["value"].as_array().unwrap();
            assert!(page.len() <= 2, "{page:?}");
            names.extend(
                page.iter().map(|item| item["id"].as_str().unwrap().rsplit_once("/rg").unwrap().1.to_owned()),
            );
            next = body["nextLink"].as_str().map(|link| {
                let (path, query) = link.split_once('?').unwrap();
                let query = query.split('&').map(|pair| pair.split_once('=').unwrap());
                let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                clb_sim::azure::Request { query, ..get(path) }
            });
        }
        names
    };
    let at =
        |group: &str, kind: &str, name: &str| format!("{group}/providers/Microsoft.Network/{kind}/{name}");
    let three = |group: &str, kind: &str, tail: &str| {
        ["a", "b", "c"].map(|name| at(group, kind, &format!("{name}{tail}")))
    };
    assert_eq!(names(&format!("{NETWORK}/natGateways")), three("", "natGateways", ""));
    assert_eq!(names(&format!("{NETWORK}/publicIPAddresses")), three("", "publicIPAddresses", "-pip"));
    assert_eq!(names(&format!("{NETWORK}/loadBalancers")), [""; 0]);
    let all = "/subscriptions/S/providers/Microsoft.Network";
    let both = [three("", "natGateways", ""), three("2", "natGateways", "")].concat();
    assert_eq!(names(&format!("{all}/natGateways")), both);
    assert_eq!(names(&format!("{all}/publicIPAddresses")), three("", "publicIPAddresses", "-pip"));
    assert_eq!(names("/subscriptions/other/providers/Microsoft.Network/natGateways"), [""; 0]);
}
