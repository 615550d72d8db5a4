//! Leader election by a `coordination.k8s.io/v1` Lease: which of several replicas leads, as a pure state machine.
//!
//! [`Election`] says what to ask of the API server and when, and is told the answers. `kube::Elector` performs them; whoever
//! keeps the Lease elsewhere writes the like.
//!
//! # The rules
//!
//! * The holder renews its Lease every `retry_period`. It leads until `renew_deadline` after the moment *before* it sent the
//!   last renewal that is known to have been applied; an answer that took long makes that no later.
//! * The others look every `retry_period` and take the Lease over only after they have seen it unchanged, to its very
//!   `resourceVersion`, for the whole `lease_duration`, by their own monotonic clock. Wall clocks decide nothing: the times
//!   in a Lease are for people.
//! * Every write names the version that it replaces. So what is taken over is what was seen unchanged: its holder's last
//!   renewal was sent before it was seen, and `lease_duration - renew_deadline` lies between the end of the one leadership and
//!   the beginning of the next.
//! * A Lease that nobody holds is free at once, and so is one that does not exist and never did, as far as is known. One
//!   that was there and is gone counts like any other change: it is created anew after `lease_duration`.
//! * What an election did not write itself is somebody else's, even where it bears the same identity: an earlier run's, whose
//!   last requests may still be on their way, or another process's by mistake.
//! * After a write whose answer was lost, the Lease is read: if it shows the very write, that was applied.
//!
//! # What it relies on
//!
//! Monotonic clocks run at about the same rate everywhere (in the ratio of `renew_deadline` to `lease_duration` at worst), and
//! go on while a process is stopped. On Linux they stand still while a whole machine is suspended; machines of a cluster are
//! not. A replica that starts just after somebody has deleted the Lease of a living leader cannot know and does not wait.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use tokio::time::Instant;

use crate::Leadership;

mod config;
#[cfg(test)]
mod tests;

pub use config::{LeaseConfig, LeaseConfigError};

/// How long a release may take: a few round trips to a server that is well, and little of the 30 s that a pod has to stop.
pub const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// By how much of the retry period a wait may be longer, so that replicas that started together do not ask together.
const JITTER: f64 = 0.2;

/// The longest `leaseDurationSeconds` of others that is waited for without a warning: an hour without a leader is hardly meant.
const LONG: Duration = Duration::from_secs(3_600);

/// Takes part in the election of a leader.
///
/// # Contract
///
/// Inputs are [`handle_answer`](Self::handle_answer), [`handle_timeout`](Self::handle_timeout) and
/// [`handle_shutdown`](Self::handle_shutdown). After any of them, in this order:
///
/// 1. [`poll_request`](Self::poll_request). A request taken is owed an answer by its deadline, [`Answer::Failed`] at the
///    latest then; until there is one no other is given, unless a shutdown gives it up: then it may be dropped, and its
///    answer is ignored.
/// 2. [`poll_notice`](Self::poll_notice) until it gives `None`.
/// 3. [`leadership`](Self::leadership): tell it to whoever sends, if it has changed.
/// 4. [`poll_timeout`](Self::poll_timeout): call `handle_timeout` then, if nothing else comes first. Early or twice is harmless.
///    Without one, a request is in flight, or it [is over](Self::is_over).
///
/// Time is told by the caller and must not run backwards (an earlier time counts as the latest one told). Equal inputs and
/// seeds give equal outputs.
#[derive(Clone, Debug)]
pub struct Election {
    config: LeaseConfig,
    rng: fastrand::Rng,
    now: Instant,
    phase: Phase,
    requests: u64,
    /// When a release is given up; set by a shutdown.
    stop_by: Option<Instant>,
    seen: Option<Seen>,
    /// Our last write that is known to have been applied.
    confirmed: Option<LeaseSpec>,
    /// Our last write that is not.
    attempt: Option<Attempt>,
    /// When the last write was sent: they are a retry period apart.
    wrote_at: Option<Instant>,
    leadership: Leadership,
    term: u64,
    notices: VecDeque<Notice>,
    told: Told,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The next request is due then.
    Waiting { step: Step, at: Instant },
    /// A request is in flight.
    Asking { id: RequestId, step: Step, sent: Instant },
    /// Stopped; the Lease is released as far as it could be.
    Over,
}

/// What is asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at the Lease.
    Read,
    /// Take it or renew it.
    Claim,
    /// Let go of it.
    Release,
}

/// What was last seen of the Lease.
#[derive(Clone, Debug)]
struct Seen {
    /// `None` is that there is none.
    lease: Option<Lease>,
    /// From when on anybody may take it if it stays like this.
    free_at: Instant,
}

/// A write that may or may not have been applied. As long as it may still lead to something, writes over the same version
/// repeat it word for word: whichever of them is applied is recognised.
#[derive(Clone, Debug)]
struct Attempt {
    /// The version that it replaces; `None` creates.
    base: Option<String>,
    spec: LeaseSpec,
    /// Before the first of them was sent.
    sent: Instant,
}

/// What people have been told, so that it is not said again at each try.
#[derive(Clone, Debug, Default)]
struct Told {
    holder: Option<String>,
    oddity: Option<String>,
    reads_fail: bool,
    writes_fail: bool,
}

/// Names one request; never used twice by one election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

/// Something to ask of the API server now.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What the answer must name.
    pub id: RequestId,
    /// What to ask.
    pub action: Action,
    /// When to stop waiting for an answer.
    pub deadline: Instant,
}

/// What to ask of the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the Lease, from the server's storage and not from a cache.
    Read,
    /// Create it.
    Create(Box<Lease>),
    /// Replace it, if it still has the `resourceVersion` that this names.
    Replace(Box<Lease>),
}

/// How a request went.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The Lease as it is now, read or written.
    Lease(Box<Lease>),
    /// There is no such Lease. (Not for a `Create`, where something else is missing: that has [`Failed`](Self::Failed).)
    Missing,
    /// Something else was written before (409).
    Conflict,
    /// Anything else: refused, unreachable, no answer in time. A write may have been applied, or may be yet.
    Failed(String),
}

/// Something that people should hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// This replica leads now.
    Gained {
        /// Which time it is.
        term: u64,
    },
    /// It does not lead any more.
    Lost {
        /// Which time it was.
        term: u64,
        /// Why.
        why: Loss,
    },
    /// Another replica holds the Lease. Told when that changes.
    HeldBy(String),
    /// There is something wrong with the Lease that was read. Told when that changes.
    Odd(String),
    /// Reading, or writing, has begun to fail. Told again only after it has worked meanwhile.
    Failing {
        /// What fails.
        step: Step,
        /// Why.
        error: String,
    },
    /// The Lease was released: another replica can lead at once.
    Released,
    /// The Lease could not be released in time: another replica can lead when it has run out.
    NotReleased,
}

/// Why this replica does not lead any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// It could not renew the Lease in time.
    #[error("it could not renew the Lease in time")]
    RanOut,
    /// The Lease is not what it wrote.
    #[error("somebody else has written the Lease, which names as its holder {holder:?}")]
    Taken {
        /// Whom it names; empty is nobody.
        holder: String,
    },
    /// The Lease is gone.
    #[error("the Lease was deleted")]
    Deleted,
    /// It was told to stop.
    #[error("it stops")]
    Stopped,
}

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A request is due.
    Due(Step),
    /// The leadership runs out.
    RunsOut,
    /// A release is given up.
    GivesUp,
}

impl Election {
    /// One that looks at the Lease now.
    ///
    /// # Errors
    /// When a setting makes no sense; the error names it and what it should be.
    pub fn new(config: LeaseConfig, now: Instant) -> Result<Self, LeaseConfigError> {
        config.validate()?;
        Ok(Self {
            rng: fastrand::Rng::with_seed(config.seed),
            config,
            now,
            phase: Phase::Waiting { step: Step::Read, at: now },
            requests: 0,
            stop_by: None,
            seen: None,
            confirmed: None,
            attempt: None,
            wrote_at: None,
            leadership: Leadership::Standby,
            term: 0,
            notices: VecDeque::new(),
            told: Told::default(),
        })
    }

    /// Takes in how a request went. An answer to one that is not in flight is ignored.
    pub fn handle_answer(&mut self, id: RequestId, answer: Answer, now: Instant) {
        self.advance(now);
        let Phase::Asking { id: asked, step, sent } = self.phase else { return };
        if asked != id {
            return;
        }
        match answer {
            Answer::Lease(lease) => match lease.metadata.resource_version.as_deref() {
                None | Some("") => self.on_failure(step, "the Lease has no resourceVersion".to_owned(), sent),
                Some(_) => self.on_lease(*lease, step, sent),
            },
            Answer::Missing => {
                self.told.reads_fail = false;
                self.observe(None);
                self.lose(Loss::Deleted);
                self.go_on(sent);
            }
            // Also what a write hears that was sent twice on the way: it may be the one that was before.
            Answer::Conflict => self.phase = Phase::Waiting { step: Step::Read, at: self.now },
            Answer::Failed(error) => self.on_failure(step, error, sent),
        }
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        if self.stop_by.is_some_and(|by| by <= self.now) && !self.is_over() {
            self.phase = Phase::Over;
            self.notices.push_back(Notice::NotReleased);
        }
    }

    /// Stops leading at once, and then lets go of the Lease if it may be ours, within [`RELEASE_WITHIN`]. A request in
    /// flight is given up.
    pub fn handle_shutdown(&mut self, now: Instant) {
        self.advance(now);
        if self.stop_by.is_some() {
            return;
        }
        self.lose(Loss::Stopped);
        self.stop_by = Some(self.now + RELEASE_WITHIN);
        self.wrote_at = None;
        let is_settled = matches!(self.phase, Phase::Waiting { step: Step::Claim, .. });
        self.phase = if self.confirmed.is_none() && self.attempt.is_none() {
            Phase::Over
        } else if is_settled && self.is_ours() {
            Phase::Waiting { step: Step::Release, at: self.now }
        } else {
            Phase::Waiting { step: Step::Read, at: self.now }
        };
    }

    /// What to ask of the API server now, if anything. `now` is a moment before it is sent; `wall` is the time of day, for
    /// people.
    #[must_use]
    pub fn poll_request(&mut self, now: Instant, wall: SystemTime) -> Option<Request> {
        self.handle_timeout(now);
        let Phase::Waiting { step, at } = self.phase else { return None };
        if self.now < at {
            return None;
        }
        let action = match step {
            Step::Read => Action::Read,
            Step::Claim => self.claim(wall),
            Step::Release => self.release(wall),
        };
        let id = RequestId(self.requests);
        self.requests += 1;
        self.phase = Phase::Asking { id, step, sent: self.now };
        // Half of the time that is left, so that after one that hangs there is time to find out what became of it.
        let ends = self.until().or(self.stop_by);
        let left = ends.map_or(self.config.renew_deadline, |ends| ends.saturating_duration_since(self.now));
        Some(Request { id, action, deadline: self.now + left / 2 })
    }

    /// What people should hear, in order.
    #[must_use]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Whether this replica leads, as of the latest time told.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership
    }

    /// When something is to be done, and what.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Reason)> {
        let due = match self.phase {
            Phase::Waiting { step, at } => Some((at, Reason::Due(step))),
            Phase::Asking { .. } => None,
            Phase::Over => return None,
        };
        let runs_out = self.until().map(|until| (until, Reason::RunsOut));
        let gives_up = self.stop_by.map(|by| (by, Reason::GivesUp));
        [runs_out, gives_up, due].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Whether it has stopped, and the Lease is released as far as it could be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.until().is_some_and(|until| until <= self.now) {
            self.lose(Loss::RanOut);
        }
    }

    fn until(&self) -> Option<Instant> {
        match self.leadership {
            Leadership::Leading { until, .. } => until,
            Leadership::Standby => None,
        }
    }

    /// The Lease is this, as was read or written with a request sent then.
    fn on_lease(&mut self, lease: Lease, step: Step, sent: Instant) {
        let spec = lease.spec.clone().unwrap_or_default();
        self.observe(Some(lease));
        if let Some(attempt) = self.attempt.take_if(|attempt| attempt.spec == spec) {
            self.confirmed = Some(attempt.spec);
            let sent = if step == Step::Claim { sent } else { attempt.sent };
            self.on_renewed(sent);
        }
        match step {
            Step::Read => self.told.reads_fail = false,
            Step::Claim | Step::Release => self.told.writes_fail = false,
        }
        if self.is_ours() {
            self.told.holder = None;
            self.told.oddity = None;
        } else {
            let holder = spec.holder_identity.as_deref().unwrap_or_default();
            self.lose(Loss::Taken { holder: holder.to_owned() });
            if self.stop_by.is_none() {
                self.tell_of(&spec, holder);
            } else if self.wrote_at.is_some() && holder.is_empty() {
                // Since the shutdown nothing but a release has been written.
                self.notices.push_back(Notice::Released);
            }
        }
        self.go_on(sent);
    }

    /// A write of ours that was sent then is known to have been applied.
    fn on_renewed(&mut self, sent: Instant) {
        let until = sent + self.config.renew_deadline;
        if until <= self.now || self.stop_by.is_some() {
            return;
        }
        if self.leadership == Leadership::Standby {
            self.term += 1;
            self.notices.push_back(Notice::Gained { term: self.term });
        }
        self.leadership = Leadership::Leading { term: self.term, until: Some(until) };
    }

    fn on_failure(&mut self, step: Step, error: String, sent: Instant) {
        let (fails, at) = match step {
            Step::Read => {
                let at = self.look_again_at(sent);
                (&mut self.told.reads_fail, at)
            }
            // Whether it was applied after all is known at once, or a retry period later.
            Step::Claim | Step::Release => (&mut self.told.writes_fail, self.now),
        };
        if !std::mem::replace(fails, true) {
            self.notices.push_back(Notice::Failing { step, error });
        }
        self.phase = Phase::Waiting { step: Step::Read, at };
    }

    /// What is next, now that the Lease is known.
    fn go_on(&mut self, sent: Instant) {
        let free_at = self.seen.as_ref().map_or(self.now, |seen| seen.free_at);
        let paced = self.wrote_at.map_or(self.now, |at| self.now.max(at + self.config.retry_period));
        self.phase = if self.stop_by.is_some() {
            if self.is_ours() { Phase::Waiting { step: Step::Release, at: paced } } else { Phase::Over }
        } else if self.is_ours() || free_at <= self.now {
            Phase::Waiting { step: Step::Claim, at: paced }
        } else {
            self.told.writes_fail = false;
            Phase::Waiting { step: Step::Read, at: free_at.min(self.look_again_at(sent)) }
        };
    }

    /// When to read again after a read that was sent then.
    fn look_again_at(&mut self, sent: Instant) -> Instant {
        let wait = self.config.retry_period.mul_f64(1.0 + JITTER * self.rng.f64());
        self.now.max(sent + wait)
    }

    /// Whether the Lease was last seen as we wrote it.
    fn is_ours(&self) -> bool {
        let seen = self.seen.as_ref().and_then(|seen| seen.lease.as_ref()?.spec.as_ref());
        seen.is_some() && seen == self.confirmed.as_ref()
    }

    fn observe(&mut self, lease: Option<Lease>) {
        if self.seen.as_ref().is_some_and(|seen| seen.lease == lease) {
            return;
        }
        let wait = match &lease {
            Some(lease) => lease.spec.as_ref().map_or(Duration::ZERO, |spec| self.wait_for(spec)),
            None if self.seen.is_none() => Duration::ZERO,
            None => self.config.lease_duration,
        };
        self.seen = Some(Seen { lease, free_at: self.now + wait });
    }

    /// How long a Lease must be unchanged before somebody else takes it: what its holder asked for, but never less than what
    /// we ask for ourselves.
    fn wait_for(&self, spec: &LeaseSpec) -> Duration {
        if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
            return Duration::ZERO;
        }
        let asked = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        self.config.lease_duration.max(Duration::from_secs(asked))
    }

    fn lose(&mut self, why: Loss) {
        if let Leadership::Leading { term, .. } = self.leadership {
            self.leadership = Leadership::Standby;
            self.notices.push_back(Notice::Lost { term, why });
        }
    }

    /// Tells of a Lease that is not ours, if it is not as it was.
    fn tell_of(&mut self, spec: &LeaseSpec, holder: &str) {
        if self.told.holder.as_deref().unwrap_or_default() != holder {
            self.told.holder = Some(holder.to_owned());
            if !holder.is_empty() && holder != self.config.identity {
                self.notices.push_back(Notice::HeldBy(holder.to_owned()));
            }
        }
        let oddity = self.oddity(spec, holder);
        if oddity != self.told.oddity {
            self.notices.extend(oddity.clone().map(Notice::Odd));
            self.told.oddity = oddity;
        }
    }

    fn oddity(&self, spec: &LeaseSpec, holder: &str) -> Option<String> {
        if spec == &LeaseSpec::default() {
            return Some("it has no spec, so nobody holds it".to_owned());
        }
        if spec.lease_transitions.is_some_and(|transitions| transitions < 0) {
            return Some("its leaseTransitions are negative; they are counted from 0 again".to_owned());
        }
        if holder.is_empty() {
            return None;
        }
        if holder == self.config.identity {
            return Some(
                "it names us as its holder, but we did not write it: an earlier run did, or another process with the same \
                 identity; it is left to run out"
                    .to_owned(),
            );
        }
        let ours = self.config.lease_duration;
        match spec.lease_duration_seconds {
            None => return Some(format!("it has no leaseDurationSeconds; it runs out after {ours:?}")),
            Some(seconds) if seconds < 1 => {
                return Some(format!("its leaseDurationSeconds are {seconds}; it runs out after {ours:?}"));
            }
            Some(seconds) if self.wait_for(spec) > LONG => {
                return Some(format!(
                    "its leaseDurationSeconds are {seconds}: nobody else leads for so long if its holder dies; delete the \
                     Lease if it has"
                ));
            }
            Some(_) => {}
        }
        match (&spec.acquire_time, &spec.renew_time) {
            (_, None) => Some("it has no renewTime".to_owned()),
            (Some(acquired), Some(renewed)) if acquired > renewed => {
                Some("its renewTime is before its acquireTime".to_owned())
            }
            (_, Some(_)) => None,
        }
    }

    /// The write that takes or renews the Lease as it was last seen.
    fn claim(&mut self, wall: SystemTime) -> Action {
        let seen = self.seen.as_ref().and_then(|seen| seen.lease.clone());
        let base = seen.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        let spec = match &self.attempt {
            Some(attempt) if attempt.base == base && self.now < attempt.sent + self.config.renew_deadline => {
                attempt.spec.clone()
            }
            Some(_) | None => {
                let spec = self.claimed(seen.as_ref(), wall);
                self.attempt = Some(Attempt { base, spec: spec.clone(), sent: self.now });
                spec
            }
        };
        self.wrote_at = Some(self.now);
        match seen {
            Some(lease) => Action::Replace(Box::new(Lease { spec: Some(spec), ..lease })),
            None => {
                let metadata = ObjectMeta {
                    namespace: Some(self.config.namespace.clone()),
                    name: Some(self.config.name.clone()),
                    ..ObjectMeta::default()
                };
                Action::Create(Box::new(Lease { metadata, spec: Some(spec) }))
            }
        }
    }

    /// What the Lease says when we hold it. As client-go counts, a transition is a change of the name in it, also from nobody.
    fn claimed(&self, seen: Option<&Lease>, wall: SystemTime) -> LeaseSpec {
        let old = seen.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let mut now = micro_time(wall);
        if old.renew_time.as_ref() == Some(&now) {
            // A wall clock that stands still: a renewal must differ from what it renews, to be recognised.
            now = MicroTime(now.0.saturating_add(jiff::SignedDuration::from_micros(1)).unwrap_or(now.0));
        }
        let was_ours = old.holder_identity.as_deref() == Some(self.config.identity.as_str());
        let transitions = old.lease_transitions.unwrap_or_default().max(0);
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(self.config.lease_duration_seconds()),
            acquire_time: old.acquire_time.filter(|_| was_ours).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match seen {
                None => 0,
                Some(_) if was_ours => transitions,
                Some(_) => transitions.saturating_add(1),
            }),
            ..old
        }
    }

    /// The write that lets go of the Lease as it was last seen; of the Lease of another, never.
    fn release(&mut self, wall: SystemTime) -> Action {
        // It is released only where it was seen to be ours.
        let Some(lease) = self.seen.as_ref().and_then(|seen| seen.lease.clone()) else { return Action::Read };
        self.wrote_at = Some(self.now);
        let now = micro_time(wall);
        let spec = LeaseSpec {
            holder_identity: None,
            // As client-go has it, for those who look at nothing else; the server refuses 0.
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..lease.spec.unwrap_or_default()
        };
        Action::Replace(Box::new(Lease { metadata: lease.metadata, spec: Some(spec) }))
    }
}

/// A time of day as it comes back from the API server, which keeps microseconds.
fn micro_time(wall: SystemTime) -> MicroTime {
    let micros = match wall.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()),
        Err(before) => i64::try_from(before.duration().as_micros()).map(|micros| -micros),
    };
    let time = micros.ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    // A clock out of all reason says nothing: it is for people only.
    MicroTime(time.unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}
