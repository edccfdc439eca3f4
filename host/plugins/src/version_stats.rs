//! What is measured of one version, for an operator's table: how long its calls take and wait, what they use of the processor, how much
//! memory an instance came to, and its last fault.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{latency_histogram::LatencyHistogram, status::Trap};

/// Near enough for a table.
pub(crate) type Times = LatencyHistogram<4>;

#[derive(Debug, Default)]
pub(crate) struct VersionStats {
    /// Bytes of linear memory that the largest of its instances came to.
    pub(crate) memory: AtomicU64,
    /// Calls that wait for an instance.
    pub(crate) queue: AtomicU64,
    /// Nanoseconds of processor time that its guests used, starting them included.
    cpu: AtomicU64,
    /// Of a call in its instance.
    pub(crate) latency: Times,
    /// Until a call had an instance.
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
