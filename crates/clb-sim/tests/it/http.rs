//! The same over HTTP.

use std::time::Duration;

use clb_sim::azure::{AzureConfig, Completion, Method, Request};
use clb_sim::traffic::{CallCounts, CallKind, CallRecord};
use clb_sim::{Simulator, SimulatorConfig};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::*;

struct Served {
    simulator: Simulator,
    client: Client,
}

impl Served {
    async fn start(config: SimulatorConfig) -> Self {
        let simulator = Simulator::start(config).await.unwrap();
        // The loopback interface is not behind whatever proxy the environment names.
        Self { simulator, client: Client::builder().no_proxy().build().unwrap() }
    }

    fn builder(&self, request: &Request) -> RequestBuilder {
        // What is asked for here needs no escaping.
        let query: Vec<_> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let url = format!("{}{}?{}", self.simulator.endpoint(), request.path, query.join("&"));
        let method = reqwest::Method::from_bytes(request.method.as_str().as_bytes()).unwrap();
        let builder = self.client.request(method, url);
        if request.body.is_null() { builder } else { builder.json(&request.body) }
    }

    async fn send(&self, request: Request) -> Response {
        self.builder(&request).send().await.unwrap()
    }

    /// Gets what a header or a `nextLink` names.
    async fn follow(&self, url: &str) -> Response {
        assert!(url.starts_with(&self.simulator.endpoint()), "{url}");
        self.client.get(url).send().await.unwrap()
    }
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn json_of(response: Response) -> Value {
    response.json().await.unwrap()
}

async fn code_of(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    (status, json_of(response).await["error"]["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn what_is_written_over_http_is_read_over_http_and_seen_inside() {
    let served = Served::start(SimulatorConfig::default()).await;
    let written = served.send(put(&public_ip_path("a"), public_ip("IPv4"))).await;
    assert_eq!(written.status(), 201);
    assert_eq!(header(&written, "content-type"), Some("application/json; charset=utf-8"));
    let written = json_of(written).await;
    assert_eq!(json_of(served.send(get(&public_ip_path("a"))).await).await, written);
    let inside = served.simulator.with_azure(|azure| azure.handle(&get(&public_ip_path("a"))).body);
    assert_eq!(inside, written);
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn answers_carry_ids_and_what_is_left_of_the_budget() {
    let served = Served::start(SimulatorConfig::default()).await;
    let mut ids = std::collections::BTreeSet::new();
    for (request, budget, left) in [
        (get(&public_ip_path("a")), "reads", "16499"),
        (update_services("PartialUpdate", json!([])), "writes", "11999"),
        (delete(&public_ip_path("a")), "deletes", "11999"),
    ] {
        let response =
            served.builder(&request).header("x-ms-client-request-id", "mine").send().await.unwrap();
        for name in ["x-ms-request-id", "x-ms-correlation-request-id"] {
            let id = header(&response, name).unwrap().to_owned();
            assert!(uuid::Uuid::parse_str(&id).is_ok() && ids.insert(id), "{name}");
        }
        assert_eq!(header(&response, "x-ms-client-request-id"), Some("mine"));
        let name = format!("x-ms-ratelimit-remaining-subscription-global-{budget}");
        assert_eq!(header(&response, &name), Some(left));
    }
    let response = served.send(get(&public_ip_path("a"))).await;
    assert_eq!(header(&response, "x-ms-client-request-id"), None);
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn refusals_have_a_body_that_says_why() {
    let served = Served::start(SimulatorConfig::default()).await;
    let response = served.send(get(&public_ip_path("a"))).await;
    assert_eq!(response.status(), 404);
    let message = "The Resource 'Microsoft.Network/publicIPAddresses/a-pip' under resource group 'rg' was not found. For \
                   more details please go to https://aka.ms/ARMResourceNotFoundFix";
    let error = json!({"code": "ResourceNotFound", "message": message});
    assert_eq!(json_of(response).await, json!({"error": error}));

    let unversioned = Request { query: vec![], ..get(&public_ip_path("a")) };
    assert_eq!(code_of(served.send(unversioned).await).await, bad("MissingApiVersionParameter"));
    let not_modelled = (501, "NotModelled".to_owned());
    assert_eq!(
        code_of(served.send(request("OPTIONS", &public_ip_path("a"), json!({}))).await).await,
        not_modelled
    );
    let garbled = served.builder(&put(&public_ip_path("a"), Value::Null)).body("{").send().await.unwrap();
    assert_eq!(code_of(garbled).await, bad("InvalidRequestContent"));
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn an_etag_is_taken_from_its_header() {
    let served = Served::start(SimulatorConfig::default()).await;
    let write = put(&public_ip_path("a"), public_ip("IPv4"));
    let etag = json_of(served.send(write.clone()).await).await["etag"].as_str().unwrap().to_owned();
    let matching = || served.builder(&write).header("If-Match", &etag).send();
    assert_eq!(matching().await.unwrap().status(), 200);
    let refused = matching().await.unwrap();
    assert_eq!(refused.status(), 412);
    assert_eq!(json_of(refused).await["error"]["details"][0]["code"], "PreconditionFailedEtagMismatch");
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn a_body_of_4_mebibytes_is_taken_and_a_larger_one_is_not() {
    let served = Served::start(SimulatorConfig::default()).await;
    for (size, expected) in [(4 << 20, (201, None)), ((4 << 20) + 1, (413, Some("RequestEntityTooLarge")))] {
        let mut body = public_ip("IPv4");
        body["tags"] = json!({"filler": ""});
        body["tags"]["filler"] = json!("x".repeat(size - body.to_string().len()));
        let response = served.send(put(&public_ip_path("a"), body)).await;
        let (status, code) = expected;
        assert_eq!(response.status(), status, "{size}");
        assert_eq!(json_of(response).await["error"]["code"].as_str(), code, "{size}");
    }
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn next_links_are_absolute_and_lead_through_all_pages() {
    let azure = AzureConfig { page_size: 2, ..AzureConfig::default() };
    let served = Served::start(SimulatorConfig { azure, ..SimulatorConfig::default() }).await;
    for name in ["a", "b", "c", "d", "e"] {
        served.send(put(&public_ip_path(name), public_ip("IPv4"))).await;
    }
    let mut pages: Vec<Vec<String>> = Vec::new();
    let mut response = served.send(get(&format!("{NETWORK}/publicIPAddresses"))).await;
    loop {
        let body = json_of(response).await;
        let names =
            body["value"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned());
        pages.push(names.collect());
        let Some(next) = body.get("nextLink") else { break };
        response = served.follow(next.as_str().unwrap()).await;
    }
    let expected: [&[&str]; 3] = [&["a-pip", "b-pip"], &["c-pip", "d-pip"], &["e-pip"]];
    assert_eq!(pages, expected);
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn long_running_operations_are_followed_over_absolute_headers() {
    let azure = AzureConfig { completion: Completion::Polled, ..AzureConfig::default() };
    let served = Served::start(SimulatorConfig { azure, ..SimulatorConfig::default() }).await;
    let response = served.send(put(&public_ip_path("a"), public_ip("IPv4"))).await;
    assert_eq!(response.status(), 201);
    let operation = header(&response, "azure-asyncoperation").unwrap().to_owned();
    assert_eq!(json_of(response).await["properties"]["provisioningState"], "Updating");
    for status in ["InProgress", "Succeeded"] {
        let poll = served.follow(&operation).await;
        assert_eq!((poll.status().as_u16(), header(&poll, "retry-after")), (200, Some("1")));
        assert_eq!(json_of(poll).await, json!({"status": status}));
    }
    let last = json_of(served.send(get(&public_ip_path("a"))).await).await;
    assert_eq!(last["properties"]["provisioningState"], "Succeeded");

    let response = served.send(delete(&public_ip_path("a"))).await;
    assert_eq!(response.status(), 202);
    let [location, operation] =
        ["location", "azure-asyncoperation"].map(|name| header(&response, name).unwrap().to_owned());
    assert_eq!(response.bytes().await.unwrap().len(), 0);
    assert_eq!(served.follow(&location).await.status(), 202);
    assert_eq!(served.follow(&location).await.status(), 204);
    assert_eq!(json_of(served.follow(&operation).await).await, json!({"status": "Succeeded"}));

    let response = served.send(update_locations("PartialUpdate", json!([]))).await;
    assert_eq!(response.status(), 200);
    let operation = header(&response, "azure-asyncoperation").unwrap().to_owned();
    assert_eq!(response.bytes().await.unwrap().len(), 0);
    assert_eq!(json_of(served.follow(&operation).await).await, json!({"status": "Succeeded"}));
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn every_request_is_recorded_counted_and_told_to_subscribers() {
    let served = Served::start(SimulatorConfig::default()).await;
    let mut subscriber = served.simulator.subscribe();
    let service = json!({"service": {"name": "s", "properties": {"serviceType": "Inbound"}}});
    let address = |address: &str| json!({"address": address, "services": ["s"]});
    let location = |location: &str, addresses: Vec<Value>| json!({"addressLocation": location, "addressUpdateAction": "PartialUpdate", "addresses": addresses});
    let locations = json!([
        location("10.0.0.1", vec![address("10.1.0.1"), address("10.1.0.2")]),
        location("10.0.0.2", vec![])
    ]);
    let requests = [
        (put(&public_ip_path("a"), public_ip("IPv4")), CallKind::Put, 0, 201, None),
        (get(&public_ip_path("b")), CallKind::Get, 0, 404, Some("ResourceNotFound")),
        (delete(&public_ip_path("a")), CallKind::Delete, 0, 200, None),
        (update_services("PartialUpdate", json!([service])), CallKind::UpdateServices, 1, 200, None),
        (update_locations("PartialUpdate", locations), CallKind::UpdateAddressLocations, 3, 200, None),
        (request("POST", &public_ip_path("a"), json!({})), CallKind::Other, 0, 501, Some("NotModelled")),
        (request("OPTIONS", &public_ip_path("a"), json!({})), CallKind::Other, 0, 501, Some("NotModelled")),
    ];
    let mut expected = Vec::new();
    for (request, kind, entries, status, code) in requests {
        let Request { method, path, .. } = request.clone();
        let code = code.map(str::to_owned);
        let (at, duration, fault) = (Duration::ZERO, Duration::ZERO, None);
        expected.push(CallRecord { at, method, path, kind, entries, status, code, duration, fault });
        served.send(request).await;
    }
    served.builder(&put(&public_ip_path("c"), Value::Null)).body("{").send().await.unwrap();
    expected.push(CallRecord {
        at: Duration::ZERO,
        method: Method::Put,
        path: public_ip_path("c"),
        kind: CallKind::Put,
        entries: 0,
        status: 400,
        code: Some("InvalidRequestContent".to_owned()),
        duration: Duration::ZERO,
        fault: None,
    });
    let at_once = |record| CallRecord { at: Duration::ZERO, ..record };
    let records: Vec<CallRecord> = served.simulator.take_records().into_iter().map(at_once).collect();
    assert_eq!(records, expected);
    assert_eq!(served.simulator.take_records(), []);
    let counts = CallCounts { update_services: 1, update_address_locations: 1, put: 2, delete: 1, get: 1 };
    assert_eq!(served.simulator.counts(), counts);
    let mut told = Vec::new();
    while let Ok(record) = subscriber.try_recv() {
        told.push(at_once(record));
    }
    assert_eq!(told, expected);
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn a_request_has_its_effect_before_its_answer_is_due() {
    // Longer than any test is patient: an answer would be late by an hour.
    let latency = Duration::from_secs(3600);
    let served = Served::start(SimulatorConfig { latency, ..SimulatorConfig::default() }).await;
    let mut subscriber = served.simulator.subscribe();
    let answer = tokio::spawn(served.builder(&put(&public_ip_path("a"), public_ip("IPv4"))).send());
    let record = subscriber.recv().await.unwrap();
    assert_eq!((record.kind, record.status, record.duration), (CallKind::Put, 201, latency));
    let inside = served.simulator.with_azure(|azure| azure.handle(&get(&public_ip_path("a"))).status);
    assert_eq!(inside, 200);
    assert!(!answer.is_finished());
    answer.abort();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_and_free_again_after_the_shutdown() {
    let first = Simulator::start(SimulatorConfig::default()).await.unwrap();
    let port: u16 = first.endpoint().strip_prefix("http://127.0.0.1:").unwrap().parse().unwrap();
    let config = SimulatorConfig { port, ..SimulatorConfig::default() };
    let error = Simulator::start(config.clone()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{error}");
    first.shutdown().await;
    let again = Simulator::start(config).await.unwrap();
    assert_eq!(again.endpoint(), format!("http://127.0.0.1:{port}"));
    again.shutdown().await;
}
