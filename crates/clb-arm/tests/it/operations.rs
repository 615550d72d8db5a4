//! Long-running operations, with the clock paused.

use std::time::Duration;

use async_trait::async_trait;
use clb_arm::{
    ArmClient, Cloud, Credential, CredentialError, Endpoint, ErrorKind, Request, Token, TransportError,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::script::{Script, answer, context, sent};

const OPERATION: (&str, &str) =
    ("azure-asyncoperation", "https://management.azure.com/operations/1?api-version=v&s=s");
const UPDATING: &str = r#"{"properties":{"provisioningState":"Updating"}}"#;
const SUCCEEDED: &str = r#"{"properties":{"provisioningState":"Succeeded"}}"#;

fn request() -> Request {
    Request::new("/r", "v", &context())
}

#[tokio::test(start_paused = true)]
async fn a_put_is_followed_to_its_end_and_its_result_read() {
    let script = Script::new([
        answer(201, &[OPERATION, ("retry-after", "10")], UPDATING),
        answer(200, &[("retry-after", "3")], r#"{"status":"InProgress"}"#),
        answer(200, &[], r#"{"status":"InProgress"}"#),
        answer(200, &[], r#"{"status":"Succeeded"}"#),
        answer(200, &[], SUCCEEDED),
    ]);
    let result: Value = script.client().put(request(), b"{}".to_vec()).await.unwrap();
    assert_eq!(result, json!({"properties": {"provisioningState": "Succeeded"}}));
    assert_eq!(
        script.sent(),
        sent(&[
            (0, "PUT /r?api-version=v"),
            (10, "GET /operations/1?api-version=v&s=s"),
            (13, "GET /operations/1?api-version=v&s=s"),
            (17, "GET /operations/1?api-version=v&s=s"),
            (17, "GET /r?api-version=v"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_done_at_once_is_read_back_without_a_poll() {
    let script = Script::new([answer(200, &[OPERATION], SUCCEEDED), answer(200, &[], SUCCEEDED)]);
    script.client().put::<Value>(request(), b"{}".to_vec()).await.unwrap();
    assert_eq!(script.sent(), sent(&[(0, "PUT /r?api-version=v"), (0, "GET /r?api-version=v")]));
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_only_says_not_yet_is_read_until_it_is_ready() {
    let script =
        Script::new([answer(201, &[], UPDATING), answer(200, &[], UPDATING), answer(200, &[], SUCCEEDED)]);
    script.client().put::<Value>(request(), b"{}".to_vec()).await.unwrap();
    assert_eq!(
        script.sent(),
        sent(&[(0, "PUT /r?api-version=v"), (1, "GET /r?api-version=v"), (3, "GET /r?api-version=v")])
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_followed_and_nothing_is_read_after_it() {
    let script = Script::new([
        answer(202, &[OPERATION, ("location", "https://management.azure.com/results/1")], ""),
        answer(200, &[], r#"{"status":"Succeeded"}"#),
    ]);
    script.client().delete(request()).await.unwrap();
    assert_eq!(
        script.sent(),
        sent(&[(0, "DELETE /r?api-version=v"), (1, "GET /operations/1?api-version=v&s=s")])
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_deleted() {
    let script = Script::new([answer(404, &[], r#"{"error":{"code":"ResourceGroupNotFound"}}"#)]);
    script.client().delete(request()).await.unwrap();
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_misses_something_else_is_not_done() {
    let refused = r#"{"error":{"code":"InvalidResourceReference"}}"#;
    let failed = r#"{"status":"Failed","error":{"code":"ParentResourceNotFound"}}"#;
    let script =
        Script::new([answer(400, &[], refused), answer(202, &[OPERATION], ""), answer(200, &[], failed)]);
    let client = script.client();
    assert_eq!(client.delete(request()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(client.delete(request()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(script.sent().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_inside_a_200_is_a_failure() {
    let script = Script::new([
        answer(202, &[OPERATION], ""),
        answer(
            200,
            &[("x-ms-request-id", "poll-1")],
            r#"{"status":"Failed","error":{"code":"SGWUpdateFailed"}}"#,
        ),
    ]);
    let error = script.client().post_action(request(), b"{}".to_vec()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "POST /r: operation failed (200): SGWUpdateFailed [request id poll-1, client request id call-1]"
    );
    assert!(error.may_have_been_applied());
    assert_eq!(script.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn lost_polls_leave_the_outcome_unknown_and_say_why() {
    for poll in [
        answer(500, &[], ""),
        answer(404, &[], r#"{"error":{"code":"NotFound"}}"#),
        Err(TransportError::NotSent("down".into())),
        Err(TransportError::MaybeSent("cut".into())),
    ] {
        let script = Script::new([answer(202, &[OPERATION], ""), poll]);
        let error = script.client().delete(request()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message(), error.method().unwrap().as_str()),
            (ErrorKind::Unknown, "a poll failed", "DELETE")
        );
        assert!(std::error::Error::source(&error).is_some());
        assert_eq!(script.sent().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_read_back_leaves_the_outcome_unknown() {
    let script = Script::new([answer(200, &[OPERATION], SUCCEEDED), answer(404, &[], "")]);
    let error = script.client().put::<Value>(request(), b"{}".to_vec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert_eq!(script.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_end_is_given_up_as_unknown() {
    let running = || answer(200, &[("retry-after", "60")], r#"{"status":"InProgress"}"#);
    let script =
        Script::new(std::iter::once(answer(202, &[OPERATION], "")).chain((0..10).map(|_| running())));
    let error = script.client().delete(request()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Unknown, "it still runs after 600s"));
    // One second after the start, then one minute apart; the next would have been at 601 s.
    assert_eq!(script.sent().last().unwrap().0, 541);
}

#[tokio::test(start_paused = true)]
async fn whether_a_request_left_decides_what_its_loss_means() {
    let not_sent = || Err(TransportError::NotSent("refused".into()));
    let maybe_sent = || Err(TransportError::MaybeSent("cut".into()));
    let script = Script::new([not_sent(), not_sent(), maybe_sent(), maybe_sent()]);
    let client = script.client();
    assert_eq!(client.get::<Value>(request()).await.unwrap_err().kind(), ErrorKind::NotSent);
    assert_eq!(client.delete(request()).await.unwrap_err().kind(), ErrorKind::NotSent);
    assert_eq!(client.get::<Value>(request()).await.unwrap_err().kind(), ErrorKind::Transient);
    assert_eq!(client.delete(request()).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(script.sent().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_json_is_no_result() {
    let script = Script::new(["<html>sign in</html>", r#"{"a":"#].map(|body| answer(200, &[], body)));
    let client = script.client();
    assert_eq!(client.get::<Value>(request()).await.unwrap_err().kind(), ErrorKind::Transient);
    assert_eq!(client.list::<Value>(request()).await.unwrap_err().kind(), ErrorKind::Transient);
    assert_eq!(script.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_put_answered_with_nonsense_is_read_back_and_in_doubt_if_that_is_nonsense_too() {
    let script = Script::new(["x", "y"].map(|body| answer(200, &[], body)));
    let error = script.client().put::<Value>(request(), b"{}".to_vec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert_eq!(script.sent(), sent(&[(0, "PUT /r?api-version=v"), (0, "GET /r?api-version=v")]));
}

/// A token service that is down.
#[derive(Debug)]
struct NoToken;

#[async_trait]
impl Credential for NoToken {
    async fn token(&self, scope: &str) -> Result<Option<Token>, CredentialError> {
        Err(format!("no token for {scope}").into())
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_sent() {
    let script = Script::new([]);
    let client = ArmClient::builder(Endpoint::new(&Cloud::Public).unwrap(), NoToken, script.clone()).build();
    let error = client.delete(request()).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::NotSent, false));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "no token for https://management.azure.com/.default");
    assert_eq!(script.sent(), sent(&[]));
}

#[tokio::test(start_paused = true)]
async fn throttling_tells_how_long_to_stay_away() {
    let script = Script::new([answer(429, &[("retry-after", "17")], "")]);
    let error = script.client().get::<Value>(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled { retry_after: Some(Duration::from_secs(17)) });
    assert_eq!(script.sent().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn an_operation_is_followed_safely_whatever_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        crate::arbitrary::follow(&bytes);
    }
}

#[test]
fn every_saved_case_of_the_fuzzer_is_followed_safely() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/operation");
    let cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!cases.is_empty(), "{folder} is empty");
    for case in cases {
        println!("{}", case.display());
        crate::arbitrary::follow(&std::fs::read(case).unwrap());
    }
}
