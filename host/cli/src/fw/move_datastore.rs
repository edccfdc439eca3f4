//! `transom fw move`.

use std::io::{self, Write};

use anyhow::anyhow;
use clap::Args;
use reqwest::Method;

use super::api::Framework;
use crate::exit::Misconfigured;

/// Start the framework's datastore on another agent, without the data on its present one.
#[derive(Debug, Args)]
#[command(
    after_help = "A datastore with a volume of one agent runs only there. If that agent or its data are lost, this command \
                  starts the datastore on any agent, with the data that `volume_ds` has there, usually none. Then restore \
                  a backup with `transom fw restore`."
)]
pub(crate) struct Move {
    #[command(flatten)]
    framework: Framework,
    /// Give the present data up.
    #[arg(long)]
    without_data: bool,
}

impl Move {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        if !self.without_data {
            return Err(
                anyhow!("the datastore loses the data on its agent; add --without-data to move it")
                    .context(Misconfigured),
            );
        }
        let api = self.framework.api().await?;
        api.send(Method::PUT, &["datastore", "move"]).await?;
        writeln!(
            io::stdout(),
            "the datastore starts on any agent with free resources; restore a backup when it runs"
        )?;
        Ok(())
    }
}
