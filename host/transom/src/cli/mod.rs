//! The command line: one file a command.

mod cluster;
mod config;
mod dev;
mod plugin;
mod ports;
mod serve;
mod shell;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs what a Mesos-type cluster needs beside its manager: apps with checks and an event stream, and DNS for what runs.
///
/// Every policy (how a task is probed, which agents may run it, what a subscriber sees) is a sandboxed WebAssembly
/// component that can be replaced while the daemon serves.
#[derive(Debug, Parser)]
#[command(
    name = "transom",
    version,
    after_help = "Exit codes: 0 done; 1 failed; 2 the command line or the configuration is wrong; \
                  3 an address or a file that is needed is taken or out of reach.\n\n\
                  Try `transom dev`: everything on loopback, nothing to install."
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Dev(dev::Dev),
    Cluster(cluster::ClusterCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl CommandLine {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(command) => command.run().await,
            Command::Dev(command) => command.run().await,
            Command::Cluster(command) => command.run().await,
            Command::Config(command) => command.run(),
            Command::Plugin(command) => command.run().await,
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}

/// The command line or the configuration is wrong: nothing was started.
#[derive(Debug)]
pub(crate) struct Misconfigured;

/// An address, a directory or a file that is needed cannot be had: what was started was stopped again.
#[derive(Debug)]
pub(crate) struct Unavailable;

impl std::fmt::Display for Misconfigured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrong configuration")
    }
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot start")
    }
}

/// What `--help` promises of exit codes.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Misconfigured>() {
        ExitCode::from(2)
    } else if error.is::<Unavailable>() {
        ExitCode::from(3)
    } else {
        ExitCode::FAILURE
    }
}
