//! Every fault that can happen to a call of the Kubernetes API: it happens, is known, and happens again.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::Duration;

use clb_sim::fault::{Api, FaultPlan, How, Injected, What, When, replay};
use clb_sim::kube::{KubeConfig, KubeSimulation, KubeSimulator};
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// What a client sees of the same requests under a plan, with the time that each takes, and what the simulator knows of it.
async fn trace(faults: FaultPlan) -> (String, Vec<Injected>) {
    let simulation = KubeSimulation::new(KubeConfig { faults, ..KubeConfig::default() });
    let client = Client::new(simulation.router(), "default");
    let mut seen = String::new();
    let mut ask = async |method: &str, path: String, body: Value| {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let started = Instant::now();
        let answer =
            client.request_text(request.body(body).unwrap()).await.map_err(|error| error.to_string());
        writeln!(seen, "{method} {:?} {answer:?}", started.elapsed()).unwrap();
    };
    for name in ["a", "b"] {
        let body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        ask("POST", SERVICES.to_owned(), body).await;
    }
    ask("GET", format!("{SERVICES}/b"), Value::Null).await;
    ask("GET", SERVICES.to_owned(), Value::Null).await;
    ask("GET", format!("{SERVICES}?watch=1&timeoutSeconds=1"), Value::Null).await;
    ask("DELETE", format!("{SERVICES}/a"), Value::Null).await;
    (seen, simulation.injected())
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_fault_happens_is_known_and_happens_again() {
    let (undisturbed, _) = trace(FaultPlan::default()).await;
    let refuse = How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() };
    let cases = [
        ("POST", SERVICES, How::Delay(1_500)),
        ("POST", SERVICES, refuse),
        ("DELETE", "*/a", How::Throttle { seconds: 3 }),
        ("POST", SERVICES, How::LoseRequest),
        ("POST", SERVICES, How::LoseAnswer),
        ("GET", "*/b", How::Truncate(40)),
        ("WATCH", SERVICES, How::Truncate(40)),
        ("POST", SERVICES, How::Repeat),
        ("WATCH", SERVICES, How::Repeat),
        ("GET", SERVICES, How::Stale(1)),
        ("GET", "*/b", How::Stale(1)),
        ("WATCH", SERVICES, How::SkipEvents(1)),
        ("WATCH", SERVICES, How::EndWatch(1)),
        ("GET", SERVICES, How::Gone),
        ("WATCH", SERVICES, How::Gone),
    ];
    for (verb, path, how) in cases {
        let plan = FaultPlan::new(0).with(When::Nth(1), What::verb(verb).path(path), how.clone());
        let (seen, injected) = trace(plan).await;
        assert_ne!(seen, undisturbed, "{verb} {how:?}");
        let [Injected { call, nth: 1, how: happened, .. }] = &injected[..] else { panic!("{injected:?}") };
        assert_eq!((call.api, call.verb.as_str(), happened), (Api::Kubernetes, verb, &how));
        assert_eq!(trace(replay(&injected)).await, (seen, injected), "{verb} {how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_chance_is_replayed_exactly() {
    for seed in 0..20 {
        let what = || What { api: Some(Api::Kubernetes), ..What::default() };
        let plan = FaultPlan::new(seed)
            .with(When::Probability(0.2), what(), How::LoseAnswer)
            .with(When::Probability(0.2), what(), How::Delay(700))
            .with(When::Probability(0.2), What::verb("WATCH"), How::Repeat);
        let first = trace(plan).await;
        assert_eq!(trace(replay(&first.1)).await, first, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_watch_tells_every_event_twice_and_a_truncated_one_breaks_within_one() {
    let lines = async |how: How| {
        let plan = FaultPlan::new(0).with(When::Nth(1), What::verb("WATCH"), how);
        let (seen, _) = trace(plan).await;
        seen.lines().nth(4).unwrap().to_owned()
    };
    assert_eq!(lines(How::Repeat).await.matches("ADDED").count(), 4);
    assert_eq!(lines(How::SkipEvents(1)).await.matches("ADDED").count(), 1);
    assert!(lines(How::Truncate(40)).await.contains("Err"));
}

#[tokio::test]
async fn a_lost_call_is_a_reset_connection() {
    for how in [How::LoseRequest, How::LoseAnswer] {
        let faults = FaultPlan::new(0).with(When::Nth(1), What::default(), how);
        let served = KubeSimulator::start(KubeConfig { faults, ..KubeConfig::default() }).await.unwrap();
        let mut stream = TcpStream::connect(served.endpoint().trim_start_matches("http://")).await.unwrap();
        stream.write_all(b"GET /version HTTP/1.1\r\nHost: simulator\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let error =
            tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await.unwrap();
        assert_eq!((error.unwrap_err().kind(), answer.as_slice()), (ErrorKind::ConnectionReset, &b""[..]));
        served.shutdown().await;
    }
}
