//! A store that measures its operations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::{Batch, Durability, Entry, Error, Lease, Result, Store, Watch};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

transom_common::metrics! {
    /// The metrics of a store.
    struct Metrics {
        seconds: Family<OperationLabel, Histogram, fn() -> Histogram> = Family::new_with_constructor(durations)
            => "transom_store_operation_seconds",
            "Time that an operation of the state store took, also if it failed";
        errors: Family<OperationLabel, Counter>
            => "transom_store_errors",
            "Operations that the state store did not execute: it was unavailable or rejected them";
    }
}

/// Passes every operation on to a store, and exports durations and errors.
///
/// A conflict, a lease that another daemon holds and a fenced write are regular results and do not
/// count as errors.
#[derive(Debug)]
pub struct Measured {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

/// A histogram with buckets from a quarter of a millisecond to about eight seconds.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

impl Measured {
    /// Registers the metrics of `store` in `registry`.
    pub fn new(store: Arc<dyn Store>, registry: &mut Registry) -> Self {
        let metrics = Metrics::registered(registry);
        // The series exist from the start, so that the first error is an increase.
        for operation in ["get", "scan", "commit", "lease", "watch"] {
            drop(metrics.errors.get_or_create(&OperationLabel { operation }));
        }
        Self { store, metrics }
    }

    async fn measure<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let began = Instant::now();
        let result = call.await;
        let label = OperationLabel { operation };
        let seconds = self.metrics.seconds.get_or_create_owned(&label);
        seconds.observe(began.elapsed().as_secs_f64());
        if let Err(error) = &result
            && !matches!(
                error,
                Error::Conflict { .. } | Error::Held { .. } | Error::Fenced { .. }
            )
        {
            self.metrics.errors.get_or_create(&label).inc();
        }
        result
    }
}

#[async_trait]
impl Store for Measured {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.measure("get", self.store.get(key)).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        self.measure("scan", self.store.scan(prefix)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        self.measure("commit", self.store.commit(batch)).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        self.measure("lease", self.store.acquire(name, holder, ttl)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        self.measure("lease", self.store.renew(lease)).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.measure("lease", self.store.release(lease)).await
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        self.measure("lease", self.store.lease(name)).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.measure("watch", self.store.watch(prefix)).await
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::Expect;

    /// A store that is unavailable.
    #[derive(Debug)]
    struct UnavailableStore;

    #[async_trait]
    impl Store for UnavailableStore {
        async fn get(&self, _: &str) -> Result<Option<Entry>> {
            Err(Error::Closed)
        }

        async fn scan(&self, _: &str) -> Result<Vec<Entry>> {
            Err(Error::Closed)
        }

        async fn commit(&self, _: Batch) -> Result<Vec<u64>> {
            Err(Error::Closed)
        }
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[tokio::test]
    async fn operations_are_timed_and_conflicts_are_not_errors() {
        let folder = tempfile::tempdir().unwrap();
        let server = format!("file:{}", folder.path().display());
        let mut registry = Registry::default();
        let store = Measured::new(crate::open(&server).await.unwrap(), &mut registry);
        store.put("a", Bytes::new(), Expect::Absent).await.unwrap();
        assert!(store.put("a", Bytes::new(), Expect::Absent).await.is_err());
        assert!(store.get("a").await.unwrap().is_some());
        assert_eq!(store.durability(), Durability::Synced);
        let text = text(&registry);
        for series in [
            "transom_store_operation_seconds_count{operation=\"commit\"} 2\n",
            "transom_store_operation_seconds_count{operation=\"get\"} 1\n",
            "transom_store_errors_total{operation=\"commit\"} 0\n",
        ] {
            assert!(text.contains(series), "{series} is not in {text}");
        }
    }

    #[tokio::test]
    async fn operations_of_an_unavailable_store_are_errors() {
        let mut registry = Registry::default();
        let store = Measured::new(Arc::new(UnavailableStore), &mut registry);
        assert!(store.put("a", Bytes::new(), Expect::Any).await.is_err());
        let text = text(&registry);
        assert!(
            text.contains("transom_store_errors_total{operation=\"commit\"} 1\n"),
            "{text}"
        );
    }
}
