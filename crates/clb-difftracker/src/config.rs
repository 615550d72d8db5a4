//! Every setting, its default, and why the default is what it is.

use core::time::Duration;

/// Settings of a [`DiffTracker`](crate::DiffTracker).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many addresses one `updateAddressLocations` may list; at least 1.
    ///
    /// Default 5,000: at a few hundred bytes per entry this stays well under the byte budget for ordinary names.
    pub max_entries: usize,
    /// How many bytes the JSON body of one `updateAddressLocations` may have. A single address, or a location that
    /// has to be sent whole, is sent even if it alone has more.
    ///
    /// Default 2 MiB: ARM refuses bodies of more than 4 MiB, and half of that leaves room for proxies.
    pub max_bytes: usize,
    /// How many services one `updateServices` may list; at least 1.
    ///
    /// Default 500: one request then registers a large cluster's worth and still stays under 1 MiB.
    pub max_services: usize,
    /// How long the first change that waits for a call on the gateway is kept back, so that others can join it. What
    /// comes while a call runs joins the next one anyway.
    ///
    /// Default 0: nothing is kept back.
    pub batch_window: Duration,
    /// How long after the end of a call on the gateway the next one may begin.
    ///
    /// Default 0: at once. More spares the subscription's budget of writes where changes never cease.
    pub min_interval: Duration,
    /// How many operations on resources other than the gateway may be in flight; at least 1.
    ///
    /// Default 10, as the existing Go controller has it: enough to hide their latency, far below ARM's limit of 200
    /// writes in a burst.
    pub max_resource_operations: usize,
    /// How many writes on Kubernetes objects may be in flight; at least 1.
    ///
    /// Default 10, so that thousands of pods at a start do not flood the API server.
    pub max_object_operations: usize,
    /// A full list, of the cluster or of Azure, that would delete more than this many objects or services, and more than
    /// [`max_deleted_share`](Self::max_deleted_share) of them, is not believed before a second list says the same. What is
    /// deleted one by one is always believed.
    ///
    /// Default 10.
    pub max_deleted: usize,
    /// See [`max_deleted`](Self::max_deleted): a percentage.
    ///
    /// Default 50.
    pub max_deleted_share: u8,
    /// The first delay after a failure that time may cure; it doubles with each further failure.
    ///
    /// Default 1 s.
    pub backoff: Duration,
    /// What the delay grows to.
    ///
    /// Default 30 s.
    pub max_backoff: Duration,
    /// The delay after a failure that time alone will not cure (an invalid request, a quota, a missing permission) as
    /// long as its input stays the same. Such a request is repeated all the same: the cure may be outside our view.
    ///
    /// Default 5 min.
    pub slow_retry: Duration,
    /// Seed of the jitter. Two trackers with one seed and one history do the same; two controllers should not share
    /// a seed, or they retry in step.
    ///
    /// Default 0.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_entries: 5_000,
            max_bytes: 2 * 1024 * 1024,
            max_services: 500,
            batch_window: Duration::ZERO,
            min_interval: Duration::ZERO,
            max_resource_operations: 10,
            max_object_operations: 10,
            max_deleted: 10,
            max_deleted_share: 50,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(30),
            slow_retry: Duration::from_secs(300),
            seed: 0,
        }
    }
}

impl Config {
    /// Whether a list that misses `missing` of `of` things needs a second one to confirm it.
    pub(crate) fn is_mass_deletion(&self, missing: usize, of: usize) -> bool {
        missing > self.max_deleted && missing * 100 > of * usize::from(self.max_deleted_share)
    }
}
