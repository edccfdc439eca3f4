//! Builds the actor and its subscription.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::{Client, v1};
use transom_common::ambient;
use transom_store::Store;

use super::launch_spans::LaunchSpans;
use super::outbox::Outbox;
use super::reservations::ReservationTracker;
use super::{Actor, EVENT_QUEUE_CAPACITY, Timeouts};
use crate::api::handle::Shared;
use crate::api::request_queue::{RequestQueue, Requests};
use crate::matching::agents::Agents;
use crate::matching::maintenance::MaintenanceWindows;
use crate::matching::matcher::MatcherHost;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::offer_demand::OfferDemand;
use crate::matching::offer_pool::OfferPool;
use crate::matching::queue::Queue;
use crate::metrics::Metrics;
use crate::retry::{Retry, Schedule};
use crate::store::ledger::{FrameworkIdStore, Ledger};
use crate::store::reservations::ReservationLedger;
use crate::subscription::roles::{AcceptedRoles, Roles};
use crate::subscription::{self, SubscriptionTask};
use crate::{Events, MaintenanceMode, Result, Scheduler, SubscriptionStatus};

/// A maintenance window is dropped if the master has not repeated its inverse offer for this many
/// of the intervals at which it does so.
const CONFIRMATIONS: u32 = 4;

/// The dependencies of a scheduler: [`crate::Config`] with all defaults filled in.
pub(crate) struct Dependencies {
    pub(crate) cluster: Client,
    pub(crate) framework: v1::FrameworkInfo,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) prefix: String,
    pub(crate) matchers: Box<dyn MatcherHost>,
    pub(crate) timeouts: Timeouts,
    pub(crate) maintenance: MaintenanceMode,
}

impl Dependencies {
    pub(crate) async fn start(
        self,
        metrics: Metrics,
        token: CancellationToken,
    ) -> Result<(Scheduler, Events)> {
        let (actor, matcher, link, scheduler, events) = self.assemble(metrics).await?;
        let tracker = &scheduler.shared.tracker;
        tracker.spawn(link.run(token.clone()));
        tracker.spawn(actor.run(matcher, token));
        tracker.close();
        Ok((scheduler, events))
    }

    /// Builds the actor and its subscription without running them.
    pub(super) async fn assemble(
        self,
        metrics: Metrics,
    ) -> Result<(Actor, MatcherClient, SubscriptionTask, Scheduler, Events)> {
        let framework_id_store = FrameworkIdStore::new(Arc::clone(&self.store), &self.prefix);
        let ledger = Ledger::load(Arc::clone(&self.store), &self.prefix).await?;
        let reservations = ReservationLedger::load(Arc::clone(&self.store), &self.prefix).await?;
        let framework_id = framework_id_store.read().await?.map(|(id, _)| id);
        let subscription = SubscriptionStatus {
            framework_id,
            connected: false,
            master: None,
            since: ambient::now(),
        };
        let framework = subscription::complete(self.framework);
        let mut default_roles = framework.roles.clone();
        default_roles.push("*".to_owned());
        let accepted_roles = AcceptedRoles::new(framework.roles.clone());

        let (subscription_sender, subscription_events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let (events, receiver) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let shared = Arc::new(Shared {
            requests: RequestQueue::default(),
            tasks: ArcSwap::new(Arc::clone(ledger.records())),
            pending: ArcSwap::default(),
            reservations: ArcSwap::new(Arc::clone(reservations.records())),
            subscription: ArcSwap::from_pointee(subscription.clone()),
            tracker: TaskTracker::new(),
            #[cfg(test)]
            turns: tokio::sync::watch::Sender::new(0),
        });
        let timeouts = self.timeouts;
        let link = SubscriptionTask {
            cluster: self.cluster,
            framework,
            roles: accepted_roles.clone(),
            framework_id_store,
            reconnect: timeouts.reconnect,
            metrics: metrics.clone(),
            events: subscription_sender,
        };
        let failures = metrics.matcher_failures.clone();
        let matcher = MatcherClient::new(self.matchers.agent_set(None), timeouts.matcher, failures);
        let now = Instant::now();
        let mut actor = Actor {
            default_roles,
            roles: Roles::new(accepted_roles, timeouts.reconnect),
            metrics,
            shared: Arc::clone(&shared),
            requests: Requests::default(),
            kill_choices: VecDeque::new(),
            explanations: Vec::new(),
            subscription_events,
            events,
            delayed_events: Vec::new(),
            outbox: Outbox::default(),
            after_publish: Vec::new(),
            stalled_since: None,
            inbound: Vec::new(),
            statuses_saved_at: now,
            ledger,
            reservations: ReservationTracker::new(reservations),
            queue: Queue::default(),
            launch_spans: LaunchSpans::default(),
            pending_changed: false,
            next_ready: None,
            pool: OfferPool::default(),
            offer_demand: OfferDemand::new(timeouts.revive),
            launched_in_pass: false,
            agents: Agents::default(),
            maintenance: MaintenanceWindows::new(self.maintenance, timeouts.inverse_offer * CONFIRMATIONS),
            inverse_offers: Vec::new(),
            inverse_offer_retry: Retry::new(timeouts.reconcile_retry),
            decline_retry: Retry::new(timeouts.reconnect),
            matchers: self.matchers,
            new_agent_set: None,
            store_retry: Retry::new(timeouts.store),
            kills: Schedule::new(timeouts.kill),
            orphans: BTreeMap::new(),
            reconcile_schedule: Schedule::new(timeouts.reconcile_retry),
            next_reconcile: now,
            caller: None,
            subscription,
            subscribed_at: Instant::now(),
            rng: StdRng::seed_from_u64(ambient::random()),
            timeouts,
        };
        actor.resume(now);
        Ok((actor, matcher, link, Scheduler { shared }, Events::from(receiver)))
    }
}

impl Actor {
    /// Resumes the work that the stored records show as unfinished.
    fn resume(&mut self, now: Instant) {
        for record in self.reservations.ledger.records().values() {
            self.roles.add(&record.role);
        }
        for record in self
            .ledger
            .records()
            .values()
            .filter(|record| !record.is_terminal())
        {
            self.agents.handle_of_task(record, now);
            if record.killing {
                self.kills.schedule(record.id.clone(), now);
            }
        }
    }
}
