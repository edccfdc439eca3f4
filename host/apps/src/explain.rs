//! Explains to operators what plugins decide: where an app may run, which events a query passes,
//! what an attempt of a probe does. Only the leader knows agents, events and tasks, so standbys do
//! not explain.
//!
//! The calls are the same as those of the scheduler, the bus and the probes, and the serving
//! components answer them. They have no effect: neither does an attempt count for its task, nor a
//! call for its plugin.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use jiff::Timestamp;
use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_cluster::agent::Agents;
use transom_common::ambient;
use transom_framework::{
    EventsExplanation, Explain, ExplainDecisions, Leader, PlacementExplanation, ProbeExplanation, ask,
    explain_run_spec,
};
use transom_plugin_host::{Plugins, printable};
use transom_web::ApiError;

use crate::api::events::{PARAMETERS, stream_key};
use crate::api::query::Query;
use crate::core::command::{Command, Rejection};
use crate::core::term::Handles;
use crate::ids::SpecId;

/// Timeout of a request to the core.
const CORE_TIMEOUT: Duration = Duration::from_secs(10);
/// When this time is over, no further events are decided.
const EVENT_DECISION_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a query in bytes.
const MAX_QUERY_BYTES: usize = 16 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub struct Explainer {
    pub(crate) framework: String,
    /// See [`Events::parameters`](crate::Events::parameters).
    pub(crate) parameters: BTreeSet<String>,
    pub(crate) leader: Leader<Handles>,
    pub(crate) agents: Option<Agents>,
    pub(crate) plugins: Plugins,
}

impl Explainer {
    /// The handles of the leader, or an error with the leader's address.
    fn lead(&self) -> Result<Arc<Handles>, ApiError> {
        self.leader.handles_for_operator(&self.framework)
    }
}

#[async_trait]
impl ExplainDecisions for Explainer {
    async fn events(&self, query: &str, age: Duration) -> Result<EventsExplanation, ApiError> {
        let text = query.strip_prefix('?').unwrap_or(query);
        if text.len() > MAX_QUERY_BYTES {
            return Err(ApiError::bad_request(format!(
                "the query has {} bytes; expected at most {MAX_QUERY_BYTES}",
                text.len()
            )));
        }
        let query = Query::parse(text).map_err(|error| {
            ApiError::bad_request(format!(
                "the query cannot be parsed: {}; expected for example event_type=status_update_event",
                printable(&error)
            ))
        })?;
        let known = |name: &&str| PARAMETERS.contains(name) || self.parameters.contains(*name);
        let ignored: BTreeSet<&str> = query.names().filter(|name| !known(name)).collect();
        let key = stream_key(&query, &self.parameters);
        let handles = self.lead()?;
        let since = ambient::now().checked_sub(age).unwrap_or(Timestamp::MIN);
        let light = key.light;
        let opened = self.plugins.explain_filter(key.query).await;
        let mut explainer = opened.map_err(|rejection| {
            ApiError::bad_request(format!(
                "the query is rejected, as for a subscriber: {}",
                printable(&rejection)
            ))
        })?;
        let mut history = handles.bus.history(since, light);
        let deadline = Instant::now() + EVENT_DECISION_TIMEOUT;
        let mut more = false;
        loop {
            let batch = history.next_batch();
            if batch.is_empty() || explainer.has_failed() {
                break;
            }
            if Instant::now() >= deadline {
                more = true;
                break;
            }
            explainer.decide(&batch).await;
        }
        Ok(EventsExplanation {
            since,
            oldest_kept: history.oldest(),
            ignored_parameters: ignored.into_iter().map(str::to_owned).collect(),
            more,
            filters: explainer.finish(),
        })
    }

    async fn probe(&self, task: &str, check: Option<usize>) -> Result<ProbeExplanation, ApiError> {
        let handles = self.lead()?;
        let id = TaskId::from(task);
        let probes = ask(&handles.core, CORE_TIMEOUT, |reply| Command::Probes {
            task: id,
            reply,
        });
        let probes = probes.await.map_err(|rejection: Rejection| match rejection {
            Rejection::NoTask(task) => ApiError::not_found(format!(
                "no app has a task {:?} now; `transom apps show` lists an app's tasks",
                printable(&task)
            )),
            other => other.into(),
        })?;
        let labels = probes.iter().map(|(probe, by_daemon)| {
            let (purpose, kind) = probe.labels();
            (purpose, kind, *by_daemon)
        });
        let index = select_probe(&labels.collect::<Vec<_>>(), check)
            .map_err(|text| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, text))?;
        let (probe, _) = &probes[index];
        let transcript = probe.explain(&self.plugins, self.agents.as_ref()).await;
        let (purpose, kind) = probe.labels();
        Ok(ProbeExplanation {
            task: probe.record.id.to_string(),
            app: probe.spec.id().to_string(),
            check: index,
            purpose,
            kind,
            verdict: probe.outcome(&transcript.result),
            transcript,
        })
    }
}

#[async_trait]
impl Explain for Explainer {
    /// Returns which agents may run one more instance of an app or pod, whatever the state of its
    /// instances.
    async fn explain(&self, id: &str) -> Result<PlacementExplanation, ApiError> {
        let spec = SpecId::parse(id).map_err(|error| {
            ApiError::bad_request(format!(
                "{:?} is not a valid id of an app or pod: {error}; expected for example /shop/web",
                printable(id)
            ))
        })?;
        let handles = self.lead()?;
        let run_spec = ask(&handles.core, CORE_TIMEOUT, |reply| Command::RunSpec {
            id: spec,
            reply,
        });
        let run_spec = run_spec.await.map_err(|rejection: Rejection| match rejection {
            Rejection::NoApp(id) => ApiError::not_found(format!(
                "no app or pod is called {id}; `transom apps list` has all of them"
            )),
            other => other.into(),
        })?;
        explain_run_spec(&*handles.scheduler, run_spec).await
    }

    fn probe_rejection(&self, _task: &str) -> Option<String> {
        None
    }

    fn decisions(&self) -> Option<&dyn ExplainDecisions> {
        Some(self)
    }
}

/// A probe of a task: purpose and kind, and whether this daemon makes it.
type ProbeLabel = (&'static str, &'static str, bool);

/// The index of the probe to make; the error lists the existing ones.
fn select_probe(probes: &[ProbeLabel], check: Option<usize>) -> Result<usize, String> {
    if probes.is_empty() {
        return Err("the task has no check, health check or readiness check".to_owned());
    }
    let list_probes = || {
        let lines = probes
            .iter()
            .enumerate()
            .map(|(index, (purpose, kind, by_daemon))| {
                let maker = if *by_daemon { "" } else { ", made by the agent" };
                format!("{index}: {purpose} ({kind}{maker})")
            });
        lines.collect::<Vec<_>>().join(", ")
    };
    let first = probes.iter().position(|(.., by_daemon)| *by_daemon);
    let index = check.or(first).unwrap_or(0);
    match probes.get(index) {
        Some((.., true)) => Ok(index),
        Some((.., false)) => Err(format!(
            "the task's agent makes check {index}, not a plugin, so there is no transcript of it here. The task has {}",
            list_probes()
        )),
        None => Err(format!(
            "there is no check {index}; the task has {}",
            list_probes()
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn probe_is_selected_by_index_or_the_first_that_this_daemon_makes() {
        let probes = [
            ("check", "exec", false),
            ("health", "http", true),
            ("readiness", "http", true),
        ];
        for (check, expected) in [
            (None, Ok(1)),
            (Some(1), Ok(1)),
            (Some(2), Ok(2)),
            (Some(0), Err("the task's agent makes check 0")),
            (
                Some(3),
                Err(
                    "there is no check 3; the task has 0: check (exec, made by the agent), 1: health (http), 2",
                ),
            ),
        ] {
            match (select_probe(&probes, check), expected) {
                (found, Ok(expected)) => assert_eq!(found, Ok(expected), "{check:?}"),
                (found, Err(part)) => assert!(found.clone().unwrap_err().contains(part), "{found:?}"),
            }
        }
        assert!(
            select_probe(&probes[..1], None)
                .unwrap_err()
                .contains("agent makes check 0")
        );
        assert!(select_probe(&[], None).unwrap_err().contains("has no check"));
    }
}
