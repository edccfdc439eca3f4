//! Leases that keep daemons from leading on a store.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Error, KEY, Result, call};
use crate::limits::MAX_FENCES;
use crate::{Fenced, Lease, Store, typed};

/// The time to live of the leases, which are renewed three times in it. Daemons of a command that was
/// killed can lead after it.
const TTL: Duration = Duration::from_secs(30);

/// The lease [`KEY`], which excludes other commands, and those of frameworks, renewed until they are
/// [released](Self::release).
#[derive(Debug)]
pub struct Holds {
    store: Arc<dyn Store>,
    leases: Vec<Lease>,
    renewal: JoinHandle<()>,
    /// The name of a lease that could not be renewed.
    lost: Arc<OnceLock<String>>,
}

impl Holds {
    /// Acquires the lease [`KEY`] and then `leases`.
    ///
    /// # Errors
    /// [`Error::Led`] and [`Error::Busy`] if a lease is held. Then no lease remains acquired.
    pub async fn acquire(store: Arc<dyn Store>, leases: impl IntoIterator<Item = String>) -> Result<Self> {
        let holder = format!("{} transom-store", Uuid::new_v4());
        let mut held = Vec::new();
        for name in std::iter::once(KEY.to_owned()).chain(leases) {
            match acquire(&*store, &name, &holder).await {
                Ok(lease) => held.push(lease),
                Err(error) => {
                    release(&*store, &held).await;
                    return Err(error);
                }
            }
        }
        let lost = Arc::default();
        let renewal = tokio::spawn(renew(Arc::clone(&store), held.clone(), Arc::clone(&lost)));
        Ok(Self {
            store,
            leases: held,
            renewal,
            lost,
        })
    }

    /// Checks that no daemon holds `lease`, without any effect.
    ///
    /// # Errors
    /// [`Error::Led`].
    pub async fn check_free(store: &dyn Store, lease: &str) -> Result<()> {
        match call("reading a lease", store.lease(lease)).await? {
            Some(held) if !held.remaining().is_zero() => Err(led(held.name, &held.holder)),
            _ => Ok(()),
        }
    }

    /// The store. It rejects commits when one of the leases has ended, of which it can check the first 16
    /// ([`MAX_FENCES`]).
    pub fn store(&self) -> Arc<dyn Store> {
        let fences = self.leases.iter().take(MAX_FENCES);
        fences.fold(Arc::clone(&self.store), |store, lease| {
            Arc::new(Fenced::new(store, lease))
        })
    }

    /// Checks that all leases are held.
    ///
    /// # Errors
    /// [`Error::LeaseLost`].
    pub fn check(&self) -> Result<()> {
        match self.lost.get().cloned() {
            Some(lease) => Err(Error::LeaseLost { lease }),
            None => Ok(()),
        }
    }

    /// Releases the leases. One whose release fails expires.
    pub async fn release(mut self) {
        self.renewal.abort();
        let _ = (&mut self.renewal).await;
        release(&*self.store, &self.leases).await;
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

fn led(lease: String, holder: &str) -> Error {
    let address = holder.split_once(' ').map_or(holder, |(_, address)| address);
    Error::Led {
        lease,
        holder: address.to_owned(),
    }
}

async fn acquire(store: &dyn Store, name: &str, holder: &str) -> Result<Lease> {
    match typed::with_timeout(super::TIMEOUT, store.acquire(name, holder, TTL)).await {
        Err(typed::Error::Store(crate::Error::Held { remaining, .. })) if name == KEY => {
            Err(Error::Busy { remaining })
        }
        Err(typed::Error::Store(crate::Error::Held { lease, holder, .. })) => Err(led(lease, &holder)),
        acquired => acquired.map_err(Error::of("acquiring a lease")),
    }
}

/// Renews the leases until one of them cannot be renewed.
async fn renew(store: Arc<dyn Store>, leases: Vec<Lease>, lost: Arc<OnceLock<String>>) {
    loop {
        tokio::time::sleep(TTL / 3).await;
        for lease in &leases {
            if call("renewing a lease", store.renew(lease)).await.is_err() {
                let _ = lost.set(lease.name.clone());
                return;
            }
        }
    }
}

async fn release(store: &dyn Store, leases: &[Lease]) {
    // The lease `KEY` last, so that no other command begins before.
    for lease in leases.iter().rev() {
        let _ = call("releasing a lease", store.release(lease)).await;
    }
}
