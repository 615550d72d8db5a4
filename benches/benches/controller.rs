//! What the controller costs on a large cluster: memory, a start over an Azure that is right, a change, and rest.
//!
//! What would be wrong: a controller that keeps whole objects, so that its memory grows with what is in them; a start that
//! writes although nothing differs, or that takes minutes; a change that waits for a timer or for a look at everything; a
//! controller that works while nothing happens. The simulators, the first controller and the second are processes of their own,
//! so that each one's memory is seen. The goals are checked: the exit code is 1 when one is missed.
//!
//! `cargo bench -p clb-benches --bench controller`, with `NODES=500` for a tenth.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clb_arm::{Anonymous, ArmClient, Cloud, Endpoint, HttpTransport};
use clb_benches::kubernetes::{PODS, Result, check, manifests, run_controllers};
use clb_controller::kube::{Controller, ControllerConfig};
use clb_nrp::{NrpClient, NrpConfig};
use clb_sim::kube::{ClusterConfig, KubeConfig, KubeSimulation, KubeSimulator, Request};
use clb_sim::{Simulator, SimulatorConfig};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// What a process is, if it is not the one that was started by hand.
const ROLE: &str = "CLB_BENCH_ROLE";
const ENDPOINTS: &str = "CLB_BENCH_ENDPOINTS";

/// Changes that are followed one by one, from the write at the API server to the request at Azure.
const CHANGES: usize = 500;
/// For how long the controller is watched doing nothing.
const REST: Duration = Duration::from_secs(10);

/// The goals.
const MAX_MEMORY_MB: usize = 400;
const MAX_START: Duration = Duration::from_secs(30);
const MAX_P99: Duration = Duration::from_millis(2);
/// Of one core.
const MAX_IDLE_PERCENT: f64 = 1.0;

fn main() -> ExitCode {
    let role = std::env::var(ROLE).unwrap_or_default();
    let done = match role.as_str() {
        "simulators" => simulators().map(|()| true),
        "controller" => controller().map(|()| true),
        _ => run(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn nodes() -> usize {
    std::env::var("NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000)
}

/// A process that is asked by lines and answers by lines of JSON.
struct Process {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, endpoints: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(ROLE, role)
            .env(ENDPOINTS, endpoints)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".into());
        };
        Ok(Self { child, asks, answers: BufReader::new(answers) })
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("a process ended".into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    fn ask(&mut self, what: &str) -> Result<Value> {
        writeln!(self.asks, "{what}")?;
        self.answer()
    }

    /// Resident memory, now and at most, in megabytes, and the processor time used, in seconds.
    fn cost(&self) -> Result<(usize, usize, f64)> {
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id()));
        let (status, stat) = (of("status")?, of("stat")?);
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<usize>().ok()).unwrap_or(0)
                / 1_024
        };
        // The name in brackets may hold spaces; user and system time are the 12th and 13th field after it, in hundredths.
        let rest: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| rest.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        Ok((field("VmRSS:"), field("VmHWM:"), (ticks(11) + ticks(12)) / 100.0))
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

fn run() -> Result<bool> {
    let nodes = nodes();
    let mut simulators = Process::start("simulators", "")?;
    let endpoints = simulators.answer()?.to_string();
    println!("{nodes} nodes, {} pods, {nodes} Services, in a simulated cluster over loopback", nodes * PODS);

    let mut first = Process::start("controller", &endpoints)?;
    let made = seconds(&first.answer()?);
    let (_, most, busy) = first.cost()?;
    println!("  everything made from nothing: {made:.1} s, {busy:.1} s of processor time, {most} MB at most");
    first.kill()?;

    let before = simulators.ask("writes")?;
    let mut second = Process::start("controller", &endpoints)?;
    let started = Duration::from_secs_f64(seconds(&second.answer()?));
    let after = simulators.ask("writes")?;
    let (now, most, busy) = second.cost()?;
    println!(
        "  a start over an Azure that is right: in sync after {started:.1?}, {busy:.1} s of processor time, {now} MB, {most} MB at most"
    );
    std::thread::sleep(Duration::from_secs(3));
    let (.., busy) = second.cost()?;
    std::thread::sleep(REST);
    let (.., later) = second.cost()?;
    let idle = (later - busy) / REST.as_secs_f64() * 100.0;
    println!("  at rest: {idle:.2} % of a core");
    let latencies = simulators.ask("changes")?;
    let micros = |name: &str| Duration::from_micros(latencies[name].as_u64().unwrap_or(u64::MAX));
    let (half, p99, worst) = (micros("p50"), micros("p99"), micros("max"));
    println!(
        "  a change, from the API server's write to the request at Azure: half {half:.2?}, 99 % {p99:.2?}, all {worst:.2?}"
    );
    let (now, most, _) = second.cost()?;
    println!("  memory after {CHANGES} changes: {now} MB, {most} MB at most");
    second.kill()?;
    simulators.kill()?;

    let goals = [
        (before == after, format!("nothing is written at the start: {before} and then {after}")),
        (most < MAX_MEMORY_MB, format!("less than {MAX_MEMORY_MB} MB")),
        (started < MAX_START, format!("in sync within {MAX_START:?}")),
        (idle < MAX_IDLE_PERCENT, format!("less than {MAX_IDLE_PERCENT} % of a core at rest")),
        (p99 <= MAX_P99, format!("99 % of changes within {MAX_P99:?}")),
    ];
    for (_, goal) in goals.iter().filter(|(is_met, _)| !is_met) {
        println!("MISSED: {goal}");
    }
    Ok(goals.iter().all(|(is_met, _)| *is_met))
}

fn seconds(answer: &Value) -> f64 {
    answer["seconds"].as_f64().unwrap_or(f64::MAX)
}

/// Both simulators, until the process is killed.
fn simulators() -> Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let nodes = nodes();
        // A start of the controller reads pages while nothing changes, so little has to be remembered.
        let cluster = ClusterConfig { history: 20_000 };
        let simulation = KubeSimulation::new(KubeConfig { cluster, ..KubeConfig::default() });
        simulation.load(&manifests(nodes))?;
        run_controllers(&simulation);
        check(&simulation, nodes);
        let kube = KubeSimulator::serve(simulation.clone(), 0).await?;
        let azure = Simulator::start(SimulatorConfig::default()).await?;
        println!("{}", json!({"kube": kube.endpoint(), "azure": azure.endpoint()}));
        let (sender, mut asked) = tokio::sync::mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        while let Some(line) = asked.recv().await {
            match line.as_str() {
                "writes" => {
                    let counts = azure.counts();
                    let version = simulation.with_cluster(|cluster| cluster.version());
                    println!(
                        "{}",
                        json!([
                            counts.put,
                            counts.delete,
                            counts.update_services,
                            counts.update_address_locations,
                            version
                        ])
                    );
                }
                _ => println!("{}", changes(&simulation, &azure, nodes).await?),
            }
        }
        Ok(())
    })
}

/// Takes an endpoint out of a Service's slice, or puts it back, and waits for the request that follows; again and again.
async fn changes(simulation: &KubeSimulation, azure: &Simulator, nodes: usize) -> Result<Value> {
    let mut calls = azure.subscribe();
    let slices: Vec<(String, Value)> = simulation.with_cluster(|cluster| {
        let slices = cluster.objects(clb_sim::kube::Kind::EndpointSlice).take(CHANGES.min(nodes));
        slices
            .map(|slice| {
                (
                    slice["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                    slice["endpoints"].clone(),
                )
            })
            .collect()
    });
    let mut latencies = Vec::new();
    for (name, mut endpoints) in slices {
        if let Some(first) = endpoints.as_array_mut().and_then(|endpoints| endpoints.first_mut()) {
            first["conditions"]["ready"] = json!(false);
        }
        let request = Request {
            method: "PATCH".to_owned(),
            path: format!("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{name}"),
            content_type: "application/merge-patch+json".to_owned(),
            body: json!({"endpoints": endpoints}),
            ..Request::default()
        };
        let began = Instant::now();
        clb_benches::kubernetes::ask(simulation, &request)?;
        calls.recv().await?;
        latencies.push(began.elapsed());
        // What is measured is a change that comes while nothing is under way.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = ((latencies.len() as f64 * share).ceil() as usize).clamp(1, latencies.len()) - 1;
        u64::try_from(latencies[index].as_micros()).unwrap_or(u64::MAX)
    };
    Ok(json!({"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}))
}

/// The controller, until the process is killed.
fn controller() -> Result<()> {
    let endpoints: Value = serde_json::from_str(&std::env::var(ENDPOINTS)?)?;
    let of = |name: &str| endpoints[name].as_str().unwrap_or_default().to_owned();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut config = kube::Config::new(of("kube").parse()?);
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        let azure = of("azure");
        let endpoint = Endpoint::new(&Cloud::Custom { endpoint: azure.clone(), audience: azure })?;
        let network = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";
        let nrp_config = NrpConfig::new("s", "rg", "eastus", network.parse()?)?;
        let arm = ArmClient::builder(endpoint, Anonymous, HttpTransport::new()?).build();
        let nrp = Arc::new(NrpClient::new(arm, nrp_config.clone()));
        let began = Instant::now();
        let controller = Controller::new(ControllerConfig::new("large", "bench"), client, nrp, nrp_config)?;
        let mut status = controller.status();
        let running = tokio::spawn(controller.run(CancellationToken::new()));
        status.wait_for(|status| status.is_synced).await?;
        println!("{}", json!({"seconds": began.elapsed().as_secs_f64()}));
        running.await??;
        Ok(())
    })
}
