//! `transom apps diff`.

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::api::{Api, Daemon};
use super::complete;
use super::diff::{self, Difference, Scope};
use super::document::{self, Document};
use super::follow::usage_error;
use super::id::{self, Kind};
use super::versions;
use crate::output;

/// Compare versions of a definition, or a file with the current definition.
///
/// One line for each field: `~` a changed value (old → new), `+` a new field, `-` a removed one.
/// Without a version, the previous definition is compared with the current one; with one version, that
/// one is compared with the current definition. The exit code is 0 with and without differences.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps diff web\n  \
    transom apps diff web 2026-05-01T10:00:00.000Z\n  \
    transom apps diff -f web.json")]
pub(crate) struct Diff {
    /// Id of the app or pod.
    #[arg(value_parser = id::parse, required_unless_present = "file", add = complete::apps())]
    id: Option<String>,
    /// Version to compare from, as `transom apps versions` prints it. Default: the previous one.
    from: Option<String>,
    /// Version to compare to. Default: the current one.
    to: Option<String>,
    /// Compare the current definition with this file, as `update -f` would change it; `-` is
    /// standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with = "from")]
    file: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
}

impl Diff {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        match (&self.file, &self.id) {
            (Some(file), _) => self.with_file(&api, file).await,
            (None, Some(id)) => self.between_versions(&api, id).await,
            (None, None) => Err(usage_error("expected an ID or -f FILE")),
        }
    }

    async fn between_versions(&self, api: &Api, id: &str) -> anyhow::Result<()> {
        let target = id::find_one(api, id).await?;
        let versions = versions::of(api, &target).await?;
        let current = versions.first().cloned().unwrap_or_default();
        let to = self.to.clone().unwrap_or_else(|| current.clone());
        let from = match &self.from {
            Some(from) => from.clone(),
            None => match versions.get(1) {
                Some(before) => before.clone(),
                None => bail!("{id} has only one version: {current}"),
            },
        };
        for version in [&from, &to] {
            if !versions.contains(version) {
                bail!("{id} has no version {version}; it has {}", versions.join(", "));
            }
        }
        let definition = async |version: &str| {
            let path = versions::path_of(&target, version);
            api.get(&path).await.map(document::comparable)
        };
        let differences = diff::compare(
            &definition(&from).await?,
            &definition(&to).await?,
            Scope::AllFields,
        );
        let document = json!({
            "id": id, "from": from, "to": to, "differences": diff::document(&differences),
        });
        self.print(&document, &format!("{id}: {from} → {to}"), &differences)
    }

    async fn with_file(&self, api: &Api, file: &str) -> anyhow::Result<()> {
        let one = match document::read(file)? {
            Document::One(Kind::Group, group) => return self.with_group(api, file, &group).await,
            Document::One(_, one) => one,
            Document::Apps(apps) => {
                let all = apps.into_iter();
                let with_ids = all.map(|mut app| {
                    app["id"] = json!(document::id(&app));
                    app
                });
                let group = json!({"id": "/", "apps": with_ids.collect::<Vec<_>>()});
                return self.with_apps(api, file, &group).await;
            }
        };
        let named = self.id.clone().or_else(|| document::id(&one));
        let named = named.ok_or_else(|| usage_error(format!("{file} has no id; give it as ID")))?;
        let named = id::parse(&named).map_err(usage_error)?;
        let target = id::find_one(api, &named).await?;
        let mut new = document::comparable(one);
        new["id"] = json!(named);
        let scope = match target.kind {
            Kind::Pod => Scope::AllFields,
            _ => Scope::NewFields,
        };
        let differences = diff::compare(&document::comparable(target.document), &new, scope);
        let document = json!({
            "id": named, "from": "current", "to": file, "differences": diff::document(&differences),
        });
        self.print(&document, &format!("{named}: current → {file}"), &differences)
    }

    /// Compares a list of apps with the existing apps of the same ids.
    async fn with_apps(&self, api: &Api, file: &str, list: &Value) -> anyhow::Result<()> {
        let mut present = Vec::new();
        for app in list["apps"].as_array().into_iter().flatten() {
            let id = app["id"].as_str().unwrap_or_default();
            let document = api.find(&format!("v2/apps{id}")).await?;
            present.extend(document.map(|document| document["app"].clone()));
        }
        let old = json!({"apps": present});
        self.print_all(file, &diff::compare_group(Some(&old), list))
    }

    async fn with_group(&self, api: &Api, file: &str, group: &Value) -> anyhow::Result<()> {
        let id = document::id(group).ok_or_else(|| usage_error(format!("{file} has no id")))?;
        let id = id::parse(&id).map_err(usage_error)?;
        let old = api
            .find(&format!("v2/groups{}", id.trim_end_matches('/')))
            .await?;
        self.print_all(file, &diff::compare_group(old.as_ref(), group))
    }

    fn print_all(&self, file: &str, differences_by_id: &[(String, Vec<Difference>)]) -> anyhow::Result<()> {
        let documents = differences_by_id.iter().map(|(id, differences)| {
            json!({"id": id, "from": "current", "to": file, "differences": diff::document(differences)})
        });
        let document = Value::Array(documents.collect());
        let mut lines = Vec::new();
        for (id, differences) in differences_by_id {
            lines.push(format!("{id}: current → {file}"));
            lines.extend(diff::lines(differences));
        }
        if differences_by_id.is_empty() {
            lines.push("no difference".to_owned());
        }
        output::print_text(self.daemon.output, &document, &lines.join("\n"))
    }

    fn print(&self, document: &Value, heading: &str, differences: &[Difference]) -> anyhow::Result<()> {
        let mut lines = vec![heading.to_owned()];
        lines.extend(diff::lines(differences));
        if differences.is_empty() {
            lines.push("no difference".to_owned());
        }
        output::print_text(self.daemon.output, document, &lines.join("\n"))
    }
}
