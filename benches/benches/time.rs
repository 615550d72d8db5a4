//! How long things take, beside the naive differ that compares everything.
//!
//! What would be wrong: a change that costs more in a large cluster than in a small one; a full diff that is slower than the
//! full scan; a deletion that costs the cluster and not the Service. The ratios are printed, and those that are promised
//! are checked: the exit code is 1 when one does not hold. Every measurement also checks what was done.
//!
//! `cargo bench -p clb-benches --bench time`, and with `LARGE=1` for a million addresses.

use std::process::ExitCode;
use std::time::Duration;

use clb_benches::cluster::{Cluster, NOW, SLICE, in_sync, registered, settle};
use clb_benches::measure::{ratio, shortest, time};
use clb_benches::naive::Naive;
use clb_controller::batch_updater::address_locations_body;
use clb_difftracker::{Change, DiffTracker, LocationUpdate};

/// Measurements of one kind that take turns.
const ROUNDS: usize = 20;

/// Changes of one endpoint measured as one: one alone is too short for the clock.
const BURST: usize = 200;

/// One changed endpoint, or one deleted Service, at 100 k addresses may cost this many times what it costs at 1 k: cache
/// misses, and nothing else.
const MAX_GROWTH: f64 = 2.0;

/// An address of a full diff of many may cost this many times what it costs in one of ten times fewer: likewise.
const MAX_GROWTH_OF_ALL: f64 = 2.5;

fn main() -> ExitCode {
    let mut is_fine = true;
    for (what, growth, most) in [
        ("one changed endpoint", one_change(), MAX_GROWTH),
        ("one deleted Service", one_deletion(), MAX_GROWTH),
        ("an address of a full diff", full_diff(), MAX_GROWTH_OF_ALL),
    ] {
        if growth > most {
            println!("FAILED: {what} costs {growth:.2} times as much in a large cluster as in a small one");
            is_fine = false;
        }
    }
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One Service goes, with its endpoints: withdrawn, its resources deleted.
fn one_deletion() -> f64 {
    println!("one deleted Service of {SLICE} endpoints, change to the last operation");
    let sizes = [1_000, 10_000, 100_000];
    let [mut small, mut middle, mut large] = sizes.map(|addresses| {
        let cluster = Cluster::new(addresses);
        let mut tracker = in_sync(&cluster);
        move || delete(&cluster, &mut tracker)
    });
    let deleted = shortest(ROUNDS, [&mut small, &mut middle, &mut large]);
    for (addresses, deleted) in sizes.into_iter().zip(deleted) {
        println!("  {addresses:>7} addresses: tracker {deleted:>9.2?}");
    }
    let growth = ratio(deleted[2], deleted[0]);
    println!("  100 k is {growth:.2} times 1 k (at most {MAX_GROWTH})");
    growth
}

fn delete(cluster: &Cluster, tracker: &mut DiffTracker) -> Duration {
    let service = cluster.service(3);
    let mut updates = 0;
    let elapsed = time(|| {
        tracker.handle_change(Change::ServiceGone(service.id.clone()), NOW);
        settle(tracker, |batch| updates += batch.len());
    });
    assert!(updates > 0 && tracker.status(&service.id).is_none(), "it is gone");
    tracker.handle_change(Change::ServiceApplied(service), NOW);
    settle(tracker, |_| ());
    elapsed
}

/// One endpoint comes or goes: change → batch → completed.
fn one_change() -> f64 {
    println!("one changed endpoint, change to completed batch");
    let sizes = [1_000, 10_000, 100_000];
    let [mut small, mut middle, mut large] = sizes.map(|addresses| {
        let cluster = Cluster::new(addresses);
        let mut tracker = in_sync(&cluster);
        move || burst(&cluster, &mut tracker)
    });
    let tracked = shortest(ROUNDS, [&mut small, &mut middle, &mut large]);
    for (addresses, tracked) in sizes.into_iter().zip(tracked) {
        let naive = naive_change(addresses);
        let times = ratio(naive, tracked);
        println!(
            "  {addresses:>7} addresses: tracker {tracked:>9.2?}, full scan {naive:>9.2?} ({times:.0} times)"
        );
    }
    let growth = ratio(tracked[2], tracked[0]);
    println!("  100 k is {growth:.2} times 1 k (at most {MAX_GROWTH})");
    growth
}

/// The mean of a burst of changes, each sent and completed before the next. Each is of another Service: what is not in the
/// caches is part of the cost.
fn burst(cluster: &Cluster, tracker: &mut DiffTracker) -> Duration {
    let slices = 2 * cluster.addresses() / SLICE;
    let changes: Vec<_> = (0..BURST / 2)
        .map(|number| number * 7 % slices)
        .flat_map(|number| [cluster.slice(number, SLICE - 1), cluster.slice(number, SLICE)])
        .collect();
    let mut updates = 0;
    let elapsed = time(|| {
        for change in changes {
            tracker.handle_change(change, NOW);
            settle(tracker, |batch| updates += batch.len());
        }
    });
    assert_eq!(updates, BURST, "each change is one update of one location");
    elapsed / BURST as u32
}

fn naive_change(addresses: usize) -> Duration {
    let cluster = Cluster::new(addresses);
    let mut naive = naive(&cluster);
    naive.batch();
    let mut present = true;
    let mut change = || {
        present = !present;
        let change = cluster.slice(0, if present { SLICE } else { SLICE - 1 });
        time(|| {
            naive.change(change);
            assert_eq!(naive.batch().len(), 1);
        })
    };
    shortest(4, [&mut change])[0]
}

fn naive(cluster: &Cluster) -> Naive {
    let mut naive = Naive::default();
    cluster.changes().into_iter().for_each(|change| naive.change(change));
    naive
}

/// Everything is there, nothing is sent: the whole difference, with the bodies of the requests. `LARGE=1` has a million
/// addresses too.
fn full_diff() -> f64 {
    println!("full initial diff with request bodies, from the slices on");
    let sizes = if std::env::var_os("LARGE").is_some() {
        vec![10_000, 100_000, 1_000_000]
    } else {
        vec![10_000, 100_000]
    };
    let mut growth: f64 = 0.0;
    let mut last: Option<f64> = None;
    for addresses in sizes {
        let cluster = Cluster::new(addresses);
        let mut tracked = || {
            let mut tracker = registered(cluster.changes());
            let mut sent = (0, 0);
            let elapsed = time(|| settle(&mut tracker, |updates| add(&mut sent, updates)));
            assert_eq!(sent.0, addresses);
            elapsed
        };
        let mut scanned = || {
            let mut naive = naive(&cluster);
            let mut sent = (0, 0);
            let elapsed = time(|| add(&mut sent, &naive.batch()));
            assert_eq!(sent.0, addresses);
            elapsed
        };
        let [tracked, scanned] = shortest(3, [&mut tracked, &mut scanned]);
        let times = ratio(scanned, tracked);
        println!(
            "  {addresses:>7} addresses: tracker {tracked:>9.2?}, full scan {scanned:>9.2?} ({times:.1} times)"
        );
        assert!(times > 1.0, "the full diff is slower than the full scan");
        let each = tracked.as_secs_f64() / addresses as f64;
        growth = growth.max(last.map_or(0.0, |last| each / last));
        last = Some(each);
    }
    println!("  ten times as many cost {growth:.2} times as much each (at most {MAX_GROWTH_OF_ALL})");
    growth
}

/// Writes the body, and counts its addresses and bytes.
fn add(sent: &mut (usize, usize), updates: &[LocationUpdate]) {
    let body = address_locations_body(updates);
    sent.0 += body.address_locations.iter().map(|location| location.addresses.len()).sum::<usize>();
    sent.1 += serde_json::to_vec(&body).map_or(0, |json| json.len());
}
