//! What endpoints do over time, and what is sent for it: behaviour by behaviour, each named after the scenario that asks for it.

use clb_difftracker::{AddressesUpdate, Change, Config, Kind, Node, NodeName, RegistrationUpdate};

use crate::azure::Azure;
use crate::steps::id;
use crate::vocabulary::*;
use crate::world::{End, World};

/// A world at rest in which one Service has these endpoints on one node.
fn serving(endpoints: &[&str]) -> World {
    settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice_on_n1(endpoints)])
}

fn slice_on_n1(endpoints: &[&str]) -> Change {
    let endpoints: Vec<_> = endpoints.iter().map(|&address| (address, "n1")).collect();
    slice("s", A, &endpoints)
}

#[test]
fn ep_03_an_endpoint_that_comes_and_goes_while_its_service_is_made_is_never_sent() {
    let mut world = world();
    world.change(node("n1", "192.168.0.1"));
    world.change(wanted(A, &[80]));
    world.change(slice_on_n1(&["10.0.0.1"]));
    world.complete(0, End::Succeeds);
    world.change(slice_on_n1(&[]));
    world.settle();
    let expected = [put_ip(A), put_lb(A, &[80]), services(&[(A, RegistrationUpdate::RegisterInbound)])];
    assert_eq!(world.actions(0), expected);
}

#[test]
fn ep_05_what_is_added_to_a_service_that_is_deleted_is_not_sent() {
    // ep_06: nor is it later on the way.
    for steps in 0..5 {
        let mut world = serving(&["10.0.0.1", "10.0.0.2"]);
        world.change(Change::ServiceGone(id(A)));
        (0..steps).for_each(|_| world.complete(0, End::Succeeds));
        let from = world.taken.len();
        world.change(slice_on_n1(&["10.0.0.2", "10.0.0.3"]));
        world.settle();
        assert!(!format!("{:?}", world.actions(from)).contains("10.0.0.3"), "after {steps} steps");
        assert_eq!(world.azure, Azure::default(), "after {steps} steps");
    }
}

#[test]
fn ep_08_after_a_restart_endpoints_go_straight_to_a_service_that_is_there() {
    let mut world = serving(&["10.0.0.1"]);
    world.restart(Config::default(), 0);
    let expected = locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]);
    assert_eq!(world.response([slice_on_n1(&["10.0.0.1", "10.0.0.2"])]), [expected]);
}

#[test]
fn ep_10_an_endpoint_that_is_ready_off_and_on_comes_and_goes_each_time() {
    let mut world = serving(&["10.0.0.1", "10.0.0.2"]);
    for _ in 0..3 {
        let gone = world.response([slice_on_n1(&["10.0.0.2"])]);
        assert_eq!(gone, [locations(&[("192.168.0.1", merge(&[("10.0.0.1", &[])]))])]);
        let back = world.response([slice_on_n1(&["10.0.0.1", "10.0.0.2"])]);
        assert_eq!(back, [locations(&[("192.168.0.1", merge(&[("10.0.0.1", &[A])]))])]);
    }
}

#[test]
fn ep_18_a_service_without_endpoints_keeps_what_clients_know() {
    let mut world = serving(&["10.0.0.1"]);
    let ingress = world.tracker.status(&id(A)).unwrap().ingress;
    let emptied = world.response([slice_on_n1(&[])]);
    assert_eq!(emptied, [locations(&[("192.168.0.1", AddressesUpdate::Remove)])]);
    let status = world.tracker.status(&id(A)).unwrap();
    assert_eq!((status.ingress, status.addresses), (ingress, 0));
    let filled = world.response([slice_on_n1(&["10.0.0.2"])]);
    assert_eq!(filled, [locations(&[("192.168.0.1", replace(&[("10.0.0.2", &[A])]))])]);
}

#[test]
fn ep_19_another_selector_is_other_endpoints_in_one_request() {
    let mut world = serving(&["10.0.0.1", "10.0.0.2"]);
    let switched = world.response([slice_on_n1(&["10.0.0.2", "10.0.0.3", "10.0.0.4"])]);
    // nw_16, nw_17: a location that NRP knows hears of what changed, and nothing else; what leaves names nothing.
    let update = merge(&[("10.0.0.1", &[]), ("10.0.0.3", &[A]), ("10.0.0.4", &[A])]);
    assert_eq!(switched, [locations(&[("192.168.0.1", update)])]);
}

#[test]
fn ep_20_a_storm_of_scaling_ends_with_what_was_wanted_last() {
    let slices = |pods: u8| {
        // As the EndpointSlice controller does: pods on many nodes, a slice for each fifty.
        (0..2).map(move |part: u8| {
            let addresses: Vec<_> = (part * 50..pods.min(part * 50 + 50))
                .map(|pod| (format!("10.0.0.{pod}"), format!("n{}", pod % 7)))
                .collect();
            let endpoints: Vec<_> = addresses.iter().map(|(ip, node)| (ip.as_str(), node.as_str())).collect();
            slice(&format!("s{part}"), A, &endpoints)
        })
    };
    let nodes = (0..7).map(|number| node(&format!("n{number}"), &format!("192.168.0.{number}")));
    let mut world = settled(nodes.chain([wanted(A, &[80])]));
    for pods in [10, 50, 100, 20, 80] {
        slices(pods).for_each(|change| world.change(change));
        world.complete(0, End::Succeeds);
    }
    world.settle();
    assert_eq!(world.tracker.status(&id(A)).unwrap().addresses, 80);
    assert_eq!(world.tracker.stats().addresses, 80);
}

#[test]
fn ep_21_a_port_edit_and_new_endpoints_do_not_wait_for_each_other() {
    let mut world = serving(&["10.0.0.1"]);
    let from = world.taken.len();
    world.tell(wanted(A, &[80, 443]));
    world.change(slice_on_n1(&["10.0.0.1", "10.0.0.2"]));
    // ep_04: at once, both in flight.
    let added = locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]);
    assert_eq!(world.flying(), [added, put_lb(A, &[80, 443])]);
    world.settle();
    assert_eq!(world.actions(from).len(), 2);
}

#[test]
fn ep_22_nothing_is_remembered_of_a_service_that_went_before_it_was_made() {
    let mut world = world();
    world.change(node("n1", "192.168.0.1"));
    world.change(slice_on_n1(&["10.0.0.1"]));
    world.change(wanted(A, &[80]));
    world.change(Change::ServiceGone(id(A)));
    world.settle();
    world.response([slice_gone("s"), Change::NodeGone(NodeName::new("n1"))]);
    let mut fresh = World::new(Config::default());
    fresh.tracker.handle_timeout(world.now);
    assert_eq!(world.tracker.snapshot(), fresh.tracker.snapshot());
}

#[test]
fn ep_30_the_same_objects_again_cause_nothing() {
    let mut world = serving(&["10.0.0.1", "10.0.0.2"]);
    // nw_14, nw_20: without a difference there is no call; ep_11: one that was lost would be a difference.
    assert_eq!(world.response([slice_on_n1(&["10.0.0.2", "10.0.0.1"])]), []);
    let from = world.taken.len();
    [Kind::Node, Kind::Service, Kind::EndpointSlice, Kind::Pod]
        .into_iter()
        .for_each(|kind| world.relist(kind));
    assert_eq!(world.all_actions(from), []);
}

#[test]
fn nw_21_an_address_names_only_what_is_registered() {
    let mut world = serving(&["10.0.0.1"]);
    let from = world.taken.len();
    world.change(wanted(B, &[80]));
    world.change(slice("b", B, &[("10.0.0.1", "n1"), ("10.0.0.9", "n1")]));
    world.change(slice_on_n1(&["10.0.0.1", "10.0.0.2"]));
    let without = locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]);
    assert_eq!(world.flying(), [put_ip(B), without.clone()]);
    world.settle();
    let with = locations(&[("192.168.0.1", merge(&[("10.0.0.1", &[A, B]), ("10.0.0.9", &[B])]))]);
    let expected =
        [put_ip(B), without, put_lb(B, &[80]), services(&[(B, RegistrationUpdate::RegisterInbound)]), with];
    assert_eq!(world.actions(from), expected);
}

#[test]
fn nd_10_an_endpoint_of_a_family_that_its_node_lacks_waits_and_the_others_do_not() {
    // eg_06: likewise for pods; nw_24: never under a location of the other family.
    let mut world = settled([
        wanted(A, &[80]),
        node("n1", "192.168.0.1"),
        slice_on_n1(&["10.0.0.1"]),
        leaves("p", "gw", &[("fd00::2", "n1"), ("10.0.0.2", "n1")]),
    ]);
    assert_eq!(world.tracker.waiting_endpoints(), 1);
    assert_eq!(world.azure.locations.keys().collect::<Vec<_>>(), [&ip("192.168.0.1")]);
    let ipv4 = Some("192.168.0.1".parse().unwrap());
    let dual = Node { name: NodeName::new("n1"), ipv4, ipv6: Some("fd01::1".parse().unwrap()) };
    world.response([Change::NodeApplied(dual)]);
    assert_eq!(world.tracker.waiting_endpoints(), 0);
    assert_eq!(world.azure.locations.keys().collect::<Vec<_>>(), [&ip("192.168.0.1"), &ip("fd01::1")]);
}
