//! Plays interactions back: a transport that insists on the requests that come next, and answers as was answered.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clb_arm::http::{Request, Response};
use clb_arm::{Anonymous, ArmClient, ArmClientBuilder, Cloud, Endpoint, Transport, TransportError};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Recording {
    interactions: VecDeque<Interaction>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Interaction {
    pub(crate) request: RecordedRequest,
    response: RecordedResponse,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedRequest {
    method: String,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) body: String,
    headers: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedResponse {
    code: u16,
    #[serde(default)]
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

/// The interactions in a file, in order.
pub(crate) fn read(path: &Path) -> VecDeque<Interaction> {
    let text = fs::read_to_string(path).unwrap();
    let Recording { interactions } = serde_saphyr::from_str(&text).unwrap();
    assert!(!interactions.is_empty());
    interactions
}

/// The headers in which requests must agree.
const HEADERS: [&str; 2] = ["content-type", "if-match"];

/// Plays interactions back.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    interactions: Arc<Mutex<VecDeque<Interaction>>>,
    /// What of a body must agree.
    essence: fn(Value) -> Value,
}

impl Player {
    pub(crate) fn new(interactions: VecDeque<Interaction>, essence: fn(Value) -> Value) -> Self {
        Self { interactions: Arc::new(Mutex::new(interactions)), essence }
    }

    /// A client that speaks to these interactions.
    pub(crate) fn arm(&self) -> ArmClientBuilder {
        ArmClient::builder(Endpoint::new(&Cloud::Public).unwrap(), Anonymous, self.clone())
    }

    /// The body of the request that is due, as the model it was made from.
    pub(crate) fn next_body<T: for<'de> Deserialize<'de>>(&self) -> T {
        serde_json::from_str(&self.interactions.lock().unwrap().front().unwrap().request.body).unwrap()
    }

    /// No call less than was recorded.
    pub(crate) fn finish(&self) {
        assert_eq!(self.interactions.lock().unwrap().len(), 0, "the recording goes on");
    }

    fn body(&self, text: &[u8]) -> Value {
        if text.is_empty() { Value::Null } else { (self.essence)(serde_json::from_slice(text).unwrap()) }
    }
}

#[async_trait]
impl Transport for Player {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, TransportError> {
        let next = self.interactions.lock().unwrap().pop_front();
        let Interaction { request: recorded, response } = next.expect("nothing more was recorded");
        assert_eq!(request.method().as_str(), recorded.method);
        assert_eq!(request.uri().to_string().to_lowercase(), recorded.url.to_lowercase());
        assert_eq!(self.body(request.body()), self.body(recorded.body.as_bytes()), "{}", recorded.url);
        for name in HEADERS {
            let sent = request.headers().get(name).map(|value| value.to_str().unwrap());
            let mut expected = recorded.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
            let expected = expected.next().map(|(_, values)| values[0].as_str());
            assert_eq!(sent, expected, "{name} of {} {}", recorded.method, recorded.url);
        }
        // The recorded client names what it reads in most requests, but not in its polls.
        assert_eq!(request.headers()["accept"], "application/json");
        assert!(request.headers().contains_key("x-ms-client-request-id"));
        let mut answer = Response::builder().status(response.code);
        for (name, values) in &response.headers {
            for value in values {
                answer = answer.header(name, value);
            }
        }
        Ok(answer.body(response.body.into_bytes()).unwrap())
    }
}
