//! Resolves an extension point to the version that serves it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    error::CallError,
    lifecycle::table::{Serving, Table},
    observe::version_metrics::CallOutcome,
    runtime::{
        active_version::ActiveVersion,
        engine::{
            World,
            worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
        },
    },
    worlds::probe::Kind,
};

/// The extension points of the host. Shared by its handle, agent sets and views.
pub(crate) struct ExtensionPoints {
    pub(crate) config: Arc<Config>,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) token: CancellationToken,
}

impl std::fmt::Debug for ExtensionPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExtensionPoints")
            .field("dir", &self.config.dir)
            .finish_non_exhaustive()
    }
}

type ActiveResult<W> = Result<ActiveVersion<W>, CallError>;
/// The plugins of an extension point, with their names.
type ChainResult<'a, W> = Result<Vec<(&'a str, ActiveVersion<W>)>, CallError>;

impl ExtensionPoints {
    /// The matchers in order. All of them must serve.
    pub(crate) fn matchers(&self) -> ChainResult<'_, Matcher> {
        self.chain("matcher", &self.config.bindings.matchers, |it| match it {
            Serving::Matcher(version) => Some(version.clone()),
            _ => None,
        })
    }

    /// The filters in order. All of them must serve.
    pub(crate) fn filters(&self) -> ChainResult<'_, Filter> {
        self.chain("filter", &self.config.bindings.filters, |it| match it {
            Serving::Filter(version) => Some(version.clone()),
            _ => None,
        })
    }

    pub(crate) fn bootstrap(&self) -> ActiveResult<Bootstrap> {
        self.find("bootstrap", &self.config.bindings.bootstrap, |it| match it {
            Serving::Bootstrap(version) => Some(version.clone()),
            _ => None,
        })
    }

    /// Returns the extension point, and the name of the plugin bound to it.
    pub(crate) fn bound_prober<'a>(&'a self, kind: &'a Kind) -> (&'static str, &'a str) {
        let bindings = &self.config.bindings;
        match kind {
            Kind::Http => ("http checks", &bindings.http),
            Kind::Tcp => ("tcp checks", &bindings.tcp),
            Kind::Exec => ("exec checks", &bindings.exec),
            Kind::Named(name) => ("plugin checks", name),
        }
    }

    pub(crate) fn prober(&self, kind: &Kind) -> ActiveResult<Probe> {
        let (point, name) = self.bound_prober(kind);
        self.find(point, name, |it| match it {
            Serving::Probe(version) => Some(version.clone()),
            _ => None,
        })
    }

    fn chain<'a, W: World>(
        &self,
        point: &'static str,
        names: &'a [String],
        of_world: impl Fn(&Serving) -> Option<ActiveVersion<W>>,
    ) -> ChainResult<'a, W> {
        let found = |name: &'a String| Ok((&**name, self.find(point, name, &of_world)?));
        names.iter().map(found).collect()
    }

    fn find<V>(
        &self,
        point: &'static str,
        name: &str,
        of_world: impl Fn(&Serving) -> Option<V>,
    ) -> Result<V, CallError> {
        if self.token.is_cancelled() {
            return Err(CallError::Stopped);
        }
        let table = self.table.load();
        if let Some(version) = table.serving.get(name).and_then(of_world) {
            return Ok(version);
        }
        if table.admitting.contains_key(name) && !table.disabled.contains_key(name) {
            return Err(CallError::Busy {
                name: name.to_owned(),
                message: "its admission is in progress".to_owned(),
            });
        }
        let Some(disabled) = table.disabled.get(name) else {
            return Err(self.missing_error(point, name));
        };
        disabled.context.metrics.count_call(CallOutcome::Disabled);
        Err(CallError::Disabled {
            point,
            name: name.to_owned(),
            reason: disabled.reason.clone(),
        })
    }

    fn missing_error(&self, point: &'static str, name: &str) -> CallError {
        CallError::Missing {
            point,
            name: name.to_owned(),
            dir: self.config.dir.clone(),
        }
    }
}
