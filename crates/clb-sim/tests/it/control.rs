//! The page and the JSON API about both simulators.

use std::time::Duration;

use clb_sim::azure::Request;
use clb_sim::control::ControlServer;
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{KubeConfig, KubeSimulation};
use clb_sim::{Simulation, Simulator, SimulatorConfig};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

struct World {
    azure: Simulator,
    kube: KubeSimulation,
    control: ControlServer,
    client: reqwest::Client,
    /// Of the frontend, if there is one.
    address: String,
}

impl World {
    async fn start(config: SimulatorConfig) -> Self {
        let azure = Simulator::start(config).await.unwrap();
        let kube = KubeSimulation::new(KubeConfig::default());
        let control = ControlServer::serve(Simulation::clone(&azure), kube.clone(), 0).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { azure, kube, control, client, address: String::new() }
    }

    /// With two pods behind a frontend, one of them on each of two nodes, and a Service that looks like an attack.
    async fn with_a_service() -> Self {
        let mut world = Self::start(SimulatorConfig::default()).await;
        world.address = world.azure.with_azure(|azure| {
            let public_ip = azure.handle(&put(&public_ip_path("web"), public_ip("IPv4"))).body;
            let mut ok = |request: Request| assert!(azure.handle(&request).status < 300, "{request:?}");
            ok(put(&load_balancer_path("web"), load_balancer("web", &[("Tcp", 80, 8080)])));
            let service = json!({"service": {"name": "web", "properties": inbound("web")}});
            ok(update_services("PartialUpdate", json!([service])));
            let location = |location: &str, pod: &str| {
                let addresses = json!([{"address": pod, "services": ["web"]}]);
                json!({"addressLocation": location, "addressUpdateAction": "FullUpdate", "addresses": addresses})
            };
            let locations = json!([location("10.0.0.1", "10.1.0.1"), location("10.0.0.2", "10.1.0.2")]);
            ok(update_locations("PartialUpdate", locations));
            public_ip["properties"]["ipAddress"].as_str().unwrap().to_owned()
        });
        let ports = json!([{"port": 80}]);
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop", "uid": "<script>alert(1)</script>"},
            "spec": {"type": "LoadBalancer", "ports": ports}});
        world.kube.with_cluster(|cluster| cluster.load(&service)).unwrap();
        world
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> (u16, Value) {
        let request = self.client.request(method, format!("{}{path}", self.control.endpoint()));
        let response = request.body(body.to_owned()).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, "").await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Asks Azure over HTTP.
    async fn call(&self, path: &str) -> u16 {
        let url = format!("{}{path}?api-version=1", self.azure.endpoint());
        self.client.get(url).send().await.unwrap().status().as_u16()
    }
}

#[tokio::test]
async fn the_state_is_that_of_both_sides() {
    let world = World::with_a_service().await;
    let mut state = world.get("/state").await;
    let version = world.kube.with_cluster(|cluster| cluster.version());
    assert_eq!(state["azure"]["resources"].as_array_mut().unwrap().len(), 2);
    assert_eq!(state["clock"].as_object().unwrap().len(), 3);
    state["clock"].take();
    let resources = json!([public_ip_path("web"), load_balancer_path("web")]);
    let service = json!({"name": "web", "serviceType": "Inbound", "isDefault": false, "backendPools": [pool_id("web")],
        "natGateway": null, "addresses": 2});
    let expected = json!({
        "azure": {
            "services": [service],
            "locations": {"10.0.0.1": {"10.1.0.1": ["web"]}, "10.0.0.2": {"10.1.0.2": ["web"]}},
            "frontends": [{"address": world.address, "protocol": "tcp", "port": 80}],
            "resources": resources,
            "machines": []
        },
        "kubernetes": {
            "version": version, "nodes": 0, "pods": 0, "endpointSlices": 0,
            "services": [{"namespace": "shop", "name": "web", "uid": "<script>alert(1)</script>", "type": "LoadBalancer",
                "ingress": []}]
        },
        "clock": null,
        "calls": 0
    });
    assert_eq!(state, expected);
    let ingress = world.get(&format!("/ingress?address={}&protocol=tcp&port=80", world.address)).await;
    let pods = json!({"10.1.0.1": "10.0.0.1", "10.1.0.2": "10.0.0.2"});
    assert_eq!(ingress, json!({"loadBalancer": "web", "backendPort": 8080, "pods": pods}));
    let other = format!("/ingress?address={}&protocol=udp&port=80", world.address);
    assert_eq!(world.get(&other).await, Value::Null);
    assert_eq!(world.get("/egress?pod=10.1.0.1").await, json!([]));
}

#[tokio::test]
async fn the_page_shows_it_and_believes_no_text() {
    let world = World::with_a_service().await;
    world.call(&public_ip_path("absent")).await;
    let response = world.client.get(world.control.endpoint()).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert!(
        response.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'")
    );
    let page = response.text().await.unwrap();
    let absent = public_ip_path("absent");
    for shown in [
        "shop/web",
        world.address.as_str(),
        "10.1.0.1:8080 on 10.0.0.1; 10.1.0.2:8080 on 10.0.0.2; ",
        "10.1.0.1 → web; ",
        "404 ResourceNotFound",
        absent.as_str(),
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ] {
        assert!(page.contains(shown), "{shown} is not shown");
    }
    assert!(!page.contains("<script>alert"));
    for (file, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let response = world.client.get(format!("{}{file}", world.control.endpoint())).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &kind.parse().unwrap())
        );
    }
}

#[tokio::test]
async fn calls_are_numbered_and_said_once_they_took_effect() {
    let world = World::start(SimulatorConfig::default()).await;
    let mut events = world.client.get(format!("{}/events", world.control.endpoint())).send().await.unwrap();
    assert_eq!(events.chunk().await.unwrap().unwrap(), "data: 0\n\n");
    assert_eq!(world.call(&public_ip_path("a")).await, 404);
    assert_eq!(world.call("/nowhere").await, 501);
    let last: Value = world.get("/calls?after=1").await;
    let at = last["calls"][0]["atMilliseconds"].clone();
    let call = json!({"number": 2, "atMilliseconds": at, "api": "azure", "verb": "GET", "path": "/nowhere", "status": 501,
        "code": "NotModelled"});
    assert_eq!(last, json!({"calls": [call], "missed": 0}));
    assert_eq!(world.get("/calls").await["calls"].as_array().unwrap().len(), 2);
    // The second one may be told of with the first.
    let told = events.chunk().await.unwrap().unwrap();
    assert!(told == "data: 1\n\n" || told == "data: 2\n\n", "{told:?}");
    world.control.shutdown().await;
    assert!(events.chunk().await.is_err(), "a page that listens is cut");
}

#[tokio::test]
async fn faults_are_set_for_both_shown_as_they_happen_and_removed() {
    let world = World::start(SimulatorConfig::default()).await;
    let plan = "faults:\n- when: {nth: 1}\n  what: {verb: GET}\n  how: {refuse: {status: 503, code: Busy}}\n";
    let (status, answer) = world.ask(Method::PUT, "/faults", plan).await;
    let how = How::Refuse { status: 503, code: "Busy".to_owned() };
    let expected = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), how.clone());
    assert_eq!((status, answer), (200, json!({"plan": expected})));
    assert_eq!((world.azure.faults(), world.kube.faults()), (expected.clone(), expected.clone()));
    let path = public_ip_path("a");
    assert_eq!(world.call(&path).await, 503);
    let mut shown = world.get("/faults").await;
    assert!(shown["injected"][0]["atMilliseconds"].take().is_u64());
    let injected = json!({"atMilliseconds": null, "api": "azure", "verb": "GET", "path": path, "caller": "", "nth": 1,
        "how": how});
    let replay = clb_sim::fault::replay(&world.azure.injected());
    assert_eq!(shown, json!({"plan": expected, "injected": [injected], "replay": replay}));
    assert_eq!(world.get("/calls").await["calls"][0]["fault"], json!(how));
    let none = FaultPlan::default();
    assert_eq!(world.ask(Method::DELETE, "/faults", "").await, (200, json!({"plan": none})));
    assert_eq!((world.azure.faults(), world.kube.faults()), (none.clone(), none.clone()));
    let (status, refusal) = world.ask(Method::PUT, "/faults", "fault: 1").await;
    let message = refusal["error"].as_str().unwrap();
    assert!(status == 400 && message.starts_with("this is no plan of faults"), "{status} {message}");
    assert_eq!(world.azure.faults(), none);
}

#[tokio::test]
async fn the_clocks_are_set_forward_but_not_beyond_what_can_be_written() {
    let world = World::start(SimulatorConfig::default()).await;
    let hour = Duration::from_secs(3600);
    let (status, clock) = world.ask(Method::POST, "/clock?advance=3600000", "").await;
    assert_eq!(status, 200);
    assert!(clock["azureMilliseconds"].as_u64().unwrap() >= 3_600_000, "{clock}");
    assert!(clock["kubernetesMilliseconds"].as_u64().unwrap() >= 3_600_000, "{clock}");
    assert!(clock["kubernetesSecondsSince1970"].as_u64().unwrap() >= 3_600, "{clock}");
    assert!(world.azure.now() >= hour && world.azure.with_azure(|azure| azure.now()) >= hour);
    let (status, _) = world.ask(Method::POST, &format!("/clock?advance={}", u64::MAX), "").await;
    assert_eq!(status, 200);
    assert!(world.azure.now() < Duration::from_secs(1_001 * 365 * 24 * 3600));
    assert_eq!(world.call(&public_ip_path("a")).await, 404);
}

#[tokio::test]
async fn it_is_settled_when_nothing_is_asked_and_nothing_still_answered() {
    let world = World::start(SimulatorConfig::default()).await;
    let (status, answer) = world.ask(Method::POST, "/settle?quiet=0&within=0", "").await;
    assert_eq!((status, &answer["settled"], &answer["lastCall"]), (200, &json!(true), &Value::Null));
    world.call("/nowhere").await;
    let (status, answer) = world.ask(Method::POST, "/settle?quiet=3600000&within=0", "").await;
    assert_eq!(
        (status, &answer["settled"], &answer["lastCall"]["path"]),
        (504, &json!(false), &json!("/nowhere"))
    );
    // Leases are renewed for ever.
    let leases = "/apis/coordination.k8s.io/v1/leases";
    let client = kube::Client::new(world.kube.router(), "default");
    client.request_text(http::Request::get(leases).body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(world.get("/calls?after=1").await["calls"][0]["path"], leases);
    let (_, answer) = world.ask(Method::POST, "/settle?quiet=0&within=0", "").await;
    assert_eq!((&answer["settled"], &answer["lastCall"]["number"]), (&json!(true), &json!(1)));
    // An answer that is not there yet is more to come.
    let slow = FaultPlan::new(0).with(When::Always, What::default(), How::Delay(u64::MAX));
    world.azure.set_faults(slow);
    let mut heard = world.azure.subscribe();
    let url = format!("{}/nowhere?api-version=1", world.azure.endpoint());
    let pending = tokio::spawn(world.client.get(url).send());
    heard.recv().await.unwrap();
    let (status, _) = world.ask(Method::POST, "/settle?quiet=0&within=0", "").await;
    assert_eq!(status, 504);
    pending.abort();
}

#[tokio::test]
async fn pages_of_other_sites_and_what_there_is_not_are_refused() {
    let world = World::start(SimulatorConfig::default()).await;
    let own = world.control.endpoint();
    for (name, value, status) in [
        ("origin", "http://elsewhere.example", 403),
        ("origin", "null", 403),
        ("host", "elsewhere.example", 403),
        ("origin", own.as_str(), 200),
        ("x-other", "anything", 200),
    ] {
        let request = world.client.get(format!("{own}/state")).header(name, value);
        assert_eq!(request.send().await.unwrap().status().as_u16(), status, "{name}: {value}");
    }
    let refused = |message: &str| json!({"error": message});
    let nothing = refused("there is nothing here; GET / has a page");
    assert_eq!(world.ask(Method::GET, "/nothing", "").await, (404, nothing));
    let not_allowed = refused("this can not be done here");
    assert_eq!(world.ask(Method::DELETE, "/clock", "").await, (405, not_allowed));
    for wrong in ["/ingress?address=here&protocol=tcp&port=80", "/egress", "/calls?before=1"] {
        let response = world.client.get(format!("{own}{wrong}")).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 400, "{wrong}");
    }
}
