//! Recorded traffic with the real service, played back: the client must send what was sent, in that order, and
//! understand what came back.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use clb_nrp::models::{
    LoadBalancer, NatGateway, ProvisioningState, PublicIp, ServiceGateway, UpdateAction,
    UpdateAddressLocations, UpdateServices,
};
use clb_nrp::{CallContext, ErrorKind, NrpApi, NrpClient, NrpConfig};
use serde_json::Value;

use crate::player::{Interaction, Player, read};

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cassettes");
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

/// The interactions of a recording whose URL has one of `parts` in it, in order.
fn recording(name: &str, parts: &[&str]) -> Option<VecDeque<Interaction>> {
    let path = Path::new(RECORDINGS).join(name);
    if !path.exists() {
        println!("skipped: there is no recording {}", path.display());
        return None;
    }
    let mut interactions = read(&path);
    interactions.retain(|one| parts.iter().any(|part| one.request.url.contains(part)));
    assert!(!interactions.is_empty());
    Some(interactions)
}

fn player(interactions: VecDeque<Interaction>) -> Player {
    Player::new(interactions, essence)
}

/// The client of a resource group that speaks to a recording.
fn client(player: &Player, resource_group: &str) -> NrpClient {
    let network = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v"
    );
    let config = NrpConfig::new(SUBSCRIPTION, resource_group, "eastus", network.parse().unwrap()).unwrap();
    NrpClient::new(player.arm().build(), config.with_service_gateway("testResource").unwrap())
}

/// A body without what says nothing: empty lists and objects, and the update action, which the recorded client left
/// out although the service describes it.
fn essence(body: Value) -> Value {
    match body {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| key != "action")
            .map(|(key, value)| (key, essence(value)))
            .filter(|(_, value)| {
                *value != Value::Object(Default::default()) && *value != Value::Array(vec![])
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(essence).collect(),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn call() -> CallContext {
    CallContext::random()
}

#[tokio::test(start_paused = true)]
async fn public_ips() {
    let parts = ["/publicIPAddresses", "/providers/Microsoft.Network/locations/"];
    let Some(recording) = recording("publicipaddress.yaml", &parts) else { return };
    let player = player(recording);
    let nrp = client(&player, "aks-cit-PublicIPAddress");

    // Created with an operation to follow.
    let wanted: PublicIp = player.next_body();
    let created = nrp.put_public_ip(&call(), "testResource", &wanted).await.unwrap();
    assert_eq!(created.properties.provisioning_state, Some(ProvisioningState::Succeeded));
    assert_eq!(nrp.get_public_ip(&call(), "testResource").await.unwrap(), Some(created.clone()));
    assert_eq!(nrp.get_public_ip(&call(), "testResourcenotfound").await.unwrap(), None);
    // Put again: done at once, then read back.
    assert_eq!(nrp.put_public_ip(&call(), "testResource", &player.next_body()).await.unwrap(), created);
    // A version that is not the current one.
    let error = nrp.put_public_ip(&call(), "testResource", &player.next_body()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::PreconditionFailed, Some("PreconditionFailedEtagMismatch"))
    );
    assert_eq!(nrp.list_public_ips(&call()).await.unwrap(), [created]);
    let elsewhere = client(&player, "aks-cit-PublicIPAddressnotfound");
    let error = elsewhere.list_public_ips(&call()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, Some("ResourceGroupNotFound")));
    nrp.delete_public_ip(&call(), "testResource").await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn load_balancers() {
    let parts = ["/publicIPAddresses", "/loadBalancers", "/providers/Microsoft.Network/locations/"];
    let Some(recording) = recording("loadbalancer.yaml", &parts) else { return };
    let player = player(recording);
    let nrp = client(&player, "aks-cit-LoadBalancer");

    let public_ip = nrp.put_public_ip(&call(), "pip1", &player.next_body()).await.unwrap();
    assert_eq!(public_ip.properties.ip_address, Some([40, 121, 142, 104].into()));
    // Done at once although there is an operation to follow.
    let wanted: LoadBalancer = player.next_body();
    let created = nrp.put_load_balancer(&call(), "testResource", &wanted).await.unwrap();
    let frontend = &created.properties.frontend_ip_configurations[0];
    let used = frontend.properties.public_ip_address.as_ref().unwrap().resource_id().unwrap();
    assert_eq!(used, nrp.config().public_ip_id("PIP1").unwrap());
    assert_eq!(nrp.get_load_balancer(&call(), "testResource").await.unwrap(), Some(created.clone()));
    assert_eq!(nrp.get_load_balancer(&call(), "testResourcenotfound").await.unwrap(), None);
    assert_eq!(nrp.put_load_balancer(&call(), "testResource", &player.next_body()).await.unwrap(), created);
    let error = nrp.put_load_balancer(&call(), "testResource", &player.next_body()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::PreconditionFailed, Some("PreconditionFailedEtagMismatch"))
    );
    assert_eq!(nrp.list_load_balancers(&call()).await.unwrap(), [created]);
    let elsewhere = client(&player, "aks-cit-LoadBalancernotfound");
    assert_eq!(elsewhere.list_load_balancers(&call()).await.unwrap_err().kind(), ErrorKind::NotFound);
    nrp.delete_load_balancer(&call(), "testResource").await.unwrap();
    nrp.delete_public_ip(&call(), "pip1").await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn nat_gateways() {
    let parts = ["/publicIPAddresses", "/natGateways", "/providers/Microsoft.Network/locations/"];
    let Some(recording) = recording("natgateway.yaml", &parts) else { return };
    let player = player(recording);
    let nrp = client(&player, "aks-cit-NatGateway");

    let public_ip = nrp.put_public_ip(&call(), "pip1", &player.next_body()).await.unwrap();
    assert_eq!(public_ip.properties.ip_address, Some([172, 200, 53, 164].into()));
    let wanted: NatGateway = player.next_body();
    let created = nrp.put_nat_gateway(&call(), "testResource", &wanted).await.unwrap();
    assert_eq!(created.properties.provisioning_state, Some(ProvisioningState::Succeeded));
    let used = created.properties.public_ip_addresses[0].resource_id().unwrap();
    assert_eq!(used, nrp.config().public_ip_id("PIP1").unwrap());
    assert_eq!(nrp.get_nat_gateway(&call(), "testResource").await.unwrap(), Some(created.clone()));
    assert_eq!(nrp.get_nat_gateway(&call(), "testResourcenotfound").await.unwrap(), None);
    assert_eq!(nrp.put_nat_gateway(&call(), "testResource", &player.next_body()).await.unwrap(), created);
    assert_eq!(nrp.list_nat_gateways(&call()).await.unwrap(), [created]);
    let elsewhere = client(&player, "aks-cit-NatGatewaynotfound");
    let error = elsewhere.list_nat_gateways(&call()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, Some("ResourceGroupNotFound")));
    nrp.delete_nat_gateway(&call(), "testResource").await.unwrap();
    nrp.delete_public_ip(&call(), "pip1").await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn service_gateways() {
    // The operations that belong to the virtual network are the first and the last of those recorded.
    let parts = ["/serviceGateways", "/providers/Microsoft.Network/locations/"];
    let Some(mut recording) = recording("servicegateway.yaml", &parts) else { return };
    recording.pop_front();
    recording.pop_back();
    let player = player(recording);
    let nrp = client(&player, "aks-cit-ServiceGateway");
    let action = || UpdateAction::PartialUpdate;

    // Before it is there, everything about it is not found.
    let tags = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
    let errors = [
        nrp.update_service_gateway_tags(&call(), "testResource", &tags).await.unwrap_err(),
        nrp.get_address_locations(&call()).await.unwrap_err(),
        nrp.get_services(&call()).await.unwrap_err(),
        nrp.update_address_locations(
            &call(),
            &UpdateAddressLocations { action: action(), address_locations: vec![] },
        )
        .await
        .unwrap_err(),
        nrp.update_services(&call(), &UpdateServices { action: action(), service_requests: vec![] })
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, Some("ResourceNotFound")), "{error}");
        assert!(!error.may_have_been_applied());
    }

    let wanted: ServiceGateway = player.next_body();
    let created = nrp.put_service_gateway(&call(), "testResource", &wanted).await.unwrap();
    assert_eq!(created.properties.route_target_address, wanted.properties.route_target_address);
    assert_eq!(created.properties.provisioning_state, Some(ProvisioningState::Succeeded));
    assert_eq!(nrp.get_service_gateway(&call(), "testResource").await.unwrap(), Some(created.clone()));
    assert_eq!(nrp.get_service_gateway(&call(), "testResourcenotfound").await.unwrap(), None);
    let again = nrp.put_service_gateway(&call(), "testResource", &player.next_body()).await.unwrap();
    assert_eq!(again, created);
    assert_eq!(nrp.list_service_gateways(&call()).await.unwrap(), [created]);
    let elsewhere = client(&player, "aks-cit-ServiceGatewaynotfound");
    let error = elsewhere.list_service_gateways(&call()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, Some("ResourceGroupNotFound")));
    nrp.delete_service_gateway(&call(), "testResource").await.unwrap();
    player.finish();
}
