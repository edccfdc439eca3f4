//! Commits to the store, and repairs records after a commit with an unknown result.

use tokio::time::Instant;
use transom_common::error_chain;
use transom_store::typed;

use super::Core;
use super::persist::{Changes, Touched};

impl Core {
    /// Commits changes, before the core applies them.
    pub(super) async fn commit(&mut self, changes: Changes) -> typed::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let touched = changes.touched.clone();
        let outcome = self.write(changes).await;
        if outcome.as_ref().is_err_and(typed::Error::is_unconfirmed) {
            self.unstored.extend(touched);
        }
        outcome
    }

    async fn write(&self, changes: Changes) -> typed::Result<()> {
        let began = Instant::now();
        let outcome = self.repository.commit(changes).await;
        self.metrics.record_commit(began.elapsed());
        outcome
    }

    /// Stores the current state of records whose state in the store is unknown: the clients of a
    /// failed write were answered that nothing has changed.
    pub(super) async fn store_unstored(&mut self) {
        if self.unstored.is_empty() {
            return;
        }
        let outcome = match self.unstored_changes() {
            Ok(changes) => self.write(changes).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => self.unstored = Touched::default(),
            Err(error) => tracing::warn!(
                error = error_chain(&error),
                "storing changed records failed; retrying"
            ),
        }
    }

    fn unstored_changes(&self) -> typed::Result<Changes> {
        let mut changes = Changes::default();
        for id in &self.unstored.specs {
            match self.specs.get(id) {
                Some(state) => changes.put_spec(&state.record)?,
                None => changes.delete_spec(id),
            }
        }
        for id in &self.unstored.groups {
            match self.tree.group(id) {
                Some(group) => changes.put_group(group)?,
                None => changes.delete_group(id),
            }
        }
        for id in &self.unstored.deployments {
            match self.deployments.get(id) {
                Some(running) => changes.put_deployment(&running.deployment)?,
                None => changes.delete_deployment(id),
            }
        }
        for version in &self.unstored.history {
            match self.history.change(*version) {
                Some(change) => changes.put_change(change)?,
                None => changes.delete_change(*version),
            }
        }
        Ok(changes)
    }
}
