//! What a cluster does by itself: pods are scheduled, run and stop, and Services get their EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

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

/// A namespace, and a name or a label in it.
type Within = (String, String);

/// How far the controllers have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Controlled {
    /// Everything up to this version has been looked at; 0 is nothing.
    version: u64,
    /// How many pods were given to nodes, which take turns.
    scheduled: usize,
}

fn label(key: &str, value: &Value) -> String {
    format!("{key}={}", value.as_str().unwrap_or_default())
}

/// A Service's selector, if it has one.
fn selector(service: &Value) -> Option<&Map<String, Value>> {
    service.pointer("/spec/selector").and_then(Value::as_object).filter(|selector| !selector.is_empty())
}

/// The label by which pods are first looked for.
fn first_label(service: &Value) -> Option<String> {
    selector(service)?.iter().next().map(|(key, value)| label(key, value))
}

fn labels(object: &Value) -> impl Iterator<Item = String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.into_iter().flatten().map(|(key, value)| label(key, value))
}

/// The Service that a slice of this controller's belongs to.
fn service_of(slice: &Value) -> Option<&str> {
    let labels = &slice["metadata"]["labels"];
    (labels["endpointslice.kubernetes.io/managed-by"] == MANAGED_BY)
        .then(|| labels["kubernetes.io/service-name"].as_str().unwrap_or_default())
}

impl Cluster {
    /// Does one round of everything: schedules, starts and ends pods, then brings the slices of the Services up to date that
    /// this or any change since the last round is about. A round that finds nothing to do changes nothing.
    pub fn run_controllers(&mut self) {
        let seen = self.controlled.version;
        let knows_all = seen > 0 && seen >= self.oldest();
        let sees_nodes = !knows_all || self.changes_since(seen).any(|(change, _)| change.key.0 == Kind::Node);
        let pods: BTreeSet<Key> = if sees_nodes {
            self.of_kind(Kind::Pod).map(|(key, _)| key.clone()).collect()
        } else {
            let changes = self.changes_since(seen).map(|(change, _)| &change.key);
            changes.filter(|key| key.0 == Kind::Pod).cloned().collect()
        };
        self.run_pods(pods);
        let services = if knows_all { self.services_touched(seen) } else { self.all_services() };
        self.sync_slices(&services);
        self.controlled.version = self.version;
    }

    fn run_pods(&mut self, pods: BTreeSet<Key>) {
        let nodes: Vec<String> = self.of_kind(Kind::Node).map(|((.., name), _)| name.clone()).collect();
        for key in pods {
            let Some(pod) = self.objects.get(&key).cloned() else { continue };
            if is_terminating(&pod) {
                if list(&pod, "/metadata/finalizers").is_empty() {
                    self.remove(key, pod.as_ref().clone());
                }
                continue;
            }
            let is_scheduled = !text(&pod, "/spec/nodeName").is_empty();
            if is_scheduled && !text(&pod, "/status/podIP").is_empty() {
                continue;
            }
            let mut new = pod.as_ref().clone();
            if !is_scheduled {
                let Some(node) = nodes.get(self.controlled.scheduled % nodes.len().max(1)) else { continue };
                self.controlled.scheduled += 1;
                new["spec"]["nodeName"] = json!(node);
            }
            if text(&pod, "/status/podIP").is_empty() {
                let Some(host) = self.internal_ip(text(&new, "/spec/nodeName")) else { continue };
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

    fn internal_ip(&self, node: &str) -> Option<Value> {
        let node = self.objects.get(&(Kind::Node, String::new(), node.to_owned()))?;
        let mut addresses = list(node, "/status/addresses").iter();
        addresses.find(|address| address["type"] == "InternalIP").map(|internal| internal["address"].clone())
    }

    /// Every Service, and those whose slices alone are left.
    fn all_services(&self) -> BTreeSet<Within> {
        let services =
            self.of_kind(Kind::Service).map(|((_, namespace, name), _)| (namespace.clone(), name.clone()));
        let slices = self.of_kind(Kind::EndpointSlice);
        let owners = slices.filter_map(|((_, namespace, _), slice)| {
            Some((namespace.clone(), service_of(slice)?.to_owned()))
        });
        services.chain(owners).collect()
    }

    /// The Services that the changes since a version are about.
    fn services_touched(&self, seen: u64) -> BTreeSet<Within> {
        let mut by_label: BTreeMap<Within, Vec<&str>> = BTreeMap::new();
        if self.changes_since(seen).any(|(change, _)| change.key.0 == Kind::Pod) {
            for ((_, namespace, name), service) in self.of_kind(Kind::Service) {
                if let Some(label) = first_label(service) {
                    by_label.entry((namespace.clone(), label)).or_default().push(name);
                }
            }
        }
        let mut touched = BTreeSet::new();
        for (change, _) in self.changes_since(seen) {
            let (kind, namespace, name) = &change.key;
            let forms = || change.before.iter().chain([&change.now]);
            let mut touch = |service: &str| {
                touched.insert((namespace.clone(), service.to_owned()));
            };
            match kind {
                Kind::Service => touch(name),
                Kind::EndpointSlice => {
                    forms().filter_map(|slice| service_of(slice)).for_each(&mut touch);
                }
                Kind::Pod => {
                    for label in forms().flat_map(|pod| labels(pod)) {
                        let services = by_label.get(&(namespace.clone(), label));
                        services.into_iter().flatten().for_each(|service| touch(service));
                    }
                }
                Kind::Namespace | Kind::Node | Kind::Event | Kind::Lease => {}
            }
        }
        touched
    }

    fn sync_slices(&mut self, services: &BTreeSet<Within>) {
        if services.is_empty() {
            return;
        }
        let mut slices: BTreeMap<Within, Vec<Held>> = BTreeMap::new();
        for (key, slice) in self.of_kind(Kind::EndpointSlice) {
            let of = service_of(slice).map(|service| (key.1.clone(), service.to_owned()));
            if let Some(of) = of.filter(|of| services.contains(of)) {
                slices.entry(of).or_default().push((key.clone(), slice.clone()));
            }
        }
        let service = |(namespace, name): &Within| {
            self.objects.get(&(Kind::Service, namespace.clone(), name.clone())).cloned()
        };
        let wanted: Vec<(&Within, Option<Arc<Value>>)> =
            services.iter().map(|of| (of, service(of))).collect();
        let mut pods: BTreeMap<Within, Vec<Arc<Value>>> = BTreeMap::new();
        for ((namespace, _), service) in &wanted {
            if let Some(label) = service.as_ref().and_then(|service| first_label(service)) {
                pods.insert((namespace.clone(), label), Vec::new());
            }
        }
        for ((_, namespace, _), pod) in self.of_kind(Kind::Pod) {
            for label in labels(pod) {
                if let Some(pods) = pods.get_mut(&(namespace.clone(), label)) {
                    pods.push(pod.clone());
                }
            }
        }
        for (of, service) in wanted {
            let held = slices.remove(of).unwrap_or_default();
            let Some(service) = service else {
                // Slices whose Service is gone go too.
                held.into_iter().for_each(|(key, slice)| drop(self.remove(key, slice.as_ref().clone())));
                continue;
            };
            if let (Some(selector), Some(label)) = (selector(&service), first_label(&service)) {
                let is_selected = |pod: &&Value| {
                    selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
                };
                let among = pods.get(&(of.0.clone(), label)).map(Vec::as_slice).unwrap_or_default();
                let selected: Vec<&Value> = among.iter().map(AsRef::as_ref).filter(is_selected).collect();
                self.sync_service(&service, &selected, held);
            }
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
