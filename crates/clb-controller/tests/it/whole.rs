//! The whole controller on the simulated cluster and the simulated Azure.

use std::time::Duration;

use clb_controller::objects::{SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::world::{Held, SECOND, World};

#[tokio::test(start_paused = true)]
async fn a_service_comes_serves_and_goes() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let expected = Held::inbound(&[(&uid, &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
    let both = [SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER].map(str::to_owned).to_vec();
    assert_eq!(world.service_finalizers("web"), Some(both));
    assert_eq!(world.ingress("web").len(), 1);
    assert_eq!(world.service_condition("web"), Some(("True".to_owned(), "Programmed".to_owned())));
    assert_eq!(world.events(), [].into());
    world.delete("/api/v1/namespaces/default/services/web");
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::default());
    assert_eq!(world.get_service("web"), None);
    assert_eq!(replica.stop().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_over_an_azure_that_is_right_writes_nothing_anywhere() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.service("web", json!({}));
    world.egress_pod("p", "gw", "n1", &["10.0.0.9"]);
    world.settle(&replica).await;
    replica.kill().await;
    let (writes, version) = (world.azure_writes(), world.kube.with_cluster(|cluster| cluster.version()));
    let replica = world.start();
    world.settle(&replica).await;
    let after = (world.azure_writes(), world.kube.with_cluster(|cluster| cluster.version()));
    assert_eq!(after, (writes, version));
}

#[tokio::test(start_paused = true)]
async fn what_others_break_in_azure_is_repaired_within_the_interval_of_readings() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let before = world.held().await;
    let nrp = world.nrp();
    let call = clb_nrp::CallContext::random();
    let body = clb_nrp::models::UpdateAddressLocations {
        action: clb_nrp::models::UpdateAction::FullUpdate,
        address_locations: Vec::new(),
    };
    clb_nrp::NrpApi::update_address_locations(&nrp, &call, &body).await.unwrap();
    assert_ne!(world.held().await, before);
    sleep(Duration::from_secs(700)).await;
    assert_eq!(world.held().await, before, "{uid}");
    assert_eq!(replica.status.borrow().drift, 1);
}

#[tokio::test(start_paused = true)]
async fn azure_that_is_away_at_the_start_is_seen_and_waited_for() {
    use clb_sim::fault::{FaultPlan, How, What, When};
    let world = World::new();
    world.node("n1", "192.168.0.1");
    let away = How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() };
    let until = When::Between { from: 0, to: 300_000 };
    world.azure.set_faults(FaultPlan::new(0).with(until.clone(), What::default(), away.clone()));
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    let replica = world.start();
    sleep(100 * SECOND).await;
    let troubles = replica.status.borrow().troubles();
    assert!(troubles[0].starts_with("Azure could not be read"), "{troubles:?}");
    assert!(!replica.status.borrow().is_sending);
    // Not a call more than the pauses allow.
    let reads = world.azure.counts().get;
    assert!((4..=14).contains(&reads), "{reads} reads in 100 s");
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[("10.0.0.1", "192.168.0.1")])]));
    assert_eq!(replica.status.borrow().troubles(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_within_its_grace_and_says_what_was_given_up() {
    use clb_sim::fault::{FaultPlan, How, What, When};
    let (world, replica) = World::running();
    world.settle(&replica).await;
    let slow = How::Delay(600_000);
    world.azure.set_faults(FaultPlan::new(0).with(When::Always, What::verb("PUT"), slow));
    world.service("web", json!({}));
    sleep(5 * SECOND).await;
    let started = Instant::now();
    assert_eq!(replica.stop().await, 1);
    assert_eq!(started.elapsed(), 20 * SECOND);
    // What became of it is read by the next one, and nothing is made twice.
    world.azure.set_faults(FaultPlan::default());
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!(world.held().await.public_ips.len(), 1);
}
