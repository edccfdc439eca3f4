//! `transom apps versions`.

use clap::Args;
use serde_json::{Value, json};

use super::api::{Api, Daemon};
use super::id::{self, Kind, Target};
use crate::output;

/// List the kept versions of a definition, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps versions web\n  \
    transom apps diff web 2026-05-01T10:00:00.000Z\n  \
    echo '{\"version\": \"2026-05-01T10:00:00.000Z\"}' | transom apps update web -f -")]
pub(crate) struct Versions {
    /// Id of the app, pod or group.
    #[arg(value_parser = id::parse)]
    id: String,
    #[command(flatten)]
    daemon: Daemon,
}

impl Versions {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let target = id::find(&api, &self.id).await?;
        let versions = of(&api, &target).await?;
        let current = match target.kind {
            Kind::Pod => versions.first().cloned(),
            _ => target.document["version"].as_str().map(str::to_owned),
        };
        let rows = versions.iter().map(|version| {
            let mark = if Some(version) == current.as_ref() {
                "current"
            } else {
                ""
            };
            vec![version.clone(), mark.to_owned()]
        });
        let document = json!({"id": target.id, "versions": versions});
        output::print(self.daemon.output, &document, &["version", ""], rows)
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
