#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is the point")]

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use clb_controller::admission::{
    Admission, AdmissionPolicy, IgnoredAnnotation, NamedPort, RejectionReason, SOURCE_ANNOTATIONS,
};
use clb_difftracker::{
    FrontendPort, IdleTimeout, Intent, IpFamily, LoadBalancerSpec, Protocol, Rejection, Rule,
};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

/// A Service that is admitted.
fn sound() -> Value {
    json!({
        "metadata": { "annotations": {} },
        "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"], "sessionAffinity": "None",
                  "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
    })
}

/// A Service that is [`sound`] but for these fields, given as JSON pointers.
fn service(changes: &[(&str, Value)]) -> Service {
    let mut service = sound();
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        service.pointer_mut(parent).unwrap()[field.replace("~1", "/")] = value.clone();
    }
    serde_json::from_value(service).unwrap()
}

fn admit(service: &Service) -> Intent {
    AdmissionPolicy::default().admit(service).intent
}

/// The rejection of a Service with these fields.
fn rejection(changes: &[(&str, Value)]) -> Rejection {
    match admit(&service(changes)) {
        Intent::Rejected(rejection) => rejection,
        other @ (Intent::LoadBalancer(_) | Intent::None) => panic!("{changes:?}: {other:?}"),
    }
}

fn assert_rejected(changes: &[(&str, Value)], reason: RejectionReason) {
    assert_eq!(rejection(changes), Rejection::from(reason));
}

/// The load balancer that a Service with these fields gets.
fn accepted(changes: &[(&str, Value)]) -> LoadBalancerSpec {
    match admit(&service(changes)) {
        Intent::LoadBalancer(load_balancer) => load_balancer,
        other @ (Intent::Rejected(_) | Intent::None) => panic!("{changes:?}: {other:?}"),
    }
}

fn rule(protocol: Protocol, frontend: u16, backend: u16) -> Rule {
    Rule {
        protocol,
        frontend_port: FrontendPort::new(frontend).unwrap(),
        backend_port: NonZeroU16::new(backend).unwrap(),
    }
}

fn plain(rules: &[Rule]) -> LoadBalancerSpec {
    LoadBalancerSpec::new(IpFamily::V4, IdleTimeout::default(), rules.to_vec()).unwrap()
}

const INTERNAL: &str = "/metadata/annotations/service.beta.kubernetes.io~1azure-load-balancer-internal";
const IDLE: &str = "/metadata/annotations/service.beta.kubernetes.io~1azure-load-balancer-tcp-idle-timeout";
const PORTS: &str = "/spec/ports";

#[test]
fn a_sound_service_gets_the_load_balancer_it_asks_for() {
    assert_eq!(accepted(&[]), plain(&[rule(Protocol::Tcp, 80, 8080)]));
}

#[test]
fn ad_01_an_internal_load_balancer_is_rejected() {
    for value in ["true", "TRUE", " true "] {
        assert_rejected(&[(INTERNAL, json!(value))], RejectionReason::Internal);
    }
    for value in ["false", ""] {
        accepted(&[(INTERNAL, json!(value))]);
    }
}

#[test]
fn ad_02_session_affinity_is_rejected() {
    let value = "ClientIP".to_owned();
    assert_rejected(&[("/spec/sessionAffinity", json!(value))], RejectionReason::SessionAffinity { value });
    for value in [json!("None"), json!(""), Value::Null] {
        accepted(&[("/spec/sessionAffinity", value)]);
    }
}

#[test]
fn ad_03_a_chosen_address_is_rejected() {
    let value = "20.1.2.3".to_owned();
    assert_rejected(&[("/spec/loadBalancerIP", json!(value))], RejectionReason::LoadBalancerIp { value });
    accepted(&[("/spec/loadBalancerIP", json!(""))]);
}

#[test]
fn ad_04_dual_stack_is_rejected() {
    for policy in ["PreferDualStack", "RequireDualStack"] {
        assert_rejected(
            &[("/spec/ipFamilies", json!(["IPv6", "IPv4"])), ("/spec/ipFamilyPolicy", json!(policy))],
            RejectionReason::DualStack { value: "IPv6, IPv4".to_owned() },
        );
        // On a cluster of one family, this is what PreferDualStack comes to.
        accepted(&[("/spec/ipFamilyPolicy", json!(policy))]);
    }
}

#[test]
fn sl_37_a_service_has_the_family_it_names_and_ipv4_where_it_names_none() {
    assert_eq!(accepted(&[("/spec/ipFamilies", json!(["IPv6"]))]).family(), IpFamily::V6);
    for none in [json!([]), Value::Null] {
        assert_eq!(accepted(&[("/spec/ipFamilies", none)]).family(), IpFamily::V4);
    }
    let value = "IPv5".to_owned();
    assert_rejected(&[("/spec/ipFamilies", json!([value]))], RejectionReason::IpFamily { value });
}

#[test]
fn ad_05_the_idle_timeout_is_4_to_30_whole_minutes() {
    for value in ["3", "31", "abc", "", "4.5", "260", "-4", "99999999999"] {
        let value = value.to_owned();
        assert_rejected(&[(IDLE, json!(value))], RejectionReason::IdleTimeout { value });
    }
    for (text, minutes) in [(" 10 ", 10), ("4", 4), ("30", 30)] {
        assert_eq!(accepted(&[(IDLE, json!(text))]).idle_timeout().minutes(), minutes);
    }
}

#[test]
fn ad_06_a_named_target_port_is_the_number_that_all_slices_agree_on() {
    let ports = json!([{ "port": 80 }, { "port": 81, "targetPort": "http" }]);
    assert_rejected(
        &[(PORTS, ports)],
        RejectionReason::UnresolvedTargetPort { index: 1, value: "http".to_owned() },
    );
    let ports = json!([{ "port": 80, "name": "web", "targetPort": "http" },
        { "port": 53, "name": "dns", "targetPort": "dns", "protocol": "UDP" }]);
    let port = |number| NonZeroU16::new(number).unwrap();
    let admit = |web: NamedPort| {
        let named = |name: &str, protocol| match (name, protocol) {
            ("web", Protocol::Tcp) => web.clone(),
            ("dns", Protocol::Udp) => NamedPort::Number(port(5353)),
            _ => NamedPort::Unknown,
        };
        AdmissionPolicy::default().admit_with(&service(&[(PORTS, ports.clone())]), &named).intent
    };
    let rules = [rule(Protocol::Tcp, 80, 8080), rule(Protocol::Udp, 53, 5353)];
    assert_eq!(admit(NamedPort::Number(port(8080))), Intent::LoadBalancer(plain(&rules)));
    let numbers: BTreeSet<_> = [8080, 8081].map(port).into();
    let several =
        RejectionReason::NamedTargetPort { index: 0, value: "http".to_owned(), numbers: numbers.clone() };
    assert!(several.to_string().contains("(8080, 8081)"), "{several}");
    assert_eq!(admit(NamedPort::Several(numbers)), Intent::Rejected(several.into()));
}

#[test]
fn ad_07_the_protocol_is_tcp_or_udp_in_any_casing() {
    let port = |protocol: Value| json!([{ "port": 53, "protocol": protocol }]);
    let cases = [
        (json!("tcp"), Protocol::Tcp),
        (json!(""), Protocol::Tcp),
        (Value::Null, Protocol::Tcp),
        (json!("UDP"), Protocol::Udp),
        (json!("Udp"), Protocol::Udp),
    ];
    for (protocol, expected) in cases {
        assert_eq!(accepted(&[(PORTS, port(protocol))]), plain(&[rule(expected, 53, 53)]));
    }
    let value = "SCTP".to_owned();
    assert_rejected(&[(PORTS, port(json!("SCTP")))], RejectionReason::Protocol { index: 0, value });
}

#[test]
fn ad_08_a_target_port_is_used_once_per_protocol() {
    let ports = |second: &str| json!([{ "port": 80, "targetPort": 8080 }, { "port": 81, "targetPort": 8080, "protocol": second }]);
    assert_rejected(
        &[(PORTS, ports("TCP"))],
        RejectionReason::BackendPortCollision {
            protocol: Protocol::Tcp,
            port: NonZeroU16::new(8080).unwrap(),
        },
    );
    assert_eq!(
        accepted(&[(PORTS, ports("UDP"))]),
        plain(&[rule(Protocol::Tcp, 80, 8080), rule(Protocol::Udp, 81, 8080)])
    );
}

#[test]
fn ad_09_an_absent_target_port_is_the_port() {
    for target in [Value::Null, json!(0), json!("")] {
        let ports = json!([{ "port": 443, "targetPort": target }]);
        assert_eq!(accepted(&[(PORTS, ports)]), plain(&[rule(Protocol::Tcp, 443, 443)]));
    }
}

#[test]
fn ad_10_and_ad_17_port_65535_is_for_backends_only() {
    let ports = json!([{ "port": 65534, "targetPort": 65535 }]);
    assert_eq!(accepted(&[(PORTS, ports)]), plain(&[rule(Protocol::Tcp, 65534, 65535)]));
    let value = NonZeroU16::new(65535).unwrap();
    for ports in [json!([{ "port": 65535 }]), json!([{ "port": 65535, "targetPort": 80 }])] {
        assert_rejected(&[(PORTS, ports)], RejectionReason::FrontendPort { index: 0, value });
    }
}

#[test]
fn a_number_that_is_no_port_is_rejected() {
    for value in [-1, 0, 65536, 70000, i32::MIN, i32::MAX] {
        assert_rejected(
            &[(PORTS, json!([{ "port": value, "targetPort": 80 }]))],
            RejectionReason::InvalidPort { index: 0, field: "port", value },
        );
    }
    for value in [-1, 65536, i32::MIN, i32::MAX] {
        assert_rejected(
            &[(PORTS, json!([{ "port": 80, "targetPort": value }]))],
            RejectionReason::InvalidPort { index: 0, field: "targetPort", value },
        );
    }
    let twice = json!([{ "port": 80, "targetPort": 1 }, { "port": 80, "targetPort": 2 }]);
    assert_rejected(
        &[(PORTS, twice)],
        RejectionReason::DuplicatePort { protocol: Protocol::Tcp, port: FrontendPort::new(80).unwrap() },
    );
}

#[test]
fn ad_12_and_sl_34_a_service_without_ports_is_rejected() {
    for ports in [json!([]), Value::Null] {
        assert_rejected(&[(PORTS, ports)], RejectionReason::NoPorts);
    }
}

#[test]
fn ad_16_and_sl_36_what_only_matters_on_nodes_is_accepted() {
    for policy in ["Cluster", "Local"] {
        accepted(&[("/spec/externalTrafficPolicy", json!(policy))]);
    }
    accepted(&[("/spec/allocateLoadBalancerNodePorts", json!(false))]);
}

#[test]
fn ad_18_source_ranges_are_rejected_rather_than_left_open() {
    accepted(&[("/spec/loadBalancerSourceRanges", json!([]))]);
    assert_rejected(
        &[("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"]))],
        RejectionReason::SourceRanges { field: "spec.loadBalancerSourceRanges" },
    );
    for (field, value) in
        SOURCE_ANNOTATIONS.into_iter().zip(["10.0.0.0/8", "10.0.0.0/8", "AzureCloud", "true"])
    {
        let annotation = format!("/metadata/annotations/{}", field.replace('/', "~1"));
        assert_rejected(&[(&annotation, json!(value))], RejectionReason::SourceRanges { field });
        accepted(&[(&annotation, json!(" "))]);
    }
}

#[test]
fn ad_18_other_azure_annotations_are_reported_and_nothing_more() {
    let name = |name: &str| format!("service.beta.kubernetes.io/{name}");
    let annotations = json!({
        name("azure-pip-name"): "mine",
        name("azure-load-balancer-tcp-idle-timeout"): "5",
        name("azure-load-balancer-internal"): "false",
        name("azure-dns-label-name"): "shop",
        "example.com/azure-something": "else",
    });
    let with = |type_: &str| {
        service(&[("/metadata/annotations", annotations.clone()), ("/spec/type", json!(type_))])
    };
    let idle_timeout = IdleTimeout::from_minutes(5).unwrap();
    let rules = vec![rule(Protocol::Tcp, 80, 8080)];
    assert_eq!(
        AdmissionPolicy::default().admit(&with("LoadBalancer")),
        Admission {
            intent: Intent::LoadBalancer(LoadBalancerSpec::new(IpFamily::V4, idle_timeout, rules).unwrap()),
            ignored: vec![
                IgnoredAnnotation { name: name("azure-dns-label-name") },
                IgnoredAnnotation { name: name("azure-pip-name") },
            ],
        }
    );
    assert_eq!(
        AdmissionPolicy::default().admit(&with("ClusterIP")),
        Admission { intent: Intent::None, ignored: Vec::new() }
    );
}

#[test]
fn ad_19_no_more_ports_than_azure_has_rules() {
    let ports = |count: usize| json!((1..=count).map(|port| json!({ "port": port })).collect::<Vec<_>>());
    assert_eq!(accepted(&[(PORTS, ports(1500))]).rules().len(), 1500);
    assert_rejected(&[(PORTS, ports(1501))], RejectionReason::TooManyPorts { count: 1501 });
}

/// Each fault is put right in turn; the reasons then appear in the order of the rules.
#[test]
fn the_first_rule_that_is_broken_is_the_one_reported() {
    let many = || (1..=1501).map(|port| json!({ "port": port }));
    // The ports' faults stand in the reverse order of the rules.
    let ports = |faults: Vec<Value>| json!(many().skip(faults.len()).chain(faults).collect::<Vec<_>>());
    let collision = json!({ "port": 2000, "targetPort": 1000 });
    let frontend = json!({ "port": 65535 });
    let protocol = json!({ "port": 2001, "protocol": "SCTP" });
    let named = json!({ "port": 2002, "targetPort": "http" });
    let mut faults = vec![
        (INTERNAL, json!("true")),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/loadBalancerIP", json!("20.1.2.3")),
        (PORTS, json!([])),
        ("/spec/ipFamilies", json!(["IPv4", "IPv6"])),
        (IDLE, json!("3")),
        (PORTS, ports(vec![collision.clone(), frontend.clone(), protocol.clone(), named])),
        (PORTS, ports(vec![collision.clone(), frontend.clone(), protocol])),
        (PORTS, ports(vec![collision.clone(), frontend])),
        (PORTS, ports(vec![collision])),
        (PORTS, ports(vec![])),
        ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
    ];
    // The last change of a field would win, and here the first that is left shall.
    faults.reverse();
    let mut seen = Vec::new();
    while !faults.is_empty() {
        seen.push(rejection(&faults).reason);
        faults.pop();
    }
    assert_eq!(
        seen,
        [
            "UnsupportedInternalLoadBalancer",
            "UnsupportedSessionAffinity",
            "UnsupportedLoadBalancerIP",
            "NoPorts",
            "UnsupportedDualStack",
            "InvalidIdleTimeout",
            "UnresolvedTargetPort",
            "UnsupportedProtocol",
            "UnsupportedFrontendPort",
            "UnsupportedBackendPortCollision",
            "TooManyPorts",
            "UnsupportedSourceRanges",
        ]
    );
}

#[test]
fn sl_24_and_sl_27_only_a_living_service_of_type_load_balancer_is_wanted() {
    for type_ in [json!("ClusterIP"), json!("NodePort"), json!("ExternalName"), Value::Null] {
        assert_eq!(admit(&service(&[("/spec/type", type_)])), Intent::None);
    }
    for internal in ["false", "true"] {
        let deleted = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert_eq!(admit(&service(&[deleted, (INTERNAL, json!(internal))])), Intent::None);
    }
    assert_eq!(admit(&Service::default()), Intent::None);
}

#[test]
fn sl_33_a_service_of_another_class_is_not_ours() {
    let ours = |policy: &AdmissionPolicy, class: Value| {
        policy.admit(&service(&[("/spec/loadBalancerClass", class)])).intent != Intent::None
    };
    let default = AdmissionPolicy::default();
    assert!(ours(&default, Value::Null));
    assert!(ours(&default, json!("azure.com/container-load-balancer")));
    assert!(!ours(&default, json!("example.com/lb")));
    let narrow = AdmissionPolicy { without_class: false, classes: ["example.com/lb".to_owned()].into() };
    assert!(ours(&narrow, json!("example.com/lb")));
    assert!(!ours(&narrow, json!("example.com/other")));
    assert!(!ours(&narrow, Value::Null));
}

#[test]
fn a_rejection_names_the_field_the_value_and_the_way_out() {
    assert_eq!(
        rejection(&[(PORTS, json!([{ "port": 65535 }]))]),
        Rejection {
            reason: "UnsupportedFrontendPort".into(),
            message: "spec.ports[0].port is 65535, on which Azure cannot listen; use 1 to 65534".to_owned(),
        }
    );
}
