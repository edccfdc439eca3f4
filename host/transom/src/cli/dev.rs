//! `transom dev`: everything on loopback in one process, with nothing else installed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;
use transom_cli::{
    exit::Misconfigured,
    output::{print_line, print_note},
    signals::stop_on_signal,
};

use super::cluster::Shape;
use super::ports::{self, Port};
use crate::daemon::services::SERVICES;
use crate::daemon::{Addresses, Daemon};
use crate::telemetry;

/// Try everything on this machine: a cluster (by default of three agents), the store and every service,
/// on loopback.
///
/// One directory contains all state: the configuration (written once, edit it as you like), the watched
/// plugin directory, the store, task sandboxes and journals. Ctrl-C stops everything, including the
/// tasks' processes.
#[derive(Debug, Args)]
pub(super) struct Dev {
    /// State directory.
    #[arg(long, env = "TRANSOM_STATE", default_value = ".transom")]
    state: PathBuf,
    #[arg(long, value_name = "NAME=N", help = ports::help(&["cluster"]) + "; port 0 picks a free one")]
    port: Vec<Port>,
    /// Directory with the first-party components (NAME.wasm and NAME.toml pairs); newer ones are
    /// copied into the state directory.
    #[arg(long, env = "TRANSOM_COMPONENTS", value_name = "DIR")]
    components: Option<PathBuf>,
    #[command(flatten)]
    shape: Shape,
}

impl Dev {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        self.prepare().context(Misconfigured)?;
        let file = self.file();
        let mut overrides = ports::overrides(&self.port);
        // The cluster starts first, so that its address is known even with a random port.
        let (settings, _) = transom_config::load(Some(&file), overrides.clone()).context(Misconfigured)?;
        telemetry::start(&settings.log.level, settings.log.format).context(Misconfigured)?;
        let token = CancellationToken::new();
        stop_on_signal(token.clone())?;

        let cluster_token = CancellationToken::new();
        let cluster = self
            .shape
            .start(self.master(), self.state.join("cluster"), cluster_token.clone())
            .await
            .context("the cluster manager")?;
        let master = cluster.master();
        overrides.set("cluster.master", master.to_string());
        let (settings, _) = transom_config::load(Some(&file), overrides).context(Misconfigured)?;

        let outcome = Box::pin(self.serve(settings, master, token)).await;
        cluster_token.cancel();
        cluster.stopped().await;
        outcome
    }

    async fn serve(
        &self,
        settings: transom_config::Settings,
        master: SocketAddr,
        token: CancellationToken,
    ) -> anyhow::Result<()> {
        let daemon = Box::pin(Daemon::start(settings, &self.file(), token.clone())).await?;
        let addresses = daemon.addresses().clone();
        let greeting = self.greeting(&addresses, master);
        tokio::spawn(greet_when_ready(addresses.get("admin"), greeting, token.clone()));
        daemon.run(token).await
    }

    fn file(&self) -> PathBuf {
        self.state.join("transom.toml")
    }

    fn master(&self) -> SocketAddr {
        let port = self
            .port
            .iter()
            .rfind(|port| port.name == "cluster")
            .map_or(5050, |port| port.number);
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Creates the state directory, with a configuration if it is missing, and with the components.
    fn prepare(&self) -> anyhow::Result<()> {
        let plugins = self.state.join("plugins");
        fs::create_dir_all(&plugins).with_context(|| format!("cannot create {}", plugins.display()))?;
        let file = self.file();
        if !file.exists() {
            let store = fs::canonicalize(&self.state)?.join("store");
            fs::write(&file, configuration(&store))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let source = self.components_dir()?;
        copy_newer(&source, &plugins).with_context(|| format!("components of {}", source.display()))
    }

    /// The components that ship with the program: the given directory, or `components` next to or
    /// above the executable.
    fn components_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.components {
            anyhow::ensure!(dir.is_dir(), "--components {}: no such directory", dir.display());
            return Ok(dir.clone());
        }
        if let Some(dir) = shipped_components() {
            return Ok(dir);
        }
        bail!(
            "no components beside {}: build them with `cargo xtask plugins`, or name them with --components",
            std::env::current_exe()?.display()
        )
    }

    fn greeting(&self, addresses: &Addresses, master: SocketAddr) -> String {
        let (mut named_addresses, mut commands) = (Vec::new(), Vec::new());
        for kind in SERVICES {
            let hints = kind.dev_hints(addresses);
            named_addresses.extend(hints.addresses);
            commands.extend(hints.commands);
        }
        if let Some(admin) = addresses.get("admin") {
            named_addresses.push(("admin", format!("http://{admin}/v1/plugins")));
            named_addresses.push(("dashboard", format!("http://{admin}/ui/")));
            commands.extend(plugin_commands(admin));
        }
        named_addresses.push(("cluster", format!("http://{master}/state")));
        named_addresses.push(("state", self.state.display().to_string()));
        let named_addresses = named_addresses
            .iter()
            .map(|(name, address)| format!("  {name:<11} {address}"));
        let named_addresses = named_addresses.collect::<Vec<_>>().join("\n");
        let commands = commands.iter().map(|line| format!("  {line}"));
        let commands = commands.collect::<Vec<_>>().join("\n");
        format!(
            "\nTransom is ready.\n\n{named_addresses}\n\nTry, in another terminal:\n\n{commands}\n\nCtrl-C stops everything.\n"
        )
    }
}

/// Commands to try. `transom plugin` needs the daemon's address only if the port is not the default
/// one.
fn plugin_commands(admin: SocketAddr) -> Vec<String> {
    let mut commands = Vec::new();
    if admin.port() != transom_config::ADMIN_PORT {
        commands.push(format!("export TRANSOM_ADMIN_URL=http://{admin}"));
    }
    commands.push("transom plugin list".to_owned());
    commands
}

/// The directory `components` next to or above the executable, if it exists.
pub(super) fn shipped_components() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let ancestors = executable.ancestors().skip(1).take(3);
    let mut components_dirs = ancestors.map(|ancestor| ancestor.join("components"));
    components_dirs.find(|dir| dir.is_dir())
}

/// Prints `greeting` once the daemon is ready, or the reason why it is not.
async fn greet_when_ready(admin: Option<SocketAddr>, greeting: String, token: CancellationToken) {
    let Some(admin) = admin else { return };
    let Ok(client) = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(Duration::from_secs(2))
        .build()
    else {
        return;
    };
    let url = format!("http://{admin}/ready");
    let mut poll = tokio::time::interval(Duration::from_millis(100));
    let mut attempts = 0_u32;
    loop {
        tokio::select! { () = token.cancelled() => return, _ = poll.tick() => {} }
        match client.get(&url).send().await {
            Ok(answer) if answer.status().is_success() => break,
            Ok(answer) if attempts > 0 && attempts.is_multiple_of(50) => {
                let body = answer.text().await.unwrap_or_default();
                print_note(format_args!("not ready yet: {body}"));
            }
            _ => {}
        }
        attempts += 1;
    }
    // The cluster and the daemon serve, even if nobody can read the greeting.
    let _ = print_line(greeting);
}

/// Copies components and manifests that are missing or older in `target`. Each file is renamed into
/// place, so that the watching daemon never reads a partial file.
fn copy_newer(source: &Path, target: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(source)? {
        let from = entry?.path();
        let is_plugin_file = matches!(
            from.extension().and_then(|ext| ext.to_str()),
            Some("wasm" | "toml")
        );
        let (true, Some(name)) = (is_plugin_file && from.is_file(), from.file_name()) else {
            continue;
        };
        let to = target.join(name);
        let newer = match (fs::metadata(&to), fs::metadata(&from)) {
            (Ok(have), Ok(new)) => new.modified()? > have.modified()?,
            (Err(_), _) => true,
            (_, Err(error)) => return Err(error.into()),
        };
        if newer {
            let temp_file = target.join(format!(".{}.new", name.to_string_lossy()));
            fs::copy(&from, &temp_file).with_context(|| format!("cannot copy {}", from.display()))?;
            fs::rename(&temp_file, &to)?;
        }
    }
    Ok(())
}

/// The initial configuration of `dev`: every implemented service, on loopback.
fn configuration(store: &Path) -> String {
    let services: Vec<&str> = SERVICES.iter().map(|kind| kind.dev_section()).collect();
    let services = services.join("\n");
    format!(
        r#"# Written once by `transom dev`; you can edit it.
# `transom config check --config FILE` shows the effective settings.
# A section that is present enables its service. Every key can be set as TRANSOM_SECTION_KEY, too.

[log]
level = "info"

# The master's address is set by `transom dev` itself: it starts the cluster.
[cluster]
master = "127.0.0.1:5050"

[store]
server = "file:{}"

[plugins]
dir = "plugins"
# Everyone who can reach the admin port, here only from this machine, may replace plugins.
uploads = true

# Records every call for `transom plugin replay` and `cases`; the default is a sample of 10 %.
[plugins.recording]
sample_percent = 100

{services}
[admin]
listener = "127.0.0.1"
port = 9990
"#,
        store.display()
    )
}
