//! A plugin in a running daemon: its state, and the daemon's verdict about new files.

use std::fmt;
use std::time::Duration;

use anyhow::{bail, ensure};
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::connection::Connection;

/// How long an admission may take. The daemon's default timeout of compiling a component is shorter.
const ADMITTED_WITHIN: Duration = Duration::from_mins(10);
/// Interval of the requests to the daemon.
const INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct Served {
    pub(super) connection: Connection,
    /// The plugin's name in the daemon.
    pub(super) name: String,
}

/// The daemon's decision about the files.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The component serves; contains its own version.
    Serving(String),
    /// The component runs as a shadow or canary; contains which of the two, and the component's own
    /// version.
    Beside(String, String),
    /// The daemon has the same files already.
    Unchanged,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Serving(version) => write!(f, "version {version} serves"),
            Outcome::Beside(kind, version) => {
                write!(
                    f,
                    "version {version} runs as a {kind}; `transom plugin promote` has it serve"
                )
            }
            Outcome::Unchanged => f.write_str("the daemon has this component and manifest already"),
        }
    }
}

impl Served {
    /// The daemon's status of the plugin; null if the daemon has no plugin of that name.
    pub(super) async fn status(&self) -> anyhow::Result<Value> {
        let mut document = self.connection.ask(Method::GET, &[], None).await?;
        let plugins = document["plugins"].as_array_mut();
        let found = plugins.and_then(|it| it.iter_mut().find(|it| it["name"] == self.name));
        Ok(found.map(Value::take).unwrap_or_default())
    }

    /// The lines of the plugin's log after this number.
    pub(super) async fn log(&self, after: u64) -> anyhow::Result<Vec<Value>> {
        let query = [("after", after.to_string())];
        let path = [self.name.as_str(), "log"];
        let mut document = self.connection.get(&path, &query).await?;
        Ok(match document["lines"].take() {
            Value::Array(lines) => lines,
            _ => Vec::new(),
        })
    }

    /// A sentence about the version that serves now.
    pub(super) async fn serving(&self) -> String {
        match self.status().await {
            Ok(status) => match (status["version"].as_str(), status["state"].as_str()) {
                (Some(version), Some("serving")) => {
                    format!(
                        "version {version} of {} ({}) serves",
                        self.name,
                        digest_of(&status)
                    )
                }
                (_, Some(state)) => format!("no version of {} serves ({state})", self.name),
                _ => format!("no version of {} serves", self.name),
            },
            Err(error) => format!("{error:#}"),
        }
    }

    /// Waits until the daemon has admitted or rejected the files with the component of this digest.
    /// `unseen`: the error if the admission does not begin within `seen_within`.
    pub(super) async fn verdict(
        &self,
        digest: &str,
        seen_within: Duration,
        unseen: &str,
    ) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        loop {
            let status = self.status().await?;
            let admitting = !status["admitting"].is_null();
            if !admitting {
                if let Some(refusal) = status["refusal"].as_str() {
                    bail!("the daemon rejects it: {refusal}");
                }
                let version = |of: &Value| of["version"].as_str().unwrap_or_default().to_owned();
                // The rollout is checked first: if only the manifest changed, the serving version has
                // the same digest.
                let rollout = &status["rollout"];
                if rollout["digest"] == digest {
                    let kind = rollout["kind"].as_str().unwrap_or("shadow").to_owned();
                    return Ok(Outcome::Beside(kind, version(rollout)));
                }
                if status["digest"] == digest {
                    if let Some(reason) = status["disabled_reason"].as_str() {
                        bail!("the daemon has disabled it: {reason}");
                    }
                    return Ok(Outcome::Serving(version(&status)));
                }
            }
            ensure!(admitting || begun.elapsed() < seen_within, "{unseen}");
            ensure!(
                begun.elapsed() < ADMITTED_WITHIN,
                "the daemon has not admitted {}.wasm within {} s; `transom plugin show {}` has its state",
                self.name,
                ADMITTED_WITHIN.as_secs(),
                self.name
            );
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// The abbreviated digest.
fn digest_of(status: &Value) -> String {
    let digest = status["digest"].as_str().unwrap_or_default();
    digest.chars().take("sha256:".len() + 12).collect()
}
