//! The whole controller in one process and in virtual time: its watches and writes lead to the simulated API server, its calls
//! to the simulated Azure, without a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, Transport};
use clb_controller::kube::{Controller, ControllerConfig, ControllerError};
use clb_controller::objects::PROGRAMMED;
use clb_controller::{Inbox, Status, WallClock};
use clb_nrp::{CallContext, NrpApi, NrpClient, NrpConfig};
use clb_sim::kube::{Answer, Kind, KubeConfig, KubeSimulation, Request};
use clb_sim::{Simulation, SimulatorConfig};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long nothing may happen for it to count as quiet: longer than any pause between one thing and what follows from it,
/// retries included.
const QUIET: Duration = Duration::from_secs(45);
/// How long it may take until it is quiet.
const PATIENCE: Duration = Duration::from_secs(3 * 3_600);

pub(crate) struct World {
    pub(crate) kube: KubeSimulation,
    pub(crate) azure: Simulation,
    pub(crate) client: kube::Client,
}

/// One running controller.
pub(crate) struct Replica {
    pub(crate) inbox: Inbox,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<Result<usize, ControllerError>>,
}

impl Replica {
    /// It dies in the middle of whatever it does.
    pub(crate) async fn kill(self) {
        self.task.abort();
        // Cancelled, which is what was asked for.
        let _ = self.task.await;
    }

    pub(crate) async fn stop(self) -> usize {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap()
    }
}

pub(crate) fn nrp_config() -> NrpConfig {
    let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";
    NrpConfig::new("s", "rg", "eastus", network.parse().unwrap()).unwrap()
}

/// A client that leads to this Azure.
pub(crate) fn nrp_of(azure: &Simulation) -> NrpClient {
    nrp_over(azure.transport())
}

pub(crate) fn nrp_over(transport: impl Transport) -> NrpClient {
    let endpoint = "http://localhost".to_owned();
    let cloud = Cloud::Custom { endpoint: endpoint.clone(), audience: endpoint };
    let endpoint = Endpoint::new(&cloud).unwrap();
    let arm = ArmClient::builder(endpoint, Anonymous, transport).build();
    NrpClient::new(arm, nrp_config())
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(KubeConfig::default(), SimulatorConfig::default())
    }

    pub(crate) fn with(kube: KubeConfig, azure: SimulatorConfig) -> Self {
        let kube = KubeSimulation::new(kube);
        let azure = Simulation::new(azure);
        let client = kube::Client::new(kube.router(), "default");
        Self { kube, azure, client }
    }

    pub(crate) fn nrp(&self) -> NrpClient {
        nrp_of(&self.azure)
    }

    pub(crate) fn config() -> ControllerConfig {
        let clock = WallClock::starting_at(std::time::UNIX_EPOCH);
        ControllerConfig { clock, ..ControllerConfig::new("here", "replica-0") }.seeded(7)
    }

    /// A world with a controller, and two nodes.
    pub(crate) fn running() -> (Self, Replica) {
        let world = Self::new();
        world.node("n1", "192.168.0.1");
        world.node("n2", "192.168.0.2");
        let replica = world.start();
        (world, replica)
    }

    pub(crate) fn start(&self) -> Replica {
        self.start_with(Self::config())
    }

    pub(crate) fn start_with(&self, config: ControllerConfig) -> Replica {
        self.start_by(config, self.client.clone(), Arc::new(self.nrp()))
    }

    pub(crate) fn start_by(
        &self,
        config: ControllerConfig,
        client: kube::Client,
        nrp: Arc<dyn NrpApi>,
    ) -> Replica {
        let controller = Controller::new(config, client, nrp, nrp_config()).unwrap();
        let (inbox, status) = (controller.inbox(), controller.status());
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(controller.run(shutdown.clone()));
        Replica { inbox, status, shutdown, task }
    }

    /// Asks the API server.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Value) -> Result<Value, (u16, String)> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            content_type: if method == "PATCH" { "application/merge-patch+json" } else { "application/json" }
                .to_owned(),
            body,
            ..Request::default()
        };
        match self.kube.handle(&request) {
            Answer::Body { status: 200..=299, body } => Ok(body),
            Answer::Body { status, body } => Err((status, body["message"].to_string())),
            Answer::Watch(_) => panic!("not for watches"),
        }
    }

    pub(crate) fn node(&self, name: &str, ip: &str) {
        let node = json!({"metadata": {"name": name}});
        self.ask("POST", "/api/v1/nodes", node).unwrap();
        self.node_addresses(name, &[ip]);
    }

    pub(crate) fn node_addresses(&self, name: &str, ips: &[&str]) {
        let address = |ip: &&str| json!({"type": "InternalIP", "address": ip});
        let addresses: Vec<_> = ips.iter().map(address).collect();
        let status =
            json!({"status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]}});
        self.ask("PATCH", &format!("/api/v1/nodes/{name}/status"), status).unwrap();
    }

    /// A Service of type LoadBalancer in `default`, with these changes of its spec. Returns its UID.
    pub(crate) fn service(&self, name: &str, changes: Value) -> String {
        let mut service = json!({"metadata": {"name": name}, "spec": {
            "type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
        merge(&mut service["spec"], changes);
        let made = self.ask("POST", "/api/v1/namespaces/default/services", service).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn patch_service(&self, name: &str, patch: Value) -> Value {
        self.ask("PATCH", &format!("/api/v1/namespaces/default/services/{name}"), patch).unwrap()
    }

    pub(crate) fn get_service(&self, name: &str) -> Option<Value> {
        self.ask("GET", &format!("/api/v1/namespaces/default/services/{name}"), Value::Null).ok()
    }

    pub(crate) fn delete(&self, path: &str) {
        self.ask("DELETE", path, Value::Null).unwrap();
    }

    /// The slice of a Service: the endpoints that are ready, each with its node.
    pub(crate) fn slice(&self, name: &str, service: &str, endpoints: &[(&str, &str)]) {
        let endpoint = |(ip, node): &(&str, &str)| json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}});
        let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
        self.slice_of(name, service, json!(endpoints));
    }

    pub(crate) fn slice_of(&self, name: &str, service: &str, endpoints: Value) {
        let family = if endpoints[0]["addresses"][0].as_str().is_some_and(|ip| ip.contains(':')) {
            "IPv6"
        } else {
            "IPv4"
        };
        let slice = json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": family, "ports": [{"name": "http", "protocol": "TCP", "port": 8080}], "endpoints": endpoints});
        let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        if self.ask("POST", path, slice).is_err() {
            let patch = json!({"endpoints": endpoints});
            self.ask("PATCH", &format!("{path}/{name}"), patch).unwrap();
        }
    }

    /// A running pod on a node, with an egress label.
    pub(crate) fn egress_pod(&self, name: &str, egress: &str, node: &str, ips: &[&str]) {
        let pod = json!({"metadata": {"name": name, "labels": {"kubernetes.azure.com/service-egress-gateway": egress}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        self.ask("POST", "/api/v1/namespaces/default/pods", pod).unwrap();
        self.pod_status(name, "Running", ips);
    }

    pub(crate) fn pod_status(&self, name: &str, phase: &str, ips: &[&str]) {
        let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({"status": {"phase": phase, "podIPs": ips, "podIP": ips.first().map(|ip| ip["ip"].clone())}});
        self.ask("PATCH", &format!("/api/v1/namespaces/default/pods/{name}/status"), status).unwrap();
    }

    pub(crate) fn patch_pod(&self, name: &str, patch: Value) {
        self.ask("PATCH", &format!("/api/v1/namespaces/default/pods/{name}"), patch).unwrap();
    }

    pub(crate) fn finalizers(&self, path: &str) -> Option<Vec<String>> {
        let object = self.ask("GET", path, Value::Null).ok()?;
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        Some(finalizers.iter().map(|it| it.as_str().unwrap().to_owned()).collect())
    }

    pub(crate) fn service_finalizers(&self, name: &str) -> Option<Vec<String>> {
        self.finalizers(&format!("/api/v1/namespaces/default/services/{name}"))
    }

    pub(crate) fn pod_finalizers(&self, name: &str) -> Option<Vec<String>> {
        self.finalizers(&format!("/api/v1/namespaces/default/pods/{name}"))
    }

    /// The addresses in a Service's status.
    pub(crate) fn ingress(&self, name: &str) -> Vec<String> {
        let service = self.get_service(name).unwrap();
        let entries = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|entry| entry["ip"].as_str().map(str::to_owned)).collect()
    }

    /// The status and reason of our condition on an object.
    pub(crate) fn condition(&self, path: &str) -> Option<(String, String)> {
        let object = self.ask("GET", path, Value::Null).ok()?;
        let conditions = object["status"]["conditions"].as_array()?;
        let ours = conditions.iter().find(|condition| condition["type"] == PROGRAMMED)?;
        let text = |field: &str| ours[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason")))
    }

    pub(crate) fn service_condition(&self, name: &str) -> Option<(String, String)> {
        self.condition(&format!("/api/v1/namespaces/default/services/{name}"))
    }

    /// The events there are: type, reason, and how often.
    pub(crate) fn events(&self) -> BTreeMap<(String, String), u64> {
        self.kube.with_cluster(|cluster| {
            let mut events = BTreeMap::new();
            for event in cluster.objects(Kind::Event) {
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                *events.entry((text("type"), text("reason"))).or_default() +=
                    event["count"].as_u64().unwrap_or(1);
            }
            events
        })
    }

    /// The reasons of all warnings.
    pub(crate) fn warnings(&self) -> BTreeSet<String> {
        self.events().into_keys().filter(|(kind, _)| kind == "Warning").map(|(_, reason)| reason).collect()
    }

    /// Waits until a controller is in sync and nothing has happened for a while, on either side.
    pub(crate) async fn settle(&self, replica: &Replica) {
        let started = Instant::now();
        let state = || (self.azure.counts(), self.kube.with_cluster(|cluster| cluster.version()));
        let (mut last, mut since) = (state(), Instant::now());
        loop {
            sleep(SECOND).await;
            let now = state();
            if now.0.put != last.0.put
                || now.0.delete != last.0.delete
                || now.0.update_services != last.0.update_services
                || now.0.update_address_locations != last.0.update_address_locations
                || now.1 != last.1
                || !replica.status.borrow().is_synced
            {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET {
                return;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "does not settle: {:?} {:?} {:#?}",
                last,
                *replica.status.borrow(),
                self.azure.take_records().into_iter().rev().take(10).collect::<Vec<_>>()
            );
        }
    }

    /// Writes to Azure so far.
    pub(crate) fn azure_writes(&self) -> u64 {
        let counts = self.azure.counts();
        counts.put + counts.delete + counts.update_services + counts.update_address_locations
    }

    /// What Azure holds.
    pub(crate) async fn held(&self) -> Held {
        Held::read(&self.nrp()).await
    }
}

fn merge(into: &mut Value, changes: Value) {
    if let Value::Object(changes) = changes {
        for (name, value) in changes {
            into[name] = value;
        }
    }
}

/// What the gateway and the resource group hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) services: BTreeSet<String>,
    pub(crate) load_balancers: BTreeSet<String>,
    pub(crate) nat_gateways: BTreeSet<String>,
    pub(crate) public_ips: BTreeSet<String>,
    /// Location, address, service.
    pub(crate) addresses: BTreeSet<(IpAddr, IpAddr, String)>,
}

impl Held {
    pub(crate) async fn read(nrp: &NrpClient) -> Self {
        let call = CallContext::random();
        let names = |names: Vec<Option<String>>| {
            names.into_iter().flatten().map(|name| name.to_ascii_lowercase()).collect()
        };
        let mut held = Self {
            services: names(
                nrp.get_services(&call).await.unwrap().into_iter().map(|it| Some(it.name)).collect(),
            ),
            load_balancers: names(
                nrp.list_load_balancers(&call).await.unwrap().into_iter().map(|it| it.name).collect(),
            ),
            nat_gateways: names(
                nrp.list_nat_gateways(&call).await.unwrap().into_iter().map(|it| it.name).collect(),
            ),
            public_ips: names(
                nrp.list_public_ips(&call).await.unwrap().into_iter().map(|it| it.name).collect(),
            ),
            addresses: BTreeSet::new(),
        };
        for location in nrp.get_address_locations(&call).await.unwrap() {
            for address in location.addresses {
                for service in address.services.iter() {
                    held.addresses.insert((location.location, address.address, service.to_ascii_lowercase()));
                }
            }
        }
        held
    }

    /// What these inbound Services with these addresses come to.
    pub(crate) fn inbound(services: &[(&str, &[(&str, &str)])]) -> Self {
        Self::default().and_inbound(services)
    }

    /// And these inbound Services.
    pub(crate) fn and_inbound(mut self, services: &[(&str, &[(&str, &str)])]) -> Self {
        for (uid, addresses) in services {
            self.services.insert((*uid).to_owned());
            self.load_balancers.insert((*uid).to_owned());
            self.public_ips.insert(format!("{uid}-pip"));
            self.add(uid, addresses);
        }
        self
    }

    /// And these outbound services.
    pub(crate) fn and_outbound(mut self, services: &[(&str, &[(&str, &str)])]) -> Self {
        for (name, addresses) in services {
            self.services.insert((*name).to_owned());
            self.nat_gateways.insert((*name).to_owned());
            self.public_ips.insert(format!("{name}-pip"));
            self.add(name, addresses);
        }
        self
    }

    fn add(&mut self, service: &str, addresses: &[(&str, &str)]) {
        for (address, location) in addresses {
            let row = (location.parse().unwrap(), address.parse().unwrap(), service.to_owned());
            self.addresses.insert(row);
        }
    }
}
