//! Over real HTTP.

use std::time::Duration;

use clb_arm::{
    ArmClient, CallContext, Cloud, Endpoint, ErrorKind, HttpTransport, PollSchedule, Request, StaticToken,
    Token,
};
use serde_json::{Value, json};
use wiremock::matchers::{body_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

fn client(server: &MockServer) -> ArmClient {
    let cloud = Cloud::Custom { endpoint: server.uri(), audience: "https://sim".into() };
    let credential = StaticToken::new(Token::new("s3cret").unwrap());
    // Real time passes here, so the polls are as fast as they may be.
    let schedule = PollSchedule { first: Duration::from_millis(1), max: Duration::from_millis(1) };
    ArmClient::builder(Endpoint::new(&cloud).unwrap(), credential, HttpTransport::new().unwrap())
        .poll_schedule(schedule)
        .build()
}

fn request(path: &str) -> Request {
    Request::new(path, "2025-05-01", &CallContext::new("call-1").unwrap())
}

#[tokio::test]
async fn a_put_arrives_with_everything_it_needs_and_is_followed() {
    let server = MockServer::start().await;
    Mock::given(method("PUT"))
        .and(path("/r"))
        .and(query_param("api-version", "2025-05-01"))
        .and(header("authorization", "Bearer s3cret"))
        .and(header("accept", "application/json"))
        .and(header("content-type", "application/json"))
        .and(header("user-agent", concat!("clb-arm/", env!("CARGO_PKG_VERSION"))))
        .and(header("x-ms-client-request-id", "call-1"))
        .and(header("if-match", "W/\"1\""))
        .and(body_json(json!({"location": "eastus"})))
        .respond_with(
            ResponseTemplate::new(201)
                .insert_header("azure-asyncoperation", format!("{}/operations/1?s=s", server.uri()))
                .set_body_json(json!({"properties": {"provisioningState": "Updating"}})),
        )
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(method("GET"))
        .and(path("/operations/1"))
        .and(query_param("s", "s"))
        .and(header("authorization", "Bearer s3cret"))
        .and(header("x-ms-client-request-id", "call-1"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"status": "Succeeded"})))
        .expect(1)
        .mount(&server)
        .await;
    let resource = json!({"name": "r", "properties": {"provisioningState": "Succeeded"}});
    Mock::given(method("GET"))
        .and(path("/r"))
        .and(query_param("api-version", "2025-05-01"))
        .respond_with(ResponseTemplate::new(200).set_body_json(&resource))
        .expect(1)
        .mount(&server)
        .await;
    let put = request("/r").if_match("W/\"1\"").unwrap();
    let result: Value = client(&server).put(put, br#"{"location":"eastus"}"#.to_vec()).await.unwrap();
    assert_eq!(result, resource);
}

#[tokio::test]
async fn an_error_carries_what_the_answer_says() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .respond_with(
            ResponseTemplate::new(404)
                .insert_header("x-ms-request-id", "r1")
                .insert_header("x-ms-correlation-request-id", "c1")
                .set_body_json(json!({"error": {"code": "ResourceNotFound", "message": "gone"}})),
        )
        .expect(1)
        .mount(&server)
        .await;
    let error = client(&server).get::<Value>(request("/r")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET /r: not found (404): ResourceNotFound: gone \
         [request id r1, correlation id c1, client request id call-1]"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (server, other) = (MockServer::start().await, MockServer::start().await);
    Mock::given(method("GET"))
        .respond_with(ResponseTemplate::new(307).insert_header("location", other.uri()))
        .expect(1)
        .mount(&server)
        .await;
    let error = client(&server).get::<Value>(request("/r")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert_eq!(other.received_requests().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_deletion_polled_by_location_and_an_action_done_at_once() {
    let server = MockServer::start().await;
    Mock::given(method("DELETE"))
        .respond_with(ResponseTemplate::new(202).insert_header("location", "/results/1"))
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(path("/results/1"))
        .respond_with(ResponseTemplate::new(202))
        .up_to_n_times(2)
        .expect(2)
        .mount(&server)
        .await;
    Mock::given(path("/results/1")).respond_with(ResponseTemplate::new(204)).expect(1).mount(&server).await;
    Mock::given(method("POST"))
        .and(path("/r/act"))
        .respond_with(
            ResponseTemplate::new(200)
                .insert_header("location", "/nowhere")
                .set_body_json(json!({"status": "OK"})),
        )
        .expect(1)
        .mount(&server)
        .await;
    let client = client(&server);
    client.delete(request("/r")).await.unwrap();
    assert_eq!(client.post_action(request("/r/act"), b"{}".to_vec()).await.unwrap(), br#"{"status":"OK"}"#);
}
