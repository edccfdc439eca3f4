//! The state of the backup or restore under way, and its queries for the rest of the core.

mod one_off;
mod requests;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_common::ambient;
use transom_scheduler::TaskRecord;

use super::Core;
use crate::backup::delivery::Entry;
use crate::backup::directory::Directory;
use crate::backup::phase;
use crate::backup::{Operation, Phase, State};
use crate::kind::PerKind;
use crate::settings::Engine;
use crate::task::Preparation;
use one_off::OneOff;

/// The minimum wait for the end of a phase.
const MIN_PHASE_WAIT: Duration = Duration::from_secs(1);

/// The stored state of backups and restores, and the state of the operation under way in memory.
#[derive(Debug, Default)]
pub(super) struct BackupWork {
    pub(super) state: State,
    pub(super) directory: Option<Directory>,
    /// The one-off task of the present phase.
    one_off: Option<OneOff>,
    /// The result of reading the dump.
    read: Option<Result<u64, String>>,
    /// Whether a job reads from a sandbox.
    reading: bool,
    /// When to read from the sandbox again; `None`: immediately.
    pub(super) read_at: Option<Instant>,
    /// The number of tasks of the datastore that have ended in this phase.
    failures: u32,
}

impl BackupWork {
    pub(super) fn new(state: State, directory: Option<Directory>) -> Self {
        Self {
            state,
            directory,
            ..Self::default()
        }
    }

    fn operation(&self) -> Option<&Operation> {
        self.state.operation.as_ref()
    }

    /// Whether `task` is the one-off task of the operation.
    pub(super) fn owns(&self, task: &TaskId) -> bool {
        let known = self.operation().and_then(|operation| operation.task.as_deref());
        known == Some(task.as_str())
    }

    /// Takes over the one-off task of the operation after a restart of the daemon.
    pub(super) fn adopt(&mut self, record: &Arc<TaskRecord>) {
        self.one_off = Some(OneOff {
            task: record.id.clone(),
            record: Some(Arc::clone(record)),
            outcome: None,
        });
    }
}

impl Core {
    /// Whether servers are kept stopped.
    pub(super) fn stops_servers(&self) -> bool {
        self.backup.operation().is_some_and(Operation::stops_servers)
    }

    /// The wanted counts as input of the plan. They depend on the operation under way.
    pub(super) fn planned_counts(&self) -> PerKind<u32> {
        let (wanted, engine) = (self.wanted.counts, self.config.settings.engine());
        let operation = self.backup.operation();
        operation.map_or(wanted, |operation| phase::counts(operation, engine, wanted))
    }

    /// What a member of a kvstore that is launched now must do before it starts.
    pub(super) fn preparation(&self, number: u32) -> Option<Preparation> {
        let operation = self.backup.operation()?;
        if self.config.settings.engine() != Engine::Kvstore {
            return None;
        }
        match operation.phase {
            Phase::Load => Some(Preparation::Restore {
                operation: operation.set_aside_id().to_owned(),
                url: self.delivery_url(operation)?,
                sha256: operation.sha256.clone()?,
            }),
            // Only this member of a cluster has changed its data.
            Phase::Revert if number == operation.member.unwrap_or_default() => Some(Preparation::Revert {
                operation: operation.set_aside_id().to_owned(),
            }),
            _ => None,
        }
    }

    /// The host that has the kvstore's former data, while a backup is restored. `None` for a clustered
    /// kvstore, whose members each have their own host.
    pub(super) fn pinned_host(&self) -> Option<String> {
        self.preparation(0).filter(|_| !self.is_clustered())?;
        self.backup.operation()?.host.clone()
    }

    fn delivered(&self, operation: &Operation) -> Option<Entry> {
        if operation.phase != Phase::Load {
            return None;
        }
        Some(Entry {
            sha256: operation.sha256.clone()?,
            token: operation.token.clone(),
            file: self.backup.directory.as_ref()?.data_path(&operation.backup),
        })
    }

    /// The URL from which the fetcher downloads the backup.
    fn delivery_url(&self, operation: &Operation) -> Option<String> {
        let path = self.delivered(operation)?.path();
        Some(format!("{}{path}", self.service.backup_base))
    }

    /// When the core must check the operation again: at its deadline, or at the next attempt to read.
    pub(super) fn backup_due(&self) -> Option<Instant> {
        let deadline = self
            .backup
            .operation()
            .filter(|it| it.phase != Phase::Held)?
            .deadline;
        let wait = Duration::try_from(deadline.duration_since(ambient::now())).unwrap_or_default();
        let due = Instant::now() + wait.max(MIN_PHASE_WAIT);
        Some(self.backup.read_at.map_or(due, |at| at.min(due)))
    }
}
