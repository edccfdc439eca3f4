//! `transom fw orchconfig`.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use transom_plugin_host::printable;

use super::api::Framework;

/// Print the client configuration of the orchestrator, as `kubectl` reads it.
#[derive(Debug, Args)]
#[command(after_help = "It has the keys of an administrator. Example:\n  \
                  (umask 077 && transom fw orchconfig fw > ~/.kube/config) && kubectl get nodes")]
pub(crate) struct Orchconfig {
    #[command(flatten)]
    framework: Framework,
}

impl Orchconfig {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.framework.api().await?;
        let text = api.get(&["server", "config"]).await?;
        // An empty answer must not overwrite the file that the user redirects to.
        anyhow::ensure!(
            !text.trim().is_empty(),
            "the framework has no client configuration yet: its server has not started (see `transom fw status`)"
        );
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            for line in text.lines() {
                writeln!(out, "{}", printable(line))?;
            }
        } else {
            writeln!(out, "{}", text.trim_end_matches('\n'))?;
        }
        Ok(())
    }
}
