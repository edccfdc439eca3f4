//! Scans in pages that return a snapshot.
//!
//! Every commit increments the version counter. If the counter is equal before the first and after
//! the last page, the pages are a snapshot. Otherwise a last script returns every key of the range
//! with its version, and the values that were put since the first page. An older value that still
//! exists was on its page.

use std::collections::HashMap;

use bytes::Bytes;

use super::scripts::{self, SCRIPTS};
use super::{COUNTER, INDEX, RedisStore, VERSIONS};
use crate::{Entry, Result};

/// The limits of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLimits {
    pub(super) entries: usize,
    /// Bytes after which a page is full; the value that exceeds it is still included.
    pub(super) bytes: usize,
}

/// Small enough that the server can serve other calls between pages.
pub(super) const PAGE_LIMITS: PageLimits = PageLimits {
    entries: 512,
    bytes: 1 << 20,
};

pub(super) async fn scan(store: &RedisStore, prefix: &str, size: PageLimits) -> Result<Vec<Entry>> {
    // UTF-8 never contains the byte 0xFF, so this sorts after every key with the prefix and before
    // all others.
    let to = [b"(", prefix.as_bytes(), b"\xFF"].concat();
    let mut from = [b"[", prefix.as_bytes()].concat();
    let mut entries: Vec<Entry> = Vec::new();
    let mut began = None;
    loop {
        let page = page(store, &from, &to, size).await?;
        entries.extend(page.entries);
        let began = *began.get_or_insert(page.counter);
        match entries.last() {
            Some(last) if page.more => from = [b"(", last.key.as_bytes()].concat(),
            _ if page.counter == began => return Ok(entries),
            _ => return recheck(store, prefix, &to, began, entries).await,
        }
    }
}

struct PageEntries {
    counter: u64,
    more: bool,
    entries: Vec<Entry>,
}

async fn page(store: &RedisStore, from: &[u8], to: &[u8], size: PageLimits) -> Result<PageEntries> {
    let mut script = SCRIPTS.page.prepare_invoke();
    script.key(VERSIONS).key(INDEX).key(COUNTER);
    script.arg(from).arg(to).arg(size.entries).arg(size.bytes);
    let mut reply = store.run("read", &script).await?;
    let counter = reply.number()?;
    let more = reply.text()? == "more";
    let mut entries = Vec::new();
    while !reply.is_done() {
        let key = reply.text()?;
        let entry = scripts::entry(key.clone(), reply.next()?, reply.next()?)?;
        entries.push(entry.ok_or_else(|| scripts::unreadable(key))?);
    }
    Ok(PageEntries {
        counter,
        more,
        entries,
    })
}

async fn recheck(
    store: &RedisStore,
    prefix: &str,
    to: &[u8],
    began: u64,
    seen: Vec<Entry>,
) -> Result<Vec<Entry>> {
    let mut script = SCRIPTS.recheck.prepare_invoke();
    script.key(VERSIONS).key(INDEX);
    script.arg([b"[", prefix.as_bytes()].concat()).arg(to).arg(began);
    let mut reply = store.run("read", &script).await?;
    let mut seen: HashMap<(String, u64), Bytes> = seen
        .into_iter()
        .map(|entry| ((entry.key, entry.version), entry.value))
        .collect();
    let mut entries = Vec::new();
    while !reply.is_done() {
        let (key, version, newer) = (reply.text()?, reply.number()?, reply.next()?);
        let name = (key, version);
        let value = newer.or_else(|| seen.remove(&name));
        let value = value.ok_or_else(|| scripts::unreadable(&name.0))?;
        let (key, version) = name;
        entries.push(Entry { key, value, version });
    }
    Ok(entries)
}
