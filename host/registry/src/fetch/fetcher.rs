//! The task that fetches components, and its handle.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    image_cache::ImageCache,
    metrics::FetchMetrics,
    pull::{FetchRequest, Puller},
    schedule::{FetchOutcome, FetchSchedule, FetchState, FetchTask, RetryPolicy},
    status::SourceStatus,
};
use crate::{
    artifacts::ArtifactStore,
    error::Error,
    network::Reserved,
    oci::{FetchError, Fetched, Image},
    settings::Registries,
    signatures::Trust,
};

/// Maximum number of concurrent fetches.
const MAX_CONCURRENT_FETCHES: usize = 4;

/// Handle of the fetch task. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sources(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    schedule: Mutex<FetchSchedule>,
    puller: Puller,
    trust: Arc<Trust>,
    metrics: FetchMetrics,
    refresh: Duration,
    timeout: Duration,
    /// Wakes the fetcher when a fetch is due.
    fetch_due: Notify,
    /// Wakes the task of the plugin directory when a fetch has succeeded or failed.
    updated: Notify,
}

impl Sources {
    /// Reads the certificate authorities. Nothing is fetched before [`Sources::run`].
    pub async fn open(
        registries: Registries,
        reserved: Reserved,
        artifacts: ArtifactStore,
        trust: Arc<Trust>,
        metrics: FetchMetrics,
    ) -> Result<Sources, Error> {
        let (refresh, timeout) = (registries.refresh, registries.timeout);
        let puller = {
            let (trust, image_cache) = (Arc::clone(&trust), ImageCache::new(artifacts));
            tokio::task::spawn_blocking(move || {
                Puller::new(Arc::new(registries), reserved, image_cache, trust)
            })
            .await
            .map_err(|_| Error::Panicked)??
        };
        Ok(Sources(Arc::new(Shared {
            schedule: Mutex::default(),
            puller,
            trust,
            metrics,
            refresh,
            timeout,
            fetch_due: Notify::new(),
            updated: Notify::new(),
        })))
    }

    /// Returns the state of a plugin's component. For a new request, it loads an earlier image from
    /// the cache and schedules a fetch. It never waits for a registry.
    pub async fn request(&self, name: &str, request: FetchRequest) -> FetchState {
        if !self.schedule().is_current(name, &request) {
            let scheduled = self.schedule().fetched_from(name, &request);
            let previous = match scheduled {
                Some(scheduled) => Some(scheduled),
                None => self.0.puller.image_cache().last_admitted(&request.source).await,
            };
            let is_settled = request.source.digest().is_some()
                && previous.as_ref().is_some_and(|it| {
                    self.has_valid_signature(it) && it.component.len() as u64 <= request.limit
                });
            let due = (!is_settled).then(Instant::now);
            self.schedule().set_request(name, request, previous, due);
            self.0.fetch_due.notify_one();
        }
        self.schedule().state(name)
    }

    /// Records an admitted image, which a restarted daemon uses until the registry answers.
    pub async fn admitted(&self, image: &Image) {
        self.0.puller.image_cache().admitted(image).await;
    }

    /// Whether the image has a valid signature, or needs none.
    fn has_valid_signature(&self, fetched: &Fetched) -> bool {
        !self.0.trust.is_enabled() || self.0.trust.of_image(&fetched.image).is_ok()
    }

    /// Forgets a removed plugin and its metrics.
    pub fn removed(&self, name: &str) {
        self.forget(name);
        self.0.metrics.forget(name);
    }

    /// Forgets the source of a plugin that has none any more.
    pub fn forget(&self, name: &str) {
        self.schedule().forget(name);
    }

    /// Forgets all other plugins.
    pub fn keep_only(&self, names: &BTreeSet<String>) {
        self.schedule().keep_only(|name| names.contains(name));
    }

    /// Schedules all tags and failed fetches again. Does not wait.
    pub fn refresh(&self) {
        self.schedule().refresh(Instant::now());
        self.0.fetch_due.notify_one();
    }

    /// The state of a plugin's source; none if it has none.
    pub fn status(&self, name: &str) -> Option<SourceStatus> {
        self.schedule().status(name)
    }

    /// The plugins with a source.
    pub fn names(&self) -> Vec<String> {
        self.schedule().names().cloned().collect()
    }

    /// Returns when a fetch has succeeded or failed since the last return.
    pub async fn updated(&self) {
        self.0.updated.notified().await;
    }

    /// Fetches until the daemon stops, which cancels running fetches.
    pub async fn run(self, token: CancellationToken) {
        let mut running = JoinSet::new();
        let work = async {
            loop {
                let now = Instant::now();
                let free = MAX_CONCURRENT_FETCHES.saturating_sub(running.len());
                let (tasks, next) = self.schedule().due(now, free);
                for task in tasks {
                    running.spawn(self.clone().fetch(task));
                }
                let next = next.unwrap_or(now + self.0.refresh);
                tokio::select! {
                    () = self.0.fetch_due.notified() => {}
                    () = tokio::time::sleep_until(next.into()) => {}
                    // A fetch records its own result.
                    Some(_) = running.join_next() => {}
                }
            }
        };
        token.run_until_cancelled(work).await;
        running.shutdown().await;
    }

    async fn fetch(self, task: FetchTask) {
        // Spawned separately, so that a panic ends only this fetch.
        let pulled = {
            let (puller, request, previous) =
                (self.0.puller.clone(), task.request.clone(), task.previous.clone());
            let mut fetches = JoinSet::new();
            fetches.spawn(async move { puller.pull(&request, previous).await });
            match tokio::time::timeout(self.0.timeout, fetches.join_next()).await {
                Err(_elapsed) => Err(FetchError::TimedOut(self.0.timeout)),
                Ok(Some(Ok(result))) => result,
                Ok(_) => Err(FetchError::Panicked),
            }
        };
        self.record_result(&task, pulled);
    }

    fn record_result(&self, task: &FetchTask, pulled: Result<Fetched, FetchError>) {
        let name = task.name.as_str();
        let source = task.request.source.to_string();
        self.0.metrics.fetched(name, pulled.is_ok());
        let result = pulled.map(|it| {
            let is_complete = self.has_valid_signature(&it);
            (it, is_complete)
        });
        let policy = RetryPolicy {
            refresh: self.0.refresh,
            spread: rand::random_range(0.5..=1.0),
        };
        let outcome = self
            .schedule()
            .finish(task, result, &policy, Instant::now(), seconds_now());
        match &outcome {
            FetchOutcome::Changed { digest } => {
                tracing::info!(plugin = name, source, digest, "component fetched");
            }
            FetchOutcome::Recovered => tracing::info!(plugin = name, source, "source available again"),
            FetchOutcome::Failed(error) if task.previous.is_some() => {
                tracing::warn!(
                    plugin = name,
                    source,
                    "component refresh failed, keeping the fetched one: {error}"
                );
            }
            FetchOutcome::Failed(error) => {
                tracing::warn!(plugin = name, source, "component fetch failed: {error}");
            }
            FetchOutcome::Unchanged => return,
        }
        self.0.updated.notify_one();
    }

    fn schedule(&self) -> MutexGuard<'_, FetchSchedule> {
        self.0.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970.
fn seconds_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
