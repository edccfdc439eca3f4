//! `transom plugin`: what the plugins of a running daemon do, and what is to be done with them; and, without a daemon, what those who
//! write plugins need.

mod bench;
mod build;
mod check;
mod check_source;
mod new;
mod push;
mod registry;
mod template;
mod test;
mod work;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::exit::{Misconfigured, Unavailable};
use crate::output::{self, Output};
use bench::Bench;
use build::Build;
use check::Check;
use new::New;
use push::Push;
use test::Test;

/// Looks after the plugins of a running daemon, and at components before they are given to one.
#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Lists the plugins with the version that serves and why a newer one was refused.
    List(Daemon),
    /// Shows all that is known of one plugin: calls, times, memory, the last trap with where it happened.
    Show(One),
    /// Tells what happened to a plugin, newest first: versions admitted, refused, parked, rolled back.
    History(One),
    /// Has an earlier version of a plugin serve again, without a call dropped.
    ///
    /// The files in the plugin directory stay as they are and are set aside until they change.
    Rollback(Rollback),
    /// Has the version that answers beside the one that serves (`promote = "manual"` in its manifest) take its place.
    Promote(One),
    New(New),
    Build(Build),
    Check(Check),
    Push(Push),
    Test(Test),
    Bench(Bench),
}

/// Which daemon, and how to show what it says.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    /// The daemon's admin port.
    #[arg(long, env = "TRANSOM_ADMIN_URL", default_value = "http://127.0.0.1:9990")]
    admin: String,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// The plugin: its file's name without `.wasm`.
    name: String,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {
    /// The plugin: its file's name without `.wasm`.
    name: String,
    /// The number of the record to go back to, as `history` shows it; the newest other version when left out.
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
                if document["kept"] != "store" {
                    eprintln!("these records are kept in memory for now; they end with the daemon");
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
            PluginCommand::Promote(One { name, daemon }) => daemon.order(&name, "promote", None).await,
        }
    }
}

impl Daemon {
    async fn get(&self, path: &[&str]) -> anyhow::Result<Value> {
        self.ask(reqwest::Method::GET, path, None).await
    }

    /// Has something done, in the name of whoever runs this program.
    async fn order(&self, name: &str, what: &str, record: Option<u64>) -> anyhow::Result<()> {
        let by = std::env::var("USER").unwrap_or_else(|_| "operator".to_owned());
        let mut order = json!({"by": by});
        if let Some(record) = record {
            order["record"] = json!(record);
        }
        let change = self
            .ask(reqwest::Method::POST, &[name, what], Some(order))
            .await?;
        let mut rows = Vec::new();
        flatten("", &change, &mut rows);
        output::print(self.output, &change, &["key", "value"], rows)
    }

    async fn ask(
        &self,
        method: reqwest::Method,
        path: &[&str],
        body: Option<Value>,
    ) -> anyhow::Result<Value> {
        let url = self.url(path)?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            // A version that comes back is compiled anew where its compiled form is not kept, for as long as the daemon allows.
            .timeout(std::time::Duration::from_mins(5))
            .build()?;
        let mut request = client.request(method, url.clone());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| {
                format!("no daemon answers at {url}: is one running, and is --admin its admin port?")
            })
            .context(Unavailable)?;
        let status = answer.status();
        let document: Value = answer.json().await.unwrap_or_default();
        if !status.is_success() {
            match document["message"].as_str() {
                Some(message) => anyhow::bail!("{message}"),
                None => anyhow::bail!("{url} answered {status}"),
            }
        }
        Ok(document)
    }

    /// Where something is asked for; a name may have any characters.
    fn url(&self, path: &[&str]) -> anyhow::Result<reqwest::Url> {
        let wrong = || {
            format!(
                "--admin is {:?}: expected an address such as http://127.0.0.1:9990",
                self.admin
            )
        };
        let mut url = reqwest::Url::parse(&self.admin)
            .with_context(wrong)
            .context(Misconfigured)?;
        {
            let Ok(mut segments) = url.path_segments_mut() else {
                return Err(anyhow::anyhow!(wrong()).context(Misconfigured));
            };
            segments.pop_if_empty().extend(["v1", "plugins"]).extend(path);
        }
        Ok(url)
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

/// Everything in a document, a row each: `last_trap.fault`, and what it is.
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

/// How a value stands in a table: times as people read them, digests by their beginning.
fn cell(key: &str, value: &Value) -> String {
    match (key, value) {
        (_, Value::Null) => "-".into(),
        // How fetching goes, or why it does not.
        ("source", Value::Object(source)) => {
            let trouble = source.get("trouble").and_then(Value::as_str);
            let state = source.get("state").and_then(Value::as_str);
            trouble.or(state).unwrap_or("-").to_owned()
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
