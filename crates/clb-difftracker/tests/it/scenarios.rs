//! Lifecycles and endpoints, behaviour by behaviour, each named after the scenario that asks for it.

use clb_difftracker::{
    AddressesUpdate, Change, Endpoint, EndpointSlice, FailureKind, IdleTimeout, Intent, IpFamily,
    LoadBalancerSpec, Node, NodeName, ObjectKey, Phase, Protocol, RegistrationUpdate, ResourceRequest, Rule,
    Service, ServiceRef,
};

use crate::steps::{id, spec};
use crate::world::End;

use crate::vocabulary::*;

#[test]
fn sl_01_a_service_is_made_in_order_and_addresses_come_last() {
    let mut world = world();
    let actions = world.response([
        slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]),
        node("n1", "192.168.0.1"),
        wanted(A, &[80]),
        node("n2", "192.168.0.2"),
    ]);
    let expected = [
        put_ip(A),
        put_lb(A, &[80]),
        services(&[(A, RegistrationUpdate::RegisterInbound)]),
        locations(&[
            ("192.168.0.1", replace(&[("10.0.0.1", &[A])])),
            ("192.168.0.2", replace(&[("10.0.0.2", &[A])])),
        ]),
    ];
    // ep_01: what came before the Service is there with it; nw_07; nw_15: locations that NRP lacks are sent whole.
    assert_eq!(actions, expected);
    assert_eq!(world.phases(A), [Some(Phase::Pending), Some(Phase::Creating), Some(Phase::Ready)]);
    let status = world.tracker.status(&id(A)).unwrap();
    assert_eq!((status.phase, status.ingress, status.addresses), (Phase::Ready, Some(ip("20.0.0.1")), 2));
}

#[test]
fn nw_46_services_that_are_ready_share_one_registration_request() {
    let mut world = world();
    let actions = world.response([wanted(A, &[80]), wanted(B, &[80])]);
    let both =
        services(&[(A, RegistrationUpdate::RegisterInbound), (B, RegistrationUpdate::RegisterInbound)]);
    let mut expected = vec![put_ip(A), put_ip(B), put_lb(A, &[80]), put_lb(B, &[80])];
    // A is ready first and goes alone; what becomes ready while that call runs would go together.
    expected.extend([
        services(&[(A, RegistrationUpdate::RegisterInbound)]),
        services(&[(B, RegistrationUpdate::RegisterInbound)]),
    ]);
    assert_eq!(actions, expected);

    let mut world = world_with_a_call_in_flight();
    let from = world.taken.len();
    world.tell(wanted(A, &[80]));
    world.tell(wanted(B, &[80]));
    world.drain();
    while world.in_flight.len() > 1 {
        world.complete(1, End::Succeeds);
    }
    world.settle();
    assert_eq!(world.actions(from).last(), Some(&both));
}

#[test]
fn what_changes_while_a_call_runs_goes_into_the_next_batch_together() {
    let mut world = world_with_a_call_in_flight();
    let from = world.taken.len();
    world.change(slice("s9", 9, &[("10.0.9.1", "n9"), ("10.0.9.2", "n9")]));
    world.change(slice("s9", 9, &[("10.0.9.2", "n9"), ("10.0.9.3", "n9")]));
    world.change(slice("t9", 9, &[("10.0.9.4", "n9")]));
    assert_eq!(world.actions(from), []);
    world.settle();
    let all = merge(&[("10.0.9.1", &[]), ("10.0.9.2", &[9]), ("10.0.9.3", &[9]), ("10.0.9.4", &[9])]);
    assert_eq!(world.actions(from), [locations(&[("192.168.0.9", all)])]);
}

#[test]
fn sl_09_a_port_edit_writes_the_load_balancer_and_nothing_else() {
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    assert_eq!(world.response([wanted(A, &[80, 443])]), [put_lb(A, &[80, 443])]);
    assert_eq!(world.phases(A).last_chunk(), Some(&[Some(Phase::Updating), Some(Phase::Ready)]));
    // sl_14: an equal spec is no change, in whatever order its ports stand.
    assert_eq!(world.response([wanted(A, &[443, 80])]), []);
}

#[test]
fn sl_11_the_rules_follow_the_ports_step_by_step_and_the_address_stays() {
    // sl_10: each write carries all rules that are wanted, those that were there before included.
    let mut world = settled([wanted(A, &[80])]);
    let ingress = world.tracker.status(&id(A)).unwrap().ingress;
    for ports in [&[80, 443][..], &[443], &[443, 80, 8080], &[80]] {
        assert_eq!(world.response([wanted(A, ports)]), [put_lb(A, ports)]);
        assert_eq!(world.tracker.status(&id(A)).unwrap().ingress, ingress);
    }
}

#[test]
fn sl_15_another_protocol_on_the_same_port_is_another_rule_on_the_same_address() {
    let with = |protocol| {
        let [rule] = spec(IpFamily::V4, &[80]).rules().try_into().unwrap();
        LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), vec![Rule { protocol, ..rule }]).unwrap()
    };
    let udp = with(Protocol::Udp);
    let mut world = settled([wanted(A, &[80])]);
    let response = world.response([service(A, Intent::LoadBalancer(udp.clone()))]);
    assert_eq!(response, [resource(A, ResourceRequest::PutLoadBalancer(udp))]);
}

#[test]
fn sl_12_of_rapid_edits_the_last_one_is_applied_and_those_between_are_not() {
    let mut world = settled([wanted(A, &[80])]);
    let from = world.taken.len();
    for port in [81, 82, 83] {
        world.change(wanted(A, &[port]));
    }
    world.settle();
    assert_eq!(world.actions(from), [put_lb(A, &[81]), put_lb(A, &[83])]);
}

#[test]
fn sl_22_a_service_is_removed_in_order() {
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    let removal = [
        locations(&[("192.168.0.1", AddressesUpdate::Remove)]),
        services(&[(A, RegistrationUpdate::ClearPool)]),
        resource(A, ResourceRequest::DeleteLoadBalancer),
        services(&[(A, RegistrationUpdate::Unregister)]),
        resource(A, ResourceRequest::DeletePublicIp),
    ];
    assert_eq!(world.response([Change::ServiceGone(id(A))]), removal);
    assert_eq!(world.phases(A).last_chunk(), Some(&[Some(Phase::Draining), Some(Phase::Deleting), None]));
    assert_eq!(world.tracker.status(&id(A)), None);
    // sl_18: the addresses went first; nw_09: the pool next; nw_18: all of a location went as one.
    // sl_29: gone twice, or never known, is nothing.
    assert_eq!(world.response([Change::ServiceGone(id(A)), Change::ServiceGone(id(7))]), []);
}

#[test]
fn sl_19_a_service_that_no_address_names_is_removed_at_once() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(Change::ServiceGone(id(A)));
    assert_eq!(world.flying(), [services(&[(A, RegistrationUpdate::ClearPool)])]);
    world.settle();
}

#[test]
fn sl_30_a_service_told_again_is_what_it_was() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Transient));
    let (status, deadline) = (world.tracker.status(&id(A)), world.tracker.poll_timeout());
    let from = world.taken.len();
    world.change(wanted(A, &[81]));
    assert_eq!((world.tracker.status(&id(A)), world.tracker.poll_timeout()), (status, deadline));
    assert_eq!(world.actions(from), []);
    world.settle();
}

#[test]
fn sl_20_a_delete_during_create_leaves_nothing() {
    for steps in 0..4 {
        for end in [
            End::Succeeds,
            End::Fails(FailureKind::Conflict),
            End::UnknownApplied(FailureKind::Transient),
            End::UnknownNotApplied(FailureKind::Transient),
        ] {
            let mut world = world();
            world.change(node("n1", "192.168.0.1"));
            world.change(slice("s", A, &[("10.0.0.1", "n1")]));
            world.change(wanted(A, &[80]));
            (0..steps).for_each(|_| world.complete(0, End::Succeeds));
            world.change(Change::ServiceGone(id(A)));
            if !world.in_flight.is_empty() {
                world.complete(0, end);
            }
            world.settle();
            assert_eq!(world.azure, crate::azure::Azure::default(), "after {steps} steps, ending in {end:?}");
        }
    }
}

#[test]
fn sl_25_a_service_wanted_again_while_it_is_deleted_is_made_again() {
    let changes = [wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])];
    for steps in 0..6 {
        let mut world = settled(changes.clone());
        world.change(service(A, Intent::None));
        for _ in 0..steps {
            if !world.in_flight.is_empty() {
                world.complete(0, End::Succeeds);
            }
        }
        world.change(wanted(A, &[80]));
        world.settle();
        assert!(world.azure.names(&id(A)), "after {steps} steps");
    }
}

#[test]
fn sl_37_a_change_of_family_replaces_the_public_ip() {
    let v6 = |number| service(number, Intent::LoadBalancer(spec(IpFamily::V6, &[80])));
    let mut world = settled([wanted(A, &[80])]);
    let expected = [
        services(&[(A, RegistrationUpdate::ClearPool)]),
        resource(A, ResourceRequest::DeleteLoadBalancer),
        services(&[(A, RegistrationUpdate::Unregister)]),
        resource(A, ResourceRequest::DeletePublicIp),
        resource(A, ResourceRequest::PutPublicIp(IpFamily::V6)),
        resource(A, ResourceRequest::PutLoadBalancer(spec(IpFamily::V6, &[80]))),
        services(&[(A, RegistrationUpdate::RegisterInbound)]),
    ];
    assert_eq!(world.response([v6(A)]), expected);
}

#[test]
fn a_service_replaced_under_its_name_hands_over_its_slices() {
    let renamed = |number, intent| Change::ServiceApplied(Service::new(id(number), name(A), intent));
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    // The news of the old one's deletion never came.
    world.change(renamed(B, Intent::LoadBalancer(spec(IpFamily::V4, &[80]))));
    world.settle();
    assert!(!world.azure.public_ips.contains_key(&id(A)) && world.azure.names(&id(B)));
}

#[test]
fn ep_09_a_slice_that_names_its_service_by_uid_needs_its_namespace_too() {
    let by_uid = |namespace: &str| {
        Change::EndpointSliceApplied(EndpointSlice {
            key: ObjectKey::new(namespace, "s"),
            service: ServiceRef::Uid { namespace: namespace.to_string(), id: id(A) },
            endpoints: [Endpoint::ready(ip("10.0.0.1"), NodeName::new("n1"))].into_iter().collect(),
        })
    };
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1"), by_uid("elsewhere")]);
    assert!(!world.azure.names(&id(A)));
    world.response([by_uid("default")]);
    assert!(world.azure.names(&id(A)));
}

#[test]
fn ep_17_an_address_of_two_services_lists_both_and_keeps_one_when_the_other_goes() {
    let mut world = settled([wanted(A, &[80]), wanted(B, &[80]), node("n1", "192.168.0.1")]);
    let both = world.response([slice("a", A, &[("10.0.0.1", "n1")]), slice("b", B, &[("10.0.0.1", "n1")])]);
    assert_eq!(both, [locations(&[("192.168.0.1", replace(&[("10.0.0.1", &[A, B])]))])]);
    // nw_19: the whole list of services is sent.
    let first = world.response([Change::ServiceGone(id(A))]).into_iter().next();
    assert_eq!(first, Some(locations(&[("192.168.0.1", merge(&[("10.0.0.1", &[B])]))])));
}

#[test]
fn ep_23_an_address_stays_while_any_slice_lists_it() {
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    assert_eq!(world.response([slice("t", A, &[("10.0.0.1", "n1")])]), []);
    assert_eq!(world.response([slice("s", A, &[])]), []);
    assert_eq!(world.response([slice_gone("t")]), [locations(&[("192.168.0.1", AddressesUpdate::Remove)])]);
}

#[test]
fn ep_12_an_address_leaves_its_old_location_in_the_request_that_adds_it_to_the_new_one() {
    let start = [wanted(A, &[80]), node("n1", "192.168.0.1"), node("n2", "192.168.0.2")];
    let mut world = settled(start);
    world.response([slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.9", "n1")])]);
    let expected = locations(&[
        ("192.168.0.1", merge(&[("10.0.0.1", &[])])),
        ("192.168.0.2", replace(&[("10.0.0.1", &[A])])),
    ]);
    assert_eq!(world.response([slice("s", A, &[("10.0.0.1", "n2"), ("10.0.0.9", "n1")])]), [expected]);
}

#[test]
fn an_address_belongs_to_its_newest_claim_and_falls_back_when_that_goes() {
    let mut world = settled([
        wanted(A, &[80]),
        wanted(B, &[80]),
        node("n1", "192.168.0.1"),
        node("n2", "192.168.0.2"),
        slice("old", A, &[("10.0.0.1", "n1")]),
    ]);
    let moved = locations(&[
        ("192.168.0.1", AddressesUpdate::Remove),
        ("192.168.0.2", replace(&[("10.0.0.1", &[B])])),
    ]);
    assert_eq!(world.response([slice("new", B, &[("10.0.0.1", "n2")])]), [moved]);
    let back = locations(&[
        ("192.168.0.1", replace(&[("10.0.0.1", &[A])])),
        ("192.168.0.2", AddressesUpdate::Remove),
    ]);
    assert_eq!(world.response([slice_gone("new")]), [back]);
}

#[test]
fn ep_24_a_slice_that_drops_an_endpoint_after_its_node_went_leaves_nothing() {
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    let gone = world.response([Change::NodeGone(NodeName::new("n1"))]);
    assert_eq!(gone, [locations(&[("192.168.0.1", AddressesUpdate::Remove)])]);
    assert_eq!(world.tracker.waiting_endpoints(), 1);
    assert_eq!(world.response([slice("s", A, &[])]), []);
    assert_eq!(world.tracker.waiting_endpoints(), 0);
    assert_eq!(world.response([node("n1", "192.168.0.7")]), []);
}

#[test]
fn nd_01_a_node_that_changes_its_ip_moves_its_addresses() {
    let start = [
        wanted(A, &[80]),
        node("n1", "192.168.0.1"),
        slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]),
    ];
    let mut world = settled(start);
    let expected = locations(&[
        ("192.168.0.1", AddressesUpdate::Remove),
        ("192.168.0.2", replace(&[("10.0.0.1", &[A]), ("10.0.0.2", &[A])])),
    ]);
    assert_eq!(world.response([node("n1", "192.168.0.2")]), [expected]);
}

#[test]
fn nd_02_endpoints_wait_for_their_node() {
    let mut world = settled([wanted(A, &[80]), slice("s", A, &[("10.0.0.1", "n1")])]);
    assert_eq!(world.tracker.waiting_endpoints(), 1);
    let expected = locations(&[("192.168.0.1", replace(&[("10.0.0.1", &[A])]))]);
    assert_eq!(world.response([node("n1", "192.168.0.1")]), [expected]);
    assert_eq!(world.tracker.waiting_endpoints(), 0);
}

#[test]
fn nd_08_an_address_is_under_the_location_of_its_family_and_names_services_of_it() {
    let dual = Change::NodeApplied(Node {
        name: NodeName::new("n1"),
        ipv4: Some([192, 168, 0, 1].into()),
        ipv6: Some("fd01::1".parse().unwrap()),
    });
    let v6 = service(B, Intent::LoadBalancer(spec(IpFamily::V6, &[80])));
    let both: &[_] = &[("10.0.0.1", "n1"), ("fd00::1", "n1")];
    let mut world = settled([wanted(A, &[80]), v6, dual]);
    let expected = locations(&[
        ("192.168.0.1", replace(&[("10.0.0.1", &[A])])),
        ("fd01::1", replace(&[("fd00::1", &[B])])),
    ]);
    assert_eq!(world.response([slice("a", A, both), slice("b", B, both)]), [expected]);
}
