//! The daemon that serves the plugin: its state, and new files for it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use transom_common::text::hex;

use crate::cli::plugin::build::{Built, place_pair};
use crate::cli::plugin::connection::Connection;
use crate::exit::Misconfigured;

/// How long the daemon may take to see new files. It is asked to look at them.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// How long an admission that the daemon has begun may take; a compilation has a limit below that
/// unless it was configured.
const ADMITTED_WITHIN: Duration = Duration::from_mins(10);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct Daemon {
    connection: Connection,
    /// The plugin's name there.
    pub(super) name: String,
    /// Its plugin directory.
    pub(super) dir: PathBuf,
}

/// How the daemon took the files.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The plugin's own version.
    Serving(String),
    /// With `rollout = "shadow"` or `"canary"`: which, and the plugin's own version.
    Beside(String, String),
    /// The files are the ones that it has.
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

impl Daemon {
    /// `dir`: its plugin directory, if it is not the one that the daemon names.
    pub(super) async fn find(
        connection: Connection,
        name: String,
        dir: Option<&Path>,
    ) -> anyhow::Result<Daemon> {
        // As the daemon has it; the name becomes one of files.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let fine = name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !fine || name.len() > 64 {
            let expected =
                "expected 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit";
            return Err(anyhow::anyhow!("`{name}` is not a plugin's name: {expected}").context(Misconfigured));
        }
        let document = connection.ask(Method::GET, &[], None).await.context(
            "`transom plugin dev` needs a running daemon; `transom dev` starts one with everything it needs",
        )?;
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => document["dir"]
                .as_str()
                .map(PathBuf::from)
                .context("the daemon does not tell its plugin directory: name it with --plugins")
                .context(Misconfigured)?,
        };
        if !dir.is_dir() {
            let error = anyhow::anyhow!(
                "there is no folder {} on this machine: name the daemon's plugin directory with --plugins",
                dir.display()
            );
            return Err(error.context(Misconfigured));
        }
        Ok(Daemon {
            connection,
            name,
            dir,
        })
    }

    /// The daemon's status of the plugin; null if it knows none of that name.
    pub(super) async fn status(&self) -> anyhow::Result<Value> {
        let mut document = self.connection.ask(Method::GET, &[], None).await?;
        let plugins = document["plugins"].as_array_mut();
        let found = plugins.and_then(|it| it.iter_mut().find(|it| it["name"] == self.name));
        Ok(found.map(Value::take).unwrap_or_default())
    }

    /// Lines of its log after this number.
    pub(super) async fn log(&self, after: u64) -> anyhow::Result<Vec<Value>> {
        let query = [("after", after.to_string())];
        let path = [self.name.as_str(), "log"];
        let mut document = self.connection.get(&path, &query).await?;
        Ok(match document["lines"].take() {
            Value::Array(lines) => lines,
            _ => Vec::new(),
        })
    }

    /// What serves now, for a message.
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

    /// Copies the files to the plugin directory and waits for the daemon's verdict.
    pub(super) async fn serve(&self, built: &Built) -> anyhow::Result<Outcome> {
        let digest = format!("sha256:{}", hex(&Sha256::digest(&built.component)));
        let path = |kind: &str| self.dir.join(format!("{}.{kind}", self.name));
        let same = |kind: &str, content: &[u8]| fs::read(path(kind)).is_ok_and(|it| it == content);
        if same("wasm", &built.component) && same("toml", &built.manifest) {
            let status = self.status().await?;
            if status["digest"] == digest && status["refusal"].is_null() {
                return Ok(Outcome::Unchanged);
            }
        }
        place_pair(&self.dir, &self.name, &built.component, &built.manifest)
            .context("the daemon's plugin directory")?;
        // Without the order it sees them, too, a little later; a user who may only read cannot give
        // it.
        if let Err(error) = self.connection.ask(Method::POST, &["rescan"], None).await {
            eprintln!("{error:#}");
        }
        self.verdict(&digest).await
    }

    async fn verdict(&self, digest: &str) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        loop {
            let status = self.status().await?;
            let admitting = !status["admitting"].is_null();
            if !admitting {
                if let Some(refusal) = status["refusal"].as_str() {
                    bail!("the daemon refuses it: {refusal}");
                }
                let version = |of: &Value| of["version"].as_str().unwrap_or_default().to_owned();
                if status["digest"] == digest {
                    if let Some(reason) = status["disabled_reason"].as_str() {
                        bail!("the daemon has disabled it: {reason}");
                    }
                    return Ok(Outcome::Serving(version(&status)));
                }
                let rollout = &status["rollout"];
                if rollout["digest"] == digest {
                    let kind = rollout["kind"].as_str().unwrap_or("shadow").to_owned();
                    return Ok(Outcome::Beside(kind, version(rollout)));
                }
            }
            let limit = if admitting { ADMITTED_WITHIN } else { SEEN_WITHIN };
            ensure!(
                begun.elapsed() < limit,
                "the daemon did not take {}.wasm from {} within {} s: is this its plugin directory?",
                self.name,
                self.dir.display(),
                limit.as_secs()
            );
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// The digest in short.
fn digest_of(status: &Value) -> String {
    let digest = status["digest"].as_str().unwrap_or_default();
    digest.chars().take("sha256:".len() + 12).collect()
}
