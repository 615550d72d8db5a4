//! The tracker, the cluster and Azure together, one step at a time, with every rule checked at each.

use std::collections::{BTreeMap, BTreeSet};

use clb_difftracker::{
    Action, AddressesUpdate, Change, Config, DiffTracker, Failure, FailureKind, GatewayRequest, Ip, Kind,
    LocationUpdate, Notice, Observation, Operation, Outcome, Programmed, ServiceId, Success, Timestamp,
};

use crate::azure::{Azure, Locations};
use crate::cluster::Cluster;

/// How an operation in flight ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeds,
    Fails(FailureKind),
    UnknownApplied(FailureKind),
    UnknownNotApplied(FailureKind),
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) tracker: DiffTracker,
    pub(crate) cluster: Cluster,
    pub(crate) azure: Azure,
    pub(crate) now: Timestamp,
    pub(crate) in_flight: Vec<Operation>,
    pub(crate) notices: Vec<Notice>,
    /// Every operation taken, in order.
    pub(crate) taken: Vec<Operation>,
    /// Actions of which nobody knows whether they were applied may be repeated.
    doubtful: BTreeMap<String, u32>,
    /// Writes on Kubernetes objects succeed before anything else happens.
    pub(crate) writes_at_once: bool,
    /// What a reading of Azure that goes on has read.
    reading: Option<Azure>,
    /// The addresses of which nobody knows what the gateway holds.
    in_doubt: BTreeSet<Ip>,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        let mut cluster = Cluster::default();
        cluster.versions = Some(0);
        Self {
            tracker: DiffTracker::new(config),
            cluster,
            azure: Azure::default(),
            now: Timestamp::default(),
            in_flight: Vec::new(),
            notices: Vec::new(),
            taken: Vec::new(),
            doubtful: BTreeMap::new(),
            writes_at_once: false,
            reading: None,
            in_doubt: BTreeSet::new(),
        }
    }

    /// Something changes in the cluster; what follows from it is taken.
    pub(crate) fn change(&mut self, change: Change) {
        self.tell(change);
        self.drain();
    }

    /// The same without taking anything yet.
    pub(crate) fn tell(&mut self, change: Change) {
        let change = self.cluster.apply(change);
        self.cluster.pass_on(&self.azure);
        self.tracker.handle_change(change, self.now);
    }

    /// Lists once more what the cluster holds of a kind.
    pub(crate) fn relist(&mut self, kind: Kind) {
        for change in self.cluster.list(kind) {
            self.tracker.handle_change(change, self.now);
        }
        self.drain();
    }

    /// Begins to read what Azure holds: what changes until the end is not in it.
    pub(crate) fn begin_reading(&mut self) {
        self.tracker.handle_observation(Observation::Begin, self.now);
        self.reading = Some(self.azure.clone());
    }

    pub(crate) fn end_reading(&mut self) {
        let Some(azure) = self.reading.take() else { return };
        for item in azure.reading().into_iter().chain([Observation::Done]) {
            self.tracker.handle_observation(item, self.now);
        }
        self.drain();
    }

    /// Another process takes over, with nothing but what it can read. Of the calls in flight, those were applied whose bit is
    /// set.
    pub(crate) fn restart(&mut self, config: Config, applied: u8) {
        for (at, operation) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
            if applied & (1 << (at % 8)) != 0 {
                let _ = self.perform(&operation);
            }
        }
        self.tracker = DiffTracker::new(config);
        self.doubtful.clear();
        self.in_doubt.clear();
        self.cluster.forget_history(&self.azure);
        self.begin_reading();
        for kind in [Kind::Pod, Kind::Service, Kind::EndpointSlice, Kind::Node] {
            for change in self.cluster.list(kind) {
                self.tracker.handle_change(change, self.now);
            }
        }
        self.end_reading();
    }

    /// Azure or the API server does what the operation asks for.
    fn perform(&mut self, operation: &Operation) -> Result<Success, FailureKind> {
        match self.azure.apply(&operation.action) {
            Ok(Success::Done) => self.cluster.write(&operation.action),
            Ok(success) => Ok(success),
            Err(broken) => panic!("{broken}: {operation:?}"),
        }
    }

    /// Takes all operations and notices, and checks each operation.
    pub(crate) fn drain(&mut self) {
        while let Some(operation) = self.tracker.poll_operation(self.now) {
            self.check(&operation);
            self.taken.push(operation.clone());
            if self.writes_at_once && matches!(operation.action, Action::Service { .. } | Action::Pod { .. })
            {
                let message = "so says the API server".to_string();
                let outcome = match self.perform(&operation) {
                    Ok(success) => Outcome::Succeeded(success),
                    Err(kind) => Outcome::Failed(Failure { kind, message }),
                };
                self.tracker.handle_outcome(operation.id, outcome, self.now);
            } else {
                self.in_flight.push(operation);
            }
        }
        while let Some(notice) = self.tracker.poll_notice() {
            self.notices.push(notice);
        }
    }

    fn check(&self, operation: &Operation) {
        if let Err(broken) = self.cluster.check(&operation.action, &self.azure) {
            panic!("{broken}: {operation:?}");
        }
        let subject = subject(&operation.action);
        let same = |other: &&Operation| self::subject(&other.action) == subject;
        assert_eq!(self.in_flight.iter().find(same), None, "two operations in flight on one thing");
        let expected = self.cluster.expected(&self.azure);
        let registrations = expected.registrations;
        let expected = crate::azure::triples(&expected.locations);
        for loss in self.azure.losses(&operation.action) {
            // Of a service whose registration is in doubt, nothing can be said; and one that becomes a service of another kind
            // goes first.
            let is_registered = self.azure.can_be_named(&loss.2)
                && self.azure.registrations.get(&loss.2) == registrations.get(&loss.2);
            // Somebody else's name goes with its address, and where that is may be in doubt.
            let is_lost_track_of = self.azure.foreign.contains(&loss.2) && self.in_doubt.contains(&loss.1);
            assert!(
                is_lost_track_of || !(is_registered && expected.contains(&loss)),
                "{operation:?} takes away {loss:?}, which is wanted"
            );
        }
        if !self.doubtful.contains_key(&subject) {
            assert!(!self.is_held(&operation.action), "{operation:?} changes nothing");
        }
        if let Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) = &operation.action {
            for update in updates {
                let AddressesUpdate::Merge(entries) = &update.addresses else { continue };
                let held = self.azure.locations.get(&update.location);
                for entry in entries.iter().filter(|entry| !self.in_doubt.contains(&entry.address)) {
                    let now: Vec<_> = held
                        .and_then(|held| held.get(&entry.address))
                        .into_iter()
                        .flatten()
                        .cloned()
                        .collect();
                    assert_ne!(&*now, &*entry.services, "{} is sent as it is", entry.address);
                }
            }
        }
    }

    /// Whether the action would change nothing.
    pub(crate) fn is_held(&self, action: &Action) -> bool {
        match action {
            Action::Gateway(GatewayRequest::Read) => false,
            Action::Gateway(_) | Action::Resource { .. } => self.azure.holds(action),
            Action::Service { .. } | Action::Pod { .. } => self.cluster.holds(action),
        }
    }

    /// Ends the operation in flight at `index`.
    pub(crate) fn complete(&mut self, index: usize, end: End) {
        let operation = self.in_flight.remove(index);
        let failure = |kind| Failure { kind, message: "so it was decided".to_string() };
        let before = self.azure.locations.clone();
        let outcome = match end {
            End::Succeeds => match self.perform(&operation) {
                Ok(success) => Outcome::Succeeded(success),
                Err(kind) => Outcome::Failed(failure(kind)),
            },
            End::Fails(kind) => Outcome::Failed(failure(kind)),
            End::UnknownApplied(kind) => {
                let _ = self.perform(&operation);
                Outcome::Unknown(failure(kind))
            }
            End::UnknownNotApplied(kind) => Outcome::Unknown(failure(kind)),
        };
        let named = addresses(&operation.action, &before);
        match end {
            End::Succeeds => self.in_doubt.retain(|address| !named.contains(address)),
            End::Fails(_) => {}
            End::UnknownApplied(_) | End::UnknownNotApplied(_) => self.in_doubt.extend(named),
        }
        let kind = match end {
            End::Succeeds => None,
            End::Fails(kind) | End::UnknownApplied(kind) | End::UnknownNotApplied(kind) => Some(kind),
        };
        if kind == Some(FailureKind::NotFound) {
            // What it needs is not where it was believed to be, and is put again.
            for service in services(&operation.action) {
                *self.doubtful.entry(service.to_string()).or_default() += 1;
            }
        }
        if end != End::Succeeds {
            *self.doubtful.entry(subject(&operation.action)).or_default() += 1;
        }
        self.tracker.handle_outcome(operation.id, outcome, self.now);
        self.drain();
    }

    /// Jumps to the next deadline.
    pub(crate) fn pass_time(&mut self) -> bool {
        let Some((at, _)) = self.tracker.poll_timeout() else { return false };
        assert!(at > self.now, "a deadline in the past was not handled");
        self.now = at;
        self.tracker.handle_timeout(self.now);
        self.drain();
        true
    }

    /// Lets everything succeed and time pass until nothing is left to do; then Azure must equal the cluster, and stay
    /// silent.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.in_flight.is_empty() {
                self.complete(0, End::Succeeds);
            } else if self.reading.is_some() {
                self.end_reading();
            } else if !self.pass_time() {
                assert!(self.tracker.is_synced(), "idle but not in sync: {:?}", self.tracker);
                assert_eq!(self.azure, self.cluster.expected(&self.azure));
                self.cluster.check_objects(&self.azure);
                self.check_programmed();
                return;
            }
        }
        panic!("does not settle");
    }
}

impl World {
    /// At quiet, what an address is acknowledged for is just what the gateway lists it for, foreign names apart.
    fn check_programmed(&self) {
        let foreign = self.tracker.foreign_services();
        for (ip, services) in self.azure.locations.values().flatten() {
            let listed: Vec<_> = services.iter().filter(|name| !foreign.contains(name)).cloned().collect();
            let programmed = Programmed { acknowledged: listed, awaited: Vec::new() };
            assert_eq!(self.tracker.programmed(*ip), programmed, "{ip}");
        }
    }
}

/// The services that a call on the gateway names.
fn services(action: &Action) -> Vec<ServiceId> {
    match action {
        Action::Gateway(GatewayRequest::UpdateServices(updates)) => {
            updates.iter().map(|update| update.service.clone()).collect()
        }
        Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) => {
            let entries = |update: &LocationUpdate| match &update.addresses {
                AddressesUpdate::Replace(entries) | AddressesUpdate::Merge(entries) => entries.clone(),
                AddressesUpdate::Remove => Vec::new(),
            };
            updates.iter().flat_map(entries).flat_map(|entry| entry.services.to_vec()).collect()
        }
        Action::Gateway(GatewayRequest::Read)
        | Action::Resource { .. }
        | Action::Service { .. }
        | Action::Pod { .. } => Vec::new(),
    }
}

/// The addresses that an action names, or that are at a location that it removes.
fn addresses(action: &Action, locations: &Locations) -> Vec<Ip> {
    let Action::Gateway(GatewayRequest::UpdateAddressLocations(updates)) = action else { return Vec::new() };
    let named = |update: &LocationUpdate| match &update.addresses {
        AddressesUpdate::Replace(entries) | AddressesUpdate::Merge(entries) => {
            entries.iter().map(|entry| entry.address).collect()
        }
        AddressesUpdate::Remove => {
            locations.get(&update.location).into_iter().flat_map(BTreeMap::keys).copied().collect::<Vec<_>>()
        }
    };
    updates.iter().flat_map(named).collect()
}

/// What an operation is on: the gateway, one service, or one pod.
fn subject(action: &Action) -> String {
    match action {
        Action::Gateway(_) => "the gateway".to_string(),
        Action::Resource { service, .. } | Action::Service { service, .. } => service.to_string(),
        Action::Pod { pod, .. } => format!("pod {}", pod.uid),
    }
}
