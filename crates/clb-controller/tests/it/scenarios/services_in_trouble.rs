//! Services on which something fails.

use std::time::Duration;

use clb_nrp::models::{ServiceRequest, UpdateAction, UpdateAddressLocations, UpdateServices};
use clb_nrp::{CallContext, NrpApi};
use clb_sim::SimulatorConfig;
use clb_sim::azure::{AzureConfig, PublicIpConfig};
use clb_sim::fault::FaultPlan;
use clb_sim::kube::KubeConfig;
use serde_json::json;

use super::{MADE, NONE, REMOVED, both, says, seconds, service};
use crate::world::{Held, World};

const AT_N1: &[(&str, &str)] = &[("10.0.0.1", "192.168.0.1")];

#[tokio::test(start_paused = true)]
async fn sl_04_the_address_is_written_when_azure_has_given_one() {
    let public_ips = PublicIpConfig { allocation: Duration::from_secs(60), ..PublicIpConfig::default() };
    let azure = AzureConfig { public_ips, ..AzureConfig::default() };
    let world = World::with(KubeConfig::default(), SimulatorConfig { azure, ..SimulatorConfig::default() });
    let replica = world.start();
    world.service("web", json!({}));
    for _ in 0..55 {
        seconds(1).await;
        assert_eq!(world.ingress("web"), NONE);
    }
    world.settle(&replica).await;
    let ingress = world.ingress("web");
    assert!(ingress.len() == 1 && ingress[0].parse::<std::net::IpAddr>().is_ok(), "{ingress:?}");
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
}

#[tokio::test(start_paused = true)]
async fn sl_05_while_the_status_cannot_be_written_addresses_flow_and_it_counts_as_unfinished() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.kube_refuses("PATCH", "*/services/web/status", 60);
    let uid = world.service("web", json!({}));
    seconds(50).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    assert_eq!((world.ingress("web"), world.service_condition("web")), (vec![], None));
    assert!(!replica.status.borrow().is_synced);
    world.settle(&replica).await;
    assert_eq!(world.ingress("web").len(), 1);
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
    // It was made once.
    assert_eq!(world.calls(), MADE);
}

#[tokio::test(start_paused = true)]
async fn sl_06_a_create_that_fails_half_way_keeps_what_is_made_and_goes_on() {
    for (verb, path, kept, told) in [
        ("PUT", "*/publicIPAddresses/*", (0, 0), "Retrying"),
        ("PUT", "*/loadBalancers/*", (1, 0), "Retrying"),
        // The registration of many is one call, and it may have been done: nobody's own failure.
        ("POST", "*/updateServices", (1, 1), "Updating"),
    ] {
        let (world, replica) = World::running();
        world.slice("s", "web", &[("10.0.0.1", "n1")]);
        world.azure_refuses(verb, path, 60);
        let uid = world.service("web", json!({}));
        seconds(50).await;
        let held = world.held().await;
        assert_eq!((held.public_ips.len(), held.load_balancers.len()), kept);
        assert_eq!((held.services, held.addresses), ([].into(), [].into()));
        assert_eq!(world.service_condition("web"), says("False", told));
        world.settle(&replica).await;
        assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
        assert_eq!(world.service_condition("web"), says("True", "Programmed"));
    }
}

#[tokio::test(start_paused = true)]
async fn sl_07_while_the_service_cannot_be_looked_up_nothing_is_made() {
    let (world, replica) = World::running();
    world.kube_refuses("GET", "*/services/web", 60);
    let uid = world.service("web", json!({}));
    seconds(50).await;
    assert_eq!(world.calls(), NONE);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[])]));
}

#[tokio::test(start_paused = true)]
async fn sl_08_a_service_replaced_or_gone_before_its_finalizers_leaves_azure_alone() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.kube_refuses("PATCH", "*/services/*", 60);
    let first = world.service("web", json!({}));
    world.service("gone", json!({}));
    seconds(10).await;
    world.delete(&service("web"));
    world.delete(&service("gone"));
    let second = world.service("web", json!({}));
    assert_ne!(first, second);
    world.settle(&replica).await;
    assert_eq!(world.calls(), MADE);
    assert_eq!(world.held().await, Held::inbound(&[(&second, AT_N1)]));
    assert_eq!(world.service_finalizers("web"), both());
}

#[tokio::test(start_paused = true)]
async fn sl_23_finalizers_that_cannot_be_removed_stay_until_they_can() {
    for verb in ["GET", "PATCH"] {
        let (world, replica) = World::running();
        world.service("web", json!({}));
        world.settle(&replica).await;
        world.kube_refuses(verb, "*/services/web", 60);
        world.delete(&service("web"));
        seconds(50).await;
        // fn_09: nothing of it is in Azure any more, and it is not forgotten.
        assert_eq!(world.held().await, Held::default());
        assert_eq!(world.service_finalizers("web"), both());
        assert!(!replica.status.borrow().is_synced);
        world.settle(&replica).await;
        assert_eq!(world.get_service("web"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn sl_41_whatever_somebody_takes_away_in_azure_is_put_back() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let before = world.held().await;
    let (nrp, call) = (world.nrp(), CallContext::random());
    let nothing = UpdateAddressLocations { action: UpdateAction::FullUpdate, address_locations: Vec::new() };
    nrp.update_address_locations(&call, &nothing).await.unwrap();
    let service_requests = vec![ServiceRequest::delete(uid.as_str())];
    let gone = UpdateServices { action: UpdateAction::PartialUpdate, service_requests };
    nrp.update_services(&call, &gone).await.unwrap();
    nrp.delete_load_balancer(&call, &uid).await.unwrap();
    nrp.delete_public_ip(&call, &format!("{uid}-pip")).await.unwrap();
    assert_eq!(world.held().await, Held::default());
    seconds(700).await;
    world.settle(&replica).await;
    assert_eq!(world.held().await, before);
    // It may be another address, and then the status says so.
    assert_eq!(world.ingress("web").len(), 1);
    assert_eq!(world.frontends(), [("tcp".to_owned(), 80)].into());
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
}

#[tokio::test(start_paused = true)]
async fn rt_08_rt_09_and_ep_07_what_azure_rejects_is_told_once_and_endpoints_keep_flowing() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let invalid = clb_sim::fault::How::Refuse { status: 400, code: "InvalidRequestFormat".to_owned() };
    let what = clb_sim::fault::What::verb("PUT").path("*/loadBalancers/*");
    world.azure.set_faults(FaultPlan::new(0).with(clb_sim::fault::When::Always, what, invalid));
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}}));
    seconds(20).await;
    assert_eq!(world.service_condition("web"), says("False", "ServiceGatewayConfigurationRejected"));
    world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
    seconds(20).await;
    let both = Held::inbound(&[(&uid, &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.2")])]);
    assert_eq!(world.held().await, both);
    assert_eq!(world.frontends(), [("tcp".to_owned(), 80)].into());
    // rt_05: tried again after minutes, and not because something else changed.
    let rejected = ("Warning".to_owned(), "ServiceGatewayConfigurationRejected".to_owned());
    assert_eq!(world.events(), [(rejected, 1)].into());
    // rt_04: another spec is tried at once.
    world.azure.set_faults(FaultPlan::default());
    world.patch_service("web", json!({"spec": {"ports": [{"port": 82}]}}));
    seconds(5).await;
    assert_eq!(world.frontends(), [("tcp".to_owned(), 82)].into());
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
}

#[tokio::test(start_paused = true)]
async fn rt_13_and_rt_16_a_withdrawal_that_is_refused_for_long_holds_the_service_and_is_never_given_up() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let _ = world.calls();
    world.azure_refuses("POST", "*/updateAddressLocations", 1_200);
    world.delete(&service("web"));
    seconds(1_100).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    assert_eq!(world.service_finalizers("web"), both());
    let tries = world.calls();
    assert!(tries.iter().all(|call| call == "updateAddressLocations"), "{tries:?}");
    // rt_01: after 1, 2, 4, 8, 16 and then 30 seconds at most, half of that on average.
    assert!((60..=90).contains(&tries.len()), "{} tries", tries.len());
    world.settle(&replica).await;
    let calls = world.calls();
    assert_eq!(calls[calls.len() - 4..], REMOVED[1..]);
    assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None));
}
