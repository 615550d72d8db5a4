//! Servers that misbehave, over real sockets: the client neither hangs nor panics, and the error says what happened.

use std::time::{Duration, Instant};

use clb_arm::{Anonymous, ArmClient, CallContext, Cloud, Endpoint, Error, ErrorKind, HttpTransport, Request};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What a server does after it has said its bytes.
#[derive(Clone, Copy, Debug)]
enum Then {
    Close,
    Reset,
    HoldOpen,
}

/// How long an attempt may take here. Only the servers that hold on make a test wait for it.
const ATTEMPT: Duration = Duration::from_millis(300);

/// The errors of a GET and of a PUT to a server that answers `bytes` to everything.
async fn errors(bytes: impl Into<Vec<u8>>, then: Then) -> (Error, Error) {
    let bytes = bytes.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            // A client that has seen enough may hang up.
            let _ = socket.write_all(&bytes).await;
            match then {
                Then::Close => {
                    let _ = socket.shutdown().await;
                }
                Then::Reset => socket.set_zero_linger().unwrap(),
                Then::HoldOpen => held.push(socket),
            }
        }
    });
    let cloud = Cloud::Custom { endpoint, audience: "https://sim".into() };
    let transport = HttpTransport::with_attempt_timeout(ATTEMPT).unwrap();
    let client = ArmClient::builder(Endpoint::new(&cloud).unwrap(), Anonymous, transport).build();
    let request = || Request::new("/r", "v", &CallContext::new("call-1").unwrap()).query("q", "SECRET");
    let started = Instant::now();
    let read = client.get::<Value>(request()).await.unwrap_err();
    let write = client.put::<Value>(request(), br#"{"a":"SECRET"}"#.to_vec()).await.unwrap_err();
    // Generous, since the machine may be busy; a hang is for ever.
    assert!(started.elapsed() < Duration::from_secs(20));
    for error in [&read, &write] {
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
        assert!(error.to_string().len() < 1000, "{error}");
    }
    server.abort();
    (read, write)
}

/// The read is worth repeating, the write in doubt.
fn assert_cut((read, write): (Error, Error)) {
    assert_eq!((read.kind(), read.may_have_been_applied()), (ErrorKind::Transient, false), "{read}");
    assert_eq!((write.kind(), write.may_have_been_applied()), (ErrorKind::Unknown, true), "{write}");
}

#[tokio::test]
async fn answers_that_never_end_are_given_up() {
    for beginning in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"] {
        let (read, write) = errors(beginning, Then::HoldOpen).await;
        assert!(read.to_string().contains("its answer did not arrive"), "{read}");
        assert_cut((read, write));
    }
}

#[tokio::test]
async fn answers_that_are_cut_short_are_none() {
    for beginning in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 20",
        "",
    ] {
        for then in [Then::Close, Then::Reset] {
            assert_cut(errors(beginning, then).await);
        }
    }
}

#[tokio::test]
async fn answers_in_another_language_are_none() {
    let page = "<html>Welcome to the hotel</html>";
    let length = page.len();
    for answer in [
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{page}"),
        "SSH-2.0-OpenSSH_9.9\r\n\r\n".to_owned(),
    ] {
        assert_cut(errors(answer, Then::Close).await);
    }
}

#[tokio::test]
async fn a_huge_error_body_ends_as_one_short_line() {
    let size = 10 * 1024 * 1024;
    let mut answer = format!("HTTP/1.1 500 Oops\r\ncontent-length: {size}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + size, b'x');
    let (read, write) = errors(answer, Then::Close).await;
    // On a busy machine ten megabytes may take longer than an attempt may.
    for error in [&read, &write] {
        assert!(error.status().is_none_or(|status| status == 500) && error.message().len() <= 400, "{error}");
    }
    assert_cut((read, write));
}

#[tokio::test]
async fn a_retry_after_that_is_none_is_ignored() {
    for (value, expected) in
        [("soon", None), ("-5", None), ("1e9", None), ("99999999999999999999", None), ("3", Some(3))]
    {
        let answer = format!("HTTP/1.1 429 Slow\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let (read, write) = errors(answer, Then::Close).await;
        let kind = ErrorKind::Throttled { retry_after: expected.map(Duration::from_secs) };
        assert_eq!((read.kind(), write.kind()), (kind, kind), "{value}");
    }
}

#[tokio::test]
async fn a_server_that_sends_a_byte_now_and_then_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                assert!(socket.read(&mut request).await.unwrap() > 0);
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
                let mut tick = tokio::time::interval(ATTEMPT / 10);
                loop {
                    tick.tick().await;
                    if socket.write_all(b" ").await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let cloud = Cloud::Custom { endpoint, audience: "https://sim".into() };
    let client = |transport: HttpTransport, call_timeout| {
        let endpoint = Endpoint::new(&cloud).unwrap();
        ArmClient::builder(endpoint, Anonymous, transport).call_timeout(call_timeout).build()
    };
    let request = || Request::new("/r", "v", &CallContext::random());
    let hour = Duration::from_secs(3600);
    // Either limit ends it: that of the attempt, and that of the call.
    for client in [
        client(HttpTransport::with_attempt_timeout(ATTEMPT).unwrap(), hour),
        client(HttpTransport::with_attempt_timeout(hour).unwrap(), ATTEMPT),
    ] {
        let started = Instant::now();
        let read = client.get::<Value>(request()).await.unwrap_err();
        let write = client.put::<Value>(request(), b"{}".to_vec()).await.unwrap_err();
        assert!(started.elapsed() >= 2 * ATTEMPT && started.elapsed() < Duration::from_secs(20));
        assert_cut((read, write));
    }
    server.abort();
}

#[tokio::test]
async fn a_redirect_to_another_host_takes_neither_the_request_nor_the_token_there() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("http://{}/r", elsewhere.local_addr().unwrap());
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let answer = format!("HTTP/1.1 {status}\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let (read, write) = errors(answer, Then::Close).await;
        for error in [&read, &write] {
            assert_eq!(
                (error.kind(), error.may_have_been_applied()),
                (ErrorKind::Transient, false),
                "{error}"
            );
        }
    }
    let visit = tokio::time::timeout(Duration::from_millis(1), elsewhere.accept()).await;
    assert!(visit.is_err(), "nobody came");
}
