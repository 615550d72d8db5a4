//! What the simulated Kubernetes costs: a large cluster loaded, a change in it, and watches that hear of many.
//!
//! What would be wrong: controllers that search the cluster for every change, so that a pod costs more among many pods than
//! among few; a load whose objects cost more each in a large cluster; watches that do not keep up with what a large cluster
//! changes, or that leave something out. Times and memory are printed, for they are the machine's. What grows with the cluster
//! is checked: the exit code is 1 when it grows too much. Every measurement also checks what was done.
//!
//! `cargo bench -p clb-benches --bench simulator`

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clb_benches::kubernetes::{PODS, Result, ask, check, manifests, relabel, run_controllers};
use clb_benches::measure::{ratio, shortest, time};
use clb_sim::kube::{KubeConfig, KubeSimulation, KubeSimulator, Request};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

/// Nodes of the large cluster.
const NODES: usize = 5_000;

/// An object of ten times as many may cost so many times as much, to load and to change: cache misses, and nothing else.
const MAX_GROWTH: f64 = 3.0;

/// Watchers that hear the same.
const WATCHERS: usize = 3;

/// Changes that are heard, and how many are made at once.
const CHANGES: usize = 20_000;
const BURST: usize = 100;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _guard = runtime.enter();
    println!("simulated Kubernetes, as many Services as nodes, with {PODS} pods each");
    let (small, [_, small_load]) = loaded(NODES / 10)?;
    let small_change = change(&small);
    drop(small);
    let (simulation, [read, load]) = loaded(NODES)?;
    let memory = resident().map(|(now, most)| format!("; resident memory {now} MB, {most} MB at most"));
    println!(
        "  {NODES} nodes, {} pods: manifests taken in {read:.2?}, with pods and EndpointSlices {load:.2?}{}",
        NODES * PODS,
        memory.unwrap_or_default()
    );
    let large_change = change(&simulation);
    let growth = [ratio(load, small_load) / 10.0, ratio(large_change, small_change)];
    println!("  one pod changed, and its Service's slices looked at: {large_change:.0?}");
    println!(
        "  ten times as many cost {:.2} times as much each to load, and a change {:.2} times",
        growth[0], growth[1]
    );
    let started = Instant::now();
    let pages = pages(&simulation, 500)?;
    println!("  all pods listed in {pages} pages: {:.2?}", started.elapsed());
    runtime.block_on(watches(simulation))?;
    let is_fine = growth.iter().all(|growth| *growth <= MAX_GROWTH);
    if !is_fine {
        println!("FAILED: something costs more than {MAX_GROWTH} times as much in a large cluster");
    }
    Ok(is_fine)
}

/// A cluster in which everything runs, and how long that took, to take the manifests in and in all.
fn loaded(nodes: usize) -> Result<(KubeSimulation, [Duration; 2])> {
    let text = manifests(nodes);
    let started = Instant::now();
    let simulation = KubeSimulation::new(KubeConfig::default());
    simulation.load(&text)?;
    let read = started.elapsed();
    run_controllers(&simulation);
    let all = started.elapsed();
    check(&simulation, nodes);
    Ok((simulation, [read, all]))
}

/// Changes one pod after another; how long each took, with its Service's slices.
fn change(simulation: &KubeSimulation) -> Duration {
    let mut round = 0;
    let mut burst = || {
        round += 1;
        time(|| {
            for at in 0..BURST {
                relabel(simulation, at, &round.to_string()).unwrap_or_default();
                run_controllers(simulation);
            }
        })
    };
    let [fastest] = shortest(5, [&mut burst]);
    fastest / u32::try_from(BURST).unwrap_or(u32::MAX)
}

/// Lists all pods; how many pages there were.
fn pages(simulation: &KubeSimulation, limit: usize) -> Result<usize> {
    let (mut pages, mut pods, mut token) = (0, 0, String::new());
    loop {
        let query = vec![("limit".to_owned(), limit.to_string()), ("continue".to_owned(), token)];
        let request = Request {
            method: "GET".to_owned(),
            path: "/api/v1/pods".to_owned(),
            query,
            ..Request::default()
        };
        let body = ask(simulation, &request)?;
        pages += 1;
        pods += body["items"].as_array().map_or(0, Vec::len);
        match body["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(pods, NODES * PODS);
    Ok(pages)
}

/// Changes pods as fast as watchers hear of it over loopback.
async fn watches(simulation: KubeSimulation) -> Result<()> {
    let served = KubeSimulator::serve(simulation.clone(), 0).await?;
    let version = simulation.with_cluster(|cluster| cluster.version());
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(watch(&served.endpoint(), version).await?);
    }
    let started = Instant::now();
    let hearing: Vec<_> = watchers.into_iter().map(|watcher| tokio::spawn(hear(watcher, version))).collect();
    for burst in 0..CHANGES / BURST {
        for at in 0..BURST {
            let change = burst * BURST + at;
            relabel(&simulation, change % NODES, &format!("heard-{change}"))?;
        }
        // Writers over HTTP take turns with watches too.
        tokio::task::yield_now().await;
    }
    let mut bytes = 0;
    for hearing in hearing {
        bytes += hearing.await??;
    }
    let elapsed = started.elapsed();
    let per_second = CHANGES as f64 / elapsed.as_secs_f64();
    println!(
        "  {CHANGES} changes heard by {WATCHERS} watchers over loopback: {per_second:.0} changes/s, each heard by all ({:.0} MB/s)",
        bytes as f64 / 1e6 / elapsed.as_secs_f64()
    );
    served.shutdown().await;
    Ok(())
}

/// A watch of all pods, up to the headers of its answer.
async fn watch(endpoint: &str, version: u64) -> Result<BufReader<TcpStream>> {
    let mut stream = BufReader::new(TcpStream::connect(endpoint.trim_start_matches("http://")).await?);
    let request =
        format!("GET /api/v1/pods?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: simulator\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err("the watch was cut".into());
        }
    }
    Ok(stream)
}

/// Hears every change of a watch, in order; how many bytes that took.
async fn hear(mut stream: BufReader<TcpStream>, from: u64) -> std::result::Result<usize, String> {
    let (mut bytes, mut heard, mut line) = (0, 0, String::new());
    while heard < CHANGES {
        line.clear();
        let read = stream.read_line(&mut line).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err(format!("the watch ended after {heard} changes"));
        }
        bytes += read;
        // Between them stand the sizes of chunks.
        if line.starts_with('{') {
            heard += 1;
            let version = format!("\"resourceVersion\":\"{}\"", from + heard as u64);
            if !line.contains(&version) {
                return Err(format!("change {heard} was left out: {line}"));
            }
        }
    }
    Ok(bytes)
}

/// The memory that this process has, and has had at most, in megabytes, where the system says so.
fn resident() -> Option<(usize, usize)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<usize>().ok().map(|kilobytes| kilobytes / 1_024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}
