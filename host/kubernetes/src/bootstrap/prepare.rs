//! Prepares the script of a container with the bootstrap component.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use transom_common::error_chain;
use transom_plugin_host::bootstrap::{Context, PrepareError, Role};
use transom_plugin_host::{Change, Plugins};

use super::scripts::ScriptsFull;
use super::source::{FetchError, Source};
use crate::config::Config;
use crate::kind::Kind;
use crate::task::{self, Draft};

/// A script with its variables and arguments, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) script: Arc<[u8]>,
    pub(crate) draft: Draft,
}

/// Why a container cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    #[error("the bootstrap script is not available: {0}")]
    Source(#[from] FetchError),
    #[error("the bootstrap component rejects the script: {0}")]
    Rejected(String),
    #[error("the bootstrap component is not available: {0}")]
    Component(String),
    #[error("the script cannot be served: {0}")]
    NotServed(#[from] ScriptsFull),
}

/// Prepares scripts.
#[async_trait]
pub(crate) trait Bootstrap: Debug + Send + Sync {
    /// Prepares the script of this container.
    async fn prepare(
        &self,
        kind: Kind,
        number: u32,
        task: &str,
        draft: Draft,
    ) -> Result<Prepared, ScriptError>;

    /// An item for each change of the components. Another version may be in service afterwards, or
    /// none.
    fn changes(&self) -> BoxStream<'static, ()>;
}

/// Prepares scripts with the component that serves the extension point.
#[derive(Debug)]
pub(crate) struct PluginBootstrap {
    pub(crate) plugins: Plugins,
    pub(crate) source: Source,
    pub(crate) config: Arc<Config>,
}

impl PluginBootstrap {
    pub(crate) fn new(plugins: Plugins, config: Arc<Config>) -> crate::Result<Self> {
        Ok(Self {
            plugins,
            source: Source::new(&config.settings)?,
            config,
        })
    }
}

#[async_trait]
impl Bootstrap for PluginBootstrap {
    async fn prepare(
        &self,
        kind: Kind,
        number: u32,
        task: &str,
        draft: Draft,
    ) -> Result<Prepared, ScriptError> {
        let fetched = self.source.get().await?;
        let ports = task::container_ports(&self.config, kind);
        // Host ports are not known before an offer is accepted.
        let ports = ports.map(|port| (0, port)).collect();
        let context = Context {
            role: match kind {
                Kind::Datastore => Role::Datastore,
                Kind::Server => Role::Server,
                Kind::Agent => Role::Agent,
            },
            framework: self.config.name().to_owned(),
            task: task.to_owned(),
            number,
            // The host is not known either.
            host: String::new(),
            attributes: Vec::new(),
            image: self.config.settings.image_orch.clone(),
            ports,
            source: fetched.source,
            digest: fetched.digest,
            environment: draft.environment,
            arguments: draft.arguments,
            extensions: Vec::new(),
        };
        let prepared = self.plugins.prepare(context, fetched.script.to_vec()).await;
        match prepared {
            Ok(prepared) => Ok(Prepared {
                script: prepared.script.into(),
                draft: Draft {
                    environment: prepared.environment,
                    arguments: prepared.arguments,
                },
            }),
            Err(PrepareError::Rejected(rejection)) => Err(ScriptError::Rejected(rejection.message)),
            Err(PrepareError::Call(error)) => Err(ScriptError::Component(error_chain(&error))),
        }
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        notifications(self.plugins.changes())
    }
}

/// An item for each change, or for several missed ones.
pub(crate) fn notifications(changes: broadcast::Receiver<Change>) -> BoxStream<'static, ()> {
    let changes = futures::stream::unfold(changes, async |mut changes| match changes.recv().await {
        Ok(_) | Err(RecvError::Lagged(_)) => Some(((), changes)),
        Err(RecvError::Closed) => None,
    });
    changes.boxed()
}
