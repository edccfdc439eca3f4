//! `transom apps versions`.

use clap::Args;
use serde_json::{Value, json};

use super::api::{Api, Port};
use super::complete;
use super::id::{self, Kind, Target};
use crate::list::{Cell, Column, ListOptions};

/// List the kept versions of a definition, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps versions web\n  \
    transom apps diff web 2026-05-01T10:00:00.000Z\n  \
    echo '{\"version\": \"2026-05-01T10:00:00.000Z\"}' | transom apps update web -f -")]
pub(crate) struct Versions {
    /// Id of the app, pod or group.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: String,
    #[command(flatten)]
    port: Port,
    #[command(flatten)]
    list: ListOptions,
}

impl Versions {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.port.api()?;
        let target = id::find(&api, &self.id).await?;
        let versions = of(&api, &target).await?;
        let current = match target.kind {
            Kind::Pod => versions.first().cloned(),
            _ => target.document["version"].as_str().map(str::to_owned),
        };
        let now = jiff::Timestamp::now();
        let rows = versions.iter().map(|version| {
            let mark = if Some(version) == current.as_ref() {
                "current"
            } else {
                ""
            };
            // The version is needed to name it, so it is whole in each format.
            let age = Cell::age(Some(version), now).short;
            vec![Cell::from(version), age.into(), mark.into()]
        });
        let document = json!({"id": target.id, "versions": versions});
        let columns = [Column::Fixed("version"), Column::Fixed("age"), Column::Fixed("")];
        self.list.print(&document, &columns, 0, rows.collect())
    }
}

/// The versions, newest first.
pub(super) async fn of(api: &Api, target: &Target) -> anyhow::Result<Vec<String>> {
    let separator = if target.kind == Kind::Pod { "::" } else { "/" };
    let list = api.get(&format!("{}{separator}versions", target.path())).await?;
    let list = list.get("versions").unwrap_or(&list);
    let versions = list.as_array().into_iter().flatten();
    Ok(versions.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// The path of one version.
pub(super) fn path_of(target: &Target, version: &str) -> String {
    let separator = if target.kind == Kind::Pod { "::" } else { "/" };
    format!("{}{separator}versions/{version}", target.path())
}
