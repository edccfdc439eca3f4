//! Calls the events component for the decisions on a batch, with retries, and handles faults and
//! limits.

use std::sync::Arc;
use std::time::Duration;

use transom_plugin_host::CallError;
use transom_plugin_host::events::{Decision, Event, OpenError};

use super::metrics::{LossReason, Metrics};
use super::{Published, StreamKey};
use crate::policies::View;

/// Delays between retries while the component is busy.
const BUSY_RETRY_DELAYS: &[Duration] = &[
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];
/// Delay before the one retry of an event, or of the empty batch, after a fault.
const FAULT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Timeout of a call, whatever the component's own limits are.
const DECISION_TIMEOUT: Duration = Duration::from_secs(30);

/// The component's view of one query.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) key: StreamKey,
    view: Arc<dyn View>,
}

/// Why the component returned no decisions.
enum DecisionError {
    /// The call failed in the component; other events or a retry may succeed.
    Fault(String),
    /// There is no component, or it no longer accepts the query.
    Unavailable(String),
}

impl Filter {
    pub(super) fn new(key: StreamKey, view: Arc<dyn View>) -> Self {
        Self { key, view }
    }

    pub(super) fn body<'a>(&self, event: &'a Published) -> &'a str {
        event.body(self.key.light)
    }

    /// Calls the view with a batch. An event on which the component fails is dropped. An error is
    /// the reason with which all streams of the query are closed.
    pub(super) async fn decide(
        &self,
        batch: &[Arc<Published>],
        metrics: &Metrics,
    ) -> Result<Vec<Decision>, String> {
        let events: Vec<Event> = batch.iter().map(|event| event.event(self.key.light)).collect();
        match self.call_view(&events).await {
            Ok(decisions) => Ok(decisions),
            Err(DecisionError::Unavailable(reason)) => Err(reason),
            Err(DecisionError::Fault(_)) if events.is_empty() => self.check_view().await.map(|()| Vec::new()),
            Err(DecisionError::Fault(_)) => {
                let each = tokio::time::timeout(DECISION_TIMEOUT, self.decide_one_by_one(&events, metrics));
                each.await.unwrap_or_else(|_| {
                    Err(format!(
                        "the events component failed on {} events; deciding them one by one timed out after {DECISION_TIMEOUT:?}",
                        events.len()
                    ))
                })
            }
        }
    }

    /// Decides each event in a call of its own after a fault, so that one event does not affect the
    /// others. If the batch consists of one event, the failed call was its first attempt.
    async fn decide_one_by_one(&self, events: &[Event], metrics: &Metrics) -> Result<Vec<Decision>, String> {
        let mut decisions = Vec::with_capacity(events.len());
        for event in events {
            match self.decide_single(event, events.len() == 1).await {
                Ok(mut decided) => decisions.append(&mut decided),
                Err(DecisionError::Unavailable(reason)) => return Err(reason),
                Err(DecisionError::Fault(reason)) => {
                    // If the component also fails on an empty batch, it is broken, and the event is
                    // not the cause.
                    self.check_view().await?;
                    tracing::warn!(
                        kind = event.kind,
                        sequence = event.sequence,
                        subject = event.subject,
                        "event dropped: the events component failed: {reason}"
                    );
                    metrics.record_loss(LossReason::Undecided);
                    decisions.push(Decision::Drop);
                }
            }
        }
        Ok(decisions)
    }

    /// Decides one event, in two attempts at most.
    async fn decide_single(&self, event: &Event, failed: bool) -> Result<Vec<Decision>, DecisionError> {
        let event = std::slice::from_ref(event);
        if !failed {
            match self.call_view(event).await {
                Err(DecisionError::Fault(_)) => {}
                answer => return answer,
            }
        }
        tokio::time::sleep(FAULT_RETRY_DELAY).await;
        self.call_view(event).await
    }

    /// Checks with an empty batch that the view still answers, in two attempts at most.
    async fn check_view(&self) -> Result<(), String> {
        if self.call_view(&[]).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(FAULT_RETRY_DELAY).await;
        match self.call_view(&[]).await {
            Ok(_) => Ok(()),
            Err(DecisionError::Fault(reason) | DecisionError::Unavailable(reason)) => Err(reason),
        }
    }

    /// Calls the view with a batch; retries a few times while it is busy.
    async fn call_view(&self, events: &[Event]) -> Result<Vec<Decision>, DecisionError> {
        let unavailable = |reason: String| Err(DecisionError::Unavailable(reason));
        let mut retry_delays = BUSY_RETRY_DELAYS.iter().copied();
        loop {
            let error = match tokio::time::timeout(DECISION_TIMEOUT, self.view.decide(events)).await {
                Ok(Ok(decisions)) if decisions.len() == events.len() => return Ok(decisions),
                Ok(Ok(decisions)) => {
                    return unavailable(format!(
                        "the events component decided {} of {} events",
                        decisions.len(),
                        events.len()
                    ));
                }
                Ok(Err(OpenError::Rejected(text))) => {
                    return unavailable(format!(
                        "the events component no longer accepts the query: {text}"
                    ));
                }
                Ok(Err(OpenError::Call(error))) => match error {
                    CallError::Missing { .. } | CallError::Stopped => return unavailable(error.to_string()),
                    CallError::Trapped { .. }
                    | CallError::TimedOut { .. }
                    | CallError::CpuExhausted { .. }
                    | CallError::OutOfMemory { .. }
                    | CallError::Malformed { .. } => return Err(DecisionError::Fault(error.to_string())),
                    CallError::Busy { .. } | CallError::Disabled { .. } => error.to_string(),
                },
                Err(_) => {
                    return unavailable(format!(
                        "the events component timed out after {DECISION_TIMEOUT:?}"
                    ));
                }
            };
            let Some(pause) = retry_delays.next() else {
                return unavailable(error);
            };
            tokio::time::sleep(pause).await;
        }
    }
}
