//! The same seed gives the same trace, byte for byte, on both sides.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clb_arm::Transport;
use clb_sim::azure::AzureConfig;
use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{KubeConfig, KubeSimulation};
use clb_sim::{Simulation, SimulatorConfig};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{NETWORK, load_balancer, load_balancer_path, public_ip, public_ip_path};

/// What was seen, and when.
#[derive(Clone)]
struct Trace(Instant, Arc<Mutex<String>>);

impl Trace {
    fn note(&self, what: std::fmt::Arguments<'_>) {
        let at = self.0.elapsed().as_micros();
        writeln!(self.1.lock().unwrap(), "{at} {what}").unwrap();
    }
}

fn faults(seed: u64) -> FaultPlan {
    FaultPlan::new(seed)
        .with(When::Probability(0.1), What::default(), How::LoseAnswer)
        .with(When::Probability(0.1), What::default(), How::LoseRequest)
        .with(When::Probability(0.3), What::default(), How::Delay(40))
        .with(When::Probability(0.3), What::verb("WATCH"), How::EndWatch(2))
        .with(When::Probability(0.2), What::verb("GET"), How::Stale(3))
}

/// A backoff without chance, which the client's own has.
struct EverySecond;

impl Iterator for EverySecond {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

impl Backoff for EverySecond {
    fn reset(&mut self) {}
}

fn typed<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

async fn kubernetes(seed: u64, trace: Trace) {
    let simulation = KubeSimulation::new(KubeConfig { faults: faults(seed), ..KubeConfig::default() });
    let client = Client::new(simulation.router(), "default");
    let mut calls = simulation.subscribe();
    let controllers = simulation.clone();
    let controllers = tokio::spawn(async move { controllers.run_controllers().await });
    let slices: Api<EndpointSlice> = Api::all(client.clone());
    let noting = trace.clone();
    let watching = watcher(slices, watcher::Config::default()).backoff(EverySecond);
    let watching = tokio::spawn(watching.for_each(move |event| {
        noting.note(format_args!("slices {event:?}"));
        std::future::ready(())
    }));
    let by = PostParams::default();
    let (nodes, pods, services): (Api<Node>, Api<Pod>, Api<Service>) =
        (Api::all(client.clone()), Api::default_namespaced(client.clone()), Api::default_namespaced(client));
    let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    trace.note(format_args!("{:?}", nodes.create(&by, &typed(node)).await));
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}});
    trace.note(format_args!("{:?}", services.create(&by, &typed(service)).await));
    for at in 0..30 {
        let name = format!("p{at}");
        let pod = json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}});
        trace.note(format_args!("{:?}", pods.create(&by, &typed(pod)).await));
        if at % 3 == 0 {
            trace.note(format_args!("{:?}", pods.delete(&name, &DeleteParams::default()).await));
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    watching.abort();
    controllers.abort();
    while let Ok(call) = calls.try_recv() {
        trace.note(format_args!("{call:?}"));
    }
    trace.note(format_args!("{:?}", simulation.injected()));
}

async fn azure(seed: u64, trace: Trace) {
    let simulation = Simulation::new(SimulatorConfig {
        faults: faults(seed),
        azure: AzureConfig::default(),
        ..SimulatorConfig::default()
    });
    let mut records = simulation.subscribe();
    let transport = simulation.transport();
    for at in 0..20 {
        let name = format!("s{at}");
        for (method, path, body) in [
            ("PUT", public_ip_path(&name), public_ip("IPv4")),
            ("PUT", load_balancer_path(&name), load_balancer(&name, &[("Tcp", 80, 8080)])),
            ("GET", format!("{NETWORK}/loadBalancers"), Value::Null),
        ] {
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let uri = format!("https://management.azure.com{path}?api-version=2025-05-01");
            let request = http::Request::builder().method(method).uri(uri).body(body).unwrap();
            trace.note(format_args!("{:?}", transport.send(request).await));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    while let Ok(record) = records.try_recv() {
        trace.note(format_args!("{record:?}"));
    }
    trace.note(format_args!("{:?}", simulation.injected()));
}

fn trace(seed: u64) -> String {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let trace = Trace(Instant::now(), Arc::default());
        tokio::join!(kubernetes(seed, trace.clone()), azure(seed, trace.clone()));
        trace.1.lock().unwrap().clone()
    })
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let first = trace(7);
    assert!(first.lines().count() > 200, "{} lines", first.lines().count());
    let second = trace(7);
    for (first, second) in first.lines().zip(second.lines()) {
        assert_eq!(first, second, "two runs with one seed differ");
    }
    assert_eq!(first.len(), second.len());
    assert!(first != trace(8), "two runs with different seeds do not differ");
}
