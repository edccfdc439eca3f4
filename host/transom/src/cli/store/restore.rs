//! `transom store restore`: the records of a dump into an empty store.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use transom_cli::exit::Unavailable;
use transom_cli::output::Output;
use transom_store::transfer::{self, Error, Holds, read_dump};

use super::location::StoreArgument;
use super::{Written, exit, progress, records, with_holds};

/// Write the records of a file of `transom store dump` to an empty store of any kind.
///
/// The whole file is verified before anything is written. Stop all daemons of the store first: the command
/// ends with an error if a daemon leads. A restore that was interrupted is continued by the same
/// command; until it is complete and verified, daemons reject the store.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    transom store restore --from transom-2026-11-30.jsonl.gz --store /etc/transom/transom.toml")]
pub(in crate::cli) struct Restore {
    /// A file of `transom store dump`.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    store: StoreArgument,
    /// Discard an unfinished copy in the store and begin again.
    #[arg(long)]
    restart: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Restore {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let location = self.store.location()?;
        let (from, to) = (self.from.display().to_string(), location.shown());
        let file = File::open(&self.from).with_context(|| format!("cannot read {from}"));
        let dump = read_dump(file.context(Unavailable)?);
        let (_, snapshot) = dump.with_context(|| format!("{from} cannot be restored"))?;
        let leases = records::leases(&snapshot, &[&location]);
        let held = Holds::acquire(location.open_or_create().await?, leases).await;
        let held = held.map_err(|error| exit(error).context(to.clone()))?;
        let contents = snapshot.contents();
        with_holds(vec![held], async |holds| {
            let [store] = holds else { return Err(Error::Empty) };
            if self.restart {
                transfer::clear(store).await?;
            }
            transfer::write(&snapshot, &from, store, progress(contents.entries)).await?;
            transfer::finish(contents, store).await
        })
        .await?;
        let (from, to) = (&*from, &*to);
        Written { from, to, contents }.print(self.output)
    }
}
