//! Public IPs.

use clb_sim::azure::Request;
use serde_json::{Value, json};

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
        "etag": "W/\"00000002\"", "location": "eastus", "sku": {"name": "StandardV2"}, "tags": {"clb-owner": "c"},
        "properties": {
            "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "ipAddress": "20.0.0.1",
            "provisioningState": "Succeeded"
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
        (changed("/sku/name", json!("Standard")), "InvalidSku"),
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
