//! From an extension point to the version that serves it now.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    engine::worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    error::CallError,
    pool::Version,
    table::{Serving, Table},
    types::probe::Kind,
};

/// What every question begins with. Shared by the host's handle and by the fleets and views that it gave out.
pub(crate) struct Points {
    pub(crate) config: Arc<Config>,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) token: CancellationToken,
}

impl std::fmt::Debug for Points {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Points")
            .field("dir", &self.config.dir)
            .finish_non_exhaustive()
    }
}

impl Points {
    pub(crate) fn matcher(&self) -> Result<Arc<Version<Matcher>>, CallError> {
        self.find("matcher", &self.config.uses.matcher, |it| match it {
            Serving::Matcher(version) => Some(Arc::clone(version)),
            _ => None,
        })
    }

    pub(crate) fn filter(&self) -> Result<Arc<Version<Filter>>, CallError> {
        self.find("filter", &self.config.uses.filter, |it| match it {
            Serving::Filter(version) => Some(Arc::clone(version)),
            _ => None,
        })
    }

    pub(crate) fn bootstrap(&self) -> Result<Arc<Version<Bootstrap>>, CallError> {
        self.find("bootstrap", &self.config.uses.bootstrap, |it| match it {
            Serving::Bootstrap(version) => Some(Arc::clone(version)),
            _ => None,
        })
    }

    pub(crate) fn prober(&self, kind: &Kind) -> Result<Arc<Version<Probe>>, CallError> {
        let uses = &self.config.uses;
        let (point, name) = match kind {
            Kind::Http => ("http checks", &uses.http),
            Kind::Tcp => ("tcp checks", &uses.tcp),
            Kind::Exec => ("exec checks", &uses.exec),
            Kind::Named(name) => ("plugin checks", name),
        };
        self.find(point, name, |it| match it {
            Serving::Probe(version) => Some(Arc::clone(version)),
            _ => None,
        })
    }

    fn find<W>(
        &self,
        point: &'static str,
        name: &str,
        of_world: impl Fn(&Serving) -> Option<W>,
    ) -> Result<W, CallError> {
        if self.token.is_cancelled() {
            return Err(CallError::Stopped);
        }
        let table = self.table.load();
        table
            .serving
            .get(name)
            .and_then(of_world)
            .ok_or_else(|| CallError::Missing {
                point,
                name: name.to_owned(),
                dir: self.config.dir.clone(),
            })
    }
}
