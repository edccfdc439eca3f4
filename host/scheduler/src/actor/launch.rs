//! A round: what waits is put to the offers, the matcher is asked, intents are stored, offers accepted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::time::Instant;
use transom_cluster::v1::{self, TaskState};
use transom_cluster::{Caller, OfferId, TaskId};
use transom_plugins::matcher::{Candidate, Task, Verdict};

use super::{Actor, SIDE_BY_SIDE};
use crate::ledger::conflict;
use crate::link::chain;
use crate::matching::{Assigned, Need, Offers};
use crate::queue::{Finding, Group};
use crate::{Event, Phase, Placement, Reason, RunSpec, TaskRecord};

/// One round's working state.
struct Round {
    offers: Offers,
    /// Handles of the agents that run something, by run spec id; grows as the round places.
    placed: HashMap<String, Vec<u32>>,
    planned: Vec<Planned>,
    now: Timestamp,
}

/// A task that has found its place.
struct Planned {
    spec: Arc<RunSpec>,
    assigned: Assigned,
}

impl Actor {
    /// Matches all that is ready with all offers, and launches what fits.
    pub(super) async fn match_and_launch(&mut self, caller: &Caller) {
        let now = Timestamp::now();
        if self.pool.is_empty() {
            return;
        }
        let groups = self.queue.ready(now);
        if groups.is_empty() {
            return;
        }
        self.waiting_changed = true;
        if self.store_retry.waits(Instant::now()) {
            self.note_all(
                &groups,
                Reason::StoreUnavailable,
                "the state store does not answer",
            );
            return;
        }
        self.metrics.rounds.inc();
        let placed = self.placed(&groups);
        let (changed, gone) = self.agents.take_news();
        self.matcher.update(changed, gone);
        let mut round = Round {
            offers: Offers::new(self.pool.bins().to_vec()),
            placed,
            planned: Vec::new(),
            now,
        };
        for group in &groups {
            self.place_group(group, &mut round).await;
        }
        self.launch(caller, round.planned, now).await;
    }

    /// Handles of the agents that run an instance of each run spec now. One that is unreachable is nowhere.
    fn placed(&mut self, groups: &[Group]) -> HashMap<String, Vec<u32>> {
        let now = Instant::now();
        let mut placed: HashMap<String, Vec<u32>> = HashMap::new();
        let specs: HashMap<&str, &RunSpec> = groups
            .iter()
            .map(|group| (group.spec.id.as_str(), &*group.spec))
            .collect();
        for record in self.ledger.records().values() {
            let Some(spec) = specs.get(record.run_spec.as_str()) else {
                continue;
            };
            let is_placed = !record.is_terminal()
                && record.state != TaskState::Unreachable
                && spec.build.counts_as_placed(record);
            if let (true, Some(agent)) = (is_placed, self.agents.remembered(record, now)) {
                placed.entry(record.run_spec.clone()).or_default().push(agent);
            }
        }
        placed
    }

    /// Finds places for one group and notes why those that remain have none.
    async fn place_group(&mut self, group: &Group, round: &mut Round) {
        let spec = &group.spec;
        let wanted = u32::try_from(group.tasks.len()).unwrap_or(u32::MAX);
        let need = Need::of(spec, &self.roles);
        let survey = round.offers.survey(&need, wanted, nanoseconds(round.now));
        let before = round.planned.len();
        let mut failed = None;
        if !survey.candidates.is_empty() {
            failed = self.choose(group, &need, &survey.candidates, round).await.err();
        }
        let used: BTreeSet<_> = round.planned[before..]
            .iter()
            .map(|planned| &planned.assigned.offer)
            .collect();
        let placed = round.planned.len() - before;
        if placed == group.tasks.len() {
            return;
        }
        let offers = round.offers.len() as u32;
        let mut finding = Finding {
            offers,
            refused_offers: offers - used.len() as u32,
            ..Finding::default()
        };
        if let Some(message) = failed {
            finding.reasons = BTreeMap::from([(Reason::MatcherUnavailable, 1)]);
            finding.message = Some(message);
        } else {
            self.explain(group, &need, wanted - placed as u32, round, &mut finding)
                .await;
        }
        for (reason, count) in &finding.reasons {
            self.metrics.refused(*reason, *count);
        }
        self.queue.note(&spec.id, finding);
    }

    /// Asks the matcher and divides up the offers. The error is what to show.
    async fn choose(
        &mut self,
        group: &Group,
        need: &Need,
        candidates: &[(u32, u32)],
        round: &mut Round,
    ) -> Result<(), String> {
        if let (true, Some(error)) = (self.matcher_retry.waits(Instant::now()), &self.matcher_error) {
            return Err(error.clone());
        }
        let spec = &group.spec;
        let placed = round.placed.entry(spec.id.clone()).or_default();
        let task = question(spec, placed);
        let candidates = as_candidates(candidates);
        let count = u32::try_from(group.tasks.len()).unwrap_or(u32::MAX);
        let chosen = match self.matcher.place(&task, &candidates, count).await {
            Ok(chosen) => chosen,
            Err(error) => return Err(self.matcher_failed(chain(&error))),
        };
        let (assigned, misfit) = round.offers.assign(need, &group.tasks, &chosen, &mut self.rng);
        for assigned in assigned {
            placed.push(assigned.agent);
            let spec = Arc::clone(spec);
            round.planned.push(Planned { spec, assigned });
        }
        if let Some(agent) = misfit {
            let message = format!(
                "the attribute matcher chose agent {agent}, which has no room: its answer cannot be used"
            );
            return Err(self.matcher_failed(message));
        }
        self.matcher_retry.succeeded();
        self.matcher_error = None;
        Ok(())
    }

    fn matcher_failed(&mut self, message: String) -> String {
        self.metrics.matcher_failures.inc();
        tracing::warn!(
            error = message,
            "the attribute matcher gave no answer; nothing is launched without it"
        );
        self.matcher_retry.failed(Instant::now());
        self.matcher_error = Some(message.clone());
        message
    }

    /// Why the rest of the group has no place: what the offers lack, and what the conditions refuse.
    async fn explain(&mut self, group: &Group, need: &Need, left: u32, round: &Round, finding: &mut Finding) {
        let survey = round.offers.survey(need, left, nanoseconds(round.now));
        finding.reasons = survey.refused;
        if survey.candidates.is_empty() {
            return;
        }
        let placed = round.placed.get(&group.spec.id).map_or(&[][..], Vec::as_slice);
        let task = question(&group.spec, placed);
        match self
            .matcher
            .judge(&task, &as_candidates(&survey.candidates))
            .await
        {
            Ok(verdicts) => {
                for verdict in verdicts {
                    if let Verdict::Refused(condition) = verdict {
                        *finding.reasons.entry(Reason::UnfulfilledCondition).or_default() += 1;
                        *finding.conditions.entry(condition).or_default() += 1;
                    }
                }
            }
            Err(error) => {
                finding.message = Some(self.matcher_failed(chain(&error)));
                finding.reasons.insert(Reason::MatcherUnavailable, 1);
            }
        }
    }

    fn note_all(&mut self, groups: &[Group], reason: Reason, message: &str) {
        for group in groups {
            let (offers, message) = (self.pool.bins().len() as u32, Some(message.to_owned()));
            let reasons = BTreeMap::from([(reason, 1)]);
            let refused_offers = offers;
            self.queue.note(
                &group.spec.id,
                Finding {
                    reasons,
                    message,
                    offers,
                    refused_offers,
                    ..Finding::default()
                },
            );
            self.metrics.refused(reason, 1);
        }
    }

    /// Stores the intents, then accepts the offers. What the store does not take stays in the queue.
    async fn launch(&mut self, caller: &Caller, planned: Vec<Planned>, now: Timestamp) {
        let mut intents = Vec::with_capacity(planned.len());
        let mut launches: BTreeMap<OfferId, Vec<v1::TaskInfo>> = BTreeMap::new();
        for planned in planned {
            let Some((record, info)) = self.compose(&planned, now) else {
                continue;
            };
            intents.push(Arc::new(record));
            launches.entry(planned.assigned.offer).or_default().push(info);
        }
        if intents.is_empty() {
            return;
        }
        if let Err(error) = self.ledger.commit(intents.clone()).await {
            self.intents_refused(&error, &intents).await;
            return;
        }
        self.store_works();
        self.pool.remove_all(&launches.keys().cloned().collect());
        let answered_by = Instant::now() + self.times.launch;
        for intent in &intents {
            self.queue.remove(&intent.id);
            self.doubts.at(intent.id.clone(), answered_by);
        }
        let filters = v1::Filters::refuse(self.times.decline);
        let mut calls = Vec::with_capacity(launches.len());
        for (offer, infos) in launches {
            let tasks: Vec<TaskId> = infos.iter().map(|info| info.task_id.clone()).collect();
            let call = caller.accept(vec![offer], vec![v1::Operation::launch(infos)], filters.clone());
            calls.push(call.map(|outcome| (tasks, outcome)).boxed());
        }
        let outcomes: Vec<_> = futures::stream::iter(calls)
            .buffer_unordered(SIDE_BY_SIDE)
            .collect()
            .await;
        for (tasks, outcome) in outcomes {
            match outcome {
                Ok(()) => self.launched(&tasks),
                Err(error) => {
                    // Taken or not: the cluster knows, and is asked.
                    self.metrics.call_failed("ACCEPT");
                    tracing::warn!(
                        tasks = tasks.len(),
                        error = chain(&error),
                        "ACCEPT failed; asking about its tasks"
                    );
                    for task in tasks {
                        self.doubts.at(task, Instant::now() + self.times.ask.base);
                    }
                }
            }
        }
    }

    /// The record and the launch of a task. `None` only if the agent was forgotten meanwhile, which a round
    /// does not do.
    fn compose(&self, planned: &Planned, now: Timestamp) -> Option<(TaskRecord, v1::TaskInfo)> {
        let assigned = &planned.assigned;
        let (agent, attributes) = self.agents.get(assigned.agent)?;
        let build = &self.queue.get(&assigned.id)?.spec.build;
        let share = assigned.taken.parts.first()?;
        let host_ports = share.host_ports.clone();
        let placement = Placement {
            task: assigned.id.clone(),
            agent: agent.clone(),
            host_ports,
        };
        let info = v1::TaskInfo {
            task_id: assigned.id.clone(),
            agent_id: agent.id.clone(),
            resources: share.resources.clone(),
            ..build.build(&placement)
        };
        let record = TaskRecord {
            id: assigned.id.clone(),
            run_spec: planned.spec.id.clone(),
            version: planned.spec.version.clone(),
            agent_attributes: attributes.to_vec(),
            phase: Phase::Intent,
            state: TaskState::Staging,
            status: None,
            intended_at: now,
            staged_at: None,
            started_at: None,
            updated_at: now,
            killing: false,
            kill_grace: None,
            note: build.note(&placement),
            agent: placement.agent,
            host_ports: placement.host_ports,
        };
        Some((record, info))
    }

    fn launched(&mut self, tasks: &[TaskId]) {
        self.metrics.launches.inc_by(tasks.len() as u64);
        let now = Timestamp::now();
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
            let record = self.ledger.assume(launched);
            self.outbox.push_back(Event::Launched(record));
        }
    }

    /// Nothing was accepted. A task that turns out to have a record already is that record's, and no longer
    /// wanted.
    async fn intents_refused(&mut self, error: &crate::Error, intents: &[Arc<TaskRecord>]) {
        self.store_failed(error);
        if conflict(error) {
            for intent in intents {
                match self.ledger.adopt(&intent.id).await {
                    Ok(Some(record)) => {
                        tracing::error!(task = %record.id, "not launched: the store has a record of it already");
                        self.queue.remove(&record.id);
                        self.doubts.at(record.id.clone(), Instant::now());
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(error = chain(&error), "the conflicting record cannot be read");
                    }
                }
            }
        }
        let waiting = intents
            .iter()
            .filter(|intent| self.queue.get(&intent.id).is_some());
        let specs: BTreeSet<String> = waiting.map(|intent| intent.run_spec.clone()).collect();
        for spec in specs {
            let reasons = BTreeMap::from([(Reason::StoreUnavailable, 1)]);
            self.queue.note(
                &spec,
                Finding {
                    reasons,
                    message: Some(chain(error)),
                    ..Finding::default()
                },
            );
        }
    }
}

fn question(spec: &RunSpec, placed: &[u32]) -> Task {
    Task {
        run_spec: spec.id.clone(),
        instances: spec.instances,
        conditions: spec.conditions.clone(),
        placed: placed.to_vec(),
        extra: Vec::new(),
    }
}

fn as_candidates(candidates: &[(u32, u32)]) -> Vec<Candidate> {
    candidates
        .iter()
        .map(|&(agent, room)| Candidate { agent, room })
        .collect()
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}
