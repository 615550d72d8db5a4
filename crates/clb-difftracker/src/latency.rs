//! How long things take, for metrics.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::ids::Timestamp;

/// The upper bounds of the buckets of a [`Latency`], in milliseconds: from a fast call to a batch behind a long throttle.
pub const LATENCY_BUCKETS: [u64; 9] = [100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000];

/// A histogram of durations, as monitoring systems expect it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// How many took no longer than each bound of [`LATENCY_BUCKETS`].
    pub buckets: [u64; LATENCY_BUCKETS.len()],
}

impl Latency {
    pub(crate) fn record(&mut self, duration: Duration) {
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        for (bucket, bound) in self.buckets.iter_mut().zip(LATENCY_BUCKETS) {
            *bucket += u64::from(duration <= Duration::from_millis(bound));
        }
    }
}

/// When what waits began to wait. Places in queues are numbered in order of time, so it is enough to know the time of a few
/// numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ages {
    /// Numbers greater than the first, up to that of the next entry, were given at this time or later.
    marks: VecDeque<(u64, Timestamp)>,
    /// From a change of addresses to their place in the gateway.
    pub(crate) addresses: Latency,
    /// From a change of a service to everything being as it should be.
    pub(crate) services: Latency,
}

impl Ages {
    /// Numbers given from now on are of this time.
    pub(crate) fn begin(&mut self, number: u64, now: Timestamp) {
        match self.marks.back_mut() {
            Some((_, at)) if *at == now => {}
            Some((mark, at)) if *mark == number => *at = now,
            Some(_) | None => self.marks.push_back((number, now)),
        }
    }

    /// When a number was given.
    pub(crate) fn time_of(&self, number: u64) -> Option<Timestamp> {
        let after = self.marks.partition_point(|(mark, _)| *mark < number);
        self.marks.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// The change of an address with this number has been acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u64, now: Timestamp) {
        if let Some(time) = self.time_of(number) {
            self.addresses.record(now.since(time));
        }
    }

    /// Nothing with a smaller number waits any more.
    pub(crate) fn forget_before(&mut self, oldest: u64) {
        while self.marks.get(1).is_some_and(|(mark, _)| *mark < oldest) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_number_is_that_of_the_last_mark_before_it() {
        let at = Timestamp::from_millis;
        let mut ages = Ages::default();
        ages.begin(0, at(5));
        ages.begin(3, at(5));
        ages.begin(7, at(9));
        assert_eq!(
            [0, 1, 7, 8].map(|number| ages.time_of(number)),
            [None, Some(at(5)), Some(at(5)), Some(at(9))]
        );
        ages.forget_before(8);
        assert_eq!([1, 8].map(|number| ages.time_of(number)), [None, Some(at(9))]);
    }

    #[test]
    fn buckets_count_what_is_within_their_bound() {
        let mut latency = Latency::default();
        [100, 101, 200_000].into_iter().for_each(|millis| latency.record(Duration::from_millis(millis)));
        let expected =
            Latency { count: 3, total: Duration::from_millis(200_201), buckets: [1, 2, 2, 2, 2, 2, 2, 2, 2] };
        assert_eq!(latency, expected);
    }
}
