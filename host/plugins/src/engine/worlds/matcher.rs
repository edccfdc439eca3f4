//! World `attribute-matcher`: fleets are loaded when first asked about and kept up to date with what changed.

use std::{collections::HashMap, sync::Arc};

use wasmtime::component::ResourceAny;

use super::{
    common,
    held::{self, Resources},
};
use crate::{
    engine::{
        Live, World,
        bindings::matcher::{AttributeMatcher, AttributeMatcherPre},
        convert::matcher as convert,
        guest::Guest,
        live::Reply,
    },
    error::CallError,
    fault::Fault,
    fleet_copy::{Changes, FleetCopy},
    text::one_line,
    types::matcher::{Agent, Candidate, Condition, ConditionError, Task, Verdict},
};

/// Agents handed over in one call, so that loading a large cluster is many short calls.
const AGENTS_PER_CALL: usize = 500;

pub(crate) struct Matcher;

/// A question about one task, on the agents of `fleet`.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) fleet: Arc<FleetCopy>,
    pub(crate) task: Task,
    pub(crate) candidates: Vec<Candidate>,
}

pub(crate) enum Job {
    Check {
        conditions: Vec<Condition>,
        reply: Reply<Vec<ConditionError>>,
    },
    Judge {
        question: Question,
        reply: Reply<Vec<Verdict>>,
    },
    Place {
        question: Question,
        count: u32,
        reply: Reply<Vec<u32>>,
    },
}

impl World for Matcher {
    type Pre = AttributeMatcherPre<Guest>;
    type Bindings = AttributeMatcher;
    /// With the revision of the host's copy when it was last handed over.
    type Held = Resources<FleetCopy, u64>;
    type Shared = ();
    type Job = Job;

    common!(AttributeMatcherPre, transom_plugin_about);

    async fn run(live: &mut Live<Self>, _shared: &Arc<()>, job: Job) -> Result<(), Fault> {
        match job {
            Job::Check { conditions, reply } => {
                let errors = check(live, conditions).await;
                live.answer(reply, errors)
            }
            Job::Judge { question, reply } => {
                let verdicts = judge(live, question).await;
                live.answer(reply, verdicts)
            }
            Job::Place {
                question,
                count,
                reply,
            } => {
                let chosen = place(live, question, count).await;
                live.answer(reply, chosen)
            }
        }
    }

    async fn tidy(live: &mut Live<Self>, _shared: &()) -> Result<(), Fault> {
        held::tidy(live).await
    }

    fn refuse(job: Job, error: CallError) {
        match job {
            Job::Check { reply, .. } => drop(reply.send(Err(error))),
            Job::Judge { reply, .. } => drop(reply.send(Err(error))),
            Job::Place { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

async fn check(live: &mut Live<Matcher>, conditions: Vec<Condition>) -> Result<Vec<ConditionError>, Fault> {
    let asked = conditions.len();
    let conditions: Vec<_> = conditions.into_iter().map(convert::condition).collect();
    let allowance = live.allowance();
    let call = live
        .bindings
        .transom_matcher_matcher()
        .call_check(&mut live.store, &conditions);
    let errors = live.gate.run(allowance, call).await?;
    if let Some(beyond) = errors.iter().find(|error| error.condition as usize >= asked) {
        return Err(Fault::Malformed(format!(
            "an error for condition {} of {asked}",
            beyond.condition
        )));
    }
    Ok(errors
        .into_iter()
        .map(|error| ConditionError {
            condition: error.condition,
            message: one_line(&error.message),
        })
        .collect())
}

async fn judge(live: &mut Live<Matcher>, question: Question) -> Result<Vec<Verdict>, Fault> {
    let fleet = load(live, &question.fleet).await?;
    let conditions = question.task.conditions.len();
    let (task, candidates) = (
        convert::task(question.task),
        convert::candidates(&question.candidates),
    );
    let allowance = live.allowance();
    let fleets = live.bindings.transom_matcher_matcher().fleet();
    let call = fleets.call_judge(&mut live.store, fleet, &task, &candidates);
    let verdicts = live.gate.run(allowance, call).await?;
    let verdicts: Vec<Verdict> = verdicts.into_iter().map(convert::verdict).collect();
    check_verdicts(&verdicts, candidates.len(), conditions).map_err(Fault::Malformed)?;
    Ok(verdicts)
}

/// A verdict for each candidate; a refusal names a condition or, as the number of conditions, none of them.
fn check_verdicts(verdicts: &[Verdict], candidates: usize, conditions: usize) -> Result<(), String> {
    if verdicts.len() != candidates {
        return Err(format!("{} verdicts on {candidates} candidates", verdicts.len()));
    }
    for verdict in verdicts {
        if let Verdict::Refused(index) = verdict
            && *index as usize > conditions
        {
            return Err(format!("refused by condition {index} of {conditions}"));
        }
    }
    Ok(())
}

async fn place(live: &mut Live<Matcher>, question: Question, count: u32) -> Result<Vec<u32>, Fault> {
    let fleet = load(live, &question.fleet).await?;
    let (task, candidates) = (
        convert::task(question.task),
        convert::candidates(&question.candidates),
    );
    let allowance = live.allowance();
    let fleets = live.bindings.transom_matcher_matcher().fleet();
    let call = fleets.call_place(&mut live.store, fleet, &task, &candidates, count);
    let chosen = live.gate.run(allowance, call).await?;
    check_choice(&chosen, &question.candidates, count).map_err(Fault::Malformed)?;
    Ok(chosen)
}

/// A choice names candidates only, none beyond its room, and no more than were asked for.
fn check_choice(chosen: &[u32], candidates: &[Candidate], count: u32) -> Result<(), String> {
    if chosen.len() > count as usize {
        return Err(format!("{} places for {count} instances", chosen.len()));
    }
    let mut room: HashMap<u32, u32> = HashMap::new();
    for candidate in candidates {
        *room.entry(candidate.agent).or_default() += candidate.room;
    }
    for agent in chosen {
        match room.get_mut(agent) {
            None => return Err(format!("agent {agent} was chosen and is no candidate")),
            Some(0) => return Err(format!("agent {agent} was chosen more often than it has room")),
            Some(left) => *left -= 1,
        }
    }
    Ok(())
}

/// The guest's fleet, brought up to the host's copy.
async fn load(live: &mut Live<Matcher>, copy: &Arc<FleetCopy>) -> Result<ResourceAny, Fault> {
    let known = live.held.get(copy.id()).map(|(_, revision)| revision);
    let (revision, news) = copy.changes_since(known);
    let (changed, gone) = match news {
        Changes::Since { changed, gone } => (changed, gone),
        Changes::Everything(agents) => {
            if let Some(resource) = live.held.take(copy.id()) {
                live.free(resource).await?;
            }
            (agents, Vec::new())
        }
    };
    let resource = if let Some((resource, _)) = live.held.get(copy.id()) {
        resource
    } else {
        let allowance = live.allowance();
        let fleets = live.bindings.transom_matcher_matcher().fleet();
        let call = fleets.call_constructor(&mut live.store, copy.home_region());
        live.gate.run(allowance, call).await?
    };
    // Until all of it is handed over the guest's copy is at no revision; a fault throws it away with the instance.
    live.held.put(copy.id(), copy, resource, revision);
    for gone in gone.chunks(AGENTS_PER_CALL * 10) {
        update(live, resource, &[], gone).await?;
    }
    for changed in changed.chunks(AGENTS_PER_CALL) {
        update(live, resource, changed, &[]).await?;
    }
    Ok(resource)
}

async fn update(
    live: &mut Live<Matcher>,
    fleet: ResourceAny,
    changed: &[Arc<Agent>],
    gone: &[u32],
) -> Result<(), Fault> {
    let changed: Vec<_> = changed.iter().map(|agent| convert::agent(agent)).collect();
    let allowance = live.allowance();
    let fleets = live.bindings.transom_matcher_matcher().fleet();
    let call = fleets.call_update(&mut live.store, fleet, &changed, gone);
    live.gate.run(allowance, call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        use Verdict::{Fits, Refused};
        for (verdicts, conditions, fine) in [
            (&[Fits, Refused(0)][..], 1, true),
            // By a rule of the matcher's own.
            (&[Fits, Refused(1)], 1, true),
            (&[Refused(0), Refused(0)], 0, true),
            (&[Fits, Refused(2)], 1, false),
            (&[Refused(1), Fits], 0, false),
            (&[Fits], 1, false),
            (&[Fits, Fits, Fits], 1, false),
        ] {
            assert_eq!(
                check_verdicts(verdicts, 2, conditions).is_ok(),
                fine,
                "{verdicts:?} under {conditions} conditions"
            );
        }
    }

    #[test]
    fn choices() {
        let candidates = [Candidate { agent: 1, room: 2 }, Candidate { agent: 7, room: 1 }];
        for (chosen, count, fine) in [
            (&[][..], 3, true),
            (&[1, 7, 1], 3, true),
            (&[1, 1, 1], 3, false),
            (&[2], 3, false),
            (&[1, 7], 1, false),
        ] {
            assert_eq!(
                check_choice(chosen, &candidates, count).is_ok(),
                fine,
                "{chosen:?} of {count}"
            );
        }
    }
}
