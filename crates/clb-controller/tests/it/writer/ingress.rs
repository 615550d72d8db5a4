//! The address in a Service's status.

use clb_difftracker::ServiceRequest::{ClearIngress, SetIngress};
use clb_difftracker::{ServiceId, ServiceRequest};
use clb_sim::fault::{FaultPlan, How, What, When};
use serde_json::{Value, json};

use super::{REFUSED_CONFLICT, REFUSED_NOT_FOUND, World, failed, ip};

fn ingress(world: &World) -> Value {
    world.get("services/web")["status"]["loadBalancer"]["ingress"].clone()
}

#[tokio::test(start_paused = true)]
async fn sl_03_the_address_is_written_by_a_patch_of_the_status_with_preconditions() {
    let world = World::new();
    let id = world.add_service(&[], &json!([]));
    let before = world.get("services/web");
    let outcome = world.write(&id, SetIngress(ip("20.0.0.1"))).await;
    assert_eq!(outcome, world.written("services/web"));
    let patch = json!({"metadata": {"uid": before["metadata"]["uid"],
        "resourceVersion": before["metadata"]["resourceVersion"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "20.0.0.1"}]}}});
    assert_eq!(
        world.sent_whole(),
        [("GET services/web".to_owned(), Value::Null), ("PATCH services/web/status merge".to_owned(), patch)]
    );
    assert_eq!(ingress(&world), json!([{"ip": "20.0.0.1", "ipMode": "VIP"}]));
}

#[tokio::test(start_paused = true)]
async fn sl_03_it_takes_the_place_of_others_of_its_family_and_of_nothing_else() {
    let name = json!({"hostname": "lb.example.com"});
    let v6 = json!({"ip": "2001:db8::1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]});
    let v4 = |address: &str| json!({"ip": address, "ipMode": "VIP"});
    let both = json!({"hostname": "a.example.com", "ip": "20.0.0.9", "ipMode": "VIP"});
    for (held, wanted, expected) in [
        // A stale one goes, what others wrote stays as it is.
        (json!([v4("20.0.0.9"), name, v6]), "20.0.0.1", json!([name, v6, v4("20.0.0.1")])),
        // So does one that is there twice.
        (json!([v4("20.0.0.1"), v4("20.0.0.9"), v4("20.0.0.1")]), "20.0.0.1", json!([v4("20.0.0.1")])),
        // A name stays without the address that it had.
        (json!([both]), "20.0.0.1", json!([{"hostname": "a.example.com"}, v4("20.0.0.1")])),
        // The other family, likewise.
        (
            json!([v4("20.0.0.9"), v6]),
            "2001:db8::2",
            json!([v4("20.0.0.9"), {"ip": "2001:db8::2", "ipMode": "VIP"}]),
        ),
    ] {
        let world = World::new();
        let id = world.add_service(&[], &held);
        assert_eq!(world.write(&id, SetIngress(ip(wanted))).await, world.written("services/web"), "{held}");
        assert_eq!(ingress(&world), expected, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn sl_03_nothing_is_sent_when_the_address_is_there_however_it_is_spelled() {
    for (held, wanted) in [
        (json!([{"ip": "20.0.0.1", "ipMode": "Proxy"}, {"hostname": "a.b"}]), "20.0.0.1"),
        (json!([{"ip": "2001:DB8:0::1"}]), "2001:db8::1"),
        (json!([{"ip": "::ffff:20.0.0.1"}]), "20.0.0.1"),
        (json!([{"hostname": "a.b", "ip": "20.0.0.1"}]), "20.0.0.1"),
    ] {
        let world = World::new();
        let id = world.add_service(&[], &held);
        assert_eq!(world.write(&id, SetIngress(ip(wanted))).await, world.written("services/web"), "{held}");
        assert_eq!(world.sent(), ["GET services/web"], "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn sl_39_a_service_that_is_no_load_balancer_any_more_gets_no_address() {
    let world = World::new();
    let id = world.add_service(&["example.com/theirs"], &json!([]));
    world.ask("PATCH", "services/web", json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(failed(&world.write(&id, SetIngress(ip("20.0.0.1"))).await), REFUSED_CONFLICT);
    world.ask("PATCH", "services/web", json!({"spec": {"type": "LoadBalancer"}}));
    world.ask("DELETE", "services/web", Value::Null);
    assert_eq!(failed(&world.write(&id, SetIngress(ip("20.0.0.1"))).await), REFUSED_CONFLICT);
    assert_eq!(world.sent(), ["GET services/web"; 2]);
}

#[tokio::test(start_paused = true)]
async fn sl_39_nor_does_one_that_is_retyped_between_the_read_and_the_write() {
    let late = FaultPlan::new(0).with(When::Nth(1), What::verb("GET"), How::Delay(1_000));
    let world = World::with_faults(late);
    let id = world.add_service(&[], &json!([]));
    let retype =
        |world: &World| drop(world.ask("PATCH", "services/web", json!({"spec": {"type": "ClusterIP"}})));
    let (outcome, ()) = tokio::join!(world.write(&id, SetIngress(ip("20.0.0.1"))), world.meanwhile(retype));
    assert_eq!(failed(&outcome), REFUSED_CONFLICT);
    assert_eq!(world.sent(), ["GET services/web", "PATCH services/web/status merge", "GET services/web"]);
    assert_eq!(world.get("services/web")["status"], json!({"loadBalancer": {}}));
}

#[tokio::test(start_paused = true)]
async fn sl_24_an_address_that_goes_is_taken_out_alone_however_it_is_spelled() {
    let name = json!({"hostname": "lb.example.com"});
    let other = json!({"ip": "20.0.0.9", "ipMode": "VIP"});
    let strange = json!({"ip": "here", "ipMode": "VIP"});
    for (held, gone, expected) in [
        (json!([{"ip": "20.0.0.1"}]), "20.0.0.1", Value::Null),
        (json!([name, {"ip": "20.0.0.1"}, other, strange]), "20.0.0.1", json!([name, other, strange])),
        (json!([other, {"ip": "2001:DB8:0::1"}]), "2001:db8::1", json!([other])),
        (json!([{"hostname": "a.b", "ip": "20.0.0.1"}]), "20.0.0.1", json!([{"hostname": "a.b"}])),
    ] {
        let world = World::new();
        let id = world.add_service(&[], &held);
        assert_eq!(world.write(&id, ClearIngress(ip(gone))).await, world.written("services/web"), "{held}");
        assert_eq!(world.sent(), ["GET services/web", "PATCH services/web/status merge"], "{held}");
        assert_eq!(ingress(&world), expected, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_out_of_a_status_without_the_address_or_of_one_that_nobody_reads() {
    let held = json!([{"ip": "20.0.0.9", "ipMode": "VIP"}]);
    let world = World::new();
    let id = world.add_service(&["example.com/theirs"], &held);
    assert_eq!(world.write(&id, ClearIngress(ip("20.0.0.1"))).await, world.written("services/web"));
    world.ask("DELETE", "services/web", Value::Null);
    assert_eq!(world.write(&id, ClearIngress(ip("20.0.0.9"))).await, world.written("services/web"));
    assert_eq!(world.sent(), ["GET services/web"; 2]);
    assert_eq!(ingress(&world), held);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_service_that_took_anothers_name_is_left_alone() {
    let held = json!([{"ip": "20.0.0.9", "ipMode": "VIP"}]);
    let world = World::new();
    let id = ServiceId::new("00000000-0000-0000-0000-000000000000").unwrap();
    let requests: [ServiceRequest; 2] = [SetIngress(ip("20.0.0.1")), ClearIngress(ip("20.0.0.9"))];
    for request in requests {
        assert_eq!(failed(&world.write(&id, request).await), REFUSED_NOT_FOUND);
    }
    world.add_service(&[], &held);
    for request in requests {
        assert_eq!(failed(&world.write(&id, request).await), REFUSED_NOT_FOUND);
    }
    assert_eq!(world.sent(), ["GET services/web"; 4]);
    assert_eq!(ingress(&world), held);
}
