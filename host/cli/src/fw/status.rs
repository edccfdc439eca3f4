//! `transom fw status`.

use clap::Args;
use serde_json::{Map, Value};

use super::api::{self, Framework};
use crate::output::{self, Output};

/// Show the status of a framework's tasks and of its orchestrator; without an option, both.
#[derive(Debug, Args)]
#[command(
    after_help = "The status of the framework is one JSON object: the task state of Server, Agent and Kvstore, and \
                  whether the API of the orchestrator answers. The status of the orchestrator is `ok` or `nok`."
)]
pub(crate) struct Status {
    /// Status of the orchestrator.
    #[arg(short = 'k', long, visible_alias = "kubernetes")]
    orch: bool,
    /// Status of the framework's tasks.
    #[arg(short = 'm', long, visible_alias = "m3s")]
    fw: bool,
    #[command(flatten)]
    framework: Framework,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Status {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.framework.api().await?;
        let both = self.fw == self.orch;
        let (mut text, mut document) = (String::new(), Map::new());
        for (wanted, name) in [(self.fw || both, "fw"), (self.orch || both, "orch")] {
            if wanted {
                let body = api.get(&["status", name]).await?;
                text.push_str(body.trim_end());
                text.push('\n');
                document.insert(name.to_owned(), api::document(&body));
            }
        }
        output::print_text(self.output, &Value::Object(document), &text)
    }
}
