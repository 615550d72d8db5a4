//! Recordings that are played into the simulated API server, and manifests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clb_sim::kube::{Answer, Kind, KubeConfig, KubeSimulation, ReplayError, Request};
use clb_sim::recording::{self, FinalLists, Line, RecordingError};
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

fn examples() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/recordings"))
}

fn lines(path: &Path) -> Vec<Line> {
    recording::read(path).unwrap()
}

fn given(lines: &[Line]) -> impl Iterator<Item = Result<Line, RecordingError>> {
    lines.iter().cloned().map(Ok)
}

/// Objects without their versions, which every server counts by itself.
fn plain<K: Metadata<Ty = ObjectMeta> + Serialize>(mut object: K) -> Value {
    object.metadata_mut().resource_version = None;
    serde_json::to_value(object).unwrap()
}

fn held<K: Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned>(
    simulation: &KubeSimulation,
    kind: Kind,
) -> Vec<Value> {
    simulation.with_cluster(|cluster| {
        let objects =
            cluster.objects(kind).map(|object| serde_json::from_value::<K>(object.clone()).unwrap());
        objects.map(plain).collect()
    })
}

fn assert_holds(simulation: &KubeSimulation, lists: FinalLists) {
    fn assert_kind<K: Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned>(
        simulation: &KubeSimulation,
        kind: Kind,
        expected: Vec<K>,
    ) {
        let held = held::<K>(simulation, kind);
        let expected: Vec<Value> = expected.into_iter().map(plain).collect();
        for (held, expected) in held.iter().zip(&expected) {
            assert_eq!(held, expected);
        }
        assert_eq!(held.len(), expected.len(), "{kind:?}");
    }
    assert_kind(simulation, Kind::Service, lists.services);
    assert_kind(simulation, Kind::EndpointSlice, lists.endpoint_slices);
    assert_kind(simulation, Kind::Node, lists.nodes);
    assert_kind(simulation, Kind::Pod, lists.pods);
}

#[tokio::test]
async fn every_recording_ends_in_what_was_recorded() {
    for name in ["basic", "nodes", "egress"] {
        let lines = lines(&examples().join(format!("{name}.jsonl")));
        let simulation = KubeSimulation::new(KubeConfig::default());
        assert_eq!(simulation.replay(given(&lines), 0.0).await.unwrap(), lines.len());
        assert_holds(&simulation, FinalLists::of(&lines));
    }
    let shared = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/recordings"));
    if !shared.exists() {
        eprintln!("skipped: the other recordings are not here");
        return;
    }
    for name in
        ["scale.jsonl.gz", "dualstack.jsonl", "finalizers.jsonl", "egress-selector.jsonl", "churn.jsonl.gz"]
    {
        let lines = lines(&shared.join(name));
        let simulation = KubeSimulation::new(KubeConfig::default());
        simulation.replay(given(&lines), 0.0).await.unwrap();
        assert_holds(&simulation, FinalLists::of(&lines));
    }
}

#[tokio::test(start_paused = true)]
async fn a_recording_is_played_with_its_timing() {
    let lines = lines(&examples().join("nodes.jsonl"));
    for speed in [1.0, 4.0] {
        let simulation = KubeSimulation::new(KubeConfig::default());
        let (playing, recorded) = (simulation.clone(), lines.clone());
        let started = Instant::now();
        let task = tokio::spawn(async move { playing.replay(given(&recorded), speed).await.unwrap() });
        let last = lines.last().unwrap().at.div_f64(speed);
        for share in [0.3, 0.6] {
            tokio::time::sleep_until(started + last.mul_f64(share)).await;
            // Whoever waits for the same moment comes first or second.
            tokio::time::sleep(Duration::from_micros(10)).await;
            let so_far: Vec<Line> =
                lines.iter().filter(|line| line.at.div_f64(speed) <= last.mul_f64(share)).cloned().collect();
            assert!(so_far.len() < lines.len());
            assert_holds(&simulation, FinalLists::of(&so_far));
        }
        task.await.unwrap();
        // Timers are rounded up to milliseconds.
        assert!(started.elapsed() >= last && started.elapsed() < last + Duration::from_millis(2));
        assert_holds(&simulation, FinalLists::of(&lines));
    }
}

#[tokio::test]
async fn a_watch_hears_a_recording_as_it_was_heard() {
    let text = std::fs::read_to_string(examples().join("nodes.jsonl")).unwrap();
    let lines = lines(&examples().join("nodes.jsonl"));
    let at = lines
        .iter()
        .rposition(|line| matches!(line.entry, recording::Entry::Nodes(recording::Watched::List(_))))
        .unwrap();
    let simulation = KubeSimulation::new(KubeConfig::default());
    simulation.replay(given(&lines[..=at]), 0.0).await.unwrap();
    let version = simulation.with_cluster(|cluster| cluster.version()).to_string();
    let query = vec![("watch".to_owned(), "1".to_owned()), ("resourceVersion".to_owned(), version)];
    let request =
        Request { method: "GET".to_owned(), path: "/api/v1/nodes".to_owned(), query, ..Request::default() };
    let Answer::Watch(mut watch) = simulation.handle(&request) else { panic!() };
    let told = |event: &Value| {
        (
            event["type"].as_str().unwrap().to_owned(),
            event["object"]["metadata"]["name"].as_str().unwrap().to_owned(),
        )
    };
    let mut heard = Vec::new();
    for line in &lines[at + 1..] {
        simulation.with_cluster(|cluster| cluster.play(&line.entry)).unwrap();
        let events = simulation.with_cluster(|cluster| cluster.poll(&mut watch));
        // The last form of what is deleted may differ from the one before.
        heard.extend(events.iter().map(told));
    }
    let recorded: Vec<(String, String)> = text
        .lines()
        .skip(at + 1)
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["resource"] == "nodes" && line["event"]["type"] != "BOOKMARK")
        .map(|line| told(&line["event"]))
        .collect();
    assert_eq!(heard, recorded);
}

#[tokio::test]
async fn a_recording_that_cannot_be_played_says_which_line() {
    let bad =
        r#"{"t":0,"resource":"nodes","event":{"type":"ADDED","object":{"metadata":{"name":"NOT A NAME"}}}}"#;
    let simulation = KubeSimulation::new(KubeConfig::default());
    let lines = recording::Lines::new(Path::new("x"), bad.as_bytes());
    let error = simulation.replay(lines, 1.0).await.unwrap_err();
    assert!(
        matches!(&error, ReplayError::Refused { line: 1, reason } if reason.contains("NOT A NAME")),
        "{error}"
    );
    let lines = recording::Lines::new(Path::new("x"), "{".as_bytes());
    let error = simulation.replay(lines, 1.0).await.unwrap_err();
    assert!(matches!(&error, ReplayError::Recording(_)), "{error}");
}

#[test]
fn manifests_are_loaded_from_yaml_of_many_documents_and_from_json() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _guard = runtime.enter();
    let simulation = KubeSimulation::new(KubeConfig::default());
    let yaml = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n---\n\
                kind: List\nitems:\n- kind: Node\n  metadata: {name: n}\n";
    assert_eq!(simulation.load(yaml), Ok(2));
    let json = r#"{"kind": "NodeList", "items": [{"metadata": {"name": "m"}}]}
                  {"kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [{"name": "c"}]}}"#;
    assert_eq!(simulation.load(json), Ok(2));
    let names = |kind| {
        simulation.with_cluster(|cluster| {
            let names =
                cluster.objects(kind).map(|object| object["metadata"]["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        })
    };
    let all: BTreeMap<&str, Vec<String>> =
        [Kind::Node, Kind::Service, Kind::Pod].map(|kind| (kind.name(), names(kind))).into();
    let expected = [("Node", vec!["m", "n"]), ("Pod", vec!["p"]), ("Service", vec!["a"])];
    let expected =
        expected.map(|(kind, names)| (kind, names.into_iter().map(str::to_owned).collect())).into();
    assert_eq!(all, expected);
    assert!(simulation.load("kind: [").is_err());
    assert!(simulation.load("{\"kind\"").is_err());
    assert_eq!(simulation.load("kind: Gadget").unwrap_err(), "the kind \"Gadget\" is not modelled");
}

#[tokio::test]
async fn what_clients_write_on_played_objects_stays_and_their_finalizers_hold_them() {
    let event = |kind: &str, object: Value| {
        let line =
            serde_json::json!({"t": 0, "resource": "services", "event": {"type": kind, "object": object}});
        recording::parse(Path::new("a line"), line.to_string().as_bytes()).unwrap().remove(0)
    };
    let form = |ports: u16, finalizers: &[&str]| {
        serde_json::json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "default", "name": "s", "uid": "u", "resourceVersion": "1", "finalizers": finalizers},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "ports": [{"port": ports}]},
            "status": {"loadBalancer": {}}})
    };
    let simulation = KubeSimulation::new(KubeConfig::default());
    let play = async |line: Line| assert_eq!(simulation.replay([Ok(line)], 0.0).await.unwrap(), 1);
    let path = "/api/v1/namespaces/default/services/s";
    let patch = |path: String, body: Value| {
        let request = Request {
            method: "PATCH".to_owned(),
            path,
            content_type: "application/merge-patch+json".to_owned(),
            body,
            ..Request::default()
        };
        let Answer::Body { status, .. } = simulation.handle(&request) else { panic!() };
        assert_eq!(status, 200);
    };
    let shown = || {
        simulation.with_cluster(|cluster| {
            cluster.objects(Kind::Service).next().map(|object| {
                (
                    object["spec"]["ports"][0]["port"].clone(),
                    object["metadata"]["finalizers"].clone(),
                    object["status"]["loadBalancer"].clone(),
                    object["metadata"]["deletionTimestamp"].is_string(),
                )
            })
        })
    };
    play(event("ADDED", form(80, &["recorded/one"]))).await;
    patch(path.to_owned(), serde_json::json!({"metadata": {"finalizers": ["recorded/one", "ours/two"]}}));
    let ingress = serde_json::json!({"ingress": [{"ip": "20.0.0.1", "ipMode": "VIP"}]});
    patch(format!("{path}/status"), serde_json::json!({"status": {"loadBalancer": ingress}}));
    let both = serde_json::json!(["recorded/one", "ours/two"]);
    play(event("MODIFIED", form(81, &["recorded/one"]))).await;
    assert_eq!(shown(), Some((81.into(), both, ingress.clone(), false)));
    play(event("DELETED", form(82, &["recorded/one"]))).await;
    assert_eq!(shown(), Some((82.into(), serde_json::json!(["ours/two"]), ingress, true)));
    patch(path.to_owned(), serde_json::json!({"metadata": {"finalizers": null}}));
    assert_eq!(shown(), None);
}
