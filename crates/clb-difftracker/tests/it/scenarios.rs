//! Behaviours one by one, each named after the scenario that asks for it.

use std::net::IpAddr;
use std::time::Duration;

use clb_difftracker::{
    Action, AddressUpdate, AddressesUpdate, Change, Config, Endpoint, EndpointSlice, FailureKind,
    GatewayRequest, Intent, Ip, IpFamily, LoadBalancerSpec, LocationUpdate, Node, NodeName, Notice,
    ObjectKey, Operation, Phase, Reason, RegistrationUpdate, Rejection, ResourceRequest, Service, ServiceId,
    ServiceRef, ServiceUpdate, Timestamp,
};

use crate::steps::{id, spec};
use crate::world::{End, World};

pub(crate) const A: u8 = 1;
pub(crate) const B: u8 = 2;

fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<IpAddr>().unwrap())
}

fn name(service: u8) -> ObjectKey {
    ObjectKey::new("default", format!("service-{service}"))
}

pub(crate) fn service(number: u8, intent: Intent) -> Change {
    Change::ServiceApplied(Service { id: id(number), key: name(number), intent })
}

pub(crate) fn wanted(number: u8, ports: &[u16]) -> Change {
    service(number, Intent::LoadBalancer(spec(IpFamily::V4, ports)))
}

pub(crate) fn slice(slice: &str, service: u8, endpoints: &[(&str, &str)]) -> Change {
    let endpoint =
        |&(address, node): &(&str, &str)| Endpoint { address: ip(address), node: NodeName::new(node) };
    Change::EndpointSliceApplied(EndpointSlice {
        key: ObjectKey::new("default", slice),
        service: ServiceRef::Name(name(service)),
        endpoints: endpoints.iter().map(endpoint).collect(),
    })
}

fn slice_gone(slice: &str) -> Change {
    Change::EndpointSliceGone(ObjectKey::new("default", slice))
}

pub(crate) fn node(node: &str, location: &str) -> Change {
    let ipv4 = Some(location.parse().unwrap());
    Change::NodeApplied(Node { name: NodeName::new(node), ipv4, ipv6: None })
}

fn put_ip(service: u8) -> Action {
    resource(service, ResourceRequest::PutPublicIp(IpFamily::V4))
}

fn put_lb(service: u8, ports: &[u16]) -> Action {
    resource(service, ResourceRequest::PutLoadBalancer(spec(IpFamily::V4, ports)))
}

fn resource(service: u8, request: ResourceRequest) -> Action {
    Action::Resource { service: id(service), request }
}

fn services(updates: &[(u8, RegistrationUpdate)]) -> Action {
    let update = |&(service, registration): &_| ServiceUpdate { service: id(service), registration };
    Action::Gateway(GatewayRequest::UpdateServices(updates.iter().map(update).collect()))
}

fn entries(addresses: &[(&str, &[u8])]) -> Vec<AddressUpdate> {
    let entry = |&(address, services): &(&str, &[u8])| AddressUpdate {
        address: ip(address),
        services: services.iter().copied().map(id).collect(),
    };
    addresses.iter().map(entry).collect()
}

fn locations(updates: &[(&str, AddressesUpdate)]) -> Action {
    let update = |(location, addresses): &(&str, AddressesUpdate)| LocationUpdate {
        location: ip(location),
        addresses: addresses.clone(),
    };
    Action::Gateway(GatewayRequest::UpdateAddressLocations(updates.iter().map(update).collect()))
}

fn replace(addresses: &[(&str, &[u8])]) -> AddressesUpdate {
    AddressesUpdate::Replace(entries(addresses))
}

fn merge(addresses: &[(&str, &[u8])]) -> AddressesUpdate {
    AddressesUpdate::Merge(entries(addresses))
}

fn world() -> World {
    World::new(Config::default())
}

/// A world at rest after these changes.
fn settled(changes: impl IntoIterator<Item = Change>) -> World {
    let mut world = world();
    changes.into_iter().for_each(|change| world.tell(change));
    world.drain();
    world.settle();
    world
}

impl World {
    /// What the changes, taken in together, make the tracker do until it rests.
    fn response(&mut self, changes: impl IntoIterator<Item = Change>) -> Vec<Action> {
        let from = self.taken.len();
        changes.into_iter().for_each(|change| self.tell(change));
        self.drain();
        self.settle();
        self.actions(from)
    }

    fn actions(&self, from: usize) -> Vec<Action> {
        self.taken[from..].iter().map(|operation| operation.action.clone()).collect()
    }

    fn phases(&self, service: u8) -> Vec<Option<Phase>> {
        let phase = |notice: &Notice| match notice {
            Notice::Phase { service: of, to, .. } if *of == id(service) => Some(*to),
            Notice::Phase { .. }
            | Notice::Rejected { .. }
            | Notice::Failed { .. }
            | Notice::Quarantined { .. } => None,
        };
        self.notices.iter().filter_map(phase).collect()
    }

    fn flying(&self) -> Vec<&Action> {
        self.in_flight.iter().map(|operation| &operation.action).collect()
    }
}

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
        services(&[(A, RegistrationUpdate::Register)]),
        locations(&[
            ("192.168.0.1", replace(&[("10.0.0.1", &[A])])),
            ("192.168.0.2", replace(&[("10.0.0.2", &[A])])),
        ]),
    ];
    assert_eq!(actions, expected);
    assert_eq!(world.phases(A), [Some(Phase::Pending), Some(Phase::Creating), Some(Phase::Ready)]);
    let status = world.tracker.status(&id(A)).unwrap();
    assert_eq!((status.phase, status.ingress, status.addresses), (Phase::Ready, Some(ip("20.0.0.1")), 2));
}

#[test]
fn nw_46_services_that_are_ready_share_one_registration_request() {
    let mut world = world();
    let actions = world.response([wanted(A, &[80]), wanted(B, &[80])]);
    let both = services(&[(A, RegistrationUpdate::Register), (B, RegistrationUpdate::Register)]);
    let mut expected = vec![put_ip(A), put_ip(B), put_lb(A, &[80]), put_lb(B, &[80])];
    // A is ready first and goes alone; what becomes ready while that call runs would go together.
    expected.extend([
        services(&[(A, RegistrationUpdate::Register)]),
        services(&[(B, RegistrationUpdate::Register)]),
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

/// A call on the gateway runs, and nothing else.
fn world_with_a_call_in_flight() -> World {
    let mut world = settled([wanted(9, &[80]), node("n9", "192.168.0.9")]);
    world.change(slice("s9", 9, &[("10.0.9.1", "n9")]));
    assert_eq!(world.in_flight.len(), 1);
    world
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
    // sl_29: gone twice, or never known, is nothing.
    assert_eq!(world.response([Change::ServiceGone(id(A)), Change::ServiceGone(id(7))]), []);
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
        (0..steps).filter(|_| !world.in_flight.is_empty()).count();
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
        services(&[(A, RegistrationUpdate::Register)]),
    ];
    assert_eq!(world.response([v6(A)]), expected);
}

#[test]
fn a_service_replaced_under_its_name_hands_over_its_slices() {
    let renamed = |number, intent| Change::ServiceApplied(Service { id: id(number), key: name(A), intent });
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
            endpoints: [Endpoint { address: ip("10.0.0.1"), node: NodeName::new("n1") }]
                .into_iter()
                .collect(),
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
        Action::Gateway(GatewayRequest::UpdateServices(_)) | Action::Resource { .. } => false,
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
    assert!(world.taken.len() - from <= 2 * 4 + 3);
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
    assert_eq!(world.flying(), Vec::<&Action>::new());
    assert_eq!(world.tracker.poll_timeout(), Some((Timestamp::from_millis(42_000), Reason::Throttled)));
    assert_eq!(world.tracker.status(&id(A)).unwrap().failures, 0);
    world.pass_time();
    assert_eq!(world.flying(), [&put_ip(A), &put_ip(B)]);
}

#[test]
fn rt_01_churn_does_not_cut_a_backoff_short() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Transient));
    for port in 82..90 {
        world.change(wanted(A, &[port]));
        assert_eq!(world.flying(), Vec::<&Action>::new());
    }
    world.pass_time();
    assert_eq!(world.flying(), [&put_lb(A, &[89])]);
}

#[test]
fn rt_04_an_invalid_spec_is_parked_until_it_changes() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Invalid));
    // rt_05: the same spec again is no change.
    world.change(wanted(A, &[81]));
    assert_eq!(world.flying(), Vec::<&Action>::new());
    assert_eq!(world.phases(A).last(), Some(&Some(Phase::Retrying)));
    world.change(wanted(A, &[82]));
    assert_eq!(world.flying(), [&put_lb(A, &[82])]);
    world.settle();
}

#[test]
fn rt_06_a_delete_does_not_wait_for_a_parked_update() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(wanted(A, &[81]));
    world.complete(0, End::Fails(FailureKind::Quota));
    world.change(Change::ServiceGone(id(A)));
    assert_eq!(world.flying(), [&services(&[(A, RegistrationUpdate::ClearPool)])]);
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
fn nw_26_a_service_still_referenced_is_tried_again_later() {
    let mut world = settled([wanted(A, &[80])]);
    world.change(Change::ServiceGone(id(A)));
    world.complete(0, End::Succeeds);
    world.complete(0, End::Succeeds);
    world.complete(0, End::Fails(FailureKind::StillReferenced));
    assert_eq!(world.flying(), Vec::<&Action>::new());
    assert_eq!(world.phases(A).last(), Some(&Some(Phase::Retrying)));
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
    let mut world = World::new(config);
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
    let flying: Vec<Action> = world.flying().into_iter().cloned().collect();
    world.tracker.handle_outcome(operation.id, crate::world::done(), world.now);
    world.drain();
    assert_eq!(world.flying(), flying.iter().collect::<Vec<_>>());
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
    assert_eq!(world.flying(), [&services(&[(A, RegistrationUpdate::Register)])]);
    world.settle();
    let addition = locations(&[("192.168.0.1", merge(&[("10.0.0.2", &[A])]))]);
    assert_eq!(
        world.actions(from),
        [addition.clone(), services(&[(A, RegistrationUpdate::Register)]), addition]
    );
}

#[test]
fn changes_within_a_window_share_a_call_and_calls_keep_their_distance() {
    let config = Config {
        batch_window: Duration::from_millis(300),
        min_interval: Duration::from_secs(2),
        ..Config::default()
    };
    let mut world = World::new(config);
    world.tell(wanted(A, &[80]));
    world.tell(node("n1", "192.168.0.1"));
    world.drain();
    world.settle();
    let (from, start) = (world.taken.len(), world.now);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    world.change(slice("t", A, &[("10.0.0.2", "n1")]));
    assert_eq!(world.flying(), Vec::<&Action>::new());
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
    assert_eq!(world.flying(), Vec::<&Action>::new());
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
    let key = |name: &str| ObjectKey::new("default", name);
    world.change(slice("s", A, &[("10.0.0.1", "n1")]));
    assert_eq!(world.tracker.explain_address(first), [Explanation::NoService { slice: key("s") }]);
    world.change(wanted(A, &[80]));
    let waiting =
        Explanation::WaitingForNode { slice: key("s"), node: NodeName::new("n1"), family: IpFamily::V4 };
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
    let mut world = World::new(Config { max_entries: 4, ..Config::default() });
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
            Action::Gateway(GatewayRequest::UpdateServices(_)) | Action::Resource { .. } => {
                panic!("{action:?}")
            }
        })
        .collect();
    assert_eq!(counts, [(3, 1), (3, 1), (3, 1), (1, 2)]);
}

#[test]
fn what_was_refused_keeps_its_place_in_the_queue() {
    let mut world = World::new(Config { max_entries: 1, ..Config::default() });
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
