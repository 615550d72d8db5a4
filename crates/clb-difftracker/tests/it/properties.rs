//! Random clusters, random changes, random ends of operations: the rules hold at every step, and at quiet Azure equals
//! the cluster.

use std::net::IpAddr;
use std::time::Duration;

use clb_difftracker::{
    Action, Change, Config, Endpoint, EndpointSlice, FailureKind, FrontendPort, GatewayRequest, IdleTimeout,
    Intent, Ip, IpFamily, Kind, LoadBalancerSpec, Node, NodeName, ObjectKey, Protocol, RegistrationUpdate,
    Rejection, ResourceRequest, Rule, Service, ServiceId, ServiceRef,
};
use proptest::prelude::*;
use std::num::NonZeroU16;

use crate::world::{End, World};

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    /// Several at once, before anything is taken.
    Burst(Vec<Change>),
    /// A list of this kind, from which some objects are missing: by position, those whose bit is set.
    Relist(Kind, u8),
    Complete(usize, End),
    PassTime,
}

pub(crate) fn id(number: u8) -> ServiceId {
    ServiceId::new(&format!("00000000-0000-0000-0000-0000000000{number:02}")).unwrap()
}

fn key(number: u8) -> ObjectKey {
    ObjectKey::new("default", format!("name-{number}"))
}

fn ip(number: u8) -> Ip {
    // The last two are IPv6.
    match number {
        0..4 => Ip::from(IpAddr::from([10, 0, 0, number])),
        _ => Ip::from(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)])),
    }
}

pub(crate) fn spec(family: IpFamily, ports: &[u16]) -> LoadBalancerSpec {
    let rule = |&port: &u16| Rule {
        protocol: Protocol::Tcp,
        frontend_port: FrontendPort::new(port).unwrap(),
        backend_port: NonZeroU16::new(port).unwrap(),
    };
    LoadBalancerSpec::new(family, IdleTimeout::default(), ports.iter().map(rule).collect()).unwrap()
}

fn intents() -> impl Strategy<Value = Intent> {
    prop_oneof![
        3 => Just(Intent::LoadBalancer(spec(IpFamily::V4, &[80]))),
        1 => Just(Intent::LoadBalancer(spec(IpFamily::V4, &[80, 443]))),
        1 => Just(Intent::LoadBalancer(spec(IpFamily::V6, &[80]))),
        1 => Just(Intent::Rejected(Rejection { reason: "UnsupportedDualStack".into(), message: "no".into() })),
        1 => Just(Intent::None),
    ]
}

fn refs() -> impl Strategy<Value = ServiceRef> {
    prop_oneof![
        4 => (0..2u8).prop_map(|name| ServiceRef::Name(key(name))),
        1 => (0..4u8).prop_map(|uid| ServiceRef::Uid { namespace: "default".to_string(), id: id(uid) }),
    ]
}

fn node_name(number: u8) -> NodeName {
    NodeName::new(format!("node-{number}"))
}

fn changes() -> impl Strategy<Value = Change> {
    let endpoint =
        (0..6u8, 0..3u8).prop_map(|(address, node)| Endpoint { address: ip(address), node: node_name(node) });
    let slice =
        (0..4u8, refs(), prop::collection::vec(endpoint, 0..4)).prop_map(|(name, service, endpoints)| {
            Change::EndpointSliceApplied(EndpointSlice {
                key: key(name),
                service,
                endpoints: endpoints.into_iter().collect(),
            })
        });
    let node = (0..3u8, prop::option::of(0..3u8), prop::option::of(0..2u8)).prop_map(|(name, v4, v6)| {
        Change::NodeApplied(Node {
            name: node_name(name),
            ipv4: v4.map(|last| [192, 168, 0, last].into()),
            ipv6: v6.map(|last| [0xfd01, 0, 0, 0, 0, 0, 0, u16::from(last)].into()),
        })
    });
    prop_oneof![
        // The UID says which name it bears, as in a cluster, where an object never changes its name.
        4 => (0..4u8, intents()).prop_map(|(uid, intent)| {
            Change::ServiceApplied(Service { id: id(uid), key: key(uid % 2), intent })
        }),
        1 => (0..4u8).prop_map(|uid| Change::ServiceGone(id(uid))),
        6 => slice,
        1 => (0..4u8).prop_map(|name| Change::EndpointSliceGone(key(name))),
        3 => node,
        1 => (0..3u8).prop_map(|name| Change::NodeGone(node_name(name))),
    ]
}

fn ends() -> impl Strategy<Value = End> {
    let kinds = || {
        prop_oneof![
            Just(FailureKind::Throttled { retry_after: None }),
            Just(FailureKind::Throttled { retry_after: Some(Duration::from_secs(17)) }),
            Just(FailureKind::Conflict),
            Just(FailureKind::Transient),
            Just(FailureKind::Invalid),
            Just(FailureKind::NotFound),
            Just(FailureKind::Forbidden),
            Just(FailureKind::Quota),
            Just(FailureKind::StillReferenced),
        ]
    };
    let unknown =
        || prop_oneof![3 => Just(FailureKind::Transient), 1 => Just(FailureKind::Invalid), 1 => kinds()];
    // What NRP says to be wrong with the content it has not applied.
    let applied = || prop_oneof![3 => Just(FailureKind::Transient), 1 => Just(FailureKind::Conflict), 1 => Just(FailureKind::Quota)];
    prop_oneof![
        6 => Just(End::Succeeds),
        2 => kinds().prop_map(End::Fails),
        1 => applied().prop_map(End::UnknownApplied),
        1 => unknown().prop_map(End::UnknownNotApplied),
    ]
}

fn steps(ends: impl Strategy<Value = End>) -> impl Strategy<Value = Vec<Step>> {
    let kinds = prop_oneof![Just(Kind::Service), Just(Kind::EndpointSlice), Just(Kind::Node)];
    let step = prop_oneof![
        6 => changes().prop_map(Step::Change),
        2 => prop::collection::vec(changes(), 1..6).prop_map(Step::Burst),
        1 => (kinds, any::<u8>()).prop_map(|(kind, missing)| Step::Relist(kind, missing)),
        8 => (0..4usize, ends).prop_map(|(index, end)| Step::Complete(index, end)),
        1 => Just(Step::PassTime),
    ];
    prop::collection::vec(step, 1..60)
}

fn configs() -> impl Strategy<Value = Config> {
    let entries = prop_oneof![Just(1), Just(2), Just(3), Just(5_000)];
    let bytes = prop_oneof![Just(1), Just(400), Just(2 * 1024 * 1024)];
    let pauses = || prop_oneof![3 => Just(Duration::ZERO), 1 => Just(Duration::from_millis(500))];
    let limits = (entries, bytes, 1..4usize, 1..3usize);
    (limits, pauses(), pauses(), any::<u64>()).prop_map(|(limits, batch_window, min_interval, seed)| {
        let (max_entries, max_bytes, max_services, max_resource_operations) = limits;
        Config {
            max_entries,
            max_bytes,
            max_services,
            batch_window,
            min_interval,
            max_resource_operations,
            seed,
            ..Config::default()
        }
    })
}

fn walk(config: Config, steps: &[Step]) -> World {
    let mut world = World::new(config);
    for step in steps {
        match step {
            Step::Change(change) => world.change(change.clone()),
            Step::Burst(changes) => {
                changes.iter().for_each(|change| world.tell(change.clone()));
                world.drain();
            }
            Step::Relist(kind, missing) => relist(&mut world, *kind, *missing),
            Step::Complete(index, end) => {
                if !world.in_flight.is_empty() {
                    let index = index % world.in_flight.len();
                    let end = if is_contradiction(&world, index, *end) { End::Succeeds } else { *end };
                    world.complete(index, end);
                }
            }
            Step::PassTime => {
                world.pass_time();
            }
        }
    }
    world
}

/// An end that could not be: content refused as wrong that Azure holds, or the deletion of what is there refused for want of
/// it. (Any other 404 is possible: the server may be mistaken.)
pub(crate) fn is_contradiction(world: &World, index: usize, end: End) -> bool {
    let (End::Fails(kind) | End::UnknownApplied(kind) | End::UnknownNotApplied(kind)) = end else {
        return false;
    };
    let action = &world.in_flight[index].action;
    let is_held = world.azure.holds(action);
    let is_deletion = match action {
        Action::Resource {
            request: ResourceRequest::DeleteLoadBalancer | ResourceRequest::DeletePublicIp,
            ..
        } => true,
        Action::Gateway(GatewayRequest::UpdateServices(updates)) => {
            updates.iter().all(|update| update.registration == RegistrationUpdate::Unregister)
        }
        Action::Resource { .. } | Action::Gateway(GatewayRequest::UpdateAddressLocations(_)) => false,
    };
    match kind {
        FailureKind::NotFound => is_deletion && !is_held,
        FailureKind::Invalid | FailureKind::StillReferenced => is_held && !is_deletion,
        FailureKind::Throttled { .. }
        | FailureKind::Conflict
        | FailureKind::Transient
        | FailureKind::Forbidden
        | FailureKind::Quota => false,
    }
}

fn relist(world: &mut World, kind: Kind, missing: u8) {
    let list = world.cluster.list(kind);
    let items = list.len() - 2;
    for (at, change) in list.into_iter().enumerate() {
        let is_missing = (1..=items).contains(&at) && missing & (1 << ((at - 1) % 8)) != 0;
        if !is_missing {
            world.tell(change);
            continue;
        }
        let gone = match change {
            Change::ServiceApplied(service) => Change::ServiceGone(service.id),
            Change::EndpointSliceApplied(slice) => Change::EndpointSliceGone(slice.key),
            Change::NodeApplied(node) => Change::NodeGone(node.name),
            Change::ServiceGone(_)
            | Change::EndpointSliceGone(_)
            | Change::NodeGone(_)
            | Change::ResyncBegin(_)
            | Change::ResyncDone(_) => continue,
        };
        world.cluster.apply(&gone);
    }
    world.drain();
}

/// A thousand cases each, or as many as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 1_000 };
    // Some properties pass over inputs that they say nothing of.
    ProptestConfig { cases, max_global_rejects: u32::MAX, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_the_rules_hold_and_at_quiet_azure_equals_the_cluster(
        config in configs(),
        steps in steps(ends()),
    ) {
        walk(config, &steps).settle();
    }

    #[test]
    fn a_list_of_what_is_known_causes_no_operation(config in configs(), steps in steps(Just(End::Succeeds))) {
        let mut world = walk(config, &steps);
        world.settle();
        let taken = world.taken.len();
        for kind in [Kind::Node, Kind::EndpointSlice, Kind::Service] {
            relist(&mut world, kind, 0);
        }
        prop_assert_eq!(&world.taken[taken..], &[]);
        world.settle();
    }

    #[test]
    fn a_fresh_start_at_the_last_state_gives_what_the_walk_gave(
        steps in steps(ends()),
        order in Just([Kind::Node, Kind::EndpointSlice, Kind::Service]).prop_shuffle(),
    ) {
        let mut walked = walk(Config::default(), &steps);
        walked.settle();
        // Where the cluster contradicts itself, the order of events decides by design.
        prop_assume!(!walked.cluster.is_ambiguous() && !walked.cluster.rejects());
        let mut fresh = World::new(Config::default());
        for change in order.into_iter().flat_map(|kind| walked.cluster.list(kind)) {
            fresh.change(change);
        }
        fresh.settle();
        prop_assert_eq!(fresh.azure, walked.azure);
    }

    #[test]
    fn equal_histories_give_equal_operations(config in configs(), steps in steps(ends())) {
        let taken = || walk(config.clone(), &steps).taken;
        prop_assert_eq!(taken(), taken());
    }
}
