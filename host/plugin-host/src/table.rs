//! The table of plugins: immutable, and replaced as a whole.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::mpsc;

use crate::{
    engine::worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    health::HealthEvent,
    metrics::{Counts, Metrics},
    pool::{ComponentInfo, Runtime},
    shadow::{ActiveVersion, Comparable, Shadow, ShadowStats},
    sources::Sources,
    status::{Shadow as ShadowStatus, Source, State, Status},
    version_context::VersionContext,
    version_stats::{Times, VersionStats},
};

/// A version of any world.
#[derive(Clone)]
pub(crate) enum Serving {
    Probe(ActiveVersion<Probe>),
    Matcher(ActiveVersion<Matcher>),
    Filter(ActiveVersion<Filter>),
    Bootstrap(ActiveVersion<Bootstrap>),
}

/// A disabled plugin.
#[derive(Debug)]
pub(crate) struct Disabled {
    pub(crate) info: ComponentInfo,
    pub(crate) reason: String,
    /// Of the version that failed.
    pub(crate) context: Arc<VersionContext>,
}

/// Serving, disabled and refused plugins by name. A plugin is serving or disabled, and its current
/// files may be refused in addition.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) serving: BTreeMap<String, Serving>,
    pub(crate) disabled: BTreeMap<String, Arc<Disabled>>,
    pub(crate) refusals: BTreeMap<String, String>,
    /// When the admission of the files began or was queued: seconds since 1970.
    pub(crate) admitting: BTreeMap<String, u64>,
}

impl Serving {
    pub(crate) fn parts(&self) -> (&Arc<VersionContext>, &ComponentInfo) {
        fn of<W: Comparable>(active: &ActiveVersion<W>) -> (&Arc<VersionContext>, &ComponentInfo) {
            (&active.primary.context, &active.primary.info)
        }
        match self {
            Serving::Probe(it) => of(it),
            Serving::Matcher(it) => of(it),
            Serving::Filter(it) => of(it),
            Serving::Bootstrap(it) => of(it),
        }
    }

    pub(crate) fn info(&self) -> &ComponentInfo {
        self.parts().1
    }

    /// The same with a shadow version; none if that is of another world.
    pub(crate) fn with_shadow(
        &self,
        new: &Serving,
        runtime: &Runtime,
        stats: &Arc<ShadowStats>,
        health_events: &mpsc::Sender<HealthEvent>,
    ) -> Option<Serving> {
        let active = ShadowBuilder {
            runtime,
            stats,
            health_events,
        };
        Some(match (self, new) {
            (Serving::Probe(old), Serving::Probe(new)) => Serving::Probe(active.of(old, new)),
            (Serving::Matcher(old), Serving::Matcher(new)) => Serving::Matcher(active.of(old, new)),
            (Serving::Filter(old), Serving::Filter(new)) => Serving::Filter(active.of(old, new)),
            (Serving::Bootstrap(old), Serving::Bootstrap(new)) => Serving::Bootstrap(active.of(old, new)),
            _ => return None,
        })
    }

    fn shadow(&self) -> Option<ShadowStatus> {
        fn of<W: Comparable>(active: &ActiveVersion<W>) -> Option<ShadowStatus> {
            let shadow = active.shadow.as_ref()?;
            let stats = &shadow.stats;
            Some(ShadowStatus {
                version: shadow.version.info.version.clone(),
                digest: shadow.version.info.digest.clone(),
                since: stats.since,
                auto: stats.auto,
                compared: stats.compared.load(Relaxed),
                differences: stats.differences.load(Relaxed),
                failures: stats.failures.load(Relaxed),
                dropped: stats.dropped.load(Relaxed),
                samples: stats.shown(),
            })
        }
        match self {
            Serving::Probe(it) => of(it),
            Serving::Matcher(it) => of(it),
            Serving::Filter(it) => of(it),
            Serving::Bootstrap(it) => of(it),
        }
    }
}

struct ShadowBuilder<'a> {
    runtime: &'a Runtime,
    stats: &'a Arc<ShadowStats>,
    health_events: &'a mpsc::Sender<HealthEvent>,
}

impl ShadowBuilder<'_> {
    fn of<W: Comparable>(&self, old: &ActiveVersion<W>, new: &ActiveVersion<W>) -> ActiveVersion<W> {
        let new = Arc::clone(&new.primary);
        let shadow = Shadow::start(
            self.runtime,
            new,
            Arc::clone(self.stats),
            self.health_events.clone(),
        );
        ActiveVersion {
            primary: Arc::clone(&old.primary),
            shadow: Some(Arc::new(shadow)),
        }
    }
}

impl Table {
    pub(crate) fn status(&self, metrics: &Metrics, sources: &Sources) -> Vec<Status> {
        let fetched = sources.names();
        let mut names: Vec<&String> = self
            .serving
            .keys()
            .chain(self.disabled.keys())
            .chain(self.refusals.keys())
            .chain(self.admitting.keys())
            .chain(&fetched)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .map(|name| self.status_of(name, metrics, sources.status(name)))
            .collect()
    }

    fn status_of(&self, name: &str, metrics: &Metrics, source: Option<Source>) -> Status {
        let disabled = self.disabled.get(name);
        let version = self.serving.get(name).map(Serving::parts);
        let version = version.or_else(|| disabled.map(|it| (&it.context, &it.info)));
        let info = version.map(|(_, info)| info);
        let context = version.map(|(context, _)| context);
        let stats = context.map(|it| &it.stats);
        let totals = metrics.totals(name);
        let counts = context.map(|it| it.metrics.counts());
        let count = |it: &AtomicU64| it.load(Relaxed);
        let counted = |of: fn(&Counts) -> &AtomicU64| counts.map_or(0, |it| of(it).load(Relaxed));
        let gauge = |it: &AtomicI64| u64::try_from(it.load(Relaxed)).unwrap_or(0);
        let quantile = |of: fn(&VersionStats) -> &Times, per_mille| {
            let time = of(stats?).at(per_mille)?;
            u64::try_from(time.as_micros()).ok()
        };
        Status {
            name: name.to_owned(),
            world: info.map(|it| it.world.short().to_owned()),
            version: info.map(|it| it.version.clone()),
            summary: info.map(|it| it.summary.clone()),
            digest: info.map(|it| it.digest.clone()),
            admitted_at: info.map(|it| it.admitted_at),
            state: match (version.is_some(), disabled.is_some()) {
                (_, true) => State::Disabled,
                (true, false) => State::Serving,
                (false, false) if self.admitting.contains_key(name) => State::Admitting,
                (false, false) if source.is_some() && !self.refusals.contains_key(name) => State::Fetching,
                (false, false) => State::Refused,
            },
            admitting: self.admitting.get(name).copied(),
            refusal: self.refusals.get(name).cloned(),
            disabled_reason: disabled.map(|it| it.reason.clone()),
            probation: context
                .filter(|_| disabled.is_none())
                .and_then(|it| it.health.probation_left())
                .map(|left| left.as_secs()),
            in_flight: gauge(&totals.in_flight),
            in_flight_now: context.map_or(0, |it| it.in_flight()),
            instances: gauge(&totals.instances),
            calls: counted(|it| &it.calls),
            traps: counted(|it| &it.traps),
            timeouts: counted(|it| &it.timeouts),
            denials: counted(|it| &it.denials),
            log_drops: counted(|it| &it.log_drops),
            p50_micros: quantile(|it| &it.latency, 500),
            p99_micros: quantile(|it| &it.latency, 990),
            queue: stats.map_or(0, |it| count(&it.queue)),
            queue_p99_micros: quantile(|it| &it.wait, 990),
            cpu_millis: stats.map_or(0, |it| u64::try_from(it.cpu().as_millis()).unwrap_or(u64::MAX)),
            cpu_p99_micros: quantile(|it| &it.cpu_of_call, 990),
            memory_peak: stats.map_or(0, |it| count(&it.memory)),
            last_trap: stats.and_then(VersionStats::last_trap),
            shadow: self.serving.get(name).and_then(Serving::shadow),
            source,
            signed_by: info.and_then(|it| it.provenance.signed_by.clone()),
        }
    }
}
