//! The subscription's request budget, shared by everybody who draws on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio::time::{Instant, sleep_until};

/// Azure Resource Manager counts reads, writes and deletions of a subscription apart, and so does this: one bucket for each.
/// A 429 closes a bucket for everybody until the time that it names; as the budget that answers report nears its end, requests
/// are spaced out, down to the rate at which the budget refills. Within a bucket, whoever came first goes first.
///
/// Cloning is cheap, and clones share the buckets: give the same limiter to each client that uses the same identity.
#[derive(Clone, Default)]
pub struct Limiter(Arc<Mutex<BTreeMap<Key, Arc<Bucket>>>>);

/// What the budget is counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    subscription: String,
    class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Read,
    Write,
    Delete,
}

/// How many requests may be left before they are spaced out. A fifth of the smallest of ARM's buckets (200).
const LOW: u32 = 40;

/// How long a bucket is closed by a 429 that does not say how long.
const UNSAID: Duration = Duration::from_secs(1);

impl Class {
    /// The time in which ARM's bucket refills by one request: 25 reads, 10 writes and 10 deletions a second.
    const fn refill(self) -> Duration {
        match self {
            Self::Read => Duration::from_millis(40),
            Self::Write | Self::Delete => Duration::from_millis(100),
        }
    }

    /// The header that says how many requests are left.
    const fn header(self) -> &'static str {
        match self {
            Self::Read => "x-ms-ratelimit-remaining-subscription-global-reads",
            Self::Write => "x-ms-ratelimit-remaining-subscription-global-writes",
            Self::Delete => "x-ms-ratelimit-remaining-subscription-global-deletes",
        }
    }
}

impl Key {
    /// The bucket that a request draws on, or `None` if it is about no subscription.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        let mut segments = path.split('/').skip_while(|it| !it.eq_ignore_ascii_case("subscriptions")).skip(1);
        let subscription = segments.next().filter(|it| !it.is_empty())?.to_ascii_lowercase();
        let class = match *method {
            _ if method.is_safe() => Class::Read,
            Method::DELETE => Class::Delete,
            _ => Class::Write,
        };
        Some(Self { subscription, class })
    }
}

#[derive(Debug, Default)]
struct Bucket {
    /// The first of those who wait holds this; tokio's mutex hands it on in the order of asking.
    first: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the bucket opens again, if it was closed.
    closed_until: Option<Instant>,
    /// When the next request may go, if they are spaced out.
    next: Option<Instant>,
    /// The space between two requests.
    pace: Duration,
}

impl Limiter {
    /// A limiter that knows of no limit yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until a request may go. If the bucket is closed for longer than `patience`, that is an error at once, which is
    /// the time that is left.
    pub(crate) async fn admit(&self, key: &Key, patience: Duration) -> Result<(), Duration> {
        let bucket = self.bucket(key);
        // Whoever will not wait that long does not queue behind those who do.
        bucket.opens(patience)?;
        let _first = bucket.first.lock().await;
        while let Some(at) = bucket.opens(patience)? {
            sleep_until(at).await;
        }
        bucket.take();
        Ok(())
    }

    /// Learns from an answer: `throttled` is there if it says that the budget is used up, and holds for how long,
    /// if it says that.
    pub(crate) fn learn(&self, key: &Key, headers: &HeaderMap, throttled: Option<Option<Duration>>) {
        let bucket = self.bucket(key);
        let mut state = lock(&bucket.state);
        if let Some(retry_after) = throttled {
            let until = Instant::now() + retry_after.unwrap_or(UNSAID).min(LONGEST);
            state.closed_until = Some(state.closed_until.map_or(until, |other| other.max(until)));
        }
        let remaining =
            headers.get(key.class.header()).and_then(|it| it.to_str().ok()?.trim().parse::<u32>().ok());
        if let Some(remaining) = remaining {
            // Nothing at LOW and above, the refill rate at zero.
            state.pace = key.class.refill() * LOW.saturating_sub(remaining) / LOW;
        }
    }

    fn bucket(&self, key: &Key) -> Arc<Bucket> {
        let mut buckets = lock(&self.0);
        match buckets.get(key) {
            Some(bucket) => bucket.clone(),
            None => buckets.entry(key.clone()).or_default().clone(),
        }
    }
}

/// The longest that one answer can close a bucket. ARM's own windows are an hour at most.
const LONGEST: Duration = Duration::from_secs(3600);

impl Bucket {
    /// When the next request may go, or `None` if that is now.
    fn opens(&self, patience: Duration) -> Result<Option<Instant>, Duration> {
        let now = Instant::now();
        let state = lock(&self.state);
        match state.closed_until.filter(|until| *until > now) {
            Some(until) if until - now > patience => Err(until - now),
            Some(until) => Ok(Some(until)),
            None => Ok(state.next.filter(|next| *next > now)),
        }
    }

    /// A request goes.
    fn take(&self) {
        let mut state = lock(&self.state);
        state.next = (!state.pace.is_zero()).then(|| Instant::now() + state.pace);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks can leave half a change behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(method: &Method) -> Key {
        Key::of(method, "/subscriptions/S/resourceGroups/g").unwrap()
    }

    fn remaining(class: Class, left: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(class.header(), left.parse().unwrap());
        headers
    }

    #[test]
    fn reads_writes_and_deletions_of_a_subscription_are_counted_apart() {
        let of = |method: Method, path: &str| Key::of(&method, path);
        let key = |class| Some(Key { subscription: "s".to_owned(), class });
        assert_eq!(of(Method::GET, "/subscriptions/s/x"), key(Class::Read));
        assert_eq!(of(Method::POST, "/prefix/Subscriptions/S"), key(Class::Write));
        assert_eq!(of(Method::PATCH, "/subscriptions/s/"), key(Class::Write));
        assert_eq!(of(Method::DELETE, "/subscriptions/s"), key(Class::Delete));
        assert_eq!(of(Method::GET, "/providers/x"), None);
        assert_eq!(of(Method::GET, "/subscriptions/"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_bucket_lets_nobody_through_until_its_time_and_others_are_open() {
        let limiter = Limiter::new();
        let started = Instant::now();
        limiter.learn(&key(&Method::PUT), &HeaderMap::new(), Some(Some(Duration::from_secs(30))));
        // A shorter word does not open what a longer one closed.
        limiter.learn(&key(&Method::PUT), &HeaderMap::new(), Some(None));
        let patience = Duration::from_secs(60);
        limiter.admit(&key(&Method::GET), patience).await.unwrap();
        limiter.admit(&key(&Method::DELETE), patience).await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO);
        limiter.admit(&key(&Method::POST), patience).await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_cannot_wait_that_long_learns_it_at_once() {
        let limiter = Limiter::new();
        limiter.learn(&key(&Method::PUT), &HeaderMap::new(), Some(Some(Duration::from_secs(30))));
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.admit(&key(&Method::PUT), Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        let refused = limiter.admit(&key(&Method::PUT), Duration::from_secs(29)).await;
        assert_eq!(refused, Err(Duration::from_secs(30)));
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_spaced_out_as_the_budget_ends_and_no_longer_when_it_is_back() {
        let limiter = Limiter::new();
        let read = key(&Method::GET);
        let mut gaps = Vec::new();
        for left in ["0", "20", "39", "40", "16499"] {
            limiter.learn(&read, &remaining(Class::Read, left), None);
            limiter.admit(&read, Duration::ZERO).await.unwrap();
            let started = Instant::now();
            limiter.admit(&read, Duration::ZERO).await.unwrap();
            gaps.push(started.elapsed().as_millis());
        }
        assert_eq!(gaps, [40, 20, 1, 0, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn callers_pass_in_the_order_they_came(
            callers in 2_usize..20, left in 0_u32..40, closed in 0_u64..5, gives_up in prop::collection::vec(any::<bool>(), 20),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let passed = runtime.block_on(async {
                let limiter = Limiter::new();
                let write = key(&Method::PUT);
                limiter.learn(&write, &remaining(Class::Write, &left.to_string()), Some(Some(Duration::from_secs(closed))));
                let passed = Arc::new(Mutex::new(Vec::new()));
                let mut tasks = Vec::new();
                for caller in 0..callers {
                    let (limiter, write, passed) = (limiter.clone(), write.clone(), passed.clone());
                    tasks.push(tokio::spawn(async move {
                        limiter.admit(&write, Duration::from_secs(60)).await.unwrap();
                        passed.lock().unwrap().push(caller);
                    }));
                    tokio::task::yield_now().await;
                }
                let mut stayed = Vec::new();
                for (caller, task) in tasks.into_iter().enumerate() {
                    // The first may have passed already.
                    if caller > 0 && gives_up[caller] { task.abort() } else { stayed.push(task) }
                }
                for task in stayed { task.await.unwrap() }
                passed.lock().unwrap().clone()
            });
            prop_assert!(passed.is_sorted(), "{passed:?}");
            let expected = (0..callers).filter(|&caller| caller == 0 || !gives_up[caller]).count();
            prop_assert!(passed.len() >= expected);
        }
    }
}
