//! The objects, their versions, and which request goes where.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::controllers::Controlled;
use super::index::Index;
use super::kind::{Kind, Target, is_real, parse};
use super::list::{Form, Watch};
use super::replay::Recorded;
use super::status::Refusal;
use super::write::check_fields;

/// Settings of a [`Cluster`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// How many changes are remembered, each with the form that its object had before. Watches and pages of lists from before
    /// them are told 410. Default 20,000: what a large cluster changes in ten seconds.
    pub history: usize,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { history: 20_000 }
    }
}

/// One request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query's parameters, decoded.
    pub query: Vec<(String, String)>,
    /// The `Content-Type` header, empty if there is none.
    pub content_type: String,
    /// The `Accept` header, empty if there is none.
    pub accept: String,
    /// The body, or `null`.
    pub body: Value,
}

impl Request {
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        matches!(self.parameter(name), "1" | "true")
    }

    /// Whether it asks for a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.method == "GET" && self.is_set("watch")
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A whole body.
    Body {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: Value,
    },
    /// A stream of events, to be asked for with [`Cluster::poll`].
    Watch(Watch),
}

/// What identifies an object.
pub(super) type Key = (Kind, String, String);

/// A time since 1970, in whole seconds, as objects have it.
pub(super) fn timestamp(since_1970: Duration) -> String {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
}

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) before: Option<Arc<Value>>,
    /// As it is now; the last form of one that is gone.
    pub(super) now: Arc<Value>,
    pub(super) is_removal: bool,
}

/// A Kubernetes API server's side of everything.
#[derive(Clone, Debug)]
pub struct Cluster {
    config: ClusterConfig,
    pub(super) objects: BTreeMap<Key, Arc<Value>>,
    pub(super) index: Index,
    /// The changes that are remembered. Each makes a new version; the last made the current one.
    pub(super) history: VecDeque<Change>,
    pub(super) version: u64,
    /// For uids, generated names, addresses and ports.
    pub(super) counter: u64,
    /// Since 1970.
    pub(super) now: Duration,
    /// How far its own controllers have come.
    pub(super) controlled: Controlled,
    /// What a recording that is played said last of Services and pods.
    pub(super) recorded: BTreeMap<Key, Recorded>,
}

impl Cluster {
    /// A cluster with the namespaces `default` and `kube-system` and nothing else.
    #[must_use]
    pub fn new(config: ClusterConfig) -> Self {
        let mut cluster = Self {
            config,
            objects: BTreeMap::new(),
            index: Index::default(),
            history: VecDeque::new(),
            version: 0,
            counter: 0,
            now: Duration::ZERO,
            controlled: Controlled::default(),
            recorded: BTreeMap::new(),
        };
        for name in ["default", "kube-system"] {
            cluster.ensure_namespace(name);
        }
        cluster
    }

    /// Creates a namespace unless it exists.
    pub fn ensure_namespace(&mut self, name: &str) {
        let key = (Kind::Namespace, String::new(), name.to_owned());
        if !self.objects.contains_key(&key) {
            let body = json!({"metadata": {"name": name}});
            // A namespace by any other name is refused, and then nothing can be in it.
            let _ = self.create(Kind::Namespace, None, &body, false);
        }
    }

    /// The version of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The objects of a kind, by namespace and name.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.of_kind(kind).map(|(_, object)| object.as_ref())
    }

    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects
            .range((kind, String::new(), String::new())..)
            .take_while(move |((of, ..), _)| *of == kind)
    }

    /// Answers one request at a time given since 1970. A refused one changes nothing.
    pub fn handle(&mut self, request: &Request, now: Duration) -> Answer {
        self.now = now;
        self.answer(request)
            .unwrap_or_else(|refusal| Answer::Body { status: refusal.code, body: refusal.body() })
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let body = |status, body| Ok(Answer::Body { status, body });
        let not_modelled = || {
            let Request { method, path, .. } = request;
            Refusal::not_modelled(format_args!("{method} {path}"))
        };
        let Some(target) = parse(&request.path) else {
            return Err(if is_real(&request.path) { not_modelled() } else { Refusal::no_such_resource() });
        };
        let is_dry = !request.parameter("dryRun").is_empty();
        match (request.method.as_str(), target) {
            ("GET", Target::Discovery(document)) => body(200, document),
            ("GET", Target::Collection { kind, namespace }) if request.is_set("watch") => {
                Ok(Answer::Watch(self.watch(request, kind, namespace)?))
            }
            ("GET", Target::Collection { kind, namespace }) => {
                body(200, self.list(request, kind, namespace.as_deref(), self.version)?)
            }
            ("GET", Target::Object { kind, namespace, name } | Target::Status { kind, namespace, name }) => {
                let object = self.get(&(kind, namespace, name))?;
                body(200, Form::wanted(request).show(kind, object, self.now))
            }
            ("POST", Target::Collection { kind, namespace }) => {
                check_fields(kind, request, &request.body)?;
                let created = self.create(kind, namespace.as_deref(), &request.body, is_dry)?;
                body(201, created)
            }
            ("PUT", Target::Object { kind, namespace, name }) => {
                let (status, replaced) = self.replace(&(kind, namespace, name), request, false, is_dry)?;
                body(status, replaced)
            }
            ("PUT", Target::Status { kind, namespace, name }) => {
                let (status, replaced) = self.replace(&(kind, namespace, name), request, true, is_dry)?;
                body(status, replaced)
            }
            ("PATCH", Target::Object { kind, namespace, name }) => {
                let (status, patched) = self.patch(&(kind, namespace, name), request, false, is_dry)?;
                body(status, patched)
            }
            ("PATCH", Target::Status { kind, namespace, name }) => {
                let (status, patched) = self.patch(&(kind, namespace, name), request, true, is_dry)?;
                body(status, patched)
            }
            ("DELETE", Target::Object { kind, namespace, name }) => {
                body(200, self.delete(&(kind, namespace, name), request, is_dry)?)
            }
            ("DELETE", Target::Collection { kind, namespace }) => {
                body(200, self.delete_all(request, kind, namespace.as_deref(), is_dry)?)
            }
            ("POST", Target::Binding { namespace, name }) => {
                self.bind(namespace, name, &request.body)?;
                body(
                    201,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
                )
            }
            _ => Err(not_modelled()),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Result<&Arc<Value>, Refusal> {
        self.objects.get(key).ok_or_else(|| Refusal::not_found(key.0, &key.2))
    }

    /// Makes a change: the object with its new version, or its last form with it.
    pub(super) fn commit(&mut self, key: Key, mut object: Value, is_removed: bool) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let now = Arc::new(object);
        let before = if is_removed {
            self.objects.remove(&key)
        } else {
            self.objects.insert(key.clone(), now.clone())
        };
        self.index.change(&key, before.as_deref(), (!is_removed).then_some(&*now));
        if self.history.len() == self.config.history.max(1) {
            self.history.pop_front();
        }
        self.history.push_back(Change { key, before, now: now.clone(), is_removal: is_removed });
        now
    }

    /// The changes after a version that is remembered, each with the version that it made.
    pub(super) fn changes_since(&self, version: u64) -> impl Iterator<Item = (&Change, u64)> {
        let known = usize::try_from(version.saturating_sub(self.oldest())).unwrap_or(usize::MAX);
        self.history.range(known.min(self.history.len())..).zip(version.max(self.oldest()) + 1..)
    }

    /// The oldest version from which everything since is remembered.
    pub(super) fn oldest(&self) -> u64 {
        self.version - self.history.len() as u64
    }

    pub(super) fn timestamp(&self, after: Duration) -> String {
        timestamp(self.now + after)
    }

    /// What was different at a version that is remembered: the objects as they were then, or that they were not.
    pub(super) fn undone(&self, version: u64) -> BTreeMap<Key, Option<Arc<Value>>> {
        let mut former = BTreeMap::new();
        for (change, _) in self.changes_since(version) {
            former.entry(change.key.clone()).or_insert_with(|| change.before.clone());
        }
        former
    }
}
