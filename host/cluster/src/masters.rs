//! The masters to try, from a list or from ZooKeeper, and their order.

use crate::config::{Config, Source};
use crate::detector::{Changes, Detector, Master, Registrations};
use crate::error::{Error, Result};
use crate::http::address;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use url::Url;

/// The masters to try. Cloning is cheap; clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Masters {
    source: MasterSource,
    /// The index of the one that worked last: within the list, or among the leader's own addresses.
    preferred: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
enum MasterSource {
    List(Arc<[Url]>),
    /// ZooKeeper, and the masters to try until it has named one.
    ZooKeeper(Detector, Arc<[Url]>),
}

/// The timeout for ZooKeeper's first leader where other masters can be tried meanwhile.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_millis(500);

/// The masters to try now.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// The URLs in order, each with its number for [`Masters::set_preferred`].
    pub(crate) urls: Vec<(usize, Url)>,
    /// Changes of the leader since this list was made.
    pub(crate) changes: Option<Changes>,
}

/// The order of a list's masters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// The master that worked last comes first.
    LastWorkingFirst,
    /// As listed: the first master is expected to lead.
    AsListed,
}

impl Masters {
    /// Checks the configuration; starts the detector if it names ZooKeeper.
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let source = match config.source()? {
            Source::Listed(urls) => MasterSource::List(urls.into()),
            Source::ZooKeeper(zookeeper, fallback) => MasterSource::ZooKeeper(
                match &config.detected {
                    Some(views) => Detector::detected(zookeeper, views.clone()),
                    None => Detector::start(zookeeper, config.zookeeper_timeout)?,
                },
                fallback.into(),
            ),
        };
        Ok(Self {
            source,
            preferred: Arc::default(),
        })
    }

    fn detector(&self) -> Option<&Detector> {
        match &self.source {
            MasterSource::List(_) => None,
            MasterSource::ZooKeeper(detector, _) => Some(detector),
        }
    }

    /// The masters to try. From ZooKeeper: the leader, then the others, which may know of a change
    /// earlier. While none is known, waits for the first one, for at most the connection timeout.
    pub(crate) async fn candidates(&self, config: &Config, order: Order) -> Result<Candidates> {
        let preferred = match order {
            Order::LastWorkingFirst => self.preferred.load(Ordering::Relaxed),
            Order::AsListed => 0,
        };
        match &self.source {
            MasterSource::List(urls) => {
                let urls = rotated_to(preferred, urls.to_vec());
                Ok(Candidates { urls, changes: None })
            }
            MasterSource::ZooKeeper(detector, fallback) => {
                let timeout = if fallback.is_empty() {
                    config.connect_timeout
                } else {
                    FIRST_LEADER_TIMEOUT
                };
                let view = match detector.masters(timeout).await {
                    Ok(view) => view,
                    Err(error) if fallback.is_empty() => return Err(error),
                    Err(_) => {
                        return Ok(Candidates {
                            urls: rotated_to(preferred, fallback.to_vec()),
                            changes: Some(detector.changes_since(&detector.view())),
                        });
                    }
                };
                let mut masters = view.masters.iter();
                let leader_urls = masters.next().map(|first| first.urls(config.scheme()));
                let mut urls = rotated_to(preferred, leader_urls.unwrap_or_default());
                let other_urls = masters.flat_map(|master| master.urls(config.scheme()));
                urls.extend(other_urls.map(|url| (0, url)));
                Ok(Candidates {
                    urls,
                    changes: Some(detector.changes_since(&view)),
                })
            }
        }
    }

    /// Makes this master the first to try next time.
    pub(crate) fn set_preferred(&self, number: usize) {
        self.preferred.store(number, Ordering::Relaxed);
    }

    pub(crate) fn follow_zookeeper(&self) -> bool {
        self.detector().is_some()
    }

    pub(crate) fn leader(&self) -> Option<Arc<Master>> {
        self.detector()?.view().leader().cloned()
    }

    pub(crate) fn registered(&self) -> Vec<Arc<Master>> {
        self.detector()
            .map(|detector| detector.view().masters.clone())
            .unwrap_or_default()
    }

    pub(crate) fn changes(&self) -> LeaderChanges {
        LeaderChanges(
            self.detector()
                .map(|detector| detector.changes_since(&detector.view())),
        )
    }

    pub(crate) fn registrations(&self) -> MasterChanges {
        MasterChanges(self.detector().map(Detector::registrations))
    }

    pub(crate) async fn close(&self) {
        if let Some(detector) = self.detector() {
            detector.close().await;
        }
    }
}

/// Numbers the URLs and rotates them so that this number comes first.
fn rotated_to(number: usize, urls: Vec<Url>) -> Vec<(usize, Url)> {
    let mut urls: Vec<_> = urls.into_iter().enumerate().collect();
    let first = number.checked_rem(urls.len()).unwrap_or_default();
    urls.rotate_left(first);
    urls
}

impl Candidates {
    /// The error after all of them have failed.
    pub(crate) fn failed(&self, last: Option<Error>) -> Error {
        match last {
            Some(source) if self.urls.len() > 1 => {
                let masters: Vec<_> = self.urls.iter().map(|(_, url)| address(url)).collect();
                Error::NoMaster {
                    masters: masters.join(", "),
                    source: Box::new(source),
                }
            }
            Some(error) => error,
            None => Error::Config {
                what: "no master is configured; expected host:port".to_owned(),
            },
        }
    }
}

/// Changes of the leading master, from ZooKeeper.
#[derive(Clone, Debug)]
pub struct LeaderChanges(Option<Changes>);

impl LeaderChanges {
    /// Waits for the next leader. Never returns when the masters are listed, or when the client was
    /// closed. Dropping this future loses no change.
    pub async fn next(&mut self) -> Arc<Master> {
        match &mut self.0 {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        }
    }
}

/// Changes of the registered masters, from ZooKeeper; the leader may stay the same.
#[derive(Clone, Debug)]
pub struct MasterChanges(Option<Registrations>);

impl MasterChanges {
    /// Waits for the next list of masters, the leader first. Never returns when the masters are
    /// listed, or when the client was closed. Dropping this future loses no change.
    pub async fn next(&mut self) -> Vec<Arc<Master>> {
        match &mut self.0 {
            Some(registrations) => registrations.next().await,
            None => std::future::pending().await,
        }
    }
}
