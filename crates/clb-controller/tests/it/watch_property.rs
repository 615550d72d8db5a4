//! Whatever a real server could do to it, who listens to a watch comes to hold what the store has, and never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clb_controller::kube::WatchConfig;
use clb_controller::watched::WatchEvent;
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{ClusterConfig, KubeConfig, KubeSimulation};
use k8s_openapi::api::core::v1::Service;
use kube::core::ObjectMeta;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::task::LocalSet;

use crate::watching::{create, delete, label, start_with, stored};

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8),
    Label(u8, Option<u8>),
    Delete(u8),
    Ask,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..6_u8).prop_map(Step::Create),
        3 => (0..6_u8, proptest::option::of(0..3_u8)).prop_map(|(name, value)| Step::Label(name, value)),
        2 => (0..6_u8).prop_map(Step::Delete),
        1 => Just(Step::Ask),
        3 => (0..3_000_u64).prop_map(Step::Wait),
    ];
    vec(step, 1..60)
}

/// What can happen to lists and watches. Events that are left out are not among it: no real server forgets one.
fn faults() -> impl Strategy<Value = FaultPlan> {
    let how = prop_oneof![
        (0..4_usize).prop_map(How::EndWatch),
        Just(How::Gone),
        Just(How::Repeat),
        Just(How::LoseRequest),
        Just(How::LoseAnswer),
        (0..3_000_usize).prop_map(How::Truncate),
        (0..4_000_u64).prop_map(How::Delay),
        (0..6_u64).prop_map(How::Stale),
        (1..4_u64).prop_map(|seconds| How::Throttle { seconds }),
        Just(How::Refuse { status: 500, code: "InternalError".to_owned() }),
    ];
    let verb = prop_oneof![Just(None), Just(Some("GET")), Just(Some("WATCH"))];
    vec((1..8_u64, verb, how), 0..10).prop_map(|faults| {
        faults.into_iter().fold(FaultPlan::new(0), |plan, (nth, verb, how)| {
            plan.with(When::Nth(nth), verb.map_or_else(What::default, What::verb), how)
        })
    })
}

/// By name, with uid and version.
type Held = BTreeMap<String, (String, u64)>;

/// What somebody who believes all that is told holds.
#[derive(Default)]
struct Listener {
    held: Held,
    /// What the list that is being told has named.
    listing: Option<BTreeSet<String>>,
    /// The greatest version that each object, by uid, ever had.
    versions: BTreeMap<String, u64>,
    /// The greatest version of all.
    seen: u64,
    lists: u32,
    /// What the store held at each version.
    history: BTreeMap<u64, Held>,
}

impl Listener {
    fn read(&mut self, metadata: &ObjectMeta) -> (String, String, u64) {
        let version = metadata.resource_version.as_deref().unwrap().parse().unwrap();
        let uid = metadata.uid.clone().unwrap();
        let before = self.versions.insert(uid.clone(), version).unwrap_or_default();
        assert!(before <= version, "{uid} went back from version {before} to {version}");
        self.seen = self.seen.max(version);
        (metadata.name.clone().unwrap(), uid, version)
    }

    fn hear(&mut self, event: &WatchEvent<Service>) {
        match event {
            WatchEvent::ListBegan => self.listing = Some(BTreeSet::new()),
            WatchEvent::Applied(service) => {
                let (name, uid, version) = self.read(&service.metadata);
                if let Some(listing) = &mut self.listing {
                    listing.insert(name.clone());
                }
                self.held.insert(name, (uid, version));
            }
            WatchEvent::Deleted(metadata) => {
                assert!(self.listing.is_none());
                let (name, uid, _) = self.read(metadata);
                let gone = self.held.remove(&name);
                assert_eq!(gone.map(|(held, _)| held), Some(uid), "only what was there is deleted");
            }
            WatchEvent::ListDone => {
                let listed = self.listing.take().expect("one that has begun");
                self.held.retain(|name, _| listed.contains(name));
                self.lists += 1;
                // It is what the store held once, and not before the newest that was seen.
                let was = self.history.range(..=self.seen).next_back().map(|(version, _)| *version);
                let mut since = self.history.range(was.unwrap_or_default()..);
                assert!(since.any(|(_, then)| *then == self.held), "{:?} was never, or is older", self.held);
            }
            WatchEvent::Interrupted(_) => self.listing = None,
            WatchEvent::Resumed => assert!(self.listing.is_none()),
            WatchEvent::Malformed { .. } => panic!("{event:?}"),
        }
    }
}

fn held(simulation: &KubeSimulation) -> Held {
    stored(simulation).into_iter().map(|(name, uid, version)| (name, (uid, version))).collect()
}

/// How long it may take once nothing fails any more: as long as a watch that breaks unnoticed may last, and a wait.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(400);

async fn run(steps: Vec<Step>, faults: FaultPlan, history: usize, config: WatchConfig) {
    let settings = KubeConfig { cluster: ClusterConfig { history }, faults, ..KubeConfig::default() };
    let simulation = KubeSimulation::new(settings);
    let listener = Arc::new(Mutex::new(Listener::default()));
    let note = || {
        let version = simulation.with_cluster(|cluster| cluster.version());
        listener.lock().unwrap().history.insert(version, held(&simulation));
    };
    note();
    let hears = listener.clone();
    let watching = start_with(simulation.router(), None, config, async move |event| {
        hears.lock().unwrap().hear(event);
        Ok(())
    });
    let mut asks = 0;
    for step in steps {
        let name = |number: u8| format!("s{number}");
        match step {
            Step::Create(number) => create(&simulation, &name(number)),
            Step::Label(number, value) => {
                label(&simulation, &name(number), value.map(|value| value.to_string()).as_deref());
            }
            Step::Delete(number) => delete(&simulation, &name(number)),
            Step::Ask => {
                asks += 1;
                watching.ask.send_replace(asks);
            }
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
        note();
    }
    simulation.set_faults(FaultPlan::default());
    tokio::time::sleep(CATCHES_UP_WITHIN).await;
    assert!(!watching.task.is_finished(), "it has gone wrong");
    assert_eq!(listener.lock().unwrap().held, held(&simulation));
    assert!(listener.lock().unwrap().lists > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whoever_listens_comes_to_hold_what_the_store_has_and_never_goes_back(
        steps in steps(), faults in faults(), history in 2..60_usize, page_size in 1..5_u32, relist in 2..100_u64, seed: u64
    ) {
        let relist = Duration::from_secs(relist);
        let config = WatchConfig { page_size, relist, seed, ..WatchConfig::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, run(steps, faults, history, config));
    }
}
