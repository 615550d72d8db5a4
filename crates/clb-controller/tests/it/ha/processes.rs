//! Replicas as processes.
//!
//! Each has a runtime of its own, and with it a virtual clock of its own; the servers have one too. All take turns of [`TURN`], so
//! that everything happens in one thread and in one order. A process that is paused gets no turns: no task and no timer of it
//! is polled, whatever arrives for it, and when it goes on its clock jumps by what it missed before anything else is done. That
//! is what happens to a process that is stopped by a signal, or whose host stalls. One that is killed is dropped with all its
//! tasks; what it has sent arrives all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clb_controller::kube::ControllerConfig;
use clb_controller::lease::LeaseConfig;
use clb_controller::{Status, WallClock};
use clb_sim::SimulatorConfig;
use clb_sim::kube::KubeConfig;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, advance, sleep};

use super::network::{Link, Network, ToAzure, Wire};
use crate::world::{Held, Replica, SECOND, World};

/// How long a turn is; a request takes up to one to arrive, and its answer another.
pub(crate) const TURN: Duration = Duration::from_millis(50);
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// A retry period with all its jitter.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_millis(2_400);

/// How long Azure takes to answer.
const LATENCY: Duration = Duration::from_millis(150);
/// How long nothing may be written for it to count as quiet, with a leader that is in sync.
const QUIET: Duration = Duration::from_secs(10);
/// How long it may take until it is quiet.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Process {
    runtime: Runtime,
    replica: Replica,
    kube: watch::Sender<Link>,
    azure: watch::Sender<Link>,
    /// For how long it has been paused, if it is.
    paused: Option<Duration>,
}

impl Process {
    pub(crate) fn status(&self) -> Status {
        self.replica.status.borrow().clone()
    }

    pub(crate) fn link_kube(&self, link: Link) {
        self.kube.send_replace(link);
    }

    pub(crate) fn link_azure(&self, link: Link) {
        self.azure.send_replace(link);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    pub(crate) fn pause(&mut self) {
        self.paused.get_or_insert_default();
    }

    pub(crate) fn go_on(&mut self) {
        if let Some(missed) = self.paused.take() {
            self.runtime.block_on(advance(missed));
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.replica.shutdown.is_cancelled()
    }

    pub(crate) fn begin_stop(&self) {
        self.replica.shutdown.cancel();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.replica.task.is_finished()
    }
}

pub(crate) struct Processes<'s> {
    servers: &'s Runtime,
    pub(crate) world: Arc<World>,
    pub(crate) network: Arc<Network>,
    pub(crate) running: BTreeMap<String, Process>,
    elapsed: Duration,
    seed: u64,
}

fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A world with two nodes and no process yet. When the test is over, it is checked that no two ever wrote at the same time.
pub(crate) fn processes(seed: u64, test: impl FnOnce(&mut Processes<'_>)) {
    // What the Azure client draws its waits from.
    fastrand::seed(seed);
    let servers = paused_runtime();
    let _inside = servers.enter();
    let azure = SimulatorConfig { latency: LATENCY, ..SimulatorConfig::default() };
    let world = Arc::new(World::with(KubeConfig::default(), azure));
    world.node("n1", "192.168.0.1");
    world.node("n2", "192.168.0.2");
    let network = Arc::new(Network::new(world.kube.clone(), servers.handle().clone()));
    let (running, elapsed) = (BTreeMap::new(), Duration::ZERO);
    let mut processes = Processes { servers: &servers, world, network, running, elapsed, seed };
    test(&mut processes);
    processes.network.check(RENEW_DEADLINE);
}

impl Processes<'_> {
    /// Starts a replica that calls itself so. Names are not used twice.
    pub(crate) fn start(&mut self, name: &str) {
        let runtime = paused_runtime();
        let inside = runtime.enter();
        let (kube, azure) = (watch::Sender::new(Link::Up), watch::Sender::new(Link::Up));
        let wire = |link: &watch::Sender<Link>, is_azure| Wire {
            network: self.network.clone(),
            process: name.to_owned(),
            link: link.subscribe(),
            is_azure,
            began: (Instant::now(), self.elapsed),
        };
        let client = kube::Client::new(wire(&kube, false).in_front_of(self.world.kube.router()), "default");
        let azure_end = ToAzure { wire: wire(&azure, true), azure: self.world.azure.transport() };
        let nrp = crate::world::nrp_over(azure_end);
        self.seed += 1;
        let config = ControllerConfig {
            instance: name.to_owned(),
            lease: Some(LeaseConfig::new("default", "clb-controller", name, 0)),
            clock: WallClock::starting_at(SystemTime::UNIX_EPOCH + self.elapsed),
            ..World::config()
        };
        let replica = self.world.start_by(config.seeded(self.seed), client, Arc::new(nrp));
        drop(inside);
        self.running.insert(name.to_owned(), Process { runtime, replica, kube, azure, paused: None });
    }

    /// As [`start`](Self::start), and waits until it leads and is in sync.
    pub(crate) fn start_leader(&mut self, name: &str) {
        self.start(name);
        self.run_until(LEASE_DURATION, |all| all.at(name).status().is_synced);
    }

    pub(crate) fn at(&self, name: &str) -> &Process {
        &self.running[name]
    }

    pub(crate) fn at_mut(&mut self, name: &str) -> &mut Process {
        self.running.get_mut(name).unwrap()
    }

    /// It is gone at once, with everything that it was about to do.
    pub(crate) fn kill(&mut self, name: &str) {
        self.running.remove(name).unwrap();
    }

    /// Stops it as a pod is stopped. Returns how many calls were given up, and how long it took.
    pub(crate) fn stop(&mut self, name: &str) -> (usize, Duration) {
        self.at(name).begin_stop();
        let took = self.run_until(60 * SECOND, |all| all.at(name).has_ended());
        let Process { runtime, replica, .. } = self.running.remove(name).unwrap();
        (runtime.block_on(replica.task).unwrap().unwrap(), took)
    }

    /// Lets time pass, in whole turns.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while self.elapsed < end {
            self.turn();
        }
    }

    fn turn(&mut self) {
        // Made inside, so that it is a sleep by the clock of that runtime.
        let turn = async { sleep(TURN).await };
        self.servers.block_on(turn);
        for process in self.running.values_mut() {
            match &mut process.paused {
                None => process.runtime.block_on(async { sleep(TURN).await }),
                Some(missed) => *missed += TURN,
            }
        }
        self.elapsed += TURN;
    }

    /// Lets time pass until something is so. Returns how long that took.
    pub(crate) fn run_until(&mut self, patience: Duration, mut is_so: impl FnMut(&Self) -> bool) -> Duration {
        let started = self.elapsed;
        while !is_so(self) {
            assert!(self.elapsed - started < patience, "not within {patience:?}: {}", self.describe());
            self.turn();
        }
        self.elapsed - started
    }

    /// Lets time pass until a leader is in sync and nothing has been written for a while.
    pub(crate) fn settle(&mut self) {
        let (mut writes, mut since) = (self.network.writes(), self.elapsed);
        self.run_until(PATIENCE, |all| {
            let now = all.network.writes();
            if now != writes || !all.is_led_and_synced() {
                (writes, since) = (now, all.elapsed);
            }
            all.elapsed - since >= QUIET
        });
    }

    fn is_led_and_synced(&self) -> bool {
        let leader = self.running.get(&self.network.holder());
        leader.is_some_and(|leader| leader.status().is_synced && !leader.is_paused())
    }

    fn describe(&self) -> String {
        let statuses: Vec<_> = self.running.iter().map(|(name, process)| (name, process.status())).collect();
        let calls = self.network.calls();
        let last: Vec<_> = calls.iter().rev().take(10).rev().collect();
        format!("at {:?}, {statuses:#?}, the last calls: {last:#?}", self.elapsed)
    }

    /// What Azure holds.
    pub(crate) fn held(&mut self) -> Held {
        let world = self.world.clone();
        let held = self.servers.spawn(async move { world.held().await });
        self.run_until(PATIENCE, |_| held.is_finished());
        self.servers.block_on(held).unwrap()
    }
}
