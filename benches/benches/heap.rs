//! How much memory an address takes, and how many allocations a change, here and in the simulator.
//!
//! What would be wrong: a tracker that keeps more than a few dozen bytes per address beyond what it must know, or whose
//! allocations for one change grow with the cluster; likewise a simulated Kubernetes. Counts, not times: they are the same on every machine.
//!
//! `cargo bench -p clb-benches --bench heap`

use std::process::ExitCode;

use clb_benches::cluster::{Cluster, NOW, SLICE, in_sync, settle};
use clb_benches::kubernetes::{PODS, Result, check, manifests, relabel, run_controllers};
use clb_sim::kube::{KubeConfig, KubeSimulation};
use dhat::HeapStats;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Heap per address with both sides in sync and two Services per address, in bytes. The existing Go controller takes 760–870.
const MAX_BYTES_PER_ADDRESS: usize = 150;

/// Ten times as many simulated objects may take so many times as many allocations each, to load and to change.
const MAX_GROWTH: f64 = 1.1;

fn main() -> ExitCode {
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut is_fine = true;
    println!("heap with both sides in sync, two Services per address; allocations for one changed endpoint");
    let mut allocations = Vec::new();
    for addresses in [1_000, 10_000, 100_000] {
        let cluster = Cluster::new(addresses);
        let before = HeapStats::get();
        let mut tracker = in_sync(&cluster);
        let held = HeapStats::get().curr_bytes - before.curr_bytes;
        let per_address = held / addresses;
        // The first ones make room that the next ones use.
        let count = (0..6).map(|_| one_change(&cluster, &mut tracker)).last().unwrap_or_default();
        println!("  {addresses:>7} addresses: {per_address:>4} bytes per address, {count} allocations");
        is_fine &= addresses < 10_000 || per_address <= MAX_BYTES_PER_ADDRESS;
        allocations.push(count);
    }
    is_fine &= allocations.windows(2).all(|pair| pair[0] == pair[1]);
    match simulator() {
        Ok(is_in_proportion) => is_fine &= is_in_proportion,
        Err(error) => {
            println!("FAILED: {error}");
            return ExitCode::FAILURE;
        }
    }
    if is_fine {
        return ExitCode::SUCCESS;
    }
    println!(
        "FAILED: more than {MAX_BYTES_PER_ADDRESS} bytes per address, or allocations that grow with the cluster"
    );
    ExitCode::FAILURE
}

/// An endpoint goes and comes again; the number of allocations that it takes.
fn one_change(cluster: &Cluster, tracker: &mut clb_difftracker::DiffTracker) -> u64 {
    let changes = [cluster.slice(0, SLICE - 1), cluster.slice(0, SLICE)];
    let before = HeapStats::get().total_blocks;
    for change in changes {
        tracker.handle_change(change, NOW);
        settle(tracker, |_| ());
    }
    HeapStats::get().total_blocks - before
}

/// The same of the simulated Kubernetes; whether it holds.
fn simulator() -> Result<bool> {
    println!("heap and allocations of the simulated Kubernetes");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = runtime.enter();
    let (small, large) = (simulated(20)?, simulated(200)?);
    Ok(large[0] <= small[0] * MAX_GROWTH && large[1] <= small[1] * MAX_GROWTH)
}

/// Loads a cluster and changes one of its pods; how many allocations each object took, and each change.
fn simulated(nodes: usize) -> Result<[f64; 2]> {
    let before = HeapStats::get();
    let simulation = KubeSimulation::new(KubeConfig::default());
    simulation.load(&manifests(nodes))?;
    run_controllers(&simulation);
    check(&simulation, nodes);
    let after = HeapStats::get();
    let objects = (nodes * (PODS + 3)) as f64;
    let each = (after.total_blocks - before.total_blocks) as f64 / objects;
    let bytes = (after.curr_bytes - before.curr_bytes) as f64 / objects;
    // The first ones make room that the next ones use.
    relabel(&simulation, 0, "first")?;
    run_controllers(&simulation);
    let before = HeapStats::get().total_blocks;
    for at in 0..10 {
        relabel(&simulation, at, "changed")?;
        run_controllers(&simulation);
    }
    let change = (HeapStats::get().total_blocks - before) as f64 / 10.0;
    println!(
        "  {nodes:>4} nodes, {objects:.0} objects: {each:.0} to load one, which takes {bytes:.0} bytes; {change:.0} to change a pod"
    );
    Ok([each, change])
}
