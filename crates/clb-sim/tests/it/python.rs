//! Official clients for Python, unchanged, from the virtual environment that `.ci/run` makes.

use std::path::{Path, PathBuf};
use std::process::Command;

use clb_sim::azure::{AzureConfig, Completion};
use clb_sim::kube::{KubeConfig, KubeSimulator};
use clb_sim::{Simulator, SimulatorConfig};

/// The interpreter, if it has the package; the reason is said if not.
fn python(package: &str) -> Option<PathBuf> {
    let python = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python"));
    let found = Command::new(&python).args(["-c", &format!("import {package}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: no Python with {package} in target/python, which .ci/run makes");
    None
}

/// Runs a script of `tests/python`, which says that all is well or fails.
fn assert_runs(python: &Path, script: &str, argument: &str) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python"));
    let mut command = Command::new(python);
    command.arg(folder.join(script)).arg(argument).env("NO_PROXY", "127.0.0.1");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "all is well\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubernetes_client_lists_watches_and_patches() {
    let Some(python) = python("kubernetes") else { return };
    let simulator = KubeSimulator::start(KubeConfig::default()).await.unwrap();
    let kubeconfig = std::env::temp_dir().join(format!("clb-sim-python-{}", std::process::id()));
    std::fs::write(&kubeconfig, simulator.kubeconfig()).unwrap();
    assert_runs(&python, "kubernetes_client.py", kubeconfig.to_str().unwrap());
    std::fs::remove_file(kubeconfig).unwrap();
    simulator.shutdown().await;
}

/// Runs a script with the Azure SDK against a simulator that asks for tokens, with operations that are to be polled and
/// without.
async fn assert_runs_on_azure(python: &Path, script: &str) {
    for completion in [Completion::Immediate, Completion::Polled, Completion::Recorded] {
        let azure = AzureConfig { page_size: 3, completion, ..AzureConfig::default() };
        let config = SimulatorConfig { azure, requires_token: true, ..SimulatorConfig::default() };
        let simulator = Simulator::start(config).await.unwrap();
        assert_runs(python, script, &simulator.endpoint());
        simulator.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_azure_sdk_creates_reads_lists_updates_and_deletes() {
    let Some(python) = python("azure.mgmt.network") else { return };
    assert_runs_on_azure(&python, "azure_network.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_azure_sdk_runs_scale_sets_and_machines() {
    let Some(python) = python("azure.mgmt.compute") else { return };
    assert_runs_on_azure(&python, "azure_compute.py").await;
}
