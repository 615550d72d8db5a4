//! Where each Service stands, in words: its condition, and the events about it.

use std::collections::{BTreeMap, BTreeSet};

use clb_difftracker::{
    DiffTracker, FailureKind, Notice, Phase, PodRequest, Programmed, Rejection, ServiceId,
};

use crate::admission::UNRESOLVED_TARGET_PORT;
use crate::objects::{Condition, ConditionStatus, Event, EventKind, ObjectRef};

/// From how many failures in a row on people hear of what time may cure: one or two are nothing in a cloud.
const WORTH_TELLING: u32 = 3;

/// What was said of the Services that have not come to rest, and which of them have to be told of.
#[derive(Debug, Default)]
pub(crate) struct Stories {
    rejections: BTreeMap<ServiceId, Rejection>,
    failures: BTreeMap<ServiceId, Failed>,
    /// The Services about which something was said since they were told of last.
    changed: BTreeSet<ServiceId>,
}

#[derive(Debug)]
struct Failed {
    kind: FailureKind,
    /// The one that was told last: each has request ids of its own.
    message: String,
    times: u32,
}

impl Failed {
    /// Whether people hear of the failure that has just happened: of what time will not cure at once, and then of every
    /// doubling of their number.
    fn is_worth_telling(&self) -> bool {
        (self.times >= WORTH_TELLING || !is_curable(self.kind))
            && (self.times.is_power_of_two() || self.times == WORTH_TELLING)
    }
}

impl Stories {
    /// Takes a notice in, and says which events it is worth. `service` gives the object of a Service, if there is one.
    pub(crate) fn handle_notice(
        &mut self,
        notice: &Notice,
        service: impl Fn(&ServiceId) -> Option<ObjectRef>,
        programmed: impl Fn(clb_difftracker::Ip) -> Programmed,
    ) -> Vec<Event> {
        let event = |about: Option<ObjectRef>, kind, reason: &'static str, message: String| {
            about.map(|about| Event { about, kind, reason: reason.into(), message })
        };
        match notice {
            Notice::Phase { service, to, .. } => {
                self.changed.insert(service.clone());
                if matches!(to, None | Some(Phase::Ready)) {
                    self.failures.remove(service);
                }
                if *to != Some(Phase::Rejected) {
                    self.rejections.remove(service);
                }
                Vec::new()
            }
            Notice::Rejected { service, key, rejection } => {
                self.changed.insert(service.clone());
                self.rejections.insert(service.clone(), rejection.clone());
                let is_waiting = rejection.reason == UNRESOLVED_TARGET_PORT;
                vec![Event {
                    about: ObjectRef::Service { id: service.clone(), key: key.clone() },
                    kind: if is_waiting { EventKind::Normal } else { EventKind::Warning },
                    reason: rejection.reason.clone(),
                    message: rejection.message.clone(),
                }]
            }
            Notice::Failed { service: Some(id), kind, message, .. } => {
                let failed = self.failures.entry(id.clone()).or_insert_with(|| Failed {
                    kind: *kind,
                    message: message.clone(),
                    times: 0,
                });
                failed.times = if failed.kind == *kind { failed.times.saturating_add(1) } else { 1 };
                failed.kind = *kind;
                if !failed.is_worth_telling() {
                    return Vec::new();
                }
                failed.message.clone_from(message);
                self.changed.insert(id.clone());
                event(service(id), EventKind::Warning, reason(*kind), message.clone()).into_iter().collect()
            }
            Notice::EgressRefused { egress, .. } => {
                let message = format!(
                    "pods ask for an outbound service called {egress}, which is the UID of this Service; they do not get it. \
                     Give their egress label another value"
                );
                let about = service(egress.id());
                event(about, EventKind::Warning, "EgressNameRefused", message).into_iter().collect()
            }
            Notice::PodFailed { pod, request, message, .. } => {
                let message =
                    format!("the finalizer that keeps the pod until its address is withdrawn: {message}");
                let about = Some(ObjectRef::Pod(pod.clone()));
                let reason = match request {
                    PodRequest::AddFinalizer => "ServiceGatewayFinalizerAddFailed",
                    PodRequest::RemoveFinalizer => "ServiceGatewayFinalizerRemoveFailed",
                };
                event(about, EventKind::Warning, reason, message).into_iter().collect()
            }
            Notice::Quarantined { address, message, .. } => {
                let Programmed { awaited, .. } = programmed(*address);
                let message = format!("Azure refuses the address {address}: {message}");
                let about = |id| event(service(id), EventKind::Warning, "AddressRefused", message.clone());
                awaited.iter().filter_map(about).collect()
            }
            Notice::Failed { service: None, .. } | Notice::DeletionsHeld { .. } => Vec::new(),
        }
    }

    /// The Services about which something was said since this was asked last, each with the condition that it should show.
    pub(crate) fn take_changed(&mut self, tracker: &DiffTracker) -> Vec<(ServiceId, Condition)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|id| (id.clone(), self.condition(tracker, &id))).collect()
    }

    /// Everything has to be told anew: another replica may have told otherwise.
    pub(crate) fn tell_all(&mut self, services: impl IntoIterator<Item = ServiceId>) {
        self.changed.extend(services);
    }

    fn condition(&self, tracker: &DiffTracker, id: &ServiceId) -> Condition {
        let Some(status) = tracker.status(id) else {
            let message = "it has no load balancer of ours".to_owned();
            return Condition { status: ConditionStatus::False, reason: "Released".into(), message };
        };
        let failure = self.failures.get(id).map(|failed| failed.message.clone());
        let no = |reason: Phase, message: &str| Condition {
            status: ConditionStatus::False,
            reason: reason.to_string().into(),
            message: message.to_owned(),
        };
        match status.phase {
            Phase::Ready => {
                let message = status.ingress.map(|ip| format!("it is reached at {ip}")).unwrap_or_default();
                Condition { status: ConditionStatus::True, reason: "Programmed".into(), message }
            }
            Phase::Rejected => match self.rejections.get(id) {
                Some(Rejection { reason, message }) => Condition {
                    status: ConditionStatus::False,
                    reason: reason.clone(),
                    message: message.clone(),
                },
                None => no(Phase::Rejected, ""),
            },
            Phase::Retrying => {
                let kind = self.failures.get(id).map(|failed| failed.kind);
                let message = failure.unwrap_or_default();
                let reason = kind.map_or("Retrying", reason);
                Condition { status: ConditionStatus::False, reason: reason.into(), message }
            }
            phase @ Phase::Pending => no(phase, "it waits for its turn"),
            phase @ Phase::Creating => no(phase, "its load balancer is being made"),
            phase @ Phase::Updating => no(phase, "its load balancer is being changed"),
            phase @ Phase::Draining => no(phase, "its addresses are being withdrawn"),
            phase @ Phase::Deleting => no(phase, "its load balancer is being removed"),
        }
    }
}

fn is_curable(kind: FailureKind) -> bool {
    match kind {
        FailureKind::Throttled { .. }
        | FailureKind::Conflict
        | FailureKind::Transient
        | FailureKind::NotFound
        | FailureKind::StillReferenced => true,
        FailureKind::Invalid | FailureKind::Forbidden | FailureKind::Quota => false,
    }
}

fn reason(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Invalid => "ServiceGatewayConfigurationRejected",
        FailureKind::Forbidden => "AzureForbidden",
        FailureKind::Quota => "AzureQuotaExceeded",
        FailureKind::Throttled { .. } => "AzureThrottled",
        FailureKind::Conflict
        | FailureKind::Transient
        | FailureKind::NotFound
        | FailureKind::StillReferenced => "Retrying",
    }
}
