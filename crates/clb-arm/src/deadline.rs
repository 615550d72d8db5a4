//! When the time of a call is up.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The time after which a call waits for nothing more, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deadline(Option<Instant>);

/// The time was up first.
#[derive(Debug, thiserror::Error)]
#[error("the call's time is up")]
pub(crate) struct TimeIsUp;

impl Deadline {
    /// `timeout` from now on; what is too long for the clock is no deadline.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// The earlier one.
    pub(crate) fn min(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(one), Some(another)) => Self(Some(one.min(another))),
            (one, another) => Self(one.or(another)),
        }
    }

    /// What is left until then.
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// What `work` comes to, if it is done by then; otherwise it is dropped at that moment.
    pub(crate) async fn bound<F: Future>(self, work: F) -> Result<F::Output, TimeIsUp> {
        match self.0 {
            Some(at) => timeout_at(at, work).await.map_err(|_| TimeIsUp),
            None => Ok(work.await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn the_earlier_one_counts_and_none_never_comes() {
        let never = Deadline::default();
        let (early, late) =
            (Deadline::after(Duration::from_secs(1)), Deadline::after(Duration::from_secs(2)));
        assert_eq!([early.min(late), late.min(early), never.min(early), early.min(never)], [early; 4]);
        assert_eq!((never.min(never), Deadline::after(Duration::MAX)), (never, never));
        assert_eq!((early.left(), never.left()), (Duration::from_secs(1), Duration::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_longer_is_dropped_at_that_moment() {
        let started = Instant::now();
        let deadline = Deadline::after(Duration::from_secs(3));
        assert_eq!(deadline.bound(ready(1)).await.ok(), Some(1));
        assert!(deadline.bound(pending::<()>()).await.is_err());
        assert_eq!((started.elapsed(), deadline.left()), (Duration::from_secs(3), Duration::ZERO));
    }
}
