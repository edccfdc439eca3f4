//! Calls that are repeated until they are answered (kills, reconciliation), and REVIVE, SUPPRESS
//! and DECLINE.

use std::collections::{BTreeSet, HashSet};

use futures::FutureExt;
use tokio::time::Instant;
use transom_cluster::v1::TaskState;
use transom_cluster::{AgentId, Caller, v1};
use transom_common::ambient;
use transom_common::error_chain;

use super::Actor;
use super::calls::make_calls;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::offer_demand::OfferCall;

/// Maximum tasks in one call. A large framework reconciles all of its tasks after each subscription.
const RECONCILE_BATCH: usize = 1000;

impl Actor {
    /// Sends the kills that are due; each is repeated until its task is terminal, also if it was not
    /// sent because the master did not answer an earlier one.
    pub(super) async fn send_kills(&mut self, caller: &Caller) {
        let mut kills = Vec::new();
        for task in self.kills.take_due(Instant::now()) {
            match (self.ledger.get(&task), self.orphans.get(&task)) {
                (Some(record), _) if !record.is_terminal() => {
                    kills.push((task, Some(record.agent.id.clone()), record.kill_grace));
                }
                (_, Some(orphan)) => kills.push((task, orphan.agent.clone(), orphan.grace)),
                (_, None) => self.kills.remove(&task),
            }
        }
        let mut calls = Vec::with_capacity(kills.len());
        for (task, agent, grace) in kills {
            calls.push((task.clone(), caller.kill(task, agent, grace).boxed()));
        }
        for (task, result) in make_calls(calls).await {
            if let Some(Err(error)) = result {
                self.metrics.call_failed("KILL");
                tracing::warn!(%task, error = error_chain(&error), "KILL failed; retrying");
            }
        }
    }

    /// Reconciles tasks with an unconfirmed state, periodically all live tasks, and implicitly
    /// every task that the master knows. Implicit reconciliation is more frequent shortly after a
    /// subscription.
    pub(super) async fn send_reconcile(&mut self, caller: &Caller) {
        let now = Instant::now();
        let is_implicit_due = now >= self.next_reconcile;
        if is_implicit_due {
            let next = self.timeouts.next_reconcile_in(now - self.subscribed_at);
            self.next_reconcile = now + next;
            if next == self.timeouts.reconcile {
                self.reconcile_all(now);
            }
        }
        let mut tasks = Vec::new();
        for task in self.reconcile_schedule.take_due(now) {
            match self.ledger.get(&task).filter(|record| !record.is_terminal()) {
                Some(record) => tasks.push((task, Some(record.agent.id.clone()))),
                None => self.reconcile_schedule.remove(&task),
            }
        }
        let mut explicit = Ok(());
        for batch in tasks.chunks(RECONCILE_BATCH) {
            explicit = caller.reconcile(batch.to_vec()).await;
            if explicit.is_err() {
                // The remaining tasks were rescheduled as well.
                break;
            }
        }
        let implicit = if is_implicit_due {
            caller.reconcile(Vec::new()).await
        } else {
            Ok(())
        };
        for error in [explicit, implicit].into_iter().filter_map(Result::err) {
            self.metrics.call_failed("RECONCILE");
            tracing::warn!(error = error_chain(&error), "RECONCILE failed; retrying");
        }
    }

    /// Schedules all live tasks for reconciliation, and drops agents that were not seen for long.
    pub(super) fn reconcile_all(&mut self, now: Instant) {
        let records = self.ledger.records();
        let live = || records.values().filter(|record| !record.is_terminal());
        let reachable = live().filter(|record| record.state != TaskState::Unreachable);
        let in_use: HashSet<_> = reachable.map(|record| &record.agent.id).collect();
        self.agents.sweep(now, |agent| in_use.contains(agent));
        for record in live() {
            self.reconcile_schedule.schedule(record.id.clone(), now);
        }
    }

    /// Handles a lost agent: no task is matched with it until it offers again, and tasks that are
    /// spread over agents may be placed on others.
    pub(super) fn agent_lost(&mut self, agent: &AgentId) {
        if let Some(handle) = self.agents.remove_lost(agent) {
            self.pool.remove_agent(handle);
            self.offer_demand.request_revive();
        }
        if let Some(change) = self.maintenance.remove(agent) {
            self.maintenance_changed(change);
        }
    }

    /// Adds offers to the pool and updates the agents that they describe.
    pub(super) fn take_offers(&mut self, offers: &[v1::Offer]) {
        let now = Instant::now();
        self.metrics.offers.inc_by(offers.len() as u64);
        for offer in offers {
            if let Some(change) = self.maintenance.record_offer(offer) {
                self.maintenance_changed(change);
            }
            if let Some(agent) = self.agents.handle_of_offer(offer, now) {
                let closed = self.maintenance.closed_period(offer);
                if self.pool.add(offer, agent, closed) {
                    self.reservations.reserved_resources_offered();
                }
            } else {
                tracing::error!(offer = %offer.id, "out of agent handles; restart the daemon");
            }
        }
    }

    /// Declines unused offers and sends REVIVE or SUPPRESS.
    pub(super) async fn answer_offers(&mut self, caller: &Caller, matcher: &mut MatcherClient) {
        let now = Instant::now();
        let has_demand = self.queue.has_ready(ambient::now()) || self.reservations.needs_offers();
        if self.pool.pass_started_at().is_none() {
            self.pool.decline_unused();
            self.decline_offers(caller, now).await;
        }
        if matcher.take_due(now) {
            self.offer_demand.request_revive();
        }
        let Some(call) = self.offer_demand.next_call(has_demand, now) else {
            return;
        };
        let (name, outcome) = match call {
            OfferCall::Revive => ("REVIVE", self.revive(caller).await),
            OfferCall::Suppress => ("SUPPRESS", caller.suppress().await),
        };
        if let Err(error) = outcome {
            self.offer_demand.failed(call);
            self.metrics.call_failed(name);
            tracing::debug!(call = name, error = error_chain(&error), "call failed; retrying");
        }
    }

    /// Declines offers, again until the master has answered: offers of a lost DECLINE would keep their
    /// resources from all frameworks.
    async fn decline_offers(&mut self, caller: &Caller, now: Instant) {
        if self.decline_retry.is_backing_off(now) {
            return;
        }
        let offers = self.pool.take_declined();
        if offers.is_empty() {
            return;
        }
        let filters = v1::Filters::refuse(self.timeouts.decline);
        match caller.decline(offers.clone(), filters).await {
            Ok(()) => {
                self.decline_retry.succeeded();
                self.metrics.declined_offers.inc_by(offers.len() as u64);
            }
            Err(error) => {
                self.metrics.call_failed("DECLINE");
                let (offers_kept, error) = (offers.len(), error_chain(&error));
                tracing::debug!(offers = offers_kept, error, "DECLINE failed; retrying");
                self.pool.decline(offers);
                self.decline_retry.failed(Instant::now());
            }
        }
    }

    /// Revives the roles of the pending tasks, and suppresses the others: the master offers an agent
    /// to one role at a time, so offers for other roles would only delay those that are needed.
    async fn revive(&mut self, caller: &Caller) -> transom_cluster::Result<()> {
        let demanded = self.demanded_roles();
        let Some((revive, others)) = self.roles.split_by_demand(demanded.as_ref()) else {
            caller.revive().await?;
            self.roles.revived(&[]);
            return Ok(());
        };
        if !others.is_empty() {
            caller.suppress_roles(&others).await?;
            self.roles.suppressed(others);
        }
        caller.revive_roles(&revive).await?;
        self.roles.revived(&revive);
        Ok(())
    }

    /// The roles of pending tasks; `None` for any role.
    fn demanded_roles(&mut self) -> Option<BTreeSet<String>> {
        if !self.roles.has_several() {
            return None;
        }
        let mut roles = self.queue.demanded_roles(ambient::now())?;
        roles.append(&mut self.reservations.roles());
        Some(roles)
    }

    /// Adds one role to the framework, if one is missing.
    pub(super) async fn update_roles(&mut self, caller: &Caller) {
        while let Some(info) = self.roles.next_update(Instant::now()) {
            let role = info.roles.last().map_or("", String::as_str);
            if let Err(error) = caller.update_framework(&info, &[]).await {
                self.metrics.call_failed("UPDATE_FRAMEWORK");
                tracing::warn!(
                    role,
                    error = error_chain(&error),
                    "UPDATE_FRAMEWORK failed; tasks of this role stay pending, retrying"
                );
                self.roles.failed(Instant::now());
                return;
            }
            tracing::info!(role, "role added to the framework");
            self.roles.updated(info);
            self.offer_demand.unsuppressed();
        }
    }
}
