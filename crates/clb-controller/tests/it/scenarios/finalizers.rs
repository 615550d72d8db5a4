//! Objects stay as long as something of theirs is in Azure.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{both, ours, seconds, service};
use crate::world::{Held, World};

#[tokio::test(start_paused = true)]
async fn fn_01_and_fn_02_both_finalizers_are_there_together_and_one_that_is_taken_off_is_put_back() {
    let (world, replica) = World::running();
    world.service("web", json!({}));
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        let finalizers = world.service_finalizers("web");
        assert!(finalizers == both() || finalizers == Some(vec![]), "{finalizers:?}");
    }
    world.settle(&replica).await;
    let calls = world.calls();
    for kept in [json!(["service.kubernetes.io/load-balancer-cleanup"]), json!(null)] {
        world.patch_service("web", json!({"metadata": {"finalizers": kept}}));
        world.settle(&replica).await;
        let mut finalizers = world.service_finalizers("web").unwrap();
        finalizers.sort_unstable_by(|left, right| right.cmp(left));
        assert_eq!(Some(finalizers), both());
    }
    assert_eq!((calls.len(), world.calls().len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn fn_04_a_conflict_is_read_again_and_what_came_in_between_stays() {
    let (world, replica) = World::running();
    world.kube_is_slow("GET", "*/services/web", 2);
    world.service("web", json!({}));
    // Between the read and the write.
    seconds(1).await;
    world.patch_service("web", json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    world.settle(&replica).await;
    let mut expected = vec!["example.com/hold".to_owned()];
    expected.extend(both().unwrap());
    assert_eq!(world.service_finalizers("web"), Some(expected));
    // fn_05, fn_16: and when all is gone, it stays still.
    world.delete(&service("web"));
    world.settle(&replica).await;
    assert_eq!(world.service_finalizers("web"), Some(vec!["example.com/hold".to_owned()]));
    assert_eq!(world.held().await, Held::default());
}

#[tokio::test(start_paused = true)]
async fn fn_09_fn_12_and_rt_18_a_pod_that_cannot_be_released_is_tried_again_until_it_is() {
    for verb in ["GET", "PATCH"] {
        let (world, replica) = World::running();
        world.egress_pod("a", "gw", "n1", &["10.0.0.1"]);
        world.settle(&replica).await;
        world.kube_refuses(verb, "*/pods/a", 120);
        world.delete_pod("a");
        seconds(100).await;
        assert_eq!((world.pod_finalizers("a"), world.held().await), (ours(), Held::default()));
        assert!(!replica.status.borrow().is_synced);
        world.settle(&replica).await;
        assert!(!world.pod_is_there("a"));
        assert_eq!(world.warnings(), ["ServiceGatewayFinalizerRemoveFailed".to_owned()].into());
    }
}

#[tokio::test(start_paused = true)]
async fn fn_13_and_fn_15_no_object_goes_while_something_of_its_is_in_azure() {
    let (world, replica) = World::running();
    for number in 0..20 {
        world.egress_pod(&format!("p{number}"), "gw", "n1", &[&format!("10.0.1.{number}")]);
    }
    let names: Vec<_> = (0..5).map(|number| format!("s{number}")).collect();
    let services: Vec<_> = names.iter().map(|name| (name, world.service(name, json!({})))).collect();
    world.settle(&replica).await;
    for path in ["*/loadBalancers/*", "*/updateAddressLocations"] {
        world.azure_is_slow("*", path, 1);
    }
    names.iter().for_each(|name| world.delete(&service(name)));
    // All but one, at once.
    (0..19).for_each(|number| world.delete_pod(&format!("p{number}")));
    let mut went = 0;
    while went < 24 {
        sleep(Duration::from_millis(50)).await;
        let held = world.held().await;
        let has_address = |number: u32| {
            let ip: IpAddr = format!("10.0.1.{number}").parse().unwrap();
            held.addresses.iter().any(|(_, address, _)| *address == ip)
        };
        for number in (0..19).filter(|number| has_address(*number)) {
            assert!(world.pod_is_there(&format!("p{number}")), "p{number}");
        }
        for (name, uid) in &services {
            let there = held.load_balancers.contains(uid) || held.public_ips.contains(&format!("{uid}-pip"));
            assert!(!there || world.get_service(name).is_some(), "{name}");
        }
        let pods = (0..19).filter(|number| !world.pod_is_there(&format!("p{number}"))).count();
        went = pods + names.iter().filter(|name| world.get_service(name).is_none()).count();
    }
    world.settle(&replica).await;
    let left = [("10.0.1.19", "192.168.0.1")];
    assert_eq!(world.held().await, Held::default().and_outbound(&[("gw", &left)]));
    assert_eq!(world.pod_finalizers("p19"), ours());
}
