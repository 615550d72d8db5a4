//! Azure Resource Manager's throttling: token buckets, and doors that are closed for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::azure::Method;

/// How many calls of each class a subscription may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// GETs.
    pub reads: Budget,
    /// PUTs, POSTs and the rest.
    pub writes: Budget,
    /// DELETEs.
    pub deletes: Budget,
}

/// A token bucket, which is full at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How many calls it holds.
    pub size: u32,
    /// How many come back each second.
    pub per_second: u32,
}

impl Default for Budgets {
    /// Azure Resource Manager's published limits for a subscription, principal and region.
    fn default() -> Self {
        Self {
            reads: Budget { size: 250, per_second: 25 },
            writes: Budget { size: 200, per_second: 10 },
            deletes: Budget { size: 200, per_second: 10 },
        }
    }
}

/// What recorded traffic says is left of a subscription's budgets, for where they are not kept.
const RECORDED_LEFT: [(Class, u32); 3] =
    [(Class::Reads, 16_499), (Class::Writes, 11_999), (Class::Deletes, 11_999)];

/// What a call draws on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Reads,
    Writes,
    Deletes,
}

impl Class {
    pub(crate) fn of(method: &Method) -> Self {
        match method {
            Method::Get => Self::Reads,
            Method::Delete => Self::Deletes,
            Method::Put | Method::Post | Method::Patch | Method::Other(_) => Self::Writes,
        }
    }

    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Reads => "x-ms-ratelimit-remaining-subscription-global-reads",
            Self::Writes => "x-ms-ratelimit-remaining-subscription-global-writes",
            Self::Deletes => "x-ms-ratelimit-remaining-subscription-global-deletes",
        }
    }
}

/// The budgets at some time.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    budgets: Option<Budgets>,
    /// What was used of each bucket at a time, in billionths of a call, so that nothing is lost in rounding.
    used: BTreeMap<Class, (u128, Duration)>,
    closed_until: BTreeMap<Class, Duration>,
}

/// A second, in nanoseconds; also a call, in the unit of [`Throttle::used`].
const BILLION: u128 = 1_000_000_000;

impl Throttle {
    pub(crate) fn new(budgets: Option<Budgets>) -> Self {
        Self { budgets, used: BTreeMap::new(), closed_until: BTreeMap::new() }
    }

    /// Refuses all calls of a class for a while.
    pub(crate) fn close(&mut self, class: Class, until: Duration) {
        self.closed_until.insert(class, until);
    }

    /// Draws one call: how many are left, or after how many seconds to come again.
    pub(crate) fn draw(&mut self, class: Class, now: Duration) -> Result<u32, u64> {
        if let Some(wait) = self.closed_until.get(&class).and_then(|until| until.checked_sub(now))
            && !wait.is_zero()
        {
            return Err(whole_seconds(wait.as_nanos(), BILLION));
        }
        let Some(budgets) = self.budgets else {
            let left = RECORDED_LEFT.into_iter().find(|(of, _)| *of == class);
            return Ok(left.map_or(0, |(_, left)| left));
        };
        let budget = match class {
            Class::Reads => budgets.reads,
            Class::Writes => budgets.writes,
            Class::Deletes => budgets.deletes,
        };
        let (used, at) = self.used.entry(class).or_default();
        let refilled = now.saturating_sub(*at).as_nanos() * u128::from(budget.per_second);
        *used = used.saturating_sub(refilled);
        *at = now;
        let size = u128::from(budget.size) * BILLION;
        let after = *used + BILLION;
        if after > size {
            return Err(whole_seconds(after - size, u128::from(budget.per_second.max(1)) * BILLION));
        }
        *used = after;
        Ok(u32::try_from((size - after) / BILLION).unwrap_or(u32::MAX))
    }
}

fn whole_seconds(amount: u128, per_second: u128) -> u64 {
    u64::try_from(amount.div_ceil(per_second)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn throttle(size: u32, per_second: u32) -> Throttle {
        let budget = Budget { size, per_second };
        Throttle::new(Some(Budgets { reads: budget, ..Budgets::default() }))
    }

    #[test]
    fn a_bucket_is_drawn_empty_and_fills_again() {
        let mut throttle = throttle(2, 1);
        let mut draw = |millis| throttle.draw(Class::Reads, Duration::from_millis(millis));
        assert_eq!([draw(0), draw(0), draw(0), draw(400)], [Ok(1), Ok(0), Err(1), Err(1)]);
        assert_eq!([draw(1000), draw(1000), draw(60_000), draw(60_000)], [Ok(0), Err(1), Ok(1), Ok(0)]);
    }

    #[test]
    fn a_slow_bucket_says_how_long_to_wait_and_classes_are_apart() {
        let mut throttle = throttle(1, 0);
        assert_eq!(throttle.draw(Class::Reads, Duration::ZERO), Ok(0));
        assert_eq!(throttle.draw(Class::Reads, SECOND), Err(1));
        assert_eq!(throttle.draw(Class::Writes, Duration::ZERO), Ok(199));
    }

    #[test]
    fn a_closed_door_opens_when_it_said() {
        let mut throttle = Throttle::new(None);
        throttle.close(Class::Deletes, SECOND * 10);
        assert_eq!(throttle.draw(Class::Deletes, Duration::from_millis(7_500)), Err(3));
        assert_eq!(throttle.draw(Class::Reads, SECOND), Ok(16_499));
        assert_eq!(throttle.draw(Class::Deletes, SECOND * 10), Ok(11_999));
    }
}
