//! A watch whose requests and events are written down in the order in which they come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use clb_controller::Stopped;
use clb_controller::kube::{WatchConfig, watch};
use clb_controller::watched::WatchEvent;
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{Kind, KubeConfig, KubeSimulation, Request};
use futures::{StreamExt, stream};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::core::{DeserializeGuard, ObjectMeta};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// How much a test says at most between two looks at it.
const ENDLESS: usize = 5_000;
const PATH: &str = "/api/v1/namespaces/default/services";

/// What was asked and told. The requests are `list`, `page` and `watch VERSION`.
pub(crate) type Transcript = Arc<Mutex<Vec<String>>>;

/// A watch at work.
pub(crate) struct Watching {
    pub(crate) transcript: Transcript,
    pub(crate) ask: channel::Sender<u64>,
    pub(crate) task: JoinHandle<Stopped>,
}

/// Watches what this server has, and writes down what is told.
pub(crate) fn start<K>(router: Router, selector: Option<&'static str>, config: WatchConfig) -> Watching
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    start_with::<K>(router, selector, config, async |_| Ok(()))
}

/// The same with something to do after each event.
pub(crate) fn start_with<K>(
    router: Router,
    selector: Option<&'static str>,
    config: WatchConfig,
    after: impl AsyncFn(&WatchEvent<K>) -> Result<(), Stopped> + 'static,
) -> Watching
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let transcript = Transcript::default();
    let (ask, asked) = channel::channel(0);
    let api = Api::<DeserializeGuard<K>>::all(client(router, &transcript));
    let heard = transcript.clone();
    let sink = async move |event: WatchEvent<K>| {
        heard.lock().unwrap().push(said(&event));
        after(&event).await
    };
    let task = tokio::task::spawn_local(watch(api, selector, config, asked, sink));
    Watching { transcript, ask, task }
}

/// A client whose requests are written down.
pub(crate) fn client(router: Router, transcript: &Transcript) -> Client {
    let transcript = transcript.clone();
    let note = from_fn(move |request: axum::extract::Request, next: Next| {
        let said = {
            let mut transcript = transcript.lock().unwrap();
            transcript.push(asked(request.uri()));
            transcript.len()
        };
        async move {
            // Virtual time stands still for whoever asks in a loop: the test is to end all the same.
            if said > ENDLESS {
                pending::<()>().await;
            }
            next.run(request).await
        }
    });
    Client::new(router.layer(note), "default")
}

fn asked(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let find = |name| query.split('&').find_map(|pair| pair.strip_prefix(name));
    match (find("watch="), find("continue=")) {
        (Some(_), _) => format!("watch {}", find("resourceVersion=").unwrap()),
        (None, Some(_)) => "page".to_owned(),
        (None, None) => "list".to_owned(),
    }
}

fn named(metadata: &ObjectMeta) -> String {
    format!("{}@{}", metadata.name.as_deref().unwrap(), metadata.resource_version.as_deref().unwrap())
}

fn said<K: Resource>(event: &WatchEvent<K>) -> String {
    match event {
        WatchEvent::ListBegan => "began".to_owned(),
        WatchEvent::ListDone => "done".to_owned(),
        WatchEvent::Applied(object) => format!("applied {}", named(object.meta())),
        WatchEvent::Deleted(metadata) => format!("deleted {}", named(metadata)),
        WatchEvent::Malformed { metadata, error } => format!("malformed {}: {error}", named(metadata)),
        WatchEvent::Interrupted(why) => format!("interrupted: {why}"),
        WatchEvent::Resumed => "resumed".to_owned(),
    }
}

impl Watching {
    /// What was asked and told since the last time, as soon as nothing more comes.
    pub(crate) async fn news(&self) -> Vec<String> {
        self.news_within(Duration::from_millis(50)).await
    }

    /// The same after this time.
    pub(crate) async fn news_within(&self, time: Duration) -> Vec<String> {
        tokio::time::sleep(time).await;
        std::mem::take(&mut self.transcript.lock().unwrap())
    }
}

/// What a scripted server answers.
pub(crate) enum Answer {
    Body(u16, Value),
    /// The events of a watch, which ends then.
    Events(Vec<Value>),
    /// The events of a watch that says nothing after them.
    Silence(Vec<Value>),
    /// The same after so long.
    Late(Duration, Vec<Value>),
}

/// A server that gives these answers, whatever is asked, and then none.
pub(crate) fn scripted(answers: impl IntoIterator<Item = Answer>) -> Router {
    let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
    serving(move || answers.lock().unwrap().pop_front().unwrap_or(Answer::Silence(Vec::new())))
}

/// A server that gives these answers, whatever is asked.
pub(crate) fn serving(answer: impl Fn() -> Answer + Clone + Send + Sync + 'static) -> Router {
    let lines = |events: Vec<Value>| events.iter().map(|event| format!("{event}\n")).collect::<String>();
    let respond = move || match answer() {
        Answer::Body(status, body) => {
            let mut response = Response::new(Body::from(body.to_string()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        }
        Answer::Events(events) => Response::new(Body::from(lines(events))),
        Answer::Silence(events) => silence(Duration::ZERO, lines(events)),
        Answer::Late(after, events) => silence(after, lines(events)),
    };
    Router::new().fallback(move || {
        let response = respond();
        async { response }
    })
}

fn silence(after: Duration, lines: String) -> Response {
    let told = stream::once(async move {
        tokio::time::sleep(after).await;
        Ok::<_, Infallible>(lines)
    });
    Response::new(Body::from_stream(told.chain(stream::pending())))
}

/// A whole list of this version.
pub(crate) fn list(version: &str, items: &[Value]) -> Answer {
    let metadata = json!({"resourceVersion": version});
    Answer::Body(200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

/// A Service with this name and version.
pub(crate) fn service(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}, "spec": {"ports": [{"port": 80}]}})
}

pub(crate) fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// A simulated API server with these Services, the first of version 3.
pub(crate) fn simulation(names: &[&str]) -> KubeSimulation {
    let simulation = KubeSimulation::new(KubeConfig::default());
    names.iter().for_each(|name| create(&simulation, name));
    simulation
}

pub(crate) fn create(simulation: &KubeSimulation, name: &str) {
    write(simulation, "POST", "", json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}));
}

/// Gives a Service a label, or takes it away.
pub(crate) fn label(simulation: &KubeSimulation, name: &str, value: Option<&str>) {
    write(simulation, "PATCH", name, json!({"metadata": {"labels": {"pick": value}}}));
}

pub(crate) fn delete(simulation: &KubeSimulation, name: &str) {
    write(simulation, "DELETE", name, Value::Null);
}

fn write(simulation: &KubeSimulation, method: &str, name: &str, body: Value) {
    let path = if name.is_empty() { PATH.to_owned() } else { format!("{PATH}/{name}") };
    let content_type = "application/merge-patch+json".to_owned();
    simulation.handle(&Request { method: method.to_owned(), path, body, content_type, ..Request::default() });
}

/// The Services there are, by name, with their uid and version.
pub(crate) fn stored(simulation: &KubeSimulation) -> Vec<(String, String, u64)> {
    simulation.with_cluster(|cluster| {
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let services = cluster.objects(Kind::Service);
        let services = services.map(|object| {
            let version = text(object, "resourceVersion").parse().unwrap();
            (text(object, "name"), text(object, "uid"), version)
        });
        services.collect()
    })
}

pub(crate) fn fault(verb: &str, when: When, how: How) -> FaultPlan {
    FaultPlan::new(0).with(when, What::verb(verb), how)
}
