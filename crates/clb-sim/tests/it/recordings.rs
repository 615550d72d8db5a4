//! The recordings, where they are at hand.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clb_sim::expected::{self, ExpectedPort, ExpectedService};
use clb_sim::recording::{self, FinalLists};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::Service;

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/recordings");

/// A file of this name in the folder that cargo keeps for tests.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

const TEXT: &str = r#"{"t":0,"resource":"services","list":{"items":[{"metadata":{"name":"a"}}]}}
{"t":0.25,"resource":"pods","event":{"type":"BOOKMARK","object":{}}}"#;

#[test]
fn a_packed_recording_is_read_as_the_plain_one_whatever_its_name() {
    let plain = recording::read(&file("plain.jsonl.gz", TEXT.as_bytes())).unwrap();
    assert_eq!(plain.len(), 2);
    assert_eq!(recording::read(&file("packed.jsonl", &packed(TEXT.as_bytes()))).unwrap(), plain);
}

#[test]
fn a_packed_recording_that_is_cut_off_is_an_error_that_names_it() {
    let whole = packed(TEXT.repeat(1_000).as_bytes());
    let path = file("cut.jsonl.gz", &whole[..whole.len() / 2]);
    let error = recording::read(&path).unwrap_err().to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
}

fn ports(service: &Service) -> Vec<ExpectedPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| ExpectedPort {
        name: port.name.clone(),
        protocol: port.protocol.clone().unwrap(),
        port: port.port.try_into().unwrap(),
        target_port: port.target_port.clone().unwrap(),
        node_port: port.node_port.map(|port| port.try_into().unwrap()),
    };
    ports.map(port).collect()
}

/// What the recording's README says of a Service, as far as it stands in the Service itself.
type Summary = (String, String, bool, Vec<String>, Vec<ExpectedPort>);

fn of_list(service: &Service) -> Summary {
    let meta = &service.metadata;
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let is_deleting = meta.deletion_timestamp.is_some();
    (meta.namespace.clone().unwrap(), meta.name.clone().unwrap(), is_deleting, families, ports(service))
}

fn of_expected(service: &ExpectedService) -> Summary {
    let ExpectedService { namespace, name, deleting, ip_families, ports, .. } = service;
    (namespace.clone(), name.clone(), *deleting, ip_families.clone(), ports.clone())
}

#[test]
fn every_recording_ends_in_the_services_and_counts_that_are_expected() {
    if !Path::new(SHARED).exists() {
        println!("skipped: there are no recordings at {SHARED}");
        return;
    }
    for name in [
        "basic.jsonl",
        "scale.jsonl.gz",
        "dualstack.jsonl",
        "nodes.jsonl",
        "egress.jsonl",
        "finalizers.jsonl",
        "churn.jsonl.gz",
    ] {
        let path = Path::new(SHARED).join(name);
        let lines = recording::open(&path).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        let FinalLists { services, endpoint_slices, nodes, pods } = FinalLists::of(&lines);
        let stem = name.split('.').next().unwrap();
        let expected_path = path.with_file_name(format!("{stem}.expected.json"));
        let expected = expected::read(&expected_path).unwrap();

        let is_load_balancer = |service: &&Service| {
            service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
        };
        let found: BTreeMap<String, Summary> = services
            .iter()
            .filter(is_load_balancer)
            .map(|service| (service.metadata.uid.clone().unwrap(), of_list(service)))
            .collect();
        let wanted: BTreeMap<String, Summary> = expected
            .load_balancer_services
            .iter()
            .map(|(uid, service)| (uid.clone(), of_expected(service)))
            .collect();
        assert_eq!(found, wanted, "{name}");

        let counts: serde_json::Value = serde_json::from_slice(&fs::read(expected_path).unwrap()).unwrap();
        let found = serde_json::json!({
            "services": services.len(), "endpointslices": endpoint_slices.len(), "nodes": nodes.len(), "pods": pods.len()
        });
        assert_eq!(found, counts["finalCounts"], "{name}");
    }
}

#[test]
fn the_recording_of_a_selecting_watch_is_read() {
    let path = Path::new(SHARED).join("egress-selector.jsonl");
    if !path.exists() {
        println!("skipped: there is no {}", path.display());
        return;
    }
    let lines = recording::read(&path).unwrap();
    assert!(lines.iter().all(|line| line.entry.resource() == "pods"), "there is more than pods");
}
