//! What an action costs a process: processor time and the peak of its memory.

use std::fs;
use std::time::{Duration, Instant};

use transom_testkit::usage;

/// The cost of an action.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Of all operations together.
    pub(crate) cpu: Duration,
    /// How many equal operations were measured; `cpu_ms` is the cost of one.
    pub(crate) operations: u32,
    pub(crate) elapsed: Duration,
    /// Peak of the resident memory, and what the action added to it.
    pub(crate) peak_kib: u64,
    pub(crate) added_kib: u64,
}

impl Cost {
    /// A time that a client waited, shown as processor time.
    pub(crate) fn waited(time: Duration) -> Cost {
        Cost {
            cpu: time,
            operations: 1,
            elapsed: time,
            ..Cost::default()
        }
    }

    pub(crate) fn cpu_ms(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / f64::from(self.operations.max(1))
    }
}

/// A measurement of a process.
pub(crate) struct Meter {
    pid: u32,
    cpu: Duration,
    begun: Instant,
    resident_kib: u64,
}

impl Meter {
    pub(crate) fn start(pid: u32) -> Meter {
        // Makes the kernel forget the peak so far.
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        Meter {
            pid,
            cpu: usage::cpu(pid),
            begun: Instant::now(),
            resident_kib: usage::resident_kib(pid),
        }
    }

    /// Measures since the process was started.
    pub(crate) fn since_start(pid: u32) -> Meter {
        Meter {
            pid,
            cpu: Duration::ZERO,
            begun: Instant::now(),
            resident_kib: 0,
        }
    }

    /// The cost since the start, of this number of operations.
    pub(crate) fn stop(self, operations: u32) -> Cost {
        let peak_kib = usage::peak_kib(self.pid);
        Cost {
            cpu: usage::cpu(self.pid).saturating_sub(self.cpu),
            operations,
            elapsed: self.begun.elapsed(),
            peak_kib,
            added_kib: peak_kib.saturating_sub(self.resident_kib),
        }
    }
}
