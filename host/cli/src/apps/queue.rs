//! `transom apps queue`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Port, Query};
use super::complete;
use super::explain::{self, Item};
use super::id;
use crate::list::{Cell, Column, ListOptions};

/// List the apps and pods with instances that wait for their launch, and the main reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps queue\n  \
    transom apps queue web --reset-delay\n\n\
    `transom apps explain ID` has all reasons.")]
pub(crate) struct Queue {
    /// Id of an app or pod. Default: all.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: Option<String>,
    /// Launch the waiting instances of ID without their delay after failures.
    #[arg(long, requires = "id")]
    reset_delay: bool,
    #[command(flatten)]
    port: Port,
    #[command(flatten)]
    list: ListOptions,
}

const COLUMNS: &[Column] = &[
    Column::Name("id"),
    Column::Fixed("waiting"),
    Column::Fixed("for"),
    Column::Fixed("delay"),
    Column::Wide("offers"),
    Column::Wide("unused"),
    Column::Text("reason"),
];

impl Queue {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.port.api()?;
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
        let now = jiff::Timestamp::now();
        let rows = items.iter().map(|item| row(*item, now)).collect();
        self.list.print(&json!({"queue": entries}), COLUMNS, 0, rows)
    }
}

fn row(item: Item<'_>, now: jiff::Timestamp) -> Vec<Cell> {
    let number = |value: &Value| value.as_u64().unwrap_or(0).to_string();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let summary = &item["processedOffersSummary"];
    vec![
        text(&item.definition()["id"]).into(),
        number(&item["count"]).into(),
        Cell::age(item["since"].as_str(), now),
        format!("{} s", number(&item["delay"]["timeLeftSeconds"])).into(),
        number(&summary["processedOffersCount"]).into(),
        number(&summary["unusedOffersCount"]).into(),
        explain::main_reason(item).into(),
    ]
}
