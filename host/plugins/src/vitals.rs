//! What is measured of one version, for an operator's table: how long its calls take and wait, what they use of the processor, how much
//! memory an instance came to, and its last fault.

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

#[derive(Debug, Default)]
pub(crate) struct Vitals {
    /// Bytes of linear memory that the largest of its instances came to.
    pub(crate) memory: AtomicU64,
    /// Calls that wait for an instance.
    pub(crate) queue: AtomicU64,
    /// Nanoseconds of processor time that its guests used, starting them included.
    cpu: AtomicU64,
    /// Of a call in its instance.
    pub(crate) latency: Quantiles,
    /// Until a call had an instance.
    pub(crate) wait: Quantiles,
    /// Processor time of a call.
    pub(crate) cpu_of_call: Quantiles,
    last: Mutex<Option<Trap>>,
}

impl Vitals {
    pub(crate) fn used(&self, cpu: Duration) {
        let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.cpu.fetch_add(nanos, Relaxed);
    }

    /// All that its guests used.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu.load(Relaxed))
    }

    pub(crate) fn faulted(&self, trap: Trap) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
    }

    pub(crate) fn last_trap(&self) -> Option<Trap> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Times, counted so that any quantile of them can be told.
#[derive(Debug)]
pub(crate) struct Quantiles([AtomicU64; BUCKETS]);

impl Default for Quantiles {
    fn default() -> Self {
        Quantiles(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Quantiles {
    pub(crate) fn add(&self, time: Duration) {
        self.0[bucket(time)].fetch_add(1, Relaxed);
    }

    /// The time that so many per thousand did not exceed. None: there was none yet.
    pub(crate) fn at(&self, per_mille: u64) -> Option<Duration> {
        let counts: Vec<u64> = self.0.iter().map(|it| it.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.filter(|_| total > 0).map(upper_end)
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
        let times = Quantiles::default();
        assert_eq!(times.at(500), None);
        for micros in 1..=1000 {
            times.add(Duration::from_micros(micros));
        }
        for (per_mille, exact) in [(500, 500.0), (990, 990.0), (1000, 1000.0)] {
            let found = times.at(per_mille).unwrap().as_micros() as f64;
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
