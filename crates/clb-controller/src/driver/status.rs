//! How the driver fares, for people, probes and metrics.

use std::collections::BTreeMap;

use crate::watched::WatchedSet;

/// How the driver fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The term in which this replica leads, if it does.
    pub term: Option<u64>,
    /// The sets of objects that are watched, as far as anything was heard of them or is waited for.
    pub watches: BTreeMap<WatchedSet, WatchStatus>,
    /// What is known of Azure.
    pub reading: ReadingStatus,
    /// Whether operations are sent: this replica leads, every set that is waited for has been listed, and Azure has been read.
    pub is_sending: bool,
    /// Whether Azure and Kubernetes are known to hold exactly what the cluster asks for.
    pub is_synced: bool,
    /// What readings after the first of each term found to be other than believed.
    pub drift: u64,
    /// Events that were not written, since there were too many or nobody would take them.
    pub dropped_events: u64,
}

impl Status {
    /// Why nothing is sent though this replica leads, or why what is sent may be out of date; empty when all is well.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for (set, watch) in &self.watches {
            match &watch.trouble {
                Some(trouble) => troubles.push(format!("{set}: {trouble}")),
                None if !watch.is_listed => troubles.push(format!("{set}: not listed yet")),
                None => {}
            }
        }
        if let ReadingStatus::Failing { error, failures } = &self.reading {
            troubles.push(format!("Azure could not be read {failures} times: {error}"));
        }
        troubles
    }
}

/// How a watch fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// Whether a whole list has been taken in.
    pub is_listed: bool,
    /// What is wrong at the moment.
    pub trouble: Option<String>,
    /// How often it was interrupted.
    pub interruptions: u64,
    /// How many objects, or parts of objects, could not be used; each time they were told.
    pub skipped: u64,
}

/// What is known of Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadingStatus {
    /// Nothing was read in this term, or nobody reads.
    #[default]
    None,
    /// It has been read in this term.
    Done,
    /// It could not be read since.
    Failing {
        /// What was answered last.
        error: String,
        /// How often in a row.
        failures: u32,
    },
}
