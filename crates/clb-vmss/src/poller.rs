//! Nodes that come and go, as a stream.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;

use crate::cache::{jittered, keyed};
use crate::models::{ProvisioningState, ScaleSet, VirtualMachine};
use crate::{
    CallContext, Freshness, Listing, Machine, NodeDiffer, NodeEvent, ResourceGroupKey, ScaleSetKey, Snapshot,
    VmssCache,
};

/// How many machines that a list lacks are asked for at the same time.
const CONFIRMATIONS: usize = 8;

/// The changes of the nodes in a cache's resource groups, by polling: a [`Stream`] that never ends.
///
/// Every round lists the scale sets of each group, reads each set through the [`VmssCache`], and tells what changed, set by
/// set as they come in. The first round tells everything as [`NodeEvent::Added`].
///
/// A removal takes proof, since a node that is told to be gone loses its traffic:
///
/// * a set that cannot be read whole is [`NodeEvent::Stale`] and keeps its nodes; the other sets go on;
/// * a set that a list of its group lacks is asked for by itself. A list that fails says nothing: the sets that are known
///   are read all the same;
/// * a node that a whole list lacks is asked for by itself, unless the list shows its machine as being deleted. Pages are
///   read one after another, and what is deleted meanwhile can make another machine slip from one page to the next unseen.
///   While it cannot be asked for, it stays.
///
/// Cancellation-safe: the round is kept here, not in the future of [`next`](StreamExt::next), so that a `select!` in which
/// it loses again and again loses nothing. A round advances only while the stream is polled.
///
/// Needs the time of a tokio runtime.
pub struct NodePoller {
    cache: Arc<VmssCache>,
    interval: Duration,
    differ: NodeDiffer,
    ready: VecDeque<(ScaleSetKey, NodeEvent)>,
    round: Option<BoxStream<'static, (ScaleSetKey, Outcome)>>,
    rounds: u64,
    pause: Pin<Box<Sleep>>,
}

/// What a round finds of a set.
enum Outcome {
    Listed(Listing),
    Gone,
    Failed,
}

impl fmt::Debug for NodePoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePoller")
            .field("cache", &self.cache)
            .field("interval", &self.interval)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

impl NodePoller {
    /// A poller that knows of no node, whose first round begins at once, and each other one `interval` after the last one
    /// began, give or take a tenth, or when that has ended.
    #[must_use]
    pub fn new(cache: Arc<VmssCache>, interval: Duration) -> Self {
        Self {
            cache,
            interval,
            differ: NodeDiffer::new(),
            ready: VecDeque::new(),
            round: None,
            rounds: 0,
            pause: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// Begins the next round now, or right after the one that goes on.
    pub fn poll_soon(&mut self) {
        self.pause.as_mut().reset(Instant::now());
    }

    /// How many rounds ended so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The last complete listing of `set`, or `None` if it was never listed: then nothing is known of its nodes.
    #[must_use]
    pub fn nodes(&self, set: &ScaleSetKey) -> Option<&Listing> {
        self.differ.nodes(set)
    }

    fn begin_round(&self) -> BoxStream<'static, (ScaleSetKey, Outcome)> {
        let lists = self.cache.groups().iter().map(|group| {
            let known = self.differ.sets().filter(|(set, _)| set.group() == *group);
            let known = known.map(|(set, nodes)| (set.clone(), nodes.cloned())).collect();
            list_sets(Arc::clone(&self.cache), group.clone(), known)
        });
        let (cache, parallel) = (Arc::clone(&self.cache), self.cache.config().parallel.max(1));
        stream::iter(lists.collect::<Vec<_>>())
            .buffer_unordered(parallel)
            .flat_map(stream::iter)
            .map(move |due| read_set(Arc::clone(&cache), due))
            .buffer_unordered(parallel)
            .boxed()
    }

    fn on_outcome(&mut self, set: &ScaleSetKey, outcome: Outcome) {
        let events = match outcome {
            Outcome::Listed(listing) => self.differ.handle_listing(set, listing),
            Outcome::Gone => self.differ.handle_gone(set),
            Outcome::Failed => self.differ.handle_failure(set),
        };
        self.ready.extend(events.into_iter().map(|event| (set.clone(), event)));
    }
}

impl Stream for NodePoller {
    type Item = (ScaleSetKey, NodeEvent);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(change) = this.ready.pop_front() {
                return Poll::Ready(Some(change));
            }
            match &mut this.round {
                None => {
                    ready!(this.pause.as_mut().poll(cx));
                    let pause = jittered(this.interval, (this.cache.config().seed, this.rounds));
                    this.pause.as_mut().reset(Instant::now() + pause);
                    this.round = Some(this.begin_round());
                }
                Some(round) => match ready!(round.poll_next_unpin(cx)) {
                    Some((set, outcome)) => this.on_outcome(&set, outcome),
                    None => {
                        this.round = None;
                        this.rounds += 1;
                    }
                },
            }
        }
    }
}

/// A set that is to be read.
struct Due {
    set: ScaleSetKey,
    /// Its resource, if it was listed.
    resource: Option<ScaleSet>,
    before: Option<Listing>,
}

/// The sets of a group that are listed, and those that were `known`.
async fn list_sets(
    cache: Arc<VmssCache>,
    group: ResourceGroupKey,
    mut known: BTreeMap<ScaleSetKey, Option<Listing>>,
) -> Vec<Due> {
    let call = CallContext::random();
    let mut due = Vec::new();
    match cache.scale_sets(&call, &group, Freshness::Now).await {
        Ok(list) => {
            for (set, resource) in list.value.iter().filter_map(keyed) {
                let before = known.remove(&set).flatten();
                due.push(Due { set, resource: resource.cloned(), before });
            }
        }
        Err(error) => warn!(%group, %error, "the scale sets of the group cannot be listed"),
    }
    // Without its resource, a set is asked for by itself first, which tells whether it is gone.
    due.extend(known.into_iter().map(|(set, before)| Due { set, resource: None, before }));
    due
}

async fn read_set(cache: Arc<VmssCache>, due: Due) -> (ScaleSetKey, Outcome) {
    let Due { set, resource, before } = due;
    let call = CallContext::random();
    let outcome = match cache.snapshot(&call, &set, resource.as_ref(), Freshness::Now).await {
        Ok(cached) => match cached.value.as_ref() {
            Some(snapshot) => {
                let mut listing = snapshot.listing(before.as_ref());
                if let Some(before) = &before {
                    keep_unproven(&cache, &call, snapshot, before, &mut listing).await;
                }
                Outcome::Listed(listing)
            }
            None => Outcome::Gone,
        },
        Err(error) => {
            warn!(%set, %error, "the scale set cannot be read");
            Outcome::Failed
        }
    };
    (set, outcome)
}

/// Puts those nodes of `before` back that the listing lacks without proof that they are gone.
async fn keep_unproven(
    cache: &VmssCache,
    call: &CallContext,
    snapshot: &Snapshot,
    before: &Listing,
    listing: &mut Listing,
) {
    // A machine that is listed, only not as this node, is being deleted or has another name.
    let missing = before
        .iter()
        .filter(|(node, machine)| !listing.contains_key(*node) && snapshot.get(&machine.id).is_none());
    let confirmations: Vec<_> =
        missing.map(|(node, machine)| is_there(cache, call, node, machine).boxed()).collect();
    let there = stream::iter(confirmations).buffer_unordered(CONFIRMATIONS);
    let kept: Vec<(String, Machine)> = there.filter_map(std::future::ready).collect().await;
    listing.extend(kept);
}

/// The node and its machine, unless that is known to be gone.
async fn is_there(
    cache: &VmssCache,
    call: &CallContext,
    node: &str,
    machine: &Machine,
) -> Option<(String, Machine)> {
    let there = match cache.api().get_machine(call, &machine.id).await {
        Ok(found) => found.is_some_and(|found| is_node(&found, node)),
        Err(error) => {
            warn!(node, %error, "a node that is in no list stays: it cannot be asked for");
            true
        }
    };
    there.then(|| (node.to_owned(), machine.clone()))
}

/// Whether `machine` is there, and as far as it says, is the node `node`.
fn is_node(machine: &VirtualMachine, node: &str) -> bool {
    let properties = &machine.properties;
    let name = properties.os_profile.computer_name.as_deref();
    properties.provisioning_state != Some(ProvisioningState::Deleting)
        && name.is_none_or(|name| name.is_empty() || name.eq_ignore_ascii_case(node))
}
