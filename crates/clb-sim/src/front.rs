//! Azure Resource Manager's front door: HTTP in, HTTP out, without I/O.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::SimulatorConfig;
use crate::azure::{Azure, Method, Request, Response};
use crate::budget::{Class, Throttle};
use crate::clock::Clock;
use crate::fault::{Api, Call, How, Injector};
use crate::traffic::{CallCounts, CallRecord};

/// What Azure Resource Manager takes as a body at most, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How many records wait to be taken, so that a simulator that runs for days does not grow: some 25 MB.
const MAX_RECORDS: usize = 100_000;

/// Everything behind the door.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) azure: Azure,
    pub(crate) injector: Injector,
    pub(crate) counts: CallCounts,
    pub(crate) records: VecDeque<CallRecord>,
    pub(crate) expired_tokens: BTreeSet<String>,
    throttle: Throttle,
    requires_token: bool,
    latency: Duration,
    requests: u64,
    pub(crate) clock: Clock,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) struct Reply {
    /// How long it takes.
    pub(crate) delay: Duration,
    pub(crate) ending: Ending,
    pub(crate) record: CallRecord,
}

/// How an exchange ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Answer(http::Response<Vec<u8>>),
    /// The connection is cut after so many bytes of the body.
    Truncated(http::Response<Vec<u8>>, usize),
    /// The connection is cut before anything of the answer.
    Cut,
}

impl Front {
    pub(crate) fn new(config: SimulatorConfig) -> Self {
        let mut injector = Injector::default();
        injector.set(config.faults);
        Self {
            azure: Azure::new(config.azure),
            injector,
            counts: CallCounts::default(),
            records: VecDeque::new(),
            expired_tokens: BTreeSet::new(),
            throttle: Throttle::new(config.budgets),
            requires_token: config.requires_token,
            latency: config.latency,
            requests: 0,
            clock: Clock::start(),
        }
    }

    /// Answers one request, `now` being the time since the start, and `base` what paths become absolute with.
    /// `subscribers` hear of it before anybody else can be answered.
    pub(crate) fn handle(
        &mut self,
        http: &http::Request<Vec<u8>>,
        base: &str,
        now: Duration,
        subscribers: &broadcast::Sender<CallRecord>,
    ) -> Reply {
        self.requests += 1;
        let method = Method::from(http.method().as_str());
        let path = http.uri().path().to_owned();
        let class = Class::of(&method);
        let text = |name| {
            http.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let call = Call {
            api: Api::Azure,
            verb: method.as_str().to_owned(),
            path: path.clone(),
            caller: text(header::USER_AGENT).unwrap_or_default(),
        };
        let fault = self.injector.decide(&call, now);
        if let Some(How::Throttle { seconds }) = &fault {
            self.throttle.close(class, now + Duration::from_secs(*seconds));
        }
        let drawn = self.throttle.draw(class, now);
        let mut body = Value::Null;
        let response = match (self.admit(text(header::AUTHORIZATION).as_deref(), drawn), &fault) {
            (Err(refusal), _) => refusal,
            (Ok(()), Some(How::Refuse { status, code })) => refusal(*status, code, "an injected fault"),
            (Ok(()), Some(How::LoseRequest)) => {
                Response { status: 0, headers: Vec::new(), body: Value::Null }
            }
            (Ok(()), fault) => match read(method.clone(), path.clone(), http) {
                Err(refusal) => refusal,
                Ok(request) => {
                    self.azure.advance_to(now);
                    let response = self.apply(&request, fault.as_ref());
                    body = request.body;
                    response
                }
            },
        };
        let mut delay = self.latency;
        if let Some(How::Delay(millis)) = fault {
            delay += Duration::from_millis(millis);
        }
        let record = CallRecord {
            at: now,
            duration: delay,
            fault: fault.clone(),
            ..CallRecord::new(method, path, &body, &response)
        };
        self.counts.count(record.kind);
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record.clone());
        // Nobody has to listen.
        let _ = subscribers.send(record.clone());
        let answer =
            || self.write(response, base, http.headers().get("x-ms-client-request-id"), class, drawn);
        let ending = match fault {
            Some(How::LoseRequest | How::LoseAnswer) => Ending::Cut,
            Some(How::Truncate(bytes)) => Ending::Truncated(answer(), bytes),
            Some(
                How::Delay(_)
                | How::Refuse { .. }
                | How::Throttle { .. }
                | How::Repeat
                | How::Operation(_)
                | How::Stale(_)
                | How::SkipEvents(_)
                | How::EndWatch(_)
                | How::Gone,
            )
            | None => Ending::Answer(answer()),
        };
        Reply { delay, ending, record }
    }

    /// Lets a call in, or says why not.
    fn admit(&self, authorization: Option<&str>, drawn: Result<u32, u64>) -> Result<(), Response> {
        if self.requires_token {
            let token = authorization.and_then(|value| value.strip_prefix("Bearer "));
            let unauthorized = |code, message: &str| {
                let response = refusal(401, code, message);
                Err(response.with_header(
                    "www-authenticate",
                    "Bearer authorization_uri=\"https://login.microsoftonline.com\"",
                ))
            };
            match token.filter(|token| !token.is_empty()) {
                None => {
                    return unauthorized(
                        "AuthenticationFailed",
                        "Authentication failed. The 'Authorization' header is missing.",
                    );
                }
                Some(token) if self.expired_tokens.contains(token) => {
                    return unauthorized(
                        "ExpiredAuthenticationToken",
                        "The access token expiry UTC time is earlier than current UTC time.",
                    );
                }
                Some(_) => {}
            }
        }
        drawn.map(drop).map_err(|seconds| {
            let message = format!(
                "The request is being throttled as the limit has been reached. Retry after {seconds} seconds."
            );
            refusal(429, "TooManyRequests", &message).with_header("retry-after", seconds.to_string())
        })
    }

    fn apply(&mut self, request: &Request, fault: Option<&How>) -> Response {
        match fault {
            Some(How::Operation(shape)) => self.azure.handle_as(request, shape),
            Some(How::Repeat) => {
                self.azure.handle(request);
                self.azure.handle(request)
            }
            Some(
                How::Delay(_)
                | How::Refuse { .. }
                | How::Throttle { .. }
                | How::LoseRequest
                | How::LoseAnswer
                | How::Truncate(_)
                | How::Stale(_)
                | How::SkipEvents(_)
                | How::EndWatch(_)
                | How::Gone,
            )
            | None => self.azure.handle(request),
        }
    }

    fn write(
        &self,
        response: Response,
        base: &str,
        client_request_id: Option<&HeaderValue>,
        class: Class,
        drawn: Result<u32, u64>,
    ) -> http::Response<Vec<u8>> {
        let Response { status, headers, mut body } = response;
        if let Some(Value::String(next)) = body.get_mut("nextLink") {
            next.insert_str(0, base);
        }
        let has_body = !body.is_null();
        let mut http = http::Response::new(if has_body { body.to_string().into_bytes() } else { Vec::new() });
        *http.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let out = http.headers_mut();
        if has_body {
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        }
        // Two ids for each request: counted, so that two runs have the same.
        let id = |half: u64| format!("00000000-0000-4000-8000-{:012x}", self.requests * 2 + half);
        let own = [
            ("x-ms-request-id", id(0)),
            ("x-ms-correlation-request-id", id(1)),
            (class.header(), drawn.unwrap_or(0).to_string()),
        ];
        for (name, value) in headers.into_iter().chain(own) {
            let value = if value.starts_with('/') { format!("{base}{value}") } else { value };
            if let Ok(value) = HeaderValue::try_from(value) {
                out.insert(name, value);
            }
        }
        if let Some(id) = client_request_id {
            out.insert("x-ms-client-request-id", id.clone());
        }
        http
    }
}

fn refusal(status: u16, code: &str, message: &str) -> Response {
    let body = json!({"error": {"code": code, "message": message, "details": []}});
    Response { status, headers: Vec::new(), body }
}

/// Reads an HTTP request, or says how it is refused.
fn read(method: Method, path: String, http: &http::Request<Vec<u8>>) -> Result<Request, Response> {
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(http.uri())
        .map_err(|error| refusal(400, "InvalidRequestUri", &error.to_string()))?
        .0;
    let if_match = http.headers().get(header::IF_MATCH);
    let if_match = if_match.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let size = http.body().len();
    if size > MAX_BODY {
        let message = format!("the body has {size} bytes or more; it may have {MAX_BODY}");
        return Err(refusal(413, "RequestEntityTooLarge", &message));
    }
    let body = if size == 0 {
        Value::Null
    } else {
        serde_json::from_slice(http.body()).map_err(|error| {
            refusal(400, "InvalidRequestContent", &format!("the body is not JSON: {error}"))
        })?
    };
    Ok(Request { method, path, query, if_match, body })
}
