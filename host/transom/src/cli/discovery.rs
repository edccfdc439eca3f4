//! `transom discovery`: discovery alone, with the flags of mesos-dns, as its replacement.

mod flags;

use std::path::Path;

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;
use transom_cli::{exit::Misconfigured, output::print_line, signals::stop_on_signal};
use transom_config::{Import, LogFormat};

use crate::{daemon, telemetry};
use flags::Flags;

/// Run discovery alone, as a drop-in for mesos-dns: its flags and its JSON configuration file.
///
/// Flags have one dash, as in mesos-dns: -config=FILE (default config.json), -v=N (0 to 2),
/// -version. mesos-dns's log flags are accepted and ignored: the log goes to standard error. One
/// more flag: -admin=ADDRESS:PORT serves health and metrics.
///
/// Exit codes are mesos-dns's: 1 for an invalid configuration or a port in use, 2 for an unknown
/// flag.
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
            flags::Invocation::Serve(flags) => flags,
            flags::Invocation::Version => {
                print_line(env!("CARGO_PKG_VERSION"))?;
                return Ok(());
            }
            flags::Invocation::Help => {
                print_line(flags::USAGE)?;
                return Ok(());
            }
        };
        let level = flags.level().parse().map_err(anyhow::Error::msg)?;
        telemetry::start(&level, LogFormat::Text)?;
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
    transom_config::read_mesos_dns(&content).with_context(|| invalid_file(&flags.config))
}

/// The name of an invalid file in errors.
pub(super) fn invalid_file(file: &Path) -> String {
    format!("the configuration file {} cannot be used", file.display())
}
