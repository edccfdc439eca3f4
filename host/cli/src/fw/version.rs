//! `transom fw version`.

use clap::Args;

use super::api::{self, Framework};
use crate::output::{self, Output};

/// Show the versions of the orchestrator and of the framework.
#[derive(Debug, Args)]
pub(crate) struct Version {
    #[command(flatten)]
    framework: Framework,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Version {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.framework.api().await?;
        let text = api.get(&["server", "version"]).await?;
        output::print_text(self.output, &api::document(&text), &text)
    }
}
