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
//!
//! The same can be asked of the real service, resource groups and virtual networks included, which makes and deletes the
//! recorded groups `aks-cit-…` in a subscription and takes some minutes:
//!
//! ```text
//! CONFORMANCE_SUBSCRIPTION=… CONFORMANCE_TOKEN=$(az account get-access-token --query accessToken -o tsv) \
//!     cargo test -p clb-sim --test it -- --ignored recorded
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use clb_sim::azure::{AzureConfig, Completion, ResourceGroup};
use clb_sim::{Simulator, SimulatorConfig};
use reqwest::{Client, Method, Response, header};
use serde::Deserialize;
use serde_json::Value;

/// What the subscription is called in recordings, and in the simulator.
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";
const MANAGEMENT: &str = "https://management.azure.com";
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
        // The ETags of Network are made up.
        return if value.starts_with("W/") { "W/" } else { value }.to_owned();
    }
    let path = value.split("/providers/").nth(1).unwrap_or(value);
    let segments: Vec<&str> = path.split(['/', '?']).collect();
    let monitor = if value.contains("monitor=true") { " monitored" } else { "" };
    format!("{} {}{monitor}", segments[0], segments[3])
}

/// Whom recorded requests are sent to.
struct Replay {
    client: Client,
    endpoint: String,
    subscription: String,
    token: String,
    /// Where the last operation that was named is asked for, and where its result.
    operation: (Option<String>, Option<String>),
}

impl Replay {
    fn new(endpoint: &str, subscription: &str, token: &str) -> Self {
        let client = Client::builder();
        // Nothing leads to this machine by way of another.
        let is_here = endpoint.starts_with("http://127.0.0.1");
        let client = if is_here { client.no_proxy() } else { client };
        Self {
            client: client.build().unwrap(),
            endpoint: endpoint.to_owned(),
            subscription: subscription.to_owned(),
            token: token.to_owned(),
            operation: (None, None),
        }
    }

    async fn ask(&self, method: Method, url: &str, if_match: Option<&str>, body: &str) -> Answer {
        let url = url.replace(MANAGEMENT, &self.endpoint).replace(SUBSCRIPTION, &self.subscription);
        let mut request = self.client.request(method, url).bearer_auth(&self.token);
        if let Some(etag) = if_match {
            request = request.header(header::IF_MATCH, etag);
        }
        if !body.is_empty() {
            let body = body.replace(SUBSCRIPTION, &self.subscription);
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        Answer::of(request.send().await.unwrap(), &self.subscription).await
    }

    /// Whether what a request names is there.
    async fn has(&self, recorded: &RecordedRequest) -> bool {
        self.ask(Method::GET, &recorded.url, None, "").await.status == 200
    }

    async fn send(&mut self, recorded: &RecordedRequest) -> Answer {
        let method: Method = recorded.method.parse().unwrap();
        let if_match = recorded.headers.get("If-Match").map(|values| values[0].as_str());
        let answer = self.ask(method, &recorded.url, if_match, &recorded.body).await;
        let named = |name| answer.header(name).map(str::to_owned);
        let operation = (named("azure-asyncoperation"), named("location"));
        if operation != (None, None) {
            self.operation = operation;
        }
        answer
    }

    /// The last answer about the operation that was named last.
    async fn poll(&self, recorded: &RecordedRequest) -> Answer {
        loop {
            let (status, result) = &self.operation;
            let url = status.as_ref().or(result.as_ref()).unwrap_or(&recorded.url);
            let answer = self.ask(Method::GET, url, None, "").await;
            let runs = answer.status == 202
                || ["InProgress", "Running"].iter().any(|it| answer.body["status"] == *it);
            if !runs {
                return answer;
            }
            // The simulator has done everything by now: only the real service is ever waited for.
            let after = answer.header("retry-after").and_then(|after| after.parse().ok()).unwrap_or(1);
            tokio::time::sleep(Duration::from_secs(after)).await;
        }
    }
}

/// An answer that has arrived whole.
struct Answer {
    status: u16,
    headers: header::HeaderMap,
    body: Value,
}

impl Answer {
    async fn of(response: Response, subscription: &str) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.text().await.unwrap().replace(subscription, SUBSCRIPTION);
        Self { status, headers, body: json_of(&body) }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

fn read(file: &str) -> Option<Recording> {
    let path = Path::new(RECORDINGS).join(file);
    if !path.exists() {
        println!("skipped: there is no recording {}", path.display());
        return None;
    }
    Some(serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap())
}

/// Replays a recording, and says where the simulator differs.
async fn replay(file: &str, group: &str) -> Option<(usize, Vec<String>)> {
    let recording = read(file)?;
    let groups = vec![ResourceGroup { subscription: SUBSCRIPTION.to_owned(), name: group.to_owned() }];
    let completion = Completion::Recorded;
    let azure = AzureConfig { resource_groups: Some(groups), completion, ..AzureConfig::default() };
    let simulator = Simulator::start(SimulatorConfig { azure, ..SimulatorConfig::default() }).await.unwrap();
    let mut replay = Replay::new(&simulator.endpoint(), SUBSCRIPTION, "any");
    let scope = format!("{MANAGEMENT}/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers");
    let gateway = format!("{scope}/Microsoft.Network/serviceGateways/servicegateway?api-version=2025-05-01");
    assert_eq!(replay.ask(Method::DELETE, &gateway, None, "").await.status, 202);
    let found = compare(&mut replay, recording, is_modelled).await;
    simulator.shutdown().await;
    Some(found)
}

fn is_modelled(url: &str) -> bool {
    url.contains("/providers/") && !url.contains("/virtualNetworks/")
}

/// Sends those recorded requests that are meant in their order, and says how many there were and how the answers differ.
async fn compare(
    replay: &mut Replay,
    recording: Recording,
    is_meant: impl Fn(&str) -> bool,
) -> (usize, Vec<String>) {
    let mut found = Vec::new();
    let (mut count, mut is_left_out) = (0, false);
    for Interaction { request, response } in recording.interactions {
        let url = &request.url;
        let is_poll = url.contains("/operations/") || url.contains("/operationresults/");
        // The polls of an operation are meant if it is.
        is_left_out = if is_poll { is_left_out } else { !is_meant(url) };
        if is_left_out {
            continue;
        }
        count += 1;
        let mut answer = if is_poll {
            replay.poll(&request).await
        } else {
            if request.method == "PUT" && response.code == 200 && !replay.has(&request).await {
                replay.send(&request).await;
                replay.poll(&request).await;
            }
            replay.send(&request).await
        };
        let what = format!("{} {}", request.method, url.split("/providers/").nth(1).unwrap_or(url));
        if answer.status != response.code {
            found.push(format!("{what}: {} {}, not {}", answer.status, answer.body, response.code));
            continue;
        }
        for name in ["azure-asyncoperation", "location", "etag", "azure-asyncnotification"] {
            let recorded = response.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            let recorded = recorded.map(|(_, values)| header_essence(name, &values[0]));
            let is = answer.header(name).map(|value| header_essence(name, value));
            if recorded != is {
                found.push(format!("{what}: {name} is {is:?}, not {recorded:?}"));
            }
        }
        let mut differ = Vec::new();
        let mut recorded = json_of(&response.body);
        if is_poll {
            // The name of an operation is made up.
            for body in [&mut recorded, &mut answer.body] {
                if let Some(name) = body.get_mut("name") {
                    *name = Value::from("made up");
                }
            }
        }
        differences("", &recorded, &answer.body, &mut differ);
        found.extend(differ.into_iter().map(|one| format!("{what}: {one}")));
    }
    (count, found)
}

#[tokio::test]
#[ignore = "makes and deletes resources in a real subscription"]
async fn the_real_service_answers_as_it_did() {
    let setting = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (subscription, token) = (setting("CONFORMANCE_SUBSCRIPTION"), setting("CONFORMANCE_TOKEN"));
    let endpoint = std::env::var("CONFORMANCE_ENDPOINT").unwrap_or_else(|_| MANAGEMENT.to_owned());
    let mut all = Vec::new();
    for file in [
        "virtualmachinescaleset.yaml",
        "virtualmachinescalesetvm.yaml",
        "interface.yaml",
        "servicegateway.yaml",
        "loadbalancer.yaml",
        "publicipaddress.yaml",
        "natgateway.yaml",
    ] {
        let Some(recording) = read(file) else { return };
        let (count, found) =
            compare(&mut Replay::new(&endpoint, &subscription, &token), recording, |_| true).await;
        println!("{file}: {count} requests, {} differences", found.len());
        all.extend(found);
    }
    assert_eq!(all, Vec::<String>::new(), "{all:#?}");
}

#[tokio::test]
async fn scale_sets() {
    let Some(found) = replay("virtualmachinescaleset.yaml", "aks-cit-VirtualMachineScaleSet").await else {
        return;
    };
    assert_eq!(found, (12, vec![]), "{:#?}", found.1);
}

#[tokio::test]
async fn instances() {
    let Some(found) = replay("virtualmachinescalesetvm.yaml", "aks-cit-VirtualMachineScaleSetVM").await
    else {
        return;
    };
    assert_eq!(found, (16, vec![]), "{:#?}", found.1);
}

#[tokio::test]
async fn interfaces() {
    let Some(found) = replay("interface.yaml", "aks-cit-Interface").await else { return };
    assert_eq!(found, (8, vec![]), "{:#?}", found.1);
}

#[tokio::test]
async fn service_gateways() {
    let Some(found) = replay("servicegateway.yaml", "aks-cit-ServiceGateway").await else { return };
    assert_eq!(found, (16, vec![]), "{:#?}", found.1);
}

#[tokio::test]
async fn load_balancers() {
    let Some(found) = replay("loadbalancer.yaml", "aks-cit-LoadBalancer").await else { return };
    assert_eq!(found, (16, vec![]), "{:#?}", found.1);
}

#[tokio::test]
async fn public_ips() {
    let Some(found) = replay("publicipaddress.yaml", "aks-cit-PublicIPAddress").await else { return };
    assert_eq!(found, (12, vec![]), "{:#?}", found.1);
}

#[tokio::test]
async fn nat_gateways() {
    let Some(found) = replay("natgateway.yaml", "aks-cit-NatGateway").await else { return };
    // What the public IP was before, and so what changed, is not recorded.
    let unlike = "PUT Microsoft.Network/publicIPAddresses/pip1?api-version=2025-05-01: \
                  /properties/provisioningState is \"Succeeded\", not \"Updating\"";
    assert_eq!(found, (16, vec![unlike.to_owned()]), "{:#?}", found.1);
}
