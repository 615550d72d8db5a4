//! Which objects have to do with each other: pods are found by their labels, Services by what they select, and slices by
//! their Service.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::cluster::Key;
use super::kind::Kind;

/// What the real controller calls itself in its slices.
pub(super) const MANAGED_BY: &str = "endpointslice-controller.k8s.io";

/// A label as one text.
fn label(key: &str, value: &Value) -> String {
    format!("{key}={}", value.as_str().unwrap_or_default())
}

/// The labels of an object.
pub(super) fn labels(object: &Value) -> impl Iterator<Item = String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.into_iter().flatten().map(|(key, value)| label(key, value))
}

/// A Service's selector, if it has one.
pub(super) fn selector(service: &Value) -> Option<&Map<String, Value>> {
    service.pointer("/spec/selector").and_then(Value::as_object).filter(|selector| !selector.is_empty())
}

/// Whether a Service selects a pod of its namespace.
pub(super) fn selects(service: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    selector(service).is_some_and(|selector| selector.iter().all(|(key, value)| labels[key] == *value))
}

/// The Service that a slice of the controller's belongs to.
pub(super) fn service_of(slice: &Value) -> Option<&str> {
    let labels = &slice["metadata"]["labels"];
    (labels["endpointslice.kubernetes.io/managed-by"] == MANAGED_BY)
        .then(|| labels["kubernetes.io/service-name"].as_str().unwrap_or_default())
}

/// By what an object is found: a pod by each of its labels, a Service by the first one that it selects by, a slice by the name
/// of its Service.
fn terms(kind: Kind, object: &Value) -> Vec<String> {
    match kind {
        Kind::Pod => labels(object).collect(),
        Kind::Service => {
            let first = selector(object).and_then(|selector| selector.iter().next());
            first.into_iter().map(|(key, value)| label(key, value)).collect()
        }
        Kind::EndpointSlice => service_of(object).into_iter().map(str::to_owned).collect(),
        Kind::Namespace | Kind::Node | Kind::Event | Kind::Lease => Vec::new(),
    }
}

/// The node that a pod was given to.
fn node(kind: Kind, object: Option<&Value>) -> Option<&str> {
    let pod = object.filter(|_| kind == Kind::Pod)?;
    pod.pointer("/spec/nodeName")?.as_str().filter(|node| !node.is_empty())
}

/// Where objects are found.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Their names, by kind, namespace and what they are found by.
    names: BTreeMap<Key, BTreeSet<String>>,
    /// The pods of nodes: node, namespace and name.
    at_nodes: BTreeSet<(String, String, String)>,
}

impl Index {
    /// Takes in that an object is no longer what it was.
    pub(super) fn change(&mut self, key: &Key, before: Option<&Value>, now: Option<&Value>) {
        let (kind, namespace, name) = key;
        let (was_at, is_at) = (node(*kind, before), node(*kind, now));
        if was_at != is_at {
            let at = |node: &str| (node.to_owned(), namespace.clone(), name.clone());
            was_at.map(|node| self.at_nodes.remove(&at(node)));
            is_at.map(|node| self.at_nodes.insert(at(node)));
        }
        let terms = |object: Option<&Value>| object.map(|object| terms(*kind, object)).unwrap_or_default();
        let (former, current) = (terms(before), terms(now));
        if former == current {
            return;
        }
        for term in former {
            let at = (*kind, namespace.clone(), term);
            if let Some(names) = self.names.get_mut(&at) {
                names.remove(name);
                if names.is_empty() {
                    self.names.remove(&at);
                }
            }
        }
        for term in current {
            self.names.entry((*kind, namespace.clone(), term)).or_default().insert(name.clone());
        }
    }

    /// The pods that were given to a node.
    pub(super) fn pods_at(&self, node: &str) -> impl Iterator<Item = Key> {
        let from = (node.to_owned(), String::new(), String::new());
        let pods = self.at_nodes.range(from..).take_while(move |(at, ..)| at == node);
        pods.map(|(_, namespace, name)| (Kind::Pod, namespace.clone(), name.clone()))
    }

    /// The names of the objects that are found by this, in order.
    pub(super) fn find(
        &self,
        kind: Kind,
        namespace: &str,
        term: String,
    ) -> impl ExactSizeIterator<Item = &str> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        let names = self.names.get(&(kind, namespace.to_owned(), term));
        names.unwrap_or(&NONE).iter().map(String::as_str)
    }

    /// The pods among which those are that a Service selects: those with the rarest label that it selects by.
    pub(super) fn candidates(&self, service: &Value) -> impl Iterator<Item = &str> {
        let namespace = service["metadata"]["namespace"].as_str().unwrap_or_default();
        let wanted = selector(service).into_iter().flatten();
        let found = wanted.map(|(key, value)| self.find(Kind::Pod, namespace, label(key, value)));
        found.min_by_key(ExactSizeIterator::len).into_iter().flatten()
    }
}
