//! The simulator as a program: an Azure and a Kubernetes API server on 127.0.0.1.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Parser;
use clb_sim::azure::{AzureConfig, ResourceGroup};
use clb_sim::control::ControlServer;
use clb_sim::fault::FaultPlan;
use clb_sim::kube::{KubeConfig, KubeSimulation, KubeSimulator};
use clb_sim::{Simulator, SimulatorConfig, recording};

/// An Azure and a Kubernetes API server that live in memory and answer on 127.0.0.1, until interrupted.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where Azure Resource Manager answers, always on 127.0.0.1; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7070", value_parser = port)]
    azure: u16,
    /// Where the Kubernetes API answers, likewise.
    #[arg(long, default_value = "127.0.0.1:7071", value_parser = port)]
    kube: u16,
    /// Where a page about both answers, and a JSON API for scripts, likewise.
    #[arg(long, default_value = "127.0.0.1:7072", value_parser = port)]
    control: u16,
    /// Manifests to start with, YAML or JSON; may be repeated.
    #[arg(long)]
    load: Vec<PathBuf>,
    /// A recording of a cluster to play once everything answers: JSON lines, perhaps compressed by gzip. Its pods and
    /// EndpointSlices are the recorded ones.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// How many times as fast as it was recorded that is played; 0 is all at once.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// A plan of faults for both, YAML or JSON.
    #[arg(long)]
    faults: Option<PathBuf>,
    /// Where to write the kubeconfig, rather than to print it.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The subscription and resource group of the default outbound service, as SUBSCRIPTION/GROUP; none without it.
    #[arg(long)]
    default_outbound: Option<String>,
    /// How many milliseconds Azure's answers take.
    #[arg(long, default_value_t = 0)]
    latency: u64,
    /// Leave pods and EndpointSlices to whoever writes them.
    #[arg(long)]
    no_controllers: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let faults = match &arguments.faults {
        Some(path) => {
            serde_saphyr::from_str(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => FaultPlan::default(),
    };
    let default_outbound = match &arguments.default_outbound {
        Some(text) => {
            let (subscription, name) =
                text.split_once('/').ok_or("--default-outbound is SUBSCRIPTION/GROUP")?;
            Some(ResourceGroup { subscription: subscription.to_owned(), name: name.to_owned() })
        }
        None => None,
    };
    let azure = Simulator::start(SimulatorConfig {
        port: arguments.azure,
        latency: Duration::from_millis(arguments.latency),
        azure: AzureConfig { default_outbound, ..AzureConfig::default() },
        faults: faults.clone(),
        ..SimulatorConfig::default()
    })
    .await?;
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let simulation = KubeSimulation::new(KubeConfig { faults, epoch, ..KubeConfig::default() });
    for path in &arguments.load {
        load(&simulation, path)?;
    }
    let kube = KubeSimulator::serve(simulation.clone(), arguments.kube).await?;
    let control = ControlServer::serve((*azure).clone(), simulation.clone(), arguments.control).await?;
    println!("Azure Resource Manager answers at {}", azure.endpoint());
    println!("Kubernetes answers at {}", kube.endpoint());
    println!("A page about both, and its JSON API, are at {}", control.endpoint());
    match &arguments.kubeconfig {
        Some(path) => {
            std::fs::write(path, kube.kubeconfig())?;
            println!("export KUBECONFIG={}", path.display());
        }
        None => println!("\n{}", kube.kubeconfig()),
    }
    let controllers = async {
        if arguments.no_controllers || arguments.replay.is_some() {
            std::future::pending::<()>().await;
        }
        simulation.run_controllers().await;
    };
    let playing = async {
        if let Some(path) = &arguments.replay {
            let played = simulation.replay(recording::open(path)?, arguments.speed).await?;
            println!("{} is played: {played} lines", path.display());
        }
        std::future::pending::<Result<(), Box<dyn Error>>>().await
    };
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        () = controllers => {}
        failed = playing => failed?,
    }
    control.shutdown().await;
    azure.shutdown().await;
    kube.shutdown().await;
    Ok(())
}

/// The port of an address on 127.0.0.1, where alone it is safe to answer whoever asks.
fn port(text: &str) -> Result<u16, String> {
    let address: SocketAddr = text.parse().map_err(|error| format!("{error}"))?;
    if address.ip() == Ipv4Addr::LOCALHOST {
        Ok(address.port())
    } else {
        Err("it answers on 127.0.0.1 only".to_owned())
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if speed.is_finite() && speed >= 0.0 { Ok(speed) } else { Err("it is 0 or more".to_owned()) }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn load(simulation: &KubeSimulation, path: &Path) -> Result<(), String> {
    simulation.load(&read(path)?).map(drop).map_err(|error| format!("{}: {error}", path.display()))
}
