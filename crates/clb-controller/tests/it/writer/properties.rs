//! What holds of any write on any Service and pod.

use clb_controller::objects::{
    Condition, ConditionStatus, ObjectRef, ObjectWriter, POD_FINALIZER, SERVICE_FINALIZER,
    UPSTREAM_SERVICE_FINALIZER,
};
use clb_difftracker::{Outcome, PodRef, PodRequest, ServiceId, ServiceRequest};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::{World, ip, service_ref};

#[derive(Clone, Copy, Debug)]
enum Write {
    Service(ServiceRequest),
    Pod(PodRequest),
    Condition(ConditionStatus, bool),
}

const ADDRESSES: [&str; 4] = ["20.0.0.1", "20.0.0.2", "2001:db8::1", "2001:db8::2"];
const FINALIZERS: [&str; 5] =
    ["a.b/1", SERVICE_FINALIZER, POD_FINALIZER, UPSTREAM_SERVICE_FINALIZER, "a.b/2"];

fn write() -> impl Strategy<Value = Write> {
    let address = || select(&ADDRESSES).prop_map(ip);
    prop_oneof![
        Just(Write::Service(ServiceRequest::AddFinalizers)),
        Just(Write::Service(ServiceRequest::RemoveFinalizers)),
        address().prop_map(|ip| Write::Service(ServiceRequest::SetIngress(ip))),
        address().prop_map(|ip| Write::Service(ServiceRequest::ClearIngress(ip))),
        Just(Write::Pod(PodRequest::AddFinalizer)),
        Just(Write::Pod(PodRequest::RemoveFinalizer)),
        (select(vec![ConditionStatus::True, ConditionStatus::False]), any::<bool>())
            .prop_map(|(status, is_pod)| Write::Condition(status, is_pod)),
    ]
}

fn entry() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(&ADDRESSES).prop_map(|ip| json!({"ip": ip, "ipMode": "Proxy"})),
        Just(json!({"ip": "2001:DB8:0::1", "ipMode": "VIP"})),
        Just(json!({"ip": "20.0.0.1", "ipMode": "VIP", "hostname": "b.example.com"})),
        Just(json!({"hostname": "a.example.com"})),
    ]
}

async fn perform(world: &World, id: &ServiceId, pod: &PodRef, write: Write) -> Outcome {
    match write {
        Write::Service(request) => world.write(id, request).await,
        Write::Pod(request) => world.write_pod(pod, request).await,
        Write::Condition(status, is_pod) => {
            let object = if is_pod { ObjectRef::Pod(pod.clone()) } else { service_ref(id) };
            let condition = Condition { status, reason: "R".into(), message: "m".to_owned() };
            world.writer.write_condition(&object, &condition).await
        }
    }
}

/// All that is in the cluster.
fn everything(world: &World) -> Vec<Value> {
    ["services", "pods"].map(|kind| world.get(kind)["items"].clone()).to_vec()
}

fn foreign(object: &Value) -> Vec<Value> {
    let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.into_iter().filter(|it| it.as_str().unwrap().starts_with("a.b/")).collect()
}

fn host_names(service: &Value) -> Vec<Value> {
    let entries = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    entries.into_iter().map(|entry| entry["hostname"].clone()).filter(|name| !name.is_null()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Repeating a write changes nothing and sends nothing but a read, and what belongs to others stays.
    #[test]
    fn a_write_repeated_changes_nothing_and_what_others_have_stays(
        (service_held, pod_held) in (subsequence(&FINALIZERS, 0..=5), subsequence(&FINALIZERS, 0..=5)),
        ingress in proptest::collection::vec(entry(), 0..5),
        (is_retyped, is_deleted) in (any::<bool>(), any::<bool>()),
        writes in proptest::collection::vec(write(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            // A finalizer of somebody's keeps what is deleted.
            let service_held: Vec<_> = service_held.into_iter().chain(["a.b/3"]).collect();
            let pod_held: Vec<_> = pod_held.into_iter().chain(["a.b/3"]).collect();
            let id = world.add_service(&service_held, &json!(ingress));
            let pod = world.add_pod(&pod_held);
            if is_retyped {
                world.ask("PATCH", "services/web", json!({"spec": {"type": "ClusterIP"}}));
            }
            if is_deleted {
                world.ask("DELETE", "services/web", Value::Null);
                world.ask("DELETE", "pods/web-0", Value::Null);
            }
            for write in writes {
                let (service, pod_before) = (world.get("services/web"), world.get("pods/web-0"));
                let first = perform(&world, &id, &pod, write).await;
                let (after, pod_after) = (world.get("services/web"), world.get("pods/web-0"));
                prop_assert_eq!(foreign(&after), foreign(&service));
                prop_assert_eq!(host_names(&after), host_names(&service));
                prop_assert_eq!(foreign(&pod_after), foreign(&pod_before));
                prop_assert_eq!(&after["spec"], &service["spec"]);
                let all = everything(&world);
                world.sent();
                let second = perform(&world, &id, &pod, write).await;
                prop_assert_eq!(second, first);
                prop_assert_eq!(everything(&world), all);
                prop_assert_eq!(world.sent().len(), 1);
            }
            Ok(())
        })?;
    }
}
