//! How much of the processor a thread has used since a moment, without asking the system each time.
//!
//! The thread's own clock costs a system call, which is dear beside a call that takes two microseconds. The wall clock costs none, and no
//! thread uses more of a processor than passes of it: what took [`MAX_WALL_CLOCK_CHARGE`] or less is charged by the wall clock. What took longer is
//! charged by the thread's clock, since the last time that anybody on this thread read it, which is [`MAX_READING_AGE`] before it began at
//! most; so nobody is charged for what the system gave to others meanwhile, and for no more than that of what other tasks used.

use std::{
    cell::Cell,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

/// Charged by the wall clock.
const MAX_WALL_CLOCK_CHARGE: u64 = Duration::from_micros(100).as_nanos() as u64;
/// How long a reading of the thread's clock is good enough to begin with.
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

/// A beginning, kept where other threads can see it; used by one at a time.
#[derive(Debug, Default)]
pub(super) struct CpuClock {
    wall: AtomicU64,
    cpu: AtomicU64,
}

impl CpuClock {
    /// Begins, on this thread.
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

    /// Nanoseconds used since the beginning, on the thread of the beginning.
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
    // From 1, so that no reading is as old as none.
    START.elapsed().as_nanos() as u64 + MAX_READING_AGE + 1
}

fn read(wall: u64) -> u64 {
    let cpu = thread_nanos();
    READ.set(ClockReading { wall, cpu });
    cpu
}

/// Processor time of this thread. 0 where the system has no such clock: then only the wall clock limits a call.
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
    fn what_is_used_is_charged_and_what_is_waited_is_not() {
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
    fn what_others_used_on_the_thread_before_is_hardly_charged() {
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
