//! `transom plugin`: what the plugins of a running daemon do.

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::exit::Unavailable;
use crate::output::{self, Output};

/// Looks at the plugins of a running daemon.
#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    List(List),
}

/// Lists the plugins with the version that serves and why a newer one was refused.
#[derive(Debug, Args)]
pub(super) struct List {
    /// The daemon's admin port.
    #[arg(long, env = "TRANSOM_ADMIN_URL", default_value = "http://127.0.0.1:9990")]
    admin: String,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl PluginCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let PluginCommand::List(list) = self;
        let url = format!("{}/v1/plugins", list.admin.trim_end_matches('/'));
        let document = fetch(&url).await.context(Unavailable)?;
        let plugins = document["plugins"].as_array().cloned().unwrap_or_default();
        let rows = plugins
            .iter()
            .map(|plugin| COLUMNS.iter().map(|column| cell(&plugin[*column])).collect());
        output::print(list.output, &plugins, &COLUMNS, rows)
    }
}

/// The columns of the table, which are keys of the admin API's answer.
const COLUMNS: [&str; 7] = ["name", "world", "version", "state", "calls", "traps", "refusal"];

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn fetch(url: &str) -> anyhow::Result<Value> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(std::time::Duration::from_secs(10))
        .build()?;
    let answer = client.get(url).send().await.with_context(|| {
        format!("no daemon answers at {url}: is one running, and is --admin its admin port?")
    })?;
    anyhow::ensure!(answer.status().is_success(), "{url} answered {}", answer.status());
    Ok(answer.json().await?)
}
