//! Endpoints: which pods a Service's traffic goes to.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{NONE, pairs, seconds, service};
use crate::world::{Held, World};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn endpoint(ip: &str, node: &str) -> Value {
    json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}})
}

#[tokio::test(start_paused = true)]
async fn ep_02_to_ep_04_what_comes_and_goes_while_the_service_is_made_is_never_sent_and_later_all_is_at_once()
{
    let (world, replica) = World::running();
    world.azure_is_slow("PUT", "*/loadBalancers/*", 20);
    let uid = world.service("web", json!({}));
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    seconds(3).await;
    world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]);
    seconds(3).await;
    world.slice("s", "web", &[("10.0.0.3", "n2")]);
    world.settle(&replica).await;
    let expected = Held::inbound(&[(&uid, &[("10.0.0.3", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
    let sent = world.calls().into_iter().filter(|call| call == "updateAddressLocations").count();
    assert_eq!(sent, 1);
    // While a port is being changed, which takes 20 seconds.
    world.patch_service("web", json!({"spec": {"ports": [{"name": "http", "port": 81}]}}));
    seconds(5).await;
    world.slice("s", "web", &[("10.0.0.4", "n2")]);
    seconds(2).await;
    let expected = Held::inbound(&[(&uid, &[("10.0.0.4", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
    assert!(!replica.status.borrow().is_synced);
    // ep_21: and the port, too.
    world.settle(&replica).await;
    assert_eq!(world.frontends(), [("tcp".to_owned(), 81)].into());
    assert_eq!(world.held().await, expected);
}

#[tokio::test(start_paused = true)]
async fn ep_05_and_ep_06_endpoints_of_a_service_that_goes_only_leave() {
    for (verb, path) in [("POST", "*/updateAddressLocations"), ("DELETE", "*/loadBalancers/*")] {
        let (world, replica) = World::running();
        world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
        world.service("web", json!({}));
        world.settle(&replica).await;
        world.azure_refuses(verb, path, 60);
        world.delete(&service("web"));
        seconds(5).await;
        world.slice("s", "web", &[("10.0.0.2", "n2"), ("10.0.0.3", "n1")]);
        for _ in 0..50 {
            seconds(1).await;
            let added: IpAddr = "10.0.0.3".parse().unwrap();
            assert!(!world.held().await.addresses.iter().any(|(_, address, _)| *address == added));
        }
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None));
    }
}

#[tokio::test(start_paused = true)]
async fn ep_08_after_a_restart_endpoints_go_in_at_once_and_nothing_else_is_written() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    replica.kill().await;
    let _replica = world.start();
    seconds(5).await;
    let _ = world.calls();
    world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
    seconds(2).await;
    assert_eq!(world.calls(), ["updateAddressLocations"]);
    let expected = Held::inbound(&[(&uid, &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
}

#[tokio::test(start_paused = true)]
async fn ep_09_of_all_endpoints_those_count_that_are_ready_on_a_known_node() {
    let (world, replica) = World::running();
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": {"ready": true}},
        {"addresses": ["10.0.0.2"], "nodeName": "n1"},
        {"addresses": ["10.0.0.3"], "nodeName": "n1", "conditions": {"ready": false}},
        {"addresses": ["10.0.0.4"]},
        {"addresses": ["10.0.0.5"], "nodeName": "nobody"},
        {"addresses": ["10.0.0.6x"], "nodeName": "n1"},
    ]);
    world.slice_of("s", "web", endpoints);
    let names = json!({"metadata": {"name": "names", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "FQDN", "endpoints": [{"addresses": ["web.example"], "nodeName": "n1"}]});
    world.ask("POST", SLICES, names).unwrap();
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let expected = Held::inbound(&[(&uid, &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.1")])]);
    assert_eq!(world.held().await, expected);
    let status = replica.status.borrow().clone();
    let skipped: Vec<_> =
        status.watches.into_values().map(|watch| watch.skipped).filter(|it| *it > 0).collect();
    assert_eq!((skipped, world.service_condition("web")), (vec![1], super::says("True", "Programmed")));
}

#[tokio::test(start_paused = true)]
async fn ep_10_and_ep_29_pods_that_crash_and_recover_leave_and_come_back() {
    let (world, replica) = World::running();
    world.live();
    let uid = world.service("web", json!({"selector": {"app": "web"}}));
    for name in ["a", "b", "c"] {
        world.backend(name, "web");
    }
    world.settle(&replica).await;
    let all = world.serving("web");
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &pairs(&all))]));
    let ready = |status: &str| {
        let condition = |name: &str| json!({"type": name, "status": status});
        let conditions = [condition("ContainersReady"), condition("Ready")];
        world
            .ask(
                "PATCH",
                &format!("{}/status", super::pod("b")),
                json!({"status": {"conditions": conditions}}),
            )
            .unwrap();
    };
    for _ in 0..3 {
        ready("False");
        world.settle(&replica).await;
        let others = [all[0].clone(), all[2].clone()];
        assert_eq!(world.held().await, Held::inbound(&[(&uid, &pairs(&others))]));
        ready("True");
        world.settle(&replica).await;
        assert_eq!(world.held().await, Held::inbound(&[(&uid, &pairs(&all))]));
    }
    // All of them at once: the Service never is in error.
    for name in ["a", "b", "c"] {
        world.delete_pod(name);
    }
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[])]));
    assert_eq!(world.service_condition("web"), super::says("True", "Programmed"));
    assert_eq!(world.warnings(), [].into());
}

#[tokio::test(start_paused = true)]
async fn ep_12_ep_14_and_ep_18_addresses_move_between_nodes_and_leave_with_their_slices() {
    let (world, replica) = World::running();
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let ingress = world.ingress("web");
    let _ = world.calls();
    world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]);
    world.settle(&replica).await;
    world.slice("s", "web", &[("10.0.0.1", "n2"), ("10.0.0.2", "n1")]);
    world.settle(&replica).await;
    let moved: &[(&str, &str)] = &[("10.0.0.1", "192.168.0.2"), ("10.0.0.2", "192.168.0.1")];
    assert_eq!(world.held().await, Held::inbound(&[(&uid, moved)]));
    world.slice("s", "web", &[]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[])]));
    world.slice("s", "web", &[("10.0.0.1", "n2"), ("10.0.0.2", "n1")]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, moved)]));
    // One that is being deleted and held by somebody is as good as gone.
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.ask("PATCH", &format!("{SLICES}/s"), held).unwrap();
    world.delete(&format!("{SLICES}/s"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[])]));
    let calls = world.calls();
    assert!(calls.iter().all(|call| call == "updateAddressLocations"), "{calls:?}");
    assert_eq!(world.ingress("web"), ingress);
}

#[tokio::test(start_paused = true)]
async fn ep_17_an_address_of_two_services_stays_for_the_one_when_the_other_goes() {
    let (world, replica) = World::running();
    let endpoints: &[(&str, &str)] = &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")];
    let at: &[(&str, &str)] = &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.2")];
    let (a, b) = (world.service("a", json!({})), world.service("b", json!({})));
    world.slice("sa", "a", endpoints);
    world.slice("sb", "b", endpoints);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&a, at), (&b, at)]));
    world.delete(&service("a"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&b, at)]));
}

#[tokio::test(start_paused = true)]
async fn ep_19_and_ep_20_another_selector_and_any_number_of_pods_give_exactly_those_that_serve() {
    let (world, replica) = World::running();
    world.live();
    let uid = world.service("web", json!({"selector": {"app": "a"}}));
    let (mut there, mut next) = (Vec::<String>::new(), 0);
    for wanted in [10_usize, 50, 100, 20, 80] {
        while there.len() > wanted {
            world.delete_pod(&there.remove(0));
        }
        while there.len() < wanted {
            next += 1;
            world.backend(&format!("p{next}"), "a");
            there.push(format!("p{next}"));
        }
        // It does not come to rest in between.
        seconds(1).await;
    }
    world.settle(&replica).await;
    let all = world.serving("a");
    assert_eq!(all.len(), 80);
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &pairs(&all))]));
    for name in ["b1", "b2"] {
        world.backend(name, "b");
    }
    world.patch_service("web", json!({"spec": {"selector": {"app": "b"}}}));
    world.settle(&replica).await;
    let others = world.serving("b");
    assert_eq!(others.len(), 2);
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &pairs(&others))]));
}

#[tokio::test(start_paused = true)]
async fn ep_23_an_endpoint_that_moves_to_another_slice_is_not_missed_for_a_moment() {
    let (world, replica) = World::running();
    let uid = world.service("web", json!({}));
    world.slice("a", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
    world.settle(&replica).await;
    let _ = world.calls();
    world.slice("b", "web", &[("10.0.0.1", "n1")]);
    seconds(5).await;
    world.slice("a", "web", &[("10.0.0.2", "n2")]);
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    let expected = Held::inbound(&[(&uid, &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
    world.delete(&format!("{SLICES}/b"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[("10.0.0.2", "192.168.0.2")])]));
}

#[tokio::test(start_paused = true)]
async fn ep_24_and_ep_27_whatever_order_nodes_and_slices_change_in_nothing_stays_behind() {
    for slice_first in [false, true] {
        let (world, replica) = World::running();
        let uid = world.service("web", json!({}));
        world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
        world.settle(&replica).await;
        // Both at once, and no rest between them.
        let slice = || world.slice("s", "web", &[("10.0.0.2", "n2"), ("10.0.0.3", "n1")]);
        if slice_first {
            slice();
        }
        world.node_addresses("n1", &["192.168.0.9"]);
        if !slice_first {
            slice();
        }
        world.settle(&replica).await;
        let expected = [("10.0.0.2", "192.168.0.2"), ("10.0.0.3", "192.168.0.9")];
        assert_eq!(world.held().await, Held::inbound(&[(&uid, &expected)]));
        world.delete("/api/v1/nodes/n1");
        seconds(1).await;
        world.slice("s", "web", &[("10.0.0.2", "n2")]);
        world.settle(&replica).await;
        assert_eq!(world.held().await, Held::inbound(&[(&uid, &expected[..1])]));
        assert_eq!(replica.stop().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn ep_26_a_slice_belongs_to_the_service_of_its_label_or_else_to_its_owner() {
    let (world, replica) = World::running();
    let (web, other) = (world.service("web", json!({})), world.service("other", json!({})));
    let owner =
        |name: &str, uid: &str| json!([{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid}]);
    for (name, labels, ip) in [
        ("owned", json!({}), "10.0.0.1"),
        ("labelled", json!({"kubernetes.io/service-name": "other"}), "10.0.0.2"),
    ] {
        let metadata = json!({"name": name, "labels": labels, "ownerReferences": owner("web", &web)});
        let slice = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint(ip, "n1")]});
        world.ask("POST", SLICES, slice).unwrap();
    }
    world.settle(&replica).await;
    let expected =
        Held::inbound(&[(&web, &[("10.0.0.1", "192.168.0.1")]), (&other, &[("10.0.0.2", "192.168.0.1")])]);
    assert_eq!(world.held().await, expected);
}

#[tokio::test(start_paused = true)]
async fn ep_22_and_ep_30_what_changes_nothing_for_azure_is_not_sent() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.service("web", json!({}));
    world.settle(&replica).await;
    let _ = world.calls();
    let label = json!({"metadata": {"labels": {"team": "payments"}}});
    world.ask("PATCH", &format!("{SLICES}/s"), label.clone()).unwrap();
    world.ask("PATCH", "/api/v1/nodes/n1", label).unwrap();
    // Nobody's slice, and one that came and went with its Service before anything was done.
    world.slice("nobodys", "nobody", &[("10.0.0.7", "n1")]);
    world.slice("short", "short", &[("10.0.0.8", "n1")]);
    world.service("short", json!({}));
    world.delete(&service("short"));
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
}
