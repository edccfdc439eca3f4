//! Processor time of the current thread, with few system calls.
//!
//! Reading the thread's clock is a system call, which is expensive compared with a call of two
//! microseconds. The wall clock needs none and never shows less than the processor time, so an
//! interval of at most [`MAX_WALL_CLOCK_CHARGE`] is charged by the wall clock. A longer interval is
//! charged by the thread's clock, since the last reading on this thread, which is at most
//! [`MAX_READING_AGE`] older than the interval: preemption is not charged, and at most that much of
//! other tasks.

use std::{
    cell::Cell,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

/// Intervals up to this are charged by the wall clock.
const MAX_WALL_CLOCK_CHARGE: u64 = Duration::from_micros(100).as_nanos() as u64;
/// Maximum age of a reading at the start of an interval.
const MAX_READING_AGE: u64 = Duration::from_micros(500).as_nanos() as u64;

thread_local! {
    /// The last reading of this thread's clock.
    static READ: Cell<ClockReading> = const { Cell::new(ClockReading { wall: 0, cpu: 0 }) };
}

/// Both clocks at one moment, in nanoseconds.
#[derive(Clone, Copy)]
struct ClockReading {
    wall: u64,
    cpu: u64,
}

/// The start of an interval; used by one thread at a time.
#[derive(Debug, Default)]
pub(super) struct CpuClock {
    wall: AtomicU64,
    cpu: AtomicU64,
}

impl CpuClock {
    /// Starts the interval on this thread.
    pub(super) fn start(&self) {
        let wall = wall_nanos();
        let last = READ.get();
        let cpu = if wall.saturating_sub(last.wall) > MAX_READING_AGE {
            read(wall)
        } else {
            last.cpu
        };
        self.wall.store(wall, Relaxed);
        self.cpu.store(cpu, Relaxed);
    }

    /// Nanoseconds used since the start, on the same thread.
    pub(super) fn used(&self) -> u64 {
        let wall = wall_nanos();
        let passed = wall.saturating_sub(self.wall.load(Relaxed));
        if passed <= MAX_WALL_CLOCK_CHARGE {
            return passed;
        }
        passed.min(read(wall).saturating_sub(self.cpu.load(Relaxed)))
    }
}

fn wall_nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Greater than 0, which means no reading.
    START.elapsed().as_nanos() as u64 + MAX_READING_AGE + 1
}

fn read(wall: u64) -> u64 {
    let cpu = thread_nanos();
    READ.set(ClockReading { wall, cpu });
    cpu
}

/// Processor time of this thread. 0 where the system has no such clock: then only the wall clock
/// limits a call.
fn thread_nanos() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, thread};

    use super::*;

    fn spin(nanos: u64) {
        let begin = thread_nanos();
        while thread_nanos() - begin < nanos {
            black_box(0);
        }
    }

    #[test]
    fn cpu_clock_charges_use_and_not_waits() {
        const SPUN: u64 = 20_000_000;
        let watch = CpuClock::default();
        watch.start();
        spin(SPUN);
        let used = watch.used();
        assert!(used >= SPUN, "{used}");
        // Asleep, nothing is used: at most what was used before the beginning counts.
        watch.start();
        thread::sleep(Duration::from_millis(20));
        assert!(
            watch.used() <= MAX_READING_AGE + MAX_WALL_CLOCK_CHARGE,
            "{}",
            watch.used()
        );
    }

    #[test]
    fn cpu_clock_does_not_charge_earlier_tasks() {
        let watch = CpuClock::default();
        watch.start();
        spin(5_000_000);
        // Nobody has read the clock since: what was spun until now is not the next one's.
        watch.start();
        spin(1_000_000);
        let used = watch.used();
        assert!(
            (1_000_000..1_000_000 + MAX_READING_AGE + 1_000_000).contains(&used),
            "{used}"
        );
    }
}
