//! A store that adds a fence to every commit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Batch, Durability, Entry, Lease, Result, Store, Watch};

/// A view of a store for the holder of a lease. Every batch that is committed through it is
/// rejected with [`Error::Fenced`](crate::Error::Fenced) once the lease is no longer held under
/// that number, so code that knows nothing of leases cannot write after another holder has taken
/// over. Reads are not fenced.
#[derive(Clone, Debug)]
pub struct Fenced {
    store: Arc<dyn Store>,
    lease: String,
    fencing: u64,
}

impl Fenced {
    /// The view of `store` for the holder of `lease`. A renewal keeps the number, so the view is
    /// valid for as long as the lease is held.
    pub fn new(store: Arc<dyn Store>, lease: &Lease) -> Self {
        Self {
            store,
            lease: lease.name.clone(),
            fencing: lease.fencing,
        }
    }
}

#[async_trait]
impl Store for Fenced {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.store.get(key).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        self.store.scan(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        self.store.commit(batch.fenced(&self.lease, self.fencing)).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        self.store.acquire(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        self.store.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.store.release(lease).await
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        self.store.lease(name).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.store.watch(prefix).await
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }
}
