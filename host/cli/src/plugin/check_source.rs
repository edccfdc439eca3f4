//! `transom plugin check NAME.toml`: checks a manifest with a `source`, whose component is fetched
//! first.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::{Change, Config, Registries, Signatures, State};

use crate::exit::Misconfigured;

/// The plugin's internal name during the check; it is never shown.
const NAME: &str = "component";

/// Runs a plugin host with these settings on a directory with only this manifest, and returns its
/// result.
pub(super) async fn verdict(
    manifest: &Path,
    registries: Registries,
    signatures: Signatures,
) -> anyhow::Result<Value> {
    let dir = tempfile::tempdir().context("cannot create a temporary directory")?;
    fs::copy(manifest, dir.path().join(NAME).with_extension("toml"))
        .with_context(|| format!("cannot read {}", manifest.display()))
        .context(Misconfigured)?;
    let timeout = registries.timeout;
    let config = Config {
        private: None,
        registries,
        signatures,
        ..Config::new(dir.path())
    };
    let token = CancellationToken::new();
    let plugins = config
        .start(&mut Registry::default(), token.clone())
        .await
        .context(Misconfigured)?;
    let mut changes = plugins.changes();
    let current_status = || plugins.list().into_iter().find(|status| status.name == NAME);
    let wait_until_settled = async {
        while current_status()
            .is_some_and(|status| matches!(status.state, State::Fetching | State::Admitting))
        {
            match changes.recv().await {
                Ok(Change::Admitted { .. } | Change::Rejected { .. }) | Err(RecvError::Closed) => break,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
            }
        }
    };
    // Fetching has its own timeout; each step of admission has one too.
    let in_time = tokio::time::timeout(timeout.saturating_mul(2), wait_until_settled).await;
    let (status, record) = (current_status(), plugins.history(NAME).0.into_iter().next());
    token.cancel();
    plugins.stopped().await;
    let status = status.with_context(|| {
        format!(
            "{} names no `source`: check the component itself",
            manifest.display()
        )
    })?;
    if let Some(rejection) = &status.refusal {
        bail!("the daemon would reject {}: {rejection}", manifest.display());
    }
    if in_time.is_err() || status.state != State::Serving {
        bail!("fetch of {} timed out after {timeout:?}", manifest.display());
    }
    let record = serde_json::to_value(record)?;
    Ok(json!({
        "world": status.world,
        "version": status.version,
        "summary": status.summary,
        "source": record["source"],
        "signed_by": record["signed_by"],
        "attestations": record["attestations"],
        "digest": record["digest"],
        "imports": record["imports"],
        "grants": record["grants"],
        "limits": record["limits"],
    }))
}
