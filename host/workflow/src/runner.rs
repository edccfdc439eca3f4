//! Leading (running the jobs) and standing by (forwarding requests).

use std::sync::Arc;

use transom_framework::{FrameworkService, Leader, LeaderTerm};

use crate::core::term::{Handles, TermDependencies};
use crate::explain::Explainer;
use crate::summary::SummaryReader;
use crate::{Error, Result};

/// Runs the jobs while this daemon is the leader.
#[derive(Debug)]
pub struct Runner {
    pub(crate) dependencies: TermDependencies,
    pub(crate) leader: Leader<Handles>,
}

impl Runner {
    /// Summarises the state of the service for operators.
    pub fn summaries(&self) -> SummaryReader {
        SummaryReader {
            metrics: self.dependencies.metrics.clone(),
            leader: self.leader.clone(),
        }
    }

    /// Explains to operators where pending jobs may run, while this daemon leads.
    pub fn explainer(&self) -> Explainer {
        Explainer {
            framework: self.dependencies.config.framework_name.clone(),
            index: Arc::clone(&self.dependencies.index),
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
