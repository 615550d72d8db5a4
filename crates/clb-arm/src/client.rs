//! The client: requests in, results out.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{Instrument, field};
use url::Url;

use crate::error::{CORRELATION_ID, REQUEST_ID, header};
use crate::limiter::Key;
use crate::paging::Page;
use crate::request::http_request;
use crate::{
    CallContext, Credential, Endpoint, Error, ErrorKind, Limiter, MAX_PAGES, PollSchedule, Request, Result,
    RetryPolicy, SavedOperation, Step, Transport, TransportError,
};

/// How long a long-running operation is followed before its outcome counts as unknown. The slowest that this
/// workspace starts, a NAT gateway, takes a few minutes; whoever repeats the call later learns how it went.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// What the server's logs know this client as.
const DEFAULT_USER_AGENT: &str = concat!("clb-arm/", env!("CARGO_PKG_VERSION"));

/// A client of Azure Resource Manager. Cloning is cheap, and clones share their connections.
///
/// Each method performs one logical call to its end, polls and pages included. Without a
/// [`RetryPolicy`](ArmClientBuilder::retry_policy) it **does not retry**: whether a failed call should be repeated, and when, is
/// then a decision for whoever knows what else is waiting, and [`Error::kind`] holds what that decision needs. Dropping a future
/// cancels the waiting and further attempts at once, never the operation.
#[derive(Clone)]
pub struct ArmClient(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    credential: Box<dyn Credential>,
    transport: Box<dyn Transport>,
    user_agent: HeaderValue,
    schedule: PollSchedule,
    operation_timeout: Duration,
    retry_policy: RetryPolicy,
    limiter: Option<Limiter>,
    wall_clock: fn() -> SystemTime,
}

impl fmt::Debug for ArmClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArmClient").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

/// Makes an [`ArmClient`].
#[must_use]
pub struct ArmClientBuilder(Inner);

impl ArmClientBuilder {
    /// With another `User-Agent`.
    pub fn user_agent(mut self, user_agent: HeaderValue) -> Self {
        self.0.user_agent = user_agent;
        self
    }

    /// With other waits between the polls of a long-running operation.
    pub fn poll_schedule(mut self, schedule: PollSchedule) -> Self {
        self.0.schedule = schedule;
        self
    }

    /// With another limit, instead of 10 minutes, to how long a long-running operation is followed.
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.0.operation_timeout = timeout;
        self
    }

    /// With requests that are repeated as [`retry`](crate::retry) describes, instead of not at all.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.0.retry_policy = policy;
        self
    }

    /// With a budget that is shared with everybody who has a clone of `limiter`. A request that would have to wait for longer
    /// than the retry policy's budget fails as [`ErrorKind::Throttled`] without being sent.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.0.limiter = Some(limiter);
        self
    }

    /// With another source of the time of day, which `Retry-After` dates are compared with.
    pub fn wall_clock(mut self, now: fn() -> SystemTime) -> Self {
        self.0.wall_clock = now;
        self
    }

    /// The client.
    #[must_use]
    pub fn build(self) -> ArmClient {
        ArmClient(Arc::new(self.0))
    }
}

impl fmt::Debug for ArmClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArmClientBuilder").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

impl ArmClient {
    /// A client of `endpoint` as `credential`, over `transport`.
    pub fn builder(
        endpoint: Endpoint,
        credential: impl Credential,
        transport: impl Transport,
    ) -> ArmClientBuilder {
        ArmClientBuilder(Inner {
            endpoint,
            credential: Box::new(credential),
            transport: Box::new(transport),
            user_agent: HeaderValue::from_static(DEFAULT_USER_AGENT),
            schedule: PollSchedule::default(),
            operation_timeout: OPERATION_TIMEOUT,
            retry_policy: RetryPolicy::NONE,
            limiter: None,
            wall_clock: SystemTime::now,
        })
    }

    /// Reads one resource.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotFound`] when it is not there, and of any other.
    pub async fn get<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        let request = request.method(Method::GET);
        let answer = self.send(&request, request.to_http(&self.0.endpoint)?).await?;
        decode(&request, &answer)
    }

    /// Creates or replaces a resource, waits until that is done, and returns what it has become.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn put<T: DeserializeOwned>(&self, request: Request, body: Vec<u8>) -> Result<T> {
        let request = request.method(Method::PUT).json(body);
        let answer = self.run(&request).await?;
        decode(&request, &answer)
    }

    /// Changes a part of a resource, waits until that is done, and returns what it has become.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn patch<T: DeserializeOwned>(&self, request: Request, body: Vec<u8>) -> Result<T> {
        let request = request.method(Method::PATCH).json(body);
        let answer = self.run(&request).await?;
        decode(&request, &answer)
    }

    /// Deletes a resource and waits until it is gone. One that is not there (404) is gone.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn delete(&self, request: Request) -> Result<()> {
        match self.run(&request.method(Method::DELETE)).await {
            Ok(_) => Ok(()),
            // By status, not kind: a refused or failed deletion can also be about something else that is missing.
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) && !error.may_have_been_applied() => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Performs an action, waits until it is done, and returns the last answer's body.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn post_action(&self, request: Request, body: Vec<u8>) -> Result<Vec<u8>> {
        let request = request.method(Method::POST).json(body);
        self.run(&request).await.map(Response::into_body)
    }

    /// Reads a whole list, page by page. There are no partial lists: if one page fails, the call fails.
    ///
    /// # Errors
    /// Of any kind; [`ErrorKind::Transient`] when the pages lead to another host, or there are more than
    /// [`MAX_PAGES`] of them.
    pub async fn list<T: DeserializeOwned>(&self, request: Request) -> Result<Vec<T>> {
        let request = request.method(Method::GET);
        let mut next = request.to_http(&self.0.endpoint)?;
        let mut items = Vec::new();
        for _ in 0..MAX_PAGES {
            let answer = self.send(&request, next).await?;
            let page: Page<T> = decode(&request, &answer)?;
            let link = page.next_link().map(str::to_owned);
            items.extend(page.value);
            let Some(link) = link else { return Ok(items) };
            let url = self.0.endpoint.follow(&link).ok_or_else(|| {
                Error::new(ErrorKind::Transient, "the next page is on another host")
                    .with_call(&request)
                    .with_answer(&answer)
            })?;
            next = http_request(Method::GET, &url, request.context(), Vec::new())?;
        }
        Err(Error::new(ErrorKind::Transient, format!("the list has more than {MAX_PAGES} pages"))
            .with_call(&request))
    }

    /// Follows an operation that an earlier call could not follow to its end ([`Error::operation`]), and returns the body of
    /// the answer that holds its result: the resource after a PUT or PATCH, perhaps nothing after others.
    ///
    /// # Errors
    /// Of any kind; [`ErrorKind::Invalid`] when the operation is not one of this client's endpoint.
    pub async fn resume(&self, call: &CallContext, operation: &SavedOperation) -> Result<Vec<u8>> {
        let Inner { endpoint, schedule, wall_clock, .. } = &*self.0;
        let (polling, resource) = operation.restore(endpoint, *schedule)?;
        let request = Request::new(resource.path(), "", call).method(polling.method().clone());
        let answer = self
            .poll(&request, polling.url())
            .await
            .map_err(|error| error.with_operation(operation.clone()))?;
        let step = polling.handle_answer(&answer, wall_clock());
        self.follow(&request, &resource, step, answer).await.map(Response::into_body)
    }

    /// Performs a write to the end of its long-running operation, and returns the answer that holds the result.
    async fn run(&self, request: &Request) -> Result<Response<Vec<u8>>> {
        let Inner { endpoint, schedule, wall_clock, .. } = &*self.0;
        let answer = self.send(request, request.to_http(endpoint)?).await?;
        let resource = request.url(endpoint)?;
        let step = Step::first(request.http_method(), &resource, &answer, endpoint, *schedule, wall_clock());
        self.follow(request, &resource, step, answer).await
    }

    /// Goes on from `step`, which `answer` led to.
    async fn follow(
        &self,
        request: &Request,
        resource: &Url,
        mut step: Step,
        mut answer: Response<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>> {
        let Inner { operation_timeout, wall_clock, .. } = &*self.0;
        let started = Instant::now();
        let mut operation = None;
        loop {
            step = match step {
                Step::Done => return Ok(answer),
                Step::GetResource => return self.read_back(request, resource).await,
                Step::Failed(error) => return Err(error.with_call(request)),
                Step::Lost(error) => return Err(resumable(error, operation).with_call(request)),
                Step::Poll(polling) => {
                    let saved = polling.save(resource);
                    if started.elapsed() + polling.wait() > *operation_timeout {
                        let message = format!("it still runs after {operation_timeout:?}");
                        return Err(Error::new(ErrorKind::Unknown, message)
                            .with_call(request)
                            .with_answer(&answer)
                            .with_operation(saved));
                    }
                    tokio::time::sleep(polling.wait()).await;
                    answer = match self.poll(request, polling.url()).await {
                        Ok(answer) => answer,
                        Err(error) => return Err(error.with_operation(saved)),
                    };
                    operation = Some(saved);
                    polling.handle_answer(&answer, wall_clock())
                }
            };
        }
    }

    async fn poll(&self, request: &Request, url: &Url) -> Result<Response<Vec<u8>>> {
        let lost =
            |cause| Error::new(ErrorKind::Unknown, "a poll failed").with_call(request).with_source(cause);
        let poll = http_request(Method::GET, url, request.context(), Vec::new()).map_err(lost)?;
        self.exchange(poll, true).await.0.map_err(lost)
    }

    /// Reads what a finished write has made of its resource.
    async fn read_back(&self, request: &Request, resource: &Url) -> Result<Response<Vec<u8>>> {
        let read = async {
            let read = http_request(Method::GET, resource, request.context(), Vec::new())?;
            let answer = self.exchange(read, true).await.0?;
            self.success(&Method::GET, answer)
        };
        read.await.map_err(|cause| {
            Error::new(ErrorKind::Unknown, "it is done, but the result could not be read")
                .with_call(request)
                .with_source(cause)
        })
    }

    /// An answer other than 2xx to a `method` request is an error, which lacks the call.
    fn success(&self, method: &Method, answer: Response<Vec<u8>>) -> Result<Response<Vec<u8>>> {
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(Error::from_answer(method, &answer, (self.0.wall_clock)()))
        }
    }

    /// Sends `http`, which is a part of the call `request`, and makes an answer other than 2xx an error.
    async fn send(&self, request: &Request, http: http::Request<Vec<u8>>) -> Result<Response<Vec<u8>>> {
        let (result, in_doubt) = self.exchange(http, request.is_idempotent()).await;
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
    async fn exchange(
        &self,
        request: http::Request<Vec<u8>>,
        idempotent: bool,
    ) -> (Result<Response<Vec<u8>>>, bool) {
        let Inner { retry_policy, wall_clock, .. } = &*self.0;
        let started = Instant::now();
        let (mut attempt, mut in_doubt) = (1, false);
        loop {
            let patience = retry_policy.budget.saturating_sub(started.elapsed());
            let result = self.attempt(&request, attempt, patience).await;
            let refused = match &result {
                Ok(answer) if answer.status().is_success() => return (result, in_doubt),
                Ok(answer) => Some(Error::from_answer(request.method(), answer, wall_clock())),
                Err(_) => None,
            };
            let Some(error) = refused.as_ref().or(result.as_ref().err()) else { return (result, in_doubt) };
            let elapsed = started.elapsed();
            let Some(wait) = retry_policy.wait(error, idempotent, attempt, elapsed, fastrand::f64()) else {
                return (result, in_doubt);
            };
            in_doubt |= error.may_have_been_applied();
            tracing::debug!(%error, attempt, wait_millis = millis(wait), "to be repeated");
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
    ) -> Result<Response<Vec<u8>>> {
        let Inner { endpoint, credential, limiter, user_agent, wall_clock, .. } = &*self.0;
        let scope = endpoint.scope();
        let budget = limiter.as_ref().zip(Key::of(request.method(), request.uri().path()));
        let mut rejected = false;
        loop {
            if let Some((limiter, key)) = &budget {
                limiter.admit(key, patience).await.map_err(|left| {
                    let kind = ErrorKind::Throttled { retry_after: Some(left) };
                    Error::new(kind, "not sent: the subscription's budget is used up for now")
                })?;
            }
            let mut request = request.clone();
            request.headers_mut().insert(USER_AGENT, user_agent.clone());
            let token = credential.token(scope).await.map_err(|source| {
                Error::new(ErrorKind::NotSent, "there is no access token").with_source(source)
            })?;
            if let Some(token) = &token {
                request.headers_mut().insert(AUTHORIZATION, token.clone().into_authorization());
            }
            let method = request.method().clone();
            let answer = self.transmit(request, attempt).await?;
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
    async fn transmit(&self, request: http::Request<Vec<u8>>, attempt: u32) -> Result<Response<Vec<u8>>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let client_request_id = header(request.headers(), crate::request::CLIENT_REQUEST_ID.as_str());
        // Names as OpenTelemetry has them for HTTP clients, and Azure's own for the ids.
        let span = tracing::info_span!(
            "arm_request",
            otel.name = %method,
            otel.kind = "client",
            http.request.method = %method,
            http.request.resend_count = attempt - 1,
            server.address = request.uri().host(),
            url.path = path,
            az.client_request_id = client_request_id,
            az.service_request_id = field::Empty,
            http.response.status_code = field::Empty,
            error.r#type = field::Empty,
        );
        let started = Instant::now();
        let result = self.0.transport.send(request).instrument(span.clone()).await;
        let millis = millis(started.elapsed());
        // Neither queries (which hold signatures) nor headers nor bodies belong in a log.
        match &result {
            Ok(answer) => {
                let request_id = header(answer.headers(), REQUEST_ID);
                span.record("http.response.status_code", answer.status().as_u16());
                span.record("az.service_request_id", request_id.as_deref());
                if answer.status().as_u16() >= 400 {
                    span.record("error.type", answer.status().as_str());
                }
                tracing::debug!(
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
                tracing::debug!(%method, path, millis, client_request_id, %error, "not answered");
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

/// `error` with the operation that it is about, if one had begun.
fn resumable(error: Error, operation: Option<SavedOperation>) -> Error {
    match operation {
        Some(operation) => error.with_operation(operation),
        None => error,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a successful answer to `request`. What cannot be read was not written by Azure Resource Manager, or only in
/// part, so a read is worth repeating and a write is in doubt.
fn decode<T: DeserializeOwned>(request: &Request, answer: &Response<Vec<u8>>) -> Result<T> {
    serde_json::from_slice(answer.body()).map_err(|source| {
        let kind = if request.http_method().is_safe() { ErrorKind::Transient } else { ErrorKind::Unknown };
        Error::new(kind, "the answer is not what was asked for")
            .with_call(request)
            .with_answer(answer)
            .with_source(source)
    })
}
