//! Commits to the store, and repairs records after a commit with an unknown result.

use tokio::time::Instant;
use transom_common::error_chain;
use transom_store::typed;

use super::Core;
use super::known_health::HealthRecord;
use super::persist::Changes;

/// The changes in a write during which no other input is handled.
const MAX_INLINE_CHANGES: usize = 64;
/// The maximum number of health records in one write; the others follow with the next tick.
const MAX_HEALTH_RECORDS: usize = 1000;

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

    async fn write(&mut self, changes: Changes) -> typed::Result<()> {
        let began = Instant::now();
        let repository = self.repository.clone();
        let outcome = if changes.len() > MAX_INLINE_CHANGES {
            self.meanwhile(repository.commit(changes)).await
        } else {
            repository.commit(changes).await
        };
        self.metrics.record_commit(began.elapsed());
        outcome
    }

    /// Stores the current state of records whose state in the store is unknown: the clients of a
    /// failed write were answered that nothing has changed.
    pub(super) async fn store_unstored(&mut self) {
        if self.unstored.is_empty() {
            return;
        }
        let later = self.unstored.split_health(MAX_HEALTH_RECORDS);
        let changes = self.unstored_changes();
        let touched = std::mem::take(&mut self.unstored);
        let outcome = match changes {
            Ok(changes) => self.write(changes).await,
            Err(error) => Err(error),
        };
        self.unstored.health.extend(later);
        if let Err(error) = outcome {
            self.unstored.extend(touched);
            tracing::warn!(
                error = error_chain(&error),
                "storing changed records failed; retrying"
            );
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
            match self.definitions.tree.group(id) {
                Some(group) => changes.put_group(group)?,
                None => changes.delete_group(id),
            }
        }
        for id in &self.unstored.deployments {
            match self.deployments.get(id) {
                Some(running) => {
                    changes.put_deployment(&running.deployment)?;
                    changes.put_step(id, running.deployment.current)?;
                }
                None => changes.delete_deployment(id),
            }
        }
        for version in &self.unstored.history {
            match self.definitions.history.change(*version) {
                Some(change) => changes.put_change(change)?,
                None => changes.delete_change(*version),
            }
        }
        for id in &self.unstored.health {
            let state = id.spec().and_then(|spec| self.specs.get(&spec));
            let instance = state.and_then(|state| state.instances().get(id));
            match instance.and_then(|instance| HealthRecord::of(instance)) {
                Some(record) => changes.put_health(&record)?,
                None => changes.delete_health(id),
            }
        }
        Ok(changes)
    }
}
