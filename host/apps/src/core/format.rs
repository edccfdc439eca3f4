//! The format of the service's records in the store, under the key `format`.
//!
//! The leader writes it in its first term. A store without it has format 1, because the first
//! daemons wrote none. A daemon rejects a format that it does not know, and a store into which
//! records are being copied.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_store::Expect;
use transom_store::typed::{Changes, TypedStore};

use crate::{Error, Result};

/// The key under the prefix.
pub(crate) const KEY: &str = "format";
/// The format of this version.
pub(crate) const CURRENT: u32 = 1;

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the record has the field `format`")]
pub(crate) struct Format {
    pub(crate) format: u32,
    /// The origin of the records, if they were copied from another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copied_from: Option<String>,
    /// Whether the copy is not complete yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) incomplete: bool,
}

impl Format {
    fn check(&self) -> Result<()> {
        if self.format > CURRENT {
            return Err(Error::Format {
                found: self.format,
                known: CURRENT,
            });
        }
        if self.incomplete {
            return Err(Error::Incomplete {
                origin: self.copied_from.clone().unwrap_or_default(),
            });
        }
        Ok(())
    }
}

/// Checks that a daemon can use the records. Returns the format, if the store has one.
///
/// # Errors
/// [`Error::Format`], [`Error::Incomplete`], or an error of the store.
pub(crate) async fn check(store: &TypedStore) -> Result<Option<Format>> {
    let found = store.get::<Format>(KEY).await;
    let found = found.map_err(|error| Error::of_store("reading the format of its records", error))?;
    let format = found.map(|found| found.value);
    format.as_ref().map_or(Ok(()), Format::check)?;
    Ok(format)
}

/// Decodes the record, and checks it like [`check`].
///
/// # Errors
/// The reason why a daemon rejects the records.
pub(crate) fn check_record(record: &Value) -> serde_json::Result<()> {
    Format::deserialize(record)?
        .check()
        .map_err(serde::de::Error::custom)
}

/// Writes the format of this version into a store without one.
pub(super) async fn write(store: &TypedStore) -> Result<()> {
    let format = Format {
        format: CURRENT,
        copied_from: None,
        incomplete: false,
    };
    let mut changes = Changes::default();
    let written = match changes.put(KEY, &format, Expect::Absent) {
        Ok(()) => store.commit(changes).await.map(drop),
        Err(error) => Err(error),
    };
    written.map_err(|error| Error::of_store("writing the format of its records", error))
}
