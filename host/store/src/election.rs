//! Elections: of several processes that share a store, which one may do what only one may do.
//!
//! An office is a lease. Whoever holds it serves a [`Term`], which renews the lease in the background and ends as soon as
//! it is not certain to be held any more; everybody else learns who holds it ([`Standing`]) and goes on standing.
//!
//! Three things keep a holder from acting when its time is up, also one that was stopped and does not know it:
//! * [`Tenure::left`] goes by this process's clock and never says more than the store does;
//! * [`Term::ended`] tells the parts that serve the term to stop;
//! * a store from [`Term::fence`] refuses whatever is written after somebody else was elected.
//!
//! While the store cannot be reached nobody is elected, and a term ends when its lease runs out.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Error, Fenced, Lease, Store};

/// A lease is renewed this many times while it lasts.
const RENEWALS: u32 = 3;
/// So often in a lease's time somebody who stands looks whether it is free.
const LOOKS: u32 = 5;
/// The longest pause between two looks or two attempts.
const LONGEST: Duration = Duration::from_secs(2);

/// What this process is to an office.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody who is there is known to hold it: the store has not said yet, a term has just ended, or the lease is one of an
    /// earlier process at this address and has not run out.
    Vacant,
    /// The store does not answer: who holds it is not known, and nobody can be elected.
    StoreAway,
    /// Another process holds it, which is reached at this address.
    Elsewhere(String),
    /// This process holds it.
    Here,
}

/// A standing candidate for one office.
#[derive(Debug)]
pub struct Election {
    store: Arc<dyn Store>,
    office: String,
    /// Where others reach this process.
    address: String,
    /// What tells this process from every other, then its address.
    holder: String,
    ttl: Duration,
    standing: watch::Sender<Standing>,
    /// The store's trouble was said.
    said: bool,
}

impl Election {
    /// Stands for the lease `office` in `store`, to be held for `ttl` at a time. `address`: where others reach this process.
    pub fn new(store: Arc<dyn Store>, office: impl Into<String>, address: &str, ttl: Duration) -> Self {
        Self {
            store,
            office: office.into(),
            address: address.to_owned(),
            holder: format!("{} {address}", uuid::Uuid::new_v4()),
            ttl,
            standing: watch::Sender::new(Standing::Vacant),
            said: false,
        }
    }

    /// What this process is to the office, now and later.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Waits until this process holds the office. Waits without a deadline, as long as somebody else holds it or the store
    /// is away. Dropping the future ends the candidature; a lease that was granted meanwhile runs out by itself.
    pub async fn win(&mut self) -> Term {
        loop {
            let pause = match self.store.acquire(&self.office, &self.holder, self.ttl).await {
                // An answer that took longer than the lease lasts is of no use.
                Ok(lease) if lease.left().is_zero() => Duration::ZERO,
                Ok(lease) => {
                    self.said = false;
                    tracing::info!(office = self.office, term = lease.fencing, "elected");
                    self.standing.send_replace(Standing::Here);
                    return Term::serve(Arc::clone(&self.store), lease, self.standing.clone());
                }
                Err(Error::Held { holder, left, .. }) => {
                    self.said = false;
                    self.elsewhere(&holder);
                    left.min(self.ttl / LOOKS)
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.said, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(
                            office = self.office,
                            error,
                            "nobody can be elected before the store answers"
                        );
                    }
                    self.standing.send_replace(Standing::StoreAway);
                    self.ttl / LOOKS
                }
            };
            tokio::time::sleep(pause.clamp(Duration::from_millis(10), LONGEST)).await;
        }
    }

    fn elsewhere(&self, holder: &str) {
        let address = holder.split_once(' ').map_or("", |(_, address)| address);
        let standing = if address == self.address {
            Standing::Vacant
        } else {
            Standing::Elsewhere(address.to_owned())
        };
        let news = self.standing.send_if_modified(|known| {
            let news = *known != standing;
            *known = standing;
            news
        });
        if news && address != self.address {
            tracing::info!(
                office = self.office,
                leader = address,
                "another daemon leads; standing by"
            );
        }
    }
}

/// How long an office is still held; for those who act in its name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tenure(Arc<ArcSwap<Lease>>);

impl Tenure {
    /// For how long it is still certain; zero when it is not, which is for ever.
    pub fn left(&self) -> Duration {
        self.0.load().left()
    }
}

/// The time for which this process holds an office. Dropping it gives up renewing; [`Term::resign`] is the polite way.
#[derive(Debug)]
pub struct Term {
    store: Arc<dyn Store>,
    tenure: Tenure,
    ended: CancellationToken,
    standing: watch::Sender<Standing>,
    keeper: JoinHandle<()>,
}

impl Term {
    fn serve(store: Arc<dyn Store>, lease: Lease, standing: watch::Sender<Standing>) -> Self {
        let tenure = Tenure(Arc::new(ArcSwap::from_pointee(lease)));
        let ended = CancellationToken::new();
        let keeper = tokio::spawn(keep(
            Arc::clone(&store),
            tenure.clone(),
            ended.clone(),
            standing.clone(),
        ));
        Self {
            store,
            tenure,
            ended,
            standing,
            keeper,
        }
    }

    /// A view of the store whose writes are refused once this term is over.
    pub fn fence(&self) -> Arc<dyn Store> {
        Arc::new(Fenced::new(Arc::clone(&self.store), &self.tenure.0.load()))
    }

    /// How long the term is still certain to last.
    pub fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// The term's number, greater than that of every term before.
    pub fn number(&self) -> u64 {
        self.tenure.0.load().fencing
    }

    /// Cancelled when the term is over.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Gives the office back, so that others need not wait for the lease to run out. To be called after everything that
    /// acts in its name has stopped.
    pub async fn resign(self) {
        self.ended.cancel();
        let lease = Lease::clone(&self.tenure.0.load());
        if lease.left().is_zero() {
            return;
        }
        if let Err(error) = self.store.release(&lease).await {
            let error: &dyn std::error::Error = &error;
            tracing::info!(
                office = lease.name,
                error,
                "the office was not given back; it becomes free by itself"
            );
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.ended.cancel();
        if !self.keeper.is_finished() {
            self.keeper.abort();
            self.standing.send_replace(Standing::Vacant);
        }
    }
}

/// Renews the lease until that fails or the term is ended.
async fn keep(
    store: Arc<dyn Store>,
    tenure: Tenure,
    ended: CancellationToken,
    standing: watch::Sender<Standing>,
) {
    let loss = ended.run_until_cancelled(renew(&store, &tenure)).await;
    if let Some(loss) = &loss {
        let lease = tenure.0.load();
        tracing::warn!(
            office = lease.name,
            term = lease.fencing,
            why = loss.why(),
            "not leading any more"
        );
    }
    standing.send_replace(match loss {
        Some(Loss::RanOut) => Standing::StoreAway,
        Some(Loss::Taken) | None => Standing::Vacant,
    });
    ended.cancel();
}

/// How a lease was lost.
enum Loss {
    /// The store says that it is not this process's any more.
    Taken,
    /// The store did not renew it in time.
    RanOut,
}

impl Loss {
    fn why(&self) -> &'static str {
        match self {
            Self::Taken => "the lease went to somebody else or ran out",
            Self::RanOut => "the lease ran out before the store renewed it",
        }
    }
}

/// Returns when the lease is lost, and why.
async fn renew(store: &Arc<dyn Store>, tenure: &Tenure) -> Loss {
    let mut said = false;
    loop {
        let lease = tenure.0.load_full();
        let end = Instant::now() + lease.left();
        tokio::time::sleep(if said { pause(&lease) } else { lease.ttl / RENEWALS }.min(lease.left())).await;
        match tokio::time::timeout_at(end, store.renew(&lease)).await {
            Ok(Ok(renewed)) => {
                said = false;
                tenure.0.store(Arc::new(renewed));
            }
            Ok(Err(Error::Fenced { .. })) => return Loss::Taken,
            Ok(Err(error)) => {
                if !std::mem::replace(&mut said, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        office = lease.name,
                        error,
                        "the lease cannot be renewed; trying again while it lasts"
                    );
                }
            }
            Err(_) => {}
        }
        if tenure.left().is_zero() {
            return Loss::RanOut;
        }
    }
}

fn pause(lease: &Lease) -> Duration {
    (lease.ttl / (RENEWALS * LOOKS)).min(LONGEST)
}

#[cfg(test)]
mod tests;
