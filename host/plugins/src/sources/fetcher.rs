//! The task that fetches, and the handle that asks it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Registries,
    book::{Book, Errand, Found, News, Pauses},
    fetch_error::FetchError,
    image::{Fetched, Image},
    pantry::Pantry,
    pull::{Puller, Wish},
};
use crate::{error::Error, lanes::aside, metrics::Metrics, reserved::Reserved, status, trust::Trust};

/// Fetched at the same time.
const AT_ONCE: usize = 4;

/// The components that are fetched. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Sources(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    puller: Puller,
    trust: Arc<Trust>,
    metrics: Metrics,
    refresh: Duration,
    timeout: Duration,
    /// For the fetcher: something is due.
    due: Notify,
    /// For the directory: something came, or could not be had.
    news: Notify,
}

impl Sources {
    pub(crate) async fn open(
        registries: Registries,
        reserved: Reserved,
        pantry: Pantry,
        trust: Arc<Trust>,
        metrics: Metrics,
    ) -> Result<Sources, Error> {
        let (refresh, timeout) = (registries.refresh, registries.timeout);
        let puller = {
            let trust = Arc::clone(&trust);
            aside(move || Puller::new(Arc::new(registries), reserved, pantry, trust))
                .await
                .map_err(|_| Error::Broke)??
        };
        Ok(Sources(Arc::new(Inner {
            book: Mutex::default(),
            puller,
            trust,
            metrics,
            refresh,
            timeout,
            due: Notify::new(),
            news: Notify::new(),
        })))
    }

    /// What there is of a plugin's component. What is not there is fetched from now on; what was fetched earlier is taken from the disk, and
    /// nothing waits for a registry.
    pub(crate) async fn want(&self, name: &str, wish: Wish) -> Found {
        if !self.book().has(name, &wish) {
            let known = self.book().of_same_source(name, &wish);
            let have = match known {
                Some(known) => Some(known),
                None => self.0.puller.pantry().last(&wish.source).await,
            };
            let settled = wish.source.digest().is_some()
                && have
                    .as_ref()
                    .is_some_and(|it| self.complete(it) && it.component.len() as u64 <= wish.limit);
            let due = (!settled).then(Instant::now);
            self.book().wish(name, wish, have, due);
            self.0.due.notify_one();
        }
        self.book().found(name)
    }

    /// An image was admitted: a daemon that starts begins with that one, until the registry says what the source is then.
    pub(crate) async fn admitted(&self, image: &Image) {
        self.0.puller.pantry().admitted(image).await;
    }

    /// Whether nothing is missing that may come later.
    fn complete(&self, fetched: &Fetched) -> bool {
        !self.0.trust.looks() || self.0.trust.of_image(&fetched.image).is_ok()
    }

    /// The plugin is from elsewhere.
    pub(crate) fn forget(&self, name: &str) {
        self.book().forget(name);
    }

    /// No others are in the directory any more.
    pub(crate) fn keep_only(&self, names: &BTreeSet<String>) {
        self.book().keep_only(|name| names.contains(name));
    }

    /// Asks for all tags again, and for what could not be had. Returns at once.
    pub(crate) fn refresh(&self) {
        self.book().refresh(Instant::now());
        self.0.due.notify_one();
    }

    pub(crate) fn status(&self, name: &str) -> Option<status::Source> {
        self.book().status(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.book().names().cloned().collect()
    }

    /// Returns when something came, or could not be had, since it returned last.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Fetches until the daemon stops; what is underway then is dropped.
    pub(crate) async fn run(self, token: CancellationToken) {
        let mut underway = JoinSet::new();
        let work = async {
            loop {
                let now = Instant::now();
                let free = AT_ONCE.saturating_sub(underway.len());
                let (errands, next) = self.book().due(now, free);
                for errand in errands {
                    underway.spawn(self.clone().fetch(errand));
                }
                let next = next.unwrap_or(now + self.0.refresh);
                tokio::select! {
                    () = self.0.due.notified() => {}
                    () = tokio::time::sleep_until(next.into()) => {}
                    // A fetch says itself how it ended.
                    Some(_) = underway.join_next() => {}
                }
            }
        };
        token.run_until_cancelled(work).await;
        underway.shutdown().await;
    }

    async fn fetch(self, errand: Errand) {
        // Spawned apart, so that a mistake in there ends it alone.
        let pulled = {
            let (puller, wish, have) = (self.0.puller.clone(), errand.wish.clone(), errand.have.clone());
            let mut one = JoinSet::new();
            one.spawn(async move { puller.pull(&wish, have).await });
            match tokio::time::timeout(self.0.timeout, one.join_next()).await {
                Err(_elapsed) => Err(FetchError::TimedOut(self.0.timeout)),
                Ok(Some(Ok(result))) => result,
                Ok(_) => Err(FetchError::Broke),
            }
        };
        self.settle(&errand, pulled);
    }

    fn settle(&self, errand: &Errand, pulled: Result<Fetched, FetchError>) {
        let name = errand.name.as_str();
        let source = errand.wish.source.to_string();
        self.0.metrics.fetched(name, pulled.is_ok());
        let result = pulled.map(|it| {
            let complete = self.complete(&it);
            (it, complete)
        });
        let pauses = Pauses {
            refresh: self.0.refresh,
            spread: rand::random_range(0.5..=1.0),
        };
        let news = self.book().done(errand, result, &pauses, Instant::now());
        match &news {
            News::Came { digest } => tracing::info!(plugin = name, source, digest, "component fetched"),
            News::Recovered => tracing::info!(plugin = name, source, "the source answers again"),
            News::Failed(error) if errand.have.is_some() => {
                tracing::warn!(
                    plugin = name,
                    source,
                    "not fetched again, what was fetched earlier stays: {error}"
                );
            }
            News::Failed(error) => tracing::warn!(plugin = name, source, "not fetched: {error}"),
            News::None => return,
        }
        self.0.news.notify_one();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
