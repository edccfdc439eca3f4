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
type QueryMap<T> = Mutex<HashMap<Key, (u64, WeakShared<BoxFuture<'static, T>>)>>;

/// Queries in flight.
pub(super) struct Coalescer<T: Clone> {
    in_flight: Arc<QueryMap<T>>,
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
    /// The query is in flight; `is_coalesced`: another client started it.
    InFlight { query: InFlight<T>, is_coalesced: bool },
}

impl<T: Clone + Send + Sync + 'static> Coalescer<T> {
    pub(super) fn new() -> Self {
        Self {
            in_flight: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// Joins an equal query in flight or starts one. `begin` runs under the lock, so that a reply
    /// which has just arrived is not queried again; it must not block.
    pub(super) fn join<K>(&self, key: &Key, begin: impl FnOnce() -> Begin<K, T>) -> Joined<K, T> {
        let mut in_flight = lock(&self.in_flight);
        let existing = in_flight.get(key).and_then(|(_, flight)| flight.upgrade());
        if let Some(flight) = existing {
            return Joined::InFlight {
                query: flight,
                is_coalesced: true,
            };
        }
        let query = match begin() {
            Begin::Cached(reply) => return Joined::Cached(reply),
            Begin::Query(query) => query,
        };
        let number = in_flight.get(key).map_or(0, |(number, _)| number.wrapping_add(1));
        let guard = InFlightGuard {
            in_flight: Arc::clone(&self.in_flight),
            key: key.clone(),
            number,
        };
        let flight = async move {
            let _guard = guard;
            query.await
        };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            in_flight.insert(key.clone(), (number, weak));
        }
        Joined::InFlight {
            query: flight,
            is_coalesced: false,
        }
    }
}

impl<T: Clone> fmt::Debug for Coalescer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = lock(&self.in_flight).len();
        f.debug_struct("Coalescer").field("open", &in_flight).finish()
    }
}

/// Removes a query when it ends or its last waiter is dropped.
struct InFlightGuard<T: Clone> {
    in_flight: Arc<QueryMap<T>>,
    key: Key,
    number: u64,
}

impl<T: Clone> Drop for InFlightGuard<T> {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.in_flight);
        // An equal query may have started after the last waiter of this one was dropped.
        if in_flight
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            in_flight.remove(&self.key);
        }
    }
}

fn lock<T>(in_flight: &Mutex<T>) -> MutexGuard<'_, T> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
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
                is_coalesced,
            } => (flight, is_coalesced),
            Joined::Cached(_) => panic!("nothing is cached"),
        }
    }

    #[tokio::test]
    async fn equal_queries_share_one_reply() {
        let (coalescer, sent, answer) = (
            Coalescer::new(),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(Notify::new()),
        );
        let begin = || {
            let (sent, answer) = (Arc::clone(&sent), Arc::clone(&answer));
            Begin::Query(Box::pin(async move {
                answer.notified().await;
                sent.fetch_add(1, Ordering::Relaxed) + 1
            }))
        };
        let waiting: Vec<_> = (0..10)
            .map(|_| flight(coalescer.join(&key("a"), begin)))
            .collect();
        let (another, is_coalesced) = flight(coalescer.join(&key("b"), begin));
        assert!(!is_coalesced);
        drop(another);
        assert_eq!(
            waiting.iter().filter(|(_, is_coalesced)| *is_coalesced).count(),
            9
        );
        answer.notify_one();
        for (flight, _) in waiting {
            assert_eq!(flight.await, 1);
        }
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        assert!(lock(&coalescer.in_flight).is_empty(), "{coalescer:?}");
    }

    #[tokio::test]
    async fn query_without_waiters_is_started_again() {
        let coalescer = Coalescer::new();
        let never = || Begin::Query(Box::pin(std::future::pending()));
        let (first, _) = flight(coalescer.join(&key("a"), never));
        drop(first);
        assert!(lock(&coalescer.in_flight).is_empty());
        let (second, is_coalesced) =
            flight(coalescer.join(&key("a"), || Begin::Query(Box::pin(async { 7 }))));
        assert!(!is_coalesced);
        assert_eq!(second.await, 7);
        match coalescer.join(&key("a"), || Begin::Cached(9)) {
            Joined::Cached(cached) => assert_eq!(cached, 9),
            Joined::InFlight { .. } => panic!("it is cached"),
        }
    }
}
