//! What all requests have in common.

use clb_sim::azure::{Completion, Request, Response};
use serde_json::{Value, json};

use crate::support::*;

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

/// The request that asks for what a header or a `nextLink` names.
fn follow(link: &str) -> Request {
    let (path, query) = link.split_once('?').unwrap();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Request { query, ..get(path) }
}

#[test]
fn a_request_without_an_api_version_is_refused() {
    let mut world = World::empty();
    for query in [vec![], vec![("api-version".to_owned(), String::new())]] {
        let request = Request { query, ..get(&public_ip_path("x")) };
        assert_eq!(world.refused(request), bad("MissingApiVersionParameter"));
    }
    let query = vec![("API-Version".to_owned(), "2025-05-01".to_owned())];
    let request = Request { query, ..get(&format!("{NETWORK}/publicIPAddresses")) };
    assert_eq!(world.ok(request), json!({"value": []}));
}

#[test]
fn what_is_not_modelled_is_refused_loudly_and_named() {
    let mut world = World::empty();
    let gateway = format!("{NETWORK}/serviceGateways/servicegateway");
    for (method, path) in [
        ("OPTIONS", public_ip_path("x")),
        ("POST", load_balancer_path("x")),
        ("PUT", format!("{NETWORK}/loadBalancers")),
        ("GET", format!("{gateway}/updateServices")),
        ("POST", format!("{gateway}/services")),
        ("POST", format!("{gateway}/start")),
        ("GET", format!("{NETWORK}/virtualNetworks/x")),
        ("GET", "/subscriptions/s".to_owned()),
        ("DELETE", "/subscriptions/s/providers/Microsoft.Network/locations/l/operations/1".to_owned()),
    ] {
        let response = world.0.handle(&request(method, &path, Value::Null));
        let message = format!("the simulator does not model {method} {path}");
        let body = json!({"error": {"code": "NotModelled", "message": message, "details": []}});
        assert_eq!(response, Response { status: 501, headers: vec![], body });
    }
}

#[test]
fn the_service_gateway_is_in_every_group_and_no_other_is() {
    let mut world = World::empty();
    let gateway = json!({
        "id": format!("{NETWORK}/serviceGateways/servicegateway"), "name": "servicegateway",
        "type": "Microsoft.Network/serviceGateways", "location": "eastus", "etag": "W/\"00000000\"", "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {"provisioningState": "Succeeded", "services": []}
    });
    assert_eq!(world.ok(get(&format!("{NETWORK}/servicegateways/ServiceGateway"))), gateway);
    assert_eq!(world.ok(get(&format!("{NETWORK}/serviceGateways"))), json!({"value": [gateway]}));
    for path in ["other", "other/services", "other/addressLocations"] {
        let refused = world.refused(get(&format!("{NETWORK}/serviceGateways/{path}")));
        assert_eq!(refused, (404, "ResourceNotFound".to_owned()), "{path}");
    }
}

#[test]
fn lists_hold_what_is_in_their_group_and_of_their_kind() {
    let mut world = stocked();
    world.ok(put(&public_ip_path("far").replace("/rg/", "/rg2/"), public_ip("IPv4")));
    let mut names = |path: &str| -> Vec<String> {
        let body = world.ok(get(path));
        body["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&format!("{NETWORK}/publicIPAddresses")), ["a-pip", "b-pip"]);
    assert_eq!(names(&format!("{NETWORK}/loadBalancers").to_uppercase()), ["a", "b"]);
    assert_eq!(names(&format!("{NETWORK}/publicIPAddresses").replace("/rg/", "/RG2/")), ["far-pip"]);
}

#[test]
fn a_write_with_an_etag_replaces_that_version_only() {
    let mut world = World::empty();
    let path = public_ip_path("x");
    let matching = |request: Request, etag: &str| Request { if_match: Some(etag.to_owned()), ..request };
    let write = || put(&path, public_ip("IPv4"));
    let mismatch = (412, "PreconditionFailed".to_owned());
    for absent in ["*", "W/\"1\""] {
        assert_eq!(world.refused(matching(write(), absent)), mismatch, "{absent}");
    }
    let first = world.ok(write())["etag"].as_str().unwrap().to_owned();
    let second = world.ok(matching(write(), &first))["etag"].as_str().unwrap().to_owned();
    assert_eq!(world.refused(matching(write(), &first)), mismatch);
    assert_eq!(world.refused(matching(delete(&path), &first)), mismatch);
    let response = world.0.handle(&matching(write(), &first));
    let message = format!(
        "Etag provided in if-match header {first} does not match etag {second} of resource {path} in NRP data store."
    );
    let details = json!([{"code": "PreconditionFailedEtagMismatch", "message": message}]);
    assert_eq!(
        response.body,
        json!({"error": {"code": "PreconditionFailed", "message": "Precondition failed.", "details": details}})
    );
    world.ok(matching(write(), "*"));
    assert_eq!(world.refused(matching(write(), &second)), mismatch);
    world.ok(matching(delete(&path), "*"));
}

#[test]
fn every_list_is_paged_and_its_pages_make_up_the_whole() {
    for part in [
        "publicIPAddresses",
        "serviceGateways/servicegateway/services",
        "serviceGateways/servicegateway/addressLocations",
    ] {
        for (page_size, sizes) in [(0, vec![1, 1, 1, 1, 1]), (2, vec![2, 2, 1]), (5, vec![5]), (6, vec![5])] {
            let mut world = World::with(page_size, Completion::Immediate);
            for at in 1..=5 {
                world.ok(put(&public_ip_path(&format!("{at}")), public_ip("IPv4")));
                let service = json!([{"service": {"name": format!("s{at}"), "properties": {"serviceType": "Inbound"}}}]);
                world.ok(update_services("PartialUpdate", service));
                let address = json!([{"address": "10.1.0.1", "services": ["s1"]}]);
                let location = json!([{"addressLocation": format!("10.0.0.{at}"), "addressUpdateAction": "FullUpdate", "addresses": address}]);
                world.ok(update_locations("PartialUpdate", location));
            }
            let (mut pages, mut rows) = (Vec::new(), Vec::new());
            let mut next = Some(get(&format!("{NETWORK}/{part}")));
            while let Some(request) = next {
                let body = world.ok(request);
                let page = body["value"].as_array().unwrap();
                pages.push(page.len());
                rows.extend(
                    page.iter().map(|row| row.get("name").unwrap_or(&row["addressLocation"]).clone()),
                );
                next = body.get("nextLink").map(|link| follow(link.as_str().unwrap()));
            }
            assert_eq!(pages, sizes, "{part} by {page_size}");
            let unique: std::collections::BTreeSet<_> = rows.iter().map(Value::to_string).collect();
            assert_eq!((rows.len(), unique.len()), (5, 5), "{part} by {page_size}");
        }
    }
}

#[test]
fn a_page_that_no_list_gave_out_is_refused() {
    let request = follow(&format!("{NETWORK}/publicIPAddresses?api-version=1&$skiptoken=next"));
    assert_eq!(World::empty().refused(request), bad("InvalidSkipToken"));
}

#[test]
fn immediate_writes_are_done_although_they_name_an_operation() {
    let mut world = World::empty();
    let path = public_ip_path("x");
    for status in [201, 200] {
        let response = world.0.handle(&put(&path, public_ip("IPv4")));
        assert_eq!(
            (response.status, &response.body["properties"]["provisioningState"]),
            (status, &json!("Succeeded"))
        );
        let operation = header(&response, "azure-asyncoperation").unwrap();
        assert_eq!(world.ok(follow(operation)), json!({"status": "Succeeded"}));
    }
    assert_eq!(world.0.handle(&delete(&path)), Response { status: 200, headers: vec![], body: Value::Null });
}

#[test]
fn polled_writes_are_running_at_the_first_poll_and_done_at_the_second() {
    let mut world = World::with(200, Completion::Polled);
    let path = public_ip_path("x");
    let response = world.0.handle(&put(&path, public_ip("IPv4")));
    assert_eq!(
        (response.status, &response.body["properties"]["provisioningState"]),
        (201, &json!("Updating"))
    );
    assert_eq!(header(&response, "location"), None);
    let operation = header(&response, "azure-asyncoperation").unwrap();
    assert_eq!(world.ok(follow(operation)), json!({"status": "InProgress"}));
    assert_eq!(world.ok(follow(operation)), json!({"status": "Succeeded"}));
    assert_eq!(world.ok(get(&path))["properties"]["provisioningState"], json!("Succeeded"));

    let response = world.0.handle(&delete(&path));
    assert_eq!((response.status, &response.body), (202, &Value::Null));
    let location = header(&response, "location").unwrap();
    assert_eq!(world.0.handle(&follow(location)).status, 202);
    assert_eq!(world.0.handle(&follow(location)).status, 204);
    let operation = header(&response, "azure-asyncoperation").unwrap();
    assert_eq!(world.ok(follow(operation)), json!({"status": "Succeeded"}));
}

#[test]
fn an_operation_that_nobody_started_is_not_found() {
    for (kind, id) in [("operations", "1"), ("operationResults", "0"), ("operations", "x")] {
        let path = format!("/subscriptions/s/providers/Microsoft.Network/locations/eastus/{kind}/{id}");
        assert_eq!(World::empty().refused(get(&path)), (404, "OperationNotFound".to_owned()));
    }
}

#[test]
fn actions_on_the_gateway_are_done_at_once_in_both_forms() {
    let mut world = World::with(200, Completion::Polled);
    for action in [update_services("PartialUpdate", json!([])), update_locations("PartialUpdate", json!([]))]
    {
        let response = world.0.handle(&action);
        assert_eq!((response.status, &response.body), (200, &Value::Null));
        let [operation, result] =
            ["azure-asyncoperation", "location"].map(|name| header(&response, name).unwrap());
        assert_eq!(world.ok(follow(operation)), json!({"status": "Succeeded"}));
        assert_eq!(world.0.handle(&follow(result)).status, 204);
        for version in ["2025-09-01", "2026-03-01"] {
            let query = vec![("api-version".to_owned(), version.to_owned())];
            let response = world.0.handle(&Request { query, ..action.clone() });
            assert_eq!(response, Response { status: 200, headers: vec![], body: json!({"status": "OK"}) });
        }
    }
}
