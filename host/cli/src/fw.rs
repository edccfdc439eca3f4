//! `transom fw`: a client of the API of frameworks that run an orchestrator: those of this program, and
//! others with the same API. One file for each command.
//!
//! A framework is identified by its id or its name. The leading master lists it with `webui_url`, the
//! address of its API. The master's address and all credentials are in the configuration file of the
//! published command line, which [`config`] reads.
//!
//! A failing request is an error with exit code 1, whatever its status.

mod api;
mod backup;
mod cluster;
mod config;
mod credentials;
mod framework;
mod import;
mod list;
mod move_datastore;
mod orchconfig;
mod scale;
mod status;
mod token;
mod version;

use clap::{Args, Subcommand};

/// Control frameworks that run Kubernetes on the cluster: list them, scale them, get their client
/// configuration.
#[derive(Debug, Args)]
#[command(
    version,
    propagate_version = true,
    after_help = "NAME is a framework's name or id. The file ~/.mesos/config.toml, or the one that CLUSTER_CLI_CONFIG or \
                  MESOS_CLI_CONFIG names, has the cluster and the credentials:\n\n  \
                  [master]\n  \
                  address = \"10.0.0.1:5050\"    # or [master.zookeeper] with `addresses` and `path`\n  \
                  principal = \"ops\"            # and `secret`, if the master requires them\n\n  \
                  [fw.NAME]                    # or [fw], for every framework\n  \
                  principal = \"user\"           # AUTH_USERNAME and AUTH_PASSWORD of the framework\n  \
                  secret = \"password\"\n\n\
                  Examples:\n  \
                  transom fw list\n  \
                  transom fw scale --agent fw 3\n  \
                  transom fw orchconfig fw > ~/.kube/config"
)]
pub struct FwCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(visible_alias = "kubeconfig")]
    Orchconfig(orchconfig::Orchconfig),
    List(list::List),
    Scale(scale::Scale),
    Status(status::Status),
    Version(version::Version),
    Cluster(cluster::Cluster),
    Backup(backup::Backup),
    Backups(backup::Backups),
    Restore(backup::Restore),
    Credentials(credentials::Credentials),
    Token(token::Token),
    Move(move_datastore::Move),
    Import(import::Import),
}

impl FwCommand {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Orchconfig(command) => command.run().await,
            Command::List(command) => command.run().await,
            Command::Scale(command) => command.run().await,
            Command::Status(command) => command.run().await,
            Command::Version(command) => command.run().await,
            Command::Cluster(command) => command.run().await,
            Command::Backup(command) => command.run().await,
            Command::Backups(command) => command.run().await,
            Command::Restore(command) => command.run().await,
            Command::Credentials(command) => command.run().await,
            Command::Token(command) => command.run().await,
            Command::Move(command) => command.run().await,
            Command::Import(command) => command.run().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_contains_every_command_and_option_with_its_aliases() {
        let page = include_str!("../../../docs/framework-cli.md");
        let mut group = FwCommand::augment_args(clap::Command::new("fw"));
        group.build();
        for command in group.get_subcommands().filter(|one| one.get_name() != "help") {
            let names = command.get_visible_aliases().chain([command.get_name()]);
            for name in names {
                assert!(
                    page.contains(&format!("`{name}")),
                    "docs/framework-cli.md has no `{name}`"
                );
            }
            for option in command.get_opts() {
                let names = option.get_long_and_visible_aliases().unwrap_or_default();
                for name in names
                    .into_iter()
                    .filter(|name| !matches!(*name, "help" | "version"))
                {
                    assert!(
                        page.contains(&format!("--{name}")),
                        "docs/framework-cli.md has no --{name}"
                    );
                }
            }
        }
    }
}
