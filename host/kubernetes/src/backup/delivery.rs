//! The URL from which the cluster's fetcher downloads the backup that is being restored.
//!
//! Its path contains the digest and a random token, so that it cannot be guessed. It is valid as long
//! as the restore loads the backup, because the fetcher and the framework may retry.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The path below which backups are served.
pub(crate) const PREFIX: &str = "/backup";

/// The file that may be fetched, if any.
#[derive(Debug, Default)]
pub(crate) struct Delivery(Mutex<Option<Entry>>);

/// A file, and the last parts of its URL path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) sha256: String,
    pub(crate) token: String,
    pub(crate) file: PathBuf,
}

impl Entry {
    /// Its URL path on the port.
    pub(crate) fn path(&self) -> String {
        format!("{PREFIX}/{}/{}", self.sha256, self.token)
    }
}

impl Delivery {
    /// Makes this file readable, and a former one unreadable.
    pub(crate) fn set(&self, entry: Option<Entry>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = entry;
    }

    /// The file at a URL path; `None` if no file is readable there.
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
    fn only_the_current_file_is_readable() {
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
