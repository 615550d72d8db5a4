//! EndpointSlices as they count: with endpoints that count although their slice says that they are not ready.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Duration;

use clb_difftracker::{
    Change, Condition, Endpoint, EndpointSlice, NodeName, ObjectKey, Protocol, ServiceRef, Timestamp, Uid,
};

use crate::admission::NamedPort;
use crate::convert::{EndpointForm, EndpointState, SliceContent};

/// By how much the loss of an endpoint's readiness may be heard of before its node is heard to be out of reach: both come
/// through watches of their own.
const SKEW: Duration = Duration::from_secs(10);

/// All slices, and by what they are found again.
#[derive(Debug, Default)]
pub(super) struct Slices {
    rows: BTreeMap<ObjectKey, Row>,
    by_service: BTreeMap<ServiceRef, OfService>,
    /// The slices with endpoints on a node that have lost their readiness.
    by_node: BTreeMap<NodeName, BTreeSet<ObjectKey>>,
    /// The slices with endpoints of a pod that are not ready.
    by_pod: BTreeMap<Uid, BTreeSet<ObjectKey>>,
    /// When losses are forgotten.
    expiries: BTreeSet<(Timestamp, ObjectKey)>,
}

#[derive(Debug)]
struct Row {
    service: ServiceRef,
    ports: Box<[(Box<str>, Protocol, NonZeroU16)]>,
    /// Sorted by address.
    endpoints: Box<[Entry]>,
    /// How many of them were told to be ready, and how many to count without.
    told: Counts,
}

#[derive(Debug)]
struct Entry {
    form: EndpointForm,
    /// When it was not ready any more and had been.
    lost: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ready: usize,
    kept: usize,
}

impl Counts {
    /// Whether nothing is left but what is kept.
    fn keeps(self) -> bool {
        self.ready == 0 && self.kept > 0
    }
}

#[derive(Debug, Default)]
struct OfService {
    slices: BTreeSet<ObjectKey>,
    told: Counts,
}

/// What decides besides the slice itself.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    /// How long endpoints are kept that were lost with their nodes.
    pub(super) hold: Duration,
    /// The nodes out of reach, and since when.
    pub(super) out_of_reach: &'a BTreeMap<NodeName, Timestamp>,
    /// Whether a pod would be ready but for us.
    pub(super) waits_for_us: &'a dyn Fn(&Uid) -> bool,
}

/// A slice as it counts now.
pub(super) struct Told {
    pub(super) change: Change,
    /// The Service that has come to have nothing but endpoints that are kept, and how many.
    pub(super) keeps: Option<(ServiceRef, usize)>,
}

impl Slices {
    /// A slice is there in this form. Returns the Service that it belonged to before, if it is another one.
    pub(super) fn apply(
        &mut self,
        key: &ObjectKey,
        content: SliceContent,
        context: &Context<'_>,
    ) -> Option<ServiceRef> {
        let former = self.remove(key);
        let lost = |form: &EndpointForm| {
            let former = former.as_ref()?;
            let at = former.endpoints.binary_search_by_key(&form.address, |it| it.form.address).ok()?;
            let before = former.endpoints.get(at).filter(|before| before.form.node == form.node)?;
            match (&before.form.state, &form.state) {
                (EndpointState::Ready, EndpointState::NotReady { .. }) => Some(context.now),
                (EndpointState::NotReady { .. }, EndpointState::NotReady { .. }) => before.lost,
                (_, EndpointState::Ready | EndpointState::Terminating) | (EndpointState::Terminating, _) => {
                    None
                }
            }
        };
        let entry = |form| Entry { lost: lost(&form), form };
        let mut endpoints: Vec<_> = content.endpoints.into_iter().map(entry).collect();
        endpoints.sort_by_key(|entry| entry.form.address);
        let row = Row {
            service: content.service,
            ports: content.ports.into(),
            endpoints: endpoints.into(),
            told: Counts::default(),
        };
        self.index(key, &row, context.hold);
        let service = row.service.clone();
        self.rows.insert(key.clone(), row);
        former.map(|row| row.service).filter(|former| *former != service)
    }

    /// A slice is gone, and with it what it counted for.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> Option<ServiceRef> {
        self.remove(key).map(|row| row.service)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.rows.keys()
    }

    fn index(&mut self, key: &ObjectKey, row: &Row, hold: Duration) {
        self.by_service.entry(row.service.clone()).or_default().slices.insert(key.clone());
        for entry in &row.endpoints {
            if let Some(lost) = entry.lost {
                self.by_node.entry(entry.form.node.clone()).or_default().insert(key.clone());
                self.expiries.insert((lost.after(hold), key.clone()));
            }
            if let EndpointState::NotReady { pod: Some(pod) } = &entry.form.state {
                self.by_pod.entry(pod.clone()).or_default().insert(key.clone());
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Row> {
        let row = self.rows.remove(key)?;
        if let Some(of_service) = self.by_service.get_mut(&row.service) {
            of_service.slices.remove(key);
            of_service.told.ready -= row.told.ready;
            of_service.told.kept -= row.told.kept;
            if of_service.slices.is_empty() {
                self.by_service.remove(&row.service);
            }
        }
        for entry in &row.endpoints {
            if entry.lost.is_some() {
                unindex(&mut self.by_node, &entry.form.node, key);
            }
            if let EndpointState::NotReady { pod: Some(pod) } = &entry.form.state {
                unindex(&mut self.by_pod, pod, key);
            }
        }
        if row.endpoints.iter().any(|entry| entry.lost.is_some()) {
            self.expiries.retain(|(_, of)| of != key);
        }
        Some(row)
    }

    /// How a slice counts now.
    pub(super) fn tell(&mut self, key: &ObjectKey, context: &Context<'_>) -> Option<Told> {
        let row = self.rows.get_mut(key)?;
        let counts = |entry: &Entry| match &entry.form.state {
            EndpointState::Ready => Some(Condition::Ready),
            EndpointState::Terminating => Some(Condition::Terminating),
            EndpointState::NotReady { pod: Some(pod) } if (context.waits_for_us)(pod) => {
                Some(Condition::Ready)
            }
            EndpointState::NotReady { .. } => {
                let (lost, since) = (entry.lost?, *context.out_of_reach.get(&entry.form.node)?);
                let with_its_node = lost.after(SKEW) >= since;
                (with_its_node && context.now < lost.after(context.hold)).then_some(Condition::Unreachable)
            }
        };
        let endpoint = |entry: &Entry| {
            let condition = counts(entry)?;
            Some(Endpoint { address: entry.form.address, node: entry.form.node.clone(), condition })
        };
        let endpoints: Vec<_> = row.endpoints.iter().filter_map(endpoint).collect();
        let count = |wanted| endpoints.iter().filter(|endpoint| endpoint.condition == wanted).count();
        let told = Counts { ready: count(Condition::Ready), kept: count(Condition::Unreachable) };
        let before = std::mem::replace(&mut row.told, told);
        let of_service = self.by_service.entry(row.service.clone()).or_default();
        let kept_before = of_service.told.keeps();
        of_service.told.ready = of_service.told.ready + told.ready - before.ready;
        of_service.told.kept = of_service.told.kept + told.kept - before.kept;
        let now = of_service.told;
        let keeps = (now.keeps() && !kept_before).then(|| (row.service.clone(), now.kept));
        let change = Change::EndpointSliceApplied(EndpointSlice {
            key: key.clone(),
            service: row.service.clone(),
            endpoints: endpoints.into_iter().collect(),
        });
        Some(Told { change, keeps })
    }

    /// The slices to which the reach of a node matters.
    pub(super) fn on_node(&self, node: &NodeName) -> Vec<ObjectKey> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// The slices to which the state of a pod matters.
    pub(super) fn of_pod(&self, pod: &Uid) -> Vec<ObjectKey> {
        self.by_pod.get(pod).into_iter().flatten().cloned().collect()
    }

    /// When the next loss is to be forgotten.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Forgets the losses whose time is up, and returns the slices that had them.
    pub(super) fn expire(&mut self, now: Timestamp, hold: Duration) -> Vec<ObjectKey> {
        let mut expired = Vec::new();
        while let Some((at, key)) = self.expiries.first().cloned() {
            if at > now {
                break;
            }
            self.expiries.pop_first();
            let Some(row) = self.rows.get_mut(&key) else { continue };
            let mut forgotten = BTreeSet::new();
            for entry in &mut row.endpoints {
                if entry.lost.is_some_and(|lost| lost.after(hold) <= now) {
                    entry.lost = None;
                    forgotten.insert(entry.form.node.clone());
                }
            }
            for node in forgotten {
                if !row.endpoints.iter().any(|entry| entry.lost.is_some() && entry.form.node == node) {
                    unindex(&mut self.by_node, &node, &key);
                }
            }
            expired.push(key);
        }
        expired
    }

    /// What the slices of a Service, named in any of these ways, say of one of its ports: those with ready endpoints, or where
    /// there are none, those with any.
    pub(super) fn named_port(&self, service: &[ServiceRef], name: &str, protocol: Protocol) -> NamedPort {
        let of_service = service.iter().filter_map(|name| self.by_service.get(name));
        let rows: Vec<&Row> =
            of_service.flat_map(|it| &it.slices).filter_map(|key| self.rows.get(key)).collect();
        let numbers = |counts: &dyn Fn(&Row) -> bool| -> BTreeSet<NonZeroU16> {
            let ports = rows.iter().filter(|row| counts(row)).flat_map(|row| row.ports.iter());
            let same = ports.filter(|(other, of, _)| &**other == name && *of == protocol);
            same.map(|(.., number)| *number).collect()
        };
        let mut found = numbers(&|row| row.told.ready > 0);
        if found.is_empty() {
            found = numbers(&|row| !row.endpoints.is_empty());
        }
        match found.first() {
            None => NamedPort::Unknown,
            Some(only) if found.len() == 1 => NamedPort::Number(*only),
            Some(_) => NamedPort::Several(found),
        }
    }
}

fn unindex<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, at: &K, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}
