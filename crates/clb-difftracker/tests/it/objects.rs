//! Writes on Kubernetes objects: when finalizers come and go, and what a status says.

use std::time::Duration;

use clb_difftracker::{
    Action, Change, Config, FailureKind, Finalizers, Intent, IpFamily, Notice, Phase, PodRequest,
    ResourceVersion, ServiceRequest,
};

use crate::azure::ingress;
use crate::steps::{id, rejected};
use crate::vocabulary::*;
use crate::world::{End, World};

fn write(service: u8, request: ServiceRequest) -> Action {
    Action::Service { service: id(service), key: name(service), request }
}

/// A world in which writes on objects end as the test says.
pub(crate) fn slow_world() -> World {
    World::new(Config::default())
}

/// A world at rest with one Service that serves.
fn serving() -> World {
    let mut world = slow_world();
    world.change(wanted(A, &[80]));
    world.settle();
    world
}

#[test]
fn sl_01_the_finalizers_come_first_and_the_status_last() {
    let mut world = slow_world();
    world.change(wanted(A, &[80]));
    assert_eq!(world.flying(), [write(A, ServiceRequest::AddFinalizers)]);
    world.settle();
    let all = world.all_actions(0);
    assert_eq!(all.len(), 5, "{all:#?}");
    assert_eq!(all.last(), Some(&write(A, ServiceRequest::SetIngress(ingress(IpFamily::V4)))));
    assert_eq!(world.phases(A), [Some(Phase::Pending), Some(Phase::Creating), Some(Phase::Ready)]);
}

#[test]
fn sl_07_nothing_is_made_in_azure_while_the_finalizers_are_not_confirmed() {
    let kinds = [
        FailureKind::NotFound,
        FailureKind::Conflict,
        FailureKind::Transient,
        FailureKind::Forbidden,
        FailureKind::Invalid,
        FailureKind::Throttled { retry_after: None },
    ];
    for end in kinds.map(End::Fails).into_iter().chain([End::UnknownApplied(FailureKind::Transient)]) {
        let mut world = slow_world();
        world.change(wanted(A, &[80]));
        world.complete(0, end);
        assert_eq!(world.flying(), Vec::<Action>::new(), "{end:?}");
        world.pass_time();
        assert_eq!(world.flying(), [write(A, ServiceRequest::AddFinalizers)], "{end:?}");
        world.settle();
    }
}

#[test]
fn sl_08_a_service_that_went_before_its_finalizers_were_written_leaves_azure_alone() {
    let mut world = slow_world();
    world.change(wanted(A, &[80]));
    world.change(Change::ServiceGone(id(A)));
    // fn_03: whoever has the name now is not written on.
    world.complete(0, End::Fails(FailureKind::NotFound));
    world.settle();
    assert_eq!(world.all_actions(0), [write(A, ServiceRequest::AddFinalizers)]);
    assert_eq!(world.tracker.status(&id(A)), None);
}

#[test]
fn sl_23_finalizers_that_cannot_be_removed_are_tried_again_until_they_can() {
    for kind in [FailureKind::Conflict, FailureKind::Transient, FailureKind::Forbidden] {
        let mut world = serving();
        world.change(service(A, Intent::None));
        (0..5).for_each(|_| world.complete(0, End::Succeeds));
        let remove = [write(A, ServiceRequest::RemoveFinalizers)];
        for _ in 0..15 {
            assert_eq!(world.flying(), remove, "{kind:?}");
            world.complete(0, End::Fails(kind));
            assert_eq!(world.flying(), [], "{kind:?}");
            world.pass_time();
        }
        // fn_15: all the while nothing of it is in Azure.
        assert_eq!(world.azure, crate::azure::Azure::default());
        world.settle();
    }
    // fn_09: an object that is not there has none.
    let mut world = serving();
    world.change(service(A, Intent::None));
    (0..5).for_each(|_| world.complete(0, End::Succeeds));
    world.tell(Change::ServiceGone(id(A)));
    world.complete(0, End::Fails(FailureKind::NotFound));
    assert_eq!((world.flying(), world.tracker.status(&id(A))), (vec![], None));
}

#[test]
fn eg_56_a_finalizer_that_somebody_took_off_a_pod_is_put_back() {
    let mut world = slow_world();
    world.change(node("n1", "192.168.0.1"));
    world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
    world.settle();
    let from = world.taken.len();
    world.cluster.pods.get_mut(&pod_ref("a")).unwrap().has_finalizer = false;
    world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
    let expected = [Action::Pod { pod: pod_ref("a"), request: PodRequest::AddFinalizer }];
    assert_eq!(world.all_actions(from), expected);
    world.settle();
}

#[test]
fn sl_05_endpoints_flow_while_the_status_cannot_be_written() {
    let mut world = slow_world();
    world.change(node("n1", "192.168.0.1"));
    world.change(wanted(A, &[80]));
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    for _ in 0..4 {
        world.complete(0, End::Succeeds);
    }
    let status = world.in_flight.iter().position(|it| matches!(it.action, Action::Service { .. })).unwrap();
    world.complete(status, End::Fails(FailureKind::Forbidden));
    world.complete(0, End::Succeeds);
    assert!(world.azure.names(&id(A)));
    assert_eq!(world.tracker.status(&id(A)).unwrap().phase, Phase::Retrying);
    world.settle();
    assert_eq!(world.tracker.status(&id(A)).unwrap().phase, Phase::Ready);
}

#[test]
fn sl_22_the_finalizers_go_when_nothing_is_left() {
    let mut world = serving();
    let from = world.taken.len();
    world.change(service(A, Intent::None));
    world.settle();
    let all = world.all_actions(from);
    // Clients are not told any more of an address that is about to go.
    assert_eq!(all.first(), Some(&write(A, ServiceRequest::ClearIngress(ingress(IpFamily::V4)))));
    assert_eq!(all.last(), Some(&write(A, ServiceRequest::RemoveFinalizers)));
    assert_eq!(all.len(), 6, "{all:#?}");
}

#[test]
fn sl_39_a_service_that_wants_no_load_balancer_any_more_gets_no_status() {
    let mut world = slow_world();
    world.change(wanted(A, &[80]));
    for _ in 0..3 {
        world.complete(0, End::Succeeds);
    }
    // The registration is in flight.
    world.change(service(A, Intent::None));
    world.settle();
    let is_status =
        |action: &Action| matches!(action, Action::Service { request: ServiceRequest::SetIngress(_), .. });
    assert!(!world.all_actions(0).iter().any(is_status));
}

#[test]
fn sl_24_a_service_that_changes_its_type_to_and_fro_is_removed_and_made_again() {
    let mut world = serving();
    world.change(service(A, Intent::None));
    world.settle();
    assert_eq!(world.cluster.services[&id(A)].finalizers, Finalizers::None);
    world.change(wanted(A, &[80]));
    world.settle();
}

#[test]
fn sl_33_a_service_that_is_nothing_to_us_is_not_written_on() {
    let mut world = slow_world();
    world.change(service(A, Intent::None));
    world.change(service(B, rejected()));
    assert_eq!(world.all_actions(0), []);
}

#[test]
fn rs_10_a_service_that_has_our_finalizers_and_nothing_else_is_released() {
    let mut world = slow_world();
    let Change::ServiceApplied(mut stuck) = service(A, Intent::None) else { unreachable!() };
    stuck.finalizers = Finalizers::Partial;
    world.cluster.services.insert(id(A), stuck.clone());
    world.tracker.handle_change(Change::ServiceApplied(stuck), world.now);
    world.drain();
    assert_eq!(world.flying(), [write(A, ServiceRequest::RemoveFinalizers)]);
    world.settle();
}

#[test]
fn fn_02_a_finalizer_that_somebody_took_off_is_put_back_before_anything_else_is_done() {
    let mut world = serving();
    let from = world.taken.len();
    world.cluster.services.get_mut(&id(A)).unwrap().finalizers = Finalizers::None;
    world.change(wanted(A, &[81]));
    assert_eq!(world.flying(), [write(A, ServiceRequest::AddFinalizers)]);
    world.settle();
    assert_eq!(world.all_actions(from).len(), 2);
}

#[test]
fn sl_03_a_status_that_is_right_is_not_written_and_one_that_is_wrong_is() {
    let mut world = serving();
    let from = world.taken.len();
    let object = |world: &mut World, ips: &[&str]| {
        let version = world.cluster.versions.unwrap() + 1;
        world.cluster.versions = Some(version);
        let object = world.cluster.services.get_mut(&id(A)).unwrap();
        object.version = ResourceVersion::new(version);
        object.ingress = ips.iter().map(|text| ip(text)).collect();
        let change = Change::ServiceApplied(object.clone());
        world.tracker.handle_change(change, world.now);
        world.drain();
    };
    let right = ingress(IpFamily::V4).to_string();
    object(&mut world, &["2603::9", &right]);
    assert_eq!(world.all_actions(from), []);
    for wrong in [vec![], vec!["20.9.9.9"], vec![right.as_str(), "20.9.9.9"]] {
        let from = world.taken.len();
        object(&mut world, &wrong);
        assert_eq!(world.all_actions(from), [write(A, ServiceRequest::SetIngress(ingress(IpFamily::V4)))]);
        world.settle();
    }
}

#[test]
fn an_older_form_of_an_object_does_not_undo_what_was_written_since() {
    let mut world = slow_world();
    world.change(wanted(A, &[80]));
    let before = Change::ServiceApplied(world.cluster.services[&id(A)].clone());
    world.settle();
    let from = world.taken.len();
    let snapshot = world.tracker.snapshot();
    world.tracker.handle_change(before, world.now);
    world.drain();
    assert_eq!((world.all_actions(from), world.tracker.snapshot()), (vec![], snapshot));
}

#[test]
fn what_the_api_server_refuses_holds_up_that_object_and_nothing_else() {
    let mut world = slow_world();
    world.change(wanted(A, &[80]));
    world.change(wanted(B, &[80]));
    let pause = Some(Duration::from_secs(3_600));
    world.complete(0, End::Fails(FailureKind::Throttled { retry_after: pause }));
    assert_eq!(world.flying(), [write(B, ServiceRequest::AddFinalizers)]);
    world.complete(0, End::Succeeds);
    while !world.in_flight.is_empty() {
        world.complete(0, End::Succeeds);
    }
    assert_eq!(world.tracker.status(&id(B)).unwrap().phase, Phase::Ready);
    let (at, _) = world.tracker.poll_timeout().unwrap();
    assert_eq!(at.since(world.now), Duration::from_secs(3_600));
    world.settle();
}

#[test]
fn rt_18_a_pod_that_cannot_be_released_is_tried_again_until_it_is() {
    let mut world = slow_world();
    world.change(node("n1", "192.168.0.1"));
    world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
    world.settle();
    world.change(pod("a", "gw", false, &[("10.0.0.1", "n1")]));
    world.complete(0, End::Succeeds);
    let release = Action::Pod { pod: pod_ref("a"), request: PodRequest::RemoveFinalizer };
    let at = world.flying().iter().position(|action| *action == release).unwrap();
    world.complete(at, End::Fails(FailureKind::Conflict));
    let failed = |notice: &&Notice| matches!(notice, Notice::PodFailed { pod, .. } if *pod == pod_ref("a"));
    assert_eq!(world.notices.iter().filter(failed).count(), 1);
    while !world.in_flight.is_empty() {
        world.complete(0, End::Succeeds);
    }
    // Nothing else is left to do, and this is.
    assert!(!world.tracker.is_synced());
    world.settle();
    assert!(!world.cluster.pods[&pod_ref("a")].has_finalizer);
}

#[test]
fn eg_41_a_pod_leaves_through_its_nat_gateway_though_its_finalizer_cannot_be_added() {
    let mut world = slow_world();
    world.change(node("n1", "192.168.0.1"));
    world.change(leaves("a", "gw", &[("10.0.0.1", "n1")]));
    let at = world.in_flight.iter().position(|it| is_write(&it.action)).unwrap();
    world.complete(at, End::Fails(FailureKind::Forbidden));
    while !world.in_flight.is_empty() {
        world.complete(0, End::Succeeds);
    }
    assert!(world.azure.names(&egress_id("gw")));
    world.settle();
}

#[test]
fn no_more_objects_are_written_at_once_than_configured() {
    let mut world = World::new(Config { max_object_operations: 2, ..Config::default() });
    (1..9).for_each(|number| world.tell(wanted(number, &[80])));
    world.drain();
    assert_eq!(world.in_flight.len(), 2);
    world.settle();
}
