//! A receiver of a watch channel whose clones are woken in the order in which they began to wait.
//!
//! Tokio wakes the receivers of a `watch` in a random order: a simulation could not repeat a run, and
//! requests that wait for the same change would be served in any order.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;

/// Whether the channel is still open.
type Change = Shared<BoxFuture<'static, bool>>;

/// See the module. Clones wait in one queue; each sees every change once.
#[derive(Clone)]
pub struct OrderedReceiver<T> {
    own: watch::Receiver<T>,
    /// The next change, for which all clones wait.
    next: Arc<Mutex<Option<Change>>>,
}

impl<T: Send + Sync + 'static> OrderedReceiver<T> {
    /// A receiver in place of this one.
    pub fn new(receiver: watch::Receiver<T>) -> Self {
        Self {
            own: receiver,
            next: Arc::default(),
        }
    }

    /// The present value.
    pub fn borrow(&self) -> watch::Ref<'_, T> {
        self.own.borrow()
    }

    /// The present value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> watch::Ref<'_, T> {
        self.own.borrow_and_update()
    }

    /// Waits for a value that was not seen. Cancel-safe.
    ///
    /// # Errors
    /// The sender is gone.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            // Before the check, so that no change is missed in between.
            let change = self.next_change();
            if self.own.has_changed()? {
                self.own.mark_unchanged();
                return Ok(());
            }
            // At the end of the channel, the check fails.
            change.await;
        }
    }

    fn next_change(&self) -> Change {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(change) = next.as_ref().filter(|change| change.peek().is_none()) {
            return change.clone();
        }
        let mut receiver = self.own.clone();
        receiver.mark_unchanged();
        let change = async move { receiver.changed().await.is_ok() }.boxed().shared();
        *next = Some(change.clone());
        change
    }
}

impl<T: fmt::Debug> fmt::Debug for OrderedReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_their_order_and_see_each_change() {
        let sender = watch::Sender::new(0);
        let receiver = OrderedReceiver::new(sender.subscribe());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (mut receiver, woken) = (receiver.clone(), Arc::clone(&woken));
            waiting.spawn(async move {
                while receiver.changed().await.is_ok() {
                    let value = *receiver.borrow();
                    woken.lock().expect("no panic").push((value, number));
                }
            });
        }
        for value in 1..4 {
            tokio::task::yield_now().await;
            sender.send_replace(value);
        }
        tokio::task::yield_now().await;
        drop(sender);
        waiting.join_all().await;
        let expected: Vec<_> = (1..4)
            .flat_map(|value| (0..20).map(move |number| (value, number)))
            .collect();
        assert_eq!(*woken.lock().expect("no panic"), expected);
    }
}
