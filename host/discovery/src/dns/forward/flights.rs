//! Equal questions at the same time: the first one is asked, all get its reply.
//!
//! No task of its own: a question under way is a future that whoever waits for it drives; when nobody does any more it
//! ends, and is forgotten.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::cache::Key;

/// A question under way; clones are the same one.
pub(super) type Flight<T> = Shared<BoxFuture<'static, T>>;
type Open<T> = Mutex<HashMap<Key, (u64, WeakShared<BoxFuture<'static, T>>)>>;

/// Questions under way.
pub(super) struct Flights<T: Clone> {
    open: Arc<Open<T>>,
}

/// What to do about a question that nobody else is asking.
pub(super) enum Begin<K, T> {
    /// The reply is there by now.
    Known(K),
    /// Ask it.
    Ask(BoxFuture<'static, T>),
}

/// How a question joined the others.
pub(super) enum Joined<K, T: Clone> {
    /// The reply was there.
    Known(K),
    /// It is being asked; whether somebody else began.
    Flying { flight: Flight<T>, others: bool },
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    pub(super) fn new() -> Self {
        Self {
            open: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// Joins those who ask the same, or begins. `begin` is called while others are kept from beginning, so that a reply which
    /// has just come is not asked for again; it must not wait.
    pub(super) fn join<K>(&self, key: &Key, begin: impl FnOnce() -> Begin<K, T>) -> Joined<K, T> {
        let mut open = lock(&self.open);
        let flying = open.get(key).and_then(|(_, flight)| flight.upgrade());
        if let Some(flight) = flying {
            return Joined::Flying { flight, others: true };
        }
        let asking = match begin() {
            Begin::Known(reply) => return Joined::Known(reply),
            Begin::Ask(asking) => asking,
        };
        let number = open.get(key).map_or(0, |(number, _)| number.wrapping_add(1));
        let landing = Landing {
            open: Arc::clone(&self.open),
            key: key.clone(),
            number,
        };
        let flight = async move {
            let _landing = landing;
            asking.await
        };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            open.insert(key.clone(), (number, weak));
        }
        Joined::Flying {
            flight,
            others: false,
        }
    }
}

impl<T: Clone> fmt::Debug for Flights<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = lock(&self.open).len();
        f.debug_struct("Flights").field("open", &open).finish()
    }
}

/// Takes a question off the list when it has its reply, or when nobody waits for it any more.
struct Landing<T: Clone> {
    open: Arc<Open<T>>,
    key: Key,
    number: u64,
}

impl<T: Clone> Drop for Landing<T> {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        // Another one may have begun when nobody waited for this one any more.
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
    #![allow(clippy::panic)] // Tests: a failure is their answer.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    fn key(text: &str) -> Key {
        text.as_bytes().into()
    }

    fn flight(joined: Joined<usize, usize>) -> (Flight<usize>, bool) {
        match joined {
            Joined::Flying { flight, others } => (flight, others),
            Joined::Known(_) => panic!("nothing is known"),
        }
    }

    #[tokio::test]
    async fn one_asks_and_all_are_told() {
        let (flights, asked, answer) = (
            Flights::new(),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(Notify::new()),
        );
        let begin = || {
            let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
            Begin::Ask(Box::pin(async move {
                answer.notified().await;
                asked.fetch_add(1, Ordering::Relaxed) + 1
            }))
        };
        let waiting: Vec<_> = (0..10).map(|_| flight(flights.join(&key("a"), begin))).collect();
        let (another, others) = flight(flights.join(&key("b"), begin));
        assert!(!others);
        drop(another);
        assert_eq!(waiting.iter().filter(|(_, others)| *others).count(), 9);
        answer.notify_one();
        for (flight, _) in waiting {
            assert_eq!(flight.await, 1);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(lock(&flights.open).is_empty(), "{flights:?}");
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_begun_anew() {
        let flights = Flights::new();
        let never = || Begin::Ask(Box::pin(std::future::pending()));
        let (first, _) = flight(flights.join(&key("a"), never));
        drop(first);
        assert!(lock(&flights.open).is_empty());
        let (second, others) = flight(flights.join(&key("a"), || Begin::Ask(Box::pin(async { 7 }))));
        assert!(!others);
        assert_eq!(second.await, 7);
        match flights.join(&key("a"), || Begin::Known(9)) {
            Joined::Known(known) => assert_eq!(known, 9),
            Joined::Flying { .. } => panic!("it is known"),
        }
    }
}
