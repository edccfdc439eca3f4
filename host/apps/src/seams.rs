//! What the job needs of the scheduler and of the plugins, as traits: the real ones below, scripted ones in tests.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use transom_cluster::TaskId;
use transom_plugins::events::{Decision, Event, OpenError, Query};
use transom_plugins::matcher::{Condition, ConditionError};
use transom_plugins::probe::{Failure, Kind, Outcome, Request, Runner};
use transom_plugins::{CallError, Change, Plugins};
use transom_scheduler::{Connection, Scheduler, Tasks, Waiting, Wanted};

/// The scheduler's side: tasks.
#[async_trait]
pub(crate) trait Launcher: Debug + Send + Sync {
    async fn want(&self, tasks: Vec<Wanted>) -> transom_scheduler::Result<()>;
    async fn release(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> transom_scheduler::Result<()>;
    async fn forget(&self, tasks: Vec<TaskId>) -> transom_scheduler::Result<()>;
    fn tasks(&self) -> Arc<Tasks>;
    fn waiting(&self) -> Vec<Waiting>;
    fn connection(&self) -> Connection;
}

#[async_trait]
impl Launcher for Scheduler {
    async fn want(&self, tasks: Vec<Wanted>) -> transom_scheduler::Result<()> {
        Scheduler::want(self, tasks).await
    }

    async fn release(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> transom_scheduler::Result<()> {
        Scheduler::release(self, tasks, grace).await
    }

    async fn forget(&self, tasks: Vec<TaskId>) -> transom_scheduler::Result<()> {
        Scheduler::forget(self, tasks).await
    }

    fn tasks(&self) -> Arc<Tasks> {
        Scheduler::tasks(self)
    }

    fn waiting(&self) -> Vec<Waiting> {
        Scheduler::waiting(self)
    }

    fn connection(&self) -> Connection {
        Scheduler::connection(self)
    }
}

/// The plugins' side: decisions that components make.
#[async_trait]
pub(crate) trait Policies: Debug + Send + Sync {
    async fn check_conditions(&self, conditions: &[Condition]) -> Result<Vec<ConditionError>, CallError>;
    async fn open_view(&self, query: Query) -> Result<Arc<dyn View>, OpenError>;
    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        runner: Option<Arc<dyn Runner>>,
    ) -> Result<Outcome, Failure>;
    fn changes(&self) -> broadcast::Receiver<Change>;
}

/// What one event query sees.
#[async_trait]
pub(crate) trait View: Debug + Send + Sync {
    async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError>;
}

#[async_trait]
impl View for transom_plugins::events::View {
    async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError> {
        transom_plugins::events::View::decide(self, events).await
    }
}

#[async_trait]
impl Policies for Plugins {
    async fn check_conditions(&self, conditions: &[Condition]) -> Result<Vec<ConditionError>, CallError> {
        Plugins::check_conditions(self, conditions).await
    }

    async fn open_view(&self, query: Query) -> Result<Arc<dyn View>, OpenError> {
        Ok(Arc::new(Plugins::open_view(self, query).await?))
    }

    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        runner: Option<Arc<dyn Runner>>,
    ) -> Result<Outcome, Failure> {
        Plugins::probe(self, kind, request, runner).await
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        Plugins::changes(self)
    }
}
