//! Small worlds, explored whole: every interleaving of a handful of changes with the ends of operations, with one failure
//! of any kind, one unknown outcome and one restart anywhere.
//!
//! `cargo test -p clb-difftracker explorer -- --nocapture` prints how many states there are. `EXPLORER=full` explores
//! larger worlds, best with `--release`: minutes instead of seconds.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use clb_difftracker::{Change, Config, FailureKind, Intent};

use crate::steps::{KINDS, is_contradiction};
use crate::vocabulary::{A, B, node, pod, service, slice, wanted};
use crate::world::{End, World};

/// One thing that may happen next.
#[derive(Clone, Debug)]
enum Move {
    /// The next change of this stream: each kind of object arrives in its own order.
    Change(usize),
    /// The operation in flight at this place ends so.
    End(usize, End),
    PassTime,
    /// Another process takes over; the bits say which calls in flight were applied.
    Restart(u8),
}

/// A world, and what may still happen to it.
#[derive(Clone)]
struct State {
    world: World,
    /// How many changes of each stream have come.
    delivered: Vec<usize>,
    budget: Budget,
}

/// How much may still go wrong.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Budget {
    failures: usize,
    unknowns: usize,
    restarts: usize,
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
            if state.budget.failures > 0 {
                ends.extend(KINDS.map(End::Fails));
            }
            if state.budget.unknowns > 0 {
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
        // A restart where nothing has happened yet is none.
        if state.budget.restarts > 0 && !state.world.taken.is_empty() {
            let flying = state.world.in_flight.len();
            moves.extend((0..1 << flying.min(2)).map(Move::Restart));
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
                    End::Fails(_) => state.budget.failures -= 1,
                    End::UnknownApplied(_) | End::UnknownNotApplied(_) => state.budget.unknowns -= 1,
                }
                state.world.complete(at, end);
            }
            Move::PassTime => {
                state.world.pass_time();
            }
            Move::Restart(applied) => {
                state.budget.restarts -= 1;
                state.world.restart(config(), applied);
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
    let State { world, delivered, budget } = state;
    let mut hasher = DefaultHasher::new();
    world.tracker.snapshot().hash(&mut hasher);
    world.azure.hash(&mut hasher);
    format!("{:?}", (&world.cluster.services, &world.cluster.pods, &world.cluster.had)).hash(&mut hasher);
    let flying: Vec<String> =
        world.in_flight.iter().map(|operation| format!("{:?}", operation.action)).collect();
    (flying, delivered, budget).hash(&mut hasher);
    hasher.finish()
}

fn config() -> Config {
    Config { max_resource_operations: 2, max_object_operations: 2, ..Config::default() }
}

/// Explores a world whole, and says how many states it has. Writes on Kubernetes objects succeed before anything else
/// happens, unless they are what it is about.
fn explore(name: &str, streams: Vec<Vec<Change>>, budget: Budget, writes_at_once: bool) {
    let mut world = World::new(config());
    world.writes_at_once = writes_at_once;
    // Versions would tell states apart that are the same.
    world.cluster.versions = None;
    let state = State { world, delivered: vec![0; streams.len()], budget };
    let mut explorer = Explorer { streams, seen: BTreeSet::new(), path: Vec::new(), ends: 0 };
    explorer.explore(&state);
    println!("{name}: {} states, {} ends", explorer.seen.len(), explorer.ends);
    assert!(explorer.ends > 0);
}

fn is_full() -> bool {
    std::env::var("EXPLORER").is_ok_and(|value| value == "full")
}

/// Two Services and an outbound one over three pods on two nodes, one of which changes its IP. Each stream arrives in its own
/// order.
fn streams(services: usize, slices: usize, nodes: usize, pods: usize) -> Vec<Vec<Change>> {
    let all_services = [wanted(A, &[80]), service(A, Intent::None), wanted(B, &[80]), wanted(A, &[81])];
    let all_slices = [
        slice("a", A, &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")]),
        slice("a", A, &[("10.0.0.2", "n1")]),
        slice("b", B, &[("10.0.0.2", "n2"), ("10.0.0.3", "n1")]),
    ];
    let all_nodes = [node("n1", "192.168.0.1"), node("n2", "192.168.0.2"), node("n1", "192.168.0.3")];
    let all_pods = [
        pod("p", "gw", true, &[("10.0.0.2", "n1")]),
        pod("p", "gw", false, &[("10.0.0.2", "n1")]),
        pod("q", "gw", true, &[("10.0.0.3", "n1")]),
    ];
    let streams = [
        all_services[..services].to_vec(),
        all_slices[..slices].to_vec(),
        all_nodes[..nodes].to_vec(),
        all_pods[..pods].to_vec(),
    ];
    streams.into_iter().filter(|stream| !stream.is_empty()).collect()
}

fn budget(failures: usize, unknowns: usize, restarts: usize) -> Budget {
    Budget { failures, unknowns, restarts }
}

#[test]
fn a_service_that_comes_and_goes_with_one_failure_and_one_unknown() {
    explore("one Service", streams(2, 1, 1, 0), budget(1, 1, 0), true);
}

#[test]
fn a_service_that_comes_and_goes_with_writes_on_its_object_that_fail() {
    explore("one Service and its object", streams(2, 0, 0, 0), budget(1, 1, 0), false);
}

#[test]
fn a_service_that_comes_and_goes_with_a_restart_anywhere() {
    explore("one Service, restarted", streams(2, 1, 1, 0), budget(0, 0, 1), true);
}

#[test]
fn endpoints_that_move_between_nodes_with_one_failure() {
    explore("moving endpoints", streams(1, 2, 2, 0), budget(1, 0, 0), true);
}

#[test]
fn endpoints_that_move_between_nodes_with_one_unknown() {
    explore("moving endpoints in doubt", streams(1, 2, 3, 0), budget(0, 1, 0), true);
}

#[test]
fn two_services_that_share_a_pod() {
    explore("two Services", streams(3, 3, 2, 0), budget(1, 0, 0), true);
}

#[test]
fn pods_that_come_and_go_with_one_failure() {
    explore("pods", streams(0, 0, 1, 3), budget(1, 0, 0), true);
}

#[test]
fn pods_that_come_and_go_with_one_unknown_and_their_finalizers() {
    explore("pods and finalizers", streams(0, 0, 1, 2), budget(0, 1, 0), false);
}

#[test]
fn pods_that_come_and_go_with_a_restart_anywhere() {
    explore("pods, restarted", streams(0, 0, 1, 2), budget(0, 0, 1), false);
}

#[test]
fn a_pod_in_both_roles() {
    explore("both roles", streams(2, 1, 1, 2), budget(0, 0, 0), true);
}

#[test]
fn larger_worlds_when_asked_for() {
    if !is_full() {
        println!("skipped: EXPLORER is not \"full\"");
        return;
    }
    explore("one Service, two failures and unknowns", streams(2, 2, 3, 0), budget(2, 2, 0), true);
    explore("two Services, one of each", streams(4, 3, 3, 0), budget(1, 1, 0), true);
    explore("two Services, two failures", streams(4, 3, 3, 0), budget(2, 0, 0), true);
    explore("pods, one of each", streams(0, 0, 2, 3), budget(1, 1, 1), false);
    explore("both roles, one of each", streams(2, 2, 2, 3), budget(1, 1, 0), true);
    explore("both roles, restarted", streams(2, 2, 2, 3), budget(0, 0, 1), true);
}
