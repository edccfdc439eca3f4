//! Counters of one version of a plugin, and gauges over all of its versions.
//!
//! The series of a version are labelled with the plugin's name, the component's version and the
//! start of its digest. They are removed when the last version with that label is dropped, so that
//! a thousand swaps do not leave a thousand series. The values in an operator's table count from
//! the activation of a version; the gauges (calls in progress, instances) cover all versions.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::{error::CallError, fault::Fault};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Answered,
    /// Answered with an error of its world's: a query that it refuses, a look that found nothing
    /// out.
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    plugin: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    plugin: String,
    version: String,
    outcome: &'static str,
}

type Histograms = Family<Label, Histogram, fn() -> Histogram>;
type Seconds = Counter<f64, AtomicU64>;

/// The families, as registered.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    calls: Family<CallLabel, Counter>,
    duration: Histograms,
    wait: Histograms,
    cpu: Family<Label, Seconds>,
    memory: Family<Label, Gauge>,
    instances: Family<Label, Gauge>,
    in_flight: Family<Label, Gauge>,
    queue: Family<Label, Gauge>,
    denials: Family<Label, Counter>,
    log_drops: Family<Label, Counter>,
    /// How many hold the series of a label.
    users: Arc<Mutex<HashMap<Label, usize>>>,
}

/// One version's own.
#[derive(Debug)]
struct VersionSeries {
    calls: [Counter; CallOutcome::ALL.len()],
    duration: Histogram,
    wait: Histogram,
    cpu: Seconds,
    memory: Gauge,
    instances: Gauge,
    in_flight: Gauge,
    queue: Gauge,
    denials: Counter,
    log_drops: Counter,
}

/// What one version did since it began to serve.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicU64,
    pub(crate) traps: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) denials: AtomicU64,
    pub(crate) log_drops: AtomicU64,
}

/// Gauges over all versions of a plugin.
#[derive(Debug, Default)]
pub(crate) struct PluginTotals {
    pub(crate) instances: AtomicI64,
    pub(crate) in_flight: AtomicI64,
}

/// Where one version's doings are counted. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct VersionMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    totals: Arc<PluginTotals>,
    counts: Counts,
    series: VersionSeries,
    /// None: the series are shown nowhere.
    shown: Option<(Versions, Label)>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((versions, label)) = self.shown.take() {
            versions.release(&label);
        }
    }
}

fn histogram() -> Histogram {
    // 10 us to 10 s.
    Histogram::new(exponential_buckets(0.000_01, 4.0, 11))
}

impl Versions {
    pub(super) fn register(registry: &mut Registry) -> Versions {
        let it = Versions {
            calls: Family::default(),
            duration: Family::new_with_constructor(histogram),
            wait: Family::new_with_constructor(histogram),
            cpu: Family::default(),
            memory: Family::default(),
            instances: Family::default(),
            in_flight: Family::default(),
            queue: Family::default(),
            denials: Family::default(),
            log_drops: Family::default(),
            users: Arc::default(),
        };
        registry.register(
            "calls",
            "Calls by outcome: ok, error (returned by the component), trap (or an invalid result), timeout, busy, disabled",
            it.calls.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "Duration of a call in its instance, without the wait for the instance",
            Unit::Seconds,
            it.duration.clone(),
        );
        registry.register_with_unit(
            "queue_wait",
            "Wait of a call for an instance, its creation included",
            Unit::Seconds,
            it.wait.clone(),
        );
        registry.register_with_unit(
            "cpu",
            "Processor time used by guests, their start included",
            Unit::Seconds,
            it.cpu.clone(),
        );
        registry.register_with_unit(
            "memory_peak",
            "Peak linear memory of the largest instance",
            Unit::Bytes,
            it.memory.clone(),
        );
        registry.register("instances", "Live instances", it.instances.clone());
        registry.register(
            "in_flight",
            "Calls and attempts in progress",
            it.in_flight.clone(),
        );
        registry.register("queue", "Calls waiting for an instance", it.queue.clone());
        registry.register(
            "denials",
            "Denied destinations, commands and WASI calls",
            it.denials.clone(),
        );
        registry.register(
            "log_drops",
            "Log lines dropped over the limit",
            it.log_drops.clone(),
        );
        it
    }

    /// The series of a version, for as long as they are held.
    pub(super) fn of(&self, plugin: &str, version: &str, totals: &Arc<PluginTotals>) -> VersionMetrics {
        let label = Label {
            plugin: plugin.to_owned(),
            version: version.to_owned(),
        };
        // Under the lock, so that they are not removed concurrently.
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        *users.entry(label.clone()).or_default() += 1;
        let calls = CallOutcome::ALL.map(|it| self.calls.get_or_create_owned(&label.calls(it)));
        let series = VersionSeries {
            calls,
            duration: self.duration.get_or_create_owned(&label),
            wait: self.wait.get_or_create_owned(&label),
            cpu: self.cpu.get_or_create_owned(&label),
            memory: self.memory.get_or_create_owned(&label),
            instances: self.instances.get_or_create_owned(&label),
            in_flight: self.in_flight.get_or_create_owned(&label),
            queue: self.queue.get_or_create_owned(&label),
            denials: self.denials.get_or_create_owned(&label),
            log_drops: self.log_drops.get_or_create_owned(&label),
        };
        drop(users);
        VersionMetrics(Arc::new(Inner {
            totals: Arc::clone(totals),
            counts: Counts::default(),
            series,
            shown: Some((self.clone(), label)),
        }))
    }

    fn release(&self, label: &Label) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = users.get_mut(label) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        users.remove(label);
        for ending in CallOutcome::ALL {
            self.calls.remove(&label.calls(ending));
        }
        for histograms in [&self.duration, &self.wait] {
            histograms.remove(label);
        }
        self.cpu.remove(label);
        for gauges in [&self.memory, &self.instances, &self.in_flight, &self.queue] {
            gauges.remove(label);
        }
        for counters in [&self.denials, &self.log_drops] {
            counters.remove(label);
        }
    }
}

impl Label {
    fn calls(&self, ending: CallOutcome) -> CallLabel {
        CallLabel {
            plugin: self.plugin.clone(),
            version: self.version.clone(),
            outcome: ending.name(),
        }
    }
}

impl VersionSeries {
    fn unseen() -> VersionSeries {
        VersionSeries {
            calls: Default::default(),
            duration: histogram(),
            wait: histogram(),
            cpu: Counter::default(),
            memory: Gauge::default(),
            instances: Gauge::default(),
            in_flight: Gauge::default(),
            queue: Gauge::default(),
            denials: Counter::default(),
            log_drops: Counter::default(),
        }
    }
}

impl VersionMetrics {
    /// Seen in `totals` alone: a trial instance is of no version yet.
    pub(super) fn of_none(totals: &Arc<PluginTotals>) -> VersionMetrics {
        VersionMetrics(Arc::new(Inner {
            totals: Arc::clone(totals),
            counts: Counts::default(),
            series: VersionSeries::unseen(),
            shown: None,
        }))
    }

    /// For a version whose calls are not to count as the plugin's: shown nowhere.
    pub(crate) fn unseen() -> VersionMetrics {
        VersionMetrics::of_none(&Arc::default())
    }

    /// What this version did since it began to serve.
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    fn series(&self) -> &VersionSeries {
        &self.0.series
    }

    pub(crate) fn called(&self, ending: CallOutcome) {
        self.series().calls[ending as usize].inc();
        let counts = &self.0.counts;
        match ending {
            CallOutcome::Busy | CallOutcome::Disabled => return,
            CallOutcome::Trapped => counts.traps.fetch_add(1, Relaxed),
            CallOutcome::TimedOut => counts.timeouts.fetch_add(1, Relaxed),
            CallOutcome::Answered | CallOutcome::Refused => 0,
        };
        counts.calls.fetch_add(1, Relaxed);
    }

    /// An attempt was ended whose calls were all answered, and which is therefore no call of its
    /// own in the series.
    pub(crate) fn unfinished(&self) {
        self.0.counts.timeouts.fetch_add(1, Relaxed);
    }

    pub(crate) fn took(&self, time: Duration) {
        self.series().duration.observe(time.as_secs_f64());
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.series().wait.observe(time.as_secs_f64());
    }

    pub(crate) fn used(&self, cpu: Duration) {
        self.series().cpu.inc_by(cpu.as_secs_f64());
    }

    /// Updates the peak memory of an instance.
    pub(crate) fn came_to(&self, memory: u64) {
        let memory = i64::try_from(memory).unwrap_or(i64::MAX);
        self.series().memory.inner().fetch_max(memory, Relaxed);
    }

    pub(crate) fn denied(&self) {
        self.series().denials.inc();
        self.0.counts.denials.fetch_add(1, Relaxed);
    }

    pub(crate) fn log_dropped(&self) {
        self.series().log_drops.inc();
        self.0.counts.log_drops.fetch_add(1, Relaxed);
    }

    /// Counts an instance until it is dropped.
    pub(crate) fn instance(&self) -> GaugeGuard {
        self.present(|it| &it.instances, Some(|it| &it.instances))
    }

    /// A call or attempt in progress.
    pub(crate) fn in_flight(&self) -> GaugeGuard {
        self.present(|it| &it.in_flight, Some(|it| &it.in_flight))
    }

    /// A call that waits for an instance.
    pub(crate) fn queued(&self) -> GaugeGuard {
        self.present(|it| &it.queue, None)
    }

    fn present(
        &self,
        gauge: fn(&VersionSeries) -> &Gauge,
        total: Option<fn(&PluginTotals) -> &AtomicI64>,
    ) -> GaugeGuard {
        let it = GaugeGuard {
            metrics: self.clone(),
            gauge,
            total,
        };
        it.add(1);
        it
    }
}

/// Counts something in a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard {
    metrics: VersionMetrics,
    gauge: fn(&VersionSeries) -> &Gauge,
    total: Option<fn(&PluginTotals) -> &AtomicI64>,
}

impl GaugeGuard {
    fn add(&self, count: i64) {
        (self.gauge)(self.metrics.series()).inc_by(count);
        if let Some(total) = self.total {
            total(&self.metrics.0.totals).fetch_add(count, Relaxed);
        }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.add(-1);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn shown(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn every_ending_is_counted_under_its_name() {
        let mut registry = Registry::default();
        let versions = Versions::register(&mut registry);
        let totals = Arc::default();
        let metrics = versions.of("p", "1.0+ab", &totals);
        for ending in CallOutcome::ALL {
            metrics.called(ending);
        }
        let text = shown(&registry);
        for outcome in ["ok", "error", "trap", "timeout", "busy", "disabled"] {
            let line = format!("calls_total{{plugin=\"p\",version=\"1.0+ab\",outcome=\"{outcome}\"}} 1\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        let of = |it: &AtomicU64| it.load(Relaxed);
        let counts = metrics.counts();
        let counted = (of(&counts.calls), of(&counts.traps), of(&counts.timeouts));
        assert_eq!(
            counted,
            (4, 1, 1),
            "what was not asked is no call of the plugin's"
        );
    }

    #[test]
    fn a_thousand_swaps_leave_the_series_of_one_version() {
        let mut registry = Registry::default();
        let versions = Versions::register(&mut registry);
        let totals: Arc<PluginTotals> = Arc::default();
        let mut serving = versions.of("p", "0+0", &totals);
        let lines = shown(&registry).lines().count();
        for n in 1..=1000 {
            let next = versions.of("p", &format!("{n}+{n:08x}"), &totals);
            next.called(CallOutcome::Answered);
            next.took(Duration::from_millis(1));
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
        assert_eq!(
            serving.counts().calls.load(Relaxed),
            1,
            "those before it had counts of their own"
        );
        drop(serving);
        assert!(!shown(&registry).contains("plugin=\"p\""));
    }

    #[test]
    fn versions_under_one_label_share_its_series() {
        let mut registry = Registry::default();
        let versions = Versions::register(&mut registry);
        let totals: Arc<PluginTotals> = Arc::default();
        let one = versions.of("p", "1", &totals);
        one.called(CallOutcome::Answered);
        // The same component with another manifest.
        let other = versions.of("p", "1", &totals);
        let leaving = (one.in_flight(), one);
        other.called(CallOutcome::Answered);
        let line = |value| format!("calls_total{{plugin=\"p\",version=\"1\",outcome=\"ok\"}} {value}\n");
        assert!(shown(&registry).contains(&line(2)));
        drop(leaving);
        other.called(CallOutcome::Answered);
        assert!(shown(&registry).contains(&line(3)), "{}", shown(&registry));
        assert_eq!(totals.in_flight.load(Relaxed), 0);
    }
}
