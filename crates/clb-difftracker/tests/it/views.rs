//! What the tracker shows of itself, and endpoints that terminate.

use std::time::Duration;

use clb_difftracker::{
    Action, AddressDifference, Change, Condition, Config, Difference, Endpoint, EndpointSlice, Explanation,
    FailureKind, Intent, IpFamily, Kind, LATENCY_BUCKETS, Latency, NodeName, ObjectKey, ObjectName,
    Operation, Phase, Programmed, ResourceVersion, Resources, Service, ServiceDifference, ServiceRef, Source,
    Stats, Timestamp,
};

use crate::objects::slow_world;
use crate::steps::id;
use crate::vocabulary::*;
use crate::world::{End, World};

/// A slice of service A with endpoints in these conditions.
fn conditions(name_of_slice: &str, endpoints: &[(&str, Condition)]) -> Change {
    let endpoint = |&(address, condition): &(&str, Condition)| Endpoint {
        condition,
        ..Endpoint::ready(ip(address), NodeName::new("n1"))
    };
    Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", name_of_slice),
        service: ServiceRef::Name(name(A)),
        endpoints: endpoints.iter().map(endpoint).collect(),
    })
}

fn held(world: &World) -> Vec<String> {
    world.azure.locations.values().flat_map(|addresses| addresses.keys()).map(ToString::to_string).collect()
}

#[test]
fn endpoints_on_nodes_out_of_reach_count_while_their_service_has_none_that_is_ready() {
    use Condition::{Ready, Unreachable};
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    world.response([conditions("s", &[("10.0.0.1", Ready), ("10.0.0.2", Unreachable)])]);
    assert_eq!(held(&world), ["10.0.0.1"]);
    world.response([conditions("s", &[("10.0.0.1", Unreachable), ("10.0.0.2", Unreachable)])]);
    assert_eq!(held(&world), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn an_address_is_acknowledged_for_a_service_when_the_gateway_has_answered_and_not_before() {
    let mut world = slow_world();
    let programmed = |world: &World| world.tracker.programmed(ip("10.0.0.1"));
    assert_eq!(programmed(&world), Programmed::default());
    world.change(node("n1", "192.168.0.1"));
    world.change(slice("a", A, &[("10.0.0.1", "n1")]));
    // Nobody wants a load balancer yet.
    assert_eq!(programmed(&world), Programmed::default());
    world.change(wanted(A, &[80]));
    let awaited = |names: &[u8]| Programmed {
        acknowledged: Vec::new(),
        awaited: names.iter().map(|&name| id(name)).collect(),
    };
    // Its finalizers, public IP, load balancer, registration.
    for _ in 0..4 {
        assert_eq!(programmed(&world), awaited(&[A]));
        world.complete(0, End::Succeeds);
    }
    let batch = world.in_flight.iter().position(|it| matches!(it.action, Action::Gateway(_))).unwrap();
    assert_eq!(programmed(&world), awaited(&[A]));
    world.complete(batch, End::UnknownApplied(FailureKind::Transient));
    assert_eq!(programmed(&world), awaited(&[A]));
    world.settle();
    assert_eq!(programmed(&world), Programmed { acknowledged: vec![id(A)], awaited: vec![] });
    // It moves: what is acknowledged is elsewhere.
    world.change(node("n1", "192.168.0.2"));
    assert_eq!(programmed(&world), awaited(&[A]));
    world.settle();
    // Another Service comes to have it.
    world.change(slice("b", B, &[("10.0.0.1", "n1")]));
    world.change(wanted(B, &[80]));
    assert_eq!(programmed(&world), Programmed { acknowledged: vec![id(A)], awaited: vec![id(B)] });
    world.settle();
    assert_eq!(programmed(&world), Programmed { acknowledged: vec![id(A), id(B)], awaited: vec![] });
}

#[test]
fn an_object_that_cannot_be_read_is_still_there() {
    let mut world = settled([
        wanted(A, &[80]),
        node("n1", "192.168.0.1"),
        slice("s", A, &[("10.0.0.1", "n1")]),
        leaves("p", "gw", &[("10.0.0.9", "n1")]),
    ]);
    let names = [
        (Kind::Service, ObjectName::Service(id(A))),
        (Kind::EndpointSlice, ObjectName::EndpointSlice(ObjectKey::new("default", "s"))),
        (Kind::Pod, ObjectName::Pod(pod_ref("p"))),
        (Kind::Node, ObjectName::Node(NodeName::new("n1"))),
    ];
    let from = world.taken.len();
    for (kind, name) in names {
        world.tell(Change::ResyncBegin(kind));
        world.tell(Change::Unreadable(name));
        world.tell(Change::ResyncDone(kind));
    }
    world.settle();
    assert_eq!(world.all_actions(from), []);
    // Of what is not known, nothing is learned.
    let stats = world.tracker.stats();
    for name in [ObjectName::Service(id(9)), ObjectName::Node(NodeName::new("n9"))] {
        world.tell(Change::Unreadable(name));
    }
    assert_eq!(world.tracker.stats(), Stats { changes: stats.changes + 2, ..stats });
}

#[test]
fn what_others_changed_is_counted_and_what_was_in_doubt_is_not() {
    let mut world = settled([
        wanted(A, &[80]),
        node("n1", "192.168.0.1"),
        slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]),
    ]);
    let read = |world: &mut World| {
        let before = world.tracker.stats().drift;
        world.begin_reading();
        world.end_reading();
        let found = world.tracker.stats().drift - before;
        world.settle();
        found
    };
    // The first reading is what everything after it is compared with.
    world.restart(Config::default(), 0);
    assert_eq!(world.tracker.stats().drift, 0);
    world.settle();
    assert_eq!(read(&mut world), 0);
    world.azure.locations.values_mut().for_each(|addresses| drop(addresses.remove(&ip("10.0.0.1"))));
    assert_eq!(read(&mut world), 1);
    world.azure.load_balancers.remove(&id(A));
    world.azure.registrations.remove(&id(A));
    world.azure.locations.clear();
    assert_eq!(read(&mut world), 4);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    world.complete(0, End::UnknownApplied(FailureKind::Transient));
    assert_eq!(read(&mut world), 0);
}

#[test]
fn endpoints_that_terminate_count_while_their_service_has_none_that_is_ready() {
    use Condition::{Ready, Terminating};
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    world.response([conditions("s", &[("10.0.0.1", Ready), ("10.0.0.2", Terminating)])]);
    assert_eq!(held(&world), ["10.0.0.1"]);
    let source = Source::EndpointSlice(ObjectKey::new("default", "s"));
    assert_eq!(world.tracker.explain_address(ip("10.0.0.2")), [Explanation::NotReady { source }]);
    // The last ready one goes.
    world.response([conditions("s", &[("10.0.0.1", Terminating), ("10.0.0.2", Terminating)])]);
    assert_eq!(held(&world), ["10.0.0.1", "10.0.0.2"]);
    // One comes in another slice of the Service.
    world.response([conditions("t", &[("10.0.0.3", Ready)])]);
    assert_eq!(held(&world), ["10.0.0.3"]);
    world.response([slice_gone("t")]);
    assert_eq!(held(&world), ["10.0.0.1", "10.0.0.2"]);
    // None is ready, but the slice now belongs to a Service that has one.
    world.response([wanted(B, &[80]), slice("b", B, &[("10.0.0.9", "n1")])]);
    world.response([Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", "s"),
        service: ServiceRef::Name(name(B)),
        endpoints: [Endpoint {
            condition: Terminating,
            ..Endpoint::ready(ip("10.0.0.1"), NodeName::new("n1"))
        }]
        .into_iter()
        .collect(),
    })]);
    assert_eq!(held(&world), ["10.0.0.9"]);
}

#[test]
fn the_difference_names_what_is_not_as_it_should_be_and_nothing_else() {
    let mut world = settled([
        wanted(A, &[80]),
        wanted(B, &[80]),
        node("n1", "192.168.0.1"),
        node("n2", "192.168.0.2"),
        slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1"), ("10.0.0.3", "n1")]),
    ]);
    assert_eq!(world.tracker.diff(), Difference::default());
    world.tell(slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n2"), ("10.0.0.4", "n1")]));
    world.tell(wanted(5, &[80]));
    let place = |location: &str| (ip(location), vec![id(A)]);
    let address = |address, held: &[&str], wanted: Option<&str>| AddressDifference {
        address: ip(address),
        held: held.iter().map(|location| place(location)).collect(),
        wanted: wanted.map(place),
    };
    let expected = Difference {
        services: vec![ServiceDifference {
            service: id(5),
            key: Some(name(5)),
            phase: Some(Phase::Pending),
            resources: Resources::default(),
        }],
        addresses: vec![
            address("10.0.0.2", &["192.168.0.1"], Some("192.168.0.2")),
            address("10.0.0.3", &["192.168.0.1"], None),
            address("10.0.0.4", &[], Some("192.168.0.1")),
        ],
    };
    assert_eq!(world.tracker.diff(), expected);
    // What would be done is what a copy does when everything succeeds.
    let mut plan = world.clone();
    plan.drain();
    plan.settle();
    assert_eq!(plan.tracker.diff(), Difference::default());
    assert_eq!(world.tracker.diff(), expected);
}

#[test]
fn stats_say_since_when_what_waits_has_waited_and_how_long_things_took() {
    let seconds = Duration::from_secs;
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    let stats = world.tracker.stats();
    assert_eq!((stats.oldest_service, stats.oldest_address, stats.unsettled_services), (None, None, 0));
    assert_eq!((stats.service_latency.count, stats.address_latency.count), (1, 0));

    world.now = Timestamp::from_millis(5_000);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    let first = world.now;
    world.now = first.after(seconds(20));
    world.tell(slice("t", A, &[("10.0.0.2", "n1")]));
    assert_eq!(world.tracker.stats().oldest_address, Some(first));
    world.complete(0, End::Fails(FailureKind::Conflict));
    assert_eq!(world.tracker.stats().oldest_address, Some(first));
    let later = world.tracker.poll_timeout().unwrap().0;
    world.settle();
    let stats = world.tracker.stats();
    assert_eq!((stats.oldest_address, stats.address_latency.count), (None, 2));
    let taken = [later.since(first), later.since(first.after(seconds(20)))];
    let within = |bound| taken.iter().filter(|taken| **taken <= Duration::from_millis(bound)).count() as u64;
    let latency = Latency { count: 2, total: taken.iter().sum(), buckets: LATENCY_BUCKETS.map(within) };
    assert_eq!(stats.address_latency, latency);

    let begun = world.now;
    world.change(wanted(B, &[80]));
    world.complete(0, End::Fails(FailureKind::Quota));
    world.now = begun.after(seconds(7));
    assert_eq!(world.tracker.stats().oldest_service, Some(begun));
    world.settle();
    assert_eq!(world.tracker.stats().service_latency.count, 2);
}

#[test]
fn whatever_order_changes_come_in_the_end_is_the_same_and_there_and_back_is_where_it_was() {
    let there = wanted(A, &[443]);
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    let snapshot = world.tracker.snapshot();
    let back = world.cluster.services[&id(A)].clone();
    world.response([there, slice("s", A, &[])]);
    world.response([
        Change::ServiceApplied(Service { version: ResourceVersion::default(), ..back }),
        slice("s", A, &[("10.0.0.1", "n1")]),
    ]);
    let mut after = world.tracker.snapshot();
    // Only the versions of objects have moved on.
    for (service, before) in after.services.iter_mut().zip(&snapshot.services) {
        service.version = before.version;
    }
    after.addresses_had_their_turn = snapshot.addresses_had_their_turn;
    assert_eq!(after, snapshot);
}

#[test]
fn every_service_is_served_though_another_is_refused_for_ever() {
    let mut world = settled([node("n1", "192.168.0.1")]);
    for number in 1..9 {
        world.tell(wanted(number, &[80]));
        let address = format!("10.0.0.{number}");
        world.tell(slice(&format!("s{number}"), number, &[(&address, "n1")]));
    }
    world.tell(service(9, Intent::LoadBalancer(crate::steps::spec(IpFamily::V4, &[80]))));
    world.drain();
    for _ in 0..500 {
        let refused = |operation: &Operation| matches!(&operation.action, Action::Resource { service, .. } if *service == id(3));
        match world.in_flight.first() {
            Some(operation) if refused(operation) => world.complete(0, End::Fails(FailureKind::Quota)),
            Some(_) => world.complete(0, End::Succeeds),
            None => break,
        }
    }
    for number in (1..10).filter(|number| *number != 3) {
        assert_eq!(world.tracker.status(&id(number)).unwrap().phase, Phase::Ready, "{number}");
    }
    assert_eq!(world.tracker.status(&id(3)).unwrap().phase, Phase::Retrying);
    assert_eq!(held(&world).len(), 7);
}
