//! The API server of a recorded cluster: what the controller writes on objects is seen on every later form of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use clb_controller::objects::{
    Condition, Event, ObjectRef, ObjectWriter, POD_FINALIZER, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER,
};
use clb_difftracker::{
    Ip, ObjectKey, Outcome, PodRef, PodRequest, ResourceVersion, ServiceId, ServiceRequest, Success,
};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What has been written on recorded objects, which know nothing of it.
#[derive(Default)]
pub struct RecordedObjects(Mutex<Written>);

#[derive(Default)]
struct Written {
    /// Services with our finalizers, by UID.
    services: BTreeSet<String>,
    /// The IPs in their status.
    ingress: BTreeMap<String, Ip>,
    /// Pods with our finalizer, by UID.
    pods: BTreeSet<String>,
}

impl RecordedObjects {
    /// A recorded Service as it would be.
    #[must_use]
    pub fn service(&self, recorded: &Service) -> Service {
        let mut service = recorded.clone();
        let uid = service.metadata.uid.clone().unwrap_or_default().to_lowercase();
        let written = self.written();
        if written.services.contains(&uid) {
            add_finalizers(&mut service.metadata, &[SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER]);
        }
        if let Some(ip) = written.ingress.get(&uid) {
            let entry = LoadBalancerIngress { ip: Some(ip.to_string()), ..LoadBalancerIngress::default() };
            let status = service.status.get_or_insert_default().load_balancer.get_or_insert_default();
            status.ingress = Some(vec![entry]);
        }
        service
    }

    /// A recorded pod as it would be.
    #[must_use]
    pub fn pod(&self, recorded: &Pod) -> Pod {
        let mut pod = recorded.clone();
        if self.written().pods.contains(pod.metadata.uid.as_deref().unwrap_or_default()) {
            add_finalizers(&mut pod.metadata, &[POD_FINALIZER]);
        }
        pod
    }

    /// How many Services and pods have our finalizers.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let written = self.written();
        (written.services.len(), written.pods.len())
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // Every change of it is one insertion or removal, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add_finalizers(metadata: &mut ObjectMeta, finalizers: &[&str]) {
    let held = metadata.finalizers.get_or_insert_default();
    for finalizer in finalizers {
        if !held.iter().any(|held| held == finalizer) {
            held.push((*finalizer).to_owned());
        }
    }
}

/// Recorded versions say nothing of our writes, so none is told.
fn done() -> Outcome {
    Outcome::Succeeded(Success::Written(ResourceVersion::default()))
}

#[async_trait]
impl ObjectWriter for RecordedObjects {
    async fn write_service(&self, service: &ServiceId, _: &ObjectKey, request: ServiceRequest) -> Outcome {
        let uid = service.as_str().to_owned();
        let mut written = self.written();
        match request {
            ServiceRequest::AddFinalizers => drop(written.services.insert(uid)),
            ServiceRequest::RemoveFinalizers => drop(written.services.remove(&uid)),
            ServiceRequest::SetIngress(ip) => drop(written.ingress.insert(uid, ip)),
            ServiceRequest::ClearIngress(_) => drop(written.ingress.remove(&uid)),
        }
        done()
    }

    async fn write_pod(&self, pod: &PodRef, request: PodRequest) -> Outcome {
        let uid = pod.uid.as_str().to_owned();
        let mut written = self.written();
        match request {
            PodRequest::AddFinalizer => drop(written.pods.insert(uid)),
            PodRequest::RemoveFinalizer => drop(written.pods.remove(&uid)),
        }
        done()
    }

    async fn write_condition(&self, _: &ObjectRef, _: &Condition) -> Outcome {
        done()
    }

    async fn write_event(&self, _: &Event) -> Outcome {
        done()
    }
}
