//! The scheduler as a trait, so that the tests of services can script one.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use transom_cluster::TaskId;

use crate::{PendingTask, Result, Scheduler, SubscriptionStatus, TaskRequest, Tasks};

/// Implemented by [`Scheduler`] and by scripted schedulers in tests.
#[async_trait]
pub trait SchedulerApi: Debug + Send + Sync {
    /// See [`Scheduler::submit`].
    async fn submit(&self, tasks: Vec<TaskRequest>) -> Result<()>;
    /// See [`Scheduler::kill`].
    async fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> Result<()>;
    /// See [`Scheduler::purge`].
    async fn purge(&self, tasks: Vec<TaskId>) -> Result<()>;
    /// See [`Scheduler::tasks`].
    fn tasks(&self) -> Arc<Tasks>;
    /// See [`Scheduler::pending`].
    fn pending(&self) -> Vec<PendingTask>;
    /// See [`Scheduler::subscription`].
    fn subscription(&self) -> SubscriptionStatus;
}

#[async_trait]
impl SchedulerApi for Scheduler {
    async fn submit(&self, tasks: Vec<TaskRequest>) -> Result<()> {
        Scheduler::submit(self, tasks).await
    }

    async fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> Result<()> {
        Scheduler::kill(self, tasks, grace).await
    }

    async fn purge(&self, tasks: Vec<TaskId>) -> Result<()> {
        Scheduler::purge(self, tasks).await
    }

    fn tasks(&self) -> Arc<Tasks> {
        Scheduler::tasks(self)
    }

    fn pending(&self) -> Vec<PendingTask> {
        Scheduler::pending(self)
    }

    fn subscription(&self) -> SubscriptionStatus {
        Scheduler::subscription(self)
    }
}
