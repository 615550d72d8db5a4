//! What is ours is changed, and what others set on it stays; what is not ours is left alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clb_controller::{OWNER_TAG, ResourceExecutor};
use clb_difftracker::{
    FailureKind, FrontendPort, IdleTimeout, Ip, IpFamily, LoadBalancerSpec, Outcome, Protocol,
    ResourceRequest, Rule, ServiceId, Success,
};
use clb_nrp::models::{IpVersion, LoadBalancer, PublicIp};
use clb_nrp::{CallContext, Error, ErrorKind};
use serde_json::json;

use crate::driving::config;
use crate::fake::{Fake, Trouble};

const UID: &str = "00000000-0000-0000-0000-000000000001";
const PIP: &str = "00000000-0000-0000-0000-000000000001-pip";

fn executor() -> (Arc<Fake>, ResourceExecutor) {
    let fake = Arc::new(Fake::new(Duration::ZERO));
    (fake.clone(), ResourceExecutor::new(fake, config(), "here"))
}

async fn execute(executor: &ResourceExecutor, request: &ResourceRequest) -> Outcome {
    executor.execute(&CallContext::random(), &ServiceId::new(UID).unwrap(), false, request).await
}

fn tags(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
    tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn spec() -> LoadBalancerSpec {
    let rule = |protocol, port, backend: u16| Rule {
        protocol,
        frontend_port: FrontendPort::new(port).unwrap(),
        backend_port: backend.try_into().unwrap(),
    };
    let rules = vec![rule(Protocol::Tcp, 80, 8080), rule(Protocol::Udp, 53, 5353)];
    LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::from_minutes(10).unwrap(), rules).unwrap()
}

fn requests() -> [ResourceRequest; 4] {
    [
        ResourceRequest::PutPublicIp(IpFamily::V4),
        ResourceRequest::DeletePublicIp,
        ResourceRequest::PutLoadBalancer(spec()),
        ResourceRequest::DeleteLoadBalancer,
    ]
}

#[tokio::test(start_paused = true)]
async fn what_lacks_our_tag_is_neither_changed_nor_deleted() {
    for foreign in [tags(&[]), tags(&[(OWNER_TAG, "elsewhere")]), tags(&[("owner", "here")])] {
        let (fake, executor) = executor();
        fake.add_public_ip(PIP, PublicIp { tags: foreign.clone(), ..PublicIp::default() });
        fake.add_load_balancer(UID, LoadBalancer { tags: foreign.clone(), ..LoadBalancer::default() });
        for request in requests() {
            match execute(&executor, &request).await {
                Outcome::Failed(failure) => {
                    assert_eq!(failure.kind, FailureKind::Forbidden);
                    assert!(
                        failure.message.contains(UID) && failure.message.contains(OWNER_TAG),
                        "{}",
                        failure.message
                    );
                }
                Outcome::Succeeded(_) | Outcome::Unknown(_) => panic!("{request:?} is done"),
            }
        }
        assert!(fake.sequence().iter().all(|call| call.starts_with("GET ")), "{:?}", fake.sequence());
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_set_on_ours_survives_and_only_the_version_that_was_read_is_replaced() {
    let (fake, executor) = executor();
    let ours = tags(&[("Clb-Owner", "here"), ("team", "payments")]);
    let other = || serde_json::Map::from_iter([("zones".to_owned(), json!(["1"]))]);
    let etag = || Some("W/\"7\"".to_owned());
    let public_ip = PublicIp { tags: ours.clone(), etag: etag(), other: other(), ..PublicIp::default() };
    let load_balancer =
        LoadBalancer { tags: ours.clone(), etag: etag(), other: other(), ..LoadBalancer::default() };
    fake.add_public_ip(PIP, public_ip);
    fake.add_load_balancer(UID, load_balancer);
    let done = execute(&executor, &ResourceRequest::PutPublicIp(IpFamily::V4)).await;
    assert_eq!(done, Outcome::Succeeded(Success::PublicIp(Ip::from(std::net::IpAddr::from([20, 0, 0, 1])))));
    let done = execute(&executor, &ResourceRequest::PutLoadBalancer(spec())).await;
    assert_eq!(done, Outcome::Succeeded(Success::Done));
    let public_ip = fake.public_ip(PIP).unwrap();
    assert_eq!((public_ip.tags, public_ip.etag, public_ip.other), (ours.clone(), etag(), other()));
    let load_balancer = fake.load_balancer(UID).unwrap();
    assert_eq!((load_balancer.tags, load_balancer.etag, load_balancer.other), (ours, etag(), other()));
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_has_the_shape_that_azure_wants() {
    let (fake, executor) = executor();
    execute(&executor, &ResourceRequest::PutLoadBalancer(spec())).await;
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
    let balancer = format!("{network}/loadBalancers/{UID}");
    let rule = |name: &str, protocol: &str, frontend: u16, backend: u16| {
        json!({"name": name, "properties": {
            "protocol": protocol, "frontendPort": frontend, "backendPort": backend, "enableFloatingIP": false,
            "idleTimeoutInMinutes": 10,
            "frontendIPConfiguration": {"id": format!("{balancer}/frontendIPConfigurations/frontend")},
            "backendAddressPool": {"id": format!("{balancer}/backendAddressPools/{UID}")}
        }})
    };
    let mut tcp = rule("rule-tcp-80", "Tcp", 80, 8080);
    tcp["properties"]["enableTcpReset"] = json!(true);
    let expected = json!({
        "location": "eastus", "tags": {"clb-owner": "here"}, "sku": {"name": "Service"},
        "properties": {
            "scope": "Public",
            "frontendIPConfigurations": [
                {"name": "frontend", "properties": {"publicIPAddress": {"id": format!("{network}/publicIPAddresses/{PIP}")}}}
            ],
            "backendAddressPools": [{"name": UID, "properties": {}}],
            "loadBalancingRules": [tcp, rule("rule-udp-53", "Udp", 53, 5353)]
        }
    });
    assert_eq!(serde_json::to_value(fake.load_balancer(UID).unwrap()).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn sl_04_a_public_ip_without_an_address_yet_is_done_without_one_and_then_found() {
    let (fake, executor) = executor();
    fake.without_address(1);
    let put = ResourceRequest::PutPublicIp(IpFamily::V6);
    assert_eq!(execute(&executor, &put).await, Outcome::Succeeded(Success::Done));
    assert!(matches!(execute(&executor, &put).await, Outcome::Succeeded(Success::PublicIp(_))));
    let version = fake.public_ip(PIP).unwrap().properties.public_ip_address_version;
    assert_eq!(version, Some(IpVersion::V6));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_deleted_without_a_call() {
    let (fake, executor) = executor();
    for request in [ResourceRequest::DeleteLoadBalancer, ResourceRequest::DeletePublicIp] {
        assert_eq!(execute(&executor, &request).await, Outcome::Succeeded(Success::Done));
    }
    assert_eq!(fake.sequence(), [format!("GET load balancer {UID}"), format!("GET public IP {PIP}")]);
}

#[tokio::test(start_paused = true)]
async fn a_resource_changed_since_it_was_read_is_a_conflict_to_be_tried_again() {
    let (fake, executor) = executor();
    fake.trouble("PUT load balancer", Trouble::Fail(Error::new(ErrorKind::PreconditionFailed, "etag")));
    match execute(&executor, &ResourceRequest::PutLoadBalancer(spec())).await {
        Outcome::Failed(failure) => assert_eq!(failure.kind, FailureKind::Conflict),
        Outcome::Succeeded(_) | Outcome::Unknown(_) => panic!("it was refused"),
    }
}
