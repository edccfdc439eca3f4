//! The subscription. Its own task establishes, keeps and renews it, and forwards the events to the
//! actor in order. While the actor accepts no events, none are read.
//!
//! The framework id is read from the store before each subscription. A new id from the master is
//! stored before the actor receives the subscription. After the error "Framework has been removed"
//! (it was disconnected for longer than the failover timeout), the next registration gets a new id.
//! The tasks have been killed by then, and reconciliation reports that.
//!
//! When ZooKeeper names another leading master, the subscription moves there immediately, without
//! waiting for a pending backoff.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::scheduler::{Event, Stream, Subscribed};
use transom_cluster::v1::{CapabilityType, FrameworkInfo};
use transom_cluster::{Caller, Client, Error, FrameworkId};
use transom_common::Backoff;
use transom_common::error_chain;

pub(crate) mod roles;

use crate::Config;
use crate::metrics::Metrics;
use crate::store::ledger::FrameworkIdStore;
use roles::AcceptedRoles;

/// An event for the actor.
#[derive(Debug)]
pub(crate) enum SubscriptionEvent {
    Subscribed(Box<NewSubscription>),
    Event(Box<Event>),
    Lost,
}

/// A new subscription.
pub(crate) struct NewSubscription {
    pub(crate) caller: Caller,
    pub(crate) framework_id: FrameworkId,
    /// The description that was subscribed with.
    pub(crate) framework: FrameworkInfo,
    /// Whether the master has just assigned this id.
    pub(crate) fresh: bool,
    pub(crate) master: Option<String>,
    pub(crate) home_region: Option<String>,
}

impl std::fmt::Debug for NewSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSubscription")
            .field("framework_id", &self.framework_id)
            .field("fresh", &self.fresh)
            .finish_non_exhaustive()
    }
}

/// The task that owns the subscription.
pub(crate) struct SubscriptionTask {
    pub(crate) cluster: Client,
    pub(crate) framework: FrameworkInfo,
    pub(crate) roles: AcceptedRoles,
    pub(crate) framework_id_store: FrameworkIdStore,
    pub(crate) reconnect: Backoff,
    pub(crate) metrics: Metrics,
    pub(crate) events: mpsc::Sender<SubscriptionEvent>,
}

/// The reason why a session ended.
enum SessionEnd {
    /// Failed or lost; worth another attempt.
    Broken { was_up: bool },
    /// Another master is leading.
    Moved,
    /// The master removed the framework.
    Removed,
    /// Another scheduler subscribed with this framework id.
    TakenOver,
    /// The actor has ended.
    ActorEnded,
}

/// Adds the capabilities of this scheduler, and the defaults.
pub(crate) fn complete(mut info: FrameworkInfo) -> FrameworkInfo {
    let supported = [
        CapabilityType::PartitionAware,
        CapabilityType::TaskKillingState,
        CapabilityType::MultiRole,
        CapabilityType::ReservationRefinement,
        CapabilityType::RegionAware,
    ];
    for capability in supported {
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

impl SubscriptionTask {
    /// Runs until cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let mut attempt = 0;
        let mut leaders = self.cluster.leader_changes();
        loop {
            let end = tokio::select! {
                biased;
                () = token.cancelled() => return,
                end = self.session() => end,
            };
            match end {
                SessionEnd::ActorEnded => return,
                SessionEnd::Removed => {
                    tracing::warn!("the master removed this framework; registering with a new id");
                }
                SessionEnd::TakenOver => {
                    tracing::error!(
                        "another scheduler subscribed with this framework id; check that no second daemon is running"
                    );
                    attempt = u32::MAX;
                }
                SessionEnd::Moved => {
                    attempt = 0;
                    continue;
                }
                SessionEnd::Broken { was_up: true } => attempt = 0,
                SessionEnd::Broken { was_up: false } => {}
            }
            let wait = self.reconnect.jittered(attempt);
            attempt = attempt.saturating_add(1);
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                leader = leaders.next() => {
                    tracing::info!(%leader, "leading master changed; resubscribing");
                    attempt = 0;
                }
            }
        }
    }

    /// Runs one subscription, from reading the id to its end. The actor receives one `Lost` for
    /// each `Subscribed`.
    async fn session(&mut self) -> SessionEnd {
        let stored = match self.framework_id_store.read().await {
            Ok(stored) => stored,
            Err(error) => {
                self.metrics.store_failures.inc();
                let framework = &self.framework.name;
                tracing::warn!(
                    framework,
                    error = error_chain(&error),
                    "subscription failed; retrying"
                );
                return SessionEnd::Broken { was_up: false };
            }
        };
        self.framework.id = stored.as_ref().map(|(id, _)| id.clone());
        self.framework.roles = self.roles.get();
        let subscription = match self.cluster.subscribe(&self.framework).await {
            Ok(subscription) => subscription,
            Err(error) if error.is_transient() => {
                let framework = &self.framework.name;
                tracing::warn!(
                    framework,
                    error = error_chain(&error),
                    "subscription failed; retrying"
                );
                return SessionEnd::Broken { was_up: false };
            }
            // This daemon is no longer the leader; the scheduler is about to be stopped.
            Err(Error::NotFrameworkLeader { .. }) => return SessionEnd::Broken { was_up: false },
            // A master that is too old, or rejected credentials: an operator has to act.
            Err(error) => {
                let framework = &self.framework.name;
                tracing::error!(
                    framework,
                    error = error_chain(&error),
                    "subscription failed; retrying"
                );
                return SessionEnd::Broken { was_up: false };
            }
        };
        let version = stored.map(|(_, version)| version);
        let mut is_up = false;
        let end = self
            .process_events(&subscription.caller, subscription.events, version, &mut is_up)
            .await;
        if is_up && self.events.send(SubscriptionEvent::Lost).await.is_err() {
            return SessionEnd::ActorEnded;
        }
        end
    }

    async fn process_events(
        &mut self,
        caller: &Caller,
        mut events: Stream,
        version: Option<u64>,
        is_up: &mut bool,
    ) -> SessionEnd {
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => {
                    tracing::info!("subscription closed by the master; resubscribing");
                    return SessionEnd::Broken { was_up: *is_up };
                }
                // One malformed event does not end the stream.
                Err(error @ (Error::Decode { .. } | Error::Incomplete { .. })) => {
                    tracing::error!(error = error_chain(&error), "malformed event skipped");
                    continue;
                }
                Err(error @ Error::LeaderMoved { .. }) => {
                    tracing::info!(
                        error = error_chain(&error),
                        "subscription moves to the new leading master"
                    );
                    return SessionEnd::Moved;
                }
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "subscription lost; resubscribing");
                    return SessionEnd::Broken { was_up: *is_up };
                }
            };
            let actor_event = match event {
                Event::Subscribed(subscribed) => match self.subscribed(caller, subscribed, version).await {
                    Some(actor_event) => {
                        *is_up = true;
                        actor_event
                    }
                    None => return SessionEnd::Broken { was_up: false },
                },
                Event::Error(message) => return self.on_error_event(&message, version).await,
                event => SubscriptionEvent::Event(Box::new(event)),
            };
            if self.events.send(actor_event).await.is_err() {
                return SessionEnd::ActorEnded;
            }
        }
    }

    /// Handles the subscription, and stores a new id before it is used.
    async fn subscribed(
        &mut self,
        caller: &Caller,
        subscribed: Subscribed,
        version: Option<u64>,
    ) -> Option<SubscriptionEvent> {
        let id = subscribed.framework_id;
        let fresh = self.framework.id.as_ref() != Some(&id);
        if fresh {
            self.store_framework_id(&id, version).await?;
            self.metrics.framework_registrations.inc();
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
        Some(SubscriptionEvent::Subscribed(Box::new(NewSubscription {
            caller: caller.clone(),
            framework_id: id,
            framework: self.framework.clone(),
            fresh,
            master,
            home_region,
        })))
    }

    /// Stores a new id, with retries, because otherwise an unknown framework would be left at the
    /// master. `None` if another writer stored an id.
    async fn store_framework_id(&self, id: &FrameworkId, version: Option<u64>) -> Option<()> {
        let mut attempt = 0;
        while let Err(error) = self.framework_id_store.write(id, version).await {
            self.metrics.store_failures.inc();
            tracing::warn!(error = error_chain(&error), framework = %id, "storing the new framework id failed");
            if error.is_conflict() {
                return None;
            }
            tokio::time::sleep(self.reconnect.jittered(attempt)).await;
            attempt = attempt.saturating_add(1);
        }
        Some(())
    }

    /// Handles ERROR, after which the master ends the subscription. Only the text distinguishes the
    /// causes.
    async fn on_error_event(&self, message: &str, version: Option<u64>) -> SessionEnd {
        tracing::warn!(message, "the master rejected the subscription");
        if message.contains("Framework failed over") {
            return SessionEnd::TakenOver;
        }
        let removed = message.contains("Framework has been removed");
        if let (true, Some(version)) = (removed, version) {
            if let Err(error) = self.framework_id_store.remove(version).await {
                self.metrics.store_failures.inc();
                tracing::warn!(
                    error = error_chain(&error),
                    "deleting the removed framework's id from the store failed"
                );
            }
            return SessionEnd::Removed;
        }
        SessionEnd::Broken { was_up: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_keeps_the_settings_of_the_service() {
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
