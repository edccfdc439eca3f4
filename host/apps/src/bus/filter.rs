//! Calls the events component for the decisions on a batch, with retries, and handles faults and
//! limits.

use std::sync::Arc;
use std::time::Duration;

use transom_plugin_host::CallError;
use transom_plugin_host::events::{Decision, Event, OpenError};

use super::metrics::{Lost, Metrics};
use super::{MAX_EVENT, Published, StreamKey};
use crate::seams::View;

/// Delays between retries while the component is busy.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];
/// Delay before the one retry of an event, or of the empty batch, after a fault.
const ONCE_MORE: Duration = Duration::from_millis(100);
/// Timeout of a call, whatever the component's own limits are.
const DECISION_TIMEOUT: Duration = Duration::from_secs(30);

/// The component's view of one query.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) key: StreamKey,
    view: Arc<dyn View>,
}

/// Why the component returned no decisions.
enum Unanswered {
    /// The call failed in the component; other events or a retry may succeed.
    Fault(String),
    /// There is no component, or it no longer accepts the query.
    Gone(String),
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
        let decided = match self.ask(&events).await {
            Ok(decisions) => Ok(decisions),
            Err(Unanswered::Gone(reason)) => Err(reason),
            Err(Unanswered::Fault(_)) if events.is_empty() => self.stands().await.map(|()| Vec::new()),
            Err(Unanswered::Fault(_)) => {
                let each = tokio::time::timeout(DECISION_TIMEOUT, self.one_by_one(&events, metrics));
                each.await.unwrap_or_else(|_| {
                    Err(format!(
                        "the events component failed on {} events; deciding them one by one timed out after {DECISION_TIMEOUT:?}",
                        events.len()
                    ))
                })
            }
        };
        let mut decisions = decided?;
        for (event, decision) in events.iter().zip(&mut decisions) {
            if let Decision::Replace(text) = decision
                && text.len() > MAX_EVENT
            {
                let bytes = text.len();
                tracing::warn!(
                    kind = event.kind,
                    sequence = event.sequence,
                    "event dropped: the replacement by the events component has {bytes} bytes, the limit is {MAX_EVENT}"
                );
                metrics.lost(Lost::TooLarge);
                *decision = Decision::Drop;
            }
        }
        Ok(decisions)
    }

    /// Decides each event in a call of its own after a fault, so that one event does not affect the
    /// others. If the batch consists of one event, the failed call was its first attempt.
    async fn one_by_one(&self, events: &[Event], metrics: &Metrics) -> Result<Vec<Decision>, String> {
        let mut decisions = Vec::with_capacity(events.len());
        for event in events {
            match self.alone(event, events.len() == 1).await {
                Ok(mut decided) => decisions.append(&mut decided),
                Err(Unanswered::Gone(reason)) => return Err(reason),
                Err(Unanswered::Fault(reason)) => {
                    // If the component also fails on an empty batch, it is broken, and the event is
                    // not the cause.
                    self.stands().await?;
                    tracing::warn!(
                        kind = event.kind,
                        sequence = event.sequence,
                        subject = event.subject,
                        "event dropped: the events component failed: {reason}"
                    );
                    metrics.lost(Lost::Undecided);
                    decisions.push(Decision::Drop);
                }
            }
        }
        Ok(decisions)
    }

    /// Decides one event, in two attempts at most.
    async fn alone(&self, event: &Event, failed: bool) -> Result<Vec<Decision>, Unanswered> {
        let event = std::slice::from_ref(event);
        if !failed {
            match self.ask(event).await {
                Err(Unanswered::Fault(_)) => {}
                answer => return answer,
            }
        }
        tokio::time::sleep(ONCE_MORE).await;
        self.ask(event).await
    }

    /// Checks with an empty batch that the view still answers, in two attempts at most.
    async fn stands(&self) -> Result<(), String> {
        if self.ask(&[]).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(ONCE_MORE).await;
        match self.ask(&[]).await {
            Ok(_) => Ok(()),
            Err(Unanswered::Fault(reason) | Unanswered::Gone(reason)) => Err(reason),
        }
    }

    /// Calls the view with a batch; retries a few times while it is busy.
    async fn ask(&self, events: &[Event]) -> Result<Vec<Decision>, Unanswered> {
        let gone = |reason: String| Err(Unanswered::Gone(reason));
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match tokio::time::timeout(DECISION_TIMEOUT, self.view.decide(events)).await {
                Ok(Ok(decisions)) if decisions.len() == events.len() => return Ok(decisions),
                Ok(Ok(decisions)) => {
                    return gone(format!(
                        "the events component decided {} of {} events",
                        decisions.len(),
                        events.len()
                    ));
                }
                Ok(Err(OpenError::Refused(text))) => {
                    return gone(format!("the query is rejected now: {text}"));
                }
                Ok(Err(OpenError::Call(error))) => match error {
                    CallError::Missing { .. } | CallError::Stopped => return gone(error.to_string()),
                    CallError::Trapped { .. }
                    | CallError::TimedOut { .. }
                    | CallError::CpuExhausted { .. }
                    | CallError::OutOfMemory { .. }
                    | CallError::Malformed { .. } => return Err(Unanswered::Fault(error.to_string())),
                    CallError::Busy { .. } | CallError::Disabled { .. } => error.to_string(),
                },
                Err(_) => {
                    return gone(format!(
                        "the events component timed out after {DECISION_TIMEOUT:?}"
                    ));
                }
            };
            let Some(pause) = pauses.next() else {
                return gone(error);
            };
            tokio::time::sleep(pause).await;
        }
    }
}
