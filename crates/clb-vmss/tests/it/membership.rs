use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clb_vmss::models::{InterfaceProperties, IpVersion, ScaleSet};
use clb_vmss::{
    CacheConfig, Freshness, Membership, MembershipConfig, Outcome, ProviderId, Report, ResourceId,
    ScaleSetKey, Selection, VmssApi, VmssCache,
};

use crate::fake::{Fake, call, group, member, node, pool, set};

fn cache(fake: &Arc<Fake>) -> Arc<VmssCache> {
    Arc::new(VmssCache::new(Arc::clone(fake) as _, [group("rg")], CacheConfig::default()))
}

fn membership(fake: &Arc<Fake>) -> Membership {
    Membership::new(cache(fake), MembershipConfig::default())
}

fn uniform(instances: u32) -> (Arc<Fake>, ScaleSetKey) {
    let (fake, key) = (Fake::new(100), set("rg", "pool"));
    fake.state().add_set(&key, "Uniform");
    for instance in 0..instances {
        fake.state().add_instance(&key, instance, "a", instance as u16);
    }
    (fake, key)
}

/// A report in words.
fn words(report: &Report) -> (String, BTreeMap<String, String>) {
    let instances = report.instances.iter().map(|(id, outcome)| {
        let name = id.resource_id().rsplit_once('/').unwrap().1.to_owned();
        (name, word(outcome))
    });
    (word(&report.model), instances.collect())
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Changed => "changed".to_owned(),
        Outcome::Unchanged => "unchanged".to_owned(),
        Outcome::Gone => "gone".to_owned(),
        Outcome::Skipped(why) => why.to_string(),
        Outcome::Failed(error) => format!("failed: {}", error.kind()),
    }
}

fn said(model: &str, instances: &[(&str, &str)]) -> (String, BTreeMap<String, String>) {
    let instances = instances.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned()));
    (model.to_owned(), instances.collect())
}

/// The load balancers of each ip-configuration.
fn pools(interface: &InterfaceProperties) -> Vec<Vec<String>> {
    let ips = interface.ip_configurations.iter();
    ips.map(|ip| {
        let pools = ip.properties.backend_pools.iter().flatten().map(|pool| pool.resource_id().unwrap());
        pools.map(|pool| pool.parent().unwrap().name().to_owned()).collect()
    })
    .collect()
}

fn model_pools(fake: &Fake, key: &ScaleSetKey) -> Vec<Vec<String>> {
    let state = fake.state();
    let model = state.sets[key].properties.virtual_machine_profile.as_ref().unwrap();
    pools(&model.network_profile.configurations[0].properties)
}

fn instance_pools(fake: &Fake, id: &ProviderId) -> Vec<Vec<String>> {
    let state = fake.state();
    let wanted = state.machines[id].1.properties.network_profile_configuration.as_ref().unwrap();
    pools(&wanted.configurations[0].properties)
}

fn in_pools(v4: &[&str], v6: &[&str]) -> Vec<Vec<String>> {
    [v4, v6].map(|pools| pools.iter().map(|&pool| pool.to_owned()).collect()).to_vec()
}

async fn join(membership: &Membership, key: &ScaleSetKey, lb: &str, family: IpVersion) -> Report {
    membership.join(&call(), key, &pool(lb), family, &Selection::default()).await
}

#[tokio::test(start_paused = true)]
async fn the_model_is_written_before_the_instances_and_nothing_else_changes() {
    let (fake, key) = uniform(2);
    let sets = fake.state().sets.clone();
    let machines = fake.state().machines.clone();
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&order);
    fake.on_call(move |call, _| {
        log.lock().unwrap().push(call.to_owned());
        false
    });
    let membership = membership(&fake);
    let report = join(&membership, &key, "lb", IpVersion::V4).await;
    assert_eq!(words(&report), said("changed", &[("0", "changed"), ("1", "changed")]));
    assert_eq!(
        *order.lock().unwrap(),
        ["get set", "put set", "list instances", "put machine", "put machine"]
    );
    assert_eq!(model_pools(&fake, &key), in_pools(&["lb"], &[]));
    assert_eq!(instance_pools(&fake, &key.instance(1)), in_pools(&["lb"], &[]));
    // Again: nothing is written.
    order.lock().unwrap().clear();
    let report = join(&membership, &key, "LB", IpVersion::V4).await;
    assert_eq!(words(&report), said("unchanged", &[("0", "unchanged"), ("1", "unchanged")]));
    assert_eq!(*order.lock().unwrap(), ["get set", "list instances"]);
    // The second family, and out with both at once.
    join(&membership, &key, "lb", IpVersion::V6).await;
    assert_eq!(instance_pools(&fake, &key.instance(0)), in_pools(&["lb"], &["lb"]));
    let report = membership.leave(&call(), &key, &[pool("lb")].into(), &Selection::default()).await;
    assert_eq!(words(&report), said("changed", &[("0", "changed"), ("1", "changed")]));
    assert_eq!(model_pools(&fake, &key), in_pools(&[], &[]));
    assert_eq!(instance_pools(&fake, &key.instance(0)), in_pools(&[], &[]));
    // Everything else is as it was, but for what was only read.
    let state = fake.state();
    let mut now = state.sets[&key].clone();
    now.etag.clone_from(&sets[&key].etag);
    empty_to_none(&mut now);
    assert_eq!(now, sets[&key]);
    assert_eq!(state.machines[&key.instance(0)].1.other, machines[&key.instance(0)].1.other);
    assert_eq!(
        state.machines[&key.instance(0)].1.properties.other,
        machines[&key.instance(0)].1.properties.other
    );
}

fn empty_to_none(set: &mut ScaleSet) {
    let model = set.properties.virtual_machine_profile.as_mut().unwrap();
    for ip in &mut model.network_profile.configurations[0].properties.ip_configurations {
        assert_eq!(ip.properties.backend_pools.take(), Some(Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_join_is_left_alone_by_itself() {
    let (fake, key) = uniform(7);
    let id = |instance| key.instance(instance);
    let only = |instance| Selection { only: Some([key.instance(instance)].into()), ..Selection::default() };
    let membership = membership(&fake);
    {
        let mut state = fake.state();
        state.machine_mut(&id(0)).properties.provisioning_state = Some("Deleting".into());
        state.machine_mut(&id(3)).properties.network_profile_configuration = None;
        let wanted = state.machine_mut(&id(4)).properties.network_profile_configuration.as_mut().unwrap();
        wanted.configurations[0].properties.ip_configurations.remove(0);
    }
    // The first is in another load balancer's pool, the second in that of the internal one of the pair.
    for (instance, lb) in [(1, "other"), (2, "lb-internal")] {
        let report = membership.join(&call(), &key, &pool(lb), IpVersion::V4, &only(instance)).await;
        assert_eq!(report.errors().count(), 0);
        membership.leave(&call(), &key, &[pool(lb)].into(), &only(6)).await;
        // The model is for the others.
        let mut state = fake.state();
        let model = state.sets.get_mut(&key).unwrap().properties.virtual_machine_profile.as_mut().unwrap();
        let ips = &mut model.network_profile.configurations[0].properties.ip_configurations;
        ips.iter_mut().for_each(|ip| ip.properties.backend_pools = None);
    }
    let selection = Selection { only: None, excluded: [node(&key, 5)].into() };
    let report = membership.join(&call(), &key, &pool("lb"), IpVersion::V4, &selection).await;
    let other = format!("it is in a pool of {}", pool("other").parent().unwrap());
    let expected = [
        ("0", "it is being deleted"),
        ("1", other.as_str()),
        ("2", "changed"),
        ("3", "it describes no interface"),
        ("4", "its primary interface has no IPv4 address"),
        ("5", "its node is excluded"),
        ("6", "changed"),
    ];
    assert_eq!(words(&report), said("changed", &expected));
    assert_eq!(instance_pools(&fake, &id(2)), in_pools(&["lb-internal", "lb"], &[]));
    // One that is excluded later can still leave, and the model is for the others.
    let report = membership.leave(&call(), &key, &[pool("lb")].into(), &only(6)).await;
    assert_eq!(words(&report), said("unchanged", &[("6", "changed")]));
    assert_eq!(model_pools(&fake, &key), in_pools(&["lb"], &[]));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_vanishes_is_gone_and_one_that_fails_stops_nothing() {
    let (fake, key) = uniform(3);
    let (vanishing, mut puts) = (key.instance(1), 0);
    fake.on_call(move |call, state| {
        if call == "list instances" {
            return false;
        }
        puts += usize::from(call == "put machine");
        if puts == 1 {
            state.remove_machine(&vanishing);
        }
        call == "put machine" && puts == 1
    });
    let report = join(&membership(&fake), &key, "lb", IpVersion::V4).await;
    let expected = [("0", "failed: transient failure"), ("1", "gone"), ("2", "changed")];
    assert_eq!(words(&report), said("changed", &expected));
    assert_eq!(report.errors().count(), 1);
    // A set that cannot be read is one error; one that is not there is none.
    fake.on_call(|call, _| call == "get set");
    let report = join(&membership(&fake), &key, "lb", IpVersion::V4).await;
    assert_eq!(words(&report), said("failed: transient failure", &[]));
    assert!(report.unlisted.is_some());
    fake.on_call(|_, _| false);
    fake.state().remove_set(&key);
    let report = join(&membership(&fake), &key, "lb", IpVersion::V4).await;
    assert_eq!((words(&report), report.errors().count()), (said("gone", &[]), 0));
}

#[tokio::test(start_paused = true)]
async fn flexible_members_join_with_their_primary_interface_and_leave_with_all() {
    let (fake, key) = (Fake::new(100), set("rg", "flex"));
    fake.state().add_set(&key, "Flexible");
    fake.state().add_member(&key, "vm0", 1);
    fake.state().add_member(&key, "vm1", 2);
    fake.state().machine_mut(&member(&key, "vm1")).properties.network_profile.interfaces.clear();
    let membership = membership(&fake);
    let report = join(&membership, &key, "lb", IpVersion::V6).await;
    assert_eq!(words(&report), said("changed", &[("vm0", "changed"), ("vm1", "it describes no interface")]));
    let nic: ResourceId =
        format!("{}/providers/Microsoft.Network/networkInterfaces/vm0-nic", key.group()).parse().unwrap();
    assert_eq!(pools(&fake.state().interfaces[&nic].properties), in_pools(&[], &["lb"]));
    let report = membership.leave(&call(), &key, &[pool("lb")].into(), &Selection::default()).await;
    assert_eq!(words(&report).1["vm0"], "changed");
    assert_eq!(pools(&fake.state().interfaces[&nic].properties), in_pools(&[], &[]));
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_everything_converge_without_losing_each_others_fields() {
    let (fake, key) = uniform(20);
    let config = MembershipConfig { batch: 8, attempts: 20 };
    let (one, two) = (Membership::new(cache(&fake), config), Membership::new(cache(&fake), config));
    // A third writes tags of everything all the time.
    let tags = async {
        for round in 0..10 {
            for instance in 0..20 {
                let id = key.instance(instance);
                loop {
                    let mut machine = fake.get_machine(&call(), &id).await.unwrap().unwrap();
                    machine.other["tags"]["round"] = round.into();
                    if fake.put_machine(&call(), &id, &machine).await.is_ok() {
                        break;
                    }
                }
            }
        }
    };
    let (first, second, ()) = tokio::join!(
        join(&one, &key, "lb", IpVersion::V4),
        join(&two, &key, "lb-internal", IpVersion::V4),
        tags
    );
    assert_eq!((first.errors().count(), second.errors().count()), (0, 0), "{first:?} {second:?}");
    let sorted = |mut pools: Vec<Vec<String>>| {
        pools.iter_mut().for_each(|pools| pools.sort());
        pools
    };
    let both = in_pools(&["lb", "lb-internal"], &[]);
    assert_eq!(sorted(model_pools(&fake, &key)), both);
    for instance in 0..20 {
        assert_eq!(sorted(instance_pools(&fake, &key.instance(instance))), both);
        let tags = &fake.state().machines[&key.instance(instance)].1.other["tags"];
        assert_eq!(*tags, serde_json::json!({"owner": "else", "round": 9}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_others_keep_writing_is_given_up_after_so_many_attempts() {
    let (fake, key) = uniform(1);
    let (id, mut others) = (key.instance(0), 0);
    fake.on_call(move |call, state| {
        if call == "put machine" {
            others += 1;
            state.machine_mut(&id).etag = Some(format!("\"another {others}\""));
        }
        false
    });
    let report = join(&membership(&fake), &key, "lb", IpVersion::V4).await;
    assert_eq!(words(&report), said("changed", &[("0", "failed: precondition failed")]));
    assert_eq!(fake.take_calls()["put machine"], MembershipConfig::default().attempts);
}

#[tokio::test(start_paused = true)]
async fn the_batch_bounds_how_many_are_written_at_the_same_time() {
    let (fake, key) = uniform(40);
    let membership = Membership::new(cache(&fake), MembershipConfig { batch: 10, attempts: 1 });
    let begin = tokio::time::Instant::now();
    join(&membership, &key, "lb", IpVersion::V4).await;
    // Three calls one after another, then four batches of a millisecond each.
    assert_eq!(begin.elapsed(), Duration::from_millis(3 + 4));
}

#[tokio::test(start_paused = true)]
async fn writes_drop_what_is_cached_of_the_set_even_when_cut_off() {
    let (fake, key) = uniform(20);
    let cache = cache(&fake);
    let membership = Membership::new(Arc::clone(&cache), MembershipConfig::default());
    let hour = Freshness::AtMost(Duration::from_secs(3600));
    let lists = async || {
        fake.take_calls();
        cache.snapshot(&call(), &key, None, hour).await.unwrap();
        fake.take_calls().get("list instances").copied().unwrap_or_default()
    };
    assert_eq!((lists().await, lists().await), (1, 0));
    join(&membership, &key, "lb", IpVersion::V4).await;
    assert_eq!((lists().await, lists().await), (1, 0));
    let cut = join(&membership, &key, "lb-internal", IpVersion::V4);
    assert!(tokio::time::timeout(Duration::from_millis(4), cut).await.is_err());
    assert_eq!((lists().await, lists().await), (1, 0));
    membership.scale(&call(), &key, 7).await.unwrap();
    assert_eq!((lists().await, lists().await), (1, 0));
    let cached = cache.snapshot(&call(), &key, None, hour).await.unwrap();
    assert_eq!(cached.value.as_ref().as_ref().unwrap().capacity(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn only_instances_that_are_there_are_deleted_and_the_others_told_apart() {
    let (fake, key) = uniform(4);
    fake.state().machine_mut(&key.instance(3)).properties.provisioning_state = Some("Deleting".into());
    let other = set("rg", "another").instance(0);
    let ids: BTreeSet<ProviderId> =
        [key.instance(0), key.instance(1), key.instance(3), key.instance(9), other.clone()].into();
    // One goes by itself at the last moment, for which all are refused at first.
    let (early, mut first) = (key.instance(1), true);
    fake.on_call(move |call, state| {
        if call == "delete instances" && std::mem::take(&mut first) {
            state.remove_machine(&early);
        }
        false
    });
    let outcomes = membership(&fake).delete(&call(), &key, &ids).await;
    let outcomes: BTreeMap<ProviderId, String> =
        outcomes.iter().map(|(id, outcome)| (id.clone(), word(outcome))).collect();
    let expected = [
        (key.instance(0), "changed"),
        (key.instance(1), "changed"),
        (key.instance(3), "it is being deleted"),
        (key.instance(9), "gone"),
        (other, "it is of another scale set"),
    ];
    assert_eq!(outcomes, expected.map(|(id, word)| (id, word.to_owned())).into());
    let left: Vec<ProviderId> = fake.state().machines.keys().cloned().collect();
    assert_eq!(left, [key.instance(2), key.instance(3)]);
}
