//! Which plugins serve: an immutable table, replaced as a whole.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    engine::{
        World,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    metrics::Metrics,
    plugin::Meta,
    pool::{Facts, Version},
    status::{State, Status},
    world::WorldName,
};

/// A version of any world.
#[derive(Clone)]
pub(crate) enum Serving {
    Probe(Arc<Version<Probe>>),
    Matcher(Arc<Version<Matcher>>),
    Filter(Arc<Version<Filter>>),
    Bootstrap(Arc<Version<Bootstrap>>),
}

/// What serves and what was refused, by the file's name. A name can be in both: an older version serves.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) serving: BTreeMap<String, Serving>,
    pub(crate) refusals: BTreeMap<String, String>,
}

impl Serving {
    fn parts(&self) -> (WorldName, &Arc<Meta>, &Facts) {
        fn of<W: World>(version: &Version<W>) -> (&Arc<Meta>, &Facts) {
            (&version.meta, &version.facts)
        }
        let (world, (meta, facts)) = match self {
            Serving::Probe(it) => (WorldName::CheckProbe, of(it)),
            Serving::Matcher(it) => (WorldName::AttributeMatcher, of(it)),
            Serving::Filter(it) => (WorldName::EventFilter, of(it)),
            Serving::Bootstrap(it) => (WorldName::BootstrapHandler, of(it)),
        };
        (world, meta, facts)
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.parts().2
    }
}

impl Table {
    pub(crate) fn status(&self, metrics: &Metrics) -> Vec<Status> {
        let mut names: Vec<&String> = self.serving.keys().chain(self.refusals.keys()).collect();
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .map(|name| self.status_of(name, metrics))
            .collect()
    }

    fn status_of(&self, name: &str, metrics: &Metrics) -> Status {
        let serving = self.serving.get(name).map(Serving::parts);
        let stats = metrics.of(name);
        let gauge = |value: i64| u64::try_from(value).unwrap_or(0);
        Status {
            name: name.to_owned(),
            world: serving.map(|(world, _, _)| world.short().to_owned()),
            version: serving.map(|(_, _, facts)| facts.version.clone()),
            summary: serving.map(|(_, _, facts)| facts.summary.clone()),
            digest: serving.map(|(_, _, facts)| facts.digest.clone()),
            admitted_at: serving.map(|(_, _, facts)| facts.admitted_at),
            state: if serving.is_some() {
                State::Serving
            } else {
                State::Refused
            },
            refusal: self.refusals.get(name).cloned(),
            in_flight: gauge(stats.in_flight.get()),
            instances: gauge(stats.instances.get()),
            calls: stats.calls.get(),
            traps: stats.traps.get(),
            timeouts: stats.timeouts.get(),
            denials: stats.denials.get(),
            log_drops: stats.log_drops.get(),
        }
    }
}
