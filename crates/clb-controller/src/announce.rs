//! What people are told: conditions and events, coalesced, limited and in their own time.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use clb_difftracker::{FailureKind, Outcome, Timestamp};

use crate::objects::{Condition, Event, ObjectRef};

/// How long a Service's condition is kept back for others to take its place: most Services pass through several states in
/// a second.
pub(crate) const CONDITION_DELAY: Duration = Duration::from_millis(500);
/// How many writes are under way at once: few, as everything else is more urgent.
const MAX_IN_FLIGHT: usize = 4;
/// How long the same event is not told again: half as long as Kubernetes' own recorders gather what is alike, so that a lasting
/// trouble counts up.
const EVENT_INTERVAL: Duration = Duration::from_secs(300);
/// How many events may be told at once, and how many a second after that: Kubernetes' own recorders allow 25 for an object and
/// then one in five minutes; this is for all objects.
const EVENT_BURST: f64 = 50.0;
const EVENTS_PER_SECOND: f64 = 5.0;
/// How many events wait at most. Beyond that they are counted and dropped.
const MAX_EVENTS: usize = 1_000;
/// How often an event is tried.
const EVENT_TRIES: u32 = 3;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Something to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    Condition(ObjectRef, Condition),
    Event(Event),
}

/// What waits to be told. Pure: time comes in.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    conditions: BTreeMap<ObjectRef, Wanted>,
    events: VecDeque<(Event, u32)>,
    /// When an event was told last, by its hash.
    told: BTreeMap<u64, Timestamp>,
    tokens: Tokens,
    /// Events are not tried again before.
    events_not_before: Timestamp,
    in_flight: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Wanted {
    condition: Condition,
    not_before: Timestamp,
    failures: u32,
    in_flight: bool,
    /// Whether another condition took its place while it was being written.
    is_outdated: bool,
}

#[derive(Debug)]
struct Tokens {
    left: f64,
    at: Timestamp,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { left: EVENT_BURST, at: Timestamp::default() }
    }
}

impl Tokens {
    fn refill(&mut self, now: Timestamp) {
        let earned = now.since(self.at).as_secs_f64() * EVENTS_PER_SECOND;
        self.left = (self.left + earned).min(EVENT_BURST);
        self.at = self.at.max(now);
    }
}

impl Announcer {
    /// An object's condition is to be this, after this delay if none waits yet. It takes the place of one that waits.
    pub(crate) fn handle_condition(
        &mut self,
        object: ObjectRef,
        condition: Condition,
        now: Timestamp,
        delay: Duration,
    ) {
        match self.conditions.get_mut(&object) {
            Some(wanted) if wanted.condition != condition => {
                wanted.condition = condition;
                wanted.is_outdated |= wanted.in_flight;
            }
            Some(_) => {}
            None => {
                let not_before = now.after(delay);
                let wanted =
                    Wanted { condition, not_before, failures: 0, in_flight: false, is_outdated: false };
                self.conditions.insert(object, wanted);
            }
        }
    }

    /// A condition of an object need not be written any more.
    pub(crate) fn withdraw_condition(&mut self, object: &ObjectRef) {
        if self.conditions.get(object).is_some_and(|wanted| !wanted.in_flight) {
            self.conditions.remove(object);
        }
    }

    /// Something is to be told, unless it was a short time ago.
    pub(crate) fn handle_event(&mut self, event: Event, now: Timestamp) {
        let mut hasher = DefaultHasher::new();
        event.hash(&mut hasher);
        let hash = hasher.finish();
        if self.told.get(&hash).is_some_and(|at| now < at.after(EVENT_INTERVAL)) {
            return;
        }
        if self.events.len() >= MAX_EVENTS {
            self.dropped += 1;
            return;
        }
        // What is old enough to be told again need not be remembered.
        if self.told.len() >= 2 * MAX_EVENTS {
            self.told.retain(|_, at| now < at.after(EVENT_INTERVAL));
        }
        self.told.insert(hash, now);
        self.events.push_back((event, 0));
    }

    /// How many events were dropped since there were too many, or since the API server would not take them.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.dropped
    }

    /// The next write that is due. It counts as in flight from here on. Pods' conditions come first: roll-outs wait for them.
    pub(crate) fn poll(&mut self, now: Timestamp) -> Option<(Announcement, u32)> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let due = |(_, wanted): &(&ObjectRef, &mut Wanted)| !wanted.in_flight && wanted.not_before <= now;
        // Of the two kinds of objects, pods are the greater.
        if let Some((object, wanted)) = self.conditions.iter_mut().rev().find(due) {
            wanted.in_flight = true;
            self.in_flight += 1;
            return Some((Announcement::Condition(object.clone(), wanted.condition.clone()), 0));
        }
        self.tokens.refill(now);
        if self.tokens.left < 1.0 || now < self.events_not_before {
            return None;
        }
        let (event, tries) = self.events.pop_front()?;
        self.tokens.left -= 1.0;
        self.in_flight += 1;
        Some((Announcement::Event(event), tries))
    }

    /// A write ended.
    pub(crate) fn handle_outcome(
        &mut self,
        announcement: Announcement,
        tries: u32,
        outcome: &Outcome,
        now: Timestamp,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let failure = match outcome {
            Outcome::Succeeded(_) => None,
            Outcome::Failed(failure) | Outcome::Unknown(failure) => Some(failure.kind),
        };
        match announcement {
            Announcement::Condition(object, _) => self.on_condition(&object, failure, now),
            Announcement::Event(event) => match failure {
                None => {}
                Some(kind) if is_temporary(kind) && tries + 1 < EVENT_TRIES => {
                    self.events_not_before = now.after(pause(kind, tries + 1));
                    self.events.push_front((event, tries + 1));
                }
                Some(_) => self.dropped += 1,
            },
        }
    }

    fn on_condition(&mut self, object: &ObjectRef, failure: Option<FailureKind>, now: Timestamp) {
        let Some(wanted) = self.conditions.get_mut(object) else { return };
        wanted.in_flight = false;
        match failure {
            // There is nothing to write on any more.
            Some(FailureKind::NotFound) => drop(self.conditions.remove(object)),
            Some(kind) => {
                wanted.failures = wanted.failures.saturating_add(1);
                wanted.is_outdated = false;
                wanted.not_before = now.after(pause(kind, wanted.failures));
            }
            None if wanted.is_outdated => {
                wanted.is_outdated = false;
                wanted.failures = 0;
                wanted.not_before = now.after(CONDITION_DELAY);
            }
            None => drop(self.conditions.remove(object)),
        }
    }

    /// When something will be due.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let waiting = self.conditions.values().filter(|wanted| !wanted.in_flight);
        let conditions = waiting.map(|wanted| wanted.not_before).min();
        let missing = (1.0 - self.tokens.left).max(0.0) / EVENTS_PER_SECOND;
        let token = self.tokens.at.after(Duration::from_secs_f64(missing) + Duration::from_millis(1));
        let event = (!self.events.is_empty()).then(|| token.max(self.events_not_before));
        conditions.into_iter().chain(event).min()
    }

    /// Somebody else tells from now on.
    pub(crate) fn clear(&mut self) {
        self.conditions.retain(|_, wanted| wanted.in_flight);
        self.events.clear();
        self.told.clear();
    }
}

fn is_temporary(kind: FailureKind) -> bool {
    match kind {
        FailureKind::Throttled { .. } | FailureKind::Conflict | FailureKind::Transient => true,
        FailureKind::Invalid
        | FailureKind::NotFound
        | FailureKind::Forbidden
        | FailureKind::Quota
        | FailureKind::StillReferenced => false,
    }
}

fn pause(kind: FailureKind, failures: u32) -> Duration {
    let grown = FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_RETRY);
    match kind {
        FailureKind::Throttled { retry_after: Some(pause) } => pause.max(grown),
        _ if is_temporary(kind) => grown,
        _ => LONGEST_RETRY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{ConditionStatus, EventKind};
    use clb_difftracker::{Failure, ObjectKey, ServiceId, Success};

    const SECOND: Duration = Duration::from_secs(1);

    fn object(name: &str) -> ObjectRef {
        ObjectRef::Service { id: ServiceId::new(name).unwrap(), key: ObjectKey::new("ns", name) }
    }

    fn condition(reason: &'static str) -> Condition {
        Condition { status: ConditionStatus::False, reason: reason.into(), message: String::new() }
    }

    fn event(number: usize) -> Event {
        let message = format!("{number}");
        Event { about: object("a"), kind: EventKind::Normal, reason: "Some".into(), message }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn failed(kind: FailureKind) -> Outcome {
        Outcome::Failed(Failure { kind, message: String::new() })
    }

    const DONE: Outcome = Outcome::Succeeded(Success::Done);

    #[test]
    fn of_conditions_in_quick_succession_the_last_one_is_written() {
        let mut announcer = Announcer::default();
        for reason in ["Pending", "Creating", "Ready"] {
            announcer.handle_condition(object("a"), condition(reason), at(0), CONDITION_DELAY);
        }
        assert_eq!((announcer.poll(at(499)), announcer.poll_timeout()), (None, Some(at(500))));
        let written = Announcement::Condition(object("a"), condition("Ready"));
        assert_eq!(announcer.poll(at(500)), Some((written.clone(), 0)));
        assert_eq!((announcer.poll(at(500)), announcer.poll_timeout()), (None, None));
        // Another one comes while it is being written.
        announcer.handle_condition(object("a"), condition("Updating"), at(600), CONDITION_DELAY);
        announcer.handle_outcome(written, 0, &DONE, at(700));
        assert_eq!(announcer.poll_timeout(), Some(at(1_200)));
        let next = Announcement::Condition(object("a"), condition("Updating"));
        assert_eq!(announcer.poll(at(1_200)), Some((next.clone(), 0)));
        announcer.handle_outcome(next, 0, &DONE, at(1_300));
        assert_eq!(announcer.poll_timeout(), None);
    }

    #[test]
    fn a_condition_is_tried_until_it_is_written_or_there_is_no_object() {
        let mut announcer = Announcer::default();
        announcer.handle_condition(object("a"), condition("Ready"), at(0), Duration::ZERO);
        let mut waits = Vec::new();
        let mut now = at(0);
        for _ in 0..9 {
            let (what, tries) = announcer.poll(now).unwrap();
            announcer.handle_outcome(what, tries, &failed(FailureKind::Conflict), now);
            let next = announcer.poll_timeout().unwrap();
            waits.push(next.since(now).as_secs());
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let (what, tries) = announcer.poll(now).unwrap();
        announcer.handle_outcome(what, tries, &failed(FailureKind::NotFound), now);
        assert_eq!(announcer.poll_timeout(), None);
    }

    #[test]
    fn the_same_event_is_told_once_in_five_minutes_and_a_flood_of_others_at_a_steady_rate() {
        let mut announcer = Announcer::default();
        for _ in 0..10 {
            announcer.handle_event(event(0), at(0));
        }
        let (what, tries) = announcer.poll(at(0)).unwrap();
        announcer.handle_outcome(what, tries, &DONE, at(0));
        assert_eq!(announcer.poll(at(0)), None);
        announcer.handle_event(event(0), at(299_999));
        assert_eq!(announcer.poll(at(299_999)), None);
        announcer.handle_event(event(0), at(300_000));
        assert!(announcer.poll(at(300_000)).is_some());

        let mut announcer = Announcer::default();
        (0..2_000).for_each(|number| announcer.handle_event(event(number), at(0)));
        assert_eq!(announcer.dropped_events(), 1_000);
        let mut told = 0;
        let mut now = at(0);
        while now <= at(10_000) {
            while let Some((what, tries)) = announcer.poll(now) {
                announcer.handle_outcome(what, tries, &DONE, now);
                told += 1;
            }
            now = announcer.poll_timeout().unwrap();
        }
        assert_eq!(told, 50 + 10 * 5 - 1);
    }

    #[test]
    fn an_event_that_nobody_takes_is_given_up() {
        for (kind, expected) in [(FailureKind::Transient, 3), (FailureKind::Forbidden, 1)] {
            let mut announcer = Announcer::default();
            announcer.handle_event(event(0), at(0));
            let mut tries = 0;
            let mut now = at(0);
            while let Some(due) = announcer.poll_timeout() {
                now = now.max(due);
                let (what, nth) = announcer.poll(now).unwrap();
                tries += 1;
                announcer.handle_outcome(what, nth, &failed(kind), now);
            }
            assert_eq!((tries, announcer.dropped_events()), (expected, 1));
        }
    }

    #[test]
    fn no_more_than_a_few_writes_are_under_way() {
        let mut announcer = Announcer::default();
        for name in ["a", "b", "c", "d", "e", "f"] {
            announcer.handle_condition(object(name), condition("Ready"), at(0), SECOND);
        }
        let begun: Vec<_> = std::iter::from_fn(|| announcer.poll(at(1_000))).collect();
        assert_eq!((begun.len(), announcer.poll_timeout()), (4, None));
        for (what, tries) in begun {
            announcer.handle_outcome(what, tries, &DONE, at(1_000));
        }
        assert_eq!(std::iter::from_fn(|| announcer.poll(at(1_000))).count(), 2);
    }
}
