//! What the controller relies on of an API server, asked of the simulated one over HTTP, and of a real one where there is one:
//! in the folder that the environment variable `KUBEBUILDER_ASSETS` names, as `setup-envtest` fills it.

mod home;
mod real;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clb_controller::convert::EGRESS_LABEL;
use clb_controller::kube::{Controller, ControllerConfig, Elector, WatchConfig, stray_pods, watch};
use clb_controller::lease::LeaseConfig;
use clb_controller::objects::{
    Condition, ConditionStatus, Event, EventKind, ObjectRef, ObjectWriter, POD_FINALIZER, PROGRAMMED,
    SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER,
};
use clb_controller::watched::WatchEvent;
use clb_controller::{Leadership, Stopped, WallClock};
use clb_difftracker::{Failure, FailureKind, Ip, Outcome, PodRequest, ServiceId, ServiceRequest, Success};
use clb_sim::kube::{KubeConfig, KubeSimulator};
use clb_sim::{Simulation, SimulatorConfig};
use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use kube::{Api, Resource};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch as channel};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::world::{Held, nrp_config, nrp_of};
use home::{Home, client, each, eventually};
use real::RealServer;

const SECOND: Duration = Duration::from_secs(1);

/// Each of these tests with a simulated server of its own, and all of them with one real server, which takes long to start.
macro_rules! conformance {
    ($($test:ident)*) => {
        mod simulated {
            $(
                #[tokio::test]
                async fn $test() {
                    super::on_simulated(super::$test).await;
                }
            )*
        }

        #[tokio::test]
        async fn a_real_api_server_does_all_that_the_simulated_one_does() {
            let server = match RealServer::start().await {
                Ok(server) => server,
                Err(why) => return println!("skipped: {why}"),
            };
            let mut namespaces = (0..).map(|number| format!("conformance-{number}"));
            $(
                println!("{}", stringify!($test));
                $test(Home::new(server.client.clone(), &namespaces.next().unwrap()).await).await;
            )*
        }
    };
}

conformance! {
    a_watch_lists_and_then_tells_each_change_and_what_is_not_selected_any_more
    finalizers_come_and_go_beside_those_of_others
    what_only_our_finalizers_hold_is_gone_without_them
    what_others_write_between_a_read_and_a_patch_is_kept
    an_address_is_set_and_cleared_beside_what_others_have
    conditions_are_written_beside_those_of_others
    an_event_told_again_counts_up
    a_lease_that_is_released_is_taken_over_at_once
    pods_that_hold_our_finalizer_without_the_label_are_found
    a_service_gets_an_address_and_leaves_nothing_when_it_goes
}

async fn on_simulated<F: Future<Output = ()>>(test: impl FnOnce(Home) -> F) {
    let server = KubeSimulator::start(KubeConfig::default()).await.unwrap();
    let client = client(&server.kubeconfig()).await.unwrap();
    test(Home::new(client, "conformance").await).await;
    server.shutdown().await;
}

fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<std::net::IpAddr>().unwrap())
}

/// Whether a write is known to have changed nothing, and why.
fn refused(outcome: Outcome) -> FailureKind {
    let Outcome::Failed(Failure { kind, .. }) = outcome else { panic!("{outcome:?}") };
    kind
}

fn strangers_uid() -> ServiceId {
    ServiceId::new("00000000-0000-0000-0000-000000000000").unwrap()
}

fn said(event: &WatchEvent<Service>) -> String {
    let name = |metadata: &kube::core::ObjectMeta| metadata.name.clone().unwrap();
    match event {
        WatchEvent::ListBegan => "began".to_owned(),
        WatchEvent::ListDone => "done".to_owned(),
        WatchEvent::Applied(object) => format!("applied {}", name(object.meta())),
        WatchEvent::Deleted(metadata) => format!("deleted {}", name(metadata)),
        WatchEvent::Malformed { metadata, error } => format!("malformed {}: {error}", name(metadata)),
        WatchEvent::Interrupted(why) => format!("interrupted: {why}"),
        WatchEvent::Resumed => "resumed".to_owned(),
    }
}

async fn a_watch_lists_and_then_tells_each_change_and_what_is_not_selected_any_more(home: Home) {
    let picked = || json!({"labels": {"pick": "yes"}});
    home.service("a", picked()).await;
    home.service("other", json!({})).await;
    let (heard, mut events) = mpsc::unbounded_channel();
    let (relist, asked) = channel::channel(0);
    let api: Api<DeserializeGuard<Service>> = Api::namespaced(home.client.clone(), &home.namespace);
    let sink = move |event: WatchEvent<Service>| {
        let told = heard.send(said(&event)).map_err(|_| Stopped);
        async move { told }
    };
    let watching =
        tokio::spawn(async move { watch(api, Some("pick=yes"), WatchConfig::default(), asked, sink).await });
    let mut next = async |count: usize| {
        let mut next = Vec::new();
        while next.len() < count {
            next.push(timeout(20 * SECOND, events.recv()).await.expect("something is told").unwrap());
        }
        next.join(", ")
    };
    assert_eq!(next(3).await, "began, applied a, done");
    home.service("b", picked()).await;
    assert_eq!(next(1).await, "applied b");
    let label = |value: Value| json!({"metadata": {"labels": {"pick": value}}});
    home.ask("PATCH", "services/a", label(Value::Null)).await;
    assert_eq!(next(1).await, "deleted a");
    home.ask("PATCH", "services/other", label(json!("yes"))).await;
    assert_eq!(next(1).await, "applied other");
    home.ask("DELETE", "services/b", Value::Null).await;
    assert_eq!(next(1).await, "deleted b");
    relist.send_replace(1);
    assert_eq!(next(3).await, "began, applied other, done");
    watching.abort();
}

async fn finalizers_come_and_go_beside_those_of_others(home: Home) {
    const THEIRS: &str = "example.com/theirs";
    let id = home.service("web", json!({"finalizers": [THEIRS]})).await;
    let (writer, key) = (home.writer(), home.key("web"));
    let stranger = writer.write_service(&strangers_uid(), &key, ServiceRequest::AddFinalizers).await;
    assert_eq!(refused(stranger), FailureKind::NotFound);
    for (request, expected) in [
        (ServiceRequest::AddFinalizers, &[THEIRS, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER][..]),
        (ServiceRequest::RemoveFinalizers, &[THEIRS]),
    ] {
        let outcome = writer.write_service(&id, &key, request).await;
        assert_eq!(outcome, home.written("services/web").await);
        assert_eq!(home.finalizers("services/web").await, expected);
        // Once more writes nothing.
        assert_eq!(writer.write_service(&id, &key, request).await, outcome);
    }
    let pod = home.pod("web-0", json!({"finalizers": [THEIRS]})).await;
    for (request, expected) in
        [(PodRequest::AddFinalizer, &[THEIRS, POD_FINALIZER][..]), (PodRequest::RemoveFinalizer, &[THEIRS])]
    {
        assert_eq!(writer.write_pod(&pod, request).await, home.written("pods/web-0").await);
        assert_eq!(home.finalizers("pods/web-0").await, expected);
    }
}

async fn what_only_our_finalizers_hold_is_gone_without_them(home: Home) {
    let (writer, key) = (home.writer(), home.key("web"));
    let id = home.service("web", json!({"finalizers": [SERVICE_FINALIZER]})).await;
    let pod = home.pod("web-0", json!({"finalizers": [POD_FINALIZER]})).await;
    for path in ["services/web", "pods/web-0"] {
        home.ask("DELETE", path, Value::Null).await;
        assert_ne!(home.get(path).await["metadata"]["deletionTimestamp"], Value::Null, "{path}");
    }
    // Nothing new is written on what is being deleted.
    let added = writer.write_service(&id, &key, ServiceRequest::AddFinalizers).await;
    assert_eq!(refused(added), FailureKind::Conflict);
    let removed = writer.write_service(&id, &key, ServiceRequest::RemoveFinalizers).await;
    assert!(matches!(removed, Outcome::Succeeded(Success::Written(_))), "{removed:?}");
    let removed = writer.write_pod(&pod, PodRequest::RemoveFinalizer).await;
    assert!(matches!(removed, Outcome::Succeeded(Success::Written(_))), "{removed:?}");
    assert!(home.is_gone("services/web").await);
    assert!(home.is_gone("pods/web-0").await);
    let again = writer.write_pod(&pod, PodRequest::RemoveFinalizer).await;
    assert_eq!(refused(again), FailureKind::NotFound);
}

async fn what_others_write_between_a_read_and_a_patch_is_kept(home: Home) {
    let id = home.service("web", json!({})).await;
    let late = json!({"metadata": {"finalizers": ["example.com/late"]}});
    let writer = home.writer_too_late("services/web", late);
    let outcome = writer.write_service(&id, &home.key("web"), ServiceRequest::AddFinalizers).await;
    assert_eq!(outcome, home.written("services/web").await);
    let all = ["example.com/late", SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER];
    assert_eq!(home.finalizers("services/web").await, all);
}

async fn an_address_is_set_and_cleared_beside_what_others_have(home: Home) {
    const INGRESS: &str = "/status/loadBalancer/ingress";
    let id = home.service("web", json!({})).await;
    let (writer, key) = (home.writer(), home.key("web"));
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "a.example.com"}]}}});
    home.ask("PATCH", "services/web/status", theirs).await;
    for (request, expected) in [
        (ServiceRequest::SetIngress(ip("20.0.0.1")), &["20.0.0.1"][..]),
        (ServiceRequest::SetIngress(ip("20.0.0.2")), &["20.0.0.2"]),
        (ServiceRequest::ClearIngress(ip("20.0.0.1")), &["20.0.0.2"]),
        (ServiceRequest::ClearIngress(ip("20.0.0.2")), &[]),
    ] {
        let outcome = writer.write_service(&id, &key, request).await;
        assert_eq!(outcome, home.written("services/web").await);
        assert_eq!(writer.write_service(&id, &key, request).await, outcome);
        let service = home.get("services/web").await;
        assert_eq!(each::<Vec<_>>(&service, INGRESS, "ip"), expected);
        assert_eq!(each::<Vec<_>>(&service, INGRESS, "hostname"), ["a.example.com"]);
    }
}

async fn conditions_are_written_beside_those_of_others(home: Home) {
    let id = home.service("web", json!({})).await;
    let pod = home.pod("web-0", json!({})).await;
    let theirs = json!({"type": "example.com/other", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z"});
    let service = ObjectRef::Service { id, key: home.key("web") };
    let writer = home.writer();
    for (object, path) in [(service, "services/web"), (ObjectRef::Pod(pod), "pods/web-0")] {
        let status = json!({"status": {"conditions": [theirs]}});
        home.ask("PATCH", &format!("{path}/status"), status).await;
        for status in [ConditionStatus::False, ConditionStatus::True] {
            let condition = Condition { status, reason: "Programmed".into(), message: "m".to_owned() };
            let outcome = writer.write_condition(&object, &condition).await;
            assert_eq!(outcome, home.written(path).await);
            // Once more writes nothing.
            assert_eq!(writer.write_condition(&object, &condition).await, outcome);
            let held = home.get(path).await;
            let entries = held["status"]["conditions"].as_array().unwrap();
            let said: BTreeSet<_> =
                entries.iter().map(|entry| (entry["type"].as_str(), entry["status"].as_str())).collect();
            let ours = (Some(PROGRAMMED), Some(status.as_str()));
            assert_eq!(said, [(Some("example.com/other"), Some("True")), ours].into(), "{path}");
        }
    }
}

async fn an_event_told_again_counts_up(home: Home) {
    let id = home.service("web", json!({})).await;
    let event = Event {
        about: ObjectRef::Service { id: id.clone(), key: home.key("web") },
        kind: EventKind::Warning,
        reason: "UnsupportedDualStack".into(),
        message: "two families".to_owned(),
    };
    for _ in 0..3 {
        assert_eq!(home.writer().write_event(&event).await, Outcome::Succeeded(Success::Done));
    }
    let events = home.get("events").await;
    let [told] = &events["items"].as_array().unwrap()[..] else { panic!("{events}") };
    assert_eq!(told["involvedObject"]["uid"], id.as_str());
    let said = ["type", "reason", "message"].map(|field| told[field].as_str().unwrap());
    assert_eq!(said, ["Warning", "UnsupportedDualStack", "two families"]);
    assert_eq!(told["count"], 3);
}

fn elector(home: &Home, identity: &str) -> (Elector, channel::Receiver<Leadership>) {
    let seed = identity.len() as u64;
    let mut config = LeaseConfig::new(home.namespace.as_str(), "leader", identity, seed);
    config.retry_period = SECOND;
    Elector::new(home.client.clone(), config, WallClock::system()).unwrap()
}

async fn leads(leadership: &mut channel::Receiver<Leadership>) -> Duration {
    let started = Instant::now();
    let led = leadership.wait_for(|told| told.term_at(Instant::now()).is_some());
    timeout(20 * SECOND, led).await.expect("it leads some time").unwrap();
    started.elapsed()
}

async fn a_lease_that_is_released_is_taken_over_at_once(home: Home) {
    let stop = CancellationToken::new();
    let (first, mut first_leads) = elector(&home, "first");
    let first = tokio::spawn(first.run(stop.clone()));
    leads(&mut first_leads).await;
    let (second, mut second_leads) = elector(&home, "second");
    let second = tokio::spawn(second.run(CancellationToken::new()));
    // Longer than the first one's next renewal takes to come.
    sleep(2 * SECOND).await;
    let leads_now = |leadership: &channel::Receiver<Leadership>| leadership.borrow().term_at(Instant::now());
    assert_eq!((leads_now(&first_leads), leads_now(&second_leads)), (Some(1), None));
    stop.cancel();
    first.await.unwrap();
    let took = leads(&mut second_leads).await;
    // A retry period with its jitter, and what the requests take; without the release it would be 15 s.
    assert!(took < 5 * SECOND, "{took:?}");
    let spec = home.get("leases/leader").await["spec"].take();
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("second"), &json!(1)));
    second.abort();
}

async fn pods_that_hold_our_finalizer_without_the_label_are_found(home: Home) {
    home.pod("watched", json!({"finalizers": [POD_FINALIZER], "labels": {EGRESS_LABEL: "gw"}})).await;
    home.pod("foreign", json!({"finalizers": ["example.com/theirs"]})).await;
    home.pod("plain", json!({})).await;
    let stray = home.pod("stray", json!({"finalizers": [POD_FINALIZER]})).await;
    let found = stray_pods(&home.client).await.unwrap();
    let here = found.iter().filter(|pod| pod.metadata.namespace.as_deref() == Some(&home.namespace));
    let uids: Vec<_> = here.filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    assert_eq!(uids, [stray.uid.as_str()]);
    // The controller of a later test is to find nothing of this one.
    for name in ["watched", "foreign", "plain", "stray"] {
        home.ask("PATCH", &format!("pods/{name}"), json!({"metadata": {"finalizers": null}})).await;
        home.ask("DELETE", &format!("pods/{name}"), Value::Null).await;
    }
}

async fn a_service_gets_an_address_and_leaves_nothing_when_it_goes(home: Home) {
    let azure = Simulation::new(SimulatorConfig::default());
    let nrp = nrp_of(&azure);
    let lease = LeaseConfig::new(home.namespace.as_str(), "controller", "one", 1);
    let config = ControllerConfig { lease: Some(lease), ..ControllerConfig::new("conformance", "one") };
    let controller =
        Controller::new(config, home.client.clone(), Arc::new(nrp.clone()), nrp_config()).unwrap();
    let mut status = controller.status();
    let stop = CancellationToken::new();
    let running = tokio::spawn(controller.run(stop.clone()));

    let node = format!("{}-node", home.namespace);
    home.ask("POST", "/api/v1/nodes", json!({"metadata": {"name": node}})).await;
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}});
    home.ask("PATCH", &format!("/api/v1/nodes/{node}/status"), addresses).await;
    let slice = json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.0.1"], "nodeName": node, "conditions": {"ready": true}}]});
    home.ask("POST", "endpointslices", slice).await;
    let id = home.service("web", json!({})).await;

    let uid = id.as_str().to_ascii_lowercase();
    let wanted = Held::inbound(&[(&uid, &[("10.244.0.1", "192.168.0.1")])]);
    eventually("what Azure holds", async || {
        let held = Held::read(&nrp).await;
        (wanted.addresses.is_subset(&held.addresses) && wanted.public_ips.is_subset(&held.public_ips))
            .then_some(())
    })
    .await;
    let service = eventually("the Service's condition", async || {
        let service = home.get("services/web").await;
        let programmed = json!([PROGRAMMED, "True"]);
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| json!([it["type"], it["status"]]) == programmed).then_some(service)
    })
    .await;
    let addresses: Vec<String> = each(&service, "/status/loadBalancer/ingress", "ip");
    assert_eq!(addresses.len(), 1, "{service}");
    assert_eq!(
        home.finalizers("services/web").await,
        [SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER].map(str::to_owned)
    );

    home.ask("DELETE", "services/web", Value::Null).await;
    eventually("the end of the Service", async || home.is_gone("services/web").await.then_some(())).await;
    let held = Held::read(&nrp).await;
    assert!(wanted.services.is_disjoint(&held.services), "{held:?}");
    assert!(wanted.public_ips.is_disjoint(&held.public_ips), "{held:?}");
    assert!(wanted.load_balancers.is_disjoint(&held.load_balancers), "{held:?}");
    assert!(wanted.addresses.is_disjoint(&held.addresses), "{held:?}");
    timeout(20 * SECOND, status.wait_for(|status| status.is_synced)).await.expect("it is in sync").unwrap();
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ok(0));
    assert_eq!(home.get("leases/controller").await["spec"]["holderIdentity"], Value::Null);
}
