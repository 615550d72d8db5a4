//! Settings of an election.

use std::time::Duration;

/// Settings of an election. [`new`](Self::new) has the defaults, which are those of Kubernetes' own components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// What names this replica in the Lease, for people and for the count of transitions. Customary is the pod's name, `_` and
    /// something random for each run of the process. Two with the same identity never lead together either, but people take
    /// them for one.
    pub identity: String,
    /// How long the others wait after the last sign of life before they take the Lease over. Default 15 s; whole seconds.
    ///
    /// What it is longer than `renew_deadline` is the time that a request has to arrive that was sent just before the
    /// leadership ran out.
    pub lease_duration: Duration,
    /// How long after its last renewal the holder leads. Default 10 s; whole seconds, shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// How often the holder renews, and the others look, up to a fifth less often. Default 2 s; whole seconds, and 1.2 times
    /// of it is shorter than `renew_deadline`.
    pub retry_period: Duration,
    /// What the waits are drawn from. Replicas should have different ones.
    pub seed: u64,
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseConfigError {
    /// A name that is needed is empty.
    #[error("the Lease's {field} is empty: set it")]
    Empty {
        /// The setting.
        field: &'static str,
    },
    /// A time that is not a number of whole seconds from a second to an hour.
    #[error("{field} is {given:?}: make it a number of whole seconds, from 1 to 3600")]
    NotSeconds {
        /// The setting.
        field: &'static str,
        /// What it is.
        given: Duration,
    },
    /// The others would not wait for longer than the holder leads.
    #[error(
        "renew_deadline is {renew_deadline:?}: make it shorter than lease_duration ({lease_duration:?}), by what a request \
         takes to arrive"
    )]
    RenewDeadline {
        /// What it is.
        renew_deadline: Duration,
        /// What it must be shorter than.
        lease_duration: Duration,
    },
    /// A renewal would come too late.
    #[error(
        "retry_period is {retry_period:?}: make 1.2 times of it shorter than renew_deadline ({renew_deadline:?})"
    )]
    RetryPeriod {
        /// What it is.
        retry_period: Duration,
        /// What 1.2 times of it must be shorter than.
        renew_deadline: Duration,
    },
}

impl LeaseConfig {
    /// The defaults for this Lease and this replica.
    #[must_use]
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
        seed: u64,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            seed,
        }
    }

    /// Whether the settings make sense.
    ///
    /// # Errors
    /// The first one that does not, and what it should be.
    pub fn validate(&self) -> Result<(), LeaseConfigError> {
        let names = [("namespace", &self.namespace), ("name", &self.name), ("identity", &self.identity)];
        if let Some((field, _)) = names.into_iter().find(|(_, name)| name.is_empty()) {
            return Err(LeaseConfigError::Empty { field });
        }
        let &Self { lease_duration, renew_deadline, retry_period, .. } = self;
        let times = [
            ("lease_duration", lease_duration),
            ("renew_deadline", renew_deadline),
            ("retry_period", retry_period),
        ];
        for (field, given) in times {
            if given.subsec_nanos() != 0 || !(1..=3_600).contains(&given.as_secs()) {
                return Err(LeaseConfigError::NotSeconds { field, given });
            }
        }
        if renew_deadline >= lease_duration {
            return Err(LeaseConfigError::RenewDeadline { renew_deadline, lease_duration });
        }
        if retry_period * 6 >= renew_deadline * 5 {
            return Err(LeaseConfigError::RetryPeriod { retry_period, renew_deadline });
        }
        Ok(())
    }

    /// The duration as it stands in a Lease.
    pub(super) fn lease_duration_seconds(&self) -> i32 {
        // Validated to be an hour at most.
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut LeaseConfig)) -> String {
        let mut config = LeaseConfig::new("ns", "leader", "a", 0);
        assert_eq!(config.validate(), Ok(()));
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_sense_is_named_with_what_it_should_be() {
        let seconds = Duration::from_secs;
        let told = [
            refused(|config| config.identity.clear()),
            refused(|config| config.lease_duration = Duration::from_millis(15_500)),
            refused(|config| config.retry_period = Duration::ZERO),
            refused(|config| config.lease_duration = seconds(3_601)),
            refused(|config| config.renew_deadline = seconds(15)),
            refused(|config| (config.retry_period, config.renew_deadline) = (seconds(5), seconds(6))),
        ];
        assert_eq!(
            told,
            [
                "the Lease's identity is empty: set it",
                "lease_duration is 15.5s: make it a number of whole seconds, from 1 to 3600",
                "retry_period is 0ns: make it a number of whole seconds, from 1 to 3600",
                "lease_duration is 3601s: make it a number of whole seconds, from 1 to 3600",
                "renew_deadline is 15s: make it shorter than lease_duration (15s), by what a request takes to arrive",
                "retry_period is 5s: make 1.2 times of it shorter than renew_deadline (6s)",
            ]
        );
    }
}
