#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is the point")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use clb_controller::admission::{AdmissionPolicy, IgnoredAnnotation};
use clb_controller::convert::{
    ConvertError, Converted, Fault, Problem, endpoint_slice_applied, endpoint_slice_gone, node_applied,
    node_gone, service_applied, service_gone,
};
use clb_difftracker::{
    Change, Endpoint, EndpointSlice, Endpoints, IdError, Intent, Ip, IpFamily, Kind, Node, NodeName,
    ObjectKey, Service, ServiceId, ServiceRef,
};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

fn ip(text: &str) -> Ip {
    Ip::from(text.parse::<IpAddr>().unwrap())
}

fn id(text: &str) -> ServiceId {
    ServiceId::new(text).unwrap()
}

fn slice_key() -> ObjectKey {
    ObjectKey::new("shop", "web-x7")
}

/// A slice of the Service `shop/web` that is otherwise like this.
fn slice(address_type: &str, endpoints: &Value) -> discovery::EndpointSlice {
    object(json!({
        "metadata": { "namespace": "shop", "name": "web-x7", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": address_type,
        "endpoints": endpoints,
    }))
}

fn applied(endpoints: &[(&str, &str)], problems: Vec<Problem>) -> Result<Converted, ConvertError> {
    let endpoints =
        endpoints.iter().map(|(address, node)| Endpoint::ready(ip(address), NodeName::new(*node)));
    Ok(Converted {
        change: Change::EndpointSliceApplied(EndpointSlice {
            key: slice_key(),
            service: ServiceRef::Name(ObjectKey::new("shop", "web")),
            endpoints: endpoints.collect(),
        }),
        problems,
    })
}

fn change(change: Change) -> Result<Converted, ConvertError> {
    Ok(Converted { change, problems: Vec::new() })
}

#[test]
fn a_service_is_known_by_its_uid_in_lower_case() {
    let service: core::Service =
        object(json!({ "metadata": { "namespace": "shop", "name": "web", "uid": "5DEC-A" } }));
    let key = ObjectKey::new("shop", "web");
    assert_eq!(
        service_applied(&AdmissionPolicy::default(), &service),
        change(Change::ServiceApplied(Service::new(id("5dec-a"), key, Intent::None)))
    );
    assert_eq!(service_gone(&service), Ok(Change::ServiceGone(id("5dec-a"))));
}

#[test]
fn ad_18_what_a_service_is_not_given_is_a_problem() {
    let name = "service.beta.kubernetes.io/azure-pip-name";
    let service: core::Service = object(json!({
        "metadata": { "namespace": "shop", "name": "web", "uid": "a", "annotations": { name: "mine" } },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    }));
    let converted = service_applied(&AdmissionPolicy::default(), &service).unwrap();
    assert_eq!(converted.problems, [Problem::IgnoredAnnotation(IgnoredAnnotation { name: name.to_owned() })]);
    let Change::ServiceApplied(Service { intent: Intent::LoadBalancer(_), .. }) = converted.change else {
        panic!("{:?}", converted.change);
    };
}

#[test]
fn an_object_without_an_identity_is_skipped_by_name() {
    let error =
        |kind, object: &str, field, fault| ConvertError { kind, object: object.to_owned(), field, fault };
    let service = |metadata: Value| {
        let service = object(json!({ "metadata": metadata }));
        service_applied(&AdmissionPolicy::default(), &service).unwrap_err()
    };
    let missing = |object, field| error(Kind::Service, object, field, Fault::Missing);
    let cases = [
        (json!({ "namespace": "shop", "name": "web" }), missing("shop/web", "metadata.uid")),
        (json!({ "namespace": "shop", "name": "web", "uid": "" }), missing("shop/web", "metadata.uid")),
        (json!({ "namespace": "shop", "uid": "a" }), missing("shop/?", "metadata.name")),
        (json!({ "name": "web", "uid": "a" }), missing("?/web", "metadata.namespace")),
        (
            json!({ "namespace": "shop", "name": "web", "uid": "a/b" }),
            error(
                Kind::Service,
                "shop/web",
                "metadata.uid",
                Fault::BadUid(IdError::BadCharacter { character: '/' }),
            ),
        ),
    ];
    for (metadata, expected) in cases {
        assert_eq!(service(metadata), expected);
    }

    let slice: discovery::EndpointSlice =
        object(json!({ "metadata": { "name": "web-x7" }, "addressType": "IPv4", "endpoints": [] }));
    let expected = error(Kind::EndpointSlice, "?/web-x7", "metadata.namespace", Fault::Missing);
    assert_eq!(endpoint_slice_applied(&slice), Err(expected.clone()));
    assert_eq!(endpoint_slice_gone(&slice), Err(expected));

    let node = core::Node::default();
    let expected = error(Kind::Node, "?", "metadata.name", Fault::Missing);
    assert_eq!(node_applied(&node), Err(expected.clone()));
    assert_eq!(node_gone(&node), Err(expected.clone()));
    assert_eq!(expected.to_string(), "the Node ? is skipped: metadata.name is missing");
}

#[test]
fn ep_09_an_endpoint_counts_when_it_is_ready_and_on_a_node() {
    let endpoints = json!([
        { "addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": { "ready": true } },
        { "addresses": ["10.0.0.2"], "nodeName": "n1", "conditions": {} },
        { "addresses": ["10.0.0.3"], "nodeName": "n2" },
        { "addresses": ["10.0.0.4"], "nodeName": "n1", "conditions": { "ready": false, "serving": true } },
        { "addresses": ["10.0.0.5"], "conditions": { "ready": true } },
        { "addresses": ["10.0.0.6"], "nodeName": "", "conditions": { "ready": true } },
        { "addresses": ["10.0.0.7", "10.0.0.8"], "nodeName": "n3" },
    ]);
    assert_eq!(
        endpoint_slice_applied(&slice("IPv4", &endpoints)),
        applied(&[("10.0.0.1", "n1"), ("10.0.0.2", "n1"), ("10.0.0.3", "n2"), ("10.0.0.7", "n3")], vec![])
    );
}

#[test]
fn ep_12_of_an_address_on_two_nodes_the_endpoint_that_should_receive_traffic_counts() {
    let endpoints = json!([
        { "addresses": ["10.0.0.1"], "nodeName": "new", "conditions": { "ready": true } },
        { "addresses": ["10.0.0.1"], "nodeName": "old", "conditions": { "ready": false, "terminating": true } },
    ]);
    assert_eq!(endpoint_slice_applied(&slice("IPv4", &endpoints)), applied(&[("10.0.0.1", "new")], vec![]));
}

#[test]
fn ep_09_an_address_that_makes_no_sense_is_reported_and_the_rest_counts() {
    let endpoints = json!([
        { "addresses": ["nonsense"], "nodeName": "n1" },
        { "addresses": [], "nodeName": "n1" },
        { "addresses": ["fd00::1"], "nodeName": "n1" },
        { "addresses": ["::ffff:10.0.0.1"], "nodeName": "n1" },
        { "addresses": ["10.0.0.2"], "nodeName": "n1" },
        { "addresses": ["not even ready"], "nodeName": "n1", "conditions": { "ready": false } },
    ]);
    let bad = Problem::BadAddress { index: 0, address: "nonsense".to_owned() };
    let none = Problem::NoAddress { index: 1 };
    assert_eq!(
        endpoint_slice_applied(&slice("IPv4", &endpoints)),
        applied(
            &[("10.0.0.1", "n1"), ("10.0.0.2", "n1")],
            vec![
                bad.clone(),
                none.clone(),
                Problem::OtherFamily { index: 2, address: ip("fd00::1"), expected: IpFamily::V4 },
            ]
        )
    );
    let other = |index, address| Problem::OtherFamily { index, address: ip(address), expected: IpFamily::V6 };
    assert_eq!(
        endpoint_slice_applied(&slice("IPv6", &endpoints)),
        applied(&[("fd00::1", "n1")], vec![bad, none, other(3, "10.0.0.1"), other(4, "10.0.0.2")])
    );
}

#[test]
fn ep_09_a_slice_of_host_names_is_nothing_to_us_and_an_unknown_type_is_an_error() {
    let endpoints = json!([{ "addresses": ["example.com"], "nodeName": "n1" }]);
    let fault = |address_type: &str, fault| {
        let error = ConvertError {
            kind: Kind::EndpointSlice,
            object: "shop/web-x7".to_owned(),
            field: "addressType",
            fault,
        };
        assert_eq!(endpoint_slice_applied(&slice(address_type, &endpoints)), Err(error));
    };
    assert_eq!(
        endpoint_slice_applied(&slice("FQDN", &endpoints)),
        change(Change::EndpointSliceGone(slice_key()))
    );
    fault("", Fault::Missing);
    fault("MAC", Fault::UnknownAddressType { value: "MAC".to_owned() });
}

#[test]
fn ep_14_a_slice_that_is_being_deleted_is_gone() {
    let mut slice = slice("IPv4", &json!([{ "addresses": ["10.0.0.1"], "nodeName": "n1" }]));
    assert_eq!(endpoint_slice_gone(&slice), Ok(Change::EndpointSliceGone(slice_key())));
    slice.metadata.deletion_timestamp = Some(object(json!("2026-01-01T00:00:00Z")));
    assert_eq!(endpoint_slice_applied(&slice), change(Change::EndpointSliceGone(slice_key())));
}

#[test]
fn ep_26_the_label_says_whose_a_slice_is_and_the_owner_only_where_there_is_no_label() {
    let owner = |api_version: &str, kind: &str, uid: &str| json!({ "apiVersion": api_version, "kind": kind, "name": "any", "uid": uid });
    let convert = |label: Option<&str>, owners: Value| {
        let mut slice = slice("IPv4", &json!([]));
        slice.metadata.labels =
            label.map(|label| [("kubernetes.io/service-name".to_owned(), label.to_owned())].into());
        slice.metadata.owner_references = object(owners);
        endpoint_slice_applied(&slice)
    };
    let of = |service| {
        change(Change::EndpointSliceApplied(EndpointSlice {
            key: slice_key(),
            service,
            endpoints: Endpoints::default(),
        }))
    };
    let by_name = || of(ServiceRef::Name(ObjectKey::new("shop", "web")));
    let by_uid = || of(ServiceRef::Uid { namespace: "shop".to_owned(), id: id("5dec-a") });
    let gone = || change(Change::EndpointSliceGone(slice_key()));

    assert_eq!(convert(Some("web"), json!([])), by_name());
    assert_eq!(convert(Some("web"), json!([owner("v1", "Service", "other")])), by_name());
    for label in [None, Some("")] {
        assert_eq!(
            convert(label, json!([owner("v1", "Endpoints", "e"), owner("v1", "Service", "5DEC-A")])),
            by_uid()
        );
        for owners in [
            Value::Null,
            json!([]),
            json!([owner("v1", "Endpoints", "e")]),
            json!([owner("serving.knative.dev/v1", "Service", "5DEC-A")]),
        ] {
            assert_eq!(convert(label, owners), gone());
        }
    }
    assert_eq!(
        convert(None, json!([owner("v1", "Service", "")])),
        Err(ConvertError {
            kind: Kind::EndpointSlice,
            object: "shop/web-x7".to_owned(),
            field: "metadata.ownerReferences.uid",
            fault: Fault::BadUid(IdError::Empty),
        })
    );
}

fn node(addresses: &[(&str, &str)]) -> core::Node {
    let addresses: Vec<_> =
        addresses.iter().map(|(type_, address)| json!({ "type": type_, "address": address })).collect();
    object(json!({ "metadata": { "name": "n1" }, "status": { "addresses": addresses } }))
}

fn located(
    ipv4: Option<&str>,
    ipv6: Option<&str>,
    problems: Vec<Problem>,
) -> Result<Converted, ConvertError> {
    let node = Node {
        name: NodeName::new("n1"),
        ipv4: ipv4.map(|ip| ip.parse().unwrap()),
        ipv6: ipv6.map(|ip| ip.parse().unwrap()),
    };
    Ok(Converted { change: Change::NodeApplied(node), problems })
}

#[test]
fn nd_05_nd_07_and_nd_10_a_node_is_at_its_first_internal_address_of_each_family() {
    let cases = [
        (vec![], (None, None)),
        (vec![("Hostname", "10.0.0.9"), ("ExternalIP", "20.1.2.3"), ("InternalDNS", "n1")], (None, None)),
        (
            vec![("ExternalIP", "20.1.2.3"), ("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.1")],
            (Some("10.0.0.2"), None),
        ),
        (vec![("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")], (Some("10.0.0.1"), Some("fd00::1"))),
        (vec![("InternalIP", "fd00::1"), ("InternalIP", "10.0.0.1")], (Some("10.0.0.1"), Some("fd00::1"))),
        (vec![("InternalIP", "FD00:0:0::1"), ("InternalIP", "fd00::2")], (None, Some("fd00::1"))),
        // ND-11: a mapped address is no IPv6 address.
        (vec![("InternalIP", "::ffff:10.0.0.1")], (Some("10.0.0.1"), None)),
    ];
    for (addresses, (ipv4, ipv6)) in cases {
        assert_eq!(node_applied(&node(&addresses)), located(ipv4, ipv6, vec![]), "{addresses:?}");
    }
}

#[test]
fn nd_07_a_malformed_address_is_reported_and_the_next_one_counts() {
    let node =
        node(&[("Hostname", "n1"), ("InternalIP", "10.0.0"), ("InternalIP", ""), ("InternalIP", "10.0.0.1")]);
    let bad = |index, address: &str| Problem::BadNodeAddress { index, address: address.to_owned() };
    assert_eq!(node_applied(&node), located(Some("10.0.0.1"), None, vec![bad(1, "10.0.0"), bad(2, "")]));
}

#[test]
fn nd_03_a_node_is_there_until_it_is_deleted() {
    let mut node = node(&[("InternalIP", "10.0.0.1")]);
    node.metadata.deletion_timestamp = Some(object(json!("2026-01-01T00:00:00Z")));
    assert_eq!(node_applied(&node), located(Some("10.0.0.1"), None, vec![]));
    assert_eq!(node_gone(&node), Ok(Change::NodeGone(NodeName::new("n1"))));
    assert_eq!(node_applied(&object(json!({ "metadata": { "name": "n1" } }))), located(None, None, vec![]));
}

/// What the conversions say the cluster is, in the simplest way that could be right.
#[derive(Default)]
struct World {
    services: BTreeMap<ServiceId, Service>,
    slices: BTreeMap<ObjectKey, EndpointSlice>,
    nodes: BTreeMap<NodeName, Node>,
}

impl World {
    fn apply(&mut self, change: Change) {
        match change {
            Change::ServiceApplied(service) => drop(self.services.insert(service.id.clone(), service)),
            Change::ServiceGone(id) => drop(self.services.remove(&id)),
            Change::EndpointSliceApplied(slice) => drop(self.slices.insert(slice.key.clone(), slice)),
            Change::EndpointSliceGone(key) => drop(self.slices.remove(&key)),
            Change::NodeApplied(node) => drop(self.nodes.insert(node.name.clone(), node)),
            Change::NodeGone(name) => drop(self.nodes.remove(&name)),
            Change::PodApplied(_) | Change::PodGone(_) => unreachable!("no pod is read here"),
            Change::Unreadable(_) | Change::ResyncBegin(_) | Change::ResyncDone(_) => {
                unreachable!("no conversion makes this")
            }
        }
    }

    fn read(&mut self, resource: &str, deleted: bool, json: &Value) {
        let whole = |converted: Result<Converted, ConvertError>| {
            let converted = converted.unwrap();
            assert_eq!(converted.problems, [], "{json}");
            converted.change
        };
        let json = json.clone();
        let policy = AdmissionPolicy::default();
        self.apply(match (resource, deleted) {
            ("services", false) => whole(service_applied(&policy, &object(json))),
            ("services", true) => service_gone(&object(json)).unwrap(),
            ("endpointslices", false) => whole(endpoint_slice_applied(&object(json))),
            ("endpointslices", true) => endpoint_slice_gone(&object(json)).unwrap(),
            ("nodes", false) => whole(node_applied(&object(json))),
            ("nodes", true) => node_gone(&object(json)).unwrap(),
            _ => return,
        });
    }

    /// Pod IP to node IP, as the recordings' expectations have it.
    fn endpoints(&self, service: &Service) -> BTreeMap<String, String> {
        let slices = self.slices.values().filter(|slice| match &slice.service {
            ServiceRef::Name(key) => *key == service.key,
            ServiceRef::Uid { id, .. } => *id == service.id,
        });
        let endpoints = slices.flat_map(|slice| slice.endpoints.as_slice());
        endpoints
            .filter_map(|endpoint| {
                let location = self.nodes.get(&endpoint.node)?.location(endpoint.address.family())?;
                Some((endpoint.address.to_string(), location.to_string()))
            })
            .collect()
    }
}

/// Converts every object of a recording and compares what is there in the end with what the recording expects.
fn recording_ends_as_expected(name: &str) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/recordings"));
    let Ok(lines) = fs::read_to_string(folder.join(format!("{name}.jsonl"))) else {
        eprintln!("skipped: no recording {name} in {}", folder.display());
        return;
    };
    let mut world = World::default();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let resource = line["resource"].as_str().unwrap();
        for item in line["list"]["items"].as_array().into_iter().flatten() {
            world.read(resource, false, item);
        }
        if let Some(event @ ("ADDED" | "MODIFIED" | "DELETED")) = line["event"]["type"].as_str() {
            world.read(resource, event == "DELETED", &line["event"]["object"]);
        }
    }
    let expected = fs::read_to_string(folder.join(format!("{name}.expected.json"))).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let expected = expected["loadBalancerServices"].as_object().unwrap();
    // A Service that is being deleted asks for nothing; every other one here asks for a load balancer.
    let living = expected.iter().filter(|(_, service)| service["deleting"] == json!(false));
    let living: BTreeSet<&str> = living.map(|(uid, _)| uid.as_str()).collect();
    let wanted = world.services.values().filter(|service| service.intent != Intent::None);
    assert_eq!(wanted.map(|service| service.id.as_str()).collect::<BTreeSet<_>>(), living);
    for (uid, service) in expected {
        let by_label = service.get("endpointsByServiceNameLabel");
        let endpoints: BTreeMap<String, String> = object(by_label.unwrap_or(&service["endpoints"]).clone());
        assert_eq!(world.endpoints(&world.services[&id(uid)]), endpoints, "{name} {uid}");
    }
}

#[test]
fn recorded_clusters_end_as_expected() {
    for name in ["basic", "dualstack", "egress", "finalizers", "nodes"] {
        recording_ends_as_expected(name);
    }
}
