//! Every call over real HTTP.

use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport, PollSchedule};
use clb_nrp::models::{
    Address, AddressLocation, AddressLocationUpdate, GatewayService, IpVersion, LoadBalancer, NatGateway,
    PublicIp, ServiceProperties, ServiceRequest, ServiceType, UpdateAction, UpdateAddressLocations,
    UpdateServices,
};
use clb_nrp::{CallContext, ErrorKind, NrpApi, NrpClient, NrpConfig};
use futures::TryStreamExt;
use serde_json::{Value, json};
use wiremock::matchers::{body_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

const NETWORK: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
const GATEWAY: &str =
    "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/serviceGateways/servicegateway";

fn client(server: &MockServer) -> NrpClient {
    let endpoint = Endpoint::new(&Cloud::Custom { endpoint: server.uri(), audience: "sim".into() }).unwrap();
    // Real time passes here, so the polls are as fast as they may be.
    let schedule = PollSchedule { first: Duration::from_millis(1), max: Duration::from_millis(1) };
    let arm = ArmClient::builder(endpoint, Anonymous, HttpTransport::new().unwrap())
        .poll_schedule(schedule)
        .build();
    let network = format!("{NETWORK}/virtualNetworks/v").parse().unwrap();
    NrpClient::new(arm, NrpConfig::new("s", "rg", "eastus", network).unwrap())
}

fn call() -> CallContext {
    CallContext::new("op-1").unwrap()
}

/// Expects exactly one such request, which carries the call's id and the API version.
async fn expect(server: &MockServer, verb: &str, at: &str, body: Option<Value>, answer: ResponseTemplate) {
    let mut mock = Mock::given(method(verb))
        .and(path(at))
        .and(query_param("api-version", "2025-05-01"))
        .and(header("x-ms-client-request-id", "op-1"));
    if let Some(body) = body {
        mock = mock.and(body_json(body));
    }
    mock.respond_with(answer).expect(1).mount(server).await;
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

#[tokio::test]
async fn public_ips_are_read_written_deleted_and_listed() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    let at = format!("{NETWORK}/publicIPAddresses/uid-pip");
    let wanted = PublicIp::for_service("eastus", IpVersion::V4, Default::default());
    let mut expected = wanted.clone();
    expected.properties.ip_address = Some([20, 0, 0, 1].into());
    let mut held = serde_json::to_value(&wanted).unwrap();
    held["properties"]["ipAddress"] = "20.0.0.1".into();

    expect(&server, "PUT", &at, Some(serde_json::to_value(&wanted).unwrap()), ok(held.clone())).await;
    assert_eq!(nrp.put_public_ip(&call(), "uid-pip", &wanted).await.unwrap(), expected);
    expect(&server, "GET", &at, None, ok(held.clone())).await;
    assert_eq!(nrp.get_public_ip(&call(), "uid-pip").await.unwrap(), Some(expected.clone()));
    expect(&server, "GET", &format!("{NETWORK}/publicIPAddresses"), None, ok(json!({"value": [held]}))).await;
    assert_eq!(nrp.list_public_ips(&call()).await.unwrap(), [expected]);
    expect(&server, "DELETE", &at, None, ResponseTemplate::new(204)).await;
    nrp.delete_public_ip(&call(), "uid-pip").await.unwrap();
}

#[tokio::test]
async fn load_balancers_are_read_written_deleted_and_listed() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    let at = format!("{NETWORK}/loadBalancers/uid");
    let wanted =
        LoadBalancer::for_service(nrp.config(), "uid", "uid-pip", Default::default(), &[], 4).unwrap();
    let body = serde_json::to_value(&wanted).unwrap();

    expect(&server, "PUT", &at, Some(body.clone()), ok(body.clone())).await;
    assert_eq!(nrp.put_load_balancer(&call(), "uid", &wanted).await.unwrap(), wanted);
    expect(&server, "GET", &at, None, ok(body.clone())).await;
    assert_eq!(nrp.get_load_balancer(&call(), "uid").await.unwrap(), Some(wanted.clone()));
    expect(&server, "GET", &format!("{NETWORK}/loadBalancers"), None, ok(json!({"value": [body]}))).await;
    assert_eq!(nrp.list_load_balancers(&call()).await.unwrap(), [wanted]);
    expect(&server, "DELETE", &at, None, ResponseTemplate::new(404)).await;
    nrp.delete_load_balancer(&call(), "uid").await.unwrap();
}

#[tokio::test]
async fn a_write_of_what_was_read_is_conditional() {
    let server = MockServer::start().await;
    Mock::given(method("PUT"))
        .and(header("if-match", "W/\"1\""))
        .respond_with(ResponseTemplate::new(412))
        .expect(1)
        .mount(&server)
        .await;
    let read = PublicIp { etag: Some("W/\"1\"".into()), ..PublicIp::default() };
    let error = client(&server).put_public_ip(&call(), "a", &read).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PreconditionFailed);
}

#[tokio::test]
async fn a_name_that_cannot_be_one_is_not_sent() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    for name in ["", "../x", "a?b"] {
        assert_eq!(nrp.delete_load_balancer(&call(), name).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(nrp.get_public_ip(&call(), name).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 0);
}

fn services() -> (UpdateServices, Value) {
    let update = UpdateServices {
        action: UpdateAction::PartialUpdate,
        service_requests: vec![
            ServiceRequest::put(GatewayService::inbound("a", vec![])),
            ServiceRequest::delete("b"),
        ],
    };
    let body = json!({"action": "PartialUpdate", "serviceRequests": [
        {"isDelete": false, "service": {"name": "a", "properties": {
            "serviceType": "Inbound", "loadBalancerBackendPools": []
        }}},
        {"isDelete": true, "service": {"name": "b"}}
    ]});
    (update, body)
}

fn locations() -> (UpdateAddressLocations, Value) {
    let addresses = vec![Address { address: [10, 1, 0, 5].into(), services: ["a"].into_iter().collect() }];
    let update = UpdateAddressLocations {
        action: UpdateAction::PartialUpdate,
        address_locations: vec![AddressLocationUpdate {
            address_location: [10, 0, 0, 4].into(),
            address_update_action: UpdateAction::FullUpdate,
            addresses,
        }],
    };
    let body = json!({"action": "PartialUpdate", "addressLocations": [{
        "addressLocation": "10.0.0.4", "addressUpdateAction": "FullUpdate",
        "addresses": [{"address": "10.1.0.5", "services": ["a"]}]
    }]});
    (update, body)
}

#[tokio::test]
async fn every_successful_answer_to_the_two_actions_is_one() {
    let polled = |server: &MockServer| {
        let operation = format!("{}/operations/1?s=s", server.uri());
        ResponseTemplate::new(202).insert_header("azure-asyncoperation", operation)
    };
    // Synchronous, whatever the headers say; the newer versions' body; nothing at all; and with an operation to follow.
    let answers: [(&str, usize); 5] =
        [("plain", 0), ("stamped", 0), ("status", 0), ("empty", 0), ("polled", 1)];
    for (shape, polls) in answers {
        let server = MockServer::start().await;
        let answer = match shape {
            "plain" => ResponseTemplate::new(200),
            "stamped" => ResponseTemplate::new(200)
                .insert_header("azure-asyncoperation", "https://elsewhere.example/operations/1")
                .insert_header("location", "https://elsewhere.example/results/1"),
            "status" => ok(json!({"status": "OK"})),
            "empty" => ResponseTemplate::new(204),
            _ => polled(&server),
        };
        Mock::given(path("/operations/1"))
            .respond_with(ok(json!({"status": "Succeeded"})))
            .expect(2 * polls as u64)
            .mount(&server)
            .await;
        let ((update, body), (location_update, location_body)) = (services(), locations());
        expect(&server, "POST", &format!("{GATEWAY}/updateServices"), Some(body), answer.clone()).await;
        client(&server).update_services(&call(), &update).await.unwrap();
        expect(&server, "POST", &format!("{GATEWAY}/updateAddressLocations"), Some(location_body), answer)
            .await;
        client(&server).update_address_locations(&call(), &location_update).await.unwrap();
    }
}

#[tokio::test]
async fn every_failure_of_the_two_actions_is_one() {
    let code = "ServiceWithOverlayMappingsCannotBeDeleted";
    let error = json!({"error": {"code": code, "message": "m"}});
    let prose = json!({"error": {"code": "BadRequest", "message": format!("it says {code}: no")}});
    let failed = json!({"status": "Failed", "error": {"code": code, "message": "m"}});
    for (first, poll, kind, applied) in [
        (ResponseTemplate::new(400).set_body_json(&error), None, ErrorKind::Conflict, false),
        (ResponseTemplate::new(400).set_body_json(&prose), None, ErrorKind::Conflict, false),
        (ok(error), None, ErrorKind::Conflict, true),
        (
            ResponseTemplate::new(202).insert_header("location", "/operations/1"),
            Some(failed),
            ErrorKind::Conflict,
            true,
        ),
    ] {
        let server = MockServer::start().await;
        if let Some(poll) = poll {
            Mock::given(path("/operations/1")).respond_with(ok(poll)).expect(1).mount(&server).await;
        }
        expect(&server, "POST", &format!("{GATEWAY}/updateServices"), None, first).await;
        let error = client(&server).update_services(&call(), &services().0).await.unwrap_err();
        assert!(error.has_code(code), "{error}");
        assert_eq!((error.kind(), error.may_have_been_applied()), (kind, applied), "{error}");
    }
}

#[tokio::test]
async fn services_and_locations_are_listed_in_every_published_spelling() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    let next = format!("{}{GATEWAY}/services?api-version=2025-05-01&$skipToken=2", server.uri());
    Mock::given(path(format!("{GATEWAY}/services")))
        .and(query_param("$skipToken", "2"))
        .respond_with(ok(json!({"value": [null, {"Name": "default-natgw", "Properties": {
            "ServiceType": "Outbound", "IsDefault": "True"
        }}]})))
        .expect(1)
        .with_priority(1)
        .mount(&server)
        .await;
    let first = json!({"value": [{"name": "a", "properties": {"serviceType": "Inbound"}}], "nextLink": next});
    expect(&server, "GET", &format!("{GATEWAY}/services"), None, ok(first)).await;
    let service = |name: &str, service_type, is_default| {
        let properties =
            ServiceProperties { service_type: Some(service_type), is_default, ..Default::default() };
        GatewayService { name: name.into(), properties: Some(properties) }
    };
    assert_eq!(
        nrp.get_services(&call()).await.unwrap(),
        [
            service("a", ServiceType::Inbound, None),
            service("default-natgw", ServiceType::Outbound, Some(true))
        ]
    );

    let nested = json!({"value": [
        {"AddressLocations": [{"AddressLocation": "10.0.0.4", "Addresses": [
            {"Address": "10.1.0.5", "Services": ["a"]}, {"Address": "10.1.0.6", "Services": []}
        ]}]},
        {"addressLocation": "fd00::1", "addresses": [{"address": "fd01::5", "services": ["a", "b"]}]},
        {"addressLocation": "10.0.0.5", "addresses": []}
    ]});
    expect(&server, "GET", &format!("{GATEWAY}/addressLocations"), None, ok(nested)).await;
    let location = |location: &str, address: &str, services: &[&str]| AddressLocation {
        location: location.parse().unwrap(),
        addresses: vec![Address {
            address: address.parse().unwrap(),
            services: services.iter().copied().collect(),
        }],
    };
    assert_eq!(
        nrp.get_address_locations(&call()).await.unwrap(),
        [location("10.0.0.4", "10.1.0.5", &["a"]), location("fd00::1", "fd01::5", &["a", "b"])]
    );
}

#[tokio::test]
async fn what_only_tools_need_is_where_azure_has_it() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    let all = "/subscriptions/s/providers/Microsoft.Network";
    let named = |name: &str| ok(json!({"value": [{"name": name}]}));
    expect(&server, "GET", &format!("{all}/serviceGateways"), None, named("g")).await;
    expect(&server, "GET", &format!("{all}/publicIPAddresses"), None, named("p")).await;
    expect(&server, "GET", &format!("{all}/loadBalancers"), None, named("l")).await;
    expect(&server, "GET", &format!("{all}/natGateways"), None, named("n")).await;
    let names = [
        nrp.list_all_service_gateways(&call()).await.unwrap().remove(0).name,
        nrp.list_all_public_ips(&call()).await.unwrap().remove(0).name,
        nrp.list_all_load_balancers(&call()).await.unwrap().remove(0).name,
        nrp.list_all_nat_gateways(&call()).await.unwrap().remove(0).name,
    ];
    assert_eq!(names, ["g", "p", "l", "n"].map(|name| Some(name.to_owned())));

    let tags = [("a".to_owned(), "b".to_owned())].into();
    let body = json!({"tags": {"a": "b"}});
    expect(&server, "PATCH", GATEWAY, Some(body.clone()), ok(body)).await;
    let tagged = nrp.update_service_gateway_tags(&call(), "servicegateway", &tags).await.unwrap();
    assert_eq!(tagged.tags, tags);

    let pools = format!("{NETWORK}/loadBalancers/l/backendAddressPools");
    let pool = json!({"name": "p", "etag": "W/1", "properties": {"drainPeriodInSeconds": 5}});
    expect(&server, "GET", &format!("{pools}/p"), None, ok(pool.clone())).await;
    let read = nrp.get_backend_pool(&call(), "l", "p").await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), pool);
    Mock::given(method("PUT"))
        .and(path(format!("{pools}/p")))
        .and(header("if-match", "W/1"))
        .and(body_json(&pool))
        .respond_with(ok(pool.clone()))
        .expect(1)
        .mount(&server)
        .await;
    assert_eq!(nrp.put_backend_pool(&call(), "l", "p", &read).await.unwrap(), read);
    expect(&server, "GET", &pools, None, ok(json!({"value": [pool]}))).await;
    assert_eq!(nrp.list_backend_pools(&call(), "l").await.unwrap(), [read]);
    expect(&server, "DELETE", &format!("{pools}/p"), None, ResponseTemplate::new(204)).await;
    nrp.delete_backend_pool(&call(), "l", "p").await.unwrap();
}

#[tokio::test]
async fn nat_gateways_are_read_written_deleted_and_listed() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    let at = format!("{NETWORK}/natGateways/egress");
    let wanted = NatGateway::for_service(nrp.config(), "egress-pip", None, Default::default()).unwrap();
    let body = serde_json::to_value(&wanted).unwrap();

    expect(&server, "PUT", &at, Some(body.clone()), ok(body.clone())).await;
    assert_eq!(nrp.put_nat_gateway(&call(), "egress", &wanted).await.unwrap(), wanted);
    expect(&server, "GET", &at, None, ok(body.clone())).await;
    assert_eq!(nrp.get_nat_gateway(&call(), "egress").await.unwrap(), Some(wanted.clone()));
    expect(&server, "GET", &format!("{NETWORK}/natGateways"), None, ok(json!({"value": [body]}))).await;
    assert_eq!(nrp.list_nat_gateways(&call()).await.unwrap(), [wanted]);
    expect(&server, "DELETE", &at, None, ResponseTemplate::new(404)).await;
    nrp.delete_nat_gateway(&call(), "egress").await.unwrap();
}

#[tokio::test]
async fn every_version_of_the_api_is_spoken_as_configured() {
    for version in ["2025-05-01", "2025-09-01", "2026-03-01"] {
        let server = MockServer::start().await;
        let plain = client(&server);
        let nrp = NrpClient::new(plain.arm().clone(), plain.config().clone().with_api_version(version));
        Mock::given(query_param("api-version", version))
            .respond_with(ok(json!({"status": "OK"})))
            .expect(3)
            .mount(&server)
            .await;
        nrp.update_services(&call(), &services().0).await.unwrap();
        nrp.update_address_locations(&call(), &locations().0).await.unwrap();
        assert_eq!(nrp.get_services(&call()).await.unwrap(), []);
    }
}

#[tokio::test]
async fn services_and_locations_are_streamed_page_by_page() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    for (name, first, second) in [
        ("services", json!({"name": "a"}), json!({"Name": "b"})),
        (
            "addressLocations",
            json!({"addressLocation": "10.0.0.4", "addresses": [{"address": "10.1.0.5", "services": ["a"]}]}),
            json!({"addressLocation": "10.0.0.5", "addresses": []}),
        ),
    ] {
        let next = format!("{GATEWAY}/{name}?api-version=2025-05-01&$skipToken=2");
        Mock::given(path(format!("{GATEWAY}/{name}")))
            .and(query_param("$skipToken", "2"))
            .respond_with(ok(json!({"value": [second]})))
            .expect(1)
            .with_priority(1)
            .mount(&server)
            .await;
        let page = ok(json!({"value": [first], "nextLink": next}));
        expect(&server, "GET", &format!("{GATEWAY}/{name}"), None, page).await;
    }
    let services: Vec<_> = nrp.service_pages(&call()).try_collect().await.unwrap();
    let names = |page: &Vec<GatewayService>| page.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(services.iter().map(names).collect::<Vec<_>>(), [["a"], ["b"]]);
    let locations: Vec<_> = nrp.address_location_pages(&call()).try_collect().await.unwrap();
    let address = Address { address: [10, 1, 0, 5].into(), services: ["a"].into_iter().collect() };
    let held = AddressLocation { location: [10, 0, 0, 4].into(), addresses: vec![address] };
    assert_eq!(locations, [vec![held], vec![]]);
}

#[tokio::test]
async fn a_change_that_meets_another_is_made_again_to_what_that_has_left() {
    let server = MockServer::start().await;
    let nrp = client(&server);
    let at = format!("{NETWORK}/publicIPAddresses/a");
    let held =
        |etag: &str, tag: &str| json!({"name": "a", "etag": etag, "tags": {tag: "1"}, "properties": {}});
    let read = |etag: &'static str, tag| {
        Mock::given(method("GET")).and(path(&at)).respond_with(ok(held(etag, tag))).up_to_n_times(1).expect(1)
    };
    read("v1", "theirs").mount(&server).await;
    read("v2", "newer").mount(&server).await;
    let error = json!({"error": {"code": "PreconditionFailed", "message": "m"}});
    let refused = ResponseTemplate::new(412).set_body_json(error);
    let write = |etag: &str| Mock::given(method("PUT")).and(path(&at)).and(header("if-match", etag));
    write("v1").respond_with(refused).expect(1).mount(&server).await;
    let body = json!({"name": "a", "etag": "v2", "tags": {"newer": "1", "ours": "2"}, "properties": {}});
    write("v2").and(body_json(&body)).respond_with(ok(body.clone())).expect(1).mount(&server).await;

    let mut tries = 0;
    loop {
        let mut current = nrp.get_public_ip(&call(), "a").await.unwrap().unwrap();
        current.tags.insert("ours".into(), "2".into());
        tries += 1;
        match nrp.put_public_ip(&call(), "a", &current).await {
            Ok(_) => break,
            Err(error) => assert_eq!(
                (error.kind(), error.resource_id()),
                (ErrorKind::PreconditionFailed, Some(nrp.config().public_ip_id("a").unwrap()))
            ),
        }
    }
    assert_eq!(tries, 2);
}
