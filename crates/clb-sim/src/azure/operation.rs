//! Long-running operations.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Method, Refusal, Request, Response};
use super::path::{Provider, Scope, parse};
use super::state::{Azure, Completion};

/// The region whose operations they are said to be; it means nothing.
const REGION: &str = "eastus";

/// How a write is answered that becomes a long-running operation, and how the operation goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationShape {
    /// No operation at all: the answer of something done, without any header.
    Plain,
    /// A PUT keeps its answer, with `Updating` in it, and anything else is 202; `Azure-AsyncOperation` names the operation,
    /// and `Location` too unless it is a PUT. It runs for so many polls, and then has succeeded.
    Polled(u32),
    /// 202 with `Location` only, whose polls are 202 so many times, and then 204.
    LocationOnly(u32),
    /// As `Polled(1)`, but the write has no effect, and the operation ends as `Failed` with this code in a 200.
    Failed(String),
    /// As `Failed`, but ends as `Canceled`.
    Canceled,
    /// As `Polled`, and takes effect, but every poll is 404.
    Lost,
    /// As `Polled`, and takes effect, but never ends.
    Stuck,
}

/// The operations that do not simply have succeeded, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Operations(BTreeMap<u64, Running>);

#[derive(Clone, Debug)]
struct Running {
    /// When it began, and until when it runs at least.
    started: Duration,
    until: Duration,
    /// How many more polls then find it running; `None` if all do.
    polls: Option<u32>,
    end: End,
}

#[derive(Clone, Debug)]
enum End {
    Succeeded,
    Failed(String),
    Canceled,
    Lost,
}

/// The paths of an operation.
pub(super) struct OperationPaths {
    /// For `Azure-AsyncOperation`: polled for a status.
    pub(super) status: String,
    /// For `Location`: polled for 202 or an end.
    pub(super) result: String,
}

/// How an operation is when it is asked for.
enum State {
    Running,
    Ended(End),
}

impl Azure {
    /// Answers one request; if it is a write that is taken, in this shape rather than in the configured one.
    pub fn handle_as(&mut self, request: &Request, shape: &OperationShape) -> Response {
        let before = match shape {
            OperationShape::Failed(_) | OperationShape::Canceled => Some(self.clone()),
            OperationShape::Plain
            | OperationShape::Polled(_)
            | OperationShape::LocationOnly(_)
            | OperationShape::Lost
            | OperationShape::Stuck => None,
        };
        let mut response = self.handle(request);
        if request.method == Method::Get || response.status >= 300 {
            return response;
        }
        if let Some(before) = before {
            // Numbers are never given twice.
            let counter = self.counter;
            *self = before;
            self.counter = counter;
        }
        response.headers.clear();
        let now = self.now;
        let running = |polls, end| Some(Running { started: now, until: now, polls, end });
        let running = match shape {
            OperationShape::Plain => None,
            OperationShape::Polled(polls) | OperationShape::LocationOnly(polls) => {
                running(Some(*polls), End::Succeeded)
            }
            OperationShape::Failed(code) => running(Some(1), End::Failed(code.clone())),
            OperationShape::Canceled => running(Some(1), End::Canceled),
            OperationShape::Lost => running(Some(0), End::Lost),
            OperationShape::Stuck => running(None, End::Succeeded),
        };
        let has_state = |body: &Value| body.pointer("/properties/provisioningState").is_some();
        let Some(running) = running else {
            if has_state(&response.body) {
                response.body["properties"]["provisioningState"] = json!("Succeeded");
            }
            return response;
        };
        let paths = self.operation(request);
        self.operations.0.insert(self.counter, running);
        if matches!(shape, OperationShape::LocationOnly(_)) {
            return Response::new(202, Value::Null).with_header("location", paths.result);
        }
        if request.method == Method::Put {
            if has_state(&response.body) {
                response.body["properties"]["provisioningState"] = json!("Updating");
            }
            return response.with_header("azure-asyncoperation", paths.status);
        }
        Response::new(202, Value::Null)
            .with_header("azure-asyncoperation", paths.status)
            .with_header("location", paths.result)
    }

    /// A new operation for a request, which has ended.
    pub(super) fn operation(&mut self, request: &Request) -> OperationPaths {
        self.counter += 1;
        let number = self.counter;
        let provider = parse(&request.path).map_or(Provider::Network, |target| target.provider());
        let namespace = provider.namespace();
        let subscription = Scope::of(&request.path).subscription;
        let version = request.parameter("api-version").unwrap_or_default();
        let path = |kind: &str, parameters: &str| {
            format!(
                "/subscriptions/{subscription}/providers/{namespace}/locations/{REGION}/{kind}/{number}?api-version={version}{parameters}"
            )
        };
        let result = match provider {
            Provider::Network => path("operationResults", ""),
            Provider::Compute => path("operations", "&monitor=true"),
        };
        OperationPaths { status: path("operations", ""), result }
    }

    /// A new operation that runs until then, and if operations are to be polled is still running when it is first asked
    /// for.
    pub(super) fn operation_until(&mut self, request: &Request, until: Duration) -> OperationPaths {
        let operation = self.operation(request);
        let polls = match self.config.completion {
            Completion::Immediate | Completion::Recorded => 0,
            Completion::Polled => 1,
        };
        let running = Running { started: self.now, until, polls: Some(polls), end: End::Succeeded };
        self.operations.0.insert(self.counter, running);
        operation
    }

    pub(super) fn poll_status(&mut self, provider: Provider, id: &str) -> Result<Response, Refusal> {
        let (started, ended, state) = self.poll(id)?;
        let mut body = match state {
            State::Running => json!({"status": "InProgress"}),
            State::Ended(End::Succeeded) => json!({"status": "Succeeded"}),
            State::Ended(End::Failed(code)) => {
                json!({"status": "Failed", "error": {"code": code, "message": "The operation failed.", "details": []}})
            }
            State::Ended(End::Canceled) => {
                let error = json!({"code": "Canceled", "message": "Operation was canceled.", "details": []});
                json!({"status": "Canceled", "error": error})
            }
            State::Ended(End::Lost) => return Err(operation_not_found(id)),
        };
        if provider == Provider::Compute {
            body["startTime"] = json!(self.timestamp(started));
            body["name"] = json!(id);
            if body["status"] != "InProgress" {
                body["endTime"] = json!(self.timestamp(ended));
            }
        }
        Ok(Response::new(200, body).with_header("retry-after", "1"))
    }

    pub(super) fn poll_result(&mut self, id: &str) -> Result<Response, Refusal> {
        match self.poll(id)?.2 {
            State::Running => Ok(Response::new(202, Value::Null).with_header("retry-after", "1")),
            State::Ended(End::Succeeded) => Ok(Response::new(204, Value::Null)),
            State::Ended(End::Failed(code)) => Ok(Response::new(
                400,
                json!({"error": {"code": code, "message": "The operation failed.", "details": []}}),
            )),
            State::Ended(End::Canceled) => Err(Refusal::new(409, "Canceled", "Operation was canceled.")),
            State::Ended(End::Lost) => Err(operation_not_found(id)),
        }
    }

    /// When an operation began, when it ended if it has, and how it is.
    fn poll(&mut self, id: &str) -> Result<(Duration, Duration, State), Refusal> {
        let number = id.parse().ok().filter(|number| (1..=self.counter).contains(number));
        let number: u64 = number.ok_or_else(|| operation_not_found(id))?;
        let Some(running) = self.operations.0.get_mut(&number) else {
            return Ok((self.now, self.now, State::Ended(End::Succeeded)));
        };
        let state = match &mut running.polls {
            _ if self.now < running.until => State::Running,
            None => State::Running,
            Some(0) => State::Ended(running.end.clone()),
            Some(polls) => {
                *polls -= 1;
                State::Running
            }
        };
        Ok((running.started, running.until, state))
    }
}

fn operation_not_found(id: &str) -> Refusal {
    Refusal::new(404, "OperationNotFound", format!("no operation {id}"))
}
