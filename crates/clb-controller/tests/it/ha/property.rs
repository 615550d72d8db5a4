//! Three replicas that are killed, paused, stopped and cut off at random while the cluster changes.

use std::collections::BTreeMap;

use clb_controller::objects::{SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER};
use clb_sim::azure::OperationShape;
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::json;

use super::network::Link;
use super::processes::{Processes, TURN, processes};
use crate::world::{Held, World};

const CASES: u64 = 30;
const STEPS: usize = 16;
/// The most turns between one step and the next: 8 s, so that what is disturbed lasts for less and for more than a lease.
const LONGEST_GAP: u32 = 160;
/// Few enough that no deletion waits for a second list.
const MOST_SERVICES: usize = 8;

#[test]
fn no_two_ever_write_at_the_same_time_and_in_the_end_azure_equals_the_cluster() {
    for seed in 0..CASES {
        println!("seed {seed}");
        processes(seed, |all| {
            let mut chaos = Chaos::new(seed);
            for _ in 0..3 {
                chaos.start(all);
            }
            for _ in 0..STEPS {
                if chaos.rng.bool() {
                    chaos.change(&all.world);
                } else {
                    chaos.disturb(all);
                }
                all.run(chaos.rng.u32(0..LONGEST_GAP) * TURN);
                reap(all);
            }
            for process in all.running.values_mut() {
                process.link_kube(Link::Up);
                process.link_azure(Link::Up);
                process.go_on();
            }
            all.world.azure.set_faults(FaultPlan::default());
            all.settle();
            reap(all);
            assert_eq!(all.held(), chaos.held());
            chaos.check_services(&all.world);
            let terms: Vec<_> = all.running.values().filter_map(|process| process.status().term).collect();
            assert_eq!(terms.len(), 1, "{terms:?}");
        });
    }
}

/// Takes those away that have stopped.
fn reap(all: &mut Processes<'_>) {
    all.running.retain(|_, process| !process.has_ended());
}

/// What happens, and what the cluster holds.
struct Chaos {
    rng: fastrand::Rng,
    made: u32,
    /// The addresses of the nodes.
    nodes: [String; 2],
    /// UIDs and endpoints by name: addresses and the nodes that they are on.
    services: BTreeMap<String, (String, Vec<(String, usize)>)>,
    /// What they leave through and their endpoints, of those that run.
    pods: BTreeMap<String, (String, (String, usize))>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            made: 0,
            nodes: ["192.168.0.1", "192.168.0.2"].map(str::to_owned),
            services: BTreeMap::new(),
            pods: BTreeMap::new(),
        }
    }

    /// A number that was not given before.
    fn fresh(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    fn start(&mut self, all: &mut Processes<'_>) {
        let name = format!("r{}", self.fresh());
        all.start(&name);
    }

    fn change(&mut self, world: &World) {
        for _ in 0..self.rng.usize(1..=4) {
            match self.rng.u8(0..10) {
                0..=3 if self.services.len() < MOST_SERVICES => {
                    let name = format!("s{}", self.fresh());
                    let endpoints = self.endpoints(world, &name);
                    let uid = world.service(&name, json!({}));
                    self.services.insert(name, (uid, endpoints));
                }
                0..=5 => {
                    let Some(name) = self.rng.choice(self.services.keys().cloned()) else { continue };
                    let endpoints = self.endpoints(world, &name);
                    if let Some(service) = self.services.get_mut(&name) {
                        service.1 = endpoints;
                    }
                }
                6 => {
                    let Some(name) = self.rng.choice(self.services.keys().cloned()) else { continue };
                    world.delete(&format!("/api/v1/namespaces/default/services/{name}"));
                    self.services.remove(&name);
                }
                7 => {
                    let node = self.rng.usize(0..2);
                    self.nodes[node] = format!("192.168.1.{}", self.fresh());
                    world.node_addresses(["n1", "n2"][node], &[&self.nodes[node]]);
                }
                8 => {
                    let (name, egress) = (format!("p{}", self.fresh()), format!("gw{}", self.rng.u8(0..2)));
                    let (address, node) = self.endpoint();
                    world.egress_pod(&name, &egress, ["n1", "n2"][node], &[&address]);
                    self.pods.insert(name, (egress, (address, node)));
                }
                _ => {
                    let Some(name) = self.rng.choice(self.pods.keys().cloned()) else { continue };
                    world.pod_status(&name, "Succeeded", &[]);
                    self.pods.remove(&name);
                }
            }
        }
    }

    fn endpoint(&mut self) -> (String, usize) {
        let fresh = self.fresh();
        (format!("10.0.{}.{}", fresh / 200, fresh % 200 + 1), self.rng.usize(0..2))
    }

    fn endpoints(&mut self, world: &World, service: &str) -> Vec<(String, usize)> {
        let endpoints: Vec<_> = (0..self.rng.usize(1..4)).map(|_| self.endpoint()).collect();
        let told: Vec<_> = endpoints.iter().map(|(ip, node)| (ip.as_str(), ["n1", "n2"][*node])).collect();
        world.slice(service, service, &told);
        endpoints
    }

    fn disturb(&mut self, all: &mut Processes<'_>) {
        let is_up = |all: &Processes<'_>, name: &String| !all.at(name).is_stopping();
        // Most of all what happens to the leader matters.
        let leader = Some(all.network.holder()).filter(|name| all.running.contains_key(name));
        let leader = leader.filter(|_| self.rng.bool());
        let Some(name) = leader.or_else(|| self.rng.choice(all.running.keys().cloned())) else { return };
        match self.rng.u8(0..12) {
            0 | 1 => {
                all.kill(&name);
                self.start(all);
            }
            2 if is_up(all, &name) => {
                all.at(&name).begin_stop();
                self.start(all);
            }
            3..=5 => all.at_mut(&name).pause(),
            6 | 7 => all.running.values_mut().for_each(|process| process.go_on()),
            8 => all.at(&name).link_kube(self.link()),
            9 => all.at(&name).link_azure(self.link()),
            10 => all.running.values().for_each(|process| {
                process.link_kube(Link::Up);
                process.link_azure(Link::Up);
            }),
            _ => all.world.azure.set_faults(self.faults()),
        }
    }

    fn link(&mut self) -> Link {
        if self.rng.bool() { Link::Refusing } else { Link::Silent }
    }

    fn faults(&mut self) -> FaultPlan {
        let often = When::Probability(0.3);
        let plan = FaultPlan::new(self.rng.u64(..));
        match self.rng.u8(0..4) {
            0 => plan,
            1 => plan.with(often, What::default(), How::LoseAnswer),
            2 => plan.with(often, What::default(), How::Operation(OperationShape::Polled(20))),
            _ => plan.with(often, What::default(), How::Delay(4_000)),
        }
    }

    /// What Azure should hold.
    fn held(&self) -> Held {
        let place = |(address, node): &(String, usize)| (address.clone(), self.nodes[*node].clone());
        let mut inbound: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
        for (uid, endpoints) in self.services.values() {
            inbound.insert(uid, endpoints.iter().map(place).collect());
        }
        let mut outbound: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
        for (egress, endpoint) in self.pods.values() {
            outbound.entry(egress).or_default().push(place(endpoint));
        }
        let mut held = Held::default();
        for (service, endpoints) in &inbound {
            held = held.and_inbound(&[(service, &borrowed(endpoints))]);
        }
        for (service, endpoints) in &outbound {
            held = held.and_outbound(&[(service, &borrowed(endpoints))]);
        }
        held
    }

    /// Each Service that there should be shows an address and is ours, and there is no other.
    fn check_services(&self, world: &World) {
        let both = [SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER].map(str::to_owned).to_vec();
        let mut there = Vec::new();
        for name in (1..=self.made).map(|made| format!("s{made}")) {
            if let Some(finalizers) = world.service_finalizers(&name) {
                assert_eq!((finalizers, world.ingress(&name).len()), (both.clone(), 1), "{name}");
                there.push(name);
            }
        }
        there.sort();
        assert_eq!(there, self.services.keys().cloned().collect::<Vec<_>>());
    }
}

fn borrowed(endpoints: &[(String, String)]) -> Vec<(&str, &str)> {
    endpoints.iter().map(|(address, location)| (address.as_str(), location.as_str())).collect()
}
