//! A simulated Kubernetes of any size, as manifests.

use clb_sim::kube::{Answer, Kind, KubeSimulation, Request};
use serde_json::{Value, json};

/// What can go wrong.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Pods of each node and of each Service. A cluster has as many Services as nodes.
pub const PODS: usize = 20;

/// The manifests of a cluster of so many nodes.
pub fn manifests(nodes: usize) -> String {
    let mut text = String::new();
    let ip = |first: u8, number: usize| {
        let [.., a, b] = number.to_be_bytes();
        format!("{first}.1.{a}.{b}")
    };
    let name = |number: usize| format!("aks-pool1-12345678-vmss{number:06}");
    let mut add = |object: Value| {
        text.push_str(&object.to_string());
        text.push('\n');
    };
    for number in 0..nodes {
        add(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name(number), "labels": {
                "agentpool": "pool1", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name(number),
                "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "0"}},
            "spec": {"providerID": format!("azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/{number}")},
            "status": {"addresses": [{"type": "InternalIP", "address": ip(10, number)}, {"type": "Hostname", "address": name(number)}],
                "capacity": {"cpu": "8", "memory": "32Gi", "pods": "250"}, "conditions": [{"type": "Ready", "status": "True"}]}}));
        let app = format!("app-{number}");
        add(json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": app},
            "spec": {"type": "LoadBalancer", "selector": {"app": app, "tier": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "https", "port": 443, "targetPort": 8443}]}}));
        for pod in 0..PODS {
            add(
                json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": format!("{app}-{pod:05}"), "labels": {
                    "app": app, "tier": "web", "pod-template-hash": "5d4f8c7b9"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app,
                        "uid": format!("00000000-0000-0000-0001-{number:012}"), "controller": true}]},
                "spec": {"serviceAccountName": "default", "restartPolicy": "Always", "containers": [{
                    "name": "app", "image": "registry.example/app:1", "ports": [{"name": "http", "containerPort": 8080}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]}}),
            );
        }
    }
    text
}

/// Lets the controllers work until there is nothing left to do.
pub fn run_controllers(simulation: &KubeSimulation) {
    let round = || {
        simulation.with_cluster(|cluster| {
            let before = cluster.version();
            cluster.run_controllers();
            cluster.version() != before
        })
    };
    while round() {}
}

/// Every pod runs, and stands in one slice.
pub fn check(simulation: &KubeSimulation, nodes: usize) {
    simulation.with_cluster(|cluster| {
        let endpoints = cluster
            .objects(Kind::EndpointSlice)
            .map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len));
        assert_eq!(endpoints.sum::<usize>(), nodes * PODS);
        assert!(cluster.objects(Kind::Pod).all(|pod| pod["status"]["phase"] == "Running"));
        assert_eq!(cluster.objects(Kind::Pod).count(), nodes * PODS);
    });
}

/// The answer to a request that must succeed.
pub fn ask(simulation: &KubeSimulation, request: &Request) -> Result<Value> {
    match simulation.handle(request) {
        Answer::Body { status: 200, body } => Ok(body),
        other @ (Answer::Body { .. } | Answer::Watch(_)) => Err(format!("{request:?}: {other:?}").into()),
    }
}

/// Gives a label to a pod: the first of a Service.
pub fn relabel(simulation: &KubeSimulation, service: usize, value: &str) -> Result<()> {
    let request = Request {
        method: "PATCH".to_owned(),
        path: format!("/api/v1/namespaces/default/pods/app-{service}-00000"),
        content_type: "application/merge-patch+json".to_owned(),
        body: json!({"metadata": {"labels": {"value": value}}}),
        ..Request::default()
    };
    ask(simulation, &request).map(drop)
}
