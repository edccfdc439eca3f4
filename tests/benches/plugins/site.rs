//! A plugin host in this process with its own directory.

use std::path::Path;

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::{CompileProcess, Compiler, Config, Plugins};
use transom_tests::{plugin::Plugin, process::binary};

pub(crate) struct Host {
    pub(crate) plugins: Plugins,
    token: CancellationToken,
    dir: TempDir,
}

impl Host {
    /// Starts a host with these plugins, each under its name.
    pub(crate) async fn with(installed: &[(&str, &Plugin)]) -> Host {
        Host::configured(installed, |_| {}).await
    }

    pub(crate) async fn configured(installed: &[(&str, &Plugin)], change: impl FnOnce(&mut Config)) -> Host {
        let dir = tempfile::tempdir().unwrap();
        for (name, plugin) in installed {
            plugin.install(dir.path(), name);
        }
        let token = CancellationToken::new();
        let mut config = Config::new(dir.path());
        // Components are compiled in a process, as in the daemon.
        config.compiler = Compiler::Process(CompileProcess {
            program: binary(),
            arguments: ["plugin", "compile"].map(Into::into).to_vec(),
            memory: 2 << 30,
        });
        change(&mut config);
        let plugins = config
            .start(&mut Registry::default(), token.clone())
            .await
            .unwrap();
        for status in plugins.list() {
            assert_eq!(status.refusal, None, "{}", status.name);
        }
        Host { plugins, token, dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        self.plugins.stopped().await;
    }
}

/// Sets another limit, given as a line of the manifest's `[limits]`.
pub(crate) fn limited(mut plugin: Plugin, line: &str) -> Plugin {
    let mut manifest: toml::Table = plugin.manifest.parse().unwrap();
    let limit: toml::Table = line.parse().unwrap();
    let limits = manifest
        .entry("limits")
        .or_insert_with(|| toml::Table::new().into());
    limits.as_table_mut().unwrap().extend(limit);
    plugin.manifest = manifest.to_string();
    plugin
}
