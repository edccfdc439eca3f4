//! Whether a batch may be committed.

use std::collections::HashMap;
use std::time::Instant;

use super::table::OpenTables;
use crate::leases::Leases;
use crate::{Batch, Change, Error, Expect, Result};

/// Checks the fences, compares every change with the current entries, and returns the version that
/// each change would get. It changes nothing, so a rejected batch leaves no trace in the shared
/// transaction.
pub(super) fn check(
    tables: &OpenTables<'_>,
    leases: &Leases,
    batch: &Batch,
    last: u64,
) -> std::result::Result<Result<Vec<u64>>, redb::Error> {
    let now = Instant::now();
    for fence in batch.fences() {
        if let Err(rejection) = leases.check(fence, now) {
            return Ok(Err(rejection));
        }
    }
    let mut versions = Vec::with_capacity(batch.changes().len());
    let mut left_by_earlier: HashMap<&str, Option<u64>> = HashMap::new();
    let mut next = last;
    for Change { key, value, expect } in batch.changes() {
        let found = match left_by_earlier.get(key.as_str()) {
            Some(found) => *found,
            // Any entry is accepted, so none is read.
            None if matches!(expect, Expect::Any) => None,
            None => match tables.version(key)? {
                Ok(found) => found,
                Err(corrupt) => return Ok(Err(corrupt)),
            },
        };
        if !expect.accepts(found) {
            return Ok(Err(Error::Conflict {
                key: key.clone(),
                found,
            }));
        }
        if value.is_some() {
            next += 1;
            versions.push(next);
            left_by_earlier.insert(key, Some(next));
        } else {
            versions.push(0);
            left_by_earlier.insert(key, None);
        }
    }
    Ok(Ok(versions))
}
