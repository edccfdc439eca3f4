//! `transom store copy`: all records of a store to another one of any kind.

use anyhow::anyhow;
use clap::Args;
use transom_cli::{exit::Misconfigured, output::Output};
use transom_store::transfer::{self, Error, Holds, Snapshot};

use super::location::Location;
use super::{Written, exit, progress, records, with_holds};

/// Copy all records of a store to an empty store of any kind, for a site that moves to another store.
///
/// Stop all daemons of both stores first: the command ends with an error if a daemon leads, and no daemon
/// can lead while it copies. Tasks keep running. A copy that was interrupted is continued by the same
/// command; until it is complete and verified, daemons reject the destination. The source is not
/// changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom store copy --from /etc/transom/transom.toml --to /etc/transom/new.toml\n  \
    transom store copy --from file:/var/lib/transom --to 10.0.0.20:6379")]
pub(in crate::cli) struct Copy {
    /// The store to copy: a configuration file or an address.
    #[arg(long, value_name = "STORE")]
    from: String,
    /// The store to write: a configuration file or an address. It must be empty.
    #[arg(long, value_name = "STORE")]
    to: String,
    /// Discard an unfinished copy in the destination and begin again.
    #[arg(long)]
    restart: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Copy {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (from, to) = (Location::parse(&self.from)?, Location::parse(&self.to)?);
        let (from_shown, to_shown) = (from.shown(), to.shown());
        if from_shown == to_shown {
            return Err(anyhow!("--from and --to are the same store, {to_shown}").context(Misconfigured));
        }
        let source = from.open().await?;
        transfer::check_finished(&*source).await.map_err(exit)?;
        let snapshot = Snapshot::of_store(&*source).await.map_err(exit)?;
        let leases = records::leases(&snapshot, &[&from, &to]);
        let destination = to.open_or_create().await?;
        let held_source = Holds::acquire(source, leases.clone()).await;
        let held_source = held_source.map_err(|error| exit(error).context(from_shown.clone()))?;
        let held_destination = match Holds::acquire(destination, leases).await {
            Ok(held) => held,
            Err(error) => {
                held_source.release().await;
                return Err(exit(error).context(to_shown));
            }
        };
        let contents = snapshot.contents().clone();
        with_holds(vec![held_source, held_destination], async |holds| {
            let [source, destination] = holds else {
                return Err(Error::Empty);
            };
            if self.restart {
                transfer::clear(destination).await?;
            }
            transfer::write(&snapshot, &from_shown, destination, progress(contents.entries)).await?;
            drop(snapshot);
            let now = Snapshot::of_store(&*source.store()).await?;
            source.check()?;
            if *now.contents() != contents {
                return Err(Error::SourceChanged);
            }
            transfer::finish(&contents, destination).await
        })
        .await?;
        let (from, to, contents) = (&*from_shown, &*to_shown, &contents);
        Written { from, to, contents }.print(self.output)
    }
}
