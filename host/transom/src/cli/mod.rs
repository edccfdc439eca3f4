//! The command line: one file a command.

mod cluster;
mod config;
mod dev;
mod discovery;
mod import;
mod operator;
mod plugin;
mod ports;
mod serve;
mod shell;
mod signals;

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
    Discovery(discovery::Discovery),
    Cluster(cluster::ClusterCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    #[command(subcommand)]
    Operator(operator::OperatorCommand),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl CommandLine {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(command) => Box::pin(command.run()).await,
            Command::Dev(command) => Box::pin(command.run()).await,
            Command::Discovery(command) => command.run().await,
            Command::Cluster(command) => command.run().await,
            Command::Config(command) => command.run(),
            Command::Plugin(command) => command.run().await,
            Command::Operator(command) => command.run().await,
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}
