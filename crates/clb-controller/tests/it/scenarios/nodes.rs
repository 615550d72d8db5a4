//! Nodes: where pods are.

use serde_json::json;

use super::{NONE, seconds};
use crate::world::{Held, Replica, World};

/// A world at rest, in which a Service has an endpoint on each node and a pod leaves from each.
async fn served() -> (World, Replica, String) {
    let (world, replica) = World::running();
    let uid = world.service("web", json!({}));
    world.slice("s", "web", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]);
    world.egress_pod("a", "gw", "n1", &["10.0.0.3"]);
    world.egress_pod("b", "gw", "n2", &["10.0.0.4"]);
    world.settle(&replica).await;
    let _ = world.calls();
    (world, replica, uid)
}

/// What Azure holds then, with the first node at this location, or at none.
fn at(uid: &str, n1: Option<&str>) -> Held {
    let mut inbound = vec![("10.0.0.2", "192.168.0.2")];
    let mut outbound = vec![("10.0.0.4", "192.168.0.2")];
    if let Some(n1) = n1 {
        inbound.push(("10.0.0.1", n1));
        outbound.push(("10.0.0.3", n1));
    }
    Held::inbound(&[(uid, &inbound)]).and_outbound(&[("gw", &outbound)])
}

#[tokio::test(start_paused = true)]
async fn nd_01_and_nd_15_a_node_that_changes_its_ip_moves_the_addresses_of_both_kinds() {
    let (world, replica, uid) = served().await;
    assert_eq!(world.held().await, at(&uid, Some("192.168.0.1")));
    world.node_addresses("n1", &["192.168.0.9"]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, at(&uid, Some("192.168.0.9")));
    let calls = world.calls();
    assert!(calls.iter().all(|call| call == "updateAddressLocations") && calls.len() <= 2, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn nd_02_and_nd_03_addresses_leave_with_their_node_within_seconds_and_come_with_it() {
    let (world, replica, uid) = served().await;
    world.delete("/api/v1/nodes/n1");
    seconds(5).await;
    assert_eq!(world.held().await, at(&uid, None));
    // Its pod is there still, and so is what it leaves through.
    assert_eq!(world.pod_finalizers("a"), super::ours());
    world.node("n1", "192.168.0.1");
    world.settle(&replica).await;
    assert_eq!(world.held().await, at(&uid, Some("192.168.0.1")));
    let calls = world.calls();
    assert!(calls.iter().all(|call| call == "updateAddressLocations"), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn nd_05_nd_07_and_nd_10_a_node_is_at_its_first_internal_address_of_each_family() {
    let (world, replica, uid) = served().await;
    let address = |kind: &str, ip: &str| json!({"type": kind, "address": ip});
    let addresses = |list: serde_json::Value| {
        let status = json!({"status": {"addresses": list}});
        world.ask("PATCH", "/api/v1/nodes/n1/status", status).unwrap();
    };
    for list in [
        json!([
            address("ExternalIP", "20.0.0.1"),
            address("Hostname", "n1"),
            address("InternalIP", "192.168.0.1"),
            address("InternalIP", "192.168.0.8"),
        ]),
        json!([
            address("InternalIP", "nonsense"),
            address("InternalIP", "192.168.0.1"),
            address("ExternalIP", "20.0.0.1"),
        ]),
    ] {
        addresses(list);
        world.settle(&replica).await;
        assert_eq!((world.held().await, world.calls()), (at(&uid, Some("192.168.0.1")), vec![]));
    }
    // Another family, whichever comes first: the cluster has two from now on, and its NAT gateway too.
    addresses(json!([address("InternalIP", "fd00::1"), address("InternalIP", "192.168.0.1")]));
    world.slice("s6", "web", &[("fd00:1::1", "n1")]);
    world.settle(&replica).await;
    let mut expected = at(&uid, Some("192.168.0.1"));
    expected.public_ips.insert("gw-pip-v6".to_owned());
    assert_eq!(world.held().await, expected);
}

#[tokio::test(start_paused = true)]
async fn nd_11_and_nd_13_a_cluster_of_ipv4_alone_makes_and_deletes_nothing_of_ipv6() {
    let (world, replica) = World::running();
    // An IPv4 address in the clothes of the other family is none of it.
    world.node_addresses("n2", &["::ffff:192.168.0.2"]);
    world.egress_pod("a", "gw", "n2", &["10.0.0.1"]);
    world.settle(&replica).await;
    let expected = Held::default().and_outbound(&[("gw", &[("10.0.0.1", "192.168.0.2")])]);
    assert_eq!(world.held().await, expected);
    world.delete_pod("a");
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::default());
    let records = world.azure.take_records();
    let v6: Vec<_> = records.iter().filter(|record| record.path.ends_with("-pip-v6")).collect();
    let writes = v6.iter().filter(|record| record.method != clb_sim::azure::Method::Get);
    assert_eq!(writes.map(|record| record.path.as_str()).collect::<Vec<_>>(), NONE);
}
