//! `transom plugin`: manages the plugins of a running daemon; creates, builds and tests components.

mod bench;
mod build;
mod cache;
mod check;
mod check_source;
mod connection;
mod dev;
mod new;
mod push;
mod recorded;
mod registry;
mod replay;
mod template;
mod test;
mod work;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::output::{self, Output};
use bench::Bench;
use build::Build;
use check::Check;
use connection::Connection;
use dev::Dev;
use new::New;
use push::Push;
use recorded::Cases;
use replay::Replay;
use test::Test;

/// Manage the plugins of a running daemon; create, build and test components.
#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// List plugins with the serving version and the reason why a newer one was rejected.
    List(Daemon),
    /// Show one plugin in detail: calls, latency, memory, the last trap with its backtrace.
    Show(One),
    /// Show the admission history of a plugin, newest first: admitted, rejected, disabled, rolled
    /// back.
    History(One),
    /// Roll a plugin back to an earlier version without dropping a call.
    ///
    /// The files in the plugin directory stay as they are; the daemon ignores them until they
    /// change.
    Rollback(Rollback),
    /// Promote the shadow version of a plugin (`rollout = "shadow-manual"` in its manifest) to the
    /// serving one.
    Promote(One),
    New(New),
    Build(Build),
    Check(Check),
    Push(Push),
    Test(Test),
    Bench(Bench),
    Dev(Dev),
    Replay(Replay),
    Cases(Cases),
    /// Compiles the component on standard input, for the daemon; see `COMPILE_COMMAND`.
    #[command(hide = true)]
    Compile,
}

/// Which daemon, and how to show what it says.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// Name of the plugin: its file name without `.wasm`.
    name: String,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {
    /// Name of the plugin: its file name without `.wasm`.
    name: String,
    /// Number of the record to return to, as `history` shows it. Default: the newest other version.
    record: Option<u64>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Columns of tables, which are keys of the admin API's answers.
const PLUGIN: [&str; 8] = [
    "name", "world", "version", "state", "calls", "traps", "source", "refusal",
];
const RECORD: [&str; 7] = ["sequence", "at", "outcome", "version", "by", "digest", "reason"];

impl PluginCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            PluginCommand::List(daemon) => {
                let document = daemon.get(&[]).await?;
                daemon.table(&document["plugins"], &PLUGIN)
            }
            PluginCommand::Show(one) => {
                let document = one.daemon.get(&[&one.name]).await?;
                let mut rows = Vec::new();
                flatten("", &document, &mut rows);
                output::print(one.daemon.output, &document, &["key", "value"], rows)
            }
            PluginCommand::History(one) => {
                let document = one.daemon.get(&[&one.name, "history"]).await?;
                one.daemon.table(&document["records"], &RECORD)?;
                if document["durability"] != "store" {
                    eprintln!(
                        "the store does not have all of these records: the others are lost when the daemon stops"
                    );
                }
                Ok(())
            }
            PluginCommand::Rollback(Rollback { name, record, daemon }) => {
                daemon.order(&name, "rollback", record).await
            }
            PluginCommand::New(new) => new.run(),
            PluginCommand::Build(build) => build.run().await,
            PluginCommand::Check(check) => check.run().await,
            PluginCommand::Push(push) => push.run().await,
            PluginCommand::Test(test) => test.run().await,
            PluginCommand::Bench(bench) => bench.run().await,
            PluginCommand::Dev(dev) => Box::pin(dev.run()).await,
            PluginCommand::Replay(replay) => replay.run().await,
            PluginCommand::Cases(cases) => cases.run().await,
            // `main` does it, without a runtime.
            PluginCommand::Compile => Ok(()),
            PluginCommand::Promote(One { name, daemon }) => daemon.order(&name, "promote", None).await,
        }
    }
}

impl Daemon {
    async fn get(&self, path: &[&str]) -> anyhow::Result<Value> {
        self.connection.ask(reqwest::Method::GET, path, None).await
    }

    /// Sends a command, with the current user's name as the requester.
    async fn order(&self, name: &str, what: &str, record: Option<u64>) -> anyhow::Result<()> {
        let by = std::env::var("USER").unwrap_or_else(|_| "operator".to_owned());
        let mut order = json!({"by": by});
        if let Some(record) = record {
            order["record"] = json!(record);
        }
        let change = self
            .connection
            .ask(reqwest::Method::POST, &[name, what], Some(order))
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

/// Every value in a document, one row each: `last_trap.fault`, and its value.
fn flatten(key: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    let below = |name: &str| {
        if key.is_empty() {
            name.to_owned()
        } else {
            format!("{key}.{name}")
        }
    };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| flatten(&below(name), value, rows)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                flatten(&below(&at.to_string()), item, rows);
            }
        }
        value => rows.push(vec![
            key.to_owned(),
            cell(key.rsplit('.').next().unwrap_or(key), value),
        ]),
    }
}

/// A value for a table: times in readable form, digests abbreviated.
fn cell(key: &str, value: &Value) -> String {
    match (key, value) {
        (_, Value::Null) => "-".into(),
        // The state of fetching, or its error.
        ("source", Value::Object(source)) => {
            let error = source.get("error").and_then(Value::as_str);
            let state = source.get("state").and_then(Value::as_str);
            error.or(state).unwrap_or("-").to_owned()
        }
        ("at" | "since" | "admitted_at", Value::Number(seconds)) => seconds
            .as_i64()
            .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
            .map_or_else(|| seconds.to_string(), |at| at.to_string()),
        ("digest", Value::String(digest)) => digest.chars().take("sha256:".len() + 12).collect(),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}
