//! The VMSS client on the simulator, without a socket and under a virtual clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, Limiter, RetryPolicy};
use clb_sim::azure::{Azure, AzureConfig, ComputeConfig, Method, Power as SimulatedPower, Request};
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::{Simulation, SimulatorConfig};
use clb_vmss::models::IpVersion;
use clb_vmss::{
    COMPUTE_API_VERSION, CacheConfig, CallContext, Freshness, Lookup, Machine, MachineState, Membership,
    MembershipConfig, NodeEvent, NodeIdentity, NodePoller, Outcome, Power, ProviderId, ResourceGroupKey,
    ScaleSetKey, Selection, VmssApi, VmssCache, VmssClient,
};
use serde_json::{Value, json};
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(30);

fn group() -> ResourceGroupKey {
    ResourceGroupKey { subscription: "s".parse().unwrap(), name: "rg".parse().unwrap() }
}

fn set(name: &str) -> ScaleSetKey {
    let ResourceGroupKey { subscription, name: resource_group } = group();
    ScaleSetKey { subscription, resource_group, name: name.parse().unwrap() }
}

fn ip_configuration(family: &str) -> Value {
    json!({"name": family, "properties": {
        "primary": family == "IPv4", "subnet": {"id": "/subnet"}, "privateIPAddressVersion": family
    }})
}

fn ips<const N: usize>(ips: [&str; N]) -> BTreeSet<IpAddr> {
    ips.map(|ip| ip.parse().unwrap()).into()
}

fn removed(node: &str) -> NodeEvent {
    NodeEvent::Removed { node: node.to_owned() }
}

fn power_changed(node: &str, power: Power) -> NodeEvent {
    NodeEvent::PowerChanged { node: node.to_owned(), power }
}

/// A simulator, a client of it and a cache over that.
struct World {
    simulation: Simulation,
    api: Arc<VmssClient>,
    cache: Arc<VmssCache>,
}

impl World {
    fn new() -> Self {
        Self::with(SimulatorConfig::default())
    }

    /// One in which everything takes its time.
    fn slow(creation: u64, update: u64, deletion: u64) -> Self {
        let compute = ComputeConfig {
            creation: Duration::from_secs(creation),
            update: Duration::from_secs(update),
            deletion: Duration::from_secs(deletion),
            ..ComputeConfig::default()
        };
        let azure = AzureConfig { compute, ..AzureConfig::default() };
        Self::with(SimulatorConfig { azure, ..SimulatorConfig::default() })
    }

    fn with(config: SimulatorConfig) -> Self {
        let simulation = Simulation::new(config);
        let cloud = Cloud::Custom { endpoint: "http://127.0.0.1:1".into(), audience: "https://sim".into() };
        let endpoint = Endpoint::new(&cloud).unwrap();
        let arm = ArmClient::builder(endpoint, Anonymous, simulation.transport())
            .limiter(Limiter::new())
            .retry_policy(RetryPolicy::default())
            .build();
        let api = Arc::new(VmssClient::new(arm));
        let cache = Arc::new(VmssCache::new(api.clone(), [group()], CacheConfig::default()));
        Self { simulation, api, cache }
    }

    fn poller(&self) -> NodePoller {
        NodePoller::new(self.cache.clone(), INTERVAL)
    }

    async fn make(&self, name: &str, mode: &str, capacity: u32) {
        let scale_set = json!({
            "location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": capacity}, "properties": {
                "orchestrationMode": mode,
                "virtualMachineProfile": {
                    "osProfile": {"computerNamePrefix": format!("{name}-"), "adminUsername": "u"},
                    "networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": {
                        "primary": true, "ipConfigurations": [ip_configuration("IPv4")]
                    }}]}
                }
            }
        });
        let scale_set = serde_json::from_value(scale_set).unwrap();
        self.api.put_scale_set(&CallContext::random(), &set(name), &scale_set).await.unwrap();
    }

    /// Something happens to a machine behind everybody's back.
    fn change(&self, id: &ProviderId, change: impl FnOnce(&mut Azure, &str) -> bool) {
        assert!(self.simulation.with_azure(|azure| change(azure, &id.resource_id())), "{id}");
    }

    /// The host names of the machines that are being deleted.
    fn deleting(&self) -> Vec<String> {
        self.simulation.with_azure(|azure| {
            let going = azure.machines().filter(|machine| machine.provisioning_state == "Deleting");
            going.map(|machine| machine.computer_name).collect()
        })
    }

    /// What becomes of the search for the machine of a Node of old.
    async fn find(&self, node: &str, id: &ProviderId) -> Lookup {
        let (id, age) = (id.to_string(), Duration::from_secs(86_400));
        let node = NodeIdentity { name: node, provider_id: Some(&id), age };
        self.cache.lookup(&CallContext::random(), node, Freshness::Any).await
    }

    /// How many requests of this method there were since the last time.
    fn asked(&self, method: &Method) -> usize {
        self.simulation.take_records().iter().filter(|record| record.method == *method).count()
    }
}

/// What the next round tells.
async fn round(poller: &mut NodePoller) -> Vec<NodeEvent> {
    poller.poll_soon();
    poller.next_round().await.into_iter().map(|(_, event)| event).collect()
}

#[tokio::test(start_paused = true)]
async fn a_round_costs_a_list_of_sets_and_two_lists_for_each_page_of_a_set() {
    for (sets, each, pages) in [(1, 1, 1), (4, 25, 1), (20, 250, 2)] {
        let world = World::new();
        for number in 0..sets {
            world.make(&format!("pool{number}"), "Uniform", each).await;
        }
        let mut poller = world.poller();
        world.asked(&Method::Get);
        let told = round(&mut poller).await;
        let nodes: BTreeSet<String> = told
            .into_iter()
            .map(|event| {
                let NodeEvent::Added { node, machine } = event else { panic!("{event:?}") };
                assert_eq!((machine.power, machine.ips.len()), (Power::On, 1), "{node}");
                node
            })
            .collect();
        assert_eq!(nodes.len(), (sets * each) as usize);
        assert_eq!(world.asked(&Method::Get), (1 + sets * 2 * pages) as usize, "{sets} sets");
        assert_eq!(round(&mut poller).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_go_stop_and_are_told_apart() {
    let world = World::new();
    world.make("uni", "Uniform", 2).await;
    world.make("flex", "Flexible", 1).await;
    let mut poller = world.poller();
    assert_eq!(round(&mut poller).await.len(), 3);

    let call = CallContext::random();
    let membership = Membership::new(world.cache.clone(), MembershipConfig::default());
    membership.scale(&call, &set("uni"), 3).await.unwrap();
    let told = round(&mut poller).await;
    let [NodeEvent::Added { node, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(node, "uni-000002");

    let first = set("uni").instance(0);
    let deleted = membership.delete(&call, &set("uni"), &BTreeSet::from([first.clone()])).await;
    assert!(matches!(deleted[&first], Outcome::Changed), "{deleted:?}");
    assert_eq!(round(&mut poller).await, [removed("uni-000000")]);

    world.change(&set("uni").instance(1), |azure, id| azure.set_power(id, SimulatedPower::Stopped));
    assert_eq!(round(&mut poller).await, [power_changed("uni-000001", Power::Off)]);
}

#[tokio::test(start_paused = true)]
async fn flexible_members_are_nodes_with_addresses_and_power() {
    let world = World::new();
    world.make("flex", "Flexible", 2).await;
    world.make("other", "Flexible", 1).await;
    let mut poller = world.poller();
    world.asked(&Method::Get);
    assert_eq!(round(&mut poller).await.len(), 3);
    // The sets; of each its members and the interfaces of the group.
    assert_eq!(world.asked(&Method::Get), 1 + 2 * 2);

    // What was told is what there is, each set by itself.
    let machines: BTreeMap<String, Machine> = world.simulation.with_azure(|azure| {
        let members =
            azure.machines().filter(|machine| machine.scale_set.as_ref().unwrap().ends_with("/flex"));
        let machine = |id: &str, ips: Vec<IpAddr>| Machine {
            id: ProviderId::from_resource_id(id).unwrap(),
            vm_id: String::new(),
            ips: ips.into_iter().collect(),
            power: Power::On,
        };
        members.map(|it| (it.computer_name.to_lowercase(), machine(&it.id, it.addresses))).collect()
    });
    assert_eq!(machines.keys().collect::<Vec<_>>(), ["flex-000000", "flex-000001"]);
    let told = poller.nodes(&set("flex")).unwrap().clone().into_iter();
    let told = told.map(|(node, machine)| (node, Machine { vm_id: String::new(), ..machine }));
    assert_eq!(told.collect::<BTreeMap<_, _>>(), machines);

    // On the way between on and off, nothing is said.
    let (one, two) = (machines["flex-000000"].id.clone(), machines["flex-000001"].id.clone());
    for (now, told) in [
        (SimulatedPower::Stopping, Some(Power::Off)),
        (SimulatedPower::Stopped, None),
        (SimulatedPower::Deallocated, None),
        (SimulatedPower::Starting, None),
        (SimulatedPower::Running, Some(Power::On)),
        (SimulatedPower::Deallocating, Some(Power::Off)),
    ] {
        world.change(&one, |azure, id| azure.set_power(id, now));
        let told: Vec<_> = told.map(|power| power_changed("flex-000000", power)).into_iter().collect();
        assert_eq!(round(&mut poller).await, told, "{now:?}");
    }

    // A Node's provider id does not say that it is a member; what was listed does, without a call.
    world.asked(&Method::Get);
    let found = world.find("flex-000001", &two).await;
    let Lookup::Found { set: of, record, .. } = found else { panic!("{found:?}") };
    assert_eq!((of, &record.id, record.power), (set("flex"), &two, Power::On));
    assert_eq!(world.asked(&Method::Get), 0);

    // One goes by itself, and with it its interface; then all do with their set.
    world.change(&two, Azure::remove_machine);
    assert_eq!(round(&mut poller).await, [removed("flex-000001")]);
    world.api.delete_scale_set(&CallContext::random(), &set("flex")).await.unwrap();
    assert_eq!(round(&mut poller).await, [removed("flex-000000")]);
    assert_eq!(poller.nodes(&set("other")).unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reimaged_node_is_the_same_node_and_has_what_the_model_has_now() {
    let world = World::slow(0, 100, 0);
    world.make("uni", "Uniform", 2).await;
    let mut poller = world.poller();
    assert_eq!(round(&mut poller).await.len(), 2);
    let (id, node) = (set("uni").instance(1), "uni-000001");
    let before = poller.nodes(&set("uni")).unwrap()[node].clone();
    assert_eq!(before.ips, ips(["10.224.0.5"]));
    let latest = || {
        let cached = world.cache.last_snapshot(&set("uni")).unwrap();
        let record = cached.value.as_ref().as_ref().unwrap().get(&id).unwrap().clone();
        (record.latest_model_applied, record.state)
    };

    // It keeps name, id and addresses, and is there all the time.
    world.change(&id, Azure::reimage);
    assert_eq!(round(&mut poller).await, []);
    assert_eq!(latest(), (Some(true), MachineState::Updating));
    let found = world.find(node, &id).await;
    assert!(matches!(&found, Lookup::Found { record, .. } if record.power == Power::Unknown), "{found:?}");
    poller.next_round().await;
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(round(&mut poller).await, []);
    assert_eq!(latest(), (Some(true), MachineState::Ready));
    assert_eq!(poller.nodes(&set("uni")).unwrap()[node], before);

    // The model gets an address of the other family, which an instance has once it is reimaged.
    let call = CallContext::random();
    let mut model = world.api.get_scale_set(&call, &set("uni")).await.unwrap().unwrap();
    let interfaces = &mut model.properties.virtual_machine_profile.as_mut().unwrap().network_profile;
    let ip = serde_json::from_value(ip_configuration("IPv6")).unwrap();
    interfaces.configurations[0].properties.ip_configurations.push(ip);
    world.api.put_scale_set(&call, &set("uni"), &model).await.unwrap();
    assert_eq!(round(&mut poller).await, []);
    assert_eq!(latest(), (Some(false), MachineState::Ready));
    world.change(&id, Azure::reimage);
    let both = NodeEvent::IpsChanged { node: node.to_owned(), ips: ips(["10.224.0.5", "fd00:224::4"]) };
    assert_eq!(round(&mut poller).await, [both]);
    assert_eq!(latest(), (Some(true), MachineState::Updating));
    assert_eq!(poller.nodes(&set("uni")).unwrap()["uni-000000"].ips, ips(["10.224.0.4"]));
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_slowly_is_gone_at_once_and_told_once() {
    let world = World::slow(0, 0, 600);
    for (name, mode) in [("uni", "Uniform"), ("flex", "Flexible")] {
        world.make(name, mode, 3).await;
    }
    let mut poller = world.poller();
    assert_eq!(round(&mut poller).await.len(), 6);
    for name in ["uni", "flex"] {
        let nodes = poller.nodes(&set(name)).unwrap().clone();
        let (node, machine) = nodes.first_key_value().unwrap();
        let membership = Membership::new(world.cache.clone(), MembershipConfig::default());
        let (key, id) = (set(name), machine.id.clone());
        let deletion = tokio::spawn(async move {
            membership.delete(&CallContext::random(), &key, &BTreeSet::from([id])).await
        });
        while world.deleting().is_empty() {
            tokio::task::yield_now().await;
        }
        // It is listed for ten minutes yet, and no node any more.
        assert_eq!(round(&mut poller).await, [removed(node)]);
        assert!(matches!(world.find(node, &machine.id).await, Lookup::Gone));
        let mut rounds = 0;
        while !world.deleting().is_empty() {
            assert_eq!(poller.next_round().await, []);
            rounds += 1;
        }
        assert!(rounds > 15, "{rounds}");
        let outcomes = deletion.await.unwrap();
        assert!(matches!(outcomes[&machine.id], Outcome::Changed), "{outcomes:?}");
        assert_eq!(round(&mut poller).await, []);
        assert!(matches!(world.find(node, &machine.id).await, Lookup::Gone));
        assert_eq!(poller.nodes(&set(name)).unwrap().len(), 2);
    }

    // A whole set goes: its nodes at once, the other's not, and nothing is told when it is gone itself.
    let (api, call) = (world.api.clone(), CallContext::random());
    let deletion = tokio::spawn(async move { api.delete_scale_set(&call, &set("uni")).await });
    while world.deleting().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(round(&mut poller).await, [removed("uni-000001"), removed("uni-000002")]);
    while !world.deleting().is_empty() {
        assert_eq!(poller.next_round().await, []);
    }
    deletion.await.unwrap().unwrap();
    assert_eq!(round(&mut poller).await, []);
    assert_eq!((poller.nodes(&set("uni")), poller.nodes(&set("flex")).unwrap().len()), (None, 2));
}

#[tokio::test(start_paused = true)]
async fn while_machines_are_deleted_a_list_that_fails_removes_none() {
    let world = World::slow(0, 0, 600);
    world.make("uni", "Uniform", 250).await;
    world.make("flex", "Flexible", 3).await;
    let mut poller = world.poller();
    assert_eq!(round(&mut poller).await.len(), 253);
    // From the second page on, nothing of this set can be read.
    let refused = How::Refuse { status: 400, code: "InvalidParameter".to_owned() };
    let path = "*/virtualMachineScaleSets/uni/virtualMachines";
    let plan = FaultPlan::new(0).with(When::Nth(2), What::verb("GET").path(path), refused);
    world.simulation.set_faults(plan);
    for instance in [3, 240] {
        world.change(&set("uni").instance(instance), |azure, id| {
            let (method, path) = (Method::Delete, id.to_owned());
            let query = vec![("api-version".to_owned(), COMPUTE_API_VERSION.to_owned())];
            let request = Request { method, path, query, if_match: None, body: Value::Null };
            azure.handle(&request).status == 202
        });
    }
    assert_eq!(round(&mut poller).await, [NodeEvent::Stale]);
    assert_eq!(poller.nodes(&set("uni")).unwrap().len(), 250);
    let known = [NodeEvent::Fresh, removed("uni-000003"), removed("uni-00006o")];
    assert_eq!(round(&mut poller).await, known);
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(world.deleting(), [""; 0]);
    assert_eq!(round(&mut poller).await, []);
}

#[tokio::test(start_paused = true)]
async fn one_call_that_is_throttled_makes_all_wait_and_spoils_nothing() {
    let world = World::new();
    for number in 0..10 {
        world.make(&format!("pool{number}"), "Uniform", 2).await;
    }
    let throttle = How::Throttle { seconds: 40 };
    let plan = FaultPlan::new(0).with(When::Nth(4), What::verb("GET"), throttle);
    world.simulation.set_faults(plan);
    let _ = world.simulation.take_records();
    let begin = Instant::now();
    let told = round(&mut world.poller()).await;
    assert_eq!(told.len(), 20);
    assert!(told.iter().all(|event| matches!(event, NodeEvent::Added { .. })), "{told:?}");
    assert!(begin.elapsed() >= Duration::from_secs(40));
    let mut refused = world.simulation.take_records();
    refused.retain(|record| record.status == 429);
    assert_eq!(refused.len(), 1, "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_pools_lose_nothing_of_each_other() {
    let world = World::new();
    world.make("uni", "Uniform", 5).await;
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";
    let pools = json!([{"name": "one"}, {"name": "another"}]);
    let load_balancer = Request {
        method: Method::Put,
        path: format!("{network}/loadBalancers/lb"),
        query: vec![("api-version".to_owned(), "2025-05-01".to_owned())],
        if_match: None,
        body: json!({
            "location": "eastus", "sku": {"name": "Standard"}, "properties": {"backendAddressPools": pools}
        }),
    };
    assert_eq!(world.simulation.with_azure(|azure| azure.handle(&load_balancer)).status, 201);
    let pool = |name: &str| {
        let id = format!("{network}/loadBalancers/lb/backendAddressPools/{name}");
        id.parse::<clb_vmss::ResourceId>().unwrap()
    };
    let membership = Membership::new(world.cache.clone(), MembershipConfig { batch: 8, attempts: 50 });
    let (call, key, all) = (CallContext::random(), set("uni"), Selection::default());
    let (one, another) = (pool("one"), pool("another"));
    let reports = tokio::join!(
        membership.join(&call, &key, &one, IpVersion::V4, &all),
        membership.join(&call, &key, &another, IpVersion::V4, &all),
    );
    for report in [reports.0, reports.1] {
        assert_eq!((report.errors().count(), report.instances.len()), (0, 5), "{report:?}");
    }
    let interfaces = world.api.list_instance_interfaces(&call, &key).await.unwrap().unwrap();
    let mut pools: BTreeMap<String, usize> = BTreeMap::new();
    for interface in &interfaces {
        for ip in &interface.properties.ip_configurations {
            for pool in ip.properties.backend_pools.iter().flatten() {
                let name = pool.id.as_deref().and_then(|id| id.rsplit('/').next()).unwrap();
                *pools.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    assert_eq!(pools, BTreeMap::from([("one".to_owned(), 5), ("another".to_owned(), 5)]));
}
