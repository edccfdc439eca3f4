//! `transom plugin check --against serving`: lists the imports, grants and limits by which an upgrade
//! exceeds the serving version. A daemon rejects an upgrade only for new imports; new grants and limits
//! are a decision of the operator who copies the files.

use std::path::Path;

use anyhow::Context;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Map, Value, json};
use transom_plugin_tools::workbench::ComponentSummary;

use crate::admin_port::AdminPort;
use crate::plugin::input::{bytes, micros};

/// An upgrade compared with the serving version.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// The serving version; null if none serves.
    version: Option<String>,
    /// The world of the serving version, if it differs.
    other_world: Option<String>,
    /// Interfaces that only the upgrade imports.
    imports: Vec<String>,
    /// Grants that only the upgrade's manifest has.
    grants: Map<String, Value>,
    /// Limits that the upgrade's manifest raises: `{"from": …, "to": …}`.
    limits: Map<String, Value>,
    /// Why a daemon would reject the upgrade.
    #[serde(rename = "refusal")]
    pub(super) rejection: Option<String>,
}

/// Compares an upgrade with the serving version of the plugin in the daemon.
pub(super) async fn serving(
    admin: &AdminPort,
    config: Option<&Path>,
    name: &str,
    upgrade: &ComponentSummary,
) -> anyhow::Result<Comparison> {
    let get = async |path: &[&str]| {
        admin
            .request_with_query(config, Method::GET, path, &[], None)
            .await
    };
    let document = get(&[]).await?;
    let plugins = document["plugins"].as_array().map_or(&[][..], Vec::as_slice);
    let status = plugins.iter().find(|it| it["name"] == name);
    let Some(digest) = status.and_then(|it| it["digest"].as_str()) else {
        return Ok(compare(&Value::Null, upgrade));
    };
    let history = get(&[name, "history"]).await?;
    let record = record(&history["records"], digest).with_context(|| {
        format!("the daemon has no record of the admission of `{name}`: compare it after the next admission")
    })?;
    Ok(compare(record, upgrade))
}

/// The newest record that put the component with this digest into service.
fn record<'a>(records: &'a Value, digest: &str) -> Option<&'a Value> {
    let activates = |it: &&Value| {
        let outcome = it["outcome"].as_str();
        outcome.is_some_and(|it| ["admitted", "promoted", "rolled-back"].contains(&it))
    };
    let records = records.as_array()?;
    records.iter().filter(activates).find(|it| it["digest"] == digest)
}

/// `record`: the admission record of the serving version, or null.
fn compare(record: &Value, upgrade: &ComponentSummary) -> Comparison {
    let imports = record["imports"].as_array().into_iter().flatten();
    let served_imports: Vec<String> = imports.filter_map(Value::as_str).map(str::to_owned).collect();
    let world = record["world"].as_str();
    let is_served = !record.is_null();
    Comparison {
        version: record["version"].as_str().map(str::to_owned),
        other_world: world.filter(|it| *it != upgrade.world).map(str::to_owned),
        imports: upgrade.added_imports(&served_imports),
        grants: added_grants(&record["grants"], &upgrade.grants),
        limits: raised(&record["limits"], &upgrade.limits),
        rejection: is_served
            .then(|| upgrade.rejection_as_upgrade(&served_imports))
            .flatten(),
    }
}

/// Entries of lists, and flags, that only `now` contains. `imports` is left out, because it grants
/// nothing that the component does not import, and imports are compared separately.
fn added_grants(before: &Value, now: &Value) -> Map<String, Value> {
    let mut added = Map::new();
    for (key, value) in now
        .as_object()
        .into_iter()
        .flatten()
        .filter(|it| it.0 != "imports")
    {
        match value {
            Value::Array(entries) => {
                let previous = before[key].as_array().map_or(&[][..], Vec::as_slice);
                let added_entries: Vec<&Value> = entries.iter().filter(|it| !previous.contains(it)).collect();
                if !added_entries.is_empty() {
                    added.insert(key.clone(), json!(added_entries));
                }
            }
            Value::Bool(true) if before[key] != true => {
                added.insert(key.clone(), json!(true));
            }
            _ => {}
        }
    }
    added
}

/// Limits that are higher, or that differ and are not numbers.
fn raised(before: &Value, now: &Value) -> Map<String, Value> {
    let mut raised = Map::new();
    let Some(before) = before.as_object() else {
        return raised;
    };
    for (key, to) in now.as_object().into_iter().flatten() {
        let Some(from) = before.get(key) else { continue };
        let higher = match (from.as_u64(), to.as_u64()) {
            (Some(from), Some(to)) => to > from,
            _ => from != to,
        };
        if higher {
            raised.insert(key.clone(), json!({"from": from, "to": to}));
        }
    }
    raised
}

impl Comparison {
    /// Rows of the table of stages.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let verdict = if self.rejection.is_some() {
            "rejected"
        } else {
            "ok"
        };
        let serving = match &self.version {
            Some(version) => format!("version {version} serves"),
            None => "no version serves yet".to_owned(),
        };
        let mut rows = vec![vec!["against".to_owned(), verdict.to_owned(), serving]];
        let mut row =
            |heading: &str, detail: String| rows.push(vec![heading.to_owned(), String::new(), detail]);
        if let Some(world) = &self.other_world {
            row("other world", format!("{world} serves"));
        }
        for import in &self.imports {
            row("new import", import.clone());
        }
        for (key, value) in &self.grants {
            row("new grant", format!("{key} = {value}"));
        }
        for (key, change) in &self.limits {
            row(
                "raised limit",
                format!(
                    "{key} = {}, was {}",
                    limit(key, &change["to"]),
                    limit(key, &change["from"])
                ),
            );
        }
        rows
    }
}

/// A limit with its unit; records contain bytes and milliseconds.
fn limit(key: &str, value: &Value) -> String {
    match (key, value.as_u64()) {
        ("wall-clock" | "cpu" | "attempt-time", Some(millis)) => micros(millis as f64 * 1000.0),
        ("memory" | "output" | "attempt-input" | "attempt-output" | "log-line" | "size", Some(number)) => {
            bytes(number)
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_the_serving_version_is_the_newest_that_activated_it() {
        let records = json!([
            {"sequence": 6, "outcome": "canary", "digest": "sha256:a"},
            {"sequence": 5, "outcome": "promoted", "digest": "sha256:c"},
            {"sequence": 4, "outcome": "refused", "digest": "sha256:b"},
            {"sequence": 3, "outcome": "rolled-back", "digest": "sha256:a"},
            {"sequence": 2, "outcome": "admitted", "digest": "sha256:b"},
            {"sequence": 1, "outcome": "admitted", "digest": "sha256:a"},
        ]);
        let sequence = |digest| record(&records, digest).map(|it| it["sequence"].clone());
        assert_eq!(sequence("sha256:a"), Some(json!(3)));
        assert_eq!(sequence("sha256:b"), Some(json!(2)));
        assert_eq!(sequence("sha256:c"), Some(json!(5)));
        assert_eq!(sequence("sha256:d"), None);
        assert!(record(&Value::Null, "sha256:a").is_none());
    }

    #[test]
    fn limits_have_units() {
        for (key, value, expected) in [
            ("memory", json!(64 << 20), "64.0 MiB"),
            ("cpu", json!(50), "50.0 ms"),
            ("steps", json!(64), "64"),
            ("instances", json!("per-call"), "\"per-call\""),
        ] {
            assert_eq!(limit(key, &value), expected);
        }
    }

    #[test]
    fn only_new_grants_and_higher_limits_are_listed() {
        let before = json!({"network": ["task"], "command": false, "clock": true, "imports": []});
        let now =
            json!({"network": ["task", "db:5432"], "command": true, "clock": true, "imports": ["wasi:cli"]});
        let added = Value::Object(added_grants(&before, &now));
        assert_eq!(added, json!({"network": ["db:5432"], "command": true}));
        assert!(added_grants(&now, &before).is_empty());
        // The first version: everything is new.
        let added = Value::Object(added_grants(&Value::Null, &before));
        assert_eq!(added, json!({"network": ["task"], "clock": true}));

        let before = json!({"memory": 1, "cpu": 50, "instances": 2});
        let now = json!({"memory": 2, "cpu": 5, "instances": "per-call", "steps": 4});
        let actual = Value::Object(raised(&before, &now));
        let expected = json!({"memory": {"from": 1, "to": 2}, "instances": {"from": 2, "to": "per-call"}});
        assert_eq!(actual, expected);
        assert!(raised(&Value::Null, &now).is_empty());
    }
}
