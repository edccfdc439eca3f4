//! Settings of commands that contact registries: the sections of a daemon's configuration.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use transom_config::{Overrides, parts};
use transom_plugin_host::{Registries, Signatures};

use crate::exit::Misconfigured;

/// The file that is read by default, if it exists.
const DEFAULT_CONFIG: &str = "transom.toml";

#[derive(Debug, Args)]
pub(super) struct RegistryArgs {
    /// Configuration file with `[plugins.oci]` and `[plugins.signatures]`. Default: transom.toml,
    /// if it exists.
    #[arg(long, env = "TRANSOM_CONFIG")]
    config: Option<PathBuf>,
    /// Registry (`host` or `host:port`) to contact without TLS, in addition to those in the
    /// configuration.
    #[arg(long, value_name = "HOST")]
    plain_http: Vec<String>,
}

impl RegistryArgs {
    /// The configuration file, if there is one.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let default_file = PathBuf::from(DEFAULT_CONFIG);
        self.config
            .clone()
            .or_else(|| default_file.is_file().then_some(default_file))
    }

    pub(super) fn read(&self) -> anyhow::Result<(Registries, Signatures)> {
        let file = self.file();
        let (settings, _) =
            transom_config::load(file.as_deref(), Overrides::default()).context(Misconfigured)?;
        let mut registries = parts::registries::registries(&settings.plugins.oci).context(Misconfigured)?;
        registries.plain_http.extend(self.plain_http.iter().cloned());
        let signatures =
            parts::registries::signatures(&settings.plugins.signatures).context(Misconfigured)?;
        Ok((registries, signatures))
    }
}
