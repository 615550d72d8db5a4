//! Lists in pages.

use std::time::Duration;

use clb_arm::{ErrorKind, MAX_PAGES, Request};
use futures::StreamExt;
use tokio::time::sleep;

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
async fn a_list_that_goes_round_in_circles_ends_where_it_closes() {
    let page = |next: &str| answer(200, &[], &format!(r#"{{"value":[1],"nextLink":"{next}"}}"#));
    for (links, pages) in [
        (vec!["/list?api-version=v"], 1),
        (vec!["/list?t=1", "https://MANAGEMENT.azure.com:443/list?t=1"], 2),
        (vec!["/list?t=1", "/list?t=2", "/list?api-version=v"], 3),
    ] {
        let script = Script::new(links.into_iter().map(page));
        let error = script.client().list::<u8>(request()).await.unwrap_err();
        let message = format!("the list goes round in circles after {pages} pages");
        assert_eq!((error.kind(), error.message()), (ErrorKind::Transient, message.as_str()));
        assert_eq!(script.sent().len(), pages);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_ends() {
    let page = |number: usize| answer(200, &[], &format!(r#"{{"value":[],"nextLink":"/list?t={number}"}}"#));
    let script = Script::new((0..MAX_PAGES).map(page));
    let error = script.client().list::<u8>(request()).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Transient, "the list has more than 10000 pages"));
    assert_eq!(script.sent().len(), MAX_PAGES);
}

#[tokio::test(start_paused = true)]
async fn a_stream_fetches_a_page_when_it_is_asked_for_one() {
    let script = Script::new([
        answer(200, &[], r#"{"value":[1,2],"nextLink":"/list?t=1"}"#),
        answer(200, &[], r#"{"value":[3]}"#),
    ]);
    let mut pages = script.client().pages::<u8>(request());
    assert_eq!(pages.next().await.unwrap().unwrap(), [1, 2]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(pages.next().await.unwrap().unwrap(), [3]);
    assert!(pages.next().await.is_none());
    assert_eq!(script.sent(), sent(&[(0, "GET /list?api-version=v"), (3600, "GET /list?t=1")]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_first_error() {
    let script =
        Script::new([answer(200, &[], r#"{"value":[1],"nextLink":"/list?t=1"}"#), answer(404, &[], "")]);
    let pages: Vec<_> = script.client().pages::<u8>(request()).collect().await;
    let [Ok(first), Err(error)] = pages.as_slice() else { panic!("{pages:?}") };
    assert_eq!((first.as_slice(), error.kind()), ([1].as_slice(), ErrorKind::NotFound));
    assert_eq!(script.sent().len(), 2);
}
