//! What the tests of Compute ask, and what all of it has in common: lists, pages, groups and absence.

use std::collections::BTreeSet;
use std::time::Duration;

use clb_sim::azure::{Azure, AzureConfig, Completion, ComputeConfig, Request, ResourceGroup, Response};
use serde_json::{Value, json};

use crate::support::*;

pub(crate) const COMPUTE: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute";

pub(crate) fn set_path(name: &str) -> String {
    format!("{COMPUTE}/virtualMachineScaleSets/{name}")
}

pub(crate) fn instance_path(set: &str, number: u64) -> String {
    format!("{}/virtualMachines/{number}", set_path(set))
}

pub(crate) fn vm_path(name: &str) -> String {
    format!("{COMPUTE}/virtualMachines/{name}")
}

/// A scale set of this mode with a network interface `nic`, and ip-configurations of these versions.
pub(crate) fn scale_set_of(mode: &str, capacity: u64, versions: &[&str]) -> Value {
    let ip = |(at, version): (usize, &&str)| {
        json!({"name": format!("ip{at}"), "properties": {
            "subnet": {"id": "/subnet"}, "privateIPAddressVersion": version, "primary": at == 0
        }})
    };
    let ips: Vec<Value> = versions.iter().enumerate().map(ip).collect();
    json!({"location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": capacity}, "properties": {
        "orchestrationMode": mode,
        "virtualMachineProfile": {
            "osProfile": {"computerNamePrefix": "node", "adminUsername": "u", "adminPassword": "secret"},
            "networkProfile": {"networkInterfaceConfigurations": [
                {"name": "nic", "properties": {"primary": true, "ipConfigurations": ips}}
            ]}
        }
    }})
}

pub(crate) fn uniform(capacity: u64) -> Value {
    scale_set_of("Uniform", capacity, &["IPv4"])
}

pub(crate) fn flexible(capacity: u64) -> Value {
    scale_set_of("Flexible", capacity, &["IPv4"])
}

pub(crate) fn patch(path: &str, body: Value) -> Request {
    request("PATCH", path, body)
}

pub(crate) fn post(path: &str, body: Value) -> Request {
    request("POST", path, body)
}

pub(crate) fn if_match(etag: &str, request: Request) -> Request {
    Request { if_match: Some(etag.to_owned()), ..request }
}

pub(crate) fn expanded(path: &str) -> Request {
    with_parameter(get(path), "$expand", "instanceView")
}

pub(crate) fn with_parameter(mut request: Request, name: &str, value: &str) -> Request {
    request.query.push((name.to_owned(), value.to_owned()));
    request
}

pub(crate) fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

/// The request that asks for what a header or a `nextLink` names.
pub(crate) fn follow(link: &str) -> Request {
    let uri: http::Uri = link.parse().unwrap();
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap().0;
    Request { query, ..get(uri.path()) }
}

/// An Azure in which machines take ten seconds to create, three to change and five to delete.
pub(crate) fn slow() -> World {
    let compute = ComputeConfig {
        creation: Duration::from_secs(10),
        update: Duration::from_secs(3),
        deletion: Duration::from_secs(5),
        ..ComputeConfig::default()
    };
    World(Azure::new(AzureConfig { compute, ..AzureConfig::default() }))
}

impl World {
    pub(crate) fn at(&mut self, seconds: u64) -> &mut Self {
        self.0.advance_to(Duration::from_secs(seconds));
        self
    }

    /// One value of each entry of a list.
    pub(crate) fn each(&mut self, path: &str, pointer: &str) -> Vec<Value> {
        let body = self.ok(get(path));
        let items = body["value"].as_array().unwrap();
        items.iter().map(|item| item.pointer(pointer).cloned().unwrap_or_default()).collect()
    }

    /// All entries of a list, and how many pages they came in.
    pub(crate) fn pages(&mut self, first: Request) -> (Vec<Value>, usize) {
        let (mut items, mut pages, mut next) = (Vec::new(), 0, Some(first));
        while let Some(request) = next {
            let mut body = self.ok(request);
            items.append(body["value"].as_array_mut().unwrap());
            pages += 1;
            next = body.get("nextLink").map(|link| follow(link.as_str().unwrap()));
        }
        (items, pages)
    }

    pub(crate) fn refusal(&mut self, request: Request) -> (u16, Value) {
        let response = self.0.handle(&request);
        assert!(response.status >= 400, "{request:?}: {response:?}");
        (response.status, response.body["error"].clone())
    }
}

#[test]
fn what_is_not_there_is_refused_in_azures_words() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(1)));
    let more = "For more details please go to https://aka.ms/ARMResourceNotFoundFix";
    let not_found = |what: &str| {
        let message = format!(
            "The Resource 'Microsoft.Compute/{what}' under resource group 'rg' was not found. {more}"
        );
        (404, json!({"code": "ResourceNotFound", "message": message}))
    };
    let sets = "virtualMachineScaleSets";
    assert_eq!(world.refusal(get(&set_path("no"))), not_found(&format!("{sets}/no")));
    assert_eq!(world.refusal(patch(&set_path("no"), json!({}))), not_found(&format!("{sets}/no")));
    let action = post(&format!("{}/delete", set_path("no")), json!({"instanceIds": ["1"]}));
    assert_eq!(world.refusal(action), not_found(&format!("{sets}/no")));
    assert_eq!(world.refusal(get(&vm_path("no"))), not_found("virtualMachines/no"));
    assert_eq!(world.refusal(patch(&vm_path("no"), json!({}))), not_found("virtualMachines/no"));
    for action in ["start", "instanceView"] {
        let path = format!("{}/{action}", vm_path("no"));
        let request = if action == "start" { post(&path, Value::Null) } else { get(&path) };
        assert_eq!(world.refusal(request), not_found("virtualMachines/no"));
    }
    let instance = format!("{sets}/set/virtualMachines/7");
    for request in [
        get(&instance_path("set", 7)),
        put(&instance_path("set", 7), json!({})),
        get(&format!("{}/instanceView", instance_path("set", 7))),
        get(&format!("{}/networkInterfaces", instance_path("set", 7))),
    ] {
        assert_eq!(world.refusal(request), not_found(&instance));
    }
    let interface = format!("{}/networkInterfaces/other", instance_path("set", 0));
    let name = format!("{sets}/set/virtualMachines/0/networkInterfaces/other");
    assert_eq!(world.refusal(get(&interface)), not_found(&name));

    for (part, kind) in [("virtualMachines", "virtualMachines"), ("networkInterfaces", "networkInterfaces")] {
        let message = format!(
            "Failed to perform 'read' on resource(s) of type '{sets}/{kind}', because the parent resource \
             '{COMPUTE}/{sets}/no' could not be found."
        );
        let refused = world.refusal(get(&format!("{}/{part}", set_path("no"))));
        assert_eq!(refused, (404, json!({"code": "ParentResourceNotFound", "message": message})));
    }
    let not_a_number = json!({
        "code": "InvalidParameter", "message": "Virtual Machine Scale Set VM instanceId must be a number.",
        "target": "instanceId"
    });
    let path = format!("{}/virtualMachines/0x", set_path("set"));
    assert_eq!(world.refusal(get(&path)), (400, not_a_number));
    // What is not there is deleted.
    for path in [set_path("no"), vm_path("no"), instance_path("set", 7)] {
        assert_eq!(world.0.handle(&delete(&path)).status, 204, "{path}");
    }
}

#[test]
fn groups_are_any_or_those_that_there_are() {
    let group = |name: &str| ResourceGroup { subscription: "S".to_owned(), name: name.to_owned() };
    let config = AzureConfig { resource_groups: Some(vec![group("RG")]), ..AzureConfig::default() };
    let mut world = World(Azure::new(config));
    world.ok(put(&set_path("set"), uniform(0)));
    let elsewhere = |path: String| path.replace("/rg/", "/other/");
    for request in [
        get(&elsewhere(format!("{COMPUTE}/virtualMachineScaleSets"))),
        get(&elsewhere(format!("{}/virtualMachines", set_path("set")))),
        put(&elsewhere(set_path("set")), uniform(0)),
        put(&elsewhere(public_ip_path("a")), public_ip("IPv4")),
        get(&format!("{COMPUTE}/virtualMachineScaleSets").replace("/s/", "/t/")),
    ] {
        let group = if request.path.contains("/t/") { "rg" } else { "other" };
        let message = format!("Resource group '{group}' could not be found.");
        let expected = (404, json!({"code": "ResourceGroupNotFound", "message": message}));
        assert_eq!(world.refusal(request), expected);
    }
}

#[test]
fn what_is_not_modelled_is_refused_and_named() {
    let mut world = World::empty();
    world.ok(put(&set_path("set"), uniform(1)));
    world.ok(put(&set_path("flex"), flexible(1)));
    for (method, path) in [
        ("POST", format!("{}/convertToSinglePlacementGroup", set_path("set"))),
        ("GET", format!("{}/extensions", set_path("set"))),
        ("GET", format!("{}/virtualMachines/0", set_path("flex"))),
        ("PATCH", instance_path("set", 0)),
        ("GET", format!("{}/networkInterfaces/nic/ipConfigurations", instance_path("set", 0))),
        ("POST", set_path("set")),
        ("PUT", format!("{COMPUTE}/virtualMachineScaleSets")),
        ("GET", format!("{COMPUTE}/disks/x")),
    ] {
        let message = format!("the simulator does not model {method} {path}");
        let expected = json!({"code": "NotModelled", "message": message, "details": []});
        assert_eq!(world.refusal(request(method, &path, json!({}))), (501, expected));
    }
    let list = format!("{}/virtualMachines", set_path("set"));
    let refused = world.refusal(with_parameter(get(&list), "$expand", "userData"));
    assert_eq!(
        (refused.0, &refused.1["message"]),
        (501, &json!("the simulator does not model $expand=userData"))
    );
    let vms = format!("{COMPUTE}/virtualMachines");
    let refused = world.refusal(with_parameter(get(&vms), "$filter", "name eq 'x'"));
    assert_eq!(refused.0, 501);
}

#[test]
fn lists_hold_what_is_in_their_group_or_subscription() {
    let mut world = World::empty();
    for path in [set_path("b"), set_path("a"), set_path("far").replace("/rg/", "/rg2/")] {
        world.ok(put(&path, uniform(0)));
    }
    let sets = "virtualMachineScaleSets";
    assert_eq!(world.each(&format!("{COMPUTE}/{sets}"), "/name"), ["a", "b"]);
    let subscription = |name: &str| format!("/subscriptions/{name}/providers/Microsoft.Compute/{sets}");
    assert_eq!(world.each(&subscription("S"), "/name"), ["a", "b", "far"]);
    assert_eq!(world.each(&subscription("t"), "/name"), [Value::Null; 0]);
    assert_eq!(world.each(&format!("{COMPUTE}/{sets}").to_uppercase(), "/name"), ["a", "b"]);
}

#[test]
fn pages_keep_what_was_asked_and_hold_everything_once() {
    let mut world = World::with(7, Completion::Immediate);
    world.ok(put(&set_path("set"), uniform(20)));
    world.ok(put(&set_path("flex"), flexible(15)));
    let (instances, pages) = world.pages(expanded(&format!("{}/virtualMachines", set_path("set"))));
    let numbers: Vec<_> = instances.iter().map(|it| it["instanceId"].as_str().unwrap().to_owned()).collect();
    assert_eq!((numbers, pages), ((0..20).map(|number| number.to_string()).collect(), 3));
    assert!(instances.iter().all(|it| it["properties"]["instanceView"].is_object()));

    let filter = format!("'virtualMachineScaleSet/id' eq '{}'", set_path("flex"));
    let members = with_parameter(expanded(&format!("{COMPUTE}/virtualMachines")), "$filter", &filter);
    let (members, pages) = world.pages(members);
    let names: BTreeSet<_> = members.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!((members.len(), names.len(), pages), (15, 15, 3));
    assert!(members.iter().all(|it| it["properties"]["instanceView"].is_object()));
    let (interfaces, pages) = world.pages(get(&format!("{NETWORK}/networkInterfaces")));
    assert_eq!((interfaces.len(), pages), (15, 3));
}

#[test]
fn five_thousand_instances_in_twenty_sets_are_listed_in_pages() {
    let mut world = World::empty();
    for set in 0..20 {
        world.ok(put(&set_path(&format!("set{set}")), uniform(250)));
    }
    let (mut names, mut ips) = (BTreeSet::new(), BTreeSet::new());
    let mut calls = 0;
    for set in 0..20 {
        let path = set_path(&format!("set{set}"));
        let (instances, pages) = world.pages(expanded(&format!("{path}/virtualMachines")));
        names.extend(instances.iter().map(|it| it["name"].as_str().unwrap().to_owned()));
        let (interfaces, more) = world.pages(get(&format!("{path}/networkInterfaces")));
        let ip = "/properties/ipConfigurations/0/properties/privateIPAddress";
        ips.extend(interfaces.iter().map(|it| it.pointer(ip).unwrap().as_str().unwrap().to_owned()));
        calls += pages + more;
    }
    assert_eq!((names.len(), ips.len(), calls), (5_000, 5_000, 80));
}
