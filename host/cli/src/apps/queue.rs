//! `transom apps queue`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Daemon, Query};
use super::explain::{self, Item};
use super::id;
use crate::output;

/// List the apps and pods with instances that wait for their launch, and the main reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps queue\n  \
    transom apps queue web --reset-delay\n\n\
    `transom apps explain ID` has all reasons.")]
pub(crate) struct Queue {
    /// Id of an app or pod. Default: all.
    #[arg(value_parser = id::parse)]
    id: Option<String>,
    /// Launch the waiting instances of ID without their delay after failures.
    #[arg(long, requires = "id")]
    reset_delay: bool,
    #[command(flatten)]
    daemon: Daemon,
}

const HEADINGS: &[&str] = &["id", "waiting", "since", "delay", "offers", "unused", "reason"];

impl Queue {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        if let Some(id) = &self.id {
            id::find_one(&api, id).await?;
            if self.reset_delay {
                let path = format!("v2/queue{id}/delay");
                let reset = api.send(Method::DELETE, &path, &Query::new(), None).await;
                match reset {
                    Err(error) if super::api::is_not_found(&error) => bail!("no instance of {id} is waiting"),
                    reset => drop(reset?),
                }
            }
        }
        let queue = explain::queue(&api).await?;
        let wanted = |item: &Item<'_>| self.id.as_deref().is_none_or(|id| item.definition()["id"] == id);
        let items: Vec<Item<'_>> = explain::queue_items(&queue).filter(wanted).collect();
        let entries: Vec<&Value> = items.iter().map(|item| &**item).collect();
        let rows = items.iter().map(|item| row(*item));
        output::print(self.daemon.output, &json!({"queue": entries}), HEADINGS, rows)
    }
}

fn row(item: Item<'_>) -> Vec<String> {
    let number = |value: &Value| value.as_u64().unwrap_or(0).to_string();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let summary = &item["processedOffersSummary"];
    vec![
        text(&item.definition()["id"]),
        number(&item["count"]),
        text(&item["since"]),
        format!("{} s", number(&item["delay"]["timeLeftSeconds"])),
        number(&summary["processedOffersCount"]),
        number(&summary["unusedOffersCount"]),
        explain::main_reason(item),
    ]
}
