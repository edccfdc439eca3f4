//! A round: what waits is put to the offers, the matcher is asked, and what has found a place is planned.
//! Nothing is stored or sent here.
//!
//! # Who is asked about
//!
//! On a large cluster nearly every run spec finds its places among a few agents, so the matcher is first asked about
//! a shortlist: the first of those with room, in the order in which all of them would be put to it. Only when that
//! does not do is it asked to judge all the others too, and what it lets pass is the second shortlist. So a run spec
//! that remains without a place has had all offers looked at, and its reasons speak of all of them. What a matcher
//! prefers among candidates (as one that spreads instances) it finds among some hundreds of them.
//!
//! What the matcher refused is kept for the round: further run specs with equal conditions are not put to those agents
//! first. That is a guess that saves questions (a matcher may go by the run spec's id too) and decides nothing: each run
//! spec's places are the matcher's answer to its own question, and each one's reasons are too.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use rand::rngs::StdRng;
use transom_cluster::TaskId;
use transom_plugins::matcher::{Candidate, Constraint, Task, Verdict};

use crate::matching::matcher_client::MatcherClient;
use crate::matching::queue::{MatchFailure, TaskBatch};
use crate::matching::{Assignment, CandidateScan, Offers, OpenOffer, Requirements};
use crate::{Reason, RunSpec};

/// How many agents the matcher is asked about first, if no more instances than that are wanted.
const SHORTLIST: usize = 512;

/// One round's working state.
pub(crate) struct Round {
    offers: Offers,
    /// Where instances are, by run spec id; grows as the round places.
    placed: HashMap<String, PlacedInstances>,
    /// What a run spec without roles accepts.
    roles: Vec<String>,
    planned: Vec<PlannedLaunch>,
    refused: Refused,
    shortlist: usize,
    /// Nanoseconds since 1970.
    now: i64,
}

/// Where the instances of a run spec are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlacedInstances {
    /// Handles of the agents that run one; of an agent with two, twice.
    pub(crate) agents: Vec<u32>,
    /// Those of them whose instance is being ended.
    pub(crate) ending: Vec<u32>,
}

/// An instance that has found its place.
pub(crate) struct PlannedLaunch {
    pub(crate) spec: Arc<RunSpec>,
    pub(crate) assigned: Assignment,
}

/// The agents that conditions refused, by their place among the offers' agents.
type Refused = HashMap<Vec<Constraint>, Vec<bool>>;

/// What the matcher says of all candidates of a survey.
struct Judged {
    survey: CandidateScan,
    verdicts: Vec<Verdict>,
}

/// A batch while places are looked for.
struct Search<'a> {
    spec: &'a Arc<RunSpec>,
    need: Requirements,
    /// How many instances there are. Offers are always looked at for all of them, so that candidates stand in the same
    /// order each time.
    count: u32,
    /// Those without a place.
    ids: &'a [TaskId],
}

impl Round {
    pub(crate) fn new(
        bins: Vec<OpenOffer>,
        placed: HashMap<String, PlacedInstances>,
        roles: Vec<String>,
        now: Timestamp,
    ) -> Self {
        Self {
            offers: Offers::new(bins),
            placed,
            roles,
            planned: Vec::new(),
            refused: Refused::new(),
            shortlist: SHORTLIST,
            now: i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX),
        }
    }

    /// What has found a place.
    pub(crate) fn into_planned(self) -> Vec<PlannedLaunch> {
        self.planned
    }

    /// Finds places for one batch, and why those that remain have none: `None` if none remain.
    pub(crate) async fn place(
        &mut self,
        batch: &TaskBatch,
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Option<MatchFailure> {
        let mut search = Search {
            spec: &batch.spec,
            need: Requirements::of(&batch.spec, &self.roles),
            count: u32::try_from(batch.ids.len()).unwrap_or(u32::MAX),
            ids: &batch.ids,
        };
        let before = self.planned.len();
        let found = self.search(&mut search, matcher, rng).await;
        if search.ids.is_empty() {
            return None;
        }
        let used: BTreeSet<_> = self.planned[before..]
            .iter()
            .map(|planned| &planned.assigned.offer)
            .collect();
        let offers = self.offers.len() as u32;
        let mut failure = MatchFailure {
            offers,
            refused_offers: offers - used.len() as u32,
            ..MatchFailure::default()
        };
        let explained = match found {
            Ok(Some(judged)) => Ok(judged),
            Ok(None) => self.judge(&search, matcher).await,
            Err(message) => Err(message),
        };
        match explained {
            Ok(judged) => judged.explain(batch.spec.constraints.len(), &mut failure),
            Err(message) => {
                failure.reasons = BTreeMap::from([(Reason::MatcherUnavailable, 1)]);
                failure.message = Some(message);
            }
        }
        Some(failure)
    }

    /// Looks for places, at first where they are likely. What was judged on the way is handed back if it still
    /// holds. The error is what to show.
    async fn search(
        &mut self,
        search: &mut Search<'_>,
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Result<Option<Judged>, String> {
        let most = self.shortlist.max(search.ids.len());
        let known = self.refused.get(&search.spec.constraints);
        let refused = |place: usize| known.is_some_and(|known| known[place]);
        let likely = self
            .offers
            .shortlist(&search.need, search.count, self.now, most, refused);
        self.choose(search, &likely.candidates, matcher, rng).await?;
        if search.ids.is_empty() || likely.complete {
            return Ok(None);
        }
        let judged = self.judge(search, matcher).await?;
        let fitting: Vec<(u32, u32)> = judged.fitting().collect();
        if fitting.is_empty() {
            return Ok(Some(judged));
        }
        self.choose(search, &fitting, matcher, rng).await?;
        Ok(None)
    }

    /// Asks the matcher and divides up the offers. The error is what to show.
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
        let (task, count) = (self.question(search.spec), search.ids.len() as u32);
        let chosen = matcher.place(&task, &as_candidates(candidates), count).await?;
        let (assigned, misfit) = self.offers.assign(&search.need, search.ids, &chosen, rng);
        search.ids = &search.ids[assigned.len()..];
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
            }));
        if let Some(agent) = misfit {
            return Err(matcher.rejected_choice(agent));
        }
        matcher.succeeded();
        Ok(())
    }

    /// Looks at all offers, and has the matcher judge those with room.
    async fn judge(&mut self, search: &Search<'_>, matcher: &mut MatcherClient) -> Result<Judged, String> {
        let survey = self.offers.scan(&search.need, search.count, self.now);
        if survey.candidates.is_empty() {
            let verdicts = Vec::new();
            return Ok(Judged { survey, verdicts });
        }
        let task = self.question(search.spec);
        let verdicts = matcher.judge(&task, &as_candidates(&survey.candidates)).await?;
        matcher.succeeded();
        let judged = Judged { survey, verdicts };
        // What an instance elsewhere forbids to another one is no news of the conditions.
        if task.placed.is_empty() {
            self.remember(task.constraints, &judged);
        }
        Ok(judged)
    }

    fn remember(&mut self, conditions: Vec<Constraint>, judged: &Judged) {
        let refused = self.refused.entry(conditions);
        let refused = refused.or_insert_with(|| vec![false; self.offers.agents()]);
        for (&(agent, _), verdict) in judged.each() {
            if let (Verdict::Refused(_), Some(place)) = (verdict, self.offers.index_of_agent(agent)) {
                refused[place] = true;
            }
        }
    }

    fn question(&self, spec: &RunSpec) -> Task {
        let placed = self.placed.get(&spec.id).cloned().unwrap_or_default();
        Task {
            run_spec: spec.id.clone(),
            instances: spec.instances,
            constraints: spec.constraints.clone(),
            placed: placed.agents,
            extensions: ending(&placed.ending).into_iter().collect(),
        }
    }
}

impl Judged {
    fn each(&self) -> impl Iterator<Item = (&(u32, u32), &Verdict)> {
        self.survey.candidates.iter().zip(&self.verdicts)
    }

    fn fitting(&self) -> impl Iterator<Item = (u32, u32)> {
        let fits = self.each().filter(|(_, verdict)| **verdict == Verdict::Fits);
        fits.map(|(candidate, _)| *candidate)
    }

    /// What the offers lack, and what the conditions (so many) and the matcher itself refuse.
    fn explain(&self, conditions: usize, failure: &mut MatchFailure) {
        failure.reasons.clone_from(&self.survey.refused);
        let mut by_no_condition = 0;
        for (_, verdict) in self.each() {
            let Verdict::Refused(index) = *verdict else {
                continue;
            };
            *failure.reasons.entry(Reason::UnfulfilledConstraint).or_default() += 1;
            if (index as usize) < conditions {
                *failure.constraints.entry(index).or_default() += 1;
            } else {
                by_no_condition += 1;
            }
        }
        if by_no_condition > 0 {
            failure.message = Some(format!(
                "agents refused by no condition, but by a rule of the matcher's own, as that a task stays in the home \
                 region: {by_no_condition}"
            ));
        }
    }
}

/// What [`Task::extensions`] tells of the instances that are being ended; nothing if there are none.
fn ending(agents: &[u32]) -> Option<(String, String)> {
    let handles: Vec<String> = agents.iter().map(ToString::to_string).collect();
    (!handles.is_empty()).then(|| (Task::ENDING.to_owned(), handles.join(" ")))
}

fn as_candidates(candidates: &[(u32, u32)]) -> Vec<Candidate> {
    candidates
        .iter()
        .map(|&(agent, capacity)| Candidate { agent, capacity })
        .collect()
}
