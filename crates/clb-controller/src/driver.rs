//! The loop around the tracker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clb_difftracker::{
    Action, Change, Config, DiffTracker, Notice, Observation, Operation, OperationId, Outcome, Stats,
    Timestamp,
};
use clb_nrp::CallContext;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::objects::ObjectWriter;
use crate::outcome::unknown;
use crate::{LocationAndNrpServiceBatchUpdater, ResourceExecutor};

/// Settings of a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// The tracker's settings.
    pub tracker: Config,
    /// How long one operation may take, long-running operations included. When it is up, the outcome is unknown.
    ///
    /// Default 5 min, as the existing Go controller has it: ARM's own long-running operations on these resources take
    /// seconds, and minutes on a bad day.
    pub operation_timeout: Duration,
    /// How many messages the inbox holds before those who send them wait.
    ///
    /// Default 4,096: a burst of a large cluster fits, and one that does not slows its sources down instead of filling
    /// memory.
    pub inbox: usize,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self { tracker: Config::default(), operation_timeout: Duration::from_secs(300), inbox: 4_096 }
    }
}

/// How many messages are taken in before operations are looked for again: enough to make one batch of a burst, few enough
/// that a flood does not keep outcomes and operations waiting.
const MAX_PER_WAKE: usize = 1_024;

/// Where changes go in: the coalescing trigger.
///
/// However many changes come while the driver is busy, it wakes once, takes all of them in, and only then looks for what to
/// do about them together. Cloning gives another handle on the same driver, which stops when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Inbox(mpsc::Sender<Message>);

/// The driver has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver has stopped")]
pub struct Stopped;

#[derive(Debug)]
enum Message {
    Change(Change),
    Observation(Observation),
    WhenSynced(oneshot::Sender<()>),
    Stats(oneshot::Sender<Stats>),
}

impl Inbox {
    /// Hands in a change, and waits while the inbox is full.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn change(&self, change: Change) -> Result<(), Stopped> {
        self.0.send(Message::Change(change)).await.map_err(|_| Stopped)
    }

    /// Hands in a part of a reading of what Azure holds, and waits while the inbox is full.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn observation(&self, observation: Observation) -> Result<(), Stopped> {
        self.0.send(Message::Observation(observation)).await.map_err(|_| Stopped)
    }

    /// Waits until Azure is known to hold exactly what the cluster asks for, all changes handed in before included. While
    /// something is refused for ever, that is never.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn synced(&self) -> Result<(), Stopped> {
        self.ask(Message::WhenSynced).await
    }

    /// How much there is of everything.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn stats(&self) -> Result<Stats, Stopped> {
        self.ask(Message::Stats).await
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Stopped> {
        let (sender, answer) = oneshot::channel();
        self.0.send(question(sender)).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }
}

/// Owns the tracker, and does what it says.
///
/// One task runs it; there are no locks. Each operation runs as a task of its own within a time limit, and comes back as an
/// outcome, whatever happens to it: a panic or a timeout is an unknown outcome. The order in each turn is fixed: take in what
/// has come, start what is worth doing, tell what people should hear, wait for the next input or deadline.
pub struct Driver {
    tracker: DiffTracker,
    updater: LocationAndNrpServiceBatchUpdater,
    executor: ResourceExecutor,
    objects: Arc<dyn ObjectWriter>,
    operation_timeout: Duration,
    on_notice: Box<dyn FnMut(&Notice) + Send>,
    inbox: mpsc::Receiver<Message>,
    started: Instant,
    calls: JoinSet<Outcome>,
    operations: HashMap<task::Id, OperationId>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Driver {
    /// A driver, and the way to hand changes to it. Nothing happens before [`run`](Self::run).
    pub fn new(
        config: DriverConfig,
        updater: LocationAndNrpServiceBatchUpdater,
        executor: ResourceExecutor,
        objects: Arc<dyn ObjectWriter>,
    ) -> (Self, Inbox) {
        let (sender, inbox) = mpsc::channel(config.inbox.max(1));
        let driver = Self {
            tracker: DiffTracker::new(config.tracker),
            updater,
            executor,
            objects,
            operation_timeout: config.operation_timeout,
            on_notice: Box::new(|_| ()),
            inbox,
            started: Instant::now(),
            calls: JoinSet::new(),
            operations: HashMap::new(),
            waiting: Vec::new(),
        };
        (driver, Inbox(sender))
    }

    /// Tells `listener` everything that people should hear, besides logging it.
    #[must_use]
    pub fn on_notice(mut self, listener: impl FnMut(&Notice) + Send + 'static) -> Self {
        self.on_notice = Box::new(listener);
        self
    }

    /// Runs until `shutdown` is cancelled or the last [`Inbox`] is dropped. Then nothing new is begun, and it ends when all
    /// calls in flight have, each of which has its time limit.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut messages = Vec::new();
        loop {
            self.start_operations();
            self.tell_notices();
            self.answer_waiting();
            let deadline = self.tracker.poll_timeout().map(|(at, _)| self.instant(at));
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = self.calls.join_next_with_id() => self.on_call_ended(ended),
                taken = self.inbox.recv_many(&mut messages, MAX_PER_WAKE) => {
                    if taken == 0 {
                        break;
                    }
                    messages.drain(..).for_each(|message| self.on_message(message));
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.tracker.handle_timeout(self.now());
                }
            }
        }
        self.inbox.close();
        while let Some(ended) = self.calls.join_next_with_id().await {
            self.on_call_ended(ended);
        }
        self.tell_notices();
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Change(change) => self.tracker.handle_change(change, self.now()),
            Message::Observation(observation) => self.tracker.handle_observation(observation, self.now()),
            Message::WhenSynced(waiting) => self.waiting.push(waiting),
            Message::Stats(sender) => {
                // Whoever asked may have gone.
                let _ = sender.send(self.tracker.stats());
            }
        }
    }

    fn on_call_ended(&mut self, ended: Result<(task::Id, Outcome), task::JoinError>) {
        let (id, outcome) =
            ended.unwrap_or_else(|error| (error.id(), unknown(format!("the call was lost: {error}"))));
        if let Some(operation) = self.operations.remove(&id) {
            self.tracker.handle_outcome(operation, outcome, self.now());
        }
    }

    fn start_operations(&mut self) {
        while let Some(Operation { id, action }) = self.tracker.poll_operation(self.now()) {
            let (updater, executor) = (self.updater.clone(), self.executor.clone());
            let objects = self.objects.clone();
            let limit = self.operation_timeout;
            let call = CallContext::random();
            debug!(operation = %id, client_request_id = call.client_request_id(), "start");
            let perform = async move {
                let performed = async {
                    match &action {
                        Action::Gateway(request) => updater.update(&call, request).await,
                        Action::Resource { service, adopt, request } => {
                            executor.execute(&call, service, *adopt, request).await
                        }
                        Action::Service { service, key, request } => {
                            objects.write_service(service, key, *request).await
                        }
                        Action::Pod { pod, request } => objects.write_pod(pod, *request).await,
                    }
                };
                timeout(limit, performed)
                    .await
                    .unwrap_or_else(|_| unknown(format!("no answer within {limit:?}")))
            };
            let task = self.calls.spawn(perform);
            self.operations.insert(task.id(), id);
        }
    }

    fn tell_notices(&mut self) {
        while let Some(notice) = self.tracker.poll_notice() {
            match &notice {
                Notice::Phase { service, from, to, .. } => info!(%service, ?from, ?to, "phase"),
                Notice::Rejected { key, rejection, .. } => {
                    warn!(service = %key, reason = %rejection.reason, "{}", rejection.message);
                }
                Notice::Failed { operation, kind, message, .. } => warn!(%operation, ?kind, "{message}"),
                Notice::EgressRefused { egress, service } => {
                    warn!(%egress, ?service, "refused: the name of an outbound service is the UID of a Service");
                }
                Notice::DeletionsHeld { kind, missing, of } => {
                    warn!(%kind, missing, of, "a list would delete so much that another has to confirm it");
                }
                Notice::PodFailed { operation, pod, kind, message, .. } => {
                    warn!(%operation, %pod, ?kind, "{message}");
                }
                Notice::Quarantined { address, message, .. } => warn!(%address, "left out: {message}"),
            }
            (self.on_notice)(&notice);
        }
    }

    fn answer_waiting(&mut self) {
        if !self.waiting.is_empty() && self.tracker.is_synced() {
            for waiting in self.waiting.drain(..) {
                // Whoever waited may have gone.
                let _ = waiting.send(());
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::default().after(self.started.elapsed())
    }

    fn instant(&self, at: Timestamp) -> Instant {
        self.started + at.since(Timestamp::default())
    }
}
