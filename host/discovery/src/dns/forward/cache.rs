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
const ENTRY_OVERHEAD_BYTES: usize = 160;
/// The size of a typical entry, to estimate their number.
const TYPICAL_ENTRY_BYTES: usize = 512;

/// A cached reply.
#[derive(Clone, Debug)]
pub(super) struct CacheEntry {
    reply: Arc<Reply>,
    cached_at: Instant,
    lifetime: Duration,
}

/// A reply with its age and remaining lifetime.
#[derive(Clone, Debug)]
pub(super) struct CachedReply {
    pub(super) reply: Arc<Reply>,
    pub(super) age: Duration,
    pub(super) remaining: Duration,
}

impl CacheEntry {
    fn at(&self, now: Instant) -> Option<CachedReply> {
        let age = now.saturating_duration_since(self.cached_at);
        let remaining = self
            .lifetime
            .checked_sub(age)
            .filter(|remaining| !remaining.is_zero())?;
        Some(CachedReply {
            reply: Arc::clone(&self.reply),
            age,
            remaining,
        })
    }
}

/// Replies by question.
pub(super) struct ReplyCache {
    cache: Option<Cache<Key, CacheEntry, ByteWeighter>>,
}

#[derive(Clone, Copy, Debug)]
struct ByteWeighter;

impl Weighter<Key, CacheEntry> for ByteWeighter {
    fn weight(&self, key: &Key, entry: &CacheEntry) -> u64 {
        (ENTRY_OVERHEAD_BYTES + key.len() + entry.reply.size()) as u64
    }
}

impl ReplyCache {
    /// A cache of this many bytes; 0: no cache.
    pub(super) fn new(bytes: usize) -> Self {
        let cache = || Cache::with_weighter(bytes / TYPICAL_ENTRY_BYTES, bytes as u64, ByteWeighter);
        Self {
            cache: (bytes > 0).then(cache),
        }
    }

    /// The reply to a query, unless it has expired.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<CachedReply> {
        let cache = self.cache.as_ref()?;
        let entry = cache.get(key)?;
        let live = entry.at(now);
        if live.is_none() {
            // Unless it was replaced meanwhile.
            cache.remove_if(key, |other| other.at(now).is_none());
        }
        live
    }

    /// Caches a reply for its lifetime.
    pub(super) fn insert(&self, key: Key, reply: Arc<Reply>, lifetime: Duration, now: Instant) {
        let Some(cache) = self.cache.as_ref().filter(|_| !lifetime.is_zero()) else {
            return;
        };
        let entry = CacheEntry {
            reply,
            cached_at: now,
            lifetime,
        };
        cache.insert(key, entry);
    }
}

impl fmt::Debug for ReplyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.cache.as_ref().map(Cache::len);
        f.debug_struct("Replies").field("entries", &entries).finish()
    }
}
