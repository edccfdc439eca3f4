//! How the cost of a function grows with its input.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Linear cost quadruples, quadratic cost is 16 times as high.
const MAX_RATIO: u32 = 8;
/// Other processes delay both measurements, and rarely all of them.
const ROUNDS: usize = 12;

/// Fails if four times the input cost more than eight times the processor time. `small` does the
/// work on some input, `large` on one that is four times as long. Compared are the least times of
/// several rounds on this thread, so the speed and the load of the machine do not matter.
pub fn assert_linear(what: &str, mut small: impl FnMut(), mut large: impl FnMut()) {
    small(); // Fills caches.
    let (mut least_small, mut least_large) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        least_small = least_small.min(time_of(&mut small));
        least_large = least_large.min(time_of(&mut large));
        if least_large <= least_small * MAX_RATIO {
            return;
        }
    }
    panic!("{what}: 4 times the input costs {least_large:?} instead of {least_small:?}");
}

fn time_of(work: &mut impl FnMut()) -> Duration {
    let start = thread_time();
    work();
    thread_time().saturating_sub(start)
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::panic::catch_unwind;

    use super::*;

    fn distinct(count: u32) {
        let mut seen = Vec::new();
        for number in 0..count {
            if !seen.contains(&black_box(number)) {
                seen.push(number);
            }
        }
    }

    #[test]
    fn linear_and_quadratic_costs_are_told_apart() {
        let sum = |count: u32| {
            black_box((0..count).map(black_box).sum::<u32>());
        };
        assert_linear("a sum", || sum(20_000), || sum(80_000));
        let found = catch_unwind(|| assert_linear("a scan", || distinct(1_000), || distinct(4_000)));
        assert!(found.is_err());
    }
}
