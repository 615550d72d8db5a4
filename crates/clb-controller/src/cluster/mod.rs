//! What the objects of a cluster mean together, as changes for the tracker.
//!
//! Most objects mean what they say, and [`convert`] says what that is. Some depend on others:
//!
//! * a Service with named target ports, on its EndpointSlices, which alone know the numbers;
//! * an endpoint that is not ready, on its node, which may be out of reach, and on its pod, which may wait for us
//!   ([`readiness`](crate::readiness));
//! * a Node, on its machine ([`NodeJoin`]).
//!
//! [`ClusterView`] keeps of each object what that takes and nothing else. It is pure: what is watched and the time go in,
//! [`Change`]s and [`Report`]s come out.

mod services;
mod slices;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use clb_difftracker::{
    Change, Intent, Ip, Kind, NodeName, ObjectKey, ObjectName, PodRef, Programmed, ServiceId, ServiceRef,
    Timestamp, Uid,
};
use clb_vmss::NodeEvent;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission::{AdmissionPolicy, has_named_port};
use crate::convert::{self, ConvertError, Converted, Problem};
use crate::nodes::{Anticipation, NodeJoin};
use crate::objects::{Condition, ConditionStatus, Event, EventKind, ObjectRef, PROGRAMMED};
use crate::readiness::{Gates, ReadinessConfig};
use crate::watched::{WatchEvent, Watched};
use services::{Backends, Facts, Services};
use slices::{Context, Slices, Told};

/// Something that people should hear of what the cluster's objects say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An object cannot be used, in this form.
    Skipped {
        /// Its kind.
        kind: Kind,
        /// What is wrong, with the object's name.
        error: String,
    },
    /// A part of an object is not used, or counts otherwise than it says.
    Event(Event),
}

/// Turns what is watched into changes.
///
/// Inputs are [`handle_watched`](Self::handle_watched), [`handle_machine`](Self::handle_machine) and
/// [`handle_timeout`](Self::handle_timeout). After any of them, drain [`poll_change`](Self::poll_change) and
/// [`poll_report`](Self::poll_report), and ask [`poll_timeout`](Self::poll_timeout) when to come back.
#[derive(Debug, Default)]
pub struct ClusterView {
    policy: AdmissionPolicy,
    config: ReadinessConfig,
    now: Timestamp,
    nodes: NodeJoin,
    /// The nodes out of reach, and since when.
    out_of_reach: BTreeMap<NodeName, Timestamp>,
    services: Services,
    slices: Slices,
    gates: Gates,
    lists: Lists,
    changes: VecDeque<Change>,
    reports: VecDeque<Report>,
}

/// What the lists that are being read have named so far.
#[derive(Debug, Default)]
struct Lists {
    services: Option<BTreeSet<ObjectKey>>,
    slices: Option<BTreeSet<ObjectKey>>,
    nodes: Option<BTreeSet<NodeName>>,
    gated: Option<BTreeSet<Uid>>,
}

fn note<K: Ord>(list: &mut Option<BTreeSet<K>>, key: K) {
    if let Some(list) = list {
        list.insert(key);
    }
}

impl ClusterView {
    /// A view of a cluster of which nothing is known.
    #[must_use]
    pub fn new(policy: AdmissionPolicy, config: ReadinessConfig, anticipation: Anticipation) -> Self {
        Self { policy, config, nodes: NodeJoin::new(anticipation), ..Self::default() }
    }

    /// Something was watched. An interruption changes nothing.
    pub fn handle_watched(&mut self, watched: Watched, now: Timestamp) {
        self.now = self.now.max(now);
        match watched {
            Watched::Services(event) => self.on_services(event),
            Watched::EndpointSlices(event) => self.on_slices(event),
            Watched::Nodes(event) => self.on_nodes(event),
            Watched::Pods(event) => self.on_pods(event),
            Watched::GatedPods(event) => self.on_gated_pods(event),
        }
    }

    /// Something changed in a scale set.
    pub fn handle_machine(&mut self, event: NodeEvent) {
        self.changes.extend(self.nodes.handle_machine(event));
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        for key in self.slices.expire(self.now, self.config.hold) {
            self.tell_slice(&key);
        }
    }

    /// The next change.
    #[must_use]
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// The next thing that people should hear.
    #[must_use]
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), or to ask for [`pod_conditions`](Self::pod_conditions).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let deadline = self.gates.next_deadline().filter(|at| *at > self.now);
        [self.slices.next_expiry(), deadline].into_iter().flatten().min()
    }

    /// The conditions that should be written now on pods whose readiness waits for us, with what the tracker says of their
    /// addresses; each is given once. The cost is that of a look at each pod that waits.
    pub fn pod_conditions(&mut self, programmed: impl Fn(Ip) -> Programmed) -> Vec<(PodRef, Condition)> {
        let services = &self.services;
        self.gates.decide(self.now, programmed, |namespace, labels| services.selecting(namespace, labels))
    }

    /// The conditions of pods are to be given once more: what was given may not have been written.
    pub fn ask_again(&mut self) {
        self.gates.ask_again();
    }

    /// The Services that ask for a load balancer of ours, or show our condition.
    pub fn services(&self) -> impl Iterator<Item = &ServiceId> {
        self.services.ids()
    }

    /// What is known of a Service's object: its name, and our condition as it stands there. `None` if there is no such object, if
    /// it is being deleted, or if it neither asks for anything nor shows anything of ours.
    #[must_use]
    pub fn service(&self, id: &ServiceId) -> Option<(&ObjectKey, Option<&Condition>)> {
        let (key, facts) = self.services.of_id(id)?;
        (!facts.is_deleted).then_some((key, facts.condition.as_ref()))
    }

    fn on_services(&mut self, event: WatchEvent<Service>) {
        match event {
            WatchEvent::ListBegan => {
                self.lists.services = Some(BTreeSet::new());
                self.changes.push_back(Change::ResyncBegin(Kind::Service));
            }
            WatchEvent::ListDone => {
                if let Some(listed) = self.lists.services.take() {
                    let gone: Vec<_> =
                        self.services.keys().filter(|key| !listed.contains(key)).cloned().collect();
                    gone.iter().for_each(|key| self.services.remove(key));
                }
                self.changes.push_back(Change::ResyncDone(Kind::Service));
            }
            WatchEvent::Applied(service) => self.on_service(Arc::new(*service)),
            WatchEvent::Deleted(metadata) => {
                match convert::service_gone(&Service { metadata: *metadata, ..Service::default() }) {
                    Ok(change) => {
                        if let Change::ServiceGone(id) = &change {
                            self.services.remove_id(id);
                        }
                        self.changes.push_back(change);
                    }
                    Err(error) => self.skip(error),
                }
            }
            WatchEvent::Malformed { metadata, error } => {
                let id = metadata.uid.as_deref().and_then(|uid| ServiceId::new(uid).ok());
                if let Some(key) = key(&metadata) {
                    note(&mut self.lists.services, key);
                }
                self.unreadable(Kind::Service, &metadata, &error, id.map(ObjectName::Service));
            }
            WatchEvent::Interrupted(_) | WatchEvent::Resumed => {}
        }
    }

    fn on_service(&mut self, service: Arc<Service>) {
        if let Some(key) = key(&service.metadata) {
            note(&mut self.lists.services, key);
        }
        let names = service_refs(&service.metadata);
        let admission = self
            .policy
            .admit_with(&service, &|name, protocol| self.slices.named_port(&names, name, protocol));
        match convert::service_admitted(&service, admission) {
            Ok(Converted { change, problems }) => {
                if let Change::ServiceApplied(applied) = &change {
                    self.remember_service(&service, &applied.id, &applied.key, &applied.intent);
                    let about = ObjectRef::Service { id: applied.id.clone(), key: applied.key.clone() };
                    self.tell_problems(&about, problems);
                }
                self.changes.push_back(change);
            }
            Err(error) => {
                if let Some(id) = service.metadata.uid.as_deref().and_then(|uid| ServiceId::new(uid).ok()) {
                    self.changes.push_back(Change::Unreadable(ObjectName::Service(id)));
                }
                self.skip(error);
            }
        }
    }

    fn remember_service(&mut self, service: &Arc<Service>, id: &ServiceId, key: &ObjectKey, intent: &Intent) {
        let condition = service_condition(service);
        if *intent == Intent::None && condition.is_none() {
            return self.services.remove(key);
        }
        let is_ours = *intent != Intent::None;
        let backends = match intent {
            Intent::LoadBalancer(spec) => Some(Backends {
                family: spec.family(),
                selector: service.spec.as_ref().and_then(|spec| spec.selector.clone()),
            }),
            Intent::Rejected(_) | Intent::None => None,
        };
        let facts = Facts {
            id: id.clone(),
            named: (is_ours && has_named_port(service)).then(|| service.clone()),
            backends,
            condition,
            is_deleted: service.metadata.deletion_timestamp.is_some(),
        };
        self.services.insert(key.clone(), facts);
    }

    /// The slices of a Service may say something else of its named ports.
    fn judge_again(&mut self, service: &ServiceRef) {
        let facts = match service {
            ServiceRef::Name(key) => self.services.get(key),
            ServiceRef::Uid { id, .. } => self.services.of_id(id).map(|(_, facts)| facts),
        };
        if let Some(service) = facts.and_then(|facts| facts.named.clone()) {
            let names = service_refs(&service.metadata);
            let admission = self
                .policy
                .admit_with(&service, &|name, protocol| self.slices.named_port(&names, name, protocol));
            // It was converted before, and its problems told.
            if let Ok(Converted { change, .. }) = convert::service_admitted(&service, admission) {
                if let Change::ServiceApplied(applied) = &change {
                    self.remember_service(&service, &applied.id, &applied.key, &applied.intent);
                }
                self.changes.push_back(change);
            }
        }
    }

    fn on_slices(&mut self, event: WatchEvent<EndpointSlice>) {
        match event {
            WatchEvent::ListBegan => {
                self.lists.slices = Some(BTreeSet::new());
                self.changes.push_back(Change::ResyncBegin(Kind::EndpointSlice));
            }
            WatchEvent::ListDone => {
                if let Some(listed) = self.lists.slices.take() {
                    let gone: Vec<_> =
                        self.slices.keys().filter(|key| !listed.contains(key)).cloned().collect();
                    gone.iter().for_each(|key| self.forget_slice(key));
                }
                self.changes.push_back(Change::ResyncDone(Kind::EndpointSlice));
            }
            WatchEvent::Applied(slice) => self.on_slice(&slice),
            WatchEvent::Deleted(metadata) => {
                let last = EndpointSlice { metadata: *metadata, ..EndpointSlice::default() };
                match convert::endpoint_slice_gone(&last) {
                    Ok(change) => {
                        self.changes.push_back(change);
                        if let Some(key) = key(&last.metadata) {
                            self.forget_slice(&key);
                        }
                    }
                    Err(error) => self.skip(error),
                }
            }
            WatchEvent::Malformed { metadata, error } => {
                let name = key(&metadata);
                if let Some(key) = &name {
                    note(&mut self.lists.slices, key.clone());
                }
                let name = name.map(ObjectName::EndpointSlice);
                self.unreadable(Kind::EndpointSlice, &metadata, &error, name);
            }
            WatchEvent::Interrupted(_) | WatchEvent::Resumed => {}
        }
    }

    fn on_slice(&mut self, slice: &EndpointSlice) {
        if let Some(key) = key(&slice.metadata) {
            note(&mut self.lists.slices, key);
        }
        let form = match convert::slice_form(slice) {
            Ok(form) => form,
            Err(error) => {
                if let Some(key) = key(&slice.metadata) {
                    self.changes.push_back(Change::Unreadable(ObjectName::EndpointSlice(key)));
                }
                return self.skip(error);
            }
        };
        let object = format!("the EndpointSlice {}", form.key);
        for problem in form.problems {
            let error = format!("{object}: {problem}");
            self.reports.push_back(Report::Skipped { kind: Kind::EndpointSlice, error });
        }
        let Some(mut content) = form.content else {
            self.changes.push_back(Change::EndpointSliceGone(form.key.clone()));
            return self.forget_slice(&form.key);
        };
        for endpoint in &mut content.endpoints {
            // One allocation for the name of a node, not one for each endpoint on it.
            if let Some(name) = self.nodes.known_name(&endpoint.node) {
                endpoint.node = name.clone();
            }
        }
        let service = content.service.clone();
        let waits_for_us = |uid: &Uid| self.gates.waits_for_us(uid);
        let context = Context {
            now: self.now,
            hold: self.config.hold,
            out_of_reach: &self.out_of_reach,
            waits_for_us: &waits_for_us,
        };
        let former = self.slices.apply(&form.key, content, &context);
        self.tell_slice(&form.key);
        for service in [Some(service), former].into_iter().flatten() {
            self.judge_again(&service);
        }
    }

    fn forget_slice(&mut self, key: &ObjectKey) {
        if let Some(service) = self.slices.forget(key) {
            self.judge_again(&service);
        }
    }

    /// Tells a slice as it counts now.
    fn tell_slice(&mut self, key: &ObjectKey) {
        let waits_for_us = |uid: &Uid| self.gates.waits_for_us(uid);
        let context = Context {
            now: self.now,
            hold: self.config.hold,
            out_of_reach: &self.out_of_reach,
            waits_for_us: &waits_for_us,
        };
        let Some(Told { change, keeps }) = self.slices.tell(key, &context) else { return };
        self.changes.push_back(change);
        let Some((service, kept)) = keeps else { return };
        let found = match &service {
            ServiceRef::Name(key) => self.services.get(key).map(|facts| (key, facts)),
            ServiceRef::Uid { id, .. } => self.services.of_id(id),
        };
        if let Some((key, facts)) = found {
            let about = ObjectRef::Service { id: facts.id.clone(), key: key.clone() };
            let message = format!(
                "no endpoint is ready, and {kept} became unready when their nodes went out of reach; they are kept for {:?} \
                 at most",
                self.config.hold
            );
            self.reports.push_back(Report::Event(warning(about, "EndpointsKept", message)));
        }
    }

    fn on_nodes(&mut self, event: WatchEvent<Node>) {
        match event {
            WatchEvent::ListBegan => {
                self.lists.nodes = Some(BTreeSet::new());
                self.join(Change::ResyncBegin(Kind::Node));
            }
            WatchEvent::ListDone => {
                if let Some(listed) = self.lists.nodes.take() {
                    let nodes = self.out_of_reach.keys();
                    let gone: Vec<_> = nodes.filter(|name| !listed.contains(name)).cloned().collect();
                    gone.into_iter().for_each(|name| self.reach(&name, true));
                }
                self.join(Change::ResyncDone(Kind::Node));
            }
            WatchEvent::Applied(node) => self.on_node(&node),
            WatchEvent::Deleted(metadata) => {
                match convert::node_gone(&Node { metadata: *metadata, ..Node::default() }) {
                    Ok(change) => {
                        if let Change::NodeGone(name) = &change {
                            self.reach(&name.clone(), true);
                        }
                        self.join(change);
                    }
                    Err(error) => self.skip(error),
                }
            }
            WatchEvent::Malformed { metadata, error } => {
                let name = metadata.name.as_deref().map(NodeName::new);
                if let Some(name) = &name {
                    note(&mut self.lists.nodes, name.clone());
                    self.join(Change::Unreadable(ObjectName::Node(name.clone())));
                }
                self.unreadable(Kind::Node, &metadata, &error, None);
            }
            WatchEvent::Interrupted(_) | WatchEvent::Resumed => {}
        }
    }

    fn on_node(&mut self, node: &Node) {
        match convert::node_applied(node) {
            Ok(Converted { change: Change::NodeApplied(applied), problems }) => {
                let name = applied.name.clone();
                note(&mut self.lists.nodes, name.clone());
                for problem in problems {
                    let error = format!("the Node {name}: {problem}");
                    self.reports.push_back(Report::Skipped { kind: Kind::Node, error });
                }
                let uid = Uid::new(node.metadata.uid.as_deref().unwrap_or_default());
                self.changes.extend(self.nodes.handle_node(applied, uid));
                self.reach(&name, is_in_reach(node));
            }
            Ok(_) => {}
            Err(error) => self.skip(error),
        }
    }

    /// A node is in reach, or is not; one that is gone is not waited for.
    fn reach(&mut self, node: &NodeName, is_in_reach: bool) {
        if is_in_reach == !self.out_of_reach.contains_key(node) {
            return;
        }
        if is_in_reach {
            self.out_of_reach.remove(node);
        } else {
            self.out_of_reach.insert(node.clone(), self.now);
        }
        for key in self.slices.on_node(node) {
            self.tell_slice(&key);
        }
    }

    fn join(&mut self, change: Change) {
        self.changes.extend(self.nodes.handle_change(change));
    }

    fn on_pods(&mut self, event: WatchEvent<Pod>) {
        match event {
            WatchEvent::ListBegan => self.changes.push_back(Change::ResyncBegin(Kind::Pod)),
            WatchEvent::ListDone => self.changes.push_back(Change::ResyncDone(Kind::Pod)),
            WatchEvent::Applied(pod) => self.on_pod(&pod),
            WatchEvent::Deleted(metadata) => {
                match convert::pod_gone(&Pod { metadata: *metadata, ..Pod::default() }) {
                    Ok(change) => self.changes.push_back(change),
                    Err(error) => self.skip(error),
                }
            }
            WatchEvent::Malformed { metadata, error } => {
                let name = match (key(&metadata), metadata.uid.as_deref()) {
                    (Some(key), Some(uid)) => Some(ObjectName::Pod(PodRef { uid: Uid::new(uid), key })),
                    (_, None) | (None, _) => None,
                };
                self.unreadable(Kind::Pod, &metadata, &error, name);
            }
            WatchEvent::Interrupted(_) | WatchEvent::Resumed => {}
        }
    }

    fn on_pod(&mut self, pod: &Pod) {
        match convert::pod_applied(pod) {
            Ok(Converted { change, mut problems }) => {
                if let Change::PodApplied(applied) = &change {
                    for endpoint in applied.endpoints.as_slice() {
                        let family = endpoint.address.family();
                        if applied.is_live && self.nodes.lacks_family(&endpoint.node, family) {
                            problems.push(Problem::NoLocation {
                                address: endpoint.address,
                                node: endpoint.node.clone(),
                                family,
                            });
                        }
                    }
                    self.tell_problems(&ObjectRef::Pod(applied.pod.clone()), problems);
                }
                self.changes.push_back(change);
            }
            Err(error) => self.skip(error),
        }
    }

    fn on_gated_pods(&mut self, event: WatchEvent<Pod>) {
        match event {
            WatchEvent::ListBegan => self.lists.gated = Some(BTreeSet::new()),
            WatchEvent::ListDone => {
                if let Some(listed) = self.lists.gated.take() {
                    let gone: Vec<_> =
                        self.gates.uids().filter(|uid| !listed.contains(uid)).cloned().collect();
                    gone.iter().for_each(|uid| self.forget_gated(uid));
                }
            }
            WatchEvent::Applied(pod) => {
                if let Some(uid) = &pod.metadata.uid {
                    note(&mut self.lists.gated, Uid::new(uid.as_str()));
                }
                match self.gates.apply(&pod, self.now, self.config.gate_timeout) {
                    Ok(Some(changed)) => self.tell_slices_of(&changed),
                    Ok(None) => {}
                    Err(error) => self.skip(error),
                }
            }
            WatchEvent::Deleted(metadata) => {
                if let Some(uid) = metadata.uid {
                    self.forget_gated(&Uid::new(uid));
                }
            }
            WatchEvent::Malformed { metadata, error } => {
                if let Some(uid) = &metadata.uid {
                    note(&mut self.lists.gated, Uid::new(uid.as_str()));
                }
                self.unreadable(Kind::Pod, &metadata, &error, None);
            }
            WatchEvent::Interrupted(_) | WatchEvent::Resumed => {}
        }
    }

    fn forget_gated(&mut self, uid: &Uid) {
        if self.gates.remove(uid) {
            self.tell_slices_of(uid);
        }
    }

    fn tell_slices_of(&mut self, pod: &Uid) {
        for key in self.slices.of_pod(pod) {
            self.tell_slice(&key);
        }
    }

    fn tell_problems(&mut self, about: &ObjectRef, problems: Vec<Problem>) {
        let event = |problem: Problem| warning(about.clone(), problem.event_reason(), problem.to_string());
        self.reports.extend(problems.into_iter().map(event).map(Report::Event));
    }

    fn skip(&mut self, error: ConvertError) {
        self.reports.push_back(Report::Skipped { kind: error.kind, error: error.to_string() });
    }

    fn unreadable(&mut self, kind: Kind, metadata: &ObjectMeta, error: &str, name: Option<ObjectName>) {
        self.changes.extend(name.map(Change::Unreadable));
        let namespace =
            metadata.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let object = format!("{namespace}{}", metadata.name.as_deref().unwrap_or("?"));
        let error = format!("the {kind} {object} cannot be read, and what is known of it stays: {error}");
        self.reports.push_back(Report::Skipped { kind, error });
    }
}

fn warning(about: ObjectRef, reason: &'static str, message: String) -> Event {
    Event { about, kind: EventKind::Warning, reason: reason.into(), message }
}

fn key(metadata: &ObjectMeta) -> Option<ObjectKey> {
    Some(ObjectKey::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?))
}

/// How slices may name a Service.
fn service_refs(metadata: &ObjectMeta) -> Vec<ServiceRef> {
    let Some(key) = key(metadata) else { return Vec::new() };
    let id = metadata.uid.as_deref().and_then(|uid| ServiceId::new(uid).ok());
    let by_uid = id.map(|id| ServiceRef::Uid { namespace: key.namespace.clone(), id });
    [Some(ServiceRef::Name(key)), by_uid].into_iter().flatten().collect()
}

fn service_condition(service: &Service) -> Option<Condition> {
    let conditions = service.status.as_ref()?.conditions.as_deref()?;
    let found = conditions.iter().find(|condition| condition.type_ == PROGRAMMED)?;
    let status = match found.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Some(Condition { status, reason: found.reason.clone().into(), message: found.message.clone() })
}

/// Whether anything is heard of a node: its `Ready` condition, which a node controller makes `Unknown` when nothing is. One
/// that was never told of is in reach.
fn is_in_reach(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "Ready").is_none_or(|ready| ready.status == "True")
}
