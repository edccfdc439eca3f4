//! Leader election among processes that share a store.
//!
//! An election is a lease. Its holder serves a [`Term`], which renews the lease in the background
//! and ends as soon as the process cannot be certain that it holds the lease. The other processes
//! observe the leader ([`Leadership`]) and keep campaigning.
//!
//! Three mechanisms stop a former leader from acting, even one that was paused:
//! * [`LeaseTerm::remaining`] uses this process's clock and never exceeds the store's lease;
//! * [`Term::ended`] stops the services of the term;
//! * a store from [`Term::fenced_store`] rejects writes after another process was elected.
//!
//! While the store is unavailable no process is elected, and a term ends when its lease expires. A
//! process with a store of its own ([`Store::is_exclusive`]) keeps its lease for as long as it
//! lives: nobody else could lead, so a machine that is too busy to renew it must not end the term.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits::MAX_TTL;
use crate::{Error, Fenced, Lease, Store};

/// How often a lease is renewed during its time to live.
const RENEWALS_PER_LEASE: u32 = 3;
/// How often a candidate polls during the time to live of a lease.
const POLLS_PER_LEASE: u32 = 5;
/// The maximum interval between polls or retries.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The state of an election, as this process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// No leader is known: the store has not answered yet, a term has just ended, or the lease
    /// belongs to an earlier process at this address and has not expired.
    Unknown,
    /// The store does not answer, so no process can be elected.
    StoreUnavailable,
    /// Another process is the leader; its address.
    Follower(String),
    /// This process is the leader.
    Leader,
}

/// A candidate in one election.
#[derive(Debug)]
pub struct Election {
    store: Arc<dyn Store>,
    name: String,
    /// The address of this process.
    address: String,
    /// A unique id of this process, then its address.
    holder: String,
    ttl: Duration,
    /// The time to live that the store grants.
    granted: Duration,
    leadership: watch::Sender<Leadership>,
    /// Whether the outage of the store was logged.
    warned: bool,
}

impl Election {
    /// A candidate for the lease `name` in `store`, with time to live `ttl`. `address`: where other
    /// processes reach this one.
    pub fn new(store: Arc<dyn Store>, name: impl Into<String>, address: &str, ttl: Duration) -> Self {
        let granted = if store.is_exclusive() { MAX_TTL } else { ttl };
        Self {
            store,
            name: name.into(),
            address: address.to_owned(),
            holder: format!("{} {address}", uuid::Uuid::new_v4()),
            ttl,
            granted,
            leadership: watch::Sender::new(Leadership::Unknown),
            warned: false,
        }
    }

    /// The current leadership, and its changes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// The time to live of the lease. Every candidate tries to acquire a free lease within this
    /// time.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Waits until this process is elected, without a deadline. Dropping the future ends the
    /// candidature; a lease that was granted meanwhile expires.
    pub async fn campaign(&mut self) -> Term {
        loop {
            let pause = match self.store.acquire(&self.name, &self.holder, self.granted).await {
                // The answer arrived after the lease had expired.
                Ok(lease) if lease.remaining().is_zero() => Duration::ZERO,
                Ok(lease) => {
                    self.warned = false;
                    tracing::info!(election = self.name, term = lease.fencing, "elected leader");
                    self.leadership.send_replace(Leadership::Leader);
                    return Term::serve(Arc::clone(&self.store), lease, self.leadership.clone());
                }
                Err(Error::Held {
                    holder, remaining, ..
                }) => {
                    self.warned = false;
                    self.set_follower(&holder);
                    remaining.min(self.ttl / POLLS_PER_LEASE)
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.warned, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(
                            election = self.name,
                            error,
                            "leader election is waiting for the store; retrying"
                        );
                    }
                    self.leadership.send_replace(Leadership::StoreUnavailable);
                    self.ttl / POLLS_PER_LEASE
                }
            };
            tokio::time::sleep(pause.clamp(Duration::from_millis(10), MAX_POLL_INTERVAL)).await;
        }
    }

    fn set_follower(&self, holder: &str) {
        let address = holder.split_once(' ').map_or("", |(_, address)| address);
        let leadership = if address == self.address {
            Leadership::Unknown
        } else {
            Leadership::Follower(address.to_owned())
        };
        let changed = self.leadership.send_if_modified(|current| {
            let changed = *current != leadership;
            *current = leadership;
            changed
        });
        if changed && address != self.address {
            tracing::info!(
                election = self.name,
                leader = address,
                "another daemon is the leader; standing by"
            );
        }
    }
}

/// The remaining time of a lease, for code that acts as leader. Clones are cheap.
#[derive(Clone, Debug)]
pub struct LeaseTerm(Arc<ArcSwap<Lease>>);

impl LeaseTerm {
    /// The remaining time; once zero, it stays zero.
    pub fn remaining(&self) -> Duration {
        self.0.load().remaining()
    }
}

/// A lease that is not renewed.
impl From<Lease> for LeaseTerm {
    fn from(lease: Lease) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(lease)))
    }
}

/// A term of leadership of this process. Dropping it stops renewing; [`Term::resign`] also releases
/// the lease.
#[derive(Debug)]
pub struct Term {
    store: Arc<dyn Store>,
    validity: LeaseTerm,
    ended: CancellationToken,
    leadership: watch::Sender<Leadership>,
    renewer: JoinHandle<()>,
}

impl Term {
    fn serve(store: Arc<dyn Store>, lease: Lease, leadership: watch::Sender<Leadership>) -> Self {
        let lease_term = LeaseTerm::from(lease);
        let ended = CancellationToken::new();
        let renewer = tokio::spawn(keep_lease(
            Arc::clone(&store),
            lease_term.clone(),
            ended.clone(),
            leadership.clone(),
        ));
        Self {
            store,
            validity: lease_term,
            ended,
            leadership,
            renewer,
        }
    }

    /// A store that rejects writes after this term.
    pub fn fenced_store(&self) -> Arc<dyn Store> {
        Arc::new(Fenced::new(Arc::clone(&self.store), &self.validity.0.load()))
    }

    /// The remaining time of the term.
    pub fn lease_term(&self) -> LeaseTerm {
        self.validity.clone()
    }

    /// Cancelled when the term is over.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Releases the lease, so that others need not wait until it expires. Call it after everything
    /// that acts as leader has stopped.
    pub async fn resign(self) {
        self.ended.cancel();
        let lease = Lease::clone(&self.validity.0.load());
        if lease.remaining().is_zero() {
            return;
        }
        if let Err(error) = self.store.release(&lease).await {
            let error: &dyn std::error::Error = &error;
            tracing::info!(
                election = lease.name,
                error,
                "releasing the lease failed; it expires at its end"
            );
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.ended.cancel();
        if !self.renewer.is_finished() {
            self.renewer.abort();
            self.leadership.send_replace(Leadership::Unknown);
        }
    }
}

/// Renews the lease until a renewal fails or the term is ended.
async fn keep_lease(
    store: Arc<dyn Store>,
    lease_term: LeaseTerm,
    ended: CancellationToken,
    leadership: watch::Sender<Leadership>,
) {
    let loss = ended.run_until_cancelled(renew(&store, &lease_term)).await;
    if let Some(loss) = &loss {
        let lease = lease_term.0.load();
        tracing::warn!(
            election = lease.name,
            term = lease.fencing,
            why = loss.reason(),
            "leadership lost"
        );
    }
    leadership.send_replace(match loss {
        Some(Loss::Expired) => Leadership::StoreUnavailable,
        Some(Loss::Replaced) | None => Leadership::Unknown,
    });
    ended.cancel();
}

/// How a lease was lost.
enum Loss {
    /// The store rejected the renewal.
    Replaced,
    /// The store did not answer in time.
    Expired,
}

impl Loss {
    fn reason(&self) -> &'static str {
        match self {
            Self::Replaced => "another process holds the lease, or it expired",
            Self::Expired => "the lease expired before the store renewed it",
        }
    }
}

/// Returns the reason when the lease is lost.
async fn renew(store: &Arc<dyn Store>, lease_term: &LeaseTerm) -> Loss {
    let mut warned = false;
    loop {
        let lease = lease_term.0.load_full();
        let end = Instant::now() + lease.remaining();
        tokio::time::sleep(
            if warned {
                retry_delay(&lease)
            } else {
                lease.ttl / RENEWALS_PER_LEASE
            }
            .min(lease.remaining()),
        )
        .await;
        match tokio::time::timeout_at(end, store.renew(&lease)).await {
            Ok(Ok(renewed)) => {
                warned = false;
                lease_term.0.store(Arc::new(renewed));
            }
            Ok(Err(Error::Fenced { .. })) => return Loss::Replaced,
            Ok(Err(error)) => {
                if !std::mem::replace(&mut warned, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        election = lease.name,
                        error,
                        "renewing the lease failed; retrying until it expires"
                    );
                }
            }
            Err(_) => {}
        }
        if lease_term.remaining().is_zero() {
            return Loss::Expired;
        }
    }
}

fn retry_delay(lease: &Lease) -> Duration {
    (lease.ttl / (RENEWALS_PER_LEASE * POLLS_PER_LEASE)).min(MAX_POLL_INTERVAL)
}

#[cfg(test)]
mod tests;
