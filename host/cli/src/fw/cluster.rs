//! `transom fw cluster`.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::json;

use super::api::{self, Framework};
use crate::output::{self, Output};

/// Stop, start or restart the whole orchestrator of a framework.
#[derive(Debug, Args)]
#[command(
    after_help = "`stop` ends servers, agents and datastore and keeps their data; `start` starts them again."
)]
pub(crate) struct Cluster {
    #[command(flatten)]
    framework: Framework,
    /// What to do.
    #[arg(value_enum)]
    operation: Operation,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Operation {
    Stop,
    Start,
    Restart,
}

impl Operation {
    /// The last part of the path, and the word in the message.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Stop => ("shutdown", "Shutdown"),
            Self::Start => ("start", "Start"),
            Self::Restart => ("restart", "Restart"),
        }
    }
}

impl Cluster {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (path, word) = self.operation.names();
        let api = self.framework.api().await?;
        let answer = api.send(Method::PUT, &["cluster", path]).await?;
        let document = json!({"operation": path, "answer": api::document(&answer)});
        let text = format!("{word} Kubernetes Cluster\n{answer}");
        output::print_text(self.output, &document, text.trim_end())
    }
}
