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

#[tokio::test(start_paused = true)]
async fn nw_26_a_service_that_addresses_still_name_is_drained_at_once_and_removed() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    // Somebody adds an address that nobody here knows of.
    let body: clb_nrp::models::UpdateAddressLocations =
        serde_json::from_value(json!({"action": "PartialUpdate",
        "addressLocations": [{"addressLocation": "192.168.0.2", "addressUpdateAction": "PartialUpdate",
            "addresses": [{"address": "10.0.0.77", "services": [uid]}]}]}))
        .unwrap();
    clb_nrp::NrpApi::update_address_locations(&world.nrp(), &clb_nrp::CallContext::random(), &body)
        .await
        .unwrap();
    let before = world.azure.counts();
    let started = Instant::now();
    world.delete("/api/v1/namespaces/default/services/web");
    while world.get_service("web").is_some() {
        sleep(SECOND / 10).await;
        assert!(started.elapsed() < 60 * SECOND, "{:#?}", world.azure.take_records());
    }
    assert_eq!(world.held().await, Held::default());
    // One refusal, one reading, and one more request for what was found.
    let after = world.azure.counts();
    assert!(after.update_services - before.update_services <= 4, "{before:?} {after:?}");
    assert_eq!(after.update_address_locations - before.update_address_locations, 2);
}

/// Everything that was asked of either side, in order, and what Azure answered.
async fn story(seed: u64) -> (Vec<String>, Vec<String>) {
    use clb_sim::fault::{FaultPlan, How, What, When};
    let world = World::new();
    let mut asked = world.kube.subscribe();
    let at_random = |seed, how| FaultPlan::new(seed).with(When::Probability(0.1), What::default(), how);
    world.kube.set_faults(at_random(1, How::LoseAnswer));
    world.azure.set_faults(at_random(2, How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() }));
    world.node("n1", "192.168.0.1");
    let replica = world.start_with(World::config().seeded(seed));
    for number in 0..20_u8 {
        let name = format!("web-{number}");
        world.service(&name, json!({}));
        let ip = format!("10.0.0.{number}");
        world.slice(&name, &name, &[(ip.as_str(), "n1")]);
        world.egress_pod(&format!("p{number}"), "gw", "n1", &[format!("10.0.1.{number}").as_str()]);
        sleep(SECOND / 4).await;
    }
    for number in 0..10 {
        world.delete(&format!("/api/v1/namespaces/default/services/web-{number}"));
    }
    sleep(60 * SECOND).await;
    world.kube.set_faults(FaultPlan::default());
    world.azure.set_faults(FaultPlan::default());
    world.settle(&replica).await;
    assert_eq!(world.held().await.services.len(), 11);
    let azure = world.azure.take_records().iter().map(|record| format!("{record:?}")).collect();
    let kube = std::iter::from_fn(|| asked.try_recv().ok()).map(|call| format!("{call:?}")).collect();
    (azure, kube)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    // Each run has a clock of its own, and nothing of another one still goes on.
    let story = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(story(seed))
    };
    let (azure, kube) = story(1);
    assert!(azure.len() > 100 && kube.len() > 100, "{} {}", azure.len(), kube.len());
    let again = story(1);
    for (first, second) in [(&azure, &again.0), (&kube, &again.1)] {
        for (at, (one, other)) in first.iter().zip(second).enumerate() {
            assert_eq!(one, other, "call {at}");
        }
        assert_eq!(first.len(), second.len());
    }
    assert_ne!(story(2).1, kube);
}

/// In real time, since a signal comes when it comes. One test, since a signal is the whole process's.
#[cfg(unix)]
#[tokio::test]
async fn a_signal_ends_it_gracefully_and_a_second_one_at_once() {
    use clb_controller::kube::{Controller, ControllerError};
    use clb_sim::fault::{FaultPlan, How, What, When};
    use std::process::Command;
    let terminate = || {
        let pid = std::process::id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    };
    let world = World::new();
    let start = || {
        let nrp = std::sync::Arc::new(world.nrp());
        let controller =
            Controller::new(World::config(), world.client.clone(), nrp, crate::world::nrp_config()).unwrap();
        (controller.status(), tokio::spawn(controller.run_until_signalled()))
    };
    let (mut status, running) = start();
    status.wait_for(|status| status.is_synced).await.unwrap();
    terminate();
    assert_eq!(running.await.unwrap(), Ok(0));

    let (mut status, running) = start();
    status.wait_for(|status| status.is_synced).await.unwrap();
    let mut asked = world.azure.subscribe();
    world.azure.set_faults(FaultPlan::new(0).with(When::Always, What::verb("PUT"), How::Delay(600_000)));
    world.service("web", json!({}));
    while asked.recv().await.unwrap().method != clb_sim::azure::Method::Put {}
    terminate();
    // It waits for the call: nothing but another signal ends that before its time.
    let started = std::time::Instant::now();
    while !status.has_changed().unwrap() && started.elapsed() < SECOND / 5 {
        tokio::task::yield_now().await;
    }
    assert!(!running.is_finished());
    terminate();
    assert_eq!(running.await.unwrap(), Err(ControllerError::Killed));
    assert!(started.elapsed() < 5 * SECOND);
}
