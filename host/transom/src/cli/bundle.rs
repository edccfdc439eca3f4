//! `transom bundle`: an archive for a bug report, with the information that support asks for first, and
//! without secrets.

mod archive;
mod gather;
mod masks;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use archive::Member;
use transom_cli::{
    Connection,
    exit::Unavailable,
    output::{self, Output, print_line},
};

/// Write an archive (.tar.gz) for a bug report or a question: state, metrics, configuration, plugins,
/// the doctor's findings and the machine, with secrets masked.
///
/// It also works without a running daemon; the archive contains no state then. Inspect the archive
/// before you send it: names of hosts, apps and users are not masked.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom bundle --config /etc/transom/transom.toml\n  \
    transom bundle --url http://10.0.0.7:9990 --to /tmp/report.tar.gz")]
pub(super) struct Bundle {
    #[command(flatten)]
    connection: Connection,
    /// The archive to write; it must not exist. Default: `transom-bundle-TIME.tar.gz` here.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Output format of the list of contents.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Bundle {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let name = format!(
            "transom-bundle-{}",
            jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ")
        );
        let file = self.to.unwrap_or_else(|| format!("{name}.tar.gz").into());
        let members = gather::collect(&self.connection).await?;
        let size = archive::write(&file, &name, &members)
            .with_context(|| format!("cannot write {}", file.display()))
            .context(Unavailable)?;
        let path = std::path::absolute(&file).unwrap_or(file);
        let contents = members
            .iter()
            .map(|member| json!({"name": member.name, "bytes": member.content.len(), "about": member.about}));
        let contents: Vec<_> = contents.collect();
        let rows = members.iter().map(|Member { name, content, about }| {
            vec![name.clone(), content.len().to_string(), (*about).to_owned()]
        });
        let document = json!({"file": path, "bytes": size, "contents": contents});
        output::print(self.output, &document, &["file", "bytes", "content"], rows)?;
        if self.output == Output::Table {
            print_line(format_args!(
                "\n{} ({size} bytes)",
                transom_plugin_host::printable(&path.display().to_string())
            ))?;
        }
        Ok(())
    }
}
