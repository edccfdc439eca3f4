//! The value of `--store`, `--from` and `--to`: a configuration file or the address of a store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use transom_cli::exit::{Misconfigured, Unavailable};
use transom_config::{Overrides, Settings, parts};
use transom_store::{Config, Store};

/// The timeout of one call. The first one also waits until a ZooKeeper's whole state is read.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The argument of a command on one store.
#[derive(Debug, Args)]
pub(super) struct StoreArgument {
    /// The store: a configuration file or an address.
    #[arg(
        long,
        visible_alias = "config",
        env = "TRANSOM_CONFIG",
        default_value = "transom.toml",
        value_name = "STORE"
    )]
    store: String,
}

impl StoreArgument {
    pub(super) fn location(&self) -> anyhow::Result<Location> {
        Location::parse(&self.store)
    }
}

/// A store that a command was given.
#[derive(Debug)]
pub(super) struct Location {
    config: Config,
    /// The names of the frameworks in a configuration file.
    pub(super) frameworks: Vec<String>,
}

impl Location {
    /// Reads a configuration file, or parses an address.
    ///
    /// # Errors
    /// [`Misconfigured`] with what is expected.
    pub(super) fn parse(value: &str) -> anyhow::Result<Self> {
        let is_address = value.starts_with("file:") || value.contains("://");
        let config = Config::new(value);
        if is_address || (!Path::new(value).exists() && config.exists().is_ok()) {
            config.exists().context(Misconfigured)?;
            return Ok(Self {
                config,
                frameworks: Vec::new(),
            });
        }
        if !Path::new(value).exists() {
            return Err(anyhow!(
                "there is no configuration file {value}, and it is not the address of a store either: expected a file such \
                 as transom.toml, `file:DIR`, `zk://USER:PASSWORD@HOST:PORT/PATH`, `HOST:PORT` or `redis://HOST:PORT`"
            )
            .context(Misconfigured));
        }
        let (settings, _) =
            transom_config::load(Some(Path::new(value)), Overrides::default()).context(Misconfigured)?;
        let config = parts::store::config(&settings.store);
        config.exists().context(Misconfigured)?;
        Ok(Self {
            config,
            frameworks: frameworks(&settings),
        })
    }

    /// The address for display, without user and password.
    pub(super) fn shown(&self) -> String {
        self.config.shown_server()
    }

    /// Opens the store, which must exist.
    pub(super) async fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        if !self.config.exists().context(Misconfigured)? {
            return Err(anyhow!("there is no store at {}", self.shown())).context(Unavailable);
        }
        self.open_or_create().await
    }

    /// Opens the store; the embedded one is created if it is missing.
    pub(super) async fn open_or_create(&self) -> anyhow::Result<Arc<dyn Store>> {
        let config = Config {
            call_timeout: CALL_TIMEOUT,
            ..self.config.clone()
        };
        match config.open().await {
            Err(error @ transom_store::Error::Locked { .. }) => Err(error)
                .context("a daemon runs on this store: stop it first")
                .context(Unavailable),
            opened => opened.context(Unavailable),
        }
    }
}

fn frameworks(settings: &Settings) -> Vec<String> {
    let apps = settings.apps.iter().map(|apps| &apps.framework_name);
    let workflow = settings.workflow.iter().map(|workflow| &workflow.framework_name);
    let kubernetes = settings
        .kubernetes()
        .into_iter()
        .map(|section| &section.framework_name);
    apps.chain(workflow).chain(kubernetes).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_is_an_address_or_a_configuration_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a:1");
        let text = "[store]\nserver = \"h:6380\"\n[apps]\nframework_name = \"f\"\n[workflow]\n";
        std::fs::write(&file, text).unwrap();
        let parsed = |value: &str| Location::parse(value).map(|found| (found.shown(), found.frameworks));
        let of_file = parsed(&file.display().to_string()).unwrap();
        assert_eq!(
            of_file,
            ("h:6380".to_owned(), vec!["f".to_owned(), "Airflow".to_owned()])
        );
        for (value, shown) in [
            ("file:/x", "file:/x"),
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://u:p@h:1/2", "redis://***@h:1/2"),
            ("zk://u:p@h:1/t", "zk://***@h:1/t"),
        ] {
            assert_eq!(parsed(value).unwrap(), (shown.to_owned(), Vec::new()));
        }
        for (value, expected) in [
            ("missing.toml", "there is no configuration file missing.toml"),
            ("file:", "the directory name is missing"),
            ("zk://h:1/t", "without a user and a password"),
            ("http://h:1", "write `file:DIR`"),
        ] {
            let error = parsed(value).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{value}: {error:#}");
            assert!(error.is::<Misconfigured>(), "{value}");
        }
    }
}
