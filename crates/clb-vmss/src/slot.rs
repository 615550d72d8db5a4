//! One thing that is read from Azure and kept for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Error, Freshness, Result};

/// What was read, and how old that is.
#[derive(Debug)]
pub struct Cached<T> {
    /// What was read.
    pub value: Arc<T>,
    /// How long ago the reading of it began. What happened since then may be missing.
    pub age: Duration,
    /// Why there is nothing newer: the last attempt to read it again failed.
    pub stale: Option<Arc<Error>>,
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), age: self.age, stale: self.stale.clone() }
    }
}

/// Keeps the last good value, and lets one reader at a time get a new one for all who wait.
///
/// Reads are numbered as they begin. Who asks for the state of *now* is served by any read that began after the question,
/// never by one that was on its way already, since that may have passed what the asker knows of. A reader that is dropped
/// on the way leaves its turn to the next who waits.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    /// Held while reading.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// The number of the last read that began.
    begun: u64,
    good: Option<Good<T>>,
    /// The last read, if it failed.
    failure: Option<Failure>,
    /// Reads up to this number may lack what was written since.
    outdated: u64,
    /// When the next read is due, whatever became of the last one.
    due: Instant,
}

#[derive(Debug)]
struct Good<T> {
    read: u64,
    began: Instant,
    value: Arc<T>,
}

#[derive(Clone, Debug)]
struct Failure {
    read: u64,
    error: Arc<Error>,
}

impl<T> State<T> {
    fn cached(&self, now: Instant) -> Option<Cached<T>> {
        let good = self.good.as_ref()?;
        Some(Cached {
            value: Arc::clone(&good.value),
            age: now - good.began,
            stale: self.failure.as_ref().map(|failure| Arc::clone(&failure.error)),
        })
    }

    /// What is held, if it will do.
    fn held(&self, freshness: Freshness, now: Instant) -> Option<Cached<T>> {
        let good = self.good.as_ref()?;
        let will_do = match freshness {
            Freshness::Any => now < self.due,
            Freshness::AtMost(age) => good.read > self.outdated && now - good.began <= age,
            Freshness::Now => false,
        };
        will_do.then(|| self.cached(now)).flatten()
    }

    /// What a read that began after the one numbered `asked` brought, if there was one.
    fn since(&self, asked: u64, now: Instant) -> Option<std::result::Result<Cached<T>, Arc<Error>>> {
        match (&self.failure, &self.good) {
            (Some(failure), _) if failure.read > asked => Some(Err(Arc::clone(&failure.error))),
            (_, Some(good)) if good.read > asked.max(self.outdated) => self.cached(now).map(Ok),
            (_, Some(_) | None) => None,
        }
    }
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        let state = State { begun: 0, good: None, failure: None, outdated: 0, due: Instant::now() };
        Self { turn: tokio::sync::Mutex::new(()), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is held, if it will do, or else what `read` brings. The next read is due `interval` later.
    ///
    /// A failed read is shared by all who wait for it. With [`Freshness::Any`] the last good value takes its place.
    pub(crate) async fn get(
        &self,
        freshness: Freshness,
        interval: impl FnOnce(u64) -> Duration,
        read: impl Future<Output = Result<T>>,
    ) -> std::result::Result<Cached<T>, Arc<Error>> {
        let result = self.read(freshness, interval, read).await;
        match (freshness, result) {
            (Freshness::Any, Err(error)) => self.state().cached(Instant::now()).ok_or(error),
            (Freshness::Any | Freshness::AtMost(_) | Freshness::Now, result) => result,
        }
    }

    async fn read(
        &self,
        freshness: Freshness,
        interval: impl FnOnce(u64) -> Duration,
        read: impl Future<Output = Result<T>>,
    ) -> std::result::Result<Cached<T>, Arc<Error>> {
        let asked = {
            let state = self.state();
            if let Some(cached) = state.held(freshness, Instant::now()) {
                return Ok(cached);
            }
            state.begun
        };
        let _turn = self.turn.lock().await;
        let (number, began) = {
            let mut state = self.state();
            let now = Instant::now();
            if let Some(result) = state.since(asked, now) {
                return result;
            }
            if let Some(cached) = state.held(freshness, now) {
                return Ok(cached);
            }
            state.begun += 1;
            (state.begun, now)
        };
        let result = read.await;
        let mut state = self.state();
        let now = Instant::now();
        state.due = now + interval(number);
        match result {
            Ok(value) => {
                let value = Arc::new(value);
                state.failure = None;
                // Written while this was read: it counts as read, and the next who asks reads again.
                if number <= state.outdated {
                    state.due = now;
                }
                state.good = Some(Good { read: number, began, value: Arc::clone(&value) });
                Ok(Cached { value, age: now - began, stale: None })
            }
            Err(error) => {
                let error = Arc::new(error);
                state.failure = Some(Failure { read: number, error: Arc::clone(&error) });
                Err(error)
            }
        }
    }

    /// What is held, if it will do without a read.
    pub(crate) fn held(&self, freshness: Freshness) -> Option<Cached<T>> {
        self.state().held(freshness, Instant::now())
    }

    /// What is held, however old.
    pub(crate) fn peek(&self) -> Option<Cached<T>> {
        self.state().cached(Instant::now())
    }

    /// Something was written: what is held, and what is being read, serves only those who would take anything when there is
    /// nothing newer to be had.
    pub(crate) fn invalidate(&self) {
        let mut state = self.state();
        state.outdated = state.begun;
        state.due = Instant::now();
    }

    /// Whether nothing was read for `age`, and nobody is about to.
    pub(crate) fn is_unused_for(&self, age: Duration) -> bool {
        let state = self.state();
        let used = state.good.as_ref().map_or(state.due, |good| good.began.max(state.due));
        Instant::now().saturating_duration_since(used) > age && self.turn.try_lock().is_ok()
    }
}
