//! Every recording ends in its expected state, in the order in which it was recorded and in any other that keeps the order
//! of each resource; and what is in sync stays silent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clb_examples::check::{Held, mismatches};
use clb_examples::run::World;
use clb_sim::SimulatorConfig;
use clb_sim::expected::{self, Expected};
use clb_sim::recording::{self, Entry, FinalLists, Line, Watched};

const COPIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings");
/// Where the full set is, for those who have it.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/recordings");

/// The recordings that come with the examples.
const HERE: [&str; 3] = ["nodes.jsonl", "basic.jsonl", "egress.jsonl"];
/// The others, and how many shuffles each is worth.
const ELSEWHERE: [(&str, u64); 5] = [
    ("scale.jsonl.gz", 2),
    ("dualstack.jsonl", 4),
    ("egress-selector.jsonl", 1),
    ("finalizers.jsonl", 4),
    ("churn.jsonl.gz", 1),
];

struct Recording {
    lines: Vec<Line>,
    expected: Expected,
}

impl Recording {
    fn read(folder: &str, name: &str) -> Self {
        let path = Path::new(folder).join(name);
        let stem = name.split('.').next().unwrap();
        let expected: PathBuf = path.with_file_name(format!("{stem}.expected.json"));
        let expected = if expected.exists() {
            expected::read(&expected).unwrap()
        } else {
            // Of pods alone: nothing inbound, and no node to put an address on.
            let mut expected = expected::read(&path.with_file_name("egress.expected.json")).unwrap();
            expected.load_balancer_services.clear();
            expected.egress.values_mut().for_each(BTreeMap::clear);
            expected
        };
        Self { lines: recording::read(&path).unwrap(), expected }
    }

    /// Replays these lines of it, and says what Azure ends in and what is wrong with that.
    async fn replay(&self, lines: &[Line]) -> (World, Held) {
        let world = World::start(SimulatorConfig::default(), |_| ()).await.unwrap();
        world.replay(lines, 0.0).await.unwrap();
        assert!(world.settle().await.unwrap(), "does not settle");
        let held = Held::read(&world.nrp).await.unwrap();
        let wrong = mismatches(&held, &self.expected, &self.lines);
        assert_eq!(wrong, Vec::<String>::new());
        (world, held)
    }

    /// Replays it as it is, then its last lists once more, then shuffled.
    async fn check(&self, name: &str, shuffles: u64) {
        let (world, held) = self.replay(&self.lines).await;
        let before = world.simulator.counts();
        world.replay(&last_lists(&self.lines), 0.0).await.unwrap();
        assert!(world.settle().await.unwrap());
        assert_eq!(world.simulator.counts(), before, "{name}: the same lists again cause calls");
        world.stop().await;
        for seed in 0..shuffles {
            println!("{name}, shuffled with seed {seed}");
            let (world, shuffled) = self.replay(&shuffle(&self.lines, seed)).await;
            assert_eq!(shuffled, held);
            world.stop().await;
        }
    }
}

fn last_lists(lines: &[Line]) -> Vec<Line> {
    let FinalLists { services, endpoint_slices, nodes, pods } = FinalLists::of(lines);
    let entries = [
        Entry::Pods(Watched::List(pods)),
        Entry::Nodes(Watched::List(nodes)),
        Entry::Services(Watched::List(services)),
        Entry::EndpointSlices(Watched::List(endpoint_slices)),
    ];
    let last = lines.last().unwrap();
    entries.map(|entry| Line { number: last.number, at: last.at, entry }).to_vec()
}

/// The lines in another order that keeps the one of each resource.  Even seeds go to extremes, one resource
/// after the other; odd ones mix.
fn shuffle(lines: &[Line], seed: u64) -> Vec<Line> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut streams: Vec<Vec<Line>> = ["services", "endpointslices", "nodes", "pods"]
        .map(|resource| {
            lines.iter().filter(|line| line.entry.resource() == resource).rev().cloned().collect()
        })
        .to_vec();
    random.shuffle(&mut streams);
    let is_mixed = seed % 2 == 1;
    let mut shuffled = Vec::with_capacity(lines.len());
    while !streams.is_empty() {
        let at = if is_mixed { random.usize(..streams.len()) } else { 0 };
        // Runs of lines, as watches deliver them.
        let run = if is_mixed { random.usize(1..8) } else { usize::MAX };
        let rest = streams[at].len().saturating_sub(run);
        shuffled.extend(streams[at].drain(rest..).rev());
        if streams[at].is_empty() {
            streams.swap_remove(at);
        }
    }
    shuffled
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recordings_that_come_with_the_examples_end_as_expected() {
    for name in HERE {
        Recording::read(COPIED, name).check(name, 4).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_recording_ends_as_expected() {
    if !Path::new(SHARED).exists() {
        println!("skipped: the full set of recordings is not at {SHARED}");
        return;
    }
    for (name, shuffles) in ELSEWHERE {
        Recording::read(SHARED, name).check(name, shuffles).await;
    }
}

#[test]
fn a_shuffle_keeps_every_line_and_the_order_of_each_resource() {
    let lines = Recording::read(COPIED, "nodes.jsonl").lines;
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let shuffled = shuffle(&lines, seed);
        let of = |lines: &[Line], resource| -> Vec<usize> {
            lines.iter().filter(|line| line.entry.resource() == resource).map(|line| line.number).collect()
        };
        for resource in ["services", "endpointslices", "nodes", "pods"] {
            assert_eq!(of(&shuffled, resource), of(&lines, resource));
        }
        assert_eq!(shuffled.len(), lines.len());
        orders.insert(shuffled.iter().map(|line| line.number).collect::<Vec<_>>());
    }
    assert!(orders.len() > 8, "only {} different orders", orders.len());
}
