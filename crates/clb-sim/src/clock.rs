//! The simulators' clock.

use std::time::Duration;

use tokio::time::Instant;

/// By how much it can be ahead of tokio's: a thousand years, so that sums of times stay times that can be written.
const MAX_AHEAD: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// tokio's clock, from when this one was started, but it can be set forward.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    ahead: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), ahead: Duration::ZERO }
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed() + self.ahead
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.ahead = self.ahead.saturating_add(by).min(MAX_AHEAD);
    }
}
