//! Being told what changed.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Batches that may wait for a slow watcher before it misses some.
pub(crate) const WAITING: usize = 1024;

/// What a [`Watch`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A key was put or deleted.
    Changed {
        /// The whole key, prefix included.
        key: String,
        /// The version that was put; `None` when it was deleted.
        version: Option<u64>,
    },
    /// Some changes were not told, because the watcher was slow or the store was out of reach for a while: scan again.
    Missed,
}

/// The changes under one key prefix, as they are made; from [`Store::watch`](crate::Store::watch).
///
/// Every change that is committed after the watch was made is either told, in the order of the commits, or covered by a
/// [`Notice::Missed`] that comes later than the change. What waits for a watcher is bounded.
#[derive(Debug)]
pub struct Watch {
    prefix: String,
    waiting: broadcast::Receiver<Arc<[Notice]>>,
    batch: Arc<[Notice]>,
    told: usize,
}

impl Watch {
    /// The next notice; `None` when the store is closed. Waits without a deadline: most stores are quiet most of the time.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            while let Some(notice) = self.batch.get(self.told) {
                self.told += 1;
                match notice {
                    Notice::Changed { key, .. } if !key.starts_with(&self.prefix) => {}
                    notice => return Some(notice.clone()),
                }
            }
            match self.waiting.recv().await {
                Ok(batch) => (self.batch, self.told) = (batch, 0),
                Err(RecvError::Lagged(_)) => return Some(Notice::Missed),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Where a store says what changed.
#[derive(Clone, Debug)]
pub(crate) struct Feed(broadcast::Sender<Arc<[Notice]>>);

impl Feed {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }

    /// Tells the changes of one batch to whoever watches.
    pub(crate) fn publish(&self, notices: impl IntoIterator<Item = Notice>) {
        // Without a watcher there is nobody to tell.
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(notices.into_iter().collect());
        }
    }

    pub(crate) fn watch(&self, prefix: &str) -> Watch {
        Watch {
            prefix: prefix.to_owned(),
            waiting: self.0.subscribe(),
            batch: Arc::new([]),
            told: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, version: u64) -> Notice {
        let (key, version) = (key.to_owned(), Some(version));
        Notice::Changed { key, version }
    }

    #[tokio::test]
    async fn tells_in_order_and_by_prefix() {
        let feed = Feed::new();
        let (mut all, mut some) = (feed.watch(""), feed.watch("b/"));
        feed.publish([put("a/1", 1), put("b/1", 2)]);
        feed.publish([put("b", 3), put("b/2", 4)]);
        drop(feed);
        for expected in [put("a/1", 1), put("b/1", 2), put("b", 3), put("b/2", 4)] {
            assert_eq!(all.next().await, Some(expected));
        }
        assert_eq!(all.next().await, None);
        assert_eq!(some.next().await, Some(put("b/1", 2)));
        assert_eq!(some.next().await, Some(put("b/2", 4)));
        assert_eq!(some.next().await, None);
    }

    #[tokio::test]
    async fn says_when_a_slow_watcher_missed_some() {
        let feed = Feed::new();
        let mut watch = feed.watch("b/");
        let last = WAITING as u64 + 10;
        (1..=last).for_each(|n| feed.publish([put("b/1", n)]));
        assert_eq!(watch.next().await, Some(Notice::Missed));
        for expected in 11..=last {
            assert_eq!(
                watch.next().await,
                Some(put("b/1", expected)),
                "what still waits follows"
            );
        }
    }
}
