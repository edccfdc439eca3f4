//! `transom job show`.

use clap::Args;
use serde_json::json;

use super::client::{Daemon, complete_jobs};
use crate::output::{self, Output};

/// Show the state of a job's newest run, and why it waits if it is pending.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  transom job show backup\n  transom job show backup -o json")]
pub(crate) struct Show {
    /// Id of the job.
    #[arg(add = complete_jobs())]
    id: String,
    #[command(flatten)]
    daemon: Daemon,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Show {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let status = api.existing(&self.id).await?;
        let queue = api.queue_entries(Some(&self.id)).await;
        let queue = queue.map_err(|failure| api.error(failure))?.into_iter().next();
        let mut rows = Vec::new();
        let mut add = |name: &str, value: Option<&str>| {
            rows.extend(
                value
                    .filter(|value| !value.is_empty())
                    .map(|value| vec![name.to_owned(), value.to_owned()]),
            );
        };
        add("id", Some(&self.id));
        add("state", status["status"]["state"].as_str());
        add("message", status["status"]["message"].as_str());
        if let Some(entry) = &queue {
            let reason = &entry["reason"];
            add("pending", reason["message"].as_str());
            add("advice", reason["advice"].as_str());
            add("since", entry["since"].as_str());
            for key in ["cpus", "mem", "disk", "gpus", "priority"] {
                let number = &entry[key];
                add(key, (!number.is_null()).then(|| number.to_string()).as_deref());
            }
        }
        let document = json!({"status": status["status"], "pending": queue});
        output::print(self.output, &document, &["key", "value"], rows)
    }
}
