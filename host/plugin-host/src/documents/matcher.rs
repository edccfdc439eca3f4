//! Calls of world `attribute-matcher`.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde_json::Value;
use transom_plugin_cases::{
    Answer, answer,
    forms::Pairs,
    matcher::{Case, CaseCall, Fits, GivenAgent, GivenCandidate, GivenConstraint, GivenValue, GivenVerdict},
};

use crate::worlds::{
    agent_mirror::AgentSnapshot,
    matcher::{Agent, Attribute, AttributeValue, Candidate, Constraint, ConstraintError, Task, Verdict},
};

/// A call of `validate`.
pub(crate) fn validate(constraints: &[Constraint]) -> Case {
    Case {
        validate: true,
        constraints: constraints.iter().map(given_constraint).collect(),
        ..Case::default()
    }
}

/// A call of `evaluate`.
pub(crate) fn evaluate(agents: &AgentSnapshot, task: &Task, candidates: &[Candidate]) -> Case {
    let names = Names(agents);
    Case {
        candidates: Some(names.candidates(candidates)),
        ..names.case(task, CaseCall::Evaluate)
    }
}

/// A call of `place`.
pub(crate) fn place(agents: &AgentSnapshot, task: &Task, candidates: &[Candidate], count: u32) -> Case {
    let names = Names(agents);
    Case {
        candidates: Some(names.candidates(candidates)),
        place: NonZeroU32::new(count),
        ..names.case(task, CaseCall::Place(count))
    }
}

/// A call of `select-kills`.
pub(crate) fn select_kills(agents: &AgentSnapshot, task: &Task, count: u32) -> Case {
    Case {
        kill: NonZeroU32::new(count),
        ..Names(agents).case(task, CaseCall::Kill(count))
    }
}

/// The answer of `evaluate`: verdicts by the names of the candidates.
pub(crate) fn verdicts(agents: &AgentSnapshot, candidates: &[Candidate], verdicts: &[Verdict]) -> Answer {
    let names = Names(agents);
    let verdicts = candidates.iter().zip(verdicts);
    let verdicts = verdicts.map(|(it, verdict)| (names.of(it.agent), verdict_of(*verdict)));
    answer("expect", verdicts.collect::<BTreeMap<_, _>>())
}

/// The answer of `place`: names of agents.
pub(crate) fn placed(agents: &AgentSnapshot, chosen: &[u32]) -> Answer {
    let names = Names(agents);
    let chosen: Vec<String> = chosen.iter().map(|it| names.of(*it)).collect();
    answer("expect", chosen)
}

/// The names of agents by their handles.
struct Names<'a>(&'a AgentSnapshot);

impl Names<'_> {
    fn of(&self, handle: u32) -> String {
        match self.0.get(handle) {
            Some(agent) => agent.id.clone(),
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

/// Returns the constraints with errors. The messages are not compared, because their wording may
/// differ.
pub(crate) fn invalid(errors: &[ConstraintError]) -> Vec<u32> {
    let mut indices: Vec<u32> = errors.iter().map(|it| it.constraint).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

/// Converts a constraint of a case. The error names the mistake in it.
pub(crate) fn constraint(given: GivenConstraint) -> Result<Constraint, String> {
    match given {
        GivenConstraint::Expression(text) => Ok(Constraint::Expression(text)),
        GivenConstraint::Field(parts) => match <[String; 3]>::try_from(parts) {
            Ok([field, operator, operand]) => Ok(Constraint::Field {
                field,
                operator,
                operand: Some(operand),
            }),
            Err(parts) => match <[String; 2]>::try_from(parts) {
                Ok([field, operator]) => Ok(Constraint::Field {
                    field,
                    operator,
                    operand: None,
                }),
                Err(parts) => Err(format!(
                    "a constraint has a field, an operator and perhaps an operand, not {parts:?}"
                )),
            },
        },
    }
}

/// Converts a verdict.
pub(crate) fn verdict_of(verdict: Verdict) -> GivenVerdict {
    match verdict {
        Verdict::Fits => GivenVerdict::Fits(Fits::Fits),
        Verdict::Refused(constraint) => GivenVerdict::Rejected(constraint),
    }
}

/// Converts the agents of a call, in the order of their handles.
pub(crate) fn agents(agents: &AgentSnapshot) -> Value {
    let agents: Vec<_> = agents.iter().map(given_agent).collect();
    // Agents can always be converted to JSON.
    serde_json::to_value(agents).unwrap_or_default()
}

fn given_agent(agent: &Agent) -> GivenAgent {
    let attributes = agent
        .attributes
        .iter()
        .map(|it| (it.name.clone(), given_value(&it.value)));
    GivenAgent {
        id: Some(agent.id.clone()),
        hostname: agent.hostname.clone(),
        region: agent.region.clone(),
        zone: agent.zone.clone(),
        attributes: Pairs::of(attributes.collect()),
        extensions: agent.extensions.clone(),
    }
}

/// Converts an agent of a case.
pub(crate) fn agent(given: GivenAgent, handle: u32) -> Agent {
    let attributes = given.attributes.into_pairs().into_iter();
    let attributes = attributes.map(|(name, given)| Attribute {
        name,
        value: value(given),
    });
    Agent {
        handle,
        id: given.id.unwrap_or_else(|| format!("self-test-{handle}")),
        hostname: given.hostname,
        region: given.region,
        zone: given.zone,
        attributes: attributes.collect(),
        extensions: given.extensions,
    }
}

fn given_value(value: &AttributeValue) -> GivenValue {
    match value {
        AttributeValue::Text(text) => GivenValue::Text(text.clone()),
        AttributeValue::Scalar(number) => GivenValue::Scalar(*number),
        AttributeValue::Ranges(ranges) => GivenValue::Ranges(ranges.clone()),
        AttributeValue::Set(set) if set.is_empty() => GivenValue::EmptySet { set: [] },
        AttributeValue::Set(set) => GivenValue::Set(set.clone()),
    }
}

fn value(given: GivenValue) -> AttributeValue {
    match given {
        GivenValue::Text(text) => AttributeValue::Text(text),
        GivenValue::Scalar(number) => AttributeValue::Scalar(number),
        GivenValue::Ranges(ranges) => AttributeValue::Ranges(ranges),
        GivenValue::Set(set) => AttributeValue::Set(set),
        GivenValue::EmptySet { .. } => AttributeValue::Set(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_agents_are_the_same_when_they_are_read_again() {
        let attribute = |name: &str, value| Attribute {
            name: name.to_owned(),
            value,
        };
        let agent = Agent {
            handle: 7,
            id: "agent-7".to_owned(),
            hostname: "node".to_owned(),
            region: Some("eu".to_owned()),
            zone: None,
            attributes: vec![
                attribute("rack", AttributeValue::Text("r1".to_owned())),
                attribute("cores", AttributeValue::Scalar(8.0)),
                attribute("rack", AttributeValue::Text("r2".to_owned())),
                attribute("ports", AttributeValue::Ranges(vec![(1, 2)])),
                attribute("none", AttributeValue::Ranges(Vec::new())),
                attribute("tags", AttributeValue::Set(vec!["a".to_owned()])),
                attribute("empty", AttributeValue::Set(Vec::new())),
            ],
            extensions: vec![("a".to_owned(), "b".to_owned())],
        };
        let case = serde_json::to_string(&given_agent(&agent)).unwrap();
        let read: GivenAgent = serde_json::from_str(&case).unwrap();
        assert_eq!(super::agent(read, 7), agent, "{case}");
    }
}
