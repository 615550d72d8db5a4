//! One set of objects, listed and watched.
//!
//! A whole list comes first, then a watch from its version on, so that there is no gap. Now and then, and whenever somebody
//! asks for it, everything is listed again.
//!
//! This stands on `kube`'s single requests and not on `kube::runtime::watcher`, which does not tell of which version a list is:
//! a list that is older than what was seen before, as an API server that lags behind may give, could not be told from a good
//! one, and what it lacks would be taken for gone. Versions of Kubernetes' own kinds are numbers that may be compared. They only
//! grow: where etcd was restored from a backup without raising its revision, every list is older than what was seen, and the
//! process has to be restarted, as all that watch such a cluster have to be.

use std::fmt::Debug;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ListParams, WatchParams};
use kube::core::{DeserializeGuard, WatchEvent as Told};
use kube::{Api, Resource};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::state::{Next, Trouble, WatchState};
use crate::Stopped;
use crate::watched::WatchEvent;

mod state;

/// `kubectl apply` keeps a second copy of the object here, which nobody else reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How long after its time a watch may be silent before its connection counts as dead: a slow network's worth.
const GRACE: Duration = Duration::from_secs(10);

/// Settings of [`watch()`].
#[derive(Clone, Debug, PartialEq)]
pub struct WatchConfig {
    /// How many objects a page of a list has at most. Default 500, as everybody's: a page of pods is then a few megabytes.
    pub page_size: u32,
    /// How long after a list everything is listed again, times a random number from 1 up to 2, so that not all sets are listed
    /// at once. Default one hour: nothing should ever be missed in between, so this bounds for how long what cannot happen lasts.
    pub relist: Duration,
    /// How long to wait after a first failure. It doubles with each further one; half of each wait is random. Default 800 ms, as
    /// Kubernetes' own clients do.
    pub backoff: Duration,
    /// What the wait grows to. Default 30 s, as Kubernetes' own clients do.
    pub max_backoff: Duration,
    /// After how long the API server is to end a watch, in whole seconds. Default 290 s: proxies and load balancers on the way
    /// cut what lasts five minutes.
    pub watch_timeout: Duration,
    /// How long a page of a list or the beginning of a watch may take. Default 70 s: the API server itself gives up after 60 s.
    pub request_timeout: Duration,
    /// Seed of the waits' random part. Two sets of objects should not share one.
    pub seed: u64,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            page_size: 500,
            relist: Duration::from_secs(3_600),
            backoff: Duration::from_millis(800),
            max_backoff: Duration::from_secs(30),
            watch_timeout: Duration::from_secs(290),
            request_timeout: Duration::from_secs(70),
            seed: 0,
        }
    }
}

/// Tells `sink` of a set of objects, those with a label if there is a `selector`: a whole list, then each change, for ever.
///
/// A list is [`WatchEvent::ListBegan`], each of its objects, and [`WatchEvent::ListDone`]; one that an
/// [`WatchEvent::Interrupted`] comes into is void as a list, and is begun again, while what it named was there. Its pages are
/// told as they come. What goes wrong is told and tried again, with growing waits and without end:
///
/// * A list that is older than what was seen before is refused, nothing of it is told, and it is asked for again.
/// * A watch that breaks goes on from the last version; one that ends with its time does so without being interrupted.
/// * A watch that was interrupted and goes on is [`WatchEvent::Resumed`] if there is nothing else to tell: with a bookmark, or when
///   it has lasted for ten seconds.
/// * A watch that has expired (410), tells something old after something newer, or tells what is no event, is followed by a list.
/// * An object that cannot be read is told as [`WatchEvent::Malformed`], and is nobody else's trouble.
///
/// An event that comes twice is told once. Objects come without `managedFields` and without the copy that `kubectl apply` keeps in
/// an annotation. While the sink takes its time, nothing more is read. A change of `relist_asked` asks for a list that
/// begins after it.
///
/// Returns when the sink says so; it is asked with each event only.
pub async fn watch<K>(
    api: Api<DeserializeGuard<K>>,
    selector: Option<&str>,
    config: WatchConfig,
    relist_asked: watch::Receiver<u64>,
    sink: impl AsyncFnMut(WatchEvent<K>) -> Result<(), Stopped>,
) -> Stopped
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let mut list = ListParams::default().limit(config.page_size);
    let seconds = u32::try_from(config.watch_timeout.as_secs()).unwrap_or(u32::MAX);
    let mut watch = WatchParams::default().timeout(seconds);
    if let Some(selector) = selector {
        list = list.labels(selector);
        watch = watch.labels(selector);
    }
    let state = WatchState::new(config.clone());
    Watcher { api, list, watch, config, state, relist_asked, sink }.run().await
}

/// Asks and waits; what it makes of the answers is its state's.
struct Watcher<K, S> {
    api: Api<DeserializeGuard<K>>,
    list: ListParams,
    watch: WatchParams,
    config: WatchConfig,
    state: WatchState,
    relist_asked: watch::Receiver<u64>,
    sink: S,
}

/// Why it does not go on as it should.
enum Ended {
    Stopped(Stopped),
    Trouble(Trouble),
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl<K, S> Watcher<K, S>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
    S: AsyncFnMut(WatchEvent<K>) -> Result<(), Stopped>,
{
    async fn run(mut self) -> Stopped {
        loop {
            let ended = match self.state.next() {
                Next::List => self.list().await.map(|()| Duration::ZERO),
                Next::Watch(from) => self.follow(&from).await,
            };
            let wait = match ended {
                Ok(wait) => wait,
                Err(Ended::Stopped(stopped)) => return stopped,
                Err(Ended::Trouble(trouble)) => {
                    let now = Instant::now();
                    let wait = self.state.handle_trouble(&trouble, now);
                    let is_worth_logging = self.state.is_worth_logging(&trouble, now);
                    let why = trouble.into_interruption();
                    if is_worth_logging {
                        let kind = K::kind(&K::DynamicType::default()).into_owned();
                        tracing::warn!(
                            kind,
                            selector = self.list.label_selector,
                            ?wait,
                            "list or watch: {why}"
                        );
                    }
                    if let Err(stopped) = (self.sink)(WatchEvent::Interrupted(why)).await {
                        return stopped;
                    }
                    wait
                }
            };
            sleep(wait).await;
        }
    }

    /// Lists everything.
    async fn list(&mut self) -> Result<(), Ended> {
        // Whoever asked before now gets this one.
        self.relist_asked.mark_unchanged();
        let mut params = self.list.clone();
        loop {
            let page = answer(self.config.request_timeout, self.api.list(&params)).await?;
            if self.state.handle_page(page.metadata.resource_version.as_deref().unwrap_or_default())? {
                (self.sink)(WatchEvent::ListBegan).await?;
            }
            for object in page.items {
                (self.sink)(applied(object)).await?;
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break;
            }
        }
        self.state.handle_list_end(Instant::now());
        Ok((self.sink)(WatchEvent::ListDone).await?)
    }

    /// Watches from a version on, until the watch ends or a list is due. Returns how long to wait then.
    async fn follow(&mut self, from: &str) -> Result<Duration, Ended> {
        let Self { api, watch, config, state, relist_asked, sink, .. } = self;
        let mut relist = pin!(relist(relist_asked, state.relist_at()));
        let events = tokio::select! {
            biased;
            () = &mut relist => {
                state.handle_relist(Instant::now());
                return Ok(Duration::ZERO);
            }
            events = answer(config.request_timeout, api.watch(watch, from)) => events?,
        };
        let mut events = pin!(events);
        let began = Instant::now();
        state.handle_watch_begin(began);
        loop {
            // The server ends it with its time: one that is still silent then has nobody at its other end.
            let silence = config.watch_timeout.saturating_sub(began.elapsed()).saturating_add(GRACE);
            let told = tokio::select! {
                biased;
                () = &mut relist => {
                    state.handle_relist(Instant::now());
                    return Ok(Duration::ZERO);
                }
                () = until(state.resumes_at()) => {
                    if state.handle_resumed() {
                        sink(WatchEvent::Resumed).await?;
                    }
                    continue;
                }
                told = timeout(silence, events.next()) => told,
            };
            let told = told.map_err(|_| Trouble::failed("the watch has gone silent and does not end"))?;
            let Some(told) = told else { return Ok(state.handle_watch_end(Instant::now())) };
            let event = match told.map_err(|error| Trouble::of(&error))? {
                Told::Added(object) | Told::Modified(object) => {
                    state.handle_event(version(object.meta()))?.then(|| applied(object))
                }
                Told::Deleted(object) => state.handle_event(version(object.meta()))?.then(|| deleted(object)),
                Told::Bookmark(bookmark) => {
                    state.handle_bookmark(&bookmark.metadata.resource_version)?;
                    state.handle_resumed().then_some(WatchEvent::Resumed)
                }
                Told::Error(status) => return Err(Trouble::refused(&status).into()),
            };
            if let Some(event) = event {
                sink(event).await?;
            }
        }
    }
}

/// Waits until everything is to be listed again.
async fn relist(asked: &mut watch::Receiver<u64>, at: Option<Instant>) {
    let asked = async {
        // Nobody can ask any more.
        if asked.changed().await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = asked => {}
        () = until(at) => {}
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// What a request is answered with, in time.
async fn answer<T>(within: Duration, request: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match timeout(within, request).await {
        Ok(answer) => answer.map_err(|error| Trouble::of(&error)),
        Err(_) => Err(Trouble::failed(format!("no answer within {within:?}"))),
    }
}

fn version(metadata: &ObjectMeta) -> &str {
    metadata.resource_version.as_deref().unwrap_or_default()
}

/// Without what nobody reads and what is often the greater part.
fn stripped(mut metadata: ObjectMeta) -> ObjectMeta {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    metadata
}

fn applied<K: Resource>(object: DeserializeGuard<K>) -> WatchEvent<K> {
    match object.0 {
        Ok(mut object) => {
            let metadata = std::mem::take(object.meta_mut());
            *object.meta_mut() = stripped(metadata);
            WatchEvent::Applied(Box::new(object))
        }
        Err(invalid) => {
            WatchEvent::Malformed { metadata: Box::new(stripped(invalid.metadata)), error: invalid.error }
        }
    }
}

fn deleted<K: Resource>(mut object: DeserializeGuard<K>) -> WatchEvent<K> {
    WatchEvent::Deleted(Box::new(stripped(std::mem::take(object.meta_mut()))))
}
