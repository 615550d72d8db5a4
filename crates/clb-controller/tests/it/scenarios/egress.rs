//! Pods that leave through NAT gateways of their own.

use clb_controller::objects::POD_FINALIZER;
use clb_sim::fault::FaultPlan;
use serde_json::{Value, json};

use super::{NONE, ours, pod, says, seconds, service};
use crate::world::{Held, World};

const MADE: [&str; 4] =
    ["PUT publicIPAddresses", "PUT natGateways", "updateServices", "updateAddressLocations"];
const REMOVED: [&str; 6] = [
    "updateAddressLocations",
    "updateServices",
    "PUT natGateways",
    "updateServices",
    "DELETE natGateways",
    "DELETE publicIPAddresses",
];
const A: (&str, &str) = ("10.0.0.1", "192.168.0.1");
const B: (&str, &str) = ("10.0.0.2", "192.168.0.2");

fn leaving(services: &[(&str, &[(&str, &str)])]) -> Held {
    Held::default().and_outbound(services)
}

/// A world at rest, in which `a` leaves through `gw`, and so does `b` if there are `two`.
async fn world_of(two: bool) -> (World, crate::world::Replica) {
    let (world, replica) = World::running();
    world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
    if two {
        world.egress_pod("b", "gw", "n2", &["10.0.0.2"]);
    }
    world.settle(&replica).await;
    let _ = world.calls();
    (world, replica)
}

fn relabel(world: &World, name: &str, value: &Value) {
    let labels = json!({"kubernetes.azure.com/service-egress-gateway": value});
    world.patch_pod(name, json!({"metadata": {"labels": labels}}));
}

#[tokio::test(start_paused = true)]
async fn eg_01_eg_10_and_eg_11_the_first_pod_makes_a_nat_gateway_and_the_last_takes_it_along() {
    let (world, replica) = World::running();
    world.egress_pod("a", "GW", "n1", &["10.0.0.1"]);
    world.settle(&replica).await;
    assert_eq!(world.calls(), MADE);
    assert_eq!(world.held().await, leaving(&[("gw", &[A])]));
    assert_eq!(world.pod_finalizers("a"), ours());
    world.azure_is_slow("DELETE", "*/natGateways/*", 60);
    world.delete_pod("a");
    // The pod does not wait for the NAT gateway, only for its address.
    seconds(5).await;
    assert!(!world.pod_is_there("a"));
    assert_eq!(world.held().await.addresses, [].into());
    world.settle(&replica).await;
    assert_eq!(world.calls(), REMOVED);
    assert_eq!(world.held().await, Held::default());
    assert_eq!(world.warnings(), [].into());
}

#[tokio::test(start_paused = true)]
async fn eg_02_and_eg_36_a_pod_counts_from_its_first_address_to_its_end() {
    let (world, replica) = World::running();
    world.egress_pod("a", "gw", "n1", &[]);
    world.pod_status("a", "Pending", &[]);
    world.settle(&replica).await;
    assert_eq!((world.calls(), world.pod_finalizers("a")), (vec![], Some(vec![])));
    world.pod_status("a", "Running", &["10.0.0.1"]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("gw", &[A])]));
    // Nothing is heard of its node: it keeps its NAT gateway, and nothing leaves from its address.
    world.pod_status("a", "Unknown", &["10.0.0.1"]);
    world.settle(&replica).await;
    assert_eq!((world.held().await, world.pod_finalizers("a")), (leaving(&[("gw", &[])]), ours()));
    world.pod_status("a", "Running", &["10.0.0.1"]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("gw", &[A])]));
    for end in ["Succeeded", "Failed"] {
        world.pod_status("a", end, &["10.0.0.1"]);
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.pod_finalizers("a")), (Held::default(), Some(vec![])));
        world.pod_status("a", "Running", &["10.0.0.1"]);
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.pod_finalizers("a")), (leaving(&[("gw", &[A])]), ours()));
    }
}

#[tokio::test(start_paused = true)]
async fn eg_03_and_eg_04_labels_that_name_nothing_are_told_and_cost_nothing() {
    let (world, replica) = World::running();
    world.egress_pod("a", "-x", "n1", &["10.0.0.1"]);
    world.egress_pod("b", "Default-NatGW", "n2", &["10.0.0.2"]);
    // ad_13: one character too many.
    world.egress_pod("c", &"x".repeat(74), "n2", &["10.0.0.3"]);
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    for name in ["a", "b", "c"] {
        assert_eq!(world.pod_finalizers(name), Some(vec![]));
    }
    let told = |reason: &str, times| (("Warning".to_owned(), reason.to_owned()), times);
    let expected =
        [told("ServiceGatewayInvalidEgressLabel", 2), told("ServiceGatewayReservedEgressLabel", 1)];
    assert_eq!(world.events(), expected.into());
    let longest = "x".repeat(73);
    relabel(&world, "c", &json!(longest));
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[(&longest, &[("10.0.0.3", "192.168.0.2")])]));
}

#[tokio::test(start_paused = true)]
async fn eg_05_and_eg_06_of_a_pods_addresses_those_are_used_that_can_be() {
    let (world, replica) = World::running();
    world.egress_pod("a", "gw", "n1", &["10.0.0.1", "nonsense"]);
    world.egress_pod("b", "gw", "n2", &["10.0.0.2", "fd00:1::2"]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("gw", &[A, B])]));
    let expected = ["ServiceGatewayInvalidPodIP", "ServiceGatewayNoNodeLocation"].map(str::to_owned);
    assert_eq!(world.warnings(), expected.into());
    // Its node comes to have the family.
    world.dual_stack();
    world.settle(&replica).await;
    assert!(world.held().await.addresses.contains(&(
        "fd00::2".parse().unwrap(),
        "fd00:1::2".parse().unwrap(),
        "gw".to_owned()
    )));
}

#[tokio::test(start_paused = true)]
async fn eg_07_eg_50_eg_53_nd_08_nd_11_and_rs_28_a_dual_stack_cluster_has_both_families_throughout() {
    let world = World::new();
    world.node("n1", "192.168.0.1");
    world.node("n2", "192.168.0.2");
    world.dual_stack();
    let replica = world.start();
    world.egress_pod("a", "gw", "n1", &["10.0.0.1", "fd00:1::1"]);
    // nd_12: even for pods that have only one.
    world.egress_pod("b", "v4", "n2", &["10.0.0.2"]);
    world.settle(&replica).await;
    let mut expected = leaving(&[("gw", &[A, ("fd00:1::1", "fd00::1")]), ("v4", &[B])]);
    expected.public_ips.extend(["gw-pip-v6", "v4-pip-v6"].map(str::to_owned));
    assert_eq!(world.held().await, expected);
    replica.kill().await;
    let _ = world.calls();
    let replica = world.start();
    world.settle(&replica).await;
    // rs_23: nothing to do.
    assert_eq!(world.calls(), NONE);
    world.delete_pod("a");
    world.settle(&replica).await;
    let mut rest = leaving(&[("v4", &[B])]);
    rest.public_ips.insert("v4-pip-v6".to_owned());
    assert_eq!(world.held().await, rest);
    world.egress_pod("a", "gw", "n1", &["10.0.0.1", "fd00:1::1"]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, expected);
}

#[tokio::test(start_paused = true)]
async fn eg_08_eg_09_and_eg_23_pods_that_come_while_it_is_made_go_in_together_without_those_that_left() {
    let (world, replica) = World::running();
    world.azure_is_slow("PUT", "*/natGateways/*", 20);
    for (name, ip) in [("a", "10.0.0.1"), ("b", "10.0.0.11"), ("c", "10.0.0.12")] {
        world.egress_pod(name, "gw", "n1", &[ip]);
        seconds(2).await;
    }
    world.delete_pod("b");
    seconds(2).await;
    // Nothing of it is in Azure: it need not wait.
    assert!(!world.pod_is_there("b"));
    world.settle(&replica).await;
    assert_eq!(world.calls(), MADE);
    let mut expected = vec![A, ("10.0.0.12", "192.168.0.1")];
    assert_eq!(world.held().await, leaving(&[("gw", &expected)]));
    world.egress_pod("d", "gw", "n2", &["10.0.0.2"]);
    seconds(2).await;
    assert_eq!(world.calls(), ["updateAddressLocations"]);
    expected.push(B);
    assert_eq!(world.held().await, leaving(&[("gw", &expected)]));
}

#[tokio::test(start_paused = true)]
async fn eg_12_eg_24_eg_32_eg_39_and_fn_11_a_pod_stays_until_its_address_is_out_and_others_are_not_touched() {
    let (world, replica) = world_of(true).await;
    world.azure_refuses("POST", "*/updateAddressLocations", 60);
    world.delete_pod("a");
    seconds(20).await;
    // Told again, and without addresses: it is gated by those it had.
    world.delete_pod("a");
    world.pod_status("a", "Failed", &[]);
    seconds(30).await;
    assert_eq!((world.pod_finalizers("a"), world.pod_finalizers("b")), (ours(), ours()));
    world.settle(&replica).await;
    assert_eq!((world.pod_finalizers("a"), world.pod_finalizers("b")), (None, ours()));
    assert_eq!(world.held().await, leaving(&[("gw", &[B])]));
    let calls = world.calls();
    assert!(calls.iter().all(|call| call == "updateAddressLocations"), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn eg_13_a_teardown_that_fails_anywhere_is_finished() {
    for (verb, path) in [
        ("POST", "*/updateServices"),
        ("PUT", "*/natGateways/*"),
        ("DELETE", "*/natGateways/*"),
        ("DELETE", "*/publicIPAddresses/*"),
    ] {
        let (world, replica) = world_of(false).await;
        world.azure_refuses(verb, path, 60);
        world.delete_pod("a");
        seconds(50).await;
        assert_ne!(world.held().await, Held::default());
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.pod_is_there("a")), (Held::default(), false));
    }
}

#[tokio::test(start_paused = true)]
async fn eg_14_the_only_pod_changes_its_address_and_keeps_its_nat_gateway() {
    let (world, replica) = world_of(false).await;
    world.pod_status("a", "Running", &["10.0.0.7"]);
    world.settle(&replica).await;
    let calls = world.calls();
    assert!(calls.iter().all(|call| call == "updateAddressLocations"), "{calls:?}");
    assert_eq!(world.held().await, leaving(&[("gw", &[("10.0.0.7", "192.168.0.1")])]));
    assert_eq!(world.pod_finalizers("a"), ours());
}

#[tokio::test(start_paused = true)]
async fn eg_17_to_eg_19_and_eg_47_a_pod_that_comes_keeps_what_is_there_or_gets_it_anew() {
    for (verb, path, is_rebuilt) in [
        ("POST", "*/updateAddressLocations", false),
        ("DELETE", "*/natGateways/*", true),
        ("DELETE", "*/publicIPAddresses/*", true),
    ] {
        let (world, replica) = world_of(false).await;
        world.azure_refuses(verb, path, 60);
        world.delete_pod("a");
        seconds(30).await;
        world.egress_pod("b", "gw", "n2", &["10.0.0.2"]);
        world.settle(&replica).await;
        assert_eq!(world.held().await, leaving(&[("gw", &[B])]));
        assert_eq!((world.pod_finalizers("a"), world.pod_finalizers("b")), (None, ours()));
        let deleted = world.calls().iter().any(|call| call.starts_with("DELETE"));
        assert_eq!(deleted, is_rebuilt, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn eg_20_to_eg_22_a_pod_that_leaves_before_it_is_served_leaves_nothing() {
    let (world, replica) = World::running();
    world.settle(&replica).await;
    world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
    world.delete_pod("a");
    world.settle(&replica).await;
    assert_eq!((world.calls(), world.pod_is_there("a")), (vec![], false));
    for is_refused in [false, true] {
        for path in ["*/publicIPAddresses/*", "*/natGateways/*"] {
            if is_refused {
                world.azure_refuses("PUT", path, 60);
            } else {
                world.azure_is_slow("PUT", path, 20);
            }
            world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
            seconds(5).await;
            world.delete_pod("a");
            world.settle(&replica).await;
            assert_eq!((world.held().await, world.pod_is_there("a")), (Held::default(), false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn eg_33_eg_34_and_fn_16_a_label_that_is_emptied_or_removed_releases_the_living_pod() {
    for value in [json!(""), Value::Null] {
        let (world, replica) = World::running();
        world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
        world.settle(&replica).await;
        let both = [POD_FINALIZER, "example.com/hold"];
        world.patch_pod("a", json!({"metadata": {"finalizers": both}}));
        world.azure_refuses("POST", "*/updateAddressLocations", 60);
        relabel(&world, "a", &value);
        seconds(50).await;
        assert_eq!(world.pod_finalizers("a"), Some(both.map(str::to_owned).to_vec()));
        world.settle(&replica).await;
        assert_eq!(world.pod_finalizers("a"), Some(vec!["example.com/hold".to_owned()]));
        assert_eq!(world.held().await, Held::default());
    }
}

#[tokio::test(start_paused = true)]
async fn eg_35_another_label_moves_the_pod_and_its_finalizer_stays() {
    let (world, replica) = world_of(false).await;
    relabel(&world, "a", &json!("other"));
    for _ in 0..60 {
        seconds(1).await;
        assert_eq!(world.pod_finalizers("a"), ours());
    }
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("other", &[A])]));
}

#[tokio::test(start_paused = true)]
async fn eg_37_and_eg_38_a_pod_in_both_roles_keeps_the_one_when_the_other_goes() {
    // The pod is on the network of its node.
    let (world, replica) = World::running();
    let host: &[(&str, &str)] = &[("192.168.0.1", "192.168.0.1")];
    let uid = world.service("web", json!({}));
    world.slice("s", "web", &[("192.168.0.1", "n1")]);
    world.egress_pod("a", "gw", "n1", &["192.168.0.1"]);
    world.settle(&replica).await;
    let both = Held::inbound(&[(&uid, host)]).and_outbound(&[("gw", host)]);
    assert_eq!(world.held().await, both);
    relabel(&world, "a", &Value::Null);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, host)]));
    relabel(&world, "a", &json!("gw"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, both);
    world.delete(&service("web"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("gw", host)]));
}

#[tokio::test(start_paused = true)]
async fn eg_41_and_eg_56_a_pod_leaves_though_its_finalizer_cannot_be_added_and_one_stripped_comes_back() {
    let (world, replica) = World::running();
    world.kube_refuses("PATCH", "*/pods/a", 60);
    world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
    seconds(50).await;
    assert_eq!((world.held().await, world.pod_finalizers("a")), (leaving(&[("gw", &[A])]), Some(vec![])));
    assert_eq!(world.warnings(), ["ServiceGatewayFinalizerAddFailed".to_owned()].into());
    world.settle(&replica).await;
    assert_eq!(world.pod_finalizers("a"), ours());
    world.patch_pod("a", json!({"metadata": {"finalizers": null}}));
    assert_eq!(world.pod_finalizers("a"), Some(vec![]));
    world.settle(&replica).await;
    assert_eq!(world.pod_finalizers("a"), ours());
}

#[tokio::test(start_paused = true)]
async fn eg_42_and_fn_08_the_pod_that_takes_a_pods_name_is_another_one() {
    let (world, replica) = world_of(true).await;
    // Somebody takes it away by force, and another one has its name and another address at once.
    world.azure_refuses("POST", "*/updateAddressLocations", 60);
    world.patch_pod("a", json!({"metadata": {"finalizers": null}}));
    world.delete_pod("a");
    world.egress_pod("a", "gw", "n2", &["10.0.0.9"]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("gw", &[B, ("10.0.0.9", "192.168.0.2")])]));
    assert_eq!((world.pod_finalizers("a"), world.pod_finalizers("b")), (ours(), ours()));
}

#[tokio::test(start_paused = true)]
async fn eg_43_and_eg_57_a_label_that_is_the_uid_of_a_service_is_refused_after_a_restart_too() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.2", "n2")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let inbound = Held::inbound(&[(&uid, &[B])]);
    assert_eq!(world.held().await, inbound);
    let _ = world.calls();
    world.egress_pod("a", &uid, "n1", &["10.0.0.1"]);
    world.settle(&replica).await;
    assert_eq!((world.held().await, world.calls()), (inbound.clone(), vec![]));
    assert_eq!(world.warnings(), ["EgressNameRefused".to_owned()].into());
    replica.kill().await;
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!((world.held().await, world.calls()), (inbound, vec![]));
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
    // Once the Service is gone, the name is the pods'.
    world.delete(&service("web"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[(&uid, &[A])]));
}

#[tokio::test(start_paused = true)]
async fn eg_45_a_pod_that_comes_back_before_it_is_released_is_held_again() {
    let (world, replica) = world_of(true).await;
    world.azure_refuses("POST", "*/updateAddressLocations", 60);
    relabel(&world, "a", &Value::Null);
    seconds(30).await;
    relabel(&world, "a", &json!("gw"));
    for _ in 0..90 {
        seconds(1).await;
        assert_eq!(world.pod_finalizers("a"), ours());
    }
    world.settle(&replica).await;
    assert_eq!(world.held().await, leaving(&[("gw", &[A, B])]));
}

#[tokio::test(start_paused = true)]
async fn eg_49_outbound_services_come_and_go_independently() {
    let (world, replica) = World::running();
    for round in 0..3 {
        world.egress_pod("a", "one", "n1", &["10.0.0.1"]);
        if round == 0 {
            world.egress_pod("b", "two", "n2", &["10.0.0.2"]);
        }
        world.settle(&replica).await;
        assert_eq!(world.held().await, leaving(&[("one", &[A]), ("two", &[B])]));
        world.delete_pod("a");
        if round < 2 {
            world.settle(&replica).await;
            assert_eq!(world.held().await, leaving(&[("two", &[B])]));
        }
    }
    world.delete_pod("b");
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::default());
}

#[tokio::test(start_paused = true)]
async fn eg_55_a_label_taken_away_while_nobody_watched_releases_the_pod_at_the_start() {
    let (world, replica) = world_of(true).await;
    replica.kill().await;
    relabel(&world, "a", &Value::Null);
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!((world.pod_finalizers("a"), world.pod_finalizers("b")), (Some(vec![]), ours()));
    assert_eq!(world.held().await, leaving(&[("gw", &[B])]));
}

#[tokio::test(start_paused = true)]
async fn eg_59_the_finalizers_of_many_pods_are_written_ten_at_a_time() {
    let world = World::new();
    world.node("n1", "192.168.0.1");
    for number in 0..100 {
        world.egress_pod(&format!("p{number}"), "gw", "n1", &[&format!("10.0.1.{number}")]);
    }
    world.kube_is_slow("PATCH", "*/pods/*", 5);
    let mut calls = world.kube.subscribe();
    let replica = world.start();
    world.settle(&replica).await;
    world.kube.set_faults(FaultPlan::default());
    let mut patched = Vec::new();
    while let Ok(call) = calls.try_recv() {
        if call.call.verb == "PATCH" && call.call.path.starts_with(&pod("")) {
            patched.push(call.at);
        }
    }
    assert_eq!(patched.len(), 100);
    // Each takes five seconds: the eleventh begins when the first has ended.
    assert!(patched.windows(11).all(|some| some[10] - some[0] >= std::time::Duration::from_secs(5)));
    assert_eq!(world.held().await.addresses.len(), 100);
}
