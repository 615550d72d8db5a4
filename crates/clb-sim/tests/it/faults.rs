//! Faults, tokens and budgets, over HTTP and without sockets, and that nothing depends on chance.

use std::time::Duration;

use clb_arm::{Transport, TransportError, http};
use clb_sim::azure::{Method, OperationShape, Request};
use clb_sim::fault::{FaultPlan, How, What, When, replay};
use clb_sim::{Budget, Budgets, Simulation, Simulator, SimulatorConfig};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::*;

const ARM: &str = "https://arm.example";

fn http(request: &Request) -> http::Request<Vec<u8>> {
    let query: Vec<_> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let body = if request.body.is_null() { Vec::new() } else { request.body.to_string().into_bytes() };
    http::Request::builder()
        .method(request.method.as_str())
        .uri(format!("{ARM}{}?{}", request.path, query.join("&")))
        .header("user-agent", "tester/1")
        .body(body)
        .unwrap()
}

async fn send(simulation: &Simulation, request: &Request) -> Result<http::Response<Vec<u8>>, TransportError> {
    simulation.transport().send(http(request)).await
}

async fn status(simulation: &Simulation, request: &Request) -> Option<u16> {
    send(simulation, request).await.ok().map(|response| response.status().as_u16())
}

fn with_fault(when: When, what: What, how: How) -> Simulation {
    let faults = FaultPlan::new(1).with(when, what, how);
    Simulation::new(SimulatorConfig { faults, ..SimulatorConfig::default() })
}

fn write(name: &str) -> Request {
    put(&public_ip_path(name), public_ip("IPv4"))
}

#[tokio::test]
async fn links_and_operations_lead_back_to_the_same_host() {
    let simulation = with_fault(When::Always, What::verb("PUT"), How::Operation(OperationShape::Polled(1)));
    let response = send(&simulation, &write("a")).await.unwrap();
    let operation = response.headers()["azure-asyncoperation"].to_str().unwrap();
    assert!(operation.starts_with(&format!("{ARM}/subscriptions/")), "{operation}");
    let poll = http::Request::get(operation).body(Vec::new()).unwrap();
    let poll = simulation.transport().send(poll).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(poll.body()).unwrap(), json!({"status": "InProgress"}));
}

#[tokio::test]
async fn a_lost_request_has_no_effect_and_a_lost_answer_has() {
    for (how, after) in [(How::LoseRequest, 404), (How::LoseAnswer, 200), (How::Truncate(5), 200)] {
        let simulation = with_fault(When::Nth(1), What::verb("PUT"), how.clone());
        let error = send(&simulation, &write("a")).await.unwrap_err();
        assert!(matches!(error, TransportError::MaybeSent(_)), "{error:?}");
        assert_eq!(status(&simulation, &get(&public_ip_path("a"))).await, Some(after), "{how:?}");
        assert_eq!(status(&simulation, &write("a")).await, Some(if after == 200 { 200 } else { 201 }));
    }
}

#[tokio::test]
async fn over_http_the_connection_breaks_where_the_fault_says() {
    let faults = FaultPlan::new(0)
        .with(When::Nth(1), What::verb("PUT"), How::LoseRequest)
        .with(When::Nth(2), What::verb("PUT"), How::LoseAnswer)
        .with(When::Nth(3), What::verb("PUT"), How::Truncate(5));
    let simulator = Simulator::start(SimulatorConfig { faults, ..SimulatorConfig::default() }).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = |name: &str| format!("{}{}?api-version=1", simulator.endpoint(), public_ip_path(name));
    let put = |name: &str| client.put(url(name)).json(&public_ip("IPv4")).send();
    for (name, after) in [("a", 404), ("b", 200)] {
        assert!(put(name).await.is_err());
        assert_eq!(client.get(url(name)).send().await.unwrap().status(), after, "{name}");
    }
    let truncated = put("c").await.unwrap();
    assert_eq!(truncated.status(), 201);
    assert!(truncated.bytes().await.is_err());
    assert_eq!(put("d").await.unwrap().status(), 201);
    simulator.shutdown().await;
}

#[tokio::test]
async fn an_injected_refusal_changes_nothing_and_a_repeated_call_happens_twice() {
    let refuse = How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() };
    let simulation = with_fault(When::Nth(1), What::verb("PUT"), refuse);
    let refused = send(&simulation, &write("a")).await.unwrap();
    assert_eq!(refused.status(), 503);
    let body: Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(body["error"]["code"], "ServiceUnavailable");
    assert_eq!(status(&simulation, &get(&public_ip_path("a"))).await, Some(404));

    let simulation = with_fault(When::Always, What::verb("PUT"), How::Repeat);
    assert_eq!(status(&simulation, &write("a")).await, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_answer_comes_late_on_the_virtual_clock_and_its_effect_does_not() {
    let simulation = with_fault(When::Always, What::verb("PUT"), How::Delay(3_600_000));
    let started = Instant::now();
    let mut subscriber = simulation.subscribe();
    let answer = tokio::spawn({
        let simulation = simulation.clone();
        async move { status(&simulation, &write("a")).await }
    });
    let record = subscriber.recv().await.unwrap();
    assert_eq!((record.method, record.duration), (Method::Put, Duration::from_secs(3600)));
    assert_eq!(status(&simulation, &get(&public_ip_path("a"))).await, Some(200));
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(answer.await.unwrap(), Some(201));
    assert_eq!(started.elapsed(), Duration::from_secs(3600));
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_closes_the_door_for_all_of_its_class_until_the_named_time() {
    let simulation = with_fault(When::Nth(1), What::verb("PUT"), How::Throttle { seconds: 7 });
    for name in ["a", "b"] {
        let response = send(&simulation, &write(name)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &"7".parse().unwrap())
        );
    }
    assert_eq!(status(&simulation, &get(&public_ip_path("a"))).await, Some(404));
    assert_eq!(status(&simulation, &delete(&public_ip_path("a"))).await, Some(204));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(status(&simulation, &write("a")).await, Some(201));
}

#[tokio::test(start_paused = true)]
async fn budgets_run_out_and_fill_again() {
    let writes = Budget { size: 2, per_second: 1 };
    let budgets = Some(Budgets { writes, ..Budgets::default() });
    let simulation = Simulation::new(SimulatorConfig { budgets, ..SimulatorConfig::default() });
    let left = "x-ms-ratelimit-remaining-subscription-global-writes";
    let mut seen = Vec::new();
    for name in ["a", "b", "c"] {
        let response = send(&simulation, &write(name)).await.unwrap();
        let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        seen.push((response.status().as_u16(), response.headers()[left].to_str().unwrap().to_owned(), retry));
    }
    let second = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen,
        [(201, "1".to_owned(), None), (201, "0".to_owned(), None), (429, "0".to_owned(), second("1"))]
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(status(&simulation, &write("c")).await, Some(201));
}

#[tokio::test]
async fn where_tokens_are_asked_for_a_missing_or_expired_one_is_refused() {
    let simulation = Simulation::new(SimulatorConfig { requires_token: true, ..SimulatorConfig::default() });
    let ask = |token: Option<&'static str>| {
        let mut request = http(&get(&public_ip_path("a")));
        if let Some(token) = token {
            request.headers_mut().insert("authorization", token.parse().unwrap());
        }
        let transport = simulation.transport();
        async move {
            let response = transport.send(request).await.unwrap();
            let body: Value = serde_json::from_slice(response.body()).unwrap();
            let challenged = response.headers().contains_key("www-authenticate");
            (response.status().as_u16(), body["error"]["code"].as_str().unwrap().to_owned(), challenged)
        }
    };
    let missing = (401, "AuthenticationFailed".to_owned(), true);
    assert_eq!(ask(None).await, missing);
    assert_eq!(ask(Some("Bearer ")).await, missing);
    assert_eq!(ask(Some("Basic eA==")).await, missing);
    let admitted = (404, "ResourceNotFound".to_owned(), false);
    assert_eq!(ask(Some("Bearer one")).await, admitted);
    simulation.expire_token("one");
    assert_eq!(ask(Some("Bearer one")).await, (401, "ExpiredAuthenticationToken".to_owned(), true));
    assert_eq!(ask(Some("Bearer two")).await, admitted);
}

/// What a busy client sees and does for a while, in words.
async fn trace(faults: FaultPlan) -> (String, Simulation) {
    use std::fmt::Write;

    let simulation = Simulation::new(SimulatorConfig {
        faults,
        latency: Duration::from_millis(3),
        ..SimulatorConfig::default()
    });
    let started = Instant::now();
    let mut trace = String::new();
    for round in 0..60_u32 {
        let name = ["a", "b", "c", "d"][(round % 4) as usize];
        let request = match round % 3 {
            0 => write(name),
            1 => put(&nat_gateway_path(name), nat_gateway(&[name], &[])),
            _ => delete(&nat_gateway_path(name)),
        };
        let answer = send(&simulation, &request).await;
        writeln!(trace, "{:?} {round} {answer:?}", started.elapsed()).unwrap();
    }
    writeln!(trace, "{:?}", simulation.take_records()).unwrap();
    (trace, simulation)
}

fn chaos(seed: u64) -> FaultPlan {
    FaultPlan::new(seed)
        .with(When::Probability(0.1), What::default(), How::LoseAnswer)
        .with(When::Probability(0.1), What::verb("PUT"), How::Delay(250))
        .with(
            When::Probability(0.1),
            What::default().path("*/natGateways/*"),
            How::Operation(OperationShape::Stuck),
        )
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_trace_byte_for_byte_and_so_does_the_replayed_plan() {
    let (first, simulation) = trace(chaos(11)).await;
    assert!(simulation.injected().len() > 5);
    assert_eq!(trace(chaos(11)).await.0, first);
    assert_ne!(trace(chaos(12)).await.0, first);
    let (replayed, again) = trace(replay(&simulation.injected())).await;
    assert_eq!(replayed, first);
    assert_eq!(again.injected(), simulation.injected());
}

#[tokio::test]
async fn a_plan_that_is_taken_away_happens_no_more() {
    let simulation = with_fault(When::Always, What::default(), How::LoseRequest);
    assert_eq!(status(&simulation, &write("a")).await, None);
    simulation.set_faults(FaultPlan::default());
    assert_eq!(status(&simulation, &write("a")).await, Some(201));
    assert_eq!(simulation.injected().len(), 1);
}
