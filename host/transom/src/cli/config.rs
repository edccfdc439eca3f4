//! `transom config`: checks a configuration without a daemon, converts that of another program, and
//! prints all settings.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use transom_cli::{
    exit::Misconfigured,
    output::{self, Output},
};

use super::import::Import;
use super::ports::{self, Port};

/// Check, convert or explain a configuration without starting the daemon.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    Check(Check),
    Import(Import),
    Reference(Reference),
}

/// Validate the configuration and print every setting with its source; secrets are masked.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Configuration file.
    #[arg(long, env = "TRANSOM_CONFIG", default_value = "transom.toml")]
    config: PathBuf,
    /// Override a listening port, as for `serve`.
    #[arg(long, value_name = "NAME=N")]
    port: Vec<Port>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Print every setting with its type, default, variables and meaning.
#[derive(Debug, Args)]
pub(super) struct Reference {
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Form {
    /// A page with a table for each section.
    #[default]
    Markdown,
    /// The JSON schema of the configuration file, for editors.
    Json,
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            ConfigCommand::Check(check) => check.run(),
            ConfigCommand::Import(import) => import.run(),
            ConfigCommand::Reference(reference) => reference.run(),
        }
    }
}

impl Check {
    fn run(self) -> anyhow::Result<()> {
        let (settings, figment) =
            transom_config::load(Some(&self.config), ports::overrides(&self.port)).context(Misconfigured)?;
        let rows = transom_config::rows(&settings, &figment)?;
        let cells = rows
            .iter()
            .map(|row| vec![row.key.clone(), row.value.clone(), row.source.clone()]);
        output::print(self.output, &rows, &["key", "value", "from"], cells)
    }
}

impl Reference {
    fn run(self) -> anyhow::Result<()> {
        let text = match self.output {
            Form::Markdown => transom_config::reference(),
            Form::Json => serde_json::to_string_pretty(&transom_config::schema())? + "\n",
        };
        io::stdout().lock().write_all(text.as_bytes())?;
        Ok(())
    }
}
