//! What the outcome of a write on a Kubernetes object teaches. The API server has its own budget: what it refuses holds up
//! that object and nothing else.

use alloc::boxed::Box;
use alloc::vec;

use crate::change::Source;
use crate::ids::{ResourceVersion, Timestamp};
use crate::lifecycle::{Observed, Step};
use crate::notice::Notice;
use crate::operation::{Failure, FailureKind, OperationId, Outcome, PodRequest, ServiceRequest, Success};
use crate::outcome::{Blame, blame};
use crate::service::{ServiceState, Wait};
use crate::source::SourceState;
use crate::table::Id;
use crate::tracker::{DiffTracker, Timer};

impl DiffTracker {
    pub(crate) fn on_service_object_outcome(
        &mut self,
        operation: OperationId,
        id: Id<ServiceState>,
        request: ServiceRequest,
        outcome: Outcome,
    ) {
        let failure = match outcome {
            Outcome::Succeeded(success) => {
                self.on_object_written(id, request, version(&success));
                return self.on_progress(id);
            }
            Outcome::Failed(Failure { kind: FailureKind::NotFound, .. })
                if request == ServiceRequest::RemoveFinalizers =>
            {
                self.services[id].object.finalizers = Observed::Absent;
                return self.on_progress(id);
            }
            Outcome::Failed(failure) => failure,
            Outcome::Unknown(failure) => {
                let object = &mut self.services[id].object;
                match request {
                    ServiceRequest::AddFinalizers => object.finalizers = Observed::Unknown(true),
                    ServiceRequest::RemoveFinalizers => object.finalizers.doubt(),
                    ServiceRequest::SetIngress(ip) => object.ingress = Observed::Unknown(vec![ip]),
                    ServiceRequest::ClearIngress(_) => object.ingress.doubt(),
                }
                failure
            }
        };
        let retry_at = match blame(failure.kind) {
            Blame::Request { slow: true } => self.park(id, Step::Object(request)),
            Blame::Content if failure.kind == FailureKind::Invalid => self.park(id, Step::Object(request)),
            Blame::Everyone | Blame::Request { slow: false } | Blame::Content => {
                let at = self.back_off(id);
                self.not_before(Timer::Service(id), at, failure.kind)
            }
        };
        let service = Some(self.services.key(id).clone());
        self.tell_failure(operation, service, failure, retry_at);
    }

    /// Unless the object was seen in a later version already: that one says how it is.
    fn on_object_written(&mut self, id: Id<ServiceState>, request: ServiceRequest, written: ResourceVersion) {
        let state = &mut self.services[id];
        let is_older = written.is_before(state.version);
        state.version = state.version.max(written);
        let object = &mut state.object;
        match request {
            ServiceRequest::AddFinalizers
                if !is_older || matches!(object.finalizers, Observed::Unknown(_)) =>
            {
                object.finalizers = Observed::Present(true);
            }
            ServiceRequest::RemoveFinalizers
                if !is_older || matches!(object.finalizers, Observed::Unknown(_)) =>
            {
                object.finalizers = Observed::Absent;
            }
            ServiceRequest::SetIngress(ip) if !is_older || matches!(object.ingress, Observed::Unknown(_)) => {
                object.ingress = Observed::Present(vec![ip]);
            }
            ServiceRequest::ClearIngress(ip)
                if !is_older || matches!(object.ingress, Observed::Unknown(_)) =>
            {
                object.hide(ip);
            }
            ServiceRequest::AddFinalizers
            | ServiceRequest::RemoveFinalizers
            | ServiceRequest::SetIngress(_)
            | ServiceRequest::ClearIngress(_) => {}
        }
    }

    pub(crate) fn on_pod_outcome(
        &mut self,
        operation: OperationId,
        id: Id<SourceState>,
        request: PodRequest,
        outcome: Outcome,
    ) {
        let Some(state) = &mut self.sources[id].pod else { return };
        state.in_flight = None;
        let failure = match outcome {
            Outcome::Succeeded(success) => {
                let written = version(&success);
                if !written.is_before(state.version) || matches!(state.finalizer, Observed::Unknown(())) {
                    state.finalizer = match request {
                        PodRequest::AddFinalizer => Observed::Present(()),
                        PodRequest::RemoveFinalizer => Observed::Absent,
                    };
                }
                state.version = state.version.max(written);
                None
            }
            Outcome::Failed(Failure { kind: FailureKind::NotFound, .. })
                if request == PodRequest::RemoveFinalizer =>
            {
                state.finalizer = Observed::Absent;
                None
            }
            Outcome::Failed(failure) => Some(failure),
            Outcome::Unknown(failure) => {
                state.finalizer = Observed::Unknown(());
                Some(failure)
            }
        };
        match failure {
            None => {
                state.failures = 0;
                state.wait = Wait::No;
                self.timers.clear(Timer::Pod(id));
            }
            Some(failure) => {
                state.failures = state.failures.saturating_add(1);
                let failures = state.failures;
                let is_slow = match blame(failure.kind) {
                    Blame::Request { slow } => slow,
                    Blame::Content => failure.kind == FailureKind::Invalid,
                    Blame::Everyone => false,
                };
                state.wait = if is_slow { Wait::Parked(Box::new(request)) } else { Wait::Backoff };
                let at = if is_slow {
                    self.backoff.slow(self.now)
                } else {
                    self.backoff.after(self.now, failures)
                };
                let at = self.not_before(Timer::Pod(id), at, failure.kind);
                if let Source::Pod(pod) = self.sources.key(id).clone() {
                    let Failure { kind, message } = failure;
                    self.notices.push_back(Notice::PodFailed {
                        operation,
                        pod,
                        request,
                        kind,
                        message,
                        retry_at: at,
                    });
                }
            }
        }
        self.refresh_pod(id);
        self.forget_pod(id);
    }

    /// Sets a deadline, later than `at` where the server asks for it.
    fn not_before(&mut self, timer: Timer, at: Timestamp, kind: FailureKind) -> Timestamp {
        let at = match kind {
            FailureKind::Throttled { retry_after: Some(pause) } => at.max(self.now.after(pause)),
            FailureKind::Throttled { retry_after: None }
            | FailureKind::Conflict
            | FailureKind::Transient
            | FailureKind::Invalid
            | FailureKind::NotFound
            | FailureKind::Forbidden
            | FailureKind::Quota
            | FailureKind::StillReferenced => at,
        };
        self.timers.set(timer, at);
        at
    }
}

fn version(success: &Success) -> ResourceVersion {
    match success {
        Success::Written(version) => *version,
        Success::Done | Success::PublicIp(_) | Success::Gateway(_) => ResourceVersion::default(),
    }
}
