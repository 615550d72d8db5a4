//! The client: requests in, results out.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use crate::deadline::Deadline;
use crate::paging::Pager;
use crate::request::http_request;
use crate::{
    CallContext, Credential, Endpoint, Error, ErrorKind, Limiter, Pages, PollSchedule, Request, Result,
    RetryPolicy, SavedOperation, Step, Transport,
};

mod exchange;

/// How long a long-running operation is followed before its outcome counts as unknown. The slowest that this
/// workspace starts, a NAT gateway, takes a few minutes; whoever repeats the call later learns how it went.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long a whole call may take: an operation that is followed for [`OPERATION_TIMEOUT`], and what comes before and after
/// it with its retries. A list that takes longer is not one that a server means to finish.
const CALL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

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
    call_timeout: Duration,
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

    /// With another limit, instead of 15 minutes, to how long one call takes in all: every attempt, wait, poll and page of it.
    /// At that moment it fails, as [`ErrorKind::NotSent`] if that is certain, and otherwise as any request whose answer did not
    /// come. A single call can have less with [`CallContext::with_timeout`], and one attempt has less by itself
    /// ([`HttpTransport::with_attempt_timeout`](crate::HttpTransport::with_attempt_timeout)).
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.0.call_timeout = timeout;
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
            call_timeout: CALL_TIMEOUT,
            retry_policy: RetryPolicy::NONE,
            limiter: None,
            wall_clock: SystemTime::now,
        })
    }

    /// Where it sends its requests.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Reads one resource.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::NotFound`] when it is not there, and of any other.
    pub async fn get<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        let request = self.begin(request.method(Method::GET));
        let http = request.to_http(&self.0.endpoint)?;
        self.fetch(&request, http).await.map(|(resource, _)| resource)
    }

    /// Creates or replaces a resource, waits until that is done, and returns what it has become.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn put<T: DeserializeOwned>(&self, request: Request, body: Vec<u8>) -> Result<T> {
        let request = self.begin(request.method(Method::PUT).json(body));
        let answer = self.run(&request).await?;
        decode(&request, &answer)
    }

    /// Changes a part of a resource, waits until that is done, and returns what it has become.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn patch<T: DeserializeOwned>(&self, request: Request, body: Vec<u8>) -> Result<T> {
        let request = self.begin(request.method(Method::PATCH).json(body));
        let answer = self.run(&request).await?;
        decode(&request, &answer)
    }

    /// Deletes a resource and waits until it is gone. One that is not there (404) is gone.
    ///
    /// # Errors
    /// Of any kind; see [`Error::may_have_been_applied`].
    pub async fn delete(&self, request: Request) -> Result<()> {
        match self.run(&self.begin(request.method(Method::DELETE))).await {
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
        let request = self.begin(request.method(Method::POST).json(body));
        self.run(&request).await.map(Response::into_body)
    }

    /// Reads a whole list, page by page. There are no partial lists: if one page fails, the call fails.
    ///
    /// # Errors
    /// Of any kind; [`ErrorKind::Transient`] when the pages lead to another host or in a circle, or there are more than
    /// [`MAX_PAGES`](crate::MAX_PAGES) of them.
    pub async fn list<T: DeserializeOwned>(&self, request: Request) -> Result<Vec<T>> {
        let mut pager = Pager::new(self.clone(), self.begin(request.method(Method::GET)));
        let mut items = Vec::new();
        while let Some(page) = pager.next().await? {
            items.extend(page);
        }
        Ok(items)
    }

    /// Reads a list as a stream of its pages, for lists that are better not held as a whole. Whoever reads it may take any
    /// time: the [call timeout](ArmClientBuilder::call_timeout) is for each page.
    ///
    /// The stream's errors are those of [`ArmClient::list`].
    pub fn pages<T: DeserializeOwned + Send + 'static>(&self, request: Request) -> Pages<T> {
        Pages::new(Pager::new(self.clone(), request.method(Method::GET)))
    }

    /// Follows an operation that an earlier call could not follow to its end ([`Error::operation`]), and returns the body of
    /// the answer that holds its result: the resource after a PUT or PATCH, perhaps nothing after others.
    ///
    /// # Errors
    /// Of any kind; [`ErrorKind::Invalid`] when the operation is not one of this client's endpoint.
    pub async fn resume(&self, call: &CallContext, operation: &SavedOperation) -> Result<Vec<u8>> {
        let Inner { endpoint, schedule, wall_clock, .. } = &*self.0;
        let (polling, resource) = operation.restore(endpoint, *schedule)?;
        let request = self.begin(Request::new(resource.path(), "", call).method(polling.method().clone()));
        let answer = self
            .poll(&request, polling.url())
            .await
            .map_err(|error| error.with_operation(operation.clone()))?;
        let step = polling.handle_answer(&answer, wall_clock());
        self.follow(&request, &resource, step, answer).await.map(Response::into_body)
    }

    /// `request` as that of a call whose time runs from now on.
    fn begin(&self, request: Request) -> Request {
        request.until(Deadline::after(self.0.call_timeout))
    }

    /// Sends `http`, a read that is a part of the call `request`, and decodes its answer.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        request: &Request,
        http: http::Request<Vec<u8>>,
    ) -> Result<(T, Response<Vec<u8>>)> {
        let answer = self.send(request, http).await?;
        Ok((decode(request, &answer)?, answer))
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
        let followed = Deadline::after(*operation_timeout);
        let mut operation = None;
        loop {
            step = match step {
                Step::Done => return Ok(answer),
                Step::GetResource => return self.read_back(request, resource).await,
                Step::Failed(error) => return Err(error.with_call(request)),
                Step::Lost(error) => return Err(resumable(error, operation).with_call(request)),
                Step::Poll(polling) => {
                    let saved = polling.save(resource);
                    let late = [
                        (followed, format!("it still runs after {operation_timeout:?}")),
                        (request.deadline(), "it still runs, and the call's time is up".to_owned()),
                    ];
                    let late = late.into_iter().find(|(deadline, _)| polling.wait() > deadline.left());
                    if let Some((_, message)) = late {
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
        self.exchange(poll, true, request.deadline()).await.0.map_err(lost)
    }

    /// Reads what a finished write has made of its resource.
    async fn read_back(&self, request: &Request, resource: &Url) -> Result<Response<Vec<u8>>> {
        let read = async {
            let read = http_request(Method::GET, resource, request.context(), Vec::new())?;
            let answer = self.exchange(read, true, request.deadline()).await.0?;
            self.success(&Method::GET, answer)
        };
        read.await.map_err(|cause| {
            Error::new(ErrorKind::Unknown, "it is done, but the result could not be read")
                .with_call(request)
                .with_source(cause)
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
