//! Filling a cluster from manifests.

use serde_json::{Value, json};

use super::cluster::{Cluster, Key};
use super::kind::Kind;
use super::status::Refusal;
use super::write::{Identity, read};

impl Cluster {
    /// Puts an object of a manifest into the cluster, in place of one of the same name, with the uid and status that it has; a
    /// `List` of any kind is all that is in it. Namespaces are made as needed.
    ///
    /// # Errors
    /// The API server's words when it would not take the object, or when its kind is not modelled.
    pub fn load(&mut self, object: &Value) -> Result<(), String> {
        self.take_in(object.clone())
    }

    /// As [`Cluster::load`]. The object becomes what the cluster holds, and is not copied.
    pub(super) fn take_in(&mut self, mut object: Value) -> Result<(), String> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if let (Some(item_kind), Some(items)) = (kind.strip_suffix("List"), object["items"].as_array_mut()) {
            for mut item in std::mem::take(items) {
                // Items of a list of one kind do not say which.
                if item["kind"].is_null() && !item_kind.is_empty() {
                    item["kind"] = json!(item_kind);
                }
                self.take_in(item)?;
            }
            return Ok(());
        }
        let known = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = known.ok_or_else(|| format!("the kind {} is not modelled", object["kind"]))?;
        self.put(kind, object)
    }

    /// Puts an object into the cluster as it is, in place of one of the same name: one with the same uid, or without, becomes
    /// it, and another one goes first.
    pub(super) fn put(&mut self, kind: Kind, object: Value) -> Result<(), String> {
        self.try_put(kind, object).map_err(|refusal| refusal.message().to_owned())
    }

    fn try_put(&mut self, kind: Kind, object: Value) -> Result<(), Refusal> {
        let text = |field: &str| object["metadata"][field].as_str();
        let name = text("name").unwrap_or_default().to_owned();
        let namespace = match text("namespace") {
            _ if !kind.is_namespaced() => "",
            Some(namespace) => namespace,
            None => "default",
        };
        let namespace = namespace.to_owned();
        let uid = text("uid").map(str::to_owned);
        if kind.is_namespaced() {
            self.ensure_namespace(&namespace);
        }
        let new = read(kind, object)?;
        let key = (kind, namespace, name);
        if let Some(former) = self.objects.get(&key)
            && uid.is_some_and(|uid| former["metadata"]["uid"] != uid)
        {
            self.take_away(&key);
        }
        let within = kind.is_namespaced().then_some(key.1.as_str());
        self.create_object(kind, within, new, Identity::Kept, false).map(drop)
    }

    /// Takes an object away, whatever holds it.
    pub(super) fn take_away(&mut self, key: &Key) {
        if let Some(held) = self.objects.get(key).cloned() {
            self.commit(key.clone(), held.as_ref().clone(), true);
        }
    }
}
