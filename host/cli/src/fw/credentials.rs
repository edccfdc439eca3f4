//! `transom fw credentials`.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use transom_plugin_host::printable;

use super::api::Framework;

/// Print the credentials of the framework's datastore, or use a password that was changed there.
#[derive(Debug, Args)]
#[command(
    after_help = "The framework logs who reads them; a read-only user may not. Whoever has them can read and change \
                        the whole cluster."
)]
pub(crate) struct Credentials {
    #[command(flatten)]
    framework: Framework,
    /// Use the configured password instead of the present one: it was changed in the SQL server, and the
    /// daemon was restarted with it.
    #[arg(long)]
    adopt: bool,
}

impl Credentials {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.framework.api().await?;
        let path = ["datastore", "credentials"];
        if self.adopt {
            api.send(Method::PUT, &path).await?;
            writeln!(
                io::stdout(),
                "the configured password is in use; tasks with the former one are replaced"
            )?;
            return Ok(());
        }
        let text = api.get(&path).await?;
        let credentials: Value =
            serde_json::from_str(&text).context("the framework sent an invalid document")?;
        let mut out = io::stdout().lock();
        let members = credentials.as_object().into_iter().flatten();
        for (name, value) in members.filter_map(|(name, value)| Some((name, value.as_str()?))) {
            if value.contains('\n') {
                // PEM, which tools read as it is.
                for line in value.lines() {
                    writeln!(out, "{}", printable(line))?;
                }
            } else {
                writeln!(out, "{name}: {}", printable(value))?;
            }
        }
        Ok(())
    }
}
