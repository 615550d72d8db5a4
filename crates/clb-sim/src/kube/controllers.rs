//! What a cluster does by itself: pods live, and Services get their EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Change, Cluster, Key};
use super::conditions::is_true;
use super::index::{MANAGED_BY, labels, selector, selects, service_of};
use super::kind::Kind;
use super::pods::{Stops, is_node_ready, is_terminal};

/// How many endpoints a slice holds, as the real controller's are by default.
const SLICE_SIZE: usize = 100;

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Whether a change of a node is one of whether it can be reached; a node that is not there can.
fn is_of_reach(change: &Change) -> bool {
    let before = change.before.as_deref().is_none_or(is_node_ready);
    before != (change.is_removal || is_node_ready(&change.now))
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
    /// The node that the last pod was given to. They take turns.
    pub(super) last_node: String,
    /// The pods that wait for a node, or for its address.
    pub(super) waiting: BTreeSet<Key>,
    pub(super) stops: Stops,
}

impl Cluster {
    /// Does one round of everything: schedules, starts, judges and ends pods, then brings the slices of the Services up to date
    /// that this or any change since the last round is about. A round that finds nothing to do changes nothing, and what one
    /// does is in proportion to the changes, unless more were made than are remembered. It is the time of the last request.
    pub fn run_controllers(&mut self) {
        let seen = self.controlled.version;
        let mut pods: BTreeSet<Key> = if self.knows_all_since(seen) {
            let changed = |kind| self.changes_since(seen).filter(move |(change, _)| change.key.0 == kind);
            let mut pods: BTreeSet<Key> = changed(Kind::Pod).map(|(change, _)| change.key.clone()).collect();
            if changed(Kind::Node).next().is_some() {
                pods.extend(self.controlled.waiting.iter().cloned());
            }
            for (change, _) in changed(Kind::Node).filter(|(change, _)| is_of_reach(change)) {
                pods.extend(self.index.pods_at(&change.key.2));
            }
            pods
        } else {
            self.of_kind(Kind::Pod).map(|(key, _)| key.clone()).collect()
        };
        pods.extend(self.controlled.stops.take_due(self.now));
        for key in pods {
            self.run_pod(&key);
        }
        // The pods may have changed more than is remembered.
        let services =
            if self.knows_all_since(seen) { self.services_touched(seen) } else { self.all_services() };
        for service in services {
            self.sync_slices(&service);
        }
        self.controlled.version = self.version;
    }

    /// When [`Cluster::run_controllers`] has something to do next even if nothing changes, since 1970.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.controlled.stops.next()
    }

    fn knows_all_since(&self, seen: u64) -> bool {
        seen > 0 && seen >= self.oldest()
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
        let mut touched = BTreeSet::new();
        for (change, _) in self.changes_since(seen) {
            let (kind, namespace, name) = &change.key;
            let forms = || change.before.iter().chain([&change.now]);
            let mut touch = |service: &str| {
                touched.insert((namespace.clone(), service.to_owned()));
            };
            match kind {
                Kind::Service => touch(name),
                Kind::EndpointSlice => forms().filter_map(|slice| service_of(slice)).for_each(touch),
                Kind::Pod => {
                    for pod in forms() {
                        let found =
                            labels(pod).flat_map(|label| self.index.find(Kind::Service, namespace, label));
                        found.filter(|service| self.selects(namespace, service, pod)).for_each(&mut touch);
                    }
                }
                Kind::Namespace | Kind::Node | Kind::Event | Kind::Lease => {}
            }
        }
        touched
    }

    fn selects(&self, namespace: &str, service: &str, pod: &Value) -> bool {
        let service = self.objects.get(&(Kind::Service, namespace.to_owned(), service.to_owned()));
        service.is_some_and(|service| selects(service, pod))
    }

    fn sync_slices(&mut self, (namespace, name): &Within) {
        let held = |kind, name: &str| {
            let key = (kind, namespace.clone(), name.to_owned());
            let object = self.objects.get(&key)?.clone();
            Some((key, object))
        };
        let slices = self.index.find(Kind::EndpointSlice, namespace, name.clone());
        let slices: Vec<Held> = slices.filter_map(|slice| held(Kind::EndpointSlice, slice)).collect();
        let Some((_, service)) = held(Kind::Service, name) else {
            // Slices whose Service is gone go too.
            slices.into_iter().for_each(|(key, slice)| drop(self.remove(key, slice.as_ref().clone())));
            return;
        };
        if selector(&service).is_none() {
            return;
        }
        let pods = self.index.candidates(&service).filter_map(|pod| Some(held(Kind::Pod, pod)?.1));
        let pods: Vec<Arc<Value>> = pods.filter(|pod| selects(&service, pod)).collect();
        self.sync_service(&service, &pods, slices);
    }

    fn sync_service(&mut self, service: &Value, pods: &[Arc<Value>], held: Vec<Held>) {
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
            } else if list(&slice, "/endpoints") != endpoints {
                let mut new = slice.as_ref().clone();
                new["endpoints"] = Value::Array(endpoints);
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
    if is_terminal(pod) {
        return None;
    }
    let is_of_family = |ip: &&str| ip.contains(':') == (family == "IPv6");
    let ip = list(pod, "/status/podIPs")
        .iter()
        .map(|ip| text(ip, "/ip"))
        .find(|ip| !ip.is_empty() && is_of_family(ip))?;
    let (is_ready, is_terminating) = (is_true(pod, "Ready"), is_terminating(pod));
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
