//! The store in a ZooKeeper ensemble, 3.5 or later, shared by any number of daemons.
//!
//! The state is what results from a log: each entry is a node that is created at the next position,
//! which succeeds for one daemon only. Its writer has applied all entries before, so versions,
//! conditions and fences are decided in one order for all. Every daemon has the whole state in memory:
//! it watches for the next entry and applies it. From time to time a daemon writes a snapshot, and
//! deletes the entries before it. See `zookeeper/ensemble.rs` for the nodes.
//!
//! * Requests that arrive together become one entry, so that many writes are few transactions of the
//!   ensemble. An entry that is larger than half a megabyte is staged in pieces first, and is in the
//!   log when one node names them.
//! * A read is of the latest state: the ensemble writes a node without content before it.
//! * A lease is in the log, with its own number. Another daemon takes it when it has seen no renewal for
//!   its time to live, by its own clock. Sessions have no part in it.
//! * A lost session is replaced; an entry whose answer was lost is appended again at the same position,
//!   where the log has it at most once. Callers that no longer wait get [`Error::Unavailable`], and
//!   their requests may still be applied.

mod actor;
mod ensemble;
mod records;
mod settings;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod tls;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::leases::{HeldLease, LeaseOperation, LeaseStore};
use crate::watch::Feed;
use crate::{Batch, Cause, Durability, Entry, Error, Lease, Result, Store, Watch, limits};
use actor::{Actor, Request};
pub(crate) use settings::Settings;

/// Requests that wait for the task.
const MAX_WAITING: usize = 4096;

/// The store in an ensemble. Dropping it ends its session and every watch.
#[derive(Debug)]
pub struct ZooKeeperStore {
    requests: mpsc::Sender<Request>,
    feed: Feed,
    servers: String,
    call_timeout: Duration,
}

impl ZooKeeperStore {
    /// Starts connecting and returns immediately. Must be called within a Tokio runtime.
    pub(crate) fn open(settings: Settings, call_timeout: Duration) -> Self {
        let (requests, receiver) = mpsc::channel(MAX_WAITING);
        let (feed, servers) = (Feed::default(), settings.servers.clone());
        tokio::spawn(Actor::new(settings, receiver, feed.clone()).run());
        Self {
            requests,
            feed,
            servers,
            call_timeout,
        }
    }

    /// Sends a request and waits for the answer. `what` ends the sentence "the store cannot …".
    async fn ask<T>(
        &self,
        what: &'static str,
        request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            let sent = self.requests.send(request(reply)).await;
            sent.map_err(|_| Error::Closed)?;
            answer.await.map_err(|_| Error::Closed)?
        };
        match timeout(self.call_timeout, asked).await {
            Ok(Err(Error::Unavailable { source, .. })) => Err(Error::Unavailable { what, source }),
            Ok(result) => result,
            Err(_) => Err(Error::Unavailable {
                what,
                source: format!(
                    "timeout: ZooKeeper at {} did not answer within {:?}",
                    self.servers, self.call_timeout
                )
                .into(),
            }),
        }
    }
}

/// Whether the ensemble accepts the user, and the state, if there is one, is the user's. Nothing is
/// written.
pub(crate) async fn accepts(settings: &Settings) -> Result<(), Cause> {
    let ensemble = ensemble::Ensemble::connect(settings).await?;
    if ensemble.exists().await? {
        ensemble.check_access(settings.world_access).await?;
        ensemble.current().await?;
    }
    Ok(())
}

#[async_trait]
impl LeaseStore for ZooKeeperStore {
    async fn operate(
        &self,
        what: &'static str,
        name: &str,
        operation: LeaseOperation,
    ) -> Result<Option<HeldLease>> {
        let name = name.to_owned();
        self.ask(what, |reply| Request::Lease(name, operation, reply))
            .await
    }
}

#[async_trait]
impl Store for ZooKeeperStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        limits::key(key)?;
        let key = key.to_owned();
        self.ask("read", |reply| Request::Get(key, reply)).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        limits::prefix(prefix)?;
        let prefix = prefix.to_owned();
        self.ask("read", |reply| Request::Scan(prefix, reply)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        limits::batch(&batch)?;
        self.ask("write", |reply| Request::Commit(batch, reply)).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        self.acquire_lease(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        self.renew_lease(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.release_lease(lease).await
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        self.read_lease(name).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        limits::prefix(prefix)?;
        Ok(self.feed.watch(prefix))
    }

    fn durability(&self) -> Durability {
        // A server answers after most of the ensemble has synced, unless `forceSync=no`.
        Durability::Synced
    }
}
