//! The driver's settings.

use std::collections::BTreeSet;
use std::time::Duration;

use clb_difftracker::Config;

use crate::admission::AdmissionPolicy;
use crate::nodes::Anticipation;
use crate::readiness::ReadinessConfig;
use crate::watched::WatchedSet;

/// Settings of a [`Driver`](crate::Driver).
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// The tracker's settings.
    pub tracker: Config,
    /// Which Services are ours.
    pub admission: AdmissionPolicy,
    /// When endpoints count that are not ready.
    pub readiness: ReadinessConfig,
    /// What is believed of machines that have no Node object with addresses yet.
    pub anticipation: Anticipation,
    /// The sets that must have been listed before anything is sent. Default: none, for those who hand in changes of their own.
    pub awaited: BTreeSet<WatchedSet>,
    /// How long one operation may take, long-running operations included. When it is up, the outcome is unknown.
    ///
    /// Default 5 min, as the existing Go controller has it: ARM's own long-running operations on these resources take
    /// seconds, and minutes on a bad day. The end of the leadership may cut it shorter.
    pub operation_timeout: Duration,
    /// How long after one reading of Azure the next one begins, give or take a tenth.
    ///
    /// Default 10 min: a reading of a large gateway takes seconds of a reader's budget, and what others break is rare.
    pub reading_interval: Duration,
    /// How long calls in flight may still take when the driver is told to stop. After that they are given up, and whoever
    /// comes next reads what became of them.
    ///
    /// Default 20 s: Kubernetes kills a pod after 30 s.
    pub shutdown_grace: Duration,
    /// How many messages the inbox holds before those who send them wait.
    ///
    /// Default 4,096: a burst of a large cluster fits, and one that does not slows its sources down instead of filling
    /// memory.
    pub inbox: usize,
    /// Seed of request ids and of the jitter between readings. Two controllers should not share a seed: their requests would
    /// share ids.
    ///
    /// Default 0.
    pub seed: u64,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            tracker: Config::default(),
            admission: AdmissionPolicy::default(),
            readiness: ReadinessConfig::default(),
            anticipation: Anticipation::default(),
            awaited: BTreeSet::new(),
            operation_timeout: Duration::from_secs(300),
            reading_interval: Duration::from_secs(600),
            shutdown_grace: Duration::from_secs(20),
            inbox: 4_096,
            seed: 0,
        }
    }
}
