//! The actor: the only owner of the queue, the offers, the agents and the task records.
//!
//! It works in turns. A turn starts when something arrives (requests, events of the subscription, a
//! change of the matcher, a timer). It carries out the requests of the service ([`requests`]),
//! stores, delivers and acknowledges statuses ([`updates`]), sends kills and reconciliations that
//! are due ([`housekeeping`]), matches pending tasks for at most one round and launches them
//! ([`launch`]), declines unused offers, and publishes snapshots and events. Calls to store, master
//! and matcher run one after the other within a turn (independent ones concurrently), each with a
//! deadline. Status updates that arrive during a long call of the matcher, between its calls, or
//! between the parts of a launch do not wait for the end of the turn ([`meanwhile`]). Reserved resources in offers
//! ([`reservations`]), kill selections ([`kill_choices`]) and agents in maintenance ([`maintenance`])
//! are handled before the matching. Explanations of placements for operators are prepared here
//! ([`explanations`]), but the matchers are called for them outside the actor.
//!
//! Requests never wait for a turn ([`request_queue`](crate::api::request_queue)), so a service may
//! add them from its event loop. Every turn carries them out, even while the service reads no
//! events.

mod calls;
mod explanations;
mod housekeeping;
mod kill_choices;
mod launch;
mod launch_builder;
mod launch_spans;
mod maintenance;
mod meanwhile;
mod outbox;
mod requests;
mod reservations;
mod start;
#[cfg(test)]
mod tests;
mod updates;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_cluster::scheduler::Event as ClusterEvent;
use transom_cluster::{AgentId, Caller, OfferId, TaskId, v1};
use transom_common::Backoff;
use transom_common::ambient;
use transom_common::error_chain;

use crate::api::explanation::ExplanationRequest;
use crate::api::handle::Shared;
use crate::api::request_queue::Requests;
use crate::matching::agents::Agents;
use crate::matching::maintenance::{MaintenanceWindows, nanoseconds};
use crate::matching::matcher::{Matcher, MatcherHost};
use crate::matching::matcher_client::MatcherClient;
use crate::matching::offer_demand::OfferDemand;
use crate::matching::offer_pool::OfferPool;
use crate::matching::queue::Queue;
use crate::metrics::Metrics;
use crate::retry::{Retry, Schedule};
use crate::store::ledger::Ledger;
use crate::subscription::roles::Roles;
use crate::subscription::{NewSubscription, SubscriptionEvent};
use crate::{Error, Event, KillChoice, Reason, SubscriptionStatus};
use launch_spans::LaunchSpans;
use outbox::Outbox;
use reservations::ReservationTracker;

pub(crate) use start::Dependencies;

/// Capacity of the event queues from the subscription and to the service.
const EVENT_QUEUE_CAPACITY: usize = 256;

/// The memory of the events that wait for room in the queue to the service, before no further ones
/// are read from the master: 16,384 updates without long texts, so that those of a burst are stored
/// and acknowledged while the service is busy.
const MAX_OUTBOX_BYTES: usize = 16 << 20;

/// Timeouts, intervals and backoffs.
#[derive(Clone, Debug)]
pub(crate) struct Timeouts {
    pub(crate) decline: Duration,
    pub(crate) refuse_rest: Duration,
    pub(crate) launch: Duration,
    pub(crate) reconcile: Duration,
    pub(crate) revive: Duration,
    pub(crate) reconnect: Backoff,
    pub(crate) store: Backoff,
    pub(crate) kill: Backoff,
    pub(crate) reconcile_retry: Backoff,
    pub(crate) matcher: Backoff,
    /// How long reserved resources may take to appear in an offer.
    pub(crate) reservation: Duration,
    /// The same time limit for a released reservation, whose record is then dropped.
    pub(crate) release: Duration,
    /// How long the master does not repeat an inverse offer after its answer.
    pub(crate) inverse_offer: Duration,
    /// How long the service may read no events before the scheduler logs it.
    pub(crate) stall: Duration,
}

impl Default for Timeouts {
    /// Those of [`Config::new`](crate::Config::new).
    fn default() -> Self {
        let backoff = |base, max| Backoff {
            base: Duration::from_secs(base),
            max: Duration::from_secs(max),
        };
        Self {
            decline: Duration::from_mins(2),
            refuse_rest: Duration::from_mins(2),
            launch: Duration::from_mins(5),
            reconcile: Duration::from_mins(10),
            revive: Duration::from_secs(1),
            reconnect: Backoff {
                base: Duration::from_millis(500),
                max: Duration::from_secs(30),
            },
            store: Backoff {
                base: Duration::from_millis(200),
                max: Duration::from_secs(10),
            },
            kill: backoff(5, 60),
            reconcile_retry: backoff(5, 300),
            matcher: backoff(1, 60),
            reservation: Duration::from_secs(20),
            release: Duration::from_mins(10),
            inverse_offer: Duration::from_secs(10),
            stall: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// How long after a subscription `TASK_UNKNOWN` is not trusted. It is less than the time
    /// between the first two reconciliations.
    fn unknown_grace(&self) -> Duration {
        self.reconcile_retry.base / 2
    }

    /// Time until the next implicit reconciliation. It is short at first, because agents may
    /// register with the master after this subscription and report orphaned tasks; later it is the
    /// configured interval.
    fn next_reconcile_in(&self, subscribed_for: Duration) -> Duration {
        subscribed_for.max(self.reconcile_retry.base).min(self.reconcile)
    }
}

/// Input from the master that is delivered to the service in the same order.
enum Inbound {
    Status(Box<v1::TaskStatus>),
    Notify(Event),
}

/// A task that has to be killed because it is not in the store, or is completed according to its
/// record.
#[derive(Debug, Default)]
struct Orphan {
    agent: Option<AgentId>,
    grace: Option<Duration>,
}

struct Actor {
    /// The accepted roles of a run spec that names none.
    default_roles: Vec<String>,
    /// The roles in which the framework receives offers.
    roles: Roles,
    timeouts: Timeouts,
    metrics: Metrics,
    shared: Arc<Shared>,
    /// Requests that were not carried out yet because the store failed.
    requests: Requests,
    /// Queued kill selections, one for each run spec id.
    kill_choices: VecDeque<Arc<KillChoice>>,
    /// Queued explanations of placements for operators.
    explanations: Vec<ExplanationRequest>,
    subscription_events: mpsc::Receiver<SubscriptionEvent>,
    /// Events that arrived during a turn and are handled in the next one; none follows the end of the
    /// subscription.
    delayed_events: Vec<SubscriptionEvent>,
    events: mpsc::Sender<Event>,
    outbox: Outbox,
    /// Events that are delivered once the next snapshots are published.
    after_publish: Vec<Event>,
    stalled_since: Option<Instant>,
    inbound: Vec<Inbound>,
    /// When the received statuses were last stored, or none had to be.
    statuses_saved_at: Instant,
    ledger: Ledger,
    reservations: ReservationTracker,
    queue: Queue,
    /// The trace spans of launches.
    launch_spans: LaunchSpans,
    pending_changed: bool,
    next_ready: Option<Timestamp>,
    pool: OfferPool,
    offer_demand: OfferDemand,
    /// Whether the current pass launched something.
    launched_in_pass: bool,
    agents: Agents,
    maintenance: MaintenanceWindows,
    /// Inverse offers that are not answered yet.
    inverse_offers: Vec<OfferId>,
    inverse_offer_retry: Retry,
    decline_retry: Retry,
    matchers: Box<dyn MatcherHost>,
    /// Replaces the matcher's agent set in the next turn.
    new_agent_set: Option<Box<dyn Matcher>>,
    store_retry: Retry,
    kills: Schedule,
    orphans: BTreeMap<TaskId, Orphan>,
    /// Live tasks whose state is unconfirmed, with the times at which they are reconciled.
    reconcile_schedule: Schedule,
    next_reconcile: Instant,
    caller: Option<Caller>,
    subscription: SubscriptionStatus,
    /// When the last subscription began, by the monotonic clock.
    subscribed_at: Instant,
    rng: StdRng,
}

impl Actor {
    /// `matcher` is apart from the actor, which handles status updates while it waits for a call.
    async fn run(mut self, mut matcher: MatcherClient, token: CancellationToken) {
        let events = self.events.clone();
        loop {
            if token
                .run_until_cancelled(self.run_turn(&mut matcher))
                .await
                .is_none()
            {
                break;
            }
            let next_wake = self.next_wake(&matcher);
            let can_read_cluster = self.can_read_cluster();
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                // The next turn carries out the requests.
                () = self.shared.requests.added() => {}
                // The event queue has room; the next turn delivers an event.
                _ = events.reserve(), if !self.outbox.is_empty() => {}
                Some(event) = self.subscription_events.recv(), if can_read_cluster => self.take_subscription_events(event),
                () = self.matchers.changed() => matcher.matcher_changed(),
                () = tokio::time::sleep_until(next_wake) => {}
            }
        }
        // The metrics outlive this scheduler.
        for gauge in [
            &self.metrics.connected,
            &self.metrics.pending_tasks,
            &self.metrics.tasks,
            &self.metrics.held_offers,
            &self.metrics.known_agents,
        ] {
            gauge.set(0);
        }
    }

    /// Does all work that is due.
    async fn run_turn(&mut self, matcher: &mut MatcherClient) {
        if self.store_retry.take_due(Instant::now()) {
            // The first launch may be the write that finds the store available again, so it needs
            // offers.
            self.offer_demand.request_revive();
        }
        for event in std::mem::take(&mut self.delayed_events) {
            self.subscription_event(event);
        }
        if let Some(agent_set) = self.new_agent_set.take() {
            matcher.replace(agent_set);
        }
        self.carry_out_requests().await;
        self.notify_maintenance_changes();
        self.answer_explanations(matcher);
        self.save_statuses().await;
        self.save_reservations().await;
        if let Some(caller) = self.caller.clone() {
            self.update_roles(&caller).await;
            self.send_kills(&caller).await;
            self.send_reconcile(&caller).await;
            self.process_reservations(&caller).await;
            self.answer_inverse_offers(&caller).await;
            self.select_kills(matcher).await;
            self.match_and_launch(&caller, matcher).await;
        }
        self.publish();
        self.deliver();
        if let Some(caller) = self.caller.clone() {
            self.answer_offers(&caller, matcher).await;
        }
        #[cfg(test)]
        self.shared.turns.send_modify(|turns| *turns += 1);
    }

    /// The time of the next timer. All work due so far has been done, so it is in the future unless
    /// offers are kept for another round.
    fn next_wake(&mut self, matcher: &MatcherClient) -> Instant {
        let now = Instant::now();
        let has_work = self.caller.is_some() && (!self.pool.is_empty() || self.has_kill_choice(matcher));
        if has_work || !self.delayed_events.is_empty() {
            return now;
        }
        let ready = self.queue.next_ready(ambient::now()).map(|at| {
            let wait = Duration::try_from(at.duration_since(ambient::now())).unwrap_or_default();
            now + wait.min(Duration::from_hours(1)) + Duration::from_millis(1)
        });
        let stall = self.stalled_since.map(|since| since + self.timeouts.stall);
        let mut wakes = vec![self.store_retry.next(now), ready, stall];
        if self.caller.is_some() {
            wakes.extend([
                matcher.next(now),
                self.kills.next(),
                self.reconcile_schedule.next(),
                self.offer_demand.next(),
                self.roles.next(now),
                self.reservations.next(),
                self.maintenance.next(nanoseconds(ambient::now()), now),
                self.inverse_offer_retry.next(now),
                self.decline_retry.next(now),
                Some(self.next_reconcile),
            ]);
        }
        wakes
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now + Duration::from_hours(1))
    }

    /// Whether all events from the master are stored, and the service keeps up with them.
    fn can_read_cluster(&self) -> bool {
        self.inbound.is_empty() && self.delayed_events.is_empty() && !self.outbox.is_full()
    }

    /// Handles this event and all others that have arrived, so that one turn processes a burst.
    fn take_subscription_events(&mut self, first: SubscriptionEvent) {
        self.subscription_event(first);
        for _ in 1..EVENT_QUEUE_CAPACITY {
            let Ok(event) = self.subscription_events.try_recv() else {
                break;
            };
            self.subscription_event(event);
        }
    }

    fn subscription_event(&mut self, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Subscribed(new) => self.subscribed(*new),
            SubscriptionEvent::Lost => self.subscription_lost(),
            SubscriptionEvent::Event(event) => self.cluster_event(*event),
        }
    }

    fn cluster_event(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Offers(offers) => self.take_offers(&offers),
            ClusterEvent::Rescind(offer) => self.pool.remove(&offer),
            ClusterEvent::Update(status) => {
                self.metrics.status_updates.inc();
                self.inbound.push(Inbound::Status(Box::new(status)));
            }
            ClusterEvent::Message(message) => {
                let (agent, executor) = (message.agent_id, message.executor_id);
                self.inbound.push(Inbound::Notify(Event::Message {
                    agent,
                    executor,
                    data: message.data,
                }));
            }
            ClusterEvent::Failure(failure) => {
                if let (Some(agent), None) = (failure.agent_id, failure.executor_id) {
                    self.agent_lost(&agent);
                    self.inbound.push(Inbound::Notify(Event::AgentLost(agent)));
                }
            }
            ClusterEvent::InverseOffers(offers) => self.take_inverse_offers(&offers),
            ClusterEvent::RescindInverseOffer(offer) => self.rescind_inverse_offer(&offer),
            ClusterEvent::UpdateOperationStatus(_)
            | ClusterEvent::Subscribed(_)
            | ClusterEvent::Error(_)
            | ClusterEvent::Heartbeat => {}
            ClusterEvent::Unknown(kind) => tracing::debug!(kind, "unknown event type ignored"),
        }
    }

    fn subscribed(&mut self, new: NewSubscription) {
        let now = Instant::now();
        self.subscribed_at = now;
        self.pool.clear();
        self.offer_demand.subscribed(now);
        self.inverse_offers.clear();
        self.inverse_offer_retry.succeeded();
        self.decline_retry.succeeded();
        self.maintenance.subscribed(now);
        self.reservations.subscribed(&self.timeouts, now);
        self.new_agent_set = Some(self.matchers.agent_set(new.home_region));
        self.agents.mark_all_changed();
        self.caller = Some(new.caller);
        self.roles.subscribed(new.framework);
        // The next turn reconciles all live tasks explicitly, and all other tasks implicitly.
        self.reconcile_all(now);
        self.next_reconcile = now;
        let framework_id = new.framework_id;
        self.set_subscription(SubscriptionStatus {
            framework_id: Some(framework_id.clone()),
            connected: true,
            master: new.master.clone(),
            since: ambient::now(),
        });
        let event = if new.fresh {
            Event::Registered {
                framework_id,
                master: new.master,
            }
        } else {
            Event::Reregistered { master: new.master }
        };
        self.inbound.push(Inbound::Notify(event));
    }

    fn subscription_lost(&mut self) {
        self.caller = None;
        self.pool.clear();
        self.set_subscription(SubscriptionStatus {
            connected: false,
            since: ambient::now(),
            ..self.subscription.clone()
        });
        self.inbound.push(Inbound::Notify(Event::Disconnected));
    }

    fn set_subscription(&mut self, status: SubscriptionStatus) {
        self.metrics.connected.set(i64::from(status.connected));
        self.subscription = status;
        self.pending_changed = true;
    }

    fn store_failed(&mut self, error: &Error) {
        self.metrics.store_failures.inc();
        tracing::warn!(
            error = error_chain(error),
            "write to the state store failed; retrying"
        );
        self.store_retry.failed(Instant::now());
        self.pending_changed = true;
    }

    fn store_succeeded(&mut self) {
        if self.store_retry.is_failing() {
            tracing::info!("writes to the state store succeed again");
            self.store_retry.succeeded();
            self.pending_changed = true;
            self.offer_demand.request_revive();
        }
    }

    /// Publishes the records that events refer to, before the service receives these events.
    fn publish_state(&mut self) {
        if !Arc::ptr_eq(&self.shared.tasks.load(), self.ledger.records()) {
            self.metrics.tasks.set(count(self.ledger.records().len()));
            self.shared.tasks.store(Arc::clone(self.ledger.records()));
        }
        let reservations = self.reservations.ledger.records();
        if !Arc::ptr_eq(&self.shared.reservations.load(), reservations) {
            self.shared.reservations.store(Arc::clone(reservations));
            for key in self.reservations.ledger.take_changed() {
                let reservation = self.reservations.ledger.get(&key).cloned();
                self.outbox.push(Event::ReservationChanged { key, reservation });
            }
        }
        if **self.shared.subscription.load() != self.subscription {
            self.shared
                .subscription
                .store(Arc::new(self.subscription.clone()));
        }
    }

    /// Publishes the same and the pending tasks.
    fn publish(&mut self) {
        self.publish_state();
        let now = ambient::now();
        if self.next_ready.is_some_and(|at| at <= now) {
            // A backoff has ended, so offers declined meanwhile are needed again.
            self.offer_demand.request_revive();
        }
        let next_ready = self.queue.next_ready(now);
        self.pending_changed |= next_ready != self.next_ready;
        self.next_ready = next_ready;
        if std::mem::take(&mut self.pending_changed) {
            self.metrics.pending_tasks.set(count(self.queue.len()));
            self.shared
                .pending
                .store(Arc::new(self.queue.snapshot(self.blocked_by(), now)));
        }
        self.metrics.held_offers.set(count(self.pool.offers().len()));
        self.metrics.known_agents.set(count(self.agents.len()));
        self.outbox.extend(self.after_publish.drain(..));
    }

    /// The reason why nothing can be launched now, regardless of the offers.
    fn blocked_by(&self) -> Option<Reason> {
        if !self.subscription.connected {
            return Some(Reason::Disconnected);
        }
        self.store_retry.is_failing().then_some(Reason::StoreUnavailable)
    }

    /// Delivers as many events as the queue to the service has room for.
    fn deliver(&mut self) {
        while let Some(event) = self.outbox.pop() {
            match self.events.try_send(event) {
                Ok(()) => self.stalled_since = None,
                Err(mpsc::error::TrySendError::Full(event)) => {
                    self.outbox.put_back(event);
                    self.warn_if_stalled();
                    return;
                }
                // The service has dropped its end of the queue.
                Err(mpsc::error::TrySendError::Closed(_)) => self.outbox.clear(),
            }
        }
    }

    fn warn_if_stalled(&mut self) {
        let now = Instant::now();
        let since = *self.stalled_since.get_or_insert(now);
        if now >= since + self.timeouts.stall {
            self.stalled_since = Some(now);
            self.metrics.event_backpressure.inc();
            tracing::error!(
                waiting = self.outbox.len() + EVENT_QUEUE_CAPACITY,
                paused = self.outbox.is_full(),
                "event backpressure: the service has not read its events; while `paused`, none are read from the master"
            );
        }
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
