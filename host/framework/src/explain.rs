//! Explanations for operators: which agents may run a task of a service and why others may not,
//! which events a query passes, what an attempt of a probe does. Only the leader knows agents, tasks
//! and events, so only the leader can explain.
//!
//! This module makes no decision of its own. The scheduler builds the query that it would send in a
//! matching round, and the matchers in service evaluate it. An explanation has no side effects: its
//! calls count neither in a plugin's metrics nor for its health.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::timeout;
use transom_cluster::TaskId;
use transom_plugin_host::explain::{FilterExplanation, MatcherExplanation, ProbeTranscript};
use transom_scheduler::{PlacementOf, RunSpec, SchedulerApi};
use transom_web::ApiError;

use crate::Leader;

/// Timeout of a query to the scheduler.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the matchers.
const MATCHER_TIMEOUT: Duration = Duration::from_secs(30);

/// Which agents may run a task.
#[derive(Debug, Serialize)]
pub struct PlacementExplanation {
    /// The app, job or member of a Kubernetes cluster, as its service names it.
    pub id: String,
    /// Whether the framework is subscribed; otherwise there are no offers.
    pub subscribed: bool,
    /// Per agent that the scheduler knows: those that have sent offers or run its tasks.
    #[serde(flatten)]
    pub matchers: MatcherExplanation,
}

/// Which events a query passes.
#[derive(Debug, Serialize)]
pub struct EventsExplanation {
    /// The time from which events were requested.
    pub since: Timestamp,
    /// When the oldest kept event was published. If it is later than `since`, older events were
    /// evicted, or this daemon did not lead before. `None`: there are no events.
    pub oldest_kept: Option<Timestamp>,
    /// Parameters of the query that the event stream ignores because it does not know them.
    pub ignored_parameters: Vec<String>,
    /// Whether some events were not decided in time.
    pub more: bool,
    /// The decisions.
    #[serde(flatten)]
    pub filters: FilterExplanation,
}

/// One attempt of a probe, made for the request.
#[derive(Debug, Serialize)]
pub struct ProbeExplanation {
    /// The probed task.
    pub task: String,
    /// Its app or pod.
    pub app: String,
    /// The probe's place in the list of the task's probes, from 0.
    pub check: usize,
    /// `check`, `health` or `readiness`.
    pub purpose: &'static str,
    /// `http`, `tcp`, `exec` or `plugin`.
    pub kind: &'static str,
    /// `passed` or `failed`; or why there is no result: `timed-out`, `denied`, `unreachable`,
    /// `invalid`, `internal` or `plugin`.
    pub verdict: &'static str,
    /// What happened.
    pub transcript: ProbeTranscript,
}

/// Explains what plugins decide about the tasks and events of a service.
#[async_trait]
pub trait Explain: fmt::Debug + Send + Sync {
    /// Explains which agents may run the app, job or member with this id.
    ///
    /// # Errors
    /// 400 for an invalid id, 404 for an unknown one, 409 for a task that is not pending where the
    /// service explains pending ones only, 503 while this daemon does not lead or is busy.
    async fn explain(&self, id: &str) -> Result<PlacementExplanation, ApiError>;

    /// The reason why an operator cannot have a check of this task executed; `None`: the task is not
    /// of this service, or the service itself executes its checks.
    fn probe_rejection(&self, task: &str) -> Option<String>;

    /// Explains events and probes; `None`: the service has neither.
    fn decisions(&self) -> Option<&dyn ExplainDecisions> {
        None
    }
}

/// Explains what plugins decide about events and probes.
#[async_trait]
pub trait ExplainDecisions: Send + Sync {
    /// Returns which events of the last `age` pass a query in the form that the event stream
    /// accepts: `event_type=a&filter=b`.
    ///
    /// # Errors
    /// 400 for a query that cannot be parsed or whose filter is rejected, 503 while this daemon
    /// does not lead.
    async fn events(&self, query: &str, age: Duration) -> Result<EventsExplanation, ApiError>;

    /// Makes one attempt of a probe, given by its index in the list of the task's probes: its
    /// check, its health checks, its readiness check. Without an index, the first probe that this
    /// daemon makes is used.
    ///
    /// # Errors
    /// 404 for an unknown task, 409 for one that does not run, 422 for one without such a probe,
    /// 503 while this daemon does not lead.
    async fn probe(&self, task: &str, check: Option<usize>) -> Result<ProbeExplanation, ApiError>;
}

/// Explains which agents may run one more instance of a run spec. The explanation has the run
/// spec's id.
///
/// # Errors
/// 503 if the scheduler or the matchers do not answer.
pub async fn explain_run_spec(
    scheduler: &dyn SchedulerApi,
    spec: Arc<RunSpec>,
) -> Result<PlacementExplanation, ApiError> {
    let id = spec.id.clone();
    let explanation = explain(&id, scheduler, PlacementOf::RunSpec(spec)).await?;
    explanation.ok_or_else(scheduler_unavailable)
}

/// Explains which agents may run a task that is requested and not launched yet; `None`: it is not
/// pending. `id`: the service's id for the task.
///
/// # Errors
/// 503 if the scheduler or the matchers do not answer.
pub async fn explain_pending(
    id: &str,
    scheduler: &dyn SchedulerApi,
    task: &TaskId,
) -> Result<Option<PlacementExplanation>, ApiError> {
    explain(id, scheduler, PlacementOf::Pending(task.clone())).await
}

async fn explain(
    id: &str,
    scheduler: &dyn SchedulerApi,
    placement: PlacementOf,
) -> Result<Option<PlacementExplanation>, ApiError> {
    let Ok(Ok(pending)) = timeout(SCHEDULER_TIMEOUT, scheduler.explain(placement)).await else {
        return Err(scheduler_unavailable());
    };
    let Some(pending) = pending else {
        return Ok(None);
    };
    let matchers = timeout(MATCHER_TIMEOUT, pending.ask()).await.map_err(|_elapsed| {
        ApiError::unavailable(format!(
            "the matchers did not answer within {MATCHER_TIMEOUT:?}; `transom plugin list` shows their state"
        ))
    })?;
    Ok(Some(PlacementExplanation {
        id: id.to_owned(),
        subscribed: scheduler.subscription().connected,
        matchers,
    }))
}

fn scheduler_unavailable() -> ApiError {
    ApiError::unavailable(
        "the scheduler did not answer: it is stopping, waits for its store or a plugin, or too many such requests \
         are queued. Try again later.",
    )
}

impl<H> Leader<H> {
    /// The handles of the leader, for a request at the admin port, which is never forwarded.
    ///
    /// # Errors
    /// 503 with the leader's address, if there is a leader.
    pub fn handles_for_operator(&self, framework: &str) -> Result<Arc<H>, ApiError> {
        self.handles().ok_or_else(|| {
            ApiError::unavailable(match self.address() {
                Some(address) => format!(
                    "this daemon does not lead the framework {framework:?}, and only the leader knows its agents, \
                     events and tasks. The leader's service is at {address}: ask the admin port of that daemon \
                     (`--admin`)."
                ),
                None => format!("the framework {framework:?} has no leader now. Try again later."),
            })
        })
    }
}
