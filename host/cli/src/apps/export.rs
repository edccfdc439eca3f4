//! `transom apps export`: the records of the apps service as one document.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use transom_apps::migration::Backup;

use super::daemon_config::DaemonConfig;
use crate::exit::Unavailable;
use crate::output::write_new;

/// Print all definitions, their history, running deployments and tasks as one JSON document, which
/// `transom apps import --file` reads.
///
/// It reads the store that the configuration names. The embedded store is locked while its daemon
/// runs; on a shared store the daemons may run. The document may contain secrets.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom apps export --config transom.toml --to apps.json")]
pub(crate) struct Export {
    /// Configuration file.
    #[arg(long, env = "TRANSOM_CONFIG", default_value = "transom.toml")]
    config: PathBuf,
    /// Write to this file, which must not exist and which only its owner may read, instead of
    /// standard output.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

impl Export {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let daemon_config = DaemonConfig::load(&self.config)?;
        if !daemon_config.has_store()? {
            return Err(anyhow::anyhow!(
                "there is no store at {}",
                daemon_config.settings.store.server
            ))
            .context(Unavailable);
        }
        let store = daemon_config.store().await?;
        let backup = Backup::of_store(store, &daemon_config.apps.framework_name).await;
        let backup = backup.context(Unavailable)?;
        let text = serde_json::to_string_pretty(&backup)? + "\n";
        if backup.is_empty() {
            bail!(
                "the store {} has no apps under {}",
                daemon_config.settings.store.server,
                daemon_config.apps.framework_name
            );
        }
        match &self.to {
            Some(file) => write_new(file, &text).context(Unavailable),
            None => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
        }
    }
}
