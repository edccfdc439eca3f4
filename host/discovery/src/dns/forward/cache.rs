//! Replies that are given again. Bounded by bytes; what is asked for most stays longest.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::reply::Reply;

/// What makes two queries the same: see [`super::query::Query::key`].
pub(super) type Key = Box<[u8]>;

/// Bytes that an entry takes besides its key and its reply, roughly.
const OVERHEAD: usize = 160;
/// Bytes of a usual entry, from which it is told how many there may be.
const USUAL: usize = 512;

/// A reply that was kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    reply: Arc<Reply>,
    since: Instant,
    lifetime: Duration,
}

/// A reply with its age, and how long it can still be given.
#[derive(Clone, Debug)]
pub(super) struct Aged {
    pub(super) reply: Arc<Reply>,
    pub(super) age: Duration,
    pub(super) left: Duration,
}

impl Kept {
    fn at(&self, now: Instant) -> Option<Aged> {
        let age = now.saturating_duration_since(self.since);
        let left = self.lifetime.checked_sub(age).filter(|left| !left.is_zero())?;
        Some(Aged {
            reply: Arc::clone(&self.reply),
            age,
            left,
        })
    }
}

/// Replies by question.
pub(super) struct Replies {
    cache: Option<Cache<Key, Kept, Bytes>>,
}

#[derive(Clone, Copy, Debug)]
struct Bytes;

impl Weighter<Key, Kept> for Bytes {
    fn weight(&self, key: &Key, kept: &Kept) -> u64 {
        (OVERHEAD + key.len() + kept.reply.size()) as u64
    }
}

impl Replies {
    /// Of this many bytes; with none, nothing is kept.
    pub(super) fn new(bytes: usize) -> Self {
        let cache = || Cache::with_weighter(bytes / USUAL, bytes as u64, Bytes);
        Self {
            cache: (bytes > 0).then(cache),
        }
    }

    /// The reply to a question, unless it is too old.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Aged> {
        let cache = self.cache.as_ref()?;
        let kept = cache.get(key)?;
        let aged = kept.at(now);
        if aged.is_none() {
            // Unless another one has come meanwhile.
            cache.remove_if(key, |other| other.at(now).is_none());
        }
        aged
    }

    /// Keeps a reply for as long as it may live.
    pub(super) fn put(&self, key: Key, reply: Arc<Reply>, lifetime: Duration, now: Instant) {
        let Some(cache) = self.cache.as_ref().filter(|_| !lifetime.is_zero()) else {
            return;
        };
        let kept = Kept {
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
