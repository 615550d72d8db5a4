//! Snapshots that are saved, read back and compared.

#![allow(clippy::unwrap_used, clippy::panic, dead_code, missing_docs)]

#[path = "../it/azure.rs"]
mod azure;
#[path = "../it/cluster.rs"]
mod cluster;
#[path = "../it/steps.rs"]
mod steps;
#[path = "../it/world.rs"]
mod world;

use clb_difftracker::{Config, IdleTimeout, LoadBalancerSpec, ServiceId, Snapshot};
use proptest::prelude::*;

fn saved(snapshot: &Snapshot) -> Vec<u8> {
    serde_json::to_vec(snapshot).unwrap()
}

fn read(bytes: &[u8]) -> Result<Snapshot, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_saved_is_read_back_and_equal(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (config, steps) = steps::from_bytes(&bytes);
        let snapshot = steps::walk(&config, &steps).tracker.snapshot();
        prop_assert_eq!(read(&saved(&snapshot)), Ok(snapshot));
    }
}

/// What the fuzzer has found since lies beside its seeds, under names without an ending.
#[test]
fn the_seeds_of_the_fuzzer_are_snapshots_that_are_read_back_as_they_are_and_what_it_found_is_read_or_refused()
{
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/snapshot");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let snapshot = read(&bytes);
        if file.extension().is_some() {
            assert_eq!(snapshot.as_ref().map(saved), Ok(bytes), "{}", file.display());
            seeds += 1;
        }
        if let Ok(snapshot) = snapshot {
            assert_eq!(read(&saved(&snapshot)), Ok(snapshot), "{}", file.display());
        }
    }
    assert!(seeds > 0, "{folder} has no seed");
}

/// Makes the seeds anew, when what a snapshot holds has changed: `cargo test --features serde --test saved -- --ignored`.
#[test]
#[ignore = "writes files"]
fn make_the_seeds_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");
    std::fs::create_dir_all(format!("{folder}/snapshot")).unwrap();
    let mut walks: Vec<_> =
        std::fs::read_dir(format!("{folder}/walk")).unwrap().map(|entry| entry.unwrap().path()).collect();
    walks.sort();
    for (number, walk) in walks.into_iter().step_by(12).enumerate() {
        let (_, steps) = steps::from_bytes(&std::fs::read(walk).unwrap());
        let snapshot = steps::walk(&Config::default(), &steps).tracker.snapshot();
        std::fs::write(format!("{folder}/snapshot/{number}.json"), saved(&snapshot)).unwrap();
    }
}

#[test]
fn what_could_not_be_built_is_not_read_either() {
    let refused = |error: serde_json::Error| error.to_string();
    let spec = |rules: &str| {
        let json = format!(r#"{{"family":"V4","idle_timeout":4,"rules":[{rules}]}}"#);
        serde_json::from_str::<LoadBalancerSpec>(&json).map_err(refused)
    };
    let rule = r#"{"protocol":"Tcp","frontend_port":80,"backend_port":8080}"#;
    assert!(spec(rule).is_ok());
    assert_eq!(spec("").unwrap_err(), "there is no port to balance");
    assert!(spec(&format!("{rule},{rule}")).unwrap_err().contains("two ports listen on TCP 80"));
    assert!(spec(&rule.replace("80,", "65535,")).unwrap_err().contains("between 1 and 65534"));
    let timeout = serde_json::from_str::<IdleTimeout>("31").map_err(refused);
    assert!(timeout.unwrap_err().contains("between 4 and 30"));
    let id = serde_json::from_str::<ServiceId>(r#""a/b""#).map_err(refused);
    assert!(id.unwrap_err().contains("does not allow"));
    assert_eq!(serde_json::from_str::<ServiceId>(r#""ABC""#).unwrap(), ServiceId::new("abc").unwrap());
}
