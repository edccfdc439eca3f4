//! `transom store dump`: all records of a store in one file.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use transom_cli::exit::Unavailable;
use transom_cli::output::{Output, create_new};
use transom_store::transfer::{self, Header, Snapshot};

use super::location::StoreArgument;
use super::{Written, exit};

/// Write all records of a store to a new file, as one snapshot, for `transom store restore`.
///
/// The daemons may run, except that of an embedded store, which only one process can have open. The file
/// contains secrets, and only its owner may read it. It has a line of JSON for each record, and a
/// checksum.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    transom store dump --store /etc/transom/transom.toml --to transom-$(date +%F).jsonl.gz")]
pub(in crate::cli) struct Dump {
    #[command(flatten)]
    store: StoreArgument,
    /// The file, which must not exist. It is compressed if its name ends with `.gz`.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Dump {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let location = self.store.location()?;
        let store = location.open().await?;
        transfer::check_finished(&*store).await.map_err(exit)?;
        let snapshot = Snapshot::of_store(&*store).await.map_err(exit)?;
        if snapshot.entries().is_empty() {
            return Err(exit(transfer::Error::Empty));
        }
        let from = location.shown();
        let file = create_new(&self.to).context(Unavailable)?;
        let header = Header::new(jiff::Timestamp::now().to_string(), from.clone());
        if let Err(error) = write(&snapshot, &header, &self.to, file) {
            // A part of a dump is of no use.
            let _ = fs::remove_file(&self.to);
            return Err(error)
                .with_context(|| format!("cannot write {}", self.to.display()))
                .context(Unavailable);
        }
        let to = self.to.display().to_string();
        let (from, to, contents) = (&*from, &*to, snapshot.contents());
        Written { from, to, contents }.print(self.output)
    }
}

/// Writes the file and its directory entry to disk.
fn write(snapshot: &Snapshot, header: &Header, path: &Path, file: File) -> std::io::Result<()> {
    let compress = path.extension().is_some_and(|extension| extension == "gz");
    let mut output = BufWriter::new(file);
    transfer::dump(snapshot, header, compress, &mut output)?;
    output.flush()?;
    output.get_ref().sync_all()?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
