//! A copy of the service's records as one document.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_store::Store;
use transom_store::typed::{self, TERM_KEY, TypedStore};

use super::{Carried, Records};
use crate::core::{format, persist};

/// The folder of records about daemons, which are not part of the service's state.
const DAEMONS: &str = "daemons/";

/// The document. The same records always result in the same text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// The format of the document and of its records.
    format: u32,
    /// The version of transom that wrote it.
    #[serde(default)]
    transom: String,
    /// The name of the framework.
    #[serde(default)]
    framework: String,
    /// The framework's id; none if it has never subscribed.
    #[serde(default)]
    framework_id: Option<String>,
    /// The records by key.
    records: BTreeMap<String, Value>,
}

/// Why records cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store failed, or its records have an unknown format.
    #[error(transparent)]
    Store(#[from] crate::Error),
    /// A record cannot be read.
    #[error("the record {key} cannot be read")]
    Record {
        /// Its key.
        key: String,
        /// The error of the decoder.
        #[source]
        source: serde_json::Error,
    },
    /// Some records are unknown to this version or cannot be decoded; each with its reason.
    #[error("these records cannot be read: {}", .0.join("; "))]
    Records(Vec<String>),
    /// The text is not a backup.
    #[error("this is not a document of `transom apps export`: {0}")]
    Document(String),
    /// A later version wrote it.
    #[error("the document has format {found}, and this version of transom knows formats up to {known}")]
    Format {
        /// The format of the document.
        found: u64,
        /// The greatest one that this version knows.
        known: u32,
    },
}

impl Backup {
    /// Copies the records under `prefix` from one point in time. If the store is shared, its daemon
    /// may be running.
    ///
    /// # Errors
    /// The store fails or contains records that this version cannot decode.
    pub async fn of_store(store: Arc<dyn Store>, prefix: &str) -> Result<Self, BackupError> {
        format::check(&TypedStore::new(Arc::clone(&store), prefix)).await?;
        let folder = format!("{prefix}/");
        let entries = typed::with_timeout(typed::TIMEOUT, store.scan(&folder)).await;
        let entries = entries.map_err(|error| crate::Error::of_store("reading all records", error))?;
        let mut backup = Self {
            format: format::CURRENT,
            transom: env!("CARGO_PKG_VERSION").to_owned(),
            framework: prefix.to_owned(),
            framework_id: None,
            records: BTreeMap::new(),
        };
        for entry in entries {
            let key = entry.key.strip_prefix(&folder).unwrap_or(&entry.key);
            if key == transom_scheduler::FRAMEWORK_ID_KEY {
                let id = String::from_utf8_lossy(&entry.value).trim().to_owned();
                backup.framework_id = Some(id);
            } else if is_record(key) {
                let value = serde_json::from_slice(&entry.value).map_err(|source| BackupError::Record {
                    key: key.to_owned(),
                    source,
                })?;
                backup.records.insert(key.to_owned(), value);
            }
        }
        backup.check()?;
        Ok(backup)
    }

    /// Parses a document.
    ///
    /// # Errors
    /// The text is another document, was written by a later version, or contains records that
    /// cannot be decoded.
    pub fn parse(text: &[u8]) -> Result<Self, BackupError> {
        let wrong = |error: serde_json::Error| BackupError::Document(error.to_string());
        let document: Value = serde_json::from_slice(text).map_err(wrong)?;
        let Some(found) = document.get("format").and_then(Value::as_u64) else {
            return Err(BackupError::Document(
                "its member `format` is missing or not a number".to_owned(),
            ));
        };
        if found > u64::from(format::CURRENT) {
            return Err(BackupError::Format {
                found,
                known: format::CURRENT,
            });
        }
        let backup: Self = serde_json::from_value(document).map_err(wrong)?;
        backup.check()?;
        Ok(backup)
    }

    /// The name of the framework.
    pub fn framework(&self) -> &str {
        &self.framework
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The apps, pods and groups in it, in the order of their ids.
    pub fn carried(&self) -> Vec<Carried> {
        let mut tasks: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, task) in self.records.iter().filter(|(key, _)| key.starts_with("tasks/")) {
            *tasks
                .entry(task["run_spec"].as_str().unwrap_or_default())
                .or_default() += 1;
        }
        let carried = self.records.iter().filter_map(|(key, record)| {
            let (folder, _) = key.split_once('/')?;
            let id = key.strip_prefix(folder)?;
            let kind = match folder {
                "groups" => "group",
                "apps" if record["spec"]["pod"].is_object() => "pod",
                "apps" => "app",
                _ => return None,
            };
            Some(Carried {
                kind,
                id: id.to_owned(),
                versions: record["past"].as_array().map_or(0, Vec::len) + 1,
                tasks: tasks.get(id).copied().unwrap_or_default(),
            })
        });
        let mut carried: Vec<Carried> = carried.collect();
        carried.sort_by(|one, other| (&one.id, one.kind).cmp(&(&other.id, other.kind)));
        carried
    }

    /// The records, to be written into another store.
    pub fn into_records(self) -> Records {
        Records {
            origin: format!("backup {}", self.framework_id.as_deref().unwrap_or_default()),
            framework_id: self.framework_id,
            records: self.records,
        }
    }

    fn check(&self) -> Result<(), BackupError> {
        let mut wrong = Vec::new();
        for (key, value) in &self.records {
            let scheduled = || transom_scheduler::normalized(key, value).map(|read| read.map(drop));
            match check_definition(key, value).or_else(scheduled) {
                Some(Ok(())) => {}
                Some(Err(error)) => wrong.push(format!("{key}: {error}")),
                None => wrong.push(format!("{key}: unknown kind of record")),
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(BackupError::Records(wrong))
        }
    }
}

/// Decodes a record of the service, except those of its scheduler. `key`: under the prefix. `None` if
/// the service has no records with such a key.
///
/// # Errors
/// The record cannot be decoded, or belongs to another key.
pub fn check_record(key: &str, record: &Value) -> Option<serde_json::Result<()>> {
    match key {
        TERM_KEY => Some(u64::deserialize(record).map(drop)),
        format::KEY => Some(format::check_record(record)),
        _ => check_definition(key, record),
    }
}

fn check_definition(key: &str, record: &Value) -> Option<serde_json::Result<()>> {
    let read = persist::normalized(key, record)?;
    Some(read.and_then(|(own, _)| {
        if own == key {
            Ok(())
        } else {
            Err(serde::de::Error::custom(format!(
                "its content belongs to the key {own}"
            )))
        }
    }))
}

/// Whether a key under the prefix belongs to the state of the service. The number of terms does not: a
/// copy has none, and its first leader begins with 1.
pub(super) fn is_record(key: &str) -> bool {
    !(key.starts_with(DAEMONS) || [TERM_KEY, format::KEY, transom_scheduler::FRAMEWORK_ID_KEY].contains(&key))
}

/// Whether a key under the prefix belongs to a daemon, and not to the state of the service.
pub(super) fn is_of_daemon(key: &str) -> bool {
    key.starts_with(DAEMONS)
}

/// Whether a key under the prefix shows that a daemon has led with the records: the leader counts
/// its term.
pub(super) fn is_term(key: &str) -> bool {
    key == TERM_KEY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_backups_are_rejected_with_the_reason() {
        for (text, expected) in [
            ("x", "expected value"),
            ("[]", "`format` is missing or not a number"),
            (r#"{"format": 1}"#, "missing field `records`"),
            (
                r#"{"format": 2, "records": {}}"#,
                "format 2, and this version of transom knows formats up to 1",
            ),
            (
                r#"{"format": 1, "records": {"x/y": 1}}"#,
                "x/y: unknown kind of record",
            ),
            (
                r#"{"format": 1, "records": {"groups/a": {"id": "/b", "version": "2018-01-01T00:00:00Z"}, "tasks/t": {}}}"#,
                "groups/a: its content belongs to the key groups/b; tasks/t: missing field",
            ),
        ] {
            let error = Backup::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
