//! Carries out the steps that [`phase::next`] returns. Each step is stored before it begins.

use std::sync::Arc;

use jiff::Timestamp;
use transom_cluster::TaskId;
use transom_common::{Secret, ambient, error_chain};
use transom_replicas::Condition;

use super::one_off::OneOff;
use crate::backup::phase::{self, NextStep, Observed, OneOffOutcome, OneOffState};
use crate::backup::{Operation, OperationKind, Outcome, Phase, State, Success};
use crate::core::Core;
use crate::kind::Kind;
use crate::kvstore::KvstoreRecord;
use crate::secrets::{InUse, Secrets};

/// The maximum number of consecutive steps in one call of `advance`.
const MAX_STEPS: usize = 8;

impl Core {
    /// Whether a member of the datastore runs and is not known to be unhealthy. Of a clustered
    /// kvstore: whether a healthy voter runs at its recorded address.
    pub(super) fn has_healthy_datastore(&self) -> bool {
        let clustered = self.is_clustered();
        self.members.of(Kind::Datastore).iter().any(|(number, member)| {
            if clustered {
                return self.kvstore.votes(*number, member);
            }
            let healthy = member.record.as_ref().and_then(|record| record.healthy());
            member.replica.condition == Condition::Running && healthy != Some(false)
        })
    }

    /// Continues the operation as far as possible without waiting.
    pub(in crate::core) async fn advance(&mut self) {
        // A former leader may have stored the phase without the reduced record.
        let mut stored = self.reduce_kvstore().await;
        for _ in 0..MAX_STEPS {
            if let Err(error) = &stored {
                tracing::warn!(
                    framework = self.config.name(),
                    error = error_chain(error),
                    "storing the state of a backup or restore failed; retrying"
                );
                break;
            }
            let Some(operation) = self.backup.state.operation.clone() else {
                break;
            };
            self.read_sandbox(&operation);
            let (observed, now) = (self.observe_backup(&operation), ambient::now());
            let next = phase::next_step(&operation, self.config.settings.engine(), &observed, now);
            stored = match next {
                NextStep::Wait => break,
                NextStep::Start => self.start_one_off(operation, 0).await,
                NextStep::StartAgain => self.start_one_off(operation, 1).await,
                NextStep::Enter(phase) => self.enter(operation, phase, None, now).await,
                NextStep::Fail(phase, problem) => self.enter(operation, phase, Some(problem), now).await,
                NextStep::End(result) => self.end(operation, result, now).await,
            };
        }
        let delivered = self
            .backup
            .operation()
            .and_then(|operation| self.delivered(operation));
        self.service.delivery.set(delivered);
    }

    fn observe_backup(&self, operation: &Operation) -> Observed {
        let one_off = self.backup.one_off.as_ref();
        Observed {
            servers: self.members.of(Kind::Server).len(),
            datastores: self.members.of(Kind::Datastore).len(),
            healthy: self.has_healthy_datastore(),
            server_answers: self.wanted.counts.server == 0
                || (self.orchestrator.observation.is_some() && self.running_server().is_some()),
            failures: self.backup.failures,
            task: match one_off.filter(|one_off| operation.task.as_deref() == Some(one_off.task.as_str())) {
                None => OneOffState::Missing,
                Some(OneOff {
                    outcome: Some(ending),
                    ..
                }) => OneOffState::Ended(ending.clone()),
                Some(OneOff { record: None, .. }) => OneOffState::Pending,
                Some(_) => OneOffState::Running,
            },
            read: self.backup.read.clone().map(|read| read.map(drop)),
        }
    }

    async fn enter(
        &mut self,
        operation: Operation,
        phase: Phase,
        problem: Option<String>,
        now: Timestamp,
    ) -> transom_store::typed::Result<()> {
        if let Some(problem) = &problem {
            tracing::warn!(
                framework = self.config.name(),
                backup = operation.backup,
                problem,
                "the restore has failed"
            );
        }
        // The phase `Read` still needs the task of the phase `Dump`, whose sandbox contains the dump.
        let keeps_task = phase == Phase::Read;
        let sha256 = match self
            .backup
            .one_off
            .as_ref()
            .and_then(|one_off| one_off.outcome.as_ref())
        {
            Some(OneOffOutcome::Done(sha256)) if keeps_task => Some(sha256.clone()),
            _ => operation.sha256.clone(),
        };
        let operation = self.former_members_known(operation, phase);
        if phase == Phase::Revert
            && let Some(former) = &operation.former
        {
            self.replace_voters(former.clone()).await?;
        }
        let entered = Operation {
            phase,
            deadline: now
                .checked_add(self.config.settings.backup.timeout.duration())
                .unwrap_or(Timestamp::MAX),
            task: operation.task.clone().filter(|_| keeps_task),
            lost: 0,
            sha256,
            problem: problem.or_else(|| operation.problem.clone()),
            ..operation
        };
        tracing::info!(
            framework = self.config.name(),
            backup = entered.backup,
            phase = phase.as_str(),
            "backup or restore entered a new phase"
        );
        if phase == Phase::Resume && entered.problem.is_none() {
            self.adopt_token(entered.orch_token.clone()).await?;
        }
        self.store_operation(entered).await?;
        self.reduce_kvstore().await?;
        if !keeps_task {
            self.drop_one_off();
        }
        self.forget_results();
        Ok(())
    }

    /// Records the members of a clustered kvstore before one of them gets the backup.
    fn former_members_known(&self, operation: Operation, phase: Phase) -> Operation {
        if phase != Phase::Load || !self.is_clustered() {
            return operation;
        }
        let present = &self.kvstore.record;
        let first = present.voters.keys().next().copied();
        let is_left = |number: &u32| present.voters.contains_key(number);
        Operation {
            // If none ran when the restore began, `member` stays `None`: the agents with the former
            // data may never return.
            member: operation
                .member
                .and_then(|number| Some(number).filter(is_left).or(first)),
            former: operation.former.clone().or_else(|| Some(present.clone())),
            ..operation
        }
    }

    /// Reduces the record to the member that gets the backup. The other members join it later.
    async fn reduce_kvstore(&mut self) -> transom_store::typed::Result<()> {
        let loading = self
            .backup
            .operation()
            .filter(|it| it.phase == Phase::Load && it.former.is_some());
        let Some(operation) = loading else { return Ok(()) };
        let is_reduced = match operation.member {
            Some(number) => self.kvstore.record.voters.keys().all(|it| *it == number),
            None => self
                .kvstore
                .record
                .voters
                .values()
                .all(|voter| self.is_launched(&voter.task)),
        };
        if is_reduced {
            return Ok(());
        }
        let reduced = self.kvstore.record.reduced(operation.member);
        self.replace_voters(reduced).await
    }

    /// Uses the token of the restored data. Tasks with the former one are replaced.
    async fn adopt_token(&mut self, token: Option<Secret>) -> transom_store::typed::Result<()> {
        let Some(token) = token.filter(|token| *token != self.secrets.token) else {
            return Ok(());
        };
        let mut config = (*self.config).clone();
        config.settings.orch_token = Some(token.clone());
        let record = self.datastore.using(Some(InUse::of(&config)));
        self.repository.put_datastore(&record).await?;
        self.datastore = record;
        self.secrets = Arc::new(Secrets {
            token,
            ..(*self.secrets).clone()
        });
        self.config = Arc::new(config);
        self.service.config = Arc::clone(&self.config);
        tracing::info!(
            framework = self.config.name(),
            "the token of the restored backup is in use"
        );
        Ok(())
    }

    fn is_launched(&self, task: &TaskId) -> bool {
        self.members
            .of(Kind::Datastore)
            .values()
            .any(|member| member.task == *task)
    }

    pub(in crate::core) async fn replace_voters(
        &mut self,
        record: KvstoreRecord,
    ) -> transom_store::typed::Result<()> {
        self.repository.put_kvstore(&record).await?;
        self.kvstore.replace(record);
        Ok(())
    }

    async fn end(
        &mut self,
        operation: Operation,
        result: Result<(), String>,
        now: Timestamp,
    ) -> transom_store::typed::Result<()> {
        let size = match &self.backup.read {
            Some(Ok(size)) => *size,
            _ => 0,
        };
        let Operation { kind, backup, .. } = operation;
        let mut state = state_after_end(&self.backup.state, kind, backup.clone(), result.clone(), now);
        if kind == OperationKind::Backup && result.is_ok() {
            state.last_success = Some(Success { ended: now, size });
        }
        self.repository.put_backup(&state).await?;
        let framework = self.config.name();
        match &result {
            Ok(()) => tracing::info!(
                framework,
                kind = kind.as_str(),
                backup,
                "backup or restore succeeded"
            ),
            Err(problem) => tracing::warn!(
                framework,
                kind = kind.as_str(),
                backup,
                problem,
                "backup or restore failed"
            ),
        }
        self.service.metrics.record_operation_end(kind, result.is_ok());
        self.backup.state = state;
        self.drop_one_off();
        self.forget_results();
        Ok(())
    }

    pub(super) async fn store_operation(&mut self, operation: Operation) -> transom_store::typed::Result<()> {
        let state = State {
            operation: Some(operation),
            ..self.backup.state.clone()
        };
        self.repository.put_backup(&state).await?;
        self.backup.state = state;
        Ok(())
    }

    pub(super) fn forget_results(&mut self) {
        self.backup.read = None;
        self.backup.read_at = None;
        self.backup.failures = 0;
    }
}

/// The stored state after the end of an operation.
pub(super) fn state_after_end(
    state: &State,
    kind: OperationKind,
    backup: String,
    result: Result<(), String>,
    now: Timestamp,
) -> State {
    let outcome = Some(Outcome {
        backup,
        ended: now,
        problem: result.err(),
    });
    let mut state = State {
        operation: None,
        ..state.clone()
    };
    match kind {
        OperationKind::Backup => state.last_backup = outcome,
        OperationKind::Restore => state.last_restore = outcome,
    }
    state
}
