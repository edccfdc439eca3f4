//! What would run and where each value came from: `transom config check`.

use figment::Figment;
use serde::Serialize;
use serde_json::Value;

use super::settings::Settings;

/// One key in force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Row {
    /// `apps.port`.
    pub(crate) key: String,
    /// As JSON writes it; secrets are masked.
    pub(crate) value: String,
    /// A file, `TRANSOM_ environment variable(s)`, the command line, or `default`.
    #[serde(rename = "from")]
    pub(crate) source: String,
}

/// Every key in force, in the order of its name.
pub(crate) fn rows(settings: &Settings, figment: &Figment) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    walk(
        &serde_json::to_value(settings)?,
        String::new(),
        figment,
        &mut rows,
    );
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(rows)
}

fn walk(value: &Value, key: String, figment: &Figment, rows: &mut Vec<Row>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                walk(value, key, figment, rows);
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
                value: mask(&value.to_string()),
                source,
            });
        }
    }
}

/// Takes user and password out of addresses (`redis://user:password@host`).
fn mask(value: &str) -> String {
    match value.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://********@{host}"),
            None => value.to_owned(),
        },
        None => value.to_owned(),
    }
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
            "[cluster]\npassword = \"hunter2\"\n[[plugins.oci.logins]]\nregistry = \"r\"\nuser = \"u\"\npassword = \"hunter2\"\n[store]\nserver = \"redis://me:hunter2@h:1/0\"\n",
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
        let logins = rows.iter().find(|row| row.key == "plugins.oci.logins");
        assert!(logins.is_some_and(|row| row.value.contains("********") && row.source.ends_with("t.toml")));
        let master = rows
            .iter()
            .find(|row| row.key == "cluster.master")
            .expect("there");
        assert_eq!(master.source, "default");
        assert!(!rows.iter().any(|row| row.value.contains("hunter2")));
        assert!(!format!("{:?}", settings.cluster).contains("hunter2"));
    }
}
