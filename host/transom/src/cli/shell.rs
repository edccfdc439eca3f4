//! Completions and man pages, generated from the definition of the command line.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::CommandLine;

/// Print a shell completion script.
#[derive(Debug, Args)]
pub(super) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // The generator would panic if standard output is a pipe that was closed.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "transom", &mut script);
        io::stdout().write_all(&script)?;
        Ok(())
    }
}

/// Print the man page (`transom man | man -l -`).
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Command to describe. Default: the program itself.
    command: Option<String>,
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut command = CommandLine::command();
        command.build();
        let described = match &self.command {
            None => command,
            Some(name) => command.find_subcommand(name).cloned().ok_or_else(|| {
                anyhow::anyhow!("unknown command `{name}`; `transom --help` lists the commands")
            })?,
        };
        clap_mangen::Man::new(described).render(&mut io::stdout())?;
        Ok(())
    }
}
