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
        let kind = object["kind"].as_str().unwrap_or_default();
        if let (Some(item_kind), Some(items)) = (kind.strip_suffix("List"), object["items"].as_array()) {
            for item in items {
                // Items of a list of one kind do not say which.
                if item["kind"].is_null() && !item_kind.is_empty() {
                    let mut item = item.clone();
                    item["kind"] = json!(item_kind);
                    self.load(&item)?;
                } else {
                    self.load(item)?;
                }
            }
            return Ok(());
        }
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| format!("the kind {} is not modelled", object["kind"]))?;
        self.put(kind, object)
    }

    /// Puts an object into the cluster as it is, in place of one of the same name: one with the same uid, or without, becomes
    /// it, and another one goes first.
    pub(super) fn put(&mut self, kind: Kind, object: &Value) -> Result<(), String> {
        self.try_put(kind, object)
            .map_err(|refusal| refusal.body()["message"].as_str().unwrap_or_default().to_owned())
    }

    fn try_put(&mut self, kind: Kind, object: &Value) -> Result<(), Refusal> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let namespace = match metadata["namespace"].as_str() {
            _ if !kind.is_namespaced() => "",
            Some(namespace) => namespace,
            None => "default",
        };
        if kind.is_namespaced() {
            self.ensure_namespace(namespace);
        }
        let new = read(kind, object)?;
        let key = (kind, namespace.to_owned(), name.to_owned());
        let uid = metadata["uid"].as_str();
        if let Some(former) = self.objects.get(&key)
            && uid.is_some_and(|uid| former["metadata"]["uid"] != uid)
        {
            self.take_away(&key);
        }
        let within = kind.is_namespaced().then_some(namespace);
        self.create_object(kind, within, new, Identity::Kept, false).map(drop)
    }

    /// Takes an object away, whatever holds it.
    pub(super) fn take_away(&mut self, key: &Key) {
        if let Some(held) = self.objects.get(key).cloned() {
            self.commit(key.clone(), held.as_ref().clone(), true);
        }
    }
}
