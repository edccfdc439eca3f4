//! `transom status`: prints the overview of a running daemon once.

pub(super) mod sections;
pub mod style;
pub(super) mod text;

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use transom_plugin_host::printable_json;

use crate::admin_port::Connection;
use crate::exit::Unavailable;
use crate::output::Output;
use crate::overview::{Overview, Severity};
use style::Style;

/// Timeout of a request for the overview.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Show the state of a running daemon: services, leaders, cluster, store, plugins, and what is wrong.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well (warnings may be shown); 1 there are errors; 2 invalid command \
    line or configuration; 3 no daemon answers.\n\n\
    Examples:\n  \
    transom status\n  \
    transom status --config /etc/transom/transom.toml\n  \
    transom status --url http://10.0.0.7:9990 --output json | jq '.problems[]'"
)]
pub struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Output format; `json` is the document of `/v1/overview`.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Status {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let body = self.connection.get_text(&["v1", "overview"], TIMEOUT).await?;
        let overview = read(&body)?;
        let mut out = io::stdout().lock();
        match self.output {
            Output::Json => writeln!(out, "{}", printable_json(&body))?,
            Output::Table => write!(out, "{}", text::of(&overview, Style::of_standard_output()))?,
        }
        out.flush()?;
        failed(&overview)
    }
}

/// Parses the document in a response.
pub fn read(body: &str) -> anyhow::Result<Overview> {
    let overview: Overview = serde_json::from_str(body)
        .context(
            "the response is not an overview document; is --admin the admin port of a daemon of this \
             version?",
        )
        .context(Unavailable)?;
    Ok(overview)
}

/// Returns an error if the overview contains errors.
pub(super) fn failed(overview: &Overview) -> anyhow::Result<()> {
    let errors = overview.problems.iter();
    match errors.filter(|one| one.severity == Severity::Error).count() {
        0 => Ok(()),
        1 => anyhow::bail!("there is 1 error"),
        errors => anyhow::bail!("there are {errors} errors"),
    }
}
