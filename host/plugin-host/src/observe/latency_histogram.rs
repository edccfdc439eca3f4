//! A histogram of durations with exponential buckets. It returns any quantile, has a fixed size and
//! needs no lock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Powers of two that a duration in nanoseconds can reach.
const DOUBLINGS: usize = u64::BITS as usize;
/// The power of two, in nanoseconds, at which the first bucket of a metric ends: 8.192 us.
const FIRST_BOUND: usize = 13;
/// Powers of two between two bounds of a metric.
const BOUND_STEP: usize = 2;
/// Number of bounds of a metric: 8.192 us, 32.768 us and so on, up to 8.6 s.
const BOUNDS: usize = 11;

/// A histogram with `BUCKETS_PER_DOUBLING` buckets for each power of two. A quantile is too long by
/// at most one part in `BUCKETS_PER_DOUBLING`.
#[derive(Debug)]
pub struct LatencyHistogram<const BUCKETS_PER_DOUBLING: usize> {
    counts: Box<[AtomicU64]>,
    /// Sum of all durations in nanoseconds.
    sum: AtomicU64,
}

impl<const BUCKETS_PER_DOUBLING: usize> Default for LatencyHistogram<BUCKETS_PER_DOUBLING> {
    fn default() -> Self {
        LatencyHistogram {
            counts: (0..DOUBLINGS * BUCKETS_PER_DOUBLING)
                .map(|_| AtomicU64::new(0))
                .collect(),
            sum: AtomicU64::new(0),
        }
    }
}

impl<const BUCKETS_PER_DOUBLING: usize> LatencyHistogram<BUCKETS_PER_DOUBLING> {
    /// Adds a duration.
    pub fn add(&self, time: Duration) {
        let nanos = nanos(time);
        self.counts[Self::bucket(nanos)].fetch_add(1, Relaxed);
        self.sum.fetch_add(nanos, Relaxed);
    }

    /// Returns the quantile in per mille. `None` if there are no values yet.
    pub fn at(&self, per_mille: u64) -> Option<Duration> {
        self.counts().at(per_mille)
    }

    /// Returns a copy of the counts.
    pub(crate) fn counts(&self) -> Counts<BUCKETS_PER_DOUBLING> {
        Counts(self.counts.iter().map(|it| it.load(Relaxed)).collect())
    }

    /// Returns the same values in the buckets of a metric.
    pub(super) fn buckets(&self) -> Buckets {
        let mut buckets = Buckets {
            sum: self.sum.load(Relaxed),
            ..Buckets::default()
        };
        for (bucket, count) in self.counts.iter().enumerate() {
            let doubling = bucket / BUCKETS_PER_DOUBLING;
            let bucket = (doubling + BOUND_STEP).saturating_sub(FIRST_BOUND) / BOUND_STEP;
            buckets.counts[bucket.min(BOUNDS)] += count.load(Relaxed);
        }
        buckets
    }

    fn bucket(nanos: u64) -> usize {
        // A bucket includes its upper bound, as the buckets of a metric do.
        let nanos = nanos.saturating_sub(1).max(1);
        let doubling = nanos.ilog2() as usize;
        let part = (u128::from(nanos - (1 << doubling)) * BUCKETS_PER_DOUBLING as u128) >> doubling;
        doubling * BUCKETS_PER_DOUBLING + part as usize
    }

    fn upper_end(bucket: usize) -> Duration {
        let (doubling, part) = (bucket / BUCKETS_PER_DOUBLING, bucket % BUCKETS_PER_DOUBLING);
        let base = 1_u128 << doubling;
        let nanos = base + base * (part as u128 + 1) / BUCKETS_PER_DOUBLING as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counts<const BUCKETS_PER_DOUBLING: usize>(Vec<u64>);

impl<const BUCKETS_PER_DOUBLING: usize> Counts<BUCKETS_PER_DOUBLING> {
    /// Returns the counts that were added since `earlier`.
    pub(crate) fn since(&self, earlier: &Counts<BUCKETS_PER_DOUBLING>) -> Counts<BUCKETS_PER_DOUBLING> {
        let counts = self.0.iter().zip(&earlier.0);
        Counts(counts.map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// Returns the counts without the `max_removed` longest durations.
    pub(crate) fn without_longest(mut self, max_removed: u64) -> Counts<BUCKETS_PER_DOUBLING> {
        let mut remaining = max_removed;
        for count in self.0.iter_mut().rev() {
            let removed = remaining.min(*count);
            *count -= removed;
            remaining -= removed;
        }
        self
    }

    /// Number of values.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the quantile in per mille. `None` if there are no values.
    pub(crate) fn at(&self, per_mille: u64) -> Option<Duration> {
        let total = self.total();
        let rank = (total * per_mille).div_ceil(1000).max(1);
        let mut cumulative = 0;
        let found = self.0.iter().position(|count| {
            cumulative += count;
            cumulative >= rank
        });
        found
            .filter(|_| total > 0)
            .map(LatencyHistogram::<BUCKETS_PER_DOUBLING>::upper_end)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Durations in the buckets of a metric.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buckets {
    /// The last bucket has no upper bound.
    counts: [u64; BOUNDS + 1],
    /// Sum of all durations in nanoseconds.
    sum: u64,
}

impl Buckets {
    pub(super) fn add(&mut self, other: &Buckets) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        Duration::from_nanos(self.sum).as_secs_f64()
    }

    /// Upper bound in seconds and count of each bucket; not cumulative.
    pub(super) fn seconds(&self) -> Vec<(f64, u64)> {
        let bound = |at: usize| {
            if at < BOUNDS {
                Duration::from_nanos(1 << (FIRST_BOUND + at * BOUND_STEP)).as_secs_f64()
            } else {
                f64::INFINITY
            }
        };
        let buckets = self.counts.iter().enumerate();
        buckets.map(|(at, count)| (bound(at), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near<const BUCKETS_PER_DOUBLING: usize>(off: f64) {
        let times = LatencyHistogram::<BUCKETS_PER_DOUBLING>::default();
        assert_eq!(times.at(500), None);
        for micros in 1..=1000 {
            times.add(Duration::from_micros(micros));
        }
        for (per_mille, exact) in [(500, 500.0), (900, 900.0), (990, 990.0), (1000, 1000.0)] {
            let found = times.at(per_mille).unwrap().as_nanos() as f64 / 1000.0;
            assert!(
                (exact..=exact * (1.0 + off)).contains(&found),
                "{BUCKETS_PER_DOUBLING} parts, {per_mille}: {found}"
            );
        }
    }

    #[test]
    fn quantiles_exceed_exact_values_by_at_most_one_bucket() {
        near::<4>(0.25);
        near::<32>(0.032);
    }

    #[test]
    fn counts_are_those_since_an_earlier_time_without_the_longest() {
        let times = LatencyHistogram::<32>::default();
        times.add(Duration::from_secs(9));
        let earlier = times.counts();
        assert_eq!(times.counts().since(&earlier).at(990), None);
        for millis in [1, 1, 1, 500, 800] {
            times.add(Duration::from_millis(millis));
        }
        let counts = times.counts().since(&earlier);
        assert_eq!(counts.total(), 5);
        let longest = |without: u64| {
            let counts = counts.clone().without_longest(without);
            counts.at(1000).map(|it| it.as_millis())
        };
        // The histogram is exact to 3.2 %.
        for (without, from, to) in [(0, 800, 826), (1, 500, 516), (2, 1, 2), (4, 1, 2)] {
            let found = longest(without).unwrap();
            assert!((from..to).contains(&found), "{without}: {found}");
        }
        assert_eq!((longest(5), longest(6)), (None, None));
    }

    #[test]
    fn every_duration_falls_into_a_bucket() {
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

    /// The first bucket whose bound is at least the duration.
    #[test]
    fn duration_is_counted_in_the_first_bucket_that_bounds_it() {
        for nanos in [
            0,
            1,
            8191,
            8192,
            8193,
            32_768,
            32_769,
            1_000_000,
            8_589_934_592,
            8_589_934_593,
        ] {
            let times = LatencyHistogram::<4>::default();
            times.add(Duration::from_nanos(nanos));
            let buckets = times.buckets();
            let expected = buckets
                .seconds()
                .iter()
                .position(|(bound, _)| (*bound * 1e9).round() >= nanos as f64);
            let found = buckets.seconds().iter().position(|(_, count)| *count == 1);
            assert_eq!(found, expected, "{nanos}");
            assert_eq!((buckets.count(), buckets.sum), (1, nanos));
        }
    }
}
