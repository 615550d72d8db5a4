//! The whole way: a recorded cluster behind a Kubernetes API, the controller, and a simulated Azure, all over HTTP.

use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport};
use clb_controller::kube::{Controller, ControllerConfig, ControllerError};
use clb_controller::{Inbox, Status, Stopped};
use clb_difftracker::Notice;
use clb_nrp::{NrpClient, NrpConfig};
use clb_sim::kube::{KubeConfig, KubeSimulator};
use clb_sim::recording::Line;
use clb_sim::traffic::CallCounts;
use clb_sim::{Simulator, SimulatorConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::observe::{Call, Observed};

/// The value of the owner tag.
const CLUSTER: &str = "recorded-cluster";

/// How long nothing may happen before a run is given up: longer than any backoff, shorter than anybody's patience.
const STANDSTILL: Duration = Duration::from_secs(40);
/// How long nothing must happen for everything to have been seen: what the API server tells arrives in milliseconds, and a
/// condition is kept back for half a second.
const QUIET: Duration = Duration::from_millis(1_000);

/// Something a person would like to see.
#[derive(Clone, Debug)]
pub enum Event {
    /// The tracker has something to say.
    Notice(Notice),
    /// A call on Azure ended.
    Call(Call),
    /// A line was played into the API server.
    Replayed {
        /// The line's number.
        line: usize,
    },
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A simulator could not start.
    #[error("the simulator: {0}")]
    Simulator(#[from] std::io::Error),
    /// A client could not be made.
    #[error("the client: {0}")]
    Client(String),
    /// The API server would not take an object.
    #[error("line {line}: {reason}")]
    Refused {
        /// The line's number.
        line: usize,
        /// The API server's words.
        reason: String,
    },
    /// The controller has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A controller between a simulated API server and a simulated Azure.
pub struct World {
    /// The simulated Azure.
    pub simulator: Simulator,
    /// The simulated API server.
    pub kube: KubeSimulator,
    /// A client of Azure that nobody observes.
    pub nrp: NrpClient,
    inbox: Inbox,
    status: watch::Receiver<Status>,
    controller: JoinHandle<Result<usize, ControllerError>>,
    shutdown: CancellationToken,
    observer: Arc<dyn Fn(Event) + Send + Sync>,
}

impl World {
    /// Starts all three, and tells `observer` what happens.
    ///
    /// # Errors
    /// [`RunError`] when one of them cannot start.
    pub async fn start(
        config: SimulatorConfig,
        observer: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, RunError> {
        let observer: Arc<dyn Fn(Event) + Send + Sync> = Arc::new(observer);
        let simulator = Simulator::start(config).await?;
        let kube = KubeSimulator::start(KubeConfig::default()).await?;
        let config = nrp_config()?;
        let nrp = NrpClient::new(arm_client(&simulator.endpoint())?, config.clone());
        let on_call = observer.clone();
        let observed = Arc::new(Observed::new(nrp.clone(), move |call| on_call(Event::Call(call))));
        let client = kube_client(&kube.endpoint())?;
        let settings = ControllerConfig::new(CLUSTER, "example");
        let controller = Controller::new(settings, client, observed, config).map_err(client_error)?;
        let on_notice = observer.clone();
        let controller = controller.on_notice(move |notice| on_notice(Event::Notice(notice.clone())));
        let (inbox, status) = (controller.inbox(), controller.status());
        let shutdown = CancellationToken::new();
        let controller = tokio::spawn(controller.run(shutdown.clone()));
        Ok(Self { simulator, kube, nrp, inbox, status, controller, shutdown, observer })
    }

    /// Plays these lines into the API server, `speed` times as fast as they were recorded; 0 is all at once.
    ///
    /// It waits until the controller watches, so that this hears of each line and not only of what they come to.
    ///
    /// # Errors
    /// [`RunError::Refused`] when the API server would not take an object.
    pub async fn replay(&self, lines: &[Line], speed: f64) -> Result<(), RunError> {
        self.status.clone().wait_for(|status| status.is_sending).await.map_err(|_| Stopped)?;
        let start = Instant::now();
        for line in lines {
            if speed > 0.0 {
                sleep_until(start + line.at.div_f64(speed)).await;
            }
            self.kube
                .with_cluster(|cluster| cluster.play(&line.entry))
                .map_err(|reason| RunError::Refused { line: line.number, reason })?;
            (self.observer)(Event::Replayed { line: line.number });
        }
        Ok(())
    }

    /// How many changes the controller has taken in.
    ///
    /// # Errors
    /// [`RunError::Stopped`] when the controller has.
    pub async fn changes(&self) -> Result<u64, RunError> {
        Ok(self.inbox.stats().await?.changes)
    }

    /// Waits until the controller says that Azure holds what the cluster asks for, and nothing happens any more on either side.
    /// False when nothing has happened for long, and it still does not say so.
    ///
    /// # Errors
    /// [`RunError::Stopped`] when the controller has.
    pub async fn settle(&self) -> Result<bool, RunError> {
        let mut last = (self.state().await?, Instant::now());
        loop {
            sleep(Duration::from_millis(100)).await;
            let state = self.state().await?;
            let is_synced = self.status.borrow().is_synced;
            if state != last.0 {
                last = (state, Instant::now());
            } else if is_synced && last.1.elapsed() > QUIET {
                return Ok(true);
            } else if last.1.elapsed() > STANDSTILL {
                return Ok(false);
            }
        }
    }

    /// What changes as long as anything happens.
    async fn state(&self) -> Result<(CallCounts, u64, u64), RunError> {
        let version = self.kube.with_cluster(|cluster| cluster.version());
        Ok((self.simulator.counts(), version, self.changes().await?))
    }

    /// Stops the controller when its calls have ended, and then the simulators.
    pub async fn stop(self) {
        self.shutdown.cancel();
        // A panic in it has been told by then.
        let _ = self.controller.await;
        self.kube.shutdown().await;
        self.simulator.shutdown().await;
    }
}

/// Some subscription, group, region and network: the simulator accepts any.
fn nrp_config() -> Result<NrpConfig, RunError> {
    let subscription = "00000000-0000-0000-0000-000000000000";
    let network = format!(
        "/subscriptions/{subscription}/resourceGroups/mc_rg/providers/Microsoft.Network/virtualNetworks/vnet"
    );
    let network = network.parse().map_err(client_error)?;
    NrpConfig::new(subscription, "mc_rg", "eastus", network).map_err(client_error)
}

fn arm_client(endpoint: &str) -> Result<ArmClient, RunError> {
    let cloud = Cloud::Custom { endpoint: endpoint.to_owned(), audience: endpoint.to_owned() };
    let endpoint = Endpoint::new(&cloud).map_err(client_error)?;
    let transport = HttpTransport::new().map_err(client_error)?;
    Ok(ArmClient::builder(endpoint, Anonymous, transport).build())
}

fn kube_client(endpoint: &str) -> Result<kube::Client, RunError> {
    let mut config = kube::Config::new(endpoint.parse().map_err(client_error)?);
    // When something is tried again is for the controller to decide.
    config.default_retry = false;
    kube::Client::try_from(config).map_err(client_error)
}

fn client_error(error: impl std::fmt::Display) -> RunError {
    RunError::Client(error.to_string())
}
