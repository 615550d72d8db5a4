//! # How long-running operations are resolved
//!
//! A machine without I/O and without a clock. A write's first answer is handed to [`Step::first`]. While the operation runs,
//! the step is [`Step::Poll`]: wait, GET the URL, hand the answer back, and look at the next step. Success is concluded from a
//! status that says so, failure from one that says that, and everything else is [`Step::Lost`]: the operation may have been, or
//! may still be, applied.
//!
//! | first answer | then |
//! | --- | --- |
//! | any 2xx whose body names an `error`, or whose `status` is `Failed` or `Canceled` | failed |
//! | PUT or PATCH, `provisioningState: Succeeded`, no header | done, the body is the result |
//! | PUT or PATCH, `provisioningState: Succeeded`, with a header | nothing is polled; the resource is read |
//! | PUT or PATCH, anything else, with a header | polled, then the resource is read |
//! | PUT or PATCH, another `provisioningState`, no header | the resource is read until it says how it ended |
//! | PUT or PATCH, no `provisioningState`, no header | done if it is 200 or 201 |
//! | DELETE 200 or 202 with a header | polled |
//! | DELETE 200 without a header, or 204 | done |
//! | POST 200 or 204, whatever its headers | done |
//! | POST 202 with a header | polled |
//! | 202 without a header, a header that leads to another host | lost |
//!
//! The header is `Azure-AsyncOperation`, a document with a `status`, or else `Location`, which answers 202 until it has the
//! result. Between polls passes what `Retry-After` says, at most a minute, or else the [`PollSchedule`]. A 429 to a poll is a
//! wait; any other failed poll leaves the operation lost, not failed. A lost or slow operation can be taken up again:
//! [`Error::operation`] has it as a [`SavedOperation`], and [`ArmClient::resume`](crate::ArmClient::resume) follows it.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::error_body::{ErrorBody, field};
use crate::{Endpoint, Error, ErrorKind, retry_after};

/// How long to wait between two polls of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollSchedule {
    /// The first wait if the server does not name one; each further one is twice as long. Also the shortest wait,
    /// whatever the server says.
    pub first: Duration,
    /// The longest wait if the server does not name one.
    pub max: Duration,
}

impl Default for PollSchedule {
    /// 1 s doubling to 30 s: creating a public IP or a load balancer takes a few seconds, a NAT gateway a minute.
    fn default() -> Self {
        Self { first: Duration::from_secs(1), max: Duration::from_secs(30) }
    }
}

/// The longest wait between polls that a server can ask for. Asking a status sooner than wished is harmless; not
/// noticing for a day that an operation ended is not.
const MAX_HINT: Duration = Duration::from_secs(60);

/// What to do after an answer.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// It is done, and the answer that was just handed in holds the result, if any.
    Done,
    /// It is done; a GET of the resource reads the result.
    GetResource,
    /// It is running.
    Poll(Box<Polling>),
    /// It ended without success. The error lacks the call.
    Failed(Error),
    /// Nobody knows how it will end. The error lacks the call and is of kind [`ErrorKind::Unknown`].
    Lost(Error),
}

/// A running operation. The URL in it is signed, so `Debug` prints it without its query.
pub struct Polling {
    url: Url,
    source: Source,
    wait: Duration,
    method: Method,
    endpoint: Endpoint,
    schedule: PollSchedule,
    polls: u32,
}

/// What a poll reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Source {
    /// The operation's status document (`Azure-AsyncOperation`).
    Status,
    /// The operation's result, once there is one (`Location`).
    Result,
    /// The resource itself, since the answer said "not yet" and named nothing else to poll.
    Resource,
}

impl Step {
    /// What follows from the first, successful (2xx) answer to a `method` request for `resource`.
    ///
    /// `endpoint` is the only place that polls may go to, `now` the wall-clock time for `Retry-After` dates.
    pub fn first(
        method: &Method,
        resource: &Url,
        answer: &Response<Vec<u8>>,
        endpoint: &Endpoint,
        schedule: PollSchedule,
        now: SystemTime,
    ) -> Self {
        let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
        if let Some(failed) = failure(&body, answer) {
            return Self::Failed(failed);
        }
        let target = target(answer.headers(), endpoint);
        let poll = |url, source| {
            let (method, endpoint) = (method.clone(), endpoint.clone());
            let polling = Polling { url, source, wait: Duration::ZERO, method, endpoint, schedule, polls: 0 };
            Self::Poll(Box::new(polling.scheduled(answer.headers(), now)))
        };
        let status = answer.status();
        // A final answer is final wherever its headers point to; they matter only where something is left to poll.
        if *method == Method::POST {
            return match (status, target) {
                // NRP stamps the headers of a long-running operation on answers that are final.
                (StatusCode::OK | StatusCode::NO_CONTENT, _) => Self::Done,
                (StatusCode::ACCEPTED, Ok(Some((url, source)))) => poll(url, source),
                (StatusCode::ACCEPTED, Err(Foreign)) => lost(FOREIGN, answer),
                _ => lost(NOWHERE, answer),
            };
        }
        if *method == Method::DELETE {
            return match (status, target) {
                (StatusCode::NO_CONTENT, _) | (StatusCode::OK, Ok(None)) => Self::Done,
                (StatusCode::OK | StatusCode::ACCEPTED, Ok(Some((url, source)))) => poll(url, source),
                (StatusCode::OK | StatusCode::ACCEPTED, Err(Foreign)) => lost(FOREIGN, answer),
                _ => lost(NOWHERE, answer),
            };
        }
        match (Provisioning::of(&body), target) {
            (Provisioning::Succeeded, Ok(None)) => Self::Done,
            (Provisioning::Succeeded, Ok(Some(_)) | Err(Foreign)) => Self::GetResource,
            (_, Ok(Some((url, source)))) => poll(url, source),
            (_, Err(Foreign)) => lost(FOREIGN, answer),
            (Provisioning::Failed(error), Ok(None)) => Self::Failed(error.with_answer(answer)),
            (Provisioning::Running, Ok(None)) => poll(resource.clone(), Source::Resource),
            (Provisioning::Unsaid, Ok(None)) if status == StatusCode::ACCEPTED => lost(NOWHERE, answer),
            (Provisioning::Unsaid, Ok(None)) if body.is_null() => Self::GetResource,
            (Provisioning::Unsaid, Ok(None)) => Self::Done,
        }
    }
}

impl Polling {
    /// What to GET next.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The method of the request that began the operation.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// How long to wait before that.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// What follows from the answer, of any status, to a poll; `now` is as in [`Step::first`].
    pub fn handle_answer(mut self, answer: &Response<Vec<u8>>, now: SystemTime) -> Step {
        match answer.status() {
            // The operation goes on; only the asking was too fast.
            StatusCode::TOO_MANY_REQUESTS => {
                return Step::Poll(Box::new(self.scheduled(answer.headers(), now)));
            }
            status if !status.is_success() => {
                let cause = Error::from_answer(&Method::GET, answer, now);
                return Step::Lost(
                    Error::new(ErrorKind::Unknown, "a poll failed").with_answer(answer).with_source(cause),
                );
            }
            _ => {}
        }
        let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
        if let Some(failed) = failure(&body, answer) {
            return Step::Failed(failed);
        }
        let ended = if self.method == Method::DELETE || self.method == Method::POST {
            Step::Done
        } else {
            Step::GetResource
        };
        let pending = answer.status() == StatusCode::ACCEPTED;
        match self.source {
            Source::Status => match status(&body) {
                Some(status) if is_success(status) => return ended,
                Some(_) => {}
                None if pending => {}
                None => return lost("the operation's status document holds no status", answer),
            },
            Source::Result => match status(&body) {
                Some(status) if is_success(status) => return ended,
                Some(_) => {}
                None if pending => {}
                None => return ended,
            },
            Source::Resource => match Provisioning::of(&body) {
                Provisioning::Succeeded => return Step::Done,
                Provisioning::Failed(error) => return Step::Failed(error.with_answer(answer)),
                Provisioning::Running => {}
                Provisioning::Unsaid => return lost("the resource no longer says how far it is", answer),
            },
        }
        match target(answer.headers(), &self.endpoint) {
            // An operation may move; the header that was followed first stays the one that is followed.
            Ok(Some((url, source))) if source == self.source => self.url = url,
            Ok(_) => {}
            Err(Foreign) => return lost(FOREIGN, answer),
        }
        Step::Poll(Box::new(self.scheduled(answer.headers(), now)))
    }

    fn scheduled(mut self, headers: &HeaderMap, now: SystemTime) -> Self {
        let PollSchedule { first, max } = self.schedule;
        let backoff = || first.saturating_mul(2_u32.saturating_pow(self.polls)).min(max);
        let wait = retry_after(headers, now).map(|hint| hint.min(MAX_HINT)).unwrap_or_else(backoff);
        self.wait = wait.max(first);
        self.polls = self.polls.saturating_add(1);
        self
    }
}

impl fmt::Debug for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polling")
            .field("method", &self.method)
            .field("path", &self.url.path())
            .field("source", &self.source)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// A link that leads away from the endpoint.
struct Foreign;

/// What the headers say to poll. `Azure-AsyncOperation` is the better one: it has a status.
fn target(headers: &HeaderMap, endpoint: &Endpoint) -> Result<Option<(Url, Source)>, Foreign> {
    for (name, source) in [("azure-asyncoperation", Source::Status), ("location", Source::Result)] {
        if let Some(link) = headers.get(name) {
            let url = link.to_str().ok().and_then(|link| endpoint.follow(link)).ok_or(Foreign)?;
            return Ok(Some((url, source)));
        }
    }
    Ok(None)
}

/// The failure that a body tells of, whatever the status it came with.
fn failure(body: &Value, answer: &Response<Vec<u8>>) -> Option<Error> {
    let failed = status(body).is_some_and(is_failure);
    if !failed && field(body, "error").is_none() {
        return None;
    }
    let mut said =
        field(body, "error").map(|_| ErrorBody::from_json(body).unwrap_or_default()).unwrap_or_default();
    if said.codes.is_empty() {
        // A cancelled operation often says nothing else.
        said.codes.extend(status(body).map(str::to_owned));
    }
    Some(Error::operation_failed(said).with_answer(answer))
}

fn status(body: &Value) -> Option<&str> {
    field(body, "status").and_then(Value::as_str)
}

fn is_success(status: &str) -> bool {
    // `OK` is how newer API versions of the ServiceGateway end an action.
    ["Succeeded", "OK"].iter().any(|word| status.eq_ignore_ascii_case(word))
}

fn is_failure(status: &str) -> bool {
    ["Failed", "Canceled", "Cancelled"].iter().any(|word| status.eq_ignore_ascii_case(word))
}

/// What a resource says about its own state.
enum Provisioning {
    Succeeded,
    Failed(Error),
    Running,
    Unsaid,
}

impl Provisioning {
    fn of(resource: &Value) -> Self {
        let state =
            field(resource, "properties").and_then(|properties| field(properties, "provisioningState"));
        match state.and_then(Value::as_str) {
            None => Self::Unsaid,
            Some(state) if is_success(state) => Self::Succeeded,
            Some(state) if is_failure(state) => Self::Failed(Error::operation_failed(ErrorBody::from_text(
                &format!("provisioningState is {state}"),
            ))),
            Some(_) => Self::Running,
        }
    }
}

const FOREIGN: &str = "the URL to poll is on another host";
const NOWHERE: &str = "the answer neither ends the operation nor says where to ask";

fn lost(why: &str, answer: &Response<Vec<u8>>) -> Step {
    Step::Lost(Error::new(ErrorKind::Unknown, why).with_answer(answer))
}

mod saved;

pub use saved::SavedOperation;

#[cfg(test)]
mod tests;
