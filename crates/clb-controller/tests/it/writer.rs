//! `KubeWriter` over a simulated API server: what it sends, and what is there afterwards.

mod conditions;
mod events;
mod faults;
mod finalizers;
mod ingress;
mod properties;
mod stray;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::middleware::{Next, from_fn};
use clb_controller::WallClock;
use clb_controller::admission::AdmissionPolicy;
use clb_controller::kube::KubeWriter;
use clb_controller::objects::{ObjectRef, ObjectWriter};
use clb_difftracker::{
    FailureKind, Ip, ObjectKey, Outcome, PodRef, PodRequest, ResourceVersion, ServiceId, ServiceRequest,
    Success, Uid,
};
use clb_sim::fault::FaultPlan;
use clb_sim::kube::{Answer, KubeConfig, KubeSimulation, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

/// The namespace that everything is in.
const HOME: &str = "/api/v1/namespaces/default/";
/// When every test begins, since 1970.
const START: Duration = Duration::from_secs(1_700_000_000);

pub(crate) struct World {
    pub(crate) simulation: KubeSimulation,
    pub(crate) writer: KubeWriter,
    pub(crate) client: Client,
    sent: Arc<Mutex<Vec<(String, Value)>>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_faults(FaultPlan::default())
    }

    pub(crate) fn with_faults(faults: FaultPlan) -> Self {
        let config = KubeConfig { faults, epoch: START, ..KubeConfig::default() };
        let simulation = KubeSimulation::new(config);
        let sent: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let noted = sent.clone();
        let router =
            simulation.router().layer(from_fn(move |request: axum::extract::Request, next: Next| {
                let noted = noted.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = to_bytes(body, usize::MAX).await.unwrap();
                    let format = match parts.headers.get("content-type").map(|it| it.to_str().unwrap()) {
                        Some("application/json") | None => "",
                        Some("application/merge-patch+json") => " merge",
                        Some("application/strategic-merge-patch+json") => " strategic",
                        Some("application/apply-patch+yaml") => " apply",
                        Some(other) => panic!("{other}"),
                    };
                    let path = parts.uri.path();
                    let what =
                        format!("{} {}{format}", parts.method, path.strip_prefix(HOME).unwrap_or(path));
                    if matches!(parts.method.as_str(), "PATCH" | "POST") {
                        let query = parts.uri.query().unwrap_or_default();
                        assert!(query.contains("fieldManager=clb-controller"), "{query}");
                    }
                    noted.lock().unwrap().push((what, serde_json::from_slice(&body).unwrap_or_default()));
                    next.run(axum::extract::Request::from_parts(parts, Body::from(body))).await
                }
            }));
        let client = Client::new(router, "default");
        let writer = Self::writer_of(&client, "replica-a");
        Self { simulation, writer, client, sent }
    }

    pub(crate) fn writer_of(client: &Client, instance: &str) -> KubeWriter {
        let clock = WallClock::starting_at(std::time::SystemTime::UNIX_EPOCH + START);
        KubeWriter::new(client.clone(), AdmissionPolicy::default(), clock, instance)
    }

    /// Changes something behind everybody's back, or looks.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, body) = self.try_ask(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {body}");
        body
    }

    pub(crate) fn try_ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let request = Request {
            method: method.to_owned(),
            path: format!("{HOME}{path}"),
            content_type: "application/merge-patch+json".to_owned(),
            body,
            ..Request::default()
        };
        match self.simulation.handle(&request) {
            Answer::Body { status, body } => (status, body),
            Answer::Watch(_) => panic!("a watch"),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path, Value::Null)
    }

    /// The object's version.
    pub(crate) fn version(&self, path: &str) -> String {
        self.get(path)["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// What a successful write says that left the object as it is.
    pub(crate) fn written(&self, path: &str) -> Outcome {
        let version = self.version(path).parse().unwrap();
        Outcome::Succeeded(Success::Written(ResourceVersion::new(version)))
    }

    /// The Service `web`, a load balancer, with these finalizers and entries in its status.
    pub(crate) fn add_service(&self, finalizers: &[&str], ingress: &Value) -> ServiceId {
        let service = json!({"metadata": {"name": "web", "finalizers": finalizers},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let created = self.ask("POST", "services", service);
        if *ingress != json!([]) {
            let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
            self.ask("PATCH", "services/web/status", status);
        }
        ServiceId::new(created["metadata"]["uid"].as_str().unwrap()).unwrap()
    }

    /// The pod `web-0`.
    pub(crate) fn add_pod(&self, finalizers: &[&str]) -> PodRef {
        let pod = json!({"metadata": {"name": "web-0", "finalizers": finalizers},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let created = self.ask("POST", "pods", pod);
        let uid = Uid::new(created["metadata"]["uid"].as_str().unwrap());
        PodRef { uid, key: ObjectKey::new("default", "web-0") }
    }

    pub(crate) async fn write(&self, service: &ServiceId, request: ServiceRequest) -> Outcome {
        self.writer.write_service(service, &service_key(), request).await
    }

    pub(crate) async fn write_pod(&self, pod: &PodRef, request: PodRequest) -> Outcome {
        self.writer.write_pod(pod, request).await
    }

    /// Everything that was sent since the last time, without the bodies.
    pub(crate) fn sent(&self) -> Vec<String> {
        self.sent_whole().into_iter().map(|(what, _)| what).collect()
    }

    pub(crate) fn sent_whole(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    /// Does something half a second from now, which is while an answer is under way that a fault makes a second late.
    pub(crate) async fn meanwhile(&self, act: impl FnOnce(&Self)) {
        sleep(Duration::from_millis(500)).await;
        act(self);
    }

    /// Deletes an object and creates another of its name.
    pub(crate) fn replace_service(&self) -> ServiceId {
        self.ask("DELETE", "services/web", Value::Null);
        self.add_service(&[], &json!([]))
    }
}

pub(crate) fn service_key() -> ObjectKey {
    ObjectKey::new("default", "web")
}

pub(crate) fn service_ref(id: &ServiceId) -> ObjectRef {
    ObjectRef::Service { id: id.clone(), key: service_key() }
}

pub(crate) fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<std::net::IpAddr>().unwrap())
}

/// Whether a write is known to have changed nothing, and why it failed.
pub(crate) fn failed(outcome: &Outcome) -> (bool, FailureKind) {
    match outcome {
        Outcome::Failed(failure) => (true, failure.kind),
        Outcome::Unknown(failure) => (false, failure.kind),
        Outcome::Succeeded(success) => panic!("{success:?}"),
    }
}

pub(crate) const REFUSED_NOT_FOUND: (bool, FailureKind) = (true, FailureKind::NotFound);
pub(crate) const REFUSED_CONFLICT: (bool, FailureKind) = (true, FailureKind::Conflict);
