//! Whoever lists and then watches has what the store has, whatever is written and however the watch breaks.

use std::collections::BTreeMap;
use std::time::Duration;

use clb_sim::kube::{Answer, Cluster, ClusterConfig, Kind, Request, Watch};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

const PATH: &str = "/api/v1/namespaces/default/services";

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8),
    Label(u8, bool),
    Hold(u8, bool),
    Delete(u8),
    Hear,
    /// The watch ends, and begins anew where it was.
    Resume,
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..4_u8;
    let step = prop_oneof![
        3 => name().prop_map(Step::Create),
        3 => (name(), any::<bool>()).prop_map(|(name, on)| Step::Label(name, on)),
        2 => (name(), any::<bool>()).prop_map(|(name, on)| Step::Hold(name, on)),
        2 => name().prop_map(Step::Delete),
        2 => Just(Step::Hear),
        1 => Just(Step::Resume),
        1 => Just(Step::Relist),
    ];
    vec(step, 1..60)
}

fn query(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn send(cluster: &mut Cluster, method: &str, path: String, body: Value) -> Answer {
    let content_type = "application/merge-patch+json".to_owned();
    let method = method.to_owned();
    cluster.handle(&Request { method, path, body, content_type, ..Request::default() }, Duration::ZERO)
}

fn write(cluster: &mut Cluster, step: Step) {
    let path = |name: u8| format!("{PATH}/s{name}");
    let answer = match step {
        Step::Create(name) => {
            let body = json!({"metadata": {"name": format!("s{name}")}, "spec": {"ports": [{"port": 80}]}});
            send(cluster, "POST", PATH.to_owned(), body)
        }
        Step::Label(name, on) => {
            let pick = if on { json!("yes") } else { Value::Null };
            send(cluster, "PATCH", path(name), json!({"metadata": {"labels": {"pick": pick}}}))
        }
        Step::Hold(name, on) => {
            let finalizers = if on { json!(["x/y"]) } else { Value::Null };
            send(cluster, "PATCH", path(name), json!({"metadata": {"finalizers": finalizers}}))
        }
        Step::Delete(name) => send(cluster, "DELETE", path(name), Value::Null),
        Step::Hear | Step::Resume | Step::Relist => return,
    };
    let Answer::Body { status, .. } = answer else { panic!("{answer:?}") };
    assert!([200, 201, 404, 409, 422].contains(&status), "{answer:?}");
}

/// A client with a selector, or without one.
struct Client {
    selector: &'static str,
    held: BTreeMap<String, Value>,
    version: String,
    watch: Option<Watch>,
}

impl Client {
    fn list(&mut self, cluster: &mut Cluster) {
        self.held.clear();
        let mut token = String::new();
        loop {
            let query = query(&[("limit", "2"), ("continue", &token), ("labelSelector", self.selector)]);
            let request =
                Request { method: "GET".to_owned(), path: PATH.to_owned(), query, ..Request::default() };
            let Answer::Body { status: 200, body } = cluster.handle(&request, Duration::ZERO) else {
                panic!()
            };
            for item in body["items"].as_array().unwrap() {
                self.held.insert(item["metadata"]["name"].as_str().unwrap().to_owned(), item.clone());
            }
            self.version = body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let Some(next) = body["metadata"]["continue"].as_str() else { break };
            token = next.to_owned();
        }
        self.watch = None;
    }

    fn hear(&mut self, cluster: &mut Cluster) {
        let watch = self.watch.get_or_insert_with(|| {
            let query = query(&[
                ("watch", "1"),
                ("resourceVersion", &self.version),
                ("labelSelector", self.selector),
            ]);
            let request =
                Request { method: "GET".to_owned(), path: PATH.to_owned(), query, ..Request::default() };
            match cluster.handle(&request, Duration::ZERO) {
                Answer::Watch(watch) => watch,
                Answer::Body { .. } => panic!("no watch"),
            }
        });
        for event in cluster.poll(watch) {
            let (kind, mut object) = (event["type"].as_str().unwrap(), event["object"].clone());
            if kind == "ERROR" {
                assert_eq!(object["code"], 410);
                self.list(cluster);
                return self.hear(cluster);
            }
            self.version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            // Lists leave out what every item of theirs is.
            for field in ["kind", "apiVersion"] {
                object.as_object_mut().unwrap().remove(field);
            }
            let was_held = self.held.contains_key(&name);
            match kind {
                "ADDED" => {
                    assert!(!was_held, "{name} was added twice");
                    self.held.insert(name, object);
                }
                "MODIFIED" => {
                    assert!(was_held, "{name} was not there");
                    self.held.insert(name, object);
                }
                "DELETED" => {
                    assert!(was_held, "{name} was not there");
                    self.held.remove(&name);
                }
                other => panic!("{other}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn listing_and_watching_gives_what_the_store_has(steps in steps(), history in 1..40_usize) {
        let mut cluster = Cluster::new(ClusterConfig { history });
        let client = |selector| Client { selector, held: BTreeMap::new(), version: String::new(), watch: None };
        let mut clients = [client(""), client("pick=yes")];
        clients.iter_mut().for_each(|client| client.list(&mut cluster));
        for step in steps.into_iter().chain([Step::Hear]) {
            write(&mut cluster, step);
            for client in &mut clients {
                match step {
                    Step::Hear => client.hear(&mut cluster),
                    Step::Resume => client.watch = None,
                    Step::Relist => client.list(&mut cluster),
                    Step::Create(_) | Step::Label(..) | Step::Hold(..) | Step::Delete(_) => {}
                }
            }
        }
        let all: BTreeMap<String, Value> = cluster
            .objects(Kind::Service)
            .map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), object.clone()))
            .collect();
        let mut picked = all.clone();
        picked.retain(|_, object| object["metadata"]["labels"]["pick"] == "yes");
        prop_assert_eq!(&clients[0].held, &all);
        prop_assert_eq!(&clients[1].held, &picked);
    }
}
