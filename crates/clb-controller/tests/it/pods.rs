//! Pods, finalizers and status as the tracker is told of them.

use clb_controller::admission::AdmissionPolicy;
use clb_controller::convert::{Converted, EGRESS_LABEL, Problem, pod_applied, pod_gone, service_applied};
use clb_difftracker::{
    Change, EgressName, EgressNameError, Endpoint, Finalizers, Ip, NodeName, ObjectKey, Pod, PodRef,
    ResourceVersion, Uid,
};
use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

fn pod_ref() -> PodRef {
    PodRef { uid: Uid::new("u-1"), key: ObjectKey::new("shop", "web-0") }
}

fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<std::net::IpAddr>().unwrap())
}

/// A running pod with a label and an address, with these parts replaced.
fn read(parts: &Value) -> core::Pod {
    let mut pod = json!({
        "metadata": {
            "namespace": "shop", "name": "web-0", "uid": "u-1", "resourceVersion": "77",
            "labels": {EGRESS_LABEL: "Team-A"}
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "FD00::1"}]}
    });
    merge(&mut pod, parts);
    serde_json::from_value(pod).unwrap()
}

fn merge(into: &mut Value, parts: &Value) {
    for (key, part) in parts.as_object().unwrap() {
        if part.is_object() && into[key].is_object() {
            merge(&mut into[key], part);
        } else {
            into[key] = part.clone();
        }
    }
}

fn converted(parts: &Value) -> (Pod, Vec<Problem>) {
    match pod_applied(&read(parts)).unwrap() {
        Converted { change: Change::PodApplied(pod), problems } => (pod, problems),
        Converted { change, .. } => panic!("{change:?}"),
    }
}

#[test]
fn eg_01_a_pod_leaves_through_what_its_label_names_from_all_its_addresses() {
    let endpoint = |address| Endpoint::ready(ip(address), NodeName::new("n1"));
    let expected = Pod {
        pod: pod_ref(),
        version: ResourceVersion::new(77),
        egress: Some(EgressName::new("team-a").unwrap()),
        is_live: true,
        endpoints: [endpoint("10.0.0.1"), endpoint("fd00::1")].into_iter().collect(),
        has_finalizer: false,
    };
    assert_eq!(converted(&json!({})), (expected, vec![]));
    assert_eq!(pod_gone(&read(&json!({}))), Ok(Change::PodGone(pod_ref())));
}

#[test]
fn eg_02_and_eg_36_a_pod_counts_from_its_first_address_to_its_end() {
    for (parts, is_live, endpoints) in [
        (json!({"status": {"podIPs": []}}), false, 0),
        (json!({"spec": {"nodeName": null}}), false, 0),
        (json!({"status": {"phase": "Pending"}}), true, 2),
        (json!({"status": {"phase": "Succeeded"}}), false, 2),
        (json!({"status": {"phase": "Failed"}}), false, 2),
        // Its node is lost: nothing leaves from there, but it may come back.
        (json!({"status": {"phase": "Unknown"}}), true, 0),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false, 2),
    ] {
        let (pod, problems) = converted(&parts);
        let is = (pod.is_live, pod.endpoints.as_slice().len(), problems);
        assert_eq!(is, (is_live, endpoints, vec![]), "{parts}");
    }
}

#[test]
fn eg_03_eg_04_and_eg_33_a_label_that_names_nothing_is_a_problem_unless_it_is_empty() {
    for (label, error) in [
        ("", None),
        ("a b", Some(EgressNameError::Malformed)),
        ("Default-NatGw", Some(EgressNameError::Reserved)),
    ] {
        let (pod, problems) = converted(&json!({"metadata": {"labels": {EGRESS_LABEL: label}}}));
        let expected: Vec<_> =
            error.map(|error| Problem::BadEgress { value: label.to_owned(), error }).into_iter().collect();
        assert_eq!((pod.egress, problems), (None, expected), "{label:?}");
    }
}

#[test]
fn eg_05_a_malformed_address_is_reported_and_the_others_count() {
    let (pod, problems) = converted(&json!({"status": {"podIPs": [{"ip": "10.0.0"}, {"ip": "10.0.0.2"}]}}));
    assert_eq!(pod.endpoints.as_slice(), [Endpoint::ready(ip("10.0.0.2"), NodeName::new("n1"))]);
    assert_eq!(problems, [Problem::BadPodAddress { index: 0, address: "10.0.0".to_owned() }]);
}

#[test]
fn an_object_says_which_of_our_finalizers_and_addresses_it_has() {
    let pod = |finalizers: Value| converted(&json!({"metadata": {"finalizers": finalizers}})).0.has_finalizer;
    assert!(pod(json!(["x", "servicegateway.azure.com/pod-cleanup"])));
    assert!(!pod(json!(["x"])));
    let service = |finalizers: Value, ingress: Value| {
        let service = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u-2", "resourceVersion": "x", "finalizers": finalizers},
            "status": {"loadBalancer": {"ingress": ingress}}
        });
        let service: core::Service = serde_json::from_value(service).unwrap();
        match service_applied(&AdmissionPolicy::default(), &service).unwrap() {
            Converted { change: Change::ServiceApplied(service), problems } => {
                assert_eq!(service.version, ResourceVersion::default(), "one that is no number is not known");
                (service.finalizers, service.ingress, problems)
            }
            Converted { change, .. } => panic!("{change:?}"),
        }
    };
    let (own, upstream) =
        ("servicegateway.azure.com/service-cleanup", "service.kubernetes.io/load-balancer-cleanup");
    assert_eq!(service(json!([own, upstream]), json!([])), (Finalizers::Complete, vec![], vec![]));
    assert_eq!(service(json!([own]), json!([])), (Finalizers::Partial, vec![], vec![]));
    assert_eq!(service(json!([upstream]), json!([])), (Finalizers::None, vec![], vec![]));
    let ingress = json!([{"hostname": "h"}, {"ip": "20.0.0.1"}, {"ip": "?"}]);
    let bad = Problem::BadIngress { index: 2, address: "?".to_owned() };
    assert_eq!(service(json!([]), ingress), (Finalizers::None, vec![ip("20.0.0.1")], vec![bad]));
}
