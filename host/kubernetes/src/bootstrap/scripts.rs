//! The scripts that the cluster's fetcher may read, each for one task.
//!
//! The URL path of a script contains its digest and a random token, so that it cannot be guessed. A
//! script can be fetched until its task runs or has ended, because the fetcher may retry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transom_common::ambient;

use sha2::{Digest, Sha256};

/// The path below which scripts are served.
pub(crate) const PREFIX: &str = "/bootstrap";
/// The maximum number of tasks with a script.
const MAX_TASKS: usize = 1000;
/// The maximum size of all distinct scripts.
const MAX_BYTES: usize = 64 << 20;

/// The limits are reached: no further script can be served until a task runs or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scripts of too many starting tasks are in memory; this task has to wait until others run")]
pub(crate) struct ScriptsFull;

/// The scripts of the tasks that are starting. Tasks with the same script share its bytes.
#[derive(Debug, Default)]
pub(crate) struct Scripts(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    digest: String,
    token: String,
    bytes: Arc<[u8]>,
}

impl Scripts {
    /// Makes a script readable for the fetcher of a task. It replaces an earlier script of the task.
    /// Returns its URL path on the port.
    ///
    /// # Errors
    /// [`ScriptsFull`]; an earlier script of the task stays readable.
    pub(crate) fn add(&self, task: &str, bytes: Arc<[u8]>) -> Result<String, ScriptsFull> {
        let digest = format!("{:x}", Sha256::digest(&bytes));
        let token = ambient::uuid().simple().to_string();
        let path = format!("{PREFIX}/{digest}/{token}");
        let mut entries = self.lock();
        let mut sizes: HashMap<&str, usize> = HashMap::new();
        let others = entries.iter().filter(|(other, _)| *other != task);
        let mut count = 1;
        for (_, entry) in others {
            sizes.insert(&entry.digest, entry.bytes.len());
            count += 1;
        }
        sizes.insert(&digest, bytes.len());
        if count > MAX_TASKS || sizes.values().sum::<usize>() > MAX_BYTES {
            return Err(ScriptsFull);
        }
        let same = entries.values().find(|entry| entry.digest == digest);
        let bytes = same.map_or(bytes, |entry| Arc::clone(&entry.bytes));
        let entry = Entry { digest, token, bytes };
        entries.insert(task.to_owned(), entry);
        Ok(path)
    }

    /// Removes the script of a task that runs or has ended.
    pub(crate) fn remove(&self, task: &str) {
        self.lock().remove(task);
    }

    /// Removes the scripts of all tasks that are not to be kept.
    pub(crate) fn retain(&self, mut is_kept: impl FnMut(&str) -> bool) {
        self.lock().retain(|task, _| is_kept(task));
    }

    /// The script at a URL path; `None` if no script is readable there.
    pub(crate) fn get(&self, digest: &str, token: &str) -> Option<Arc<[u8]>> {
        let entries = self.lock();
        let found = entries
            .values()
            .find(|entry| entry.token == token && entry.digest == digest);
        found.map(|entry| Arc::clone(&entry.bytes))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> (&str, &str) {
        path.strip_prefix("/bootstrap/").unwrap().split_once('/').unwrap()
    }

    #[test]
    fn scripts_are_readable_until_they_are_removed() {
        let scripts = Scripts::default();
        let script: Arc<[u8]> = b"#!/bin/sh\n".as_slice().into();
        let first = scripts.add("a", Arc::clone(&script)).unwrap();
        let second = scripts.add("b", b"#!/bin/sh\n".as_slice().into()).unwrap();
        let ((digest, token), (other_digest, other_token)) = (parts(&first), parts(&second));
        assert_eq!(
            digest,
            "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf"
        );
        assert_eq!((digest, token.len()), (other_digest, 32));
        assert_ne!(token, other_token);
        let shared = scripts.get(digest, other_token).unwrap();
        assert!(Arc::ptr_eq(&shared, &script));
        assert!(scripts.get(&digest.replace('a', "b"), token).is_none());
        assert!(
            scripts
                .get(digest, &token.replace(char::is_numeric, "x"))
                .is_none()
        );
        scripts.remove("a");
        assert!(scripts.get(digest, token).is_none() && scripts.get(digest, other_token).is_some());
        let again = scripts.add("b", b"#!/bin/bash\n".as_slice().into()).unwrap();
        assert!(scripts.get(digest, other_token).is_none());
        let (digest, token) = parts(&again);
        assert_eq!(&*scripts.get(digest, token).unwrap(), b"#!/bin/bash\n");
    }

    #[test]
    fn scripts_are_rejected_when_memory_is_full() {
        let scripts = Scripts::default();
        for task in 0..MAX_TASKS {
            scripts.add(&task.to_string(), b"x".as_slice().into()).unwrap();
        }
        assert_eq!(scripts.add("more", b"x".as_slice().into()), Err(ScriptsFull));
        scripts.add("7", b"y".as_slice().into()).unwrap();
        scripts.remove("8");
        scripts.add("more", b"x".as_slice().into()).unwrap();

        let scripts = Scripts::default();
        let large = |byte| vec![byte; MAX_BYTES / 2];
        scripts.add("a", large(1).into()).unwrap();
        scripts.add("b", large(2).into()).unwrap();
        assert_eq!(scripts.add("c", b"x".as_slice().into()), Err(ScriptsFull));
        scripts.add("d", large(1).into()).unwrap();
        scripts.remove("b");
        scripts.add("c", b"x".as_slice().into()).unwrap();
    }
}
