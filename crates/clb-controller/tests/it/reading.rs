//! What Azure holds, as the tracker is told of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clb_controller::reading::read_azure;
use clb_controller::{OWNER_TAG, ResourceExecutor};
use clb_difftracker::{
    FrontendPort, IdleTimeout, Ip, IpFamily, LoadBalancerSpec, NatGateway, Observation, ObservedResource,
    Outcome, Owner, Protocol, PublicIp, ResourceContent, ResourceRequest, Rule, ServiceId,
};
use clb_nrp::CallContext;
use clb_nrp::models;

use crate::driving::config;
use crate::fake::Fake;

const UID: &str = "00000000-0000-0000-0000-000000000001";

fn id(name: &str) -> ServiceId {
    ServiceId::new(name).unwrap()
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

async fn write(fake: &Arc<Fake>, service: &str, requests: &[ResourceRequest]) {
    let executor = ResourceExecutor::new(fake.clone(), config(), "here");
    for request in requests {
        let outcome = executor.execute(&CallContext::random(), &id(service), false, request).await;
        assert!(matches!(outcome, Outcome::Succeeded(_)), "{outcome:?}");
    }
}

/// What is observed of each resource.
async fn observed(fake: &Arc<Fake>) -> Vec<ObservedResource> {
    let observations = read_azure(&**fake, &config(), "here", &CallContext::random()).await.unwrap();
    assert_eq!(observations.last(), Some(&Observation::Done));
    let resource = |observation| match observation {
        Observation::Resource(resource) => Some(resource),
        Observation::Begin | Observation::Service(_) | Observation::Location(_) | Observation::Done => None,
    };
    observations.into_iter().filter_map(resource).collect()
}

fn of(service: &str, owner: Owner, content: ResourceContent) -> ObservedResource {
    ObservedResource { service: id(service), owner, content }
}

/// Names and ids are Azure's to give; the fake knows only the key.
fn named<P: Clone>(resource: &models::Resource<P>, name: &str) -> models::Resource<P> {
    models::Resource { name: Some(name.to_uppercase()), ..resource.clone() }
}

async fn everything() -> Arc<Fake> {
    let fake = Arc::new(Fake::new(Duration::ZERO));
    let put = [ResourceRequest::PutPublicIp(IpFamily::V4), ResourceRequest::PutLoadBalancer(spec())];
    write(&fake, UID, &put).await;
    let put = [
        ResourceRequest::PutPublicIp(IpFamily::V4),
        ResourceRequest::PutSecondPublicIp,
        ResourceRequest::PutNatGateway { ipv6: true },
    ];
    write(&fake, "gw", &put).await;
    for name in [&format!("{UID}-pip"), "gw-pip", "gw-pip-v6"] {
        fake.add_public_ip(name, named(&fake.public_ip(name).unwrap(), name));
    }
    fake.add_load_balancer(UID, named(&fake.load_balancer(UID).unwrap(), UID));
    fake.add_nat_gateway("gw", named(&fake.nat_gateway("gw").unwrap(), "gw"));
    fake
}

#[tokio::test(start_paused = true)]
async fn rs_31_what_we_wrote_is_read_back_as_what_it_was_written_from() {
    let fake = everything().await;
    let ip = |family| PublicIp {
        family,
        address: Some(Ip::from(std::net::IpAddr::from([20, 0, 0, 1]))),
        tagged: true,
    };
    let expected = [
        of(UID, Owner::Us, ResourceContent::PublicIp(ip(IpFamily::V4))),
        of("gw", Owner::Us, ResourceContent::PublicIp(ip(IpFamily::V4))),
        of("gw", Owner::Us, ResourceContent::SecondPublicIp(ip(IpFamily::V6))),
        of(UID, Owner::Us, ResourceContent::LoadBalancer(Some(spec()))),
        of("gw", Owner::Us, ResourceContent::NatGateway(NatGateway::Attached { ipv6: true })),
    ];
    assert_eq!(observed(&fake).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_not_just_what_we_write_is_seen_as_another() {
    type Edit = fn(&mut models::LoadBalancer);
    let edits: [(&str, Edit); 8] = [
        ("SKU", |it| it.sku = Some(models::Sku::named("Standard"))),
        ("no frontend", |it| it.properties.frontend_ip_configurations.clear()),
        ("no pool", |it| it.properties.backend_address_pools.clear()),
        ("no rule", |it| it.properties.load_balancing_rules.clear()),
        ("floating IP", |it| {
            it.properties.load_balancing_rules[0].properties.enable_floating_ip = Some(true);
        }),
        ("no reset", |it| it.properties.load_balancing_rules[0].properties.enable_tcp_reset = None),
        ("idle timeout", |it| {
            it.properties.load_balancing_rules[0].properties.idle_timeout_in_minutes = Some(30);
        }),
        ("another public IP", |it| {
            it.properties.frontend_ip_configurations[0].properties.public_ip_address = None;
        }),
    ];
    for (what, edit) in edits {
        let fake = everything().await;
        let mut edited = fake.load_balancer(UID).unwrap();
        edit(&mut edited);
        fake.add_load_balancer(UID, edited);
        let expected = of(UID, Owner::Us, ResourceContent::LoadBalancer(None));
        assert!(observed(&fake).await.contains(&expected), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn rs_14_and_rs_17_owners_are_told_apart_and_other_names_are_nobody_we_know() {
    let fake = everything().await;
    let tags = |owner: &str| BTreeMap::from([(OWNER_TAG.to_uppercase(), owner.to_owned())]);
    let mut gateway = fake.nat_gateway("gw").unwrap();
    gateway.tags = tags("elsewhere");
    gateway.properties.service_gateway = models::Patch::Keep;
    fake.add_nat_gateway("gw", gateway);
    let mut ip = fake.public_ip("gw-pip").unwrap();
    ip.tags.clear();
    fake.add_public_ip("gw-pip", ip.clone());
    for name in ["web", "ingress-ip", "-pip"] {
        fake.add_public_ip(name, named(&ip, name));
    }
    for name in ["kubernetes", "kubernetes-internal"] {
        fake.add_load_balancer(name, named(&fake.load_balancer(UID).unwrap(), name));
    }
    let observed = observed(&fake).await;
    let owners: Vec<_> = observed.iter().map(|it| (it.service.as_str(), it.owner)).collect();
    assert_eq!(
        owners,
        [(UID, Owner::Us), ("gw", Owner::Nobody), ("gw", Owner::Us), (UID, Owner::Us), ("gw", Owner::Other)]
    );
    assert_eq!(observed[4].content, ResourceContent::NatGateway(NatGateway::Detached));
}
