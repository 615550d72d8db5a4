//! The controller starts anew, wherever the last one ended.

use std::collections::BTreeMap;

use clb_controller::OWNER_TAG;
use clb_nrp::models::{IpVersion, NatGateway, PublicIp, Sku};
use clb_nrp::{CallContext, NrpApi};
use clb_sim::SimulatorConfig;
use clb_sim::azure::{AzureConfig, ResourceGroup};
use clb_sim::fault::FaultPlan;
use clb_sim::kube::KubeConfig;
use serde_json::{Value, json};

use super::{NONE, REMOVED, both, ours, says, seconds, service};
use crate::world::{Held, World};

const A: (&str, &str) = ("10.0.0.1", "192.168.0.1");
const B: (&str, &str) = ("10.0.0.2", "192.168.0.2");

/// A cluster and Azure in which nobody runs.
fn idle() -> World {
    let world = World::new();
    world.node("n1", "192.168.0.1");
    world.node("n2", "192.168.0.2");
    world
}

/// How a create goes, by its steps: what becomes slow, and whether it is Azure that does.
const CREATE: [(&str, &str, bool); 6] = [
    ("PATCH", "*/services/web", false),
    ("PUT", "*/publicIPAddresses/*", true),
    ("PUT", "*/loadBalancers/*", true),
    ("POST", "*/updateServices", true),
    ("POST", "*/updateAddressLocations", true),
    ("PATCH", "*/services/web/status", false),
];

/// The same of a delete.
const DELETE: [(&str, &str, bool); 5] = [
    ("POST", "*/updateAddressLocations", true),
    ("POST", "*/updateServices", true),
    ("DELETE", "*/loadBalancers/*", true),
    ("DELETE", "*/publicIPAddresses/*", true),
    ("PATCH", "*/services/web", false),
];

fn slow(world: &World, (verb, path, is_azure): (&str, &str, bool)) {
    if is_azure {
        world.azure_is_slow(verb, path, 20);
    } else {
        world.kube_is_slow(verb, path, 20);
    }
}

fn undisturbed(world: &World) {
    world.azure.set_faults(FaultPlan::default());
    world.kube.set_faults(FaultPlan::default());
}

#[tokio::test(start_paused = true)]
async fn rs_01_to_rs_04_what_happened_while_nobody_watched_is_made_up_for() {
    let world = idle();
    let replica = world.start();
    let stays = world.service("stays", json!({}));
    world.slice("s", "stays", &[("10.0.0.1", "n1")]);
    world.service("goes", json!({}));
    world.service("is-retyped", json!({}));
    world.egress_pod("goes", "old", "n1", &["10.0.0.3"]);
    world.egress_pod("stays", "gw", "n1", &["10.0.0.4"]);
    world.egress_pod("leaves", "gw", "n2", &["10.0.0.5"]);
    world.settle(&replica).await;
    replica.kill().await;
    world.delete(&service("goes"));
    world.patch_service("is-retyped", json!({"spec": {"type": "ClusterIP"}}));
    let comes = world.service("comes", json!({}));
    world.slice("c", "comes", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
    world.slice("s", "stays", &[("10.0.0.2", "n2")]);
    world.delete_pod("goes");
    world.delete_pod("leaves");
    world.egress_pod("comes", "new", "n2", &["10.0.0.6"]);
    let replica = world.start();
    world.settle(&replica).await;
    let expected = Held::inbound(&[(&stays, &[B]), (&comes, &[A, B])]);
    let expected = expected
        .and_outbound(&[("gw", &[("10.0.0.4", "192.168.0.1")]), ("new", &[("10.0.0.6", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
    assert_eq!((world.get_service("goes"), world.service_finalizers("is-retyped")), (None, Some(vec![])));
    let pods = ["goes", "stays", "leaves", "comes"].map(|name| world.pod_finalizers(name));
    assert_eq!(pods, [None, ours(), None, ours()]);
    assert_eq!(world.warnings(), [].into());
}

#[tokio::test(start_paused = true)]
async fn rs_05_a_create_that_is_cut_off_anywhere_is_finished_and_nothing_is_there_twice() {
    for step in CREATE {
        let world = idle();
        slow(&world, step);
        let replica = world.start();
        world.slice("s", "web", &[("10.0.0.1", "n1")]);
        let uid = world.service("web", json!({}));
        seconds(10).await;
        replica.kill().await;
        undisturbed(&world);
        let replica = world.start();
        world.settle(&replica).await;
        assert_eq!(world.held().await, Held::inbound(&[(&uid, &[A])]), "{step:?}");
        assert_eq!((world.service_finalizers("web"), world.ingress("web").len()), (both(), 1));
        assert_eq!(world.service_condition("web"), says("True", "Programmed"));
    }
}

#[tokio::test(start_paused = true)]
async fn rs_06_a_delete_that_is_cut_off_anywhere_is_finished() {
    for step in DELETE {
        let world = idle();
        let replica = world.start();
        world.slice("s", "web", &[("10.0.0.1", "n1")]);
        world.service("web", json!({}));
        world.settle(&replica).await;
        slow(&world, step);
        world.delete(&service("web"));
        seconds(10).await;
        replica.kill().await;
        undisturbed(&world);
        let replica = world.start();
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None), "{step:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rs_08_and_rs_31_a_status_that_was_lost_is_written_and_azure_is_not() {
    let world = idle();
    let replica = world.start();
    world.service("web", json!({}));
    world.settle(&replica).await;
    let ingress = world.ingress("web");
    replica.kill().await;
    let _ = world.calls();
    let none = json!({"status": {"loadBalancer": null}});
    world.ask("PATCH", &format!("{}/status", service("web")), none).unwrap();
    assert_eq!(world.ingress("web"), NONE);
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!((world.ingress("web"), world.calls()), (ingress, vec![]));
}

#[tokio::test(start_paused = true)]
async fn rs_09_and_rs_10_finalizers_found_on_a_terminating_service_stay_as_long_as_there_is_something() {
    let world = idle();
    let replica = world.start();
    world.service("web", json!({}));
    world.settle(&replica).await;
    replica.kill().await;
    let _ = world.calls();
    world.delete(&service("web"));
    // Two of which there is nothing: one that is being deleted, and one that is no load balancer any more.
    world.service_of(&json!({"name": "gone", "finalizers": both()}), json!({}));
    world.delete(&service("gone"));
    world.service_of(&json!({"name": "retyped", "finalizers": both()}), json!({"type": "ClusterIP"}));
    world.azure_refuses("DELETE", "*/publicIPAddresses/*", 60);
    let replica = world.start();
    seconds(50).await;
    assert_eq!(world.service_finalizers("web"), both());
    assert_eq!((world.get_service("gone"), world.service_finalizers("retyped")), (None, Some(vec![])));
    world.settle(&replica).await;
    assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None));
    let calls = world.calls();
    assert_eq!(calls[..3], REMOVED[1..4], "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn rs_11_and_eg_31_pods_found_half_gone_are_released_when_nothing_of_theirs_is_left() {
    let world = idle();
    let replica = world.start();
    for (name, node, ip) in [("a", "n1", "10.0.0.1"), ("b", "n2", "10.0.0.2")] {
        world.egress_pod(name, "gw", node, &[ip]);
    }
    world.settle(&replica).await;
    replica.kill().await;
    // Of one nothing is in Azure, and one has lost its addresses on its way out.
    world.egress_pod("never", "other", "n1", &["10.0.0.7"]);
    world.patch_pod("never", json!({"metadata": {"finalizers": ours()}}));
    for name in ["never", "a"] {
        world.delete_pod(name);
    }
    world.pod_status("a", "Failed", &[]);
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!(["never", "a"].map(|name| world.pod_is_there(name)), [false, false]);
    assert_eq!(world.held().await, Held::default().and_outbound(&[("gw", &[B])]));
}

#[tokio::test(start_paused = true)]
async fn rs_13_to_rs_17_and_rs_35_orphans_of_ours_go_and_what_is_not_ours_stays() {
    let group = ResourceGroup { subscription: "s".to_owned(), name: "rg".to_owned() };
    let azure = AzureConfig { default_outbound: Some(group), ..AzureConfig::default() };
    let world = World::with(KubeConfig::default(), SimulatorConfig { azure, ..SimulatorConfig::default() });
    world.node("n1", "192.168.0.1");
    world.node("n2", "192.168.0.2");
    let (nrp, call) = (world.nrp(), CallContext::random());
    let tagged = |owner: &str| BTreeMap::from([(OWNER_TAG.to_owned(), owner.to_owned())]);
    for (name, tags) in [
        ("shop-pip", BTreeMap::new()),
        ("their-pip", tagged("there")),
        ("our-pip", tagged("here")),
        ("our-pip-v6", tagged("here")),
    ] {
        let public_ip = PublicIp::for_service("eastus", IpVersion::V4, tags);
        nrp.put_public_ip(&call, name, &public_ip).await.unwrap();
    }
    let gateway = |tags| {
        let (location, sku) = (Some("eastus".to_owned()), Some(Sku::named("StandardV2")));
        NatGateway { tags, location, sku, ..NatGateway::default() }
    };
    nrp.put_nat_gateway(&call, "theirs", &gateway(tagged("there"))).await.unwrap();
    let replica = world.start();
    let stays = world.service("stays", json!({}));
    world.service("goes", json!({}));
    world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
    world.settle(&replica).await;
    let mut foreign = Held::default().and_outbound(&[("default-natgw", &[])]);
    foreign.nat_gateways.insert("theirs".to_owned());
    foreign.public_ips.extend(["shop-pip", "their-pip"].map(str::to_owned));
    let mut expected = Held::inbound(&[(&stays, &[])]);
    expected.services.extend(foreign.services.clone());
    expected.nat_gateways.extend(foreign.nat_gateways.clone());
    expected.public_ips.extend(foreign.public_ips.clone());
    replica.kill().await;
    // By force: nobody is told, and there are no finalizers to see.
    world.patch_service("goes", json!({"metadata": {"finalizers": null}}));
    world.delete(&service("goes"));
    world.patch_pod("a", json!({"metadata": {"finalizers": null}}));
    world.delete_pod("a");
    // rs_15: one that is rejected now is wanted all the same.
    world.patch_service("stays", json!({"spec": {"sessionAffinity": "ClientIP"}}));
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!(world.held().await, expected);
    world.delete(&service("stays"));
    world.settle(&replica).await;
    assert_eq!(world.held().await, foreign);
}

#[tokio::test(start_paused = true)]
async fn rs_18_rs_19_and_rs_36_a_list_that_fails_is_not_taken_for_an_empty_one() {
    for (path, is_azure) in [
        ("*/loadBalancers", true),
        ("*/natGateways", true),
        ("*/publicIPAddresses", true),
        ("*/services", true),
        ("*/addressLocations", true),
        ("/api/v1/services", false),
        ("/apis/discovery.k8s.io/v1/endpointslices", false),
        ("/api/v1/pods", false),
        // rs_22: the families of the cluster are those of its nodes.
        ("/api/v1/nodes", false),
    ] {
        let world = idle();
        world.dual_stack();
        let replica = world.start();
        world.slice("s", "web", &[("10.0.0.1", "n1")]);
        let uid = world.service("web", json!({}));
        world.egress_pod("a", "gw", "n2", &["10.0.0.2"]);
        world.settle(&replica).await;
        replica.kill().await;
        let before = world.held().await;
        let _ = world.calls();
        if is_azure {
            world.azure_refuses("GET", path, 60);
        } else {
            world.kube_refuses("GET", path, 60);
        }
        let new = world.service("new", json!({}));
        let replica = world.start();
        seconds(50).await;
        assert_eq!(world.calls(), NONE, "{path}");
        let status = replica.status.borrow().clone();
        assert!(!status.is_sending && !status.is_synced && !status.troubles().is_empty(), "{status:?}");
        world.settle(&replica).await;
        let mut expected = Held::inbound(&[(&uid, &[A]), (&new, &[])]).and_outbound(&[("gw", &[B])]);
        expected.public_ips.insert("gw-pip-v6".to_owned());
        assert_eq!(world.held().await, expected, "{path}");
        assert!(before.services.is_subset(&expected.services));
        assert_eq!(replica.status.borrow().troubles(), NONE);
    }
}

#[tokio::test(start_paused = true)]
async fn rs_20_and_rs_26_a_start_with_nothing_to_do_is_complete_and_what_comes_during_it_is_not_lost() {
    let world = idle();
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!((world.calls(), replica.status.borrow().troubles()), (vec![], vec![]));
    assert_eq!(replica.stop().await, 0);
    world.azure_is_slow("GET", "*/loadBalancers", 20);
    let replica = world.start();
    seconds(5).await;
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    seconds(5).await;
    assert_eq!(world.calls(), NONE);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[A])]));
    assert_eq!(world.service_finalizers("web"), both());
}

#[tokio::test(start_paused = true)]
async fn rs_21_and_rs_15_of_what_serves_at_a_start_another_class_is_let_go_and_a_rejected_one_goes_on() {
    let world = idle();
    let replica = world.start();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    replica.kill().await;
    let _ = world.calls();
    world.service_of(
        &json!({"name": "theirs", "finalizers": both()}),
        json!({"loadBalancerClass": "example.com/other"}),
    );
    world.patch_service("web", json!({"spec": {"sessionAffinity": "ClientIP"}}));
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!((world.calls(), world.held().await), (vec![], Held::inbound(&[(&uid, &[A])])));
    assert_eq!((world.service_finalizers("theirs"), world.service_finalizers("web")), (Some(vec![]), both()));
    assert_eq!(world.service_condition("web"), says("False", "UnsupportedSessionAffinity"));
    assert_eq!(world.warnings(), ["UnsupportedSessionAffinity".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn rs_24_and_rs_25_what_is_found_at_the_start_counts_as_what_is_told_later() {
    let world = idle();
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": {"ready": true}},
        {"addresses": ["10.0.0.3"], "nodeName": "n1", "conditions": {"ready": false}},
        {"addresses": ["10.0.0.5"], "nodeName": "nobody"},
    ]);
    world.slice_of("s", "web", endpoints);
    let uid = world.service("web", json!({}));
    for (name, phase) in [("a", "Running"), ("b", "Running"), ("over", "Succeeded"), ("waits", "Pending")] {
        world.egress_pod(name, "gw", "n2", &[]);
        let ip = format!("10.0.1.{}", name.len());
        let ips = match phase {
            "Pending" => vec![],
            _ if name == "a" => vec!["10.0.0.2"],
            _ => vec![ip.as_str()],
        };
        world.pod_status(name, phase, &ips);
    }
    let replica = world.start();
    world.settle(&replica).await;
    let two = [B, ("10.0.1.1", "192.168.0.2")];
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[A])]).and_outbound(&[("gw", &two)]));
    world.delete_pod("a");
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[A])]).and_outbound(&[("gw", &two[1..])]));
    assert_eq!(world.pod_finalizers("b"), ours());
}

#[tokio::test(start_paused = true)]
async fn rs_29_a_namespace_that_goes_while_the_controller_starts_is_cleaned_up_in_minutes() {
    let world = idle();
    let replica = world.start();
    let team = "/api/v1/namespaces/team";
    world.ask("POST", "/api/v1/namespaces", json!({"metadata": {"name": "team"}})).unwrap();
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    for number in 0..5 {
        let service = json!({"metadata": {"name": format!("s{number}")}, "spec": spec});
        world.ask("POST", &format!("{team}/services"), service).unwrap();
        let label = json!({"kubernetes.azure.com/service-egress-gateway": format!("gw{number}")});
        let body = json!({"metadata": {"name": format!("p{number}"), "labels": label},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
        world.ask("POST", &format!("{team}/pods"), body).unwrap();
        let status = json!({"status": {"phase": "Running", "podIPs": [{"ip": format!("10.0.2.{number}")}]}});
        world.ask("PATCH", &format!("{team}/pods/p{number}/status"), status).unwrap();
    }
    world.settle(&replica).await;
    assert_eq!(world.held().await.services.len(), 10);
    replica.kill().await;
    world.live();
    let replica = world.start();
    world.delete(team);
    let mut waited = 0;
    while world.ask("GET", team, Value::Null).is_ok() {
        seconds(1).await;
        waited += 1;
        assert!(waited < 600, "it is still there");
    }
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::default());
}

#[tokio::test(start_paused = true)]
async fn cc_11_and_rt_17_whoever_waits_for_a_start_that_cannot_be_completed_waits_and_is_told_of_its_end() {
    let world = idle();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.azure_refuses("POST", "*/updateAddressLocations", 600);
    let replica = world.start();
    let inbox = replica.inbox.clone();
    let waiting = tokio::spawn(async move { inbox.synced().await });
    seconds(590).await;
    assert!(world.calls().iter().filter(|call| *call == "updateAddressLocations").count() > 12);
    assert!(!waiting.is_finished() && !replica.status.borrow().is_synced);
    world.settle(&replica).await;
    assert_eq!(waiting.await.unwrap(), Ok(()));
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[A])]));
    // And as often as one likes.
    assert_eq!(replica.inbox.synced().await, Ok(()));
    world.azure_refuses("PUT", "*", 600);
    world.service("new", json!({}));
    seconds(5).await;
    let inbox = replica.inbox.clone();
    let waiting = tokio::spawn(async move { inbox.synced().await });
    seconds(5).await;
    replica.stop().await;
    assert!(waiting.await.unwrap().is_err());
}
