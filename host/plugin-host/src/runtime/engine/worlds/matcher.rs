//! World `attribute-matcher`: agent sets are loaded at the first call and updated with the changes.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
};

use transom_common::text::one_line;
use wasmtime::{
    Store,
    component::{ComponentExportIndex, InstancePre, ResourceAny},
};

use super::{
    common,
    guest_resources::{self, GuestResources},
};
use crate::{
    error::CallError,
    fault::Fault,
    runtime::engine::{
        Instance, World,
        bindings::matcher::{
            AttributeMatcher, AttributeMatcherIndices,
            exports::transom::matcher::matcher::Task as GeneratedTask,
        },
        convert::matcher as convert,
        direct_call::{DirectCall, find_export},
        guest::Guest,
        instance::Reply,
        matcher_lists::Verdicts,
    },
    worlds::{
        agent_mirror::{AgentMirror, Changes},
        matcher::{Agent, Candidate, Constraint, ConstraintError, Task, Verdict},
    },
};

/// Maximum number of errors of a validation.
const MAX_ERRORS: usize = 100;

/// Maximum number of agents in one `update` call, so that loading a large cluster takes many short
/// calls.
const AGENTS_PER_CALL: usize = 500;

pub(crate) struct Matcher;

/// A call about one task, on the agents of `agent_set`.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) agent_set: Arc<AgentMirror>,
    pub(crate) task: Task,
    pub(crate) candidates: Vec<Candidate>,
}

pub(crate) enum Call {
    Validate {
        constraints: Vec<Constraint>,
        reply: Reply<Vec<ConstraintError>>,
    },
    Evaluate {
        question: Question,
        reply: Reply<Vec<Verdict>>,
    },
    Place {
        question: Question,
        count: u32,
        reply: Reply<Vec<u32>>,
    },
    SelectKills {
        question: Question,
        count: u32,
        reply: Reply<Vec<u32>>,
    },
}

/// A linked component.
#[derive(Clone)]
pub(crate) struct MatcherPre {
    linked: InstancePre<Guest>,
    generated: AttributeMatcherIndices,
    update: ComponentExportIndex,
    evaluate: ComponentExportIndex,
    place: ComponentExportIndex,
}

/// The exports of an instance.
pub(crate) struct MatcherExports {
    generated: AttributeMatcher,
    update: Update,
    evaluate: Evaluate,
    place: Place,
}

type Update = DirectCall<(ResourceAny, Vec<Arc<Agent>>, Vec<u32>), ()>;
type Evaluate = DirectCall<(ResourceAny, GeneratedTask, Vec<Candidate>), (Verdicts,)>;
type Place = DirectCall<(ResourceAny, GeneratedTask, Arc<[Candidate]>, u32), (Vec<u32>,)>;

impl MatcherPre {
    fn new(linked: InstancePre<Guest>) -> wasmtime::Result<Self> {
        let export = |name| find_export(&linked, "transom:matcher/matcher@0.1.0", name);
        Ok(Self {
            generated: AttributeMatcherIndices::new(&linked)?,
            update: export("[method]agent-set.update")?,
            evaluate: export("[method]agent-set.evaluate")?,
            place: export("[method]agent-set.place")?,
            linked,
        })
    }

    async fn instantiate_async(&self, store: &mut Store<Guest>) -> wasmtime::Result<MatcherExports> {
        let instance = self.linked.instantiate_async(&mut *store).await?;
        Ok(MatcherExports {
            generated: self.generated.load(&mut *store, &instance)?,
            update: DirectCall::new(instance, self.update),
            evaluate: DirectCall::new(instance, self.evaluate),
            place: DirectCall::new(instance, self.place),
        })
    }
}

impl Deref for MatcherExports {
    type Target = AttributeMatcher;

    fn deref(&self) -> &AttributeMatcher {
        &self.generated
    }
}

impl World for Matcher {
    type Pre = MatcherPre;
    type Bindings = MatcherExports;
    /// The agent sets, each with the revision of the host's copy at its last update.
    type Resources = GuestResources<AgentMirror, u64>;
    type Shared = ();
    type Call = Call;

    common!(MatcherPre, transom_plugin_about);

    async fn run(instance: &mut Instance<Self>, _shared: &Arc<()>, call: Call) -> Result<(), Fault> {
        match call {
            Call::Validate { constraints, reply } => {
                let errors = validate(instance, constraints).await;
                instance.answer(reply, errors)
            }
            Call::Evaluate { question, reply } => {
                let verdicts = evaluate(instance, question).await;
                instance.answer(reply, verdicts)
            }
            Call::Place {
                question,
                count,
                reply,
            } => {
                let chosen = place(instance, question, count).await;
                instance.answer(reply, chosen)
            }
            Call::SelectKills {
                question,
                count,
                reply,
            } => {
                let chosen = select_kills(instance, question, count).await;
                instance.answer(reply, chosen)
            }
        }
    }

    async fn drop_orphans(instance: &mut Instance<Self>, _shared: &()) -> Result<(), Fault> {
        guest_resources::drop_orphans(instance).await
    }

    fn reject(call: Call, error: CallError) {
        match call {
            Call::Validate { reply, .. } => drop(reply.send(Err(error))),
            Call::Evaluate { reply, .. } => drop(reply.send(Err(error))),
            Call::Place { reply, .. } | Call::SelectKills { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

async fn validate(
    instance: &mut Instance<Matcher>,
    constraints: Vec<Constraint>,
) -> Result<Vec<ConstraintError>, Fault> {
    let constraint_count = constraints.len();
    let constraints: Vec<_> = constraints.into_iter().map(convert::constraint).collect();
    let allowance = instance.allowance();
    let call = instance
        .bindings
        .transom_matcher_matcher()
        .call_validate(&mut instance.store, &constraints);
    let errors = instance.meter.run(allowance, call).await?;
    if let Some(beyond) = errors
        .iter()
        .find(|error| error.constraint as usize >= constraint_count)
    {
        return Err(Fault::Malformed(format!(
            "an error for constraint {} of {constraint_count}",
            beyond.constraint
        )));
    }
    Ok(errors
        .into_iter()
        .take(MAX_ERRORS)
        .map(|error| ConstraintError {
            constraint: error.constraint,
            message: one_line(&error.message),
        })
        .collect())
}

async fn evaluate(instance: &mut Instance<Matcher>, question: Question) -> Result<Vec<Verdict>, Fault> {
    let agent_set = load(instance, &question.agent_set).await?;
    let (candidate_count, constraints) = (question.candidates.len(), question.task.constraints.len());
    let task = convert::task(question.task);
    let allowance = instance.allowance();
    let evaluate = &mut instance.bindings.evaluate;
    let call = evaluate.call(&mut instance.store, (agent_set, task, question.candidates));
    let (Verdicts(verdicts),) = instance.meter.run(allowance, call).await?;
    check_verdicts(&verdicts, candidate_count, constraints).map_err(Fault::Malformed)?;
    Ok(verdicts)
}

/// Checks that there is one verdict for each candidate, and that a rejection's index is at most the number
/// of constraints.
fn check_verdicts(verdicts: &[Verdict], candidates: usize, constraints: usize) -> Result<(), String> {
    if verdicts.len() != candidates {
        return Err(format!("{} verdicts on {candidates} candidates", verdicts.len()));
    }
    for verdict in verdicts {
        if let Verdict::Refused(index) = verdict
            && *index as usize > constraints
        {
            return Err(format!("rejected by constraint {index} of {constraints}"));
        }
    }
    Ok(())
}

async fn place(instance: &mut Instance<Matcher>, question: Question, count: u32) -> Result<Vec<u32>, Fault> {
    let agent_set = load(instance, &question.agent_set).await?;
    let task = convert::task(question.task);
    let candidates: Arc<[Candidate]> = question.candidates.into();
    let allowance = instance.allowance();
    let place = &mut instance.bindings.place;
    let parameters = (agent_set, task, Arc::clone(&candidates), count);
    let call = place.call(&mut instance.store, parameters);
    let (chosen,) = instance.meter.run(allowance, call).await?;
    check_choice(&chosen, &candidates, count).map_err(Fault::Malformed)?;
    Ok(chosen)
}

/// Checks that a choice has at most `count` instances, and only candidates, each up to its capacity.
fn check_choice(chosen: &[u32], candidates: &[Candidate], count: u32) -> Result<(), String> {
    if chosen.len() > count as usize {
        return Err(format!("{} places for {count} instances", chosen.len()));
    }
    let mut capacity: HashMap<u32, u32> = HashMap::new();
    for candidate in candidates {
        *capacity.entry(candidate.agent).or_default() += candidate.capacity;
    }
    for agent in chosen {
        match capacity.get_mut(agent) {
            None => return Err(format!("agent {agent} was chosen but is not a candidate")),
            Some(0) => return Err(format!("agent {agent} was chosen more often than its capacity")),
            Some(remaining) => *remaining -= 1,
        }
    }
    Ok(())
}

async fn select_kills(
    instance: &mut Instance<Matcher>,
    question: Question,
    count: u32,
) -> Result<Vec<u32>, Fault> {
    let agent_set = load(instance, &question.agent_set).await?;
    let task = convert::task(question.task);
    let allowance = instance.allowance();
    let agent_sets = instance.bindings.transom_matcher_matcher().agent_set();
    let call = agent_sets.call_select_kills(&mut instance.store, agent_set, &task, count);
    let chosen = instance.meter.run(allowance, call).await?;
    check_kills(&chosen, task.placed.len(), count).map_err(Fault::Malformed)?;
    Ok(chosen)
}

/// Checks that at most `count` of the placed instances are selected, each once.
fn check_kills(chosen: &[u32], placed: usize, count: u32) -> Result<(), String> {
    if chosen.len() > count as usize {
        return Err(format!("{} instances to kill instead of {count}", chosen.len()));
    }
    let mut indices = HashSet::new();
    for index in chosen {
        if *index as usize >= placed {
            return Err(format!("instance {index} of {placed} is to be killed"));
        }
        if !indices.insert(index) {
            return Err(format!("instance {index} is to be killed twice"));
        }
    }
    Ok(())
}

/// Returns the guest's agent set, updated to the host's copy.
async fn load(instance: &mut Instance<Matcher>, copy: &Arc<AgentMirror>) -> Result<ResourceAny, Fault> {
    let known_revision = instance.resources.get(copy.id()).map(|(_, revision)| revision);
    let (revision, delta) = copy.changes_since(known_revision);
    let (changed, removed) = match delta {
        Changes::Since { changed, removed } => (changed, removed),
        Changes::Everything(agents) => {
            if let Some(resource) = instance.resources.take(copy.id()) {
                instance.free(resource).await?;
            }
            (agents, Vec::new())
        }
    };
    let resource = if let Some((resource, _)) = instance.resources.get(copy.id()) {
        resource
    } else {
        let allowance = instance.allowance();
        let agent_sets = instance.bindings.transom_matcher_matcher().agent_set();
        let call = agent_sets.call_constructor(&mut instance.store, copy.home_region());
        instance.meter.run(allowance, call).await?
    };
    // A fault during the update drops the incomplete copy with the instance.
    instance.resources.put(copy.id(), copy, resource, revision);
    for removed in removed.chunks(AGENTS_PER_CALL * 10) {
        update(instance, resource, Vec::new(), removed.to_vec()).await?;
    }
    for changed in changed.chunks(AGENTS_PER_CALL) {
        update(instance, resource, changed.to_vec(), Vec::new()).await?;
    }
    Ok(resource)
}

async fn update(
    instance: &mut Instance<Matcher>,
    agent_set: ResourceAny,
    changed: Vec<Arc<Agent>>,
    removed: Vec<u32>,
) -> Result<(), Fault> {
    let allowance = instance.allowance();
    let update = &mut instance.bindings.update;
    let call = update.call(&mut instance.store, (agent_set, changed, removed));
    instance.meter.run(allowance, call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_checked_for_count_and_constraint_index() {
        use Verdict::{Fits, Refused};
        for (verdicts, constraints, is_valid) in [
            (&[Fits, Refused(0)][..], 1, true),
            // The index after the last constraint: rejected by a rule of the matcher.
            (&[Fits, Refused(1)], 1, true),
            (&[Refused(0), Refused(0)], 0, true),
            (&[Fits, Refused(2)], 1, false),
            (&[Refused(1), Fits], 0, false),
            (&[Fits], 1, false),
            (&[Fits, Fits, Fits], 1, false),
        ] {
            assert_eq!(
                check_verdicts(verdicts, 2, constraints).is_ok(),
                is_valid,
                "{verdicts:?} under {constraints} constraints"
            );
        }
    }

    #[test]
    fn kills_are_checked_for_count_range_and_repetition() {
        for (chosen, is_valid) in [
            (&[][..], true),
            (&[1], true),
            (&[2, 0], true),
            (&[3], false),
            (&[1, 1], false),
            (&[0, 1, 2], false),
        ] {
            assert_eq!(check_kills(chosen, 3, 2).is_ok(), is_valid, "{chosen:?}");
        }
    }

    #[test]
    fn choice_is_checked_against_candidates_capacity_and_count() {
        let candidates = [
            Candidate {
                agent: 1,
                capacity: 2,
            },
            Candidate {
                agent: 7,
                capacity: 1,
            },
        ];
        for (chosen, count, is_valid) in [
            (&[][..], 3, true),
            (&[1, 7, 1], 3, true),
            (&[1, 1, 1], 3, false),
            (&[2], 3, false),
            (&[1, 7], 1, false),
        ] {
            assert_eq!(
                check_choice(chosen, &candidates, count).is_ok(),
                is_valid,
                "{chosen:?} of {count}"
            );
        }
    }
}
