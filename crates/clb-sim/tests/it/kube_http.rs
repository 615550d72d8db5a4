//! Kubernetes over HTTP, and its faults.

use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{KubeConfig, KubeSimulator};
use reqwest::{Client, Response};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

struct Served {
    simulator: KubeSimulator,
    client: Client,
}

impl Served {
    async fn start(faults: FaultPlan) -> Self {
        let simulator = KubeSimulator::start(KubeConfig { faults, ..KubeConfig::default() }).await.unwrap();
        Self { simulator, client: Client::builder().no_proxy().build().unwrap() }
    }

    async fn get(&self, path: &str) -> reqwest::Result<Response> {
        self.client.get(format!("{}{path}", self.simulator.endpoint())).send().await
    }

    async fn create(&self, name: &str) -> reqwest::Result<Response> {
        let body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        self.client.post(format!("{}{SERVICES}", self.simulator.endpoint())).json(&body).send().await
    }

    async fn count(&self) -> usize {
        let body: Value = self.get(SERVICES).await.unwrap().json().await.unwrap();
        body["items"].as_array().unwrap().len()
    }
}

/// The next so many events of a watch, as their types and names; fewer if it ends.
async fn events(response: &mut Response, count: usize) -> Vec<(String, String)> {
    let (mut text, mut events) = (String::new(), Vec::new());
    while events.len() < count {
        let Some(chunk) = response.chunk().await.unwrap() else { break };
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some((line, rest)) = text.split_once('\n') {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().or(event["object"]["reason"].as_str());
            events.push((event["type"].as_str().unwrap().to_owned(), name.unwrap_or_default().to_owned()));
            text = rest.to_owned();
        }
    }
    events
}

fn added(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ("ADDED".to_owned(), (*name).to_owned())).collect()
}

#[tokio::test]
async fn a_watch_hears_of_changes_as_they_happen() {
    let served = Served::start(FaultPlan::default()).await;
    served.create("a").await.unwrap();
    let mut watch = served.get(&format!("{SERVICES}?watch=1")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await, added(&["a"]));
    served.create("b").await.unwrap();
    assert_eq!(events(&mut watch, 1).await, added(&["b"]));
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn a_watch_with_a_time_limit_ends() {
    let served = Served::start(FaultPlan::default()).await;
    let mut watch = served.get(&format!("{SERVICES}?watch=1&timeoutSeconds=0")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await, []);
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn watches_skip_end_and_expire_as_the_plan_says() {
    let faults = FaultPlan::new(0)
        .with(When::Nth(1), What::verb("WATCH"), How::SkipEvents(1))
        .with(When::Nth(2), What::verb("WATCH"), How::EndWatch(1))
        .with(When::Nth(3), What::verb("WATCH"), How::Gone);
    let served = Served::start(faults).await;
    for name in ["a", "b", "c"] {
        served.create(name).await.unwrap();
    }
    let path = format!("{SERVICES}?watch=1");
    assert_eq!(events(&mut served.get(&path).await.unwrap(), 2).await, added(&["b", "c"]));
    assert_eq!(events(&mut served.get(&path).await.unwrap(), 9).await, added(&["a"]));
    let expired = [("ERROR".to_owned(), "Expired".to_owned())];
    assert_eq!(events(&mut served.get(&path).await.unwrap(), 9).await, expired);
    served.simulator.shutdown().await;
}

#[tokio::test]
async fn calls_fail_as_the_plan_says() {
    let faults = FaultPlan::new(0)
        .with(When::Nth(1), What::verb("POST"), How::LoseRequest)
        .with(When::Nth(2), What::verb("POST"), How::LoseAnswer)
        .with(When::Nth(3), What::verb("POST"), How::Truncate(3))
        .with(When::Nth(4), What::verb("POST"), How::Refuse { status: 500, code: "InternalError".to_owned() })
        .with(When::Nth(5), What::verb("POST"), How::Throttle { seconds: 4 })
        .with(When::Nth(6), What::verb("POST"), How::Repeat)
        .with(When::Nth(5), What::verb("GET"), How::Stale(1))
        .with(When::Nth(6), What::verb("GET"), How::Gone);
    let served = Served::start(faults).await;
    assert!(served.create("a").await.is_err());
    assert_eq!(served.count().await, 0);
    assert!(served.create("b").await.is_err());
    assert_eq!(served.count().await, 1);
    assert!(served.create("c").await.unwrap().bytes().await.is_err());
    assert_eq!(served.count().await, 2);
    assert_eq!(served.create("d").await.unwrap().status(), 500);
    let throttled = served.create("d").await.unwrap();
    assert_eq!(
        (throttled.status().as_u16(), &throttled.headers()["retry-after"]),
        (429, &"4".parse().unwrap())
    );
    assert_eq!(served.create("d").await.unwrap().status(), 409);
    assert_eq!(served.count().await, 3);
    assert_eq!(served.count().await, 2);
    assert_eq!(served.get(SERVICES).await.unwrap().status(), 410);
    assert_eq!(served.simulator.injected().len(), 8);
    served.simulator.shutdown().await;
}
