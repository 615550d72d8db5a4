//! Load balancers.

use serde_json::{Value, json};

use crate::compute::header;
use crate::support::*;

/// An Azure with the public IPs of `a` and `b`.
fn world() -> World {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(put(&public_ip_path("b"), public_ip("IPv4")));
    world
}

/// The load balancer `a` with one rule of which a property is changed.
fn with_rule(name: &str, value: Value) -> Value {
    let mut body = load_balancer("a", &[("Tcp", 80, 8080)]);
    body["properties"]["loadBalancingRules"][0]["properties"][name] = value;
    body
}

/// The load balancer `a` with a property changed.
fn with_property(name: &str, value: Value) -> Value {
    let mut body = load_balancer("a", &[]);
    body["properties"][name] = value;
    body
}

#[test]
fn a_load_balancer_is_read_as_it_was_written_with_ids_for_its_children() {
    let mut world = world();
    let mut expected = load_balancer("a", &[("Tcp", 80, 8080), ("Udp", 53, 5353)]);
    let written = world.ok(put(&load_balancer_path("a"), expected.clone()));
    expected["id"] = json!(load_balancer_path("a"));
    expected["name"] = json!("a");
    expected["type"] = json!("Microsoft.Network/loadBalancers");
    expected["etag"] = json!("W/\"00000007\"");
    let properties = &mut expected["properties"];
    properties["provisioningState"] = json!("Succeeded");
    properties["resourceGuid"] = json!("00000000-0000-4000-8000-000000000007");
    for none in ["probes", "inboundNatRules", "inboundNatPools", "outboundRules"] {
        properties[none] = json!([]);
    }
    let id = |kind: &str, name: &str| json!(format!("{}/{kind}/{name}", load_balancer_path("a")));
    let rules = ["rule-tcp-80", "rule-udp-53"].map(|name| json!({"id": id("loadBalancingRules", name)}));
    let pool = json!([{"id": id("backendAddressPools", "a")}]);
    for (kind, at, name, added) in [
        (
            "frontendIPConfigurations",
            0,
            "frontend",
            json!({"privateIPAllocationMethod": "Dynamic", "loadBalancingRules": rules}),
        ),
        (
            "backendAddressPools",
            0,
            "a",
            json!({"loadBalancerBackendAddresses": [], "loadBalancingRules": rules}),
        ),
        (
            "loadBalancingRules",
            0,
            "rule-tcp-80",
            json!({"enableTcpReset": false, "loadDistribution": "Default", "backendAddressPools": pool}),
        ),
        (
            "loadBalancingRules",
            1,
            "rule-udp-53",
            json!({"enableTcpReset": false, "loadDistribution": "Default", "backendAddressPools": pool}),
        ),
    ] {
        let child = &mut properties[kind][at];
        child["id"] = id(kind, name);
        child["type"] = json!(format!("Microsoft.Network/loadBalancers/{kind}"));
        child["etag"] = json!("W/\"00000007\"");
        let properties = child["properties"].as_object_mut().unwrap();
        properties.insert("provisioningState".to_owned(), json!("Succeeded"));
        properties.extend(added.as_object().unwrap().clone());
    }
    expected["sku"]["tier"] = json!("Regional");
    assert_eq!(written, expected);
    assert_eq!(world.ok(get(&load_balancer_path("A"))), expected);
}

#[test]
fn what_was_read_can_be_written_back() {
    let mut world = stocked();
    let read = world.ok(get(&load_balancer_path("a")));
    let written = world.ok(put(&load_balancer_path("a"), read.clone()));
    let without = |mut body: Value| {
        body["etag"].take();
        for kind in ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules"] {
            body["properties"][kind][0]["etag"].take();
        }
        body
    };
    assert_ne!(written["etag"], read["etag"]);
    assert_eq!(without(written), without(read));
}

#[test]
fn pools_show_the_pods_of_the_services_that_name_them_and_children_are_read_one_by_one() {
    let mut world = stocked();
    let at = |location: &str, addresses: Value| json!({"addressLocation": location, "addressUpdateAction": "FullUpdate", "addresses": addresses});
    let both = json!(["a", "b"]);
    world.ok(update_locations(
        "FullUpdate",
        json!([
            at("10.0.0.1", json!([{"address": "10.1.0.2", "services": ["a", "out"]}])),
            at(
                "10.0.0.2",
                json!([{"address": "10.1.0.1", "services": both}, {"address": "10.1.0.3", "services": ["b"]}])
            ),
        ]),
    ));
    let shown = |addresses: &[&str]| {
        let one = |address: &&str| json!({"name": address, "properties": {"ipAddress": address, "virtualNetwork": {"id": "/vnet"}}});
        json!(addresses.iter().map(one).collect::<Vec<_>>())
    };
    let addresses = |pool: &Value| pool["properties"]["loadBalancerBackendAddresses"].clone();
    let part = |rest: &str| get(&format!("{}/{rest}", load_balancer_path("A")));
    let load_balancer = world.ok(get(&load_balancer_path("a")));
    let pool = &load_balancer["properties"]["backendAddressPools"][0];
    assert_eq!(addresses(pool), shown(&["10.1.0.1", "10.1.0.2"]));
    assert_eq!(world.ok(part("BackendAddressPools")), json!({"value": [pool]}));
    let one = world.0.handle(&part("backendAddressPools/A"));
    assert_eq!((header(&one, "etag"), &one.body), (load_balancer["etag"].as_str(), pool));
    let rule = &load_balancer["properties"]["loadBalancingRules"][0];
    assert_eq!(world.ok(part("loadBalancingRules/rule-tcp-80")), *rule);
    let list = world.ok(get(&format!("{NETWORK}/loadBalancers")));
    let of_b = &list["value"][1]["properties"]["backendAddressPools"][0];
    assert_eq!(addresses(of_b), shown(&["10.1.0.1", "10.1.0.3"]));
    // What no longer backs the service, or no longer names the pool, is not shown.
    world.ok(update_locations("PartialUpdate", json!([at("10.0.0.2", json!([]))])));
    assert_eq!(addresses(&world.ok(part("backendAddressPools/a"))), shown(&["10.1.0.2"]));
    let cleared = json!([{"service": {"name": "a", "properties": {"loadBalancerBackendPools": []}}}]);
    world.ok(update_services("PartialUpdate", cleared));
    assert_eq!(addresses(&world.ok(part("backendAddressPools/a"))), json!([]));
    assert_eq!(world.refused(part("backendAddressPools/none")), (404, "NotFound".to_owned()));
    assert_eq!(world.refused(part("probes")), (501, "NotModelled".to_owned()));
    let orphan = get(&format!("{}/backendAddressPools/a", load_balancer_path("none")));
    assert_eq!(world.refused(orphan), (404, "ParentResourceNotFound".to_owned()));
}

#[test]
fn a_standard_one_is_taken_with_its_like_and_not_behind_a_service_gateway() {
    let mut world = world();
    let mut body = load_balancer("a", &[]);
    body["sku"]["name"] = json!("Standard");
    let code = "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed";
    assert_eq!(world.refused(put(&load_balancer_path("a"), body.clone())), bad(code));
    let mut standard = public_ip("IPv4");
    standard["sku"]["name"] = json!("Standard");
    world.ok(put(&public_ip_path("std"), standard));
    body["properties"]["frontendIPConfigurations"][0]["properties"]["publicIPAddress"]["id"] =
        json!(public_ip_path("std"));
    world.ok(put(&load_balancer_path("a"), body));
    let service = json!([{"service": {"name": "a", "properties": inbound("a")}}]);
    assert_eq!(world.refused(update_services("PartialUpdate", service)), bad("InvalidSku"));
}

#[test]
fn ports_and_timeouts_at_their_limits_are_taken() {
    let mut world = world();
    for body in [
        load_balancer("a", &[("Tcp", 1, 1), ("Udp", 1, 1), ("tcp", 65_534, 65_535)]),
        with_rule("idleTimeoutInMinutes", json!(4)),
        with_rule("idleTimeoutInMinutes", json!(30)),
    ] {
        world.ok(put(&load_balancer_path("a"), body));
    }
}

#[test]
fn what_a_load_balancer_may_not_be_is_refused() {
    let mut world = world();
    let mut sku = load_balancer("a", &[]);
    sku["sku"]["name"] = json!("service");
    let foreign = json!({"id": format!("{NETWORK}/loadBalancers/b/backendAddressPools/b")});
    let nameless = json!([{"properties": {}}]);
    let twice = json!([{"name": "a"}, {"name": "A"}]);
    let absent = json!([{"name": "f", "properties": {"publicIPAddress": {"id": public_ip_path("absent")}}}]);
    for (body, code) in [
        (sku, "InvalidSku"),
        (with_property("backendAddressPools", nameless), "InvalidRequestFormat"),
        (
            with_property("backendAddressPools", json!([{"name": "a", "properties": "x"}])),
            "InvalidRequestFormat",
        ),
        (with_property("backendAddressPools", twice), "InvalidRequestFormat"),
        (with_property("backendAddressPools", Value::Null), "InvalidRequestFormat"),
        (with_property("loadBalancingRules", json!({})), "InvalidRequestFormat"),
        (with_property("loadBalancingRules", json!([{"name": "r"}])), "InvalidRequestFormat"),
        (with_property("frontendIPConfigurations", absent), "InvalidResourceReference"),
        (with_property("frontendIPConfigurations", json!([{"name": "f"}])), "InvalidResourceReference"),
        (with_rule("protocol", json!("All")), "InvalidRequestFormat"),
        (with_rule("frontendPort", json!(0)), "InvalidRequestFormat"),
        (with_rule("frontendPort", json!(65_535)), "InvalidRequestFormat"),
        (with_rule("backendPort", json!(0)), "InvalidRequestFormat"),
        (with_rule("backendPort", json!(65_536)), "InvalidRequestFormat"),
        (with_rule("backendPort", json!("80")), "InvalidRequestFormat"),
        (with_rule("idleTimeoutInMinutes", json!(3)), "InvalidRequestFormat"),
        (with_rule("idleTimeoutInMinutes", json!(31)), "InvalidRequestFormat"),
        (with_rule("backendAddressPool", foreign), "InvalidResourceReference"),
        (with_rule("frontendIPConfiguration", json!({"id": "/x"})), "InvalidResourceReference"),
        (
            load_balancer("a", &[("Tcp", 80, 8080), ("tcp", 81, 8080)]),
            "RulesUseSameBackendPortProtocolAndPool",
        ),
    ] {
        assert_eq!(world.refused(put(&load_balancer_path("a"), body.clone())), bad(code), "{body}");
    }
}

#[test]
fn two_rules_may_not_share_a_frontend_port() {
    let mut body = load_balancer("a", &[("Tcp", 80, 8080), ("Tcp", 81, 8081)]);
    body["properties"]["loadBalancingRules"][1]["properties"]["frontendPort"] = json!(80);
    let code = "RulesUseSameFrontendPortProtocolAndIPConfig";
    assert_eq!(world().refused(put(&load_balancer_path("a"), body)), bad(code));
}

#[test]
fn rules_of_different_frontends_and_pools_may_share_ports() {
    let mut body = load_balancer("a", &[("Tcp", 80, 8080), ("Tcp", 81, 8081)]);
    let id = |kind: &str, name: &str| format!("{}/{kind}/{name}", load_balancer_path("a"));
    let properties = &mut body["properties"];
    let frontend = json!({"name": "second", "properties": {"publicIPAddress": {"id": public_ip_path("b")}}});
    properties["frontendIPConfigurations"].as_array_mut().unwrap().push(frontend);
    properties["backendAddressPools"].as_array_mut().unwrap().push(json!({"name": "second"}));
    let rule = &mut properties["loadBalancingRules"][1]["properties"];
    rule["frontendPort"] = json!(80);
    rule["backendPort"] = json!(8080);
    rule["frontendIPConfiguration"]["id"] = json!(id("frontendIPConfigurations", "second"));
    rule["backendAddressPool"]["id"] = json!(id("backendAddressPools", "second"));
    world().ok(put(&load_balancer_path("a"), body));
}

#[test]
fn one_public_ip_serves_one_load_balancer() {
    let mut world = world();
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
    let mut thief = load_balancer("b", &[]);
    thief["properties"]["frontendIPConfigurations"][0]["properties"]["publicIPAddress"]["id"] =
        json!(public_ip_path("A"));
    assert_eq!(world.refused(put(&load_balancer_path("b"), thief)), bad("PublicIPAddressInUse"));
}

#[test]
fn children_that_are_not_modelled_are_refused_loudly_and_empty_ones_taken() {
    let mut world = world();
    for kind in ["probes", "inboundNatRules", "inboundNatPools", "outboundRules"] {
        let body = with_property(kind, json!([{"name": "x"}]));
        let answer = world.refused(put(&load_balancer_path("a"), body));
        assert_eq!(answer, (501, "NotModelled".to_owned()), "{kind}");
        world.ok(put(&load_balancer_path("a"), with_property(kind, json!([]))));
    }
}

#[test]
fn a_load_balancer_stays_while_a_registered_service_names_its_pool() {
    let mut world = stocked();
    let path = load_balancer_path("A");
    assert_eq!(world.refused(delete(&path)), bad("InUseLoadBalancerCannotBeDeleted"));
    let cleared = json!([{"service": {"name": "a", "properties": {"loadBalancerBackendPools": []}}}]);
    world.ok(update_services("PartialUpdate", cleared));
    assert_eq!(world.0.handle(&delete(&path)).status, 200);
    assert_eq!(world.refused(get(&path)), (404, "ResourceNotFound".to_owned()));
    assert_eq!(world.0.handle(&delete(&path)).status, 204);
}

#[test]
fn a_pool_stays_while_a_registered_service_names_it() {
    let mut world = stocked();
    let body = with_property("backendAddressPools", json!([{"name": "other"}]));
    let code = "InUseBackendAddressPoolCannotBeDeleted";
    assert_eq!(world.refused(put(&load_balancer_path("a"), body)), bad(code));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[("Tcp", 443, 8443)])));
}
