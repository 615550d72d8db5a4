//! The whole way: a recorded cluster, the controller, and a simulated Azure behind HTTP.

use std::sync::Arc;
use std::time::Duration;

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport};
use clb_controller::{
    Driver, DriverConfig, Inbox, LocationAndNrpServiceBatchUpdater, ResourceExecutor, Stopped,
};
use clb_difftracker::Notice;
use clb_nrp::{NrpClient, NrpConfig};
use clb_sim::recording::Line;
use clb_sim::{Simulator, SimulatorConfig};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::objects::RecordedObjects;
use crate::observe::{Call, Observed};
use crate::replay;

/// The value of the owner tag.
const CLUSTER: &str = "recorded-cluster";

/// How long nothing may happen before a run is given up: longer than any backoff, shorter than anybody's patience.
const STANDSTILL: Duration = Duration::from_secs(40);

/// Something a person would like to see.
#[derive(Clone, Debug)]
pub enum Event {
    /// The tracker has something to say.
    Notice(Notice),
    /// A call on Azure ended.
    Call(Call),
    /// Something of a line could not be used.
    Problem {
        /// The line's number.
        line: usize,
        /// What was left out, and why.
        problem: String,
    },
    /// A line was handed in.
    Replayed {
        /// The line's number.
        line: usize,
    },
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The simulator could not start.
    #[error("the simulator: {0}")]
    Simulator(#[from] std::io::Error),
    /// The client could not be made.
    #[error("the client: {0}")]
    Client(String),
    /// The controller has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A controller that keeps a simulated Azure in step with what it is told.
pub struct World {
    /// The simulated Azure.
    pub simulator: Simulator,
    /// A client of it that nobody observes.
    pub nrp: NrpClient,
    /// What the controller wrote on the recorded objects.
    pub objects: Arc<RecordedObjects>,
    inbox: Inbox,
    driver: JoinHandle<usize>,
    shutdown: CancellationToken,
    observer: Arc<dyn Fn(Event) + Send + Sync>,
    changes: u64,
}

impl World {
    /// Starts both, and tells `observer` what happens.
    ///
    /// # Errors
    /// [`RunError`] when one of them cannot start.
    pub async fn start(
        config: SimulatorConfig,
        observer: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, RunError> {
        let observer: Arc<dyn Fn(Event) + Send + Sync> = Arc::new(observer);
        let simulator = Simulator::start(config).await?;
        let config = nrp_config()?;
        let nrp = NrpClient::new(arm_client(&simulator.endpoint())?, config.clone());
        let on_call = observer.clone();
        let observed = Observed::new(nrp.clone(), move |call| on_call(Event::Call(call)));
        let observed: Arc<dyn clb_nrp::NrpApi> = Arc::new(observed);
        let updater = LocationAndNrpServiceBatchUpdater::new(observed.clone(), config.clone());
        let executor = ResourceExecutor::new(observed, config, CLUSTER);
        let objects = Arc::new(RecordedObjects::default());
        let (driver, inbox) = Driver::new(DriverConfig::default(), updater, executor, objects.clone());
        let on_notice = observer.clone();
        let driver = driver.on_notice(move |notice| on_notice(Event::Notice(notice.clone())));
        let shutdown = CancellationToken::new();
        let driver = tokio::spawn(driver.run(shutdown.clone()));
        Ok(Self { simulator, nrp, objects, inbox, driver, shutdown, observer, changes: 0 })
    }

    /// Hands in these lines, `speed` times as fast as they were recorded; 0 is as fast as they are taken.
    ///
    /// # Errors
    /// [`RunError::Stopped`] when the controller has.
    pub async fn replay(&mut self, lines: &[Line], speed: f64) -> Result<(), RunError> {
        let start = Instant::now();
        for line in lines {
            if speed > 0.0 {
                sleep_until(start + line.at.div_f64(speed)).await;
            }
            let replayed = replay::changes(&self.objects, &line.entry);
            for problem in replayed.problems {
                (self.observer)(Event::Problem { line: line.number, problem });
            }
            for change in replayed.changes {
                self.inbox.change(change).await?;
                self.changes += 1;
            }
            (self.observer)(Event::Replayed { line: line.number });
        }
        Ok(())
    }

    /// How many changes have been handed in.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Waits until the controller says that Azure holds what the cluster asks for. False when nothing has happened for
    /// long, and it still does not say so.
    ///
    /// # Errors
    /// [`RunError::Stopped`] when the controller has.
    pub async fn settle(&self) -> Result<bool, RunError> {
        let synced = self.inbox.synced();
        tokio::pin!(synced);
        let mut last = (self.simulator.counts(), Instant::now());
        loop {
            tokio::select! {
                synced = &mut synced => return Ok(synced.map(|()| true)?),
                () = sleep(Duration::from_millis(200)) => {
                    let counts = self.simulator.counts();
                    if counts != last.0 {
                        last = (counts, Instant::now());
                    } else if last.1.elapsed() > STANDSTILL {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Stops the controller when its calls have ended, and then the simulator.
    pub async fn stop(self) {
        self.shutdown.cancel();
        // The driver has no way to fail but a panic, which has been told by then.
        let _ = self.driver.await;
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

fn client_error(error: impl std::fmt::Display) -> RunError {
    RunError::Client(error.to_string())
}
