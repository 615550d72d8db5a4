//! Steps that fail, and how they are tried again: behaviour by behaviour, each named after the scenario that asks for it.

use std::time::Duration;

use clb_difftracker::{Action, Change, FailureKind, Notice, Phase, RegistrationUpdate, ResourceRequest};

use crate::azure::Azure;
use crate::steps::id;
use crate::vocabulary::*;
use crate::world::{End, World};

const KINDS: [FailureKind; 6] = [
    FailureKind::Conflict,
    FailureKind::Transient,
    FailureKind::Forbidden,
    FailureKind::Quota,
    FailureKind::Invalid,
    FailureKind::NotFound,
];

fn serving() -> World {
    settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])])
}

/// Lets everything in flight succeed, without waiting for anything else.
fn complete_all(world: &mut World) {
    while !world.in_flight.is_empty() {
        world.complete(0, End::Succeeds);
    }
}

#[test]
fn sl_06_a_create_that_fails_half_way_goes_on_where_it_was() {
    let create = [put_ip(A), put_lb(A, &[80]), services(&[(A, RegistrationUpdate::RegisterInbound)])];
    for kind in KINDS {
        for (failing, step) in create.iter().enumerate() {
            let mut world = world();
            world.change(wanted(A, &[80]));
            (0..failing).for_each(|_| world.complete(0, End::Succeeds));
            world.complete(0, End::Fails(kind));
            assert_eq!(world.flying(), [], "{kind:?}");
            // A request on the gateway is everybody's: it waits, no service does.
            if failing < 2 {
                assert_eq!(world.tracker.status(&id(A)).unwrap().phase, Phase::Retrying, "{kind:?}");
            }
            world.pass_time();
            // Of what it needs, something may not be where it was believed to be: then that is put again, before.
            if kind != FailureKind::NotFound {
                assert_eq!(world.flying(), std::slice::from_ref(step), "{kind:?}");
            }
            world.settle();
        }
    }
}

#[test]
fn eg_13_a_teardown_step_that_fails_is_repeated_and_what_is_not_there_is_deleted() {
    for kind in KINDS {
        for failing in 0..6 {
            let mut world = settled([node("n1", "192.168.0.1"), leaves("a", "gw", &[("10.0.0.1", "n1")])]);
            world.change(pod("a", "gw", false, &[]));
            (0..failing).for_each(|_| world.complete(0, End::Succeeds));
            let step = world.flying();
            let is_gone = kind == FailureKind::NotFound && failing > 1;
            if is_gone {
                // What the answer says is true.
                match &step[0] {
                    Action::Gateway(_) => world.azure.registrations.clear(),
                    Action::Resource { request: ResourceRequest::DeletePublicIp, .. } => {
                        world.azure.public_ips.clear();
                    }
                    Action::Resource { .. } | Action::Service { .. } | Action::Pod { .. } => {
                        world.azure.nat_gateways.clear();
                    }
                }
            }
            world.complete(0, End::Fails(kind));
            if is_gone {
                assert_ne!(world.flying(), step, "what is not there is deleted");
            } else if kind != FailureKind::NotFound {
                world.pass_time();
                assert_eq!(world.flying(), step, "{kind:?}");
            }
            world.settle();
            assert_eq!(world.azure, Azure::default(), "{kind:?}");
        }
    }
}

#[test]
fn nw_29_a_service_that_nrp_does_not_know_is_unregistered() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(Change::ServiceGone(id(A)));
    (0..2).for_each(|_| world.complete(0, End::Succeeds));
    assert_eq!(world.flying(), [services(&[(A, RegistrationUpdate::Unregister)])]);
    world.azure.registrations.clear();
    world.complete(0, End::Fails(FailureKind::NotFound));
    assert_eq!(world.flying(), [resource(A, ResourceRequest::DeletePublicIp)]);
    world.settle();
}

#[test]
fn nw_27_a_delete_that_fails_otherwise_is_repeated_and_nothing_else_is_done_for_it() {
    let mut world = serving();
    world.change(Change::ServiceGone(id(A)));
    (0..3).for_each(|_| world.complete(0, End::Succeeds));
    let unregister = [services(&[(A, RegistrationUpdate::Unregister)])];
    for _ in 0..3 {
        let from = world.taken.len();
        assert_eq!(world.flying(), unregister);
        world.complete(0, End::Fails(FailureKind::Conflict));
        world.pass_time();
        assert_eq!(world.actions(from), unregister);
    }
    world.settle();
}

#[test]
fn nw_45_a_pool_that_cannot_be_cleared_keeps_its_load_balancer() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(Change::ServiceGone(id(A)));
    let clear = [services(&[(A, RegistrationUpdate::ClearPool)])];
    for _ in 0..15 {
        assert_eq!(world.flying(), clear);
        world.complete(0, End::Fails(FailureKind::Transient));
        assert_eq!(world.flying(), []);
        world.pass_time();
    }
    assert!(world.azure.load_balancers.contains_key(&id(A)));
    world.settle();
}

#[test]
fn nw_33_what_failed_changed_nothing_and_is_sent_again_as_it_was() {
    // rt_13
    for kind in [FailureKind::Transient, FailureKind::Conflict, FailureKind::Throttled { retry_after: None }]
    {
        let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
        let from = world.taken.len();
        world.change(slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]));
        world.complete(0, End::Fails(kind));
        assert_eq!(world.tracker.status(&id(A)).unwrap().addresses, 0);
        world.settle();
        let all = locations(&[("192.168.0.1", replace(&[("10.0.0.1", &[A]), ("10.0.0.2", &[A])]))]);
        assert_eq!(world.actions(from), [all.clone(), all], "{kind:?}");
    }
}

#[test]
fn rt_02_what_fails_for_ever_is_tried_for_ever_and_never_more_often_than_it_should_be() {
    // rt_03: nothing but time makes it go on.
    let mut world = world();
    world.change(wanted(A, &[80]));
    let mut pauses = Vec::new();
    for _ in 0..40 {
        assert_eq!(world.flying(), [put_ip(A)]);
        world.complete(0, End::Fails(FailureKind::Transient));
        let before = world.now;
        world.pass_time();
        pauses.push(world.now.since(before));
    }
    let config = clb_difftracker::Config::default();
    assert!(pauses[0] <= config.backoff, "{pauses:?}");
    assert!(pauses.iter().all(|pause| !pause.is_zero() && *pause <= config.max_backoff), "{pauses:?}");
    // Any pause up to the longest is as likely.
    assert!(pauses[20..].iter().any(|pause| *pause > config.max_backoff / 2), "{pauses:?}");
    world.settle();
}

#[test]
fn rt_07_while_a_delete_waits_nothing_makes_it_go_on_and_the_finalizer_stays() {
    let mut world = serving();
    world.change(Change::ServiceGone(id(A)));
    world.complete(0, End::Succeeds);
    world.complete(0, End::Fails(FailureKind::Forbidden));
    let from = world.taken.len();
    world.change(slice("s", A, &[("10.0.0.5", "n1")]));
    world.change(node("n2", "192.168.0.2"));
    world.change(Change::ServiceGone(id(A)));
    assert_eq!(world.all_actions(from), []);
    world.settle();
}

#[test]
fn rt_15_a_request_that_is_refused_does_not_hold_up_the_deletion_of_others() {
    let mut world = settled([
        wanted(A, &[80]),
        wanted(B, &[80]),
        node("n1", "192.168.0.1"),
        slice("a", A, &[("10.0.0.1", "n1")]),
    ]);
    world.tell(Change::ServiceGone(id(A)));
    world.change(slice("b", B, &[("10.0.0.66", "n1")]));
    // Together they are refused; alone, one of them still is.
    world.complete(0, End::Fails(FailureKind::Invalid));
    while let Some(operation) = world.in_flight.first() {
        let is_bad = format!("{operation:?}").contains("10.0.0.66");
        world.complete(0, if is_bad { End::Fails(FailureKind::Invalid) } else { End::Succeeds });
    }
    assert_eq!(world.tracker.status(&id(A)), None);
    assert_eq!(world.tracker.stats().quarantined_addresses, 1);
    world.settle();
}

#[test]
fn rt_16_a_withdrawal_that_is_refused_is_tried_until_it_succeeds() {
    let mut world = serving();
    world.change(Change::ServiceGone(id(A)));
    let withdrawal = world.flying();
    for _ in 0..20 {
        assert_eq!(world.flying(), withdrawal);
        world.complete(0, End::Fails(FailureKind::Invalid));
        assert_eq!(world.flying(), []);
        world.pass_time();
    }
    assert_eq!(world.tracker.status(&id(A)).unwrap().phase, Phase::Draining);
    world.settle();
    assert_eq!(world.azure, Azure::default());
}

#[test]
fn rt_22_an_update_that_fails_stays_an_update() {
    let mut world = serving();
    let from = world.taken.len();
    world.change(wanted(A, &[81]));
    for _ in 0..3 {
        world.complete(0, End::Fails(FailureKind::Transient));
        world.pass_time();
    }
    assert!(world.azure.names(&id(A)));
    // rt_21: back to what there was before is no difference.
    world.complete(0, End::Fails(FailureKind::Transient));
    world.change(wanted(A, &[80]));
    world.settle();
    assert_eq!(world.actions(from), vec![put_lb(A, &[81]); 4]);
}

#[test]
fn rt_23_a_success_forgets_the_failures_before() {
    let mut world = serving();
    let first_pause = |world: &mut World, port| {
        world.change(wanted(A, &[port]));
        world.complete(0, End::Fails(FailureKind::Transient));
        let pause = world.tracker.poll_timeout().unwrap().0.since(world.now);
        for _ in 0..8 {
            world.pass_time();
            world.complete(0, End::Fails(FailureKind::Transient));
        }
        world.pass_time();
        complete_all(world);
        pause
    };
    let base = clb_difftracker::Config::default().backoff;
    assert!([81, 82, 83].iter().all(|&port| first_pause(&mut world, port) <= base));
}

#[test]
fn rt_26_what_time_is_unlikely_to_cure_is_said_loudly_and_tried_slowly() {
    for kind in [FailureKind::Forbidden, FailureKind::Quota, FailureKind::Invalid] {
        let mut world = world();
        world.change(wanted(A, &[80]));
        let from = world.notices.len();
        world.complete(0, End::Fails(kind));
        let (at, _) = world.tracker.poll_timeout().unwrap();
        assert!((270..=330).contains(&at.since(world.now).as_secs()), "{kind:?}");
        let told = world.notices[from..].iter().any(|notice| {
            matches!(notice, Notice::Failed { service: Some(of), kind: told, retry_at, message, .. }
                if *of == id(A) && *told == kind && *retry_at == at && !message.is_empty())
        });
        assert!(told, "{:?}", &world.notices[from..]);
        world.settle();
    }
}

#[test]
fn sl_13_an_edit_while_a_service_is_made_is_one_more_write() {
    let mut world = world();
    world.change(wanted(A, &[80]));
    world.complete(0, End::Succeeds);
    assert_eq!(world.flying(), [put_lb(A, &[80])]);
    [81, 82, 83].into_iter().for_each(|port| world.change(wanted(A, &[port])));
    world.settle();
    let is_lb = |action: &Action| {
        matches!(action, Action::Resource { request: ResourceRequest::PutLoadBalancer(_), .. })
    };
    let written: Vec<_> = world.actions(0).into_iter().filter(is_lb).collect();
    assert_eq!(written, [put_lb(A, &[80]), put_lb(A, &[83])]);
}

#[test]
fn a_pause_that_a_server_asks_for_is_kept_though_everything_changes() {
    let mut world = serving();
    world.change(wanted(A, &[81]));
    let pause = Duration::from_secs(77);
    world.complete(0, End::Fails(FailureKind::Throttled { retry_after: Some(pause) }));
    let from = world.taken.len();
    world.change(wanted(B, &[80]));
    world.change(slice("s", A, &[("10.0.0.2", "n1")]));
    world.change(Change::ServiceGone(id(A)));
    assert_eq!(world.actions(from), []);
    assert_eq!(world.tracker.poll_timeout().unwrap().0.since(world.now), pause);
    world.settle();
}
