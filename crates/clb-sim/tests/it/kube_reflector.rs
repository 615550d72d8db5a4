//! Whatever a real server could do to it, a reflector of `kube` comes to hold what the store has.

use std::collections::BTreeMap;
use std::time::Duration;

use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{ClusterConfig, Kind, KubeConfig, KubeSimulation, Request};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

const PATH: &str = "/api/v1/namespaces/default/services";

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8),
    Change(u8, u16),
    Delete(u8),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..6_u8).prop_map(Step::Create),
        3 => (0..6_u8, 0..9_u16).prop_map(|(name, value)| Step::Change(name, value)),
        2 => (0..6_u8).prop_map(Step::Delete),
        2 => (0..3_000_u64).prop_map(Step::Wait),
    ];
    vec(step, 1..50)
}

/// What can happen to lists and watches. Events that are left out are not among it: no real server forgets one.
fn faults() -> impl Strategy<Value = FaultPlan> {
    let how = prop_oneof![
        (0..4_usize).prop_map(How::EndWatch),
        Just(How::Gone),
        Just(How::Repeat),
        Just(How::LoseRequest),
        Just(How::LoseAnswer),
        (0..200_usize).prop_map(How::Truncate),
        (0..4_000_u64).prop_map(How::Delay),
        (0..6_u64).prop_map(How::Stale),
        (1..4_u64).prop_map(|seconds| How::Throttle { seconds }),
        Just(How::Refuse { status: 500, code: "InternalError".to_owned() }),
    ];
    vec((1..8_u64, how), 0..8).prop_map(|faults| {
        let plan = FaultPlan::new(0);
        faults.into_iter().fold(plan, |plan, (nth, how)| plan.with(When::Nth(nth), What::default(), how))
    })
}

fn write(simulation: &KubeSimulation, method: &str, path: String, body: Value) {
    let content_type = "application/merge-patch+json".to_owned();
    let method = method.to_owned();
    simulation.handle(&Request { method, path, body, content_type, ..Request::default() });
}

fn held(store: &Store<Service>) -> BTreeMap<String, Value> {
    let state = store.state();
    state.iter().map(|service| (service.name_any(), serde_json::to_value(&**service).unwrap())).collect()
}

fn stored(simulation: &KubeSimulation) -> BTreeMap<String, Value> {
    simulation.with_cluster(|cluster| {
        let services = cluster.objects(Kind::Service);
        let services = services.map(|object| serde_json::from_value::<Service>(object.clone()).unwrap());
        services.map(|service| (service.name_any(), serde_json::to_value(&service).unwrap())).collect()
    })
}

/// How long a client may take once nothing fails any more: as long as a watch that says nothing may last, and a retry.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(600);

async fn run(steps: Vec<Step>, faults: FaultPlan, history: usize, config: watcher::Config) {
    let config_of_kube = KubeConfig { cluster: ClusterConfig { history }, faults, ..KubeConfig::default() };
    let simulation = KubeSimulation::new(config_of_kube);
    let services: Api<Service> = Api::all(Client::new(simulation.router(), "default"));
    let (store, writer) = reflector::store();
    let reflecting = reflector::reflector(writer, watcher(services, config).default_backoff());
    let task = tokio::spawn(reflecting.for_each(|_| std::future::ready(())));
    for step in steps {
        let path = |name: u8| format!("{PATH}/s{name}");
        match step {
            Step::Create(name) => {
                let body =
                    json!({"metadata": {"name": format!("s{name}")}, "spec": {"ports": [{"port": 80}]}});
                write(&simulation, "POST", PATH.to_owned(), body);
            }
            Step::Change(name, value) => {
                let body = json!({"metadata": {"labels": {"value": value.to_string()}}});
                write(&simulation, "PATCH", path(name), body);
            }
            Step::Delete(name) => write(&simulation, "DELETE", path(name), Value::Null),
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    }
    simulation.set_faults(FaultPlan::default());
    tokio::time::sleep(CATCHES_UP_WITHIN).await;
    assert_eq!(held(&store), stored(&simulation));
    task.abort();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_reflector_comes_to_hold_what_the_store_has(
        steps in steps(), faults in faults(), history in 2..60_usize, is_streaming in any::<bool>(), page in 1..4_u32
    ) {
        let config = watcher::Config::default();
        let config = if is_streaming { config.streaming_lists() } else { config.page_size(page) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps, faults, history, config));
    }
}
