//! The one-off tasks of backups and restores, and the reading of their sandboxes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use transom_cluster::v1::TaskState;
use transom_cluster::{FrameworkId, TaskId};
use transom_common::trace::TraceContext;
use transom_common::{ambient, error_chain};
use transom_scheduler::{AgentLocation, TaskRecord, TaskRequest};

use crate::backup::phase::OneOffOutcome;
use crate::backup::receive::{ReceiveError, Reception};
use crate::backup::script::{self, MAX_RESULT_BYTES, RESULT};
use crate::backup::{Operation, Phase};
use crate::core::Core;
use crate::core::job_result::JobResult;
use crate::dependencies::{Cluster, SandboxFile};
use crate::settings::Engine;
use crate::task::{OneOffTask, Work};

/// The time to the next attempt to read from a sandbox.
const READ_RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct OneOff {
    pub(super) task: TaskId,
    /// The scheduler's record; `None`: not launched yet.
    pub(super) record: Option<Arc<TaskRecord>>,
    pub(super) outcome: Option<OneOffOutcome>,
}

impl Core {
    pub(super) async fn start_one_off(
        &mut self,
        operation: Operation,
        lost: u32,
    ) -> transom_store::typed::Result<()> {
        let task = TaskId::from(ambient::uuid().to_string());
        let operation = Operation {
            task: Some(task.to_string()),
            lost: operation.lost + lost,
            ..operation
        };
        let url = self.delivery_url(&operation).unwrap_or_default();
        let work = match (operation.phase, self.config.settings.engine()) {
            (Phase::Dump, _) => Work::Dump,
            (Phase::Load, Engine::Sql) => Work::Load {
                url,
                sha256: operation.sha256.clone().unwrap_or_default(),
                again: operation.lost > 0,
            },
            _ => Work::Check,
        };
        let one_off = OneOffTask {
            config: Arc::clone(&self.config),
            secrets: Arc::clone(&self.secrets),
            endpoints: self.endpoints(),
            operation: operation.id.clone(),
            work,
        };
        tracing::info!(framework = self.config.name(), %task, phase = operation.phase.as_str(), "starting a one-off task");
        self.store_operation(operation).await?;
        self.drop_one_off();
        self.backup.one_off = Some(OneOff {
            task: task.clone(),
            record: None,
            outcome: None,
        });
        self.scheduler.submit(vec![TaskRequest {
            id: task,
            spec: Arc::new(one_off.run_spec()),
            not_before: None,
            priority: 0,
            reservation: None,
            trace: TraceContext::default(),
        }]);
        Ok(())
    }

    /// Ends the one-off task, which is no longer needed.
    pub(super) fn drop_one_off(&mut self) {
        let Some(one_off) = self.backup.one_off.take() else {
            return;
        };
        if one_off.record.as_ref().is_some_and(|record| record.is_terminal()) {
            self.scheduler.purge(vec![one_off.task]);
        } else {
            self.orphans.insert(one_off.task.clone());
            self.scheduler.kill(vec![one_off.task], None);
        }
    }

    /// Handles a changed record of a one-off task.
    pub(in crate::core) fn handle_one_off_change(&mut self, record: &Arc<TaskRecord>) {
        if let Some(one_off) = &mut self.backup.one_off
            && one_off.task == record.id
        {
            one_off.record = Some(Arc::clone(record));
        }
    }

    /// Handles a request of a one-off task that the scheduler has dropped.
    pub(in crate::core) fn handle_one_off_drop(&mut self, task: &TaskId, reason: &str) {
        if let Some(one_off) = &mut self.backup.one_off
            && one_off.task == *task
        {
            one_off.outcome = Some(OneOffOutcome::Lost(reason.to_owned()));
        }
    }

    /// Counts a task of the datastore that has ended. In the phases that start a kvstore, each such
    /// end is a failure.
    pub(in crate::core) fn datastore_failed(&mut self) {
        self.backup.failures += 1;
    }

    /// Reads the result of a one-off task that has ended, and then its dump.
    pub(super) fn read_sandbox(&mut self, operation: &Operation) {
        let now = Instant::now();
        let work = &mut self.backup;
        if work.reading || work.read_at.is_some_and(|at| at > now) {
            return;
        }
        let reads_dump = operation.phase == Phase::Read;
        let ended = |one_off: &OneOff| one_off.record.as_ref().is_some_and(|record| record.is_terminal());
        let record = work
            .one_off
            .as_ref()
            .filter(|one_off| ended(one_off))
            .and_then(|one_off| one_off.record.clone());
        let Some(record) = record else {
            if reads_dump && work.read.is_none() {
                work.read = Some(Err("the task with the dump is not known any more".to_owned()));
            }
            return;
        };
        let known = work
            .one_off
            .as_ref()
            .is_some_and(|one_off| one_off.outcome.is_some());
        if (reads_dump && work.read.is_some()) || (!reads_dump && known) {
            return;
        }
        let Some(framework) = self.scheduler.subscription().framework_id else {
            return;
        };
        work.read_at = None;
        let cluster = Arc::clone(&self.service.cluster);
        let (agent, task) = (record.agent.clone(), record.id.clone());
        if !reads_dump {
            work.reading = true;
            return self.spawn_job(async move {
                let read = read_result(&*cluster, &agent, &framework, &task).await;
                JobResult::OneOffResult { task, read }
            });
        }
        let Some(directory) = work.directory.clone() else {
            return;
        };
        work.reading = true;
        let reception = Reception {
            config: Arc::clone(&self.config),
            cluster,
            directory,
            agent,
            framework,
            operation: operation.clone(),
        };
        let id = operation.id.clone();
        self.spawn_job(async move {
            let received = reception.run().await;
            JobResult::Received {
                operation: id,
                received,
            }
        });
    }

    /// Handles the result that was read from the sandbox of a one-off task, or the error.
    pub(in crate::core) fn handle_one_off_result(
        &mut self,
        task: &TaskId,
        read: transom_cluster::Result<Option<Vec<u8>>>,
    ) {
        self.backup.reading = false;
        let Some(one_off) = self
            .backup
            .one_off
            .as_mut()
            .filter(|one_off| one_off.task == *task)
        else {
            return;
        };
        let Some(record) = &one_off.record else { return };
        let message = record
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref());
        let lost = || {
            format!("{} {}", record.state, message.unwrap_or_default())
                .trim_end()
                .to_owned()
        };
        let has_result = matches!(record.state, TaskState::Finished | TaskState::Failed);
        match read {
            Ok(Some(text)) => {
                let ending = script::parse_result(&String::from_utf8_lossy(&text));
                one_off.outcome = Some(ending.unwrap_or_else(|| OneOffOutcome::Lost(lost())));
            }
            Err(error) if has_result => {
                tracing::debug!(%task, error = error_chain(&error), "reading a task's result failed; retrying");
                self.backup.read_at = Some(Instant::now() + READ_RETRY_DELAY);
            }
            Ok(None) | Err(_) => one_off.outcome = Some(OneOffOutcome::Lost(lost())),
        }
    }

    /// Handles the end of the transfer of a dump.
    pub(in crate::core) fn handle_received_dump(
        &mut self,
        operation: &str,
        received: Result<u64, ReceiveError>,
    ) {
        self.backup.reading = false;
        let current = self.backup.operation().is_some_and(|it| it.id == operation);
        if !current {
            return;
        }
        match received {
            Ok(size) => self.backup.read = Some(Ok(size)),
            Err(error @ ReceiveError::Read(_)) => {
                tracing::debug!(error = error_chain(&error), "reading a dump failed; retrying");
                self.backup.read_at = Some(Instant::now() + READ_RETRY_DELAY);
            }
            Err(error) => self.backup.read = Some(Err(error_chain(&error))),
        }
    }
}

/// The result in the sandbox of a task, at most its maximum size; `None`: there is none.
async fn read_result(
    cluster: &dyn Cluster,
    agent: &AgentLocation,
    framework: &FrameworkId,
    task: &TaskId,
) -> transom_cluster::Result<Option<Vec<u8>>> {
    let file = SandboxFile {
        agent,
        framework,
        task,
        path: RESULT,
    };
    let mut result = Vec::new();
    loop {
        let offset = result.len() as u64;
        let length = MAX_RESULT_BYTES.saturating_sub(offset);
        let read = cluster.read_bytes(file, offset, length).await?;
        let Some(read) = read else { return Ok(None) };
        let ended = read.data.is_empty();
        result.extend(read.data);
        if ended || result.len() as u64 >= read.size.min(MAX_RESULT_BYTES) {
            return Ok(Some(result));
        }
    }
}
