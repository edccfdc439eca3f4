//! `transom apps create`.

use anyhow::bail;
use clap::Args;
use reqwest::{Method, StatusCode};

use super::api::{Daemon, Query, Rejection};
use super::change::{self, Change, Options, change_document, changes_document};
use super::document::{self, Document};
use super::id::Kind;

/// Create an app, several apps, a pod or a group from a file, and wait until it runs.
///
/// The file has one JSON document in Marathon's form: a definition of an app, a list of these, a
/// pod (it has `containers`) or a group (it has `apps` or `groups`).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps create -f examples/apps/health.json\n  \
    transom apps create -f examples/groups/shop.json --dry-run\n  \
    echo '{\"id\": \"/sleep\", \"cmd\": \"exec sleep 1000\"}' | transom apps create -f - --detach\n\n\
    Interrupting the command does not stop the deployment.")]
pub(crate) struct Create {
    /// File with the definition; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: String,
    /// For a group: print the steps of the deployment, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    daemon: Daemon,
}

impl Create {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let document = document::read(&self.file)?;
        let api = self.daemon.api()?;
        if self.dry_run {
            return change::dry_run(&api, &document, self.daemon.output).await;
        }
        let (method, path, body, document) = match document {
            Document::One(kind, definition) => {
                let id = document::id(&definition).unwrap_or_default();
                (Method::POST, kind.path(), definition, change_document(kind, &id))
            }
            Document::Apps(apps) => {
                // The API has only one request for a list of apps, and it would change existing apps.
                for id in apps.iter().filter_map(document::id) {
                    let existing = api.find(&format!("{}{id}", Kind::App.path())).await?;
                    if existing.is_some_and(|existing| existing["app"].is_object()) {
                        bail!(
                            "{id} exists already; `transom apps update -f {}` changes it",
                            self.file
                        );
                    }
                }
                let document = changes_document(&apps);
                (Method::PUT, Kind::App.path(), apps.into(), document)
            }
        };
        let change = Change {
            method,
            path: path.to_owned(),
            body: Some(body),
            query: Query::new(),
            document,
        };
        let created = change.run(&api, &self.options, self.daemon.output).await;
        created.map_err(|error| match error.downcast_ref::<Rejection>() {
            Some(rejected) if rejected.status == StatusCode::CONFLICT => {
                anyhow::anyhow!(
                    "{error}\nIf it exists already, `transom apps update -f {}` changes it.",
                    self.file
                )
            }
            _ => error,
        })
    }
}
