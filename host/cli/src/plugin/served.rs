//! A plugin in a running daemon: its state, and the daemon's verdict about new files.

use std::fmt;
use std::time::Duration;

use anyhow::{bail, ensure};
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use crate::admin_port::Connection;

/// How long an admission may take. The daemon's default timeout of compiling a component is shorter.
const ADMISSION_TIMEOUT: Duration = Duration::from_mins(10);
/// Interval of the requests to the daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct PluginOnDaemon {
    pub(super) connection: Connection,
    /// The plugin's name in the daemon.
    pub(super) name: String,
}

/// The daemon's decision about the files.
#[derive(Debug)]
pub(super) enum Admission {
    /// The component serves; contains its own version.
    Serving(String),
    /// The component runs as a shadow or canary; contains which of the two, and the component's own
    /// version.
    Rollout(String, String),
    /// The daemon has the same files already.
    Unchanged,
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admission::Serving(version) => write!(f, "version {version} serves"),
            Admission::Rollout(kind, version) => {
                write!(
                    f,
                    "version {version} runs as a {kind}; `transom plugin promote` makes it the serving version"
                )
            }
            Admission::Unchanged => f.write_str("the daemon has this component and manifest already"),
        }
    }
}

impl PluginOnDaemon {
    /// The daemon's status of the plugin; null if the daemon has no plugin of that name.
    pub(super) async fn status(&self) -> anyhow::Result<Value> {
        let mut document = self.connection.request(Method::GET, &[], None).await?;
        let plugins = document["plugins"].as_array_mut();
        let plugin = plugins.and_then(|it| it.iter_mut().find(|it| it["name"] == self.name));
        Ok(plugin.map(Value::take).unwrap_or_default())
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
    pub(super) async fn serving_text(&self) -> String {
        match self.status().await {
            Ok(status) => match (status["version"].as_str(), status["state"].as_str()) {
                (Some(version), Some("serving")) => {
                    format!(
                        "version {version} of {} ({}) serves",
                        self.name,
                        short_digest(&status)
                    )
                }
                (_, Some(state)) => format!("no version of {} serves ({state})", self.name),
                _ => format!("no version of {} serves", self.name),
            },
            Err(error) => format!("{error:#}"),
        }
    }

    /// Waits until the daemon has admitted or rejected the files with the component of this digest.
    /// `detection_error`: the error if the admission does not begin within `detection_timeout`.
    pub(super) async fn wait_for_admission(
        &self,
        digest: &str,
        detection_timeout: Duration,
        detection_error: &str,
    ) -> anyhow::Result<Admission> {
        let started = Instant::now();
        loop {
            let status = self.status().await?;
            let admitting = !status["admitting"].is_null();
            if !admitting {
                if let Some(rejection) = status["refusal"].as_str() {
                    bail!("the daemon rejects it: {rejection}");
                }
                let version = |status_or_rollout: &Value| {
                    status_or_rollout["version"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                };
                // The rollout is checked first: if only the manifest changed, the serving version has
                // the same digest.
                let rollout = &status["rollout"];
                if rollout["digest"] == digest {
                    let kind = rollout["kind"].as_str().unwrap_or("shadow").to_owned();
                    return Ok(Admission::Rollout(kind, version(rollout)));
                }
                if status["digest"] == digest {
                    if let Some(reason) = status["disabled_reason"].as_str() {
                        bail!("the daemon has disabled it: {reason}");
                    }
                    return Ok(Admission::Serving(version(&status)));
                }
            }
            ensure!(
                admitting || started.elapsed() < detection_timeout,
                "{detection_error}"
            );
            ensure!(
                started.elapsed() < ADMISSION_TIMEOUT,
                "the daemon has not admitted {}.wasm within {} s; `transom plugin show {}` has its state",
                self.name,
                ADMISSION_TIMEOUT.as_secs(),
                self.name
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The abbreviated digest.
fn short_digest(status: &Value) -> String {
    let digest = status["digest"].as_str().unwrap_or_default();
    digest.chars().take("sha256:".len() + 12).collect()
}
