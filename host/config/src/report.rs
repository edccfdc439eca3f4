//! Prints settings: the effective values with their sources (`transom config check`), and the converted
//! file of another program (`transom config import`).

use std::borrow::Cow;

use figment::Figment;
use serde::Serialize;
use serde_json::Value;

use super::kubernetes::INSTANCES;
use super::mesos_dns::Import;
use super::settings::{Cluster, Settings};
use crate::Discovery;

/// One effective key.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Row {
    /// Section and key, such as `apps.port`.
    pub key: String,
    /// The value as JSON; secrets are masked.
    pub value: String,
    /// A file, `TRANSOM_ environment variable(s)`, the command line, or `default`.
    #[serde(rename = "from")]
    pub source: String,
}

/// Every effective key, sorted by name.
pub fn rows(settings: &Settings, figment: &Figment) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    add_rows(
        &serde_json::to_value(settings)?,
        String::new(),
        figment,
        &mut rows,
    );
    if !settings.kubernetes_instances.is_empty() {
        // Named instances do not inherit this key.
        rows.retain(|row| row.key != "kubernetes.framework_name");
    }
    for row in &mut rows {
        row.key = display_key(&row.key).into_owned();
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(rows)
}

/// A key as the configuration contains it: internally, the keys of instances are in a separate section.
pub(super) fn display_key(key: &str) -> Cow<'_, str> {
    match key.strip_prefix(INSTANCES) {
        Some(rest) if rest.starts_with('.') => format!("kubernetes{rest}").into(),
        _ => key.into(),
    }
}

fn add_rows(value: &Value, key: String, figment: &Figment, rows: &mut Vec<Row>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                add_rows(value, key, figment, rows);
            }
        }
        value => {
            let source = figment.find_metadata(&key).map_or_else(
                || "default".to_owned(),
                |metadata| {
                    metadata
                        .source
                        .as_ref()
                        .map_or_else(|| metadata.name.to_string(), ToString::to_string)
                },
            );
            rows.push(Row {
                key,
                value: mask_password(&value.to_string()),
                source,
            });
        }
    }
}

/// The secrets that [`rows`] masks: passwords, tokens, and credentials within addresses.
pub fn secrets(settings: &Settings, figment: &Figment) -> anyhow::Result<Vec<String>> {
    let masked = serde_json::to_value(settings)?;
    let mut secrets = Vec::new();
    if let Value::Object(sections) = &masked {
        for (section, masked) in sections {
            let raw = figment.find_value(section).ok();
            let raw = raw.and_then(|raw| serde_json::to_value(raw).ok());
            collect_secrets(masked, raw.as_ref().unwrap_or(&Value::Null), &mut secrets);
        }
    }
    secrets.retain(|secret| !secret.is_empty());
    // The longest are masked first, because they may contain shorter ones.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    Ok(secrets)
}

/// Collects the texts of `raw` that are masked in `masked`, and passwords within addresses.
fn collect_secrets(masked: &Value, raw: &Value, secrets: &mut Vec<String>) {
    match (masked, raw) {
        (Value::Object(masked), Value::Object(raw)) => {
            for (key, raw) in raw {
                collect_secrets(masked.get(key).unwrap_or(&Value::Null), raw, secrets);
            }
        }
        (Value::Array(masked), Value::Array(raw)) => {
            for (masked, raw) in masked.iter().zip(raw) {
                collect_secrets(masked, raw, secrets);
            }
        }
        (Value::String(masked), Value::String(raw)) => {
            if masked != raw && masked.chars().all(|char| char == '*') {
                secrets.push(raw.clone());
            }
            if let Some((credentials, _)) = raw.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'))
            {
                let password = credentials
                    .split_once(':')
                    .map_or(credentials, |(_, password)| password);
                secrets.push(password.to_owned());
            }
        }
        _ => {}
    }
}

/// Removes user and password from addresses (`redis://user:password@host`).
fn mask_password(value: &str) -> String {
    match value.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://********@{host}"),
            None => value.to_owned(),
        },
        None => value.to_owned(),
    }
}

/// The converted sections of another program's configuration as TOML, without defaults and secrets.
pub fn toml(mut import: Import) -> anyhow::Result<String> {
    let mut text = String::new();
    for note in &import.notes {
        text.extend(["# ", note, "\n"]);
    }
    if import.cluster.password.take().is_some() {
        text += "# The password is not printed: set TRANSOM_CLUSTER_PASSWORD, or `password` in [cluster].\n";
    }
    let zookeeper = transom_common::masked(&import.cluster.master);
    if zookeeper != import.cluster.master {
        text += "# The ZooKeeper password is not printed either: set TRANSOM_CLUSTER_MASTER, or write it in \
                 place of the `***` below.\n";
        import.cluster.master = zookeeper.into_owned();
    }
    let sections = [
        ("cluster", non_defaults(&import.cluster, &Cluster::default())?),
        (
            "discovery",
            non_defaults(&import.discovery, &Discovery::default())?,
        ),
    ];
    let sections = sections.map(|(name, section)| (name.to_owned(), section.into()));
    Ok(text + &toml::to_string(&toml::Table::from_iter(sections))?)
}

/// The keys of a section that differ from the defaults.
fn non_defaults<T: Serialize>(section: &T, defaults: &T) -> anyhow::Result<toml::Table> {
    let defaults = toml::Table::try_from(defaults)?;
    let section = toml::Table::try_from(section)?.into_iter();
    Ok(section
        .filter(|(key, value)| defaults.get(key) != Some(value))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Overrides, load};
    use super::*;

    #[test]
    fn secrets_are_masked_and_sources_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("t.toml");
        std::fs::write(
            &file,
            "[cluster]\nusername = \"u\"\npassword = \"hunter2\"\n[[plugins.oci.credentials]]\nregistry = \"r\"\nuser = \"u\"\npassword = \"hunter2\"\n[store]\nserver = \"redis://me:hunter2@h:1/0\"\n",
        )
        .expect("written");
        let (settings, figment) = load(Some(&file), Overrides::default()).expect("valid");
        let rows = rows(&settings, &figment).expect("rows");
        let password = rows
            .iter()
            .find(|row| row.key == "cluster.password")
            .expect("there");
        assert_eq!(password.value, "\"********\"");
        assert!(password.source.ends_with("t.toml"), "{}", password.source);
        let credentials = rows.iter().find(|row| row.key == "plugins.oci.credentials");
        assert!(
            credentials.is_some_and(|row| row.value.contains("********") && row.source.ends_with("t.toml"))
        );
        let master = rows
            .iter()
            .find(|row| row.key == "cluster.master")
            .expect("there");
        assert_eq!(master.source, "default");
        assert!(!rows.iter().any(|row| row.value.contains("hunter2")));
        assert!(!format!("{:?}", settings.cluster).contains("hunter2"));
        assert_eq!(secrets(&settings, &figment).expect("secrets"), ["hunter2"]);
    }
}
