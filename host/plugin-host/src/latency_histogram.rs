//! A histogram of durations with exponential buckets: any quantile, in bounded memory.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Doublings of a nanosecond that a time can come to.
const DOUBLINGS: usize = u64::BITS as usize;

/// With `PARTS` to each doubling, a quantile is too long by one in `PARTS` at most.
#[derive(Debug)]
pub(crate) struct LatencyHistogram<const PARTS: usize>(Box<[AtomicU64]>);

impl<const PARTS: usize> Default for LatencyHistogram<PARTS> {
    fn default() -> Self {
        LatencyHistogram((0..DOUBLINGS * PARTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl<const PARTS: usize> LatencyHistogram<PARTS> {
    pub(crate) fn add(&self, time: Duration) {
        self.0[Self::place(time)].fetch_add(1, Relaxed);
    }

    /// The quantile in per mille. None: there are no values yet.
    pub(crate) fn at(&self, per_mille: u64) -> Option<Duration> {
        let counts: Vec<u64> = self.0.iter().map(|it| it.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.filter(|_| total > 0).map(Self::upper_end)
    }

    fn place(time: Duration) -> usize {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let doubling = nanos.ilog2() as usize;
        let part = (u128::from(nanos - (1 << doubling)) * PARTS as u128) >> doubling;
        doubling * PARTS + part as usize
    }

    fn upper_end(place: usize) -> Duration {
        let (doubling, part) = (place / PARTS, place % PARTS);
        let base = 1_u128 << doubling;
        let nanos = base + base * (part as u128 + 1) / PARTS as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near<const PARTS: usize>(off: f64) {
        let times = LatencyHistogram::<PARTS>::default();
        assert_eq!(times.at(500), None);
        for micros in 1..=1000 {
            times.add(Duration::from_micros(micros));
        }
        for (per_mille, exact) in [(500, 500.0), (900, 900.0), (990, 990.0), (1000, 1000.0)] {
            let found = times.at(per_mille).unwrap().as_nanos() as f64 / 1000.0;
            assert!(
                (exact..=exact * (1.0 + off)).contains(&found),
                "{PARTS} parts, {per_mille}: {found}"
            );
        }
    }

    #[test]
    fn quantiles_are_near() {
        near::<4>(0.25);
        near::<32>(0.032);
    }

    #[test]
    fn every_time_has_a_place() {
        for time in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(3),
            Duration::from_secs(5),
            Duration::from_hours(1),
            Duration::MAX,
        ] {
            let times = LatencyHistogram::<4>::default();
            times.add(time);
            let longest = Duration::from_nanos(u64::MAX);
            assert!(times.at(1000).unwrap() >= time.min(longest), "{time:?}");
        }
    }
}
