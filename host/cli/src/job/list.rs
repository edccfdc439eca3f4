//! `transom job list`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::{Daemon, is_final};
use crate::list::{Cell, Column, ListOptions};

/// List jobs with their states, the newest change first, and why pending jobs wait.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom job list\n  \
    transom job list --state active\n  \
    transom job list --state failed -o name")]
pub(crate) struct List {
    /// Only jobs in these states.
    #[arg(long)]
    state: Option<States>,
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    table: ListOptions,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum States {
    /// Pending or running.
    Active,
    /// Ended, and not `TASK_FINISHED`.
    Failed,
    /// `TASK_FINISHED`.
    Finished,
}

impl States {
    fn include(self, state: &str) -> bool {
        match self {
            Self::Active => !is_final(state),
            Self::Failed => is_final(state) && state != "TASK_FINISHED",
            Self::Finished => state == "TASK_FINISHED",
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::Name("id"),
    Column::Fixed("state"),
    Column::Fixed("for"),
    Column::Text("message"),
];

impl List {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let jobs = api.jobs().await.map_err(|failure| api.error(failure))?;
        let queue = api
            .queue_entries(None)
            .await
            .map_err(|failure| api.error(failure))?;
        let now = jiff::Timestamp::now();
        let jobs = with_reasons(jobs, &queue);
        let jobs: Vec<Value> = jobs
            .into_iter()
            .rev()
            .filter(|job| {
                let state = job["state"].as_str().unwrap_or_default();
                self.state.is_none_or(|states| states.include(state))
            })
            .collect();
        let rows = jobs.iter().map(|job| row(job, now)).collect();
        self.table.print(&json!({"jobs": jobs}), COLUMNS, 0, rows)
    }
}

/// Each job of the feed, the newest change last, and pending jobs with `pending`: why they wait.
fn with_reasons(mut jobs: Vec<Value>, queue: &[Value]) -> Vec<Value> {
    let reasons: BTreeMap<&str, &Value> = queue
        .iter()
        .filter_map(|entry| Some((entry["task_id"].as_str()?, &entry["reason"])))
        .collect();
    for job in &mut jobs {
        let reason = job["task_id"].as_str().and_then(|id| reasons.get(id));
        if let Some(reason) = reason {
            job["pending"] = (*reason).clone();
        }
    }
    jobs
}

fn row(job: &Value, now: jiff::Timestamp) -> Vec<Cell> {
    let text = |key: &str| job[key].as_str().unwrap_or_default();
    let reason = job["pending"]["message"].as_str();
    let state = if reason.is_some() {
        Cell::new("pending", text("state"))
    } else {
        Cell::new(
            text("state").trim_start_matches("TASK_").to_lowercase(),
            text("state"),
        )
    };
    vec![
        text("task_id").into(),
        state,
        Cell::age(job["at"].as_str(), now),
        reason.unwrap_or(text("message")).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_job_has_its_reason_and_states_are_filtered() {
        let job = |id: &str, state: &str| json!({"task_id": id, "state": state, "message": "m", "at": "2026-01-01T00:00:00Z"});
        let jobs = vec![job("a", "TASK_STAGING"), job("b", "TASK_FAILED")];
        let queue = [json!({"task_id": "a", "reason": {"message": "too large"}})];
        let now = "2026-01-01T00:00:10Z".parse().expect("a time");
        let rows: Vec<Vec<String>> = with_reasons(jobs, &queue)
            .iter()
            .map(|job| row(job, now).into_iter().map(|cell| cell.short).collect())
            .collect();
        assert_eq!(rows[0], ["a", "pending", "10 s", "too large"]);
        assert_eq!(rows[1], ["b", "failed", "10 s", "m"]);
        for (states, expected) in [
            (States::Active, [true, false, false]),
            (States::Failed, [false, true, false]),
            (States::Finished, [false, false, true]),
        ] {
            let included =
                ["TASK_RUNNING", "TASK_KILLED", "TASK_FINISHED"].map(|state| states.include(state));
            assert_eq!(included, expected, "{states:?}");
        }
    }
}
