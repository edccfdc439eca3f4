//! The subscription: made, kept, and made again. Runs as a task of its own and hands what it gets to the
//! actor, in order; while the actor takes nothing, nothing more is read.
//!
//! The framework's id is read from the store before each subscription and written, before the actor hears of
//! the subscription, when the cluster gives a new one. "Framework has been removed" (it was away for longer
//! than its failover timeout) makes the next registration a fresh one: its tasks are dead by then, and
//! reconciliation says so.
//!
//! When ZooKeeper names another leader, the subscription moves there at once, and so does one that is being
//! waited for: a leader that is news is worth a try without delay.

use std::fmt::Write as _;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::scheduler::{Event, Stream, Subscribed};
use transom_cluster::v1::{CapabilityType, FrameworkInfo};
use transom_cluster::{Caller, Client, Error, FrameworkId};

use crate::Config;
use crate::ledger::{Identity, conflict};
use crate::metrics::Metrics;
use crate::retry::Backoff;

/// What the actor gets.
#[derive(Debug)]
pub(crate) enum News {
    Up(Box<Up>),
    Event(Box<Event>),
    Down,
}

/// A new subscription.
pub(crate) struct Up {
    pub(crate) caller: Caller,
    pub(crate) framework_id: FrameworkId,
    /// The cluster gave this id just now.
    pub(crate) fresh: bool,
    pub(crate) master: Option<String>,
    pub(crate) home_region: Option<String>,
}

impl std::fmt::Debug for Up {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Up")
            .field("framework_id", &self.framework_id)
            .field("fresh", &self.fresh)
            .finish_non_exhaustive()
    }
}

/// The subscription's owner.
pub(crate) struct Link {
    pub(crate) cluster: Client,
    pub(crate) framework: FrameworkInfo,
    pub(crate) identity: Identity,
    pub(crate) reconnect: Backoff,
    pub(crate) metrics: Metrics,
    pub(crate) news: mpsc::Sender<News>,
}

/// How a session ended.
enum End {
    /// Before or after it was up, for a reason worth another try.
    Broken { was_up: bool },
    /// Another master leads.
    Moved,
    /// The cluster has removed the framework.
    Removed,
    /// Somebody else subscribed with our id.
    TakenOver,
    /// Nobody takes the news any more.
    Over,
}

/// Adds what this scheduler understands, and the defaults.
pub(crate) fn complete(mut info: FrameworkInfo) -> FrameworkInfo {
    let understood = [
        CapabilityType::PartitionAware,
        CapabilityType::TaskKillingState,
        CapabilityType::MultiRole,
        CapabilityType::ReservationRefinement,
        CapabilityType::RegionAware,
    ];
    for capability in understood {
        if !info.can(&capability) {
            info.capabilities.push(capability.into());
        }
    }
    if info.roles.is_empty() {
        info.roles
            .push(info.role.take().unwrap_or_else(|| "*".to_owned()));
    }
    info.role = None;
    info.checkpoint.get_or_insert(true);
    info.failover_timeout
        .get_or_insert(Config::FAILOVER.as_secs_f64());
    info
}

impl Link {
    /// Until cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let mut attempt = 0;
        let mut leaders = self.cluster.leader_changes();
        loop {
            let end = tokio::select! {
                () = token.cancelled() => return,
                end = self.session() => end,
            };
            match end {
                End::Over => return,
                End::Removed => tracing::warn!("the cluster has removed this framework; registering afresh"),
                End::TakenOver => {
                    tracing::error!(
                        "somebody else subscribed with this framework's id: is a second daemon running?"
                    );
                    attempt = u32::MAX;
                }
                End::Moved => {
                    attempt = 0;
                    continue;
                }
                End::Broken { was_up: true } => attempt = 0,
                End::Broken { was_up: false } => {}
            }
            let wait = self.reconnect.jittered(attempt);
            attempt = attempt.saturating_add(1);
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                leader = leaders.next() => {
                    tracing::info!(%leader, "another master leads; subscribing with it");
                    attempt = 0;
                }
            }
        }
    }

    /// One subscription, from reading the id to its end; the actor gets `Down` for each `Up`.
    async fn session(&mut self) -> End {
        let known = match self.identity.read().await {
            Ok(known) => known,
            Err(error) => {
                self.metrics.store_failures.inc();
                let framework = &self.framework.name;
                tracing::warn!(framework, error = chain(&error), "cannot subscribe");
                return End::Broken { was_up: false };
            }
        };
        self.framework.id = known.as_ref().map(|(id, _)| id.clone());
        let subscription = match self.cluster.subscribe(&self.framework).await {
            Ok(subscription) => subscription,
            Err(error) if error.is_transient() => {
                let framework = &self.framework.name;
                tracing::warn!(framework, error = chain(&error), "cannot subscribe");
                return End::Broken { was_up: false };
            }
            // Whoever started this scheduler is about to stop it.
            Err(Error::NotFrameworkLeader { .. }) => return End::Broken { was_up: false },
            // A master that is too old, credentials it does not accept: somebody has to do something.
            Err(error) => {
                let framework = &self.framework.name;
                tracing::error!(framework, error = chain(&error), "cannot subscribe");
                return End::Broken { was_up: false };
            }
        };
        let version = known.map(|(_, version)| version);
        let mut up = false;
        let end = self
            .follow(&subscription.caller, subscription.events, version, &mut up)
            .await;
        if up && self.news.send(News::Down).await.is_err() {
            return End::Over;
        }
        end
    }

    async fn follow(
        &mut self,
        caller: &Caller,
        mut events: Stream,
        version: Option<u64>,
        up: &mut bool,
    ) -> End {
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => {
                    tracing::info!("the master ended the subscription");
                    return End::Broken { was_up: *up };
                }
                // One event that cannot be read; the stream goes on.
                Err(error @ (Error::Decode { .. } | Error::Incomplete { .. })) => {
                    tracing::error!(error = chain(&error), "an event of the cluster was skipped");
                    continue;
                }
                Err(error @ Error::LeaderMoved { .. }) => {
                    tracing::info!(error = chain(&error), "the subscription moves");
                    return End::Moved;
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "the subscription broke");
                    return End::Broken { was_up: *up };
                }
            };
            let news = match event {
                Event::Subscribed(subscribed) => match self.subscribed(caller, subscribed, version).await {
                    Some(news) => {
                        *up = true;
                        news
                    }
                    None => return End::Broken { was_up: false },
                },
                Event::Error(message) => return self.refused(&message, version).await,
                event => News::Event(Box::new(event)),
            };
            if self.news.send(news).await.is_err() {
                return End::Over;
            }
        }
    }

    /// Stores a new id before anything is done under it.
    async fn subscribed(
        &mut self,
        caller: &Caller,
        subscribed: Subscribed,
        version: Option<u64>,
    ) -> Option<News> {
        let id = subscribed.framework_id;
        let fresh = self.framework.id.as_ref() != Some(&id);
        if fresh {
            self.keep(&id, version).await?;
            self.metrics.fresh_registrations.inc();
        }
        self.metrics.subscriptions.inc();
        caller.set_framework_id(id.clone());
        let master = subscribed.master_info;
        let domain = master
            .as_ref()
            .and_then(|master| master.domain.as_ref()?.fault_domain.as_ref());
        let home_region = domain.map(|domain| domain.region.name.clone());
        let master = master.and_then(|master| {
            let host = master
                .hostname
                .or_else(|| master.address.as_ref()?.hostname.clone())?;
            let port = master
                .port
                .or_else(|| master.address.as_ref().map(|address| address.port));
            Some(port.map_or_else(|| host.clone(), |port| format!("{host}:{port}")))
        });
        tracing::info!(framework = %id, fresh, master = master.as_deref().unwrap_or("?"), "subscribed");
        Some(News::Up(Box::new(Up {
            caller: caller.clone(),
            framework_id: id,
            fresh,
            master,
            home_region,
        })))
    }

    /// Writes a new id, again and again: giving up would leave a framework behind that nobody knows. `None`
    /// when somebody else wrote one.
    async fn keep(&self, id: &FrameworkId, version: Option<u64>) -> Option<()> {
        let mut attempt = 0;
        while let Err(error) = self.identity.write(id, version).await {
            self.metrics.store_failures.inc();
            tracing::warn!(error = chain(&error), framework = %id, "the new framework id could not be stored");
            if conflict(&error) {
                return None;
            }
            tokio::time::sleep(self.reconnect.jittered(attempt)).await;
            attempt = attempt.saturating_add(1);
        }
        Some(())
    }

    /// The master says ERROR and ends the subscription. Its texts are all there is to tell the cases apart.
    async fn refused(&self, message: &str, version: Option<u64>) -> End {
        tracing::warn!(message, "the master refused the subscription");
        if message.contains("Framework failed over") {
            return End::TakenOver;
        }
        let removed = message.contains("Framework has been removed");
        if let (true, Some(version)) = (removed, version) {
            if let Err(error) = self.identity.remove(version).await {
                self.metrics.store_failures.inc();
                tracing::warn!(
                    error = chain(&error),
                    "the removed framework's id is still in the store"
                );
            }
            return End::Removed;
        }
        End::Broken { was_up: false }
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_the_framework_without_overriding_the_job() {
        let info = FrameworkInfo {
            role: Some("prod".to_owned()),
            ..FrameworkInfo::default()
        };
        let completed = complete(info);
        assert_eq!(
            (completed.role.clone(), completed.roles.clone()),
            (None, vec!["prod".to_owned()])
        );
        assert_eq!(
            (completed.checkpoint, completed.failover_timeout),
            (Some(true), Some(604_800.0))
        );
        for capability in [
            CapabilityType::PartitionAware,
            CapabilityType::TaskKillingState,
            CapabilityType::MultiRole,
        ] {
            assert!(completed.can(&capability));
        }
        assert_eq!(complete(completed.clone()), completed);

        let own = FrameworkInfo {
            roles: vec!["a".to_owned(), "b".to_owned()],
            failover_timeout: Some(4.0),
            checkpoint: Some(false),
            capabilities: vec![CapabilityType::GpuResources.into()],
            ..FrameworkInfo::default()
        };
        let completed = complete(own.clone());
        assert_eq!(
            (completed.roles.clone(), completed.failover_timeout),
            (own.roles, Some(4.0))
        );
        assert_eq!(completed.checkpoint, Some(false));
        assert!(completed.can(&CapabilityType::GpuResources));
        assert_eq!(complete(FrameworkInfo::default()).roles, ["*"]);
    }
}
