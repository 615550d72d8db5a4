//! What has to be remembered of Services beyond what the tracker is told.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use clb_difftracker::{IpFamily, ObjectKey, ServiceId};
use k8s_openapi::api::core::v1::Service;

use crate::objects::Condition;

/// The Services that ask for a load balancer of ours, or that show our condition, by name.
#[derive(Debug, Default)]
pub(super) struct Services {
    rows: BTreeMap<ObjectKey, Facts>,
    names: BTreeMap<ServiceId, ObjectKey>,
}

/// What is remembered of one.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) id: ServiceId,
    /// The whole of one with named target ports: it is judged anew when its slices say something else.
    pub(super) named: Option<Arc<Service>>,
    /// Which pods it balances load to, if it gets what it asks for.
    pub(super) backends: Option<Backends>,
    /// Our condition, as it stands on the object.
    pub(super) condition: Option<Condition>,
    pub(super) is_deleted: bool,
}

/// Which pods a Service balances load to.
#[derive(Debug)]
pub(super) struct Backends {
    pub(super) family: IpFamily,
    /// `None` for one whose EndpointSlices somebody else makes.
    pub(super) selector: Option<BTreeMap<String, String>>,
}

impl Services {
    pub(super) fn insert(&mut self, key: ObjectKey, facts: Facts) {
        self.remove(&key);
        self.names.insert(facts.id.clone(), key.clone());
        self.rows.insert(key, facts);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(facts) = self.rows.remove(key) {
            self.names.remove(&facts.id);
        }
    }

    /// The Service of this UID is gone; another of its name may be there.
    pub(super) fn remove_id(&mut self, id: &ServiceId) {
        if let Some(key) = self.names.get(id).cloned() {
            self.remove(&key);
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Facts> {
        self.rows.get(key)
    }

    pub(super) fn of_id(&self, id: &ServiceId) -> Option<(&ObjectKey, &Facts)> {
        self.names.get(id).and_then(|key| self.rows.get_key_value(key))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &ServiceId> {
        self.names.keys()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.rows.keys()
    }

    /// The Services of a namespace that select a pod with these labels, with their families.
    pub(super) fn selecting(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<(ServiceId, IpFamily)> {
        let from = Bound::Included(ObjectKey::new(namespace, ""));
        let rows = self.rows.range((from, Bound::Unbounded));
        let selects = |(_, facts): (&ObjectKey, &Facts)| {
            let Backends { family, selector } = facts.backends.as_ref()?;
            // An empty selector selects nothing of a Service, as its documentation says.
            let selector = selector.as_ref().filter(|selector| !selector.is_empty())?;
            let selects = selector.iter().all(|(name, value)| labels.get(name) == Some(value));
            selects.then(|| (facts.id.clone(), *family))
        };
        rows.take_while(|(key, _)| key.namespace == namespace).filter_map(selects).collect()
    }
}
