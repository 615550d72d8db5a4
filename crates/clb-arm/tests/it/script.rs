//! A transport that plays a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clb_arm::http::{Request, Response};
use clb_arm::{
    Anonymous, ArmClient, ArmClientBuilder, CallContext, Cloud, Endpoint, Transport, TransportError,
};
use tokio::time::Instant;

/// Answers requests in order, and remembers each as `METHOD path?query` with the second it came at.
#[derive(Clone, Debug)]
pub(crate) struct Script(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    answers: VecDeque<Result<Response<Vec<u8>>, TransportError>>,
    started: Instant,
    sent: Vec<(u64, String)>,
    authorizations: Vec<String>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Result<Response<Vec<u8>>, TransportError>>) -> Self {
        let answers = answers.into_iter().collect();
        Self(Arc::new(Mutex::new(State {
            answers,
            started: Instant::now(),
            sent: Vec::new(),
            authorizations: Vec::new(),
        })))
    }

    pub(crate) fn builder(&self) -> ArmClientBuilder {
        ArmClient::builder(Endpoint::new(&Cloud::Public).unwrap(), Anonymous, self.clone())
    }

    pub(crate) fn client(&self) -> ArmClient {
        self.builder().build()
    }

    /// The `Authorization` of each request that had one.
    pub(crate) fn authorizations(&self) -> Vec<String> {
        self.0.lock().unwrap().authorizations.clone()
    }

    /// What was sent. The script must have been played to its end.
    pub(crate) fn sent(&self) -> Vec<(u64, String)> {
        let state = self.0.lock().unwrap();
        assert_eq!(state.answers.len(), 0, "answers are left over");
        state.sent.clone()
    }
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, TransportError> {
        assert_eq!(request.uri().host(), Some("management.azure.com"));
        assert_eq!(request.headers()["x-ms-client-request-id"], "call-1");
        let mut state = self.0.lock().unwrap();
        let second = state.started.elapsed().as_secs();
        let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
        state.sent.push((second, line));
        let authorization = request.headers().get("authorization");
        state.authorizations.extend(authorization.map(|it| it.to_str().unwrap().to_owned()));
        state.answers.pop_front().expect("an unexpected request")
    }
}

pub(crate) fn context() -> CallContext {
    CallContext::new("call-1").unwrap()
}

#[allow(clippy::unnecessary_wraps, reason = "it is what a script is made of")]
pub(crate) fn answer(
    status: u16,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Response<Vec<u8>>, TransportError> {
    let mut answer = Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    Ok(answer.body(body.as_bytes().to_vec()).unwrap())
}

pub(crate) fn sent(lines: &[(u64, &str)]) -> Vec<(u64, String)> {
    lines.iter().map(|&(second, line)| (second, line.to_owned())).collect()
}
