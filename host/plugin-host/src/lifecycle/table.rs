//! The table of plugins: immutable, and replaced as a whole.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::mpsc;
use transom_registry::{SourceStatus, Sources};

use crate::{
    observe::{
        metrics::Metrics,
        recent_log::LogLine,
        status::{Rollout, State, Status},
        version_metrics::{Times, VersionMetrics},
    },
    runtime::{
        active_version::ActiveVersion,
        candidate::{Candidate, CandidateJudged, CandidateStats},
        engine::{
            World,
            worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
        },
        pool::{ComponentInfo, Runtime},
        version_context::VersionContext,
    },
};

/// A version of any world.
#[derive(Clone)]
pub(crate) enum Serving {
    Probe(ActiveVersion<Probe>),
    Matcher(ActiveVersion<Matcher>),
    Filter(ActiveVersion<Filter>),
    Bootstrap(ActiveVersion<Bootstrap>),
}

/// A plugin that is out of service after repeated faults.
#[derive(Debug)]
pub(crate) struct Disabled {
    pub(crate) info: ComponentInfo,
    pub(crate) reason: String,
    /// Context of the version that failed.
    pub(crate) context: Arc<VersionContext>,
}

/// Serving, disabled and rejected plugins by name. A plugin is serving or disabled, and its current
/// files may be rejected in addition.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) serving: BTreeMap<String, Serving>,
    pub(crate) disabled: BTreeMap<String, Arc<Disabled>>,
    pub(crate) rejections: BTreeMap<String, String>,
    /// When the admission of the files began or was queued: seconds since 1970.
    pub(crate) admitting: BTreeMap<String, u64>,
}

impl Serving {
    pub(crate) fn context_and_info(&self) -> (&Arc<VersionContext>, &ComponentInfo) {
        fn of<W: World>(active: &ActiveVersion<W>) -> (&Arc<VersionContext>, &ComponentInfo) {
            (&active.primary().context, &active.primary().info)
        }
        match self {
            Serving::Probe(it) => of(it),
            Serving::Matcher(it) => of(it),
            Serving::Filter(it) => of(it),
            Serving::Bootstrap(it) => of(it),
        }
    }

    pub(crate) fn info(&self) -> &ComponentInfo {
        self.context_and_info().1
    }

    /// Returns the same version with a candidate. `None` if the candidate is of another world.
    pub(crate) fn with_candidate(&self, new: &Serving, setup: &CandidateSetup<'_>) -> Option<Serving> {
        Some(match (self, new) {
            (Serving::Probe(old), Serving::Probe(new)) => Serving::Probe(setup.start(old, new)),
            (Serving::Matcher(old), Serving::Matcher(new)) => Serving::Matcher(setup.start(old, new)),
            (Serving::Filter(old), Serving::Filter(new)) => Serving::Filter(setup.start(old, new)),
            (Serving::Bootstrap(old), Serving::Bootstrap(new)) => Serving::Bootstrap(setup.start(old, new)),
            _ => return None,
        })
    }

    /// Returns the same version without a candidate.
    pub(crate) fn without_candidate(&self) -> Serving {
        match self {
            Serving::Probe(it) => Serving::Probe(it.with_candidate(None)),
            Serving::Matcher(it) => Serving::Matcher(it.with_candidate(None)),
            Serving::Filter(it) => Serving::Filter(it.with_candidate(None)),
            Serving::Bootstrap(it) => Serving::Bootstrap(it.with_candidate(None)),
        }
    }

    fn rollout(&self) -> Option<Rollout> {
        fn of<W: World>(active: &ActiveVersion<W>) -> Option<Rollout> {
            let candidate = active.candidate()?;
            Some(candidate.stats.rollout(&candidate.version.info))
        }
        match self {
            Serving::Probe(it) => of(it),
            Serving::Matcher(it) => of(it),
            Serving::Filter(it) => of(it),
            Serving::Bootstrap(it) => of(it),
        }
    }
}

/// The dependencies of a candidate that runs alongside the serving version.
pub(crate) struct CandidateSetup<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) stats: Arc<CandidateStats>,
    pub(crate) judgements: mpsc::Sender<CandidateJudged>,
}

impl CandidateSetup<'_> {
    fn start<W: World>(&self, old: &ActiveVersion<W>, new: &ActiveVersion<W>) -> ActiveVersion<W> {
        old.with_candidate(Some(Candidate::start(
            self.runtime,
            Arc::clone(new.primary()),
            old.primary(),
            Arc::clone(&self.stats),
            self.judgements.clone(),
        )))
    }
}

impl Table {
    /// Returns the newest log lines of the serving or disabled version, after this number.
    pub(crate) fn log(&self, name: &str, after: u64) -> Option<Vec<LogLine>> {
        let serving = self.serving.get(name).map(|it| it.context_and_info().0);
        let context = serving.or_else(|| self.disabled.get(name).map(|it| &it.context))?;
        Some(context.metrics.recent_log().after(after))
    }

    pub(crate) fn status(&self, metrics: &Metrics, sources: &Sources) -> Vec<Status> {
        let fetched = sources.names();
        let mut names: Vec<&String> = self
            .serving
            .keys()
            .chain(self.disabled.keys())
            .chain(self.rejections.keys())
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

    fn status_of(&self, name: &str, metrics: &Metrics, source: Option<SourceStatus>) -> Status {
        let disabled = self.disabled.get(name);
        let version = self.serving.get(name).map(Serving::context_and_info);
        let version = version.or_else(|| disabled.map(|it| (&it.context, &it.info)));
        let info = version.map(|(_, info)| info);
        let context = version.map(|(context, _)| context);
        let measured = context.map(|it| &it.metrics);
        let number = |of: fn(&VersionMetrics) -> u64| measured.map_or(0, of);
        let quantile = |of: fn(&VersionMetrics) -> &Times, per_mille| {
            let time = of(measured?).at(per_mille)?;
            u64::try_from(time.as_micros()).ok()
        };
        let (in_flight, instances) = metrics.in_flight_and_instances(name);
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
                (false, false) if source.is_some() && !self.rejections.contains_key(name) => State::Fetching,
                (false, false) => State::Rejected,
            },
            admitting: self.admitting.get(name).copied(),
            refusal: self.rejections.get(name).cloned(),
            disabled_reason: disabled.map(|it| it.reason.clone()),
            probation: context
                .filter(|_| disabled.is_none())
                .and_then(|it| it.health.probation_left())
                .map(|remaining| remaining.as_secs()),
            in_flight,
            in_flight_now: context.map_or(0, |it| it.in_flight()),
            instances,
            calls: number(VersionMetrics::calls),
            traps: number(VersionMetrics::traps),
            timeouts: number(VersionMetrics::timeouts),
            denials: number(VersionMetrics::denials),
            log_drops: number(VersionMetrics::log_drops),
            p50_micros: quantile(VersionMetrics::duration, 500),
            p99_micros: quantile(VersionMetrics::duration, 990),
            queue: number(VersionMetrics::queue_length),
            queue_p99_micros: quantile(VersionMetrics::wait, 990),
            cpu_millis: number(|it| u64::try_from(it.cpu().as_millis()).unwrap_or(u64::MAX)),
            cpu_p99_micros: quantile(VersionMetrics::cpu_of_call, 990),
            memory_peak: number(VersionMetrics::memory_peak),
            last_trap: measured.and_then(VersionMetrics::last_fault),
            rollout: self.serving.get(name).and_then(Serving::rollout),
            recording: context
                .filter(|it| it.recorder().is_some())
                .map(|_| metrics.recorded(name)),
            source,
            signed_by: info.and_then(|it| it.provenance.signed_by.clone()),
            attestations: info.map_or_else(Vec::new, |it| it.provenance.attestations.clone()),
        }
    }
}
