//! The VMSS client on the simulator, without a socket and under a virtual clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint};
use clb_sim::azure::{Method, Power as SimulatedPower, Request};
use clb_sim::{Simulation, SimulatorConfig};
use clb_vmss::models::IpVersion;
use clb_vmss::{
    CacheConfig, CallContext, Membership, MembershipConfig, NodeEvent, NodePoller, Outcome, Power,
    ResourceGroupKey, ScaleSetKey, Selection, VmssApi, VmssCache, VmssClient,
};
use futures::StreamExt;
use serde_json::json;

const INTERVAL: Duration = Duration::from_secs(30);

fn group() -> ResourceGroupKey {
    ResourceGroupKey { subscription: "s".parse().unwrap(), name: "rg".parse().unwrap() }
}

fn set(name: &str) -> ScaleSetKey {
    let ResourceGroupKey { subscription, name: resource_group } = group();
    ScaleSetKey { subscription, resource_group, name: name.parse().unwrap() }
}

/// A simulator, a client of it and a cache over that.
struct World {
    simulation: Simulation,
    api: Arc<VmssClient>,
    cache: Arc<VmssCache>,
}

impl World {
    fn new() -> Self {
        let simulation =
            Simulation::new(SimulatorConfig { latency: Duration::ZERO, ..SimulatorConfig::default() });
        let cloud = Cloud::Custom { endpoint: "http://127.0.0.1:1".into(), audience: "https://sim".into() };
        let endpoint = Endpoint::new(&cloud).unwrap();
        let arm = ArmClient::builder(endpoint, Anonymous, simulation.transport()).build();
        let api = Arc::new(VmssClient::new(arm));
        let cache = Arc::new(VmssCache::new(api.clone(), [group()], CacheConfig::default()));
        Self { simulation, api, cache }
    }

    async fn make(&self, name: &str, mode: &str, capacity: u32) {
        let scale_set = json!({
            "location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": capacity}, "properties": {
                "orchestrationMode": mode,
                "virtualMachineProfile": {
                    "osProfile": {"computerNamePrefix": format!("{name}-"), "adminUsername": "u"},
                    "networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": {
                        "primary": true, "ipConfigurations": [{"name": "ip", "properties": {
                            "primary": true, "subnet": {"id": "/subnet"}, "privateIPAddressVersion": "IPv4"
                        }}]
                    }}]}
                }
            }
        });
        let scale_set = serde_json::from_value(scale_set).unwrap();
        self.api.put_scale_set(&CallContext::random(), &set(name), &scale_set).await.unwrap();
    }

    /// How many requests of this method there were since the last time.
    fn asked(&self, method: &Method) -> usize {
        self.simulation.take_records().iter().filter(|record| record.method == *method).count()
    }
}

/// What a poller tells until the round that begins now, or goes on, has ended.
async fn round(poller: &mut NodePoller) -> Vec<NodeEvent> {
    let rounds = poller.rounds();
    let mut events = Vec::new();
    poller.poll_soon();
    while poller.rounds() == rounds {
        // Nothing is told while it waits for the round after.
        if let Ok(Some((_, event))) = tokio::time::timeout(INTERVAL / 2, poller.next()).await {
            events.push(event);
        }
    }
    events
}

#[tokio::test(start_paused = true)]
async fn a_round_costs_a_list_of_sets_and_two_lists_for_each_page_of_a_set() {
    for (sets, each, pages) in [(1, 1, 1), (4, 25, 1), (20, 250, 2)] {
        let world = World::new();
        for number in 0..sets {
            world.make(&format!("pool{number}"), "Uniform", each).await;
        }
        let mut poller = NodePoller::new(world.cache.clone(), INTERVAL);
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
    let mut poller = NodePoller::new(world.cache.clone(), INTERVAL);
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
    assert_eq!(round(&mut poller).await, [NodeEvent::Removed { node: "uni-000000".to_owned() }]);

    let second = set("uni").instance(1).resource_id();
    assert!(world.simulation.with_azure(|azure| azure.set_power(&second, SimulatedPower::Stopped)));
    let off = NodeEvent::PowerChanged { node: "uni-000001".to_owned(), power: Power::Off };
    assert_eq!(round(&mut poller).await, [off]);
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
