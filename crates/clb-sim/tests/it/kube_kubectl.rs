//! `kubectl`, unchanged, where there is one.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use clb_sim::kube::{KubeConfig, KubeSimulator};
use serde_json::{Value, json};

struct Kubectl {
    folder: PathBuf,
    simulator: KubeSimulator,
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        // What is left over is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Kubectl {
    /// `None`, and the reason said, without a `kubectl`.
    async fn start(name: &str) -> Option<Self> {
        if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
            eprintln!("skipped: there is no kubectl on the PATH");
            return None;
        }
        let simulator = KubeSimulator::start(KubeConfig::default()).await.unwrap();
        let folder = std::env::temp_dir().join(format!("clb-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config"), simulator.kubeconfig()).unwrap();
        Some(Self { folder, simulator })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments)
            .env("KUBECONFIG", self.folder.join("config"))
            .env("HOME", &self.folder)
            .env("NO_PROXY", "127.0.0.1")
            .current_dir(&self.folder);
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it says.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// How it complains.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "kubectl {arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn write(&self, object: &Value) {
        std::fs::write(self.folder.join("object.json"), object.to_string()).unwrap();
    }

    /// Listens to a resource, from before anything else happens.
    async fn watch(&self, resource: &str) -> (Child, impl Iterator<Item = String>) {
        let mut calls = self.simulator.subscribe();
        let form = "jsonpath={.type} {.object.metadata.name}{\"\\n\"}";
        let mut child = self
            .command(&["get", resource, "-A", "--watch", "--output-watch-events", "-o", form])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while calls.recv().await.unwrap().call.verb != "WATCH" {}
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        (child, lines)
    }
}

/// An object of every kind.
fn objects() -> [Value; 7] {
    let object = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "web", "labels": {"app": "web"}}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    [
        object("v1", "Namespace", json!({})),
        object("v1", "Node", json!({"spec": {"podCIDR": "10.0.0.0/24"}})),
        object(
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}),
        ),
        object(
            "v1",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8080}]}}),
        ),
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true}}]}),
        ),
        object(
            "v1",
            "Event",
            json!({"involvedObject": {"kind": "Service", "name": "web", "namespace": "default"},
            "reason": "Seen", "message": "it was seen", "type": "Normal"}),
        ),
        object(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_gets_describes_patches_watches_and_deletes_every_kind() {
    let Some(kubectl) = Kubectl::start("kubectl").await else { return };
    for (object, is_server_side) in objects().iter().flat_map(|object| [(object, false), (object, true)]) {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let resource = match object["apiVersion"].as_str().unwrap().split_once('/') {
            Some((group, _)) => format!("{kind}.{group}"),
            None => kind.clone(),
        };
        let named = format!("{resource}/web");
        let (mut watching, mut events) = kubectl.watch(&kind).await;
        let apply: &[&str] = if is_server_side {
            &["apply", "--server-side", "-f", "object.json"]
        } else {
            &["apply", "-f", "object.json"]
        };
        let applied =
            |what: &str| if is_server_side { "serverside-applied".to_owned() } else { what.to_owned() };
        kubectl.write(object);
        assert_eq!(kubectl.run(apply), format!("{named} {}\n", applied("created")));
        let mut changed = object.clone();
        changed["metadata"]["annotations"] = json!({"changed": "yes"});
        kubectl.write(&changed);
        assert_eq!(kubectl.run(apply), format!("{named} {}\n", applied("configured")));
        assert_eq!(kubectl.run(apply), format!("{named} {}\n", applied("unchanged")));
        let annotation = ["get", &kind, "web", "-o", "jsonpath={.metadata.annotations.changed}"];
        assert_eq!(kubectl.run(&annotation), "yes");
        assert!(kubectl.run(&["describe", &kind, "web"]).contains("web"), "{kind}");
        let patch =
            ["patch", &kind, "web", "--type=merge", "-p", r#"{"metadata":{"labels":{"patched":"yes"}}}"#];
        assert_eq!(kubectl.run(&patch), format!("{named} patched\n"));
        assert_eq!(
            kubectl.run(&["get", &kind, "-l", "patched=yes", "-o", "name", "-A"]),
            format!("{named}\n")
        );
        kubectl.run(&["delete", &kind, "web", "--grace-period=0", "--force"]);
        assert!(kubectl.refused(&["get", &kind, "web"]).contains("not found"));
        assert_eq!(events.find(|event| event.contains("web")).unwrap(), "ADDED web");
        watching.kill().unwrap();
        watching.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_hears_the_servers_own_words() {
    let Some(kubectl) = Kubectl::start("kubectl-words").await else { return };
    let [.., service, _, _, _] = objects();
    let mut service = service;
    kubectl.write(&service);
    kubectl.run(&["apply", "--server-side", "-f", "object.json"]);
    kubectl.run(&["patch", "service", "web", "-p", r#"{"spec":{"ports":[{"port":80,"targetPort":9090}]}}"#]);
    let conflict = kubectl.refused(&["apply", "--server-side", "-f", "object.json"]);
    let words = "Apply failed with 1 conflict: conflict with \"kubectl-patch\" using v1: .spec.ports[port=80,protocol=\"TCP\"].targetPort";
    assert!(conflict.contains(words), "{conflict}");
    kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", "object.json"]);
    assert_eq!(kubectl.run(&["get", "service", "web", "-o", "jsonpath={.spec.ports[*].targetPort}"]), "8080");
    service["spec"]["prots"] = json!([]);
    kubectl.write(&service);
    let misspelt = kubectl.refused(&["apply", "-f", "object.json"]);
    assert!(misspelt.contains("strict decoding error: unknown field \"spec.prots\""), "{misspelt}");
    let invalid = kubectl.refused(&[
        "patch",
        "service",
        "web",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/type","value":"Odd"}]"#,
    ]);
    assert!(
        invalid.contains("The Service \"web\" is invalid: spec.type: Unsupported value: \"Odd\""),
        "{invalid}"
    );
    kubectl.run(&[
        "patch",
        "service",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"loadBalancer":{"ingress":[{"ip":"20.0.0.1"}]}}}"#,
    ]);
    assert_eq!(
        kubectl.run(&["get", "svc", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}"]),
        "20.0.0.1"
    );
    kubectl.run(&["delete", "services", "--all"]);
    assert_eq!(kubectl.run(&["get", "services", "-o", "name"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_sees_what_a_finalizer_holds() {
    let Some(kubectl) = Kubectl::start("kubectl-finalizer").await else { return };
    let [.., service, _, _, _] = objects();
    kubectl.write(&service);
    kubectl.run(&["apply", "-f", "object.json"]);
    let patch = r#"{"metadata":{"finalizers":["x/y"]}}"#;
    assert_eq!(kubectl.run(&["patch", "service", "web", "-p", patch]), "service/web patched\n");
    kubectl.run(&["delete", "service", "web", "--wait=false"]);
    let grace = ["get", "service", "web", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}"];
    assert_eq!(kubectl.run(&grace), "0");
    let release = r#"[{"op":"remove","path":"/metadata/finalizers"}]"#;
    kubectl.run(&["patch", "service", "web", "--type=json", "-p", release]);
    assert_eq!(kubectl.run(&["get", "services", "-o", "name"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_the_columns_that_it_shows_of_a_real_cluster() {
    let Some(kubectl) = Kubectl::start("kubectl-columns").await else { return };
    for object in &objects() {
        kubectl.write(object);
        kubectl.run(&["apply", "-f", "object.json"]);
    }
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (kind, columns) in [
        ("namespaces", "NAME STATUS AGE"),
        ("nodes", "NAME STATUS ROLES AGE VERSION"),
        ("pods", "NAME READY STATUS RESTARTS AGE"),
        ("services", "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE"),
        ("endpointslices", "NAME ADDRESSTYPE PORTS ENDPOINTS AGE"),
        ("events", "LAST SEEN TYPE REASON OBJECT MESSAGE"),
        ("leases", "NAME HOLDER AGE"),
    ] {
        let said = kubectl.run(&["get", kind]);
        assert_eq!(words(said.lines().next().unwrap()), words(columns), "{said}");
    }
    let service = kubectl.run(&["get", "service", "web", "--no-headers"]);
    let [name, kind, _, external, ports, _] = &words(&service)[..] else { panic!("{service}") };
    assert_eq!([name, kind, external], ["web", "LoadBalancer", "<pending>"]);
    assert!(ports.starts_with("80:3") && ports.ends_with("/TCP"), "{ports}");
    let wide = kubectl.run(&["get", "services", "-o", "wide", "-A"]);
    let columns = "NAMESPACE NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR";
    assert_eq!(words(wide.lines().next().unwrap()), words(columns));
    assert_eq!(kubectl.run(&["label", "service", "web", "x=y"]), "service/web labeled\n");
    assert_eq!(kubectl.run(&["annotate", "service", "web", "x=z"]), "service/web annotated\n");
    let labelled = kubectl.run(&["get", "services", "-l", "x=y", "--show-labels", "--no-headers"]);
    assert_eq!(words(&labelled).last().unwrap(), "app=web,x=y");
    // A watch has the same columns.
    let mut calls = kubectl.simulator.subscribe();
    let mut watching =
        kubectl.command(&["get", "services", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    while calls.recv().await.unwrap().call.verb != "WATCH" {}
    kubectl.run(&["label", "service", "web", "x-"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = || words(&lines.next().unwrap())[..2].to_vec();
    assert_eq!(
        [next(), next(), next()],
        [["NAME", "TYPE"], ["web", "LoadBalancer"], ["web", "LoadBalancer"]]
    );
    watching.kill().unwrap();
    watching.wait().unwrap();
}
