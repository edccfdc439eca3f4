//! Measurements of one version of a plugin, each made once: the metrics and an operator's table are
//! both derived from them.
//!
//! The series of a version are labelled with the plugin's name and a version label, see
//! `ComponentInfo::label`. They are shown from the activation of the version until the last version
//! with that label is dropped, so that a thousand swaps do not leave a thousand series. What an
//! operator's table shows is of one version since its activation, except for the calls in progress
//! and the instances, which are of all versions.

use std::{
    collections::BTreeMap,
    fmt::Error as FmtError,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};

use super::{
    latency_histogram::{Buckets, LatencyHistogram},
    status::Trap,
};
use crate::{error::CallError, runtime::fault::Fault};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Answered,
    /// Answered with an error of its world's: a query that it refuses, a probe without a result.
    Refused,
    /// Trapped, went over its memory, or answered what cannot be used.
    Trapped,
    /// Stopped for its use of wall-clock or processor time.
    TimedOut,
    /// Not executed: no instance was free in time, or too many calls were in progress.
    Busy,
    /// Not executed: the plugin is disabled.
    Disabled,
}

impl CallOutcome {
    const ALL: [CallOutcome; 6] = [
        CallOutcome::Answered,
        CallOutcome::Refused,
        CallOutcome::Trapped,
        CallOutcome::TimedOut,
        CallOutcome::Busy,
        CallOutcome::Disabled,
    ];

    /// As metrics and spans have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CallOutcome::Answered => "ok",
            CallOutcome::Refused => "error",
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

/// Whether a call failed as busy.
pub(crate) fn is_busy<T>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Busy { .. }))
}

/// Precise enough for a table: within 25 %.
pub(crate) type Times = LatencyHistogram<4>;

/// The measurements of one version. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct VersionMetrics(Arc<Measurements>);

#[derive(Debug, Default)]
struct Measurements {
    plugin: String,
    /// Set by the activation.
    label: OnceLock<String>,
    outcomes: [AtomicU64; CallOutcome::ALL.len()],
    /// Attempts that were ended although all of their calls were answered.
    unfinished: AtomicU64,
    /// Duration of a call in its instance.
    duration: Times,
    /// Wait of a call for an instance.
    wait: Times,
    /// Processor time of a call.
    cpu_of_call: Times,
    /// Processor time of the guests, their start included: nanoseconds.
    cpu: AtomicU64,
    /// Peak linear memory of the largest instance: bytes.
    memory: AtomicU64,
    instances: AtomicI64,
    in_flight: AtomicI64,
    queue: AtomicI64,
    denials: AtomicU64,
    log_drops: AtomicU64,
    last_fault: Mutex<Option<Trap>>,
    /// Where they are shown; none: nowhere.
    shown_in: Option<Versions>,
}

/// The measurements of all versions, for the metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<BTreeMap<String, PluginVersions>>>);

#[derive(Debug, Default)]
struct PluginVersions {
    /// Also of trial instances, which have no label.
    live: Vec<Weak<Measurements>>,
    labels: BTreeMap<String, Label>,
}

/// The versions with one label: the same component with several manifests, or activated again.
#[derive(Debug, Default)]
struct Label {
    live: usize,
    /// The counters of versions that were dropped; a series never decreases.
    dropped: Totals,
}

/// The series of one label.
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
    fn add(&mut self, it: &Measurements) {
        for (total, count) in self.outcomes.iter_mut().zip(&it.outcomes) {
            *total += count.load(Relaxed);
        }
        self.duration.add(&it.duration.buckets());
        self.wait.add(&it.wait.buckets());
        self.cpu += it.cpu.load(Relaxed);
        self.memory = self.memory.max(it.memory.load(Relaxed));
        self.instances += it.instances.load(Relaxed);
        self.in_flight += it.in_flight.load(Relaxed);
        self.queue += it.queue.load(Relaxed);
        self.denials += it.denials.load(Relaxed);
        self.log_drops += it.log_drops.load(Relaxed);
    }
}

impl Versions {
    /// The measurements of a trial instance, and then of the version that it becomes.
    pub(super) fn trial(&self, plugin: &str) -> VersionMetrics {
        let mut measurements = Measurements::default();
        plugin.clone_into(&mut measurements.plugin);
        measurements.shown_in = Some(self.clone());
        let measurements = Arc::new(measurements);
        let mut plugins = self.plugins();
        let versions = plugins.entry(plugin.to_owned()).or_default();
        versions.live.push(Arc::downgrade(&measurements));
        VersionMetrics(measurements)
    }

    /// Calls in progress and instances over all versions of a plugin.
    pub(super) fn present(&self, plugin: &str) -> (u64, u64) {
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

    fn dropped(&self, it: &Measurements) {
        let mut plugins = self.plugins();
        let Some(versions) = plugins.get_mut(&it.plugin) else {
            return;
        };
        versions.live.retain(|other| !std::ptr::eq(other.as_ptr(), it));
        if let Some(label) = it.label.get()
            && let Some(entry) = versions.labels.get_mut(label)
        {
            entry.live -= 1;
            entry.dropped.add(it);
            if entry.live == 0 {
                versions.labels.remove(label);
            }
        }
        if versions.live.is_empty() {
            plugins.remove(&it.plugin);
        }
    }

    /// The series of each version that is shown.
    fn series(&self) -> Vec<(VersionLabels, Totals)> {
        let (mut live, mut series) = (Vec::new(), BTreeMap::new());
        for (plugin, versions) in self.plugins().iter() {
            live.extend(versions.live());
            for (label, entry) in &versions.labels {
                series.insert((plugin.clone(), label.clone()), entry.dropped.clone());
            }
        }
        // Not under the lock: dropping the last reference takes it.
        for it in live {
            if let Some(label) = it.label.get()
                && let Some(totals) = series.get_mut(&(it.plugin.clone(), label.clone()))
            {
                totals.add(&it);
            }
        }
        let labelled = series.into_iter();
        labelled
            .map(|((plugin, version), totals)| (VersionLabels { plugin, version }, totals))
            .collect()
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
        if let Some(versions) = self.shown_in.take() {
            versions.dropped(self);
        }
    }
}

impl VersionMetrics {
    /// For a version whose calls are not to count as the plugin's: shown nowhere.
    pub(crate) fn unseen() -> VersionMetrics {
        VersionMetrics(Arc::default())
    }

    /// Shows the series under this version label, from now on; once.
    pub(crate) fn show(&self, label: &str) {
        if let Some(versions) = &self.0.shown_in
            && self.0.label.set(label.to_owned()).is_ok()
        {
            let mut plugins = versions.plugins();
            let plugin = plugins.entry(self.0.plugin.clone()).or_default();
            plugin.labels.entry(label.to_owned()).or_default().live += 1;
        }
    }

    pub(crate) fn called(&self, outcome: CallOutcome) {
        self.0.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// An attempt was ended whose calls were all answered, and which is therefore no call of its
    /// own in the series.
    pub(crate) fn unfinished(&self) {
        self.0.unfinished.fetch_add(1, Relaxed);
    }

    /// A call took so long in its instance, and used so much processor time.
    pub(crate) fn took(&self, time: Duration, cpu: Duration) {
        self.0.duration.add(time);
        self.0.cpu_of_call.add(cpu);
    }

    /// A call waited so long for an instance.
    pub(crate) fn waited(&self, time: Duration) {
        self.0.wait.add(time);
    }

    /// Guests used so much processor time.
    pub(crate) fn used(&self, cpu: Duration) {
        let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.0.cpu.fetch_add(nanos, Relaxed);
    }

    /// Updates the peak memory of an instance.
    pub(crate) fn came_to(&self, memory: u64) {
        self.0.memory.fetch_max(memory, Relaxed);
    }

    pub(crate) fn denied(&self) {
        self.0.denials.fetch_add(1, Relaxed);
    }

    pub(crate) fn log_dropped(&self) {
        self.0.log_drops.fetch_add(1, Relaxed);
    }

    pub(crate) fn faulted(&self, trap: Trap) {
        *self.last_fault_lock() = Some(trap);
    }

    /// Counts an instance until it is dropped.
    pub(crate) fn instance(&self) -> GaugeGuard {
        GaugeGuard::new(self, |it| &it.instances)
    }

    /// A call or attempt in progress.
    pub(crate) fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(self, |it| &it.in_flight)
    }

    /// A call that waits for an instance.
    pub(crate) fn queued(&self) -> GaugeGuard {
        GaugeGuard::new(self, |it| &it.queue)
    }

    /// Calls since the activation, except for those that were not executed.
    pub(crate) fn calls(&self) -> u64 {
        let executed = [
            CallOutcome::Answered,
            CallOutcome::Refused,
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

    /// Bytes.
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

/// Counts something in a gauge until it is dropped.
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    plugin: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    plugin: String,
    version: String,
    outcome: &'static str,
}

impl Collector for Versions {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), FmtError> {
        let series = self.series();
        if series.is_empty() {
            return Ok(());
        }
        let mut encoder = SeriesEncoder { encoder, series };
        encoder.calls()?;
        encoder.histogram(
            "call_duration",
            "Duration of a call in its instance, without the wait for the instance.",
            |it| &it.duration,
        )?;
        encoder.histogram(
            "queue_wait",
            "Wait of a call for an instance, its creation included.",
            |it| &it.wait,
        )?;
        encoder.family(
            "cpu",
            "Processor time used by guests, their start included.",
            Some(&Unit::Seconds),
            MetricType::Counter,
            |it, encoder| {
                let seconds = Duration::from_nanos(it.cpu).as_secs_f64();
                encoder.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
            },
        )?;
        let memory = |it: &Totals| i64::try_from(it.memory).unwrap_or(i64::MAX);
        encoder.family(
            "memory_peak",
            "Peak linear memory of the largest instance.",
            Some(&Unit::Bytes),
            MetricType::Gauge,
            |it, encoder| encoder.encode_gauge(&memory(it)),
        )?;
        encoder.gauge("instances", "Live instances.", |it| it.instances)?;
        encoder.gauge("in_flight", "Calls and attempts in progress.", |it| it.in_flight)?;
        encoder.gauge("queue", "Calls waiting for an instance.", |it| it.queue)?;
        encoder.counter("denials", "Denied destinations, commands and WASI calls.", |it| {
            it.denials
        })?;
        encoder.counter("log_drops", "Log lines dropped over the limit.", |it| {
            it.log_drops
        })
    }
}

struct SeriesEncoder<'a> {
    encoder: DescriptorEncoder<'a>,
    series: Vec<(VersionLabels, Totals)>,
}

impl SeriesEncoder<'_> {
    fn calls(&mut self) -> Result<(), FmtError> {
        let help = "Calls by outcome: ok, error (returned by the component), trap (or an invalid result), timeout, busy, disabled.";
        let mut family = self
            .encoder
            .encode_descriptor("calls", help, None, MetricType::Counter)?;
        for (labels, totals) in &self.series {
            for outcome in CallOutcome::ALL {
                let labels = CallLabels {
                    plugin: labels.plugin.clone(),
                    version: labels.version.clone(),
                    outcome: outcome.name(),
                };
                let calls = totals.outcomes[outcome as usize];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&calls, None)?;
            }
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, of: fn(&Totals) -> &Buckets) -> Result<(), FmtError> {
        self.family(
            name,
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
            |it, encoder| {
                let it = of(it);
                encoder.encode_histogram::<NoLabelSet>(it.sum_seconds(), it.count(), &it.seconds(), None)
            },
        )
    }

    fn counter(&mut self, name: &str, help: &str, of: fn(&Totals) -> u64) -> Result<(), FmtError> {
        self.family(name, help, None, MetricType::Counter, |it, encoder| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&of(it), None)
        })
    }

    fn gauge(&mut self, name: &str, help: &str, of: fn(&Totals) -> i64) -> Result<(), FmtError> {
        self.family(name, help, None, MetricType::Gauge, |it, encoder| {
            encoder.encode_gauge(&of(it))
        })
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        encode: impl Fn(&Totals, &mut MetricEncoder<'_>) -> Result<(), FmtError>,
    ) -> Result<(), FmtError> {
        let mut family = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for (labels, totals) in &self.series {
            encode(totals, &mut family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    fn registered() -> (Registry, Versions) {
        let (mut registry, versions) = (Registry::default(), Versions::default());
        registry.register_collector(Box::new(versions.clone()));
        (registry, versions)
    }

    fn version(versions: &Versions, plugin: &str, label: &str) -> VersionMetrics {
        let metrics = versions.trial(plugin);
        metrics.show(label);
        metrics
    }

    fn shown(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn every_ending_is_counted_under_its_name() {
        let (registry, versions) = registered();
        let metrics = version(&versions, "p", "1.0+ab");
        for ending in CallOutcome::ALL {
            metrics.called(ending);
        }
        let text = shown(&registry);
        for outcome in ["ok", "error", "trap", "timeout", "busy", "disabled"] {
            let line = format!("calls_total{{plugin=\"p\",version=\"1.0+ab\",outcome=\"{outcome}\"}} 1\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert_eq!(
            (metrics.calls(), metrics.traps(), metrics.timeouts()),
            (4, 1, 1),
            "what was not asked is no call of the plugin's"
        );
    }

    #[test]
    fn table_and_metrics_show_the_same_measurements() {
        let (registry, versions) = registered();
        let metrics = version(&versions, "p", "1");
        for millis in 1..=100 {
            metrics.took(Duration::from_millis(millis), Duration::from_micros(millis));
        }
        metrics.waited(Duration::from_micros(3));
        metrics.used(Duration::from_millis(250));
        metrics.came_to(1 << 20);
        let text = shown(&registry);
        for line in [
            "call_duration_seconds_count{plugin=\"p\",version=\"1\"} 100\n",
            "call_duration_seconds_sum{plugin=\"p\",version=\"1\"} 5.05\n",
            "call_duration_seconds_bucket{le=\"+Inf\",plugin=\"p\",version=\"1\"} 100\n",
            "call_duration_seconds_bucket{le=\"0.033554432\",plugin=\"p\",version=\"1\"} 33\n",
            "queue_wait_seconds_bucket{le=\"8.192e-6\",plugin=\"p\",version=\"1\"} 1\n",
            "cpu_seconds_total{plugin=\"p\",version=\"1\"} 0.25\n",
            "memory_peak_bytes{plugin=\"p\",version=\"1\"} 1048576\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let p50 = metrics.duration().at(500).unwrap();
        assert!((50..=63).contains(&p50.as_millis()), "{p50:?}");
        assert_eq!(metrics.memory_peak(), 1 << 20);
        assert_eq!(metrics.cpu(), Duration::from_millis(250));
    }

    #[test]
    fn a_thousand_swaps_leave_the_series_of_one_version() {
        let (registry, versions) = registered();
        let mut serving = version(&versions, "p", "0+0");
        let lines = shown(&registry).lines().count();
        for n in 1..=1000 {
            let next = version(&versions, "p", &format!("{n}+{n:08x}"));
            next.called(CallOutcome::Answered);
            next.took(Duration::from_millis(1), Duration::from_millis(1));
            next.waited(Duration::from_millis(1));
            next.used(Duration::from_millis(1));
            next.came_to(1 << 20);
            let present = (next.instance(), next.in_flight(), next.queued());
            next.denied();
            next.log_dropped();
            serving = next;
            drop(present);
        }
        let text = shown(&registry);
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.contains("version=\"1000+000003e8\"") && !text.contains("version=\"999"));
        assert_eq!(serving.calls(), 1, "those before it had counts of their own");
        drop(serving);
        assert!(!shown(&registry).contains("plugin=\"p\""));
        assert!(versions.plugins().is_empty());
    }

    #[test]
    fn versions_under_one_label_share_its_series() {
        let (registry, versions) = registered();
        let one = version(&versions, "p", "1");
        one.called(CallOutcome::Answered);
        // The same component with another manifest.
        let other = version(&versions, "p", "1");
        let leaving = (one.in_flight(), one);
        other.called(CallOutcome::Answered);
        let line = |value| format!("calls_total{{plugin=\"p\",version=\"1\",outcome=\"ok\"}} {value}\n");
        assert!(shown(&registry).contains(&line(2)));
        assert_eq!(versions.present("p"), (1, 0));
        drop(leaving);
        other.called(CallOutcome::Answered);
        assert!(shown(&registry).contains(&line(3)), "{}", shown(&registry));
        assert_eq!(other.calls(), 2, "of this version alone");
        assert_eq!(versions.present("p"), (0, 0));
    }

    #[test]
    fn trial_instance_is_shown_among_the_instances_and_has_no_series() {
        let (registry, versions) = registered();
        let trial = versions.trial("p");
        let instance = trial.instance();
        trial.called(CallOutcome::Answered);
        assert_eq!(versions.present("p"), (0, 1));
        assert!(!shown(&registry).contains("plugin=\"p\""));
        trial.show("1");
        assert!(shown(&registry).contains("instances{plugin=\"p\",version=\"1\"} 1\n"));
        drop((instance, trial));
        assert!(!shown(&registry).contains("plugin=\"p\""));
    }
}
