//! `transom job kill`.

use clap::Args;
use transom_plugin_host::printable;

use super::client::{Daemon, complete_jobs, is_final};
use crate::output;

/// Kill jobs: pending ones are not launched, running ones are ended.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  transom job kill backup")]
pub(crate) struct Kill {
    /// Ids of the jobs.
    #[arg(required = true, add = complete_jobs())]
    id: Vec<String>,
    #[command(flatten)]
    daemon: Daemon,
}

impl Kill {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let mut states = Vec::new();
        // An unknown id is an error before anything is killed.
        for id in &self.id {
            let found = api.existing(id).await?;
            states.push(found["status"]["state"].as_str().unwrap_or_default().to_owned());
        }
        for (id, state) in self.id.iter().zip(states) {
            if is_final(&state) {
                output::print_line(format_args!(
                    "{} has already ended: {}",
                    printable(id),
                    printable(&state)
                ))?;
                continue;
            }
            api.kill(id).await.map_err(|failure| api.error(failure))?;
            output::print_line(format_args!("{} is being killed", printable(id)))?;
        }
        Ok(())
    }
}
