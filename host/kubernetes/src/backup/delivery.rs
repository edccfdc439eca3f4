//! The address from which the cluster's fetcher gets the backup that is being restored.
//!
//! Its path has the digest and a random token, so that it cannot be guessed. It is valid as long as
//! the restore loads the backup: a fetcher retries, and so does the framework.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The path below which backups are served.
pub(crate) const PREFIX: &str = "/backup";

/// The file that may be fetched, if any.
#[derive(Debug, Default)]
pub(crate) struct Delivery(Mutex<Option<Entry>>);

/// A file, and the last parts of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) sha256: String,
    pub(crate) token: String,
    pub(crate) file: PathBuf,
}

impl Entry {
    /// Its path on the port.
    pub(crate) fn path(&self) -> String {
        format!("{PREFIX}/{}/{}", self.sha256, self.token)
    }
}

impl Delivery {
    /// Makes this file readable, and no other one.
    pub(crate) fn set(&self, entry: Option<Entry>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = entry;
    }

    /// The file at a path; `None` if there is none.
    pub(crate) fn get(&self, sha256: &str, token: &str) -> Option<PathBuf> {
        let entry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entry
            .as_ref()
            .filter(|it| it.token == token && it.sha256 == sha256);
        found.map(|entry| entry.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_present_file_is_readable() {
        let delivery = Delivery::default();
        assert_eq!(delivery.get("d", "t"), None);
        let entry = Entry {
            sha256: "d".to_owned(),
            token: "t".to_owned(),
            file: "/backups/a".into(),
        };
        assert_eq!(entry.path(), "/backup/d/t");
        delivery.set(Some(entry));
        for (sha256, token, found) in [("d", "t", true), ("d", "x", false), ("x", "t", false)] {
            assert_eq!(delivery.get(sha256, token).is_some(), found, "{sha256} {token}");
        }
        delivery.set(None);
        assert_eq!(delivery.get("d", "t"), None);
    }
}
