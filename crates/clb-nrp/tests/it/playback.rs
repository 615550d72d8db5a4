//! The interactions in `tests/recordings`, played back: as [`crate::recorded`], and there in every clone. They have what the
//! recorded traffic lacks: operations that run, fail, are lost and cancelled, and services with their addresses.

use std::path::Path;
use std::time::Duration;

use clb_arm::PollSchedule;
use clb_nrp::models::{
    Address, AddressLocation, AddressLocationUpdate, AllocationMethod, BackendPool, GatewayService,
    IpVersion, LoadBalancer, NatGateway, Patch, ProvisioningState, PublicIp, RouteTargetAddress,
    ServiceGateway, ServicePort, ServiceProperties, ServiceRequest, ServiceType, TransportProtocol,
    UpdateAction, UpdateAddressLocations, UpdateServices,
};
use clb_nrp::{CallContext, ErrorKind, NrpApi, NrpClient, NrpConfig, ResourceId};
use tokio::time::Instant;

use crate::player::{Player, read};

const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";
const GATEWAY: &str = "servicegateway";

fn play(name: &str) -> (Player, NrpClient) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(name);
    let player = Player::new(read(&path), |body| body);
    let network: ResourceId = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/demo/providers/Microsoft.Network/virtualNetworks/vnet"
    )
    .parse()
    .unwrap();
    // One second after each answer that does not name a time.
    let schedule = PollSchedule { first: Duration::from_secs(1), max: Duration::from_secs(1) };
    let arm = player.arm().poll_schedule(schedule).build();
    (player, NrpClient::new(arm, NrpConfig::new(SUBSCRIPTION, "demo", "eastus", network).unwrap()))
}

fn call() -> CallContext {
    CallContext::random()
}

fn names(names: &[&str]) -> clb_nrp::models::ServiceNames {
    names.iter().copied().collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_gateway_from_nothing_to_nothing() {
    let (player, nrp) = play("service_gateway.yaml");
    let (network, started) = (nrp.config().virtual_network().clone(), Instant::now());
    assert_eq!(nrp.get_service_gateway(&call(), GATEWAY).await.unwrap(), None);

    let target = RouteTargetAddress::dynamic(&network.child("subnets", "gateway").unwrap());
    let wanted = ServiceGateway::for_cluster(nrp.config(), target, Default::default());
    let mut gateway = nrp.put_service_gateway(&call(), GATEWAY, &wanted).await.unwrap();
    assert_eq!(gateway.properties.provisioning_state, Some(ProvisioningState::Succeeded));
    // Ten seconds to the first poll, five to the second, as the server said.
    assert_eq!(started.elapsed().as_secs(), 15);

    // A change that meets another one is made again to what that has left.
    let fix = |gateway: &mut ServiceGateway| {
        let target = gateway.properties.route_target_address.as_mut().unwrap();
        target.private_ip_allocation_method = Some(AllocationMethod::Static);
    };
    fix(&mut gateway);
    let error = nrp.put_service_gateway(&call(), GATEWAY, &gateway).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code(), error.may_have_been_applied()),
        (ErrorKind::PreconditionFailed, Some("PreconditionFailedEtagMismatch"), false)
    );
    let id = error.resource_id().unwrap();
    assert_eq!(id, nrp.config().service_gateway_id().unwrap());
    let mut gateway = nrp.get_service_gateway(&call(), id.name()).await.unwrap().unwrap();
    fix(&mut gateway);
    let gateway = nrp.put_service_gateway(&call(), GATEWAY, &gateway).await.unwrap();
    assert_eq!(gateway.tags, [("team".to_owned(), "net".to_owned())].into());
    assert_eq!(started.elapsed().as_secs(), 15);

    let tags = [("a".to_owned(), "b".to_owned())].into();
    assert_eq!(nrp.update_service_gateway_tags(&call(), GATEWAY, &tags).await.unwrap().tags, tags);
    let all = nrp.list_all_service_gateways(&call()).await.unwrap();
    let ids: Vec<ResourceId> = all.iter().map(|one| one.id.as_ref().unwrap().parse().unwrap()).collect();
    assert_eq!(ids, [id]);
    nrp.delete_service_gateway(&call(), GATEWAY).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 25);
    nrp.delete_service_gateway(&call(), GATEWAY).await.unwrap();
    player.finish();
}

fn partial(address_locations: Vec<AddressLocationUpdate>) -> UpdateAddressLocations {
    UpdateAddressLocations { action: UpdateAction::PartialUpdate, address_locations }
}

fn location(location: &str, action: UpdateAction, addresses: &[(&str, &[&str])]) -> AddressLocationUpdate {
    AddressLocationUpdate {
        address_location: location.parse().unwrap(),
        address_update_action: action,
        addresses: addresses
            .iter()
            .map(|(address, services)| Address {
                address: address.parse().unwrap(),
                services: names(services),
            })
            .collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn services_and_their_addresses() {
    let (player, nrp) = play("services.yaml");
    let request = |service_requests| UpdateServices { action: UpdateAction::PartialUpdate, service_requests };
    let pool_id = nrp.config().backend_pool_id("web", "web").unwrap();
    let pool = BackendPool::new(&pool_id, nrp.config().virtual_network());
    let nat_gateway = nrp.config().nat_gateway_id("egress").unwrap();
    let register = request(vec![
        ServiceRequest::put(GatewayService::inbound("web", vec![pool])),
        ServiceRequest::put(GatewayService::outbound("egress", Some(&nat_gateway))),
    ]);
    nrp.update_services(&call(), &register).await.unwrap();

    let (v4, v6) = (("10.0.0.4", UpdateAction::FullUpdate), ("fd00::4", UpdateAction::PartialUpdate));
    let update = partial(vec![
        location(v4.0, v4.1, &[("10.1.0.5", &["web", "egress"]), ("10.1.0.6", &["web"])]),
        location(v6.0, v6.1, &[("fd01::5", &["web"])]),
    ]);
    nrp.update_address_locations(&call(), &update).await.unwrap();

    let services = nrp.get_services(&call()).await.unwrap();
    let shown = |service: &GatewayService| {
        let ServiceProperties { service_type, is_default, .. } = service.properties.clone().unwrap();
        (service.name.clone(), service_type.unwrap(), is_default.unwrap())
    };
    assert_eq!(
        services.iter().map(shown).collect::<Vec<_>>(),
        [
            ("web".to_owned(), ServiceType::Inbound, false),
            ("default-natgw".to_owned(), ServiceType::Outbound, true)
        ]
    );
    let pools = services[0].properties.as_ref().unwrap().load_balancer_backend_pools.as_ref().unwrap();
    assert_eq!(pools[0].resource_id(), Some(pool_id));
    // What is held is what was sent.
    let held = |sent: AddressLocationUpdate| AddressLocation {
        location: sent.address_location,
        addresses: sent.addresses,
    };
    let expected: Vec<_> = update.address_locations.into_iter().map(held).collect();
    assert_eq!(nrp.get_address_locations(&call()).await.unwrap(), expected);

    let twice = partial(vec![location("fd00::1", UpdateAction::PartialUpdate, &[]); 2]);
    let error = nrp.update_address_locations(&call(), &twice).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code(), error.may_have_been_applied()),
        (ErrorKind::Invalid, Some("DuplicateLocationsInRequest"), false)
    );
    let error =
        nrp.update_services(&call(), &request(vec![ServiceRequest::delete("web")])).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::Conflict, true));
    assert_eq!(error.request_id(), Some("22222222-0000-0000-0000-000000000008"));
    let remove = partial(vec![location("10.0.0.4", UpdateAction::PartialUpdate, &[])]);
    let error = nrp.update_address_locations(&call(), &remove).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled { retry_after: Some(Duration::from_secs(17)) });
    let clear = request(vec![ServiceRequest::put(GatewayService::outbound("egress", None))]);
    nrp.update_services(&call(), &clear).await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn the_actions_of_the_newer_version() {
    let (player, nrp) = play("services_newer.yaml");
    let nrp = NrpClient::new(nrp.arm().clone(), nrp.config().clone().with_api_version("2026-03-01"));
    let action = UpdateAction::FullUpdate;
    let services = UpdateServices { action: action.clone(), service_requests: vec![] };
    nrp.update_services(&call(), &services).await.unwrap();
    let locations = UpdateAddressLocations { action, address_locations: vec![] };
    nrp.update_address_locations(&call(), &locations).await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_made_and_deleted_in_the_background() {
    let (player, nrp) = play("public_ip.yaml");
    let started = Instant::now();
    let tags = [("clb-owner".to_owned(), "demo".to_owned())].into();
    let wanted = PublicIp::for_service("eastus", IpVersion::V4, tags);
    let made = nrp.put_public_ip(&call(), "web-pip", &wanted).await.unwrap();
    assert_eq!(made.properties.ip_address, Some([20, 0, 0, 7].into()));
    assert_eq!(started.elapsed().as_secs(), 7);
    assert_eq!(nrp.list_public_ips(&call()).await.unwrap(), [made]);
    let error = nrp.delete_public_ip(&call(), "web-pip").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::Conflict, false));
    nrp.delete_public_ip(&call(), "web-pip").await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 10);
    let error = nrp.put_public_ip(&call(), "web-pip", &wanted).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Quota, Some("PublicIPCountLimitReached")));
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_done_at_once_and_a_deletion_that_fails_inside_a_200() {
    let (player, nrp) = play("load_balancer.yaml");
    let ports = [ServicePort { protocol: TransportProtocol::Tcp, frontend_port: 80, backend_port: 8080 }];
    let wanted =
        LoadBalancer::for_service(nrp.config(), "web", "web-pip", Default::default(), &ports, 4).unwrap();
    let made = nrp.put_load_balancer(&call(), "web", &wanted).await.unwrap();
    assert_eq!(made.properties.load_balancing_rules, wanted.properties.load_balancing_rules);
    let pools = nrp.list_backend_pools(&call(), "web").await.unwrap();
    assert_eq!(pools, made.properties.backend_address_pools);
    let refused = nrp.delete_load_balancer(&call(), "web").await.unwrap_err();
    let failed = nrp.delete_load_balancer(&call(), "web").await.unwrap_err();
    let shown =
        [refused, failed].map(|it| (it.kind(), it.code().unwrap().to_owned(), it.may_have_been_applied()));
    assert_eq!(
        shown,
        [
            (ErrorKind::Conflict, "InUseBackendAddressPoolCannotBeDeleted".to_owned(), false),
            (ErrorKind::Conflict, "AnotherOperationInProgress".to_owned(), true)
        ]
    );
    nrp.delete_load_balancer(&call(), "web").await.unwrap();
    player.finish();
}

#[tokio::test(start_paused = true)]
async fn a_nat_gateway_whose_operation_is_lost_and_found_again() {
    let (player, nrp) = play("nat_gateway.yaml");
    let wanted = NatGateway::for_service(nrp.config(), "egress-pip", None, Default::default()).unwrap();
    let error = nrp.put_nat_gateway(&call(), "egress", &wanted).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_been_applied()), (ErrorKind::Unknown, true));
    let body = nrp.arm().resume(&call(), error.operation().unwrap()).await.unwrap();
    let made: NatGateway = serde_json::from_slice(&body).unwrap();
    assert_eq!(made.properties.service_gateway, wanted.properties.service_gateway);

    let mut gateway = nrp.get_nat_gateway(&call(), "egress").await.unwrap().unwrap();
    gateway.properties.service_gateway = Patch::Clear;
    let detached = nrp.put_nat_gateway(&call(), "egress", &gateway).await.unwrap();
    assert_eq!(detached.properties.service_gateway, Patch::Keep);
    let error = nrp.delete_nat_gateway(&call(), "egress").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code(), error.may_have_been_applied()),
        (ErrorKind::OperationFailed, Some("Canceled"), true)
    );
    player.finish();
}
