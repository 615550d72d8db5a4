#![doc = include_str!("../docs/membership.md")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use tracing::debug;

use crate::models::{IpVersion, OrchestrationMode, VirtualMachine};
use crate::pool::{self, Plan, PoolChange, Resource, Target};
use crate::{
    CallContext, Error, ErrorKind, ProviderId, ResourceId, Result, ScaleSetKey, View, VmssApi, VmssCache,
};

/// How [`Membership`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipConfig {
    /// How many instances are written at the same time.
    pub batch: usize,
    /// How often one resource is written at most, each time as it was read anew, while others write it, too.
    pub attempts: usize,
}

impl Default for MembershipConfig {
    /// Eight at a time, which is just under what ARM's write budget refills with in a second; five attempts, since every
    /// one that fails is a success of somebody else.
    fn default() -> Self {
        Self { batch: 8, attempts: 5 }
    }
}

/// Which instances of a scale set a change is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these; all if `None`.
    pub only: Option<BTreeSet<ProviderId>>,
    /// The nodes that may be in no pool, by name in lower case.
    pub excluded: BTreeSet<String>,
}

/// What became of one resource.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was written.
    Changed,
    /// It already was as wanted.
    Unchanged,
    /// It is not there.
    Gone,
    /// It was left as it is.
    Skipped(Skip),
    /// It could not be read or written.
    Failed(Arc<Error>),
}

/// Why a resource was left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is being deleted.
    Deleting,
    /// Its node may be in no pool.
    Excluded,
    /// Its interface is in a pool of this load balancer, and Azure takes it into no other of the same kind.
    OtherLoadBalancer(ResourceId),
    /// It describes no interface to change: a flexible set without a model, or a machine that is being made.
    NoInterface,
    /// Its primary interface has no address of the pool's family.
    NoAddress(IpVersion),
    /// It is of another scale set.
    OfAnotherSet,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleting => f.write_str("it is being deleted"),
            Self::Excluded => f.write_str("its node is excluded"),
            Self::OtherLoadBalancer(id) => write!(f, "it is in a pool of {id}"),
            Self::NoInterface => f.write_str("it describes no interface"),
            Self::NoAddress(family) => write!(f, "its primary interface has no {} address", family.as_str()),
            Self::OfAnotherSet => f.write_str("it is of another scale set"),
        }
    }
}

/// What became of a change of a scale set.
#[derive(Clone, Debug)]
pub struct Report {
    /// The model, which new and reimaged instances are made from. Unchanged also if the change is not about it.
    pub model: Outcome,
    /// Every instance that the change was about.
    pub instances: BTreeMap<ProviderId, Outcome>,
    /// Why the instances, or some, are not known: they could not be listed.
    pub unlisted: Option<Arc<Error>>,
}

impl Report {
    /// All errors. If there is none, everything that can be as wanted is.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        let outcomes = std::iter::once(&self.model).chain(self.instances.values());
        let failed = outcomes.filter_map(|outcome| match outcome {
            Outcome::Failed(error) => Some(error),
            Outcome::Changed | Outcome::Unchanged | Outcome::Gone | Outcome::Skipped(_) => None,
        });
        failed.chain(&self.unlisted).map(Arc::as_ref)
    }
}

/// Changes how many machines a scale set has, and which backend pools they are in. See the [module](self).
#[derive(Clone, Debug)]
pub struct Membership {
    cache: Arc<VmssCache>,
    config: MembershipConfig,
}

/// Drops what is cached of a set when the writes are over, also if they are cut off half-way.
struct Dirty<'a>(&'a VmssCache, &'a ScaleSetKey);

impl Drop for Dirty<'_> {
    fn drop(&mut self) {
        self.0.invalidate(self.1);
    }
}

impl Membership {
    /// Writes that go through the cache's API and drop what it holds of a set that they changed.
    #[must_use]
    pub fn new(cache: Arc<VmssCache>, config: MembershipConfig) -> Self {
        Self { cache, config }
    }

    fn api(&self) -> &dyn VmssApi {
        &**self.cache.api()
    }

    /// Lets a scale set have `capacity` machines, and changes nothing else of it.
    ///
    /// # Errors
    /// Of any kind.
    pub async fn scale(&self, call: &CallContext, set: &ScaleSetKey, capacity: u32) -> Result<()> {
        let _dirty = Dirty(&self.cache, set);
        self.api().set_capacity(call, set, capacity).await
    }

    /// Deletes machines of a scale set, whose capacity sinks by as many: [`Outcome::Changed`] for each that is deleted. Those
    /// that are not there, being deleted or of another set are not asked for, since one of them would fail the request for
    /// all.
    pub async fn delete(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        ids: &BTreeSet<ProviderId>,
    ) -> BTreeMap<ProviderId, Outcome> {
        let _dirty = Dirty(&self.cache, set);
        let mut outcomes = BTreeMap::new();
        let mut asked: BTreeSet<ProviderId> = BTreeSet::new();
        let mut refused: Option<Arc<Error>> = None;
        // Bounded: every further round asks for fewer.
        loop {
            let machines = match self.machines(call, set).await {
                Ok(machines) => machines,
                Err(error) => {
                    let error = refused.unwrap_or_else(|| Arc::new(error));
                    let rest =
                        ids.iter().filter(|id| !outcomes.contains_key(*id)).cloned().collect::<Vec<_>>();
                    outcomes.extend(rest.into_iter().map(|id| (id, Outcome::Failed(Arc::clone(&error)))));
                    return outcomes;
                }
            };
            let there: BTreeMap<ProviderId, bool> = machines
                .iter()
                .filter_map(|machine| Some((machine.provider_id()?, pool::is_deleting(machine))))
                .collect();
            let mut due = BTreeSet::new();
            for id in ids.iter().filter(|id| !outcomes.contains_key(*id)).collect::<Vec<_>>() {
                let other = ScaleSetKey::of_instance(id).is_some_and(|of| of != *set);
                let outcome = match there.get(id) {
                    _ if other => Outcome::Skipped(Skip::OfAnotherSet),
                    None | Some(true) if asked.contains(id) => Outcome::Changed,
                    None => Outcome::Gone,
                    Some(true) => Outcome::Skipped(Skip::Deleting),
                    Some(false) => {
                        due.insert(id.clone());
                        continue;
                    }
                };
                outcomes.insert(id.clone(), outcome);
            }
            let outcome = match refused.take() {
                _ if due.is_empty() => return outcomes,
                Some(error) if due == asked => Outcome::Failed(error),
                Some(_) | None => {
                    let names: Vec<String> = due.iter().map(instance_name).collect();
                    match self.api().delete_instances(call, set, &names).await {
                        Ok(()) => Outcome::Changed,
                        Err(error) => {
                            (asked, refused) = (due, Some(Arc::new(error)));
                            continue;
                        }
                    }
                }
            };
            outcomes.extend(due.into_iter().map(|id| (id, outcome.clone())));
            return outcomes;
        }
    }

    /// Puts a scale set's model and its selected instances into `pool`, each with its address of `family`.
    pub async fn join(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        pool: &ResourceId,
        family: IpVersion,
        selection: &Selection,
    ) -> Report {
        self.change(call, set, &PoolChange::Join { pool: pool.clone(), family }, selection).await
    }

    /// Takes the selected instances of a scale set out of `pools`, with the addresses of every family. The model, too, unless
    /// only some instances are selected.
    pub async fn leave(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        pools: &BTreeSet<ResourceId>,
        selection: &Selection,
    ) -> Report {
        self.change(call, set, &PoolChange::Leave { pools: pools.clone() }, selection).await
    }

    async fn change(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        change: &PoolChange,
        selection: &Selection,
    ) -> Report {
        let _dirty = Dirty(&self.cache, set);
        let scale_set = match self.api().get_scale_set(call, set).await {
            Ok(Some(scale_set)) => scale_set,
            Ok(None) => {
                let only = selection.only.iter().flatten();
                let instances = only.map(|id| (id.clone(), Outcome::Gone)).collect();
                return Report { model: Outcome::Gone, instances, unlisted: None };
            }
            Err(error) => {
                let error = Arc::new(error);
                let (model, unlisted) = (Outcome::Failed(Arc::clone(&error)), Some(error));
                return Report { model, instances: BTreeMap::new(), unlisted };
            }
        };
        let orchestration = scale_set.orchestration();
        let model = match (change, &selection.only) {
            (PoolChange::Leave { .. }, Some(_)) => Outcome::Unchanged,
            (PoolChange::Join { .. }, _) | (PoolChange::Leave { .. }, None) => {
                let read = Resource::ScaleSet(Box::new(scale_set));
                self.apply(call, &Target::ScaleSet(set.clone()), Some(read), change).await
            }
        };
        let machines = match self.machines_of(call, set, &orchestration).await {
            Ok(machines) => machines,
            Err(error) => {
                return Report { model, instances: BTreeMap::new(), unlisted: Some(Arc::new(error)) };
            }
        };
        let machines: BTreeMap<ProviderId, VirtualMachine> =
            machines.into_iter().filter_map(|machine| Some((machine.provider_id()?, machine))).collect();
        let mut instances: BTreeMap<ProviderId, Outcome> = BTreeMap::new();
        for id in selection.only.iter().flatten().filter(|id| !machines.contains_key(*id)) {
            instances.insert(id.clone(), Outcome::Gone);
        }
        let selected = machines
            .into_iter()
            .filter(|(id, _)| selection.only.as_ref().is_none_or(|only| only.contains(id)));
        let writes: Vec<_> = selected
            .map(|(id, machine)| {
                self.change_machine(call, id, machine, &orchestration, change, selection).boxed()
            })
            .collect();
        let mut outcomes = stream::iter(writes).buffer_unordered(self.config.batch.max(1));
        while let Some((id, outcome)) = outcomes.next().await {
            debug!(%id, ?outcome, "pool membership");
            instances.insert(id, outcome);
        }
        Report { model, instances, unlisted: None }
    }

    async fn change_machine(
        &self,
        call: &CallContext,
        id: ProviderId,
        machine: VirtualMachine,
        orchestration: &OrchestrationMode,
        change: &PoolChange,
        selection: &Selection,
    ) -> (ProviderId, Outcome) {
        if pool::is_deleting(&machine) {
            return (id, Outcome::Skipped(Skip::Deleting));
        }
        let node = machine.properties.os_profile.computer_name.as_ref().map(|name| name.to_ascii_lowercase());
        let joins = matches!(change, PoolChange::Join { .. });
        if joins && node.is_some_and(|node| selection.excluded.contains(&node)) {
            return (id, Outcome::Skipped(Skip::Excluded));
        }
        let outcome = match orchestration {
            OrchestrationMode::Uniform | OrchestrationMode::Other(_) => {
                let target = Target::Instance(id.clone());
                self.apply(call, &target, Some(Resource::Instance(Box::new(machine))), change).await
            }
            OrchestrationMode::Flexible => self.change_interfaces(call, &machine, change).await,
        };
        (id, outcome)
    }

    /// Changes the interfaces of a flexible member: the primary one to join, all to leave.
    async fn change_interfaces(
        &self,
        call: &CallContext,
        machine: &VirtualMachine,
        change: &PoolChange,
    ) -> Outcome {
        let interfaces = match change {
            PoolChange::Join { .. } => pool::primary_interface(machine).into_iter().collect(),
            PoolChange::Leave { .. } => pool::interfaces(machine),
        };
        let mut worst = Outcome::Skipped(Skip::NoInterface);
        for interface in interfaces {
            let outcome = self.apply(call, &Target::Interface(interface), None, change).await;
            worst = match (worst, outcome) {
                (Outcome::Failed(error), _) | (_, Outcome::Failed(error)) => Outcome::Failed(error),
                (Outcome::Changed, _) | (_, Outcome::Changed) => Outcome::Changed,
                (Outcome::Skipped(_) | Outcome::Unchanged | Outcome::Gone, outcome) => outcome,
            };
        }
        worst
    }

    /// Reads, changes and writes one resource until nobody else wrote it in between. `read` is how it was just read.
    async fn apply(
        &self,
        call: &CallContext,
        target: &Target,
        read: Option<Resource>,
        change: &PoolChange,
    ) -> Outcome {
        let mut read = read.filter(|resource| resource.etag().is_some());
        let mut refused: Option<Error> = None;
        for _ in 0..self.config.attempts.max(1) {
            let mut resource = match read.take() {
                Some(resource) => resource,
                None => match target.read(self.api(), call).await {
                    Ok(Some(resource)) => resource,
                    Ok(None) => return Outcome::Gone,
                    Err(error) => return Outcome::Failed(Arc::new(error)),
                },
            };
            match resource.plan(change) {
                // What was in doubt was applied.
                Plan::Nothing if refused.as_ref().is_some_and(|error| error.may_have_been_applied()) => {
                    return Outcome::Changed;
                }
                Plan::Nothing => return Outcome::Unchanged,
                Plan::Skip(reason) => return Outcome::Skipped(reason),
                Plan::Write => {}
            }
            // It is still there, so that was not why.
            if let Some(error) =
                refused.take_if(|error| matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound))
            {
                return Outcome::Failed(Arc::new(error));
            }
            if resource.etag().is_none() {
                let error = Error::new(
                    ErrorKind::Invalid,
                    "without an ETag, a write could undo that of somebody else",
                );
                return Outcome::Failed(Arc::new(error));
            }
            match target.write(self.api(), call, &resource).await {
                Ok(()) => return Outcome::Changed,
                Err(error) => match error.kind() {
                    ErrorKind::PreconditionFailed
                    | ErrorKind::Unknown
                    | ErrorKind::Conflict
                    | ErrorKind::NotFound => refused = Some(error),
                    ErrorKind::NotSent
                    | ErrorKind::Throttled { .. }
                    | ErrorKind::Invalid
                    | ErrorKind::Forbidden
                    | ErrorKind::Unauthorized
                    | ErrorKind::Quota
                    | ErrorKind::Transient
                    | ErrorKind::OperationFailed => return Outcome::Failed(Arc::new(error)),
                },
            }
        }
        let error =
            refused.unwrap_or_else(|| Error::new(ErrorKind::PreconditionFailed, "others keep writing it"));
        Outcome::Failed(Arc::new(error))
    }

    async fn machines(&self, call: &CallContext, set: &ScaleSetKey) -> Result<Vec<VirtualMachine>> {
        let Some(scale_set) = self.api().get_scale_set(call, set).await? else { return Ok(Vec::new()) };
        self.machines_of(call, set, &scale_set.orchestration()).await
    }

    /// The machines of a set; none if it is gone.
    async fn machines_of(
        &self,
        call: &CallContext,
        set: &ScaleSetKey,
        orchestration: &OrchestrationMode,
    ) -> Result<Vec<VirtualMachine>> {
        let machines = match orchestration {
            OrchestrationMode::Flexible => self.api().list_members(call, set, View::Settings).await?,
            OrchestrationMode::Uniform | OrchestrationMode::Other(_) => {
                self.api().list_instances(call, set, View::Settings).await?
            }
        };
        Ok(machines.unwrap_or_default())
    }
}

/// What a machine is called in its scale set.
fn instance_name(id: &ProviderId) -> String {
    match id {
        ProviderId::Uniform { instance_id, .. } => instance_id.to_string(),
        ProviderId::VirtualMachine { name, .. } => name.to_string(),
    }
}
