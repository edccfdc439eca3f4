//! A round: matches pending tasks with the offers, calls the matcher and plans launches. Nothing is
//! stored or sent here.
//!
//! # Shortlists
//!
//! On a large cluster nearly every run spec is placed among a few agents, so the matcher is first
//! called with a shortlist: the first agents with room, in the order of a full scan. Only if that
//! is not enough does the matcher judge all others, and those it allows are the second shortlist.
//! So for a run spec that stays pending all offers have been evaluated, and its reasons cover all
//! of them. A matcher that prefers some candidates (for example, to spread instances) chooses among
//! some hundreds of them. No call has more candidates, or more instances than a batch, so that its
//! work is bounded even if a matcher compares each of these with each of those.
//!
//! Rejections are cached for the round: a run spec with equal constraints is not matched with the
//! rejected agents at first, nor the next batch of a run spec with those that its own instances
//! exclude. The cache only saves calls, because a matcher may also use the run spec id: every
//! placement and every reason is the matcher's answer for that run spec. Answers are not kept longer,
//! because a matcher may read the clock, so that nothing tells when they change.

mod resident;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use rand::rngs::StdRng;
use transom_cluster::{OfferId, TaskId, v1};
use transom_plugin_host::matcher::{Candidate, Constraint, Task, Verdict};

use crate::matching::maintenance::nanoseconds;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::queue::{MatchFailure, TaskBatch};
use crate::matching::{
    Assignment, CandidateScan, Offers, OpenOffer, Requirements, RequirementsKey, Shortlist,
};
use crate::{Reason, Reasons, RunSpec};

/// Maximum agents in the first call of the matcher, unless more instances are requested.
const SHORTLIST_SIZE: usize = 512;

/// One round's working state.
pub(crate) struct Round {
    offers: Offers,
    /// The placed instances by run spec id, including those that this round plans.
    placed: HashMap<String, PlacedInstances>,
    /// The accepted roles of a run spec that names none.
    roles: Vec<String>,
    planned: Vec<PlannedLaunch>,
    /// The keys of the reservations that are planned.
    reserved: BTreeSet<String>,
    /// Unused offers for the last batch that was not placed.
    unused: Vec<RefusedOffer>,
    rejected_agents: RejectedAgents,
    without_room: WithoutRoom,
    shortlist_size: usize,
    /// Nanoseconds since 1970.
    now: i64,
}

/// An offer that was not used for a batch.
#[derive(Clone)]
pub(crate) struct RefusedOffer {
    pub(crate) offer: OfferId,
    pub(crate) agent: u32,
    pub(crate) resources: Vec<Arc<v1::Resource>>,
    pub(crate) reasons: Vec<Reason>,
}

/// Where the instances of a run spec run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlacedInstances {
    /// Handles of their agents; an agent with two instances is listed twice.
    pub(crate) agents: Vec<u32>,
    /// The agents among them whose instance is being killed.
    pub(crate) ending: Vec<u32>,
}

/// An instance with its assignment.
pub(crate) struct PlannedLaunch {
    pub(crate) spec: Arc<RunSpec>,
    pub(crate) assigned: Assignment,
    pub(crate) step: LaunchStep,
}

/// The use of the assigned resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LaunchStep {
    Launch,
    /// Reserve them under this key. The instance stays pending.
    Reserve(String),
    /// Launch on the resources of the reservation with this key.
    LaunchReserved(String),
}

pub(crate) use resident::Residents;

/// For each list of constraints, which agents were rejected, by the index of the agent in the offers.
/// Rejections that placed instances may have caused hold for one run spec id only.
type RejectedAgents = HashMap<(Option<String>, Vec<Constraint>), Vec<bool>>;

/// The reasons why no offer has room for one instance with these requirements, and the unused offers.
/// Run specs with equal requirements share them until the next launch is planned.
#[derive(Default)]
struct WithoutRoom {
    planned: usize,
    answers: HashMap<RequirementsKey, (MatchFailure, Vec<RefusedOffer>)>,
}

/// The verdicts on all candidates of a scan.
struct Evaluation {
    scan: CandidateScan,
    verdicts: Vec<Verdict>,
    /// The number of rejections by each matcher, if there are several.
    rejections: Vec<(String, u32)>,
}

/// The search for placements of one batch.
struct Search<'a> {
    spec: &'a Arc<RunSpec>,
    requirements: Requirements,
    /// The number of instances of the batch. Offers are always scanned for all of them, so that the
    /// order of candidates is stable.
    count: u32,
    /// Instances that are not placed yet.
    ids: &'a [TaskId],
}

impl Round {
    pub(crate) fn new(
        open_offers: Vec<OpenOffer>,
        placed: HashMap<String, PlacedInstances>,
        roles: Vec<String>,
        now: Timestamp,
    ) -> Self {
        Self {
            offers: Offers::new(open_offers),
            placed,
            roles,
            planned: Vec::new(),
            reserved: BTreeSet::new(),
            unused: Vec::new(),
            rejected_agents: RejectedAgents::new(),
            without_room: WithoutRoom::default(),
            shortlist_size: SHORTLIST_SIZE,
            now: nanoseconds(now),
        }
    }

    /// The number of planned launches.
    pub(crate) fn planned(&self) -> usize {
        self.planned.len()
    }

    /// The planned launches.
    pub(crate) fn into_planned(self) -> Vec<PlannedLaunch> {
        self.planned
    }

    /// Some of the offers that were not used for the last batch that was not placed.
    pub(crate) fn take_unused(&mut self) -> Vec<RefusedOffer> {
        std::mem::take(&mut self.unused)
    }

    /// Places one batch. Returns why the remaining instances are not placed; `None` if none remain.
    pub(crate) async fn place(
        &mut self,
        batch: &TaskBatch,
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Option<MatchFailure> {
        let mut search = Search {
            spec: &batch.spec,
            requirements: Requirements::of(&batch.spec, &self.roles),
            count: u32::try_from(batch.ids.len()).unwrap_or(u32::MAX),
            ids: &batch.ids,
        };
        let planned_before = self.planned.len();
        if self.without_room.planned != planned_before {
            self.without_room = WithoutRoom::default();
            self.without_room.planned = planned_before;
        }
        let key = search.requirements.key();
        if let Some((failure, unused)) = self.without_room.answers.get(&key) {
            self.unused.clone_from(unused);
            return Some(failure.clone());
        }
        let search_result = self.search(&mut search, matcher, rng).await;
        let has_room =
            !matches!(&search_result, Ok(Some(evaluation)) if evaluation.scan.candidates.is_empty());
        let failure = self
            .explain(&search, search_result, planned_before, matcher)
            .await;
        if let (false, Some(failure)) = (has_room, &failure) {
            let answer = (failure.clone(), self.unused.clone());
            self.without_room.answers.insert(key, answer);
        }
        failure
    }

    /// The reasons why the remaining instances of a search are not placed. `planned_before` is the number
    /// of launches that were planned before the search.
    async fn explain(
        &mut self,
        search: &Search<'_>,
        search_result: Result<Option<Evaluation>, String>,
        planned_before: usize,
        matcher: &mut MatcherClient,
    ) -> Option<MatchFailure> {
        if search.ids.is_empty() {
            return None;
        }
        let used: BTreeSet<OfferId> = self.planned[planned_before..]
            .iter()
            .map(|planned| planned.assigned.offer.clone())
            .collect();
        let offers = self.offers.len() as u32;
        let mut failure = MatchFailure {
            offers,
            refused_offers: offers - used.len() as u32,
            ..MatchFailure::default()
        };
        let evaluated = match search_result {
            Ok(Some(evaluation)) => Ok(evaluation),
            Ok(None) => self.evaluate(search, matcher).await,
            Err(message) => Err(message),
        };
        match evaluated {
            Ok(evaluation) => {
                evaluation.explain(search.spec.constraints.len(), &mut failure);
                self.record_unused(&search.requirements, &evaluation, &used);
            }
            Err(message) => {
                failure.reasons = BTreeMap::from([(Reason::MatcherUnavailable, 1)]);
                failure.message = Some(message);
            }
        }
        Some(failure)
    }

    /// Searches for placements, starting with the shortlist. Returns the verdicts if they are still
    /// valid; the error is a message for users.
    async fn search(
        &mut self,
        search: &mut Search<'_>,
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Result<Option<Evaluation>, String> {
        let limit = self.shortlist_size.max(search.ids.len());
        let mut shortlist = self.shortlist(search, limit);
        if shortlist.candidates.is_empty() && shortlist.is_complete {
            let scan = self.offers.scan(&search.requirements, search.count, self.now);
            return Ok(Some(Evaluation::without_candidates(scan)));
        }
        // If the run spec has instances, they may be why the first agents are rejected, and the next
        // ones may be enough.
        for is_last in [!self.placed.contains_key(&search.spec.id), true] {
            self.choose(search, &shortlist.candidates, matcher, rng).await?;
            if search.ids.is_empty() || shortlist.is_complete {
                return Ok(None);
            }
            if is_last {
                break;
            }
            shortlist = self.shortlist(search, limit);
        }
        let evaluation = self.evaluate(search, matcher).await?;
        let fitting_candidates: Vec<(u32, u32)> = evaluation.fitting_candidates().collect();
        if fitting_candidates.is_empty() {
            return Ok(Some(evaluation));
        }
        for candidates in fitting_candidates.chunks(limit) {
            self.choose(search, candidates, matcher, rng).await?;
            if search.ids.is_empty() {
                break;
            }
        }
        Ok(None)
    }

    /// The first agents with room, without those whose rejection is cached.
    fn shortlist(&self, search: &Search<'_>, limit: usize) -> Shortlist {
        let cached = |run_spec| {
            self.rejected_agents
                .get(&(run_spec, search.spec.constraints.clone()))
        };
        let cached = [cached(None), cached(Some(search.spec.id.clone()))];
        let rejected = |agent_index: usize| cached.iter().flatten().any(|agents| agents[agent_index]);
        let (requirements, count) = (&search.requirements, search.count);
        self.offers
            .shortlist(requirements, count, self.now, limit, rejected)
    }

    /// Calls the matcher and allocates resources. The error is a message for users.
    async fn choose(
        &mut self,
        search: &mut Search<'_>,
        candidates: &[(u32, u32)],
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Result<(), String> {
        if candidates.is_empty() {
            return Ok(());
        }
        let (task, count) = (self.matcher_task(search.spec), search.ids.len() as u32);
        let chosen = matcher.place(&task, &as_candidates(candidates), count).await?;
        let (assigned, agent_without_capacity) =
            self.offers.assign(&search.requirements, search.ids, &chosen, rng);
        search.ids = &search.ids[assigned.len()..];
        if !search.ids.is_empty() {
            let mut used: HashMap<u32, u32> = HashMap::new();
            for agent in &chosen {
                *used.entry(*agent).or_default() += 1;
            }
            let with_room = candidates.iter();
            let with_room = with_room.filter(|(agent, room)| used.get(agent).copied().unwrap_or(0) < *room);
            self.cache_rejections(search.spec, true, with_room.map(|(agent, _)| *agent));
        }
        if !assigned.is_empty() {
            let placed = self.placed.entry(search.spec.id.clone()).or_default();
            placed
                .agents
                .extend(assigned.iter().map(|assigned| assigned.agent));
        }
        self.planned
            .extend(assigned.into_iter().map(|assigned| PlannedLaunch {
                spec: Arc::clone(search.spec),
                assigned,
                step: LaunchStep::Launch,
            }));
        if let Some(agent) = agent_without_capacity {
            return Err(matcher.rejected_choice(&search.spec.id, agent));
        }
        matcher.succeeded(&search.spec.id);
        Ok(())
    }

    /// Scans all offers and has the matcher evaluate those with room.
    async fn evaluate(
        &mut self,
        search: &Search<'_>,
        matcher: &mut MatcherClient,
    ) -> Result<Evaluation, String> {
        let scan = self.offers.scan(&search.requirements, search.count, self.now);
        if scan.candidates.is_empty() {
            return Ok(Evaluation::without_candidates(scan));
        }
        let task = self.matcher_task(search.spec);
        let (verdicts, rejections) = matcher.evaluate(&task, &as_candidates(&scan.candidates)).await?;
        matcher.succeeded(&search.spec.id);
        let evaluation = Evaluation {
            scan,
            verdicts,
            rejections,
        };
        let rejected = evaluation.candidates_with_verdicts();
        let rejected = rejected.filter(|(_, verdict)| matches!(verdict, Verdict::Refused(_)));
        let rejected = rejected.map(|((agent, _), _)| *agent);
        self.cache_rejections(search.spec, !task.placed.is_empty(), rejected);
        Ok(evaluation)
    }

    /// Records the first offers that a run spec cannot use, with the reasons.
    fn record_unused(
        &mut self,
        requirements: &Requirements,
        evaluation: &Evaluation,
        used: &BTreeSet<OfferId>,
    ) {
        let rejected: BTreeSet<u32> = evaluation
            .candidates_with_verdicts()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Refused(_)))
            .map(|((agent, _), _)| *agent)
            .collect();
        let unused_offers = self
            .offers
            .open()
            .iter()
            .filter(|offer| !used.contains(&offer.id));
        let unused = unused_offers.filter_map(|offer| {
            let mut reasons = Vec::new();
            offer.capacity(requirements, 1, self.now, |reason| reasons.push(reason));
            if reasons.is_empty() && rejected.contains(&offer.agent) {
                reasons.push(Reason::UnfulfilledConstraint);
            }
            (!reasons.is_empty()).then(|| RefusedOffer::new(offer, reasons))
        });
        self.unused = unused.take(Reasons::MAX_UNUSED_OFFERS).collect();
    }

    /// Records that the matcher rejected these agents, maybe because of instances of the run spec.
    fn cache_rejections(&mut self, spec: &RunSpec, for_instances: bool, agents: impl Iterator<Item = u32>) {
        let key = (for_instances.then(|| spec.id.clone()), spec.constraints.clone());
        let rejected = self.rejected_agents.entry(key);
        let rejected = rejected.or_insert_with(|| vec![false; self.offers.agents()]);
        for agent_index in agents.filter_map(|agent| self.offers.index_of_agent(agent)) {
            rejected[agent_index] = true;
        }
    }

    fn matcher_task(&self, spec: &RunSpec) -> Task {
        matcher_task(spec, self.placed.get(&spec.id).cloned().unwrap_or_default())
    }
}

/// The description of a run spec for the matcher.
pub(crate) fn matcher_task(spec: &RunSpec, placed: PlacedInstances) -> Task {
    Task {
        run_spec: spec.id.clone(),
        instances: spec.instances,
        constraints: spec.constraints.clone(),
        placed: placed.agents,
        extensions: ending_extension(&placed.ending).into_iter().collect(),
    }
}

impl RefusedOffer {
    fn new(offer: &OpenOffer, reasons: Vec<Reason>) -> Self {
        Self {
            offer: offer.id.clone(),
            agent: offer.agent,
            resources: offer.offered_resources(),
            reasons,
        }
    }
}

impl Evaluation {
    fn without_candidates(scan: CandidateScan) -> Self {
        Self {
            scan,
            verdicts: Vec::new(),
            rejections: Vec::new(),
        }
    }

    fn candidates_with_verdicts(&self) -> impl Iterator<Item = (&(u32, u32), &Verdict)> {
        self.scan.candidates.iter().zip(&self.verdicts)
    }

    fn fitting_candidates(&self) -> impl Iterator<Item = (u32, u32)> {
        let fits = self
            .candidates_with_verdicts()
            .filter(|(_, verdict)| **verdict == Verdict::Fits);
        fits.map(|(candidate, _)| *candidate)
    }

    /// Adds the reasons: insufficient offers, constraints, and rules of the matcher itself.
    /// `constraint_count` is the number of constraints.
    fn explain(&self, constraint_count: usize, failure: &mut MatchFailure) {
        failure.reasons.clone_from(&self.scan.refused_offers);
        let mut rejected_by_own_rule = 0;
        for (_, verdict) in self.candidates_with_verdicts() {
            let Verdict::Refused(index) = *verdict else {
                continue;
            };
            *failure.reasons.entry(Reason::UnfulfilledConstraint).or_default() += 1;
            if (index as usize) < constraint_count {
                *failure.constraints.entry(index).or_default() += 1;
            } else {
                rejected_by_own_rule += 1;
            }
        }
        let by_matcher = self
            .rejections
            .iter()
            .map(|(name, count)| format!("{name}: {count}"));
        let by_matcher: Vec<String> = by_matcher.collect();
        if !by_matcher.is_empty() {
            failure.message = Some(format!("agents rejected by matcher: {}", by_matcher.join(", ")));
        } else if rejected_by_own_rule > 0 {
            failure.message = Some(format!(
                "agents rejected by a rule of the matcher itself, for example the home region: {rejected_by_own_rule}"
            ));
        }
    }
}

/// The entry in [`Task::extensions`] for instances that are being killed, if there are any.
fn ending_extension(agents: &[u32]) -> Option<(String, String)> {
    let handles: Vec<String> = agents.iter().map(ToString::to_string).collect();
    (!handles.is_empty()).then(|| (Task::ENDING.to_owned(), handles.join(" ")))
}

fn as_candidates(candidates: &[(u32, u32)]) -> Vec<Candidate> {
    candidates
        .iter()
        .map(|&(agent, capacity)| Candidate { agent, capacity })
        .collect()
}
