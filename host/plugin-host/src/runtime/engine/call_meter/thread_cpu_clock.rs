//! Processor time of the current thread, with few system calls.
//!
//! Reading the thread's clock is a system call, which is expensive compared with a call of two
//! microseconds. The wall clock needs no system call, and an interval's wall-clock time is never less
//! than its processor time, so an interval of at most [`MAX_WALL_CLOCK_CHARGE`] is charged by the wall
//! clock. A longer interval is charged by the thread's clock, from the last reading on this thread,
//! which is at most [`MAX_READING_AGE`] older than the interval. Preemption is therefore not charged,
//! and at most that age of other tasks' time is.

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
    static LAST_READING: Cell<ClockReading> = const { Cell::new(ClockReading { wall: 0, cpu: 0 }) };
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
        let last = LAST_READING.get();
        let cpu = if wall.saturating_sub(last.wall) > MAX_READING_AGE {
            read_cpu(wall)
        } else {
            last.cpu
        };
        self.wall.store(wall, Relaxed);
        self.cpu.store(cpu, Relaxed);
    }

    /// Wall-clock time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(wall_nanos().saturating_sub(self.wall.load(Relaxed)))
    }

    /// Nanoseconds used since the start, on the same thread.
    pub(super) fn used(&self) -> u64 {
        let wall = wall_nanos();
        let passed = wall.saturating_sub(self.wall.load(Relaxed));
        if passed <= MAX_WALL_CLOCK_CHARGE {
            return passed;
        }
        passed.min(read_cpu(wall).saturating_sub(self.cpu.load(Relaxed)))
    }
}

fn wall_nanos() -> u64 {
    static CLOCK_START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Large enough that the initial reading, with `wall` 0, is always too old to be used.
    CLOCK_START.elapsed().as_nanos() as u64 + MAX_READING_AGE + 1
}

fn read_cpu(wall: u64) -> u64 {
    let cpu = thread_nanos();
    LAST_READING.set(ClockReading { wall, cpu });
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
        const SPIN_NANOS: u64 = 20_000_000;
        let watch = CpuClock::default();
        watch.start();
        spin(SPIN_NANOS);
        let used = watch.used();
        assert!(used >= SPIN_NANOS, "{used}");
        // Sleep is not charged. At most the use between the last reading and the start is.
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
        // The clock has not been read since the start, but the spin is not charged to the next interval.
        watch.start();
        spin(1_000_000);
        let used = watch.used();
        assert!(
            (1_000_000..1_000_000 + MAX_READING_AGE + 1_000_000).contains(&used),
            "{used}"
        );
    }
}
