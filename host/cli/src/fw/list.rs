//! `transom fw list`.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};
use transom_cluster::ListedFramework;

use super::config::Config;
use super::framework;
use crate::output::{self, Output};

/// List frameworks that run an orchestrator.
///
/// These are the ones whose name contains `fw` or `m3s`, and those with a section `[fw.NAME]` in
/// the configuration file.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom fw list --all --output json | jq -r '.frameworks[].name'")]
pub(crate) struct List {
    /// Also frameworks that are not active: disconnected ones.
    #[arg(short, long)]
    all: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The columns as the specification names them.
const HEADINGS: [&str; 4] = ["ID", "Active", "WebUI", "Name"];

impl List {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = Config::read()?;
        let frameworks = framework::list_frameworks(&config).await?;
        let listed_frameworks: Vec<_> = frameworks
            .iter()
            .filter(|one| framework::is_of_kind(one, &config) && (self.all || one.active))
            .collect();
        match self.output {
            Output::Json => {
                let list: Vec<_> = listed_frameworks.into_iter().map(document).collect();
                output::print_text(self.output, &json!({ "frameworks": list }), "")
            }
            Output::Table => {
                let table = output::table_with_headings(HEADINGS, listed_frameworks.into_iter().map(row));
                Ok(writeln!(io::stdout().lock(), "{table}")?)
            }
        }
    }
}

fn document(framework: &ListedFramework) -> Value {
    json!({
        "id": framework.id.as_ref(),
        "active": framework.active,
        "webui_url": framework.webui_url,
        "name": framework.name,
    })
}

fn row(framework: &ListedFramework) -> Vec<String> {
    let active = if framework.active { "True" } else { "False" };
    vec![
        framework.id.to_string(),
        active.to_owned(),
        framework.webui_url.clone(),
        framework.name.clone(),
    ]
}
