//! The loop around the tracker.

mod config;
mod inbox;
mod reading;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clb_difftracker::{
    Action, DiffTracker, Kind, Notice, Observation, Operation, OperationId, Outcome, PodRequest, Timestamp,
};
use clb_nrp::CallContext;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::announce::{Announcement, Announcer, CONDITION_DELAY};
use crate::cluster::{ClusterView, Report};
use crate::leadership::lost;
use crate::objects::{ObjectRef, ObjectWriter};
use crate::outcome::unknown;
use crate::reading::AzureReader;
use crate::story::Stories;
use crate::watched::{Progress, Watched, WatchedSet};
use crate::{Leadership, LocationAndNrpServiceBatchUpdater, ResourceExecutor};
pub use config::DriverConfig;
pub use inbox::{Inbox, Stopped};
use inbox::{Message, Relists};
use reading::Readings;
pub use status::{ReadingStatus, Status, WatchStatus};

/// How many messages are taken in before operations are looked for again: enough to make one batch of a burst, few enough
/// that a flood does not keep outcomes and operations waiting.
const MAX_PER_WAKE: usize = 1_024;

/// How long one condition or event may take to be written: the API server's own limit for a request is a minute.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Owns the tracker, and does what it says.
///
/// One task runs it; there are no locks. Each operation runs as a task of its own within a time limit, and comes back as an
/// outcome, whatever happens to it: a panic, a timeout or the end of the leadership is an unknown outcome. The order in each
/// turn is fixed: take in what has come, start what is worth doing, tell what people should hear, wait for the next input or
/// deadline.
///
/// Nothing is sent before this replica leads ([`led_by`](Self::led_by)), everything that is waited for has been listed
/// ([`DriverConfig::awaited`]) and, where the driver reads Azure itself ([`reading`](Self::reading)), it has been read in this
/// term. Until then the tracker is kept up to date all the same.
pub struct Driver {
    config: DriverConfig,
    tracker: DiffTracker,
    view: ClusterView,
    updater: LocationAndNrpServiceBatchUpdater,
    executor: ResourceExecutor,
    objects: Arc<dyn ObjectWriter>,
    reader: Option<AzureReader>,
    readings: Readings,
    leadership: watch::Receiver<Leadership>,
    /// The term in which it led at the last look.
    term: Option<u64>,
    /// Cancelled when that is over.
    term_over: CancellationToken,
    on_notice: Box<dyn FnMut(&Notice) + Send>,
    stories: Stories,
    announcer: Announcer,
    inbox: mpsc::Receiver<Message>,
    relists: Relists,
    started: Instant,
    random: fastrand::Rng,
    calls: JoinSet<Ended>,
    jobs: HashMap<task::Id, Job>,
    waiting: Vec<oneshot::Sender<()>>,
    drift: u64,
    status: watch::Sender<Status>,
}

/// What a task is for.
#[derive(Debug)]
enum Job {
    Operation(OperationId),
    Announcement(Announcement, u32),
    Reading { term: u64 },
}

/// What a task came to.
#[derive(Debug)]
enum Ended {
    Outcome(Outcome),
    Read(Result<Vec<Observation>, String>),
}

impl Driver {
    /// A driver, and the way to hand changes to it. Nothing happens before [`run`](Self::run).
    pub fn new(
        config: DriverConfig,
        updater: LocationAndNrpServiceBatchUpdater,
        executor: ResourceExecutor,
        objects: Arc<dyn ObjectWriter>,
    ) -> (Self, Inbox) {
        let (sender, inbox, relists) = Inbox::new(config.inbox);
        let watches = config.awaited.iter().map(|set| (*set, WatchStatus::default())).collect();
        let driver = Self {
            tracker: DiffTracker::new(config.tracker.clone()),
            view: ClusterView::new(config.admission.clone(), config.readiness, config.anticipation),
            updater,
            executor,
            objects,
            reader: None,
            readings: Readings::default(),
            leadership: Leadership::alone(),
            term: None,
            term_over: CancellationToken::new(),
            on_notice: Box::new(|_| ()),
            stories: Stories::default(),
            announcer: Announcer::default(),
            inbox,
            relists,
            started: Instant::now(),
            random: fastrand::Rng::with_seed(config.seed),
            calls: JoinSet::new(),
            jobs: HashMap::new(),
            waiting: Vec::new(),
            drift: 0,
            status: watch::Sender::new(Status { watches, ..Status::default() }),
            config,
        };
        (driver, sender)
    }

    /// Tells `listener` everything that people should hear, besides logging it.
    #[must_use]
    pub fn on_notice(mut self, listener: impl FnMut(&Notice) + Send + 'static) -> Self {
        self.on_notice = Box::new(listener);
        self
    }

    /// Sends only while this replica leads. Without this, it is the only one.
    #[must_use]
    pub fn led_by(mut self, leadership: watch::Receiver<Leadership>) -> Self {
        self.leadership = leadership;
        self
    }

    /// Reads Azure at the begin of each term, before anything is sent, and every
    /// [`reading_interval`](DriverConfig::reading_interval) after that. Without this, whoever embeds the driver hands in
    /// observations.
    #[must_use]
    pub fn reading(mut self, reader: AzureReader) -> Self {
        // Until it has been read, there may be anything.
        self.tracker.handle_observation(Observation::Begin, Timestamp::default());
        self.reader = Some(reader);
        self
    }

    /// How it fares, from now on.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Runs until `shutdown` is cancelled or the last [`Inbox`] is dropped. Then nothing new is begun, and it ends when all
    /// calls in flight have, at the latest after [`shutdown_grace`](DriverConfig::shutdown_grace). Returns how many were given
    /// up.
    pub async fn run(mut self, shutdown: CancellationToken) -> usize {
        let mut messages = Vec::new();
        loop {
            self.turn();
            let deadline = self.deadline();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Ok(()) = self.leadership.changed() => {}
                Some(ended) = self.calls.join_next_with_id() => self.on_call_ended(ended),
                taken = self.inbox.recv_many(&mut messages, MAX_PER_WAKE) => {
                    if taken == 0 {
                        break;
                    }
                    messages.drain(..).for_each(|message| self.on_message(message));
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let now = self.now();
                    self.tracker.handle_timeout(now);
                    self.view.handle_timeout(now);
                }
            }
        }
        self.inbox.close();
        self.finish().await
    }

    /// Lets the calls in flight end, for a while.
    async fn finish(&mut self) -> usize {
        let grace_ends = Instant::now() + self.config.shutdown_grace;
        while !self.calls.is_empty() {
            self.follow_leadership();
            let term_ends = self.term_ends();
            tokio::select! {
                biased;
                () = sleep_until(grace_ends) => break,
                Ok(()) = self.leadership.changed() => {}
                Some(ended) = self.calls.join_next_with_id() => self.on_call_ended(ended),
                () = sleep_until(term_ends.unwrap_or_else(Instant::now)), if term_ends.is_some() => {}
            }
        }
        self.tell_notices();
        let unfinished = self.calls.len();
        if unfinished > 0 {
            warn!(unfinished, "calls are given up; what became of them is read at the next start");
        }
        self.calls.shutdown().await;
        unfinished
    }

    /// Everything that may follow from what has come in.
    fn turn(&mut self) {
        self.follow_leadership();
        self.take_changes();
        self.start_reading();
        self.start_operations();
        self.tell_notices();
        self.tell_conditions();
        self.start_announcements();
        self.answer_waiting();
        self.publish_status();
    }

    fn follow_leadership(&mut self) {
        let term = self.leadership.borrow_and_update().term_at(Instant::now());
        if term == self.term {
            return;
        }
        self.announcer.clear();
        // Calls of the former term are cut, in the order in which they began.
        std::mem::take(&mut self.term_over).cancel();
        match term {
            Some(term) => {
                info!(term, "this replica leads");
                self.view.ask_again();
                self.stories.tell_all(self.view.services().cloned());
            }
            None => info!("this replica leads no more"),
        }
        self.term = term;
    }

    /// Whether every set that is waited for has been listed.
    fn is_listed(&self) -> bool {
        let status = self.status.borrow();
        self.config.awaited.iter().all(|set| status.watches.get(set).is_some_and(|watch| watch.is_listed))
    }

    /// The term in which operations may be sent now.
    fn sending_term(&self) -> Option<u64> {
        let term = self.term?;
        let is_read = self.reader.is_none() || self.readings.is_done_in(term);
        (is_read && self.is_listed()).then_some(term)
    }

    fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let tracker = self.tracker.poll_timeout().map(|(at, _)| self.instant(at));
        let view = self.view.poll_timeout().map(|at| self.instant(at));
        let leads = self.term.is_some();
        let announcer = self.announcer.poll_timeout().filter(|_| leads).map(|at| self.instant(at));
        let reading = self.reader.as_ref().and(self.term).filter(|_| self.is_listed());
        let reading = reading.and_then(|term| self.readings.due_in(term, now));
        [tracker, view, announcer, reading, self.term_ends()].into_iter().flatten().min()
    }

    /// When this replica leads no more, unless it hears otherwise.
    fn term_ends(&self) -> Option<Instant> {
        self.term?;
        match *self.leadership.borrow() {
            Leadership::Leading { until, .. } => until,
            Leadership::Standby => None,
        }
    }

    fn on_message(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Change(change) => self.tracker.handle_change(change, now),
            Message::Observation(observation) => self.tracker.handle_observation(observation, now),
            Message::Watched(watched) => {
                self.note_progress(&watched);
                self.view.handle_watched(watched, now);
                self.take_changes();
            }
            Message::Machine(event) => {
                self.view.handle_machine(event);
                self.take_changes();
            }
            Message::WhenSynced(waiting) => self.waiting.push(waiting),
            Message::Stats(sender) => {
                // Whoever asked may have gone.
                let _ = sender.send(self.tracker.stats());
            }
        }
    }

    fn note_progress(&mut self, watched: &Watched) {
        let set = watched.set();
        self.status.send_if_modified(|status| {
            let watch = status.watches.entry(set).or_default();
            match watched.progress() {
                Progress::Heard => watch.trouble.take().is_some(),
                Progress::Listed => {
                    let was_well = watch.is_listed && watch.trouble.is_none();
                    watch.trouble = None;
                    if !std::mem::replace(&mut watch.is_listed, true) {
                        info!(%set, "listed");
                    }
                    !was_well
                }
                Progress::Interrupted(why) => {
                    watch.interruptions += 1;
                    watch.trouble = Some(why.to_string());
                    true
                }
            }
        });
    }

    /// What the cluster's objects come to, for the tracker and for people.
    fn take_changes(&mut self) {
        let now = self.now();
        while let Some(change) = self.view.poll_change() {
            self.tracker.handle_change(change, now);
        }
        while let Some(report) = self.view.poll_report() {
            match report {
                Report::Event(event) => {
                    debug!(about = %event.about, reason = %event.reason, "{}", event.message);
                    self.announce_event(event);
                }
                Report::Skipped { kind, error } => {
                    warn!("{error}");
                    self.count_skipped(kind);
                }
            }
        }
    }

    fn count_skipped(&mut self, kind: Kind) {
        let set = match kind {
            Kind::Service => WatchedSet::Services,
            Kind::EndpointSlice => WatchedSet::EndpointSlices,
            Kind::Node => WatchedSet::Nodes,
            Kind::Pod => WatchedSet::Pods,
        };
        self.status.send_modify(|status| status.watches.entry(set).or_default().skipped += 1);
    }

    /// Only the leader tells.
    fn announce_event(&mut self, event: crate::objects::Event) {
        if self.term.is_some() {
            self.announcer.handle_event(event, self.now());
        }
    }

    fn on_call_ended(&mut self, ended: Result<(task::Id, Ended), task::JoinError>) {
        let (id, ended) = match ended {
            Ok((id, ended)) => (id, Ok(ended)),
            Err(error) => (error.id(), Err(format!("the call was lost: {error}"))),
        };
        let now = self.now();
        let outcome = |ended| match ended {
            Ok(Ended::Outcome(outcome)) => outcome,
            Ok(Ended::Read(_)) => unknown("a reading is no outcome".to_owned()),
            Err(error) => unknown(error),
        };
        match self.jobs.remove(&id) {
            Some(Job::Operation(operation)) => self.tracker.handle_outcome(operation, outcome(ended), now),
            Some(Job::Announcement(announcement, tries)) => {
                self.announcer.handle_outcome(announcement, tries, &outcome(ended), now);
            }
            Some(Job::Reading { term }) => self.on_read(
                term,
                match ended {
                    Ok(Ended::Read(read)) => read,
                    Ok(Ended::Outcome(_)) => Err("an outcome is no reading".to_owned()),
                    Err(error) => Err(error),
                },
            ),
            None => {}
        }
    }

    fn start_reading(&mut self) {
        let now = Instant::now();
        let (Some(reader), Some(term)) = (self.reader.clone(), self.term) else { return };
        if !self.is_listed() || self.readings.due_in(term, now).is_none_or(|due| due > now) {
            return;
        }
        self.readings.is_running = true;
        let at = self.now();
        self.tracker.handle_observation(Observation::Begin, at);
        let call = self.call_context();
        let limit = self.config.operation_timeout;
        let task = self.calls.spawn(async move {
            let read = timeout(limit, reader.read(&call)).await;
            Ended::Read(match read {
                Ok(read) => read.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {limit:?}")),
            })
        });
        self.jobs.insert(task.id(), Job::Reading { term });
    }

    fn on_read(&mut self, term: u64, read: Result<Vec<Observation>, String>) {
        self.readings.is_running = false;
        let now = self.now();
        match read {
            // Another replica may have sent something since: the next reading counts.
            Ok(_) if self.leadership.borrow().term_at(Instant::now()) != Some(term) => {}
            Ok(observations) => {
                let before = self.tracker.stats().drift;
                for observation in observations {
                    self.tracker.handle_observation(observation, now);
                }
                let is_first = !self.readings.is_done_in(term);
                let found = self.tracker.stats().drift - before;
                if is_first {
                    info!(term, "Azure has been read");
                } else if found > 0 {
                    warn!(found, "somebody else changed what is ours in Azure; it is repaired");
                    self.drift += found;
                }
                let interval = self.config.reading_interval.mul_f64(0.9 + self.random.f64() / 5.0);
                self.readings.on_done(term, Instant::now() + interval);
            }
            Err(error) => {
                warn!(%error, "Azure cannot be read; it is tried again");
                let jitter = self.random.f64();
                self.readings.on_failed(error, Instant::now(), jitter);
            }
        }
    }

    fn start_operations(&mut self) {
        let Some(term) = self.sending_term() else { return };
        while let Some(Operation { id, action }) = self.tracker.poll_operation(self.now()) {
            let (updater, executor) = (self.updater.clone(), self.executor.clone());
            let objects = self.objects.clone();
            let call = self.call_context();
            debug!(operation = %id, client_request_id = call.client_request_id(), "start");
            let performed = async move {
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
            self.spawn(term, self.config.operation_timeout, Job::Operation(id), performed);
        }
    }

    /// Runs a call for as long as it may take and this replica leads.
    fn spawn(
        &mut self,
        term: u64,
        limit: Duration,
        job: Job,
        call: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let lost = lost(self.leadership.clone(), term, self.term_over.clone());
        let task = self.calls.spawn(async move {
            Ended::Outcome(tokio::select! {
                biased;
                () = lost => unknown("this replica leads no more".to_owned()),
                outcome = timeout(limit, call) => {
                    outcome.unwrap_or_else(|_| unknown(format!("no answer within {limit:?}")))
                }
            })
        });
        self.jobs.insert(task.id(), job);
    }

    fn call_context(&mut self) -> CallContext {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        CallContext::from(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    fn tell_notices(&mut self) {
        while let Some(notice) = self.tracker.poll_notice() {
            log(&notice);
            if matches!(notice, Notice::DeletionsHeld { .. }) {
                self.relists.ask();
            }
            let object = |id: &_| {
                let (key, _) = self.view.service(id)?;
                Some(ObjectRef::Service { id: id.clone(), key: key.clone() })
            };
            let events =
                self.stories.handle_notice(&notice, object, |address| self.tracker.programmed(address));
            events.into_iter().for_each(|event| self.announce_event(event));
            (self.on_notice)(&notice);
        }
    }

    /// What Services and pods should show, where they do not.
    fn tell_conditions(&mut self) {
        if self.sending_term().is_none() {
            return;
        }
        let now = self.now();
        for (id, condition) in self.stories.take_changed(&self.tracker) {
            let Some((key, shown)) = self.view.service(&id) else { continue };
            let object = ObjectRef::Service { id, key: key.clone() };
            if shown == Some(&condition) {
                self.announcer.withdraw_condition(&object);
            } else {
                self.announcer.handle_condition(object, condition, now, CONDITION_DELAY);
            }
        }
        let tracker = &self.tracker;
        for (pod, condition) in self.view.pod_conditions(|address| tracker.programmed(address)) {
            self.announcer.handle_condition(ObjectRef::Pod(pod), condition, now, Duration::ZERO);
        }
    }

    fn start_announcements(&mut self) {
        let Some(term) = self.term else { return };
        while let Some((announcement, tries)) = self.announcer.poll(self.now()) {
            let objects = self.objects.clone();
            let job = Job::Announcement(announcement.clone(), tries);
            let written = async move {
                match &announcement {
                    Announcement::Condition(object, condition) => {
                        objects.write_condition(object, condition).await
                    }
                    Announcement::Event(event) => objects.write_event(event).await,
                }
            };
            self.spawn(term, ANNOUNCEMENT_TIMEOUT, job, written);
        }
    }

    fn is_synced(&self) -> bool {
        self.tracker.is_synced() && self.sending_term().is_some()
    }

    fn answer_waiting(&mut self) {
        if !self.waiting.is_empty() && self.is_synced() {
            for waiting in self.waiting.drain(..) {
                // Whoever waited may have gone.
                let _ = waiting.send(());
            }
        }
    }

    fn publish_status(&mut self) {
        let (is_sending, is_synced) = (self.sending_term().is_some(), self.is_synced());
        let (term, drift, dropped_events) = (self.term, self.drift, self.announcer.dropped_events());
        let reading = self.readings.status(term);
        self.status.send_if_modified(|status| {
            let is_same = (status.term, status.is_sending, status.is_synced) == (term, is_sending, is_synced)
                && (status.drift, status.dropped_events) == (drift, dropped_events)
                && status.reading == reading;
            status.term = term;
            status.reading = reading;
            status.is_sending = is_sending;
            status.is_synced = is_synced;
            status.drift = drift;
            status.dropped_events = dropped_events;
            !is_same
        });
    }

    fn now(&self) -> Timestamp {
        Timestamp::default().after(self.started.elapsed())
    }

    fn instant(&self, at: Timestamp) -> Instant {
        self.started + at.since(Timestamp::default())
    }
}

fn log(notice: &Notice) {
    match notice {
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
        Notice::PodFailed { operation, pod, request: PodRequest::AddFinalizer, kind, message, .. } => {
            warn!(%operation, %pod, ?kind, "the finalizer cannot be added: {message}");
        }
        Notice::PodFailed { operation, pod, request: PodRequest::RemoveFinalizer, kind, message, .. } => {
            warn!(%operation, %pod, ?kind, "the finalizer cannot be removed: {message}");
        }
        Notice::Quarantined { address, message, .. } => warn!(%address, "left out: {message}"),
    }
}
