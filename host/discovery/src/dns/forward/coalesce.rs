//! Coalesces equal queries: the first one is sent, and all get its reply (single flight).
//!
//! There is no task: a query in flight is a shared future that its waiters drive. When the last
//! waiter is dropped, the query ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::cache::Key;

/// A query in flight; clones share it.
pub(super) type InFlight<T> = Shared<BoxFuture<'static, T>>;
type Open<T> = Mutex<HashMap<Key, (u64, WeakShared<BoxFuture<'static, T>>)>>;

/// Queries in flight.
pub(super) struct Coalescer<T: Clone> {
    open: Arc<Open<T>>,
}

/// How to answer a query that is not in flight.
pub(super) enum Begin<K, T> {
    /// The reply is in the cache by now.
    Cached(K),
    /// Send it.
    Query(BoxFuture<'static, T>),
}

/// The result of joining a query.
pub(super) enum Joined<K, T: Clone> {
    /// The reply was in the cache.
    Cached(K),
    /// The query is in flight; `others`: another client started it.
    InFlight { query: InFlight<T>, others: bool },
}

impl<T: Clone + Send + Sync + 'static> Coalescer<T> {
    pub(super) fn new() -> Self {
        Self {
            open: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// Joins an equal query in flight or starts one. `begin` runs under the lock, so that a reply
    /// which has just arrived is not queried again; it must not block.
    pub(super) fn join<K>(&self, key: &Key, begin: impl FnOnce() -> Begin<K, T>) -> Joined<K, T> {
        let mut open = lock(&self.open);
        let flying = open.get(key).and_then(|(_, flight)| flight.upgrade());
        if let Some(flight) = flying {
            return Joined::InFlight {
                query: flight,
                others: true,
            };
        }
        let asking = match begin() {
            Begin::Cached(reply) => return Joined::Cached(reply),
            Begin::Query(asking) => asking,
        };
        let number = open.get(key).map_or(0, |(number, _)| number.wrapping_add(1));
        let guard = InFlightGuard {
            open: Arc::clone(&self.open),
            key: key.clone(),
            number,
        };
        let flight = async move {
            let _landing = guard;
            asking.await
        };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            open.insert(key.clone(), (number, weak));
        }
        Joined::InFlight {
            query: flight,
            others: false,
        }
    }
}

impl<T: Clone> fmt::Debug for Coalescer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = lock(&self.open).len();
        f.debug_struct("Coalescer").field("open", &open).finish()
    }
}

/// Removes a query when it ends or its last waiter is dropped.
struct InFlightGuard<T: Clone> {
    open: Arc<Open<T>>,
    key: Key,
    number: u64,
}

impl<T: Clone> Drop for InFlightGuard<T> {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        // An equal query may have started after the last waiter of this one was dropped.
        if open
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            open.remove(&self.key);
        }
    }
}

fn lock<T>(open: &Mutex<T>) -> MutexGuard<'_, T> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)] // Tests fail by panicking.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    fn key(text: &str) -> Key {
        text.as_bytes().into()
    }

    fn flight(joined: Joined<usize, usize>) -> (InFlight<usize>, bool) {
        match joined {
            Joined::InFlight {
                query: flight,
                others,
            } => (flight, others),
            Joined::Cached(_) => panic!("nothing is cached"),
        }
    }

    #[tokio::test]
    async fn equal_queries_share_one_reply() {
        let (coalescer, asked, answer) = (
            Coalescer::new(),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(Notify::new()),
        );
        let begin = || {
            let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
            Begin::Query(Box::pin(async move {
                answer.notified().await;
                asked.fetch_add(1, Ordering::Relaxed) + 1
            }))
        };
        let waiting: Vec<_> = (0..10)
            .map(|_| flight(coalescer.join(&key("a"), begin)))
            .collect();
        let (another, others) = flight(coalescer.join(&key("b"), begin));
        assert!(!others);
        drop(another);
        assert_eq!(waiting.iter().filter(|(_, others)| *others).count(), 9);
        answer.notify_one();
        for (flight, _) in waiting {
            assert_eq!(flight.await, 1);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(lock(&coalescer.open).is_empty(), "{coalescer:?}");
    }

    #[tokio::test]
    async fn query_without_waiters_is_started_again() {
        let coalescer = Coalescer::new();
        let never = || Begin::Query(Box::pin(std::future::pending()));
        let (first, _) = flight(coalescer.join(&key("a"), never));
        drop(first);
        assert!(lock(&coalescer.open).is_empty());
        let (second, others) = flight(coalescer.join(&key("a"), || Begin::Query(Box::pin(async { 7 }))));
        assert!(!others);
        assert_eq!(second.await, 7);
        match coalescer.join(&key("a"), || Begin::Cached(9)) {
            Joined::Cached(known) => assert_eq!(known, 9),
            Joined::InFlight { .. } => panic!("it is cached"),
        }
    }
}
