//! Discovery and a scheduler of a given size. Their master runs in the same process and stores
//! nothing: it streams recorded messages and inserts other names while it writes them. The memory
//! of the process is therefore that of the service; its processor time includes the master's.

mod discovery;
mod master;
mod recorded;
mod scheduler;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_testkit::usage;

pub(crate) use discovery::measure as discovery;
pub(crate) use scheduler::measure as scheduler;

/// Timeout of every condition.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(10);

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) agents: u32,
    pub(crate) tasks: u32,
    /// Number of single updates; also a hundredth of the number of lookups of each kind.
    pub(crate) updates: u32,
    /// Number of batches of `batch` updates.
    pub(crate) batches: u32,
    pub(crate) batch: u32,
    /// How long tasks begin and end without a pause.
    pub(crate) sustained: Duration,
    /// Interval in which memory must not fall, to count as settled.
    pub(crate) settling: Duration,
}

/// Quantiles in milliseconds.
pub(crate) fn quantiles(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |of_hundred: usize| {
        let time = times.get((times.len() - 1) * of_hundred / 100);
        time.map(|time| milliseconds(*time))
    };
    json!({"count": times.len(), "p50": at(50), "p99": at(99), "max": at(100)})
}

/// Milliseconds, rounded to a tenth of a microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 1e4
}

/// The ratio of two quantiles.
pub(crate) fn ratio(one: &Value, other: &Value, quantile: &str) -> Option<f64> {
    let (one, other) = (one[quantile].as_f64()?, other[quantile].as_f64()?);
    Some((one / other * 100.0).round() / 100.0)
}

/// Wall-clock and processor time since a beginning.
pub(crate) struct Span {
    begun: Instant,
    used: Duration,
}

impl Span {
    pub(crate) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            used: usage::own_cpu(std::process::id()),
        }
    }

    pub(crate) fn end(&self) -> Value {
        let used = usage::own_cpu(std::process::id()).saturating_sub(self.used);
        json!({"s": self.begun.elapsed().as_secs_f64(), "cpu_s": used.as_secs_f64()})
    }
}

/// The resident memory of this process once it has stopped falling: the allocator returns freed
/// pages some seconds later.
pub(crate) async fn settled_kib(sizes: &Sizes) -> u64 {
    let mut last = usage::resident_kib(std::process::id());
    loop {
        tokio::time::sleep(sizes.settling).await;
        let now = usage::resident_kib(std::process::id());
        if now + 4096 >= last {
            return now;
        }
        last = now;
    }
}

/// The peak of this process's resident memory.
pub(crate) fn peak_mib() -> u64 {
    usage::peak_kib(std::process::id()) / 1024
}

/// `before` and `after` are in KiB; the difference is divided by the number of tasks.
pub(crate) fn memory(before: u64, after: u64, tasks: u32) -> Value {
    json!({
        "before_mib": before / 1024,
        "after_mib": after / 1024,
        "bytes_per_task": after.saturating_sub(before) * 1024 / u64::from(tasks),
    })
}
