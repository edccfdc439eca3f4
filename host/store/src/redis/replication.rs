//! Confirmation by replicas, and epochs, so that a failover neither loses acknowledged writes nor
//! grants a lease twice.
//!
//! **Confirmation.** A call is answered after the configured number of replicas has confirmed a
//! write that follows it on its connection (`WAIT`), reads and rejections included: what they saw is
//! then at so many replicas, and the server was still their primary. Calls at the same time share
//! one confirmation. A primary that is cut off from its replicas thus answers nothing.
//!
//! **Epochs.** A server that became the primary, or was restarted, begins an epoch before it answers
//! the first call. Leases of earlier epochs are worth nothing: they cannot be renewed, and batches
//! under them are fenced. No lease is granted, unless to one that holds it by its own clock, for as long
//! as the longest one may last, counted from when replicas have confirmed the epoch: from then on the former primary has too
//! few replicas to renew any. That holds if any two groups of replicas that can confirm have one in
//! common with their primaries; a smaller number in the configuration is rejected
//! (`redis/connection.rs`).
//!
//! **Restarts.** A primary that was started counts its replication from zero, and Sentinels compare
//! these counts; and it may have been replaced meanwhile. For some seconds it therefore waits for all
//! replicas to follow it before it begins its epoch.
//!
//! **What remains.** Sentinels may promote a replica that has not confirmed the last writes, if the
//! ones that have are unreachable for them. With as many confirmations as there are replicas that
//! cannot happen, but then no replica may fail. A daemon that knows of a later version than the new
//! primary has logs an error.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot};

use super::outage::Outage;
use super::scripts::{Reply, SCRIPTS};
use super::{COUNTER, EPOCH, FENCING, LONGEST, WAITING};

/// The key of the write that replicas confirm.
const BARRIER: &str = "transom:barrier";
/// Calls that wait for one confirmation; more wait for the next one.
const MAX_WAITING: usize = 1024;

/// A connection to the present primary.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    /// Without one the primary alone answers.
    confirmer: Option<Confirmer>,
}

#[derive(Clone)]
struct Confirmer(mpsc::Sender<oneshot::Sender<Result<(), Outage>>>);

/// How replicas confirm at one server.
#[derive(Clone)]
pub(super) struct Quorum {
    /// Of the server, for errors.
    pub(super) address: Arc<str>,
    /// The number of replicas; not 0.
    pub(super) replicas: u32,
    /// The number of replicas that have to confirm the beginning of the epoch.
    pub(super) to_begin: u32,
    /// How long to wait for them.
    pub(super) limit: Duration,
    /// The id of the epoch, which is the run of the server as a primary.
    pub(super) epoch: String,
}

impl Live {
    pub(super) fn alone(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            confirmer: None,
        }
    }

    /// Waits until replicas have confirmed what this connection wrote and read.
    pub(super) async fn confirmed(&self) -> Result<(), Outage> {
        let Some(Confirmer(waiting)) = &self.confirmer else {
            return Ok(());
        };
        let (sender, answer) = oneshot::channel();
        waiting.send(sender).await.map_err(|_| Outage::Closed)?;
        answer.await.unwrap_or(Err(Outage::Closed))
    }
}

impl Quorum {
    /// Begins the server's epoch if it has not begun, and starts the task that confirms, which ends
    /// with the last clone of the connection. Also returns the version when the epoch began.
    pub(super) async fn join(self, mut connection: MultiplexedConnection) -> Result<(Live, u64), Outage> {
        let from = self.epoch(&mut connection, "begin").await?;
        self.confirm(&mut connection, self.to_begin).await?;
        self.epoch(&mut connection, "complete").await?;
        self.confirm(&mut connection, self.replicas).await?;
        let (sender, mut waiting) = mpsc::channel::<oneshot::Sender<_>>(MAX_WAITING);
        let live = Live {
            connection: connection.clone(),
            confirmer: Some(Confirmer(sender)),
        };
        tokio::spawn(async move {
            let mut calls = Vec::new();
            while waiting.recv_many(&mut calls, MAX_WAITING).await > 0 {
                let outcome = self.confirm(&mut connection, self.replicas).await;
                for call in calls.drain(..) {
                    let _ = call.send(outcome.clone());
                }
            }
        });
        Ok((live, from))
    }

    async fn epoch(&self, connection: &mut MultiplexedConnection, step: &str) -> Result<u64, Outage> {
        let mut script = SCRIPTS.epoch.prepare_invoke();
        script
            .key(EPOCH)
            .key(COUNTER)
            .key(FENCING)
            .key(LONGEST)
            .key(WAITING);
        script.arg(&self.epoch).arg(step);
        let reply = script.invoke_async(connection).await;
        let mut reply = Reply::new(reply.map_err(|source| self.rejected(source))?)
            .map_err(|error| self.unusable(&error))?;
        reply.number().map_err(|error| self.unusable(&error))
    }

    async fn confirm(&self, connection: &mut MultiplexedConnection, replicas: u32) -> Result<(), Outage> {
        let mut script = SCRIPTS.barrier.prepare_invoke();
        script.key(EPOCH).key(BARRIER).arg(&self.epoch);
        let written: Vec<String> = script
            .invoke_async(connection)
            .await
            .map_err(|source| self.rejected(source))?;
        if written.first().is_none_or(|outcome| outcome != "ok") {
            return Err(Outage::Replaced {
                address: Arc::clone(&self.address),
            });
        }
        let confirmed: u32 = ::redis::cmd("WAIT")
            .arg(replicas)
            .arg(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX))
            .query_async(connection)
            .await
            .map_err(|source| self.rejected(source))?;
        if confirmed < replicas {
            return Err(Outage::Unconfirmed {
                address: Arc::clone(&self.address),
                confirmed,
                replicas,
            });
        }
        Ok(())
    }

    fn rejected(&self, source: ::redis::RedisError) -> Outage {
        Outage::Rejected {
            address: Arc::clone(&self.address),
            source,
        }
    }

    fn unusable(&self, error: &crate::Error) -> Outage {
        tracing::debug!(%error, "the reply of the script of epochs is invalid");
        Outage::Unfit {
            address: Arc::clone(&self.address),
            why: "has an epoch of another program",
        }
    }
}
