//! How one HTTP request gets its answer. From the outside in:
//!
//! 1. [`ArmClient::send`] makes an answer other than 2xx an error that names the call;
//! 2. [`ArmClient::exchange`] repeats what the retry policy wants repeated;
//! 3. [`ArmClient::attempt`] waits for the shared budget, adds the token, and asks for another one after a 401;
//! 4. [`ArmClient::transmit`] traces the request and hands it to the transport.
//!
//! Whatever is waited for on the way, be it a budget, a token, an answer or the time of the next attempt, is waited for until
//! the call's deadline and no longer.

use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{Method, Response, StatusCode};
use tokio::time::Instant;
use tracing::{Instrument, field};

use super::{ArmClient, Inner};
use crate::deadline::{Deadline, TimeIsUp};
use crate::error::{CORRELATION_ID, REQUEST_ID, header};
use crate::limiter::Key;
use crate::request::CLIENT_REQUEST_ID;
use crate::{Error, ErrorKind, Request, Result, TransportError};

/// What log filters know this crate by, wherever in it a line is written.
const TARGET: &str = "clb_arm";

impl ArmClient {
    /// An answer other than 2xx to a `method` request is an error, which lacks the call.
    pub(super) fn success(&self, method: &Method, answer: Response<Vec<u8>>) -> Result<Response<Vec<u8>>> {
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(Error::from_answer(method, &answer, (self.0.wall_clock)()))
        }
    }

    /// Sends `http`, which is a part of the call `request`, and makes an answer other than 2xx an error.
    pub(super) async fn send(
        &self,
        request: &Request,
        http: http::Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>> {
        let (result, in_doubt) = self.exchange(http, request.is_idempotent(), request.deadline()).await;
        result.and_then(|answer| self.success(request.http_method(), answer)).map_err(|error| {
            // What an earlier attempt deleted is gone, too: there is no doubt in a DELETE's 404.
            let gone =
                *request.http_method() == Method::DELETE && error.status() == Some(StatusCode::NOT_FOUND);
            let error = if in_doubt && !gone { error.in_doubt() } else { error };
            error.with_call(request)
        })
    }

    /// Sends one HTTP request, and again as long as the policy wants that. Says also whether an attempt before the last one
    /// may have been applied. The error lacks the call.
    pub(super) async fn exchange(
        &self,
        request: http::Request<Vec<u8>>,
        idempotent: bool,
        deadline: Deadline,
    ) -> (Result<Response<Vec<u8>>>, bool) {
        let Inner { retry_policy, wall_clock, .. } = &*self.0;
        let started = Instant::now();
        let (mut attempt, mut in_doubt) = (1, false);
        loop {
            let patience = retry_policy.budget.saturating_sub(started.elapsed());
            let result = self.attempt(&request, attempt, patience, deadline).await;
            let refused = match &result {
                Ok(answer) if answer.status().is_success() => return (result, in_doubt),
                Ok(answer) => Some(Error::from_answer(request.method(), answer, wall_clock())),
                Err(_) => None,
            };
            let Some(error) = refused.as_ref().or(result.as_ref().err()) else { return (result, in_doubt) };
            let wait = retry_policy.wait(error, idempotent, attempt, started.elapsed(), fastrand::f64());
            let Some(wait) = wait.filter(|wait| *wait < deadline.left()) else {
                return (result, in_doubt);
            };
            in_doubt |= error.may_have_been_applied();
            tracing::debug!(target: TARGET, %error, attempt, wait_millis = millis(wait), "to be repeated");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// Sends one HTTP request, once; a second time if its token was not accepted and there is another one. The error lacks
    /// the call.
    async fn attempt(
        &self,
        request: &http::Request<Vec<u8>>,
        attempt: u32,
        patience: Duration,
        deadline: Deadline,
    ) -> Result<Response<Vec<u8>>> {
        let Inner { endpoint, credential, limiter, user_agent, wall_clock, .. } = &*self.0;
        let scope = endpoint.scope();
        let budget = limiter.as_ref().zip(Key::of(request.method(), request.uri().path()));
        let mut rejected = false;
        loop {
            if deadline.left().is_zero() {
                return Err(not_sent(TimeIsUp));
            }
            if let Some((limiter, key)) = &budget {
                let admitted = deadline.bound(limiter.admit(key, patience)).await.map_err(not_sent)?;
                admitted.map_err(|left| {
                    let kind = ErrorKind::Throttled { retry_after: Some(left) };
                    Error::new(kind, "not sent: the subscription's budget is used up for now")
                })?;
            }
            let mut request = request.clone();
            request.headers_mut().insert(USER_AGENT, user_agent.clone());
            let token = deadline.bound(credential.token(scope)).await.map_err(not_sent)?;
            let token = token.map_err(|source| {
                Error::new(ErrorKind::NotSent, "there is no access token").with_source(source)
            })?;
            if let Some(token) = &token {
                request.headers_mut().insert(AUTHORIZATION, token.clone().into_authorization());
            }
            let method = request.method().clone();
            let answer = self.transmit(request, attempt, deadline).await?;
            if let Some((limiter, key)) = &budget {
                let error = (answer.status() == StatusCode::TOO_MANY_REQUESTS)
                    .then(|| Error::from_answer(&method, &answer, wall_clock()));
                // A 429 can also be about one resource, which closes nothing for others.
                let throttled = error.filter(|error| matches!(error.kind(), ErrorKind::Throttled { .. }));
                limiter.learn(key, answer.headers(), throttled.map(|error| error.retry_after()));
            }
            match token {
                Some(token)
                    if answer.status() == StatusCode::UNAUTHORIZED
                        && !rejected
                        && credential.reject(scope, &token) =>
                {
                    rejected = true;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// Sends one complete HTTP request, once.
    async fn transmit(
        &self,
        request: http::Request<Vec<u8>>,
        attempt: u32,
        deadline: Deadline,
    ) -> Result<Response<Vec<u8>>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let client_request_id = header(request.headers(), CLIENT_REQUEST_ID.as_str());
        // Names as OpenTelemetry has them for HTTP clients, and Azure's own for the ids. Its `url.full` is left out: queries
        // hold signatures.
        let span = tracing::info_span!(
            target: TARGET,
            "arm_request",
            otel.name = %method,
            otel.kind = "client",
            http.request.method = %method,
            http.request.resend_count = (attempt > 1).then(|| attempt - 1),
            server.address = request.uri().host(),
            server.port = port(request.uri()),
            url.scheme = request.uri().scheme_str(),
            url.path = path,
            az.client_request_id = client_request_id,
            az.service_request_id = field::Empty,
            http.response.status_code = field::Empty,
            network.protocol.version = field::Empty,
            error.r#type = field::Empty,
        );
        let started = Instant::now();
        let sending = self.0.transport.send(request).instrument(span.clone());
        let late = |late: TimeIsUp| TransportError::MaybeSent(late.into());
        let result = deadline.bound(sending).await.map_err(late).and_then(|result| result);
        let millis = millis(started.elapsed());
        // Neither queries nor headers nor bodies belong in a log.
        match &result {
            Ok(answer) => {
                let request_id = header(answer.headers(), REQUEST_ID);
                span.record("http.response.status_code", answer.status().as_u16());
                span.record("network.protocol.version", protocol_version(answer.version()));
                span.record("az.service_request_id", request_id.as_deref());
                if answer.status().as_u16() >= 400 {
                    span.record("error.type", answer.status().as_str());
                }
                tracing::debug!(
                    target: TARGET,
                    %method,
                    path,
                    status = answer.status().as_u16(),
                    millis,
                    client_request_id,
                    request_id,
                    correlation_id = header(answer.headers(), CORRELATION_ID),
                    "answered"
                );
            }
            Err(error) => {
                span.record("error.type", error.name());
                tracing::debug!(target: TARGET, %method, path, millis, client_request_id, %error, "not answered");
            }
        }
        result.map_err(|error| {
            let kind = match &error {
                TransportError::NotSent(_) => ErrorKind::NotSent,
                TransportError::MaybeSent(_) if method.is_safe() => ErrorKind::Transient,
                TransportError::MaybeSent(_) => ErrorKind::Unknown,
            };
            Error::new(kind, error.to_string()).with_source(error)
        })
    }
}

fn not_sent(late: TimeIsUp) -> Error {
    Error::new(ErrorKind::NotSent, format!("not sent: {late}")).with_source(late)
}

/// The port that a request goes to, said or not.
fn port(uri: &http::Uri) -> Option<u16> {
    uri.port_u16().or_else(|| match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    })
}

/// As OpenTelemetry writes it.
fn protocol_version(version: http::Version) -> Option<&'static str> {
    match version {
        http::Version::HTTP_10 => Some("1.0"),
        http::Version::HTTP_11 => Some("1.1"),
        http::Version::HTTP_2 => Some("2"),
        _ => None,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
