//! The actor that owns all active jobs.
//!
//! It takes requests and events of the scheduler. A job is stored before its request is answered;
//! every change is published in the [`JobIndex`] immediately. The scheduler's task record holds the
//! state of a task until its run ends. The core then stores the end ([`end_writer`]), and only
//! after that purges the task record. If the task record does not contain the end, as for a job
//! that was never launched, clients see the end only after it is stored. The core waits for the
//! store only to queue or kill a job, and to delete expired ones.

pub(crate) mod command;
mod end_writer;
mod on_event;
pub(crate) mod persist;
mod run;
pub(crate) mod term;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::TaskId;
use transom_common::ambient;
use transom_common::trace::TraceContext;
use transom_framework::ActorError;
use transom_framework::feasibility::{ConstraintSets, Feasibility};
use transom_scheduler::{Events, SchedulerApi, TaskRequest, Tasks};
use transom_store::Store;
use transom_store::typed::TypedStore;

use crate::Result;
use crate::Settings;
use crate::ids::{ChangeSeq, JobId};
use crate::job_index::{ActiveJob, JobIndex};
use crate::job_state::JobState;
use crate::launch::{self, RunSpecCache};
use crate::metrics::Metrics;
use crate::model::Request;
use command::{Command, Rejection, Reply};
use end_writer::EndWriter;
use persist::{JobRecord, Repository};
use run::{Cause, Run};

/// Interval of the checks for timeouts and expiry.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum requests that are handled together.
const MAX_BATCH: usize = 512;
/// Maximum completed jobs that are kept, regardless of their age.
const MAX_COMPLETED: usize = 1_000_000;
/// Maximum bytes of what clients see of completed jobs, as for [`MAX_COMPLETED`].
const MAX_COMPLETED_BYTES: usize = 256 << 20;
/// The memory of a completed job besides its status.
const COMPLETED_JOB_BYTES: usize = 512;
/// Maximum completed jobs deleted at a time.
const MAX_EXPIRED_PER_TICK: usize = 5_000;

/// The parts of the core.
pub(crate) struct Dependencies {
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) events: Events,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) config: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) constraint_sets: watch::Sender<ConstraintSets>,
    pub(crate) feasibility: Arc<Feasibility>,
}

/// The stored jobs, loaded before the start.
pub(crate) struct Stored {
    repository: Repository,
    records: Vec<JobRecord>,
    term: u64,
}

impl Stored {
    /// Loads the jobs and begins a term.
    pub(crate) async fn load(store: Arc<dyn Store>, prefix: &str, timeout: Duration) -> Result<Self> {
        let store = TypedStore::new(store, prefix).with_timeout(timeout);
        let repository = Repository::new(store);
        let records = repository.load().await?;
        let term = repository.next_term().await?;
        Ok(Self {
            repository,
            records,
            term,
        })
    }
}

/// A run whose end is stored.
struct CompletedRun {
    at: Timestamp,
    id: JobId,
    task: TaskId,
    /// Its approximate memory.
    bytes: usize,
}

/// The actor.
struct Core {
    repository: Repository,
    scheduler: Arc<dyn SchedulerApi>,
    config: Settings,
    index: Arc<JobIndex>,
    run_specs: RunSpecCache,
    metrics: Metrics,
    /// Active runs by Mesos task id.
    runs: HashMap<TaskId, Run>,
    /// The bytes of the definitions of active runs.
    active_bytes: usize,
    /// Runs that have ended for clients although their tasks have not; the scheduler kills these
    /// tasks.
    orphans: HashSet<TaskId>,
    /// Runs whose end is being stored, and whether to purge the scheduler's task record afterwards.
    ending: HashMap<TaskId, bool>,
    end_writer: EndWriter,
    /// Runs whose end is stored, in the order of storing.
    completed: VecDeque<CompletedRun>,
    /// The bytes of all of them.
    completed_bytes: usize,
    /// The Mesos task ids of all stored runs, which must not be reused.
    stored_ids: HashSet<TaskId>,
    /// Runs whose write failed with an unknown result. Their clients received an error, so they are
    /// deleted.
    unconfirmed: Vec<TaskId>,
    last: ChangeSeq,
    /// The constraints of pending jobs.
    constraint_sets: watch::Sender<ConstraintSets>,
    feasibility: Arc<Feasibility>,
}

/// Starts the core; it ends with `token` or with the scheduler. The returned future resolves when
/// it has ended.
pub(crate) fn start(
    stored: Stored,
    dependencies: Dependencies,
    tracker: &TaskTracker,
    token: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let Dependencies {
        scheduler,
        mut events,
        mut commands,
        index,
        config,
        metrics,
        constraint_sets,
        feasibility,
    } = dependencies;
    let run_specs = RunSpecCache::new(Arc::clone(&index), Arc::new(config.clone()));
    let mut core = Core {
        end_writer: EndWriter::new(stored.repository.clone()),
        repository: stored.repository,
        scheduler,
        config,
        index,
        run_specs,
        metrics,
        runs: HashMap::new(),
        active_bytes: 0,
        orphans: HashSet::new(),
        ending: HashMap::new(),
        completed: VecDeque::new(),
        completed_bytes: 0,
        stored_ids: HashSet::new(),
        unconfirmed: Vec::new(),
        last: ChangeSeq::before(stored.term),
        constraint_sets,
        feasibility,
    };
    core.rebuild(stored.records);
    core.publish_pending_constraints();
    let ended = CancellationToken::new();
    let end = ended.clone().drop_guard();
    tracker.spawn(async move {
        let _end = end;
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // In this order none waits for ever: ticks are rare, and an event is handled faster than it is made.
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                _ = ticks.tick() => core.tick(ambient::now()).await,
                event = events.next() => {
                    let Some(event) = event else {
                        tracing::info!("scheduler stopped; jobs are no longer managed");
                        break;
                    };
                    core.handle_event(&event);
                }
                records = core.end_writer.stored() => core.ends_stored(records),
                Some(command) = commands.recv() => core.handle_commands(command, &mut commands).await,
            }
        }
        core.metrics.step_down();
    });
    ended.cancelled_owned()
}

impl Core {
    /// Combines the stored jobs with the tasks of the scheduler.
    fn rebuild(&mut self, records: Vec<JobRecord>) {
        self.index.clear(self.last);
        let tasks = self.scheduler.tasks();
        let (mut ended, mut pending) = (Vec::new(), Vec::new());
        // Older runs come first, so that the newest run of each job replaces them in the index.
        for record in records {
            self.stored_ids.insert(record.task.clone());
            if let Some(end) = &record.end {
                let changed = end.changed.unwrap_or_else(|| self.next_seq());
                self.index.put(run::ended_view(&record, end, changed));
                ended.push(self.completed_run(&record, end.at));
            } else {
                pending.extend(self.resume(record, &tasks));
            }
        }
        self.scheduler.submit(pending);
        ended.sort_by_key(|run| run.at);
        self.completed_bytes += ended.iter().map(|run| run.bytes).sum::<usize>();
        self.completed.extend(ended);
        if self.active_bytes > self.config.max_jobs_bytes {
            tracing::warn!(
                bytes = self.active_bytes,
                max_jobs_bytes = self.config.max_jobs_bytes,
                "the stored active jobs need more bytes than `workflow.max_jobs_bytes`; they continue, and further \
                 jobs are rejected until enough of them have ended"
            );
        }
        let (mut purge, mut kill) = (Vec::new(), Vec::new());
        for (task, record) in tasks.iter() {
            if self.runs.contains_key(task) || self.ending.contains_key(task) {
                continue;
            }
            if record.is_terminal() {
                purge.push(task.clone());
            } else {
                // It has ended for clients, or its job was never confirmed.
                tracing::info!(%task, "killing a task that no active job owns");
                self.orphans.insert(task.clone());
                kill.push(task.clone());
            }
        }
        self.scheduler.purge(purge);
        self.scheduler.kill(kill, None);
    }

    /// Continues an active run. Returns its request if it is pending.
    fn resume(&mut self, record: JobRecord, tasks: &Tasks) -> Option<TaskRequest> {
        let spec = record.spec.clone()?;
        let (task, killed) = (record.task.clone(), record.killed);
        let request = self.admit(Run::new(record, Arc::clone(&spec)), spec, TraceContext::default());
        match tasks.get(&task) {
            Some(record) => {
                if killed && !record.killing {
                    self.scheduler.kill(vec![task], None);
                }
                self.apply_record(record);
                None
            }
            None if killed => {
                self.finish(
                    &task,
                    JobState::Killed,
                    Some(run::NEVER_LAUNCHED.to_owned().into()),
                );
                None
            }
            None => Some(request),
        }
    }

    /// A run that has ended, with the size of what the index shows of it.
    fn completed_run(&self, record: &JobRecord, at: Timestamp) -> CompletedRun {
        let shown = self.index.get(&record.id).filter(|view| view.task == record.task);
        CompletedRun {
            at,
            id: record.id.clone(),
            task: record.task.clone(),
            bytes: COMPLETED_JOB_BYTES + shown.map_or(0, |view| view.bytes()),
        }
    }

    fn next_seq(&mut self) -> ChangeSeq {
        self.last = self.last.next();
        self.last
    }

    /// Handles the requests that have arrived; jobs are stored together.
    async fn handle_commands(&mut self, first: Command, more: &mut mpsc::Receiver<Command>) {
        let (mut jobs, mut kills) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Queue {
                    request,
                    trace,
                    reply,
                } => jobs.push((request, trace, reply)),
                Command::Kill { id, reply } => kills.push((id, reply)),
            }
            next = if jobs.len() + kills.len() < MAX_BATCH {
                more.try_recv().ok()
            } else {
                None
            };
        }
        if !jobs.is_empty() {
            self.queue_jobs(jobs).await;
        }
        for (id, reply) in kills {
            let outcome = self.kill(&id).await;
            // The client may have disconnected.
            let _ = reply.send(outcome);
        }
        if self.run_specs.take_constraints_changed() {
            self.publish_pending_constraints();
        }
    }

    /// Publishes the constraints of pending jobs.
    fn publish_pending_constraints(&self) {
        let now = self.run_specs.pending_constraints().into_iter();
        let now: Vec<_> = now.map(|constraints| launch::expressions(constraints)).collect();
        self.constraint_sets.send_if_modified(|constraint_sets| {
            let is_same = **constraint_sets == *now;
            if !is_same {
                *constraint_sets = now.into();
            }
            !is_same
        });
    }

    async fn queue_jobs(&mut self, jobs: Vec<(Box<Request>, TraceContext, Reply<JobId>)>) {
        let (mut records, mut replies): (Vec<JobRecord>, Vec<Vec<Reply<JobId>>>) = (Vec::new(), Vec::new());
        // For this batch: the index of the newest run of each id, and all task ids.
        let (mut ids, mut tasks) = (HashMap::<JobId, usize>::new(), HashSet::new());
        let known_tasks = self.scheduler.tasks();
        let mut traces = Vec::new();
        let mut batch_bytes = 0;
        for (request, trace, reply) in jobs {
            let number = self.next_seq();
            let id = match request.id {
                Some(id) => id,
                None => match JobId::parse(&format!("job.{number}")) {
                    Ok(id) => id,
                    Err(_) => continue,
                },
            };
            let existing = self.index.get(&id);
            let in_batch = ids.get(&id).copied();
            // A request that is repeated after a lost response queues nothing new, even if its run
            // has ended.
            if let Some(key) = &request.request_key {
                if let Some(index) = in_batch {
                    if records[index].request_key.as_ref() == Some(key) {
                        replies[index].push(reply);
                        continue;
                    }
                } else if existing.as_ref().and_then(|view| view.request_key.as_ref()) == Some(key) {
                    let _ = reply.send(Ok(id));
                    continue;
                }
            }
            let is_active = existing.is_some_and(|view| !view.state.is_final()) || in_batch.is_some();
            let bytes = request.spec.bytes();
            let (needed, max) = (
                self.active_bytes + batch_bytes + bytes,
                self.config.max_jobs_bytes,
            );
            let rejection = if request.unique && is_active {
                Some(Rejection::Exists(id.clone()))
            } else if self.runs.len() + records.len() >= self.config.max_jobs {
                Some(Rejection::QueueFull(self.config.max_jobs))
            } else if needed > max {
                Some(Rejection::QueueBytesFull { needed, max })
            } else {
                None
            };
            if let Some(rejection) = rejection {
                let _ = reply.send(Err(rejection));
                continue;
            }
            batch_bytes += bytes;
            // The scheduler's task record of an earlier run may not be purged yet.
            let is_id_taken =
                |task: &TaskId| self.is_taken(task) || tasks.contains(task) || known_tasks.contains_key(task);
            let task = id.task(number, is_id_taken);
            ids.insert(id.clone(), records.len());
            tasks.insert(task.clone());
            records.push(JobRecord {
                id,
                task,
                number,
                queued_at: ambient::now(),
                request_key: request.request_key,
                spec: Some(Arc::new(request.spec)),
                killed: false,
                end: None,
            });
            replies.push(vec![reply]);
            traces.push(trace);
        }
        match self.repository.put(&records).await {
            Ok(()) => {
                let mut requests = Vec::with_capacity(records.len());
                for ((record, replies), trace) in records.into_iter().zip(replies).zip(traces) {
                    let id = record.id.clone();
                    if let Some(spec) = record.spec.clone() {
                        requests.push(self.admit(Run::new(record, Arc::clone(&spec)), spec, trace));
                        self.metrics.jobs_queued.inc();
                    }
                    for reply in replies {
                        let _ = reply.send(Ok(id.clone()));
                    }
                }
                self.scheduler.submit(requests);
            }
            Err(error) => {
                let error = Arc::new(error);
                for reply in replies.into_iter().flatten() {
                    let _ = reply.send(Err(Rejection::Actor(ActorError::Store(Arc::clone(&error)))));
                }
                // The write may have succeeded although the clients received an error.
                self.unconfirmed
                    .extend(records.into_iter().map(|record| record.task));
            }
        }
    }

    /// Whether a stored, orphaned or unconfirmed run has this task id.
    fn is_taken(&self, task: &TaskId) -> bool {
        self.stored_ids.contains(task) || self.orphans.contains(task) || self.unconfirmed.contains(task)
    }

    /// Publishes a pending run and adds it to the active runs. Returns the request for the
    /// scheduler.
    fn admit(&mut self, run: Run, spec: Arc<crate::model::Spec>, trace: TraceContext) -> TaskRequest {
        let number = self.next_seq();
        let task = run.record.task.clone();
        let request = TaskRequest {
            id: task.clone(),
            spec: self.run_specs.run_spec(&spec),
            not_before: None,
            priority: spec.priority,
            reservation: None,
            trace,
        };
        let job = ActiveJob {
            id: run.record.id.clone(),
            queued_at: run.record.queued_at,
            spec,
        };
        self.active_bytes += run.spec.bytes();
        self.stored_ids.insert(task.clone());
        self.index.admit(run.view(number), job);
        self.runs.insert(
            task,
            Run {
                changed: number,
                ..run
            },
        );
        request
    }

    /// Kills a job's newest run. A launched run ends when the master reports the end of its task.
    async fn kill(&mut self, id: &JobId) -> std::result::Result<JobState, Rejection> {
        let view = self.index.get(id).ok_or_else(|| Rejection::NoJob(id.clone()))?;
        let Some(run) = self.runs.get_mut(&view.task) else {
            return Ok(view.state);
        };
        if !run.record.killed {
            let killed = JobRecord {
                killed: true,
                ..run.record.clone()
            };
            let stored = self.repository.put(std::slice::from_ref(&killed)).await;
            stored.map_err(|error| Rejection::Actor(error.into()))?;
            run.record = killed;
        }
        self.cancel(
            &view.task,
            JobState::Killed,
            run::NEVER_LAUNCHED.to_owned().into(),
        );
        Ok(self.index.get(id).map_or(view.state, |view| view.state))
    }

    /// Kills a run; if it was never launched, it ends with this state and cause.
    fn cancel(&mut self, task: &TaskId, state: JobState, cause: Cause) {
        if let Some(run) = self.runs.get_mut(task) {
            run.outcome_if_not_launched = Some((state, cause));
            self.scheduler.kill(vec![task.clone()], None);
        }
    }

    /// Updates the gauges.
    fn update_gauges(&self) {
        let running = self.runs.values().filter(|run| run.cluster.is_some()).count();
        let gauge_value = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.jobs_running.set(gauge_value(running));
        self.metrics
            .jobs_pending
            .set(gauge_value(self.runs.len() - running));
        self.metrics.jobs_retained.set(gauge_value(self.index.len()));
    }
}

#[cfg(test)]
mod tests;
