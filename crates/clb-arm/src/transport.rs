//! How a request gets there: one method, so that tests need no socket.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends one HTTP request, once.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// The answer to `request`, whatever its status.
    ///
    /// # Errors
    /// [`TransportError`] when there is no whole answer; it says whether the request may have left.
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, TransportError>;
}

/// There is no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The server cannot have seen the request.
    #[error("the request was not sent")]
    NotSent(#[source] BoxError),
    /// The server may have seen the request, and acted on it.
    #[error("the request was sent, but its answer did not arrive")]
    MaybeSent(#[source] BoxError),
}

impl TransportError {
    /// Its kind, for traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::NotSent(_) => "not_sent",
            Self::MaybeSent(_) => "maybe_sent",
        }
    }
}

/// How long one attempt may take, from connecting to the last byte. Azure Resource Manager itself gives up on a
/// resource provider after 60 seconds; this leaves time for its answer to travel.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(70);

/// How long connecting may take, TLS included. Short, because a request that could not be sent is known not to have
/// been applied, unlike one that ran into [`ATTEMPT_TIMEOUT`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most that an answer may hold, in bytes after decompression. A page of a thousand address locations is well
/// below 2 MiB; this keeps a mad server from filling the memory.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// The real network: HTTP/1.1 and HTTP/2 with rustls, over connections that are kept and shared. Redirects are not followed,
/// since Azure Resource Manager has none and the token would go along.
///
/// Proxies are those of the environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`). A plain http request never goes to one:
/// it is for this machine, and its token is not for the network.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    remote: reqwest::Client,
    local: reqwest::Client,
    max_body: usize,
}

impl HttpTransport {
    /// A transport with its own connection pool.
    ///
    /// # Errors
    /// When the system offers no usable TLS roots or resolver.
    pub fn new() -> Result<Self, reqwest::Error> {
        Self::with_attempt_timeout(ATTEMPT_TIMEOUT)
    }

    /// As [`HttpTransport::new`], with `timeout` for one attempt from connecting to the last byte.
    ///
    /// # Errors
    /// As [`HttpTransport::new`].
    pub fn with_attempt_timeout(timeout: Duration) -> Result<Self, reqwest::Error> {
        let builder = || {
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT.min(timeout))
                .timeout(timeout)
        };
        Ok(Self { remote: builder().build()?, local: builder().no_proxy().build()?, max_body: MAX_BODY })
    }

    fn client(&self, request: &reqwest::Request) -> &reqwest::Client {
        if request.url().scheme() == "http" { &self.local } else { &self.remote }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, TransportError> {
        // URLs of polls and pages carry signatures, so they must not surface in errors.
        let request = reqwest::Request::try_from(request)
            .map_err(|error| TransportError::NotSent(error.without_url().into()))?;
        let mut answer = self.client(&request).execute(request).await.map_err(|error| {
            let connecting = error.is_connect() || error.is_builder();
            let source: BoxError = error.without_url().into();
            if connecting { TransportError::NotSent(source) } else { TransportError::MaybeSent(source) }
        })?;

        let mut body = Vec::new();
        while let Some(chunk) =
            answer.chunk().await.map_err(|error| TransportError::MaybeSent(error.without_url().into()))?
        {
            if body.len() + chunk.len() > self.max_body {
                let limit = self.max_body;
                return Err(TransportError::MaybeSent(
                    format!("the answer is larger than {limit} bytes").into(),
                ));
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = http::Response::new(body);
        *response.status_mut() = answer.status();
        *response.version_mut() = answer.version();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wiremock::matchers::any;
    use wiremock::{Mock, MockServer, ResponseTemplate};

    fn get(url: &str) -> http::Request<Vec<u8>> {
        http::Request::get(url).body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn a_refused_connection_means_not_sent() {
        let address = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let error = HttpTransport::new().unwrap().send(get(&format!("http://{address}/"))).await.unwrap_err();
        assert!(matches!(error, TransportError::NotSent(_)), "{error:?}");
    }

    #[tokio::test]
    async fn a_connection_cut_after_the_request_means_maybe_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            use tokio::io::AsyncReadExt;
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            let read = socket.read(&mut buffer).await.unwrap();
            assert!(read > 0);
        });
        let error = HttpTransport::new()
            .unwrap()
            .send(get(&format!("http://{address}/?secret=1")))
            .await
            .unwrap_err();
        server.await.unwrap();
        assert!(matches!(error, TransportError::MaybeSent(_)), "{error:?}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[tokio::test]
    async fn an_answer_that_does_not_come_in_time_means_maybe_sent() {
        let server = MockServer::start().await;
        let late = ResponseTemplate::new(200).set_delay(Duration::from_secs(3600));
        Mock::given(any()).respond_with(late).mount(&server).await;
        let transport = HttpTransport::with_attempt_timeout(Duration::from_millis(50)).unwrap();
        let error = transport.send(get(&server.uri())).await.unwrap_err();
        assert!(matches!(error, TransportError::MaybeSent(_)), "{error:?}");
    }

    #[tokio::test]
    async fn reading_stops_at_the_largest_body_allowed() {
        let server = MockServer::start().await;
        Mock::given(any())
            .respond_with(ResponseTemplate::new(200).set_body_bytes(vec![b'x'; 11]))
            .mount(&server)
            .await;
        let mut transport = HttpTransport::new().unwrap();
        transport.max_body = 11;
        assert_eq!(transport.send(get(&server.uri())).await.unwrap().into_body(), vec![b'x'; 11]);
        transport.max_body = 10;
        let error = transport.send(get(&server.uri())).await.unwrap_err();
        assert!(matches!(error, TransportError::MaybeSent(_)), "{error:?}");
    }

    #[tokio::test]
    async fn http_2_carries_many_requests_over_one_connection() {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
        let mut transport = HttpTransport::new().unwrap();
        // Over TLS the two agree on it; without, one has to know.
        transport.local = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
        let answers = futures::future::join_all((0..8).map(|_| transport.send(get(&server.uri())))).await;
        let versions: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().version()).collect();
        assert_eq!(versions, [http::Version::HTTP_2; 8]);
    }

    #[tokio::test]
    async fn connections_are_used_again() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            // Only one connection is ever accepted.
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            for _ in 0..3 {
                assert!(socket.read(&mut buffer).await.unwrap() > 0);
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        });
        let transport = HttpTransport::new().unwrap();
        for _ in 0..3 {
            let answer = transport.send(get(&url)).await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_11));
        }
        server.await.unwrap();
    }

    #[tokio::test]
    async fn redirects_are_answers_like_any_other() {
        let server = MockServer::start().await;
        let elsewhere = ResponseTemplate::new(307).insert_header("location", "https://evil.example/");
        Mock::given(any()).respond_with(elsewhere).mount(&server).await;
        let response = HttpTransport::new().unwrap().send(get(&server.uri())).await.unwrap();
        assert_eq!(response.status(), 307);
    }
}
