//! Pods that leave through NAT gateways of their own, behaviour by behaviour, named after the scenario where one asks for it.

use clb_difftracker::{
    Action, AddressesUpdate, Change, Config, EgressName, EgressNameError, Explanation, FailureKind, Intent,
    IpFamily, NatGateway, Notice, PodRequest, Registration, RegistrationUpdate, ResourceRequest, Source,
};

use crate::steps::{id, spec};
use crate::vocabulary::*;
use crate::world::{End, World};

fn write(pod: &str, request: PodRequest) -> Action {
    Action::Pod { pod: pod_ref(pod), request }
}

fn release(pod: &str) -> Action {
    write(pod, PodRequest::RemoveFinalizer)
}

fn addresses(updates: &[(&str, AddressesUpdate)]) -> Action {
    locations(updates)
}

fn gw(address: &str, egress: &str) -> AddressesUpdate {
    AddressesUpdate::Replace(named(&[(address, &[egress_id(egress)])]))
}

/// A world at rest in which one pod leaves through `gw`.
fn leaving() -> World {
    settled([node("n1", "192.168.0.1"), leaves("a", "gw", &[("10.0.0.1", "n1")])])
}

#[test]
fn eg_01_a_nat_gateway_is_made_in_order_and_addresses_come_last() {
    let mut world = world();
    let made = world.response([node("n1", "192.168.0.1"), leaves("a", "GW", &[("10.0.0.1", "n1")])]);
    let expected = [
        outbound("gw", ResourceRequest::PutPublicIp(IpFamily::V4)),
        outbound("gw", ResourceRequest::PutNatGateway { ipv6: false }),
        outbound_service("gw", RegistrationUpdate::RegisterOutbound),
        addresses(&[("192.168.0.1", gw("10.0.0.1", "gw"))]),
    ];
    assert_eq!(made, expected);
    assert_eq!(world.writes(0), [write("a", PodRequest::AddFinalizer)]);
}

#[test]
fn eg_10_the_last_pod_takes_the_nat_gateway_with_it_and_is_released_when_its_address_is_out() {
    let mut world = leaving();
    let from = world.taken.len();
    world.response([pod("a", "gw", false, &[("10.0.0.1", "n1")])]);
    // nw_11: the reference to the NAT gateway first, then the one to the ServiceGateway; nd_13: there is no IPv6 to remove.
    let expected = [
        addresses(&[("192.168.0.1", AddressesUpdate::Remove)]),
        // It does not wait for the NAT gateway.
        release("a"),
        outbound_service("gw", RegistrationUpdate::ClearNatGateway),
        outbound("gw", ResourceRequest::DetachNatGateway),
        outbound_service("gw", RegistrationUpdate::Unregister),
        outbound("gw", ResourceRequest::DeleteNatGateway),
        outbound("gw", ResourceRequest::DeletePublicIp),
    ];
    assert_eq!(world.all_actions(from), expected);
}

#[test]
fn eg_12_one_of_several_pods_is_released_when_all_its_addresses_are_out_and_the_nat_gateway_stays() {
    let mut world = settled([
        node("n1", "192.168.0.1"),
        leaves("a", "gw", &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]),
        leaves("b", "gw", &[("10.0.0.3", "n1")]),
    ]);
    let from = world.taken.len();
    world.change(pod("a", "gw", false, &[]));
    assert_eq!(world.writes(from), []);
    assert_eq!(
        world.tracker.explain_pod(&pod_ref("a")),
        [Explanation::Lingering { addresses: vec![ip("10.0.0.1"), ip("10.0.0.2")] }]
    );
    // Nobody knows: its addresses may be there still.
    world.complete(0, End::UnknownApplied(FailureKind::Transient));
    assert_eq!(world.writes(from), []);
    world.settle();
    assert_eq!(world.writes(from), [release("a")]);
    assert_eq!(world.azure.nat_gateways.len(), 1);
}

#[test]
fn eg_09_a_pod_that_joins_a_nat_gateway_goes_in_at_once() {
    let mut world = leaving();
    let joined = AddressesUpdate::Merge(named(&[("10.0.0.2", &[egress_id("gw")])]));
    let response = world.response([leaves("b", "gw", &[("10.0.0.2", "n1")])]);
    assert_eq!(response, [addresses(&[("192.168.0.1", joined)])]);
}

#[test]
fn eg_20_a_pod_that_came_and_went_before_anything_was_done_leaves_no_trace() {
    let mut world = world();
    world.tell(node("n1", "192.168.0.1"));
    world.tell(leaves("a", "gw", &[("10.0.0.1", "n1")]));
    assert_eq!(world.response([Change::PodGone(pod_ref("a"))]), []);
    assert_eq!(world.writes(0), []);
}

#[test]
fn eg_23_of_the_pods_that_wait_for_a_nat_gateway_one_leaves_and_the_others_go_in() {
    for steps in 0..3 {
        let mut world = world();
        world.change(node("n1", "192.168.0.1"));
        world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
        world.change(leaves("b", "gw", &[("10.0.0.2", "n1")]));
        (0..steps).for_each(|_| world.complete(0, End::Succeeds));
        world.change(pod("a", "gw", false, &[]));
        // Nothing of it is in NRP: it need not wait.
        assert_eq!(world.writes(0).last(), Some(&release("a")));
        world.settle();
        assert_eq!(world.actions(0).last(), Some(&addresses(&[("192.168.0.1", gw("10.0.0.2", "gw"))])));
    }
}

#[test]
fn eg_24_a_pod_that_goes_twice_goes_once() {
    let mut world = settled([
        node("n1", "192.168.0.1"),
        leaves("a", "gw", &[("10.0.0.1", "n1")]),
        leaves("b", "gw", &[("10.0.0.2", "n1")]),
    ]);
    let from = world.taken.len();
    let gone = pod("a", "gw", false, &[("10.0.0.1", "n1")]);
    let withdrawn = addresses(&[("192.168.0.1", AddressesUpdate::Merge(named(&[("10.0.0.1", &[])])))]);
    assert_eq!(world.response([gone.clone(), gone.clone()]), [withdrawn]);
    // eg_32: told once more when it has none.
    assert_eq!(world.response([gone, pod("a", "gw", false, &[]), Change::PodGone(pod_ref("a"))]), []);
    assert_eq!(world.writes(from), [release("a")]);
    assert!(world.azure.names(&egress_id("gw")));
}

#[test]
fn eg_07_both_addresses_of_a_pod_are_under_locations_of_their_families_and_leave_together() {
    let Change::NodeApplied(mut dual) = node("n1", "192.168.0.1") else { unreachable!() };
    dual.ipv6 = Some("fd01::1".parse().unwrap());
    let both = &[("10.0.0.1", "n1"), ("fd00::1", "n1")];
    let mut world = settled([Change::NodeApplied(dual), leaves("a", "gw", both)]);
    let arrived = [("192.168.0.1", gw("10.0.0.1", "gw")), ("fd01::1", gw("fd00::1", "gw"))];
    assert_eq!(world.actions(0).last(), Some(&addresses(&arrived)));
    let left = [("192.168.0.1", AddressesUpdate::Remove), ("fd01::1", AddressesUpdate::Remove)];
    assert_eq!(world.response([pod("a", "gw", false, both)]).first(), Some(&addresses(&left)));
}

#[test]
fn nd_12_the_nat_gateway_of_a_dual_stack_cluster_has_both_families_whatever_its_pods_have() {
    let Change::NodeApplied(mut dual) = node("n1", "192.168.0.1") else { unreachable!() };
    dual.ipv6 = Some("fd01::1".parse().unwrap());
    let mut world = settled([Change::NodeApplied(dual), leaves("a", "gw", &[("10.0.0.1", "n1")])]);
    let both = NatGateway::Attached { ipv6: true };
    assert_eq!(world.azure.nat_gateways[&egress_id("gw")], both);
    // rs_28: so it is found by another process; rs_23: which has nothing to do.
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    world.settle();
    assert_eq!(world.actions(from), []);
    // eg_53: and so it is when it is made again.
    world.change(pod("a", "gw", false, &[]));
    (0..3).for_each(|_| world.complete(0, End::Succeeds));
    world.response([leaves("b", "gw", &[("10.0.0.2", "n1")])]);
    assert_eq!(world.azure.nat_gateways[&egress_id("gw")], both);
    world.response([pod("b", "gw", false, &[])]);
    assert_eq!(world.azure, crate::azure::Azure::default());
}

#[test]
fn eg_08_pods_that_come_while_the_nat_gateway_is_made_go_in_together() {
    let mut world = world();
    world.change(node("n1", "192.168.0.1"));
    world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
    world.change(leaves("b", "gw", &[("10.0.0.2", "n1")]));
    world.complete(0, End::Succeeds);
    let made = world.response([leaves("c", "gw", &[("10.0.0.3", "n1")])]);
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| (ip, vec![egress_id("gw")]));
    let all: Vec<_> = all.iter().map(|(ip, services)| (*ip, services.as_slice())).collect();
    let expected = addresses(&[("192.168.0.1", AddressesUpdate::Replace(named(&all)))]);
    assert_eq!(made.last(), Some(&expected));
}

#[test]
fn eg_14_the_only_pod_changes_its_address_and_the_nat_gateway_stays() {
    let mut world = leaving();
    let from = world.taken.len();
    let moved = AddressesUpdate::Merge(named(&[("10.0.0.1", &[]), ("10.0.0.2", &[egress_id("gw")])]));
    let response = world.response([leaves("a", "gw", &[("10.0.0.2", "n1")])]);
    assert_eq!(response, [addresses(&[("192.168.0.1", moved)])]);
    assert_eq!(world.writes(from), []);
}

#[test]
fn eg_17_a_pod_that_comes_back_before_the_teardown_keeps_the_nat_gateway() {
    let mut world = leaving();
    world.change(pod("a", "gw", false, &[("10.0.0.1", "n1")]));
    let from = world.taken.len();
    world.change(leaves("b", "gw", &[("10.0.0.2", "n1")]));
    world.settle();
    assert_eq!(world.actions(from), [addresses(&[("192.168.0.1", gw("10.0.0.2", "gw"))])]);
    assert_eq!(world.writes(from), [write("b", PodRequest::AddFinalizer), release("a")]);
}

#[test]
fn eg_19_a_pod_that_comes_during_the_teardown_gets_a_new_nat_gateway() {
    let mut world = leaving();
    world.change(pod("a", "gw", false, &[("10.0.0.1", "n1")]));
    for _ in 0..4 {
        world.complete(0, End::Succeeds);
    }
    assert_eq!(world.flying(), [outbound("gw", ResourceRequest::DeleteNatGateway)]);
    world.change(leaves("b", "gw", &[("10.0.0.2", "n1")]));
    world.settle();
    let expected = [
        outbound("gw", ResourceRequest::PutNatGateway { ipv6: false }),
        outbound_service("gw", RegistrationUpdate::RegisterOutbound),
        addresses(&[("192.168.0.1", gw("10.0.0.2", "gw"))]),
    ];
    assert!(world.actions(0).ends_with(&expected), "{:#?}", world.actions(0));
}

#[test]
fn eg_22_a_pod_that_leaves_while_the_nat_gateway_is_made_leaves_nothing() {
    for end in [End::Succeeds, End::Fails(FailureKind::Quota), End::UnknownApplied(FailureKind::Transient)] {
        for steps in 0..3 {
            let mut world = world();
            world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
            for _ in 0..steps {
                world.complete(0, End::Succeeds);
            }
            world.change(pod("a", "gw", false, &[("10.0.0.1", "n1")]));
            world.complete(0, end);
            world.settle();
            assert_eq!(world.azure, crate::azure::Azure::default(), "{end:?} after {steps} steps");
            assert!(world.writes(0).ends_with(&[release("a")]));
        }
    }
}

#[test]
fn eg_35_a_label_that_changes_moves_all_addresses_and_the_finalizer_stays() {
    let mut world = leaving();
    let from = world.taken.len();
    world.change(leaves("a", "other", &[("10.0.0.1", "n1")]));
    world.settle();
    let location = &world.azure.locations[&ip("192.168.0.1")];
    assert_eq!(location[&ip("10.0.0.1")], [egress_id("other")].into());
    assert_eq!(world.azure.nat_gateways.keys().collect::<Vec<_>>(), [&egress_id("other")]);
    assert_eq!(world.writes(from), []);
}

#[test]
fn eg_34_a_label_that_is_taken_off_a_living_pod_drains_it_and_releases_it() {
    let mut world = leaving();
    let from = world.taken.len();
    // eg_33: a label without a value is none. Seen through a selector, the pod is gone; in the cluster it lives on.
    world.tracker.handle_change(Change::PodGone(pod_ref("a")), world.now);
    world.cluster.apply(pod("a", "", true, &[("10.0.0.1", "n1")]));
    world.drain();
    world.settle();
    assert_eq!(world.writes(from), [release("a")]);
    assert!(world.azure.nat_gateways.is_empty());
}

#[test]
fn eg_37_a_pod_in_both_roles_keeps_the_one_when_the_other_goes() {
    let both = || {
        settled([
            wanted(A, &[80]),
            node("n1", "192.168.0.1"),
            slice("s", A, &[("10.0.0.1", "n1")]),
            leaves("a", "gw", &[("10.0.0.1", "n1")]),
        ])
    };
    let names = |world: &World| world.azure.locations[&ip("192.168.0.1")][&ip("10.0.0.1")].clone();
    let mut world = both();
    assert_eq!(names(&world), [id(A), egress_id("gw")].into());
    world.response([slice("s", A, &[])]);
    assert_eq!(names(&world), [egress_id("gw")].into());

    let mut world = both();
    let from = world.taken.len();
    world.response([pod("a", "", true, &[("10.0.0.1", "n1")])]);
    assert_eq!(names(&world), [id(A)].into());
    // The address is in use as long as the Service balances load to it.
    assert_eq!(world.writes(from), []);
    world.response([slice("s", A, &[])]);
    assert_eq!(world.writes(from), [release("a")]);
}

#[test]
fn eg_38_pods_on_the_hosts_network_share_its_address_and_do_not_wait_for_each_other() {
    let host = &[("192.168.0.1", "n1")];
    let mut world = settled([
        node("n1", "192.168.0.1"),
        leaves("a", "gw", host),
        leaves("b", "gw", host),
        leaves("c", "other", host),
    ]);
    let names = |world: &World| world.azure.locations[&ip("192.168.0.1")][&ip("192.168.0.1")].clone();
    assert_eq!(names(&world), [egress_id("gw"), egress_id("other")].into());
    let from = world.taken.len();
    assert_eq!(world.response([pod("a", "gw", false, host)]), []);
    assert_eq!(world.writes(from), [release("a")]);
    world.response([pod("b", "gw", false, host)]);
    assert_eq!(names(&world), [egress_id("other")].into());
    assert_eq!(world.writes(from), [release("a"), release("b")]);
}

#[test]
fn eg_42_a_pod_that_replaces_another_of_its_name_is_another_pod() {
    let mut world = leaving();
    let from = world.taken.len();
    let Change::PodApplied(mut successor) = leaves("a", "gw", &[("10.0.0.2", "n1")]) else { unreachable!() };
    successor.pod.uid = clb_difftracker::Uid::new("another");
    world.response([Change::PodApplied(successor.clone())]);
    let names = &world.azure.locations[&ip("192.168.0.1")];
    assert_eq!(names.keys().collect::<Vec<_>>(), [&ip("10.0.0.2")]);
    let expected = Action::Pod { pod: successor.pod, request: PodRequest::AddFinalizer };
    assert_eq!(world.writes(from), [expected, release("a")]);
}

#[test]
fn eg_43_an_outbound_service_named_like_a_services_uid_is_refused_in_any_order() {
    let uid = id(A);
    let service = wanted(A, &[80]);
    let pod = leaves("a", uid.as_str(), &[("10.0.0.1", "n1")]);
    for order in [[service.clone(), pod.clone()], [pod, service]] {
        let mut world = settled([node("n1", "192.168.0.1"), order[0].clone()]);
        world.response([order[1].clone()]);
        assert_eq!(world.azure.registrations.get(&uid), Some(&Registration::WithPool));
        assert_eq!((world.azure.nat_gateways.len(), world.azure.locations.len()), (0, 0));
        let refused =
            Notice::EgressRefused { egress: EgressName::new(uid.as_str()).unwrap(), service: Some(name(A)) };
        assert_eq!(world.notices.iter().filter(|notice| **notice == refused).count(), 1);
        let source = Source::Pod(pod_ref("a"));
        assert_eq!(world.tracker.explain_address(ip("10.0.0.1")), [Explanation::NoService { source }]);
        // When the Service goes, the name is free.
        world.response([Change::ServiceGone(uid.clone())]);
        assert_eq!(world.azure.registrations.get(&uid), Some(&Registration::WithNatGateway));
        assert_eq!(world.azure.locations.len(), 1);
    }
}

#[test]
fn eg_49_outbound_services_come_and_go_independently() {
    let mut world = settled([
        node("n1", "192.168.0.1"),
        leaves("a", "gw", &[("10.0.0.1", "n1")]),
        leaves("b", "other", &[("10.0.0.2", "n1")]),
    ]);
    world.response([pod("a", "gw", false, &[])]);
    assert_eq!(world.azure.nat_gateways.keys().collect::<Vec<_>>(), [&egress_id("other")]);
    world.response([leaves("c", "gw", &[("10.0.0.3", "n1")])]);
    assert_eq!(world.azure.nat_gateways.len(), 2);
}

#[test]
fn eg_50_a_dual_stack_cluster_has_a_second_public_ip_and_keeps_it() {
    let ipv6 = |ipv6: Option<&str>| {
        let Change::NodeApplied(mut node) = node("n1", "192.168.0.1") else { unreachable!() };
        node.ipv6 = ipv6.map(|ip| ip.parse().unwrap());
        Change::NodeApplied(node)
    };
    let pod = leaves("a", "gw", &[("10.0.0.1", "n1"), ("fd00::1", "n1")]);
    let mut world = settled([ipv6(None), pod]);
    assert!(world.azure.second_public_ips.is_empty());
    assert_eq!(world.azure.locations.len(), 1);
    let made = world.response([ipv6(Some("fd01::1"))]);
    let expected = [
        outbound("gw", ResourceRequest::PutSecondPublicIp),
        addresses(&[("fd01::1", AddressesUpdate::Replace(named(&[("fd00::1", &[egress_id("gw")])])))]),
        outbound("gw", ResourceRequest::PutNatGateway { ipv6: true }),
    ];
    assert_eq!(made.iter().filter(|action| expected.contains(action)).count(), 3, "{made:#?}");
    // What has served keeps serving when the last such node goes.
    world.response([ipv6(None)]);
    assert_eq!(world.azure.nat_gateways[&egress_id("gw")], NatGateway::Attached { ipv6: true });
    // And on the way out, both public IPs go.
    world.response([crate::vocabulary::pod("a", "gw", false, &[])]);
    assert_eq!(world.azure, crate::azure::Azure::default());
}

#[test]
fn eg_03_a_label_names_what_azure_can_name_or_is_refused() {
    let name = |label: &str| EgressName::new(label).map(|name| name.to_string());
    assert_eq!(name("Team-A.x_"), Ok("team-a.x_".to_string()));
    assert_eq!(name("a"), Ok("a".to_string()));
    assert_eq!(name(&"a".repeat(73)), Ok("a".repeat(73)));
    assert_eq!(name(&"a".repeat(74)), Err(EgressNameError::TooLong { length: 74 }));
    for malformed in ["", "-a", "a-", "a.", "_", "a/b", "ä"] {
        assert_eq!(name(malformed), Err(EgressNameError::Malformed), "{malformed:?}");
    }
    for reserved in ["default-natgw", "Default-NATGW"] {
        assert_eq!(name(reserved), Err(EgressNameError::Reserved), "{reserved}");
    }
}

#[test]
fn nd_15_a_node_that_changes_its_ip_moves_the_addresses_of_its_pods() {
    let mut world = leaving();
    let moved = [("192.168.0.1", AddressesUpdate::Remove), ("192.168.0.9", gw("10.0.0.1", "gw"))];
    assert_eq!(world.response([node("n1", "192.168.0.9")]), [addresses(&moved)]);
}

#[test]
fn an_inbound_service_that_becomes_a_rejected_one_gives_no_name_to_pods() {
    let mut world =
        settled([node("n1", "192.168.0.1"), service(A, Intent::LoadBalancer(spec(IpFamily::V4, &[80])))]);
    world.response([leaves("a", id(A).as_str(), &[("10.0.0.1", "n1")]), service(A, Intent::None)]);
    // The Service exists still, so the name is its own.
    assert_eq!(world.azure, crate::azure::Azure::default());
}
