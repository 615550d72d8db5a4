//! Batches, refusals, doubts and explanations, behaviour by behaviour, named after the scenario where one asks for it.

use std::time::Duration;

use clb_difftracker::{
    Action, AddressesUpdate, Change, Config, FailureKind, GatewayRequest, Intent, IpFamily, LoadBalancerSpec,
    NodeName, Notice, ObjectKey, Operation, Outcome, Phase, Reason, RegistrationUpdate, Rejection, ServiceId,
    Source, Success, Timestamp,
};

use crate::steps::id;
use crate::world::End;

use crate::vocabulary::*;

#[test]
fn nw_40_a_poisoned_entry_is_found_by_halving_and_the_rest_goes_through() {
    let count: u32 = 100;
    let poison = ip("10.0.0.37");
    let addresses: Vec<String> = (0..count).map(|last| format!("10.0.0.{last}")).collect();
    let endpoints: Vec<_> = addresses.iter().map(|address| (address.as_str(), "n1")).collect();
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    let from = world.taken.len();
    world.change(slice("s", A, &endpoints));
    let is_poisoned = |operation: &Operation| match &operation.action {
        Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) => updates.iter().any(|update| {
            let (AddressesUpdate::Replace(entries) | AddressesUpdate::Merge(entries)) = &update.addresses
            else {
                return false;
            };
            entries.iter().any(|entry| entry.address == poison)
        }),
        Action::Gateway(GatewayRequest::UpdateServices(_) | GatewayRequest::Read)
        | Action::Resource { .. }
        | Action::Service { .. }
        | Action::Pod { .. } => false,
    };
    while let Some(operation) = world.in_flight.first() {
        let end = if is_poisoned(operation) { End::Fails(FailureKind::Invalid) } else { End::Succeeds };
        world.complete(0, end);
    }
    let requests = world.taken.len() - from;
    assert!(requests <= 2 * count.ilog2() as usize + 3, "{requests} requests for {count} entries");
    assert_eq!(world.azure.locations[&ip("192.168.0.1")].len(), 99);
    assert_eq!((world.tracker.stats().quarantined_addresses, world.tracker.is_synced()), (1, false));
    assert!(
        world
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::Quarantined { address, .. } if *address == poison))
    );

    // It is tried again when it changes, and, even if not, in five minutes or so.
    let (at, reason) = world.tracker.poll_timeout().unwrap();
    assert_eq!(reason, Reason::AddressRetry(poison));
    assert!((270..=330).contains(&at.since(world.now).as_secs()));
    world.change(node("n2", "192.168.0.2"));
    let mut elsewhere = endpoints.clone();
    elsewhere[37].1 = "n2";
    world.response([slice("s", A, &elsewhere)]);
    assert_eq!(world.tracker.stats().quarantined_addresses, 0);
}

#[test]
fn a_poisoned_registration_is_found_by_halving_too() {
    let mut world = world_with_a_call_in_flight();
    (10..26).for_each(|number| world.tell(wanted(number, &[80])));
    world.drain();
    while world.in_flight.len() > 1 {
        world.complete(1, End::Succeeds);
    }
    let from = world.taken.len();
    world.complete(0, End::Succeeds);
    while let Some(Operation { action: Action::Gateway(GatewayRequest::UpdateServices(updates)), .. }) =
        world.in_flight.first()
    {
        let is_poisoned = updates.iter().any(|update| update.service == id(17));
        world.complete(0, if is_poisoned { End::Fails(FailureKind::Invalid) } else { End::Succeeds });
    }
    assert!(world.actions(from).len() <= 2 * 4 + 3);
    let unregistered: Vec<ServiceId> =
        (10..26).map(id).filter(|id| !world.azure.registrations.contains_key(id)).collect();
    assert_eq!(unregistered, [id(17)]);
    assert_eq!(world.tracker.status(&id(17)).unwrap().phase, Phase::Retrying);
    world.settle();
}

#[test]
fn rt_25_a_throttled_answer_closes_the_door_for_everything_until_the_time_given() {
    let mut world = world();
    world.change(wanted(A, &[80]));
    world.complete(0, End::Fails(FailureKind::Throttled { retry_after: Some(Duration::from_secs(42)) }));
    world.change(wanted(B, &[80]));
    assert_eq!(world.flying(), Vec::<Action>::new());
    assert_eq!(world.tracker.poll_timeout(), Some((Timestamp::from_millis(42_000), Reason::Throttled)));
    assert_eq!(world.tracker.status(&id(A)).unwrap().failures, 0);
    world.pass_time();
    assert_eq!(world.flying(), [put_ip(A), put_ip(B)]);
}

#[test]
fn rt_01_churn_does_not_cut_a_backoff_short() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Transient));
    for port in 82..90 {
        world.change(wanted(A, &[port]));
        assert_eq!(world.flying(), Vec::<Action>::new());
    }
    world.pass_time();
    assert_eq!(world.flying(), [put_lb(A, &[89])]);
}

#[test]
fn rt_04_an_invalid_spec_is_parked_until_it_changes() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Invalid));
    // rt_05: the same spec again is no change.
    world.change(wanted(A, &[81]));
    assert_eq!(world.flying(), Vec::<Action>::new());
    assert_eq!(world.phases(A).last(), Some(&Some(Phase::Retrying)));
    world.change(wanted(A, &[82]));
    assert_eq!(world.flying(), [put_lb(A, &[82])]);
    world.settle();
}

#[test]
fn rt_06_a_delete_does_not_wait_for_a_parked_update() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Quota));
    world.change(Change::ServiceGone(id(A)));
    assert_eq!(world.flying(), [services(&[(A, RegistrationUpdate::ClearPool)])]);
    world.settle();
}

#[test]
fn a_location_in_doubt_is_sent_whole() {
    let start = [
        wanted(A, &[80]),
        node("n1", "192.168.0.1"),
        slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]),
    ];
    for end in [End::UnknownApplied(FailureKind::Transient), End::UnknownNotApplied(FailureKind::Transient)] {
        let mut world = settled(start.clone());
        world.change(slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.3", "n1")]));
        world.complete(0, end);
        let from = world.taken.len();
        world.settle();
        let whole = replace(&[("10.0.0.1", &[A]), ("10.0.0.3", &[A])]);
        assert_eq!(world.actions(from), [locations(&[("192.168.0.1", whole)])]);
    }
}

#[test]
fn nw_26_a_service_that_nrp_says_is_still_referenced_is_drained_once_more() {
    let mut world = settled([wanted(A, &[80])]);
    // An address names it that we know nothing of.
    let (location, address) = (ip("192.168.0.1"), ip("10.0.0.1"));
    world.azure.locations.entry(location).or_default().insert(address, [id(A)].into());
    world.change(Change::ServiceGone(id(A)));
    world.complete(0, End::Fails(FailureKind::StillReferenced));
    assert_eq!(world.flying(), [Action::Gateway(GatewayRequest::Read)]);
    assert_eq!(world.phases(A).last(), Some(&Some(Phase::Retrying)));
    world.complete(0, End::Succeeds);
    assert_eq!(world.flying(), [locations(&[("192.168.0.1", AddressesUpdate::Remove)])]);
    world.settle();
}

#[test]
fn ad_14_a_live_service_that_is_edited_into_something_unsupported_goes_on_serving() {
    let rejection = Rejection { reason: "UnsupportedDualStack".into(), message: "one family only".into() };
    let rejected = |number| service(number, Intent::Rejected(rejection.clone()));
    let mut world =
        settled([wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])]);
    assert_eq!(world.response([rejected(A), rejected(A), rejected(B)]), []);
    let told =
        |number| Notice::Rejected { service: id(number), key: name(number), rejection: rejection.clone() };
    let rejections: Vec<_> =
        world.notices.iter().filter(|notice| matches!(notice, Notice::Rejected { .. })).cloned().collect();
    assert_eq!(rejections, [told(A), told(B)]);
    assert_eq!(world.tracker.status(&id(A)).unwrap().phase, Phase::Rejected);
    // ep_07: its endpoints keep flowing.
    let expected = locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]);
    assert_eq!(world.response([slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")])]), [expected]);
    assert_eq!(world.response([wanted(A, &[80])]), []);
}

#[test]
fn nw_41_a_batch_stays_within_its_budgets_and_withdrawals_go_first() {
    let config = Config { max_entries: 3, ..Config::default() };
    let mut world = world_with(config);
    for change in [
        wanted(A, &[80]),
        node("n1", "192.168.0.1"),
        slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]),
    ] {
        world.tell(change);
    }
    world.drain();
    world.settle();
    let new: &[_] = &[("10.0.0.2", "n1"), ("10.0.0.3", "n1"), ("10.0.0.4", "n1"), ("10.0.0.5", "n1")];
    let expected = [
        locations(&[("192.168.0.1", merge(&[("10.0.0.1", &[]), ("10.0.0.3", &[A]), ("10.0.0.4", &[A])]))]),
        locations(&[("192.168.0.1", merge(&[("10.0.0.5", &[A])]))]),
    ];
    // The additions are older than the withdrawal.
    let added: &[_] =
        &[("10.0.0.1", "n1"), ("10.0.0.2", "n1"), ("10.0.0.3", "n1"), ("10.0.0.4", "n1"), ("10.0.0.5", "n1")];
    assert_eq!(world.response([slice("s", A, added), slice("s", A, new)]), expected);
}

#[test]
fn an_outcome_told_twice_is_ignored() {
    let mut world = world();
    world.change(wanted(A, &[80]));
    let operation = world.in_flight[0].clone();
    world.complete(0, End::Succeeds);
    let flying = world.flying();
    world.tracker.handle_outcome(operation.id, Outcome::Succeeded(Success::Done), world.now);
    world.drain();
    assert_eq!(world.flying(), flying);
    world.settle();
}

#[test]
fn a_load_balancer_spec_is_one_that_azure_accepts() {
    use clb_difftracker::{FrontendPort, IdleTimeout, Protocol, Rule, SpecError};
    let rule = |protocol, frontend, backend: u16| Rule {
        protocol,
        frontend_port: FrontendPort::new(frontend).unwrap(),
        backend_port: backend.try_into().unwrap(),
    };
    let new = |rules: &[Rule]| LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), rules.to_vec());
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    assert_eq!(new(&[]), Err(SpecError::NoRules));
    assert_eq!(
        new(&[rule(tcp, 80, 8080), rule(tcp, 81, 8080)]),
        Err(SpecError::BackendPortCollision { protocol: tcp, port: 8080.try_into().unwrap() })
    );
    assert_eq!(
        new(&[rule(tcp, 80, 1), rule(tcp, 80, 2)]),
        Err(SpecError::DuplicateFrontend { protocol: tcp, port: FrontendPort::new(80).unwrap() })
    );
    assert!(new(&[rule(tcp, 80, 8080), rule(udp, 80, 8080)]).is_ok());
    assert_eq!([FrontendPort::new(0), FrontendPort::new(65_535)], [None, None]);
    let minutes = [3, 4, 30, 31].map(|minutes| IdleTimeout::from_minutes(minutes).map(IdleTimeout::minutes));
    assert_eq!(minutes, [None, Some(4), Some(30), None]);
    let many: Vec<Rule> = (1..=1_501).map(|port| rule(tcp, port, port)).collect();
    assert_eq!(new(&many), Err(SpecError::TooManyRules { count: 1_501 }));
}

#[test]
fn a_service_that_nrp_seems_not_to_know_stays_named_until_it_is_registered_again() {
    let start = [wanted(A, &[80]), node("n1", "192.168.0.1"), slice("s", A, &[("10.0.0.1", "n1")])];
    let mut world = settled(start);
    let from = world.taken.len();
    world.change(slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]));
    world.complete(0, End::Fails(FailureKind::NotFound));
    assert_eq!(world.flying(), [services(&[(A, RegistrationUpdate::RegisterInbound)])]);
    world.settle();
    let addition = locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]);
    assert_eq!(
        world.actions(from),
        [addition.clone(), services(&[(A, RegistrationUpdate::RegisterInbound)]), addition]
    );
}

#[test]
fn a_window_is_opened_by_the_first_to_wait_and_not_by_those_after_it() {
    let config = Config { batch_window: Duration::from_millis(300), ..Config::default() };
    let mut world = world_with(config);
    let pods = |first: u8| {
        let addresses: Vec<_> = (first..5).map(|last| format!("10.0.0.{last}")).collect();
        slice("s", A, &addresses.iter().map(|address| (address.as_str(), "n1")).collect::<Vec<_>>())
    };
    [wanted(A, &[80]), node("n1", "192.168.0.1"), pods(0)].into_iter().for_each(|change| world.tell(change));
    world.drain();
    world.settle();
    world.change(pods(1));
    world.pass_time();
    assert_eq!(world.flying().len(), 1);
    // While it runs, two more go; for the first of them a window opens and closes.
    world.change(pods(2));
    world.pass_time();
    world.change(pods(3));
    assert_eq!(world.tracker.poll_timeout(), None);
    let from = world.taken.len();
    world.complete(0, End::Succeeds);
    let both = merge(&[("10.0.0.1", &[]), ("10.0.0.2", &[])]);
    assert_eq!(world.actions(from), [locations(&[("192.168.0.1", both)])]);
    world.settle();
}

#[test]
fn changes_within_a_window_share_a_call_and_calls_keep_their_distance() {
    let config = Config {
        batch_window: Duration::from_millis(300),
        min_interval: Duration::from_secs(2),
        ..Config::default()
    };
    let mut world = world_with(config);
    world.tell(wanted(A, &[80]));
    world.tell(node("n1", "192.168.0.1"));
    world.drain();
    world.settle();
    let (from, start) = (world.taken.len(), world.now);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    world.change(slice("t", A, &[("10.0.0.2", "n1")]));
    assert_eq!(world.flying(), Vec::<Action>::new());
    assert_eq!(
        world.tracker.poll_timeout(),
        Some((start.after(Duration::from_millis(300)), Reason::BatchWindow))
    );
    world.pass_time();
    let both = replace(&[("10.0.0.1", &[A]), ("10.0.0.2", &[A])]);
    assert_eq!(world.actions(from), [locations(&[("192.168.0.1", both)])]);
    world.complete(0, End::Succeeds);
    world.change(slice_gone("t"));
    let deadlines = world.tracker.snapshot().deadlines;
    assert_eq!(deadlines, [Reason::BatchWindow, Reason::MinInterval]);
    world.pass_time();
    assert_eq!(world.flying(), Vec::<Action>::new());
    world.pass_time();
    assert_eq!(world.now.since(start), Duration::from_millis(2_300));
    assert_eq!(world.flying().len(), 1);
    world.settle();
}

#[test]
fn whatever_is_not_as_it_should_be_is_explained() {
    use clb_difftracker::Explanation;
    let mut world = world();
    let first = ip("10.0.0.1");
    let source = |name: &str| Source::EndpointSlice(ObjectKey::new("default", name));
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    assert_eq!(world.tracker.explain_address(first), [Explanation::NoService { source: source("s") }]);
    world.change(wanted(A, &[80]));
    let waiting =
        Explanation::WaitingForNode { source: source("s"), node: NodeName::new("n1"), family: IpFamily::V4 };
    assert_eq!(waiting.to_string(), "waiting for an IPv4 address of node n1 of slice default/s");
    assert_eq!(world.tracker.explain_address(first), [waiting]);
    world.change(node("n1", "192.168.0.1"));
    assert_eq!(world.tracker.explain_address(first), [Explanation::NotRegistered { service: id(A) }]);
    assert_eq!(world.tracker.explain_service(&id(A)), [Explanation::InFlight]);

    world.complete(0, End::Fails(FailureKind::Conflict));
    let (at, _) = world.tracker.poll_timeout().unwrap();
    assert_eq!(world.tracker.explain_service(&id(A)), [Explanation::Retrying { failures: 1, at }]);
    world.pass_time();
    world.complete(0, End::Fails(FailureKind::Throttled { retry_after: Some(Duration::from_secs(9)) }));
    let until = world.now.after(Duration::from_secs(9));
    assert_eq!(
        world.tracker.explain_service(&id(A)),
        [Explanation::Queued, Explanation::Throttled { until }]
    );
    world.settle();
    assert_eq!(
        (world.tracker.explain_service(&id(A)), world.tracker.explain_address(first)),
        (vec![], vec![])
    );

    world.change(slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]));
    assert_eq!(world.tracker.explain_address(ip("10.0.0.2")), [Explanation::InFlight]);
    world.complete(0, End::Fails(FailureKind::Invalid));
    let (until, _) = world.tracker.poll_timeout().unwrap();
    assert_eq!(world.tracker.explain_address(ip("10.0.0.2")), [Explanation::Quarantined { until }]);
    world.change(slice("s", A, &[]));
    world.complete(0, End::Fails(FailureKind::Transient));
    let at = world.tracker.poll_timeout().unwrap().0;
    assert_eq!(world.tracker.explain_address(first), [Explanation::Queued, Explanation::GatewayRetry { at }]);
    world.change(Change::ServiceGone(id(A)));
    assert_eq!(world.tracker.explain_service(&id(A)), [Explanation::Draining { addresses: 1 }]);
    assert_eq!(world.tracker.explain_address(ip("10.9.9.9")), []);
    world.settle();
}

#[test]
fn additions_have_a_quarter_of_each_batch_however_much_is_withdrawn() {
    let mut world = world_with(Config { max_entries: 4, ..Config::default() });
    let pods: Vec<String> = (0..20).map(|last| format!("10.0.0.{last}")).collect();
    let some = |range: std::ops::Range<usize>| {
        let endpoints: Vec<_> = pods[range].iter().map(|pod| (pod.as_str(), "n1")).collect();
        slice("s", A, &endpoints)
    };
    for change in [wanted(A, &[80]), node("n1", "192.168.0.1"), some(0..10)] {
        world.tell(change);
    }
    world.drain();
    world.settle();
    let from = world.taken.len();
    world.tell(some(10..15));
    world.drain();
    world.settle();
    let counts: Vec<(usize, usize)> = world
        .actions(from)
        .iter()
        .map(|action| match action {
            Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) => match &updates[0].addresses {
                AddressesUpdate::Merge(entries) => {
                    let leaving = entries.iter().filter(|entry| entry.services.is_empty()).count();
                    (leaving, entries.len() - leaving)
                }
                AddressesUpdate::Replace(_) | AddressesUpdate::Remove => panic!("{action:?}"),
            },
            Action::Gateway(GatewayRequest::UpdateServices(_) | GatewayRequest::Read)
            | Action::Resource { .. }
            | Action::Service { .. }
            | Action::Pod { .. } => {
                panic!("{action:?}")
            }
        })
        .collect();
    assert_eq!(counts, [(3, 1), (3, 1), (3, 1), (1, 2)]);
}

#[test]
fn what_was_refused_keeps_its_place_in_the_queue() {
    let mut world = world_with(Config { max_entries: 1, ..Config::default() });
    for change in [wanted(A, &[80]), node("n1", "192.168.0.1")] {
        world.tell(change);
    }
    world.drain();
    world.settle();
    world.change(slice("first", A, &[("10.0.0.1", "n1")]));
    world.change(slice("second", A, &[("10.0.0.2", "n1")]));
    world.complete(0, End::Fails(FailureKind::Conflict));
    let from = world.taken.len();
    world.settle();
    let expected = [
        locations(&[("192.168.0.1", replace(&[("10.0.0.1", &[A])]))]),
        locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]),
    ];
    assert_eq!(world.actions(from), expected);
}

#[test]
fn what_may_be_there_is_not_withdrawn_while_the_registration_it_names_is_in_doubt() {
    let mut world = settled([wanted(A, &[80]), node("n1", "192.168.0.1")]);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    world.complete(0, End::UnknownApplied(FailureKind::Transient));
    world.pass_time();
    world.complete(0, End::Fails(FailureKind::NotFound));
    assert_eq!(world.flying(), [services(&[(A, RegistrationUpdate::RegisterInbound)])]);
    world.complete(0, End::UnknownApplied(FailureKind::Transient));
    assert_eq!(world.flying(), Vec::<Action>::new());
    world.change(slice("s", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")]));
    assert_eq!(world.flying(), Vec::<Action>::new());
    world.settle();
    assert_eq!(world.azure.locations[&ip("192.168.0.1")].len(), 2);
}
