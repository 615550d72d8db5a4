//! Bytes as a snapshot from outside: it is read or refused, and what is read is written as it was.
//!
//! In `crates/clb-difftracker`, `cargo fuzz run -s none snapshot -- -max_total_time=60`. The seeds in `corpus/snapshot` are
//! snapshots of real trackers; `cargo test` replays them.

#![no_main]

use clb_difftracker::Snapshot;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = serde_json::from_slice::<Snapshot>(bytes) else { return };
    let written = serde_json::to_vec(&read).unwrap();
    assert_eq!(serde_json::from_slice::<Snapshot>(&written).unwrap(), read);
});
