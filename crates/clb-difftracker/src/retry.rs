//! How long to wait after a failure.

use core::time::Duration;

use crate::config::Config;
use crate::ids::Timestamp;

/// Draws the delays.
#[derive(Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    slow: Duration,
    state: u64,
}

impl Backoff {
    pub(crate) fn new(config: &Config) -> Self {
        Self { first: config.backoff, most: config.max_backoff, slow: config.slow_retry, state: config.seed }
    }

    /// When to try again after `failures` failures in a row: full jitter below a ceiling that doubles, but never less
    /// than a tenth of it, so that nothing is repeated without a delay.
    pub(crate) fn after(&mut self, now: Timestamp, failures: u32) -> Timestamp {
        let doublings = failures.saturating_sub(1).min(31);
        let ceiling = self.first.saturating_mul(1 << doublings).min(self.most);
        now.after(self.between(ceiling / 10, ceiling))
    }

    /// When to try again what time alone will not cure: the slow delay, a tenth more or less.
    pub(crate) fn slow(&mut self, now: Timestamp) -> Timestamp {
        let tenth = self.slow / 10;
        now.after(self.between(self.slow.saturating_sub(tenth), self.slow.saturating_add(tenth)))
    }

    fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2);
        let (low, high) = (millis(low), millis(high));
        Duration::from_millis(low + self.random() % (high.saturating_sub(low) + 1))
    }

    /// SplitMix64: any seed will do, and eight bytes are all there is to keep.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_ceiling_with_jitter_that_the_seed_decides() {
        let draw = |seed| {
            let mut backoff = Backoff::new(&Config { seed, ..Config::default() });
            [1, 2, 3, 4, 5, 6, 7, 1_000]
                .map(|failures| backoff.after(Timestamp::default(), failures).as_millis())
        };
        let ceilings = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000];
        for seed in 0..200 {
            for (delay, ceiling) in draw(seed).into_iter().zip(ceilings) {
                assert!(
                    (ceiling / 10..=ceiling).contains(&delay),
                    "seed {seed}: {delay} ms for at most {ceiling} ms"
                );
            }
        }
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
