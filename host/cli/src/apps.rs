//! `transom apps`: a client of the apps port, one file for each topic. `import` and `export` open the
//! store themselves and need no running daemon.
//!
//! Every command prints one table or, with `--output json`, one JSON document. Progress and
//! messages go to standard error.

mod api;
mod change;
mod complete;
mod create;
mod daemon_config;
mod deadline;
mod delete;
mod deployments;
mod diff;
mod diff_command;
mod document;
mod event_text;
mod events;
mod explain;
mod explain_command;
mod export;
mod follow;
mod id;
mod import;
mod instances;
mod kill;
mod list;
mod logs;
mod marathon;
mod marathon_state;
mod missing;
mod progress;
mod queue;
mod set;
mod show;
mod stream;
mod tasks;
mod update;
mod versions;
mod wait;

use clap::{Args, Subcommand};

pub use events::Events;
pub(crate) use id::nearest;

/// Create, change and watch apps, pods and groups of a running daemon, through its apps port;
/// import them from Marathon or a backup, and export them.
#[derive(Debug, Args)]
#[command(
    after_help = "The daemon is the one at --url or TRANSOM_APPS_URL; of several daemons with one store \
                  any can be used, because standbys forward requests to the leader. If it requires credentials, set \
                  TRANSOM_APPS_API_USERNAME and TRANSOM_APPS_API_PASSWORD.\n\n\
                  Examples:\n  \
                  transom apps create -f web.json\n  \
                  transom apps list\n  \
                  transom apps scale web 3\n  \
                  transom apps update web --set env.COLOUR=blue\n  \
                  transom apps explain web"
)]
pub struct AppsCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::List),
    Show(show::Show),
    Create(create::Create),
    Update(update::Update),
    Scale(update::Scale),
    Restart(update::Restart),
    Delete(delete::Delete),
    Tasks(tasks::Tasks),
    Logs(logs::Logs),
    Kill(kill::Kill),
    Deployments(deployments::Deployments),
    Queue(queue::Queue),
    Explain(explain_command::Explain),
    Events(Events),
    Versions(versions::Versions),
    Diff(diff_command::Diff),
    Wait(wait::Wait),
    Import(Box<import::Import>),
    Export(export::Export),
}

impl AppsCommand {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::List(command) => command.run().await,
            Command::Show(command) => command.run().await,
            Command::Create(command) => command.run().await,
            Command::Update(command) => command.run().await,
            Command::Scale(command) => command.run().await,
            Command::Restart(command) => command.run().await,
            Command::Delete(command) => command.run().await,
            Command::Tasks(command) => command.run().await,
            Command::Logs(command) => Box::pin(command.run()).await,
            Command::Kill(command) => command.run().await,
            Command::Deployments(command) => command.run().await,
            Command::Queue(command) => command.run().await,
            Command::Explain(command) => command.run().await,
            Command::Events(command) => command.run().await,
            Command::Versions(command) => command.run().await,
            Command::Diff(command) => command.run().await,
            Command::Wait(command) => command.run().await,
            Command::Import(command) => Box::pin(command.run()).await,
            Command::Export(command) => command.run().await,
        }
    }
}
