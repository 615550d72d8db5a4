//! What a cluster does by itself: pods are scheduled, run and stop, and Services get their EndpointSlices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::{Cluster, Key};
use super::kind::Kind;

/// How many endpoints a slice holds, as the real controller's are by default.
const SLICE_SIZE: usize = 100;
/// What the real controller calls itself in its slices.
const MANAGED_BY: &str = "endpointslice-controller.k8s.io";

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn is_ready(pod: &Value) -> bool {
    list(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// An object that there is.
type Held = (Key, Arc<Value>);

/// The slices of one family and one set of ports.
type Group = (String, String);

impl Cluster {
    /// Does one round of everything: schedules, starts and ends pods, then brings all slices up to date. A round that finds
    /// nothing to do changes nothing. It looks at every pod and Service, so it is meant for small clusters.
    pub fn run_controllers(&mut self) {
        self.run_pods();
        self.sync_slices();
    }

    fn of_kind(&self, kind: Kind) -> Vec<(Key, Arc<Value>)> {
        let all = self.objects.iter().filter(|((of, ..), _)| *of == kind);
        all.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    fn run_pods(&mut self) {
        let nodes = self.of_kind(Kind::Node);
        let address = |node: &str| {
            let (_, node) = nodes.iter().find(|((.., name), _)| name == node)?;
            let internal =
                list(node, "/status/addresses").iter().find(|address| address["type"] == "InternalIP")?;
            Some(internal["address"].clone())
        };
        for (at, (key, pod)) in self.of_kind(Kind::Pod).into_iter().enumerate() {
            if is_terminating(&pod) {
                if list(&pod, "/metadata/finalizers").is_empty() {
                    self.commit(key, pod.as_ref().clone(), true);
                }
                continue;
            }
            let mut new = pod.as_ref().clone();
            if text(&pod, "/spec/nodeName").is_empty() {
                let Some(((.., node), _)) = nodes.get(at % nodes.len().max(1)) else { continue };
                new["spec"]["nodeName"] = json!(node);
            }
            if text(&pod, "/status/podIP").is_empty() {
                let Some(host) = address(text(&new, "/spec/nodeName")) else { continue };
                self.counter += 1;
                let [.., a, b, c] = self.counter.to_be_bytes();
                let ip = json!(format!("10.{}.{b}.{c}", 200_u8.saturating_add(a)));
                new["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": host,
                    "hostIPs": [{"ip": host}], "conditions": [{"type": "Ready", "status": "True"}]});
            }
            if new != *pod {
                self.commit(key, new, false);
            }
        }
    }

    fn sync_slices(&mut self) {
        let pods = self.of_kind(Kind::Pod);
        let mut slices: BTreeMap<(String, String), Vec<Held>> = BTreeMap::new();
        for (key, slice) in self.of_kind(Kind::EndpointSlice) {
            let labels = &slice["metadata"]["labels"];
            if labels["endpointslice.kubernetes.io/managed-by"] == MANAGED_BY {
                let service = labels["kubernetes.io/service-name"].as_str().unwrap_or_default().to_owned();
                slices.entry((key.1.clone(), service)).or_default().push((key, slice));
            }
        }
        for ((_, namespace, name), service) in self.of_kind(Kind::Service) {
            let held = slices.remove(&(namespace.clone(), name)).unwrap_or_default();
            let selector = service.pointer("/spec/selector").and_then(Value::as_object);
            if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
                let is_selected = |(key, pod): &&(Key, Arc<Value>)| {
                    key.1 == namespace
                        && selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
                };
                let selected: Vec<&Value> =
                    pods.iter().filter(is_selected).map(|(_, pod)| pod.as_ref()).collect();
                self.sync_service(&service, &selected, held);
            }
        }
        // Slices whose Service is gone go too.
        for (key, slice) in slices.into_values().flatten() {
            self.commit(key, slice.as_ref().clone(), true);
        }
    }

    fn sync_service(&mut self, service: &Value, pods: &[&Value], held: Vec<Held>) {
        let mut wanted: BTreeMap<Group, BTreeMap<String, Value>> = BTreeMap::new();
        for family in list(service, "/spec/ipFamilies") {
            let family = family.as_str().unwrap_or_default();
            for pod in pods {
                if let Some(endpoint) =
                    endpoint(pod, family, service["spec"]["publishNotReadyAddresses"] == true)
                {
                    let group = (family.to_owned(), json!(ports(service, pod)).to_string());
                    wanted.entry(group).or_default().insert(text(pod, "/metadata/uid").to_owned(), endpoint);
                }
            }
        }
        // Who is in a slice stays in it. Only then are the gaps filled up.
        let mut kept = Vec::new();
        for (key, slice) in held {
            let group = (text(&slice, "/addressType").to_owned(), slice["ports"].to_string());
            let stay = |endpoint: &Value| wanted.get_mut(&group)?.remove(text(endpoint, "/targetRef/uid"));
            let endpoints: Vec<Value> = list(&slice, "/endpoints").iter().filter_map(stay).collect();
            kept.push((key, slice, group, endpoints));
        }
        for (key, slice, group, mut endpoints) in kept {
            while endpoints.len() < SLICE_SIZE
                && let Some((_, endpoint)) = wanted.get_mut(&group).and_then(BTreeMap::pop_first)
            {
                endpoints.push(endpoint);
            }
            if endpoints.is_empty() {
                self.commit(key, slice.as_ref().clone(), true);
            } else if json!(endpoints) != slice["endpoints"] {
                let mut new = slice.as_ref().clone();
                new["endpoints"] = json!(endpoints);
                self.set_defaults(Kind::EndpointSlice, &mut new, Some(&slice));
                self.commit(key, new, false);
            }
        }
        for ((family, ports), endpoints) in wanted {
            let ports: Value = serde_json::from_str(&ports).unwrap_or_default();
            let endpoints: Vec<Value> = endpoints.into_values().collect();
            for endpoints in endpoints.chunks(SLICE_SIZE) {
                self.create_slice(service, &family, &ports, endpoints);
            }
        }
    }

    fn create_slice(&mut self, service: &Value, family: &str, ports: &Value, endpoints: &[Value]) {
        let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
        let slice = json!({
            "metadata": {
                "generateName": format!("{name}-"),
                "labels": {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": MANAGED_BY},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name,
                    "uid": service["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]
            },
            "addressType": family, "ports": ports, "endpoints": endpoints
        });
        // Only a namespace that is going refuses it, and then nothing is to be created.
        let _ = self.create(Kind::EndpointSlice, Some(namespace), &slice, false);
    }
}

/// The endpoint that a pod is in a family, if it is one.
fn endpoint(pod: &Value, family: &str, is_always_ready: bool) -> Option<Value> {
    if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
        return None;
    }
    let is_of_family = |ip: &&str| ip.contains(':') == (family == "IPv6");
    let ip = list(pod, "/status/podIPs")
        .iter()
        .map(|ip| text(ip, "/ip"))
        .find(|ip| !ip.is_empty() && is_of_family(ip))?;
    let (is_ready, is_terminating) = (is_ready(pod), is_terminating(pod));
    let metadata = &pod["metadata"];
    Some(json!({
        "addresses": [ip], "nodeName": pod["spec"]["nodeName"],
        "conditions": {"ready": is_always_ready || (is_ready && !is_terminating), "serving": is_ready,
            "terminating": is_terminating},
        "targetRef": {"kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
    }))
}

/// A Service's ports as they are at a pod: a named one is whatever its containers say, and is left out if none does.
fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    let containers = list(pod, "/spec/containers").iter();
    let named: Vec<&Value> = containers.flat_map(|container| list(container, "/ports")).collect();
    let at_pod = |port: &Value| {
        let target = &port["targetPort"];
        let number = match target.as_str() {
            Some(name) => &named.iter().find(|held| held["name"] == name)?["containerPort"],
            None => target,
        };
        Some(json!({"name": text(port, "/name"), "protocol": port["protocol"], "port": number}))
    };
    list(service, "/spec/ports").iter().filter_map(at_pod).collect()
}
