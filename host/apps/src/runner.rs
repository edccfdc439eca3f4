//! Leading and standing by. The leader runs the apps; a standby shows the state that the leader
//! stores. Between two terms, readers get the last known state.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use transom_framework::{FrameworkService, Leader, LeaderTerm};
use transom_plugin_host::Plugins;

use crate::core::mirror::{CatchUp, Mirror};
use crate::core::snapshot::Snapshot;
use crate::core::term::{Dependencies, Handles};
use crate::explain::Explainer;
use crate::summary::SummaryReader;
use crate::{Config, Error, Result};

/// Runs the service, as leader or standby.
#[derive(Debug)]
pub struct Runner {
    pub(crate) config: Config,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) dependencies: Dependencies,
    pub(crate) leader: Leader<Handles>,
    pub(crate) mirror: Mirror,
    pub(crate) syncs: mpsc::Receiver<CatchUp>,
}

impl Runner {
    /// Summarises the state of the service for operators.
    pub fn summaries(&self) -> SummaryReader {
        SummaryReader {
            snapshot: Arc::clone(&self.snapshot),
            leader: self.leader.clone(),
        }
    }

    /// Explains to operators what plugins decide about apps and events, while this daemon leads.
    pub fn explainer(&self, plugins: Plugins) -> Explainer {
        Explainer {
            framework: self.config.settings.framework_name.clone(),
            parameters: self.config.settings.events.parameters.clone(),
            leader: self.leader.clone(),
            agents: self.dependencies.agents.clone(),
            plugins,
        }
    }
}

impl FrameworkService for Runner {
    type Error = Error;

    async fn stand_by(&mut self) -> Infallible {
        self.mirror.follow(&mut self.syncs).await
    }

    async fn lead(&mut self, term: LeaderTerm) -> Result<()> {
        let lease = term.lease.clone();
        let (handles, running) = self
            .dependencies
            .start(&self.config, &self.snapshot, term)
            .await?;
        let installed = self.leader.install(handles, lease);
        // Requests that waited for the mirror can now read the core's snapshot.
        while let Ok(sync) = self.syncs.try_recv() {
            let _ = sync.send(());
        }
        running.run_to_end(installed).await;
        Ok(())
    }
}
