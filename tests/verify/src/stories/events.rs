//! The event stream reports every change.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use serde_json::json;
use tokio::time::Instant;
use transom_tests::events::{Events, Frame};

use super::app;
use crate::comparisons::Ids;
use crate::site::Site;

const APP: &str = "/events";
const TASKS: usize = 2;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    // The stream does not end, so its client has no timeout.
    let http = transom_tests::http();
    let url = site.apps("/v2/events?ids=true")?;
    let mut events = Events::try_open(&http, &url)
        .await
        .map_err(|error| anyhow!(error))?;
    let mut observed = ObservedEvents::default();
    observed
        .wait_until(site, &mut events, "event_stream_attached", |observed| {
            observed.has("event_stream_attached", 1)
        })
        .await?;

    site.post_app(&app(APP, TASKS, &json!({}))).await?;
    let created = |observed: &ObservedEvents| {
        observed.has("api_post_event", 1)
            && observed.states("TASK_RUNNING").len() == TASKS
            && observed.has("deployment_success", 1)
            && observed.conditions.get("Running") == Some(&TASKS)
    };
    observed
        .wait_until(site, &mut events, "a new app", created)
        .await?;
    let tasks = site.wait_until_running(APP, TASKS).await?.ids;
    ensure!(
        observed.states("TASK_RUNNING") == tasks,
        "status_update_event reported {:?}, but {tasks:?} are running",
        observed.states("TASK_RUNNING")
    );
    site.progress("events for a new app, its tasks and its deployment were received");

    site.change_app(APP, &json!({"instances": 1})).await?;
    let scaled = |observed: &ObservedEvents| {
        observed.has("deployment_success", 2) && observed.states("TASK_KILLED").len() == 1
    };
    observed
        .wait_until(site, &mut events, "a smaller app", scaled)
        .await?;
    site.delete_app(APP).await?;
    let deleted = |observed: &ObservedEvents| {
        observed.has("deployment_success", 3) && observed.states("TASK_KILLED") == tasks
    };
    observed
        .wait_until(site, &mut events, "a deleted app", deleted)
        .await?;
    ensure!(
        observed.reported_twice.is_empty(),
        "told twice: {:?}",
        observed.reported_twice
    );
    ensure!(
        observed.has("api_post_event", 3),
        "api_post_event was missing for some requests: {:?}",
        observed.kinds
    );
    site.progress("events for scaling and deletion were received, none twice");
    Ok(())
}

/// The events of the story's app.
#[derive(Debug, Default)]
struct ObservedEvents {
    /// Number of events by kind.
    kinds: BTreeMap<String, usize>,
    /// Tasks by reported state.
    states: BTreeMap<String, Ids>,
    /// Number of events by instance condition.
    conditions: BTreeMap<String, usize>,
    /// Tasks with states that were reported more than once.
    reported_twice: Vec<String>,
    sequence: Option<u64>,
}

impl ObservedEvents {
    fn has(&self, kind: &str, times: usize) -> bool {
        self.kinds.get(kind).copied().unwrap_or(0) >= times
    }

    fn states(&self, state: &str) -> Ids {
        self.states.get(state).cloned().unwrap_or_default()
    }

    /// Reads events until `enough` returns true.
    async fn wait_until(
        &mut self,
        site: &Site,
        events: &mut Events,
        what: &str,
        enough: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        while !enough(self) {
            let remaining = site.deadline.saturating_duration_since(Instant::now());
            ensure!(
                remaining > Duration::ZERO,
                "not all events of {what} came: {self:?}"
            );
            let frame = events.next_within(remaining).await;
            let frame = frame.ok_or_else(|| {
                anyhow!("the stream ended or timed out before all events of {what}: {self:?}")
            })?;
            self.record(&frame)?;
        }
        Ok(())
    }

    fn record(&mut self, frame: &Frame) -> anyhow::Result<()> {
        let sequence = frame.sequence();
        ensure!(
            self.sequence.is_none_or(|last| sequence > last),
            "event {sequence} came after {:?}",
            self.sequence
        );
        self.sequence = Some(sequence);
        let data = &frame.data;
        ensure!(
            data["eventType"] == frame.event,
            "a frame {} has the data of {}",
            frame.event,
            data["eventType"]
        );
        let of_app = match frame.event.as_str() {
            "event_stream_attached" => true,
            "api_post_event" => data["appDefinition"]["id"] == APP,
            "status_update_event" => data["appId"] == APP,
            "instance_changed_event" => data["runSpecId"] == APP,
            "deployment_success" => {
                let steps = data["plan"]["steps"].as_array().map_or(&[][..], Vec::as_slice);
                steps.iter().any(|step| step["app"] == APP)
            }
            _ => false,
        };
        if !of_app {
            return Ok(());
        }
        *self.kinds.entry(frame.event.clone()).or_default() += 1;
        if let Some(condition) = data["condition"].as_str() {
            *self.conditions.entry(condition.to_owned()).or_default() += 1;
        }
        if let (Some(task), Some(state)) = (data["taskId"].as_str(), data["taskStatus"].as_str())
            && !self
                .states
                .entry(state.to_owned())
                .or_default()
                .insert(task.to_owned())
        {
            self.reported_twice.push(format!("{task} {state}"));
        }
        Ok(())
    }
}
