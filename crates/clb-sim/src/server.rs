//! Azure over HTTP.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::azure::{Azure, AzureConfig, Method, Request, Response};
use crate::traffic::{CallCounts, CallRecord};

/// What Azure Resource Manager takes as a body at most, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How much of a body is read, in bytes: a client that is answered while it still sends may miss the answer.
const MAX_READ: usize = 16 * MAX_BODY;
/// How many records wait to be taken, so that a simulator that runs for days does not grow: some 25 MB.
const MAX_RECORDS: usize = 100_000;
/// How far a subscriber may fall behind before it misses records.
const SUBSCRIBER_LAG: usize = 4_096;
/// What recorded traffic says is left of a subscription's budgets. They stay as they are: no throttling is modelled.
const REMAINING: [(&str, &str); 3] = [
    ("x-ms-ratelimit-remaining-subscription-global-reads", "16499"),
    ("x-ms-ratelimit-remaining-subscription-global-writes", "11999"),
    ("x-ms-ratelimit-remaining-subscription-global-deletes", "11999"),
];

/// Settings of a [`Simulator`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulatorConfig {
    /// The port on 127.0.0.1; 0, the default, takes a free one.
    pub port: u16,
    /// How long every answer takes. A request has its effect before the wait, as with a real service of which one hears
    /// late.
    pub latency: Duration,
    /// Azure's settings.
    pub azure: AzureConfig,
}

/// A simulated Azure that answers on 127.0.0.1 until it is shut down or dropped.
///
/// It asks for no token, and any that comes is ignored.
#[derive(Debug)]
pub struct Simulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
    server: JoinHandle<io::Result<()>>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    latency: Duration,
    subscribers: broadcast::Sender<CallRecord>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    azure: Azure,
    counts: CallCounts,
    records: VecDeque<CallRecord>,
}

impl Inner {
    fn record(&mut self, record: CallRecord) {
        self.counts.count(record.kind);
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked while holding it was a test that looked: requests are answered without panics.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Simulator {
    /// Starts to answer.
    ///
    /// # Errors
    /// When the port cannot be had; the message names it.
    pub async fn start(config: SimulatorConfig) -> io::Result<Self> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, config.port));
        let naming =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {wanted}: {error}"));
        let listener = TcpListener::bind(wanted).await.map_err(naming)?;
        let address = listener.local_addr()?;
        let azure = Azure::new(config.azure);
        let inner = Mutex::new(Inner { azure, counts: CallCounts::default(), records: VecDeque::new() });
        let subscribers = broadcast::Sender::new(SUBSCRIBER_LAG);
        let shared = Arc::new(Shared { address, latency: config.latency, subscribers, inner });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let shutdown = CancellationToken::new();
        let stopped = shutdown.clone().cancelled_owned();
        let server = axum::serve(listener, router).with_graceful_shutdown(stopped);
        let server = tokio::spawn(async move { server.await });
        Ok(Self { address, shared, shutdown, server })
    }

    /// Where it answers, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests there were.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        self.shared.lock().counts
    }

    /// Every request since the last time this was asked, the last 100,000 of them, in the order in which they took effect.
    #[must_use]
    pub fn take_records(&self) -> Vec<CallRecord> {
        std::mem::take(&mut self.shared.lock().records).into()
    }

    /// Hears of every request from now on, as it takes effect. Whoever falls 4,096 behind misses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<CallRecord> {
        self.shared.subscribers.subscribe()
    }

    /// Looks at Azure's state, or changes it behind everybody's back. No request is answered meanwhile.
    pub fn with_azure<T>(&self, look: impl FnOnce(&mut Azure) -> T) -> T {
        look(&mut self.shared.lock().azure)
    }

    /// Stops, when the requests that are being answered are.
    pub async fn shutdown(mut self) {
        self.shutdown.cancel();
        match (&mut self.server).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the simulator's listener failed"),
            Err(error) => warn!(%error, "the simulator's task failed"),
        }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let client_request_id = request.headers().get("x-ms-client-request-id").cloned();
    let method = Method::from(request.method().as_str());
    let path = request.uri().path().to_owned();
    let remaining = remaining(&method);
    let read = read(method.clone(), path.clone(), request).await;
    let response = {
        let mut inner = shared.lock();
        let (response, body) = match read {
            Ok(request) => (inner.azure.handle(&request), request.body),
            Err(refusal) => (refusal, Value::Null),
        };
        let record = CallRecord::new(method, path, &body, &response, shared.latency);
        debug!(?record, "answered");
        // Nobody has to listen.
        let _ = shared.subscribers.send(record.clone());
        inner.record(record);
        response
    };
    if !shared.latency.is_zero() {
        tokio::time::sleep(shared.latency).await;
    }
    write(&shared, response, remaining, client_request_id)
}

/// The header that says how much is left of the budget that a method draws on.
fn remaining(method: &Method) -> (&'static str, &'static str) {
    let [reads, writes, deletes] = REMAINING;
    match method {
        Method::Get => reads,
        Method::Put | Method::Post | Method::Other(_) => writes,
        Method::Delete => deletes,
    }
}

/// Reads an HTTP request, or says how it is refused.
async fn read(method: Method, path: String, request: axum::extract::Request) -> Result<Request, Response> {
    let refusal = |status, code: &str, message: String| Response {
        status,
        headers: Vec::new(),
        body: json!({"error": {"code": code, "message": message, "details": []}}),
    };
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(request.uri())
        .map_err(|error| refusal(400, "InvalidRequestUri", error.to_string()))?
        .0;
    let if_match = request.headers().get(header::IF_MATCH);
    let if_match = if_match.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let too_large = |what: String| {
        refusal(413, "RequestEntityTooLarge", format!("the body has {what}; it may have {MAX_BODY}"))
    };
    let body = to_bytes(request.into_body(), MAX_READ).await;
    let body =
        body.map_err(|error| too_large(format!("more than {MAX_READ} bytes, or was cut off: {error}")))?;
    if body.len() > MAX_BODY {
        return Err(too_large(format!("{} bytes", body.len())));
    }
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body).map_err(|error| {
            refusal(400, "InvalidRequestContent", format!("the body is not JSON: {error}"))
        })?
    };
    Ok(Request { method, path, query, if_match, body })
}

fn write(
    shared: &Shared,
    response: Response,
    remaining: (&'static str, &'static str),
    client_request_id: Option<HeaderValue>,
) -> axum::response::Response {
    let absolute = |path: &str| format!("http://{}{path}", shared.address);
    let Response { status, headers, mut body } = response;
    if let Some(Value::String(next)) = body.get_mut("nextLink") {
        *next = absolute(next);
    }
    let mut http = axum::response::Response::new(if body.is_null() {
        Body::empty()
    } else {
        Body::from(body.to_string())
    });
    *http.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let out: &mut HeaderMap = http.headers_mut();
    if !body.is_null() {
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    }
    let id = || uuid::Uuid::new_v4().to_string();
    let (budget, left) = remaining;
    let own = [("x-ms-request-id", id()), ("x-ms-correlation-request-id", id()), (budget, left.to_owned())];
    for (name, value) in headers.into_iter().chain(own) {
        let value = if value.starts_with('/') { absolute(&value) } else { value };
        if let Ok(value) = HeaderValue::try_from(value) {
            out.insert(name, value);
        }
    }
    if let Some(id) = client_request_id {
        out.insert("x-ms-client-request-id", id);
    }
    http
}
