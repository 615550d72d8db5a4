//! An Azure to ask, and what to ask it.

use clb_sim::azure::{Azure, AzureConfig, Completion, Method, Request, Response};
use serde_json::{Value, json};

use crate::compute::COMPUTE;

pub(crate) const NETWORK: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";

/// An Azure with the load balancers `a` and `b`, each with a public IP of its own, registered as services, and the
/// outbound services `out` and `default-natgw`, the default one.
pub(crate) fn stocked() -> World {
    let mut world = World::empty();
    for name in ["a", "b"] {
        world.ok(put(&public_ip_path(name), public_ip("IPv4")));
        world.ok(put(&load_balancer_path(name), load_balancer(name, &[("Tcp", 80, 8080)])));
    }
    let service =
        |name: &str, properties: Value| json!({"service": {"name": name, "properties": properties}});
    world.ok(update_services(
        "PartialUpdate",
        json!([
            service("a", inbound("a")),
            service("b", inbound("b")),
            service("out", json!({"serviceType": "Outbound"})),
            service("default-natgw", json!({"serviceType": "Outbound", "isDefault": true})),
        ]),
    ));
    world
}

pub(crate) struct World(pub(crate) Azure);

impl World {
    pub(crate) fn empty() -> Self {
        Self(Azure::new(AzureConfig::default()))
    }

    pub(crate) fn with(page_size: usize, completion: Completion) -> Self {
        Self(Azure::new(AzureConfig { page_size, completion, ..AzureConfig::default() }))
    }

    /// The answer to a request that must succeed.
    pub(crate) fn ok(&mut self, request: Request) -> Value {
        let response = self.0.handle(&request);
        assert!(response.status < 300, "{request:?}: {response:?}");
        response.body
    }

    /// The status and code of a refusal, which must have changed nothing.
    pub(crate) fn refused(&mut self, request: Request) -> (u16, String) {
        let before = self.everything();
        let response = self.0.handle(&request);
        assert_eq!(self.everything(), before, "{request:?} was refused, and changed something");
        (response.status, code(&response))
    }

    /// All that can be read.
    pub(crate) fn everything(&mut self) -> Vec<Value> {
        let gateway = format!("{NETWORK}/serviceGateways/servicegateway");
        let paths = ["publicIPAddresses", "loadBalancers", "natGateways", "networkInterfaces"]
            .map(|kind| format!("{NETWORK}/{kind}"));
        let parts = ["services", "addressLocations"].map(|part| format!("{gateway}/{part}"));
        let sets = format!("{COMPUTE}/virtualMachineScaleSets");
        let machines = format!("{COMPUTE}/virtualMachines");
        let all = paths.iter().chain(&parts).chain([&sets, &machines]);
        let mut found: Vec<Value> = all.map(|path| self.ok(get(path))).collect();
        found.push(json!(self.0.machines().map(|machine| format!("{machine:?}")).collect::<Vec<_>>()));
        found
    }

    /// The rows of a part of the ServiceGateway.
    pub(crate) fn rows(&mut self, part: &str) -> Value {
        self.ok(get(&format!("{NETWORK}/serviceGateways/servicegateway/{part}")))["value"].take()
    }
}

/// The code of a refusal.
pub(crate) fn code(response: &Response) -> String {
    response.code().unwrap_or_else(|| panic!("not a refusal: {response:?}")).to_owned()
}

/// What [`World::refused`] says of a request that can never succeed.
pub(crate) fn bad(code: &str) -> (u16, String) {
    (400, code.to_owned())
}

pub(crate) fn request(method: &str, path: &str, body: Value) -> Request {
    let query = vec![("api-version".to_owned(), "2025-05-01".to_owned())];
    Request { method: Method::from(method), path: path.to_owned(), query, if_match: None, body }
}

pub(crate) fn get(path: &str) -> Request {
    request("GET", path, Value::Null)
}

pub(crate) fn put(path: &str, body: Value) -> Request {
    request("PUT", path, body)
}

pub(crate) fn delete(path: &str) -> Request {
    request("DELETE", path, Value::Null)
}

pub(crate) fn update_services(action: &str, requests: Value) -> Request {
    let path = format!("{NETWORK}/serviceGateways/servicegateway/updateServices");
    request("POST", &path, json!({"action": action, "serviceRequests": requests}))
}

pub(crate) fn update_locations(action: &str, locations: Value) -> Request {
    let path = format!("{NETWORK}/serviceGateways/servicegateway/updateAddressLocations");
    request("POST", &path, json!({"action": action, "addressLocations": locations}))
}

pub(crate) fn public_ip_path(name: &str) -> String {
    format!("{NETWORK}/publicIPAddresses/{name}-pip")
}

pub(crate) fn public_ip(version: &str) -> Value {
    json!({"location": "eastus", "sku": {"name": "StandardV2"}, "properties": {
        "publicIPAllocationMethod": "Static", "publicIPAddressVersion": version
    }})
}

pub(crate) fn load_balancer_path(name: &str) -> String {
    format!("{NETWORK}/loadBalancers/{name}")
}

pub(crate) fn pool_id(name: &str) -> String {
    format!("{NETWORK}/loadBalancers/{name}/backendAddressPools/{name}")
}

/// A load balancer as a service needs it; a rule is protocol, frontend port, backend port.
pub(crate) fn load_balancer(name: &str, rules: &[(&str, u32, u32)]) -> Value {
    let frontend = format!("{NETWORK}/loadBalancers/{name}/frontendIPConfigurations/frontend");
    let rule = |(protocol, frontend_port, backend_port): &(&str, u32, u32)| {
        json!({"name": format!("rule-{}-{frontend_port}", protocol.to_lowercase()), "properties": {
            "protocol": protocol, "frontendPort": frontend_port, "backendPort": backend_port,
            "enableFloatingIP": false, "idleTimeoutInMinutes": 4,
            "frontendIPConfiguration": {"id": frontend}, "backendAddressPool": {"id": pool_id(name)}
        }})
    };
    json!({"location": "eastus", "sku": {"name": "Service"}, "properties": {
        "scope": "Public",
        "frontendIPConfigurations": [
            {"name": "frontend", "properties": {"publicIPAddress": {"id": public_ip_path(name)}}}
        ],
        "backendAddressPools": [{"name": name, "properties": {}}],
        "loadBalancingRules": rules.iter().map(rule).collect::<Vec<_>>()
    }})
}

pub(crate) fn nat_gateway_path(name: &str) -> String {
    format!("{NETWORK}/natGateways/{name}")
}

pub(crate) fn service_gateway_path() -> String {
    format!("{NETWORK}/serviceGateways/servicegateway")
}

/// A NAT gateway of the ServiceGateway, with these public IPs of each family.
pub(crate) fn nat_gateway(v4: &[&str], v6: &[&str]) -> Value {
    let references =
        |names: &[&str]| names.iter().map(|name| json!({"id": public_ip_path(name)})).collect::<Vec<_>>();
    json!({"location": "eastus", "sku": {"name": "StandardV2"}, "properties": {
        "publicIpAddresses": references(v4), "publicIpAddressesV6": references(v6),
        "serviceGateway": {"id": service_gateway_path()}
    }})
}

/// The properties of an inbound service behind the load balancer of that name.
pub(crate) fn inbound(name: &str) -> Value {
    json!({"serviceType": "Inbound", "loadBalancerBackendPools": [
        {"id": pool_id(name), "name": name, "properties": {"virtualNetwork": {"id": "/vnet"}}}
    ]})
}
