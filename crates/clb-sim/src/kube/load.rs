//! Filling a cluster from manifests and recordings.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kind::Kind;

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
                let mut item = item.clone();
                // Items of a list of one kind do not say which.
                if item["kind"].is_null() && !item_kind.is_empty() {
                    item["kind"] = json!(item_kind);
                }
                self.load(&item)?;
            }
            return Ok(());
        }
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| format!("the kind {} is not modelled", object["kind"]))?;
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
        let key = (kind, namespace.to_owned(), name.to_owned());
        if let Some(former) = self.objects.get(&key).cloned() {
            self.commit(key.clone(), former.as_ref().clone(), true);
        }
        self.create(kind, kind.is_namespaced().then_some(namespace), object, false)
            .map_err(|refusal| refusal.body()["message"].as_str().unwrap_or_default().to_owned())?;
        let Some(created) = self.objects.get(&key).cloned() else { return Ok(()) };
        let mut kept = created.as_ref().clone();
        for pointer in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            if !metadata[pointer].is_null() {
                kept["metadata"][pointer] = metadata[pointer].clone();
            }
        }
        if object["status"].is_object() {
            kept["status"] = object["status"].clone();
        }
        if kept != *created {
            self.commit(key, kept, false);
        }
        Ok(())
    }
}
