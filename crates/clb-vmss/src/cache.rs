//! What is known of scale sets and machines, kept, and read again when it is too old for who asks.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};

use crate::models::{OrchestrationMode, ScaleSet};
use crate::slot::Slot;
use crate::{
    Cached, CallContext, Error, MachineState, NodeRecord, ProviderId, ResourceGroupKey, ScaleSetKey,
    Snapshot, VmssApi, read_machine, read_scale_set,
};

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Whatever is held. It is read again when its refresh is due; while that fails, the last good state stands.
    Any,
    /// The reading began at most this long ago.
    AtMost(Duration),
    /// The reading begins after the question.
    Now,
}

/// How a [`VmssCache`] keeps what it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// How long something is kept before [`Freshness::Any`] has it read again, give or take a tenth, so that the sets of a
    /// cluster, and the replicas of a controller, spread over time.
    pub refresh_interval: Duration,
    /// How often at most a node that is not found has its scale sets read again.
    pub miss_interval: Duration,
    /// How long a node must have existed before its machine's absence says that it was deleted. Azure's lists lag behind
    /// its creations.
    pub grace: Duration,
    /// How many scale sets are read at the same time.
    pub parallel: usize,
    /// What the spread over time is drawn from.
    pub seed: u64,
}

impl Default for CacheConfig {
    /// Ten minutes, as the cloud provider's caches; thirty seconds for misses; five minutes of grace, which is longer than
    /// Azure's lists were seen to lag; eight at a time, a third of what ARM's read budget refills with in a second; seed 0.
    fn default() -> Self {
        Self {
            refresh_interval: Duration::from_secs(600),
            miss_interval: Duration::from_secs(30),
            grace: Duration::from_secs(300),
            parallel: 8,
            seed: 0,
        }
    }
}

/// A Kubernetes Node, as far as it takes to find its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity<'a> {
    /// Its name, in any casing.
    pub name: &'a str,
    /// Its `spec.providerID`, once it has one.
    pub provider_id: Option<&'a str>,
    /// How long it has existed.
    pub age: Duration,
}

/// What became of the search for a Node's machine.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// This machine of a scale set.
    Found {
        /// The scale set.
        set: ScaleSetKey,
        /// The machine.
        record: NodeRecord,
        /// How long ago this was so.
        age: Duration,
    },
    /// This machine, which is of no scale set.
    Standalone {
        /// The machine.
        record: NodeRecord,
        /// How long ago this was so.
        age: Duration,
    },
    /// Not a machine of Azure, as its provider id says.
    Unmanaged,
    /// There is no such machine: it was deleted, or is being deleted.
    Gone,
    /// Nobody knows: where it could be cannot be read, or it is too young for its absence to say anything.
    Unknown {
        /// What could not be read; `None` if the node is too young.
        error: Option<Arc<Error>>,
    },
}

type Slots<K, T> = Mutex<BTreeMap<K, Arc<Slot<T>>>>;

/// What is known of the scale sets of some resource groups, shared by everyone who asks.
///
/// There is one snapshot for each scale set. However many ask for it at the same time, one reads it, in as many calls as
/// there are lists, and a set that cannot be read keeps its last good state while the others go on. Nothing runs in the
/// background: who asks reads, or a [`NodePoller`](crate::NodePoller) on the same cache does it for all.
///
/// That a node is not found is concluded from the snapshots themselves and stored nowhere. So the answer is about the
/// machine that was asked for, ends with the snapshot that shows a machine of that name again, and a hundred unknown nodes
/// cost no more reads than one.
///
/// Needs the time of a tokio runtime.
pub struct VmssCache {
    api: Arc<dyn VmssApi>,
    groups: Vec<ResourceGroupKey>,
    config: CacheConfig,
    lists: Slots<ResourceGroupKey, Vec<ScaleSet>>,
    sets: Slots<ScaleSetKey, Option<Snapshot>>,
    machines: Slots<ProviderId, Option<(NodeRecord, Option<ScaleSetKey>)>>,
}

impl fmt::Debug for VmssCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmssCache")
            .field("groups", &self.groups)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl VmssCache {
    /// A cache that has read nothing yet. The nodes are looked for in the scale sets of `groups`, and wherever their
    /// provider ids point.
    #[must_use]
    pub fn new(
        api: Arc<dyn VmssApi>,
        groups: impl IntoIterator<Item = ResourceGroupKey>,
        config: CacheConfig,
    ) -> Self {
        let groups = groups.into_iter().collect();
        let (lists, sets, machines) = Default::default();
        Self { api, groups, config, lists, sets, machines }
    }

    /// What the cache reads from.
    #[must_use]
    pub fn api(&self) -> &Arc<dyn VmssApi> {
        &self.api
    }

    /// The resource groups whose scale sets are looked into.
    #[must_use]
    pub fn groups(&self) -> &[ResourceGroupKey] {
        &self.groups
    }

    /// How it keeps what it read.
    #[must_use]
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// The scale sets of a resource group, without their machines.
    ///
    /// # Errors
    /// Why there is nothing that is fresh enough. [`Freshness::Any`] then has the last good list, if there ever was one.
    pub async fn scale_sets(
        &self,
        call: &CallContext,
        group: &ResourceGroupKey,
        freshness: Freshness,
    ) -> Result<Cached<Vec<ScaleSet>>, Arc<Error>> {
        let slot = self.slot(&self.lists, group);
        let read = self.api.list_scale_sets(call, group);
        slot.get(freshness, |number| self.interval(group, number), read).await
    }

    /// The machines of a scale set; `None` for one that is not there. If it has to be read and `known` is its resource,
    /// just listed, that saves a call.
    ///
    /// # Errors
    /// Why there is nothing that is fresh enough. [`Freshness::Any`] then has the last good state, if there ever was one.
    pub async fn snapshot(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        known: Option<&ScaleSet>,
        freshness: Freshness,
    ) -> Result<Cached<Option<Snapshot>>, Arc<Error>> {
        let slot = self.slot(&self.sets, set);
        let read = read_scale_set(&*self.api, call, set, known);
        slot.get(freshness, |number| self.interval(set, number), read).await
    }

    /// What was last read of a scale set, however old, without a call.
    #[must_use]
    pub fn last_snapshot(&self, set: &ScaleSetKey) -> Option<Cached<Option<Snapshot>>> {
        lock(&self.sets).get(set)?.peek()
    }

    /// Something of the scale set was changed: what was read of it before, or is being read, is no longer fresh.
    pub fn invalidate(&self, set: &ScaleSetKey) {
        if let Some(slot) = lock(&self.sets).get(set) {
            slot.invalidate();
        }
        if let Some(slot) = lock(&self.lists).get(&set.group()) {
            slot.invalidate();
        }
    }

    /// The machine of a Kubernetes Node. A provider id decides where it is looked for, and which machine it must be;
    /// without one, it is the machine with the node's name, in any scale set of the groups.
    ///
    /// If it is not found, what was read longer ago than [`CacheConfig::miss_interval`] is read again. Never an error for
    /// one odd Node; what could not be read is in [`Lookup::Unknown`].
    pub async fn lookup(&self, call: &CallContext, node: NodeIdentity<'_>, freshness: Freshness) -> Lookup {
        let id = match node.provider_id.filter(|id| !id.is_empty()).map(str::parse::<ProviderId>) {
            None => None,
            Some(Ok(id)) => Some(id),
            Some(Err(_)) => return Lookup::Unmanaged,
        };
        let first = self.search(call, node, id.as_ref(), freshness).await;
        let again = match (&first, freshness) {
            (Lookup::Gone | Lookup::Unknown { error: None }, Freshness::Any) => true,
            (Lookup::Gone | Lookup::Unknown { error: None }, Freshness::AtMost(age)) => {
                age > self.config.miss_interval
            }
            (_, Freshness::Any | Freshness::AtMost(_) | Freshness::Now) => false,
        };
        if !again {
            return first;
        }
        self.search(call, node, id.as_ref(), Freshness::AtMost(self.config.miss_interval)).await
    }

    async fn search(
        &self,
        call: &CallContext,
        node: NodeIdentity<'_>,
        id: Option<&ProviderId>,
        freshness: Freshness,
    ) -> Lookup {
        match (id, id.and_then(ScaleSetKey::of_instance)) {
            (Some(id), Some(set)) => self.search_sets(call, node, Some(id), &[(set, None)], freshness).await,
            (Some(id), None) => self.search_machine(call, node, id, freshness).await,
            (None, _) => {
                let (mut lists, mut failed) = (Vec::new(), None);
                for group in &self.groups {
                    match self.scale_sets(call, group, freshness).await {
                        Ok(list) => {
                            failed = failed.or(list.stale);
                            lists.push(list.value);
                        }
                        Err(error) => failed = Some(error),
                    }
                }
                let sets: Vec<_> = lists.iter().flat_map(|list| list.iter()).filter_map(keyed).collect();
                match (self.search_sets(call, node, None, &sets, freshness).await, failed) {
                    (Lookup::Gone | Lookup::Unknown { .. }, Some(error)) => {
                        Lookup::Unknown { error: Some(error) }
                    }
                    (lookup, _) => lookup,
                }
            }
        }
    }

    async fn search_sets(
        &self,
        call: &CallContext,
        node: NodeIdentity<'_>,
        id: Option<&ProviderId>,
        sets: &[(ScaleSetKey, Option<&ScaleSet>)],
        freshness: Freshness,
    ) -> Lookup {
        let reads: Vec<_> = sets
            .iter()
            .map(|(set, known)| self.keyed_snapshot(call, set, *known, freshness).boxed())
            .collect();
        let mut reads = stream::iter(reads).buffered(self.config.parallel.max(1));
        let (mut error, mut oldest) = (None, Duration::ZERO);
        while let Some((set, read)) = reads.next().await {
            let cached = match read {
                Ok(cached) => cached,
                Err(failed) => {
                    error = Some(failed);
                    continue;
                }
            };
            // The last good state of a set that cannot be read may say where a machine is, but not that there is none.
            error = error.or(cached.stale);
            oldest = oldest.max(cached.age);
            let found = cached.value.as_ref().as_ref().and_then(|snapshot| match id {
                Some(id) => snapshot.get(id),
                None => snapshot.find(node.name),
            });
            if let Some(record) = found.filter(|record| record.state != MachineState::Deleting) {
                return Lookup::Found { set: set.clone(), record: record.clone(), age: cached.age };
            }
        }
        self.absent(node, error, oldest)
    }

    async fn keyed_snapshot<'a>(
        &self,
        call: &CallContext,
        set: &'a ScaleSetKey,
        known: Option<&ScaleSet>,
        freshness: Freshness,
    ) -> (&'a ScaleSetKey, Result<Cached<Option<Snapshot>>, Arc<Error>>) {
        (set, self.snapshot(call, set, known, freshness).await)
    }

    async fn search_machine(
        &self,
        call: &CallContext,
        node: NodeIdentity<'_>,
        id: &ProviderId,
        freshness: Freshness,
    ) -> Lookup {
        // A member of a flexible scale set that is being read anyway costs no call of its own.
        let sets: Vec<(ScaleSetKey, Arc<Slot<_>>)> =
            lock(&self.sets).iter().map(|(set, slot)| (set.clone(), Arc::clone(slot))).collect();
        for (set, slot) in sets {
            let held = slot.held(freshness);
            let Some(Cached { value, age, stale: None }) = held else { continue };
            let Some(snapshot) = value.as_ref() else { continue };
            let flexible = *snapshot.orchestration() == OrchestrationMode::Flexible;
            let record = snapshot.get(id).filter(|record| flexible && record.state != MachineState::Deleting);
            if let Some(record) = record {
                return Lookup::Found { set, record: record.clone(), age };
            }
        }
        let slot = self.slot(&self.machines, id);
        let read = read_machine(&*self.api, call, id);
        match slot.get(freshness, |number| self.interval(id, number), read).await {
            Ok(Cached { value, age, stale }) => match value.as_ref() {
                Some((record, _)) if record.state == MachineState::Deleting => self.absent(node, stale, age),
                Some((record, Some(set))) => Lookup::Found { set: set.clone(), record: record.clone(), age },
                Some((record, None)) => Lookup::Standalone { record: record.clone(), age },
                None => self.absent(node, stale, age),
            },
            Err(error) => Lookup::Unknown { error: Some(error) },
        }
    }

    /// What it means that nothing read within `age` has the node's machine.
    fn absent(&self, node: NodeIdentity<'_>, error: Option<Arc<Error>>, age: Duration) -> Lookup {
        let old_enough = node.age >= self.config.grace.saturating_add(age);
        match error {
            None if old_enough => Lookup::Gone,
            error => Lookup::Unknown { error },
        }
    }

    fn slot<K: Clone + Ord, T>(&self, slots: &Slots<K, T>, key: &K) -> Arc<Slot<T>> {
        let mut slots = lock(slots);
        if let Some(slot) = slots.get(key) {
            return Arc::clone(slot);
        }
        // What nobody has asked about for long, such as deleted machines, would pile up.
        let unused = self.config.refresh_interval.saturating_mul(10);
        slots.retain(|_, slot| !slot.is_unused_for(unused));
        let slot = Arc::new(Slot::new());
        slots.insert(key.clone(), Arc::clone(&slot));
        slot
    }

    fn interval(&self, key: &impl Hash, number: u64) -> Duration {
        jittered(self.config.refresh_interval, (self.config.seed, key, number))
    }
}

/// `interval`, give or take a tenth as `from` will have it.
pub(crate) fn jittered(interval: Duration, from: impl Hash) -> Duration {
    let mut hasher = DefaultHasher::new();
    from.hash(&mut hasher);
    let thousandths = 900 + u32::try_from(hasher.finish() % 201).unwrap_or(100);
    (interval / 1000).saturating_mul(thousandths)
}

/// A scale set by its own id.
pub(crate) fn keyed(scale_set: &ScaleSet) -> Option<(ScaleSetKey, Option<&ScaleSet>)> {
    Some((ScaleSetKey::from_resource_id(scale_set.id.as_deref()?)?, Some(scale_set)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
