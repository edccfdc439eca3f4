//! `transom serve`: the daemon.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;
use transom_cli::{exit::Misconfigured, signals::stop_on_signal};
use transom_config::Settings;

use super::ports::{self, Port};
use crate::daemon::Daemon;
use crate::telemetry;

/// Run the daemon with every service that the configuration enables, until Ctrl-C or SIGTERM.
///
/// Tasks keep running on the cluster while the daemon is stopped; after a restart the daemon
/// manages them again.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Configuration file.
    #[arg(long, env = "TRANSOM_CONFIG", default_value = "transom.toml")]
    config: PathBuf,
    #[arg(long, value_name = "NAME=N", help = ports::help(&[]))]
    port: Vec<Port>,
}

impl Serve {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (settings, _) =
            transom_config::load(Some(&self.config), ports::overrides(&self.port)).context(Misconfigured)?;
        let traces = telemetry::start_traced(&settings.log, &settings.telemetry).context(Misconfigured)?;
        let token = CancellationToken::new();
        stop_on_signal(token.clone())?;
        let served = Box::pin(serve(settings, &self.config, token)).await;
        traces.stop().await;
        served
    }
}

async fn serve(settings: Settings, file: &Path, token: CancellationToken) -> anyhow::Result<()> {
    let daemon = Daemon::start(settings, file, token.clone()).await?;
    tracing::info!(addresses = %daemon.addresses(), "serving");
    for (name, addr) in transom_web::unused_sockets() {
        tracing::warn!(
            socket = name,
            %addr,
            "a socket that the supervisor passed is not used: no HTTP port of an enabled service has this name"
        );
    }
    notify(NotifyState::Ready);
    let mut run = Box::pin(daemon.run(token.clone()));
    let ended = tokio::select! {
        biased;
        () = token.cancelled() => None,
        outcome = &mut run => Some(outcome),
    };
    // A daemon without work may end at the moment at which it is told to.
    if token.is_cancelled() {
        notify(NotifyState::Stopping);
    }
    match ended {
        Some(outcome) => outcome,
        None => run.await,
    }
}

/// Notifies the supervisor, if it has set `NOTIFY_SOCKET`, as systemd does for `Type=notify`.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot notify the supervisor");
    }
}
