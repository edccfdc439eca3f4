//! `transom plugin`: manages the plugins of a running daemon; creates, builds and tests components.

mod bench;
mod build;
mod cache;
mod cells;
mod check;
mod check_source;
mod dev;
mod explain;
mod fuzz;
mod input;
mod new;
mod push;
mod recorded;
mod registry;
mod replay;
mod served;
mod template;
mod test;
mod upload;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};

use crate::admin_port::Connection;
use crate::completion::{self, Admin};
use crate::list::{Column, ListOptions};
use crate::output::{self, Output, print_note};
use bench::Bench;
use build::Build;
use cells::{cell, flatten};
use check::Check;
use dev::Dev;
use explain::Explain;
use fuzz::Fuzz;
use new::New;
use push::Push;
use recorded::Cases;
use replay::Replay;
use test::Test;
use upload::Upload;

/// Manage the plugins of a running daemon; create, build and test components.
#[derive(Debug, Args)]
pub struct PluginCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List plugins with the serving version, its shadow or canary, and the reason why a newer version
    /// was rejected.
    List(List),
    /// Show one plugin in detail: calls, latency, memory, the last trap with its backtrace; the results
    /// of a shadow or canary, and the conditions for its promotion that are not met yet.
    Show(One),
    /// Show the admission history of a plugin, newest first: admitted, rejected, started as a shadow
    /// or canary, promoted, aborted, disabled, rolled back.
    History(One),
    /// Roll a plugin back to an earlier version without dropping a call.
    ///
    /// The files in the plugin directory stay as they are; the daemon ignores them until they
    /// change.
    Rollback(Rollback),
    /// Promote the shadow or canary of a plugin to the serving version now, whatever its results are.
    ///
    /// With `rollout = "shadow-manual"` or `"canary-manual"` in the manifest, this is the only way to
    /// promote it. The previous version stays loaded while the new one is on probation, and can take
    /// over again.
    Promote(One),
    /// Stop the shadow or canary of a plugin; the serving version answers all calls again.
    ///
    /// The files in the plugin directory stay as they are; the daemon ignores them until they change.
    /// To make the stopped version serve nevertheless, roll back to its admission record.
    Abort(One),
    Upload(Upload),
    New(New),
    Build(Build),
    Check(Check),
    Push(Push),
    Test(Test),
    Bench(Bench),
    Fuzz(Fuzz),
    Dev(Dev),
    Replay(Replay),
    Cases(Cases),
    /// Compiles the component on standard input, for the daemon; see `COMPILE_COMMAND`.
    #[command(hide = true)]
    Compile,
    /// Explain decisions of plugins: which agents may run an app, a job or a member of a Kubernetes
    /// cluster, which events pass a query, what an attempt of a probe does.
    #[command(subcommand)]
    Explain(Explain),
}

/// The options for the daemon's address and the output format.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    list: ListOptions,
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// Name of the plugin: its file name without `.wasm`.
    #[arg(add = complete_plugins())]
    name: String,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {
    /// Name of the plugin: its file name without `.wasm`.
    #[arg(add = complete_plugins())]
    name: String,
    /// Number of the admission record whose version is to serve again, as `history` shows it.
    /// Default: the newest other version.
    record: Option<u64>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Columns of tables. They are keys of the admin API's documents.
const PLUGIN: &[Column] = &[
    Column::Name("name"),
    Column::Wide("world"),
    Column::Fixed("version"),
    Column::Fixed("state"),
    Column::Fixed("rollout"),
    Column::Fixed("calls"),
    Column::Wide("traps"),
    Column::Wide("source"),
    Column::Text("refusal"),
];
const RECORD: &[&str] = &["sequence", "at", "outcome", "version", "by", "digest", "reason"];

/// Completes the names of plugins.
fn complete_plugins() -> ArgValueCompleter {
    completion::completer(async || {
        let Admin { connection } = completion::parsed()?;
        let document = connection.request(reqwest::Method::GET, &[], None).await?;
        Ok(completion::listed(&document["plugins"], "name", "state"))
    })
}

impl PluginCommand {
    /// Whether the command only compiles the component on standard input.
    pub fn is_compilation(&self) -> bool {
        matches!(self.command, Command::Compile)
    }

    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::List(List { connection, list }) => {
                let document = connection.request(reqwest::Method::GET, &[], None).await?;
                let plugins = document["plugins"].as_array().cloned().unwrap_or_default();
                let row = |plugin: &Value| {
                    let cells = PLUGIN.iter().map(|column| column.heading());
                    cells.map(|key| cell(key, &plugin[key]).into()).collect()
                };
                let rows = plugins.iter().map(row).collect();
                list.print(&plugins, PLUGIN, 0, rows)
            }
            Command::Show(one) => {
                let document = one.daemon.get(&[&one.name]).await?;
                let mut rows = Vec::new();
                flatten("", &document, &mut rows);
                output::print(one.daemon.output, &document, &["key", "value"], rows)
            }
            Command::History(one) => {
                let document = one.daemon.get(&[&one.name, "history"]).await?;
                one.daemon.table(&document["records"], RECORD)?;
                if document["durability"] != "store" {
                    print_note(
                        "some of these records are not in the store: they are lost when the daemon stops",
                    );
                }
                Ok(())
            }
            Command::Rollback(Rollback { name, record, daemon }) => {
                daemon.send_command(&name, "rollback", record).await
            }
            Command::Upload(upload) => upload.run().await,
            Command::New(new) => new.run(),
            Command::Build(build) => build.run().await,
            Command::Check(check) => check.run().await,
            Command::Push(push) => push.run().await,
            Command::Test(test) => test.run().await,
            Command::Bench(bench) => bench.run().await,
            Command::Fuzz(fuzz) => fuzz.run().await,
            Command::Dev(dev) => Box::pin(dev.run()).await,
            Command::Replay(replay) => replay.run().await,
            Command::Cases(cases) => cases.run().await,
            // `main` has compiled the component already, without a Tokio runtime.
            Command::Compile => Ok(()),
            Command::Explain(explain) => explain.run().await,
            Command::Promote(One { name, daemon }) => daemon.send_command(&name, "promote", None).await,
            Command::Abort(One { name, daemon }) => daemon.send_command(&name, "abort", None).await,
        }
    }
}

impl Daemon {
    async fn get(&self, path: &[&str]) -> anyhow::Result<Value> {
        self.connection.request(reqwest::Method::GET, path, None).await
    }

    /// Sends a command, with the current user's name as the requester.
    async fn send_command(&self, name: &str, action: &str, record: Option<u64>) -> anyhow::Result<()> {
        let by = std::env::var("USER").unwrap_or_else(|_| "operator".to_owned());
        let mut body = json!({"by": by});
        if let Some(record) = record {
            body["record"] = json!(record);
        }
        let change = self
            .connection
            .request(reqwest::Method::POST, &[name, action], Some(body))
            .await?;
        let mut rows = Vec::new();
        flatten("", &change, &mut rows);
        output::print(self.output, &change, &["key", "value"], rows)
    }

    fn table(&self, entries: &Value, columns: &[&str]) -> anyhow::Result<()> {
        let entries = entries.as_array().cloned().unwrap_or_default();
        let rows = entries.iter().map(|entry| {
            columns
                .iter()
                .map(|column| cell(column, &entry[*column]))
                .collect()
        });
        output::print(self.output, &entries, columns, rows)
    }
}
