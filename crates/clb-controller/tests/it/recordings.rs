//! Recorded clusters, played to the whole controller while its lists and watches go wrong: whatever becomes of them, Azure
//! ends in what the recording ends in, and then nothing more is written, however often everything is listed and read again.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use clb_controller::admission::AdmissionPolicy;
use clb_controller::kube::{ControllerConfig, WatchConfig};
use clb_controller::objects::{POD_FINALIZER, SERVICE_FINALIZER};
use clb_difftracker::{EgressName, Intent};
use clb_sim::expected::{self, Expected, Verdict, Wanted};
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::Kind;
use clb_sim::recording::{self, Line};
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use tokio::time::sleep;

use crate::world::{Held, Replica, World};

/// The recordings that come with the workspace.
const COPIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/recordings");
/// Where the full set is, for those who have it.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/recordings");

/// The lists and watches of all namespaces: single objects are read by those who write, whose faults have tests of their own.
const COLLECTIONS: [&str; 4] =
    ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes", "/api/v1/pods"];
/// How fast is fast: all lines come within a second or two, as after a pause of the watches.
const FAST: f64 = 100.0;
/// For how long it must be silent: many lists and readings of everything.
const SILENCE: Duration = Duration::from_secs(2 * 3_600);

/// What goes wrong, and with which share of lists or watches. Most of them fare well, and nothing is lost without a trace.
fn faults(seed: u64) -> FaultPlan {
    let refuse = How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() };
    let kinds = [
        ("GET", 0.05, How::Gone),
        ("GET", 0.15, How::Stale(100)),
        ("GET", 0.05, How::LoseAnswer),
        ("GET", 0.05, How::Truncate(3_000)),
        ("GET", 0.1, How::Delay(3_000)),
        ("GET", 0.05, refuse.clone()),
        ("WATCH", 0.1, How::Gone),
        ("WATCH", 0.1, How::EndWatch(3)),
        ("WATCH", 0.1, How::Truncate(20_000)),
        ("WATCH", 0.05, How::LoseAnswer),
        ("WATCH", 0.15, How::Repeat),
        ("WATCH", 0.1, How::Delay(2_000)),
        ("WATCH", 0.05, refuse),
    ];
    let mut plan = FaultPlan::new(seed);
    for (verb, share, how) in kinds {
        for path in COLLECTIONS {
            plan = plan.with(When::Probability(share), What::verb(verb).path(path), how.clone());
        }
    }
    plan
}

/// Lists everything every few minutes, and watches anew every minute, so that much can go wrong.
fn config(seed: u64) -> ControllerConfig {
    let watch = WatchConfig {
        relist: Duration::from_secs(240),
        watch_timeout: Duration::from_secs(60),
        ..WatchConfig::default()
    };
    ControllerConfig { watch, ..World::config() }.seeded(seed)
}

struct Recording {
    name: &'static str,
    lines: Vec<Line>,
    expected: Expected,
}

impl Recording {
    fn read(folder: &str, name: &'static str) -> Self {
        let path = Path::new(folder).join(name);
        let stem = name.split('.').next().unwrap();
        let expected = path.with_file_name(format!("{stem}.expected.json"));
        let expected = if expected.exists() {
            expected::read(&expected).unwrap()
        } else {
            // Of pods alone: nothing inbound, and no node to put an address on.
            let mut expected = expected::read(&path.with_file_name("egress.expected.json")).unwrap();
            expected.load_balancer_services.clear();
            expected.egress.values_mut().for_each(std::collections::BTreeMap::clear);
            expected
        };
        Self { name, lines: recording::read(&path).unwrap(), expected }
    }

    /// Plays it, and returns the faults that happened.
    async fn play(&self, seed: u64, speed: f64) -> BTreeSet<String> {
        println!("{} at {speed} times its pace, faults of seed {seed}", self.name);
        let world = World::new();
        world.kube.set_faults(faults(seed));
        let replica = world.start_with(config(seed));
        world.kube.replay(self.lines.iter().cloned().map(Ok), speed).await.unwrap();
        // What follows from the last lines meets faults too.
        sleep(Duration::from_secs(20)).await;
        world.kube.set_faults(FaultPlan::default());
        world.settle(&replica).await;
        self.check(&world).await;
        world.kube.set_faults(faults(seed.wrapping_add(1)));
        stays_silent(&world, &replica).await;
        assert_eq!(replica.stop().await, 0);
        world.kube.injected().into_iter().map(|injected| format!("{:?}", injected.how)).collect()
    }

    /// Whether both sides are what the recording ends in.
    async fn check(&self, world: &World) {
        let policy = AdmissionPolicy::default();
        let verdict = |service: &Service| match policy.admit(service).intent {
            Intent::LoadBalancer(_) => Verdict::Admitted,
            Intent::Rejected(_) => Verdict::Rejected,
            Intent::None => Verdict::Ignored,
        };
        let wanted = Wanted::of(&self.expected, &self.lines, verdict, |name| EgressName::new(name).is_ok());
        let held = world.held().await;
        assert_eq!(wanted.mismatches(&as_expected(held)), Vec::<String>::new());
        let told = world.kube.with_cluster(|cluster| {
            let services = cluster.objects(Kind::Service).filter(|it| is_held_by(it, SERVICE_FINALIZER));
            let served: BTreeSet<String> = services
                .filter(|service| !wanted.may_keep(&uid(service)))
                .map(|service| {
                    assert_ne!(
                        service["status"]["loadBalancer"]["ingress"][0]["ip"],
                        Value::Null,
                        "{service}"
                    );
                    uid(service)
                })
                .collect();
            let mut pods = cluster.objects(Kind::Pod).filter(|it| is_held_by(it, POD_FINALIZER));
            let left_over = pods.find(|pod| !pod["metadata"]["deletionTimestamp"].is_null()).cloned();
            (served, left_over)
        });
        assert_eq!(told, (wanted.inbound().map(str::to_owned).collect(), None));
    }

    /// Plays it with the faults of so many seeds at its own pace, and of one more fast. Returns the faults that happened.
    async fn check_all(&self, seeds: u64) -> BTreeSet<String> {
        let mut injected = self.play(seeds, FAST).await;
        for seed in 0..seeds {
            injected.append(&mut self.play(seed, 1.0).await);
        }
        injected
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_ascii_lowercase()
}

fn is_held_by(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|held| held.iter().any(|it| it == finalizer))
}

fn as_expected(held: Held) -> expected::Held {
    let Held { services, load_balancers, nat_gateways, public_ips, addresses: backings } = held;
    expected::Held { services, load_balancers, nat_gateways, public_ips, backings }
}

/// Nothing is written on either side for long, though everything is listed and read again and again.
async fn stays_silent(world: &World, replica: &Replica) {
    let mut calls = world.kube.subscribe();
    let before = (world.azure.counts(), world.azure_writes(), replica.status.borrow().drift);
    sleep(SILENCE).await;
    let mut lists = 0;
    // Whoever asked so often that the oldest were lost has asked far too often.
    while let Some(heard) = calls.try_recv().map(Some).or_else(nothing_more).unwrap() {
        match heard.call.verb.as_str() {
            "WATCH" => {}
            "GET" => lists += usize::from(COLLECTIONS.contains(&heard.call.path.as_str())),
            _ => panic!("{heard:?}"),
        }
    }
    // Five sets, every eight minutes at the least.
    assert!(lists >= 5 * 15, "{lists} lists");
    let after = (world.azure_writes(), replica.status.borrow().drift);
    assert_eq!(after, (before.1, before.2));
    assert!(world.azure.counts().get > before.0.get + 11, "Azure is not read");
    assert!(replica.status.borrow().is_synced);
}

fn nothing_more<T>(error: tokio::sync::broadcast::error::TryRecvError) -> Result<Option<T>, String> {
    if error == tokio::sync::broadcast::error::TryRecvError::Empty {
        Ok(None)
    } else {
        Err(error.to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn the_recordings_that_come_with_the_workspace_end_as_expected_whatever_becomes_of_the_watches() {
    let mut injected = BTreeSet::new();
    for name in ["nodes.jsonl", "basic.jsonl", "egress.jsonl"] {
        injected.append(&mut Recording::read(COPIED, name).check_all(4).await);
    }
    let planned: BTreeSet<String> = faults(0).faults.iter().map(|fault| format!("{:?}", fault.how)).collect();
    assert_eq!(injected, planned);
}

/// Plays a recording of the full set, where that is.
async fn check_shared(name: &'static str, seeds: u64) {
    if Path::new(SHARED).exists() {
        Recording::read(SHARED, name).check_all(seeds).await;
    } else {
        println!("skipped: the full set of recordings is not at {SHARED}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_families_end_as_expected_whatever_becomes_of_the_watches() {
    check_shared("dualstack.jsonl", 3).await;
}

#[tokio::test(start_paused = true)]
async fn services_that_finalizers_hold_end_as_expected_whatever_becomes_of_the_watches() {
    check_shared("finalizers.jsonl", 4).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_lose_their_label_end_as_expected_whatever_becomes_of_the_watches() {
    check_shared("egress-selector.jsonl", 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_grows_and_shrinks_ends_as_expected_whatever_becomes_of_the_watches() {
    check_shared("scale.jsonl.gz", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_200_services_in_turmoil_ends_as_expected_whatever_becomes_of_the_watches() {
    check_shared("churn.jsonl.gz", 1).await;
}
