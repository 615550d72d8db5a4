//! A call has so much time and no more, with the clock paused.

use std::time::Duration;

use async_trait::async_trait;
use clb_arm::http::{Request as HttpRequest, Response};
use clb_arm::{
    Anonymous, ArmClient, ArmClientBuilder, Cloud, Credential, CredentialError, Endpoint, Error, ErrorKind,
    Limiter, Request, RetryPolicy, Token, Transport, TransportError,
};
use futures::StreamExt;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::script::{Script, answer, context, sent};

const RESOURCE: &str = "/subscriptions/s/r";
const OPERATION: (&str, &str) = ("azure-asyncoperation", "https://management.azure.com/operations/1");

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A request of a call that has ten seconds.
fn request() -> Request {
    Request::new(RESOURCE, "v", &context().with_timeout(seconds(10)))
}

/// Attempts at any time, as soon as the server allows.
fn policy() -> RetryPolicy {
    RetryPolicy { attempts: 100, first: Duration::ZERO, max: Duration::ZERO, budget: seconds(3600) }
}

/// Never answers.
#[derive(Clone, Copy, Debug)]
struct Silence;

#[async_trait]
impl Transport for Silence {
    async fn send(&self, _: HttpRequest<Vec<u8>>) -> Result<Response<Vec<u8>>, TransportError> {
        std::future::pending().await
    }
}

#[async_trait]
impl Credential for Silence {
    async fn token(&self, _: &str) -> Result<Option<Token>, CredentialError> {
        std::future::pending().await
    }
}

fn silent() -> ArmClientBuilder {
    ArmClient::builder(Endpoint::new(&Cloud::Public).unwrap(), Anonymous, Silence)
}

fn outcome<T>(result: Result<T, Error>) -> (ErrorKind, bool) {
    let error = result.err().expect("the time is too short");
    (error.kind(), error.may_have_been_applied())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_ends_the_call_on_time_and_a_write_in_doubt() {
    let client = silent().retry_policy(policy()).build();
    let started = Instant::now();
    assert_eq!(outcome(client.get::<Value>(request()).await), (ErrorKind::Transient, false));
    assert_eq!(started.elapsed(), seconds(10));
    assert_eq!(outcome(client.put::<Value>(request(), Vec::new()).await), (ErrorKind::Unknown, true));
    assert_eq!(started.elapsed(), seconds(20));
}

#[tokio::test(start_paused = true)]
async fn the_clients_own_limit_is_the_most_that_a_call_has() {
    let client = silent().call_timeout(seconds(7)).build();
    let started = Instant::now();
    outcome(client.get::<Value>(request()).await);
    assert_eq!(started.elapsed(), seconds(7));
    outcome(client.get::<Value>(Request::new(RESOURCE, "v", &context())).await);
    assert_eq!(started.elapsed(), seconds(14));
    outcome(client.get::<Value>(Request::new(RESOURCE, "v", &context().with_timeout(seconds(2)))).await);
    assert_eq!(started.elapsed(), seconds(16));
}

#[tokio::test(start_paused = true)]
async fn attempts_share_the_calls_time_and_no_wait_is_begun_that_would_outlast_it() {
    let wait = || answer(503, &[("retry-after", "4")], "");
    let script = Script::new([wait(), wait(), wait()]);
    let client = script.builder().retry_policy(policy()).build();
    assert_eq!(outcome(client.get::<Value>(request()).await), (ErrorKind::Transient, false));
    let at = "GET /subscriptions/s/r?api-version=v";
    assert_eq!(script.sent(), sent(&[(0, at), (4, at), (8, at)]));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_outlasts_the_call_can_be_taken_up_by_another() {
    let running = || answer(200, &[("retry-after", "4")], r#"{"status":"InProgress"}"#);
    let script = Script::new([
        answer(202, &[OPERATION, ("retry-after", "4")], ""),
        running(),
        running(),
        answer(200, &[], r#"{"status":"Succeeded"}"#),
    ]);
    let client = script.client();
    let error = client.delete(request()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Unknown, "it still runs, and the call's time is up")
    );
    client.resume(&context(), error.operation().unwrap()).await.unwrap();
    let poll = "GET /operations/1";
    let delete = "DELETE /subscriptions/s/r?api-version=v";
    assert_eq!(script.sent(), sent(&[(0, delete), (4, poll), (8, poll), (8, poll)]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_when_there_is_no_time_left() {
    let script = Script::new([]);
    let spent = Request::new(RESOURCE, "v", &context().with_timeout(Duration::ZERO));
    let error = script.client().put::<Value>(spent, Vec::new()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message(), error.may_have_been_applied()),
        (ErrorKind::NotSent, "not sent: the call's time is up", false)
    );
    assert_eq!(script.sent(), []);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_does_not_come_and_a_bucket_that_does_not_open_end_the_call_on_time() {
    let script = Script::new([]);
    let endpoint = Endpoint::new(&Cloud::Public).unwrap();
    let client = ArmClient::builder(endpoint, Silence, script.clone()).build();
    let started = Instant::now();
    assert_eq!(outcome(client.put::<Value>(request(), Vec::new()).await), (ErrorKind::NotSent, false));
    assert_eq!(started.elapsed(), seconds(10));

    let script = Script::new([answer(429, &[("retry-after", "30")], "")]);
    let client = script.builder().retry_policy(policy()).limiter(Limiter::new()).build();
    let throttled = ErrorKind::Throttled { retry_after: Some(seconds(30)) };
    assert_eq!(outcome(client.put::<Value>(request(), Vec::new()).await), (throttled, false));
    assert_eq!(outcome(client.put::<Value>(request(), Vec::new()).await), (ErrorKind::NotSent, false));
    assert_eq!((started.elapsed(), script.sent().len()), (seconds(20), 1));
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_list_share_the_calls_time_and_those_of_a_stream_only_if_it_was_limited() {
    let first = || answer(200, &[], r#"{"value":[1],"nextLink":"/list?t=1"}"#);
    let script = Script::new([first(), answer(200, &[], r#"{"value":[2]}"#), first()]);
    let client = script.builder().call_timeout(seconds(10)).build();
    let read = async |request: Request| {
        let mut pages = client.pages::<u8>(request);
        assert_eq!(pages.next().await.unwrap().unwrap(), [1]);
        sleep(seconds(60)).await;
        pages.collect::<Vec<_>>().await
    };
    let pages = read(Request::new(RESOURCE, "v", &context())).await;
    assert_eq!(pages.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [[2]]);
    let pages = read(request()).await;
    assert_eq!(pages.into_iter().map(outcome).collect::<Vec<_>>(), [(ErrorKind::NotSent, false)]);
    assert_eq!(script.sent().len(), 3);
}
