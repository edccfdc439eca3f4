//! `transom fw scale`.

use clap::Args;
use serde_json::json;

use super::api::{self, Framework};
use crate::output::{self, Output};

/// Set how many agents, servers or datastores a framework runs.
///
/// Prints the difference to the previous number. Several of the options --agent, --kvstore and
/// --manager may be given; without any of them, the command changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  transom fw scale --agent fw 3\n  \
                  transom fw scale --kvstore fw 3 --output json")]
pub(crate) struct Scale {
    /// The agents of the orchestrator.
    #[arg(short, long)]
    agent: bool,
    /// The datastore, where it is a key-value store.
    #[arg(short = 'e', long, visible_alias = "etcd")]
    kvstore: bool,
    /// The servers of the orchestrator.
    #[arg(short, long)]
    manager: bool,
    #[command(flatten)]
    framework: Framework,
    /// New number.
    #[arg(allow_negative_numbers = true)]
    count: u32,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Scale {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        // The datastore comes first and agents last, because servers need the datastore, and agents
        // need servers.
        let services = [
            (self.kvstore, "kvstore", "kvstore"),
            (self.manager, "manager", "server"),
            (self.agent, "agent", "agent"),
        ];
        let chosen: Vec<_> = services.iter().filter(|(chosen, ..)| *chosen).collect();
        if chosen.is_empty() {
            return output::print_text(self.output, &json!({"scaled": []}), "Nothing to scale");
        }
        let api = self.framework.api().await?;
        let count = self.count.to_string();
        let mut scaled = Vec::new();
        for (_, name, service) in chosen {
            let answer = api.get(&[service, "scale", &count]).await?;
            if self.output == Output::Table {
                // Printed immediately, because a later request may fail.
                output::print_text(self.output, &(), &format!("Scale up/down {name}\n{answer}"))?;
            }
            let difference = api::document(&answer);
            scaled.push(json!({"service": name, "count": self.count, "difference": difference}));
        }
        match self.output {
            Output::Table => Ok(()),
            Output::Json => output::print_text(self.output, &json!({ "scaled": scaled }), ""),
        }
    }
}
