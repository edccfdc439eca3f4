//! A service of jobs around the real scheduler: each job is stored before it is accepted, runs once,
//! and has its end stored before its task is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use prometheus_client::registry::Registry;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, LeadershipGuard, TaskId, v1};
use transom_scheduler::{
    BuildTask, Event, ExecutorResources, Metrics, Placement, RunSpec, Scheduler, SchedulerApi, TaskRecord,
    TaskRequest, simulation,
};
use transom_store::{Error, Expect, LeaseTerm, Store, Term};

use crate::candidate::Board;

/// The prefix of the scheduler's keys.
pub(crate) const PREFIX: &str = "jobs";
/// The prefix of accepted jobs, and of the ends of jobs.
pub(crate) const ACCEPTED: &str = "accepted/";
pub(crate) const ENDED: &str = "ended/";
/// The end of a job that was killed before its launch.
const NEVER_LAUNCHED: &str = "never launched";
/// How often requests of clients are read, and failed calls are repeated, in virtual time.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Guard(LeaseTerm);

impl LeadershipGuard for Guard {
    fn remaining(&self) -> Duration {
        self.0.remaining()
    }
}

#[derive(Debug)]
struct Builder;

impl BuildTask for Builder {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        Some(v1::TaskInfo {
            name: placement.task.to_string(),
            command: Some(v1::CommandInfo {
                value: Some("true".to_owned()),
                ..v1::CommandInfo::default()
            }),
            ..v1::TaskInfo::default()
        })
    }
}

/// The service during one term.
struct Service {
    store: Arc<dyn Store>,
    scheduler: Scheduler,
    spec: Arc<RunSpec>,
    board: Board,
    /// Accepted jobs, of this term and of earlier ones.
    accepted: BTreeSet<String>,
    /// Jobs that are not accepted.
    requested: Vec<String>,
    /// Ends that are not stored.
    ended: BTreeMap<String, String>,
}

/// Runs jobs until `stop` is cancelled.
pub(crate) async fn serve(term: &Term, cluster: &Client, board: &Board, stop: &CancellationToken) {
    let store = term.fenced_store();
    let framework = v1::FrameworkInfo {
        user: "root".to_owned(),
        name: PREFIX.to_owned(),
        ..v1::FrameworkInfo::default()
    };
    let metrics = Metrics::register(&mut Registry::default(), PREFIX);
    let client = cluster.with_guard(Arc::new(Guard(term.lease_term())));
    let token = stop.child_token();
    let started = async {
        loop {
            let (client, framework, store) = (client.clone(), framework.clone(), Arc::clone(&store));
            match simulation::start(client, framework, store, PREFIX, metrics.clone(), token.clone()).await {
                Ok(started) => return started,
                // Virtual time.
                Err(_) => sleep(INTERVAL).await,
            }
        }
    };
    let Some((scheduler, mut events)) = stop.run_until_cancelled(started).await else {
        return;
    };
    let mut service = Service {
        store,
        scheduler: scheduler.clone(),
        spec: spec(),
        board: board.clone(),
        accepted: BTreeSet::new(),
        requested: Vec::new(),
        ended: BTreeMap::new(),
    };
    let serving = async {
        service.resume().await;
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Event::Updated(record)) => service.updated(&record),
                    Some(Event::NeverLaunched(task)) => {
                        service.ended.insert(task.to_string(), NEVER_LAUNCHED.to_owned());
                    }
                    Some(_) => {}
                    None => return,
                },
                () = sleep(INTERVAL) => {}
            }
            service.write().await;
        }
    };
    stop.run_until_cancelled(serving).await;
    token.cancel();
    scheduler.stopped().await;
}

impl Service {
    /// Submits the accepted jobs that have neither ended nor a record.
    async fn resume(&mut self) {
        let (accepted, ended) = loop {
            match (self.store.scan(ACCEPTED).await, self.store.scan(ENDED).await) {
                (Ok(accepted), Ok(ended)) => break (accepted, ended),
                _ => sleep(INTERVAL).await,
            }
        };
        let ended: Vec<&str> = ended
            .iter()
            .filter_map(|entry| entry.key.strip_prefix(ENDED))
            .collect();
        let tasks = self.scheduler.tasks();
        for record in tasks.values() {
            if ended.contains(&record.id.as_str()) {
                self.scheduler.purge(vec![record.id.clone()]);
            } else {
                self.updated(record);
            }
        }
        let accepted = accepted
            .iter()
            .filter_map(|entry| entry.key.strip_prefix(ACCEPTED));
        for job in accepted {
            self.accepted.insert(job.to_owned());
            if !ended.contains(&job) && tasks.get(&TaskId::from(job)).is_none() {
                self.submit(job);
            }
        }
    }

    fn submit(&self, job: &str) {
        self.scheduler.submit(vec![TaskRequest {
            id: job.into(),
            spec: Arc::clone(&self.spec),
            not_before: None,
            priority: 0,
            reservation: None,
            trace: transom_common::trace::TraceContext::default(),
        }]);
    }

    fn updated(&mut self, record: &TaskRecord) {
        if record.is_terminal() {
            let state = record.state.to_string();
            self.ended.insert(record.id.to_string(), state);
        }
    }

    /// Stores what is not stored yet. What fails is repeated later.
    async fn write(&mut self) {
        let killed = self.board.with(|observed| std::mem::take(&mut observed.killed));
        if !killed.is_empty() {
            let killed = killed.iter().map(|job| job.as_str().into());
            self.scheduler.kill(killed.collect(), None);
        }
        self.requested.extend(
            self.board
                .with(|observed| std::mem::take(&mut observed.requested)),
        );
        for job in std::mem::take(&mut self.requested) {
            let key = format!("{ACCEPTED}{job}");
            match self.store.put(&key, Bytes::new(), Expect::Absent).await {
                // It may have been stored by an earlier attempt.
                Ok(_) | Err(Error::Conflict { .. }) => {
                    if self.accepted.insert(job.clone()) {
                        self.submit(&job);
                    }
                    self.board.with(|observed| observed.accepted.push(job));
                }
                Err(_) => self.requested.push(job),
            }
        }
        for (job, state) in std::mem::take(&mut self.ended) {
            let key = format!("{ENDED}{job}");
            match self
                .store
                .put(&key, Bytes::from(state.clone()), Expect::Absent)
                .await
            {
                Ok(_) | Err(Error::Conflict { .. }) => self.scheduler.purge(vec![job.as_str().into()]),
                Err(_) => drop(self.ended.insert(job, state)),
            }
        }
    }
}

fn spec() -> Arc<RunSpec> {
    Arc::new(RunSpec {
        id: PREFIX.to_owned(),
        version: String::new(),
        instances: 1,
        cpus: 0.5,
        mem: 100.0,
        disk: 0.0,
        gpus: 0.0,
        avoid_gpus: false,
        ports: Vec::new(),
        role: None,
        volumes: Vec::new(),
        constraints: Vec::new(),
        roles: Vec::new(),
        executor: ExecutorResources::default(),
        build: Arc::new(Builder).into(),
    })
}
