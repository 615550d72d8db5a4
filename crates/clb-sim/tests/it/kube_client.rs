//! `kube::Client`, unchanged, over loopback HTTP and without a socket.

use std::fmt::Debug;
use std::pin::pin;

use clb_sim::fault::{FaultPlan, How, What, When};
use clb_sim::kube::{KubeConfig, KubeSimulation, KubeSimulator};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, VersionMatch, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Client, Config, Error, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The same check by both ways into the simulator.
async fn everywhere(faults: FaultPlan, check: impl AsyncFn(Client, KubeSimulation)) {
    let config = KubeConfig { faults, ..KubeConfig::default() };
    let inside = KubeSimulation::new(config.clone());
    check(Client::new(inside.router(), "default"), inside).await;
    let served = KubeSimulator::start(config).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&served.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    check(Client::try_from(config).unwrap(), (*served).clone()).await;
    served.shutdown().await;
}

fn typed<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn service(name: &str) -> Service {
    typed(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}))
}

async fn create(services: &Api<Service>, names: &[&str]) {
    for name in names {
        services.create(&PostParams::default(), &service(name)).await.unwrap();
    }
}

fn names<K: ResourceExt>(items: &[K]) -> Vec<String> {
    items.iter().map(ResourceExt::name_any).collect()
}

fn refused<T: Debug>(result: Result<T, Error>) -> Status {
    match result {
        Err(Error::Api(status)) => *status,
        other => panic!("not a refusal: {other:?}"),
    }
}

fn said<K: ResourceExt>(event: WatchEvent<K>) -> String {
    match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(bookmark) => format!("bookmark {}", bookmark.metadata.resource_version),
        WatchEvent::Error(error) => format!("error {}", error.code),
    }
}

async fn next<K: ResourceExt>(
    events: &mut (impl Stream<Item = Result<WatchEvent<K>, Error>> + Unpin),
) -> String {
    said(events.next().await.unwrap().unwrap())
}

#[tokio::test]
async fn every_kind_is_created_read_replaced_and_deleted() {
    async fn round<K>(api: Api<K>, object: Value)
    where
        K: kube::Resource + Clone + Debug + DeserializeOwned + serde::Serialize,
    {
        let created = api.create(&PostParams::default(), &typed(object)).await.unwrap();
        let name = created.name_any();
        let mut read = api.get(&name).await.unwrap();
        read.labels_mut().insert("a".to_owned(), "b".to_owned());
        let replaced = api.replace(&name, &PostParams::default(), &read).await.unwrap();
        assert_eq!((&replaced.labels()["a"], replaced.uid()), (&"b".to_owned(), created.uid()));
        api.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
        assert!(api.get_opt(&name).await.unwrap().is_none());
    }
    everywhere(FaultPlan::default(), async |client, _| {
        let all = || client.clone();
        round::<Namespace>(Api::all(all()), json!({"metadata": {"name": "n"}})).await;
        round::<Node>(Api::all(all()), json!({"metadata": {"name": "n"}})).await;
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        round::<Pod>(Api::default_namespaced(all()), pod).await;
        round::<Service>(Api::default_namespaced(all()), serde_json::to_value(service("s")).unwrap()).await;
        let slice = json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []});
        round::<EndpointSlice>(Api::default_namespaced(all()), slice).await;
        let event = json!({"metadata": {"name": "v"}, "involvedObject": {"kind": "Service", "name": "s"}});
        round::<Event>(Api::default_namespaced(all()), event).await;
        round::<Lease>(Api::default_namespaced(all()), json!({"metadata": {"name": "l"}, "spec": {}})).await;
    })
    .await;
}

#[tokio::test]
async fn lists_come_in_pages_of_one_version_and_by_selector() {
    everywhere(FaultPlan::default(), async |client, simulation| {
        let services: Api<Service> = Api::default_namespaced(client.clone());
        create(&services, &["a", "b", "c"]).await;
        let version = simulation.with_cluster(|cluster| cluster.version()).to_string();
        let first = services.list(&ListParams::default().limit(2)).await.unwrap();
        assert_eq!(
            (names(&first.items), first.metadata.remaining_item_count),
            (vec!["a".to_owned(), "b".to_owned()], Some(1))
        );
        create(&services, &["d"]).await;
        let token = first.metadata.continue_.unwrap();
        let second = services.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
        assert_eq!(names(&second.items), ["c"]);
        assert_eq!(second.metadata.resource_version, Some(version.clone()));
        assert_eq!(second.metadata.continue_, None);
        let exact = ListParams::default().at(&version).matching(VersionMatch::Exact);
        assert_eq!(names(&services.list(&exact).await.unwrap().items), ["a", "b", "c"]);
        let by_name = services.list(&ListParams::default().fields("metadata.name=b")).await.unwrap();
        assert_eq!(names(&by_name.items), ["b"]);
        let all: Api<Service> = Api::all(client.clone());
        assert_eq!(
            names(&all.list(&ListParams::default().labels("!x")).await.unwrap().items),
            ["a", "b", "c", "d"]
        );
    })
    .await;
}

#[tokio::test]
async fn a_watch_tells_what_happens_and_ends_when_it_was_told_to() {
    everywhere(FaultPlan::default(), async |client, simulation| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["a"]).await;
        let version = simulation.with_cluster(|cluster| cluster.version()).to_string();
        let mut events = pin!(services.watch(&WatchParams::default().timeout(290), &version).await.unwrap());
        create(&services, &["b"]).await;
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        services.patch("a", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        services.delete("b", &DeleteParams::default()).await.unwrap();
        for expected in ["added b", "modified a", "deleted b"] {
            assert_eq!(next(&mut events).await, expected);
        }
        let version = simulation.with_cluster(|cluster| cluster.version()).to_string();
        let ended = services.watch(&WatchParams::default().timeout(0), &version).await.unwrap();
        assert_eq!(ended.try_collect::<Vec<_>>().await.unwrap().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_streaming_list_ends_its_first_events_with_a_bookmark() {
    everywhere(FaultPlan::default(), async |client, simulation| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["a", "b"]).await;
        let version = simulation.with_cluster(|cluster| cluster.version());
        let mut events = pin!(services.watch(&WatchParams::streaming_lists(), "0").await.unwrap());
        for expected in ["added a", "added b"] {
            assert_eq!(next(&mut events).await, expected);
        }
        let WatchEvent::Bookmark(bookmark) = events.next().await.unwrap().unwrap() else { panic!() };
        assert_eq!(bookmark.metadata.resource_version, version.to_string());
        assert_eq!(bookmark.metadata.annotations["k8s.io/initial-events-end"], "true");
        create(&services, &["c"]).await;
        assert_eq!(next(&mut events).await, "added c");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_hears_a_bookmark_every_minute() {
    let simulation = KubeSimulation::new(KubeConfig::default());
    let services: Api<Service> = Api::default_namespaced(Client::new(simulation.router(), "default"));
    create(&services, &["a"]).await;
    let version = simulation.with_cluster(|cluster| cluster.version()).to_string();
    let started = tokio::time::Instant::now();
    let mut events = pin!(services.watch(&WatchParams::default(), &version).await.unwrap());
    for minute in 1..=3 {
        assert_eq!(next(&mut events).await, format!("bookmark {version}"));
        assert_eq!(started.elapsed().as_secs(), 60 * minute);
    }
}

#[tokio::test]
async fn metadata_alone_is_listed_read_watched_and_patched() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["a"]).await;
        let listed = services.list_metadata(&ListParams::default()).await.unwrap();
        assert_eq!(names(&listed.items), ["a"]);
        assert_eq!(listed.items[0].types.as_ref().unwrap().kind, "PartialObjectMetadata");
        assert_eq!(services.get_metadata("a").await.unwrap().metadata, listed.items[0].metadata);
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        let patched =
            services.patch_metadata("a", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        assert_eq!(patched.labels()["x"], "y");
        let mut events = pin!(services.watch_metadata(&WatchParams::default(), "0").await.unwrap());
        assert_eq!(next(&mut events).await, "added a");
    })
    .await;
}

#[tokio::test]
async fn objects_are_patched_in_every_way() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["a"]).await;
        let ports = |service: Service| -> Vec<(i32, Option<String>)> {
            let ports = service.spec.unwrap().ports.unwrap();
            ports.into_iter().map(|port| (port.port, port.name)).collect()
        };
        let by = PatchParams::default();
        let named = |name: &str| Some(name.to_owned());
        let merge = json!({"spec": {"ports": [{"port": 81, "name": "web"}]}});
        assert_eq!(
            ports(services.patch("a", &by, &Patch::Merge(&merge)).await.unwrap()),
            [(81, named("web"))]
        );
        let strategic = json!({"spec": {"ports": [{"port": 82, "name": "more"}]}});
        let patched = services.patch("a", &by, &Patch::Strategic(&strategic)).await.unwrap();
        assert_eq!(ports(patched), [(81, named("web")), (82, named("more"))]);
        let operations = json!([{"op": "test", "path": "/spec/ports/0/port", "value": 81},
            {"op": "remove", "path": "/spec/ports/0"}]);
        let patched = services.patch("a", &by, &Patch::Json::<()>(typed(operations.clone()))).await.unwrap();
        assert_eq!(ports(patched), [(82, named("more"))]);
        let again = refused(services.patch("a", &by, &Patch::Json::<()>(typed(operations))).await);
        assert_eq!((again.code, again.reason.as_str()), (422, "Invalid"));
        let dry = PatchParams::default().dry_run();
        services.patch("a", &dry, &Patch::Merge(&merge)).await.unwrap();
        assert_eq!(ports(services.get("a").await.unwrap()), [(82, named("more"))]);
    })
    .await;
}

#[tokio::test]
async fn a_status_is_written_by_itself() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        let balanced =
            json!({"metadata": {"name": "a"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &typed(balanced)).await.unwrap();
        let address = |service: &Service| -> Option<String> {
            service.status.clone()?.load_balancer?.ingress?.first()?.ip.clone()
        };
        let status = json!({"metadata": {"labels": {"not": "this"}},
            "status": {"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}}});
        let by = PatchParams::default();
        let through_main =
            services.patch("a", &by, &Patch::Merge(&json!({"status": status["status"]}))).await.unwrap();
        assert_eq!(address(&through_main), None);
        let patched = services.patch_status("a", &by, &Patch::Merge(&status)).await.unwrap();
        assert_eq!((address(&patched), patched.labels().len()), (Some("20.0.0.1".to_owned()), 0));
        let mut read = services.get_status("a").await.unwrap();
        assert_eq!(address(&read), Some("20.0.0.1".to_owned()));
        read.status = None;
        let replaced = services.replace_status("a", &PostParams::default(), &read).await.unwrap();
        assert_eq!(address(&replaced), None);
    })
    .await;
}

#[tokio::test]
async fn a_finalizer_holds_what_is_deleted_and_takes_no_company() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        let held =
            json!({"metadata": {"name": "a", "finalizers": ["x.y/z"]}, "spec": {"ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &typed(held)).await.unwrap();
        let deleted = services.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
        assert!(deleted.metadata.deletion_timestamp.is_some());
        let by = PatchParams::default();
        let more = json!({"metadata": {"finalizers": ["x.y/z", "v.w/u"]}});
        let status = refused(services.patch("a", &by, &Patch::Merge(&more)).await);
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        let none = json!({"metadata": {"finalizers": null}});
        services.patch("a", &by, &Patch::Merge(&none)).await.unwrap();
        assert_eq!(refused(services.get("a").await).code, 404);
    })
    .await;
}

#[tokio::test]
async fn preconditions_and_old_versions_are_conflicts() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["a"]).await;
        let old = services.get("a").await.unwrap();
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        services.patch("a", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        let reason = |status: Status| (status.code, status.reason);
        let conflict = (409, "Conflict".to_owned());
        assert_eq!(reason(refused(services.replace("a", &PostParams::default(), &old).await)), conflict);
        for preconditions in [
            Preconditions { resource_version: old.resource_version(), uid: None },
            Preconditions { resource_version: None, uid: Some("other".to_owned()) },
        ] {
            let wrong = DeleteParams::default().preconditions(preconditions);
            assert_eq!(reason(refused(services.delete("a", &wrong).await)), conflict);
        }
        let right = Preconditions { resource_version: None, uid: old.uid() };
        services.delete("a", &DeleteParams::default().preconditions(right)).await.unwrap();
        create(&services, &["b"]).await;
        let twice = refused(services.create(&PostParams::default(), &service("b")).await);
        assert_eq!(reason(twice), (409, "AlreadyExists".to_owned()));
        let invalid = typed(json!({"metadata": {"name": "c"}, "spec": {"ports": []}}));
        let invalid = refused(services.create(&PostParams::default(), &invalid).await);
        assert_eq!(invalid.message, "Service \"c\" is invalid: spec.ports: Required value");
        assert_eq!(reason(invalid), (422, "Invalid".to_owned()));
    })
    .await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["a", "b", "c"]).await;
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        for name in ["a", "c"] {
            services.patch(name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        }
        let picked = ListParams::default().labels("x=y");
        let deleted = services.delete_collection(&DeleteParams::default(), &picked).await.unwrap();
        assert_eq!(names(&deleted.left().unwrap().items), ["a", "c"]);
        assert_eq!(names(&services.list(&ListParams::default()).await.unwrap().items), ["b"]);
    })
    .await;
}

#[tokio::test]
async fn versions_that_are_too_old_or_too_new_are_refused() {
    let cluster = clb_sim::kube::ClusterConfig { history: 2 };
    let simulation = KubeSimulation::new(KubeConfig { cluster, ..KubeConfig::default() });
    let services: Api<Service> = Api::default_namespaced(Client::new(simulation.router(), "default"));
    create(&services, &["a", "b", "c", "d"]).await;
    let mut events = pin!(services.watch(&WatchParams::default(), "1").await.unwrap());
    assert_eq!(next(&mut events).await, "error 410");
    assert!(events.next().await.is_none());
    let exact = ListParams::default().at("1").matching(VersionMatch::Exact);
    let old = refused(services.list(&exact).await);
    assert_eq!((old.code, old.reason.as_str()), (410, "Expired"));
    let new =
        refused(services.list(&ListParams::default().at("999").matching(VersionMatch::NotOlderThan)).await);
    assert_eq!((new.code, new.reason.as_str()), (504, "Timeout"));
}

#[tokio::test]
async fn a_throttled_client_hears_429_in_the_servers_words() {
    let faults = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Throttle { seconds: 7 });
    let simulation = KubeSimulation::new(KubeConfig { faults, ..KubeConfig::default() });
    let services: Api<Service> = Api::default_namespaced(Client::new(simulation.router(), "default"));
    // The real server's filters send no `Status`, so that the client makes one up.
    let status = refused(services.get("a").await);
    assert_eq!((status.code, status.message.as_str()), (429, "Too many requests, please try again later."));
}

#[tokio::test]
async fn calls_are_told_as_they_take_effect() {
    let faults = FaultPlan::new(0).with(When::Nth(1), What::verb("DELETE"), How::LoseAnswer);
    let simulation = KubeSimulation::new(KubeConfig { faults, ..KubeConfig::default() });
    let mut calls = simulation.subscribe();
    let services: Api<Service> = Api::default_namespaced(Client::new(simulation.router(), "default"));
    create(&services, &["a"]).await;
    services.delete("a", &DeleteParams::default()).await.unwrap_err();
    let mut told = || {
        let call = calls.try_recv().unwrap();
        (call.call.verb, call.status, call.fault)
    };
    assert_eq!(told(), ("POST".to_owned(), 201, None));
    assert_eq!(told(), ("DELETE".to_owned(), 0, Some(How::LoseAnswer)));
}

#[tokio::test]
async fn a_strategic_patch_of_a_pods_status_sets_one_condition_among_others() {
    everywhere(FaultPlan::default(), async |client, simulation| {
        simulation.with_cluster(|cluster| {
            let pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            cluster.load(&pod).unwrap();
        });
        let pods: Api<Pod> = Api::default_namespaced(client);
        let mut version = simulation.with_cluster(|cluster| cluster.version());
        for status in ["False", "True"] {
            let patch = json!({"status": {"conditions": [{"type": "x/a", "status": status, "reason": "R"}]}});
            let patched = pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(&patch)).await;
            let conditions = serde_json::to_value(patched.unwrap().status.unwrap().conditions).unwrap();
            let expected = json!([{"type": "Ready", "status": "True"}, {"type": "x/a", "status": status, "reason": "R"}]);
            assert_eq!(conditions, expected);
            // What says nothing new changes nothing.
            pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
            version += 1;
            assert_eq!(simulation.with_cluster(|cluster| cluster.version()), version);
        }
    })
    .await;
}

#[tokio::test]
async fn conditions_of_a_service_are_applied_by_their_types() {
    everywhere(FaultPlan::default(), async |client, _| {
        let services: Api<Service> = Api::default_namespaced(client);
        create(&services, &["s"]).await;
        let condition = |of: &str, status: &str| {
            json!({"type": of, "status": status, "reason": "R", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"})
        };
        let apply = async |manager: &str, conditions: Value| {
            let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                "status": {"conditions": conditions}});
            let applied = services.patch_status("s", &PatchParams::apply(manager), &Patch::Apply(&body)).await;
            applied.map(|service| serde_json::to_value(service.status.unwrap().conditions).unwrap())
        };
        let (a, b) = (condition("x/a", "True"), condition("y/b", "True"));
        assert_eq!(apply("me", json!([a])).await.unwrap(), json!([a]));
        assert_eq!(apply("you", json!([b])).await.unwrap(), json!([a, b]));
        let changed = condition("x/a", "False");
        assert_eq!(apply("me", json!([changed])).await.unwrap(), json!([changed, b]));
        assert_eq!(refused(apply("you", json!([a, b])).await).code, 409);
        // A condition goes with whoever no longer applies it.
        assert_eq!(apply("me", json!([])).await.unwrap(), json!([b]));
    })
    .await;
}
