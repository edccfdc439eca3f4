//! Waits for the end of a deployment, with progress.
//!
//! The API keeps no finished deployments: whether one succeeded is only in its last event. So the
//! event stream is opened before the request that starts the deployment.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::api::{Api, ApiResponse, Query};
use super::deadline::{NO_RESPONSE, within};
use super::explain;
use super::missing::{Missing, affected_by, deleted_by, missing};
use super::progress::{self, Progress};
use super::stream::Stream;
use crate::exit::{Misconfigured, Unavailable};
use crate::output::{self, Output};

/// Interval of the requests for the running deployments.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long the last event may take after the deployment has left the list.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long nothing may change before the reason is printed.
const EXPLAIN_AFTER: Duration = Duration::from_secs(10);
/// How long the daemon may be unreachable during a deployment, for example during a failover.
const MAX_OUTAGE: Duration = Duration::from_mins(1);
/// The maximum number of results that are kept: until the request returns the deployment's id, any
/// event may be about it.
const MAX_RESULTS: usize = 10_000;

/// Whether and how long to wait.
#[derive(Debug, Args)]
pub(super) struct WaitOptions {
    /// Return as soon as the daemon has accepted the change, and print the id of the deployment.
    #[arg(long)]
    detach: bool,
    /// Stop waiting after this many seconds, with exit code 1; the deployment continues. Default: no
    /// limit.
    #[arg(long, value_name = "SECONDS", conflicts_with = "detach", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: Option<u32>,
}

/// How a deployment is carried out.
#[derive(Debug, Args)]
pub(super) struct RolloutOptions {
    /// Cancel other deployments that change the same apps.
    #[arg(long)]
    force: bool,
    /// The deployment fails if it is not finished within this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    deadline: Option<u32>,
    /// Action after a missed deadline: `rollback` (the daemon's default) or `fail`, which stops in the
    /// current step.
    #[arg(long, value_name = "WHAT", requires = "deadline", value_parser = ["rollback", "fail"])]
    on_deadline: Option<String>,
    /// Start this many new instances first (2 or 10%), and pause before the others.
    #[arg(long, value_name = "AMOUNT")]
    canary: Option<String>,
    /// Continue automatically when the canary has been healthy for this many seconds.
    #[arg(long, value_name = "SECONDS", requires = "canary")]
    canary_seconds: Option<u32>,
}

impl RolloutOptions {
    /// The parameters of the request.
    pub(super) fn query(&self) -> Query {
        let mut query = Query::new();
        if self.force {
            query.push(("force", "true".to_owned()));
        }
        let mut add = |name, value: Option<String>| query.extend(value.map(|value| (name, value)));
        add("deadline", self.deadline.map(|seconds| seconds.to_string()));
        add("onDeadline", self.on_deadline.clone());
        add("canary", self.canary.clone());
        add(
            "canarySeconds",
            self.canary_seconds.map(|seconds| seconds.to_string()),
        );
        query
    }
}

/// How a deployment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DeploymentEnd {
    Finished,
    Failed(String),
    /// The deployment is over, and its last event was not received. Contains the instances, health
    /// checks or deployments that are still missing.
    Unknown(String),
    /// The first instances are healthy, and the others wait for a command.
    Held,
    TimedOut(String),
}

/// A deployment that is about to start.
pub(super) struct DeploymentFollower<'a> {
    api: &'a Api,
    output: Output,
    stream: Option<Stream>,
    deadline: Option<Instant>,
    detach: bool,
    /// The results from the last events of deployments, by id; `Some` is the reason of a failure.
    results: HashMap<String, Option<String>>,
}

impl<'a> DeploymentFollower<'a> {
    /// Opens the event stream. Must be called before the request that starts the deployment.
    pub(super) async fn open(api: &'a Api, waiting: &WaitOptions, output: Output) -> anyhow::Result<Self> {
        let timeout = waiting.timeout.map(|seconds| Duration::from_secs(seconds.into()));
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self::open_with_deadline(api, deadline, waiting.detach, output).await
    }

    pub(super) async fn open_with_deadline(
        api: &'a Api,
        deadline: Option<Instant>,
        detach: bool,
        output: Output,
    ) -> anyhow::Result<Self> {
        // Without a stream, only the list of deployments is polled.
        let stream = if detach {
            None
        } else {
            let stream = within(deadline, Stream::open(api, &result_events(), None)).await;
            stream.context(NO_RESPONSE)?.ok()
        };
        Ok(Self {
            api,
            output,
            stream,
            deadline,
            detach,
            results: HashMap::new(),
        })
    }

    /// Sends the request that starts the deployment.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &Query,
        body: Option<&Value>,
    ) -> anyhow::Result<ApiResponse> {
        let response = within(self.deadline, self.api.send(method, path, query, body)).await;
        response.context(
            "no response from the daemon before the timeout, so it is unknown whether it accepted the change; \
             `transom apps deployments` lists the running deployments",
        )?
    }

    /// Waits for the end of the deployment that a request started, unless it is detached, and
    /// prints `document` with the deployment and its state.
    pub(super) async fn finish(mut self, response: ApiResponse, mut document: Value) -> anyhow::Result<()> {
        let Some(id) = response.deployment else {
            bail!("the response contains no deployment id");
        };
        document["deploymentId"] = json!(id);
        if let Some(version) = response.document.get("version") {
            document["version"] = version.clone();
        }
        if self.detach {
            document["state"] = json!("started");
            return output::print_text(self.output, &document, &id);
        }
        let end = self.wait_for_end(&id).await?;
        self.report(&id, document, &end)
    }

    /// Waits for a deployment that runs already.
    pub(super) async fn wait_for(mut self, id: &str) -> anyhow::Result<()> {
        let end = self.wait_for_end(id).await?;
        self.report(id, json!({"deploymentId": id}), &end)
    }

    fn report(&self, id: &str, mut document: Value, end: &DeploymentEnd) -> anyhow::Result<()> {
        let (state, text) = match end {
            DeploymentEnd::Finished => ("finished", format!("deployment {id} finished")),
            DeploymentEnd::Failed(_) => ("failed", String::new()),
            DeploymentEnd::Unknown(_) => ("over", String::new()),
            DeploymentEnd::Held => (
                "held",
                format!(
                    "deployment {id} is held: its canary is healthy. Replace the others with `transom apps deployments \
                     --continue {id}`, or roll back with `transom apps deployments --rollback {id}`."
                ),
            ),
            DeploymentEnd::TimedOut(_) => ("running", String::new()),
        };
        document["state"] = json!(state);
        if let DeploymentEnd::Failed(reason) = end {
            document["reason"] = json!(reason);
        }
        if self.output == Output::Json {
            output::print_text(self.output, &document, "")?;
        }
        match end {
            DeploymentEnd::Failed(reason) => bail!("deployment {id} failed: {reason}"),
            DeploymentEnd::TimedOut(missing) => bail!(
                "deployment {id} is not done yet: {missing}\nIt continues: `transom apps wait {id}` waits for it, `transom \
                 apps deployments --rollback {id}` reverts it."
            ),
            DeploymentEnd::Unknown(missing) => {
                bail!("deployment {id} has ended, but its result was not received: {missing}")
            }
            _ if self.output == Output::Json => Ok(()),
            _ => output::print_text(self.output, &document, &text),
        }
    }

    async fn wait_for_end(&mut self, id: &str) -> anyhow::Result<DeploymentEnd> {
        let mut progress = Progress::new();
        let end = self.poll_until_end(id, &mut progress).await;
        progress.end();
        end
    }

    async fn poll_until_end(&mut self, id: &str, progress: &mut Progress) -> anyhow::Result<DeploymentEnd> {
        let mut text = NO_RESPONSE.to_owned();
        let (mut changed_at, mut reachable_at) = (Instant::now(), Instant::now());
        let mut last_reasons = String::new();
        let mut missing_since: Option<Instant> = None;
        let (mut affected, mut deleted) = (Vec::new(), Vec::new());
        loop {
            if let Some(reason) = self.results.remove(id) {
                return Ok(reason.map_or(DeploymentEnd::Finished, DeploymentEnd::Failed));
            }
            let Some(state) = within(self.deadline, self.state_and_progress(id)).await else {
                return Ok(DeploymentEnd::TimedOut(text));
            };
            match state {
                Ok(Some((deployment, line))) => {
                    (missing_since, reachable_at) = (None, Instant::now());
                    affected = affected_by(&deployment);
                    deleted = deleted_by(&deployment);
                    if deployment["canary"]["state"] == "held" && deployment["canary"]["seconds"].is_null() {
                        return Ok(DeploymentEnd::Held);
                    }
                    if progress.show(&line) {
                        changed_at = Instant::now();
                    }
                    text = line;
                    if changed_at.elapsed() >= EXPLAIN_AFTER
                        && let Some(Some(reasons)) =
                            within(self.deadline, self.waiting_reasons(&deployment)).await
                    {
                        text = format!("{text}; {reasons}");
                        if last_reasons != reasons {
                            progress.note(&reasons);
                            last_reasons = reasons;
                        }
                    }
                }
                Ok(None) => {
                    reachable_at = Instant::now();
                    let since = *missing_since.get_or_insert_with(Instant::now);
                    if self.stream.is_none() || since.elapsed() >= LAST_EVENT_TIMEOUT {
                        let missing = within(self.deadline, missing(self.api, &affected, false)).await;
                        return Ok(match missing {
                            Some(missing) => end_without_event(&affected, &deleted, missing?),
                            None => DeploymentEnd::Unknown(NO_RESPONSE.to_owned()),
                        });
                    }
                }
                Err(error) if error.is::<Unavailable>() && reachable_at.elapsed() < MAX_OUTAGE => {
                    progress.show("no response from the daemon; retrying");
                }
                Err(error) => return Err(error),
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(DeploymentEnd::TimedOut(text));
            }
            self.wait_for_event().await;
        }
    }

    /// Reads events until it is time for the next request, or one of them ends a deployment.
    async fn wait_for_event(&mut self) {
        let next = Instant::now() + POLL_INTERVAL;
        let wake_at = self.deadline.map_or(next, |deadline| next.min(deadline));
        let Some(stream) = &mut self.stream else {
            sleep_until(wake_at).await;
            let stream = within(self.deadline, Stream::open(self.api, &result_events(), None)).await;
            self.stream = stream.and_then(Result::ok);
            return;
        };
        tokio::select! {
            () = sleep_until(wake_at) => {}
            event = stream.next() => {
                if let Ok(frame) = event {
                    let event: Value = serde_json::from_str(&frame.data).unwrap_or_default();
                    let failed = frame.kind == "deployment_failed";
                    let reason = event["reason"].as_str().unwrap_or("no reason was given");
                    if let Some(id) = event["id"].as_str()
                        && self.results.len() < MAX_RESULTS
                    {
                        self.results.insert(id.to_owned(), failed.then(|| reason.to_owned()));
                    }
                } else {
                    self.stream = None;
                    sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    /// The deployment, if it runs, and a line about its progress.
    async fn state_and_progress(&self, id: &str) -> anyhow::Result<Option<(Value, String)>> {
        let Some(deployment) = running(self.api, id).await? else {
            return Ok(None);
        };
        let mut counts = Vec::new();
        for action in deployment["currentActions"]
            .as_array()
            .into_iter()
            .flatten()
            .take(3)
        {
            let Some(app) = action["app"].as_str() else {
                continue;
            };
            if let Some(document) = self.api.find(&format!("v2/apps{app}")).await? {
                counts.push((app.to_owned(), progress::instances(&document["app"])));
            }
        }
        let line = progress::line(&deployment, &counts);
        Ok(Some((deployment, line)))
    }

    /// The reasons for which instances of the current step are not launched.
    async fn waiting_reasons(&self, deployment: &Value) -> Option<String> {
        let queue = explain::queue(self.api).await.ok()?;
        let actions = deployment["currentActions"].as_array()?;
        let ids = actions
            .iter()
            .filter_map(|action| progress::verb(action).map(|(_, id)| id));
        let reasons: Vec<String> = ids
            .filter_map(|id| {
                let item = explain::queue_item(&queue, id)?;
                Some(format!("{id} waits: {}", explain::main_reason(item)))
            })
            .take(3)
            .collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// How a deployment ended whose last event was not received. `affected` are the ids of its apps and
/// pods, and `deleted` those that it deletes.
fn end_without_event(affected: &[String], deleted: &[String], missing: Missing) -> DeploymentEnd {
    if affected.is_empty() {
        return DeploymentEnd::Unknown("it ended before its first state was read".to_owned());
    }
    let Missing { absent, mut texts } = missing;
    let existing = deleted.iter().filter(|id| !absent.contains(id));
    texts.extend(existing.map(|id| format!("{id} still exists")));
    // The creation of an app that does not exist was rolled back, or another deployment deleted it.
    let absent = absent.iter().filter(|id| !deleted.contains(id));
    texts.extend(absent.map(|id| format!("{id} does not exist")));
    if texts.is_empty() {
        DeploymentEnd::Finished
    } else {
        DeploymentEnd::Unknown(texts.join("; "))
    }
}

/// The query for the last events of deployments.
fn result_events() -> Query {
    let kinds = ["deployment_success", "deployment_failed"].map(|kind| ("event_type", kind.to_owned()));
    let mut query = Query::from(kinds);
    query.push(("plan-format", "light".to_owned()));
    query
}

/// The running deployment with this id.
pub(super) async fn running(api: &Api, id: &str) -> anyhow::Result<Option<Value>> {
    let list = api.get("v2/deployments?embed=deadline&embed=canary").await?;
    let mut list = list.as_array().into_iter().flatten();
    Ok(list.find(|deployment| deployment["id"] == id).cloned())
}

/// An error of the command line.
pub(super) fn usage_error(text: impl Into<String>) -> anyhow::Error {
    anyhow::anyhow!(text.into()).context(Misconfigured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployment_without_last_event_is_finished_only_if_its_apps_are_as_planned() {
        let deployment = json!({
            "affectedApps": ["/new", "/old"], "affectedPods": [],
            "steps": [
                {"actions": [{"action": "StopApplication", "app": "/old"}, {"action": "StartApplication", "app": "/new"}]},
                {"actions": [{"action": "ScaleApplication", "app": "/new"}]},
            ],
        });
        let end = |absent: &[&str], texts: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let missing = Missing {
                absent: owned(absent),
                texts: owned(texts),
            };
            end_without_event(&affected_by(&deployment), &deleted_by(&deployment), missing)
        };
        let unknown = |text: &str| DeploymentEnd::Unknown(text.to_owned());
        assert_eq!(end(&["/old"], &[]), DeploymentEnd::Finished);
        assert_eq!(end(&["/new", "/old"], &[]), unknown("/new does not exist"));
        assert_eq!(end(&[], &[]), unknown("/old still exists"));
        assert_eq!(end(&["/old"], &["/new: 0/1"]), unknown("/new: 0/1"));
        let never_read = end_without_event(&[], &[], Missing::default());
        assert!(matches!(never_read, DeploymentEnd::Unknown(_)), "{never_read:?}");
    }
}
