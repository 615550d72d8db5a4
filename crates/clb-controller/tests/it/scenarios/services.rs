//! Services come, change and go.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{MADE, NONE, REMOVED, both, says, seconds, service};
use crate::world::{Held, World};

const AT_N1: &[(&str, &str)] = &[("10.0.0.1", "192.168.0.1")];

fn ports(ports: &[(&str, u16)]) -> Value {
    let port = |(protocol, port): &(&str, u16)| {
        json!({"name": format!("{}-{port}", protocol.to_lowercase()), "protocol": protocol, "port": port,
            "targetPort": port + 8_000})
    };
    json!(ports.iter().map(port).collect::<Vec<_>>())
}

fn open(ports: &[(&str, u16)]) -> BTreeSet<(String, u16)> {
    ports.iter().map(|(protocol, port)| ((*protocol).to_owned(), *port)).collect()
}

#[tokio::test(start_paused = true)]
async fn sl_01_no_azure_write_comes_before_the_finalizers_and_addresses_come_last() {
    let (world, replica) = World::running();
    // ep_01: the slice is there before its Service.
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.kube_refuses("PATCH", "*/services/web", 60);
    let uid = world.service("web", json!({}));
    seconds(50).await;
    assert_eq!((world.calls(), world.service_finalizers("web")), (vec![], Some(vec![])));
    world.settle(&replica).await;
    assert_eq!(world.calls(), MADE);
    assert_eq!(world.service_finalizers("web"), both());
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
}

#[tokio::test(start_paused = true)]
async fn sl_03_others_keep_their_entries_in_the_status_and_ours_is_put_back() {
    let (world, replica) = World::running();
    world.service("web", json!({}));
    let status = format!("{}/status", service("web"));
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "web.example"}]}}});
    world.ask("PATCH", &status, theirs.clone()).unwrap();
    world.settle(&replica).await;
    let ingress = || {
        let service = world.get_service("web").unwrap();
        let entries = service["status"]["loadBalancer"]["ingress"].as_array().unwrap().clone();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        entries.iter().map(|entry| (text(entry, "hostname"), text(entry, "ip"))).collect::<BTreeSet<_>>()
    };
    let ip = world.ingress("web").pop().unwrap();
    let expected = BTreeSet::from([("web.example".to_owned(), String::new()), (String::new(), ip)]);
    assert_eq!(ingress(), expected);
    // Nothing is written while it is right.
    let version = world.kube.with_cluster(|cluster| cluster.version());
    seconds(300).await;
    assert_eq!(world.kube.with_cluster(|cluster| cluster.version()), version);
    world.ask("PATCH", &status, theirs).unwrap();
    world.settle(&replica).await;
    assert_eq!(ingress(), expected);
}

#[tokio::test(start_paused = true)]
async fn sl_09_to_sl_11_and_sl_15_a_port_edit_writes_the_load_balancer_alone_and_the_address_stays() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({"ports": ports(&[("TCP", 80)])}));
    world.settle(&replica).await;
    let ingress = world.ingress("web");
    let _ = world.calls();
    for (wanted, opened) in [
        (vec![("TCP", 80), ("TCP", 443)], vec![("tcp", 80), ("tcp", 443)]),
        (vec![("TCP", 443)], vec![("tcp", 443)]),
        (vec![("UDP", 443)], vec![("udp", 443)]),
        (vec![("TCP", 443), ("UDP", 443)], vec![("tcp", 443), ("udp", 443)]),
    ] {
        // No two rules may lead to one port with one protocol; these are of several protocols or ports.
        world.patch_service("web", json!({"spec": {"ports": ports(&wanted)}}));
        world.settle(&replica).await;
        assert_eq!(world.frontends(), open(&opened));
        assert_eq!(world.calls(), ["PUT loadBalancers"]);
        assert_eq!(world.ingress("web"), ingress);
    }
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    assert_eq!(world.warnings(), [].into());
}

#[tokio::test(start_paused = true)]
async fn sl_12_and_sl_13_of_edits_while_a_write_runs_the_last_one_is_applied_once() {
    let (world, replica) = World::running();
    world.azure_is_slow("PUT", "*/loadBalancers/*", 10);
    world.service("web", json!({"ports": ports(&[("TCP", 80)])}));
    for port in [81, 82, 83] {
        seconds(2).await;
        world.patch_service("web", json!({"spec": {"ports": ports(&[("TCP", port)])}}));
    }
    world.settle(&replica).await;
    assert_eq!(world.frontends(), open(&[("tcp", 83)]));
    let calls = world.calls();
    assert_eq!(calls.iter().filter(|call| *call == "PUT loadBalancers").count(), 2, "{calls:?}");
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
}

#[tokio::test(start_paused = true)]
async fn sl_14_sl_16_and_sl_36_what_azure_need_not_know_is_not_written() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    // ad_16, too.
    let changes = json!({"allocateLoadBalancerNodePorts": false, "externalTrafficPolicy": "Local"});
    let uid = world.service("web", changes);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    let _ = world.calls();
    world.patch_service("web", json!({"spec": {"externalTrafficPolicy": "Cluster"}}));
    seconds(5).await;
    world.patch_service("web", json!({"spec": {"externalTrafficPolicy": "Local"}}));
    seconds(5).await;
    world.patch_service("web", json!({"metadata": {"labels": {"team": "payments"}}}));
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    assert_eq!(world.events(), [].into());
}

#[tokio::test(start_paused = true)]
async fn sl_18_sl_19_and_sl_22_a_service_is_removed_in_order_and_without_addresses_at_once() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.service("web", json!({}));
    world.service("bare", json!({}));
    world.settle(&replica).await;
    let _ = world.calls();
    world.delete(&service("web"));
    world.settle(&replica).await;
    assert_eq!(world.calls(), REMOVED);
    world.delete(&service("bare"));
    world.settle(&replica).await;
    assert_eq!(world.calls(), REMOVED[1..]);
    assert_eq!(world.held().await, Held::default());
    assert_eq!((world.get_service("web"), world.get_service("bare")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn sl_24_and_sl_35_a_service_that_changes_its_type_to_and_fro_survives_it() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let _ = world.calls();
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}}));
    world.settle(&replica).await;
    assert_eq!(world.calls(), REMOVED);
    assert_eq!(world.held().await, Held::default());
    assert_eq!(world.service_finalizers("web"), Some(vec![]));
    assert_eq!(world.ingress("web"), NONE);
    assert_eq!(world.service_condition("web"), says("False", "Released"));
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}}));
    world.settle(&replica).await;
    assert_eq!(world.calls(), MADE);
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    assert_eq!(world.service_finalizers("web"), both());
    assert_eq!(world.ingress("web").len(), 1);
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
}

#[tokio::test(start_paused = true)]
async fn sl_25_a_service_wanted_again_before_its_teardown_keeps_everything_and_later_gets_it_again() {
    for (verb, path, deletes) in [("POST", "*/updateAddressLocations", 0), ("DELETE", "*/loadBalancers/*", 2)]
    {
        let (world, replica) = World::running();
        world.slice("s", "web", &[("10.0.0.1", "n1")]);
        let uid = world.service("web", json!({}));
        world.settle(&replica).await;
        let _ = world.calls();
        world.azure_is_slow(verb, path, 20);
        world.patch_service("web", json!({"spec": {"type": "ClusterIP"}}));
        seconds(5).await;
        world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}}));
        world.settle(&replica).await;
        assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
        assert_eq!((world.service_finalizers("web"), world.ingress("web").len()), (both(), 1));
        let calls = world.calls();
        let deleted = calls.iter().filter(|call| call.starts_with("DELETE")).count();
        assert!(deleted <= deletes, "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sl_27_a_service_found_terminating_is_never_provisioned() {
    let world = World::new();
    world.node("n1", "192.168.0.1");
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let mut finalizers = both().unwrap();
    finalizers.push("example.com/hold".to_owned());
    world.service_of(&json!({"name": "web", "finalizers": finalizers}), json!({}));
    world.delete(&service("web"));
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    // fn_16: whoever else holds it still does.
    assert_eq!(world.service_finalizers("web"), Some(vec!["example.com/hold".to_owned()]));
    assert_eq!(world.ingress("web"), NONE);
}

#[tokio::test(start_paused = true)]
async fn sl_33_a_service_of_another_class_is_not_touched_and_one_of_ours_is_served() {
    let (world, replica) = World::running();
    world.service("theirs", json!({"loadBalancerClass": "example.com/other"}));
    let version = world.kube.with_cluster(|cluster| cluster.version());
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    assert_eq!(world.kube.with_cluster(|cluster| cluster.version()), version);
    let ours = json!({"loadBalancerClass": clb_controller::admission::LOAD_BALANCER_CLASS});
    let uid = world.service("ours", ours);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[])]));
    assert_eq!(world.service_finalizers("theirs"), Some(vec![]));
}

#[tokio::test(start_paused = true)]
async fn sl_37_a_service_of_ipv6_alone_has_an_ipv6_address_and_ipv6_pods() {
    let (world, replica) = World::running();
    world.dual_stack();
    world.slice("s4", "web", &[("10.0.0.1", "n1")]);
    world.slice("s6", "web", &[("fd00:1::1", "n1")]);
    let uid = world.service("web", json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}));
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[("fd00:1::1", "fd00::1")])]));
    let ingress = world.ingress("web");
    assert!(ingress.len() == 1 && ingress[0].contains(':'), "{ingress:?}");
}

#[tokio::test(start_paused = true)]
async fn sl_39_a_service_that_stops_being_a_load_balancer_while_one_is_made_gets_no_address() {
    for is_deleted in [false, true] {
        let (world, replica) = World::running();
        world.azure_is_slow("PUT", "*/loadBalancers/*", 20);
        world.service_of(&json!({"name": "web", "finalizers": ["example.com/hold"]}), json!({}));
        seconds(5).await;
        if is_deleted {
            world.delete(&service("web"));
        } else {
            world.patch_service("web", json!({"spec": {"type": "ClusterIP"}}));
        }
        for _ in 0..600 {
            sleep(Duration::from_millis(100)).await;
            assert_eq!(world.ingress("web"), NONE);
        }
        world.settle(&replica).await;
        assert_eq!(world.held().await, Held::default());
        assert_eq!(world.service_finalizers("web"), Some(vec!["example.com/hold".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn sl_20_sl_29_and_sl_40_a_delete_during_a_create_waits_for_one_call_at_most_and_leaves_nothing() {
    for (verb, path, made) in [
        ("PUT", "*/publicIPAddresses/*", vec!["PUT publicIPAddresses"]),
        ("PUT", "*/loadBalancers/*", vec!["PUT publicIPAddresses", "PUT loadBalancers"]),
        ("POST", "*/updateServices", MADE[..3].to_vec()),
    ] {
        let (world, replica) = World::running();
        world.azure_is_slow(verb, path, 60);
        world.service("web", json!({}));
        seconds(5).await;
        assert_eq!(world.calls(), made);
        world.azure.set_faults(clb_sim::fault::FaultPlan::default());
        world.delete(&service("web"));
        world.settle(&replica).await;
        let calls = world.calls();
        assert!(!calls.iter().any(|call| call.starts_with("PUT")), "{calls:?}");
        assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None));
        // Gone twice, or never known, is nothing.
        assert_eq!(world.ask("DELETE", &service("web"), Value::Null).unwrap_err().0, 404);
        world.settle(&replica).await;
        assert_eq!(world.calls(), NONE);
    }
}
