//! Sets of fields, as `managedFields` name them: who applied what.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// One step of a path into an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A field of a map.
    Field(String),
    /// The item of a list that has these keys, as JSON.
    Item(String),
    /// A value of a set, as JSON.
    Value(String),
}

/// A path into an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path(Vec<Step>);

/// The paths of an object that somebody owns: of values that are set whole, and of items of lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(BTreeSet<Path>);

/// How the parts of a list are told apart.
enum ListShape {
    /// They are not: it is set whole.
    Atomic,
    /// By the values of these fields.
    Keyed(&'static [&'static str]),
    /// By themselves.
    Set,
}

/// What the server alone sets, or what names the object: nobody owns it.
const UNOWNED_METADATA: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "generateName",
];

/// The shape of a list of the modelled types, by the fields that lead to it, from their `x-kubernetes-list-type`.
fn list_shape(path: &[Step]) -> ListShape {
    let name = |at: usize| match path.iter().rev().nth(at) {
        Some(Step::Field(name)) => name.as_str(),
        Some(Step::Item(_) | Step::Value(_)) | None => "",
    };
    match (name(0), name(1)) {
        ("ports", "spec") => ListShape::Keyed(&["port", "protocol"]),
        // Within an item of `containers`.
        ("ports", "") if path.len() > 1 => ListShape::Keyed(&["containerPort", "protocol"]),
        (
            "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets",
            _,
        ) => ListShape::Keyed(&["name"]),
        ("volumeMounts", _) => ListShape::Keyed(&["mountPath"]),
        ("conditions" | "addresses", "status") => ListShape::Keyed(&["type"]),
        ("podIPs", "status") => ListShape::Keyed(&["ip"]),
        ("ownerReferences", "metadata") => ListShape::Keyed(&["uid"]),
        ("finalizers", "metadata") => ListShape::Set,
        _ => ListShape::Atomic,
    }
}

/// Whether a map is set whole.
fn is_atomic_map(path: &[Step]) -> bool {
    let Some(Step::Field(name)) = path.last() else { return false };
    matches!(name.as_str(), "selector" | "nodeSelector" | "involvedObject" | "targetRef" | "nodeRef")
}

/// The keys of an item, as JSON; the one key that may be left open is the protocol.
fn keys(item: &Value, keys: &[&str]) -> String {
    let value =
        |key: &str| if key == "protocol" && item[key].is_null() { json!("TCP") } else { item[key].clone() };
    let keys: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), value(key))).collect();
    Value::Object(keys).to_string()
}

/// Whether an item is the value of a step.
fn is_value(item: &Value, step: &str) -> bool {
    let item = item.to_string();
    item == step
}

/// Whether an item has the keys of a step.
fn is_item(item: &Value, step: &str) -> bool {
    let Ok(Value::Object(wanted)) = serde_json::from_str(step) else { return false };
    wanted.iter().all(|(key, value)| {
        item[key] == *value || (key == "protocol" && item[key].is_null() && value == "TCP")
    })
}

impl Path {
    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// As conflicts name it, such as `.spec.ports[port=80,protocol="TCP"].targetPort`.
    pub(super) fn shown(&self) -> String {
        let mut shown = String::new();
        for step in &self.0 {
            match step {
                Step::Field(name) => shown.push_str(&format!(".{name}")),
                Step::Value(value) => shown.push_str(&format!("[={value}]")),
                Step::Item(keys) => {
                    let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                    let keys: Vec<String> =
                        keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    shown.push_str(&format!("[{}]", keys.join(",")));
                }
            }
        }
        shown
    }

    /// What stands there.
    pub(super) fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |at, step| match step {
            Step::Field(name) => at.get(name),
            Step::Item(keys) => at.as_array()?.iter().find(|item| is_item(item, keys)),
            Step::Value(value) => at.as_array()?.iter().find(|item| is_value(item, value)),
        })
    }

    /// Whether something else stands there in one object than in another. Items of lists differ only in being there: their parts
    /// are owned one by one.
    pub(super) fn differs(&self, one: &Value, other: &Value) -> bool {
        let (one, other) = (self.get(one), self.get(other));
        match self.0.last() {
            Some(Step::Item(_)) => one.is_some() != other.is_some(),
            Some(Step::Field(_) | Step::Value(_)) | None => one != other,
        }
    }

    /// Takes away what stands there, and the maps and lists that are empty then.
    fn remove(&self, object: &mut Value) {
        fn remove(steps: &[Step], at: &mut Value) {
            let Some((step, rest)) = steps.split_first() else { return };
            match (step, at) {
                (Step::Field(name), Value::Object(map)) => {
                    let Some(child) = map.get_mut(name) else { return };
                    remove(rest, child);
                    if rest.is_empty() || is_hollow(child) {
                        map.remove(name);
                    }
                }
                (Step::Item(keys), Value::Array(items)) => {
                    let Some(at) = items.iter().position(|item| is_item(item, keys)) else { return };
                    if rest.is_empty() { drop(items.remove(at)) } else { remove(rest, &mut items[at]) }
                }
                (Step::Value(value), Value::Array(items)) => items.retain(|item| !is_value(item, value)),
                (Step::Field(_) | Step::Item(_) | Step::Value(_), _) => {}
            }
        }
        remove(&self.0, object);
    }
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl FieldSet {
    /// The fields of an object that somebody can own: all but the status, or the status alone.
    pub(super) fn of(object: &Value, is_status: bool) -> Self {
        let mut set = Self::default();
        for (name, value) in object.as_object().into_iter().flatten() {
            if name == "kind" || name == "apiVersion" || (name == "status") != is_status {
                continue;
            }
            set.add(Path(vec![Step::Field(name.clone())]), value);
        }
        let is_unowned = |path: &Path| {
            matches!(&path.0[..], [Step::Field(metadata), Step::Field(name), ..]
                if metadata == "metadata" && UNOWNED_METADATA.contains(&name.as_str()))
        };
        set.0.retain(|path| !is_unowned(path));
        set
    }

    fn add(&mut self, path: Path, value: &Value) {
        match value {
            Value::Null => {}
            Value::Object(map) if !map.is_empty() && !is_atomic_map(&path.0) => {
                for (name, value) in map {
                    self.add(path.then(Step::Field(name.clone())), value);
                }
            }
            Value::Array(items) => match list_shape(&path.0) {
                ListShape::Atomic => drop(self.0.insert(path)),
                ListShape::Set => {
                    self.0.extend(items.iter().map(|item| path.then(Step::Value(item.to_string()))));
                }
                ListShape::Keyed(names) => {
                    for item in items {
                        let at = path.then(Step::Item(keys(item, names)));
                        self.add(at.clone(), item);
                        self.0.insert(at);
                    }
                }
            },
            Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.insert(path);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter()
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    pub(super) fn insert(&mut self, path: Path) {
        self.0.insert(path);
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Path) -> bool) {
        self.0.retain(keep);
    }

    /// Whether the path, or anything below it, is in the set.
    pub(super) fn reaches(&self, path: &Path) -> bool {
        self.0.iter().any(|held| held.0.starts_with(&path.0))
    }

    /// Takes its fields out of an object; an item goes whole before its parts, by some of which it is found.
    pub(super) fn remove_from(&self, object: &mut Value) {
        for path in &self.0 {
            path.remove(object);
        }
    }

    /// As `fieldsV1` has it.
    pub(super) fn to_json(&self) -> Value {
        let mut root = json!({});
        for path in &self.0 {
            let mut at = &mut root;
            for step in &path.0 {
                let name = match step {
                    Step::Field(name) => format!("f:{name}"),
                    Step::Item(keys) => format!("k:{keys}"),
                    Step::Value(value) => format!("v:{value}"),
                };
                at = &mut at[name];
                if at.is_null() {
                    *at = json!({});
                }
            }
            if let Some(Step::Item(_)) = path.0.last() {
                at["."] = json!({});
            }
        }
        root
    }

    /// From `fieldsV1`.
    pub(super) fn from_json(fields: &Value) -> Self {
        let mut set = Self::default();
        set.read(&Path::default(), fields);
        set
    }

    fn read(&mut self, path: &Path, fields: &Value) {
        let Some(map) = fields.as_object() else { return };
        if (map.is_empty() || map.contains_key(".")) && !path.0.is_empty() {
            self.0.insert(path.clone());
        }
        for (name, below) in map {
            let step = match name.split_once(':') {
                Some(("f", name)) => Step::Field(name.to_owned()),
                Some(("k", keys)) => Step::Item(keys.to_owned()),
                Some(("v", value)) => Step::Value(value.to_owned()),
                Some(_) | None => continue,
            };
            self.read(&path.then(step), below);
        }
    }
}

/// Lays what somebody applies over what there is.
pub(super) fn overlay(live: &mut Value, applied: &Value) {
    merge(&Path::default(), live, applied);
}

fn merge(path: &Path, live: &mut Value, applied: &Value) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) if !is_atomic_map(&path.0) => {
            for (name, value) in applied {
                let at = path.then(Step::Field(name.clone()));
                merge(&at, live.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(live), Value::Array(applied)) => match list_shape(&path.0) {
            ListShape::Atomic => live.clone_from(applied),
            ListShape::Set => {
                let added: Vec<Value> = applied.iter().filter(|item| !live.contains(item)).cloned().collect();
                live.extend(added);
            }
            ListShape::Keyed(names) => {
                for item in applied {
                    let step = keys(item, names);
                    let at = path.then(Step::Item(step.clone()));
                    match live.iter_mut().find(|held| is_item(held, &step)) {
                        Some(held) => merge(&at, held, item),
                        None => live.push(item.clone()),
                    }
                }
            }
        },
        (live, applied) => *live = applied.clone(),
    }
}
