//! `transom apps show`.

use clap::Args;
use serde_json::Value;

use super::api::Daemon;
use super::complete;
use super::id::{self, Kind};
use crate::output;

/// Show one app, pod or group: its definition and state, one value per line.
///
/// With `--output json` an app or pod is printed as the API returns it; `update -f` accepts that
/// output.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps show web\n  \
    transom apps show web --output json > web.json")]
pub(crate) struct Show {
    /// Id of the app, pod or group.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: String,
    #[command(flatten)]
    daemon: Daemon,
}

impl Show {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let target = id::find(&api, &self.id).await?;
        let mut document = target.document;
        let mut rows = vec![vec!["kind".to_owned(), target.kind.name().to_owned()]];
        let full_document = document.clone();
        if let Some(members) = document.as_object_mut() {
            match target.kind {
                // `transom apps tasks` shows the tasks.
                Kind::App => drop(members.remove("tasks")),
                Kind::Group => {
                    for key in ["apps", "pods", "groups"] {
                        let ids = members.remove(key);
                        let ids = ids.as_ref().and_then(Value::as_array).into_iter().flatten();
                        for (index, id) in ids.filter_map(|one| one["id"].as_str()).enumerate() {
                            rows.push(vec![format!("{key}.{index}"), id.to_owned()]);
                        }
                    }
                }
                Kind::Pod => {}
            }
        }
        leaves("", &document, &mut rows);
        output::print(self.daemon.output, &full_document, &["key", "value"], rows)
    }
}

/// Every value in a document, one row each; empty ones are left out.
fn leaves(key: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    let child_path = |name: &str| {
        let name = name.replace('\\', r"\\").replace('.', r"\.");
        if key.is_empty() {
            name
        } else {
            format!("{key}.{name}")
        }
    };
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (name, value) in members {
                leaves(&child_path(name), value, rows);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                leaves(&child_path(&index.to_string()), value, rows);
            }
        }
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => rows.push(vec![key.to_owned(), text.clone()]),
        other => rows.push(vec![key.to_owned(), other.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_with_the_keys_that_set_accepts() {
        let mut rows = Vec::new();
        let document = json!({"env": {"A.B": "1"}, "args": ["x"], "cpus": 0.1, "labels": {}, "user": null});
        leaves("", &document, &mut rows);
        let rows: Vec<(&str, &str)> = rows
            .iter()
            .map(|row| (row[0].as_str(), row[1].as_str()))
            .collect();
        assert_eq!(rows.len(), 3);
        for row in [("args.0", "x"), ("cpus", "0.1"), (r"env.A\.B", "1")] {
            assert!(rows.contains(&row), "{rows:?}");
        }
    }
}
