//! What Services ask for and do not get.

use clb_controller::admission::{IDLE_TIMEOUT_ANNOTATION, INTERNAL_ANNOTATION};
use serde_json::{Value, json};

use super::{NONE, both, says, service};
use crate::world::{Held, World};

const AT_N1: &[(&str, &str)] = &[("10.0.0.1", "192.168.0.1")];

/// What a Service asks for, as annotations and changes of its spec, and the reason it is given.
fn rejected() -> Vec<(Value, Value, &'static str)> {
    let none = || json!({});
    let port = |port: u32, target: Value, protocol: &str| json!({"name": format!("p{port}"), "port": port, "targetPort": target, "protocol": protocol});
    let many: Vec<_> = (1..=1_501).map(|number| port(number, json!(number), "TCP")).collect();
    vec![
        (json!({INTERNAL_ANNOTATION: "TRUE"}), none(), "UnsupportedInternalLoadBalancer"),
        (none(), json!({"sessionAffinity": "ClientIP"}), "UnsupportedSessionAffinity"),
        (none(), json!({"loadBalancerIP": "20.0.0.1"}), "UnsupportedLoadBalancerIP"),
        (none(), json!({"ipFamilyPolicy": "RequireDualStack"}), "UnsupportedDualStack"),
        (json!({IDLE_TIMEOUT_ANNOTATION: "31"}), none(), "InvalidIdleTimeout"),
        (none(), json!({"ports": [port(80, json!(80), "SCTP")]}), "UnsupportedProtocol"),
        (
            none(),
            json!({"ports": [port(80, json!(80), "TCP"), port(81, json!(80), "TCP")]}),
            "UnsupportedBackendPortCollision",
        ),
        (none(), json!({"ports": [port(65_535, json!(80), "TCP")]}), "UnsupportedFrontendPort"),
        (none(), json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}), "UnsupportedSourceRanges"),
        (none(), json!({"ports": many}), "TooManyPorts"),
    ]
}

#[tokio::test(start_paused = true)]
async fn ad_01_to_ad_08_and_ad_17_to_ad_19_a_service_that_is_rejected_is_told_why_and_nothing_is_made() {
    let world = World::new();
    for (number, (annotations, spec, _)) in rejected().into_iter().enumerate() {
        world.service_of(&json!({"name": format!("s{number}"), "annotations": annotations}), spec);
    }
    // rs_33: all were there before the controller was.
    let replica = world.start();
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    assert_eq!(world.held().await, Held::default());
    for (number, (.., reason)) in rejected().into_iter().enumerate() {
        let name = format!("s{number}");
        assert_eq!(world.service_condition(&name), says("False", reason));
        assert_eq!(world.ingress(&name), NONE);
        assert_eq!(world.service_finalizers(&name), Some(vec![]), "{reason}");
    }
    let expected = rejected().into_iter().map(|(.., reason)| (("Warning".to_owned(), reason.to_owned()), 1));
    assert_eq!(world.events(), expected.collect());
}

#[tokio::test(start_paused = true)]
async fn ad_05_and_ad_18_what_is_allowed_is_served_and_what_has_no_effect_is_said() {
    let (world, replica) = World::running();
    let annotations = json!({INTERNAL_ANNOTATION: "false", IDLE_TIMEOUT_ANNOTATION: " 10 ",
        "service.beta.kubernetes.io/azure-dns-label-name": "web"});
    let uid = world.service_of(&json!({"name": "web", "annotations": annotations}), json!({}));
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, &[])]));
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
    assert_eq!(world.events(), [(("Warning".to_owned(), "IgnoredAnnotation".to_owned()), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn ad_06_a_named_target_port_is_waited_for_and_followed() {
    let (world, replica) = World::running();
    let ports = json!([{"name": "http", "port": 80, "targetPort": "web"}]);
    let uid = world.service("web", json!({"ports": ports}));
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    assert_eq!(world.service_condition("web"), says("False", "UnresolvedTargetPort"));
    assert_eq!(world.warnings(), [].into());
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    world.settle(&replica).await;
    assert_eq!(world.held().await, Held::inbound(&[(&uid, AT_N1)]));
    let address = world.ingress("web")[0].parse().unwrap();
    let backend = |port| {
        let found = world.azure.with_azure(|azure| azure.ingress(address, "tcp", port));
        found.map(|ingress| ingress.backend_port)
    };
    assert_eq!((backend(80), backend(8_080)), (Some(8_080), None));
}

#[tokio::test(start_paused = true)]
async fn ad_14_a_live_service_that_asks_for_too_much_goes_on_serving_and_is_mended_by_its_owner() {
    let (world, replica) = World::running();
    world.slice("s", "web", &[("10.0.0.1", "n1")]);
    let uid = world.service("web", json!({}));
    world.settle(&replica).await;
    let ingress = world.ingress("web");
    let _ = world.calls();
    world.patch_service("web", json!({"spec": {"sessionAffinity": "ClientIP", "ports": [{"port": 81}]}}));
    world.settle(&replica).await;
    assert_eq!(world.calls(), NONE);
    assert_eq!(world.frontends(), [("tcp".to_owned(), 80)].into());
    assert_eq!((world.ingress("web"), world.service_finalizers("web")), (ingress.clone(), both()));
    assert_eq!(world.service_condition("web"), says("False", "UnsupportedSessionAffinity"));
    let told = ("Warning".to_owned(), "UnsupportedSessionAffinity".to_owned());
    // ad_15: once, however often it is looked at.
    assert_eq!(world.events(), [(told, 1)].into());
    world.patch_service("web", json!({"spec": {"sessionAffinity": "None"}}));
    world.settle(&replica).await;
    assert_eq!(world.calls(), ["PUT loadBalancers"]);
    assert_eq!(world.frontends(), [("tcp".to_owned(), 81)].into());
    assert_eq!(world.service_condition("web"), says("True", "Programmed"));
    assert_eq!((world.held().await, world.ingress("web")), (Held::inbound(&[(&uid, AT_N1)]), ingress));
    // A rejected one is deleted like any other.
    world.patch_service("web", json!({"spec": {"sessionAffinity": "ClientIP"}}));
    world.delete(&service("web"));
    world.settle(&replica).await;
    assert_eq!((world.held().await, world.get_service("web")), (Held::default(), None));
}
