//! Everything put together: the controller that runs on a cluster.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use clb_nrp::{NrpApi, NrpConfig};
use clb_vmss::NodePoller;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::lease::Elector;
use super::signals::Signals;
use super::stray::stray_pods;
use super::watch::{WatchConfig, watch};
use super::writer::KubeWriter;
use crate::convert::EGRESS_LABEL;
use crate::lease::{LeaseConfig, LeaseConfigError};
use crate::objects::ObjectWriter;
use crate::readiness::GATE_LABEL;
use crate::reading::AzureReader;
use crate::watched::{WatchEvent, Watched, WatchedSet};
use crate::{
    Driver, DriverConfig, Inbox, Leadership, LocationAndNrpServiceBatchUpdater, ResourceExecutor, Status,
    Stopped, WallClock,
};

/// How long after a search for stray pods that failed the next one begins.
const STRAY_RETRY: Duration = Duration::from_secs(30);

/// Settings of a [`Controller`].
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// The value of the owner tag ([`OWNER_TAG`](crate::OWNER_TAG)): unique among the clusters whose resources share a resource
    /// group, and the same for all replicas and for ever.
    pub cluster: String,
    /// What events name as their reporter: customarily the pod's name.
    pub instance: String,
    /// The driver's settings. [`DriverConfig::awaited`] is set to what is watched.
    pub driver: DriverConfig,
    /// The watches' settings. Each set gets a seed of its own.
    pub watch: WatchConfig,
    /// The election of a leader; without one, this replica is the only one.
    pub lease: Option<LeaseConfig>,
    /// Whether pods with a readiness gate of ours are watched. Default: they are.
    pub gated_pods: bool,
    /// How long after one search for pods that hold our finalizer and have no egress label the next one begins.
    ///
    /// Default 6 h: it lists the metadata of all pods, and there is something to find only where somebody took a label away
    /// while nobody watched.
    pub stray_interval: Duration,
    /// The time of day.
    pub clock: WallClock,
}

impl ControllerConfig {
    /// The defaults, for the cluster called `cluster`, with `instance` as reporter of events.
    pub fn new(cluster: impl Into<String>, instance: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            instance: instance.into(),
            driver: DriverConfig::default(),
            watch: WatchConfig::default(),
            lease: None,
            gated_pods: true,
            stray_interval: Duration::from_secs(6 * 3_600),
            clock: WallClock::system(),
        }
    }

    /// With this seed for everything that is left to chance. Two replicas should not share one.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        let mut seeds = fastrand::Rng::with_seed(seed);
        self.driver.seed = seeds.u64(..);
        self.driver.tracker.seed = seeds.u64(..);
        self.watch.seed = seeds.u64(..);
        if let Some(lease) = &mut self.lease {
            lease.seed = seeds.u64(..);
        }
        self
    }
}

/// Why a controller ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// A part of it died, which is a defect. It must be started anew.
    #[error("a part of the controller died: {0}")]
    Died(String),
    /// The system does not let this process listen to signals.
    #[error("signals cannot be heard: {0}")]
    Signals(String),
    /// A second signal ended it at once. What became of the calls in flight is read at the next start.
    #[error("ended at once by a second signal")]
    Killed,
}

/// The controller: watches of a cluster, the [`Driver`], writes to Kubernetes and Azure, and the election of a leader.
///
/// It never gives up: while Kubernetes or Azure cannot be reached, [`status`](Self::status) says so, and it goes on when they can.
pub struct Controller {
    client: Client,
    config: ControllerConfig,
    driver: Driver,
    inbox: Inbox,
    elector: Option<Elector>,
    poller: Option<NodePoller>,
}

impl Controller {
    /// A controller of the cluster that `client` leads to, and of the ServiceGateway that `nrp` leads to and `nrp_config` names.
    /// Nothing happens before [`run`](Self::run).
    ///
    /// The client should not retry by itself (`kube::Config::default_retry`): the driver decides when something is tried again.
    ///
    /// # Errors
    /// When a setting of the lease makes no sense; the error names it.
    pub fn new(
        config: ControllerConfig,
        client: Client,
        nrp: Arc<dyn NrpApi>,
        nrp_config: NrpConfig,
    ) -> Result<Self, LeaseConfigError> {
        let ControllerConfig { driver, clock, instance, .. } = &config;
        let writer = KubeWriter::new(client.clone(), driver.admission.clone(), *clock, instance.clone());
        Self::with_writer(config, client, nrp, nrp_config, Arc::new(writer))
    }

    /// The same, with another way of writing on objects.
    ///
    /// # Errors
    /// When a setting of the lease makes no sense; the error names it.
    pub fn with_writer(
        mut config: ControllerConfig,
        client: Client,
        nrp: Arc<dyn NrpApi>,
        nrp_config: NrpConfig,
        writer: Arc<dyn ObjectWriter>,
    ) -> Result<Self, LeaseConfigError> {
        let sets = WatchedSet::ALL.into_iter();
        config.driver.awaited =
            sets.filter(|set| config.gated_pods || *set != WatchedSet::GatedPods).collect();
        let (elector, leadership) = match config.lease.clone() {
            Some(lease) => {
                let (elector, leadership) = Elector::new(client.clone(), lease, config.clock)?;
                (Some(elector), leadership)
            }
            None => (None, Leadership::alone()),
        };
        let updater = LocationAndNrpServiceBatchUpdater::new(nrp.clone(), nrp_config.clone());
        let executor = ResourceExecutor::new(nrp.clone(), nrp_config.clone(), config.cluster.clone());
        let reader = AzureReader::new(nrp, nrp_config, config.cluster.clone());
        let (driver, inbox) = Driver::new(config.driver.clone(), updater, executor, writer);
        let driver = driver.led_by(leadership).reading(reader);
        Ok(Self { client, config, driver, inbox, elector, poller: None })
    }

    /// Follows the machines of scale sets too.
    #[must_use]
    pub fn following(mut self, poller: NodePoller) -> Self {
        self.poller = Some(poller);
        self
    }

    /// Tells `listener` everything that people should hear, besides logging it.
    #[must_use]
    pub fn on_notice(mut self, listener: impl FnMut(&clb_difftracker::Notice) + Send + 'static) -> Self {
        self.driver = self.driver.on_notice(listener);
        self
    }

    /// How it fares, from now on.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.driver.status()
    }

    /// The way to ask the driver something.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Runs until the process gets SIGTERM or SIGINT, and then ends as [`run`](Self::run) does when it is told to: with the
    /// defaults after 25 s at the latest, and Kubernetes kills a pod after 30 s. A second signal ends it at once.
    ///
    /// # Errors
    /// [`ControllerError`].
    pub async fn run_until_signalled(self) -> Result<usize, ControllerError> {
        let mut signals = Signals::listen().map_err(|error| ControllerError::Signals(error.to_string()))?;
        let shutdown = CancellationToken::new();
        let running = self.run(shutdown.clone());
        tokio::pin!(running);
        loop {
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                () = signals.next() => {
                    if shutdown.is_cancelled() {
                        return Err(ControllerError::Killed);
                    }
                    info!("asked to end: calls in flight may finish, and a second signal ends at once");
                    shutdown.cancel();
                }
            }
        }
    }

    /// Runs until `shutdown` is cancelled. Then nothing new is begun; calls in flight end, at the latest after
    /// [`DriverConfig::shutdown_grace`]; and then the lease is released, within
    /// [`RELEASE_WITHIN`](crate::lease::RELEASE_WITHIN). Dropping the future ends everything at once, as a kill does.
    ///
    /// Returns how many calls were given up.
    ///
    /// # Errors
    /// [`ControllerError`] when a part of it died.
    pub async fn run(self, shutdown: CancellationToken) -> Result<usize, ControllerError> {
        let Self { client, config, driver, inbox, elector, poller } = self;
        let released = CancellationToken::new();
        let mut electing = JoinSet::new();
        if let Some(elector) = elector {
            electing.spawn(elector.run(released.clone()));
        }
        let mut sources = Sources { client, config: config.watch.clone(), inbox, tasks: JoinSet::new() };
        sources.start(0, None, Watched::Services);
        sources.start(1, None, Watched::EndpointSlices);
        sources.start(2, None, Watched::Nodes);
        sources.start(3, Some(EGRESS_LABEL), Watched::Pods);
        if config.gated_pods {
            sources.start(4, Some(GATE_LABEL), Watched::GatedPods);
        }
        sources.follow_strays(driver.status(), config.stray_interval);
        if let Some(poller) = poller {
            sources.follow_machines(poller);
        }
        // The driver ends with its last inbox, and not while it is watched for here.
        let Sources { mut tasks, inbox, .. } = sources;
        let stop = shutdown.child_token();
        let driving = driver.run(stop.clone());
        tokio::pin!(driving);
        let died = tokio::select! {
            biased;
            unfinished = &mut driving => Ok(unfinished),
            Some(ended) = tasks.join_next() => Err(death(ended.map(|Stopped| ()))),
            Some(ended) = electing.join_next() => Err(death(ended)),
        };
        drop(inbox);
        tasks.shutdown().await;
        let result = match died {
            Ok(unfinished) => Ok(unfinished),
            Err(error) => {
                stop.cancel();
                driving.await;
                Err(error)
            }
        };
        released.cancel();
        while electing.join_next().await.is_some() {}
        result
    }
}

/// None of the tasks ends before it is told to.
fn death(ended: Result<(), tokio::task::JoinError>) -> ControllerError {
    ControllerError::Died(match ended {
        Ok(()) => "it ended".to_owned(),
        Err(error) => error.to_string(),
    })
}

/// What feeds the driver.
struct Sources {
    client: Client,
    config: WatchConfig,
    inbox: Inbox,
    tasks: JoinSet<Stopped>,
}

impl Sources {
    /// Watches one set of objects, the `nth`.
    fn start<K>(&mut self, nth: u64, selector: Option<&'static str>, told: fn(WatchEvent<K>) -> Watched)
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Default,
    {
        let api: Api<DeserializeGuard<K>> = Api::all(self.client.clone());
        let config = WatchConfig { seed: self.config.seed.wrapping_add(nth), ..self.config.clone() };
        let (inbox, relists) = (self.inbox.clone(), self.inbox.relists());
        self.tasks.spawn(async move {
            let sink = move |event| {
                let (inbox, watched) = (inbox.clone(), told(event));
                async move { inbox.watched(watched).await }
            };
            watch(api, selector, config, relists, sink).await
        });
    }

    /// Finds pods that hold our finalizer and that no watch sees, whenever this replica begins to lead and from time to time.
    fn follow_strays(&mut self, mut status: watch::Receiver<Status>, interval: Duration) {
        let (client, inbox) = (self.client.clone(), self.inbox.clone());
        self.tasks.spawn(async move {
            loop {
                let led = status.wait_for(|status| status.term.is_some()).await.map(|status| status.term);
                let Ok(term) = led else { return Stopped };
                let pause = match find_strays(&client, &inbox).await {
                    Ok(()) => interval,
                    Err(FindError::Stopped(stopped)) => return stopped,
                    Err(FindError::Kube(error)) => {
                        warn!(%error, "pods that hold our finalizer cannot be searched for; it is tried again");
                        STRAY_RETRY
                    }
                };
                let next = Instant::now() + pause;
                let other_term = status.wait_for(|status| status.term.is_some() && status.term != term);
                tokio::select! {
                    biased;
                    other_term = other_term => if other_term.is_err() { return Stopped },
                    () = sleep_until(next) => {}
                }
            }
        });
    }

    fn follow_machines(&mut self, mut poller: NodePoller) {
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            loop {
                // The stream never ends.
                let Some((_, event)) = poller.next().await else { continue };
                if let Err(stopped) = inbox.machine(event).await {
                    return stopped;
                }
            }
        });
    }
}

enum FindError {
    Stopped(Stopped),
    Kube(kube::Error),
}

async fn find_strays(client: &Client, inbox: &Inbox) -> Result<(), FindError> {
    let strays: Vec<Pod> = stray_pods(client).await.map_err(FindError::Kube)?;
    for pod in strays {
        let found = Watched::Pods(WatchEvent::Applied(Box::new(pod)));
        inbox.watched(found).await.map_err(FindError::Stopped)?;
    }
    Ok(())
}
