//! # Readiness of pods
//!
//! A pod that has just become ready gets no traffic before Azure lists its address, and a roll-out that trusts readiness alone
//! takes the old pod away in the meantime. A *readiness gate* closes that gap: the pod is ready only when its condition
//! [`PROGRAMMED`] is true, and this controller makes it so when Azure has acknowledged the pod's address for every Service that
//! selects the pod.
//!
//! To use it, give the pod template both the gate and the label by which such pods are found (an API server cannot be asked for
//! pods by their gates):
//!
//! ```yaml
//! metadata:
//!   labels:
//!     clb.azure.com/readiness-gate: enabled
//! spec:
//!   readinessGates:
//!   - conditionType: clb.azure.com/programmed
//! ```
//!
//! The label alone does nothing; the gate alone would keep the pod unready for ever, so set them together. The other half of a
//! roll-out without loss is the pod that goes: let it serve until Azure has forgotten it, with a `preStop` sleep of some seconds.
//!
//! While everything but our condition is true, the pod's endpoint counts as ready for us, though its EndpointSlice says that it is
//! not: otherwise both sides would wait for each other. If Azure cannot be programmed for
//! [`ReadinessConfig::gate_timeout`], the condition becomes true all the same, with the reason `TimedOut`: an outage of ours must
//! not stop every roll-out.
//!
//! The condition of a pod that runs stays true, unless the pod comes to have other addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clb_difftracker::{Ip, IpFamily, PodRef, Programmed, ServiceId, Timestamp, Uid};
use k8s_openapi::api::core::v1::Pod;

use crate::convert::{ConvertError, parse_ip, pod_ref};
use crate::objects::{Condition, ConditionStatus, PROGRAMMED};

/// The label of pods whose readiness waits for us; its value does not matter.
pub const GATE_LABEL: &str = "clb.azure.com/readiness-gate";

/// When endpoints count that are not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadinessConfig {
    /// How long a Service keeps the endpoints that were ready when their nodes went out of reach, if it has no other ready
    /// ones.
    ///
    /// Default 5 min: as long as Kubernetes lets pods stay on such nodes. Zero keeps none.
    pub hold: Duration,
    /// How long a pod that is ready but for us waits for Azure at most.
    ///
    /// Default 10 min: longer than anything but an outage, and as long as a Deployment waits for progress by default.
    pub gate_timeout: Duration,
}

impl Default for ReadinessConfig {
    fn default() -> Self {
        Self { hold: Duration::from_secs(300), gate_timeout: Duration::from_secs(600) }
    }
}

/// The pods with our gate.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    pods: BTreeMap<Uid, GatedPod>,
    /// Those that wait, and until when at most.
    waiting: BTreeSet<(Timestamp, Uid)>,
}

#[derive(Debug)]
struct GatedPod {
    pod: PodRef,
    labels: BTreeMap<String, String>,
    ips: Vec<Ip>,
    /// Since when it has been ready but for us.
    ready_since: Option<Timestamp>,
    /// Whether the object says so: our condition is true.
    is_told: bool,
    /// The addresses for which it was told.
    told_for: Vec<Ip>,
    /// What was decided for it in this form.
    asked: Option<ConditionStatus>,
    deadline: Option<Timestamp>,
}

impl GatedPod {
    fn waits(&self) -> bool {
        self.ready_since.is_some() && (!self.is_told || self.has_moved())
    }

    fn has_moved(&self) -> bool {
        self.is_told && !self.ips.is_empty() && self.ips != self.told_for
    }
}

impl Gates {
    /// A pod is there in this form. Returns whether its endpoints may count otherwise than before.
    pub(crate) fn apply(
        &mut self,
        pod: &Pod,
        now: Timestamp,
        timeout: Duration,
    ) -> Result<Option<Uid>, ConvertError> {
        let pod_ref = pod_ref(pod)?;
        let uid = pod_ref.uid.clone();
        let before = self.forget(&uid);
        let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
        if !gates.iter().any(|gate| gate.condition_type == PROGRAMMED) {
            return Ok(before.and_then(|before| before.ready_since).map(|_| uid));
        }
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let is_true = |name: &str| conditions.iter().any(|it| it.type_ == name && it.status == "True");
        let others = gates.iter().map(|gate| gate.condition_type.as_str()).filter(|name| *name != PROGRAMMED);
        let is_ready = pod.metadata.deletion_timestamp.is_none()
            && is_true("ContainersReady")
            && others.into_iter().all(is_true);
        let ips = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
        let ips: Vec<Ip> = ips.iter().filter_map(|ip| parse_ip(&ip.ip)).collect();
        let was_ready = before.as_ref().and_then(|before| before.ready_since);
        let is_told = is_true(PROGRAMMED);
        let told_for = match before {
            Some(before) if before.is_told => before.told_for,
            Some(_) | None => ips.clone(),
        };
        let mut gated = GatedPod {
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            pod: pod_ref,
            ips,
            ready_since: is_ready.then(|| was_ready.unwrap_or(now)),
            is_told,
            told_for,
            asked: None,
            deadline: None,
        };
        if let Some(since) = gated.ready_since.filter(|_| gated.waits()) {
            let deadline = since.after(timeout);
            gated.deadline = Some(deadline);
            self.waiting.insert((deadline, uid.clone()));
        }
        self.pods.insert(uid.clone(), gated);
        Ok((was_ready.is_some() != is_ready).then_some(uid))
    }

    /// A pod is gone. Returns whether its endpoints may count otherwise than before.
    pub(crate) fn remove(&mut self, uid: &Uid) -> bool {
        self.forget(uid).is_some_and(|gated| gated.ready_since.is_some())
    }

    fn forget(&mut self, uid: &Uid) -> Option<GatedPod> {
        let gated = self.pods.remove(uid)?;
        if let Some(deadline) = gated.deadline {
            self.waiting.remove(&(deadline, uid.clone()));
        }
        Some(gated)
    }

    pub(crate) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.pods.keys()
    }

    /// Whether a pod is, or would be ready but for us.
    pub(crate) fn waits_for_us(&self, uid: &Uid) -> bool {
        self.pods.get(uid).is_some_and(|gated| gated.ready_since.is_some())
    }

    /// When the next pod has waited for long enough.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// What was decided is to be decided anew: it may not have been written.
    pub(crate) fn ask_again(&mut self) {
        self.pods.values_mut().for_each(|gated| gated.asked = None);
    }

    /// The conditions that should be written now on pods that wait, each once. The cost is that of a look at each of them.
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        programmed: impl Fn(Ip) -> Programmed,
        selecting: impl Fn(&str, &BTreeMap<String, String>) -> Vec<(ServiceId, IpFamily)>,
    ) -> Vec<(PodRef, Condition)> {
        let mut decided = Vec::new();
        for (deadline, uid) in &self.waiting {
            let Some(gated) = self.pods.get_mut(uid) else { continue };
            if gated.asked == Some(ConditionStatus::True) {
                continue;
            }
            let awaited = gated.awaited(&programmed, &selecting);
            let condition = if awaited.is_empty() && !gated.ips.is_empty() {
                condition(
                    ConditionStatus::True,
                    "Programmed",
                    "every Service that selects it has its address",
                )
            } else if *deadline <= now {
                let names = awaited.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let message =
                    format!("ready all the same, though these Services do not have its address yet: {names}");
                condition(ConditionStatus::True, "TimedOut", &message)
            } else if gated.has_moved() {
                condition(
                    ConditionStatus::False,
                    "AddressChanged",
                    "Services do not have its new address yet",
                )
            } else {
                continue;
            };
            if gated.asked != Some(condition.status) {
                gated.asked = Some(condition.status);
                decided.push((gated.pod.clone(), condition));
            }
        }
        decided
    }
}

impl GatedPod {
    /// The Services that should have its addresses and, as far as is known, do not.
    fn awaited(
        &self,
        programmed: impl Fn(Ip) -> Programmed,
        selecting: impl Fn(&str, &BTreeMap<String, String>) -> Vec<(ServiceId, IpFamily)>,
    ) -> BTreeSet<ServiceId> {
        let states: Vec<(Ip, Programmed)> = self.ips.iter().map(|ip| (*ip, programmed(*ip))).collect();
        let awaited: BTreeSet<_> = states.iter().flat_map(|(_, state)| state.awaited.clone()).collect();
        if !awaited.is_empty() {
            return awaited;
        }
        // Its slices may not be known yet, so the selectors count as well.
        let lacks = |(service, family): &(ServiceId, IpFamily)| {
            let of_family = states.iter().filter(|(ip, _)| ip.family() == *family);
            of_family.into_iter().any(|(_, state)| !state.acknowledged.contains(service))
        };
        let selected = selecting(&self.pod.key.namespace, &self.labels);
        selected.into_iter().filter(lacks).map(|(service, _)| service).collect()
    }
}

fn condition(status: ConditionStatus, reason: &'static str, message: &str) -> Condition {
    Condition { status, reason: reason.into(), message: message.to_owned() }
}
