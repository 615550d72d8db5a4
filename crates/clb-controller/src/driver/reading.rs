//! When Azure is read.

use std::time::Duration;

use tokio::time::Instant;

use super::status::ReadingStatus;

/// The first pause after a reading that failed; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// What the pause grows to.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Where the readings of Azure stand.
#[derive(Debug, Default)]
pub(super) struct Readings {
    pub(super) is_running: bool,
    /// The last term in which one was completed.
    done_in: Option<u64>,
    /// When the next one is due, or tried again.
    due: Option<Instant>,
    failures: u32,
    error: String,
}

impl Readings {
    /// Whether Azure has been read in this term.
    pub(super) fn is_done_in(&self, term: u64) -> bool {
        self.done_in == Some(term)
    }

    /// When the next one is to begin, in this term; `None` while one runs.
    pub(super) fn due_in(&self, term: u64, now: Instant) -> Option<Instant> {
        if self.is_running {
            return None;
        }
        // What failed is tried again after a pause, whatever the term; a new term does not wait for the interval of an old one.
        let is_awaited = !self.is_done_in(term) && self.failures == 0;
        Some(if is_awaited { now } else { self.due.unwrap_or(now) })
    }

    /// One was completed.
    pub(super) fn on_done(&mut self, term: u64, next: Instant) {
        self.done_in = Some(term);
        self.failures = 0;
        self.due = Some(next);
    }

    /// One failed. `jitter` is from 0 to 1.
    pub(super) fn on_failed(&mut self, error: String, now: Instant, jitter: f64) {
        let grown = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LONGEST_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.error = error;
        self.due = Some(now + grown.mul_f64(0.5 + jitter / 2.0));
    }

    pub(super) fn status(&self, term: Option<u64>) -> ReadingStatus {
        if self.failures > 0 {
            return ReadingStatus::Failing { error: self.error.clone(), failures: self.failures };
        }
        match term {
            Some(term) if self.is_done_in(term) => ReadingStatus::Done,
            Some(_) | None => ReadingStatus::None,
        }
    }
}
