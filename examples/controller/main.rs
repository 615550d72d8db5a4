//! The example controller: a recorded cluster, kept in step on a simulated Azure.
//!
//! `cargo run --example controller` needs no arguments, no set-up and no network but loopback. It plays a recorded
//! Kubernetes cluster into a simulated API server, which the controller watches and writes over HTTP, shows each phase of each
//! Service and each call on Azure, reads back over HTTP what the simulated ServiceGateway holds, and compares that with what the
//! recording should end in. The exit code is 0 if they are equal, 1
//! if not, 2 if the run could not be made.

mod arguments;
mod display;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clb_controller::kube::Signals;
use clb_examples::check::{Held, mismatches};
use clb_examples::run::World;
use clb_sim::SimulatorConfig;
use clb_sim::traffic::CallCounts;
use serde::Serialize;

use arguments::{Arguments, Input};
use display::Display;

#[tokio::main]
async fn main() -> ExitCode {
    let log = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Summary {
    in_sync: bool,
    services: usize,
    locations: usize,
    addresses: usize,
    changes: u64,
    nrp_calls: CallCounts,
    mismatches: Vec<String>,
}

/// Whether Azure ended in sync.
async fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let Input { name, lines, expected } = arguments.input()?;
    let config = SimulatorConfig {
        port: arguments.port.unwrap_or_default(),
        latency: arguments.latency(),
        ..SimulatorConfig::default()
    };
    let display = Arc::new(Display::new(arguments.json, lines.len() as u64));
    let observer = display.clone();
    let world = World::start(config, move |event| observer.show(&event)).await?;
    display.say(&format!(
        "Replaying {name} ({} lines); Kubernetes is simulated at {}, ARM at {}",
        lines.len(),
        world.kube.endpoint(),
        world.simulator.endpoint()
    ));

    let mut signals = Signals::listen()?;
    let replayed = async {
        world.replay(&lines, arguments.speed).await?;
        world.settle().await
    };
    let is_settled = tokio::select! {
        settled = replayed => settled?,
        () = signals.next() => return Err("interrupted".into()),
    };
    display.finish();

    let nrp_calls = world.simulator.counts();
    let held = Held::read(&world.nrp).await?;
    let mut found = match &expected {
        Some(expected) => mismatches(&held, expected, &lines),
        None => Vec::new(),
    };
    if !is_settled {
        found.push("the controller still has something to do, and nothing happens any more".to_owned());
    }
    let summary = Summary {
        in_sync: found.is_empty(),
        services: held.services.len(),
        locations: held.locations.len(),
        addresses: held.addresses(),
        changes: world.changes().await?,
        nrp_calls,
        mismatches: found,
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        display.summarise(&summary, expected.is_some());
    }
    if arguments.port.is_some() {
        display.say_where_to_look(&world.simulator.endpoint(), &world.kube.endpoint());
        signals.next().await;
    }
    world.stop().await;
    Ok(summary.in_sync)
}
