//! Outbound services: the calls they cause, the bodies of these, and whose resources they touch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clb_controller::{LocationAndNrpServiceBatchUpdater, OWNER_TAG, ResourceExecutor};
use clb_difftracker::{
    FailureKind, GatewayRequest, IpFamily, Outcome, RegistrationUpdate, ResourceRequest, ServiceId,
    ServiceUpdate, Success,
};
use clb_nrp::CallContext;
use clb_nrp::models::{NatGateway, Patch, PublicIp, SubResource};
use serde_json::{Value, json};

use crate::driving::config;
use crate::fake::Fake;

const NETWORK: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";

async fn execute(fake: &Arc<Fake>, adopt: bool, request: ResourceRequest) -> Outcome {
    let executor = ResourceExecutor::new(fake.clone(), config(), "here");
    executor.execute(&CallContext::random(), &ServiceId::new("gw").unwrap(), adopt, &request).await
}

fn new_fake() -> Arc<Fake> {
    Arc::new(Fake::new(Duration::ZERO))
}

fn tagged(owner: Option<&str>) -> BTreeMap<String, String> {
    owner.map(|owner| (OWNER_TAG.to_owned(), owner.to_owned())).into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_nat_gateway_is_written_with_the_public_ips_it_needs_and_keeps_what_others_set() {
    let fake = new_fake();
    let existing: NatGateway = serde_json::from_value(json!({
        "etag": "7", "tags": {OWNER_TAG: "here", "team": "a"}, "zones": ["1"],
        "properties": {"idleTimeoutInMinutes": 10}
    }))
    .unwrap();
    fake.add_nat_gateway("gw", existing);
    let outcome = execute(&fake, false, ResourceRequest::PutNatGateway { ipv6: true }).await;
    assert_eq!(outcome, Outcome::Succeeded(Success::Done));
    let expected = json!({
        "etag": "7", "location": "eastus", "tags": {OWNER_TAG: "here", "team": "a"}, "zones": ["1"],
        "sku": {"name": "StandardV2"},
        "properties": {
            "publicIpAddresses": [{"id": format!("{NETWORK}/publicIPAddresses/gw-pip")}],
            "publicIpAddressesV6": [{"id": format!("{NETWORK}/publicIPAddresses/gw-pip-v6")}],
            "serviceGateway": {"id": format!("{NETWORK}/serviceGateways/servicegateway")},
            "idleTimeoutInMinutes": 10
        }
    });
    assert_eq!(serde_json::to_value(fake.nat_gateway("gw").unwrap()).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn eg_10_it_is_taken_out_of_the_gateway_and_then_deleted() {
    let fake = new_fake();
    let mut existing = NatGateway { tags: tagged(Some("here")), ..NatGateway::default() };
    existing.properties.service_gateway = Patch::Set(SubResource::default());
    existing.properties.public_ip_addresses = vec![SubResource::default()];
    fake.add_nat_gateway("gw", existing.clone());
    assert_eq!(
        execute(&fake, false, ResourceRequest::DetachNatGateway).await,
        Outcome::Succeeded(Success::Done)
    );
    existing.properties.service_gateway = Patch::Clear;
    assert_eq!(fake.nat_gateway("gw"), Some(existing));
    assert_eq!(
        execute(&fake, false, ResourceRequest::DeleteNatGateway).await,
        Outcome::Succeeded(Success::Done)
    );
    assert_eq!(fake.nat_gateway("gw"), None);
    // What is not there is out of it, and deleted.
    let calls = fake.calls().len();
    for request in [ResourceRequest::DetachNatGateway, ResourceRequest::DeleteNatGateway] {
        assert_eq!(execute(&fake, false, request).await, Outcome::Succeeded(Success::Done));
    }
    let sequence = fake.sequence();
    assert_eq!(sequence[calls..], ["GET NAT gateway gw", "GET NAT gateway gw"]);
}

#[tokio::test(start_paused = true)]
async fn rs_35_what_is_not_ours_is_left_alone_and_what_is_adopted_gets_our_tag() {
    let requests = [
        ResourceRequest::PutPublicIp(IpFamily::V4),
        ResourceRequest::PutSecondPublicIp,
        ResourceRequest::PutNatGateway { ipv6: false },
        ResourceRequest::DetachNatGateway,
        ResourceRequest::DeleteNatGateway,
        ResourceRequest::DeletePublicIp,
        ResourceRequest::DeleteSecondPublicIp,
    ];
    for (owner, adopt, is_ours) in [
        (None, false, false),
        (None, true, true),
        (Some("elsewhere"), false, false),
        (Some("elsewhere"), true, false),
        (Some("here"), false, true),
    ] {
        for request in &requests {
            let fake = new_fake();
            let ip = PublicIp { tags: tagged(owner), ..PublicIp::default() };
            let gateway = NatGateway { tags: tagged(owner), ..NatGateway::default() };
            fake.add_public_ip("gw-pip", ip.clone());
            fake.add_public_ip("gw-pip-v6", ip.clone());
            fake.add_nat_gateway("gw", gateway.clone());
            let outcome = execute(&fake, adopt, request.clone()).await;
            let case = format!("{request:?}, {owner:?}, adopt {adopt}");
            if is_ours {
                assert!(matches!(outcome, Outcome::Succeeded(_)), "{case}: {outcome:?}");
                // Whatever is still there of it and was written now says whose it is.
                let written =
                    fake.sequence().into_iter().find(|call| call.starts_with("PUT")).unwrap_or_default();
                let tags = match written.as_str() {
                    "PUT public IP gw-pip" => fake.public_ip("gw-pip").unwrap().tags,
                    "PUT public IP gw-pip-v6" => fake.public_ip("gw-pip-v6").unwrap().tags,
                    "PUT NAT gateway gw" => fake.nat_gateway("gw").unwrap().tags,
                    _ => tagged(Some("here")),
                };
                assert_eq!(tags, tagged(Some("here")), "{case}");
            } else {
                assert!(
                    matches!(&outcome, Outcome::Failed(failure) if failure.kind == FailureKind::Forbidden),
                    "{case}: {outcome:?}"
                );
                assert_eq!(fake.public_ip("gw-pip"), Some(ip.clone()), "{case}");
                assert_eq!(fake.public_ip("gw-pip-v6"), Some(ip), "{case}");
                assert_eq!(fake.nat_gateway("gw"), Some(gateway), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nw_08_nw_10_and_nw_11_an_outbound_service_is_registered_cleared_and_removed() {
    let fake = new_fake();
    let updater = LocationAndNrpServiceBatchUpdater::new(fake.clone(), config());
    let service = ServiceId::new("gw").unwrap();
    for registration in [
        RegistrationUpdate::RegisterOutbound,
        RegistrationUpdate::ClearNatGateway,
        RegistrationUpdate::Unregister,
    ] {
        let update = ServiceUpdate { service: service.clone(), registration };
        let request = GatewayRequest::UpdateServices(vec![update]);
        let outcome = updater.update(&CallContext::random(), &request).await;
        assert_eq!(outcome, Outcome::Succeeded(Success::Done));
    }
    let sent: Vec<Value> = fake
        .service_updates()
        .iter()
        .map(|update| serde_json::to_value(&update.service_requests[0]).unwrap())
        .collect();
    let outbound = |gateway: Value| {
        let properties = json!({"serviceType": "Outbound", "publicNatGatewayId": gateway});
        json!({"isDelete": false, "service": {"name": "gw", "properties": properties}})
    };
    let expected = [
        outbound(json!(format!("{NETWORK}/natGateways/gw"))),
        outbound(Value::Null),
        json!({"isDelete": true, "service": {"name": "gw"}}),
    ];
    assert_eq!(sent, expected);
}
