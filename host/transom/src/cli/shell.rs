//! Completions and man pages, from the definition of the command line.
//!
//! The script of a shell runs this program for each completion, with [`VARIABLE`] in the environment;
//! so commands and options are always those of the installed program, and names those of the daemon.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use super::CommandLine;

/// The variable that contains the name of the shell whose command line is to be completed.
const VARIABLE: &str = "TRANSOM_COMPLETE";

/// Completes a command line, if a shell runs this process for that. A failure completes nothing.
pub(crate) fn complete() -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let directory = std::env::current_dir().ok();
    let environment = CompleteEnv::with_factory(CommandLine::command).var(VARIABLE);
    environment
        .try_complete(std::env::args_os(), directory.as_deref())
        .unwrap_or(true)
}

/// Print a shell completion script.
///
/// Names of apps, tasks, deployments, jobs, agents and plugins are completed too: the program asks the
/// daemon that the options or the environment name, for at most a second.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    source <(transom completions bash)\n  \
    source <(transom completions zsh)\n  \
    transom completions fish | source")]
pub(super) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let shell = shells
            .completer(&name)
            .ok_or_else(|| anyhow::anyhow!("no completion for {name}"))?;
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "transom", "transom", "transom", &mut script)?;
        if self.shell == Shell::Zsh {
            // As a file in `fpath`, the script is the function that completes.
            script.extend_from_slice(
                b"\nif [ \"$funcstack[1]\" = \"_transom\" ]; then _clap_dynamic_completer_transom \"$@\"; fi\n",
            );
        }
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
