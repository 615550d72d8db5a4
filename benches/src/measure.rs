//! Times that can be compared on a noisy machine.

use std::time::{Duration, Instant};

/// Runs the candidates in turn, `rounds` times each, and gives the shortest time of each.
///
/// What disturbs a run only makes it longer, so the shortest is the least disturbed; taking turns spreads a slow spell of
/// the machine over all of them.
pub fn shortest<const N: usize>(
    rounds: usize,
    mut candidates: [&mut dyn FnMut() -> Duration; N],
) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..rounds {
        for (best, candidate) in best.iter_mut().zip(&mut candidates) {
            *best = candidate().min(*best);
        }
    }
    best
}

/// How long `work` takes.
pub fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    std::hint::black_box(result);
    elapsed
}

/// `a` as a multiple of `b`.
pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
