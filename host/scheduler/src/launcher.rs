//! What jobs need of a scheduler, so that their tests can do without one.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use transom_cluster::TaskId;

use crate::{Connection, Result, Scheduler, Tasks, Waiting, Wanted};

/// A scheduler, as jobs use it. Theirs is [`Scheduler`]; tests of theirs have scripted ones.
#[async_trait]
pub trait Launcher: Debug + Send + Sync {
    /// See [`Scheduler::want`].
    async fn want(&self, tasks: Vec<Wanted>) -> Result<()>;
    /// See [`Scheduler::release`].
    async fn release(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> Result<()>;
    /// See [`Scheduler::forget`].
    async fn forget(&self, tasks: Vec<TaskId>) -> Result<()>;
    /// See [`Scheduler::tasks`].
    fn tasks(&self) -> Arc<Tasks>;
    /// See [`Scheduler::waiting`].
    fn waiting(&self) -> Vec<Waiting>;
    /// See [`Scheduler::connection`].
    fn connection(&self) -> Connection;
}

#[async_trait]
impl Launcher for Scheduler {
    async fn want(&self, tasks: Vec<Wanted>) -> Result<()> {
        Scheduler::want(self, tasks).await
    }

    async fn release(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> Result<()> {
        Scheduler::release(self, tasks, grace).await
    }

    async fn forget(&self, tasks: Vec<TaskId>) -> Result<()> {
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
