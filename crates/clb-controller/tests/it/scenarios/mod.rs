//! The scenarios that concern the whole controller, on the simulated cluster and the simulated Azure. `tests/scenarios.md` says
//! where each scenario is tested, these and all others.

mod admission;
mod concurrency;
mod egress;
mod endpoints;
mod finalizers;
mod nodes;
mod restart;
mod services;
mod services_in_trouble;
mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use clb_controller::objects::{POD_FINALIZER, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER};
use clb_sim::azure::Method;
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::World;

/// For calls of which none may be made, or objects without finalizers.
pub(crate) const NONE: [&str; 0] = [];

/// What a Service costs, and what its removal does.
pub(crate) const MADE: [&str; 4] =
    ["PUT publicIPAddresses", "PUT loadBalancers", "updateServices", "updateAddressLocations"];
pub(crate) const REMOVED: [&str; 5] = [
    "updateAddressLocations",
    "updateServices",
    "DELETE loadBalancers",
    "updateServices",
    "DELETE publicIPAddresses",
];

/// The finalizers of a Service that has something in Azure.
pub(crate) fn both() -> Option<Vec<String>> {
    Some([SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER].map(str::to_owned).to_vec())
}

/// The finalizers of a pod that leaves through an outbound service.
pub(crate) fn ours() -> Option<Vec<String>> {
    Some(vec![POD_FINALIZER.to_owned()])
}

/// A condition, as `World::service_condition` gives it.
pub(crate) fn says(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

/// The path of an object in `default`.
pub(crate) fn service(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

pub(crate) fn pod(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

pub(crate) async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

fn until(now: Duration, seconds: u64) -> When {
    let to = now + Duration::from_secs(seconds);
    When::Between { from: 0, to: u64::try_from(to.as_millis()).unwrap() }
}

fn refusal() -> How {
    How::Refuse { status: 503, code: "ServiceUnavailable".to_owned() }
}

impl World {
    /// For so many seconds Azure refuses such calls.
    pub(crate) fn azure_refuses(&self, verb: &str, path: &str, seconds: u64) {
        let plan = FaultPlan::new(0);
        self.azure.set_faults(plan.with(
            until(self.azure.now(), seconds),
            What::verb(verb).path(path),
            refusal(),
        ));
    }

    /// From now on Azure answers such calls so many seconds late.
    pub(crate) fn azure_is_slow(&self, verb: &str, path: &str, seconds: u64) {
        let plan = FaultPlan::new(0);
        self.azure.set_faults(plan.with(
            When::Always,
            What::verb(verb).path(path),
            How::Delay(seconds * 1_000),
        ));
    }

    /// For so many seconds the API server refuses such calls.
    pub(crate) fn kube_refuses(&self, verb: &str, path: &str, seconds: u64) {
        let plan = FaultPlan::new(0);
        self.kube.set_faults(plan.with(
            until(self.kube.elapsed(), seconds),
            What::verb(verb).path(path),
            refusal(),
        ));
    }

    /// From now on the API server answers such calls so many seconds late.
    pub(crate) fn kube_is_slow(&self, verb: &str, path: &str, seconds: u64) {
        let plan = FaultPlan::new(0);
        self.kube.set_faults(plan.with(
            When::Always,
            What::verb(verb).path(path),
            How::Delay(seconds * 1_000),
        ));
    }

    /// The writes to Azure since this was asked last, as what they are done to.
    pub(crate) fn calls(&self) -> Vec<String> {
        let records = self.azure.take_records().into_iter();
        let calls = records.filter_map(|record| {
            let mut parts = record.path.rsplit('/');
            let last = parts.next().unwrap_or_default();
            let kind = parts.next().unwrap_or_default();
            match record.method {
                Method::Get => None,
                Method::Post => Some(last.to_owned()),
                Method::Put => Some(format!("PUT {kind}")),
                Method::Delete => Some(format!("DELETE {kind}")),
                Method::Patch | Method::Other(_) => Some(record.path.clone()),
            }
        });
        calls.collect()
    }

    /// Lets the cluster live: pods are scheduled, start and stop, and Services get their slices.
    pub(crate) fn live(&self) {
        let kube = self.kube.clone();
        tokio::spawn(async move { kube.run_controllers().await });
    }

    /// A Service of type LoadBalancer in `default`. Returns its UID.
    pub(crate) fn service_of(&self, metadata: &Value, changes: Value) -> String {
        let name = metadata["name"].as_str().unwrap().to_owned();
        let uid = self.service(&name, changes);
        self.patch_service(&name, json!({"metadata": metadata}));
        uid
    }

    /// A pod that the cluster finds a node for.
    pub(crate) fn backend(&self, name: &str, app: &str) {
        let pod = json!({"metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        self.ask("POST", "/api/v1/namespaces/default/pods", pod).unwrap();
    }

    /// Where the pods with this label serve: each one's address and its node's.
    pub(crate) fn serving(&self, app: &str) -> Vec<(String, String)> {
        let selector = format!("/api/v1/namespaces/default/pods?labelSelector=app={app}");
        let listed = self.ask("GET", &selector, Value::Null).unwrap();
        let pods = listed["items"].as_array().unwrap().iter();
        let running = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        running.map(|pod| (text(&pod["status"]["podIP"]), text(&pod["status"]["hostIP"]))).collect()
    }

    /// What can be connected to from outside: protocol and port.
    pub(crate) fn frontends(&self) -> BTreeSet<(String, u16)> {
        let frontends = self.azure.with_azure(|azure| azure.frontends());
        frontends.into_iter().map(|it| (it.protocol, it.port)).collect()
    }

    /// Deletes a pod that takes no time to stop.
    pub(crate) fn delete_pod(&self, name: &str) {
        self.delete(&format!("{}?gracePeriodSeconds=0", pod(name)));
    }

    pub(crate) fn pod_is_there(&self, name: &str) -> bool {
        self.pod_finalizers(name).is_some()
    }

    /// Both families from now on.
    pub(crate) fn dual_stack(&self) {
        self.node_addresses("n1", &["192.168.0.1", "fd00::1"]);
        self.node_addresses("n2", &["192.168.0.2", "fd00::2"]);
    }
}

/// Borrowed pairs, as `Held` takes them.
pub(crate) fn pairs(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(left, right)| (left.as_str(), right.as_str())).collect()
}
