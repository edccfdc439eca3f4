//! `transom store`: copies, backups and examinations of a whole store, with the records of all services.

mod check;
mod copy;
mod dump;
mod location;
mod records;
mod restore;

use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_cli::{exit::Unavailable, output::print_note, signals::stop_on_signal};
use transom_store::transfer::{self, Contents, Holds};

/// The interval of progress on standard error. A command that ends earlier prints none.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Copy, back up, restore or check the state store, with the records of all services.
///
/// A STORE is a configuration file, whose section [store] names the store with its user and password, or
/// an address as in `store.server`: `file:DIR`, `zk://HOST:PORT,HOST:PORT/PATH`, `HOST:PORT`,
/// `redis://HOST:PORT/DATABASE` or `redis-sentinel://HOST:PORT,HOST:PORT/NAME` (a Redis). Prefer a
/// configuration file to an address with a password: other users can read command lines.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    transom store check --store /etc/transom/transom.toml\n  \
    transom store dump --store /etc/transom/transom.toml --to transom-2026-11-30.jsonl.gz\n  \
    transom store restore --from transom-2026-11-30.jsonl.gz --store file:/var/lib/transom\n  \
    transom store copy --from old.toml --to new.toml\n\n\
    To move a running site: write new.toml, stop all daemons, copy, start them with new.toml. Tasks keep running.")]
pub(super) enum StoreCommand {
    Copy(copy::Copy),
    Dump(dump::Dump),
    Restore(restore::Restore),
    Check(check::Check),
}

impl StoreCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Copy(command) => command.run().await,
            Self::Dump(command) => command.run().await,
            Self::Restore(command) => command.run().await,
            Self::Check(command) => command.run().await,
        }
    }
}

/// The exit code of an error: a store that fails is unavailable.
fn exit(error: transfer::Error) -> anyhow::Error {
    let is_unavailable = matches!(error, transfer::Error::Store { .. });
    let error = anyhow::Error::from(error);
    if is_unavailable {
        error.context(Unavailable)
    } else {
        error
    }
}

/// Prints how many entries are written, once a second.
fn progress(entries: u64) -> impl FnMut(u64) {
    let mut next = Instant::now() + PROGRESS_INTERVAL;
    move |written| {
        if Instant::now() >= next {
            next = Instant::now() + PROGRESS_INTERVAL;
            print_note(format_args!("{written} of {entries} entries are written"));
        }
    }
}

/// Does `work` while the leases are held, and then releases them, also if a signal ends the command.
async fn with_holds(
    holds: Vec<Holds>,
    work: impl AsyncFnOnce(&[Holds]) -> transfer::Result<()>,
) -> anyhow::Result<()> {
    let token = CancellationToken::new();
    stop_on_signal(token.clone())?;
    let outcome = tokio::select! {
        outcome = work(&holds) => outcome.map_err(exit),
        () = token.cancelled() => {
            Err(anyhow::anyhow!("interrupted; repeat the command, which continues the copy"))
        }
    };
    for hold in holds {
        hold.release().await;
    }
    outcome
}

/// The outcome of a copy or restore.
#[derive(Debug, serde::Serialize)]
struct Written<'a> {
    from: &'a str,
    to: &'a str,
    #[serde(flatten)]
    contents: &'a Contents,
}

impl Written<'_> {
    fn print(&self, output: transom_cli::output::Output) -> anyhow::Result<()> {
        let Contents {
            entries,
            bytes,
            digest,
        } = self.contents;
        let text = format!(
            "{entries} entries of {} are in {} ({bytes} bytes, SHA-256 {digest})",
            self.from, self.to
        );
        transom_cli::output::print_text(output, self, &text).context("the outcome")
    }
}
