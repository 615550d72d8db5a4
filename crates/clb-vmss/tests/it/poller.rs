use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clb_vmss::{CacheConfig, Listing, NodeEvent, NodePoller, Power, ScaleSetKey, VmssCache};
use futures::StreamExt;
use proptest::prelude::*;
use tokio::time::{Instant, timeout};

use crate::fake::{Fake, group, member, node, set};
use crate::node_stream::fold;

const INTERVAL: Duration = Duration::from_secs(10);

fn poller(fake: &Arc<Fake>, groups: &[&str]) -> NodePoller {
    let groups = groups.iter().map(|name| group(name));
    let cache = VmssCache::new(Arc::clone(fake) as _, groups, CacheConfig::default());
    NodePoller::new(Arc::new(cache), INTERVAL)
}

/// One more round, and what it tells.
async fn round(poller: &mut NodePoller) -> Vec<(ScaleSetKey, NodeEvent)> {
    let (before, mut events) = (poller.rounds(), Vec::new());
    poller.poll_soon();
    while poller.rounds() == before {
        if let Ok(event) = timeout(Duration::from_millis(1), poller.next()).await {
            events.extend(event);
        }
    }
    events
}

#[tokio::test(start_paused = true)]
async fn a_set_that_fails_keeps_its_nodes_and_the_others_go_on() {
    let (fake, ill, well) = (Fake::new(2), set("rg", "ill"), set("rg", "well"));
    fake.state().add_set(&ill, "Uniform");
    fake.state().add_set(&well, "Flexible");
    fake.state().add_instance(&ill, 0, "a", 1);
    fake.state().add_member(&well, "vm", 2);
    let mut poller = poller(&fake, &["rg"]);
    assert_eq!(round(&mut poller).await.len(), 2);
    for instance in 1..4 {
        fake.state().add_instance(&ill, instance, "a", 10);
    }
    fake.state().remove_machine(&member(&well, "vm"));
    let mut page = 0;
    fake.on_call(move |call, _| {
        page += usize::from(call == "list instances");
        call == "list instances" && page % 2 == 0
    });
    let mut told = round(&mut poller).await;
    told.sort_by_key(|(set, _)| set.clone());
    let gone = NodeEvent::Removed { node: "vm".to_owned() };
    assert_eq!(told, [(ill.clone(), NodeEvent::Stale), (well.clone(), gone)]);
    assert_eq!(round(&mut poller).await, []);
    assert_eq!(poller.nodes(&ill).unwrap().len(), 1);
    fake.on_call(|_, _| false);
    assert_eq!(round(&mut poller).await.len(), 4);
    // A list of the group that fails says nothing about its sets, which are read all the same.
    fake.on_call(|call, _| call == "list sets");
    fake.state().remove_machine(&ill.instance(2));
    assert_eq!(round(&mut poller).await, [(ill.clone(), NodeEvent::Removed { node: node(&ill, 2) })]);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_a_list_lacks_is_asked_for_by_itself() {
    let (fake, key) = (Fake::new(10), set("rg", "pool"));
    fake.state().add_set(&key, "Uniform");
    fake.state().add_instance(&key, 0, "a", 1);
    let mut poller = poller(&fake, &["rg"]);
    round(&mut poller).await;
    // It is missing from the list only.
    let hidden: Arc<std::sync::Mutex<Option<_>>> = Arc::default();
    let (key2, hold) = (key.clone(), Arc::clone(&hidden));
    fake.on_call(move |call, state| {
        if call == "list sets" {
            *hold.lock().unwrap() = state.sets.remove(&key2);
        } else if let Some(set) = hold.lock().unwrap().take() {
            state.sets.insert(key2.clone(), set);
        }
        false
    });
    fake.take_calls();
    assert_eq!(round(&mut poller).await, []);
    let calls = fake.take_calls();
    assert_eq!((calls["list sets"], calls["get set"], calls["list instances"]), (1, 1, 1));
    // And now altogether.
    fake.on_call(|_, _| false);
    fake.state().remove_set(&key);
    assert_eq!(round(&mut poller).await, [(key.clone(), NodeEvent::Removed { node: node(&key, 0) })]);
    assert_eq!(fake.take_calls(), calls_of(&[("list sets", 1), ("get set", 1)]));
    // It is asked for no longer.
    assert_eq!(round(&mut poller).await, []);
    assert_eq!(fake.take_calls(), calls_of(&[("list sets", 1)]));
}

fn calls_of(calls: &[(&str, usize)]) -> BTreeMap<String, usize> {
    calls.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slips_between_two_pages_is_not_gone() {
    let (fake, key) = (Fake::new(2), set("rg", "pool"));
    fake.state().add_set(&key, "Uniform");
    for instance in 0..4 {
        fake.state().add_instance(&key, instance, "a", instance as u16);
    }
    let mut poller = poller(&fake, &["rg"]);
    assert_eq!(round(&mut poller).await.len(), 4);
    // After the first page an instance of it goes, and the first of the second moves to where nobody looks again.
    let (mut pages, gone) = (0, key.instance(0));
    fake.on_call(move |call, state| {
        pages += usize::from(call == "list instances");
        if pages == 2 {
            state.remove_machine(&gone);
        }
        false
    });
    // The one that went is still on the first page.
    assert_eq!(round(&mut poller).await, []);
    assert_eq!(round(&mut poller).await, [(key.clone(), NodeEvent::Removed { node: node(&key, 0) })]);
}

#[tokio::test(start_paused = true)]
async fn a_full_round_costs_a_list_each_and_nothing_per_node() {
    for instances in [1, 100, 5_000_u32] {
        let (fake, sets) = (Fake::new(100), if instances == 1 { 1 } else { 20 });
        let keys: Vec<ScaleSetKey> = (0..sets).map(|index| set("rg", &format!("pool{index}x"))).collect();
        for key in &keys {
            fake.state().add_set(key, "Uniform");
        }
        for instance in 0..instances {
            let key = &keys[instance as usize % keys.len()];
            fake.state().add_instance(key, instance, "a", instance as u16);
        }
        let mut poller = poller(&fake, &["rg"]);
        assert_eq!(round(&mut poller).await.len(), instances as usize);
        let pages = (instances as usize).div_ceil(sets).div_ceil(100) * sets;
        let expected =
            calls_of(&[("list sets", 1), ("list instances", pages), ("list instance interfaces", pages)]);
        assert_eq!(fake.take_calls(), expected);
        assert_eq!(round(&mut poller).await, []);
        assert_eq!(fake.take_calls(), expected);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize, u32, u16),
    Remove(usize, u32),
    Delete(usize, u32),
    Reimage(usize, u32),
    Power(usize, u32),
    RemoveSet(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || (0..4_usize, 0..7_u32);
    prop_oneof![
        6 => (at(), any::<u16>()).prop_map(|((set, id), ip)| Step::Add(set, id, ip)),
        4 => at().prop_map(|(set, id)| Step::Remove(set, id)),
        1 => at().prop_map(|(set, id)| Step::Delete(set, id)),
        2 => at().prop_map(|(set, id)| Step::Reimage(set, id)),
        1 => at().prop_map(|(set, id)| Step::Power(set, id)),
        1 => (0..4_usize).prop_map(Step::RemoveSet),
    ]
}

/// A history in which nodes come and go while they are polled, one call after another, and calls fail.
struct History {
    fake: Arc<Fake>,
    sets: Vec<ScaleSetKey>,
    poller: NodePoller,
    told: BTreeMap<ScaleSetKey, Listing>,
    /// When each node was last told to be there, and when it was last absent.
    told_at: BTreeMap<String, Instant>,
    absent_at: BTreeMap<String, Instant>,
    vms: u32,
}

/// Longer than any round: what is told now may have been read this long ago.
const SLACK: Duration = Duration::from_millis(60);

impl History {
    fn new(seed: u64, per_mille: u64) -> Self {
        let fake = Fake::new(2);
        fake.fail(per_mille, seed);
        let sets = vec![set("one", "poola"), set("one", "poolb"), set("two", "poolc"), set("two", "poold")];
        let cache =
            VmssCache::new(Arc::clone(&fake) as _, [group("one"), group("two")], CacheConfig::default());
        let poller = NodePoller::new(Arc::new(cache), Duration::from_millis(5));
        let (told, told_at, absent_at) = Default::default();
        Self { fake, sets, poller, told, told_at, absent_at, vms: 0 }
    }

    fn names(&self) -> impl Iterator<Item = (String, bool)> {
        let state = self.fake.state();
        let there: Vec<Listing> = self.sets.iter().map(|set| state.listing(set)).collect();
        let names = self.sets.iter().zip(there).flat_map(|(set, there)| {
            (0..7)
                .map(|id| node(set, id))
                .map(|name| (name.clone(), there.contains_key(&name)))
                .collect::<Vec<_>>()
        });
        names.collect::<Vec<_>>().into_iter()
    }

    fn apply(&mut self, step: &Step) {
        {
            let mut state = self.fake.state();
            let there = |state: &crate::fake::State, set: usize, id: u32| {
                state.machines.contains_key(&self.sets[set].instance(id))
            };
            match *step {
                Step::Add(set, id, ip) => {
                    let key = &self.sets[set];
                    if !state.sets.contains_key(key) {
                        state.add_set(key, "Uniform");
                    }
                    let vm = there(&state, set, id)
                        .then(|| state.machine_mut(&key.instance(id)).properties.vm_id.clone());
                    self.vms += 1;
                    let vm = vm.flatten().unwrap_or_else(|| self.vms.to_string());
                    state.remove_machine(&key.instance(id));
                    state.add_instance(key, id, &vm, ip);
                }
                Step::Remove(set, id) => state.remove_machine(&self.sets[set].instance(id)),
                Step::Delete(set, id) if there(&state, set, id) => {
                    state.machine_mut(&self.sets[set].instance(id)).properties.provisioning_state =
                        Some("Deleting".into());
                }
                Step::Reimage(set, id) if there(&state, set, id) => {
                    self.vms += 1;
                    let vm = Some(self.vms.to_string());
                    state.machine_mut(&self.sets[set].instance(id)).properties.vm_id = vm;
                }
                Step::Power(set, id) if there(&state, set, id) => {
                    let id = self.sets[set].instance(id);
                    let on = state.machine_mut(&id).power() == Power::On;
                    state.set_power(&id, if on { "deallocated" } else { "running" });
                }
                Step::RemoveSet(set) => state.remove_set(&self.sets[set]),
                Step::Delete(..) | Step::Reimage(..) | Step::Power(..) => {}
            }
        }
        self.note_absent();
    }

    fn note_absent(&mut self) {
        let now = Instant::now();
        let absent: Vec<String> = self.names().filter(|(_, there)| !there).map(|(name, _)| name).collect();
        self.absent_at.extend(absent.into_iter().map(|name| (name, now)));
    }

    /// Takes what is told for a while. The stream's future is dropped over and over.
    async fn listen(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.note_absent();
            let Ok(event) = timeout(Duration::from_micros(700), self.poller.next()).await else { continue };
            let (set, event) = event.unwrap();
            match &event {
                NodeEvent::Added { node, .. } | NodeEvent::Replaced { node, .. } => {
                    self.told_at.insert(node.clone(), Instant::now());
                }
                NodeEvent::Removed { node } => {
                    let (told, absent) = (self.told_at[node], self.absent_at.get(node));
                    assert!(
                        absent.is_some_and(|absent| *absent + SLACK >= told),
                        "{node} was there all the time"
                    );
                }
                NodeEvent::IpsChanged { .. }
                | NodeEvent::PowerChanged { .. }
                | NodeEvent::Stale
                | NodeEvent::Fresh => {}
            }
            fold(self.told.entry(set).or_default(), event);
        }
    }

    async fn run(mut self, steps: Vec<(Step, u64)>) {
        self.note_absent();
        for (step, pause) in steps {
            self.apply(&step);
            self.listen(Duration::from_millis(pause)).await;
        }
        self.fake.fail(0, 0);
        self.listen(SLACK * 5).await;
        let truth: BTreeMap<ScaleSetKey, Listing> =
            self.sets.iter().map(|set| (set.clone(), self.fake.state().listing(set))).collect();
        let there = |of: BTreeMap<ScaleSetKey, Listing>| -> BTreeMap<_, _> {
            of.into_iter().filter(|(_, nodes)| !nodes.is_empty()).collect()
        };
        assert_eq!(there(self.told), there(truth));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_told_is_the_truth_at_quiet_and_nothing_was_falsely_removed(
        seed in any::<u64>(),
        per_mille in prop_oneof![Just(0_u64), 1..200_u64],
        steps in prop::collection::vec((step(), 0..15_u64), 1..150),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async { History::new(seed, per_mille).run(steps).await });
    }
}
