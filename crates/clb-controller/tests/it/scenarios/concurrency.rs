//! Many things at once.

use std::collections::BTreeMap;
use std::time::Duration;

use clb_sim::SimulatorConfig;
use clb_sim::azure::{AzureConfig, Completion, Method};
use clb_sim::kube::KubeConfig;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{pairs, seconds, service};
use crate::world::{Held, World};

/// A world whose Azure takes a second for each answer.
fn slow() -> World {
    let azure = SimulatorConfig { latency: Duration::from_secs(1), ..SimulatorConfig::default() };
    let world = World::with(KubeConfig::default(), azure);
    world.node("n1", "192.168.0.1");
    world.node("n2", "192.168.0.2");
    world
}

#[tokio::test(start_paused = true)]
async fn cc_03_and_cc_16_of_changes_that_race_with_one_another_the_last_one_counts() {
    let world = slow();
    let replica = world.start();
    for is_wanted_last in [true, false] {
        let uid = world.service("web", json!({}));
        world.slice("s", "web", &[("10.0.0.1", "n1")]);
        for round in 0..20_u64 {
            let kind = if round % 2 == 0 { "ClusterIP" } else { "LoadBalancer" };
            sleep(Duration::from_millis(300 * (round % 7))).await;
            world.patch_service("web", json!({"spec": {"type": kind}}));
            world.slice("s", "web", &[(&format!("10.0.0.{round}"), "n1")]);
        }
        if is_wanted_last {
            world.settle(&replica).await;
            let expected = Held::inbound(&[(&uid, &[("10.0.0.19", "192.168.0.1")])]);
            assert_eq!((world.held().await, world.ingress("web").len()), (expected, 1));
        }
        world.delete(&service("web"));
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None));
    }
}

#[tokio::test(start_paused = true)]
async fn cc_05_cc_06_and_cc_19_one_call_at_a_time_for_each_service_and_ten_for_all() {
    let world = slow();
    let replica = world.start();
    world.settle(&replica).await;
    let _ = world.azure.take_records();
    for number in 0..30 {
        world.service(&format!("s{number}"), json!({}));
    }
    for _ in 0..20 {
        seconds(1).await;
        for number in 0..30 {
            // Told again and again while it runs.
            let changes =
                json!({"metadata": {"labels": {"now": world.kube.elapsed().as_secs().to_string()}}});
            world.patch_service(&format!("s{number}"), changes);
        }
    }
    world.settle(&replica).await;
    assert_eq!(world.held().await.services.len(), 30);
    let records = world.azure.take_records();
    let mut of_one: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    let mut of_all = Vec::new();
    for record in records.iter().filter(|record| record.method == Method::Put) {
        let name = record.path.rsplit('/').next().unwrap().trim_end_matches("-pip");
        of_one.entry(name.to_owned()).or_default().push(record.at);
        of_all.push(record.at);
    }
    assert_eq!((of_one.len(), of_all.len()), (30, 60));
    let second = Duration::from_secs(1);
    assert!(of_one.values().all(|calls| calls.windows(2).all(|two| two[1] - two[0] >= second)));
    assert!(of_all.windows(11).all(|some| some[10] - some[0] >= second), "{of_all:?}");
}

#[tokio::test(start_paused = true)]
async fn cc_08_and_rt_12_while_azure_hangs_on_one_thing_everything_else_goes_on() {
    let (world, replica) = World::running();
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    world.azure_is_slow("PUT", "*/loadBalancers/*", 600);
    let stuck = world.service("stuck", json!({}));
    seconds(10).await;
    let started = Instant::now();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.egress_pod("a", "gw", "n2", &["10.0.0.2"]);
    seconds(5).await;
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    let (at_n1, at_n2) = ([("10.0.0.1", "192.168.0.1")], [("10.0.0.2", "192.168.0.2")]);
    let mut expected = Held::inbound(&[(&uid, &at_n1)]).and_outbound(&[("gw", &at_n2)]);
    expected.load_balancers.insert(stuck.clone());
    expected.public_ips.insert(format!("{stuck}-pip"));
    assert_eq!(world.held().await, expected);
    // After five minutes it is given up and tried again.
    world.azure.set_faults(clb_sim::fault::FaultPlan::default());
    seconds(320).await;
    expected.services.insert(stuck);
    assert_eq!(world.held().await, expected);
}

#[tokio::test(start_paused = true)]
async fn cc_13_and_cc_14_many_services_with_many_pods_each_and_many_pods_on_one_egress() {
    let (world, replica) = World::running();
    world.live();
    let mut services = Vec::new();
    for number in 0..15 {
        let app = format!("app{number}");
        let policy = if number % 2 == 0 { "Local" } else { "Cluster" };
        let changes = json!({"selector": {"app": app}, "externalTrafficPolicy": policy});
        services.push((app.clone(), world.service(&app, changes)));
        for pod in 0..(number + 1) {
            world.backend(&format!("{app}-{pod}"), &app);
        }
    }
    let leave: Vec<_> =
        (0..100).map(|number| (format!("10.1.0.{number}"), "192.168.0.1".to_owned())).collect();
    for (number, (ip, _)) in leave.iter().enumerate() {
        world.egress_pod(&format!("leaves-{number}"), "gw", "n1", &[ip]);
    }
    world.settle(&replica).await;
    let serving: Vec<_> = services.iter().map(|(app, _)| world.serving(app)).collect();
    assert_eq!(serving.iter().map(Vec::len).sum::<usize>(), 120);
    let mut expected = Held::default().and_outbound(&[("gw", &pairs(&leave))]);
    for ((_, uid), serving) in services.iter().zip(&serving) {
        let one = Held::inbound(&[(uid, &pairs(serving))]);
        expected.services.extend(one.services);
        expected.load_balancers.extend(one.load_balancers);
        expected.public_ips.extend(one.public_ips);
        expected.addresses.extend(one.addresses);
    }
    assert_eq!(world.held().await, expected);
    let addresses: std::collections::BTreeSet<_> =
        services.iter().flat_map(|(app, _)| world.ingress(app)).collect();
    assert_eq!(addresses.len(), 15);
    services.iter().for_each(|(app, _)| world.delete(&service(app)));
    (0..100).for_each(|number| world.delete_pod(&format!("leaves-{number}")));
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::default());
    assert!((0..100).all(|number| !world.pod_is_there(&format!("leaves-{number}"))));
}

#[tokio::test(start_paused = true)]
async fn cc_15_200_services_and_50_nat_gateways_come_and_go_in_minutes_though_azure_takes_its_time() {
    let azure = AzureConfig { completion: Completion::Recorded, ..AzureConfig::default() };
    let latency = Duration::from_millis(200);
    let world =
        World::with(KubeConfig::default(), SimulatorConfig { azure, latency, ..SimulatorConfig::default() });
    world.node("n1", "192.168.0.1");
    let replica = world.start();
    let started = Instant::now();
    for number in 0..200 {
        world.service(&format!("s{number}"), json!({}));
    }
    for number in 0..50 {
        world.egress_pod(&format!("p{number}"), &format!("gw{number}"), "n1", &[&format!("10.0.0.{number}")]);
    }
    world.settle(&replica).await;
    assert!(started.elapsed() < Duration::from_secs(30 * 60), "{:?}", started.elapsed());
    let held = world.held().await;
    let counts = (held.load_balancers.len(), held.nat_gateways.len(), held.public_ips.len());
    assert_eq!((counts, held.services.len(), held.addresses.len()), ((200, 50, 250), 250, 50));
    let started = Instant::now();
    (0..200).for_each(|number| world.delete(&service(&format!("s{number}"))));
    (0..50).for_each(|number| world.delete_pod(&format!("p{number}")));
    world.settle(&replica).await;
    assert!(started.elapsed() < Duration::from_secs(20 * 60), "{:?}", started.elapsed());
    assert_eq!(world.held().await, Held::default());
    assert_eq!(world.warnings(), [].into());
}
