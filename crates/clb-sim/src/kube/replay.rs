//! Playing recordings of clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{Cluster, Key};
use super::kind::Kind;
use super::server::KubeSimulation;
use crate::recording::{Entry, Line, RecordingError, Watched};

/// Why a recording cannot be played to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A line of it has an object that the API server would not take.
    #[error("line {line}: {reason}")]
    Refused {
        /// The line's number, from 1.
        line: usize,
        /// The API server's words.
        reason: String,
    },
}

impl Cluster {
    /// Makes a recorded line so: a list is all there is of its kind, and an event changes one object. Objects keep what they
    /// were recorded with except their versions, which are this cluster's.
    ///
    /// What clients of this cluster wrote on an object in the meantime stays on its later forms, since the recorded cluster knew
    /// nothing of it: finalizers, the addresses in a Service's status, conditions. And an object that a client's finalizer holds
    /// is not gone when the recording says so, but being deleted, until that finalizer is removed or another object takes its
    /// name.
    ///
    /// # Errors
    /// The API server's words when it would not take an object.
    pub fn play(&mut self, entry: &Entry) -> Result<(), String> {
        match entry {
            Entry::Services(watched) => self.play_kind(Kind::Service, watched),
            Entry::EndpointSlices(watched) => self.play_kind(Kind::EndpointSlice, watched),
            Entry::Nodes(watched) => self.play_kind(Kind::Node, watched),
            Entry::Pods(watched) => self.play_kind(Kind::Pod, watched),
        }
    }

    fn play_kind<K>(&mut self, kind: Kind, watched: &Watched<K>) -> Result<(), String>
    where
        K: Metadata<Ty = ObjectMeta> + Serialize,
    {
        let value = |object: &K| serde_json::to_value(object).map_err(|error| error.to_string());
        match watched {
            Watched::List(items) => {
                let listed: BTreeSet<Key> = items.iter().map(|item| key(kind, item.metadata())).collect();
                let gone: Vec<Key> = self.objects.keys().filter(|key| key.0 == kind).cloned().collect();
                for key in gone.into_iter().filter(|key| !listed.contains(key)) {
                    self.take_away(&key);
                }
                items.iter().try_for_each(|item| self.play_form(kind, value(item)?))
            }
            Watched::Applied(object) => self.play_form(kind, value(object)?),
            Watched::Deleted(object) => {
                // Only the object that was deleted, and not one that has taken its name since.
                let key = key(kind, object.metadata());
                let uid = object.metadata().uid.as_deref();
                if self.objects.get(&key).is_some_and(|held| held["metadata"]["uid"].as_str() == uid) {
                    // Its last form is what watches hear.
                    let mut last = value(object)?;
                    let written = self.written_finalizers(&key);
                    if written.is_empty() {
                        self.put(kind, last)?;
                        self.take_away(&key);
                        self.recorded.remove(&key);
                    } else {
                        // Nobody but the clients holds it now.
                        last["metadata"]["finalizers"] = json!([]);
                        if last["metadata"]["deletionTimestamp"].is_null() {
                            last["metadata"]["deletionTimestamp"] = json!(self.timestamp(Duration::ZERO));
                            last["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                        }
                        self.play_form(kind, last)?;
                    }
                }
                Ok(())
            }
            Watched::Bookmark | Watched::Error(_) => Ok(()),
        }
    }
}

/// What a recording said last of an object, where clients may write otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    uid: Value,
    finalizers: Vec<Value>,
    load_balancer: Value,
}

fn list(object: &Value, pointer: &str) -> Vec<Value> {
    object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
}

const LOAD_BALANCER: &str = "/status/loadBalancer";
const CONDITIONS: &str = "/status/conditions";

impl Cluster {
    /// Puts a recorded form, with what clients wrote on the object since its last one.
    fn play_form(&mut self, kind: Kind, mut form: Value) -> Result<(), String> {
        if !matches!(kind, Kind::Service | Kind::Pod) {
            return self.put(kind, form);
        }
        let name = |field: &str| form["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (kind, name("namespace"), name("name"));
        let recorded = Recorded {
            uid: form["metadata"]["uid"].clone(),
            finalizers: list(&form, "/metadata/finalizers"),
            load_balancer: form.pointer(LOAD_BALANCER).cloned().unwrap_or_default(),
        };
        let written = self.written_finalizers(&key);
        let before = self.recorded.insert(key.clone(), recorded.clone()).unwrap_or_default();
        let held = self.objects.get(&key).filter(|held| held["metadata"]["uid"] == recorded.uid).cloned();
        if let Some(held) = held.filter(|_| before.uid == recorded.uid) {
            let mut finalizers = recorded.finalizers;
            let others = written.into_iter().filter(|it| !finalizers.contains(it));
            let others: Vec<_> = others.collect();
            finalizers.extend(others);
            if !finalizers.is_empty() {
                form["metadata"]["finalizers"] = json!(finalizers);
            }
            let shown = held.pointer(LOAD_BALANCER).cloned().unwrap_or_default();
            // The API server itself clears what is no load balancer any more.
            if shown != before.load_balancer && form["spec"]["type"] == "LoadBalancer" {
                form["status"]["loadBalancer"] = shown;
            }
            let mut conditions = list(&form, CONDITIONS);
            let is_new = |condition: &Value| !conditions.iter().any(|it| it["type"] == condition["type"]);
            let others: Vec<_> = list(&held, CONDITIONS).into_iter().filter(is_new).collect();
            if !others.is_empty() {
                conditions.extend(others);
                form["status"]["conditions"] = json!(conditions);
            }
        }
        self.put(kind, form)
    }

    /// The finalizers that an object has and that the recording did not put there.
    fn written_finalizers(&self, key: &Key) -> Vec<Value> {
        let Some(held) = self.objects.get(key) else { return Vec::new() };
        let Some(recorded) = self.recorded.get(key) else { return Vec::new() };
        if held["metadata"]["uid"] != recorded.uid {
            return Vec::new();
        }
        let finalizers = list(held, "/metadata/finalizers").into_iter();
        finalizers.filter(|finalizer| !recorded.finalizers.contains(finalizer)).collect()
    }
}

fn key(kind: Kind, metadata: &ObjectMeta) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (kind, text(&metadata.namespace), text(&metadata.name))
}

impl KubeSimulation {
    /// Plays a recording with its timing, `speed` times as fast: 1 as it was recorded, 0 everything at once. It waits on tokio's
    /// clock only. Returns how many lines there were.
    ///
    /// # Errors
    /// [`ReplayError`]; what came before has been played.
    pub async fn replay(
        &self,
        lines: impl IntoIterator<Item = Result<Line, RecordingError>>,
        speed: f64,
    ) -> Result<usize, ReplayError> {
        let started = Instant::now();
        let mut played = 0;
        for line in lines {
            let Line { number, at, entry } = line?;
            if speed > 0.0 {
                let after = Duration::try_from_secs_f64(at.as_secs_f64() / speed).unwrap_or(Duration::MAX);
                match started.checked_add(after) {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            }
            self.with_cluster(|cluster| cluster.play(&entry))
                .map_err(|reason| ReplayError::Refused { line: number, reason })?;
            played += 1;
        }
        Ok(played)
    }

    /// Loads manifests: YAML of any number of documents, or JSON. Returns how many documents there were.
    ///
    /// # Errors
    /// Why the text is none, or the API server's words when it would not take an object.
    pub fn load(&self, manifests: &str) -> Result<usize, String> {
        // JSON is YAML too, but is read many times faster as what it is.
        let is_json = manifests.trim_start().starts_with('{');
        let documents: Vec<Value> = if is_json {
            let documents = serde_json::Deserializer::from_str(manifests).into_iter();
            documents.collect::<Result<_, _>>().map_err(|error| error.to_string())?
        } else {
            crate::yaml::documents(manifests).map_err(|error| error.to_string())?
        };
        let count = documents.len();
        self.with_cluster(|cluster| documents.into_iter().try_for_each(|object| cluster.take_in(object)))?;
        Ok(count)
    }
}
