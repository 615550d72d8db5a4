//! What the executor keeps of what is there, whose it takes things to be, and what it does after a conflict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clb_controller::{OWNER_TAG, ResourceExecutor};
use clb_difftracker::{
    FailureKind, FrontendPort, IdleTimeout, IpFamily, LoadBalancerSpec, Outcome, Protocol, ResourceRequest,
    Rule, ServiceId, Success,
};
use clb_nrp::models::{LoadBalancer, PublicIp};
use clb_nrp::{CallContext, Error, ErrorKind};
use serde_json::{Map, Value, json};

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

fn put_load_balancer() -> ResourceRequest {
    let rule = Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(80).unwrap(),
        backend_port: 80.try_into().unwrap(),
    };
    let spec = LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), vec![rule]).unwrap();
    ResourceRequest::PutLoadBalancer(spec)
}

fn owned_by(owner: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(OWNER_TAG.to_owned(), owner.to_owned())])
}

/// A load balancer of ours in this version.
fn load_balancer(etag: &str) -> LoadBalancer {
    LoadBalancer { tags: owned_by("here"), etag: Some(etag.to_owned()), ..LoadBalancer::default() }
}

#[tokio::test(start_paused = true)]
async fn properties_that_we_do_not_know_survive_a_change() {
    let (fake, executor) = executor();
    let unknown = || Map::<String, Value>::from_iter([("ddosSettings".to_owned(), json!({"mode": "On"}))]);
    let mut public_ip = PublicIp { tags: owned_by("here"), ..PublicIp::default() };
    public_ip.properties.other = unknown();
    fake.add_public_ip(PIP, public_ip);
    let mut balancer = load_balancer("1");
    balancer.properties.other = unknown();
    fake.add_load_balancer(UID, balancer);
    for request in [ResourceRequest::PutPublicIp(IpFamily::V4), put_load_balancer()] {
        let outcome = execute(&executor, &request).await;
        assert!(matches!(outcome, Outcome::Succeeded(_)), "{outcome:?}");
    }
    assert_eq!(fake.public_ip(PIP).unwrap().properties.other, unknown());
    assert_eq!(fake.load_balancer(UID).unwrap().properties.other, unknown());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_name_only_resembles_ours_is_another_one() {
    for owner in ["Here", "here ", "her", ""] {
        let (fake, executor) = executor();
        fake.add_load_balancer(UID, LoadBalancer { tags: owned_by(owner), ..LoadBalancer::default() });
        match execute(&executor, &ResourceRequest::DeleteLoadBalancer).await {
            Outcome::Failed(failure) => assert_eq!(failure.kind, FailureKind::Forbidden, "{owner:?}"),
            Outcome::Succeeded(_) | Outcome::Unknown(_) => panic!("{owner:?} is not us"),
        }
        assert_eq!(fake.sequence(), [format!("GET load balancer {UID}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_next_try_reads_again_and_replaces_what_it_read() {
    let (fake, executor) = executor();
    fake.add_load_balancer(UID, load_balancer("1"));
    fake.trouble("PUT load balancer", Trouble::Fail(Error::new(ErrorKind::PreconditionFailed, "etag")));
    match execute(&executor, &put_load_balancer()).await {
        Outcome::Failed(failure) => assert_eq!(failure.kind, FailureKind::Conflict),
        Outcome::Succeeded(_) | Outcome::Unknown(_) => panic!("it was refused"),
    }
    fake.add_load_balancer(UID, load_balancer("2"));
    assert_eq!(execute(&executor, &put_load_balancer()).await, Outcome::Succeeded(Success::Done));
    let attempt = [format!("GET load balancer {UID}"), format!("PUT load balancer {UID}")];
    assert_eq!(fake.sequence(), [attempt.clone(), attempt].concat());
    assert_eq!(fake.load_balancer(UID).unwrap().etag.as_deref(), Some("2"));
}
