//! Operations whose answers are any bytes at all. Shared with the fuzz target.

use std::time::{Duration, SystemTime};

use clb_arm::http::{Method, Response};
use clb_arm::url::Url;
use clb_arm::{Cloud, Endpoint, PollSchedule, Step};

const STATUSES: [u16; 10] = [200, 201, 202, 204, 302, 404, 408, 429, 500, 503];
const LINKS: [&str; 6] = [
    "",
    "https://management.azure.com/o/1?s=s",
    "/o/2",
    "https://evil.example/o",
    "http://management.azure.com/o",
    "?",
];
const BODIES: [&str; 8] = [
    "",
    r#"{"status":"InProgress"}"#,
    r#"{"status":"Succeeded"}"#,
    r#"{"status":"Failed","error":{"code":"C","message":"m"}}"#,
    r#"{"properties":{"provisioningState":"Updating"}}"#,
    r#"{"properties":{"provisioningState":"Succeeded"}}"#,
    r#"{"error":null,"status":7}"#,
    "<html>",
];

/// One answer, made of the next bytes: a status, two links, a wait, and a body that is one of the usual ones or the rest.
fn answer(bytes: &mut &[u8]) -> Option<Response<Vec<u8>>> {
    let [status, first, second, wait, body, rest @ ..] = *bytes else { return None };
    let pick = |index: &u8, length: usize| usize::from(*index) % length;
    let mut answer = Response::builder().status(STATUSES[pick(status, STATUSES.len())]);
    for (name, link) in [("azure-asyncoperation", first), ("location", second)] {
        let link = LINKS[pick(link, LINKS.len())];
        if !link.is_empty() {
            answer = answer.header(name, link);
        }
    }
    if wait % 2 == 1 {
        answer = answer.header("retry-after", wait.to_string());
    }
    let body = match pick(body, BODIES.len() + 1).checked_sub(1) {
        Some(known) => BODIES[known].as_bytes().to_vec(),
        None => rest.to_vec(),
    };
    *bytes = rest;
    answer.body(body).ok()
}

/// Follows an operation through the answers that `bytes` make, and checks each step.
pub(crate) fn follow(mut bytes: &[u8]) {
    let endpoint = Endpoint::new(&Cloud::Public).expect("a known cloud has an endpoint");
    let resource = Url::parse("https://management.azure.com/r?api-version=v").expect("a URL");
    let schedule = PollSchedule::default();
    let methods = [Method::PUT, Method::DELETE, Method::POST, Method::PATCH];
    let Some((method, rest)) = bytes.split_first() else { return };
    bytes = rest;
    let method = &methods[usize::from(*method) % methods.len()];
    let Some(first) = answer(&mut bytes).filter(|first| first.status().is_success()) else { return };
    let mut step = Step::first(method, &resource, &first, &endpoint, schedule, SystemTime::UNIX_EPOCH);
    loop {
        step = match step {
            Step::Done | Step::Failed(_) => return,
            Step::GetResource => {
                assert!(matches!(*method, Method::PUT | Method::PATCH));
                return;
            }
            Step::Lost(error) => {
                assert!(error.may_have_been_applied());
                return;
            }
            Step::Poll(polling) => {
                assert_eq!(polling.url().origin(), resource.origin());
                assert!(polling.wait() >= schedule.first && polling.wait() <= Duration::from_secs(60));
                let restored =
                    polling.save(&resource).restore(&endpoint, schedule).expect("what was saved is of here");
                assert_eq!((restored.0.url(), &restored.1), (polling.url(), &resource));
                let Some(next) = answer(&mut bytes) else { return };
                polling.handle_answer(&next, SystemTime::UNIX_EPOCH)
            }
        };
    }
}
