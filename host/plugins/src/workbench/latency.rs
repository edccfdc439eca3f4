//! Times from nanoseconds to minutes, by their order of magnitude: bounded, however many there are, and exact to three per cent.

use std::time::Duration;

/// Parts of each doubling.
const PARTS: usize = 32;

/// How often times were seen.
#[derive(Debug)]
pub(super) struct Latency {
    counts: Vec<u64>,
    max: Duration,
    total: u64,
}

impl Latency {
    pub(super) fn new() -> Latency {
        Latency {
            counts: vec![0; 64 * PARTS],
            max: Duration::ZERO,
            total: 0,
        }
    }

    pub(super) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.counts[place(nanos)] += 1;
        self.max = self.max.max(time);
        self.total += 1;
    }

    /// The time within which so many per cent of them were done; zero when there are none.
    pub(super) fn within(&self, per_cent: u64) -> Duration {
        let wanted = (self.total * per_cent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        // No time is longer than the longest.
        found.map_or(Duration::ZERO, |place| upper_end(place).min(self.max))
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }
}

fn place(nanos: u64) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near_and_never_beyond_the_longest() {
        let mut latency = Latency::new();
        assert_eq!(latency.within(50), Duration::ZERO);
        for micros in 1..=1000 {
            latency.add(Duration::from_micros(micros));
        }
        for (per_cent, exact) in [(50, 500.0), (90, 900.0), (99, 990.0), (100, 1000.0)] {
            let found = latency.within(per_cent).as_nanos() as f64 / 1000.0;
            assert!((exact..=exact * 1.035).contains(&found), "{per_cent}: {found}");
        }
        assert_eq!(latency.within(100), latency.max());
    }

    #[test]
    fn every_time_has_a_place() {
        for time in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_hours(1),
            Duration::MAX,
        ] {
            let mut latency = Latency::new();
            latency.add(time);
            assert!(
                latency.within(50) <= time.max(Duration::from_nanos(1)),
                "{time:?}"
            );
        }
    }
}
