//! What is logged, and what must not be.

use std::io;
use std::sync::{Arc, Mutex};

use clb_arm::{ArmClient, Cloud, Endpoint, Request, StaticToken, Token, TransportError};
use tracing_subscriber::filter::LevelFilter;

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
    let guard = tracing::subscriber::set_default(subscriber);
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
        "DEBUG clb_arm::client: answered method=POST path=\"/r/act\" status=202 millis=0 \
         client_request_id=\"call-1\" request_id=\"r1\" correlation_id=\"c1\"\n\
         DEBUG clb_arm::client: not answered method=GET path=\"/operations/1\" millis=0 \
         client_request_id=\"call-1\" error=the request was sent, but its answer did not arrive\n"
    );
    assert!(!format!("{error} {error:?}").contains("SECRET"));
    assert_eq!(script.sent().len(), 2);
}
