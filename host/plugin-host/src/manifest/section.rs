//! Reads a manifest's tables key by key. An error names the key, the value found and the expected
//! value.

use std::time::Duration;

use toml::{Table, Value};

use crate::manifest::units::{parse_duration, parse_size};

/// A problem in a manifest: its place and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("invalid TOML: {0}")]
    Syntax(String),
    #[error("unknown key `{key}`{}", nearest.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default())]
    UnknownKey {
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("`{key}` was renamed to `{new}`")]
    RenamedKey { key: String, new: &'static str },
    #[error("`{0}` was removed: calls of a disabled plugin fail")]
    RemovedKey(&'static str),
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{key}` is {found}; expected {expected}")]
    Value {
        key: String,
        found: String,
        expected: String,
    },
}

/// Renamed keys of earlier manifests: table, old name, new name.
const RENAMED: &[(&str, &str, &str)] = &[
    ("", "promote", "rollout"),
    ("shadow", "for", "min-duration"),
    ("shadow", "calls", "min-calls"),
    ("shadow", "sample", "sample-percent"),
    ("shadow", "differences", "max-differences"),
    ("probation", "most", "max-faults"),
    ("limits", "calls", "max-calls-per-instance"),
];

/// Keys of earlier manifests that were removed without a replacement. They chose how an extension
/// point answered while its plugin was disabled.
const REMOVED: &[&str] = &["when-parked", "on-disabled"];

/// A table from which each key is removed when it is read. Keys that remain at the end are unknown.
pub(super) struct Section {
    path: &'static str,
    table: Table,
}

impl Section {
    pub(super) fn new(path: &'static str, table: Table) -> Section {
        Section { path, table }
    }

    fn key(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    pub(super) fn invalid_value(
        &self,
        key: &str,
        found: impl std::fmt::Debug,
        expected: impl Into<String>,
    ) -> ManifestError {
        ManifestError::Value {
            key: self.key(key),
            found: format!("{found:?}"),
            expected: expected.into(),
        }
    }

    pub(super) fn invalid_type(&self, key: &str, found: &Value, expected: &str) -> ManifestError {
        ManifestError::Value {
            key: self.key(key),
            found: format!("of type {}", found.type_str()),
            expected: expected.into(),
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Removes a key and returns its value, of whatever type.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.table.remove(key)
    }

    pub(super) fn string(&mut self, key: &'static str) -> Result<Option<String>, ManifestError> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.invalid_type(key, &other, "a string")),
        }
    }

    pub(super) fn strings(&mut self, key: &'static str) -> Result<Vec<String>, ManifestError> {
        Ok(self.optional_strings(key)?.unwrap_or_default())
    }

    pub(super) fn optional_strings(
        &mut self,
        key: &'static str,
    ) -> Result<Option<Vec<String>>, ManifestError> {
        let list = match self.table.remove(key) {
            None => return Ok(None),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(self.invalid_type(key, &other, "a list of strings")),
        };
        list.into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                other => Err(self.invalid_type(key, &other, "a list of strings")),
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Removes an array of tables, `[[key]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Result<Vec<Table>, ManifestError> {
        let list = match self.table.remove(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(self.invalid_type(key, &other, "tables")),
        };
        list.into_iter()
            .map(|item| match item {
                Value::Table(table) => Ok(table),
                other => Err(self.invalid_type(key, &other, "tables")),
            })
            .collect()
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, ManifestError> {
        match self.table.remove(key) {
            None => Ok(default),
            Some(Value::Boolean(flag)) => Ok(flag),
            Some(other) => Err(self.invalid_type(key, &other, "true or false")),
        }
    }

    pub(super) fn table(&mut self, key: &'static str) -> Result<Table, ManifestError> {
        match self.table.remove(key) {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table),
            Some(other) => Err(self.invalid_type(key, &other, "a table")),
        }
    }

    pub(super) fn section(&mut self, key: &'static str) -> Result<Section, ManifestError> {
        Ok(Section::new(key, self.table(key)?))
    }

    pub(super) fn number(&mut self, key: &'static str, default: u64, max: u64) -> Result<u64, ManifestError> {
        self.number_from(key, 1, default, max)
    }

    pub(super) fn number_from(
        &mut self,
        key: &'static str,
        min: u64,
        default: u64,
        max: u64,
    ) -> Result<u64, ManifestError> {
        match self.table.remove(key) {
            None => Ok(default),
            Some(Value::Integer(number)) => match u64::try_from(number) {
                Ok(number) if (min..=max).contains(&number) => Ok(number),
                _ => Err(self.invalid_value(key, number, format!("{min} to {max}"))),
            },
            Some(other) => Err(self.invalid_type(key, &other, "a whole number")),
        }
    }

    pub(super) fn percent(&mut self, key: &'static str, default: f64) -> Result<f64, ManifestError> {
        self.fraction(key, default, 0.0, 100.0)
    }

    pub(super) fn ratio(&mut self, key: &'static str, default: f64, max: f64) -> Result<f64, ManifestError> {
        self.fraction(key, default, 1.0, max)
    }

    fn fraction(
        &mut self,
        key: &'static str,
        default: f64,
        min: f64,
        max: f64,
    ) -> Result<f64, ManifestError> {
        let found = match self.table.remove(key) {
            None => return Ok(default),
            Some(Value::Integer(number)) => number as f64,
            Some(Value::Float(number)) => number,
            Some(other) => return Err(self.invalid_type(key, &other, "a number")),
        };
        if (min..=max).contains(&found) {
            Ok(found)
        } else {
            Err(self.invalid_value(key, found, format!("{min} to {max}")))
        }
    }

    pub(super) fn size(&mut self, key: &'static str, default: u64, max: u64) -> Result<u64, ManifestError> {
        if !matches!(self.table.get(key), Some(Value::String(_))) {
            return self.number(key, default, max);
        }
        let text = self.string(key)?.unwrap_or_default();
        match parse_size(&text) {
            Some(size) if (1..=max).contains(&size) => Ok(size),
            Some(_) => Err(self.invalid_value(key, text, format!("at most {max} bytes"))),
            None => Err(self.invalid_value(key, text, "a size such as \"64MiB\", or bytes")),
        }
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        max: Duration,
    ) -> Result<Duration, ManifestError> {
        let Some(text) = self.string(key)? else {
            return Ok(default);
        };
        match parse_duration(&text).filter(|it| !it.is_zero()) {
            Some(duration) if duration <= max => Ok(duration),
            Some(_) => Err(self.invalid_value(key, text, format!("at most {}s", max.as_secs()))),
            None => Err(self.invalid_value(key, text, "a duration such as \"50ms\", \"5s\" or \"1m\"")),
        }
    }

    pub(super) fn finish(&self, known_keys: &[&'static str]) -> Result<(), ManifestError> {
        let Some(key) = self.table.keys().next() else {
            return Ok(());
        };
        let renamed = RENAMED
            .iter()
            .find(|(path, old, _)| *path == self.path && self.table.contains_key(*old));
        if let Some((_, old, new)) = renamed {
            let key = self.key(old);
            return Err(ManifestError::RenamedKey { key, new });
        }
        if self.path.is_empty()
            && let Some(key) = REMOVED.iter().find(|key| self.table.contains_key(**key))
        {
            return Err(ManifestError::RemovedKey(key));
        }
        let nearest = known_keys
            .iter()
            .map(|it| (strsim::jaro_winkler(key, it), *it))
            .filter(|(score, _)| *score > 0.7)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, it)| it);
        Err(ManifestError::UnknownKey {
            key: self.key(key),
            nearest,
        })
    }
}
