//! `transom apps wait`: waits until an app, pod or group runs as wanted, or a deployment ends.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::api::{Api, Daemon};
use super::complete;
use super::deadline::{NO_RESPONSE, within};
use super::follow::{DeploymentFollower, running, usage_error};
use super::id;
use super::missing::missing;
use super::progress::Progress;
use crate::exit::Unavailable;
use crate::output::{self, Output, print_note};

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
pub(crate) struct Wait {
    /// Id of an app, pod or group, or of a deployment.
    #[arg(value_name = "ID|DEPLOYMENT", add = complete::apps())]
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

/// How waiting for an app, pod or group ended.
enum WaitEnd {
    Ready,
    Deleted,
    /// Contains what was missing at the last response.
    TimedOut(Vec<String>),
}

impl Wait {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let timeout = self.timeout.map(|seconds| Duration::from_secs(seconds.into()));
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if is_deployment(&self.id) {
            let follower =
                DeploymentFollower::open_with_deadline(&api, deadline, false, self.daemon.output).await?;
            let found = within(deadline, running(&api, &self.id)).await;
            if found.context(NO_RESPONSE)??.is_some() {
                return follower.wait_for(&self.id).await;
            }
            print_note(format_args!(
                "deployment {} is not running; its result is not stored",
                self.id
            ));
            let document = json!({"deploymentId": self.id, "state": "over"});
            return output::print_text(self.daemon.output, &document, "");
        }
        let id = id::parse(&self.id).map_err(usage_error)?;
        let found = within(deadline, id::find(&api, &id)).await;
        found.context(NO_RESPONSE)??;
        let mut progress = Progress::new();
        let end = self.poll_until_end(&api, &id, deadline, &mut progress).await;
        progress.end();
        self.report(&id, &end?)
    }

    async fn poll_until_end(
        &self,
        api: &Api,
        id: &str,
        deadline: Option<Instant>,
        progress: &mut Progress,
    ) -> anyhow::Result<WaitEnd> {
        let ids = [id.to_owned()];
        let mut texts = Vec::new();
        while let Some(missing) = within(deadline, missing(api, &ids, self.healthy)).await {
            match missing {
                Ok(missing) if !missing.absent.is_empty() => return Ok(WaitEnd::Deleted),
                Ok(missing) if missing.texts.is_empty() => return Ok(WaitEnd::Ready),
                Ok(missing) => {
                    texts = missing.texts;
                    progress.show(&texts.join("; "));
                }
                Err(error) if error.is::<Unavailable>() && deadline.is_some() => {
                    texts = vec![NO_RESPONSE.to_owned()];
                    progress.show("no response from the daemon; retrying");
                }
                Err(error) => return Err(error),
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            sleep(remaining.map_or(POLL_INTERVAL, |remaining| remaining.min(POLL_INTERVAL))).await;
        }
        if texts.is_empty() {
            texts.push(NO_RESPONSE.to_owned());
        }
        Ok(WaitEnd::TimedOut(texts))
    }

    fn report(&self, id: &str, end: &WaitEnd) -> anyhow::Result<()> {
        let document = match end {
            WaitEnd::Ready => json!({"id": id, "state": "ready"}),
            WaitEnd::Deleted => json!({"id": id, "state": "deleted"}),
            WaitEnd::TimedOut(missing) => json!({"id": id, "state": "waiting", "missing": missing}),
        };
        if self.daemon.output == Output::Json || matches!(end, WaitEnd::Ready) {
            output::print_text(self.daemon.output, &document, &format!("{id} is ready"))?;
        }
        match end {
            WaitEnd::Ready => Ok(()),
            WaitEnd::Deleted => bail!("{id} was deleted while this command waited for it"),
            WaitEnd::TimedOut(missing) => {
                let (seconds, missing) = (self.timeout.unwrap_or_default(), missing.join("; "));
                bail!(
                    "{id} is not ready after {seconds} s: {missing}\n`transom apps explain {id}` shows the \
                     reasons."
                )
            }
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
