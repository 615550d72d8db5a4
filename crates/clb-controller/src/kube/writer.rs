//! Writes on Services and pods.

mod edit;
mod event;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use clb_difftracker::{
    Failure, FailureKind, Intent, ObjectKey, Outcome, PodRef, PodRequest, ResourceVersion, ServiceId,
    ServiceRequest, Success,
};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::Value;
use tokio::time::sleep;

use self::edit::Edit;
use super::error::{failure, is_conflict, write_outcome};
use crate::WallClock;
use crate::admission::AdmissionPolicy;
use crate::objects::{
    Condition, Event, ObjectRef, ObjectWriter, POD_FINALIZER, SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER,
};

/// Who writes, as `managedFields` and events name it. Never changes: another name would not own what this one applied.
pub const FIELD_MANAGER: &str = "clb-controller";

/// How often a write is tried whose object changes between the read and the write: as often as the existing Go controller.
const TRIES: u32 = 5;
/// The pause after the first try, as in the existing Go controller. The next ones are each twice as long, 0.8 s at most, and
/// all are up to a tenth longer by chance.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// An [`ObjectWriter`] over a [`Client`].
///
/// Each write reads the object first and sends nothing if all is as it should be already. What it sends is a patch of only
/// what is named, with the object's UID and, where others may write the same list, its version as preconditions. Where the
/// object has changed in between, it is read again, five times at most; then the outcome is a `Conflict`.
///
/// A write that is answered with an error of the server's (5xx), or not at all, may have been applied, and its outcome is
/// unknown. A 403 in a namespace that is being deleted is `NotFound`.
///
/// It knows no timeouts: whoever calls it limits how long it may take, as [`Driver`](crate::Driver) does. The client must not
/// retry by itself, for whoever calls decides when to try again, and would hear of a server that throttles only minutes
/// later: build it from a [`Config`](kube::Config) with `default_retry` off.
///
/// It needs `get` and `patch` of `services` and `pods`, `patch` of `services/status` and `pods/status`, and `create`, `get` and
/// `patch` of `events`, in all namespaces.
#[derive(Clone)]
pub struct KubeWriter {
    client: Client,
    policy: AdmissionPolicy,
    clock: WallClock,
    instance: String,
}

impl KubeWriter {
    /// A writer for those Services that `policy` says are ours. `clock` dates conditions and events; `instance` names this
    /// replica in events, and is what the pauses between tries depend on.
    #[must_use]
    pub fn new(
        client: Client,
        policy: AdmissionPolicy,
        clock: WallClock,
        instance: impl Into<String>,
    ) -> Self {
        Self { client, policy, clock, instance: instance.into() }
    }

    /// Reads an object and sends what `decide` makes of it, again and again while others write in between.
    async fn edit(
        &self,
        object: &ObjectRef,
        decide: impl Fn(&DynamicObject) -> Result<Option<Edit>, Failure> + Send + Sync,
    ) -> Outcome {
        let api = self.api(object);
        let name = &object.key().name;
        let mut tried = 0;
        loop {
            tried += 1;
            let read = match api.get(name).await {
                Ok(read) => read,
                Err(error) => return Outcome::Failed(failure("get", object, &error)),
            };
            if !is_same(object, &read.metadata) {
                let message = format!("{object} is another object of that name by now; nothing is written");
                return Outcome::Failed(Failure { kind: FailureKind::NotFound, message });
            }
            let edit = match decide(&read) {
                Ok(Some(edit)) => edit,
                Ok(None) => return written(&read.metadata),
                Err(failure) => return Outcome::Failed(failure),
            };
            let error = match send(&api, name, edit).await {
                Ok(metadata) => return written(&metadata),
                Err(error) => error,
            };
            if !is_conflict(&error) || tried == TRIES {
                return write_outcome("patch", object, &error);
            }
            sleep(self.pause(object, tried)).await;
        }
    }

    fn api(&self, object: &ObjectRef) -> Api<DynamicObject> {
        // Not as their types: fields of a status that these do not know would be lost where a list is written whole.
        let resource = match object {
            ObjectRef::Service { .. } => ApiResource::erase::<Service>(&()),
            ObjectRef::Pod(_) => ApiResource::erase::<Pod>(&()),
        };
        Api::namespaced_with(self.client.clone(), &object.key().namespace, &resource)
    }

    /// Refuses a Service that wants no load balancer of ours.
    fn check_wanted(&self, object: &ObjectRef, read: &DynamicObject) -> Result<(), Failure> {
        let service: Service = read.clone().try_parse().map_err(|error| {
            let message = format!("{object} cannot be read: {error}");
            Failure { kind: FailureKind::Invalid, message }
        })?;
        if self.policy.admit(&service).intent == Intent::None {
            let message = format!(
                "{object} is being deleted or asks for no load balancer of ours by now; nothing is written"
            );
            return Err(Failure { kind: FailureKind::Conflict, message });
        }
        Ok(())
    }

    /// The pause after so many tries. It depends on nothing else that happens, so that a run can be repeated.
    fn pause(&self, object: &ObjectRef, tried: u32) -> Duration {
        let seed = event::hash([&self.instance, object.uid(), &tried.to_string()]);
        let jitter = fastrand::Rng::with_seed(seed).f64() / 10.0;
        (FIRST_PAUSE * 2_u32.pow(tried - 1)).mul_f64(1.0 + jitter)
    }

    /// The time of day, in whole seconds.
    fn now(&self) -> Time {
        let since = self.clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
    }
}

#[async_trait]
impl ObjectWriter for KubeWriter {
    async fn write_service(&self, service: &ServiceId, key: &ObjectKey, request: ServiceRequest) -> Outcome {
        const OURS: [&str; 2] = [SERVICE_FINALIZER, UPSTREAM_SERVICE_FINALIZER];
        let object = ObjectRef::Service { id: service.clone(), key: key.clone() };
        let decide = |read: &DynamicObject| match request {
            ServiceRequest::AddFinalizers => {
                self.check_wanted(&object, read)?;
                Ok(Edit::add_finalizers(&read.metadata, &OURS))
            }
            ServiceRequest::RemoveFinalizers => Ok(Edit::remove_finalizers(&read.metadata, &OURS)),
            ServiceRequest::SetIngress(ip) => {
                self.check_wanted(&object, read)?;
                Ok(Edit::set_ingress(read, ip))
            }
            // Nobody reads the status of what is being deleted.
            ServiceRequest::ClearIngress(_) if read.metadata.deletion_timestamp.is_some() => Ok(None),
            ServiceRequest::ClearIngress(ip) => Ok(Edit::clear_ingress(read, ip)),
        };
        self.edit(&object, decide).await
    }

    async fn write_pod(&self, pod: &PodRef, request: PodRequest) -> Outcome {
        const OURS: [&str; 1] = [POD_FINALIZER];
        let object = ObjectRef::Pod(pod.clone());
        let decide = |read: &DynamicObject| {
            let metadata = &read.metadata;
            let edit = match request {
                PodRequest::AddFinalizer => Edit::add_finalizers(metadata, &OURS),
                PodRequest::RemoveFinalizer => return Ok(Edit::remove_finalizers(metadata, &OURS)),
            };
            if edit.is_some() && metadata.deletion_timestamp.is_some() {
                // The server would refuse it (422), for ever. The pod is there, so it is not `NotFound`; and the tracker must not
                // put it off for long as `Invalid`: the watch is about to say that the pod ends, which `Conflict` waits for.
                let message = format!("{object} is being deleted and takes no finalizer any more");
                return Err(Failure { kind: FailureKind::Conflict, message });
            }
            Ok(edit)
        };
        self.edit(&object, decide).await
    }

    async fn write_condition(&self, object: &ObjectRef, condition: &Condition) -> Outcome {
        let decide = |read: &DynamicObject| Ok(Edit::condition(object, read, condition, &self.now()));
        self.edit(object, decide).await
    }

    async fn write_event(&self, event: &Event) -> Outcome {
        self.tell(event).await
    }
}

/// Whether what was read is the object that is meant.
fn is_same(object: &ObjectRef, metadata: &ObjectMeta) -> bool {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    match object {
        ObjectRef::Service { id, .. } => uid.eq_ignore_ascii_case(id.as_str()),
        ObjectRef::Pod(pod) => uid == pod.uid.as_str(),
    }
}

/// Sends a patch, and returns the metadata that the object has then.
async fn send(api: &Api<DynamicObject>, name: &str, edit: Edit) -> Result<ObjectMeta, Error> {
    match edit {
        Edit::Object(patch) => Ok(api.patch_metadata(name, &params(&patch), &patch).await?.metadata),
        Edit::Status(patch) => Ok(api.patch_status(name, &params(&patch), &patch).await?.metadata),
    }
}

fn params(patch: &Patch<Value>) -> PatchParams {
    let params = PatchParams::apply(FIELD_MANAGER);
    // What is applied is ours alone, whoever wrote it before.
    if let Patch::Apply(_) = patch { params.force() } else { params }
}

fn written(metadata: &ObjectMeta) -> Outcome {
    let version = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    Outcome::Succeeded(Success::Written(version.map(ResourceVersion::new).unwrap_or_default()))
}
