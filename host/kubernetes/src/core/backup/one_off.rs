//! The one-off tasks of backups and restores, and the reading of their sandboxes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use transom_cluster::v1::TaskState;
use transom_cluster::{FrameworkId, TaskId};
use transom_common::error_chain;
use transom_common::trace::TraceContext;
use transom_scheduler::{AgentLocation, TaskRecord, TaskRequest};

use crate::backup::phase::Ending;
use crate::backup::receive::{ReceiveError, Reception};
use crate::backup::script::{self, MAX_RESULT_BYTES, RESULT};
use crate::backup::{Operation, Phase};
use crate::config::Engine;
use crate::core::Core;
use crate::core::finding::Finding;
use crate::dependencies::{Cluster, SandboxFile};
use crate::task::{Job, Work};

/// The time to the next attempt to read from a sandbox.
const READ_RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct OneOff {
    pub(super) task: TaskId,
    /// The scheduler's record; `None`: not launched yet.
    pub(super) record: Option<Arc<TaskRecord>>,
    pub(super) ending: Option<Ending>,
}

impl Core {
    pub(super) async fn start_job(
        &mut self,
        operation: Operation,
        lost: u32,
    ) -> transom_store::typed::Result<()> {
        let task = TaskId::from(uuid::Uuid::new_v4().to_string());
        let operation = Operation {
            task: Some(task.to_string()),
            lost: operation.lost + lost,
            ..operation
        };
        let url = self.delivery_url(&operation).unwrap_or_default();
        let work = match (operation.phase, self.config.datastore.engine) {
            (Phase::Dump, _) => Work::Dump,
            (Phase::Load, Engine::Sql) => Work::Load {
                url,
                sha256: operation.sha256.clone().unwrap_or_default(),
                again: operation.lost > 0,
            },
            _ => Work::Check,
        };
        let job = Job {
            config: Arc::clone(&self.config),
            endpoints: self.endpoints(),
            operation: operation.id.clone(),
            work,
        };
        tracing::info!(framework = self.config.name, %task, phase = operation.phase.as_str(), "starting a one-off task");
        self.drop_job();
        self.keep(operation).await?;
        self.backup.job = Some(OneOff {
            task: task.clone(),
            record: None,
            ending: None,
        });
        self.scheduler.submit(vec![TaskRequest {
            id: task,
            spec: Arc::new(job.run_spec()),
            not_before: None,
            priority: 0,
            reservation: None,
            trace: TraceContext::default(),
        }]);
        Ok(())
    }

    /// Ends the one-off task, which is no longer needed.
    pub(super) fn drop_job(&mut self) {
        let Some(job) = self.backup.job.take() else { return };
        if job.record.as_ref().is_some_and(|record| record.is_terminal()) {
            self.scheduler.purge(vec![job.task]);
        } else {
            self.orphans.insert(job.task.clone());
            self.scheduler.kill(vec![job.task], None);
        }
    }

    /// Handles a changed record of a one-off task.
    pub(in crate::core) fn job_changed(&mut self, record: &Arc<TaskRecord>) {
        if let Some(job) = &mut self.backup.job
            && job.task == record.id
        {
            job.record = Some(Arc::clone(record));
        }
    }

    /// Handles a request of a one-off task that the scheduler has dropped.
    pub(in crate::core) fn job_dropped(&mut self, task: &TaskId, reason: &str) {
        if let Some(job) = &mut self.backup.job
            && job.task == *task
        {
            job.ending = Some(Ending::Lost(reason.to_owned()));
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
        let ended = |job: &OneOff| job.record.as_ref().is_some_and(|record| record.is_terminal());
        let record = work
            .job
            .as_ref()
            .filter(|job| ended(job))
            .and_then(|job| job.record.clone());
        let Some(record) = record else {
            if reads_dump && work.read.is_none() {
                work.read = Some(Err("the task with the dump is not known any more".to_owned()));
            }
            return;
        };
        let known = work.job.as_ref().is_some_and(|job| job.ending.is_some());
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
            return self.job(async move {
                let read = read_result(&*cluster, &agent, &framework, &task).await;
                Finding::JobResult { task, read }
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
        self.job(async move {
            let received = reception.run().await;
            Finding::Received {
                operation: id,
                received,
            }
        });
    }

    /// Handles the result that was read from the sandbox of a one-off task, or the error.
    pub(in crate::core) fn job_result(
        &mut self,
        task: &TaskId,
        read: transom_cluster::Result<Option<Vec<u8>>>,
    ) {
        self.backup.reading = false;
        let Some(job) = self.backup.job.as_mut().filter(|job| job.task == *task) else {
            return;
        };
        let Some(record) = &job.record else { return };
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
                let ending = script::ending(&String::from_utf8_lossy(&text));
                job.ending = Some(ending.unwrap_or_else(|| Ending::Lost(lost())));
            }
            Err(error) if has_result => {
                tracing::debug!(%task, error = error_chain(&error), "reading a task's result failed; retrying");
                self.backup.read_at = Some(Instant::now() + READ_RETRY);
            }
            Ok(None) | Err(_) => job.ending = Some(Ending::Lost(lost())),
        }
    }

    /// Handles the end of the transfer of a dump.
    pub(in crate::core) fn received(&mut self, operation: &str, received: Result<u64, ReceiveError>) {
        self.backup.reading = false;
        let current = self.backup.operation().is_some_and(|it| it.id == operation);
        if !current {
            return;
        }
        match received {
            Ok(size) => self.backup.read = Some(Ok(size)),
            Err(error @ ReceiveError::Read(_)) => {
                tracing::debug!(error = error_chain(&error), "reading a dump failed; retrying");
                self.backup.read_at = Some(Instant::now() + READ_RETRY);
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
