//! The tracker: what goes in, what comes out, and in which order.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::address::{Address, Addresses, Location, Work};
use crate::batch::{Gateway, InFlight, Lane};
use crate::change::{Change, ServiceRef};
use crate::config::Config;
use crate::desired::{NodeState, Resync, Slice, Slot};
use crate::ids::{Ip, NodeName, ObjectKey, ServiceId, Timestamp};
use crate::notice::Notice;
use crate::operation::{Action, Operation, OperationId, Outcome};
use crate::retry::Backoff;
use crate::service::{self, ServiceState, Step, Wait};
use crate::table::{Id, Table};
use crate::timer::Timers;

/// Keeps what the cluster asks for, what the gateway holds, and what has to be done about the difference.
///
/// # Contract
///
/// Inputs are [`handle_change`](Self::handle_change), [`handle_outcome`](Self::handle_outcome) and
/// [`handle_timeout`](Self::handle_timeout). After any of them, or several in a row, drain the outputs in this order:
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
/// * an address names only services that are known to be registered;
/// * a service is not unregistered, nor its backend pool cleared, while an address may still name it;
/// * a load balancer is deleted only after its pool reference is cleared, a public IP only after its load balancer;
/// * an address that moves is removed from its old location in the request that adds it to the new one, or before;
/// * at most one operation is in flight on the gateway, and at most one for each service.
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
    pub(crate) slots: Table<ServiceRef, Slot>,
    pub(crate) slices: Table<ObjectKey, Slice>,
    pub(crate) nodes: Table<NodeName, NodeState>,
    pub(crate) resyncs: Resyncs,

    // Where both sides meet.
    pub(crate) addresses: Addresses,
    pub(crate) locations: Table<Ip, Location>,

    // What differs.
    pub(crate) registration_queue: BTreeMap<u64, Id<ServiceState>>,
    pub(crate) resource_queue: BTreeMap<u64, Id<ServiceState>>,

    // What is under way.
    pub(crate) gateway: Gateway,
    pub(crate) in_flight: BTreeMap<OperationId, InFlight>,
    /// Throttled answers in a row, for those that do not say how long to wait.
    pub(crate) throttled: u32,
    pub(crate) timers: Timers<Timer>,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) numbers: u64,
    pub(crate) changes: u64,
}

/// The lists being read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resyncs {
    pub(crate) services: Resync,
    pub(crate) slices: Resync,
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
    /// This address is not sent before.
    Address(Id<Address>),
}

/// Why [`DiffTracker::poll_timeout`] wants to be called back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
            slices: Table::default(),
            nodes: Table::default(),
            resyncs: Resyncs::default(),
            addresses: Addresses::default(),
            locations: Table::default(),
            registration_queue: BTreeMap::new(),
            resource_queue: BTreeMap::new(),
            gateway: Gateway::default(),
            in_flight: BTreeMap::new(),
            throttled: 0,
            timers: Timers::default(),
            notices: VecDeque::new(),
            numbers: 0,
            changes: 0,
        }
    }

    /// Something in the cluster changed. The cost is that of the change: a slice costs its endpoints, a node the addresses
    /// on it, a Service the endpoints of its slices; only the end of a full list costs the length of the list.
    pub fn handle_change(&mut self, change: Change, now: Timestamp) {
        self.advance(now);
        self.changes += 1;
        self.take_in(change);
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
        if self.timers.get(Timer::Door).is_some() {
            return None;
        }
        let id = OperationId(self.numbers + 1);
        let (action, in_flight) = self.next_gateway_request(id).or_else(|| self.next_resource_request(id))?;
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
            Timer::Address(address) => Reason::AddressRetry(self.ip(address)),
        }
    }

    fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// A number greater than all before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Works out anew what a service needs: whether addresses may name it, its place in the queues, its phase; and drops
    /// one of which nothing is left.
    pub(crate) fn refresh_service(&mut self, id: Id<ServiceState>) {
        let state = &mut self.services[id];
        let role = state.derive_role();
        if core::mem::replace(&mut state.role, role) != role {
            for slot in self.services[id].slots.into_iter().flatten() {
                self.refresh_slot(slot);
            }
        }
        self.queue_service(id);
        self.tell_phase(id);
        if self.services[id].is_forgettable() {
            self.timers.clear(Timer::Service(id));
            self.services.remove(id);
        }
    }

    fn queue_service(&mut self, id: Id<ServiceState>) {
        let state = &mut self.services[id];
        let step = state.next_step();
        let waits = match &state.wait {
            Wait::No => false,
            Wait::Backoff => true,
            Wait::Parked(parked) => **parked == step,
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
            Step::Resource(_) | Step::Registration(_) | Step::Settled | Step::Drain => None,
        };
        if queued.map(|(queue, _)| queue) == wanted {
            return;
        }
        if let Some((queue, number)) = queued {
            self.queue_mut(queue).remove(&number);
        }
        let number = self.next_number();
        if wanted == Some(service::Queue::Registrations) && self.registration_queue.is_empty() {
            self.open_window(Lane::Services);
        }
        if let Some(queue) = wanted {
            self.queue_mut(queue).insert(number, id);
        }
        self.services[id].queued = wanted.map(|queue| (queue, number));
    }

    fn queue_mut(&mut self, queue: service::Queue) -> &mut BTreeMap<u64, Id<ServiceState>> {
        match queue {
            service::Queue::Resources => &mut self.resource_queue,
            service::Queue::Registrations => &mut self.registration_queue,
        }
    }

    fn tell_phase(&mut self, id: Id<ServiceState>) {
        let state = &mut self.services[id];
        let to = state.derive_phase();
        let from = core::mem::replace(&mut state.phase, to);
        if from != to {
            let key = state.key.clone();
            self.notices.push_back(Notice::Phase { service: self.services.key(id).clone(), key, from, to });
        }
    }

    fn next_resource_request(&mut self, operation: OperationId) -> Option<(Action, InFlight)> {
        let flying = self.in_flight.len() - usize::from(self.gateway.in_flight);
        if flying >= self.config.max_resource_operations.max(1) {
            return None;
        }
        loop {
            let (_, id) = self.resource_queue.pop_first()?;
            self.services[id].queued = None;
            // What is queued here has such a step: a refresh follows every change of it.
            if let Step::Resource(request) = self.services[id].next_step() {
                self.services[id].in_flight = Some(operation);
                self.tell_phase(id);
                let service = self.services.key(id).clone();
                let action = Action::Resource { service, request: request.clone() };
                return Some((action, InFlight::Resource { service: id, request }));
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
