//! Observed state from outside: a full reading of what Azure holds, and how it is taken in while operations go on.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::address::{Address, Holding, Holdings, Location, ServiceSet};
use crate::batch::InFlight;
use crate::change::Kind;
use crate::ids::ServiceId;
use crate::lifecycle::{Goal, NatGateway, Observed, PublicIp, Resources};
use crate::notice::Notice;
use crate::observation::{
    GatewayContent, Observation, ObservedLocation, ObservedResource, ObservedService, Owner, ResourceContent,
};
use crate::service::{ServiceState, Standing};
use crate::table::Id;
use crate::tracker::DiffTracker;

/// The reading that goes on, and what is remembered of those before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    running: Option<Draft>,
    /// Whether one was ever completed.
    is_done: bool,
    /// Whether what is being taken in is the first one: nothing was believed before.
    is_baseline: bool,
    /// The kinds that have to be listed once more before what the last reading would delete is believed to be unwanted.
    awaited: BTreeSet<Kind>,
}

#[derive(Clone, Debug)]
struct Draft {
    /// What was touched after this is known better.
    began: u64,
    gateway: GatewayContent,
    resources: Vec<ObservedResource>,
}

impl Reading {
    /// Whether what Azure holds is being read for the first time: until it is, there may be anything.
    pub(crate) fn is_first(&self) -> bool {
        self.running.is_some() && !self.is_done
    }

    /// Whether a running reading may contain older news of something touched then.
    pub(crate) fn may_contradict(&self, touched: u64) -> bool {
        self.running.as_ref().is_some_and(|draft| touched > draft.began)
    }
}

impl DiffTracker {
    pub(crate) fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Begin => {
                let began = self.next_number();
                let draft = Draft { began, gateway: GatewayContent::default(), resources: Vec::new() };
                self.reading.running = Some(draft);
            }
            Observation::Service(service) => {
                if let Some(draft) = &mut self.reading.running {
                    draft.gateway.services.push(service);
                }
            }
            Observation::Location(location) => {
                if let Some(draft) = &mut self.reading.running {
                    draft.gateway.locations.push(location);
                }
            }
            Observation::Resource(resource) => {
                if let Some(draft) = &mut self.reading.running {
                    draft.resources.push(resource);
                }
            }
            Observation::Done => {
                if let Some(Draft { began, gateway, resources }) = self.reading.running.take() {
                    self.reading.is_baseline = !core::mem::replace(&mut self.reading.is_done, true);
                    self.take_in_gateway(began, gateway);
                    self.take_in_resources(began, resources);
                    self.reading.is_baseline = false;
                    self.settle_reading();
                    self.doubt_reading();
                    self.refresh_all();
                }
            }
        }
    }

    /// Takes in what the gateway holds, as read since `began`. The caller refreshes everything.
    pub(crate) fn take_in_gateway(&mut self, began: u64, content: GatewayContent) {
        let GatewayContent { services, locations } = content;
        let mut observed: BTreeMap<Id<ServiceState>, ObservedService> = BTreeMap::new();
        for service in services {
            observed.insert(self.services.intern(&service.id), service);
        }
        let mut changed = Vec::new();
        for id in self.all_services() {
            if !self.is_current(id, began) {
                continue;
            }
            let service = observed.get(&id);
            let is_foreign = service.is_some_and(ObservedService::is_foreign);
            if is_foreign != (self.services[id].standing == Standing::Foreign) {
                self.set_standing(id, if is_foreign { Standing::Foreign } else { Standing::Ours });
                changed.push(id);
            }
            let registration = service.and_then(|service| service.registration).filter(|_| !is_foreign);
            let registration = registration.map_or(Observed::Absent, Observed::Present);
            let believed = core::mem::replace(&mut self.services[id].resources.registration, registration);
            self.note_drift(&believed, &registration);
        }
        self.take_in_locations(began, locations);
        self.refresh_addresses_of(&changed);
    }

    fn all_services(&self) -> Vec<Id<ServiceState>> {
        self.services.iter().map(|(id, ..)| id).collect()
    }

    /// Examines all services and forgets all locations that were kept for the reading.
    pub(crate) fn refresh_all(&mut self) {
        self.refresh_services(self.all_services());
        let locations: Vec<_> = self.locations.iter().map(|(id, ..)| id).collect();
        locations.into_iter().for_each(|id| self.forget_location(id));
    }

    fn take_in_locations(&mut self, began: u64, locations: Vec<ObservedLocation>) {
        let in_flight: BTreeSet<Id<Location>> =
            self.in_flight.values().flat_map(InFlight::locations).collect();
        let mut listed: BTreeMap<Id<Location>, ObservedLocation> = BTreeMap::new();
        for location in locations {
            listed.insert(self.locations.intern(&location.location), location);
        }
        let rows: Vec<_> = self.locations.iter().map(|(id, ..)| id).collect();
        for id in rows {
            let addresses = listed.remove(&id).map(|listed| listed.addresses).unwrap_or_default();
            if self.locations[id].touched > began || in_flight.contains(&id) {
                self.forget_location(id);
                continue;
            }
            self.locations[id].in_doubt = false;
            let mut held: BTreeSet<_> = self.locations[id].holdings.iter().collect();
            let family = self.locations.key(id).family();
            for update in addresses {
                if update.services.is_empty() || update.address.family() != family {
                    continue;
                }
                let mut services: ServiceSet =
                    update.services.iter().map(|service| self.services.intern(service)).collect();
                services.sort_unstable();
                services.dedup();
                let address = self.addresses.table.intern(&update.address);
                held.remove(&address);
                let holding = Holding { location: id, services, certain: true };
                self.observe_holding(address, id, Some(holding));
            }
            for address in held {
                self.observe_holding(address, id, None);
            }
            self.forget_location(id);
        }
    }

    /// Takes in what a location holds of an address; what other locations hold of it stays.
    fn observe_holding(&mut self, address: Id<Address>, location: Id<Location>, holding: Option<Holding>) {
        let mut holdings: Holdings = self.addresses.holdings(address);
        if holdings.iter().find(|held| held.location == location) == holding.as_ref() {
            return;
        }
        let believed = holdings.iter().find(|held| held.location == location);
        if believed.is_none_or(|held| held.certain) && !self.reading.is_baseline {
            self.drift += 1;
        }
        holdings.retain(|held| held.location != location);
        holdings.extend(holding);
        // All services are refreshed in the end.
        self.set_holdings(address, &holdings, &mut Vec::new());
        self.refresh_address(address);
        self.forget_address(address);
    }

    fn take_in_resources(&mut self, began: u64, resources: Vec<ObservedResource>) {
        let mut observed: BTreeMap<Id<ServiceState>, Resources> = BTreeMap::new();
        for ObservedResource { service, owner, content } in resources {
            let id = self.services.intern(&service);
            let state = &self.services[id];
            let tagged = match owner {
                Owner::Us => true,
                // Also while an operation on its registration runs: the row is skipped then anyway.
                Owner::Nobody if state.resources.registration.certain().is_some() => false,
                Owner::Nobody | Owner::Other => continue,
            };
            let resources = observed.entry(id).or_default();
            match content {
                ResourceContent::PublicIp(ip) => {
                    resources.public_ip = Observed::Present(PublicIp { tagged, ..ip });
                }
                ResourceContent::SecondPublicIp(ip) => {
                    resources.second_public_ip = Observed::Present(PublicIp { tagged, ..ip });
                }
                ResourceContent::LoadBalancer(spec) => {
                    resources.load_balancer = Observed::Present(spec.filter(|_| tagged));
                }
                ResourceContent::NatGateway(gateway) => {
                    let gateway = if tagged { gateway } else { NatGateway::Other };
                    resources.nat_gateway = Observed::Present(gateway);
                }
            }
        }
        for id in self.all_services() {
            if self.is_current(id, began) && self.services[id].standing != Standing::Foreign {
                let read = observed.remove(&id).unwrap_or_default();
                let registration = self.services[id].resources.registration;
                let read = Resources { registration, ..read };
                let believed = core::mem::replace(&mut self.services[id].resources, read.clone());
                for (believed, read) in [
                    (&believed.public_ip, &read.public_ip),
                    (&believed.second_public_ip, &read.second_public_ip),
                ] {
                    // An address that came late is no surprise.
                    if believed.possible().is_none_or(|ip| ip.address.is_some()) {
                        self.note_drift(believed, read);
                    }
                }
                self.note_drift(&believed.load_balancer, &read.load_balancer);
                self.note_drift(&believed.nat_gateway, &read.nat_gateway);
            }
        }
    }

    /// Counts what was found to be other than believed; what was in doubt is merely settled.
    fn note_drift<T: PartialEq>(&mut self, believed: &Observed<T>, read: &Observed<T>) {
        if !matches!(believed, Observed::Unknown(_)) && believed != read && !self.reading.is_baseline {
            self.drift += 1;
        }
    }

    /// Whether no operation touched a service since then, or touches it now.
    fn is_current(&self, id: Id<ServiceState>, began: u64) -> bool {
        self.services[id].touched < began && self.services[id].in_flight.is_none()
    }

    /// Everything has been taken in: what waited for it is decided.
    fn settle_reading(&mut self) {
        self.all_services().into_iter().for_each(|id| self.refresh_role(id));
        let pods: Vec<_> =
            self.sources.iter().filter(|(.., state)| state.pod.is_some()).map(|(id, ..)| id).collect();
        for pod in pods {
            self.find_addresses_of(pod);
            self.refresh_pod(pod);
        }
    }

    /// Services that would be removed because the cluster does not know them, and those that would lose all addresses because
    /// nothing claims them: if they are most of what there is, perhaps it is the cluster's lists that are wrong.
    fn doubt_reading(&mut self) {
        let mut claimed: BTreeSet<Id<ServiceState>> = BTreeSet::new();
        for (address, ..) in self.addresses.table.iter() {
            claimed.extend(self.target(address).into_iter().flat_map(|target| target.services));
        }
        let is_dual_stack = self.is_dual_stack();
        let existing: Vec<_> = self
            .services
            .iter()
            .filter(|(.., state)| state.standing == Standing::Ours && state.resources != Resources::default())
            .map(|(id, ..)| id)
            .collect();
        let is_losing = |id: &Id<ServiceState>| {
            let state = &self.services[*id];
            match state.goal(is_dual_stack) {
                Goal::Remove => state.intent.is_none(),
                Goal::Serve(_) | Goal::Keep | Goal::Egress { .. } => {
                    state.references > 0 && !claimed.contains(id)
                }
                Goal::Leave => false,
            }
        };
        let losing: Vec<_> = existing.iter().copied().filter(is_losing).collect();
        if !self.config.is_mass_deletion(losing.len(), existing.len()) {
            return;
        }
        let (missing, of) = (losing.len(), existing.len());
        self.notices.push_back(Notice::DeletionsHeld { kind: Kind::Service, missing, of });
        let listed = [
            (Kind::Service, self.resyncs.services),
            (Kind::EndpointSlice, self.resyncs.slices),
            (Kind::Pod, self.resyncs.pods),
            (Kind::Node, self.resyncs.nodes),
        ];
        self.reading.awaited =
            listed.into_iter().filter(|(_, resync)| resync.number > 0).map(|(kind, _)| kind).collect();
        self.reading.awaited.insert(Kind::Service);
        for &id in &losing {
            self.set_standing(id, Standing::Unconfirmed);
        }
        self.refresh_addresses_of(&losing);
    }

    /// The cluster was listed once more: what the last reading would delete is unwanted indeed.
    pub(crate) fn confirm_observation(&mut self, kind: Kind) {
        if !self.reading.awaited.remove(&kind) || !self.reading.awaited.is_empty() {
            return;
        }
        let unconfirmed = self.services.iter().filter(|(.., state)| state.standing == Standing::Unconfirmed);
        let unconfirmed: Vec<_> = unconfirmed.map(|(id, ..)| id).collect();
        for &id in &unconfirmed {
            self.set_standing(id, Standing::Ours);
        }
        self.refresh_addresses_of(&unconfirmed);
        self.refresh_services(unconfirmed);
    }

    fn set_standing(&mut self, id: Id<ServiceState>, standing: Standing) {
        let state = &mut self.services[id];
        let was_kept = state.is_kept();
        state.standing = standing;
        if standing == Standing::Foreign {
            state.resources = Resources::default();
        }
        self.kept += usize::from(self.services[id].is_kept());
        self.kept -= usize::from(was_kept);
    }

    /// Examines all addresses that name these services.
    fn refresh_addresses_of(&mut self, services: &[Id<ServiceState>]) {
        if services.is_empty() {
            return;
        }
        let is_named = |address: Id<Address>| {
            let holdings = self.addresses.holdings(address);
            holdings.iter().flat_map(|holding| &holding.services).any(|service| services.contains(service))
        };
        let addresses: Vec<_> =
            self.addresses.table.iter().map(|(id, ..)| id).filter(|id| is_named(*id)).collect();
        addresses.into_iter().for_each(|address| self.refresh_address(address));
    }

    /// The names of services that are not ours.
    #[must_use]
    pub fn foreign_services(&self) -> Vec<ServiceId> {
        let foreign = self.services.iter().filter(|(.., state)| state.standing == Standing::Foreign);
        let mut foreign: Vec<_> = foreign.map(|(_, id, _)| id.clone()).collect();
        foreign.sort_unstable();
        foreign
    }
}
