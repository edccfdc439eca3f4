//! Measurements of one version for an operator's table: duration and wait of its calls, processor
//! time, peak memory, and the last fault.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{latency_histogram::LatencyHistogram, status::Trap};

/// Precise enough for a table.
pub(crate) type Times = LatencyHistogram<4>;

#[derive(Debug, Default)]
pub(crate) struct VersionStats {
    /// Peak linear memory of its largest instance: bytes.
    pub(crate) memory: AtomicU64,
    /// Calls waiting for an instance.
    pub(crate) queue: AtomicU64,
    /// Processor time of its guests, their start included: nanoseconds.
    cpu: AtomicU64,
    /// Duration of a call in its instance.
    pub(crate) latency: Times,
    /// Wait of a call for an instance.
    pub(crate) wait: Times,
    /// Processor time of a call.
    pub(crate) cpu_of_call: Times,
    last: Mutex<Option<Trap>>,
}

impl VersionStats {
    pub(crate) fn used(&self, cpu: Duration) {
        let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.cpu.fetch_add(nanos, Relaxed);
    }

    /// Processor time of all its guests.
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
