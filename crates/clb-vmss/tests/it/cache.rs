use std::sync::Arc;
use std::time::Duration;

use clb_vmss::{CacheConfig, Freshness, Lookup, NodeIdentity, ProviderId, ScaleSetKey, VmssCache};
use futures::future::join_all;
use tokio::time::{advance, sleep};

use crate::fake::{Fake, call, group, member, node, set};

const MINUTE: Duration = Duration::from_secs(60);
const OLD: Duration = Duration::from_secs(86_400);

fn cache(fake: &Arc<Fake>) -> VmssCache {
    VmssCache::new(Arc::clone(fake) as _, [group("rg")], CacheConfig::default())
}

fn pool(instances: u32) -> (Arc<Fake>, ScaleSetKey) {
    let (fake, key) = (Fake::new(100), set("rg", "pool"));
    fake.state().add_set(&key, "Uniform");
    for instance in 0..instances {
        fake.state().add_instance(&key, instance, "a", instance as u16);
    }
    (fake, key)
}

/// How often the set's instances were listed since this was last asked.
fn reads(fake: &Fake) -> usize {
    fake.take_calls().get("list instances").copied().unwrap_or_default()
}

async fn ask(cache: &VmssCache, key: &ScaleSetKey, freshness: Freshness) -> Option<usize> {
    let cached = cache.snapshot(&call(), key, None, freshness).await.ok()?;
    Some(cached.value.as_ref().as_ref().map_or(0, |snapshot| snapshot.records().count()))
}

/// A lookup in one word, with the machine's name.
fn word(lookup: &Lookup) -> String {
    let name = |id: &ProviderId| id.resource_id().rsplit_once('/').unwrap().1.to_owned();
    match lookup {
        Lookup::Found { set, record, age: _ } => format!("{}/{}", set.name, name(&record.id)),
        Lookup::Standalone { record, age: _ } => format!("alone: {}", name(&record.id)),
        Lookup::Unmanaged => "unmanaged".to_owned(),
        Lookup::Gone => "gone".to_owned(),
        Lookup::Unknown { error: None } => "too young".to_owned(),
        Lookup::Unknown { error: Some(_) } => "unreadable".to_owned(),
    }
}

async fn find(cache: &VmssCache, name: &str, id: Option<&ProviderId>, age: Duration) -> String {
    let id = id.map(ToString::to_string);
    let node = NodeIdentity { name, provider_id: id.as_deref(), age };
    word(&cache.lookup(&call(), node, Freshness::Any).await)
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_read_again_when_it_is_too_old_for_who_asks() {
    let (fake, key) = pool(2);
    let cache = cache(&fake);
    let at_most = |seconds| Freshness::AtMost(Duration::from_secs(seconds));
    assert_eq!((ask(&cache, &key, Freshness::Any).await, reads(&fake)), (Some(2), 1));
    advance(MINUTE).await;
    fake.state().add_instance(&key, 2, "a", 2);
    assert_eq!((ask(&cache, &key, Freshness::Any).await, reads(&fake)), (Some(2), 0));
    assert_eq!((ask(&cache, &key, at_most(70)).await, reads(&fake)), (Some(2), 0));
    assert_eq!((ask(&cache, &key, at_most(30)).await, reads(&fake)), (Some(3), 1));
    assert_eq!((ask(&cache, &key, at_most(30)).await, reads(&fake)), (Some(3), 0));
    assert_eq!((ask(&cache, &key, Freshness::Now).await, reads(&fake)), (Some(3), 1));
    // The interval has a tenth more or less.
    advance(Duration::from_secs(530)).await;
    assert_eq!((ask(&cache, &key, Freshness::Any).await, reads(&fake)), (Some(3), 0));
    advance(Duration::from_secs(140)).await;
    assert_eq!((ask(&cache, &key, Freshness::Any).await, reads(&fake)), (Some(3), 1));
}

#[tokio::test(start_paused = true)]
async fn refreshes_spread_over_time_as_the_seed_has_it() {
    let (fake, key) = pool(1);
    let due = async |seed| {
        let config = CacheConfig { seed, ..CacheConfig::default() };
        let cache = VmssCache::new(Arc::clone(&fake) as _, [group("rg")], config);
        ask(&cache, &key, Freshness::Any).await;
        let mut seconds = 0;
        fake.take_calls();
        while reads(&fake) == 0 {
            advance(Duration::from_secs(1)).await;
            ask(&cache, &key, Freshness::Any).await;
            seconds += 1;
        }
        seconds
    };
    let mut times = Vec::new();
    for seed in 0..8 {
        times.push(due(seed).await);
    }
    assert!(times.iter().all(|time| (540..=661).contains(time)), "{times:?}");
    assert_eq!(due(3).await, times[3]);
    times.dedup();
    assert!(times.len() > 4, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn one_reads_for_all_who_ask_at_the_same_time() {
    let (fake, key) = pool(2);
    let cache = cache(&fake);
    let all = join_all((0..50).map(|_| ask(&cache, &key, Freshness::Any))).await;
    assert_eq!((all, reads(&fake)), (vec![Some(2); 50], 1));
    // A read that is on its way may have passed what those know who ask for now: they share the next one.
    let first = ask(&cache, &key, Freshness::Now);
    let added = key.clone();
    fake.on_call(move |call, state| {
        if call == "list instance interfaces" {
            state.add_instance(&added, 7, "a", 7);
        }
        false
    });
    let later = async {
        sleep(Duration::from_millis(1)).await;
        join_all((0..50).map(|_| ask(&cache, &key, Freshness::Now))).await
    };
    assert_eq!(tokio::join!(first, later), (Some(2), vec![Some(3); 50]));
    assert_eq!(reads(&fake), 2);
    // Whoever reads may be dropped on the way; the next who waits takes over.
    let dropped = tokio::time::timeout(Duration::from_millis(2), ask(&cache, &key, Freshness::Now));
    let (dropped, waiting) = tokio::join!(dropped, ask(&cache, &key, Freshness::Now));
    assert_eq!((dropped.is_err(), waiting), (true, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_fails_keeps_its_last_good_state_and_is_not_asked_for_over_and_over() {
    let (fake, key) = pool(2);
    let cache = cache(&fake);
    ask(&cache, &key, Freshness::Any).await;
    fake.on_call(|call, _| call == "list instances");
    advance(Duration::from_secs(700)).await;
    fake.take_calls();
    for _ in 0..10 {
        let cached = cache.snapshot(&call(), &key, None, Freshness::Any).await.unwrap();
        assert_eq!((cached.age.as_secs(), cached.stale.is_some()), (700, true));
    }
    assert_eq!(reads(&fake), 1);
    // Those who want it fresher are told: the first by the attempt that it makes, all others by the one after that.
    let all = join_all((0..10).map(|_| ask(&cache, &key, Freshness::Now))).await;
    assert_eq!((all, reads(&fake)), (vec![None; 10], 2));
    // What is known still tells where a machine is, but not that there is none.
    assert_eq!(find(&cache, &node(&key, 1), Some(&key.instance(1)), OLD).await, "pool/1");
    assert_eq!(find(&cache, &node(&key, 9), Some(&key.instance(9)), OLD).await, "unreadable");
    fake.on_call(|_, _| false);
    assert_eq!(ask(&cache, &key, Freshness::Now).await, Some(2));
    assert!(cache.last_snapshot(&key).unwrap().stale.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_write_makes_what_was_read_before_and_is_being_read_old() {
    let (fake, key) = pool(1);
    let cache = cache(&fake);
    let hour = Freshness::AtMost(60 * MINUTE);
    let during = async {
        sleep(Duration::from_millis(1)).await;
        cache.invalidate(&key);
    };
    tokio::join!(ask(&cache, &key, hour), during);
    assert_eq!(reads(&fake), 1);
    for freshness in [hour, hour, Freshness::Any] {
        ask(&cache, &key, freshness).await;
    }
    assert_eq!(reads(&fake), 1);
    cache.invalidate(&key);
    ask(&cache, &key, Freshness::Any).await;
    assert_eq!(reads(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_that_are_not_found_cost_one_read_per_interval() {
    let (fake, key) = pool(2);
    let cache = cache(&fake);
    assert_eq!(find(&cache, &node(&key, 1), None, OLD).await, "pool/1");
    advance(MINUTE).await;
    fake.take_calls();
    for round in 1..=3 {
        for instance in 100..200 {
            assert_eq!(find(&cache, &node(&key, instance), None, OLD).await, "gone");
        }
        assert_eq!(reads(&fake), 1, "round {round}");
        advance(Duration::from_secs(31)).await;
    }
    // What is there is found without.
    assert_eq!((find(&cache, &node(&key, 0), None, OLD).await, reads(&fake)), ("pool/0".to_owned(), 0));
}

#[tokio::test(start_paused = true)]
async fn that_a_machine_is_gone_is_said_of_that_machine_and_until_its_node_is_back() {
    let (fake, key) = pool(1);
    let cache = cache(&fake);
    let name = node(&key, 5);
    assert_eq!(find(&cache, &name, None, OLD).await, "gone");
    fake.state().add_instance(&key, 5, "b", 5);
    advance(MINUTE).await;
    assert_eq!(find(&cache, &name, None, OLD).await, "pool/5");
    // A machine with the name of one that is gone does not answer for it.
    assert_eq!(find(&cache, &name, Some(&key.instance(4)), OLD).await, "gone");
    assert_eq!(find(&cache, &name, Some(&key.instance(5)), OLD).await, "pool/5");
    fake.state().machine_mut(&key.instance(5)).properties.provisioning_state = Some("Deleting".into());
    ask(&cache, &key, Freshness::Now).await;
    assert_eq!(find(&cache, &name, None, OLD).await, "gone");
}

#[tokio::test(start_paused = true)]
async fn a_young_node_that_is_not_found_is_unknown() {
    let (fake, key) = pool(1);
    let cache = cache(&fake);
    let (name, id) = (node(&key, 5), key.instance(5));
    let grace = CacheConfig::default().grace;
    assert_eq!(find(&cache, &name, Some(&id), Duration::ZERO).await, "too young");
    assert_eq!(find(&cache, &name, Some(&id), grace - Duration::from_secs(1)).await, "too young");
    advance(Duration::from_secs(20)).await;
    // It was too young when its set was last read.
    assert_eq!(find(&cache, &name, Some(&id), grace + Duration::from_secs(10)).await, "too young");
    advance(Duration::from_secs(20)).await;
    assert_eq!(find(&cache, &name, Some(&id), grace + Duration::from_secs(30)).await, "gone");
}

#[tokio::test(start_paused = true)]
async fn members_standalone_and_unmanaged_nodes_are_told_apart() {
    let (fake, flexible) = (Fake::new(100), set("rg", "flex"));
    fake.state().add_set(&flexible, "Flexible");
    fake.state().add_member(&flexible, "vm", 1);
    let nowhere = set("elsewhere", "none");
    fake.state().add_member(&nowhere, "alone", 2);
    fake.state().machine_mut(&member(&nowhere, "alone")).properties.scale_set = None;
    let cache = cache(&fake);
    assert_eq!(find(&cache, "vm", Some(&member(&flexible, "vm")), OLD).await, "flex/vm");
    assert_eq!(find(&cache, "VM", None, OLD).await, "flex/vm");
    assert_eq!(find(&cache, "alone", Some(&member(&nowhere, "alone")), OLD).await, "alone: alone");
    assert_eq!(find(&cache, "alone", Some(&member(&nowhere, "none")), OLD).await, "gone");
    let odd = NodeIdentity { name: "kind", provider_id: Some("kind://docker/kind"), age: OLD };
    assert_eq!(word(&cache.lookup(&call(), odd, Freshness::Any).await), "unmanaged");
    // A member that a snapshot has costs no call of its own.
    fake.take_calls();
    assert_eq!(find(&cache, "vm", Some(&member(&flexible, "vm")), OLD).await, "flex/vm");
    assert!(fake.take_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_sets_of_one_name_never_mix() {
    let (fake, one, two) = (Fake::new(100), set("rg", "pool"), set("other", "pool"));
    for (index, key) in [&one, &two].into_iter().enumerate() {
        fake.state().add_set(key, "Uniform");
        fake.state().add_instance(key, index as u32, "a", 1);
    }
    let cache = cache(&fake);
    assert_eq!(find(&cache, &node(&one, 0), Some(&one.instance(0)), OLD).await, "pool/0");
    assert_eq!(find(&cache, &node(&one, 0), Some(&two.instance(0)), OLD).await, "gone");
    assert_eq!(find(&cache, &node(&two, 1), Some(&two.instance(1)), OLD).await, "pool/1");
    assert_eq!(find(&cache, &node(&two, 1), Some(&one.instance(1)), OLD).await, "gone");
}
