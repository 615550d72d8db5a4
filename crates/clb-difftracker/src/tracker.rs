//! The tracker: what goes in, what comes out, and in which order.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::address::{Address, Addresses, Location, Work};
use crate::batch::{Gateway, InFlight, Lane};
use crate::change::{Change, Source};
use crate::config::Config;
use crate::desired::{NodeState, Resync};
use crate::ids::{Ip, NodeName, ObjectKey, ServiceId, Timestamp};
use crate::latency::Ages;
use crate::lifecycle::Step;
use crate::notice::Notice;
use crate::observation::Observation;
use crate::operation::{Action, Operation, OperationId, Outcome};
use crate::reading::Reading;
use crate::retry::Backoff;
use crate::service::{self, ServiceState, Wait};
use crate::source::{Slot, SlotKey, SourceState};
use crate::table::{Id, Table};
use crate::timer::Timers;

/// Keeps what the cluster asks for, what the gateway holds, and what has to be done about the difference.
///
/// # Contract
///
/// Inputs are [`handle_change`](Self::handle_change), [`handle_observation`](Self::handle_observation),
/// [`handle_outcome`](Self::handle_outcome) and [`handle_timeout`](Self::handle_timeout). After any of them, or several in a row, drain the outputs in this order:
///
/// 1. [`poll_operation`](Self::poll_operation) until it gives `None`. Every operation taken is owed exactly one outcome,
///    in any order and at any later time; one that is never answered blocks what depends on it for ever, so whoever
///    performs operations must bound their time and answer [`Outcome::Unknown`] when it is up.
/// 2. [`poll_notice`](Self::poll_notice) until it gives `None`.
/// 3. [`poll_timeout`](Self::poll_timeout): call `handle_timeout` then, if nothing else comes first. Calling it early or
///    twice does nothing.
///
/// Nothing else changes the tracker; equal sequences of inputs and polls give equal outputs. Time is told by the caller
/// and must not run backwards (an earlier time counts as the latest one told).
///
/// # What always holds
///
/// For the operations taken, whatever the inputs:
///
/// * no Azure resource is made for a Service before its finalizers are confirmed, and they are removed only when nothing of it
///   is left or may be; a pod's is removed only when the gateway holds none of its addresses, nor may;
/// * an address names only services that are known to be registered;
/// * a service is not unregistered, nor its backend pool cleared, while an address may still name it;
/// * a load balancer is deleted only after its pool reference is cleared, a NAT gateway only after both references between it
///   and the ServiceGateway are, and a public IP only after what uses it;
/// * an address that moves is removed from its old location in the request that adds it to the new one, or before;
/// * nothing that is not ours is changed or deleted;
/// * at most one operation is in flight on the gateway, and at most one for each service and each pod.
///
/// If inputs stop and operations succeed in the end, the gateway comes to equal the cluster, and then no further operation
/// is given.
///
/// Cloning gives another tracker in the same state, to try what would happen.
#[derive(Clone)]
pub struct DiffTracker {
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) backoff: Backoff,

    // What the cluster asks for.
    pub(crate) services: Table<ServiceId, ServiceState>,
    pub(crate) slots: Table<SlotKey, Slot>,
    pub(crate) sources: Table<Source, SourceState>,
    /// The pod that bears a name now.
    pub(crate) pod_names: Table<ObjectKey, Option<Id<SourceState>>>,
    pub(crate) nodes: Table<NodeName, NodeState>,
    /// How many nodes have an IPv6 address.
    pub(crate) ipv6_nodes: usize,
    pub(crate) resyncs: Resyncs,

    // Where both sides meet.
    pub(crate) addresses: Addresses,
    pub(crate) locations: Table<Ip, Location>,
    pub(crate) reading: Reading,
    /// What readings found to be other than believed.
    pub(crate) drift: u64,
    /// How many services are not to be touched.
    pub(crate) kept: usize,
    /// Addresses that pods had and that the gateway holds, or may, with these pods.
    pub(crate) lingering: BTreeMap<Id<Address>, SmallVec<[Id<SourceState>; 1]>>,

    // What differs.
    pub(crate) registration_queue: BTreeMap<u64, Id<ServiceState>>,
    pub(crate) resource_queue: BTreeMap<u64, Id<ServiceState>>,
    pub(crate) object_queue: BTreeMap<u64, Subject>,
    /// The services that are not as they should be, those for longest first.
    pub(crate) unsettled: BTreeSet<(Timestamp, Id<ServiceState>)>,

    // What is under way.
    pub(crate) gateway: Gateway,
    pub(crate) in_flight: BTreeMap<OperationId, InFlight>,
    /// Throttled answers in a row, for those that do not say how long to wait.
    pub(crate) throttled: u32,
    pub(crate) timers: Timers<Timer>,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) numbers: u64,
    pub(crate) changes: u64,
    pub(crate) ages: Ages,
}

/// A Kubernetes object to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Service(Id<ServiceState>),
    Pod(Id<SourceState>),
}

/// The lists being read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resyncs {
    pub(crate) services: Resync,
    pub(crate) slices: Resync,
    pub(crate) pods: Resync,
    pub(crate) nodes: Resync,
}

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Nothing is sent at all before.
    Door,
    /// Nothing of this kind is sent to the gateway before, since the last such call failed.
    Lane(Lane),
    /// Nothing of this kind is sent to the gateway before, so that more can join it.
    Window(Lane),
    /// Nothing is sent to the gateway before, since a call has just ended.
    Interval,
    /// Nothing is done for this service before.
    Service(Id<ServiceState>),
    /// Nothing is written on this pod before.
    Pod(Id<SourceState>),
    /// This address is not sent before.
    Address(Id<Address>),
}

/// Why [`DiffTracker::poll_timeout`] wants to be called back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reason {
    /// The server asked for a pause of everything.
    Throttled,
    /// A call on the gateway failed and is due again.
    GatewayRetry,
    /// Changes that were kept back for others to join them are due.
    BatchWindow,
    /// The next call on the gateway may begin.
    MinInterval,
    /// An operation of this service failed and is due again.
    ServiceRetry(ServiceId),
    /// A write on this pod failed and is due again.
    PodRetry(ObjectKey),
    /// This quarantined address is due for another try.
    AddressRetry(Ip),
}

impl DiffTracker {
    /// A tracker that knows of no cluster and believes that Azure holds nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            backoff: Backoff::new(&config),
            config,
            now: Timestamp::default(),
            services: Table::default(),
            slots: Table::default(),
            sources: Table::default(),
            pod_names: Table::default(),
            nodes: Table::default(),
            ipv6_nodes: 0,
            resyncs: Resyncs::default(),
            addresses: Addresses::default(),
            locations: Table::default(),
            reading: Reading::default(),
            drift: 0,
            kept: 0,
            lingering: BTreeMap::new(),
            registration_queue: BTreeMap::new(),
            resource_queue: BTreeMap::new(),
            object_queue: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            gateway: Gateway::default(),
            in_flight: BTreeMap::new(),
            throttled: 0,
            timers: Timers::default(),
            notices: VecDeque::new(),
            numbers: 0,
            changes: 0,
            ages: Ages::default(),
        }
    }

    /// Something in the cluster changed. The cost is that of the change: a slice costs its endpoints, a node the addresses
    /// on it, a Service the endpoints of its slices; only the end of a full list costs the length of the list.
    pub fn handle_change(&mut self, change: Change, now: Timestamp) {
        self.advance(now);
        self.changes += 1;
        self.take_in(change);
    }

    /// A part of a full reading of what Azure holds. Only the end of it costs anything, and it costs as much as there is.
    ///
    /// A tracker that is new believes that Azure holds nothing. If it may hold something, hand in the cluster (each kind as a
    /// full list) and a reading before the first [`poll_operation`](Self::poll_operation): then everything that was left
    /// behind, half made or half deleted, is a difference like any other.
    pub fn handle_observation(&mut self, observation: Observation, now: Timestamp) {
        self.advance(now);
        self.observe(observation);
    }

    /// An operation ended. An outcome of an operation that is not in flight (told twice, or from another tracker) is
    /// ignored.
    pub fn handle_outcome(&mut self, operation: OperationId, outcome: Outcome, now: Timestamp) {
        self.advance(now);
        if let Some(in_flight) = self.in_flight.remove(&operation) {
            self.on_outcome(operation, in_flight, outcome);
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.advance(now);
        while let Some(timer) = self.timers.expire(self.now) {
            match timer {
                Timer::Door | Timer::Lane(_) | Timer::Window(_) | Timer::Interval => {}
                Timer::Service(service) => {
                    self.services[service].wait = Wait::No;
                    self.refresh_service(service);
                }
                Timer::Pod(pod) => {
                    if let Some(state) = &mut self.sources[pod].pod {
                        state.wait = Wait::No;
                    }
                    self.refresh_pod(pod);
                }
                Timer::Address(address) => {
                    self.set_work(address, Work::InSync);
                    self.refresh_address(address);
                    self.forget_address(address);
                }
            }
        }
    }

    /// The next thing worth doing now. It counts as in flight from here on.
    #[must_use]
    pub fn poll_operation(&mut self, now: Timestamp) -> Option<Operation> {
        self.handle_timeout(now);
        let id = OperationId(self.numbers + 1);
        let mut next = self.next_object_request(id);
        if next.is_none() && self.timers.get(Timer::Door).is_none() {
            next = self.next_gateway_request(id).or_else(|| self.next_resource_request(id));
        }
        let (action, in_flight) = next?;
        self.numbers = id.0;
        self.in_flight.insert(id, in_flight);
        Some(Operation { id, action })
    }

    /// Something that people should hear.
    #[must_use]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Timestamp, Reason)> {
        let (at, timer) = self.timers.next()?;
        Some((at, self.reason(timer)))
    }

    pub(crate) fn reason(&self, timer: Timer) -> Reason {
        match timer {
            Timer::Door => Reason::Throttled,
            Timer::Lane(_) => Reason::GatewayRetry,
            Timer::Window(_) => Reason::BatchWindow,
            Timer::Interval => Reason::MinInterval,
            Timer::Service(service) => Reason::ServiceRetry(self.services.key(service).clone()),
            Timer::Pod(pod) => Reason::PodRetry(self.sources.key(pod).key().clone()),
            Timer::Address(address) => Reason::AddressRetry(self.ip(address)),
        }
    }

    fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        if self.addresses.unsettled == 0 {
            self.ages.forget_before(self.numbers + 1);
        }
        self.ages.begin(self.numbers, self.now);
    }

    /// A number greater than all before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Works out anew what a service needs: whether addresses may name it, its place in the queues, its phase; and drops
    /// one of which nothing is left.
    pub(crate) fn refresh_service(&mut self, id: Id<ServiceState>) {
        self.refresh_role(id);
        let step = self.services[id].next_step(self.is_dual_stack());
        self.note_settled(id, step == Step::Settled);
        self.queue_service(id, &step);
        self.tell_phase(id, &step);
        let state = &self.services[id];
        if state.is_forgettable() && !self.reading.may_contradict(state.touched) {
            self.timers.clear(Timer::Service(id));
            self.services.remove(id);
        }
    }

    /// What a service is to addresses, and what follows for those claimed for it.
    pub(crate) fn refresh_role(&mut self, id: Id<ServiceState>) {
        let is_dual_stack = self.is_dual_stack();
        let state = &mut self.services[id];
        let role = state.derive_role(is_dual_stack);
        if core::mem::replace(&mut state.role, role) != role {
            let state = &self.services[id];
            for slot in state.slots.into_iter().chain([state.egress]).flatten() {
                self.refresh_slot(slot);
            }
        }
    }

    fn note_settled(&mut self, id: Id<ServiceState>, is_settled: bool) {
        let now = self.now;
        let state = &mut self.services[id];
        match (state.unsettled, is_settled) {
            (None, false) => {
                state.unsettled = Some(now);
                self.unsettled.insert((now, id));
            }
            (Some(since), true) => {
                state.unsettled = None;
                self.unsettled.remove(&(since, id));
                self.ages.services.record(now.since(since));
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    fn queue_service(&mut self, id: Id<ServiceState>, step: &Step) {
        let state = &mut self.services[id];
        let waits = match &state.wait {
            Wait::No => false,
            Wait::Backoff => true,
            Wait::Parked(parked) => **parked == *step,
        };
        if !waits && state.wait != Wait::No {
            state.wait = Wait::No;
            self.timers.clear(Timer::Service(id));
        }
        let is_free = !waits && state.in_flight.is_none();
        let queued = state.queued;
        let wanted = match step {
            Step::Resource(_) if is_free => Some(service::Queue::Resources),
            Step::Registration(_) if is_free => Some(service::Queue::Registrations),
            Step::Object(_) if is_free => Some(service::Queue::Objects),
            Step::Resource(_) | Step::Registration(_) | Step::Object(_) | Step::Settled | Step::Drain => None,
        };
        if queued.map(|(queue, _)| queue) == wanted {
            return;
        }
        match queued {
            Some((service::Queue::Resources, number)) => drop(self.resource_queue.remove(&number)),
            Some((service::Queue::Registrations, number)) => drop(self.registration_queue.remove(&number)),
            Some((service::Queue::Objects, number)) => drop(self.object_queue.remove(&number)),
            None => {}
        }
        let number = self.next_number();
        match wanted {
            Some(service::Queue::Resources) => drop(self.resource_queue.insert(number, id)),
            Some(service::Queue::Registrations) => {
                if self.registration_queue.is_empty() {
                    self.open_window(Lane::Services);
                }
                self.registration_queue.insert(number, id);
            }
            Some(service::Queue::Objects) => drop(self.object_queue.insert(number, Subject::Service(id))),
            None => {}
        }
        self.services[id].queued = wanted.map(|queue| (queue, number));
    }

    fn tell_phase(&mut self, id: Id<ServiceState>, step: &Step) {
        let is_dual_stack = self.is_dual_stack();
        let state = &mut self.services[id];
        let to = state.derive_phase(step, is_dual_stack);
        let from = core::mem::replace(&mut state.phase, to);
        if from != to {
            let key = state.key.clone();
            self.notices.push_back(Notice::Phase { service: self.services.key(id).clone(), key, from, to });
        }
    }

    fn next_resource_request(&mut self, operation: OperationId) -> Option<(Action, InFlight)> {
        let is_resource = |flying: &&InFlight| matches!(flying, InFlight::Resource { .. });
        if self.in_flight.values().filter(is_resource).count() >= self.config.max_resource_operations.max(1) {
            return None;
        }
        loop {
            let (_, id) = self.resource_queue.pop_first()?;
            self.services[id].queued = None;
            // What is queued here has such a step: a refresh follows every change of it.
            let step = self.services[id].next_step(self.is_dual_stack());
            if let Step::Resource(request) = &step {
                self.services[id].in_flight = Some(operation);
                self.tell_phase(id, &step);
                let service = self.services.key(id).clone();
                let adopt = self.services[id].resources.lacks_tag(request);
                let action = Action::Resource { service, adopt, request: request.clone() };
                return Some((action, InFlight::Resource { service: id, request: request.clone() }));
            }
        }
    }

    fn next_object_request(&mut self, operation: OperationId) -> Option<(Action, InFlight)> {
        let is_object =
            |flying: &&InFlight| matches!(flying, InFlight::Service { .. } | InFlight::Pod { .. });
        if self.in_flight.values().filter(is_object).count() >= self.config.max_object_operations.max(1) {
            return None;
        }
        loop {
            // As above: what is queued here has such a step.
            match self.object_queue.pop_first()?.1 {
                Subject::Service(id) => {
                    self.services[id].queued = None;
                    let step = self.services[id].next_step(self.is_dual_stack());
                    if let (&Step::Object(request), Some(key)) = (&step, self.services[id].key.clone()) {
                        self.services[id].in_flight = Some(operation);
                        self.tell_phase(id, &step);
                        let service = self.services.key(id).clone();
                        let action = Action::Service { service, key, request };
                        return Some((action, InFlight::Service { service: id, request }));
                    }
                }
                Subject::Pod(id) => {
                    let Source::Pod(pod) = self.sources.key(id).clone() else { continue };
                    let Some(state) = &mut self.sources[id].pod else { continue };
                    state.queued = None;
                    if let Some(request) = state.next_step() {
                        state.in_flight = Some(operation);
                        return Some((Action::Pod { pod, request }, InFlight::Pod { pod: id, request }));
                    }
                }
            }
        }
    }

    /// Refreshes services, each once.
    pub(crate) fn refresh_services(&mut self, mut ids: Vec<Id<ServiceState>>) {
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().for_each(|id| self.refresh_service(id));
    }
}

impl core::fmt::Debug for DiffTracker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DiffTracker").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
