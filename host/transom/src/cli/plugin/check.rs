//! `transom plugin check`: what a daemon would say to a component, without one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::registry::RegistryArgs;
use super::{check_source, flatten};
use crate::exit::Misconfigured;
use crate::output::{self, Output};

/// The name that the component has while it is looked at; nobody sees it.
const NAME: &str = "component";

/// Says what a daemon would say to a component and its manifest, without one: it is compiled, its imports are held against the
/// grants, and a trial instance is described, configured and put to the manifest's self-tests.
///
/// Exit code 1 when it would be refused; the message says why.
#[derive(Debug, Args)]
pub(in crate::cli) struct Check {
    /// The component; or a manifest alone that names a `source`, whose component is fetched.
    file: PathBuf,
    /// Its manifest; the file beside it with the ending `.toml` when left out.
    #[arg(long)]
    manifest: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Check {
    pub(in crate::cli) async fn run(self) -> anyhow::Result<()> {
        if self.manifest.is_none() && self.file.extension().is_some_and(|it| it == "toml") {
            let (registries, signatures) = self.registry.read()?;
            let verdict = check_source::verdict(&self.file, registries, signatures).await?;
            let mut rows = Vec::new();
            flatten("", &verdict, &mut rows);
            return output::print(self.output, &verdict, &["key", "value"], rows);
        }
        let manifest = self.manifest.unwrap_or_else(|| self.file.with_extension("toml"));
        let dir = tempfile::tempdir().context("a directory to look at it in")?;
        take(&self.file, dir.path(), "wasm").context(Misconfigured)?;
        take(&manifest, dir.path(), "toml")
            .context("a component is not admitted without a manifest: write one beside it, or name it with --manifest")
            .context(Misconfigured)?;
        let config = transom_plugins::Config {
            private: None,
            ..transom_plugins::Config::new(dir.path())
        };
        let token = CancellationToken::new();
        let plugins = config.start(&mut Registry::default(), token.clone()).await?;
        let status = plugins.list().into_iter().find(|status| status.name == NAME);
        let record = plugins.history(NAME).0.into_iter().next();
        token.cancel();
        plugins.stopped().await;
        let status = status.context("the host did not look at it")?;
        if let Some(refusal) = &status.refusal {
            bail!("{} would be refused: {refusal}", self.file.display());
        }
        let record = serde_json::to_value(record)?;
        let verdict = json!({
            "world": status.world,
            "version": status.version,
            "summary": status.summary,
            "digest": record["digest"],
            "imports": record["imports"],
            "grants": record["grants"],
            "limits": record["limits"],
        });
        let mut rows = Vec::new();
        flatten("", &verdict, &mut rows);
        output::print(self.output, &verdict, &["key", "value"], rows)
    }
}

/// Copies a file to where the host looks for it.
fn take(from: &Path, dir: &Path, ending: &str) -> anyhow::Result<()> {
    let to = dir.join(NAME).with_extension(ending);
    fs::copy(from, to).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(())
}
