//! `transom apps explain`: why instances are not launched or not healthy, and what to do.

use clap::Args;
use serde_json::{Value, json};

use super::api::{Api, Daemon};
use super::complete;
use super::explain;
use super::id::{self, Kind, Target};
use super::missing::{affected_by, missing};
use crate::output;

/// Explain why instances of an app or pod wait: condition by condition, with the number of offers.
///
/// In the last round of offers, each condition was tested with the offers that passed the previous
/// ones. Below the table are the constraints with the number of agents that each rejected, the backoff
/// after failures, the deployments that wait for the instances, and advice.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps explain web\n  \
    transom apps explain /shop/web --output json | jq '.conditions[] | select(.declined > 0)'")]
pub(crate) struct Explain {
    /// Id of the app or pod.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: String,
    #[command(flatten)]
    daemon: Daemon,
}

impl Explain {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let target = id::find_one(&api, &self.id).await?;
        let (queue, deployments) = (
            explain::queue(&api).await?,
            api.get("v2/deployments?embed=canary").await?,
        );
        let failing = failing(&api, &target).await?;
        let locks: Vec<&Value> = deployments
            .as_array()
            .into_iter()
            .flatten()
            .filter(|deployment| affected_by(deployment).contains(&target.id))
            .collect();
        let Some(item) = explain::queue_item(&queue, &target.id) else {
            let missing = missing(&api, std::slice::from_ref(&target.id), true).await?;
            anyhow::ensure!(missing.absent.is_empty(), "{} was deleted meanwhile", target.id);
            let message = pod_message(&api, &target).await?;
            return self.not_waiting(&target, failing.as_ref(), &missing.texts, message.as_deref());
        };
        let failure = last_failure(&target);
        let mut document = explain::document(item, &locks);
        document["lastTaskFailure"] = json!(failure);
        document["failing"] = json!(failing);
        let explanation = explain::explanation(item, &locks, jiff::Timestamp::now());
        let mut blocks = failing.as_ref().map(why_failing).into_iter().collect::<Vec<_>>();
        blocks.push(explanation.lines_before.join("\n"));
        if !explanation.rows.is_empty() {
            blocks.push(output::table(explain::HEADINGS, explanation.rows));
        }
        let failure = failure.map(described);
        let lines_after: Vec<String> = failure.into_iter().chain(explanation.lines_after).collect();
        blocks.push(lines_after.join("\n"));
        output::print_text(self.daemon.output, &document, &blocks.join("\n\n"))
    }

    /// The output if the queue has no entry; instances may still be missing.
    fn not_waiting(
        &self,
        target: &Target,
        failing: Option<&Value>,
        missing: &[String],
        message: Option<&str>,
    ) -> anyhow::Result<()> {
        let failure = last_failure(target);
        let document = json!({
            "id": target.id, "waiting": 0, "missing": missing, "lastTaskFailure": failure, "message": message,
            "failing": failing,
        });
        let mut lines: Vec<String> = failing.map(why_failing).into_iter().collect();
        lines.push(format!("{}: no instance waits for an offer.", target.id));
        lines.extend(missing.iter().map(|text| format!("* {text}")));
        lines.extend(failure.map(described));
        lines.extend(message.map(|message| format!("Message of the pod: {message}")));
        if missing.is_empty() && failing.is_none() {
            lines.push("All instances are running, and no deployment affects them.".to_owned());
        }
        output::print_text(self.daemon.output, &document, &lines.join("\n"))
    }
}

/// What fails of an app or pod, in the daemon's words; `None` if nothing does.
async fn failing(api: &Api, target: &Target) -> anyhow::Result<Option<Value>> {
    let is_pod = target.kind == Kind::Pod;
    let path = if is_pod {
        format!("v2/pods{}::status?embed=failing", target.id)
    } else {
        format!("v2/apps{}?embed=app.failing", target.id)
    };
    let mut shown = api.find(&path).await?;
    if !is_pod {
        shown = shown.map(|mut single| single["app"].take());
    }
    let failing = shown.map(|mut shown| shown["failing"].take());
    Ok(failing.filter(Value::is_object))
}

/// What fails, and the advice.
fn why_failing(failing: &Value) -> String {
    let text = |key: &str| failing[key].as_str().unwrap_or_default();
    let mut lines = vec![text("message").to_owned(), format!("* {}", text("advice"))];
    let stderr = failing["stderr"].as_array().map_or(&[][..], Vec::as_slice);
    if !stderr.is_empty() {
        lines.push("Last lines of the stderr of the last task that failed:".to_owned());
    }
    let stderr = stderr.iter().filter_map(Value::as_str);
    lines.extend(stderr.map(|line| format!("    {line}")));
    lines.join("\n")
}

/// The message in the status of a pod: its last failure, or what its agents lack for its volumes.
async fn pod_message(api: &Api, target: &Target) -> anyhow::Result<Option<String>> {
    if target.kind != Kind::Pod {
        return Ok(None);
    }
    let status = api.find(&format!("v2/pods{}::status", target.id)).await?;
    Ok(status.and_then(|status| status["message"].as_str().map(str::to_owned)))
}

/// The last failure of an app's task.
fn last_failure(target: &Target) -> Option<&Value> {
    let failure = target.document.get("lastTaskFailure");
    failure.filter(|failure| target.kind == Kind::App && failure.is_object())
}

fn described(failure: &Value) -> String {
    let text = |key: &str| failure[key].as_str().unwrap_or_default();
    format!(
        "Last failure: {} on {} at {}: {}",
        text("state"),
        text("host"),
        text("timestamp"),
        text("message")
    )
}
