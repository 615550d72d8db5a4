//! The time of day, for what people and other processes read.

use std::time::SystemTime;

use tokio::time::Instant;

/// Where the time of day comes from. Nothing is decided by it: waits and deadlines are tokio's.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(Option<(SystemTime, Instant)>);

impl WallClock {
    /// The system's.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// One that says `time` now, and goes on as tokio's clock does: virtual where that is.
    #[must_use]
    pub fn starting_at(time: SystemTime) -> Self {
        Self(Some((time, Instant::now())))
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        match self.0 {
            Some((time, origin)) => time + origin.elapsed(),
            None => SystemTime::now(),
        }
    }
}
