//! A page about both simulators, and a small JSON API for scripts.
//!
//! | request | what it does |
//! | --- | --- |
//! | `GET /` | the page: services, locations, addresses, and calls as they happen |
//! | `GET /state` | what there is, on both sides |
//! | `GET /calls?after=N` | the last 1,000 calls, of which only those after the Nth if it is said |
//! | `GET /ingress?address=A&protocol=tcp&port=P` | which pods answer there now, each with its node; `null` for none |
//! | `GET /egress?pod=A` | how connections of a pod leave |
//! | `GET /faults` | the plan of faults, those that happened, and the plan that makes them happen again |
//! | `PUT /faults`, `DELETE /faults` | takes another plan, JSON or YAML, for both simulators; takes none |
//! | `GET /clock` | the time since the start on both sides, and Kubernetes' time of day |
//! | `POST /clock?advance=MS` | sets both clocks forward by so many milliseconds |
//! | `POST /settle?quiet=MS&within=MS` | waits until nothing is asked any more; 504 if that takes too long |
//! | `GET /events` | server-sent events: one with the number of the last call, whenever something happened |
//!
//! A refusal is `{"error": "…"}`. Pages of other sites are refused, lest one that a browser has open reaches in.

mod calls;
mod page;
mod state;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::Stream;
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::Simulation;
use crate::fault::{FaultPlan, replay};
use crate::kube::KubeSimulation;
use crate::serving::{Port, Serving};
use calls::Calls;

/// How long nothing may be asked for things to count as settled, unless it is said: long enough for a client that polls an
/// operation as often as `Retry-After` tells it to.
const QUIET: Duration = Duration::from_secs(2);
/// How long settling may take, unless it is said.
const WITHIN: Duration = Duration::from_secs(60);
/// How often a page hears of changes at most.
const EVENT_INTERVAL: Duration = Duration::from_millis(250);

/// What is looked at.
#[derive(Debug)]
struct Control {
    azure: Simulation,
    kube: KubeSimulation,
    calls: Calls,
}

/// The page and the JSON API, answering on 127.0.0.1 until shut down or dropped.
#[derive(Debug)]
pub struct ControlServer {
    serving: Serving,
    /// Takes down the calls.
    _listening: AbortOnDropHandle<()>,
}

impl ControlServer {
    /// Starts to answer about two simulators on this port, or on a free one for 0. Of calls it knows those that are asked
    /// from now on.
    ///
    /// # Errors
    /// When the port cannot be had; the message names it.
    pub async fn serve(azure: Simulation, kube: KubeSimulation, port: u16) -> io::Result<Self> {
        let port = Port::bind(port).await?;
        let calls = Calls::of(&azure, &kube);
        let control = Arc::new(Control { azure, kube, calls });
        let listener = control.clone();
        let listening =
            tokio::spawn(async move { listener.calls.listen(&listener.azure, &listener.kube).await });
        Ok(Self { serving: port.serve(router(control)), _listening: AbortOnDropHandle::new(listening) })
    }

    /// Where it answers, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// Stops. Pages that listen are cut.
    pub async fn shutdown(self) {
        self.serving.abort().await;
    }
}

fn router(control: Arc<Control>) -> Router {
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    Router::new()
        .route("/", get(show_page))
        .route("/page.css", file("text/css", include_str!("page.css")))
        .route("/page.js", file("text/javascript", include_str!("page.js")))
        .route("/events", get(events))
        .route("/state", get(show_state))
        .route("/calls", get(show_calls))
        .route("/ingress", get(ingress))
        .route("/egress", get(egress))
        .route("/faults", get(show_faults).put(set_faults).delete(remove_faults))
        .route("/clock", get(show_clock).post(advance_clock))
        .route("/settle", post(settle))
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "there is nothing here; GET / has a page") })
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "this can not be done here")
        })
        .with_state(control)
        .layer(middleware::from_fn(only_own_pages))
}

fn refusal(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(json!({"error": message.into()}))).into_response()
}

/// Refuses what another site's page asks, whether it says so itself (`Origin`) or has its name lead here (`Host`).
async fn only_own_pages(request: Request, next: Next) -> Response {
    if !is_own(request.headers()) {
        return refusal(StatusCode::FORBIDDEN, "only this server's own page and programs are answered");
    }
    next.run(request).await
}

fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(host) = text(header::HOST) else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let own_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(|of| of == host);
    matches!(name, "127.0.0.1" | "localhost") && text(header::ORIGIN).is_none_or(own_origin)
}

async fn show_page(State(control): State<Arc<Control>>) -> Response {
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(page::page(&control).into_string())).into_response()
}

async fn events(State(control): State<Arc<Control>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    // The first one comes at once, since something may have happened since the page was made.
    let known = (control, None);
    Sse::new(futures::stream::unfold(known, |(control, known)| async move {
        let number = match known {
            None => control.calls.number(),
            Some((number, version)) => {
                tokio::time::sleep(EVENT_INTERVAL).await;
                tokio::select! {
                    number = control.calls.after(number) => number,
                    _ = control.kube.changed_since(version) => control.calls.number(),
                }
            }
        };
        let version = control.kube.with_cluster(|cluster| cluster.version());
        Some((Ok(Event::default().data(number.to_string())), (control, Some((number, version)))))
    }))
}

async fn show_state(State(control): State<Arc<Control>>) -> Json<Value> {
    Json(state::state(&control))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    #[serde(default)]
    after: u64,
}

async fn show_calls(State(control): State<Arc<Control>>, query: Query<After>) -> Json<Value> {
    Json(json!({"calls": control.calls.since(query.after), "missed": control.calls.missed()}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Connection {
    address: IpAddr,
    protocol: String,
    port: u16,
}

async fn ingress(State(control): State<Arc<Control>>, Query(to): Query<Connection>) -> Json<Value> {
    let found = control.azure.with_azure(|azure| azure.ingress(to.address, &to.protocol, to.port));
    Json(found.map_or(Value::Null, |ingress| {
        json!({"loadBalancer": ingress.load_balancer, "backendPort": ingress.backend_port, "pods": ingress.pods})
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pod {
    pod: IpAddr,
}

async fn egress(State(control): State<Arc<Control>>, Query(from): Query<Pod>) -> Json<Value> {
    let ways = control.azure.with_azure(|azure| azure.egress(from.pod));
    let ways = ways.iter().map(
        |way| json!({"service": way.service, "natGateway": way.nat_gateway, "publicIps": way.public_ips}),
    );
    Json(ways.collect())
}

async fn show_faults(State(control): State<Arc<Control>>) -> Json<Value> {
    let mut injected = [control.azure.injected(), control.kube.injected()].concat();
    injected.sort_by_key(|fault| fault.at);
    let happened = injected.iter().map(|fault| {
        json!({
            "atMilliseconds": milliseconds(fault.at), "api": fault.call.api, "verb": fault.call.verb,
            "path": fault.call.path, "caller": fault.call.caller, "nth": fault.nth, "how": fault.how
        })
    });
    Json(json!({
        "plan": control.azure.faults(),
        "injected": happened.collect::<Value>(),
        "replay": replay(&injected)
    }))
}

async fn set_faults(State(control): State<Arc<Control>>, body: String) -> Response {
    match crate::yaml::document::<FaultPlan>(body.as_bytes()) {
        Ok(plan) => {
            control.azure.set_faults(plan.clone());
            control.kube.set_faults(plan.clone());
            Json(json!({"plan": plan})).into_response()
        }
        Err(error) => refusal(StatusCode::BAD_REQUEST, format!("this is no plan of faults: {error}")),
    }
}

async fn remove_faults(State(control): State<Arc<Control>>) -> Json<Value> {
    let none = FaultPlan::default();
    control.azure.set_faults(none.clone());
    control.kube.set_faults(none.clone());
    Json(json!({"plan": none}))
}

async fn show_clock(State(control): State<Arc<Control>>) -> Json<Value> {
    Json(state::clock(&control))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance: u64,
}

async fn advance_clock(State(control): State<Arc<Control>>, query: Query<Advance>) -> Json<Value> {
    let by = Duration::from_millis(query.advance);
    control.azure.advance(by);
    control.kube.advance(by);
    Json(state::clock(&control))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    quiet: Option<u64>,
    within: Option<u64>,
}

async fn settle(State(control): State<Arc<Control>>, query: Query<Settle>) -> Response {
    let quiet = query.quiet.map_or(QUIET, Duration::from_millis);
    let within = query.within.map_or(WITHIN, Duration::from_millis);
    let asked = Instant::now();
    let settled = tokio::time::timeout(within, control.calls.quiet_for(quiet)).await.is_ok();
    let status = if settled { StatusCode::OK } else { StatusCode::GATEWAY_TIMEOUT };
    let answer = json!({
        "settled": settled, "waitedMilliseconds": milliseconds(asked.elapsed()), "lastCall": control.calls.last_busy()
    });
    (status, Json(answer)).into_response()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
