use super::*;
use crate::Cloud;

const OPERATION: &str = "https://management.azure.com/operations/1?c=c&s=s";
const RESULT: &str = "https://management.azure.com/results/1";
const RESOURCE: &str = "https://management.azure.com/r?api-version=v";
const NOW: SystemTime = SystemTime::UNIX_EPOCH;

type Headers = &'static [(&'static str, &'static str)];

const BOTH: Headers = &[("Azure-AsyncOperation", OPERATION), ("Location", RESULT)];
const ASYNC: Headers = &[("Azure-AsyncOperation", OPERATION)];
const LOCATION: Headers = &[("Location", RESULT)];
const NONE: Headers = &[];
const ELSEWHERE: Headers = &[("Azure-AsyncOperation", "https://evil.example/operations/1")];

const UPDATING: &str = r#"{"properties":{"provisioningState":"Updating"}}"#;
const SUCCEEDED: &str = r#"{"Properties":{"ProvisioningState":"succeeded"}}"#;
const BROKEN: &str = r#"{"properties":{"provisioningState":"Failed"}}"#;
const ERROR: &str = r#"{"error":{"code":"SGWUpdateFailed","message":"m"}}"#;

fn answer(status: u16, headers: Headers, body: &str) -> Response<Vec<u8>> {
    let mut answer = Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(body.as_bytes().to_vec()).unwrap()
}

fn first(method: &Method, answer: &Response<Vec<u8>>) -> Step {
    let endpoint = Endpoint::new(&Cloud::Public).unwrap();
    Step::first(method, &Url::parse(RESOURCE).unwrap(), answer, &endpoint, PollSchedule::default(), NOW)
}

/// A step in short, for tables.
fn short(step: Step) -> String {
    match step {
        Step::Done => "done".into(),
        Step::GetResource => "get".into(),
        Step::Poll(polling) => {
            let (url, wait) = (polling.url().as_str(), polling.wait().as_millis());
            let name = match url {
                OPERATION => "operation",
                RESULT => "result",
                RESOURCE => "resource",
                other => other,
            };
            format!("poll {name} after {wait}")
        }
        Step::Failed(error) => {
            assert!(error.may_have_been_applied());
            format!("failed {} {}", error.code().unwrap_or("-"), error.message())
        }
        Step::Lost(error) => {
            assert_eq!(error.kind(), ErrorKind::Unknown);
            "lost".into()
        }
    }
}

fn polling(method: &Method, headers: Headers) -> Polling {
    let Step::Poll(polling) = first(method, &answer(202, headers, "")) else { panic!("not to be polled") };
    *polling
}

#[test]
fn every_first_answer_leads_to_its_step() {
    let (put, delete, post) = (Method::PUT, Method::DELETE, Method::POST);
    for (method, status, headers, body, expected) in [
        // A PUT is done when its body says so; the header then only means that the body is not the last word.
        (&put, 200, NONE, SUCCEEDED, "done"),
        (&put, 201, NONE, SUCCEEDED, "done"),
        (&put, 200, ASYNC, SUCCEEDED, "get"),
        (&put, 201, BOTH, SUCCEEDED, "get"),
        (&put, 201, ASYNC, UPDATING, "poll operation after 1000"),
        (&put, 200, BOTH, UPDATING, "poll operation after 1000"),
        (&put, 202, BOTH, "", "poll operation after 1000"),
        (&put, 202, LOCATION, "", "poll result after 1000"),
        (&put, 201, LOCATION, UPDATING, "poll result after 1000"),
        (&put, 201, NONE, UPDATING, "poll resource after 1000"),
        (&put, 202, NONE, UPDATING, "poll resource after 1000"),
        (&put, 200, NONE, r#"{"name":"x"}"#, "done"),
        (&put, 200, NONE, "", "get"),
        (&put, 204, NONE, "", "get"),
        (&put, 202, NONE, "", "lost"),
        (&put, 200, NONE, BROKEN, "failed - provisioningState is Failed"),
        (&put, 200, ASYNC, BROKEN, "poll operation after 1000"),
        (&put, 200, NONE, ERROR, "failed SGWUpdateFailed m"),
        (&put, 200, ELSEWHERE, SUCCEEDED, "get"),
        (&put, 201, ELSEWHERE, UPDATING, "lost"),
        // A DELETE's 200 is not the end if there is something to poll.
        (&delete, 200, NONE, "", "done"),
        (&delete, 204, NONE, "", "done"),
        (&delete, 204, BOTH, "", "done"),
        (&delete, 200, BOTH, "", "poll operation after 1000"),
        (&delete, 202, BOTH, "", "poll operation after 1000"),
        (&delete, 202, LOCATION, "", "poll result after 1000"),
        (&delete, 202, NONE, "", "lost"),
        (&delete, 201, NONE, "", "lost"),
        (&delete, 200, NONE, ERROR, "failed SGWUpdateFailed m"),
        (&delete, 204, ELSEWHERE, "", "done"),
        (&delete, 200, ELSEWHERE, "", "lost"),
        (&delete, 202, ELSEWHERE, "", "lost"),
        // A POST's 200 is the end, whatever its headers say.
        (&post, 200, NONE, "", "done"),
        (&post, 200, BOTH, "", "done"),
        (&post, 200, BOTH, r#"{"status":"OK"}"#, "done"),
        (&post, 200, ELSEWHERE, "", "done"),
        (&post, 204, NONE, "", "done"),
        (&post, 202, ELSEWHERE, "", "lost"),
        (&post, 202, BOTH, "", "poll operation after 1000"),
        (&post, 202, LOCATION, "", "poll result after 1000"),
        (&post, 202, NONE, "", "lost"),
        (&post, 201, NONE, "", "lost"),
        (&post, 200, BOTH, ERROR, "failed SGWUpdateFailed m"),
        (&post, 200, NONE, r#"{"Error":{"Code":"X"}}"#, "failed X "),
        (&post, 200, NONE, r#"{"error":null}"#, "done"),
        (&post, 200, NONE, r#"{"status":"Failed"}"#, "failed Failed "),
    ] {
        let step = first(method, &answer(status, headers, body));
        assert_eq!(short(step), expected, "{method} {status} {headers:?} {body}");
    }
}

#[test]
fn every_poll_leads_to_its_step() {
    let failed = r#"{"status":"Failed","error":{"code":"SGWUpdateFailed","message":"m"}}"#;
    let running = "poll operation after 2000";
    for (method, headers, status, body, expected) in [
        (Method::PUT, ASYNC, 200, r#"{"status":"Succeeded"}"#, "get"),
        (Method::PUT, ASYNC, 200, r#"{"Status":"succeeded"}"#, "get"),
        (Method::DELETE, ASYNC, 200, r#"{"status":"Succeeded"}"#, "done"),
        (Method::POST, ASYNC, 200, r#"{"status":"Succeeded"}"#, "done"),
        (Method::PUT, ASYNC, 200, r#"{"status":"InProgress"}"#, running),
        (Method::PUT, ASYNC, 200, r#"{"status":"Anything"}"#, running),
        (Method::PUT, ASYNC, 202, r#"{"startTime":"t","status":"InProgress","name":"n"}"#, running),
        (Method::PUT, ASYNC, 202, "", running),
        (Method::PUT, ASYNC, 200, failed, "failed SGWUpdateFailed m"),
        (Method::PUT, ASYNC, 200, r#"{"status":"Canceled"}"#, "failed Canceled "),
        (Method::PUT, ASYNC, 200, r#"{"status":"Succeeded","error":null}"#, "get"),
        (Method::PUT, ASYNC, 200, "", "lost"),
        (Method::PUT, ASYNC, 200, "<html>", "lost"),
        (Method::PUT, ASYNC, 200, "{}", "lost"),
        (Method::PUT, ASYNC, 204, "", "lost"),
        (Method::PUT, ASYNC, 429, "", running),
        (Method::PUT, ASYNC, 404, ERROR, "lost"),
        (Method::PUT, ASYNC, 500, "", "lost"),
        (Method::PUT, ASYNC, 503, "", "lost"),
        (Method::PUT, ASYNC, 401, "", "lost"),
        (Method::DELETE, LOCATION, 202, "", "poll result after 2000"),
        (Method::DELETE, LOCATION, 200, "", "done"),
        (Method::DELETE, LOCATION, 204, "", "done"),
        (Method::POST, LOCATION, 200, "", "done"),
        (Method::PUT, LOCATION, 200, SUCCEEDED, "get"),
        (Method::POST, LOCATION, 200, r#"{"status":"InProgress"}"#, "poll result after 2000"),
        (Method::POST, LOCATION, 200, failed, "failed SGWUpdateFailed m"),
        (Method::DELETE, LOCATION, 404, "", "lost"),
        (Method::DELETE, LOCATION, 302, "", "lost"),
    ] {
        let step = polling(&method, headers).handle_answer(&answer(status, NONE, body), NOW);
        assert_eq!(short(step), expected, "{method} {headers:?} {status} {body}");
    }
}

#[test]
fn a_resource_that_says_not_yet_is_read_until_it_says_how_it_ended() {
    for (status, body, expected) in [
        (200, UPDATING, "poll resource after 2000"),
        (200, SUCCEEDED, "done"),
        (200, BROKEN, "failed - provisioningState is Failed"),
        (200, "{}", "lost"),
        (404, ERROR, "lost"),
    ] {
        let Step::Poll(polling) = first(&Method::PUT, &answer(201, NONE, UPDATING)) else { panic!() };
        assert_eq!(
            short(polling.handle_answer(&answer(status, NONE, body), NOW)),
            expected,
            "{status} {body}"
        );
    }
}

#[test]
fn waits_double_up_to_the_limit_unless_the_server_names_one() {
    let running = answer(202, NONE, "");
    let mut polling = polling(&Method::DELETE, BOTH);
    let mut waits = vec![polling.wait().as_secs()];
    for _ in 0..7 {
        let Step::Poll(next) = polling.handle_answer(&running, NOW) else { panic!() };
        waits.push(next.wait().as_secs());
        polling = *next;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);

    for (value, expected) in
        [("10", 10), ("0", 1), ("86400", 60), ("Thu, 01 Jan 1970 00:00:20 GMT", 20), ("x", 30)]
    {
        let mut hinted = running.clone();
        hinted.headers_mut().insert("retry-after", value.parse().unwrap());
        let Step::Poll(next) = polling.handle_answer(&hinted, NOW) else { panic!() };
        assert_eq!(next.wait(), Duration::from_secs(expected), "{value}");
        polling = *next;
    }
}

#[test]
fn an_operation_that_moves_is_followed_but_not_to_another_host() {
    const MOVED: Headers = &[("Azure-AsyncOperation", "/operations/2")];
    let running = r#"{"status":"Running"}"#;
    let moved = polling(&Method::PUT, ASYNC).handle_answer(&answer(200, MOVED, running), NOW);
    assert_eq!(short(moved), "poll https://management.azure.com/operations/2 after 2000");
    let other_kind = polling(&Method::PUT, ASYNC).handle_answer(&answer(200, LOCATION, running), NOW);
    assert_eq!(short(other_kind), "poll operation after 2000");
    let stolen = polling(&Method::PUT, ASYNC).handle_answer(&answer(200, ELSEWHERE, running), NOW);
    assert_eq!(short(stolen), "lost");
}
