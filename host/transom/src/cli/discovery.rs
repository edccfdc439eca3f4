//! `transom discovery`: lookups alone, told as mesos-dns is told, to take that program's place.

mod flags;

use std::path::Path;

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::signals::stop_on_signal;
use crate::config::{self, Import, LogFormat};
use crate::exit::Misconfigured;
use crate::{daemon, telemetry};
use flags::Flags;

/// Serves DNS and HTTP lookups alone, told by mesos-dns's own flags and configuration file.
///
/// The flags have one dash, as that program's: -config=FILE (config.json unless said), -v=N (0 to 2), -version. Those of
/// its log are taken and change nothing: the log goes to standard error. Beyond that: -admin=ADDRESS:PORT for health and
/// metrics.
///
/// Exit codes are that program's: 1 for a configuration that is wrong or a port that is taken, 2 for a flag that nobody
/// knows.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct Discovery {
    /// -config=FILE -v=N -version -admin=ADDRESS:PORT
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

impl Discovery {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let flags = match flags::read(&self.flags).context(Misconfigured)? {
            flags::Wanted::Serve(flags) => flags,
            flags::Wanted::Version => {
                println!("{}", env!("CARGO_PKG_VERSION"));
                return Ok(());
            }
            flags::Wanted::Help => {
                println!("{}", flags::USAGE);
                return Ok(());
            }
        };
        telemetry::start(flags.level(), LogFormat::Text)?;
        let import = read(&flags)?;
        for note in &import.notes {
            tracing::warn!("{}: {note}", flags.config.display());
        }
        let token = CancellationToken::new();
        stop_on_signal(token.clone())?;
        daemon::serve_discovery(import, &flags.config, flags.admin, token).await
    }
}

fn read(flags: &Flags) -> anyhow::Result<Import> {
    let content = std::fs::read(&flags.config)
        .with_context(|| format!("cannot read the configuration file {}", flags.config.display()))?;
    config::read_mesos_dns(&content).with_context(|| wrong(&flags.config))
}

/// What a file is called whose content is wrong.
pub(super) fn wrong(file: &Path) -> String {
    format!("the configuration file {} cannot be used", file.display())
}
