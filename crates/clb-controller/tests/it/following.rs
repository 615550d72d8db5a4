//! Machines of scale sets that come and go, followed by the whole controller.

use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint};
use clb_controller::kube::Controller;
use clb_vmss::{
    CacheConfig, CallContext, NodePoller, ResourceGroupKey, ScaleSetKey, VmssApi, VmssCache, VmssClient,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{Held, Replica, SECOND, World, nrp_config};

fn group() -> ResourceGroupKey {
    ResourceGroupKey { subscription: "s".parse().unwrap(), name: "rg".parse().unwrap() }
}

fn set() -> ScaleSetKey {
    let ResourceGroupKey { subscription, name: resource_group } = group();
    ScaleSetKey { subscription, resource_group, name: "pool".parse().unwrap() }
}

impl World {
    fn machines(&self) -> Arc<VmssClient> {
        let endpoint = "http://localhost".to_owned();
        let cloud = Cloud::Custom { endpoint: endpoint.clone(), audience: endpoint };
        let endpoint = Endpoint::new(&cloud).unwrap();
        Arc::new(VmssClient::new(ArmClient::builder(endpoint, Anonymous, self.azure.transport()).build()))
    }

    fn start_following(&self) -> Replica {
        let cache = Arc::new(VmssCache::new(self.machines(), [group()], CacheConfig::default()));
        let poller = NodePoller::new(cache, 30 * SECOND);
        let controller =
            Controller::new(Self::config(), self.client.clone(), Arc::new(self.nrp()), nrp_config()).unwrap();
        let controller = controller.following(poller);
        let (inbox, status) = (controller.inbox(), controller.status());
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(controller.run(shutdown.clone()));
        Replica { inbox, status, shutdown, task }
    }

    async fn scale(&self, capacity: u32) {
        let api = self.machines();
        let ip = json!({"name": "v4", "properties": {"primary": true, "subnet": {"id": "/subnet"},
            "privateIPAddressVersion": "IPv4"}});
        let scale_set: Value = json!({
            "location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": capacity}, "properties": {
                "orchestrationMode": "Uniform", "virtualMachineProfile": {
                    "osProfile": {"computerNamePrefix": "pool-", "adminUsername": "u"},
                    "networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": {
                        "primary": true, "ipConfigurations": [ip]}}]}}}
        });
        let scale_set = serde_json::from_value(scale_set).unwrap();
        api.put_scale_set(&CallContext::random(), &set(), &scale_set).await.unwrap();
    }

    /// The names and addresses of the machines, by name.
    fn listed(&self) -> Vec<(String, String)> {
        self.azure.with_azure(|azure| {
            let mut machines: Vec<_> = azure
                .machines()
                .map(|machine| {
                    (machine.computer_name.clone(), machine.addresses.first().unwrap().to_string())
                })
                .collect();
            machines.sort();
            machines
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_deleted_takes_its_pods_out_of_the_pool_though_its_node_lingers() {
    let world = World::new();
    world.scale(3).await;
    let machines = world.listed();
    for (name, ip) in &machines {
        world.node(name, ip);
    }
    let pods: Vec<_> = machines.iter().zip(["10.0.0.1", "10.0.0.2", "10.0.0.3"]).collect();
    let endpoints: Vec<_> = pods.iter().map(|((name, _), pod)| (*pod, name.as_str())).collect();
    world.slice("s", "web", &endpoints);
    let uid = world.service("web", json!({}));
    let replica = world.start_following();
    world.settle(&replica).await;
    let rows: Vec<_> = pods.iter().map(|((_, ip), pod)| (*pod, ip.as_str())).collect();
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &rows)]));
    // Scaling in removes the newest machine; its Node object stays for minutes.
    let puts = world.azure.counts().put;
    world.scale(2).await;
    let left = world.listed();
    assert_eq!(left.len(), 2);
    world.settle(&replica).await;
    let rows: Vec<_> = rows.into_iter().filter(|(_, ip)| left.iter().any(|(_, other)| other == ip)).collect();
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &rows)]));
    // The only PUT is that of the scale set.
    assert_eq!(world.azure.counts().put, puts + 1);
    // The Node is made again, by another UID: it counts again.
    let gone = machines.iter().find(|machine| !left.contains(machine)).unwrap();
    world.delete(&format!("/api/v1/nodes/{}", gone.0));
    world.node(&gone.0, &gone.1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.settle(&replica).await;
    assert_eq!(world.held().await.addresses.len(), 3);
    assert_eq!(world.azure.counts().put, puts + 1);
}
