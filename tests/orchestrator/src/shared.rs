//! The state that the servers of a cluster share, as k3s shares it through the datastore: the
//! certificate authority, the addresses of the APIs, and the nodes of an API without a control
//! plane.
//!
//! It is in the folder `TRANSOM_ORCHESTRATOR_SHARED`. A single server uses its data folder instead.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::Arguments;

const VARIABLE: &str = "TRANSOM_ORCHESTRATOR_SHARED";

/// The shared folder.
pub(crate) struct SharedFolder(PathBuf);

impl SharedFolder {
    /// The shared folder of a server, created if it is missing.
    pub(crate) fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let folder = env::var_os(VARIABLE).map_or_else(|| arguments.data_dir.clone(), PathBuf::from);
        let shared = Self(folder);
        let servers = shared.servers();
        fs::create_dir_all(&servers).with_context(|| format!("creating {}", servers.display()))?;
        Ok(shared)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn servers(&self) -> PathBuf {
        self.0.join("servers")
    }

    /// Announces the URL of the API of the server with this id, so that agents find it.
    pub(crate) fn announce(&self, id: &str, url: &str) -> anyhow::Result<()> {
        let path = self.servers().join(id);
        fs::write(&path, url).with_context(|| format!("writing {}", path.display()))
    }
}

/// The URLs that servers have announced, including those of ended servers. An agent of k3s knows
/// all servers, too.
pub(crate) fn announced() -> Vec<String> {
    let folder = env::var_os(VARIABLE).map(|folder| Path::new(&folder).join("servers"));
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
    let files = entries.into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::read_to_string(file.path()).ok())
        .filter(|url| !url.is_empty())
        .collect()
}
