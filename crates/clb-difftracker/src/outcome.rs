//! What an operation's outcome teaches, and when to try again what failed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::address::{Address, Holdings, QueueKey, Urgency, Work};
use crate::batch::{AddressBatch, InFlight, Lane, Move};
use crate::ids::{IpFamily, ServiceId, Timestamp};
use crate::lifecycle::{NatGateway, Observed, PublicIp, Registration, Step};
use crate::notice::Notice;
use crate::operation::{
    Failure, FailureKind, OperationId, Outcome, RegistrationUpdate, ResourceRequest, Success,
};
use crate::service::{ServiceState, Standing, Wait};
use crate::table::Id;
use crate::tracker::{DiffTracker, Timer};

type RegistrationUpdates = Vec<(Id<ServiceState>, RegistrationUpdate)>;

/// Whom a refusal concerns.
pub(crate) enum Blame {
    /// Everything that draws on the same budget.
    Everyone,
    /// The whole request, whatever is in it.
    Request {
        /// Whether time alone is unlikely to cure it.
        slow: bool,
    },
    /// Something in the request.
    Content,
}

pub(crate) fn blame(kind: FailureKind) -> Blame {
    match kind {
        FailureKind::Throttled { .. } => Blame::Everyone,
        FailureKind::Conflict | FailureKind::Transient => Blame::Request { slow: false },
        FailureKind::Forbidden | FailureKind::Quota => Blame::Request { slow: true },
        FailureKind::Invalid | FailureKind::NotFound | FailureKind::StillReferenced => Blame::Content,
    }
}

impl DiffTracker {
    pub(crate) fn on_outcome(&mut self, operation: OperationId, in_flight: InFlight, outcome: Outcome) {
        if !matches!(outcome, Outcome::Failed(Failure { kind: FailureKind::Throttled { .. }, .. })) {
            self.throttled = 0;
        }
        match in_flight {
            InFlight::Resource { service, request } => {
                self.end_operation(service);
                self.on_resource_outcome(operation, service, &request, outcome);
                self.refresh_service(service);
            }
            InFlight::Service { service, request } => {
                self.end_operation(service);
                self.on_service_object_outcome(operation, service, request, outcome);
                self.refresh_service(service);
            }
            InFlight::Pod { pod, request } => self.on_pod_outcome(operation, pod, request, outcome),
            InFlight::Reading { began } => {
                self.close_call();
                self.on_reading_outcome(operation, began, outcome);
            }
            InFlight::Services { updates, suspected } => {
                self.close_call();
                let ids: Vec<_> = updates.iter().map(|&(id, _)| id).collect();
                ids.iter().for_each(|&id| self.end_operation(id));
                self.on_services_outcome(operation, updates, suspected, outcome);
                self.refresh_services(ids);
            }
            InFlight::Addresses(batch) => {
                self.close_call();
                self.on_addresses_outcome(operation, batch, outcome);
            }
        }
    }

    /// Nothing is in flight for this service any more; readings that began before say nothing of it.
    fn end_operation(&mut self, id: Id<ServiceState>) {
        let touched = self.next_number();
        let state = &mut self.services[id];
        state.in_flight = None;
        state.touched = touched;
    }

    fn on_reading_outcome(&mut self, operation: OperationId, began: u64, outcome: Outcome) {
        match outcome {
            Outcome::Succeeded(Success::Gateway(content)) => {
                self.gateway.services.failures = 0;
                self.take_in_gateway(began, content);
                self.refresh_all();
            }
            // An answer without content teaches nothing, and is asked for again when there is a reason to.
            Outcome::Succeeded(Success::Done | Success::PublicIp(_) | Success::Written(_)) => {}
            Outcome::Failed(failure) | Outcome::Unknown(failure) => {
                self.gateway.is_contradicted = true;
                let retry_at = match blame(failure.kind) {
                    Blame::Everyone => self.close_door(failure.kind),
                    Blame::Request { slow } => self.hold_lane(Lane::Services, slow),
                    Blame::Content => self.hold_lane(Lane::Services, true),
                };
                self.tell_failure(operation, None, failure, retry_at);
            }
        }
    }

    fn on_resource_outcome(
        &mut self,
        operation: OperationId,
        id: Id<ServiceState>,
        request: &ResourceRequest,
        outcome: Outcome,
    ) {
        let failure = match outcome {
            Outcome::Succeeded(success) => return self.on_resource_done(id, request, &success),
            // What is not there is deleted.
            Outcome::Failed(Failure { kind: FailureKind::NotFound, .. }) if request.is_deletion() => {
                return self.on_resource_done(id, request, &Success::Done);
            }
            Outcome::Failed(failure) => failure,
            Outcome::Unknown(failure) => {
                self.doubt_resource(id, request);
                failure
            }
        };
        if failure.kind == FailureKind::NotFound {
            // What it refers to: that is not where we believed it to be.
            let resources = &mut self.services[id].resources;
            match request {
                ResourceRequest::PutLoadBalancer(_) => resources.public_ip.doubt(),
                ResourceRequest::PutNatGateway { .. } => {
                    resources.public_ip.doubt();
                    resources.second_public_ip.doubt();
                }
                ResourceRequest::DetachNatGateway => resources.nat_gateway = Observed::Absent,
                ResourceRequest::PutPublicIp(_)
                | ResourceRequest::PutSecondPublicIp
                | ResourceRequest::DeleteLoadBalancer
                | ResourceRequest::DeleteNatGateway
                | ResourceRequest::DeletePublicIp
                | ResourceRequest::DeleteSecondPublicIp => {}
            }
        }
        let retry_at = match blame(failure.kind) {
            Blame::Everyone => self.close_door(failure.kind),
            Blame::Request { slow: true } => self.park(id, Step::Resource(request.clone())),
            Blame::Content if failure.kind == FailureKind::Invalid => {
                self.park(id, Step::Resource(request.clone()))
            }
            Blame::Request { slow: false } | Blame::Content => self.back_off(id),
        };
        let service = Some(self.services.key(id).clone());
        self.tell_failure(operation, service, failure, retry_at);
    }

    /// Nobody knows whether a request was applied.
    fn doubt_resource(&mut self, id: Id<ServiceState>, request: &ResourceRequest) {
        let resources = &mut self.services[id].resources;
        let lacks_tag = resources.lacks_tag(request);
        // As it would be, but with the address that it may have had before, and still without the tag that it may lack.
        let put = |before: &Observed<PublicIp>, family| {
            let before = before.possible().filter(|ip| ip.family == family);
            let address = before.and_then(|ip| ip.address);
            Observed::Unknown(PublicIp { family, address, tagged: before.is_none_or(|ip| ip.tagged) })
        };
        match request {
            ResourceRequest::PutPublicIp(family) => resources.public_ip = put(&resources.public_ip, *family),
            ResourceRequest::PutSecondPublicIp => {
                resources.second_public_ip = put(&resources.second_public_ip, IpFamily::V6);
            }
            ResourceRequest::PutLoadBalancer(_) | ResourceRequest::PutNatGateway { .. } if lacks_tag => {
                resources.load_balancer.doubt();
                resources.nat_gateway.doubt();
            }
            ResourceRequest::PutLoadBalancer(spec) => {
                resources.load_balancer = Observed::Unknown(Some(spec.clone()));
            }
            ResourceRequest::PutNatGateway { ipv6 } => {
                resources.nat_gateway = Observed::Unknown(NatGateway::Attached { ipv6: *ipv6 });
            }
            ResourceRequest::DetachNatGateway | ResourceRequest::DeleteNatGateway => {
                resources.nat_gateway.doubt();
            }
            ResourceRequest::DeleteLoadBalancer => resources.load_balancer.doubt(),
            ResourceRequest::DeletePublicIp => resources.public_ip.doubt(),
            ResourceRequest::DeleteSecondPublicIp => resources.second_public_ip.doubt(),
        }
    }

    fn on_resource_done(&mut self, id: Id<ServiceState>, request: &ResourceRequest, success: &Success) {
        let address = match success {
            Success::PublicIp(ip) => Some(*ip),
            Success::Done | Success::Written(_) | Success::Gateway(_) => None,
        };
        let put = |family| Observed::Present(PublicIp { family, address, tagged: true });
        let resources = &mut self.services[id].resources;
        match request {
            ResourceRequest::PutPublicIp(family) => resources.public_ip = put(*family),
            ResourceRequest::PutSecondPublicIp => resources.second_public_ip = put(IpFamily::V6),
            ResourceRequest::PutLoadBalancer(spec) => {
                resources.load_balancer = Observed::Present(Some(spec.clone()));
            }
            ResourceRequest::PutNatGateway { ipv6 } => {
                resources.nat_gateway = Observed::Present(NatGateway::Attached { ipv6: *ipv6 });
            }
            ResourceRequest::DetachNatGateway => {
                resources.nat_gateway = Observed::Present(NatGateway::Detached);
            }
            ResourceRequest::DeleteLoadBalancer => resources.load_balancer = Observed::Absent,
            ResourceRequest::DeleteNatGateway => resources.nat_gateway = Observed::Absent,
            ResourceRequest::DeletePublicIp => resources.public_ip = Observed::Absent,
            ResourceRequest::DeleteSecondPublicIp => resources.second_public_ip = Observed::Absent,
        }
        let again = Step::Resource(request.clone());
        if self.services[id].next_step(self.is_dual_stack()) == again {
            // A public IP without an address yet.
            self.back_off(id);
        } else {
            self.on_progress(id);
        }
    }

    fn on_services_outcome(
        &mut self,
        operation: OperationId,
        mut updates: RegistrationUpdates,
        suspected: bool,
        outcome: Outcome,
    ) {
        let failure = match outcome {
            Outcome::Succeeded(_) => {
                self.gateway.services.failures = 0;
                return updates.into_iter().for_each(|(id, update)| self.on_registration_done(id, update));
            }
            Outcome::Failed(failure) => failure,
            Outcome::Unknown(failure) => {
                for &(id, update) in &updates {
                    let registration = &mut self.services[id].resources.registration;
                    match update {
                        RegistrationUpdate::RegisterInbound => {
                            *registration = Observed::Unknown(Registration::WithPool);
                        }
                        RegistrationUpdate::RegisterOutbound => {
                            *registration = Observed::Unknown(Registration::WithNatGateway);
                        }
                        RegistrationUpdate::ClearPool
                        | RegistrationUpdate::ClearNatGateway
                        | RegistrationUpdate::Unregister => registration.doubt(),
                    }
                }
                failure
            }
        };
        let service = self.only_service(&updates);
        let retry_at = match blame(failure.kind) {
            Blame::Everyone | Blame::Request { .. } => {
                if suspected {
                    self.gateway.services.suspects.push(updates.into_iter().map(|(id, _)| id).collect());
                }
                self.hold_request(Lane::Services, failure.kind)
            }
            Blame::Content if updates.len() > 1 => {
                let ids = updates.into_iter().map(|(id, _)| id).collect();
                bisect(&mut self.gateway.services.suspects, ids);
                self.now
            }
            Blame::Content => match updates.pop() {
                Some((id, update)) => self.on_registration_refused(id, update, failure.kind),
                None => self.now,
            },
        };
        self.tell_failure(operation, service, failure, retry_at);
    }

    fn on_registration_done(&mut self, id: Id<ServiceState>, update: RegistrationUpdate) {
        self.services[id].resources.registration = match update {
            RegistrationUpdate::RegisterInbound => Observed::Present(Registration::WithPool),
            RegistrationUpdate::ClearPool => Observed::Present(Registration::WithoutPool),
            RegistrationUpdate::RegisterOutbound => Observed::Present(Registration::WithNatGateway),
            RegistrationUpdate::ClearNatGateway => Observed::Present(Registration::WithoutNatGateway),
            RegistrationUpdate::Unregister => Observed::Absent,
        };
        self.on_progress(id);
    }

    /// NRP refused what was said of this service, and of it alone.
    fn on_registration_refused(
        &mut self,
        id: Id<ServiceState>,
        update: RegistrationUpdate,
        kind: FailureKind,
    ) -> Timestamp {
        match (update, kind) {
            (RegistrationUpdate::Unregister, FailureKind::NotFound) => {
                self.on_registration_done(id, update);
                self.now
            }
            (_, FailureKind::Invalid) => self.park(id, Step::Registration(update)),
            (
                RegistrationUpdate::RegisterInbound | RegistrationUpdate::RegisterOutbound,
                FailureKind::NotFound,
            ) => {
                // What it names: that is not where we believed it to be, nor perhaps its public IPs.
                let resources = &mut self.services[id].resources;
                resources.public_ip.doubt();
                resources.second_public_ip.doubt();
                resources.load_balancer.doubt();
                resources.nat_gateway.doubt();
                self.back_off(id)
            }
            (_, FailureKind::StillReferenced) => {
                // Some address names it that we know nothing of: what the gateway holds has to be read.
                self.gateway.is_contradicted = true;
                self.back_off(id)
            }
            _ => self.back_off(id),
        }
    }

    fn only_service(&self, updates: &RegistrationUpdates) -> Option<ServiceId> {
        match updates.as_slice() {
            [(id, _)] => Some(self.services.key(*id).clone()),
            [] | [_, ..] => None,
        }
    }

    fn on_addresses_outcome(&mut self, operation: OperationId, batch: AddressBatch, outcome: Outcome) {
        let AddressBatch { suspected, moves, locations } = batch;
        let mut services = Vec::new();
        let is_done = matches!(outcome, Outcome::Succeeded(_));
        let touched = self.next_number();
        locations.iter().for_each(|&location| self.locations[location].touched = touched);
        let mut compared = Vec::with_capacity(moves.len());
        for step in &moves {
            let queued = |since| Work::Queued(QueueKey { urgency: Urgency::Addition, since });
            // What was taken from the queue was sent as it should be.
            let is_settled = is_done
                && step.since.is_some()
                && self.addresses.table[step.address].work == Work::InFlight { is_outdated: false };
            if !is_settled || step.after.is_none() {
                compared.push(step.address);
            }
            self.set_work(step.address, step.since.filter(|_| !is_done).map_or(Work::InSync, queued));
        }
        let failure = match outcome {
            Outcome::Succeeded(_) => {
                self.gateway.addresses.failures = 0;
                self.note_latency(&moves);
                if !suspected {
                    // Those that were in doubt were sent whole.
                    locations.iter().for_each(|&location| self.locations[location].in_doubt = false);
                }
                for step in &moves {
                    self.replace_holdings(step, step.applied(), &mut services);
                }
                None
            }
            Outcome::Failed(failure) => {
                for step in &moves {
                    self.replace_holdings(step, step.before.clone(), &mut services);
                }
                Some(failure)
            }
            Outcome::Unknown(failure) => {
                locations.iter().for_each(|&location| self.locations[location].in_doubt = true);
                Some(failure)
            }
        };
        if let Some(failure) = failure {
            let retry_at = match (blame(failure.kind), moves.as_slice()) {
                (Blame::Everyone | Blame::Request { .. }, _) => {
                    if suspected {
                        self.gateway.addresses.suspects.push(addresses_of(&moves));
                    }
                    self.hold_request(Lane::Addresses, failure.kind)
                }
                (Blame::Content, [step]) => {
                    if failure.kind == FailureKind::NotFound {
                        services.extend(step.named());
                        self.doubt_registrations(step);
                    }
                    self.quarantine(step, &failure)
                }
                (Blame::Content, _) => {
                    bisect(&mut self.gateway.addresses.suspects, addresses_of(&moves));
                    self.now
                }
            };
            self.tell_failure(operation, None, failure, retry_at);
        }
        for address in compared {
            self.refresh_address(address);
            self.forget_address(address);
        }
        self.refresh_services(services);
    }

    fn note_latency(&mut self, moves: &[Move]) {
        for since in moves.iter().filter_map(|step| step.since) {
            self.ages.acknowledge(since, self.now);
        }
        if let Some(oldest) = self.oldest_waiting() {
            self.ages.forget_before(oldest);
        }
    }

    /// Takes in what the locations of a request hold of an address. What others were meanwhile observed to hold stays.
    fn replace_holdings(&mut self, step: &Move, mut holdings: Holdings, unnamed: &mut Vec<Id<ServiceState>>) {
        let is_elsewhere = |place| !step.locations().any(|location| location == place);
        if self.addresses.places(step.address).any(is_elsewhere) {
            let held = self.addresses.holdings(step.address).into_iter();
            holdings.extend(held.filter(|held| is_elsewhere(held.location)));
        }
        self.set_holdings(step.address, &holdings, unnamed);
    }

    /// Leaves an address out until it changes, or for long.
    fn quarantine(&mut self, refused: &Move, failure: &Failure) -> Timestamp {
        let retry_at = self.backoff.slow(self.now);
        let address = refused.address;
        self.addresses.quarantine(address, refused.after.clone());
        self.timers.set(Timer::Address(address), retry_at);
        let message = failure.message.clone();
        self.notices.push_back(Notice::Quarantined { address: self.ip(address), message, retry_at });
        retry_at
    }

    /// NRP does not know a service that we believed to be registered: one of those that this address names.
    fn doubt_registrations(&mut self, refused: &Move) {
        for id in refused.named() {
            match self.services[id].standing {
                Standing::Ours => self.services[id].resources.registration.doubt(),
                Standing::Foreign | Standing::Unconfirmed => self.gateway.is_contradicted = true,
            }
        }
    }

    pub(crate) fn on_progress(&mut self, id: Id<ServiceState>) {
        let state = &mut self.services[id];
        state.failures = 0;
        state.wait = Wait::No;
        self.timers.clear(Timer::Service(id));
    }

    /// Waits before anything else is done for a service.
    pub(crate) fn back_off(&mut self, id: Id<ServiceState>) -> Timestamp {
        let state = &mut self.services[id];
        state.failures = state.failures.saturating_add(1);
        state.wait = Wait::Backoff;
        let at = self.backoff.after(self.now, state.failures);
        self.timers.set(Timer::Service(id), at);
        at
    }

    /// Waits long before the same step is taken for a service again; another step need not wait.
    pub(crate) fn park(&mut self, id: Id<ServiceState>, step: Step) -> Timestamp {
        let state = &mut self.services[id];
        state.failures = state.failures.saturating_add(1);
        state.wait = Wait::Parked(Box::new(step));
        let at = self.backoff.slow(self.now);
        self.timers.set(Timer::Service(id), at);
        at
    }

    fn hold_request(&mut self, lane: Lane, kind: FailureKind) -> Timestamp {
        match blame(kind) {
            Blame::Everyone => self.close_door(kind),
            Blame::Request { slow } => self.hold_lane(lane, slow),
            Blame::Content => self.now,
        }
    }

    fn hold_lane(&mut self, lane: Lane, slow: bool) -> Timestamp {
        let failures = match lane {
            Lane::Services => &mut self.gateway.services.failures,
            Lane::Addresses => &mut self.gateway.addresses.failures,
        };
        *failures = failures.saturating_add(1);
        let failures = *failures;
        let at = if slow { self.backoff.slow(self.now) } else { self.backoff.after(self.now, failures) };
        self.timers.set(Timer::Lane(lane), at);
        at
    }

    /// Sends nothing before the server allows it. An earlier and longer pause stays in force.
    fn close_door(&mut self, kind: FailureKind) -> Timestamp {
        self.throttled = self.throttled.saturating_add(1);
        let at = match kind {
            FailureKind::Throttled { retry_after: Some(pause) } => self.now.after(pause),
            FailureKind::Throttled { retry_after: None }
            | FailureKind::Conflict
            | FailureKind::Transient
            | FailureKind::Invalid
            | FailureKind::NotFound
            | FailureKind::Forbidden
            | FailureKind::Quota
            | FailureKind::StillReferenced => self.backoff.after(self.now, self.throttled),
        };
        let at = self.timers.get(Timer::Door).map_or(at, |door| door.max(at));
        self.timers.set(Timer::Door, at);
        at
    }

    pub(crate) fn tell_failure(
        &mut self,
        operation: OperationId,
        service: Option<ServiceId>,
        Failure { kind, message }: Failure,
        retry_at: Timestamp,
    ) {
        self.notices.push_back(Notice::Failed { operation, service, kind, message, retry_at });
    }
}

fn addresses_of(moves: &[Move]) -> Vec<Id<Address>> {
    moves.iter().map(|step| step.address).collect()
}

/// Sends each half of a refused request alone, until what NRP refuses stands alone.
fn bisect<T>(suspects: &mut Vec<Vec<Id<T>>>, mut ids: Vec<Id<T>>) {
    let second = ids.split_off(ids.len().div_ceil(2));
    suspects.push(second);
    suspects.push(ids);
}
