//! Small worlds, explored whole: every interleaving of a handful of changes with the ends of operations, with one failure
//! of any kind and one unknown outcome anywhere.
//!
//! `cargo test -p clb-difftracker explorer -- --nocapture` prints how many states there are. `EXPLORER=full` explores
//! larger worlds, best with `--release`: minutes instead of seconds.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use clb_difftracker::{Change, Config, FailureKind, Intent};

use crate::steps::{KINDS, is_contradiction};
use crate::vocabulary::{A, B, node, service, slice, wanted};
use crate::world::{End, World};

/// One thing that may happen next.
#[derive(Clone, Debug)]
enum Move {
    /// The next change of this stream: each kind of object arrives in its own order.
    Change(usize),
    /// The operation in flight at this place ends so.
    End(usize, End),
    PassTime,
}

/// A world, and what may still happen to it.
#[derive(Clone)]
struct State {
    world: World,
    /// How many changes of each stream have come.
    delivered: Vec<usize>,
    failures: usize,
    unknowns: usize,
}

struct Explorer {
    streams: Vec<Vec<Change>>,
    seen: BTreeSet<u64>,
    path: Vec<Move>,
    ends: usize,
}

impl Explorer {
    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves: Vec<Move> = (0..self.streams.len())
            .filter(|&stream| state.delivered[stream] < self.streams[stream].len())
            .map(Move::Change)
            .collect();
        for at in 0..state.world.in_flight.len() {
            let mut ends = vec![End::Succeeds];
            if state.failures > 0 {
                ends.extend(KINDS.map(End::Fails));
            }
            if state.unknowns > 0 {
                ends.extend([
                    End::UnknownApplied(FailureKind::Transient),
                    End::UnknownNotApplied(FailureKind::Transient),
                ]);
            }
            ends.retain(|end| !is_contradiction(&state.world, at, *end));
            moves.extend(ends.into_iter().map(|end| Move::End(at, end)));
        }
        if state.world.tracker.poll_timeout().is_some() {
            moves.push(Move::PassTime);
        }
        moves
    }

    fn take(&self, state: &mut State, step: &Move) {
        match *step {
            Move::Change(stream) => {
                let change = self.streams[stream][state.delivered[stream]].clone();
                state.delivered[stream] += 1;
                state.world.change(change);
            }
            Move::End(at, end) => {
                match end {
                    End::Succeeds => {}
                    End::Fails(_) => state.failures -= 1,
                    End::UnknownApplied(_) | End::UnknownNotApplied(_) => state.unknowns -= 1,
                }
                state.world.complete(at, end);
            }
            Move::PassTime => {
                state.world.pass_time();
            }
        }
    }

    /// Goes on from a state in every way. Where nothing more can happen, Azure must equal the cluster.
    fn explore(&mut self, state: &State) {
        if !self.seen.insert(fingerprint(state)) {
            return;
        }
        let moves = self.moves(state);
        if moves.is_empty() {
            self.ends += 1;
            let mut last = state.world.clone();
            self.guarded(|| last.settle());
            return;
        }
        for step in moves {
            let mut next = state.clone();
            self.path.push(step.clone());
            self.guarded(|| self.take(&mut next, &step));
            self.explore(&next);
            self.path.pop();
        }
    }

    /// Prints the way here if something is wrong.
    fn guarded(&self, check: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
            println!("streams: {:#?}\nthis breaks it: {:#?}", self.streams, self.path);
            resume_unwind(panic);
        }
    }
}

/// Everything that decides what may still happen.
fn fingerprint(state: &State) -> u64 {
    let State { world, delivered, failures, unknowns } = state;
    let mut hasher = DefaultHasher::new();
    world.tracker.snapshot().hash(&mut hasher);
    world.azure.hash(&mut hasher);
    format!("{:?}", (&world.cluster.services, &world.cluster.pods, &world.cluster.had)).hash(&mut hasher);
    let flying: Vec<String> =
        world.in_flight.iter().map(|operation| format!("{:?}", operation.action)).collect();
    (flying, delivered, failures, unknowns).hash(&mut hasher);
    hasher.finish()
}

/// Explores a world whole, and says how many states it has.
fn explore(name: &str, streams: Vec<Vec<Change>>, failures: usize, unknowns: usize) {
    let mut world = World::new(Config { max_resource_operations: 2, ..Config::default() });
    // Versions would tell states apart that are the same.
    world.cluster.versions = None;
    let state = State { world, delivered: vec![0; streams.len()], failures, unknowns };
    let mut explorer = Explorer { streams, seen: BTreeSet::new(), path: Vec::new(), ends: 0 };
    explorer.explore(&state);
    println!("{name}: {} states, {} ends", explorer.seen.len(), explorer.ends);
    assert!(explorer.ends > 0);
}

fn is_full() -> bool {
    std::env::var("EXPLORER").is_ok_and(|value| value == "full")
}

fn pod(service: u8, name: &str, endpoints: &[(&str, &str)]) -> Change {
    slice(name, service, endpoints)
}

/// Two Services over three pods on two nodes, one of which changes its IP.
fn streams(services: usize, slices: usize, nodes: usize) -> Vec<Vec<Change>> {
    let all_services = [wanted(A, &[80]), service(A, Intent::None), wanted(B, &[80]), wanted(A, &[81])];
    let all_slices = [
        pod(A, "a", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]),
        pod(A, "a", &[("10.0.0.2", "n1")]),
        pod(B, "b", &[("10.0.0.2", "n2"), ("10.0.0.3", "n1")]),
    ];
    let all_nodes = [node("n1", "192.168.0.1"), node("n2", "192.168.0.2"), node("n1", "192.168.0.3")];
    vec![all_services[..services].to_vec(), all_slices[..slices].to_vec(), all_nodes[..nodes].to_vec()]
}

#[test]
fn a_service_that_comes_and_goes_with_one_failure_and_one_unknown() {
    explore("one Service", streams(2, 1, 1), 1, 1);
}

#[test]
fn endpoints_that_move_between_nodes_with_one_failure() {
    explore("moving endpoints", streams(1, 2, 2), 1, 0);
}

#[test]
fn endpoints_that_move_between_nodes_with_one_unknown() {
    explore("moving endpoints in doubt", streams(1, 2, 3), 0, 1);
}

#[test]
fn two_services_that_share_a_pod() {
    explore("two Services", streams(3, 3, 2), 1, 0);
}

#[test]
fn larger_worlds_when_asked_for() {
    if !is_full() {
        println!("skipped: EXPLORER is not \"full\"");
        return;
    }
    explore("one Service, two failures and unknowns", streams(2, 2, 3), 2, 2);
    explore("two Services, one failure and one unknown", streams(4, 3, 3), 1, 1);
    explore("two Services, two failures", streams(4, 3, 3), 2, 0);
}
