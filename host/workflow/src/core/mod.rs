//! The actor that owns all jobs that have not ended.
//!
//! Requests and events of the scheduler come in; a job is stored before its request is answered; every change is shown in
//! the [`Table`] at once. What the cluster says is the scheduler's to remember, until a run has ended: then its end is stored
//! here and the scheduler's record goes ([`outbox`]). The core waits for the store only to take a job in.

pub(crate) mod command;
mod follow;
mod outbox;
mod persist;
mod run;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::TaskId;
use transom_scheduler::{Event, Launcher, Tasks, Wanted};
use transom_store::Store;

use crate::Result;
use crate::config::Config;
use crate::ids::{JobId, Number};
use crate::launch::{Book, Live, Sorter};
use crate::metrics::Metrics;
use crate::model::Request;
use crate::state::Shown;
use crate::survey::Sorts;
use crate::table::Table;
use command::{Command, Refusal, Reply};
use outbox::{Demands, Leftovers};
use persist::{JobRecord, Shelf};
use run::Run;

/// How often time alone makes a difference.
const TICK: Duration = Duration::from_secs(1);
/// Requests that are taken in together.
const MOST_TOGETHER: usize = 512;
/// Demands, leftovers and answers on their way.
const OUTBOX: usize = 1;
/// Ended jobs that are remembered at most, however young they are.
const MOST_ENDED: usize = 1_000_000;
/// Of those, how many are forgotten at once.
const MOST_FORGOTTEN: usize = 5_000;

/// What the core is made of.
pub(crate) struct Parts {
    pub(crate) scheduler: Arc<dyn Launcher>,
    pub(crate) events: BoxStream<'static, Event>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) table: Arc<Table>,
    pub(crate) book: Arc<Book>,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) sorts: watch::Sender<Sorts>,
}

/// What was stored, read back before anything starts.
pub(crate) struct Stored {
    shelf: Shelf,
    records: Vec<JobRecord>,
    term: u64,
}

impl Stored {
    /// Reads everything, and counts this start.
    pub(crate) async fn load(store: Arc<dyn Store>, prefix: &str) -> Result<Self> {
        let shelf = Shelf::new(store, prefix);
        let records = shelf.load().await?;
        let term = shelf.next_term().await?;
        Ok(Self { shelf, records, term })
    }
}

/// A run whose end is stored.
type Ended = (Timestamp, JobId, TaskId);

/// The actor.
struct Core {
    shelf: Shelf,
    config: Config,
    table: Arc<Table>,
    book: Arc<Book>,
    sorter: Sorter,
    metrics: Metrics,
    /// Jobs that have not ended, by the cluster's id of the run.
    runs: HashMap<TaskId, Run>,
    /// Runs that have ended for clients and not for the scheduler, which is to kill them.
    strays: HashSet<TaskId>,
    /// Runs whose end is stored, in the order in which that happened: when they ended, whose they are.
    ended: VecDeque<Ended>,
    /// The cluster's ids of all runs that are stored: none of them is used again.
    remembered: HashSet<TaskId>,
    /// Runs that the store may have taken, and nobody was promised.
    doubtful: Vec<TaskId>,
    last: Number,
    demands: Demands,
    leftovers: Leftovers,
    /// What jobs wait for.
    sorts: watch::Sender<Sorts>,
}

/// Starts the core; it ends with `token`, or when the scheduler has stopped. The future returns when it has ended.
pub(crate) fn start(
    stored: Stored,
    parts: Parts,
    tracker: &TaskTracker,
    token: CancellationToken,
) -> impl Future<Output = ()> {
    let Parts {
        scheduler,
        mut events,
        mut commands,
        table,
        book,
        config,
        metrics,
        sorts,
    } = parts;
    let sorter = Sorter::new(Arc::clone(&book), Arc::new(config.defaults.clone()));
    let mut core = Core {
        shelf: stored.shelf.clone(),
        config,
        table,
        book,
        sorter,
        metrics,
        runs: HashMap::new(),
        strays: HashSet::new(),
        ended: VecDeque::new(),
        remembered: HashSet::new(),
        doubtful: Vec::new(),
        last: Number::before(stored.term),
        demands: Demands::default(),
        leftovers: Leftovers::default(),
        sorts,
    };
    core.rebuild(stored.records, &scheduler.tasks());
    core.say_what_is_waited_for();
    let (demands_in, demands) = mpsc::channel(OUTBOX);
    let (leftovers_in, leftovers) = mpsc::channel(OUTBOX);
    let (dropped_in, mut dropped) = mpsc::channel(OUTBOX);
    let (settled_in, mut settled) = mpsc::channel(OUTBOX);
    tracker.spawn(outbox::demand(
        Arc::clone(&scheduler),
        demands,
        dropped_in,
        token.clone(),
    ));
    tracker.spawn(outbox::tidy(
        scheduler,
        stored.shelf,
        leftovers,
        settled_in,
        token.clone(),
    ));
    let ended = CancellationToken::new();
    let end = ended.clone().drop_guard();
    tracker.spawn(async move {
        let _end = end;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => break,
                event = events.next() => {
                    let Some(event) = event else {
                        tracing::info!("the scheduler has stopped, so jobs are no longer managed");
                        break;
                    };
                    core.event(&event);
                }
                Some(tasks) = dropped.recv() => core.dropped(&tasks),
                Some(ended) = settled.recv() => core.ended.extend(ended),
                Ok(permit) = demands_in.reserve(), if !core.demands.is_empty() => {
                    permit.send(std::mem::take(&mut core.demands));
                }
                Ok(permit) = leftovers_in.reserve(), if !core.leftovers.is_empty() => {
                    permit.send(std::mem::take(&mut core.leftovers));
                }
                Some(command) = commands.recv() => core.commands(command, &mut commands).await,
                _ = ticks.tick() => core.tick(Timestamp::now()).await,
            }
        }
        core.metrics.step_down();
    });
    ended.cancelled_owned()
}

impl Core {
    /// Puts together what was stored and what the scheduler knows.
    fn rebuild(&mut self, records: Vec<JobRecord>, tasks: &Tasks) {
        self.table.clear();
        self.table.begin(self.last);
        let mut ended = Vec::new();
        // Older runs come first, so that the newest of each job is what is shown.
        for record in records {
            self.remembered.insert(record.task.clone());
            if let Some(end) = &record.end {
                ended.push((end.at, record.id.clone(), record.task.clone()));
                self.table.put(run::ended_view(&record, end));
            } else {
                self.resume(record, tasks);
            }
        }
        ended.sort_by_key(|(at, ..)| *at);
        self.ended.extend(ended);
        for (task, record) in tasks {
            if !self.runs.contains_key(task) {
                if record.is_terminal() {
                    self.leftovers.forget.push(task.clone());
                } else {
                    // Ended for clients, or of a job that nobody was promised.
                    tracing::info!(%task, "a task that is not wanted any more is killed");
                    self.strays.insert(task.clone());
                    self.demands.release(task.clone());
                }
            }
        }
    }

    /// Takes up a run that had not ended.
    fn resume(&mut self, record: JobRecord, tasks: &Tasks) {
        let Some(spec) = record.spec.clone() else { return };
        let (task, killed) = (record.task.clone(), record.killed);
        self.admit(Run::new(record, Arc::clone(&spec)), spec);
        match tasks.get(&task) {
            Some(known) => {
                if killed && !known.killing {
                    self.demands.release(task.clone());
                }
                self.follow(known);
            }
            None if killed => self.finish(&task, Shown::Killed, Some(run::NEVER_LAUNCHED.to_owned())),
            None => self.want(&task),
        }
    }

    fn next_number(&mut self) -> Number {
        self.last = self.last.next();
        self.last
    }

    /// Requests that are there, jobs to be taken in together.
    async fn commands(&mut self, first: Command, more: &mut mpsc::Receiver<Command>) {
        let (mut jobs, mut kills) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Queue { request, reply } => jobs.push((request, reply)),
                Command::Kill { id, reply } => kills.push((id, reply)),
            }
            next = if jobs.len() + kills.len() < MOST_TOGETHER {
                more.try_recv().ok()
            } else {
                None
            };
        }
        if !jobs.is_empty() {
            self.queue(jobs).await;
        }
        for (id, reply) in kills {
            let outcome = self.kill(&id).await;
            // Whoever asked may have gone.
            let _ = reply.send(outcome);
        }
        if self.sorter.take_news() {
            self.say_what_is_waited_for();
        }
    }

    /// Tells the survey which conditions waiting jobs have.
    fn say_what_is_waited_for(&self) {
        let now = self.sorter.waiting_for();
        self.sorts.send_if_modified(|sorts| {
            let same = sorts.iter().eq(now.iter().copied());
            if !same {
                *sorts = now.into_iter().cloned().collect();
            }
            !same
        });
    }

    async fn queue(&mut self, jobs: Vec<(Box<Request>, Reply<JobId>)>) {
        let (mut records, mut replies): (Vec<JobRecord>, Vec<Vec<Reply<JobId>>>) = (Vec::new(), Vec::new());
        // What this batch has already: the place of each id's newest run, and the tasks.
        let (mut ids, mut tasks) = (HashMap::<JobId, usize>::new(), HashSet::new());
        for (request, reply) in jobs {
            let number = self.next_number();
            let id = match request.id {
                Some(id) => id,
                None => match JobId::parse(&format!("job.{number}")) {
                    Ok(id) => id,
                    Err(_) => continue,
                },
            };
            let known = self.table.get(&id);
            let in_batch = ids.get(&id).copied();
            // A request that is sent again, because its answer was lost, queues nothing new, also when
            // its run has ended since.
            if let Some(key) = &request.request_key {
                if let Some(index) = in_batch {
                    if records[index].request_key.as_ref() == Some(key) {
                        replies[index].push(reply);
                        continue;
                    }
                } else if known.as_ref().and_then(|view| view.request_key.as_ref()) == Some(key) {
                    let _ = reply.send(Ok(id));
                    continue;
                }
            }
            let lives = known.is_some_and(|view| !view.state.is_final()) || in_batch.is_some();
            let refusal = if request.unique && lives {
                Some(Refusal::Exists(id.clone()))
            } else if self.runs.len() + records.len() >= self.config.max_jobs {
                Some(Refusal::Full(self.config.max_jobs))
            } else {
                None
            };
            if let Some(refusal) = refusal {
                let _ = reply.send(Err(refusal));
                continue;
            }
            let taken = |task: &TaskId| self.is_taken(task) || tasks.contains(task);
            let task = id.task(number, taken);
            ids.insert(id.clone(), records.len());
            tasks.insert(task.clone());
            records.push(JobRecord {
                id,
                task,
                number,
                queued_at: Timestamp::now(),
                request_key: request.request_key,
                spec: Some(Arc::new(request.spec)),
                killed: false,
                end: None,
            });
            replies.push(vec![reply]);
        }
        match self.shelf.put(&records).await {
            Ok(()) => {
                for (record, replies) in records.into_iter().zip(replies) {
                    let (id, task) = (record.id.clone(), record.task.clone());
                    if let Some(spec) = record.spec.clone() {
                        self.admit(Run::new(record, Arc::clone(&spec)), spec);
                        self.want(&task);
                        self.metrics.jobs_queued.inc();
                    }
                    for reply in replies {
                        let _ = reply.send(Ok(id.clone()));
                    }
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for reply in replies.into_iter().flatten() {
                    let _ = reply.send(Err(Refusal::Store(Arc::clone(&error))));
                }
                // The store may have taken them without saying so: nobody was promised them.
                self.doubtful
                    .extend(records.into_iter().map(|record| record.task));
            }
        }
    }

    /// Whether a run that is remembered, here or by the scheduler, has this id.
    fn is_taken(&self, task: &TaskId) -> bool {
        self.remembered.contains(task) || self.strays.contains(task) || self.doubtful.contains(task)
    }

    /// Shows a run that waits, and lets the launch find it.
    fn admit(&mut self, run: Run, spec: Arc<crate::model::Spec>) {
        let number = self.next_number();
        let task = run.record.task.clone();
        let live = Live {
            id: run.record.id.clone(),
            queued_at: run.record.queued_at,
            spec,
        };
        self.book.insert(task.clone(), Arc::new(live));
        self.remembered.insert(task.clone());
        self.table.put(run.view(number));
        self.runs.insert(
            task,
            Run {
                changed: number,
                ..run
            },
        );
    }

    fn want(&mut self, task: &TaskId) {
        let Some(run) = self.runs.get(task) else { return };
        let spec = self.sorter.run_spec(&run.spec);
        self.demands.want(Wanted {
            id: task.clone(),
            spec,
            not_before: None,
            priority: run.spec.priority,
        });
    }

    /// Ends a job's newest run. What was launched ends when the cluster says so.
    async fn kill(&mut self, id: &JobId) -> std::result::Result<Shown, Refusal> {
        let view = self.table.get(id).ok_or_else(|| Refusal::NoJob(id.clone()))?;
        let Some(run) = self.runs.get_mut(&view.task) else {
            return Ok(view.state);
        };
        if !run.record.killed {
            let killed = JobRecord {
                killed: true,
                ..run.record.clone()
            };
            let stored = self.shelf.put(std::slice::from_ref(&killed)).await;
            stored.map_err(|error| Refusal::Store(Arc::new(error)))?;
            run.record = killed;
        }
        self.let_go(&view.task, Shown::Killed, run::NEVER_LAUNCHED.to_owned());
        Ok(self.table.get(id).map_or(view.state, |view| view.state))
    }

    /// Releases a run; should it never have been launched, it ends as told.
    fn let_go(&mut self, task: &TaskId, state: Shown, message: String) {
        if self.demands.take_back(task) {
            return self.finish(task, state, Some(message));
        }
        if let Some(run) = self.runs.get_mut(task) {
            run.if_dropped = Some((state, message));
            self.demands.release(task.clone());
        }
    }

    /// Released before they were launched.
    fn dropped(&mut self, tasks: &[TaskId]) {
        for task in tasks {
            if self.strays.remove(task) {
                self.leftovers.forget.push(task.clone());
            }
            let outcome = self.runs.get_mut(task).and_then(|run| run.if_dropped.take());
            if let Some((state, message)) = outcome {
                self.finish(task, state, Some(message));
            }
        }
    }

    /// Shows a run, unless its job has been queued again since.
    fn show(&self, view: crate::table::View) {
        let newest = self
            .table
            .get(&view.id)
            .is_none_or(|shown| shown.task == view.task);
        if newest {
            self.table.put(view);
        }
    }

    /// Makes the gauges true.
    fn count(&self) {
        let running = self.runs.values().filter(|run| run.cluster.is_some()).count();
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.jobs_running.set(whole(running));
        self.metrics.jobs_pending.set(whole(self.runs.len() - running));
        self.metrics.jobs_retained.set(whole(self.table.len()));
    }
}

#[cfg(test)]
mod tests;
