//! A namespace of one test's own, and what it does there by plain requests.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use clb_controller::WallClock;
use clb_controller::admission::AdmissionPolicy;
use clb_controller::kube::KubeWriter;
use clb_difftracker::{ObjectKey, Outcome, PodRef, ResourceVersion, ServiceId, Success, Uid};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long what follows from something may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client by a kubeconfig, with the settings that a controller's has.
pub(super) async fn client(kubeconfig: &str) -> Result<Client, String> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| error.to_string())?;
    config.default_retry = false;
    // Whatever the environment says: it is on this machine.
    config.proxy_url = None;
    Client::try_from(config).map_err(|error| error.to_string())
}

pub(super) async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let format = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", format);
    client.request(request.body(body).unwrap()).await
}

/// Asks until there is an answer.
pub(super) async fn eventually<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[derive(Clone)]
pub(super) struct Home {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Home {
    pub(super) async fn new(client: Client, namespace: &str) -> Self {
        let home = Self { client, namespace: namespace.to_owned() };
        home.ask("POST", "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        home
    }

    /// The path of something in this namespace, unless it is one already.
    fn path(&self, path: &str) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        let group = if path.starts_with("endpointslices") {
            "/apis/discovery.k8s.io/v1"
        } else if path.starts_with("leases") {
            "/apis/coordination.k8s.io/v1"
        } else {
            "/api/v1"
        };
        format!("{group}/namespaces/{}/{path}", self.namespace)
    }

    pub(super) async fn try_ask(&self, method: &str, path: &str, body: Value) -> kube::Result<Value> {
        ask(&self.client, method, &self.path(path), &body).await
    }

    pub(super) async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.try_ask(method, path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, Value::Null).await
    }

    /// Whether there is no such object, in the server's words.
    pub(super) async fn is_gone(&self, path: &str) -> bool {
        match self.try_ask("GET", path, Value::Null).await {
            Ok(_) => false,
            Err(kube::Error::Api(status)) if status.code == 404 => true,
            Err(error) => panic!("GET {path}: {error}"),
        }
    }

    /// Makes a load balancer with this metadata besides its name.
    pub(super) async fn service(&self, name: &str, mut metadata: Value) -> ServiceId {
        metadata["name"] = json!(name);
        let spec =
            json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        let made = self.ask("POST", "services", json!({"metadata": metadata, "spec": spec})).await;
        ServiceId::new(made["metadata"]["uid"].as_str().unwrap()).unwrap()
    }

    /// Makes a pod with this metadata besides its name. It is on no node and never runs.
    pub(super) async fn pod(&self, name: &str, mut metadata: Value) -> PodRef {
        metadata["name"] = json!(name);
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let made = self.ask("POST", "pods", json!({"metadata": metadata, "spec": spec})).await;
        PodRef { uid: Uid::new(made["metadata"]["uid"].as_str().unwrap()), key: self.key(name) }
    }

    pub(super) fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.namespace.as_str(), name)
    }

    /// What a successful write says that left the object as it is.
    pub(super) async fn written(&self, path: &str) -> Outcome {
        let object = self.get(path).await;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        Outcome::Succeeded(Success::Written(ResourceVersion::new(version)))
    }

    pub(super) async fn finalizers(&self, path: &str) -> Vec<String> {
        let object = self.get(path).await;
        let held = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        held.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn writer(&self) -> KubeWriter {
        Self::writer_of(self.client.clone())
    }

    /// A writer to whose first patch somebody else gets ahead with this one.
    pub(super) fn writer_too_late(&self, path: &'static str, patch: Value) -> KubeWriter {
        let home = self.clone();
        let is_first = Arc::new(AtomicBool::new(true));
        let forward = move |request: axum::extract::Request| {
            let (home, is_first, patch) = (home.clone(), is_first.clone(), patch.clone());
            async move {
                if request.method() == "PATCH" && is_first.swap(false, Ordering::Relaxed) {
                    home.ask("PATCH", path, patch).await;
                }
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
                let request = http::Request::from_parts(parts, kube::client::Body::from(body));
                home.client.send(request).await.unwrap().map(Body::new)
            }
        };
        Self::writer_of(Client::new(Router::new().fallback(forward), "default"))
    }

    fn writer_of(client: Client) -> KubeWriter {
        KubeWriter::new(client, AdmissionPolicy::default(), WallClock::system(), "conformance")
    }
}

/// The values of a field of all entries of a list.
pub(super) fn each<C: FromIterator<String> + Debug>(object: &Value, list: &str, field: &str) -> C {
    let entries = object.pointer(list).and_then(Value::as_array).cloned().unwrap_or_default();
    entries.iter().filter_map(|entry| entry[field].as_str().map(str::to_owned)).collect()
}
