//! `transom fw backup`, `transom fw backups` and `transom fw restore`.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use transom_plugin_host::printable;

use super::api::{self, Api, Framework};
use crate::exit::Misconfigured;
use crate::output::{self, Output, print_note};

/// Interval between requests.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a framework may fail to answer during an operation.
const MAX_OUTAGE: Duration = Duration::from_mins(2);

const PATH: &[&str] = &["datastore", "backups"];

/// Back up the datastore of a framework; prints the name of the backup.
///
/// The framework's daemon stores it in the directory of its section `[kubernetes.backup]`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom fw backup fw --wait")]
pub(crate) struct Backup {
    #[command(flatten)]
    framework: Framework,
    /// Wait until the backup is complete; exit code 1 if it fails.
    #[arg(long)]
    wait: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Backup {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.framework.api().await?;
        let answer = api::document(&api.send(Method::POST, PATH).await?);
        let name = text(&answer, "name");
        ensure!(
            !name.is_empty(),
            "the response of the framework does not contain the name of the backup"
        );
        if self.wait {
            report_progress(&api, "backup", name).await?;
        }
        let state = if self.wait { "complete" } else { "running" };
        output::print_text(self.output, &json!({"name": name, "state": state}), name)
    }
}

/// List the backups of a framework's datastore, the oldest first.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom fw backups fw --output json | jq -r '.backups[-1].name'")]
pub(crate) struct Backups {
    #[command(flatten)]
    framework: Framework,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The columns.
const HEADINGS: &[&str] = &["name", "state", "engine", "version", "created", "size"];

impl Backups {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.framework.api().await?;
        let document = api::document(&api.get(PATH).await?);
        if self.output == Output::Json {
            return output::print_text(self.output, &document, "");
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{}", output::table(HEADINGS, list(&document).map(row)))?;
        let failed = list(&document).filter(|backup| backup["reason"].is_string());
        for backup in failed {
            let (name, reason) = (text(backup, "name"), text(backup, "reason"));
            writeln!(out, "{}", printable(&format!("{name}: {reason}")))?;
        }
        let operation = text(&document["operation"], "text");
        if !operation.is_empty() {
            writeln!(out, "{}", printable(operation))?;
        }
        Ok(())
    }
}

/// Restore the datastore of a framework from a backup.
///
/// The servers are stopped during the restore; agents keep running their pods. Everything that was
/// written after the backup is lost. The command waits until a server answers again; exit code 1 if the
/// restore fails.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom fw restore fw fw-20260131T120000Z-1a2b --yes")]
pub(crate) struct Restore {
    #[command(flatten)]
    framework: Framework,
    /// The name of the backup, as `transom fw backups` shows it.
    backup: String,
    /// Confirm that the present data is replaced.
    #[arg(long)]
    yes: bool,
    /// Do not wait.
    #[arg(long)]
    detach: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Restore {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let backup = self.backup.as_str();
        if !self.yes {
            return Err(anyhow!(
                "a restore stops the servers and replaces the present data by that of {backup}; add --yes to do so"
            )
            .context(Misconfigured));
        }
        let api = self.framework.api().await?;
        let path = [PATH[0], PATH[1], backup, "restore"];
        api.send(Method::POST, &path).await?;
        if !self.detach {
            report_progress(&api, "restore", backup).await?;
        }
        let (state, words) = if self.detach {
            ("running", "is being restored")
        } else {
            ("restored", "is restored")
        };
        let document = json!({"name": backup, "state": state});
        output::print_text(self.output, &document, &format!("{backup} {words}"))
    }
}

/// Reports the progress of an operation on standard error, until it is over.
async fn report_progress(api: &Api, operation_name: &str, backup: &str) -> anyhow::Result<()> {
    let (mut reported, mut answered_at) = (String::new(), Instant::now());
    loop {
        match api.get(PATH).await {
            Ok(answer) => {
                answered_at = Instant::now();
                match progress(&api::document(&answer), operation_name, backup) {
                    Progress::Running(current) => {
                        if current != reported {
                            print_note(printable(&current));
                            reported = current;
                        }
                    }
                    Progress::Ended(None) => return Ok(()),
                    Progress::Ended(Some(reason)) => {
                        bail!("the {operation_name} {backup} has failed: {reason}")
                    }
                }
            }
            // After a failover the new leader continues the operation.
            Err(error) if answered_at.elapsed() > MAX_OUTAGE => return Err(error),
            Err(_) => {}
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The progress of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// The operation is running; a text about its current step.
    Running(String),
    /// The operation is over; the reason if it failed.
    Ended(Option<String>),
}

fn progress(document: &Value, operation_name: &str, backup: &str) -> Progress {
    let operation = &document["operation"];
    if text(operation, "kind") == operation_name && text(operation, "backup") == backup {
        let (step, reason) = (text(operation, "text"), operation["reason"].as_str());
        return match reason {
            Some(reason) if text(operation, "phase") == "held" => {
                Progress::Ended(Some(format!("{reason}; {step}")))
            }
            Some(reason) => Progress::Running(format!("{step}: {reason}")),
            None => Progress::Running(step.to_owned()),
        };
    }
    let last = &document[format!("last_{operation_name}")];
    if text(last, "backup") == backup {
        return Progress::Ended(last["reason"].as_str().map(str::to_owned));
    }
    Progress::Ended(Some(
        "another operation has replaced it, and its result is no longer stored".to_owned(),
    ))
}

fn list(document: &Value) -> impl Iterator<Item = &Value> {
    document["backups"].as_array().into_iter().flatten()
}

fn row(backup: &Value) -> Vec<String> {
    let columns = HEADINGS.iter().map(|column| match &backup[*column] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    });
    columns.collect()
}

fn text<'a>(document: &'a Value, member: &str) -> &'a str {
    document[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_is_followed_until_it_is_over() {
        let operation = |phase: &str, reason: Option<&str>| json!({"operation": {"kind": "restore", "backup": "b", "phase": phase, "text": "x", "reason": reason}});
        let running = |text: &str| Progress::Running(text.to_owned());
        let failed = |text: &str| Progress::Ended(Some(text.to_owned()));
        for (document, expected) in [
            (operation("stop", None), running("x")),
            (operation("revert", Some("why")), running("x: why")),
            (operation("held", Some("why")), failed("why; x")),
            (
                json!({"last_restore": {"backup": "b", "reason": null}}),
                Progress::Ended(None),
            ),
            (
                json!({"last_restore": {"backup": "b", "reason": "why"}}),
                failed("why"),
            ),
        ] {
            assert_eq!(progress(&document, "restore", "b"), expected, "{document}");
        }
        for document in [
            json!({"last_restore": {"backup": "c", "reason": null}}),
            json!({"last_backup": {"backup": "b", "reason": null}}),
            json!({}),
        ] {
            assert!(matches!(
                progress(&document, "restore", "b"),
                Progress::Ended(Some(_))
            ));
        }
    }

    #[test]
    fn backup_that_is_not_complete_has_empty_columns() {
        let backup = json!({"name": "b", "state": "running", "engine": null, "size": null});
        assert_eq!(row(&backup), ["b", "running", "", "", "", ""]);
        let backup = json!({"name": "b", "size": 7});
        assert_eq!(row(&backup).last().map(String::as_str), Some("7"));
    }
}
