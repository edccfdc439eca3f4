//! Converts recorded calls of matchers to cases. The agents are left out, because many calls share
//! a set.

use std::{collections::BTreeMap, num::NonZeroU32};

use super::{Case, CaseCall, Expected, GivenAgent, GivenCandidate, GivenConstraint, GivenVerdict, invalid};
use crate::worlds::{
    agent_mirror::AgentSnapshot,
    matcher::{Candidate, Constraint, ConstraintError, Task, Verdict},
};

/// A call of `validate`.
pub(crate) fn validate(constraints: &[Constraint], errors: Option<&[ConstraintError]>) -> Case {
    Case {
        validate: true,
        constraints: constraints.iter().map(given_constraint).collect(),
        expect: errors.map(|errors| Expected::Indices(invalid(errors))),
        ..Case::default()
    }
}

/// A call of `evaluate`.
pub(crate) fn evaluate(
    agents: &AgentSnapshot,
    task: &Task,
    candidates: &[Candidate],
    verdicts: Option<&[Verdict]>,
) -> Case {
    let names = Names(agents);
    let expect = verdicts.map(|verdicts| {
        let verdicts = candidates.iter().zip(verdicts);
        let verdicts = verdicts.map(|(it, verdict)| (names.of(it.agent), GivenVerdict::of(*verdict)));
        Expected::Verdicts(verdicts.collect::<BTreeMap<_, _>>())
    });
    Case {
        candidates: Some(names.candidates(candidates)),
        expect,
        ..names.case(task, CaseCall::Evaluate)
    }
}

/// A call of `place`.
pub(crate) fn place(
    agents: &AgentSnapshot,
    task: &Task,
    candidates: &[Candidate],
    count: u32,
    chosen: Option<&[u32]>,
) -> Case {
    let names = Names(agents);
    Case {
        candidates: Some(names.candidates(candidates)),
        place: NonZeroU32::new(count),
        expect: chosen.map(|chosen| Expected::Names(chosen.iter().map(|it| names.of(*it)).collect())),
        ..names.case(task, CaseCall::Place(count))
    }
}

/// A call of `select-kills`.
pub(crate) fn select_kills(agents: &AgentSnapshot, task: &Task, count: u32, chosen: Option<&[u32]>) -> Case {
    Case {
        kill: NonZeroU32::new(count),
        expect: chosen.map(|chosen| Expected::Indices(chosen.to_vec())),
        ..Names(agents).case(task, CaseCall::Kill(count))
    }
}

/// The names of agents by their handles.
struct Names<'a>(&'a AgentSnapshot);

impl Names<'_> {
    fn of(&self, handle: u32) -> String {
        match self.0.get(handle) {
            Some(agent) => GivenAgent::name_of(agent).to_owned(),
            // No agent has this name, so the case is rejected with it.
            None => format!("handle {handle}"),
        }
    }

    fn candidates(&self, candidates: &[Candidate]) -> Vec<GivenCandidate> {
        let candidates = candidates.iter().map(|it| match NonZeroU32::new(it.capacity) {
            Some(capacity) if capacity.get() > 1 => GivenCandidate::Detailed {
                agent: self.of(it.agent),
                capacity,
            },
            _ => GivenCandidate::Agent(self.of(it.agent)),
        });
        candidates.collect()
    }

    fn case(&self, task: &Task, call: CaseCall) -> Case {
        let placed = task.placed.len() as u32;
        let default = match call {
            CaseCall::Kill(count) => placed.saturating_sub(count),
            _ => placed + 1,
        };
        let mut extensions = task.extensions.clone();
        let ending = extensions.iter().position(|(name, _)| name == Task::ENDING);
        let ending = ending.map(|at| extensions.remove(at).1).unwrap_or_default();
        let handles = ending.split_whitespace().filter_map(|it| it.parse().ok());
        Case {
            home_region: self.0.home_region().map(str::to_owned),
            run_spec: Some(task.run_spec.clone()),
            constraints: task.constraints.iter().map(given_constraint).collect(),
            placed: task.placed.iter().map(|it| self.of(*it)).collect(),
            ending: handles.map(|it| self.of(it)).collect(),
            extensions,
            instances: NonZeroU32::new(task.instances).filter(|it| it.get() != default),
            ..Case::default()
        }
    }
}

fn given_constraint(constraint: &Constraint) -> GivenConstraint {
    match constraint {
        Constraint::Expression(text) => GivenConstraint::Expression(text.clone()),
        Constraint::Field {
            field,
            operator,
            operand,
        } => {
            let parts = [Some(field), Some(operator), operand.as_ref()];
            GivenConstraint::Field(parts.into_iter().flatten().cloned().collect())
        }
    }
}
