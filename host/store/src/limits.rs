//! Limits of every store. They are equal for all stores, so an installation can switch to another
//! store.

use std::time::Duration;

use bytes::Bytes;

use crate::{Batch, Error, Result};

/// Bytes of a key, or of the prefix of a scan or a watch.
pub const MAX_KEY: usize = 4096;
/// Bytes of a value.
pub const MAX_VALUE: usize = 16 << 20;
/// Changes of a batch.
pub const MAX_CHANGES: usize = 1 << 16;
/// Bytes of all keys and values of a batch.
pub const MAX_BATCH: usize = 64 << 20;
/// Fences of a batch.
pub const MAX_FENCES: usize = 16;
/// Bytes of a lease's name.
pub const MAX_LEASE_NAME: usize = 256;
/// Bytes of a lease holder's name.
pub const MAX_HOLDER: usize = 1024;
/// The shortest time to live of a lease.
pub const MIN_TTL: Duration = Duration::from_millis(1);
/// The longest time to live of a lease.
pub const MAX_TTL: Duration = Duration::from_hours(24);

fn at_most(size: usize, limit: usize, what: impl FnOnce() -> String) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let what = what();
    Err(Error::TooLarge { what, size, limit })
}

/// The first characters of a text, for a message.
fn abbreviated(text: &str) -> String {
    text.chars().take(40).chain("…".chars()).collect()
}

/// Checks the size of a key.
pub fn key(key: &str) -> Result<()> {
    at_most(key.len(), MAX_KEY, || {
        format!("the key `{}`, in bytes,", abbreviated(key))
    })
}

/// Checks the size of a prefix.
pub fn prefix(prefix: &str) -> Result<()> {
    at_most(prefix.len(), MAX_KEY, || {
        format!("the key prefix `{}`, in bytes,", abbreviated(prefix))
    })
}

/// Checks the sizes of a batch.
pub fn batch(batch: &Batch) -> Result<()> {
    at_most(batch.changes().len(), MAX_CHANGES, || {
        "a batch, in changes,".to_owned()
    })?;
    at_most(batch.fences().len(), MAX_FENCES, || {
        "a batch, in fences,".to_owned()
    })?;
    let mut bytes = 0;
    for change in batch.changes() {
        key(&change.key)?;
        let value = change.value.as_ref().map_or(0, Bytes::len);
        at_most(value, MAX_VALUE, || {
            format!("the value of `{}`, in bytes,", change.key)
        })?;
        bytes += change.key.len() + value;
    }
    at_most(bytes, MAX_BATCH, || "a batch, in bytes,".to_owned())?;
    batch.fences().iter().try_for_each(|fence| lease(&fence.lease))
}

/// Checks the size of a lease's name.
pub fn lease(name: &str) -> Result<()> {
    at_most(name.len(), MAX_LEASE_NAME, || {
        format!("the lease name `{}`, in bytes,", abbreviated(name))
    })
}

/// Checks the sizes and the time to live of a lease.
pub fn acquire(name: &str, holder: &str, ttl: Duration) -> Result<()> {
    lease(name)?;
    at_most(holder.len(), MAX_HOLDER, || {
        format!("the lease holder's name `{}`, in bytes,", abbreviated(holder))
    })?;
    if (MIN_TTL..=MAX_TTL).contains(&ttl) {
        Ok(())
    } else {
        Err(Error::TimeToLive { ttl })
    }
}
