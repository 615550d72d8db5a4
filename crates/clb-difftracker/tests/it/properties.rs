//! Random clusters, random changes, random ends of operations: the rules hold at every step, and at quiet Azure equals
//! the cluster.

use std::time::Duration;

use clb_difftracker::{Change, Condition, Config, FailureKind, Intent, IpFamily, ServiceRef};
use proptest::prelude::*;

use crate::steps::{
    Drift, KINDS, LISTS, Step, egress, endpoint, from_bytes, id, key, node_name, pod, pod_ref, rejected,
    relist, service, slice, spec, walk,
};
use crate::world::{End, World};

fn intents() -> impl Strategy<Value = Intent> {
    prop_oneof![
        3 => Just(Intent::LoadBalancer(spec(IpFamily::V4, &[80]))),
        1 => Just(Intent::LoadBalancer(spec(IpFamily::V4, &[80, 443]))),
        1 => Just(Intent::LoadBalancer(spec(IpFamily::V6, &[80]))),
        1 => Just(rejected()),
        1 => Just(Intent::None),
    ]
}

fn refs() -> impl Strategy<Value = ServiceRef> {
    prop_oneof![
        4 => (0..2u8).prop_map(|name| ServiceRef::Name(key(name))),
        1 => (0..4u8).prop_map(|uid| ServiceRef::Uid { namespace: "default".to_string(), id: id(uid) }),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let condition = prop_oneof![
        3 => Just(Condition::Ready), 1 => Just(Condition::Terminating), 1 => Just(Condition::Unreachable)
    ];
    let endpoint =
        (0..6u8, 0..3u8, condition).prop_map(|(address, node, condition)| endpoint(address, node, condition));
    let endpoints = || prop::collection::vec(endpoint.clone(), 0..4);
    let pod = (
        0..4u8,
        prop::option::weighted(0.8, (0..3u8).prop_map(egress)),
        prop::bool::weighted(0.75),
        endpoints(),
    )
        .prop_map(|(uid, egress, is_live, endpoints)| pod(uid, egress, is_live, endpoints));
    let slice =
        (0..4u8, refs(), endpoints()).prop_map(|(name, service, endpoints)| slice(name, service, endpoints));
    let node = (0..3u8, prop::option::of(0..3u8), prop::option::of(0..2u8));
    prop_oneof![
        4 => (0..4u8, intents()).prop_map(|(uid, intent)| service(uid, intent)),
        1 => (0..4u8).prop_map(|uid| Change::ServiceGone(id(uid))),
        6 => slice,
        1 => (0..4u8).prop_map(|name| Change::EndpointSliceGone(key(name))),
        3 => node.prop_map(|(name, v4, v6)| super::steps::node(name, v4, v6)),
        1 => (0..3u8).prop_map(|name| Change::NodeGone(node_name(name))),
        6 => pod,
        1 => (0..4u8).prop_map(|uid| Change::PodGone(pod_ref(uid))),
    ]
}

fn drifts() -> impl Strategy<Value = Drift> {
    (0..Drift::KINDS, any::<u8>()).prop_map(|(kind, at)| Drift::new(kind, at))
}

fn ends() -> impl Strategy<Value = End> {
    let kinds = || prop::sample::select(KINDS.to_vec());
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
    let kinds = prop::sample::select(LISTS.to_vec());
    let step = prop_oneof![
        8 => changes().prop_map(Step::Change),
        2 => prop::collection::vec(changes(), 1..6).prop_map(Step::Burst),
        1 => (kinds, any::<u8>()).prop_map(|(kind, missing)| Step::Relist(kind, missing)),
        10 => (0..4usize, ends).prop_map(|(index, end)| Step::Complete(index, end)),
        1 => Just(Step::PassTime),
        1 => Just(Step::BeginReading),
        1 => Just(Step::EndReading),
        1 => drifts().prop_map(Step::Drift),
        1 => any::<u8>().prop_map(Step::Restart),
        1 => any::<prop::sample::Index>().prop_map(|at| Step::Stale(at.index(1_000))),
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
        walk(&config, &steps).settle();
    }

    #[test]
    fn a_list_of_what_is_known_causes_no_operation(config in configs(), steps in steps(Just(End::Succeeds))) {
        let mut world = walk(&config, &steps);
        world.settle();
        let taken = world.taken.len();
        for kind in LISTS {
            relist(&mut world, kind, 0);
        }
        world.begin_reading();
        world.end_reading();
        prop_assert_eq!(&world.taken[taken..], &[]);
        world.settle();
    }

    #[test]
    fn a_fresh_start_at_the_last_state_gives_what_the_walk_gave(
        steps in steps(ends()),
        order in Just(LISTS).prop_shuffle(),
    ) {
        let mut walked = walk(&Config::default(), &steps);
        walked.settle();
        // Where the cluster contradicts itself, the order of events decides by design.
        prop_assume!(!walked.cluster.is_ambiguous() && !walked.cluster.rejects());
        // What others did, and a second public IP that outlived the last IPv6 node, are not in the cluster.
        prop_assume!(walked.azure.foreign.is_empty() && walked.azure.second_public_ips.is_empty());
        let mut fresh = World::new(Config::default());
        for change in order.into_iter().flat_map(|kind| walked.cluster.list(kind)) {
            fresh.change(change);
        }
        fresh.settle();
        prop_assert_eq!(fresh.azure, walked.azure);
    }

    #[test]
    fn equal_histories_give_equal_operations(config in configs(), steps in steps(ends())) {
        let taken = || walk(&config, &steps).taken;
        prop_assert_eq!(taken(), taken());
    }

    #[test]
    fn any_bytes_are_a_walk_that_keeps_the_rules(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (config, steps) = from_bytes(&bytes);
        walk(&config, &steps).settle();
    }
}

/// What the fuzzer started from and found: each is a walk that was worth keeping.
#[test]
fn the_fuzzers_corpus_keeps_the_rules() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/walk");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty(), "{folder} is empty");
    for file in files {
        println!("{}", file.display());
        let (config, steps) = from_bytes(&std::fs::read(&file).unwrap());
        walk(&config, &steps).settle();
    }
}
