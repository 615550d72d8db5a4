//! Kubernetes over HTTP.

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use super::calls::KubeCall;
use super::cluster::{Answer, Cluster, ClusterConfig, Request};
use super::list::Watch;
use super::status::Refusal;
use crate::clock::Clock;
use crate::connection::Scissors;
use crate::fault::{Api, Call, FaultPlan, How, Injected, Injector};
use crate::serving::{Port, Serving};

/// What the API server takes as a body at most, in bytes.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// How often a watch hears up to where it has heard everything, if it wants to: as often as a real server's.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// How far a subscriber may fall behind before it misses calls.
const SUBSCRIBER_LAG: usize = 4_096;

/// Settings of a [`KubeSimulation`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeConfig {
    /// The port on 127.0.0.1; 0, the default, takes a free one.
    pub port: u16,
    /// The cluster's settings.
    pub cluster: ClusterConfig,
    /// The time of day at the start, since 1970. Default 0: what is simulated does not depend on when.
    pub epoch: Duration,
    /// The faults that happen. Default: none.
    pub faults: FaultPlan,
}

/// A simulated Kubernetes API server. Cloning is cheap, and clones are the same server. Its clock is tokio's.
#[derive(Clone, Debug)]
pub struct KubeSimulation(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    epoch: Duration,
    inner: Mutex<Inner>,
    /// Wakes whoever waits for a change, in the order in which they began to wait. tokio's `watch` wakes in an order of its own,
    /// by chance, and the same seed would not give the same run.
    changed: Arc<Notify>,
    subscribers: broadcast::Sender<KubeCall>,
}

#[derive(Debug)]
struct Inner {
    cluster: Cluster,
    injector: Injector,
    clock: Clock,
}

/// How an exchange ends.
enum Ending {
    Body { status: u16, body: Value, cut_after: Option<usize> },
    Watch(Box<Watch>, Option<How>),
    Throttled { seconds: u64 },
    Cut,
}

impl KubeSimulation {
    /// A server in this process. Its clock starts now.
    #[must_use]
    pub fn new(config: KubeConfig) -> Self {
        let mut injector = Injector::default();
        injector.set(config.faults);
        let cluster = Cluster::new(config.cluster);
        let inner = Mutex::new(Inner { cluster, injector, clock: Clock::start() });
        let subscribers = broadcast::Sender::new(SUBSCRIBER_LAG);
        let changed = Arc::new(Notify::new());
        Self(Arc::new(Shared { epoch: config.epoch, inner, changed, subscribers }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked while holding it was a test that looked: requests are answered without panics.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of day, since 1970.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.epoch + self.lock().clock.elapsed()
    }

    /// How long it has been there.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.lock().clock.elapsed()
    }

    /// Sets its clock forward, a thousand years at most: what it dates, the times between which faults happen, and what its own
    /// controllers do over time. Whoever waits still waits as long.
    pub fn advance(&self, by: Duration) {
        self.lock().clock.advance(by);
        // The controllers may have something to do now.
        self.0.changed.notify_waiters();
    }

    /// Answers a request outside of any fault, and lets watches hear of it.
    pub fn handle(&self, request: &Request) -> Answer {
        self.with_cluster(|cluster| cluster.handle(request, cluster.now))
    }

    /// Looks at the cluster, or changes it behind everybody's back. No request is answered meanwhile.
    pub fn with_cluster<T>(&self, look: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut inner = self.lock();
        inner.cluster.now = self.0.epoch + inner.clock.elapsed();
        let before = inner.cluster.version();
        let result = look(&mut inner.cluster);
        if inner.cluster.version() != before {
            self.0.changed.notify_waiters();
        }
        result
    }

    /// Ends with the next change after this call.
    fn changed(&self) -> Pin<Box<OwnedNotified>> {
        let mut changed = Box::pin(self.0.changed.clone().notified_owned());
        changed.as_mut().enable();
        changed
    }

    /// Hears of every request from now on, as it takes effect. Whoever falls 4,096 behind misses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<KubeCall> {
        self.0.subscribers.subscribe()
    }

    /// Waits until something is changed after this version, and returns the version then.
    pub async fn changed_since(&self, version: u64) -> u64 {
        loop {
            let changed = self.changed();
            let now = self.lock().cluster.version();
            if now != version {
                return now;
            }
            changed.await;
        }
    }

    /// Runs the cluster's own controllers whenever something changes or it is time, for as long as this is polled.
    pub async fn run_controllers(&self) {
        loop {
            let changed = self.changed();
            let (has_changed, due_in) = self.with_cluster(|cluster| {
                let before = cluster.version();
                cluster.run_controllers();
                let due_in = cluster.next_due().map(|due| due.saturating_sub(cluster.now));
                (cluster.version() != before, due_in)
            });
            // What a round changed may be something to do for the next one.
            if has_changed {
                continue;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(due_in.unwrap_or_default()), if due_in.is_some() => {}
            }
        }
    }

    /// As [`Cluster::set_node_ready`].
    ///
    /// # Errors
    /// The API server's words when there is no such node.
    pub fn set_node_ready(&self, name: &str, is_ready: bool) -> Result<(), String> {
        self.with_cluster(|cluster| cluster.set_node_ready(name, is_ready))
    }

    /// Takes another plan of faults from now on. Those that were injected stay known.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.lock().injector.set(plan);
    }

    /// The plan of faults.
    #[must_use]
    pub fn faults(&self) -> FaultPlan {
        self.lock().injector.plan().clone()
    }

    /// The faults that have happened, in order.
    #[must_use]
    pub fn injected(&self) -> Vec<Injected> {
        self.lock().injector.injected().to_vec()
    }

    /// The HTTP server as a service without a socket, for any client that takes one, such as `kube::Client::new`. A
    /// connection that a fault would cut is answered with an error in the body.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// Answers a request, faults included.
    async fn exchange(&self, request: &Request, caller: String) -> Ending {
        let is_watch = request.is_watch();
        let verb = if is_watch { "WATCH".to_owned() } else { request.method.clone() };
        let call = Call { api: Api::Kubernetes, verb, path: request.path.clone(), caller };
        let (fault, at) = {
            let mut inner = self.lock();
            let at = inner.clock.elapsed();
            (inner.injector.decide(&call, at), at)
        };
        let delay = if let Some(How::Delay(millis)) = fault { millis } else { 0 };
        let ending = self.effect(request, fault.as_ref());
        let status = match &ending {
            Ending::Body { status, .. } => *status,
            Ending::Watch(..) => 200,
            Ending::Throttled { .. } => 429,
            Ending::Cut => 0,
        };
        // Nobody has to listen.
        let _ = self.0.subscribers.send(KubeCall { at, call, status, fault });
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        ending
    }

    /// What becomes of a request.
    fn effect(&self, request: &Request, fault: Option<&How>) -> Ending {
        let is_watch = request.is_watch();
        let refuse = |status: u16, reason: &str, message: &str| Ending::Body {
            status,
            body: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": status}),
            cut_after: None,
        };
        match fault {
            Some(How::Refuse { status, code }) => return refuse(*status, code, "an injected fault"),
            Some(How::Throttle { seconds }) => return Ending::Throttled { seconds: *seconds },
            Some(How::LoseRequest) => return Ending::Cut,
            Some(How::Gone) if !is_watch => {
                let body = Refusal::expired("The resourceVersion for the provided list is too old.").body();
                return Ending::Body { status: 410, body, cut_after: None };
            }
            Some(How::Stale(versions)) => {
                let stale = self.with_cluster(|cluster| cluster.stale(request, *versions));
                if let Some(Answer::Body { status, body }) = stale {
                    return Ending::Body { status, body, cut_after: None };
                }
            }
            Some(How::Repeat) if !is_watch => drop(self.handle(request)),
            Some(
                How::Delay(_)
                | How::LoseAnswer
                | How::Truncate(_)
                | How::Operation(_)
                | How::SkipEvents(_)
                | How::EndWatch(_)
                | How::Repeat
                | How::Gone,
            )
            | None => {}
        }
        let answer = self.handle(request);
        match (answer, fault) {
            (_, Some(How::LoseAnswer)) => Ending::Cut,
            (Answer::Body { status, body }, Some(How::Truncate(bytes))) => {
                Ending::Body { status, body, cut_after: Some(*bytes) }
            }
            (Answer::Body { status, body }, _) => Ending::Body { status, body, cut_after: None },
            (Answer::Watch(mut watch), fault) => {
                if fault == Some(&How::Gone) {
                    watch.expire(self.lock().cluster.version());
                }
                Ending::Watch(Box::new(watch), fault.cloned())
            }
        }
    }
}

/// A [`KubeSimulation`] that answers on 127.0.0.1 until it is shut down or dropped. It asks for no credentials.
#[derive(Debug)]
pub struct KubeSimulator {
    simulation: KubeSimulation,
    serving: Serving,
}

impl Deref for KubeSimulator {
    type Target = KubeSimulation;

    fn deref(&self) -> &KubeSimulation {
        &self.simulation
    }
}

impl KubeSimulator {
    /// Starts to answer.
    ///
    /// # Errors
    /// When the port cannot be had; the message names it.
    pub async fn start(config: KubeConfig) -> io::Result<Self> {
        let port = config.port;
        Self::serve(KubeSimulation::new(config), port).await
    }

    /// Starts to answer for a simulation on this port, or on a free one for 0.
    ///
    /// # Errors
    /// When the port cannot be had; the message names it.
    pub async fn serve(simulation: KubeSimulation, port: u16) -> io::Result<Self> {
        let serving = Port::bind(port).await?.serve(simulation.router());
        Ok(Self { simulation, serving })
    }

    /// Where it answers, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// A kubeconfig that leads here.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: clb-sim\nclusters:\n- name: clb-sim\n  cluster:\n    server: {}\n\
             contexts:\n- name: clb-sim\n  context:\n    cluster: clb-sim\n    user: clb-sim\nusers:\n- name: clb-sim\n  \
             user: {{}}\n",
            self.endpoint()
        )
    }

    /// Stops. Watches are cut.
    pub async fn shutdown(self) {
        self.serving.abort().await;
    }
}

async fn answer(State(simulation): State<KubeSimulation>, request: axum::extract::Request) -> Response {
    let scissors =
        request.extensions().get::<axum::extract::ConnectInfo<Scissors>>().map(|info| info.0.clone());
    let (parts, body) = request.into_parts();
    let header = |name: HeaderName| {
        let value =
            parts.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        value.unwrap_or_default()
    };
    let refused = |refusal: Refusal| json_response(refusal.code, &refusal.body());
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        let message = format!("Request entity too large: limit is {MAX_BODY}");
        return refused(Refusal::new(413, "RequestEntityTooLarge", message));
    };
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
    let content_type = header(header::CONTENT_TYPE);
    let is_yaml = content_type.contains("yaml");
    let body = match serde_json::from_slice(&body) {
        _ if body.is_empty() => Some(Value::Null),
        Err(_) if is_yaml => crate::yaml::document(&body).ok(),
        read => read.ok(),
    };
    let (Ok(query), Some(body)) = (query, body) else {
        return refused(if content_type.contains("protobuf") {
            Refusal::unsupported_media_type()
        } else {
            Refusal::bad_request("the query or the body cannot be read")
        });
    };
    let request = Request {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: query.0,
        content_type,
        accept: header(header::ACCEPT),
        body,
    };
    match simulation.exchange(&request, header(header::USER_AGENT)).await {
        Ending::Body { status, body, cut_after: None } => json_response(status, &body),
        Ending::Body { status, body, cut_after: Some(bytes) } => {
            let whole = body.to_string();
            let kept = whole.as_bytes()[..bytes.min(whole.len())].to_vec();
            let mut response = Response::new(Body::from_stream(breaking(vec![kept])));
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
            response
        }
        Ending::Watch(watch, fault) => {
            let mut response = Response::new(Body::from_stream(stream(simulation, *watch, fault.as_ref())));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Ending::Throttled { seconds } => {
            // As the real server's filters of too many requests answer, with no `Status`.
            let mut response = Response::new(Body::from("Too many requests, please try again later.\n"));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
        Ending::Cut => {
            if let Some(scissors) = scissors {
                scissors.cut();
            }
            Response::new(Body::from_stream(breaking(Vec::new())))
        }
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "an injected fault")
}

/// These chunks, and then a broken connection.
fn breaking(chunks: Vec<Vec<u8>>) -> impl futures::Stream<Item = io::Result<Vec<u8>>> {
    let end = async {
        // Whatever is written must have left before the connection breaks.
        tokio::task::yield_now().await;
        Err(broken())
    };
    futures::stream::iter(chunks.into_iter().map(Ok)).chain(futures::stream::once(end))
}

fn json_response(status: u16, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = body.pointer("/details/retryAfterSeconds").and_then(Value::as_u64) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// What a watch says from now on, as lines, and what a fault makes of it.
fn stream(
    simulation: KubeSimulation,
    watch: Watch,
    fault: Option<&How>,
) -> impl futures::Stream<Item = io::Result<Vec<u8>>> + use<> {
    struct Listening {
        simulation: KubeSimulation,
        watch: Watch,
        /// Events that are left out.
        skip: usize,
        /// Events until its end.
        left: Option<usize>,
        /// How often an event is told.
        times: usize,
        /// Bytes until the connection breaks.
        bytes: Option<usize>,
        deadline: Option<Instant>,
        bookmark_at: Instant,
    }
    let now = Instant::now();
    let listening = Listening {
        deadline: watch.timeout_seconds.map(|seconds| now + Duration::from_secs(seconds)),
        bookmark_at: now + BOOKMARK_INTERVAL,
        skip: if let Some(How::SkipEvents(skip)) = fault { *skip } else { 0 },
        left: if let Some(How::EndWatch(events)) = fault { Some(*events) } else { None },
        times: if fault == Some(&How::Repeat) { 2 } else { 1 },
        bytes: if let Some(How::Truncate(bytes)) = fault { Some(*bytes) } else { None },
        simulation,
        watch,
    };
    futures::stream::unfold(listening, |mut listening| async move {
        if listening.bytes == Some(0) {
            // Whatever is written must have left before the connection breaks.
            tokio::task::yield_now().await;
            return Some((Err(broken()), listening));
        }
        loop {
            let changed = listening.simulation.changed();
            let watch = &mut listening.watch;
            let mut events = listening.simulation.with_cluster(|cluster| cluster.poll(watch));
            let skipped = listening.skip.min(events.len());
            events.drain(..skipped);
            listening.skip -= skipped;
            if let Some(left) = &mut listening.left {
                events.truncate(*left);
                *left -= events.len();
            }
            if !events.is_empty() {
                let line = |event: &Value| format!("{event}\n").repeat(listening.times).into_bytes();
                let mut lines: Vec<u8> = events.iter().flat_map(line).collect();
                if let Some(bytes) = &mut listening.bytes {
                    lines.truncate(*bytes);
                    *bytes -= lines.len();
                }
                return Some((Ok(lines), listening));
            }
            if listening.watch.has_ended() || listening.left == Some(0) {
                return None;
            }
            let deadline = listening.deadline.unwrap_or(listening.bookmark_at);
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(deadline), if listening.deadline.is_some() => return None,
                () = tokio::time::sleep_until(listening.bookmark_at) => {
                    listening.bookmark_at += BOOKMARK_INTERVAL;
                    if listening.watch.wants_bookmarks {
                        let line = format!("{}\n", listening.watch.bookmark());
                        return Some((Ok(line.into_bytes()), listening));
                    }
                }
            }
        }
    })
}
