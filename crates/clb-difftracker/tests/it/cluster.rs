//! A model of the cluster that keeps plain objects and works out from all of them, each time, what the gateway should
//! hold.

use std::collections::{BTreeMap, BTreeSet};

use clb_difftracker::{
    Action, Change, Condition, EndpointSlice, FailureKind, Finalizers, Intent, Ip, IpFamily, Kind,
    NatGateway, Node, NodeName, ObjectKey, Pod, PodRef, PodRequest, Registration, ResourceVersion, Service,
    ServiceId, ServiceRef, ServiceRequest, Source, Success,
};

use crate::azure::Azure;

#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) services: BTreeMap<ServiceId, Service>,
    pub(crate) slices: BTreeMap<ObjectKey, EndpointSlice>,
    pub(crate) pods: BTreeMap<PodRef, Pod>,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    /// Every claim that stands, oldest first: a source says that an address is on a node.
    claims: Vec<(Source, Ip, NodeName)>,
    /// The addresses that each pod had, as far as the tracker can know, and whether it needs to wait for one no more.
    pub(crate) had: BTreeMap<PodRef, BTreeMap<Ip, bool>>,
    /// Whether objects have versions, and the last one given.
    pub(crate) versions: Option<u64>,
}

impl Cluster {
    /// Takes in a change as the API server would have it, and gives it as a watch would: with what we wrote on the object
    /// before. Lists are the business of the caller.
    pub(crate) fn apply(&mut self, change: Change) -> Change {
        match change {
            Change::ServiceApplied(service) => {
                self.services.retain(|id, other| *id == service.id || other.key != service.key);
                let former = self.services.get(&service.id);
                let finalizers = former.map(|former| former.finalizers).unwrap_or_default();
                let ingress = former.map(|former| former.ingress.clone()).unwrap_or_default();
                let service = Service { version: self.next_version(), finalizers, ingress, ..service };
                self.services.insert(service.id.clone(), service.clone());
                Change::ServiceApplied(service)
            }
            Change::ServiceGone(id) => {
                self.services.remove(&id);
                Change::ServiceGone(id)
            }
            Change::EndpointSliceApplied(slice) => {
                let source = Source::EndpointSlice(slice.key.clone());
                let claims = slice.endpoints.as_slice().iter().map(|it| (it.address, it.node.clone()));
                self.claim(&source, claims.collect());
                self.slices.insert(slice.key.clone(), slice.clone());
                Change::EndpointSliceApplied(slice)
            }
            Change::EndpointSliceGone(gone) => {
                self.claim(&Source::EndpointSlice(gone.clone()), Vec::new());
                self.slices.remove(&gone);
                Change::EndpointSliceGone(gone)
            }
            Change::PodApplied(pod) => {
                let namesakes: Vec<_> =
                    self.pods.keys().filter(|it| it.key == pod.pod.key && **it != pod.pod).cloned().collect();
                for namesake in namesakes {
                    self.claim(&Source::Pod(namesake.clone()), Vec::new());
                    self.pods.remove(&namesake);
                }
                let has_finalizer = self.pods.get(&pod.pod).is_some_and(|former| former.has_finalizer);
                let pod = Pod { version: self.next_version(), has_finalizer, ..pod };
                let is_live = uses_egress(&pod);
                let endpoints = pod.endpoints.as_slice().iter().filter(|_| is_live);
                let claims: Vec<_> = endpoints.map(|it| (it.address, it.node.clone())).collect();
                let former = self.pods.get(&pod.pod);
                let is_forgotten = former.is_none_or(|former| !uses_egress(former) && !former.has_finalizer);
                let had = self.had.entry(pod.pod.clone()).or_default();
                if is_forgotten {
                    // It comes back, and what it had may not be remembered.
                    had.values_mut().for_each(|is_passed_on| *is_passed_on = true);
                }
                had.extend(pod.endpoints.as_slice().iter().map(|it| (it.address, false)));
                self.claim(&Source::Pod(pod.pod.clone()), claims);
                self.pods.insert(pod.pod.clone(), pod.clone());
                Change::PodApplied(pod)
            }
            Change::PodGone(gone) => {
                self.claim(&Source::Pod(gone.clone()), Vec::new());
                self.pods.remove(&gone);
                Change::PodGone(gone)
            }
            Change::NodeApplied(node) => {
                self.nodes.insert(node.name.clone(), node.clone());
                Change::NodeApplied(node)
            }
            Change::NodeGone(name) => {
                self.nodes.remove(&name);
                Change::NodeGone(name)
            }
            Change::Unreadable(_) | Change::ResyncBegin(_) | Change::ResyncDone(_) => change,
        }
    }

    /// Notes the addresses that living pods had and have no more, and that the gateway does not hold or other pods have.
    pub(crate) fn pass_on(&mut self, azure: &Azure) {
        let held: BTreeSet<Ip> = azure.locations.values().flat_map(BTreeMap::keys).copied().collect();
        let claims = &self.claims;
        let has = |pod: &PodRef, ip: Ip| {
            claims.iter().any(|(of, at, _)| *of == Source::Pod(pod.clone()) && *at == ip)
        };
        for (pod, had) in &mut self.had {
            if self.pods.get(pod).is_some_and(uses_egress) {
                for (ip, is_passed_on) in had {
                    let others = self.pods.keys().filter(|other| *other != pod);
                    let is_free = !held.contains(ip) || others.into_iter().any(|other| has(other, *ip));
                    *is_passed_on |= !has(pod, *ip) && is_free;
                }
            }
        }
    }

    fn claim(&mut self, source: &Source, wanted: Vec<(Ip, NodeName)>) {
        self.claims.retain(|(of, ip, node)| of != source || wanted.contains(&(*ip, node.clone())));
        for (ip, node) in wanted {
            let claim = (source.clone(), ip, node);
            if !self.claims.contains(&claim) {
                self.claims.push(claim);
            }
        }
    }

    fn next_version(&mut self) -> ResourceVersion {
        self.versions = self.versions.map(|last| last + 1);
        ResourceVersion::new(self.versions.unwrap_or_default())
    }

    /// Applies a write on an object as the API server would.
    pub(crate) fn write(&mut self, action: &Action) -> Result<Success, FailureKind> {
        let version = self.next_version();
        match action {
            Action::Service { service, request, .. } => {
                let object = self.services.get_mut(service).ok_or(FailureKind::NotFound)?;
                match request {
                    ServiceRequest::AddFinalizers => object.finalizers = Finalizers::Complete,
                    ServiceRequest::RemoveFinalizers => object.finalizers = Finalizers::None,
                    ServiceRequest::SetIngress(_) if object.intent == Intent::None => {
                        return Err(FailureKind::Conflict);
                    }
                    ServiceRequest::SetIngress(ip) => object.ingress = vec![*ip],
                    ServiceRequest::ClearIngress(ip) => object.ingress.retain(|shown| shown != ip),
                }
                object.version = version;
            }
            Action::Pod { pod, request } => {
                let object = self.pods.get_mut(pod).ok_or(FailureKind::NotFound)?;
                object.has_finalizer = *request == PodRequest::AddFinalizer;
                object.version = version;
            }
            Action::Gateway(_) | Action::Resource { .. } => return Ok(Success::Done),
        }
        Ok(Success::Written(version))
    }

    /// Whether a write would change nothing.
    pub(crate) fn holds(&self, action: &Action) -> bool {
        let mut after = self.clone();
        let same = |after: &Self| {
            let plain = |service: &Service| (service.finalizers, service.ingress.clone());
            after.services.values().map(plain).eq(self.services.values().map(plain))
                && after
                    .pods
                    .values()
                    .map(|pod| pod.has_finalizer)
                    .eq(self.pods.values().map(|pod| pod.has_finalizer))
        };
        after.write(action).is_ok() && same(&after)
    }

    /// Names the rule that a write would break now.
    pub(crate) fn check(&self, action: &Action, azure: &Azure) -> Result<(), String> {
        match action {
            Action::Service { service, request: ServiceRequest::RemoveFinalizers, .. }
                if azure.knows(service) =>
            {
                Err(format!("rule 4: something of {service} is left"))
            }
            Action::Service { service, request: ServiceRequest::SetIngress(_), .. }
                if self.services.get(service).is_none_or(|object| object.intent == Intent::None) =>
            {
                Err(format!("a status for {service}, which wants no load balancer"))
            }
            Action::Service { service, request: ServiceRequest::ClearIngress(_), .. }
                if self.services.get(service).is_some_and(|object| object.intent != Intent::None) =>
            {
                Err(format!("the status of {service} is cleared, which wants a load balancer"))
            }
            Action::Service { service, request: ServiceRequest::RemoveFinalizers, .. }
                if self.services.get(service).is_some_and(|object| !object.ingress.is_empty()) =>
            {
                Err(format!("{service} is let go with an address in its status"))
            }
            Action::Pod { pod, request: PodRequest::RemoveFinalizer } if self.is_held(pod, azure, false) => {
                Err(format!("rule 4: {pod} is released while the gateway holds an address it had"))
            }
            Action::Resource { service, request, .. } if request_makes(request) => {
                match self.services.get(service) {
                    Some(Service { intent: Intent::LoadBalancer(_), finalizers, .. })
                        if *finalizers != Finalizers::Complete =>
                    {
                        Err(format!("rule 1: {service} has no finalizers yet"))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            Action::Service { .. } | Action::Pod { .. } | Action::Gateway(_) | Action::Resource { .. } => {
                Ok(())
            }
        }
    }

    /// Whether the gateway holds an address that a pod had and no other pod has.
    fn is_held(&self, pod: &PodRef, azure: &Azure, though_passed_on: bool) -> bool {
        let others = |(source, ip, _): &(Source, Ip, NodeName)| match source {
            Source::Pod(other) if other != pod => Some(*ip),
            Source::Pod(_) | Source::EndpointSlice(_) => None,
        };
        let shared: BTreeSet<_> = self.claims.iter().filter_map(others).collect();
        let had = self.had.get(pod).cloned().unwrap_or_default();
        let mut held = azure.locations.values().flat_map(BTreeMap::keys);
        held.any(|ip| had.get(ip).is_some_and(|passed| !passed || though_passed_on) && !shared.contains(ip))
    }

    /// Whether the objects are as they should be at quiet.
    pub(crate) fn check_objects(&self, azure: &Azure) {
        for (id, service) in &self.services {
            let ip = azure.public_ips.get(id).map(|family| crate::azure::ingress(*family));
            match &service.intent {
                Intent::LoadBalancer(_) => {
                    let is = (service.finalizers, service.ingress.as_slice());
                    assert_eq!(is, (Finalizers::Complete, ip.as_slice()), "{id}");
                }
                Intent::None => {
                    let is = (service.finalizers, service.ingress.as_slice());
                    assert_eq!(is, (Finalizers::None, [].as_slice()), "{id}");
                }
                Intent::Rejected(_) => {}
            }
        }
        for (name, pod) in &self.pods {
            if !uses_egress(pod) && self.is_held(name, azure, true) {
                // A Service may still balance load to it.
                continue;
            }
            assert_eq!(pod.has_finalizer, uses_egress(pod), "{name}");
        }
    }

    /// What a process that starts now can know of the addresses that pods had: for a pod that has none any more, those that the
    /// gateway holds for its service and nobody else's.
    pub(crate) fn forget_history(&mut self, azure: &Azure) {
        // It lists pods before slices, and which claim is the newest follows from that.
        self.claims
            .sort_by_key(|(source, ip, _)| (matches!(source, Source::EndpointSlice(_)), source.clone(), *ip));
        self.had.clear();
        for (name, pod) in &self.pods {
            let now: BTreeSet<_> = pod.endpoints.as_slice().iter().map(|it| it.address).collect();
            let had: BTreeSet<Ip> = if now.is_empty() && !pod.is_live {
                let service = pod.egress.as_ref().map(clb_difftracker::EgressName::id);
                let names =
                    |(_, names): &(&Ip, &BTreeSet<ServiceId>)| service.is_some_and(|id| names.contains(id));
                let held = azure.locations.values().flatten().filter(names).map(|(ip, _)| *ip);
                held.collect()
            } else {
                now
            };
            self.had.insert(name.clone(), had.into_iter().map(|ip| (ip, false)).collect());
        }
    }

    /// A full list of one kind, as changes.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Change> {
        let items: Vec<Change> = match kind {
            Kind::Service => self.services.values().cloned().map(Change::ServiceApplied).collect(),
            Kind::EndpointSlice => self.slices.values().cloned().map(Change::EndpointSliceApplied).collect(),
            Kind::Pod => self.pods.values().cloned().map(Change::PodApplied).collect(),
            Kind::Node => self.nodes.values().cloned().map(Change::NodeApplied).collect(),
        };
        [Change::ResyncBegin(kind)].into_iter().chain(items).chain([Change::ResyncDone(kind)]).collect()
    }

    fn service_of(&self, slice: &EndpointSlice) -> Option<&Service> {
        match &slice.service {
            ServiceRef::Name(key) => self.services.values().find(|service| service.key == *key),
            ServiceRef::Uid { namespace, id } => {
                self.services.get(id).filter(|service| service.key.namespace == *namespace)
            }
        }
    }

    /// Everything that Azure should hold. A rejected Service keeps what `now` holds of it.
    pub(crate) fn expected(&self, now: &Azure) -> Azure {
        let mut expected = Azure::default();
        for (id, service) in &self.services {
            match &service.intent {
                Intent::LoadBalancer(spec) => {
                    expected.public_ips.insert(id.clone(), spec.family());
                    expected.load_balancers.insert(id.clone(), spec.clone());
                    expected.registrations.insert(id.clone(), Registration::WithPool);
                }
                Intent::Rejected(_) => {
                    let keep = |id: &ServiceId| id.clone();
                    expected.public_ips.extend(now.public_ips.get(id).map(|it| (keep(id), *it)));
                    expected
                        .load_balancers
                        .extend(now.load_balancers.get(id).map(|it| (keep(id), it.clone())));
                    expected.registrations.extend(now.registrations.get(id).map(|it| (keep(id), *it)));
                    expected.untagged.extend(now.untagged.iter().filter(|(of, _)| of == id).cloned());
                }
                Intent::None => {}
            }
        }
        let is_dual_stack = self.nodes.values().any(|node| node.ipv6.is_some());
        for id in self.egresses() {
            let ipv6 = is_dual_stack || now.second_public_ips.contains(&id);
            expected.public_ips.insert(id.clone(), IpFamily::V4);
            if ipv6 {
                expected.second_public_ips.insert(id.clone());
            }
            expected.nat_gateways.insert(id.clone(), NatGateway::Attached { ipv6 });
            expected.registrations.insert(id.clone(), Registration::WithNatGateway);
        }
        expected.foreign = now.foreign.clone();
        let kept = |services: &BTreeSet<ServiceId>| -> BTreeSet<ServiceId> {
            services.intersection(&now.foreign).cloned().collect()
        };
        let held = now.locations.iter().flat_map(|(location, addresses)| {
            addresses.iter().map(move |(address, services)| (*address, (*location, kept(services))))
        });
        let held: BTreeMap<Ip, (Ip, BTreeSet<ServiceId>)> =
            held.filter(|(_, (_, services))| !services.is_empty()).collect();
        let addresses: BTreeSet<Ip> =
            self.claims.iter().map(|(_, ip, _)| *ip).chain(held.keys().copied()).collect();
        for address in addresses {
            let family = address.family();
            let counting: Vec<(Ip, ServiceId)> = self
                .claims
                .iter()
                .filter(|(_, ip, _)| *ip == address)
                .filter_map(|(source, _, node)| {
                    let location = self.nodes.get(node)?.location(family)?;
                    Some((location, self.named_by(source, address, now)?))
                })
                .collect();
            let (home, foreign) = held.get(&address).cloned().unzip();
            let Some(location) = counting.last().map(|(location, _)| *location).or(home) else { continue };
            let ours = counting.into_iter().filter(|(at, _)| *at == location).map(|(_, id)| id);
            let services = ours.chain(foreign.into_iter().flatten()).collect();
            expected.locations.entry(location).or_default().insert(address, services);
        }
        expected
    }

    /// The service that a source makes an address of this family name.
    fn named_by(&self, source: &Source, address: Ip, now: &Azure) -> Option<ServiceId> {
        let family = address.family();
        let key = match source {
            Source::EndpointSlice(key) => key,
            Source::Pod(pod) => {
                let name = self.pods.get(pod)?.egress.as_ref()?.id();
                let is_dual_stack = self.nodes.values().any(|node| node.ipv6.is_some());
                let counts = family == IpFamily::V4 || is_dual_stack || now.second_public_ips.contains(name);
                return Some(name.clone()).filter(|name| counts && self.egresses().contains(name));
            }
        };
        let slice = &self.slices[key];
        let service = self.service_of(slice)?;
        let conditions = |slice: &EndpointSlice, of: Option<Ip>| -> Vec<Condition> {
            let endpoints = slice.endpoints.as_slice().iter();
            endpoints.filter(|it| of.is_none_or(|of| of == it.address)).map(|it| it.condition).collect()
        };
        let of_service =
            self.slices.values().filter(|it| self.service_of(it).is_some_and(|of| of.id == service.id));
        let has_ready =
            of_service.into_iter().any(|slice| conditions(slice, None).contains(&Condition::Ready));
        if has_ready && !conditions(slice, Some(address)).contains(&Condition::Ready) {
            return None;
        }
        let serves = match &service.intent {
            Intent::LoadBalancer(spec) => spec.family() == family,
            Intent::Rejected(_) => {
                now.registrations.get(&service.id) == Some(&Registration::WithPool)
                    && now.public_ips.get(&service.id) == Some(&family)
            }
            Intent::None => false,
        };
        serves.then(|| service.id.clone())
    }

    /// The outbound services that live pods name, but for those that are Services' UIDs.
    pub(crate) fn egresses(&self) -> BTreeSet<ServiceId> {
        let live = self.pods.values().filter(|pod| pod.is_live);
        let names = live.filter_map(|pod| pod.egress.as_ref()).map(|name| name.id().clone());
        names.filter(|name| !self.services.contains_key(name)).collect()
    }

    /// Whether two claims that might count put one address at two locations, so that the order of events decides.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let location =
            |ip: Ip, node: &NodeName| self.nodes.get(node).and_then(|node| node.location(ip.family()));
        let mut at: BTreeMap<Ip, BTreeSet<Ip>> = BTreeMap::new();
        for (_, ip, node) in &self.claims {
            at.entry(*ip).or_default().extend(location(*ip, node));
        }
        at.values().any(|locations| locations.len() > 1)
    }

    pub(crate) fn rejects(&self) -> bool {
        self.services.values().any(|service| matches!(service.intent, Intent::Rejected(_)))
    }
}

fn uses_egress(pod: &Pod) -> bool {
    pod.is_live && pod.egress.is_some()
}

fn request_makes(request: &clb_difftracker::ResourceRequest) -> bool {
    use clb_difftracker::ResourceRequest;
    match request {
        ResourceRequest::PutPublicIp(_) | ResourceRequest::PutLoadBalancer(_) => true,
        ResourceRequest::PutSecondPublicIp
        | ResourceRequest::PutNatGateway { .. }
        | ResourceRequest::DetachNatGateway
        | ResourceRequest::DeleteLoadBalancer
        | ResourceRequest::DeleteNatGateway
        | ResourceRequest::DeletePublicIp
        | ResourceRequest::DeleteSecondPublicIp => false,
    }
}
