//! Bytes as a walk of a small world: every rule is checked at every step, and at the end Azure must equal the cluster.
//!
//! `cargo install cargo-fuzz`, then, in `crates/clb-difftracker`, `cargo fuzz run -s none walk -- -max_total_time=60`. What it
//! finds goes into `corpus/walk`, which `cargo test` replays.

#![no_main]
#![allow(dead_code)]

#[path = "../../tests/it/azure.rs"]
mod azure;
#[path = "../../tests/it/cluster.rs"]
mod cluster;
#[path = "../../tests/it/steps.rs"]
mod steps;
#[path = "../../tests/it/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (config, steps) = steps::from_bytes(bytes);
    steps::walk(&config, &steps).settle();
});
