//! The life of pods: they are scheduled, started, ready or not, out of reach, and stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::{Cluster, Key};
use super::conditions::{Said, condition, is_true, set_condition};
use super::controllers::{is_terminating, list, text};
use super::kind::Kind;

/// Whether a pod has ended for good.
pub(super) fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a pod was given to a node and was started there.
fn has_started(pod: &Value) -> bool {
    !text(pod, "/spec/nodeName").is_empty() && !text(pod, "/status/podIP").is_empty()
}

/// Whether a node can be reached. One that says nothing can.
pub(super) fn is_node_ready(node: &Value) -> bool {
    condition(node, "Ready").is_none_or(|ready| ready["status"] == "True")
}

/// Whether a node that says this about itself takes new pods.
fn is_schedulable(node: &Value) -> bool {
    is_node_ready(node) && node["spec"]["unschedulable"] != true
}

/// What `Ready` says of a pod whose containers are as this condition says: `GeneratePodReadyCondition` in Kubernetes'
/// `pkg/kubelet/status`.
fn readiness(pod: &Value, containers: &Said) -> Said {
    if containers.status != "True" {
        return containers.clone();
    }
    let missing = |gate: &Value| {
        let gate = text(gate, "/conditionType");
        match condition(pod, gate).map(|condition| text(condition, "/status")) {
            Some("True") => None,
            Some(status) => {
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
        }
    };
    let missing: Vec<String> = list(pod, "/spec/readinessGates").iter().filter_map(missing).collect();
    if missing.is_empty() {
        Said::new("True", "", "")
    } else {
        Said::new("False", "ReadinessGatesNotReady", missing.join(", "))
    }
}

/// For how long a pod that is deleted goes on as before: its containers sleep before they stop, all at once.
fn pre_stop(pod: &Value) -> Duration {
    let sleep = |container: &Value| container.pointer("/lifecycle/preStop/sleep/seconds")?.as_u64();
    Duration::from_secs(list(pod, "/spec/containers").iter().filter_map(sleep).max().unwrap_or(0))
}

/// How long a pod that is deleted may take to stop.
fn grace(pod: &Value) -> Duration {
    let seconds = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
    Duration::from_secs(seconds.unwrap_or(0))
}

/// When the pods stop that were deleted and still run, since 1970.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    /// With the uid of the pod: another one may take its name.
    of: BTreeMap<Key, (String, Duration)>,
    /// Those that are not due yet.
    order: BTreeSet<(Duration, Key)>,
}

impl Stops {
    /// Takes in that a pod stops at this time at the latest. Returns when it does.
    fn at_latest(&mut self, key: &Key, uid: &str, at: Duration) -> Duration {
        let held = self.of.get(key).filter(|(of, _)| of == uid).map(|(_, held)| *held);
        let at = held.map_or(at, |held| held.min(at));
        if held != Some(at) {
            self.forget(key);
            self.of.insert(key.clone(), (uid.to_owned(), at));
            self.order.insert((at, key.clone()));
        }
        at
    }

    fn forget(&mut self, key: &Key) {
        if let Some((_, at)) = self.of.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// The pods that stop now or should have. Each is told once.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<Key> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            due.extend(self.order.pop_first().map(|(_, key)| key));
        }
        due
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.order.first().map(|(at, _)| *at)
    }
}

impl Cluster {
    /// Brings one pod as far as it can come now.
    pub(super) fn run_pod(&mut self, key: &Key) {
        self.controlled.waiting.remove(key);
        let Some(pod) = self.objects.get(key).cloned() else { return self.controlled.stops.forget(key) };
        if is_terminating(&pod) {
            if self.stops_now(key, &pod) {
                return self.end_pod(key, &pod);
            }
        } else {
            self.controlled.stops.forget(key);
            if !has_started(&pod) {
                return self.start_pod(key, &pod);
            }
        }
        self.judge_pod(key, &pod);
    }

    fn start_pod(&mut self, key: &Key, pod: &Arc<Value>) {
        let mut new = pod.as_ref().clone();
        if text(pod, "/spec/nodeName").is_empty()
            && let Some(node) = self.next_node()
        {
            new["spec"]["nodeName"] = json!(node);
            self.controlled.last_node = node;
        }
        if text(pod, "/status/podIP").is_empty() {
            if let Some(host) = self.host(text(&new, "/spec/nodeName")) {
                self.counter += 1;
                let [.., a, b, c] = self.counter.to_be_bytes();
                let ip = json!(format!("10.{}.{b}.{c}", 200_u8.saturating_add(a)));
                // Readiness gates may be open before.
                let conditions = list(pod, "/status/conditions");
                new["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": host,
                    "hostIPs": [{"ip": host}], "conditions": conditions});
                let (now, running) = (self.timestamp(Duration::ZERO), Said::new("True", "", ""));
                set_condition(&mut new, "ContainersReady", &running, &now);
                let ready = readiness(&new, &running);
                set_condition(&mut new, "Ready", &ready, &now);
            } else {
                self.controlled.waiting.insert(key.clone());
            }
        }
        if new != **pod {
            self.commit(key.clone(), new, false);
        }
    }

    /// Says of a pod that was started whether it is ready.
    fn judge_pod(&mut self, key: &Key, pod: &Arc<Value>) {
        if is_terminal(pod) {
            return;
        }
        let (containers, ready) = (condition(pod, "ContainersReady"), condition(pod, "Ready"));
        // The containers of a pod that was loaded are what it says that it is itself.
        let Some(said) = containers.or(ready).map(Said::of) else { return };
        let wanted = if self.is_within_reach(pod) {
            readiness(pod, &said)
        } else {
            // As the node lifecycle controller does it, which leaves the reason.
            Said { status: "False".to_owned(), ..ready.map(Said::of).unwrap_or_default() }
        };
        if containers.is_some() && ready.map(Said::of).as_ref() == Some(&wanted) {
            return;
        }
        let (mut new, now) = (pod.as_ref().clone(), self.timestamp(Duration::ZERO));
        set_condition(&mut new, "ContainersReady", &said, &now);
        set_condition(&mut new, "Ready", &wanted, &now);
        self.commit(key.clone(), new, false);
    }

    /// Whether a pod that was deleted has stopped. One that is out of reach does not hear of it.
    fn stops_now(&mut self, key: &Key, pod: &Value) -> bool {
        if !self.is_within_reach(pod) {
            return false;
        }
        let is_running = has_started(pod) && !is_terminal(pod);
        let more = if is_running { pre_stop(pod).min(grace(pod)) } else { Duration::ZERO };
        self.controlled.stops.at_latest(key, text(pod, "/metadata/uid"), self.now + more) <= self.now
    }

    /// Takes away a pod that has stopped, or only says that it has while something holds it.
    fn end_pod(&mut self, key: &Key, pod: &Arc<Value>) {
        self.controlled.stops.forget(key);
        let mut new = pod.as_ref().clone();
        if list(pod, "/metadata/finalizers").is_empty() {
            self.remove(key.clone(), new);
            return;
        }
        if !is_terminal(pod) {
            let has_finished = has_started(pod) && pre_stop(pod) <= grace(pod);
            let (phase, reason) =
                if has_finished { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
            new["status"]["phase"] = json!(phase);
            let (now, stopped) = (self.timestamp(Duration::ZERO), Said::new("False", reason, ""));
            set_condition(&mut new, "ContainersReady", &stopped, &now);
            set_condition(&mut new, "Ready", &stopped, &now);
        }
        self.set_deletion(&mut new, 0);
        if new != **pod {
            self.commit(key.clone(), new, false);
        }
    }

    /// The node whose turn it is.
    fn next_node(&self) -> Option<String> {
        let last = (Kind::Node, String::new(), self.controlled.last_node.clone());
        let after = self.objects.range((Bound::Excluded(last), Bound::Unbounded));
        let after = after.take_while(|((kind, ..), _)| *kind == Kind::Node);
        let mut nodes = after.chain(self.of_kind(Kind::Node));
        nodes.find(|(_, node)| is_schedulable(node)).map(|((.., name), _)| name.clone())
    }

    /// The address at which a node runs pods, if it can be reached.
    fn host(&self, node: &str) -> Option<Value> {
        let node = self.node(node).filter(|node| is_node_ready(node))?;
        let mut addresses = list(node, "/status/addresses").iter();
        addresses.find(|address| address["type"] == "InternalIP").map(|internal| internal["address"].clone())
    }

    fn node(&self, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&(Kind::Node, String::new(), name.to_owned()))
    }

    /// Whether the node of a pod can be reached. One that is not known can.
    fn is_within_reach(&self, pod: &Value) -> bool {
        self.node(text(pod, "/spec/nodeName")).is_none_or(|node| is_node_ready(node))
    }

    /// Says of a node that it is ready, or that its kubelet is no longer heard of, with the reasons that a real cluster gives.
    /// The pods of a node that is not ready are not either, are not stopped, and are found to serve nobody; new ones go elsewhere.
    ///
    /// # Errors
    /// The API server's words when there is no such node.
    pub fn set_node_ready(&mut self, name: &str, is_ready: bool) -> Result<(), String> {
        let key = (Kind::Node, String::new(), name.to_owned());
        let node = self.get(&key).map_err(|refusal| refusal.message().to_owned())?.clone();
        let mut new = node.as_ref().clone();
        let said = if is_ready {
            Said::new("True", "KubeletReady", "kubelet is posting ready status")
        } else {
            Said::new("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        };
        set_condition(&mut new, "Ready", &said, &self.timestamp(Duration::ZERO));
        if new != *node {
            self.commit(key, new, false);
        }
        Ok(())
    }

    /// The addresses at which pods serve, each with those of the node that leads there, if the pod says which. A pod serves
    /// while its containers run and its node can be reached, ready or not: its containers are ready, or it was deleted and has
    /// not stopped.
    #[must_use]
    pub fn serving(&self) -> BTreeMap<IpAddr, BTreeSet<IpAddr>> {
        let addresses = |pod: &Value, pointer: &str| -> Vec<IpAddr> {
            list(pod, pointer).iter().filter_map(|ip| text(ip, "/ip").parse().ok()).collect()
        };
        let mut serving: BTreeMap<IpAddr, BTreeSet<IpAddr>> = BTreeMap::new();
        for pod in self.objects(Kind::Pod).filter(|pod| self.serves(pod)) {
            for ip in addresses(pod, "/status/podIPs") {
                serving.entry(ip).or_default().extend(addresses(pod, "/status/hostIPs"));
            }
        }
        serving
    }

    fn serves(&self, pod: &Value) -> bool {
        let containers =
            if condition(pod, "ContainersReady").is_some() { "ContainersReady" } else { "Ready" };
        has_started(pod)
            && !is_terminal(pod)
            && (is_terminating(pod) || is_true(pod, containers))
            && self.is_within_reach(pod)
    }
}
