//! A model of the cluster that keeps plain objects and works out from all of them, each time, what the gateway should
//! hold.

use std::collections::{BTreeMap, BTreeSet};

use clb_difftracker::{
    Change, EndpointSlice, Intent, Ip, Kind, Node, NodeName, ObjectKey, Service, ServiceId, ServiceRef,
};

use crate::azure::Azure;

#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) services: BTreeMap<ServiceId, Service>,
    pub(crate) slices: BTreeMap<ObjectKey, EndpointSlice>,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    /// Every claim that stands, oldest first: a slice says that an address is on a node.
    claims: Vec<(ObjectKey, Ip, NodeName)>,
}

impl Cluster {
    /// Takes in a change as the API server would have it: lists are the business of the caller.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::ServiceApplied(service) => {
                self.services.retain(|id, other| *id == service.id || other.key != service.key);
                self.services.insert(service.id.clone(), service.clone());
            }
            Change::ServiceGone(id) => drop(self.services.remove(id)),
            Change::EndpointSliceApplied(slice) => {
                let wanted: Vec<_> = slice
                    .endpoints
                    .as_slice()
                    .iter()
                    .map(|endpoint| (endpoint.address, &endpoint.node))
                    .collect();
                self.claims.retain(|(key, ip, node)| *key != slice.key || wanted.contains(&(*ip, node)));
                for (ip, node) in wanted {
                    let claim = (slice.key.clone(), ip, node.clone());
                    if !self.claims.contains(&claim) {
                        self.claims.push(claim);
                    }
                }
                self.slices.insert(slice.key.clone(), slice.clone());
            }
            Change::EndpointSliceGone(gone) => {
                self.claims.retain(|(key, ..)| key != gone);
                self.slices.remove(gone);
            }
            Change::NodeApplied(node) => drop(self.nodes.insert(node.name.clone(), node.clone())),
            Change::NodeGone(name) => drop(self.nodes.remove(name)),
            Change::ResyncBegin(_) | Change::ResyncDone(_) => {}
        }
    }

    /// A full list of one kind, as changes.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Change> {
        let items: Vec<Change> = match kind {
            Kind::Service => self.services.values().cloned().map(Change::ServiceApplied).collect(),
            Kind::EndpointSlice => self.slices.values().cloned().map(Change::EndpointSliceApplied).collect(),
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
                    expected.registrations.insert(id.clone(), true);
                }
                Intent::Rejected(_) => {
                    let keep = |id: &ServiceId| id.clone();
                    expected.public_ips.extend(now.public_ips.get(id).map(|it| (keep(id), *it)));
                    expected
                        .load_balancers
                        .extend(now.load_balancers.get(id).map(|it| (keep(id), it.clone())));
                    expected.registrations.extend(now.registrations.get(id).map(|it| (keep(id), *it)));
                }
                Intent::None => {}
            }
        }
        let addresses: BTreeSet<Ip> = self.claims.iter().map(|(_, ip, _)| *ip).collect();
        for address in addresses {
            let family = address.family();
            let counting: Vec<(Ip, ServiceId)> = self
                .claims
                .iter()
                .filter(|(_, ip, _)| *ip == address)
                .filter_map(|(key, _, node)| {
                    let location = self.nodes.get(node)?.location(family)?;
                    let service = self.service_of(&self.slices[key])?;
                    let serves = match &service.intent {
                        Intent::LoadBalancer(spec) => spec.family() == family,
                        Intent::Rejected(_) => {
                            now.registrations.get(&service.id) == Some(&true)
                                && now.public_ips.get(&service.id) == Some(&family)
                        }
                        Intent::None => false,
                    };
                    serves.then(|| (location, service.id.clone()))
                })
                .collect();
            let Some((location, _)) = counting.last().cloned() else { continue };
            let services = counting.into_iter().filter(|(at, _)| *at == location).map(|(_, id)| id).collect();
            expected.locations.entry(location).or_default().insert(address, services);
        }
        expected
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
