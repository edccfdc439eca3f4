//! Requests for backups and restores: their checks, and the beginning of operations.

use transom_common::ambient;
use transom_framework::ActorError;
use transom_replicas::Condition;

use super::steps::state_after_end;
use crate::backup::{Manifest, Operation, OperationKind, Phase, State};
use crate::core::Core;
use crate::core::command::Rejection;
use crate::core::members::Member;
use crate::kind::Kind;

impl Core {
    /// Begins a backup. Returns its name.
    pub(in crate::core) async fn back_up(&mut self) -> Result<String, Rejection> {
        self.check_may_begin(OperationKind::Backup)?;
        if !self.has_healthy_datastore() {
            return Err(Rejection::DatastoreNotHealthy);
        }
        let now = ambient::now();
        let mut distinct = ambient::uuid().simple().to_string();
        distinct.truncate(4);
        let name = format!(
            "{}-{}-{distinct}",
            self.config.name(),
            now.strftime("%Y%m%dT%H%M%SZ")
        );
        let timeout = self.config.settings.backup.timeout.duration();
        let operation = Operation {
            orch_token: Some(self.secrets.token.clone()),
            ..Operation::new(OperationKind::Backup, name.clone(), now, timeout)
        };
        self.begin(operation).await?;
        Ok(name)
    }

    /// Begins the restore of a verified backup.
    pub(in crate::core) async fn restore(&mut self, manifest: Manifest) -> Result<(), Rejection> {
        self.check_may_begin(OperationKind::Restore)?;
        let engine = self.config.settings.engine();
        if manifest.engine != engine {
            return Err(Rejection::OtherEngine {
                backup: manifest.engine.as_str(),
                datastore: engine.as_str(),
            });
        }
        let datastores = self.members.of(Kind::Datastore);
        let mut launched = datastores.values().filter_map(|member| member.record.as_ref());
        let host = launched.next().map(|record| record.agent.hostname.clone());
        let runs = |member: &Member| member.replica.condition == Condition::Running;
        let running = datastores.iter().find(|(_, member)| runs(member));
        let timeout = self.config.settings.backup.timeout.duration();
        let new = Operation::new(OperationKind::Restore, manifest.name, ambient::now(), timeout);
        let mut operation = Operation {
            sha256: Some(manifest.sha256),
            orch_token: manifest.token,
            host,
            member: running.map(|(number, _)| *number),
            ..new
        };
        // If the previous restore is stuck, the former data are where that restore has put them.
        if let Some(held_operation) = self.backup.operation() {
            operation = Operation {
                host: held_operation.host.clone(),
                member: held_operation.member,
                former: held_operation.former.clone(),
                set_aside_by: Some(held_operation.set_aside_id().to_owned()),
                ..operation
            };
        }
        self.begin(operation).await
    }

    fn check_may_begin(&self, kind: OperationKind) -> Result<(), Rejection> {
        if self.config.kinds.datastore.count == 0 {
            return Err(Rejection::DatastoreOutside);
        }
        if self.backup.directory.is_none() {
            return Err(Rejection::NoBackupDirectory);
        }
        match self.backup.operation() {
            // A restore that is stuck can be replaced by another restore.
            Some(operation) if operation.phase == Phase::Held && kind == OperationKind::Restore => Ok(()),
            Some(operation) => Err(Rejection::OperationUnderWay(operation.describe())),
            None => Ok(()),
        }
    }

    /// Rejects a change of the datastore's count while a backup is restored into it.
    pub(in crate::core) fn check_may_scale(&self, kind: Kind) -> Result<(), Rejection> {
        let restore = self
            .backup
            .operation()
            .filter(|it| it.kind == OperationKind::Restore);
        match restore {
            Some(operation) if kind == Kind::Datastore => {
                Err(Rejection::OperationUnderWay(operation.describe()))
            }
            _ => Ok(()),
        }
    }

    async fn begin(&mut self, operation: Operation) -> Result<(), Rejection> {
        tracing::info!(
            framework = self.config.name(),
            kind = operation.kind.as_str(),
            backup = operation.backup,
            "backup or restore started"
        );
        let state = State {
            operation: Some(operation),
            ..self.backup.state.clone()
        };
        self.repository
            .put_backup(&state)
            .await
            .map_err(ActorError::from)?;
        self.drop_one_off();
        self.forget_results();
        self.backup.state = state;
        self.publish_view();
        Ok(())
    }

    /// Ends a restore that is stuck, so that servers start with the data as it is. Returns whether a
    /// restore was stuck.
    pub(in crate::core) async fn release(&mut self) -> Result<bool, Rejection> {
        let held_operation = self
            .backup
            .operation()
            .filter(|operation| operation.phase == Phase::Held);
        let Some(operation) = held_operation else {
            return Ok(false);
        };
        let (kind, backup) = (operation.kind, operation.backup.clone());
        let problem = operation.problem.clone().unwrap_or_default();
        let state = state_after_end(&self.backup.state, kind, backup, Err(problem), ambient::now());
        self.repository
            .put_backup(&state)
            .await
            .map_err(ActorError::from)?;
        self.backup.state = state;
        Ok(true)
    }
}
