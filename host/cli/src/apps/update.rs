//! `transom apps update`, `scale` and `restart`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, Daemon, Query};
use super::change::{self, Change, Options, change_document, changes_document, group_path};
use super::complete;
use super::document::{self, Document};
use super::follow::usage_error;
use super::id::{self, Kind, Target};
use super::set::{self, Setting};

/// Change an app, several apps, a pod or a group, and wait until the change is done.
///
/// For an app, only the given fields change; with --replace all others return to their defaults. A pod
/// is always replaced by the file. In a group, lists of apps and groups are complete: apps, pods and
/// groups that they do not name are deleted (see --dry-run).
///
/// With --set a key is a path with dots, and the value is JSON, or else a string: `instances=3`,
/// `env.COLOUR=blue`, `healthChecks.0.path=/health`, `constraints=[["hostname","UNIQUE"]]`. Values in
/// `env` and `labels`, and those that are strings now, remain strings. A dot in a name is written `\.`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps update web --set cpus=0.5 --set env.COLOUR=blue\n  \
    transom apps update web --set container.docker.image=nginx:1.28 --canary 1 --canary-seconds 60\n  \
    transom apps update web --unset env.COLOUR\n  \
    transom apps update -f web.json --deadline 300\n  \
    transom apps update -f examples/groups/shop.json --dry-run")]
pub(crate) struct Update {
    /// Id of the app, pod or group. Not needed if the file contains it.
    #[arg(value_parser = id::parse, required_unless_present = "file", add = complete::apps())]
    id: Option<String>,
    /// File with the fields to change, or the whole definition; `-` is standard input.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["set", "unset"])]
    file: Option<String>,
    /// Change one value; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = set::parse, conflicts_with = "file")]
    set: Vec<Setting>,
    /// Remove one value; repeatable.
    #[arg(long, value_name = "KEY", value_parser = set::parse_key, conflicts_with = "file")]
    unset: Vec<Setting>,
    /// The file is the whole definition of the app: fields that it does not contain return to their
    /// defaults.
    #[arg(long, requires = "file")]
    replace: bool,
    /// For a group: print the steps of the deployment, and change nothing.
    #[arg(long, requires = "file")]
    dry_run: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    daemon: Daemon,
}

impl Update {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let change = if let Some(file) = &self.file {
            let mut document = document::read(file)?;
            if let (Some(id), Document::One(_, definition)) = (&self.id, &mut document)
                && document::id(definition).is_none()
            {
                definition["id"] = json!(id);
            }
            if self.dry_run {
                return change::dry_run(&api, &document, self.daemon.output).await;
            }
            self.change_from_file(&api, document).await?
        } else {
            let id = self.id.as_deref().unwrap_or_default();
            let target = id::find(&api, id).await?;
            let settings: Vec<&Setting> = self.set.iter().chain(&self.unset).collect();
            let change = from_settings(&target, &settings)?;
            if let Some(body) = &change.body {
                document::warn_of_unknown("--set", target.kind, body);
            }
            change
        };
        change.run(&api, &self.options, self.daemon.output).await
    }

    async fn change_from_file(&self, api: &Api, document: Document) -> anyhow::Result<Change> {
        let partial = ("partialUpdate", (!self.replace).to_string());
        let (kind, definition) = match document {
            Document::Apps(_) if self.id.is_some() => {
                return Err(usage_error("the file has a list of apps, so no ID is expected"));
            }
            Document::Apps(apps) => {
                for id in apps.iter().filter_map(document::id) {
                    id::find(api, &id).await?;
                }
                return Ok(Change {
                    method: Method::PUT,
                    path: Kind::App.path().to_owned(),
                    document: changes_document(&apps),
                    body: Some(apps.into()),
                    query: Query::from([partial]),
                });
            }
            Document::One(kind, definition) => (kind, definition),
        };
        let Some(id_in_file) = document::id(&definition) else {
            return Err(usage_error("neither the command line nor the file has an id"));
        };
        if self.id.as_ref().is_some_and(|id| *id != id_in_file) {
            return Err(usage_error(format!(
                "the file defines {id_in_file}; an id cannot be changed"
            )));
        }
        let id_in_file = id::parse(&id_in_file).map_err(usage_error)?;
        let target = id::find(api, &id_in_file).await?;
        if self.replace && target.kind != Kind::App {
            return Err(usage_error(
                "--replace is for apps; pods are always replaced, and lists in groups are complete",
            ));
        }
        // A partial document of a pod or a group may look like that of an app.
        let kind = if kind == Kind::App { target.kind } else { kind };
        if kind != target.kind {
            bail!(
                "{id_in_file} is {}, and the file has {}",
                target.kind.with_article(),
                kind.with_article()
            );
        }
        let (method, path, query) = match kind {
            // Fields of the file replace present ones; PATCH would merge them.
            Kind::App => (Method::PUT, target.path(), Query::from([partial])),
            Kind::Pod => (Method::PUT, target.path(), Query::new()),
            Kind::Group => (Method::PUT, group_path(&id_in_file), Query::new()),
        };
        let mut body = definition;
        body["id"] = json!(id_in_file);
        Ok(Change {
            method,
            path,
            body: Some(body),
            query,
            document: change_document(kind, &id_in_file),
        })
    }
}

/// The request for `--set` and `--unset`.
fn from_settings(target: &Target, settings: &[&Setting]) -> anyhow::Result<Change> {
    let mut definition = document::definition(target.document.clone());
    for setting in settings {
        setting.apply(&mut definition).map_err(usage_error)?;
    }
    let (method, body) = match target.kind {
        // Sends only the changed fields, so that a concurrent change of another field is kept.
        Kind::App => {
            let members = settings.iter().map(|setting| setting.member());
            let changed = members.map(|name| (name.to_owned(), definition[name].clone()));
            (Method::PUT, changed.collect::<Value>())
        }
        Kind::Pod => (Method::PUT, definition),
        Kind::Group => {
            return Err(usage_error(format!(
                "{} is a group: change it with -f FILE",
                target.id
            )));
        }
    };
    if let Some(removed) = settings.iter().find(|one| whole_is_missing(&body, one.member())) {
        return Err(usage_error(format!(
            "{}: a whole field returns to its default with -f FILE --replace",
            removed.member()
        )));
    }
    Ok(Change {
        method,
        path: target.path(),
        body: Some(body),
        query: Query::new(),
        document: change_document(target.kind, &target.id),
    })
}

/// Whether the changes removed a whole member. In a partial update the API would ignore the missing
/// value, so it would not be removed.
fn whole_is_missing(body: &Value, name: &str) -> bool {
    body.get(name).is_some_and(Value::is_null)
}

/// Change the number of instances of an app or pod, and wait until they run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  transom apps scale web 3\n  transom apps scale web 0 --timeout 60")]
pub(crate) struct Scale {
    /// Id of the app or pod.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: String,
    /// The number of instances.
    instances: u32,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    daemon: Daemon,
}

impl Scale {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let target = id::find_one(&api, &self.id).await?;
        let (method, body) = if target.kind == Kind::Pod {
            let mut pod = document::definition(target.document.clone());
            pod["scaling"] = json!({"kind": "fixed", "instances": self.instances});
            (Method::PUT, pod)
        } else {
            (Method::PATCH, json!({"instances": self.instances}))
        };
        let mut document = change_document(target.kind, &target.id);
        document["instances"] = json!(self.instances);
        let change = Change {
            method,
            path: target.path(),
            body: Some(body),
            query: Query::new(),
            document,
        };
        change.run(&api, &self.options, self.daemon.output).await
    }
}

/// Replace all instances of an app by new ones, within the bounds of its `upgradeStrategy`, and wait
/// for the end of the deployment.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  transom apps restart web\n  transom apps restart web --canary 10% --canary-seconds 120"
)]
pub(crate) struct Restart {
    /// Id of the app.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: String,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    daemon: Daemon,
}

impl Restart {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let target = id::find_one(&api, &self.id).await?;
        if target.kind == Kind::Pod {
            bail!(
                "{} is a pod, which the API cannot restart: kill its instances with `transom apps kill`, others take \
                 their places",
                target.id
            );
        }
        let change = Change {
            method: Method::POST,
            path: format!("{}/restart", target.path()),
            body: None,
            query: Query::new(),
            document: change_document(target.kind, &target.id),
        };
        change.run(&api, &self.options, self.daemon.output).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_app_send_only_the_changed_members() {
        let target = Target {
            kind: Kind::App,
            id: "/a".to_owned(),
            document: json!({"id": "/a", "cpus": 1, "env": {"A": "1", "B": "2"}, "tasksRunning": 1}),
        };
        let (set, unset) = (
            set::parse("env.C=3").expect("a setting"),
            set::parse_key("env.A").expect("a key"),
        );
        let change = from_settings(&target, &[&set, &unset]).expect("a change");
        assert_eq!(change.body, Some(json!({"env": {"B": "2", "C": "3"}})));
        assert_eq!((change.method, change.path.as_str()), (Method::PUT, "v2/apps/a"));
        let setting = set::parse_key("env").expect("a key");
        assert!(from_settings(&target, &[&setting]).is_err());
    }
}
