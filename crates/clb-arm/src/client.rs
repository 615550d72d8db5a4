//! The client: requests in, results out.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use crate::error::{CORRELATION_ID, REQUEST_ID, header};
use crate::paging::Page;
use crate::request::http_request;
use crate::{
    Credential, Endpoint, Error, ErrorKind, MAX_PAGES, PollSchedule, Request, Result, Step, Transport,
    TransportError,
};

/// How long a long-running operation is followed before its outcome counts as unknown. The slowest that this
/// workspace starts, a NAT gateway, takes a few minutes; whoever repeats the call later learns how it went.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// What the server's logs know this client as.
const DEFAULT_USER_AGENT: &str = concat!("clb-arm/", env!("CARGO_PKG_VERSION"));

/// A client of Azure Resource Manager. Cloning is cheap, and clones share their connections.
///
/// Each method performs one logical call to its end, polls and pages included, and **does not retry**: whether a
/// failed call should be repeated, and when, is a decision for whoever knows what else is waiting, and
/// [`Error::kind`] holds what that decision needs. Dropping a future cancels the waiting, never the operation.
#[derive(Clone)]
pub struct ArmClient(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    credential: Box<dyn Credential>,
    transport: Box<dyn Transport>,
    user_agent: HeaderValue,
    schedule: PollSchedule,
    operation_timeout: Duration,
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

    /// Performs a write to the end of its long-running operation, and returns the answer that holds the result.
    async fn run(&self, request: &Request) -> Result<Response<Vec<u8>>> {
        let Inner { endpoint, schedule, operation_timeout, wall_clock, .. } = &*self.0;
        let started = Instant::now();
        let mut answer = self.send(request, request.to_http(endpoint)?).await?;
        let resource = request.url(endpoint)?;
        let mut step =
            Step::first(request.http_method(), &resource, &answer, endpoint, *schedule, wall_clock());
        loop {
            step = match step {
                Step::Done => return Ok(answer),
                Step::GetResource => return self.read_back(request, &resource).await,
                Step::Failed(error) | Step::Lost(error) => return Err(error.with_call(request)),
                Step::Poll(polling) => {
                    if started.elapsed() + polling.wait() > *operation_timeout {
                        let message = format!("it still runs after {operation_timeout:?}");
                        return Err(Error::new(ErrorKind::Unknown, message)
                            .with_call(request)
                            .with_answer(&answer));
                    }
                    tokio::time::sleep(polling.wait()).await;
                    answer = self.poll(request, polling.url()).await?;
                    polling.handle_answer(&answer, wall_clock())
                }
            };
        }
    }

    async fn poll(&self, request: &Request, url: &Url) -> Result<Response<Vec<u8>>> {
        let lost =
            |cause| Error::new(ErrorKind::Unknown, "a poll failed").with_call(request).with_source(cause);
        let poll = http_request(Method::GET, url, request.context(), Vec::new()).map_err(lost)?;
        self.attempt(poll).await.map_err(lost)
    }

    /// Reads what a finished write has made of its resource.
    async fn read_back(&self, request: &Request, resource: &Url) -> Result<Response<Vec<u8>>> {
        let read = async {
            let read = http_request(Method::GET, resource, request.context(), Vec::new())?;
            let answer = self.attempt(read).await?;
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
        let answer = self.attempt(http).await.and_then(|answer| self.success(request.http_method(), answer));
        answer.map_err(|error| error.with_call(request))
    }

    /// Sends one HTTP request, once. The error lacks the call.
    async fn attempt(&self, mut request: http::Request<Vec<u8>>) -> Result<Response<Vec<u8>>> {
        let Inner { endpoint, credential, transport, user_agent, .. } = &*self.0;
        request.headers_mut().insert(USER_AGENT, user_agent.clone());
        let token = credential.token(endpoint.scope()).await.map_err(|source| {
            Error::new(ErrorKind::NotSent, "there is no access token").with_source(source)
        })?;
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token.into_authorization());
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let client_request_id = header(request.headers(), crate::request::CLIENT_REQUEST_ID.as_str());
        let started = Instant::now();
        let result = transport.send(request).await;
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Neither queries (which hold signatures) nor headers nor bodies belong in a log.
        match &result {
            Ok(answer) => tracing::debug!(
                %method,
                path,
                status = answer.status().as_u16(),
                millis,
                client_request_id,
                request_id = header(answer.headers(), REQUEST_ID),
                correlation_id = header(answer.headers(), CORRELATION_ID),
                "answered"
            ),
            Err(error) => tracing::debug!(%method, path, millis, client_request_id, %error, "not answered"),
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
