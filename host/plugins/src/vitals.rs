//! What is measured of one version beside the counters that all versions of a plugin share: how long its calls take, how much memory
//! an instance came to, and its last fault.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::status::Trap;

/// Buckets to each doubling: a quantile is off by an eighth at most.
const STEPS: usize = 4;
/// From 1 us on; the last bucket takes what is over 2^32 us.
const BUCKETS: usize = 32 * STEPS + 1;

#[derive(Debug)]
pub(crate) struct Vitals {
    /// Bytes of linear memory that the largest of its instances came to.
    pub(crate) memory: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    last: Mutex<Option<Trap>>,
}

impl Default for Vitals {
    fn default() -> Self {
        Vitals {
            memory: AtomicU64::new(0),
            latency: std::array::from_fn(|_| AtomicU64::new(0)),
            last: Mutex::default(),
        }
    }
}

impl Vitals {
    /// A call took so long in its instance.
    pub(crate) fn took(&self, time: Duration) {
        self.latency[bucket(time)].fetch_add(1, Relaxed);
    }

    /// The time within which so many per thousand of the calls were done. None: there was no call yet.
    pub(crate) fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let counts: Vec<u64> = self.latency.iter().map(|it| it.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.filter(|_| total > 0).map(upper_end)
    }

    pub(crate) fn faulted(&self, trap: Trap) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
    }

    pub(crate) fn last_trap(&self) -> Option<Trap> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Logarithmic, with `STEPS` linear parts of each doubling.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let doubling = micros.ilog2() as usize;
    let part = (u128::from(micros - (1 << doubling)) * STEPS as u128) >> doubling;
    (doubling * STEPS + part as usize).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> Duration {
    let (doubling, part) = (bucket / STEPS, bucket % STEPS);
    let base = 1_u64 << doubling;
    Duration::from_micros(base + base * (part as u64 + 1) / STEPS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near() {
        let vitals = Vitals::default();
        assert_eq!(vitals.quantile(500), None);
        for micros in 1..=1000 {
            vitals.took(Duration::from_micros(micros));
        }
        for (per_mille, exact) in [(500, 500.0), (990, 990.0), (1000, 1000.0)] {
            let found = vitals.quantile(per_mille).unwrap().as_micros() as f64;
            assert!((exact..exact * 1.26).contains(&found), "{per_mille}: {found}");
        }
    }

    #[test]
    fn every_time_has_a_bucket() {
        for time in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(3),
            Duration::from_secs(5),
            Duration::MAX,
        ] {
            let bucket = bucket(time);
            assert!(bucket < BUCKETS, "{time:?}");
            if time < Duration::from_hours(1) {
                assert!(upper_end(bucket) >= time, "{time:?}");
            }
        }
    }
}
