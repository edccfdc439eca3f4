//! Leading (running the framework) and standing by (forwarding requests).

use std::sync::Arc;

use transom_framework::{FrameworkService, Leader, LeaderTerm};

use crate::core::term::{Handles, TermDependencies};
use crate::explain::Explainer;
use crate::summary::SummaryReader;
use crate::{Error, Result};

/// Runs the framework while this daemon is the leader.
#[derive(Debug)]
pub struct Runner {
    pub(crate) dependencies: TermDependencies,
    pub(crate) leader: Leader<Handles>,
}

impl Runner {
    /// Summarises the state of the instance for operators.
    pub fn summaries(&self) -> SummaryReader {
        SummaryReader {
            views: Arc::clone(&self.dependencies.views),
        }
    }

    /// Explains to operators where pending members may run, while this daemon leads.
    pub fn explainer(&self) -> Explainer {
        Explainer {
            config: Arc::clone(&self.dependencies.config),
            views: Arc::clone(&self.dependencies.views),
            leader: self.leader.clone(),
        }
    }
}

impl FrameworkService for Runner {
    type Error = Error;

    async fn lead(&mut self, term: LeaderTerm) -> Result<()> {
        let lease = term.lease.clone();
        let (handles, running) = self.dependencies.start(term).await?;
        let installed = self.leader.install(handles, lease);
        running.run_to_end(installed).await;
        Ok(())
    }
}
