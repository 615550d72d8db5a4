//! The Kubernetes client for Python, unchanged, where it is installed.

use std::path::PathBuf;
use std::process::Command;

use clb_sim::kube::{KubeConfig, KubeSimulator};

/// The interpreter that `CLB_SIM_PYTHON` names, or the one of the virtual environment in the target folder.
fn python() -> PathBuf {
    let own = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python").into();
    std::env::var_os("CLB_SIM_PYTHON").unwrap_or_else(own).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_lists_watches_and_patches() {
    let python = python();
    let found = Command::new(&python).args(["-c", "import kubernetes"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no Python with the package kubernetes at {}", python.display());
        return;
    }
    let simulator = KubeSimulator::start(KubeConfig::default()).await.unwrap();
    let kubeconfig = std::env::temp_dir().join(format!("clb-sim-python-{}", std::process::id()));
    std::fs::write(&kubeconfig, simulator.kubeconfig()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/kubernetes_client.py");
    let output =
        Command::new(python).arg(script).arg(&kubeconfig).env("NO_PROXY", "127.0.0.1").output().unwrap();
    std::fs::remove_file(kubeconfig).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "all is well\n");
    simulator.shutdown().await;
}
