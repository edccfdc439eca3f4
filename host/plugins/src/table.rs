//! Which plugins serve: an immutable table, replaced as a whole.

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
    health::Alarm,
    manifest::OnDisabled,
    metrics::{Counts, Metrics},
    plugin::Meta,
    pool::{Facts, Surroundings},
    shadow::{Pair, Shadow, Shadowed, Tally},
    sources::Sources,
    status::{Shadow as Beside, Source, State, Status},
    vitals::{Times, Vitals},
};

/// A version of any world.
#[derive(Clone)]
pub(crate) enum Serving {
    Probe(Pair<Probe>),
    Matcher(Pair<Matcher>),
    Filter(Pair<Filter>),
    Bootstrap(Pair<Bootstrap>),
}

/// A plugin that was taken out of service.
#[derive(Debug)]
pub(crate) struct Disabled {
    pub(crate) facts: Facts,
    pub(crate) reason: String,
    pub(crate) answer: OnDisabled,
    /// Of the version that failed.
    pub(crate) meta: Arc<Meta>,
}

/// What serves, what was taken out of service and what was refused, by the file's name. A name is in one of the first two at most; it can
/// be refused beside that.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) serving: BTreeMap<String, Serving>,
    pub(crate) disabled: BTreeMap<String, Arc<Disabled>>,
    pub(crate) refusals: BTreeMap<String, String>,
    /// Since when files are being admitted, or wait for their turn: seconds since 1970.
    pub(crate) admitting: BTreeMap<String, u64>,
}

impl Serving {
    pub(crate) fn parts(&self) -> (&Arc<Meta>, &Facts) {
        fn of<W: Shadowed>(pair: &Pair<W>) -> (&Arc<Meta>, &Facts) {
            (&pair.version.meta, &pair.version.facts)
        }
        match self {
            Serving::Probe(it) => of(it),
            Serving::Matcher(it) => of(it),
            Serving::Filter(it) => of(it),
            Serving::Bootstrap(it) => of(it),
        }
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.parts().1
    }

    /// The same with another version beside it; nothing where that is of another world.
    pub(crate) fn beside(
        &self,
        new: &Serving,
        around: &Surroundings,
        tally: &Arc<Tally>,
        alarms: &mpsc::Sender<Alarm>,
    ) -> Option<Serving> {
        let pair = Pairing {
            around,
            tally,
            alarms,
        };
        Some(match (self, new) {
            (Serving::Probe(old), Serving::Probe(new)) => Serving::Probe(pair.of(old, new)),
            (Serving::Matcher(old), Serving::Matcher(new)) => Serving::Matcher(pair.of(old, new)),
            (Serving::Filter(old), Serving::Filter(new)) => Serving::Filter(pair.of(old, new)),
            (Serving::Bootstrap(old), Serving::Bootstrap(new)) => Serving::Bootstrap(pair.of(old, new)),
            _ => return None,
        })
    }

    fn shadow(&self) -> Option<Beside> {
        fn of<W: Shadowed>(pair: &Pair<W>) -> Option<Beside> {
            let shadow = pair.shadow.as_ref()?;
            let tally = &shadow.tally;
            Some(Beside {
                version: shadow.version.facts.version.clone(),
                digest: shadow.version.facts.digest.clone(),
                since: tally.since,
                auto: tally.auto,
                compared: tally.compared.load(Relaxed),
                differences: tally.differences.load(Relaxed),
                failures: tally.failures.load(Relaxed),
                dropped: tally.dropped.load(Relaxed),
                samples: tally.shown(),
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

struct Pairing<'a> {
    around: &'a Surroundings,
    tally: &'a Arc<Tally>,
    alarms: &'a mpsc::Sender<Alarm>,
}

impl Pairing<'_> {
    fn of<W: Shadowed>(&self, old: &Pair<W>, new: &Pair<W>) -> Pair<W> {
        let new = Arc::clone(&new.version);
        let shadow = Shadow::start(self.around, new, Arc::clone(self.tally), self.alarms.clone());
        Pair {
            version: Arc::clone(&old.version),
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
        let version = version.or_else(|| disabled.map(|it| (&it.meta, &it.facts)));
        let facts = version.map(|(_, facts)| facts);
        let meta = version.map(|(meta, _)| meta);
        let vitals = meta.map(|it| &it.vitals);
        let totals = metrics.totals(name);
        let counts = meta.map(|it| it.stats.counts());
        let count = |it: &AtomicU64| it.load(Relaxed);
        let counted = |of: fn(&Counts) -> &AtomicU64| counts.map_or(0, |it| of(it).load(Relaxed));
        let gauge = |it: &AtomicI64| u64::try_from(it.load(Relaxed)).unwrap_or(0);
        let quantile = |of: fn(&Vitals) -> &Times, per_mille| {
            let time = of(vitals?).at(per_mille)?;
            u64::try_from(time.as_micros()).ok()
        };
        Status {
            name: name.to_owned(),
            world: facts.map(|it| it.world.short().to_owned()),
            version: facts.map(|it| it.version.clone()),
            summary: facts.map(|it| it.summary.clone()),
            digest: facts.map(|it| it.digest.clone()),
            admitted_at: facts.map(|it| it.admitted_at),
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
            probation: meta
                .filter(|_| disabled.is_none())
                .and_then(|it| it.health.probation_left())
                .map(|left| left.as_secs()),
            in_flight: gauge(&totals.in_flight),
            in_flight_now: meta.map_or(0, |it| it.in_flight()),
            instances: gauge(&totals.instances),
            calls: counted(|it| &it.calls),
            traps: counted(|it| &it.traps),
            timeouts: counted(|it| &it.timeouts),
            denials: counted(|it| &it.denials),
            log_drops: counted(|it| &it.log_drops),
            p50_micros: quantile(|it| &it.latency, 500),
            p99_micros: quantile(|it| &it.latency, 990),
            queue: vitals.map_or(0, |it| count(&it.queue)),
            queue_p99_micros: quantile(|it| &it.wait, 990),
            cpu_millis: vitals.map_or(0, |it| u64::try_from(it.cpu().as_millis()).unwrap_or(u64::MAX)),
            cpu_p99_micros: quantile(|it| &it.cpu_of_call, 990),
            memory_peak: vitals.map_or(0, |it| count(&it.memory)),
            last_trap: vitals.and_then(Vitals::last_trap),
            shadow: self.serving.get(name).and_then(Serving::shadow),
            source,
            signed_by: facts.and_then(|it| it.provenance.signed_by.clone()),
        }
    }
}
