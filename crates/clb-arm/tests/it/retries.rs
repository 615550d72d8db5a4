//! What is repeated, when, and what the caller hears of it, with the clock paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use clb_arm::{
    ArmClient, Cloud, Credential, CredentialError, Endpoint, ErrorKind, Limiter, Request, RetryPolicy, Token,
    TransportError,
};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::script::{Script, answer, context, sent};

const RESOURCE: &str = "/subscriptions/s/r";

fn request() -> Request {
    Request::new(RESOURCE, "v", &context())
}

/// No waits but those that the server asks for, so that times can be told exactly.
fn policy() -> RetryPolicy {
    RetryPolicy { first: Duration::ZERO, max: Duration::ZERO, ..RetryPolicy::default() }
}

fn client(script: &Script) -> ArmClient {
    script.builder().retry_policy(policy()).build()
}

fn cut<T>() -> Result<T, TransportError> {
    Err(TransportError::MaybeSent("cut".into()))
}

fn refused<T>() -> Result<T, TransportError> {
    Err(TransportError::NotSent("refused".into()))
}

#[tokio::test(start_paused = true)]
async fn nothing_is_repeated_unless_that_is_asked_for() {
    let script = Script::new([answer(503, &[("retry-after", "1")], "")]);
    let error = script.client().get::<Value>(request()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Transient, Some(Duration::from_secs(1))));
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reads_puts_and_deletions_are_repeated_whatever_became_of_them() {
    let script = Script::new([cut(), answer(500, &[], ""), refused(), answer(200, &[], "1")]);
    assert_eq!(client(&script).get::<Value>(request()).await.unwrap(), 1);
    assert_eq!(script.sent().len(), 4);

    let script = Script::new([cut(), answer(502, &[], "<html>"), refused(), answer(200, &[], "1")]);
    assert_eq!(client(&script).put::<Value>(request(), b"{}".to_vec()).await.unwrap(), 1);
    assert_eq!(script.sent().len(), 4);

    // The first one did it; that it is not there any more is what was wanted.
    let script = Script::new([cut(), answer(404, &[], "")]);
    client(&script).delete(request()).await.unwrap();
    assert_eq!(script.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_the_same_twice_is_repeated_only_if_it_did_nothing() {
    for lost in [cut(), answer(500, &[], ""), answer(408, &[], "")] {
        let script = Script::new([refused(), answer(429, &[("retry-after", "2")], ""), lost]);
        let error = client(&script).post_action(request(), b"{}".to_vec()).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::Unknown, true));
        let at = "POST /subscriptions/s/r?api-version=v";
        assert_eq!(script.sent(), sent(&[(0, at), (0, at), (2, at)]));
    }
    let conditional = request().if_match("W/1").unwrap();
    let script = Script::new([cut()]);
    let error = client(&script).put::<Value>(conditional, b"{}".to_vec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_attempt_in_doubt_is_in_doubt() {
    let script = Script::new([cut(), answer(400, &[], r#"{"error":{"code":"InvalidRequestFormat"}}"#)]);
    let error = client(&script).put::<Value>(request(), b"{}".to_vec()).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::Invalid, true));

    let script = Script::new([refused(), answer(400, &[], r#"{"error":{"code":"InvalidRequestFormat"}}"#)]);
    let error = client(&script).put::<Value>(request(), b"{}".to_vec()).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::Invalid, false));
}

#[tokio::test(start_paused = true)]
async fn the_server_names_the_wait_in_seconds_or_as_a_date() {
    let script = Script::new([
        answer(429, &[("retry-after", "7")], ""),
        answer(503, &[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], ""),
        answer(409, &[("retry-after-ms", "2000")], r#"{"error":{"code":"AnotherOperationInProgress"}}"#),
        answer(200, &[], "1"),
    ]);
    // Sun, 06 Nov 1994 08:49:37 GMT
    let now = || SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let client = script.builder().retry_policy(policy()).wall_clock(now).build();
    client.get::<Value>(request()).await.unwrap();
    let at = "GET /subscriptions/s/r?api-version=v";
    assert_eq!(script.sent(), sent(&[(0, at), (7, at), (37, at), (39, at)]));
}

#[tokio::test(start_paused = true)]
async fn attempts_and_time_are_limited() {
    let script = Script::new((0..4).map(|_| answer(503, &[], "")));
    let error = client(&script).get::<Value>(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert_eq!(script.sent().len(), 4);

    // A day is not waited for, nor even begun to be.
    let started = Instant::now();
    let script = Script::new([answer(429, &[("retry-after", "86400")], "")]);
    let error = client(&script).get::<Value>(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled { retry_after: Some(Duration::from_secs(86400)) });
    assert_eq!((script.sent().len(), started.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_caller_has_gone() {
    let script = Script::new([answer(429, &[("retry-after", "60")], "")]);
    let client = client(&script);
    timeout(Duration::from_secs(59), client.get::<Value>(request())).await.unwrap_err();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn polls_are_repeated_like_any_read() {
    let operation = ("azure-asyncoperation", "https://management.azure.com/operations/1");
    let script = Script::new([
        answer(202, &[operation], ""),
        cut(),
        answer(500, &[], ""),
        answer(200, &[], r#"{"status":"Succeeded"}"#),
    ]);
    client(&script).delete(request()).await.unwrap();
    assert_eq!(script.sent().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_429_closes_the_door_for_everybody_who_shares_the_limiter() {
    let limiter = Limiter::new();
    let script = Script::new([
        answer(429, &[("retry-after", "50")], ""),
        answer(200, &[], "1"),
        answer(200, &[], "2"),
    ]);
    let patient = script.builder().retry_policy(policy()).limiter(limiter.clone()).build();
    let other = script.builder().limiter(limiter).build();
    let first = tokio::spawn({
        let patient = patient.clone();
        async move { patient.put::<Value>(request(), Vec::new()).await.unwrap() }
    });
    tokio::task::yield_now().await;
    // Reads draw on another budget.
    assert_eq!(other.get::<Value>(request()).await.unwrap(), 1);
    // A client that does not wait is told how long it would have been, and sends nothing.
    let error = other.put::<Value>(request(), Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled { retry_after: Some(Duration::from_secs(50)) });
    assert!(!error.may_have_been_applied());
    assert_eq!(first.await.unwrap(), 2);
    let at = |method: &str| format!("{method} /subscriptions/s/r?api-version=v");
    assert_eq!(script.sent(), [(0, at("PUT")), (0, at("GET")), (50, at("PUT"))]);
}

/// Hands out the tokens `1`, `2`, … and goes on to the next one when one is rejected.
#[derive(Clone, Debug, Default)]
struct Numbered(Arc<AtomicU32>);

#[async_trait]
impl Credential for Numbered {
    async fn token(&self, _: &str) -> Result<Option<Token>, CredentialError> {
        Ok(Some(Token::new(&self.0.load(Ordering::Relaxed).to_string())?))
    }

    fn reject(&self, _: &str, _: &Token) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_accepted_is_replaced_once() {
    for (answers, tokens, fine) in [
        (vec![answer(401, &[], ""), answer(200, &[], "1")], vec!["Bearer 0", "Bearer 1"], true),
        (vec![answer(401, &[], ""), answer(401, &[], "")], vec!["Bearer 0", "Bearer 1"], false),
    ] {
        let script = Script::new(answers);
        let client =
            ArmClient::builder(Endpoint::new(&Cloud::Public).unwrap(), Numbered::default(), script.clone())
                .build();
        let result = client.post_action(request(), Vec::new()).await;
        assert_eq!(
            result.as_ref().err().map(|error| error.kind()),
            (!fine).then_some(ErrorKind::Unauthorized)
        );
        assert_eq!(script.authorizations(), tokens);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_operation_can_be_taken_up_again() {
    let operation = ("azure-asyncoperation", "https://management.azure.com/operations/1?s=SECRET");
    let done = r#"{"properties":{"provisioningState":"Succeeded"}}"#;
    let script = Script::new([
        answer(201, &[operation], r#"{"properties":{"provisioningState":"Updating"}}"#),
        answer(404, &[], ""),
        cut(),
        answer(200, &[], r#"{"status":"InProgress"}"#),
        answer(200, &[], r#"{"status":"Succeeded"}"#),
        answer(200, &[], done),
    ]);
    let client = script.client();
    let error = client.put::<Value>(request(), Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    let saved = error.operation().unwrap();
    assert!(!format!("{saved:?} {error:?}").contains("SECRET"));
    // In another process, perhaps.
    let saved = serde_json::from_str(&serde_json::to_string(saved).unwrap()).unwrap();
    let error = client.resume(&context(), &saved).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unknown, Some(&saved)));
    assert_eq!(client.resume(&context(), &saved).await.unwrap(), done.as_bytes());
    let poll = "GET /operations/1?s=SECRET";
    assert_eq!(
        script.sent(),
        sent(&[
            (0, "PUT /subscriptions/s/r?api-version=v"),
            (1, poll),
            (1, poll),
            (1, poll),
            (2, poll),
            (2, "GET /subscriptions/s/r?api-version=v")
        ])
    );
}

#[tokio::test]
async fn an_operation_of_another_endpoint_is_not_followed() {
    let saved = r#"{"method":"PUT","resource":"https://evil.example/r","url":"https://evil.example/o","source":"status"}"#;
    let script = Script::new([]);
    let error = script.client().resume(&context(), &serde_json::from_str(saved).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(script.sent(), []);
}
