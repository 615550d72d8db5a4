//! How things come, change and go over time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Subject;

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Power {
    /// On its way to running.
    Starting,
    /// It runs.
    Running,
    /// On its way to stopped.
    Stopping,
    /// Off, and still paid for.
    Stopped,
    /// On its way to deallocated.
    Deallocating,
    /// Off, and nowhere.
    Deallocated,
}

impl Power {
    /// As it stands in an instance view, after `PowerState/`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Deallocating => "deallocating",
            Self::Deallocated => "deallocated",
        }
    }

    /// What it is on the way there.
    fn towards(self) -> Self {
        match self {
            Self::Running => Self::Starting,
            Self::Stopped => Self::Stopping,
            Self::Deallocated => Self::Deallocating,
            on_the_way @ (Self::Starting | Self::Stopping | Self::Deallocating) => on_the_way,
        }
    }
}

/// What goes on with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Creating,
    Updating,
    Deleting,
}

/// How far a resource is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Life {
    change: Option<(Change, Duration)>,
    pub(super) failed: bool,
    /// Of a scale set it means nothing.
    pub(super) power: Power,
    /// What the power is when the change is over.
    power_after: Power,
}

impl Life {
    pub(super) fn new() -> Self {
        Self { change: None, failed: false, power: Power::Stopped, power_after: Power::Stopped }
    }

    /// Begins a change; what is being created or deleted stays so, and one change goes on until all have ended. Says until
    /// when it goes on.
    pub(super) fn begin(&mut self, change: Change, until: Duration, power: Option<Power>) -> Duration {
        if let Some(power) = power {
            self.power_after = power;
            if self.power != power {
                self.power = power.towards();
            }
        }
        self.failed = false;
        self.change = match (self.change, change) {
            (Some((Change::Deleting, until)), _) => Some((Change::Deleting, until)),
            (Some((Change::Creating, former)), Change::Updating) => {
                Some((Change::Creating, former.max(until)))
            }
            (Some((Change::Updating, former)), Change::Updating) => Some((change, former.max(until))),
            (None | Some(_), Change::Creating | Change::Updating | Change::Deleting) => Some((change, until)),
        };
        self.change.map_or(until, |(_, until)| until)
    }

    /// Ends the change that is due, if there is one.
    pub(super) fn end(&mut self, now: Duration) -> Option<Change> {
        let (change, _) = self.change.filter(|(_, until)| *until <= now)?;
        self.change = None;
        self.power = self.power_after;
        Some(change)
    }

    /// Ends whatever goes on without success.
    pub(super) fn fail(&mut self) {
        self.change = None;
        self.failed = true;
    }

    pub(super) fn set_power(&mut self, power: Power) {
        (self.power, self.power_after) = (power, power);
    }

    pub(super) fn is_deleting(&self) -> bool {
        matches!(self.change, Some((Change::Deleting, _)))
    }

    /// As `provisioningState` says it.
    pub(super) fn state(&self) -> &'static str {
        match self.change {
            Some((Change::Creating, _)) => "Creating",
            Some((Change::Updating, _)) => "Updating",
            Some((Change::Deleting, _)) => "Deleting",
            None if self.failed => "Failed",
            None => "Succeeded",
        }
    }
}

/// When something ends. What is taken may have changed its mind since: who takes it looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda(BTreeMap<Duration, BTreeSet<Subject>>);

impl Agenda {
    pub(super) fn add(&mut self, until: Duration, subject: Subject) {
        self.0.entry(until).or_default().insert(subject);
    }

    /// Takes the next that is due.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<Subject> {
        let mut first = self.0.first_entry().filter(|first| *first.key() <= now)?;
        let subject = first.get_mut().pop_first();
        if first.get().is_empty() {
            first.remove();
        }
        subject
    }
}
