//! What is logged, and what must not be.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clb_arm::{ArmClient, Cloud, Endpoint, Request, RetryPolicy, StaticToken, Token, TransportError};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::script::{Script, answer, context};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_one_line_without_tokens_queries_and_bodies() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    let guard = subscriber::set_default(subscriber);
    // Other tests may be registering the same lines at this moment, with no subscriber in sight.
    tracing::callsite::rebuild_interest_cache();

    let operation = "https://management.azure.com/operations/1?s=SECRET";
    let ids = [("x-ms-request-id", "r1"), ("x-ms-correlation-request-id", "c1")];
    let script = Script::new([
        answer(202, &[("azure-asyncoperation", operation), ids[0], ids[1]], "SECRET"),
        Err(TransportError::MaybeSent("cut".into())),
    ]);
    let token = StaticToken::new(Token::new("SECRET").unwrap());
    let client = ArmClient::builder(Endpoint::new(&Cloud::Public).unwrap(), token, script.clone()).build();
    let request = Request::new("/r/act", "v", &context()).query("q", "SECRET");
    let error = client.post_action(request, b"SECRET".to_vec()).await.unwrap_err();
    drop(guard);

    assert_eq!(
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap(),
        "DEBUG clb_arm: answered method=POST path=\"/r/act\" status=202 millis=0 \
         client_request_id=\"call-1\" request_id=\"r1\" correlation_id=\"c1\"\n\
         DEBUG clb_arm: not answered method=GET path=\"/operations/1\" millis=0 \
         client_request_id=\"call-1\" error=the request was sent, but its answer did not arrive\n"
    );
    assert!(!format!("{error} {error:?}").contains("SECRET"));
    assert_eq!(script.sent().len(), 2);
}

/// The fields of each span, as `name=value`.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<BTreeMap<u64, Fields>>>);

#[derive(Clone, Default)]
struct Fields(Vec<String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push(format!("{field}={value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        attributes.record(self.0.lock().unwrap().entry(id.into_u64()).or_default());
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(self.0.lock().unwrap().entry(id.into_u64()).or_default());
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_a_span_with_the_names_of_opentelemetry() {
    let spans = Spans::default();
    let guard = subscriber::set_default(tracing_subscriber::registry().with(spans.clone()));
    tracing::callsite::rebuild_interest_cache();
    let script = Script::new([
        answer(503, &[("x-ms-request-id", "r1")], ""),
        Err(TransportError::NotSent("refused".into())),
        answer(200, &[("x-ms-request-id", "r3")], "1"),
    ]);
    let policy = RetryPolicy { first: Duration::ZERO, ..RetryPolicy::default() };
    let client = script.builder().retry_policy(policy).build();
    client.get::<Value>(Request::new("/r", "v", &context()).query("q", "SECRET")).await.unwrap();
    drop(guard);

    let with = |resent: Option<&str>, outcome: &[&str]| {
        let request = [
            r#"server.address="management.azure.com""#,
            "server.port=443",
            r#"url.scheme="https""#,
            r#"url.path="/r""#,
            r#"az.client_request_id="call-1""#,
        ];
        let beginning = ["otel.name=GET", r#"otel.kind="client""#, "http.request.method=GET"].into_iter();
        let all = beginning.chain(resent).chain(request).chain(outcome.iter().copied());
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let version = r#"network.protocol.version="1.1""#;
    let failed =
        ["http.response.status_code=503", version, r#"az.service_request_id="r1""#, r#"error.type="503""#];
    let done = ["http.response.status_code=200", version, r#"az.service_request_id="r3""#];
    let seen: Vec<_> = spans.0.lock().unwrap().values().map(|fields| fields.0.clone()).collect();
    assert_eq!(
        seen,
        [
            with(None, &failed),
            with(Some("http.request.resend_count=1"), &[r#"error.type="not_sent""#]),
            with(Some("http.request.resend_count=2"), &done),
        ]
    );
    assert_eq!(script.sent().len(), 3);
}
