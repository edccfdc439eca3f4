//! Measurements of one version of a plugin. Each value is measured once; the metrics and an
//! operator's table are both derived from it.
//!
//! The series of a version are labelled with the plugin's name and a version label, see
//! `ComponentInfo::label`. They are shown from the activation of the version until the last version
//! with that label is dropped, so that a thousand swaps do not leave a thousand series. An
//! operator's table shows one version since its activation; only the calls in progress and the
//! instances are summed over all versions.

mod collector;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    latency_histogram::{Buckets, Counts, LatencyHistogram},
    recent_log::RecentLog,
    status::Trap,
};
use crate::{error::CallError, fault::Fault};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Answered,
    /// Answered with an error that the world defines: a rejected query, a probe without a result.
    Rejected,
    /// Trapped, exceeded its memory limit, or returned an invalid answer.
    Trapped,
    /// Stopped because it exceeded its limit of wall-clock or processor time.
    TimedOut,
    /// Not executed: no instance was free in time, or too many calls were in progress.
    Busy,
    /// Not executed: the plugin is disabled.
    Disabled,
}

impl CallOutcome {
    const ALL: &'static [CallOutcome] = &[
        CallOutcome::Answered,
        CallOutcome::Rejected,
        CallOutcome::Trapped,
        CallOutcome::TimedOut,
        CallOutcome::Busy,
        CallOutcome::Disabled,
    ];

    /// The value of the label in metrics and spans.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CallOutcome::Answered => "ok",
            CallOutcome::Rejected => "error",
            CallOutcome::Trapped => "trap",
            CallOutcome::TimedOut => "timeout",
            CallOutcome::Busy => "busy",
            CallOutcome::Disabled => "disabled",
        }
    }
}

impl From<&Fault> for CallOutcome {
    fn from(fault: &Fault) -> CallOutcome {
        match fault {
            Fault::TimedOut(_) | Fault::CpuExhausted(..) => CallOutcome::TimedOut,
            Fault::Trapped(..) | Fault::OutOfMemory(..) | Fault::Malformed(_) => CallOutcome::Trapped,
        }
    }
}

/// Whether a call failed because the plugin was busy.
pub(crate) fn is_busy<T>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Busy { .. }))
}

/// A histogram for tables: within 25 %.
pub(crate) type Times = LatencyHistogram<4>;
/// The counts of [`Times`] at one moment.
pub(crate) type TimeCounts = Counts<4>;

/// The measurements of one version. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct VersionMetrics(Arc<Measurements>);

#[derive(Debug, Default)]
struct Measurements {
    plugin: String,
    /// Set by the activation.
    label: OnceLock<String>,
    outcomes: [AtomicU64; CallOutcome::ALL.len()],
    /// Attempts that the host ended although all of their calls were answered.
    unfinished: AtomicU64,
    /// Duration of a call in its instance, without the wait.
    duration: Times,
    /// Time that a call waited for an instance.
    wait: Times,
    /// Processor time of a call.
    cpu_of_call: Times,
    /// Processor time of the guests in nanoseconds, including their start.
    cpu: AtomicU64,
    /// Peak linear memory in bytes of the largest instance.
    memory: AtomicU64,
    instances: AtomicI64,
    in_flight: AtomicI64,
    queue: AtomicI64,
    denials: AtomicU64,
    log_drops: AtomicU64,
    last_fault: Mutex<Option<Trap>>,
    recent_log: RecentLog,
    /// The metrics that show these measurements. `None`: no metric shows them.
    exported_in: Option<Versions>,
}

/// The measurements of all versions, for the metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<BTreeMap<String, PluginVersions>>>);

#[derive(Debug, Default)]
struct PluginVersions {
    /// All measurements in use, including those of trial instances, which have no label.
    live: Vec<Weak<Measurements>>,
    labels: BTreeMap<String, Label>,
}

/// The versions with one label: one component with several manifests, or activated several times.
#[derive(Debug, Default)]
struct Label {
    live: usize,
    /// The sums of versions that were dropped, because a counter must never decrease.
    dropped: Totals,
}

/// The values of one label's series.
#[derive(Clone, Debug, Default)]
struct Totals {
    outcomes: [u64; CallOutcome::ALL.len()],
    duration: Buckets,
    wait: Buckets,
    cpu: u64,
    memory: u64,
    instances: i64,
    in_flight: i64,
    queue: i64,
    denials: u64,
    log_drops: u64,
}

impl Totals {
    fn add(&mut self, measurements: &Measurements) {
        for (total, count) in self.outcomes.iter_mut().zip(&measurements.outcomes) {
            *total += count.load(Relaxed);
        }
        self.duration.add(&measurements.duration.buckets());
        self.wait.add(&measurements.wait.buckets());
        self.cpu += measurements.cpu.load(Relaxed);
        self.memory = self.memory.max(measurements.memory.load(Relaxed));
        self.instances += measurements.instances.load(Relaxed);
        self.in_flight += measurements.in_flight.load(Relaxed);
        self.queue += measurements.queue.load(Relaxed);
        self.denials += measurements.denials.load(Relaxed);
        self.log_drops += measurements.log_drops.load(Relaxed);
    }
}

impl Versions {
    /// Creates the measurements of a trial instance, and of the version that it becomes.
    pub(super) fn create_version(&self, plugin: &str) -> VersionMetrics {
        let mut measurements = Measurements::default();
        plugin.clone_into(&mut measurements.plugin);
        measurements.exported_in = Some(self.clone());
        let measurements = Arc::new(measurements);
        let mut plugins = self.plugins();
        let versions = plugins.entry(plugin.to_owned()).or_default();
        versions.live.push(Arc::downgrade(&measurements));
        VersionMetrics(measurements)
    }

    /// Sums the calls in progress and the instances over all versions of a plugin.
    pub(super) fn in_flight_and_instances(&self, plugin: &str) -> (u64, u64) {
        let live = match self.plugins().get(plugin) {
            Some(versions) => versions.live(),
            None => Vec::new(),
        };
        let sum = |of: fn(&Measurements) -> &AtomicI64| {
            let sum: i64 = live.iter().map(|it| of(it).load(Relaxed)).sum();
            u64::try_from(sum).unwrap_or(0)
        };
        (sum(|it| &it.in_flight), sum(|it| &it.instances))
    }

    fn fold_dropped(&self, measurements: &Measurements) {
        let mut plugins = self.plugins();
        let Some(versions) = plugins.get_mut(&measurements.plugin) else {
            return;
        };
        versions
            .live
            .retain(|other| !std::ptr::eq(other.as_ptr(), measurements));
        if let Some(label) = measurements.label.get()
            && let Some(entry) = versions.labels.get_mut(label)
        {
            entry.live -= 1;
            entry.dropped.add(measurements);
            if entry.live == 0 {
                versions.labels.remove(label);
            }
        }
        if versions.live.is_empty() {
            plugins.remove(&measurements.plugin);
        }
    }

    /// The series of every version that is shown, by plugin and version label.
    fn series(&self) -> Vec<((String, String), Totals)> {
        let (mut live, mut series) = (Vec::new(), BTreeMap::new());
        for (plugin, versions) in self.plugins().iter() {
            live.extend(versions.live());
            for (label, entry) in &versions.labels {
                series.insert((plugin.clone(), label.clone()), entry.dropped.clone());
            }
        }
        // Outside the lock, because dropping the last reference to a version acquires the lock.
        for measurements in live {
            if let Some(label) = measurements.label.get()
                && let Some(totals) = series.get_mut(&(measurements.plugin.clone(), label.clone()))
            {
                totals.add(&measurements);
            }
        }
        series.into_iter().collect()
    }

    fn plugins(&self) -> MutexGuard<'_, BTreeMap<String, PluginVersions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PluginVersions {
    fn live(&self) -> Vec<Arc<Measurements>> {
        self.live.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Measurements {
    fn drop(&mut self) {
        if let Some(versions) = self.exported_in.take() {
            versions.fold_dropped(self);
        }
    }
}

impl VersionMetrics {
    /// Creates measurements that no metric shows, for calls that do not count as the plugin's.
    pub(crate) fn unexported() -> VersionMetrics {
        VersionMetrics(Arc::default())
    }

    /// The newest lines of its log.
    pub(crate) fn recent_log(&self) -> &RecentLog {
        &self.0.recent_log
    }

    /// Shows the series under this version label from now on. Further calls have no effect.
    pub(crate) fn export_as(&self, label: &str) {
        if let Some(versions) = &self.0.exported_in
            && self.0.label.set(label.to_owned()).is_ok()
        {
            let mut plugins = versions.plugins();
            let plugin = plugins.entry(self.0.plugin.clone()).or_default();
            plugin.labels.entry(label.to_owned()).or_default().live += 1;
        }
    }

    pub(crate) fn count_call(&self, outcome: CallOutcome) {
        self.0.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Counts an attempt that was ended although all of its calls were answered. The series of
    /// calls do not contain it as a failed call.
    pub(crate) fn count_unfinished(&self) {
        self.0.unfinished.fetch_add(1, Relaxed);
    }

    /// Records the duration of a call in its instance and its processor time.
    pub(crate) fn record_duration(&self, time: Duration, cpu: Duration) {
        self.0.duration.add(time);
        self.0.cpu_of_call.add(cpu);
    }

    /// Records the time that a call waited for an instance.
    pub(crate) fn record_wait(&self, time: Duration) {
        self.0.wait.add(time);
    }

    /// Adds processor time of guests.
    pub(crate) fn add_cpu(&self, cpu: Duration) {
        let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.0.cpu.fetch_add(nanos, Relaxed);
    }

    /// Raises the peak linear memory to `memory` bytes, if it is lower.
    pub(crate) fn raise_memory_peak(&self, memory: u64) {
        self.0.memory.fetch_max(memory, Relaxed);
    }

    pub(crate) fn count_denial(&self) {
        self.0.denials.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_log_drop(&self) {
        self.0.log_drops.fetch_add(1, Relaxed);
    }

    pub(crate) fn set_last_fault(&self, trap: Trap) {
        *self.last_fault_lock() = Some(trap);
    }

    /// Counts an instance until it is dropped.
    pub(crate) fn instance(&self) -> GaugeGuard {
        GaugeGuard::new(self, |it| &it.instances)
    }

    /// Counts a call or an attempt in progress until the guard is dropped.
    pub(crate) fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(self, |it| &it.in_flight)
    }

    /// Counts a call that waits for an instance until the guard is dropped.
    pub(crate) fn queued(&self) -> GaugeGuard {
        GaugeGuard::new(self, |it| &it.queue)
    }

    /// Calls since the activation, except for those that were not executed.
    pub(crate) fn calls(&self) -> u64 {
        let executed = [
            CallOutcome::Answered,
            CallOutcome::Rejected,
            CallOutcome::Trapped,
            CallOutcome::TimedOut,
        ];
        executed.into_iter().map(|it| self.count(it)).sum()
    }

    pub(crate) fn traps(&self) -> u64 {
        self.count(CallOutcome::Trapped)
    }

    /// Calls that timed out, and attempts that were not finished.
    pub(crate) fn timeouts(&self) -> u64 {
        self.count(CallOutcome::TimedOut) + self.0.unfinished.load(Relaxed)
    }

    pub(crate) fn denials(&self) -> u64 {
        self.0.denials.load(Relaxed)
    }

    pub(crate) fn log_drops(&self) -> u64 {
        self.0.log_drops.load(Relaxed)
    }

    pub(crate) fn duration(&self) -> &Times {
        &self.0.duration
    }

    pub(crate) fn wait(&self) -> &Times {
        &self.0.wait
    }

    pub(crate) fn cpu_of_call(&self) -> &Times {
        &self.0.cpu_of_call
    }

    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.0.cpu.load(Relaxed))
    }

    /// Peak linear memory in bytes.
    pub(crate) fn memory_peak(&self) -> u64 {
        self.0.memory.load(Relaxed)
    }

    pub(crate) fn queue_length(&self) -> u64 {
        u64::try_from(self.0.queue.load(Relaxed)).unwrap_or(0)
    }

    pub(crate) fn last_fault(&self) -> Option<Trap> {
        self.last_fault_lock().clone()
    }

    fn count(&self, outcome: CallOutcome) -> u64 {
        self.0.outcomes[outcome as usize].load(Relaxed)
    }

    fn last_fault_lock(&self) -> MutexGuard<'_, Option<Trap>> {
        self.0.last_fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts 1 in a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard {
    metrics: VersionMetrics,
    gauge: fn(&Measurements) -> &AtomicI64,
}

impl GaugeGuard {
    fn new(metrics: &VersionMetrics, gauge: fn(&Measurements) -> &AtomicI64) -> GaugeGuard {
        gauge(&metrics.0).fetch_add(1, Relaxed);
        GaugeGuard {
            metrics: metrics.clone(),
            gauge,
        }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics.0).fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
