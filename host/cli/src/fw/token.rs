//! `transom fw token`.

use std::io::{self, Write};

use clap::Args;
use transom_plugin_host::printable;

use super::api::Framework;

/// Print the token with which servers and agents join the framework's cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "The framework logs who reads it; a read-only user may not. The data in the datastore are encrypted with \
                  the token: without it, they cannot be used by another framework. Backups contain it."
)]
pub(crate) struct Token {
    #[command(flatten)]
    framework: Framework,
}

impl Token {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let token = self.framework.api().await?.get(&["server", "token"]).await?;
        writeln!(io::stdout(), "{}", printable(&token))?;
        Ok(())
    }
}
