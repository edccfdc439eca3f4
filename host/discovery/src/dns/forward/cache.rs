//! The cache of replies: bounded by bytes, evicting the least used.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::reply::Reply;

/// The cache key: see [`super::query::Query::key`].
pub(super) type Key = Box<[u8]>;

/// Approximate memory of an entry in addition to its key and reply.
const OVERHEAD: usize = 160;
/// The size of a typical entry, to estimate their number.
const USUAL: usize = 512;

/// A cached reply.
#[derive(Clone, Debug)]
pub(super) struct CacheEntry {
    reply: Arc<Reply>,
    since: Instant,
    lifetime: Duration,
}

/// A reply with its age and remaining lifetime.
#[derive(Clone, Debug)]
pub(super) struct CachedReply {
    pub(super) reply: Arc<Reply>,
    pub(super) age: Duration,
    pub(super) left: Duration,
}

impl CacheEntry {
    fn at(&self, now: Instant) -> Option<CachedReply> {
        let age = now.saturating_duration_since(self.since);
        let left = self.lifetime.checked_sub(age).filter(|left| !left.is_zero())?;
        Some(CachedReply {
            reply: Arc::clone(&self.reply),
            age,
            left,
        })
    }
}

/// Replies by question.
pub(super) struct Replies {
    cache: Option<Cache<Key, CacheEntry, Bytes>>,
}

#[derive(Clone, Copy, Debug)]
struct Bytes;

impl Weighter<Key, CacheEntry> for Bytes {
    fn weight(&self, key: &Key, kept: &CacheEntry) -> u64 {
        (OVERHEAD + key.len() + kept.reply.size()) as u64
    }
}

impl Replies {
    /// A cache of this many bytes; 0: no cache.
    pub(super) fn new(bytes: usize) -> Self {
        let cache = || Cache::with_weighter(bytes / USUAL, bytes as u64, Bytes);
        Self {
            cache: (bytes > 0).then(cache),
        }
    }

    /// The reply to a query, unless it has expired.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<CachedReply> {
        let cache = self.cache.as_ref()?;
        let kept = cache.get(key)?;
        let aged = kept.at(now);
        if aged.is_none() {
            // Unless it was replaced meanwhile.
            cache.remove_if(key, |other| other.at(now).is_none());
        }
        aged
    }

    /// Caches a reply for its lifetime.
    pub(super) fn put(&self, key: Key, reply: Arc<Reply>, lifetime: Duration, now: Instant) {
        let Some(cache) = self.cache.as_ref().filter(|_| !lifetime.is_zero()) else {
            return;
        };
        let kept = CacheEntry {
            reply,
            since: now,
            lifetime,
        };
        cache.insert(key, kept);
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.cache.as_ref().map(Cache::len);
        f.debug_struct("Replies").field("entries", &entries).finish()
    }
}
