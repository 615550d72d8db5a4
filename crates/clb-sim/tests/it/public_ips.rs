//! Public IPs.

use std::time::Duration;

use clb_sim::azure::{Azure, AzureConfig, PublicIpConfig, Request};
use serde_json::{Value, json};

use crate::compute::{follow, header};
use crate::support::*;

fn changed(pointer: &str, value: Value) -> Request {
    let mut body = public_ip("IPv4");
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[name] = value;
    put(&public_ip_path("x"), body)
}

#[test]
fn a_public_ip_is_read_as_it_was_written_with_an_address_of_its_own() {
    let mut world = World::empty();
    let mut body = public_ip("IPv4");
    body["tags"] = json!({"clb-owner": "c"});
    let written = world.ok(put(&public_ip_path("x"), body));
    let expected = json!({
        "id": public_ip_path("x"), "name": "x-pip", "type": "Microsoft.Network/publicIPAddresses",
        "etag": "W/\"00000002\"", "location": "eastus", "sku": {"name": "StandardV2", "tier": "Regional"},
        "tags": {"clb-owner": "c"}, "properties": {
            "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": "20.158.55.121",
            "idleTimeoutInMinutes": 4, "ipTags": [], "ddosSettings": {"protectionMode": "VirtualNetworkInherited"},
            "resourceGuid": "00000000-0000-4000-8000-000000000002", "provisioningState": "Succeeded"
        }
    });
    assert_eq!(written, expected);
    assert_eq!(world.ok(get(&public_ip_path("X").to_uppercase())), expected);
}

#[test]
fn addresses_are_of_the_version_and_differ() {
    let mut world = World::empty();
    let mut seen = Vec::new();
    for (name, version) in [("a", "IPv4"), ("b", "IPv6"), ("c", "IPv4"), ("d", "IPv6")] {
        let body = world.ok(put(&public_ip_path(name), public_ip(version)));
        let address: std::net::IpAddr = body["properties"]["ipAddress"].as_str().unwrap().parse().unwrap();
        assert_eq!(address.is_ipv6(), version == "IPv6");
        assert!(!seen.contains(&address), "{address} was given twice");
        seen.push(address);
    }
}

#[test]
fn a_second_write_keeps_the_address_and_the_spelling_and_changes_the_etag() {
    let mut world = World::empty();
    let first = world.ok(put(&public_ip_path("x"), public_ip("IPv6")));
    let second = world.ok(put(&public_ip_path("X"), public_ip("IPv6")));
    assert_ne!(second["etag"], first["etag"]);
    let without_etag = |mut body: Value| {
        body["etag"].take();
        body
    };
    assert_eq!(without_etag(second), without_etag(first));
}

#[test]
fn what_a_public_ip_may_not_be_is_refused() {
    let mut world = World::empty();
    for (request, code) in [
        (changed("/sku/name", json!("standardv2")), "InvalidSku"),
        (
            changed("/properties/publicIPAllocationMethod", json!("Dynamic")),
            "StandardSkuPublicIPAddressMustBeStatic",
        ),
        (changed("/properties/publicIPAddressVersion", json!("IPv5")), "InvalidParameter"),
        (changed("/location", Value::Null), "LocationRequired"),
        (changed("/properties", Value::Null), "InvalidRequestFormat"),
        (put(&public_ip_path("x"), json!([])), "InvalidRequestContent"),
    ] {
        assert_eq!(world.refused(request.clone()), bad(code), "{request:?}");
    }
    world.ok(changed("/properties/publicIPAddressVersion", json!("IPv6")));
    let code = "PublicIPAddressVersionCannotBeChanged";
    assert_eq!(world.refused(put(&public_ip_path("x"), public_ip("IPv4"))), bad(code));
}

#[test]
fn a_public_ip_is_deleted_only_after_the_load_balancer_that_uses_it() {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
    assert_eq!(world.refused(delete(&public_ip_path("a"))), bad("PublicIPAddressCannotBeDeleted"));
    world.ok(delete(&load_balancer_path("a")));
    assert_eq!(world.0.handle(&delete(&public_ip_path("a"))).status, 200);
    assert_eq!(world.refused(get(&public_ip_path("a"))), (404, "ResourceNotFound".to_owned()));
    assert_eq!(world.0.handle(&delete(&public_ip_path("a"))).status, 204);
}

fn world_with(public_ips: PublicIpConfig) -> World {
    World(Azure::new(AzureConfig { public_ips, ..AzureConfig::default() }))
}

#[test]
fn an_address_comes_when_it_is_time() {
    let allocation = Duration::from_secs(30);
    let mut world = world_with(PublicIpConfig { allocation, limit: None });
    let created = world.0.handle(&put(&public_ip_path("a"), public_ip("IPv6")));
    let state = |body: &Value| {
        let properties = body["properties"].as_object().unwrap();
        (properties["provisioningState"].as_str().unwrap().to_owned(), properties.contains_key("ipAddress"))
    };
    let updating = ("Updating".to_owned(), false);
    assert_eq!((created.status, state(&created.body)), (201, updating.clone()));
    let operation = follow(header(&created, "azure-asyncoperation").unwrap());
    world.0.advance_to(Duration::from_secs(29));
    assert_eq!(world.ok(operation.clone()), json!({"status": "InProgress"}));
    assert_eq!(state(&world.ok(get(&public_ip_path("a")))), updating);
    // Nothing can use it, and writing it again does not hasten it.
    world.ok(put(&public_ip_path("a"), public_ip("IPv6")));
    for request in [
        put(&load_balancer_path("a"), load_balancer("a", &[])),
        put(&nat_gateway_path("a"), nat_gateway(&[], &["a"])),
    ] {
        let refused = world.0.handle(&request);
        assert_eq!((refused.status, refused.code()), (409, Some("RetryableError")));
        let detail = &refused.body["error"]["details"][0]["code"];
        assert_eq!(detail, "ReferencedResourceNotProvisioned");
    }
    world.0.advance_to(allocation);
    assert_eq!(world.ok(operation), json!({"status": "Succeeded"}));
    assert_eq!(state(&world.ok(get(&public_ip_path("a")))), ("Succeeded".to_owned(), true));
    world.ok(put(&load_balancer_path("a"), load_balancer("a", &[])));
}

#[test]
fn one_that_is_deleted_and_made_again_waits_anew() {
    let second = Duration::from_secs(1);
    let mut world = world_with(PublicIpConfig { allocation: 10 * second, limit: None });
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    world.ok(delete(&public_ip_path("a")));
    world.0.advance_to(5 * second);
    world.ok(put(&public_ip_path("a"), public_ip("IPv4")));
    let mut is_there_after = |seconds: u32| {
        world.0.advance_to(seconds * second);
        world.ok(get(&public_ip_path("a")))["properties"].get("ipAddress").is_some()
    };
    assert_eq!((is_there_after(14), is_there_after(15)), (false, true));
}

#[test]
fn a_subscription_has_no_more_than_it_may_have() {
    let mut world = world_with(PublicIpConfig { allocation: Duration::ZERO, limit: Some(2) });
    let far = public_ip_path("b").replace("/rg/", "/rg2/");
    let elsewhere = public_ip_path("b").replace("/s/", "/t/");
    for path in [&public_ip_path("a"), &far, &elsewhere, &far] {
        world.ok(put(path, public_ip("IPv4")));
    }
    let refused = world.0.handle(&put(&public_ip_path("c"), public_ip("IPv4")));
    let message = "Cannot create more than 2 public IP addresses for this subscription in this region.";
    let error = json!({"code": "PublicIPCountLimitReached", "message": message, "details": []});
    assert_eq!((refused.status, refused.body), (400, json!({"error": error})));
    world.ok(delete(&far));
    world.ok(put(&public_ip_path("c"), public_ip("IPv4")));
}

#[test]
fn a_basic_one_is_what_azure_makes_by_default_and_nothing_that_is_modelled_can_use_it() {
    let mut world = World::empty();
    let made = world.ok(put(&public_ip_path("a"), json!({"location": "eastus"})));
    assert_eq!(made["sku"], json!({"name": "Basic", "tier": "Regional"}));
    assert_eq!(made["properties"]["publicIPAllocationMethod"], "Dynamic");
    assert_eq!(made["properties"].get("ipAddress"), None);
    let code = "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed";
    assert_eq!(world.refused(put(&load_balancer_path("a"), load_balancer("a", &[]))), bad(code));
    assert_eq!(world.refused(put(&nat_gateway_path("a"), nat_gateway(&["a"], &[]))), bad(code));
}

#[test]
fn many_addresses_all_differ() {
    let mut world = World::empty();
    let mut seen = std::collections::BTreeSet::new();
    for at in 0..2_000 {
        let body = world.ok(put(&public_ip_path(&at.to_string()), public_ip(["IPv4", "IPv6"][at % 2])));
        assert!(seen.insert(body["properties"]["ipAddress"].to_string()), "{body}");
    }
}
