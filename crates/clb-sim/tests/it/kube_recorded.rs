//! What a real API server answered, asked of the simulated one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clb_sim::kube::{Answer, Cluster, ClusterConfig, Request};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/recordings/raw"))
}

/// The answers that are left out, and why.
const LEFT_OUT: [(&str, &str); 12] = [
    ("forbidden-403", "no credentials are asked for"),
    ("unauthorized-401", "no credentials are asked for"),
    ("endpoints-list-deprecated-200", "Endpoints are not modelled"),
    ("watch-gone-410-compacted", "the history here is not compacted while it is recorded"),
    ("watch-cached-compacted-still-served", "the events of a run that was not recorded"),
    ("watch-selector-added-modified-deleted", "the events of a run that was not recorded"),
    ("watch-gone-410", "the server was restarted"),
    ("watch-gone-410-nodes", "the server was restarted"),
    ("watch-bookmark", "only a server with a clock sends bookmarks"),
    ("list-continue-expired-410", "the server was restarted"),
    ("list-exact-compacted-410", "the server was restarted"),
    ("list-rv-old-notolderthan-200", "the server was restarted"),
];

struct Replay {
    cluster: Cluster,
    /// Recorded uids and versions, and what they are here.
    ours: BTreeMap<String, String>,
}

fn request(method: &str, path: &str, content_type: &str, body: Value) -> Request {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pair =
        |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.replace("%3D", "=")));
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.split('&').filter_map(pair).collect(),
        content_type: content_type.to_owned(),
        accept: String::new(),
        body,
    }
}

impl Replay {
    fn send(&mut self, method: &str, path: &str, content_type: &str, body: Value) -> (u16, Vec<Value>) {
        match self
            .cluster
            .handle(&request(method, path, content_type, body), Duration::from_secs(1_796_191_602))
        {
            Answer::Body { status, body } => (status, vec![body]),
            Answer::Watch(mut watch) => (200, self.cluster.poll(&mut watch)),
        }
    }

    fn prepare(&mut self, method: &str, path: &str, body: Value) -> Value {
        let (status, mut body) = self.send(method, path, "application/json", body);
        assert!(status < 300, "{method} {path}: {body:?}");
        body.remove(0)
    }

    /// What was done between the requests that were recorded.
    fn set_up(&mut self, file: &str) {
        let service = |name: &str| {
            json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "selector": {"app": name},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
        };
        let namespace = |name: &str| json!({"metadata": {"name": name}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "image": "i"}]}});
        match file {
            "create-service-201" => drop(self.prepare("POST", "/api/v1/namespaces", namespace("raw"))),
            "delete-wrong-uid-precondition-409" => {
                let web = self.prepare("POST", "/api/v1/namespaces/raw/services", service("web"));
                // The second Service of that name, as the recorded answer names it.
                let recorded = json!({"metadata": {"uid": "9fe8d545-907a-4498-a605-9640b00ac3b7"}});
                self.learn(&recorded, &web);
            }
            "pod-unscheduled-get-200" => drop(self.prepare("POST", "/api/v1/namespaces/raw/pods", pod)),
            "binding-again-409" => {
                let target = json!({"target": {"name": "aks-pool1-12345678-vmss00000l"}});
                self.prepare("POST", "/api/v1/namespaces/raw/pods/p/binding", target);
            }
            "list-page1-200" => {
                for name in ["s0", "s1", "s2", "s3", "s4"] {
                    self.prepare("POST", "/api/v1/namespaces/raw/services", service(name));
                }
            }
            "binding-201" => {
                self.prepare("POST", "/api/v1/namespaces", namespace("raw2"));
                self.prepare("POST", "/api/v1/namespaces/raw2/pods", pod);
            }
            _ => {}
        }
    }

    /// Learns what a recorded object's identity is here.
    fn learn(&mut self, recorded: &Value, ours: &Value) {
        for pointer in ["/metadata/uid", "/metadata/resourceVersion", "/metadata/continue"] {
            if let (Some(recorded), Some(ours)) = (
                recorded.pointer(pointer).and_then(Value::as_str),
                ours.pointer(pointer).and_then(Value::as_str),
            ) {
                self.ours.insert(recorded.to_owned(), ours.to_owned());
            }
        }
    }

    fn translated(&self, text: &str) -> String {
        self.ours
            .iter()
            .filter(|(recorded, _)| recorded.len() > 3)
            .fold(text.to_owned(), |text, (recorded, ours)| text.replace(recorded.as_str(), ours))
    }
}

/// Takes away what is different in every run, and in pods what the scheduler, admission and defaults of containers add.
fn normal(mut value: Value) -> Value {
    if value["kind"] == "Pod" {
        return json!({"kind": "Pod", "name": value["metadata"]["name"],
            "deleting": value["metadata"].get("deletionGracePeriodSeconds")});
    }
    if let Some(message) = value["message"].as_str().and_then(|message| message.split_once(", current: ")) {
        value["message"] = json!(message.0);
    }
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for varying in [
                "managedFields",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "deletionTimestamp",
                "clusterIP",
                "clusterIPs",
                "nodePort",
                "continue",
            ] {
                map.remove(varying);
            }
            if map.contains_key("generateName") {
                map.remove("name");
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_recorded_request_is_answered_as_the_real_server_did() {
    let Ok(index) = std::fs::read_to_string(folder().join("index.json")) else {
        eprintln!("skipped: the recordings are not there");
        return;
    };
    let index: Vec<Value> = serde_json::from_str(&index).unwrap();
    let mut replay = Replay { cluster: Cluster::new(ClusterConfig::default()), ours: BTreeMap::new() };
    let (mut compared, mut different) = (0, Vec::new());
    for entry in &index {
        let name = entry["file"].as_str().unwrap().trim_end_matches(".json");
        replay.set_up(name);
        if LEFT_OUT.iter().any(|(left_out, _)| *left_out == name) {
            continue;
        }
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let body: Value =
            serde_json::from_str(&replay.translated(&entry["requestBody"].to_string())).unwrap();
        let path = replay.translated(text("path"));
        let (status, ours) = replay.send(text("method"), &path, text("requestContentType"), body);
        let recorded = std::fs::read_to_string(folder().join(text("file"))).unwrap();
        let recorded: Vec<Value> =
            serde_json::Deserializer::from_str(&recorded).into_iter().map(Result::unwrap).collect();
        if let ([recorded], [ours]) = (&recorded[..], &ours[..]) {
            replay.learn(recorded, ours);
        }
        let recorded: Vec<Value> = recorded
            .into_iter()
            .map(|body| normal(serde_json::from_str(&replay.translated(&body.to_string())).unwrap()))
            .collect();
        let ours: Vec<Value> = ours.into_iter().map(normal).collect();
        if (u64::from(status), &ours) != (entry["status"].as_u64().unwrap(), &recorded) {
            different.push(format!(
                "{name}\n  ours: {status} {ours:?}\n  recorded: {} {recorded:?}",
                entry["status"]
            ));
        }
        compared += 1;
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert_eq!(compared + LEFT_OUT.len(), index.len());
}
