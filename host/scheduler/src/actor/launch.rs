//! Launching: runs a matching round, stores the intents, accepts the offers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tracing::Instrument;
use transom_cluster::v1;
use transom_cluster::{Caller, FrameworkId, OfferId, TaskId};
use transom_common::ambient;
use transom_common::error_chain;

use super::Actor;
use super::calls::make_calls;
use super::launch_builder::{self, BuildResult, BuiltInstance, Launches, ReservationContext};
use crate::matching::maintenance::nanoseconds;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::queue::{MatchFailure, Ready, TaskBatch};
use crate::matching::round::{LaunchStep, PlacedInstances, PlannedLaunch, RefusedOffer, Residents, Round};
use crate::store::transition;
use crate::{Event, Phase, Reason, Reservation, RunSpec, TaskRecord, UnusedOffer};

/// Time limit of one round, after which the actor does its other work.
pub(super) const ROUND_TIME_LIMIT: Duration = Duration::from_millis(250);

/// How long offers may be kept over several rounds. This limit is reached only if the matcher is
/// slow, and keeps other frameworks from waiting for it too.
const PASS_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The tasks that are launched before status updates are handled again. The tasks of one offer are
/// launched together, however many they are.
const MAX_LAUNCHED_TOGETHER: usize = 250;

/// The step that was built for a planned instance.
enum BuiltStep {
    Launch(BuiltInstance),
    Reserve(String, Vec<v1::Operation>),
}

impl Actor {
    /// Matches the ready pending tasks with all offers and launches those that fit. Tasks for which
    /// a round has no time are left to the next round, which follows as soon as the actor has done
    /// its other work.
    pub(super) async fn match_and_launch(&mut self, caller: &Caller, matcher: &mut MatcherClient) {
        let (now, started_at) = (ambient::now(), Instant::now());
        if self.pool.is_empty() {
            self.end_pass(false);
            return;
        }
        if self.pool.pass_started_at().is_none() {
            self.queue.begin_pass(now);
        }
        let mut ready = self.queue.ready(now, |run_spec| matcher.is_failing(run_spec));
        if ready.is_empty() {
            self.end_pass(false);
            return;
        }
        self.pending_changed = true;
        if self.store_retry.is_backing_off(started_at) {
            self.record_failure_for_all(&ready, Reason::StoreUnavailable, "the state store is unavailable");
            self.end_pass(false);
            return;
        }
        self.metrics.matching_rounds.inc();
        self.hide_closed_agents(now);
        matcher.retain_failures(|run_spec| self.queue.contains_spec(run_spec));
        let placed_instances = self.placed_instances(ready.specs().map(|spec| &**spec));
        let (changed, removed) = self.agents.take_changes();
        matcher.update(changed, removed);
        // Apart from the actor, as the matcher is.
        let mut rng = StdRng::from_rng(&mut self.rng);
        let mut round = Round::new(
            self.pool.offers().to_vec(),
            placed_instances,
            self.default_roles.clone(),
            now,
        );
        while let Some((spec, _)) = self.queue.peek(&mut ready) {
            if round.planned() > 0 && matcher.would_retry(&spec.id) {
                // The call may take until its limit, so the planned tasks are launched before it.
                break;
            }
            let Some(batch) = self.queue.next_batch(&mut ready, now) else {
                break;
            };
            let batch = &batch;
            self.queue.mark_matched(batch);
            let planned = round.planned();
            let span = self.queue.round_span(batch);
            let failure = if batch.spec.volumes.is_empty() {
                let placing = round.place(batch, matcher, &mut rng);
                self.meanwhile(placing.instrument(span.clone())).await
            } else {
                let keys = self.queue.reservation_keys(&batch.ids);
                let reservations = Arc::clone(self.reservations.ledger.records());
                let residents = Residents {
                    keys: &keys,
                    reservations: &reservations,
                    framework: caller.framework_id().map_or("", FrameworkId::as_str),
                };
                let placing = round.place_residents(batch, &residents, matcher, &mut rng);
                self.meanwhile(placing.instrument(span.clone())).await
            };
            span.record("placed", round.planned() - planned);
            if round.planned() > planned {
                self.queue.record_used(&batch.spec.id, now);
            }
            if let Some(failure) = failure {
                self.record_unplaced(batch, failure, round.take_unused(), now);
            }
            if started_at.elapsed() >= ROUND_TIME_LIMIT {
                break;
            }
        }
        let mut planned = round.into_planned();
        if self.has_subscription_ended() {
            planned.clear();
        }
        let has_launched = !planned.is_empty();
        if has_launched {
            self.queue.launched();
            self.offer_demand.launched();
        }
        let next = self.queue.peek(&mut ready).map(|(_, position)| position);
        self.launch(caller, planned, now).await;
        self.queue.continue_at(next);
        self.launched_in_pass |= has_launched;
        let is_within_pass_limit = self
            .pool
            .pass_started_at()
            .is_none_or(|since| since.elapsed() < PASS_TIME_LIMIT);
        if next.is_some() && is_within_pass_limit && !self.pool.is_empty() {
            self.pool.continue_pass(started_at);
        } else {
            self.end_pass(next.is_some());
        }
        self.metrics
            .round_seconds
            .observe(started_at.elapsed().as_secs_f64());
    }

    /// Records why not all tasks of a batch were placed.
    fn record_unplaced(
        &mut self,
        batch: &TaskBatch,
        failure: MatchFailure,
        unused: Vec<RefusedOffer>,
        now: Timestamp,
    ) {
        self.queue.mark_unplaced(batch);
        for (reason, count) in &failure.reasons {
            self.metrics.rejected(*reason, *count);
        }
        self.queue.record_failure(&batch.spec.id, failure);
        let unused = self.unused_offers(unused, now);
        self.queue.record_unused_offers(&batch.spec.id, unused, now);
    }

    /// Removes agents in maintenance from the matcher's agent set.
    fn hide_closed_agents(&mut self, now: Timestamp) {
        let now = nanoseconds(now);
        for offer in self.pool.offers() {
            self.agents.set_handle_hidden(offer.agent, offer.is_closed(now));
        }
    }

    fn unused_offers(&self, unused: Vec<RefusedOffer>, at: Timestamp) -> Vec<Arc<UnusedOffer>> {
        let described = unused.into_iter().filter_map(|rejected| {
            let (agent, attributes) = self.agents.get(rejected.agent)?;
            Some(Arc::new(UnusedOffer {
                offer: rejected.offer,
                agent: Arc::clone(agent),
                attributes: Arc::clone(attributes),
                resources: rejected.resources,
                reasons: rejected.reasons,
                at,
            }))
        });
        described.collect()
    }

    /// Ends the pass; the offers that remain are declined afterwards.
    fn end_pass(&mut self, cut: bool) {
        let has_launched = std::mem::take(&mut self.launched_in_pass);
        if cut || (self.pool.end_pass() && has_launched) {
            // The remainders of offers used in earlier rounds have not been matched with the tasks
            // of later ones.
            self.offer_demand.request_rest();
        }
    }

    /// The placed instances of each run spec. An instance whose agent is unreachable, draining or
    /// about to enter maintenance is not counted. A group counts as one instance.
    pub(super) fn placed_instances<'a>(
        &mut self,
        specs: impl Iterator<Item = &'a RunSpec>,
    ) -> HashMap<String, PlacedInstances> {
        let now = Instant::now();
        let mut placed_instances: HashMap<String, PlacedInstances> = HashMap::new();
        let specs: HashMap<&str, &RunSpec> = specs.map(|spec| (spec.id.as_str(), spec)).collect();
        let mut groups = BTreeSet::new();
        let of_specs = specs.iter().flat_map(|(id, spec)| {
            let records = self.ledger.of_run_spec(id);
            records.map(move |record| (*spec, record))
        });
        for (spec, record) in of_specs {
            let is_placed = transition::is_placed(record)
                && !self.agents.is_hidden(&record.agent.id)
                && spec.build.counts_as_placed(record)
                && record.group.as_ref().is_none_or(|group| groups.insert(&group.id));
            if !is_placed {
                continue;
            }
            if let Some(agent) = self.agents.handle_of_task(record, now) {
                let instances = placed_instances.entry(record.run_spec.clone()).or_default();
                instances.agents.push(agent);
                if record.killing {
                    instances.ending.push(agent);
                }
            }
        }
        self.add_reserved(&specs, &mut placed_instances);
        placed_instances
    }

    /// Adds the instances that have a reservation but are not running.
    fn add_reserved(
        &mut self,
        specs: &HashMap<&str, &RunSpec>,
        placed_instances: &mut HashMap<String, PlacedInstances>,
    ) {
        if specs.values().all(|spec| spec.volumes.is_empty()) {
            return;
        }
        let now = Instant::now();
        for record in Arc::clone(self.reservations.ledger.records()).values() {
            let counts =
                specs.contains_key(record.run_spec.as_str()) && !record.releasing && !self.is_in_use(record);
            if !counts {
                continue;
            }
            if let Some(agent) = self.agents.handle_of_reservation(record, now) {
                let instances = placed_instances.entry(record.run_spec.clone()).or_default();
                instances.agents.push(agent);
            }
        }
    }

    fn record_failure_for_all(&mut self, ready: &Ready, reason: Reason, message: &str) {
        for spec in ready.specs() {
            let (offers, message) = (self.pool.offers().len() as u32, Some(message.to_owned()));
            let reasons = BTreeMap::from([(reason, 1)]);
            let refused_offers = offers;
            self.queue.record_failure(
                &spec.id,
                MatchFailure {
                    reasons,
                    message,
                    offers,
                    refused_offers,
                    ..MatchFailure::default()
                },
            );
            self.metrics.rejected(reason, 1);
        }
    }

    /// Stores the intents, then accepts the offers. Tasks whose intent is not stored stay pending.
    async fn launch(&mut self, caller: &Caller, planned: Vec<PlannedLaunch>, now: Timestamp) {
        let mut by_offer: BTreeMap<OfferId, Vec<BuiltStep>> = BTreeMap::new();
        let mut residents: Vec<(OfferId, Reservation, BuiltStep)> = Vec::new();
        for planned in planned {
            self.take_due_status_updates().await;
            if self.has_subscription_ended() {
                // The offers belonged to it; the tasks stay pending.
                return;
            }
            if let LaunchStep::Reserve(key) = &planned.step {
                let context = ReservationContext {
                    framework: caller.framework_id(),
                    principal: self.roles.principal().or_else(|| caller.principal()),
                    default_roles: &self.default_roles,
                    now,
                };
                let built = launch_builder::reserve(&planned, key, &self.agents, &context);
                if let Some((record, operations)) = built {
                    let step = BuiltStep::Reserve(key.clone(), operations);
                    residents.push((planned.assigned.offer, record, step));
                }
                continue;
            }
            match launch_builder::build(&planned, &self.agents, caller.framework_id(), now) {
                BuildResult::Built(built) => {
                    let (offer, step) = (planned.assigned.offer, BuiltStep::Launch(built));
                    match self.with_reservation(&planned.step, &planned.assigned.id) {
                        Some(record) => residents.push((offer, record, step)),
                        None => by_offer.entry(offer).or_default().push(step),
                    }
                }
                BuildResult::NotWanted => {
                    self.queue.remove(&planned.assigned.id);
                    self.never_launched(planned.assigned.id);
                }
                BuildResult::Impossible => {}
            }
        }
        if self.store_reservations(&residents).await {
            for (offer, _, step) in residents {
                by_offer.entry(offer).or_default().push(step);
            }
        }
        let mut by_offer = by_offer.into_iter().peekable();
        while by_offer.peek().is_some() {
            let (mut intents, mut accepts) = (Vec::new(), Vec::new());
            while intents.len() < MAX_LAUNCHED_TOGETHER
                && let Some((offer, built)) = by_offer.next()
            {
                let mut launches = Launches::default();
                for step in built {
                    match step {
                        BuiltStep::Launch(built) => {
                            let records = built.records.into_iter();
                            intents.extend(records.map(|record| self.ledger.intern(record)));
                            launches.add(built.launch);
                        }
                        BuiltStep::Reserve(key, operations) => launches.reserve(key, operations),
                    }
                }
                accepts.push((offer, launches));
            }
            if let Err(error) = self.ledger.commit(intents.clone()).await {
                self.handle_unstored_intents(&error, &intents).await;
                return;
            }
            self.store_succeeded();
            if !self.accept(caller, &intents, accepts).await {
                // The rest stays pending, and its offers stay in the pool.
                return;
            }
            if by_offer.peek().is_some() {
                self.take_status_updates().await;
                if self.has_subscription_ended() {
                    // The other offers belonged to it.
                    return;
                }
            }
        }
    }

    /// The record of the reservation with which a task is launched, updated for the launch.
    fn with_reservation(&self, step: &LaunchStep, request: &TaskId) -> Option<Reservation> {
        let LaunchStep::LaunchReserved(key) = step else {
            return None;
        };
        let record = self.reservations.ledger.get(key)?;
        Some(Reservation {
            created: true,
            task: Some(request.clone()),
            ..Reservation::clone(record)
        })
    }

    /// Stores reservations before they are made or used. Returns false if the store failed.
    async fn store_reservations(&mut self, residents: &[(OfferId, Reservation, BuiltStep)]) -> bool {
        let records = residents.iter().map(|(_, record, _)| record.clone());
        let Err(error) = self.reservations.ledger.put(records.collect()).await else {
            return true;
        };
        self.store_failed(&error);
        let specs: BTreeSet<&String> = residents.iter().map(|(_, record, _)| &record.run_spec).collect();
        for spec in specs {
            self.record_store_failure(spec, &error);
        }
        false
    }

    /// Accepts offers for stored intents. Returns false if some calls were not made because the master
    /// does not answer.
    async fn accept(
        &mut self,
        caller: &Caller,
        intents: &[Arc<TaskRecord>],
        accepts: Vec<(OfferId, Launches)>,
    ) -> bool {
        self.pool
            .remove_all(&accepts.iter().map(|(offer, _)| offer.clone()).collect());
        let status_deadline = Instant::now() + self.timeouts.launch;
        for intent in intents {
            if let Some(queued) = self.queue.remove(intent.request_id()) {
                self.launch_spans.begin(intent, &queued.request().trace);
            }
            self.reconcile_schedule
                .schedule(intent.id.clone(), status_deadline);
        }
        let mut calls = Vec::with_capacity(accepts.len());
        for (offer, mut launches) in accepts {
            let tasks = std::mem::take(&mut launches.tasks);
            // Newly reserved resources are used with their next offer, which must not be delayed.
            let refuse = if launches.reserved.is_empty() {
                self.timeouts.refuse_rest
            } else {
                Duration::ZERO
            };
            for key in std::mem::take(&mut launches.reserved) {
                let deadline = Instant::now() + self.timeouts.reservation;
                self.reservations.requested(key, deadline);
                self.offer_demand.request_revive();
            }
            let filters = v1::Filters::refuse(refuse);
            let call = caller.accept(vec![offer.clone()], launches.into_operations(), filters);
            calls.push(((offer, tasks), call.boxed()));
        }
        let mut master_answers = true;
        for ((offer, tasks), result) in make_calls(calls).await {
            match result {
                Some(Ok(())) => {
                    self.launched(&tasks);
                    continue;
                }
                Some(Err(error)) => {
                    self.metrics.call_failed("ACCEPT");
                    tracing::warn!(
                        tasks = tasks.len(),
                        error = error_chain(&error),
                        "ACCEPT failed; reconciling its tasks"
                    );
                }
                None => master_answers = false,
            }
            // If the master has not received the call, the offer would keep its resources from all frameworks.
            self.pool.decline([offer]);
            // The master may have accepted them, so they are reconciled.
            self.launch_spans.accepted(&tasks, false);
            for task in tasks {
                self.reconcile_schedule
                    .schedule(task, Instant::now() + self.timeouts.reconcile_retry.base);
            }
        }
        master_answers
    }

    fn launched(&mut self, tasks: &[TaskId]) {
        self.metrics.launches.inc_by(tasks.len() as u64);
        self.launch_spans.accepted(tasks, true);
        let now = ambient::now();
        for task in tasks {
            let Some(record) = self.ledger.get(task) else {
                continue;
            };
            let launched = TaskRecord {
                phase: Phase::Launched,
                staged_at: Some(now),
                updated_at: now,
                ..TaskRecord::clone(record)
            };
            let record = self.ledger.update_in_memory(launched);
            self.outbox.push(Event::Launched(record));
        }
    }

    /// Handles intents that were not stored; nothing was accepted. A task that turns out to be in
    /// the store is no longer pending.
    async fn handle_unstored_intents(&mut self, error: &crate::Error, intents: &[Arc<TaskRecord>]) {
        self.store_failed(error);
        if error.is_conflict() {
            for intent in intents {
                match self.ledger.reload(&intent.id).await {
                    Ok(Some(record)) => {
                        tracing::error!(task = %record.id, "launch skipped: the task is already in the store");
                        self.queue.remove(intent.request_id());
                        self.reconcile_schedule
                            .schedule(record.id.clone(), Instant::now());
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(
                            error = error_chain(&error),
                            "reading the conflicting task record failed"
                        );
                    }
                }
            }
        }
        let waiting = intents
            .iter()
            .filter(|intent| self.queue.get(intent.request_id()).is_some());
        let specs: BTreeSet<String> = waiting.map(|intent| intent.run_spec.clone()).collect();
        for spec in specs {
            self.record_store_failure(&spec, error);
        }
    }

    fn record_store_failure(&mut self, run_spec: &str, error: &crate::Error) {
        let failure = MatchFailure {
            reasons: BTreeMap::from([(Reason::StoreUnavailable, 1)]),
            message: Some(error_chain(error)),
            ..MatchFailure::default()
        };
        self.queue.record_failure(run_spec, failure);
    }
}
