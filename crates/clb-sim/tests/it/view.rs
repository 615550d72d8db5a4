//! What traffic would do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use clb_sim::azure::{Azure, AzureConfig, Egress, Ingress, ResourceGroup};
use serde_json::{Value, json};

use crate::support::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn address(world: &mut World, public_ip: &str) -> IpAddr {
    ip(world.ok(get(&public_ip_path(public_ip)))["properties"]["ipAddress"].as_str().unwrap())
}

fn service(name: &str, properties: Value) -> clb_sim::azure::Request {
    update_services("PartialUpdate", json!([{"service": {"name": name, "properties": properties}}]))
}

fn place(location: &str, address: &str, services: &[&str]) -> clb_sim::azure::Request {
    update_locations(
        "PartialUpdate",
        json!([{
            "addressLocation": location, "addressUpdateAction": "PartialUpdate",
            "addresses": [{"address": address, "services": services}]
        }]),
    )
}

#[test]
fn a_frontend_leads_to_the_pods_of_the_services_that_name_its_pool() {
    let mut world = stocked();
    world.ok(place("10.0.0.1", "10.1.0.1", &["a"]));
    world.ok(place("10.0.0.2", "10.1.0.2", &["a", "b"]));
    world.ok(place("10.0.0.2", "10.1.0.3", &["b"]));
    world.ok(place("10.0.0.2", "10.1.0.4", &["out"]));
    let (a, b) = (address(&mut world, "a"), address(&mut world, "b"));
    let to = |load_balancer: &str, pods: &[(&str, &str)]| {
        let pods = pods.iter().map(|(pod, location)| (ip(pod), ip(location))).collect();
        Some(Ingress { load_balancer: load_balancer.to_owned(), backend_port: 8080, pods })
    };
    let behind_a = to("a", &[("10.1.0.1", "10.0.0.1"), ("10.1.0.2", "10.0.0.2")]);
    assert_eq!(world.0.ingress(a, "TCP", 80), behind_a);
    assert_eq!(world.0.ingress(b, "tcp", 80), to("b", &[("10.1.0.2", "10.0.0.2"), ("10.1.0.3", "10.0.0.2")]));
    assert_eq!(world.0.ingress(a, "udp", 80), None);
    assert_eq!(world.0.ingress(a, "tcp", 8080), None);
    assert_eq!(world.0.ingress(ip("20.9.9.9"), "tcp", 80), None);
    world.ok(service("a", json!({"loadBalancerBackendPools": []})));
    assert_eq!(world.0.ingress(a, "tcp", 80).map(|ingress| ingress.pods), Some(BTreeMap::new()));
}

#[test]
fn a_pod_leaves_by_the_nat_gateway_it_names_and_else_by_the_default_one() {
    let group = ResourceGroup { subscription: "s".to_owned(), name: "rg".to_owned() };
    let mut world =
        World(Azure::new(AzureConfig { default_outbound: Some(group), ..AzureConfig::default() }));
    for (name, version) in [("four", "IPv4"), ("more", "IPv4"), ("six", "IPv6")] {
        world.ok(put(&public_ip_path(name), public_ip(version)));
    }
    world.ok(put(&nat_gateway_path("Out"), nat_gateway(&["more", "four"], &["six"])));
    world.ok(service(
        "out",
        json!({"serviceType": "Outbound", "publicNatGatewayId": nat_gateway_path("out")}),
    ));
    world.ok(service("in", json!({"serviceType": "Inbound"})));
    world.ok(place("10.0.0.1", "10.1.0.1", &["out", "in"]));
    world.ok(place("10.0.0.1", "10.1.0.2", &["in"]));
    world.ok(place("fd00::1", "fd01::1", &["out"]));
    let (four, more, six) =
        (address(&mut world, "four"), address(&mut world, "more"), address(&mut world, "six"));
    let default = address(&mut world, "default-natgw");
    let by = |service: &str, nat_gateway: &str, public_ips: &[IpAddr]| {
        let (service, nat_gateway) = (service.to_owned(), nat_gateway.to_owned());
        [Egress { service, nat_gateway, public_ips: public_ips.to_vec() }]
    };
    assert_eq!(world.0.egress(ip("10.1.0.1")), by("out", "Out", &[more, four]));
    assert_eq!(world.0.egress(ip("::ffff:10.1.0.1")), by("out", "Out", &[more, four]));
    assert_eq!(world.0.egress(ip("fd01::1")), by("out", "Out", &[six]));
    let by_default = by("default-natgw", "default-natgw", &[default]);
    assert_eq!(world.0.egress(ip("10.1.0.2")), by_default);
    assert_eq!(world.0.egress(ip("10.9.9.9")), by_default);
    assert_eq!(world.0.egress(ip("fd01::2")), by("default-natgw", "default-natgw", &[]));
}

#[test]
fn nothing_leaves_by_a_nat_gateway_that_one_side_no_longer_names() {
    let mut world = World::empty();
    world.ok(put(&public_ip_path("four"), public_ip("IPv4")));
    world.ok(put(&nat_gateway_path("out"), nat_gateway(&["four"], &[])));
    let set = json!({"serviceType": "Outbound", "publicNatGatewayId": nat_gateway_path("out")});
    world.ok(service("out", set.clone()));
    world.ok(place("10.0.0.1", "10.1.0.1", &["out"]));
    assert_eq!(world.0.egress(ip("10.1.0.1")).len(), 1);
    world.ok(service("out", json!({"publicNatGatewayId": null})));
    assert_eq!(world.0.egress(ip("10.1.0.1")), []);
    world.ok(service("out", set));
    let mut body = nat_gateway(&["four"], &[]);
    body["properties"]["serviceGateway"] = Value::Null;
    world.ok(put(&nat_gateway_path("out"), body));
    assert_eq!(world.0.egress(ip("10.1.0.1")), []);
}
