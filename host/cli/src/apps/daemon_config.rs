//! The settings and the store of a configuration, for commands that run without a daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use transom_cluster::v1::FrameworkInfo;
use transom_config::{Overrides, Settings, parts};
use transom_store::{Store, transfer};

use crate::exit::{Misconfigured, Unavailable};

/// A configuration with the section `[apps]`.
pub(super) struct DaemonConfig {
    pub(super) settings: Settings,
    /// The service's section; `framework_name` is the prefix of its records in the store.
    pub(super) apps: transom_apps::Settings,
    /// The framework that the service registers.
    pub(super) framework: FrameworkInfo,
    file: PathBuf,
}

impl DaemonConfig {
    /// Reads a configuration.
    pub(super) fn load(file: &Path) -> anyhow::Result<Self> {
        let (settings, _) = transom_config::load(Some(file), Overrides::default()).context(Misconfigured)?;
        let Some(apps) = settings.apps.clone() else {
            return Err(anyhow::anyhow!(
                "{} has no section [apps], so no store of apps",
                file.display()
            ))
            .context(Misconfigured);
        };
        Ok(Self {
            framework: apps.framework(settings.cluster.principal.clone()),
            settings,
            apps,
            file: file.to_owned(),
        })
    }

    /// Whether the store exists; opening the embedded one would create it.
    pub(super) fn has_store(&self) -> anyhow::Result<bool> {
        let store = parts::store::config(&self.settings.store);
        store.exists().context(Misconfigured)
    }

    /// Opens the store, unless it has an unfinished copy.
    pub(super) async fn store(&self) -> anyhow::Result<Arc<dyn Store>> {
        let store = self.open().await?;
        transfer::check_finished(&*store).await.context(Unavailable)?;
        Ok(store)
    }

    async fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        match parts::store::config(&self.settings.store).open().await {
            Err(error @ transom_store::Error::Locked { .. }) => {
                let file = self.file.display();
                Err(error)
                    .with_context(|| format!("the daemon of {file} runs on this store: stop it first"))
                    .context(Unavailable)
            }
            opened => opened.context(Unavailable),
        }
    }

    /// A client of the cluster's masters, or of those at `master`.
    pub(super) fn cluster(&self, master: Option<&str>) -> anyhow::Result<transom_cluster::Client> {
        let mut section = self.settings.cluster.clone();
        if let Some(master) = master {
            match master.split_once("://") {
                Some(("http", address)) => {
                    address.trim_end_matches('/').clone_into(&mut section.master);
                    section.ssl = false;
                }
                Some(("https", address)) => {
                    address.trim_end_matches('/').clone_into(&mut section.master);
                    section.ssl = true;
                }
                Some((scheme, _)) if scheme != "zk" => {
                    bail!("--master {master}: expected HOST:PORT, http://, https:// or zk://");
                }
                _ => master.clone_into(&mut section.master),
            }
        }
        let config = parts::cluster::config(&section).context(Misconfigured)?;
        transom_cluster::Client::new(config).context(Misconfigured)
    }
}
