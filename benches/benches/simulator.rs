//! What the simulated Kubernetes costs: a large cluster loaded, a change in it, and watches that hear of many.
//!
//! What would be wrong: controllers that search the cluster for every change, so that a pod costs more among many pods than
//! among few; a load whose objects cost more each in a large cluster; watches that do not keep up with what a large cluster
//! changes, or that leave something out. Times and memory are printed, for they are the machine's; allocations are the same on
//! every machine, and are checked: the exit code is 1 when there are too many. Every measurement also checks what was done.
//!
//! `cargo bench -p clb-benches --bench simulator`

use std::process::ExitCode;
use std::time::Instant;

use clb_sim::kube::{Answer, Kind, KubeConfig, KubeSimulation, KubeSimulator, Request};
use dhat::HeapStats;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Pods of each node and of each Service. A cluster has as many Services as nodes.
const PODS: usize = 20;

/// Nodes of the large cluster.
const NODES: usize = 5_000;

/// Ten times as many objects may cost so many times as many allocations each, to load and to change: trees grow deeper.
const MAX_GROWTH: f64 = 1.1;

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
    println!("{NODES} nodes, {} pods and {NODES} Services of {PODS} pods each", NODES * PODS);
    let text = manifests(NODES);
    let started = Instant::now();
    let simulation = runtime.block_on(async { KubeSimulation::new(KubeConfig::default()) });
    simulation.load(&text)?;
    let read = started.elapsed();
    settle(&simulation);
    let loaded = started.elapsed();
    check(&simulation, NODES);
    let megabytes = text.len() as f64 / 1e6;
    println!(
        "  {megabytes:.0} MB of manifests taken in {read:.2?}, and with pods and EndpointSlices {loaded:.2?}"
    );
    drop(text);
    if let Some((now, peak)) = resident() {
        println!("  resident memory {now} MB, {peak} MB at most");
    }
    let started = Instant::now();
    for at in 0..BURST {
        relabel(&simulation, at, "changed")?;
        settle(&simulation);
    }
    println!(
        "  one pod changed, and its Service's slices looked at: {:.0?}",
        started.elapsed() / BURST as u32
    );
    let started = Instant::now();
    let pages = pages(&simulation, 500)?;
    println!("  all pods listed in {pages} pages: {:.2?}", started.elapsed());
    runtime.block_on(watches(simulation))?;

    // From here on allocations are counted, which makes everything slow.
    let _profiler = dhat::Profiler::builder().testing().build();
    println!("allocations");
    let [small, large] = [20, 200].map(|nodes| runtime.block_on(async { counted(nodes) }));
    let (small, large) = (small?, large?);
    let growth = [large[0] / small[0], large[1] / small[1]];
    let is_fine = growth.iter().all(|growth| *growth <= MAX_GROWTH);
    if !is_fine {
        println!(
            "FAILED: ten times as many objects cost {growth:.2?} times as much each (at most {MAX_GROWTH})"
        );
    }
    Ok(is_fine)
}

/// Loads a cluster and changes one of its pods; how many allocations each object took, and each change.
fn counted(nodes: usize) -> Result<[f64; 2]> {
    let before = HeapStats::get();
    let simulation = KubeSimulation::new(KubeConfig::default());
    simulation.load(&manifests(nodes))?;
    settle(&simulation);
    check(&simulation, nodes);
    let after = HeapStats::get();
    let objects = (nodes * (PODS + 3)) as f64;
    let each = (after.total_blocks - before.total_blocks) as f64 / objects;
    let bytes = (after.curr_bytes - before.curr_bytes) as f64 / objects;
    // The first ones make room that the next ones use.
    relabel(&simulation, 0, "first")?;
    settle(&simulation);
    let before = HeapStats::get().total_blocks;
    for at in 0..10 {
        relabel(&simulation, at, "changed")?;
        settle(&simulation);
    }
    let change = (HeapStats::get().total_blocks - before) as f64 / 10.0;
    println!(
        "  {nodes:>4} nodes, {objects:.0} objects: {each:.0} to load one, which takes {bytes:.0} bytes; {change:.0} to change a pod"
    );
    Ok([each, change])
}

/// The manifests of a cluster of so many nodes.
fn manifests(nodes: usize) -> String {
    let mut text = String::new();
    let ip = |first: u8, number: usize| {
        let [.., a, b] = number.to_be_bytes();
        format!("{first}.1.{a}.{b}")
    };
    let name = |number: usize| format!("aks-pool1-12345678-vmss{number:06}");
    let mut add = |object: Value| {
        text.push_str(&object.to_string());
        text.push('\n');
    };
    for number in 0..nodes {
        add(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name(number), "labels": {
                "agentpool": "pool1", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name(number),
                "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "0"}},
            "spec": {"providerID": format!("azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/{number}")},
            "status": {"addresses": [{"type": "InternalIP", "address": ip(10, number)}, {"type": "Hostname", "address": name(number)}],
                "capacity": {"cpu": "8", "memory": "32Gi", "pods": "250"}, "conditions": [{"type": "Ready", "status": "True"}]}}));
        let app = format!("app-{number}");
        add(json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": app},
            "spec": {"type": "LoadBalancer", "selector": {"app": app, "tier": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "https", "port": 443, "targetPort": 8443}]}}));
        for pod in 0..PODS {
            add(
                json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": format!("{app}-{pod:05}"), "labels": {
                    "app": app, "tier": "web", "pod-template-hash": "5d4f8c7b9"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app,
                        "uid": format!("00000000-0000-0000-0001-{number:012}"), "controller": true}]},
                "spec": {"serviceAccountName": "default", "restartPolicy": "Always", "containers": [{
                    "name": "app", "image": "registry.example/app:1", "ports": [{"name": "http", "containerPort": 8080}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]}}),
            );
        }
    }
    text
}

/// Lets the controllers work until there is nothing left to do.
fn settle(simulation: &KubeSimulation) {
    let round = || {
        simulation.with_cluster(|cluster| {
            let before = cluster.version();
            cluster.run_controllers();
            cluster.version() != before
        })
    };
    while round() {}
}

/// Every pod runs, and stands in one slice.
fn check(simulation: &KubeSimulation, nodes: usize) {
    simulation.with_cluster(|cluster| {
        let endpoints = cluster
            .objects(Kind::EndpointSlice)
            .map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len));
        assert_eq!(endpoints.sum::<usize>(), nodes * PODS);
        assert!(cluster.objects(Kind::Pod).all(|pod| pod["status"]["phase"] == "Running"));
        assert_eq!(cluster.objects(Kind::Pod).count(), nodes * PODS);
    });
}

fn ask(simulation: &KubeSimulation, request: &Request) -> Result<Value> {
    match simulation.handle(request) {
        Answer::Body { status: 200, body } => Ok(body),
        other => Err(format!("{request:?}: {other:?}").into()),
    }
}

/// Gives a label to a pod: the first of a Service.
fn relabel(simulation: &KubeSimulation, service: usize, value: &str) -> Result<()> {
    let request = Request {
        method: "PATCH".to_owned(),
        path: format!("/api/v1/namespaces/default/pods/app-{service}-00000"),
        content_type: "application/merge-patch+json".to_owned(),
        body: json!({"metadata": {"labels": {"value": value}}}),
        ..Request::default()
    };
    ask(simulation, &request).map(drop)
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
            relabel(&simulation, change % NODES, &change.to_string())?;
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
