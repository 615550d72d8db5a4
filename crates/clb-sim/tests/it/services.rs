//! `updateServices`.

use serde_json::{Value, json};

use crate::support::*;

fn register(name: &str, properties: Value) -> Value {
    json!([{"isDelete": false, "service": {"name": name, "properties": properties}}])
}

fn unregister(name: &str) -> Value {
    json!([{"isDelete": true, "service": {"name": name}}])
}

fn names(world: &World) -> Vec<&str> {
    world.0.services().keys().map(String::as_str).collect()
}

#[test]
fn registered_services_are_read_with_all_they_have() {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
    let nat_gateway = nat_gateway_path("out");
    world.ok(put(&nat_gateway, crate::support::nat_gateway(&[], &[])));
    let mut requests = register("A", inbound("a"));
    requests.as_array_mut().unwrap().push(json!({"service": {"name": "out", "properties": {
        "serviceType": "outbound", "isDefault": "True", "publicNatGatewayId": nat_gateway
    }}}));
    assert_eq!(world.ok(update_services("PartialUpdate", requests)), Value::Null);
    let pool = json!({"id": pool_id("a"), "name": "a", "properties": {"virtualNetwork": {"id": "/vnet"}}});
    let expected = json!([
        {"name": "a", "properties": {
            "serviceType": "Inbound", "isDefault": false, "loadBalancerBackendPools": [pool], "publicNatGatewayId": null
        }},
        {"name": "out", "properties": {
            "serviceType": "Outbound", "isDefault": true, "loadBalancerBackendPools": [],
            "publicNatGatewayId": nat_gateway
        }},
    ]);
    assert_eq!(world.rows("services"), expected);
}

#[test]
fn the_published_casing_is_understood() {
    let mut world = World::empty();
    let path = format!("{NETWORK}/serviceGateways/servicegateway/updateServices");
    let body = json!({"Action": "PartialUpdate", "ServiceRequests": [{"IsDelete": "False", "Service": {
        "Name": "x", "Properties": {"ServiceType": "InboundOutbound", "IsDefault": "false"}
    }}]});
    world.ok(request("POST", &path, body));
    assert_eq!(names(&world), ["x"]);
}

#[test]
fn a_partial_update_touches_what_it_names_and_a_full_one_everything_but_the_default() {
    let mut world = stocked();
    let before = world.rows("services");
    world.ok(update_services("PartialUpdate", json!([])));
    assert_eq!(world.rows("services"), before);
    world.ok(update_services("PartialUpdate", register("c", json!({"serviceType": "Inbound"}))));
    assert_eq!(names(&world), ["a", "b", "c", "default-natgw", "out"]);
    world.ok(update_services("FullUpdate", register("B", inbound("b"))));
    assert_eq!(names(&world), ["b", "default-natgw"]);
}

#[test]
fn what_is_absent_stays_and_null_or_empty_clears() {
    let mut world = stocked();
    let nat_gateway = nat_gateway_path("out");
    world.ok(put(&nat_gateway, crate::support::nat_gateway(&[], &[])));
    let set = json!({"publicNatGatewayId": nat_gateway, "serviceType": "InboundOutbound"});
    world.ok(update_services("PartialUpdate", register("a", set)));
    let a = &world.0.services()["a"];
    assert_eq!((a.pools.as_slice(), &a.nat_gateway), ([pool_id("a")].as_slice(), &Some(nat_gateway)));
    assert_eq!((a.service_type.as_str(), a.is_default), ("InboundOutbound", false));
    let clear = json!({"publicNatGatewayId": null, "loadBalancerBackendPools": []});
    world.ok(update_services("PartialUpdate", register("a", clear)));
    let a = &world.0.services()["a"];
    assert_eq!((a.pools.as_slice(), &a.nat_gateway), ([].as_slice(), &None));
    assert_eq!((a.service_type.as_str(), a.is_default), ("InboundOutbound", false));
}

#[test]
fn pools_are_replaced_whole_and_named_in_any_casing() {
    let mut world = stocked();
    let pool = pool_id("a").to_uppercase();
    let moved = json!({"id": pool, "properties": {"virtualNetwork": {"id": "/other"}}});
    let properties = json!({"loadBalancerBackendPools": [moved]});
    world.ok(update_services("PartialUpdate", register("a", properties)));
    let name = pool.rsplit('/').next();
    let moved = json!({"id": pool, "name": name, "properties": {"virtualNetwork": {"id": "/other"}}});
    assert_eq!(world.rows("services")[0]["properties"]["loadBalancerBackendPools"], json!([moved]));
    let code = "InUseLoadBalancerCannotBeDeleted";
    assert_eq!(world.refused(delete(&load_balancer_path("a"))), bad(code));
}

#[test]
fn what_an_update_of_services_may_not_be_is_refused_whole() {
    let mut world = stocked();
    let good = register("good", json!({"serviceType": "Inbound"}))[0].take();
    let absent = json!({"serviceType": "Inbound", "loadBalancerBackendPools": [{"id": pool_id("absent")}]});
    let pool = format!("{}/backendAddressPools/other", load_balancer_path("a"));
    let other_pool = json!({"serviceType": "Inbound", "loadBalancerBackendPools": [{"id": pool}]});
    let second = json!({"serviceType": "Outbound", "isDefault": true});
    let inbound = |properties: Value| {
        let mut all = json!({"serviceType": "Inbound"});
        all.as_object_mut().unwrap().append(&mut properties.as_object().unwrap().clone());
        register("x", all)
    };
    for (mut requests, code) in [
        (register("", json!({"serviceType": "Inbound"})), "InvalidParameter"),
        (json!([null]), "InvalidParameter"),
        (json!([{"isDelete": true}]), "InvalidParameter"),
        (json!([{"isDelete": 1, "service": {"name": "a"}}]), "InvalidRequestFormat"),
        (register("x", json!({})), "InvalidParameter"),
        (register("x", json!({"serviceType": "Sideways"})), "InvalidParameter"),
        (register("GOOD", json!({"serviceType": "Inbound"})), "DuplicateServicesInRequest"),
        (unregister("Good"), "DuplicateServicesInRequest"),
        (register("x", absent), "InvalidResourceReference"),
        (register("x", other_pool), "InvalidResourceReference"),
        (inbound(json!({"loadBalancerBackendPools": null})), "InvalidRequestFormat"),
        (inbound(json!({"isDefault": "yes"})), "InvalidRequestFormat"),
        (inbound(json!({"publicNatGatewayId": 1})), "InvalidRequestFormat"),
        (inbound(json!({"publicNatGatewayId": nat_gateway_path("absent")})), "InvalidResourceReference"),
        (register("x", second), "MultipleDefaultServicesNotAllowedInServiceGateway"),
        (unregister("Default-NatGW"), "DefaultServiceCannotBeDeleted"),
    ] {
        requests.as_array_mut().unwrap().insert(0, good.clone());
        let refused = world.refused(update_services("PartialUpdate", requests.clone()));
        assert_eq!(refused, bad(code), "{requests}");
    }
    for (action, requests, code) in [
        ("", json!([]), "InvalidParameter"),
        ("Update", json!([]), "InvalidParameter"),
        ("PartialUpdate", Value::Null, "InvalidRequestFormat"),
        ("FullUpdate", json!({}), "InvalidRequestFormat"),
    ] {
        assert_eq!(world.refused(update_services(action, requests)), bad(code), "{action}");
    }
}

#[test]
fn a_service_stays_while_an_address_names_it() {
    let mut world = stocked();
    let at = |services: Value| {
        json!([{"addressLocation": "10.0.0.1", "addressUpdateAction": "PartialUpdate",
            "addresses": [{"address": "10.1.0.1", "services": services}]}])
    };
    world.ok(update_locations("PartialUpdate", at(json!(["A", "out"]))));
    let code = "ServiceWithOverlayMappingsCannotBeDeleted";
    assert_eq!(world.refused(update_services("PartialUpdate", unregister("a"))), bad(code));
    assert_eq!(world.refused(update_services("FullUpdate", register("b", inbound("b")))), bad(code));
    world.ok(update_locations("PartialUpdate", at(json!(["out"]))));
    world.ok(update_services("PartialUpdate", unregister("A")));
    assert_eq!(names(&world), ["b", "default-natgw", "out"]);
}

#[test]
fn unregistering_what_is_not_registered_succeeds() {
    let mut world = stocked();
    let before = world.rows("services");
    world.ok(update_services("PartialUpdate", unregister("never-was")));
    assert_eq!(world.rows("services"), before);
}
