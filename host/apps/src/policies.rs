//! The functions of the plugins that this crate uses, as traits: implemented by the plugin host
//! below and scripted in tests.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;
use transom_plugin_host::events::{Decision, Event, OpenError, Query};
use transom_plugin_host::matcher::{Constraint, ConstraintError};
use transom_plugin_host::probe::{Failure, Kind, Outcome, Request, Runner};
use transom_plugin_host::{CallError, Change, Plugins};

/// The functions that components implement.
#[async_trait]
pub(crate) trait Policies: Debug + Send + Sync {
    async fn validate_constraints(
        &self,
        conditions: &[Constraint],
    ) -> Result<Vec<ConstraintError>, CallError>;
    async fn open_view(&self, query: Query) -> Result<Arc<dyn View>, OpenError>;
    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        runner: Option<Arc<dyn Runner>>,
    ) -> Result<Outcome, Failure>;
    /// The name of the plugin that makes checks of this kind.
    fn prober(&self, kind: &Kind) -> String;
    fn changes(&self) -> broadcast::Receiver<Change>;
    /// The loaded components, by name.
    fn components(&self) -> Vec<Component>;
}

/// A loaded component.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) name: String,
    /// The interface that it implements.
    pub(crate) world: String,
    /// The version in the component.
    pub(crate) version: String,
    /// The digest of the component, with the prefix `sha256:`.
    pub(crate) digest: Option<String>,
    /// The description in the component.
    pub(crate) summary: Option<String>,
}

/// The view of one event query.
#[async_trait]
pub(crate) trait View: Debug + Send + Sync {
    async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError>;
}

#[async_trait]
impl View for transom_plugin_host::events::View {
    async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError> {
        transom_plugin_host::events::View::decide(self, events).await
    }
}

#[async_trait]
impl Policies for Plugins {
    async fn validate_constraints(
        &self,
        conditions: &[Constraint],
    ) -> Result<Vec<ConstraintError>, CallError> {
        Plugins::validate_constraints(self, conditions).await
    }

    async fn open_view(&self, query: Query) -> Result<Arc<dyn View>, OpenError> {
        Ok(Arc::new(Plugins::open_view(self, query).await?))
    }

    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        runner: Option<Arc<dyn Runner>>,
    ) -> Result<Outcome, Failure> {
        Plugins::probe(self, kind, request, runner).await
    }

    fn prober(&self, kind: &Kind) -> String {
        Plugins::prober(self, kind).to_owned()
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        Plugins::changes(self)
    }

    fn components(&self) -> Vec<Component> {
        let loaded = Plugins::list(self).into_iter().filter_map(|status| {
            Some(Component {
                name: status.name,
                // A plugin without a version was never admitted, so it is left out.
                world: status.world?,
                version: status.version?,
                digest: status.digest,
                summary: status.summary,
            })
        });
        loaded.collect()
    }
}
