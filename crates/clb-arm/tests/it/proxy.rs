//! Proxies come from the environment, which is a process's own: each test runs one of its neighbours as another process.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use clb_arm::http::Request;
use clb_arm::{HttpTransport, Transport, TransportError};

/// The test to run instead, and what it is told.
const TARGET: &str = "CLB_ARM_TEST_TARGET";

/// Runs the ignored test `name`, which asks for `target`, with `proxy` in its environment.
fn run(name: &str, target: &str, proxy: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--quiet"])
        .env(TARGET, target)
        .envs(
            ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"].map(|name| (name, proxy)),
        )
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        // reqwest leaves HTTP_PROXY alone in what looks like a CGI script.
        .env_remove("REQUEST_METHOD")
        .spawn()
        .unwrap()
}

/// Answers one connection with `answer`; the first line that came.
fn serve(listener: &TcpListener, answer: &str) -> String {
    let (mut socket, _) = listener.accept().unwrap();
    let mut request = [0; 4096];
    let read = socket.read(&mut request).unwrap();
    socket.write_all(answer.as_bytes()).unwrap();
    let text = String::from_utf8_lossy(&request[..read]);
    text.lines().next().unwrap_or_default().to_owned()
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[test]
fn a_request_goes_to_the_proxy_of_the_environment_in_a_tunnel() {
    let (proxy, url) = listen();
    let mut child = run("proxy::child_that_is_refused", "https://management.example/r?s=SECRET", &url);
    let line = serve(&proxy, "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(line, "CONNECT management.example:443 HTTP/1.1");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_plain_request_to_this_machine_never_goes_to_a_proxy() {
    let ((proxy, proxy_url), (server, server_url)) = (listen(), listen());
    let mut child = run("proxy::child_that_is_answered", &format!("{server_url}/r"), &proxy_url);
    let line = serve(&server, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(line, "GET /r HTTP/1.1");
    assert!(child.wait().unwrap().success());
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err(), "nobody asked the proxy");
}

async fn send() -> Result<u16, TransportError> {
    let request = Request::get(std::env::var(TARGET).unwrap()).body(Vec::new()).unwrap();
    HttpTransport::new().unwrap().send(request).await.map(|answer| answer.status().as_u16())
}

#[tokio::test]
#[ignore = "run by a test above, in an environment of its own"]
async fn child_that_is_refused() {
    let error = send().await.unwrap_err();
    assert!(matches!(error, TransportError::NotSent(_)), "{error:?}");
    assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
}

#[tokio::test]
#[ignore = "run by a test above, in an environment of its own"]
async fn child_that_is_answered() {
    assert_eq!(send().await.unwrap(), 200);
}
