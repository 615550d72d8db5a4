//! ServiceGateways as resources, and tags.

use clb_sim::azure::Completion;
use serde_json::{Value, json};

use crate::support::{
    NETWORK, World, bad, code, delete, get, nat_gateway, nat_gateway_path, public_ip, public_ip_path, put,
    request, service_gateway_path, stocked, update_services,
};

fn path(name: &str) -> String {
    format!("{NETWORK}/serviceGateways/{name}")
}

fn service_gateway() -> Value {
    json!({"location": "eastus2", "sku": {"name": "Standard", "tier": "Regional"}, "properties": {
        "virtualNetwork": {"id": "/vnet"},
        "routeTargetAddress": {"subnet": {"id": "/vnet/subnets/s"}, "privateIPAddress": "10.0.0.4",
            "privateIPAllocationMethod": "Static"}
    }})
}

fn names(world: &mut World, path: &str) -> Vec<String> {
    let body = world.ok(get(path));
    let name = |item: &Value| item["id"].as_str().unwrap().replace(NETWORK, "");
    body["value"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn one_is_created_read_replaced_and_deleted() {
    let mut world = World::with(200, Completion::Polled);
    let created = world.0.handle(&put(&path("mine"), service_gateway()));
    assert_eq!((created.status, created.headers[0].0), (201, "azure-asyncoperation"));
    let mut expected = service_gateway();
    expected["id"] = json!(path("mine"));
    expected["name"] = json!("mine");
    expected["type"] = json!("Microsoft.Network/serviceGateways");
    expected["etag"] = created.body["etag"].clone();
    expected["properties"]["provisioningState"] = json!("Updating");
    expected["properties"]["services"] = json!([]);
    assert_eq!(created.body, expected);
    expected["properties"]["provisioningState"] = json!("Succeeded");
    assert_eq!(world.ok(get(&path("MINE"))), expected);
    let replaced = world.0.handle(&put(&path("Mine"), service_gateway()));
    assert_eq!((replaced.status, &replaced.body["name"]), (200, &json!("mine")));
    let deleted = world.0.handle(&delete(&path("mine")));
    let headers: Vec<&str> = deleted.headers.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        (deleted.status, headers),
        (202, vec!["azure-asyncoperation", "location", "azure-asyncnotification"])
    );
    assert_eq!(world.refused(get(&path("mine"))), (404, "ResourceNotFound".to_owned()));
    assert_eq!(world.0.handle(&delete(&path("mine"))).status, 204);
}

#[test]
fn what_is_written_is_checked() {
    let mut world = World::empty();
    let mut other_sku = service_gateway();
    other_sku["sku"]["name"] = json!("Basic");
    assert_eq!(world.refused(put(&path("mine"), other_sku)), bad("InvalidSku"));
    assert_eq!(world.refused(put(&path("my_own"), service_gateway())), bad("InvalidResourceName"));
    let mut placeless = service_gateway();
    placeless.as_object_mut().unwrap().remove("location");
    assert_eq!(world.refused(put(&path("mine"), placeless)), bad("LocationRequired"));
}

#[test]
fn they_are_listed_by_group_and_by_subscription() {
    let mut world = stocked();
    let subscription = "/subscriptions/S/providers/Microsoft.Network/serviceGateways";
    assert_eq!(names(&mut world, subscription), ["/serviceGateways/servicegateway"]);
    world.ok(put(&path("mine"), service_gateway()));
    let far = path("far").replace("/rg/", "/rg2/");
    world.ok(put(&far, service_gateway()));
    let in_group = ["/serviceGateways/mine", "/serviceGateways/servicegateway"];
    assert_eq!(names(&mut world, &format!("{NETWORK}/serviceGateways")), in_group);
    let rg2 = NETWORK.replace("/rg/", "/rg2/");
    let all =
        [in_group.map(str::to_owned).to_vec(), vec![far, format!("{rg2}/serviceGateways/servicegateway")]];
    assert_eq!(names(&mut world, subscription), all.concat());
}

#[test]
fn only_the_configured_one_holds_services() {
    let mut world = stocked();
    assert_eq!(
        world.refused(get(&format!("{}/services", path("mine")))),
        (404, "ResourceNotFound".to_owned())
    );
    world.ok(put(&path("mine"), service_gateway()));
    for part in ["services", "addressLocations"] {
        assert_eq!(world.ok(get(&format!("{}/{part}", path("mine")))), json!({"value": []}));
    }
    let update =
        request("POST", &format!("{}/updateServices", path("mine")), json!({"action": "FullUpdate"}));
    assert_eq!(world.refused(update), (501, "NotModelled".to_owned()));
    let services = world.rows("services");
    assert_eq!(services.as_array().unwrap().len(), 4);
    assert_eq!(world.ok(get(&service_gateway_path()))["properties"]["services"], services);
}

#[test]
fn the_configured_one_goes_when_nothing_is_tied_to_it_and_comes_back_empty() {
    let mut world = stocked();
    world.ok(put(&public_ip_path("n"), public_ip("IPv4")));
    world.ok(put(&nat_gateway_path("n"), nat_gateway(&["n"], &[])));
    let gateway = service_gateway_path();
    assert_eq!(world.refused(delete(&gateway)), bad("InUseServiceGatewayCannotBeDeleted"));
    let mut untied = nat_gateway(&["n"], &[]);
    untied["properties"]["serviceGateway"] = Value::Null;
    world.ok(put(&nat_gateway_path("n"), untied));
    world.ok(delete(&gateway));
    let gone = (404, "ResourceNotFound".to_owned());
    for request in
        [get(&gateway), get(&format!("{gateway}/services")), update_services("FullUpdate", json!([]))]
    {
        let response = world.0.handle(&request);
        assert_eq!((response.status, code(&response)), gone, "{request:?}");
    }
    let tied = world.0.handle(&put(&nat_gateway_path("n"), nat_gateway(&["n"], &[])));
    assert_eq!((tied.status, code(&tied)), bad("InvalidResourceReference"));
    assert_eq!(world.0.handle(&put(&gateway, service_gateway())).status, 201);
    assert_eq!(world.rows("services"), json!([]));
}

#[test]
fn tags_are_set_in_place_of_those_there_are_and_nothing_else_changes() {
    let mut world = stocked();
    for path in [service_gateway_path(), public_ip_path("a"), format!("{NETWORK}/loadBalancers/a")] {
        let mut expected = world.ok(get(&path));
        world.ok(request("PATCH", &path, json!({"tags": {"old": "1"}})));
        let tagged = world.ok(request("PATCH", &path, json!({"tags": {"new": "2"}})));
        expected["tags"] = json!({"new": "2"});
        let etag = |body: &Value| body["etag"].as_str().unwrap().to_owned();
        let (former, new) = (etag(&expected).replace('"', "\\\""), etag(&tagged).replace('"', "\\\""));
        let expected: Value = serde_json::from_str(&expected.to_string().replace(&former, &new)).unwrap();
        assert_eq!(tagged, expected);
        assert_eq!(world.ok(get(&path)), expected);
        for body in [json!({}), json!({"tags": {"a": 1}}), json!({"tags": []})] {
            assert_eq!(world.refused(request("PATCH", &path, body)), bad("InvalidRequestFormat"));
        }
    }
    let absent = world.refused(request("PATCH", &path("none"), json!({"tags": {}})));
    assert_eq!(absent, (404, "ResourceNotFound".to_owned()));
}
