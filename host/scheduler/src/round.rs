//! A round: what waits is put to the offers, the matcher is asked, and what has found a place is planned.
//! Nothing is stored or sent here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use rand::rngs::StdRng;
use transom_plugins::matcher::{Candidate, Task, Verdict};

use crate::arbiter::Arbiter;
use crate::matching::{Assigned, Bin, Need, Offers};
use crate::queue::{Finding, Lot};
use crate::{Reason, RunSpec};

/// One round's working state.
pub(crate) struct Round {
    offers: Offers,
    /// Handles of the agents that run something, by run spec id; grows as the round places.
    placed: HashMap<String, Vec<u32>>,
    /// What a run spec without roles accepts.
    roles: Vec<String>,
    planned: Vec<Planned>,
    /// Nanoseconds since 1970.
    now: i64,
}

/// An instance that has found its place.
pub(crate) struct Planned {
    pub(crate) spec: Arc<RunSpec>,
    pub(crate) assigned: Assigned,
}

impl Round {
    pub(crate) fn new(
        bins: Vec<Bin>,
        placed: HashMap<String, Vec<u32>>,
        roles: Vec<String>,
        now: Timestamp,
    ) -> Self {
        Self {
            offers: Offers::new(bins),
            placed,
            roles,
            planned: Vec::new(),
            now: i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX),
        }
    }

    /// What has found a place.
    pub(crate) fn into_planned(self) -> Vec<Planned> {
        self.planned
    }

    /// Finds places for one lot, and why those that remain have none: `None` if none remain.
    pub(crate) async fn place(
        &mut self,
        lot: &Lot,
        arbiter: &mut Arbiter,
        rng: &mut StdRng,
    ) -> Option<Finding> {
        let wanted = u32::try_from(lot.ids.len()).unwrap_or(u32::MAX);
        let need = Need::of(&lot.spec, &self.roles);
        let survey = self.offers.survey(&need, wanted, self.now);
        let before = self.planned.len();
        let mut failed = None;
        if !survey.candidates.is_empty() {
            failed = self
                .choose(lot, &need, &survey.candidates, arbiter, rng)
                .await
                .err();
        }
        let placed = &self.planned[before..];
        if placed.len() == lot.ids.len() {
            return None;
        }
        let used: BTreeSet<_> = placed.iter().map(|planned| &planned.assigned.offer).collect();
        let offers = self.offers.len() as u32;
        let mut finding = Finding {
            offers,
            refused_offers: offers - used.len() as u32,
            ..Finding::default()
        };
        if let Some(message) = failed {
            finding.reasons = BTreeMap::from([(Reason::MatcherUnavailable, 1)]);
            finding.message = Some(message);
        } else {
            let left = wanted - placed.len() as u32;
            self.explain(lot, &need, left, arbiter, &mut finding).await;
        }
        Some(finding)
    }

    /// Asks the matcher and divides up the offers. The error is what to show.
    async fn choose(
        &mut self,
        lot: &Lot,
        need: &Need,
        candidates: &[(u32, u32)],
        arbiter: &mut Arbiter,
        rng: &mut StdRng,
    ) -> Result<(), String> {
        let placed = self.placed.entry(lot.spec.id.clone()).or_default();
        let task = question(&lot.spec, placed);
        let count = u32::try_from(lot.ids.len()).unwrap_or(u32::MAX);
        let chosen = arbiter.place(&task, &as_candidates(candidates), count).await?;
        let (assigned, misfit) = self.offers.assign(need, &lot.ids, &chosen, rng);
        for assigned in assigned {
            placed.push(assigned.agent);
            let spec = Arc::clone(&lot.spec);
            self.planned.push(Planned { spec, assigned });
        }
        if let Some(agent) = misfit {
            return Err(arbiter.refused(agent));
        }
        arbiter.used();
        Ok(())
    }

    /// Why the rest of the lot has no place: what the offers lack, and what the conditions refuse.
    async fn explain(&self, lot: &Lot, need: &Need, left: u32, arbiter: &mut Arbiter, finding: &mut Finding) {
        let survey = self.offers.survey(need, left, self.now);
        finding.reasons = survey.refused;
        if survey.candidates.is_empty() {
            return;
        }
        let placed = self.placed.get(&lot.spec.id).map_or(&[][..], Vec::as_slice);
        let task = question(&lot.spec, placed);
        match arbiter.judge(&task, &as_candidates(&survey.candidates)).await {
            Ok(verdicts) => {
                for verdict in verdicts {
                    if let Verdict::Refused(condition) = verdict {
                        *finding.reasons.entry(Reason::UnfulfilledCondition).or_default() += 1;
                        *finding.conditions.entry(condition).or_default() += 1;
                    }
                }
            }
            Err(message) => {
                finding.message = Some(message);
                finding.reasons.insert(Reason::MatcherUnavailable, 1);
            }
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
