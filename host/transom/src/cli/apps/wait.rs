//! `transom apps wait`: until everything that is wanted runs, or a deployment ends.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::api::{Api, Daemon};
use super::follow::{Follow, affected_by, misuse, running};
use super::id;
use super::progress::Progress;
use super::{explain, progress};
use crate::exit::Unavailable;
use crate::output::{self, Output};

/// Interval between requests.
const INTERVAL: Duration = Duration::from_millis(500);

/// Wait until an app, pod or group runs as wanted, or until a deployment ends.
///
/// An app is as wanted when no deployment changes it, all of its instances run, and no other task
/// is being launched. The exit code is 1 if it is not so in time, and the error says what is
/// missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps wait web --healthy --timeout 120\n  \
    transom apps wait \"$(transom apps scale web 3 --detach)\"\n  \
    transom apps wait /shop\n\n\
    The daemon keeps no results of deployments: one that is over before this command starts gives exit code 0 and a note.")]
pub(in crate::cli) struct Wait {
    /// Id of an app, pod or group, or of a deployment.
    #[arg(value_name = "ID|DEPLOYMENT")]
    id: String,
    /// Also wait until all instances are healthy, where the definition has health checks.
    #[arg(long)]
    healthy: bool,
    /// Give up after so many seconds, with exit code 1. Default: no limit.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: Option<u32>,
    #[command(flatten)]
    daemon: Daemon,
}

impl Wait {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let timeout = self.timeout.map(|seconds| Duration::from_secs(seconds.into()));
        if is_deployment(&self.id) {
            let follow = Follow::within(&api, timeout, false, self.daemon.output).await?;
            if running(&api, &self.id).await?.is_some() {
                return follow.until(&self.id).await;
            }
            eprintln!("deployment {} does not run; how it ended is not kept", self.id);
            let document = json!({"deploymentId": self.id, "state": "over"});
            return output::print_text(self.daemon.output, &document, "");
        }
        let id = id::parse(&self.id).map_err(misuse)?;
        id::find(&api, &id).await?;
        let mut progress = Progress::new();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ids = [id.clone()];
        loop {
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let missing = match missing(&api, &ids, self.healthy).await {
                Err(error) if error.is::<Unavailable>() && deadline.is_some() && !late => {
                    vec!["the daemon does not answer; trying again".to_owned()]
                }
                missing => missing?,
            };
            if missing.is_empty() {
                progress.end();
                let document = json!({"id": id, "state": "ready"});
                return output::print_text(self.daemon.output, &document, &format!("{id} is ready"));
            }
            let text = missing.join("; ");
            progress.show(&text);
            if late {
                progress.end();
                if self.daemon.output == Output::Json {
                    let document = json!({"id": id, "state": "waiting", "missing": missing});
                    output::print_text(self.daemon.output, &document, "")?;
                }
                let seconds = self.timeout.unwrap_or_default();
                bail!("{id} is not ready after {seconds} s: {text}\n`transom apps explain {id}` says more.");
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            sleep(left.map_or(INTERVAL, |left| left.min(INTERVAL))).await;
        }
    }
}

/// Whether this is the id of a deployment: a UUID. An app may not look like one without a slash.
fn is_deployment(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// What is missing until these apps, pods and groups are as wanted; deleted ones miss nothing.
pub(super) async fn missing(api: &Api, ids: &[String], healthy: bool) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    for id in ids {
        missing.extend(missing_of(api, id, healthy).await?);
    }
    if missing.is_empty() {
        return Ok(missing);
    }
    // The reasons need one more request, which only a leader with a scheduler answers.
    if let Ok(queue) = explain::queue(api).await {
        let items = queue["queue"].as_array().into_iter().flatten();
        for item in items {
            let id = explain::definition(item)["id"].as_str().unwrap_or_default();
            let below = |wanted: &String| {
                id == wanted || id.starts_with(&format!("{}/", wanted.trim_end_matches('/')))
            };
            if ids.iter().any(below) {
                let count = item["count"].as_u64().unwrap_or(0);
                missing.push(format!(
                    "{count} of {id} not launched, {}",
                    explain::in_short(item)
                ));
            }
        }
    }
    Ok(missing)
}

async fn missing_of(api: &Api, id: &str, healthy: bool) -> anyhow::Result<Vec<String>> {
    let single = if id == "/" {
        None
    } else {
        api.find(&format!("v2/apps{id}")).await?
    };
    if let Some(app) = single.filter(|single| single["app"].is_object()) {
        return Ok(of_app(&app["app"], healthy).into_iter().collect());
    }
    if id != "/"
        && let Some(pod) = api.find(&format!("v2/pods{id}::status")).await?
    {
        let deployments = api.get("v2/deployments").await?;
        return Ok(of_pod(&pod, &deployments).into_iter().collect());
    }
    let group = api
        .find(&format!("v2/groups{}", id.trim_end_matches('/')))
        .await?;
    let Some(group) = group else { return Ok(Vec::new()) };
    let deployments = api.get("v2/deployments").await?;
    let mut missing = Vec::new();
    let mut below = vec![&group];
    while let Some(group) = below.pop() {
        let list = |key: &str| group[key].as_array().into_iter().flatten();
        missing.extend(list("apps").filter_map(|app| of_app(app, healthy)));
        missing.extend(list("pods").filter_map(|pod| of_pod(pod, &deployments)));
        below.extend(list("groups"));
    }
    Ok(missing)
}

/// What an app misses.
fn of_app(app: &Value, healthy: bool) -> Option<String> {
    let number = |key: &str| app[key].as_u64().unwrap_or(0);
    let locks = app["deployments"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted = number("instances");
    let checked = app["healthChecks"]
        .as_array()
        .is_some_and(|checks| !checks.is_empty());
    let unhealthy = healthy && checked && number("tasksHealthy") < wanted;
    let done = number("tasksRunning") == wanted && number("tasksStaged") == 0;
    if locks.is_empty() && done && !unhealthy {
        return None;
    }
    let mut text = format!(
        "{}: {}",
        app["id"].as_str().unwrap_or_default(),
        progress::instances(app)
    );
    let ids: Vec<&str> = locks.iter().filter_map(|lock| lock["id"].as_str()).collect();
    if !ids.is_empty() {
        text = format!("{text}, deployment {} runs", ids.join(", "));
    }
    Some(text)
}

/// What a pod misses, by its status.
fn of_pod(pod: &Value, deployments: &Value) -> Option<String> {
    let id = pod["id"].as_str().unwrap_or_default();
    let locks = deployments.as_array().into_iter().flatten();
    let locked = locks.filter(|deployment| affected_by(deployment).iter().any(|affected| affected == id));
    let ids: Vec<&str> = locked
        .filter_map(|deployment| deployment["id"].as_str())
        .collect();
    let instances = pod["instances"].as_array().map_or(&[][..], Vec::as_slice);
    let stable = instances.iter().filter(|one| one["status"] == "STABLE").count();
    if pod["status"] == "STABLE" && ids.is_empty() {
        return None;
    }
    let wanted = pod["spec"]["scaling"]["instances"].as_u64().unwrap_or(1);
    let mut text = format!("{id}: {stable}/{wanted} stable");
    if !ids.is_empty() {
        text = format!("{text}, deployment {} runs", ids.join(", "));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_misses_instances_health_and_the_end_of_its_deployment() {
        let app = |staged: u64, running: u64, healthy: u64, locks: Value| {
            json!({
                "id": "/a", "instances": 2, "tasksStaged": staged, "tasksRunning": running, "tasksHealthy": healthy,
                "healthChecks": [{}], "deployments": locks,
            })
        };
        assert_eq!(of_app(&app(0, 2, 0, json!([])), false), None);
        assert_eq!(of_app(&app(0, 2, 2, json!([])), true), None);
        let text = |app: Value, healthy| of_app(&app, healthy).expect("something is missing");
        assert_eq!(text(app(0, 2, 1, json!([])), true), "/a: 2/2 run, 1 healthy");
        assert_eq!(text(app(0, 1, 1, json!([])), false), "/a: 1/2 run, 1 healthy");
        assert!(text(app(0, 2, 2, json!([{"id": "d"}])), false).ends_with("deployment d runs"));
        assert!(of_app(&app(1, 2, 2, json!([])), false).is_some(), "one too many");
    }

    #[test]
    fn deployments_are_told_from_apps_by_their_form() {
        assert!(is_deployment("5f3c2a10-0b1c-4d6e-8f00-0123456789ab"));
        for id in [
            "web",
            "/5f3c2a10-0b1c-4d6e-8f00-0123456789ab",
            "5f3c2a10-0b1c-4d6e-8f00-0123456789zz",
        ] {
            assert!(!is_deployment(id), "{id}");
        }
    }
}
