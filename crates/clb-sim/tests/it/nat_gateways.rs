//! NAT gateways, and the outbound services that leave through them.

use serde_json::{Value, json};

use crate::support::*;

/// The public IPs `four` and `six`, and the NAT gateway `gw` that leaves by them.
fn with_gateway() -> World {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("four"), public_ip("IPv4")));
    world.ok(put(&public_ip_path("six"), public_ip("IPv6")));
    world.ok(put(&nat_gateway_path("gw"), nat_gateway_body(&["four"], &["six"])));
    world
}

fn outbound(gateway: Value) -> Value {
    json!([{"service": {"name": "gw", "properties": {"serviceType": "Outbound", "publicNatGatewayId": gateway}}}])
}

#[test]
fn a_nat_gateway_is_read_listed_and_deleted_as_it_was_written() {
    let mut world = with_gateway();
    let read = world.ok(get(&nat_gateway_path("GW")));
    assert_eq!(read["type"], json!("Microsoft.Network/natGateways"));
    let properties = json!({
        "publicIpAddresses": [ip_id("four")], "publicIpAddressesV6": [ip_id("six")],
        "serviceGateway": gateway_id(), "provisioningState": "Succeeded"
    });
    assert_eq!(read["properties"], properties);
    assert_eq!(world.ok(get(&format!("{NETWORK}/natGateways")))["value"], json!([read]));
}

#[test]
fn what_a_nat_gateway_may_not_be_is_refused() {
    let mut world = with_gateway();
    world.ok(put(&public_ip_path("other"), public_ip("IPv4")));
    let mut standard = nat_gateway_body(&["other"], &[]);
    standard["sku"]["name"] = json!("Standard");
    let mut elsewhere = nat_gateway_body(&["other"], &[]);
    elsewhere["properties"]["serviceGateway"] = json!({"id": format!("{NETWORK}/serviceGateways/x")});
    for (body, code) in [
        (standard, "InvalidSku"),
        (elsewhere, "InvalidResourceReference"),
        (nat_gateway_body(&["none"], &[]), "InvalidResourceReference"),
        (nat_gateway_body(&[], &["other"]), "PublicIPAddressVersionMismatch"),
        (nat_gateway_body(&["four"], &[]), "PublicIPAddressInUse"),
    ] {
        assert_eq!(world.refused(put(&nat_gateway_path("x"), body.clone())), bad(code), "{body}");
    }
}

#[test]
fn nw_12_its_service_gateway_stays_when_absent_and_goes_when_null() {
    let mut world = with_gateway();
    let mut body = nat_gateway_body(&["four"], &["six"]);
    body["properties"].as_object_mut().unwrap().remove("serviceGateway");
    assert_eq!(
        world.ok(put(&nat_gateway_path("gw"), body.clone()))["properties"]["serviceGateway"],
        gateway_id()
    );
    body["properties"]["serviceGateway"] = Value::Null;
    assert_eq!(world.ok(put(&nat_gateway_path("gw"), body))["properties"].get("serviceGateway"), None);
}

#[test]
fn eg_10_references_go_before_what_they_refer_to() {
    let mut world = with_gateway();
    assert_eq!(
        world.refused(update_services("PartialUpdate", outbound(json!(nat_gateway_path("none"))))),
        bad("InvalidResourceReference")
    );
    world.ok(update_services("PartialUpdate", outbound(json!(nat_gateway_path("GW")))));
    let in_use = bad("InUseNatGatewayCannotBeDeleted");
    assert_eq!(world.refused(delete(&nat_gateway_path("gw"))), in_use);
    world.ok(update_services("PartialUpdate", outbound(Value::Null)));
    assert_eq!(world.refused(delete(&nat_gateway_path("gw"))), in_use);
    let mut body = nat_gateway_body(&["four"], &["six"]);
    body["properties"]["serviceGateway"] = Value::Null;
    world.ok(put(&nat_gateway_path("gw"), body));
    for ip in ["four", "six"] {
        assert_eq!(world.refused(delete(&public_ip_path(ip))), bad("PublicIPAddressCannotBeDeleted"));
    }
    world.ok(delete(&nat_gateway_path("gw")));
    for ip in ["four", "six"] {
        world.ok(delete(&public_ip_path(ip)));
    }
}
