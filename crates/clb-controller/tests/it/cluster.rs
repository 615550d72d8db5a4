//! What objects of a cluster mean together: named ports, nodes out of reach, readiness gates, what cannot be read.

use std::time::Duration;

use clb_controller::admission::AdmissionPolicy;
use clb_controller::cluster::{ClusterView, Report};
use clb_controller::nodes::Anticipation;
use clb_controller::objects::{Condition, ConditionStatus};
use clb_controller::readiness::ReadinessConfig;
use clb_controller::watched::{WatchEvent, Watched};
use clb_difftracker::{
    Change, Condition as EndpointCondition, Intent, Ip, Kind, ObjectKey, ObjectName, PodRef, Programmed,
    ServiceId, Timestamp, Uid,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const UID: &str = "00000000-0000-0000-0000-000000000001";
const HOLD: Duration = Duration::from_secs(300);

struct World {
    view: ClusterView,
    now: Timestamp,
}

fn world() -> World {
    let config = ReadinessConfig { hold: HOLD, gate_timeout: Duration::from_secs(600) };
    let view = ClusterView::new(AdmissionPolicy::default(), config, Anticipation::Off);
    World { view, now: Timestamp::default() }
}

fn typed<K: DeserializeOwned>(value: Value) -> Box<K> {
    Box::new(serde_json::from_value(value).unwrap())
}

fn metadata(value: Value) -> Box<ObjectMeta> {
    typed(value)
}

impl World {
    fn tell(&mut self, watched: Watched) -> Vec<Change> {
        self.view.handle_watched(watched, self.now);
        std::iter::from_fn(|| self.view.poll_change()).collect()
    }

    fn pass(&mut self, time: Duration) -> Vec<Change> {
        self.now = self.now.after(time);
        self.view.handle_timeout(self.now);
        std::iter::from_fn(|| self.view.poll_change()).collect()
    }

    fn reports(&mut self) -> Vec<String> {
        let said = |report| match report {
            Report::Event(event) => format!("{} {}: {}", event.reason, event.about, event.message),
            Report::Skipped { kind, error } => format!("{kind}: {error}"),
        };
        std::iter::from_fn(|| self.view.poll_report()).map(said).collect()
    }

    fn node(&mut self, name: &str, ready: &str) -> Vec<Change> {
        self.tell(Watched::Nodes(WatchEvent::Applied(typed(json!({
            "metadata": {"name": name, "uid": format!("node-{name}")},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}],
                "conditions": [{"type": "Ready", "status": ready}]}
        })))))
    }

    fn service(&mut self, target_port: Value) -> Vec<Change> {
        self.tell(Watched::Services(WatchEvent::Applied(typed(json!({
            "metadata": {"namespace": "ns", "name": "svc", "uid": UID},
            "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "selector": {"app": "a"},
                "ports": [{"name": "web", "port": 80, "targetPort": target_port}]}
        })))))
    }

    fn slice(&mut self, name: &str, port: u16, endpoints: &[Value]) -> Vec<Change> {
        self.tell(Watched::EndpointSlices(WatchEvent::Applied(typed(json!({
            "metadata": {"namespace": "ns", "name": name, "labels": {"kubernetes.io/service-name": "svc"}},
            "addressType": "IPv4", "ports": [{"name": "web", "protocol": "TCP", "port": port}],
            "endpoints": endpoints
        })))))
    }
}

/// An endpoint on a node, of the pod of the same number.
fn endpoint(number: u8, node: &str, ready: bool) -> Value {
    json!({"addresses": [format!("10.0.0.{number}")], "nodeName": node,
        "conditions": {"ready": ready, "serving": ready, "terminating": false},
        "targetRef": {"kind": "Pod", "uid": format!("pod-{number}")}})
}

/// The endpoints that a change tells, each with its condition.
fn told(changes: &[Change]) -> Vec<(String, EndpointCondition)> {
    let slices = changes.iter().filter_map(|change| match change {
        Change::EndpointSliceApplied(slice) => Some(slice),
        Change::ServiceApplied(_)
        | Change::ServiceGone(_)
        | Change::EndpointSliceGone(_)
        | Change::PodApplied(_)
        | Change::PodGone(_)
        | Change::NodeApplied(_)
        | Change::NodeGone(_)
        | Change::Unreadable(_)
        | Change::ResyncBegin(_)
        | Change::ResyncDone(_) => None,
    });
    let endpoints = slices.flat_map(|slice| slice.endpoints.as_slice());
    endpoints.map(|endpoint| (endpoint.address.to_string(), endpoint.condition)).collect()
}

/// The backend ports of a Service that a change tells, or why it gets none.
fn ports(changes: &[Change]) -> Vec<Result<u16, String>> {
    let services = changes.iter().filter_map(|change| match change {
        Change::ServiceApplied(service) => Some(&service.intent),
        Change::EndpointSliceApplied(_)
        | Change::ServiceGone(_)
        | Change::EndpointSliceGone(_)
        | Change::PodApplied(_)
        | Change::PodGone(_)
        | Change::NodeApplied(_)
        | Change::NodeGone(_)
        | Change::Unreadable(_)
        | Change::ResyncBegin(_)
        | Change::ResyncDone(_) => None,
    });
    let port = |intent: &Intent| match intent {
        Intent::LoadBalancer(spec) => Ok(spec.rules()[0].backend_port.get()),
        Intent::Rejected(rejection) => Err(rejection.reason.to_string()),
        Intent::None => Err("none".to_owned()),
    };
    services.map(port).collect()
}

use EndpointCondition::{Ready, Unreachable};

fn ep(number: u8, condition: EndpointCondition) -> (String, EndpointCondition) {
    (format!("10.0.0.{number}"), condition)
}

#[test]
fn ad_06_a_named_target_port_follows_what_the_slices_say() {
    let mut world = world();
    let unresolved = || Err("UnresolvedTargetPort".to_owned());
    let several = || Err("UnsupportedNamedTargetPort".to_owned());
    assert_eq!(ports(&world.service(json!("http"))), [unresolved()]);
    assert_eq!(ports(&world.slice("a", 8080, &[endpoint(1, "n1", true)])), [Ok(8080)]);
    // Another set of pods has another number, but none of them is ready.
    assert_eq!(ports(&world.slice("b", 9090, &[endpoint(2, "n1", false)])), [Ok(8080)]);
    assert_eq!(ports(&world.slice("b", 9090, &[endpoint(2, "n1", true)])), [several()]);
    assert_eq!(ports(&world.slice("a", 8080, &[])), [Ok(9090)]);
    let gone = json!({"namespace": "ns", "name": "b", "labels": {"kubernetes.io/service-name": "svc"}});
    let changes = world.tell(Watched::EndpointSlices(WatchEvent::Deleted(metadata(gone))));
    assert_eq!(ports(&changes), [unresolved()]);
    // A number needs no slice, and slices then say nothing of it.
    assert_eq!(ports(&world.service(json!(7070))), [Ok(7070)]);
    assert_eq!(ports(&world.slice("a", 8080, &[endpoint(1, "n1", true)])), []);
}

#[test]
fn a_slice_that_comes_before_its_service_tells_the_number_all_the_same() {
    let mut world = world();
    world.slice("a", 8080, &[endpoint(1, "n1", true)]);
    assert_eq!(ports(&world.service(json!("http"))), [Ok(8080)]);
    // A list that lacks the slice takes its word away.
    world.tell(Watched::EndpointSlices(WatchEvent::ListBegan));
    let changes = world.tell(Watched::EndpointSlices(WatchEvent::ListDone));
    assert_eq!(ports(&changes), [Err("UnresolvedTargetPort".to_owned())]);
}

#[test]
fn endpoints_that_are_lost_with_their_nodes_are_kept_for_a_while() {
    let mut world = world();
    world.service(json!(80));
    world.node("n1", "True");
    world.node("n2", "True");
    let all = [endpoint(1, "n1", true), endpoint(2, "n2", true), endpoint(3, "n2", false)];
    assert_eq!(told(&world.slice("a", 80, &all)), [ep(1, Ready), ep(2, Ready)]);
    world.node("n1", "Unknown");
    world.node("n2", "Unknown");
    assert_eq!(world.reports(), Vec::<String>::new());
    // The third was not ready before, so it is not kept.
    let lost = [1, 2, 3].map(|number| endpoint(number, if number == 1 { "n1" } else { "n2" }, false));
    assert_eq!(told(&world.slice("a", 80, &lost)), [ep(1, Unreachable), ep(2, Unreachable)]);
    let kept = world.reports();
    assert!(
        kept[0].starts_with("EndpointsKept Service ns/svc: no endpoint is ready, and 2 became"),
        "{kept:?}"
    );
    assert_eq!(kept.len(), 1);
    // One node is back: what was lost there was lost for another reason.
    assert_eq!(told(&world.node("n1", "True")), [ep(2, Unreachable)]);
    assert_eq!(told(&world.node("n1", "Unknown")), [ep(1, Unreachable), ep(2, Unreachable)]);
    assert_eq!(world.view.poll_timeout(), Some(Timestamp::default().after(HOLD)));
    assert_eq!(world.pass(HOLD - Duration::from_millis(1)), []);
    let changes = world.pass(Duration::from_millis(1));
    assert_eq!((told(&changes), changes.len()), (vec![], 1));
    assert_eq!(world.view.poll_timeout(), None);
}

#[test]
fn an_endpoint_that_was_lost_long_before_its_node_is_not_kept() {
    let mut world = world();
    world.node("n1", "True");
    world.slice("a", 80, &[endpoint(1, "n1", true)]);
    assert_eq!(told(&world.slice("a", 80, &[endpoint(1, "n1", false)])), []);
    world.pass(Duration::from_secs(11));
    assert_eq!(told(&world.node("n1", "Unknown")), []);
    // But news of both may come in any order.
    assert_eq!(told(&world.node("n1", "True")), []);
    world.slice("a", 80, &[endpoint(1, "n1", true)]);
    world.slice("a", 80, &[endpoint(1, "n1", false)]);
    world.pass(Duration::from_secs(9));
    assert_eq!(told(&world.node("n1", "Unknown")), [ep(1, Unreachable)]);
    // A node that is gone is not waited for.
    let changes = world.tell(Watched::Nodes(WatchEvent::Deleted(metadata(json!({"name": "n1"})))));
    assert_eq!(told(&changes), []);
    assert!(changes.contains(&Change::NodeGone(clb_difftracker::NodeName::new("n1"))));
}

impl World {
    fn gated(&mut self, number: u8, containers_ready: bool, programmed: Option<&str>) -> Vec<Change> {
        let mut conditions = vec![
            json!({"type": "ContainersReady", "status": if containers_ready { "True" } else { "False" }}),
        ];
        conditions
            .extend(programmed.map(|status| json!({"type": "clb.azure.com/programmed", "status": status})));
        self.gated_pod(number, json!(conditions), json!([{"ip": format!("10.0.0.{number}")}]))
    }

    fn gated_pod(&mut self, number: u8, conditions: Value, ips: Value) -> Vec<Change> {
        self.tell(Watched::GatedPods(WatchEvent::Applied(typed(json!({
            "metadata": {"namespace": "ns", "name": format!("p{number}"), "uid": format!("pod-{number}"),
                "labels": {"app": "a", "clb.azure.com/readiness-gate": "enabled"}},
            "spec": {"containers": [], "readinessGates": [{"conditionType": "clb.azure.com/programmed"}]},
            "status": {"phase": "Running", "podIPs": ips, "conditions": conditions}
        })))))
    }

    /// What is decided for pods, where these addresses are acknowledged for the Service.
    fn decided(&mut self, acknowledged: &[&str]) -> Vec<(String, ConditionStatus, String)> {
        let service = ServiceId::new(UID).unwrap();
        let programmed = |ip: Ip| {
            let is_there = acknowledged.contains(&ip.to_string().as_str());
            let names = |yes: bool| if yes { vec![service.clone()] } else { Vec::new() };
            Programmed { acknowledged: names(is_there), awaited: Vec::new() }
        };
        let decided = self.view.pod_conditions(programmed).into_iter();
        decided
            .map(|(pod, Condition { status, reason, .. }): (PodRef, Condition)| {
                (pod.key.name, status, reason.into_owned())
            })
            .collect()
    }
}

#[test]
fn a_gated_pod_counts_when_it_is_ready_but_for_us_and_is_told_when_azure_has_it() {
    let mut world = world();
    world.service(json!(80));
    world.node("n1", "True");
    world.gated(1, false, None);
    assert_eq!(told(&world.slice("a", 80, &[endpoint(1, "n1", false)])), []);
    assert_eq!(world.decided(&[]), []);
    assert_eq!(told(&world.gated(1, true, None)), [ep(1, Ready)]);
    // It waits for the Service that selects it, though the tracker may not have heard of its slice.
    assert_eq!(world.decided(&[]), []);
    let programmed = ("p1".to_owned(), ConditionStatus::True, "Programmed".to_owned());
    assert_eq!(world.decided(&["10.0.0.1"]), [programmed]);
    // Once is enough.
    assert_eq!(world.decided(&["10.0.0.1"]), []);
    assert_eq!(told(&world.gated(1, true, Some("True"))), []);
    assert_eq!(world.decided(&["10.0.0.1"]), []);
    // Its containers fail, and it counts as unready as any other.
    assert_eq!(told(&world.gated(1, false, Some("True"))), []);
    assert_eq!(told(&world.slice("a", 80, &[endpoint(1, "n1", false)])), []);
    // It comes back with another address, which nobody has yet.
    let conditions = json!([{"type": "ContainersReady", "status": "True"},
        {"type": "clb.azure.com/programmed", "status": "True"}]);
    world.gated_pod(1, conditions, json!([{"ip": "10.0.0.9"}]));
    let moved = ("p1".to_owned(), ConditionStatus::False, "AddressChanged".to_owned());
    assert_eq!(world.decided(&["10.0.0.1"]), [moved]);
    let programmed = ("p1".to_owned(), ConditionStatus::True, "Programmed".to_owned());
    assert_eq!(world.decided(&["10.0.0.9"]), [programmed]);
}

#[test]
fn a_gated_pod_does_not_wait_for_ever_nor_for_services_that_do_not_select_it() {
    let mut world = world();
    world.gated(1, true, None);
    // There is no Service at all.
    let programmed = ("p1".to_owned(), ConditionStatus::True, "Programmed".to_owned());
    assert_eq!(world.decided(&[]), [programmed]);
    world.service(json!(80));
    world.gated(2, true, None);
    assert_eq!(world.decided(&[]), []);
    assert_eq!(world.view.poll_timeout(), Some(Timestamp::from_millis(600_000)));
    world.pass(Duration::from_secs(600));
    let late = ("p2".to_owned(), ConditionStatus::True, "TimedOut".to_owned());
    assert_eq!(world.decided(&[]), [late]);
}

#[test]
fn the_label_without_the_gate_and_pods_that_go_do_nothing() {
    let mut world = world();
    world.node("n1", "True");
    world.tell(Watched::GatedPods(WatchEvent::Applied(typed(json!({
        "metadata": {"namespace": "ns", "name": "p1", "uid": "pod-1"},
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "ContainersReady", "status": "True"}]}
    })))));
    assert_eq!(told(&world.slice("a", 80, &[endpoint(1, "n1", false)])), []);
    assert_eq!(told(&world.gated(1, true, None)), [ep(1, Ready)]);
    let gone = metadata(json!({"namespace": "ns", "name": "p1", "uid": "pod-1"}));
    let changes = world.tell(Watched::GatedPods(WatchEvent::Deleted(gone)));
    assert_eq!((told(&changes), changes.len()), (vec![], 1));
    assert_eq!(world.decided(&[]), []);
    // A list that lacks it says the same.
    assert_eq!(told(&world.gated(1, true, None)), [ep(1, Ready)]);
    world.tell(Watched::GatedPods(WatchEvent::ListBegan));
    let changes = world.tell(Watched::GatedPods(WatchEvent::ListDone));
    assert_eq!((told(&changes), changes.len()), (vec![], 1));
}

#[test]
fn an_object_that_cannot_be_read_is_named_and_stays() {
    let mut world = world();
    let malformed = |value| (metadata(value), "invalid type: string".to_owned());
    let (at, error) = malformed(json!({"namespace": "ns", "name": "svc", "uid": UID}));
    let service = ObjectName::Service(ServiceId::new(UID).unwrap());
    assert_eq!(
        world.tell(Watched::Services(WatchEvent::Malformed { metadata: at, error })),
        [Change::Unreadable(service)]
    );
    let (at, error) = malformed(json!({"namespace": "ns", "name": "a"}));
    assert_eq!(
        world.tell(Watched::EndpointSlices(WatchEvent::Malformed { metadata: at, error })),
        [Change::Unreadable(ObjectName::EndpointSlice(ObjectKey::new("ns", "a")))]
    );
    let (at, error) = malformed(json!({"namespace": "ns", "name": "p", "uid": "u"}));
    let pod = PodRef { uid: Uid::new("u"), key: ObjectKey::new("ns", "p") };
    assert_eq!(
        world.tell(Watched::Pods(WatchEvent::Malformed { metadata: at, error })),
        [Change::Unreadable(ObjectName::Pod(pod))]
    );
    let reports = world.reports();
    assert_eq!(
        reports[0],
        "Service: the Service ns/svc cannot be read, and what is known of it stays: invalid type: string"
    );
    assert_eq!(reports.len(), 3);
    // One that is readable and makes no sense stays as well.
    let strange =
        typed(json!({"metadata": {"namespace": "ns", "name": "a"}, "addressType": "IPX", "endpoints": []}));
    let changes = world.tell(Watched::EndpointSlices(WatchEvent::Applied(strange)));
    assert_eq!(changes, [Change::Unreadable(ObjectName::EndpointSlice(ObjectKey::new("ns", "a")))]);
}

#[test]
fn a_node_that_cannot_be_read_stays_where_it_is_through_a_list() {
    let mut world = world();
    world.node("n1", "Unknown");
    world.tell(Watched::Nodes(WatchEvent::ListBegan));
    let at = metadata(json!({"name": "n1"}));
    world.tell(Watched::Nodes(WatchEvent::Malformed { metadata: at, error: String::new() }));
    let changes = world.tell(Watched::Nodes(WatchEvent::ListDone));
    assert_eq!(changes.last(), Some(&Change::ResyncDone(Kind::Node)));
    assert!(
        changes
            .iter()
            .any(|change| matches!(change, Change::NodeApplied(node) if node.name.as_str() == "n1"))
    );
}

#[test]
fn eg_03_to_eg_06_what_is_wrong_with_a_pod_is_told_on_it() {
    let mut world = world();
    world.node("n1", "True");
    let pod = |label: &str, ips: Value| {
        Watched::Pods(WatchEvent::Applied(typed(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u",
                "labels": {"kubernetes.azure.com/service-egress-gateway": label}},
            "spec": {"containers": [], "nodeName": "n1"}, "status": {"phase": "Running", "podIPs": ips}
        }))))
    };
    let mut reasons = |watched| {
        world.tell(watched);
        let reports = world.reports();
        reports.into_iter().map(|report| report.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let good = json!([{"ip": "10.0.0.1"}]);
    assert_eq!(reasons(pod("-bad-", good.clone())), ["ServiceGatewayInvalidEgressLabel"]);
    assert_eq!(reasons(pod("Default-NatGw", good.clone())), ["ServiceGatewayReservedEgressLabel"]);
    assert_eq!(reasons(pod("gw", json!([{"ip": "10.0.0.1"}, {"ip": "x"}]))), ["ServiceGatewayInvalidPodIP"]);
    assert_eq!(reasons(pod("gw", json!([{"ip": "fd00::1"}]))), ["ServiceGatewayNoNodeLocation"]);
    assert_eq!(reasons(pod("gw", good)), Vec::<String>::new());
}
