//! What Azure holds, read at the start or later: everything that is not as it should be is a difference like any other.

use std::collections::BTreeSet;

use clb_difftracker::{
    Action, AddressUpdate, AddressesUpdate, Change, Config, Explanation, Failure, FailureKind,
    GatewayRequest, Intent, IpFamily, Kind, NatGateway, Notice, Observation, ObservedLocation,
    ObservedService, Outcome, PodRequest, Registration, RegistrationUpdate, ResourceRequest, ServiceId,
    ServiceRequest, Success,
};

use crate::azure::{Part, ingress};
use crate::steps::{id, rejected, spec};
use crate::vocabulary::*;
use crate::world::{End, World};

fn natgw() -> ServiceId {
    ServiceId::new("default-natgw").unwrap()
}

/// Two Services and a NAT gateway over three pods.
fn busy() -> World {
    settled([
        node("n1", "192.168.0.1"),
        wanted(A, &[80]),
        wanted(B, &[80]),
        slice("a", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]),
        slice("b", B, &[("10.0.0.2", "n1")]),
        leaves("p", "gw", &[("10.0.0.3", "n1")]),
    ])
}

/// What another process does that takes over.
fn restarted(world: &mut World) -> Vec<Action> {
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    world.settle();
    world.actions(from)
}

fn put_whole_inbound(world: &mut World, id: &ServiceId) {
    world.azure.public_ips.insert(id.clone(), IpFamily::V4);
    world.azure.load_balancers.insert(id.clone(), spec(IpFamily::V4, &[80]));
    world.azure.registrations.insert(id.clone(), Registration::WithPool);
}

#[test]
fn rs_31_a_restart_over_an_azure_that_is_right_writes_nothing() {
    let mut world = busy();
    assert_eq!(restarted(&mut world), []);
}

#[test]
fn rs_04_what_changed_while_nobody_watched_is_made_up_for() {
    let mut world = busy();
    // rs_01, rs_02, rs_03: Services and pods come and go, and are edited.
    world.cluster.apply(wanted(9, &[80]));
    world.cluster.apply(slice("c", 9, &[("10.0.0.2", "n1"), ("10.0.0.4", "n1")]));
    world.cluster.apply(service(A, Intent::None));
    world.cluster.apply(wanted(B, &[8080]));
    world.cluster.apply(pod("p", "gw", false, &[]));
    world.cluster.apply(leaves("q", "other", &[("10.0.0.5", "n1")]));
    world.cluster.apply(node("n1", "192.168.0.7"));
    let actions = restarted(&mut world);
    let unique: BTreeSet<_> = actions.iter().map(|action| format!("{action:?}")).collect();
    assert_eq!(unique.len(), actions.len(), "nothing is done twice: {actions:#?}");
    assert!(actions.contains(&put_lb(B, &[8080])));
    assert_eq!(world.azure.load_balancers.keys().collect::<Vec<_>>(), [&id(B), &id(9)]);
    assert_eq!(world.azure.nat_gateways.keys().collect::<Vec<_>>(), [&egress_id("other")]);
}

#[test]
fn rs_08_a_status_that_is_missing_is_written_and_nothing_else_is() {
    let mut world = busy();
    world.cluster.services.get_mut(&id(A)).unwrap().ingress.clear();
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    world.settle();
    let request = ServiceRequest::SetIngress(ingress(IpFamily::V4));
    assert_eq!(world.all_actions(from), [Action::Service { service: id(A), key: name(A), request }]);
}

#[test]
fn rs_21_a_service_that_is_rejected_now_goes_on_serving_after_a_restart() {
    // rs_15: it is nobody's orphan.
    let mut world = busy();
    world.response([service(A, rejected())]);
    assert_eq!(restarted(&mut world), []);
    assert!(world.azure.names(&id(A)));
    let removed = world.response([service(A, Intent::None)]);
    assert_eq!(removed.last(), Some(&resource(A, ResourceRequest::DeletePublicIp)));
}

#[test]
fn rs_25_of_two_pods_found_at_the_start_the_first_to_go_is_not_the_last() {
    let mut world = busy();
    world.response([leaves("q", "gw", &[("10.0.0.4", "n1")])]);
    restarted(&mut world);
    world.response([pod("p", "gw", false, &[])]);
    assert!(world.azure.names(&egress_id("gw")));
    world.response([pod("q", "gw", false, &[])]);
    assert_eq!(world.azure.nat_gateways.len(), 0);
}

#[test]
fn sl_31_a_load_balancer_found_with_other_rules_is_written_and_not_made_again() {
    let mut world = busy();
    world.azure.load_balancers.insert(id(A), spec(IpFamily::V4, &[1, 2, 3]));
    assert_eq!(restarted(&mut world), [put_lb(A, &[80])]);
}

#[test]
fn rs_05_a_restart_at_every_step_of_a_create_finishes_it() {
    for steps in 0..7 {
        for applied in [0, 0xff] {
            let mut world = world();
            world.tell(node("n1", "192.168.0.1"));
            world.tell(wanted(A, &[80]));
            world.change(slice("s", A, &[("10.0.0.1", "n1")]));
            for _ in 0..steps {
                if !world.in_flight.is_empty() {
                    world.complete(0, End::Succeeds);
                }
            }
            world.restart(Config::default(), applied);
            world.settle();
        }
    }
}

#[test]
fn rs_06_a_restart_at_every_step_of_a_delete_finishes_it() {
    for steps in 0..14 {
        for applied in [0, 0xff] {
            let mut world = busy();
            world.tell(service(A, Intent::None));
            world.change(pod("p", "gw", false, &[]));
            for _ in 0..steps {
                if !world.in_flight.is_empty() {
                    world.complete(0, End::Succeeds);
                }
            }
            world.restart(Config::default(), applied);
            world.settle();
        }
    }
}

#[test]
fn rs_13_what_the_cluster_does_not_know_is_removed() {
    let mut world = busy();
    let (orphan, outbound) = (id(7), egress_id("gone"));
    put_whole_inbound(&mut world, &orphan);
    world.azure.public_ips.insert(outbound.clone(), IpFamily::V4);
    world.azure.second_public_ips.insert(outbound.clone());
    world.azure.nat_gateways.insert(outbound.clone(), NatGateway::Attached { ipv6: true });
    world.azure.registrations.insert(outbound, Registration::WithNatGateway);
    let dead = world.azure.locations.entry(ip("192.168.0.99")).or_default();
    dead.insert(ip("10.0.0.99"), [orphan].into());
    // A public IP that nothing ever used.
    world.azure.public_ips.insert(id(8), IpFamily::V6);
    restarted(&mut world);
    assert_eq!(world.azure.public_ips.len(), 3);
}

#[test]
fn rs_16_the_clusters_own_gateway_and_whatever_is_foreign_stay_with_the_addresses_that_name_them() {
    let mut world = busy();
    world.azure.foreign.insert(natgw());
    let location = world.azure.locations.get_mut(&ip("192.168.0.1")).unwrap();
    location.get_mut(&ip("10.0.0.1")).unwrap().insert(natgw());
    location.insert(ip("10.0.0.77"), [natgw()].into());
    assert_eq!(restarted(&mut world), []);
    assert_eq!(world.tracker.foreign_services(), [natgw()]);
    assert_eq!(world.tracker.explain_service(&natgw()), [Explanation::Foreign]);
    // When we write such an address, its name stays.
    let merged = AddressesUpdate::Merge(named(&[("10.0.0.1", &[natgw()])]));
    assert_eq!(
        world.response([slice("a", A, &[("10.0.0.2", "n1")])]),
        [locations(&[("192.168.0.1", merged)])]
    );
}

#[test]
fn rs_35_of_what_is_not_tagged_only_what_the_gateway_has_registered_is_ours() {
    // Made by another controller, which knew no tags: registered, so it is ours, and gets the tag.
    let mut world = settled([wanted(A, &[80])]);
    world.azure.untagged.extend([(id(A), Part::PublicIp), (id(A), Part::LoadBalancer)]);
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    world.settle();
    let adopt = |request| Action::Resource { service: id(A), adopt: true, request };
    let expected = [
        adopt(ResourceRequest::PutPublicIp(IpFamily::V4)),
        adopt(ResourceRequest::PutLoadBalancer(spec(IpFamily::V4, &[80]))),
    ];
    assert_eq!(world.all_actions(from), expected);
    assert!(world.azure.untagged.is_empty());

    // Not registered: a name is not enough.
    let mut world = busy();
    world.azure.public_ips.insert(id(7), IpFamily::V4);
    world.azure.untagged.insert((id(7), Part::PublicIp));
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    assert_eq!((world.all_actions(from), world.tracker.poll_timeout()), (vec![], None));
    assert!(world.azure.public_ips.contains_key(&id(7)));
}

#[test]
fn an_untagged_public_ip_is_tagged_before_its_registration_goes() {
    let mut world = settled([wanted(A, &[80])]);
    world.azure.untagged.extend([(id(A), Part::PublicIp), (id(A), Part::LoadBalancer)]);
    world.cluster.apply(Change::ServiceGone(id(A)));
    let expected = [
        put_ip(A),
        services(&[(A, RegistrationUpdate::ClearPool)]),
        resource(A, ResourceRequest::DeleteLoadBalancer),
        services(&[(A, RegistrationUpdate::Unregister)]),
        resource(A, ResourceRequest::DeletePublicIp),
    ];
    assert_eq!(restarted(&mut world), expected);
}

#[test]
fn sl_41_what_somebody_took_away_is_put_back_when_azure_is_read() {
    let mut world = busy();
    world.azure.locations.get_mut(&ip("192.168.0.1")).unwrap().remove(&ip("10.0.0.1"));
    world.azure.load_balancers.insert(id(B), spec(IpFamily::V4, &[9]));
    world.azure.registrations.remove(&egress_id("gw"));
    world.azure.locations.get_mut(&ip("192.168.0.1")).unwrap().remove(&ip("10.0.0.3"));
    let from = world.taken.len();
    world.begin_reading();
    world.end_reading();
    world.settle();
    let expected = [
        put_lb(B, &[80]),
        outbound_service("gw", RegistrationUpdate::RegisterOutbound),
        locations(&[(
            "192.168.0.1",
            AddressesUpdate::Merge(named(&[("10.0.0.1", &[id(A)]), ("10.0.0.3", &[egress_id("gw")])])),
        )]),
    ];
    let actions = world.actions(from);
    assert!(expected.iter().take(2).all(|action| actions.contains(action)), "{actions:#?}");
}

#[test]
fn a_reading_that_began_before_a_call_ended_does_not_undo_it() {
    let mut world = busy();
    world.begin_reading();
    world.response([
        slice("a", A, &[("10.0.0.1", "n1")]),
        wanted(B, &[80, 443]),
        wanted(5, &[80]),
        pod("p", "gw", false, &[]),
    ]);
    let snapshot = world.tracker.snapshot();
    let from = world.taken.len();
    world.end_reading();
    world.settle();
    assert_eq!((world.all_actions(from), world.tracker.snapshot()), (vec![], snapshot));
}

#[test]
fn a_reading_does_not_speak_of_what_a_call_in_flight_touches() {
    let mut world = busy();
    world.change(slice("a", A, &[("10.0.0.1", "n1")]));
    assert_eq!(world.in_flight.len(), 1);
    world.begin_reading();
    world.end_reading();
    world.complete(0, End::Succeeds);
    world.settle();
}

#[test]
fn a_reading_settles_what_is_in_doubt() {
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    world.complete(0, End::UnknownApplied(FailureKind::Transient));
    let from = world.taken.len();
    world.begin_reading();
    world.end_reading();
    world.settle();
    assert_eq!(world.actions(from), []);
}

#[test]
fn nw_36_what_stands_for_nothing_in_a_reading_is_not_there() {
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    let from = world.taken.len();
    world.begin_reading();
    let empty = AddressUpdate { address: ip("10.0.0.1"), services: [].into() };
    let other_family = AddressUpdate { address: ip("fd00::1"), services: [id(A)].into() };
    let location = ObservedLocation { location: ip("192.168.0.1"), addresses: vec![empty, other_family] };
    world.tracker.handle_observation(Observation::Location(location), world.now);
    world.end_reading();
    world.settle();
    assert_eq!(world.actions(from), []);
}

#[test]
fn a_service_is_foreign_if_it_is_the_default_or_reserved_or_registered_as_we_never_do() {
    let is_foreign = |name: &str, registration, is_default| {
        ObservedService { id: ServiceId::new(name).unwrap(), registration, is_default }.is_foreign()
    };
    let uid = "00000000-0000-0000-0000-000000000001";
    assert!(!is_foreign(uid, Some(Registration::WithPool), false));
    assert!(!is_foreign("gw", Some(Registration::WithNatGateway), false));
    assert!(is_foreign("gw", Some(Registration::WithPool), false));
    assert!(is_foreign("gw", Some(Registration::WithNatGateway), true));
    assert!(is_foreign("default-natgw", Some(Registration::WithNatGateway), false));
    assert!(is_foreign(uid, None, false));
}

#[test]
fn eg_31_a_pod_found_half_gone_without_addresses_waits_for_all_that_may_have_been_its() {
    let mut world = settled([
        node("n1", "192.168.0.1"),
        leaves("a", "gw", &[("10.0.0.1", "n1")]),
        leaves("b", "gw", &[("10.0.0.2", "n1")]),
    ]);
    // While no controller runs, the pod is deleted, and its addresses are forgotten.
    world.cluster.apply(pod("a", "gw", false, &[]));
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    assert_eq!(world.writes(from), []);
    world.settle();
    assert_eq!(world.writes(from).len(), 1);
}

#[test]
fn rs_11_pods_found_half_gone_are_released_when_nothing_holds_them() {
    let mut world = settled([node("n1", "192.168.0.1"), leaves("a", "gw", &[("10.0.0.1", "n1")])]);
    world.cluster.apply(pod("a", "", false, &[]));
    let from = world.taken.len();
    world.restart(Config::default(), 0);
    world.settle();
    assert_eq!(world.writes(from).len(), 1);
}

/// Twelve Services with an address each.
fn a_dozen() -> World {
    let mut world = world();
    world.tell(node("n1", "192.168.0.1"));
    for number in 10..22 {
        world.tell(wanted(number, &[80]));
        let address = format!("10.0.0.{number}");
        world.tell(slice(&format!("s{number}"), number, &[(&address, "n1")]));
    }
    world.drain();
    world.settle();
    world
}

fn held(world: &World) -> Vec<&Notice> {
    world.notices.iter().filter(|notice| matches!(notice, Notice::DeletionsHeld { .. })).collect()
}

/// A list that names none of what there is.
fn list_nothing(world: &mut World, kind: Kind) {
    world.tracker.handle_change(Change::ResyncBegin(kind), world.now);
    world.tracker.handle_change(Change::ResyncDone(kind), world.now);
    world.drain();
}

#[test]
fn a_list_that_would_delete_most_of_what_there_is_needs_a_second_one() {
    for kind in [Kind::Service, Kind::EndpointSlice] {
        let mut world = a_dozen();
        let from = world.taken.len();
        list_nothing(&mut world, kind);
        assert_eq!(held(&world), [&Notice::DeletionsHeld { kind, missing: 12, of: 12 }]);
        assert_eq!(world.all_actions(from), []);
        // The first was wrong.
        world.relist(kind);
        assert_eq!(world.all_actions(from), []);
        list_nothing(&mut world, kind);
        assert_eq!((held(&world).len(), world.all_actions(from)), (2, vec![]));
        // The second says the same, and is right.
        for number in 10..22 {
            world.cluster.apply(match kind {
                Kind::Service => Change::ServiceGone(id(number)),
                Kind::EndpointSlice | Kind::Pod | Kind::Node => slice_gone(&format!("s{number}")),
            });
        }
        list_nothing(&mut world, kind);
        assert_ne!(world.all_actions(from), []);
        assert_eq!(held(&world).len(), 2);
    }
}

#[test]
fn of_two_lists_that_delete_too_much_only_what_both_miss_is_deleted() {
    let mut world = a_dozen();
    list_nothing(&mut world, Kind::Service);
    world.tracker.handle_change(Change::ResyncBegin(Kind::Service), world.now);
    let one = Change::ServiceApplied(world.cluster.services[&id(10)].clone());
    world.tracker.handle_change(one, world.now);
    world.tracker.handle_change(Change::ResyncDone(Kind::Service), world.now);
    let wanted: Vec<_> = (10..22)
        .filter(|number| {
            let snapshot = world.tracker.snapshot();
            snapshot.services.iter().any(|service| service.id == id(*number) && service.intent.is_some())
        })
        .collect();
    assert_eq!(wanted, [10]);
}

#[test]
fn what_is_deleted_one_by_one_is_believed() {
    let mut world = a_dozen();
    (10..22).for_each(|number| world.tell(Change::ServiceGone(id(number))));
    world.drain();
    world.settle();
    assert_eq!((held(&world).len(), world.azure), (0, crate::azure::Azure::default()));
}

#[test]
fn a_reading_that_finds_more_than_the_cluster_knows_of_deletes_nothing_before_the_cluster_is_listed_again() {
    let mut world = a_dozen();
    let (azure, cluster) = (world.azure.clone(), world.cluster.clone());
    // The lists of the new process come from an API server that has forgotten.
    world.cluster = crate::cluster::Cluster::default();
    world.cluster.versions = Some(1_000);
    world.restart(Config::default(), 0);
    assert_eq!(held(&world), [&Notice::DeletionsHeld { kind: Kind::Service, missing: 12, of: 12 }]);
    assert_eq!((world.in_flight.len(), world.tracker.poll_timeout()), (0, None));
    assert_eq!(world.tracker.explain_service(&id(10)), [Explanation::Unconfirmed]);
    let mut right = world.clone();

    // It says the same again: then so it is.
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Pod, Kind::Node] {
        list_nothing(&mut world, kind);
    }
    world.settle();
    assert_eq!(world.azure, crate::azure::Azure::default());

    // It remembers: nothing was lost.
    right.cluster = cluster;
    let from = right.taken.len();
    for kind in [Kind::Node, Kind::EndpointSlice, Kind::Service, Kind::Pod] {
        right.relist(kind);
    }
    right.settle();
    assert_eq!((right.actions(from), right.azure), (vec![], azure));
}

#[test]
fn a_reading_without_a_beginning_or_given_up_does_nothing() {
    let mut world = busy();
    let snapshot = world.tracker.snapshot();
    world.tracker.handle_observation(Observation::Done, world.now);
    world.begin_reading();
    world.tracker.handle_observation(Observation::Begin, world.now);
    let foreign = ObservedService { id: natgw(), registration: None, is_default: true };
    world.tracker.handle_observation(Observation::Service(foreign), world.now);
    world.begin_reading();
    world.end_reading();
    assert_eq!(world.tracker.snapshot(), snapshot);
    assert_eq!(world.tracker.foreign_services(), []);
}

#[test]
fn a_foreign_service_that_nrp_knows_no_more_is_looked_up_and_dropped_from_addresses() {
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    world.azure.foreign.insert(natgw());
    world
        .azure
        .locations
        .get_mut(&ip("192.168.0.1"))
        .unwrap()
        .entry(ip("10.0.0.1"))
        .or_default()
        .insert(natgw());
    world.begin_reading();
    world.end_reading();
    // Its owner takes it away.
    world.azure.foreign.clear();
    world.azure.locations.get_mut(&ip("192.168.0.1")).unwrap().insert(ip("10.0.0.1"), [id(A)].into());
    world.change(slice("s", A, &[]));
    world.complete(0, End::Fails(FailureKind::NotFound));
    assert_eq!(world.flying(), [Action::Gateway(GatewayRequest::Read)]);
    world.settle();
    assert_eq!(world.azure.locations.len(), 0);
}

#[test]
fn no_pod_is_released_before_azure_has_been_read_for_the_first_time() {
    for addresses in [&[("10.0.0.1", "n1")][..], &[]] {
        let mut world = settled([node("n1", "192.168.0.1"), leaves("a", "gw", &[("10.0.0.1", "n1")])]);
        world.cluster.apply(pod("a", "gw", false, addresses));
        world.tracker = clb_difftracker::DiffTracker::new(Config::default());
        world.begin_reading();
        world.relist(Kind::Pod);
        world.relist(Kind::Node);
        let from = world.taken.len();
        assert_eq!((world.all_actions(from), world.tracker.is_synced()), (vec![], false));
        world.end_reading();
        assert_eq!(world.writes(from), []);
        world.settle();
        let released = Action::Pod { pod: pod_ref("a"), request: PodRequest::RemoveFinalizer };
        assert_eq!(world.writes(from), [released]);
    }
}

#[test]
fn what_is_read_of_an_address_in_flight_at_another_location_is_not_lost() {
    let failure = |kind| Failure { kind, message: "no".to_string() };
    for outcome in [
        Outcome::Succeeded(Success::Done),
        Outcome::Failed(failure(FailureKind::Conflict)),
        Outcome::Unknown(failure(FailureKind::Transient)),
    ] {
        let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
        world.change(slice("s", A, &[("10.0.0.1", "n1")]));
        // Somebody put it at a location of their own.
        let (elsewhere, address) = (ip("192.168.0.9"), ip("10.0.0.1"));
        world.azure.locations.entry(elsewhere).or_default().insert(address, [id(A)].into());
        world.begin_reading();
        world.end_reading();
        world.tracker.handle_outcome(world.in_flight[0].id, outcome, world.now);
        let holdings = world.tracker.snapshot().addresses[0].holdings.clone();
        assert!(holdings.contains(&(elsewhere, vec![id(A)], true)), "{holdings:?}");
    }
}
