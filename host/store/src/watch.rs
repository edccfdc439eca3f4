//! Notifications of changed keys.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Maximum number of batches that wait for a slow watcher; beyond that it lags.
pub(crate) const MAX_PENDING_BATCHES: usize = 1024;

/// A notification of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A key was put or deleted.
    Changed {
        /// The whole key, prefix included.
        key: String,
        /// The version that was put; `None` when it was deleted.
        version: Option<u64>,
    },
    /// Some changes were lost, because the watcher was slow or the store unavailable: scan again.
    Lagged,
}

/// The changes under one key prefix as they occur; from [`Store::watch`](crate::Store::watch).
///
/// Every change committed after the watch was created is either reported, in commit order, or
/// covered by a later [`Notice::Lagged`]. The number of pending changes is bounded.
#[derive(Debug)]
pub struct Watch {
    prefix: String,
    receiver: broadcast::Receiver<Arc<[Notice]>>,
    batch: Arc<[Notice]>,
    next: usize,
}

impl Watch {
    /// The next notice; `None` when the store is closed. Waits without a deadline: most stores are
    /// quiet most of the time. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            while let Some(notice) = self.batch.get(self.next) {
                self.next += 1;
                match notice {
                    Notice::Changed { key, .. } if !key.starts_with(&self.prefix) => {}
                    notice => return Some(notice.clone()),
                }
            }
            match self.receiver.recv().await {
                Ok(batch) => (self.batch, self.next) = (batch, 0),
                Err(RecvError::Lagged(_)) => return Some(Notice::Lagged),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// The sender of a store's notifications.
#[derive(Clone, Debug)]
pub struct Feed(broadcast::Sender<Arc<[Notice]>>);

impl Default for Feed {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_PENDING_BATCHES))
    }
}

impl Feed {
    /// Sends the changes of one batch to all watchers.
    pub fn publish(&self, notices: impl IntoIterator<Item = Notice>) {
        // Without watchers, sending would fail.
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(notices.into_iter().collect());
        }
    }

    /// A watch of the keys that begin with `prefix`.
    pub fn watch(&self, prefix: &str) -> Watch {
        Watch {
            prefix: prefix.to_owned(),
            receiver: self.0.subscribe(),
            batch: Arc::new([]),
            next: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(key: &str, version: u64) -> Notice {
        let (key, version) = (key.to_owned(), Some(version));
        Notice::Changed { key, version }
    }

    #[tokio::test]
    async fn watch_reports_changes_in_order_by_prefix() {
        let feed = Feed::default();
        let (mut all, mut some) = (feed.watch(""), feed.watch("b/"));
        feed.publish([changed("a/1", 1), changed("b/1", 2)]);
        feed.publish([changed("b", 3), changed("b/2", 4)]);
        drop(feed);
        for expected in [
            changed("a/1", 1),
            changed("b/1", 2),
            changed("b", 3),
            changed("b/2", 4),
        ] {
            assert_eq!(all.next().await, Some(expected));
        }
        assert_eq!(all.next().await, None);
        assert_eq!(some.next().await, Some(changed("b/1", 2)));
        assert_eq!(some.next().await, Some(changed("b/2", 4)));
        assert_eq!(some.next().await, None);
    }

    #[tokio::test]
    async fn slow_watcher_gets_lagged() {
        let feed = Feed::default();
        let mut watch = feed.watch("b/");
        let last = MAX_PENDING_BATCHES as u64 + 10;
        (1..=last).for_each(|n| feed.publish([changed("b/1", n)]));
        assert_eq!(watch.next().await, Some(Notice::Lagged));
        for expected in 11..=last {
            assert_eq!(
                watch.next().await,
                Some(changed("b/1", expected)),
                "what still waits follows"
            );
        }
    }
}
