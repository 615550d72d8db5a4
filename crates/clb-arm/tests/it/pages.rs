//! Lists in pages.

use clb_arm::{ErrorKind, MAX_PAGES, Request};

use crate::script::{Script, answer, context, sent};

fn request() -> Request {
    Request::new("/list", "v", &context())
}

#[tokio::test(start_paused = true)]
async fn pages_are_followed_as_given_until_there_is_no_next_one() {
    let script = Script::new([
        answer(
            200,
            &[],
            r#"{"value":[1,2],"nextLink":"https://management.azure.com/list?api-version=v&$skiptoken=a%3D"}"#,
        ),
        answer(200, &[], r#"{"value":[],"nextLink":"/list?t=2"}"#),
        answer(200, &[], r#"{"value":[3]}"#),
    ]);
    assert_eq!(script.client().list::<u8>(request()).await.unwrap(), [1, 2, 3]);
    assert_eq!(
        script.sent(),
        sent(&[
            (0, "GET /list?api-version=v"),
            (0, "GET /list?api-version=v&$skiptoken=a%3D"),
            (0, "GET /list?t=2"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_with_a_failed_page_is_no_list() {
    let script =
        Script::new([answer(200, &[], r#"{"value":[1],"nextLink":"/list?t=2"}"#), answer(503, &[], "")]);
    assert_eq!(script.client().list::<u8>(request()).await.unwrap_err().kind(), ErrorKind::Transient);
    assert_eq!(script.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_page_on_another_host_is_not_fetched() {
    let script = Script::new([answer(200, &[], r#"{"value":[1],"nextLink":"https://evil.example/list"}"#)]);
    let error = script.client().list::<u8>(request()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Transient, "the next page is on another host"));
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_round_in_circles_ends() {
    let page = || answer(200, &[], r#"{"value":[],"nextLink":"/list"}"#);
    let script = Script::new((0..MAX_PAGES).map(|_| page()));
    assert_eq!(script.client().list::<u8>(request()).await.unwrap_err().kind(), ErrorKind::Transient);
    assert_eq!(script.sent().len(), MAX_PAGES);
}
