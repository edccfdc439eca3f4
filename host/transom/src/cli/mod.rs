//! The command line: one file per command.

mod bundle;
mod cluster;
mod config;
mod dev;
mod discovery;
mod doctor;
mod import;
mod ports;
mod serve;
mod shell;
mod store;

use clap::{Parser, Subcommand};
pub(crate) use shell::complete;
use transom_cli::{agents, apps, dns, fw, job, plugin, status, top};

/// One daemon for a Mesos-type cluster: service discovery (DNS and HTTP), long-running apps with
/// checks and an event stream, Kubernetes as cluster tasks, and workflow tasks.
///
/// Every policy (how a task is probed, which agents may run it, what a subscriber sees) is a
/// sandboxed WebAssembly component that can be replaced while the daemon serves.
#[derive(Debug, Parser)]
#[command(
    name = "transom",
    version,
    after_help = "Exit codes: 0 success; 1 failure; 2 invalid command line or configuration; 3 a required \
                  address, server or file is unavailable.\n\n\
                  To try it out, run `transom dev`: everything on loopback, nothing else to install."
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
    Status(status::Status),
    Top(top::Top),
    Doctor(doctor::Doctor),
    Bundle(bundle::Bundle),
    #[command(subcommand)]
    Store(store::StoreCommand),
    Plugin(plugin::PluginCommand),
    Apps(apps::AppsCommand),
    Events(apps::Events),
    #[command(subcommand)]
    Agents(agents::AgentsCommand),
    Dns(dns::Dns),
    #[command(visible_alias = "operator")]
    Job(job::JobCommand),
    #[command(visible_alias = "m3s")]
    Fw(fw::FwCommand),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl CommandLine {
    /// Whether this process was started only to compile a component.
    pub(crate) fn is_compilation(&self) -> bool {
        matches!(&self.command, Command::Plugin(command) if command.is_compilation())
    }

    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(command) => Box::pin(command.run()).await,
            Command::Dev(command) => Box::pin(command.run()).await,
            Command::Discovery(command) => command.run().await,
            Command::Cluster(command) => command.run().await,
            Command::Config(command) => command.run(),
            Command::Status(command) => command.run().await,
            Command::Top(command) => Box::pin(command.run()).await,
            Command::Doctor(command) => Box::pin(command.run()).await,
            Command::Bundle(command) => Box::pin(command.run()).await,
            Command::Store(command) => Box::pin(command.run()).await,
            Command::Plugin(command) => command.run().await,
            Command::Apps(command) => Box::pin(command.run()).await,
            Command::Events(command) => Box::pin(command.run()).await,
            Command::Agents(command) => command.run().await,
            Command::Dns(command) => command.run().await,
            Command::Job(command) => command.run().await,
            Command::Fw(command) => Box::pin(command.run()).await,
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}
