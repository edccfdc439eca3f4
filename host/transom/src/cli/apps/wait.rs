//! `transom apps wait`: waits until an app, pod or group runs as wanted, or a deployment ends.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::api::Daemon;
use super::follow::{DeploymentFollower, running, usage_error};
use super::id;
use super::missing::{Missing, missing};
use super::progress::Progress;
use crate::exit::Unavailable;
use crate::output::{self, Output};

/// Interval between requests.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Wait until an app, pod or group runs as wanted, or until a deployment ends.
///
/// An app runs as wanted when no deployment changes it, all of its instances run, and no other task is
/// being launched. After the timeout the exit code is 1, and the error lists what is missing. The exit
/// code is also 1 if the app is deleted meanwhile, for example because its creation is rolled back.
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
    /// Stop waiting after this many seconds, with exit code 1. Default: no limit.
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
            let follower =
                DeploymentFollower::open_with_timeout(&api, timeout, false, self.daemon.output).await?;
            if running(&api, &self.id).await?.is_some() {
                return follower.wait_for(&self.id).await;
            }
            eprintln!("deployment {} is not running; its result is not stored", self.id);
            let document = json!({"deploymentId": self.id, "state": "over"});
            return output::print_text(self.daemon.output, &document, "");
        }
        let id = id::parse(&self.id).map_err(usage_error)?;
        id::find(&api, &id).await?;
        let mut progress = Progress::new();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ids = [id.clone()];
        loop {
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let missing = match missing(&api, &ids, self.healthy).await {
                Err(error) if error.is::<Unavailable>() && deadline.is_some() && !is_late => {
                    let texts = vec!["no response from the daemon; retrying".to_owned()];
                    Missing {
                        texts,
                        ..Missing::default()
                    }
                }
                missing => missing?,
            };
            if !missing.absent.is_empty() {
                progress.end();
                if self.daemon.output == Output::Json {
                    let document = json!({"id": id, "state": "deleted"});
                    output::print_text(self.daemon.output, &document, "")?;
                }
                bail!("{id} was deleted while this command waited for it");
            }
            let missing = missing.texts;
            if missing.is_empty() {
                progress.end();
                let document = json!({"id": id, "state": "ready"});
                return output::print_text(self.daemon.output, &document, &format!("{id} is ready"));
            }
            let text = missing.join("; ");
            progress.show(&text);
            if is_late {
                progress.end();
                if self.daemon.output == Output::Json {
                    let document = json!({"id": id, "state": "waiting", "missing": missing});
                    output::print_text(self.daemon.output, &document, "")?;
                }
                let seconds = self.timeout.unwrap_or_default();
                bail!(
                    "{id} is not ready after {seconds} s: {text}\n`transom apps explain {id}` shows the \
                     reasons."
                );
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            sleep(remaining.map_or(POLL_INTERVAL, |remaining| remaining.min(POLL_INTERVAL))).await;
        }
    }
}

/// Whether an argument is the id of a deployment, which is a UUID. The id of an app in that form is
/// given with a slash.
fn is_deployment(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployment_ids_are_recognised_by_their_form() {
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
