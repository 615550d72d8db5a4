//! How much memory an address takes, and how many allocations a change.
//!
//! What would be wrong: a tracker that keeps more than a few dozen bytes per address beyond what it must know, or whose
//! allocations for one change grow with the cluster. Counts, not times: they are the same on every machine.
//!
//! `cargo bench -p clb-benches --bench heap`

use std::process::ExitCode;

use clb_benches::cluster::{Cluster, NOW, SLICE, in_sync, settle};
use dhat::HeapStats;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Heap per address with both sides in sync and two Services per address, in bytes. The existing Go controller takes 760–870.
const MAX_BYTES_PER_ADDRESS: usize = 150;

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
