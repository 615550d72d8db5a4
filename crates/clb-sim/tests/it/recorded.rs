//! Recorded traffic with the real Network and Compute, asked of the simulator: each request in its order must have the
//! recorded status, the headers that matter, and a body of the recorded shape.
//!
//! What differs, and why:
//!
//! * Resource groups and virtual networks are not modelled: their requests, and polls of their operations, are left out.
//! * The simulator has a ServiceGateway from the start, which is deleted first; and what a recorded group held before, as a
//!   PUT shows that was answered 200 at once, is put first.
//! * What the real service makes up (unique ids, times, addresses, names of disks, versions) need only be of the same type.
//!   Values by which clients decide are compared, so are all numbers of entries.
//! * An operation is called by a number, not by a UUID, and its region is always the same; the real one's own parameters
//!   (`c`, `h`, `p`, `s`, `t`) are left out. Whose it is and how it is polled is compared.
//! * The real service's headers about caching, charges and its own machinery are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clb_sim::azure::{Azure, AzureConfig, Completion, Method, ResourceGroup, Response};
use serde::Deserialize;
use serde_json::Value;

use crate::compute::*;
use crate::support::delete;

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cassettes");

#[derive(Debug, Deserialize)]
struct Recording {
    interactions: Vec<Interaction>,
}

#[derive(Debug, Deserialize)]
struct Interaction {
    request: RecordedRequest,
    response: RecordedResponse,
}

#[derive(Debug, Deserialize)]
struct RecordedRequest {
    method: String,
    url: String,
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct RecordedResponse {
    code: u16,
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

fn json_of(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { serde_json::from_str(text).unwrap() }
}

/// Values by which clients decide.
const COMPARED: [&str; 12] = [
    "provisioningState",
    "status",
    "code",
    "message",
    "target",
    "name",
    "instanceId",
    "computerName",
    "type",
    "orchestrationMode",
    "latestModelApplied",
    "id",
];

/// Says where two bodies differ in their shape, or in a value that matters.
fn differences(at: &str, recorded: &Value, simulated: &Value, found: &mut Vec<String>) {
    match (recorded, simulated) {
        (Value::Object(recorded), Value::Object(simulated)) => {
            for name in recorded.keys().filter(|name| !simulated.contains_key(*name)) {
                found.push(format!("{at}/{name} is missing"));
            }
            for (name, value) in simulated {
                match recorded.get(name) {
                    None => found.push(format!("{at}/{name} was not recorded")),
                    Some(recorded) => differences(&format!("{at}/{name}"), recorded, value, found),
                }
            }
        }
        (Value::Array(recorded), Value::Array(simulated)) => {
            if recorded.len() != simulated.len() {
                found.push(format!("{at} has {} entries, not {}", simulated.len(), recorded.len()));
            }
            for (number, (recorded, simulated)) in recorded.iter().zip(simulated).enumerate() {
                differences(&format!("{at}/{number}"), recorded, simulated, found);
            }
        }
        (Value::String(recorded), Value::String(simulated)) => {
            let (recorded, simulated) = (without_versions(recorded), without_versions(simulated));
            let field = at.rsplit('/').next().unwrap();
            let is_made_up = at.contains("Disk/") || at.contains("disks/");
            if COMPARED.contains(&field) && !is_made_up && !recorded.eq_ignore_ascii_case(&simulated) {
                found.push(format!("{at} is {simulated:?}, not {recorded:?}"));
            }
        }
        (Value::Null, Value::Null) | (Value::Number(_), Value::Number(_)) => {}
        (Value::Bool(recorded), Value::Bool(simulated)) => {
            if recorded != simulated {
                found.push(format!("{at} is {simulated}, not {recorded}"));
            }
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            simulated,
        ) => {
            found.push(format!("{at} is {simulated}, not {recorded}"));
        }
    }
}

/// A text without the versions of Network in it, which are made up.
fn without_versions(text: &str) -> String {
    let is_version = |word: &&str| word.starts_with("W/\"0");
    text.split(' ').filter(|word| !is_version(word)).collect::<Vec<_>>().join(" ")
}

/// What a header says, the real service's parameters left out: whose operation, and how it is polled.
fn header_essence(name: &str, value: &str) -> String {
    if name != "azure-asyncoperation" && name != "location" {
        return value.to_owned();
    }
    let path = &value[value.find("/providers/").unwrap()..];
    let segments: Vec<&str> = path.split(['/', '?']).collect();
    let monitor = if value.contains("monitor=true") { " monitored" } else { "" };
    format!("{} {}{monitor}", segments[2], segments[5])
}

struct Replay {
    azure: Azure,
    /// The last operation that was named.
    operation: Option<String>,
}

impl Replay {
    fn new(group: &str) -> Self {
        let subscription = "00000000-0000-0000-0000-000000000000".to_owned();
        let scope = format!("/subscriptions/{subscription}/resourceGroups/{group}");
        let groups = vec![ResourceGroup { subscription, name: group.to_owned() }];
        let completion = Completion::Recorded;
        let config = AzureConfig { resource_groups: Some(groups), completion, ..AzureConfig::default() };
        let mut azure = Azure::new(config);
        let gateway = format!("{scope}/providers/Microsoft.Network/serviceGateways/servicegateway");
        assert_eq!(azure.handle(&delete(&gateway)).status, 202);
        Self { azure, operation: None }
    }

    /// Whether what a request names is there.
    fn has(&mut self, recorded: &RecordedRequest) -> bool {
        let url = recorded.url.strip_prefix("https://management.azure.com").unwrap();
        let mut request = follow(url);
        request.method = Method::Get;
        self.azure.handle(&request).status == 200
    }

    fn send(&mut self, recorded: &RecordedRequest) -> Response {
        let url = recorded.url.strip_prefix("https://management.azure.com").unwrap();
        let is_poll = url.contains("/operations/");
        let mut request = match self.operation.as_ref().filter(|_| is_poll) {
            Some(operation) => follow(operation),
            None => follow(url),
        };
        request.method = recorded.method.as_str().into();
        request.body = json_of(&recorded.body);
        request.if_match = recorded.headers.get("If-Match").map(|values| values[0].clone());
        let response = self.azure.handle(&request);
        if let Some(operation) = header(&response, "azure-asyncoperation") {
            self.operation = Some(operation.to_owned());
        }
        response
    }
}

/// Replays a recording, and says where the simulator differs.
fn replay(file: &str, group: &str) -> Option<(usize, Vec<String>)> {
    let path = Path::new(RECORDINGS).join(file);
    if !path.exists() {
        println!("skipped: there is no recording {}", path.display());
        return None;
    }
    let recording: Recording = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut replay = Replay::new(group);
    let mut found = Vec::new();
    let (mut count, mut is_networks) = (0, false);
    for Interaction { request, response } in recording.interactions {
        let url = &request.url;
        let is_poll = url.contains("/operations/");
        let is_modelled = url.contains("/providers/") && !url.contains("/virtualNetworks/");
        if !is_modelled || (is_poll && is_networks) {
            is_networks = url.contains("/virtualNetworks/");
            continue;
        }
        is_networks = false;
        count += 1;
        if request.method == "PUT" && response.code == 200 && !replay.has(&request) {
            assert_eq!(replay.send(&request).status, 201);
        }
        let simulated = replay.send(&request);
        let what = format!("{} {}", request.method, url.split("/providers/").nth(1).unwrap());
        if simulated.status != response.code {
            found.push(format!("{what}: {} {}, not {}", simulated.status, simulated.body, response.code));
            continue;
        }
        for name in ["azure-asyncoperation", "location", "etag", "azure-asyncnotification"] {
            let recorded = response.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            // The ETags of Network are made up.
            let value = |value: &str| if value.starts_with("W/") { "W/" } else { value }.to_owned();
            let recorded = recorded.map(|(_, values)| value(&header_essence(name, &values[0])));
            let is = header(&simulated, name).map(|it| value(&header_essence(name, it)));
            if recorded != is {
                found.push(format!("{what}: {name} is {is:?}, not {recorded:?}"));
            }
        }
        let mut differ = Vec::new();
        let (mut recorded, mut body) = (json_of(&response.body), simulated.body);
        if is_poll {
            // The name of an operation is made up.
            for body in [&mut recorded, &mut body] {
                if let Some(name) = body.get_mut("name") {
                    *name = Value::from("made up");
                }
            }
        }
        differences("", &recorded, &body, &mut differ);
        found.extend(differ.into_iter().map(|one| format!("{what}: {one}")));
    }
    Some((count, found))
}

#[test]
fn scale_sets() {
    let Some(found) = replay("virtualmachinescaleset.yaml", "aks-cit-VirtualMachineScaleSet") else { return };
    assert_eq!(found, (12, vec![]), "{:#?}", found.1);
}

#[test]
fn instances() {
    let Some(found) = replay("virtualmachinescalesetvm.yaml", "aks-cit-VirtualMachineScaleSetVM") else {
        return;
    };
    assert_eq!(found, (16, vec![]), "{:#?}", found.1);
}

#[test]
fn interfaces() {
    let Some(found) = replay("interface.yaml", "aks-cit-Interface") else { return };
    assert_eq!(found, (8, vec![]), "{:#?}", found.1);
}

#[test]
fn service_gateways() {
    let Some(found) = replay("servicegateway.yaml", "aks-cit-ServiceGateway") else { return };
    assert_eq!(found, (16, vec![]), "{:#?}", found.1);
}

#[test]
fn load_balancers() {
    let Some(found) = replay("loadbalancer.yaml", "aks-cit-LoadBalancer") else { return };
    assert_eq!(found, (16, vec![]), "{:#?}", found.1);
}

#[test]
fn public_ips() {
    let Some(found) = replay("publicipaddress.yaml", "aks-cit-PublicIPAddress") else { return };
    assert_eq!(found, (12, vec![]), "{:#?}", found.1);
}

#[test]
fn nat_gateways() {
    let Some(found) = replay("natgateway.yaml", "aks-cit-NatGateway") else { return };
    // What the public IP was before, and so what changed, is not recorded.
    let unlike = "PUT Microsoft.Network/publicIPAddresses/pip1?api-version=2025-05-01: \
                  /properties/provisioningState is \"Succeeded\", not \"Updating\"";
    assert_eq!(found, (16, vec![unlike.to_owned()]), "{:#?}", found.1);
}
