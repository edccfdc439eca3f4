//! Places tasks by `["attribute", "IS", "value"]`, and never on an agent in maintenance.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::rc::Rc;

use transom_sdk::export_matcher;
use transom_sdk::matcher::{
    Agent, AgentSet, Candidate, Constraint, ConstraintError, Matcher, Task, Value, Verdict,
};

/// The plugin. It takes no configuration.
#[derive(Debug)]
pub struct AttributeMatcher;

transom_sdk::plugin!(AttributeMatcher);

impl Matcher for AttributeMatcher {
    type AgentSet = Agents;

    /// Called when a definition is posted. Returns the errors in its constraints.
    fn validate(&self, constraints: &[Constraint]) -> Vec<ConstraintError> {
        let wrong = |(at, constraint): (u32, &Constraint)| match constraint {
            Constraint::Field(it) if it.operator == "IS" && it.operand.is_some() => None,
            _ => Some(ConstraintError {
                constraint: at,
                message: "expected [\"attribute\", \"IS\", \"value\"]".to_owned(),
            }),
        };
        (0..).zip(constraints).filter_map(wrong).collect()
    }

    fn agent_set(self: Rc<Self>, _home_region: Option<String>) -> Agents {
        Agents::default()
    }
}

/// The cluster's agents by their handles.
#[derive(Debug, Default)]
pub struct Agents(HashMap<u32, Agent>);

impl AgentSet for Agents {
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        self.0
            .extend(changed.into_iter().map(|agent| (agent.handle, agent)));
        self.0.retain(|handle, _| !gone.contains(handle));
    }

    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict> {
        candidates.iter().map(|it| self.one(task, it)).collect()
    }

    /// Chooses agents in the host's order of preference. Where instances run already does not matter.
    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32> {
        let fit = candidates
            .iter()
            .filter(|it| self.one(task, it) == Verdict::Fits);
        let places = fit.flat_map(|it| (0..it.capacity).map(|_| it.agent));
        places.take(count as usize).collect()
    }
}

impl Agents {
    fn one(&self, task: &Task, candidate: &Candidate) -> Verdict {
        let attribute = |name: &str| {
            let agent = self.0.get(&candidate.agent)?;
            let found = agent.attributes.iter().find(|it| it.name == name)?;
            match &found.value {
                Value::Text(text) => Some(text.clone()),
                Value::Scalar(number) => Some(number.to_string()),
                _ => None,
            }
        };
        let rejects = |constraint: &Constraint| match constraint {
            Constraint::Field(it) if it.operator == "IS" => attribute(&it.field) != it.operand,
            _ => true,
        };
        if let Some(at) = task.constraints.iter().position(rejects) {
            return Verdict::Refused(at as u32);
        }
        if attribute("maintenance").as_deref() == Some("true") {
            // An index after the last constraint stands for a rule of the matcher itself.
            return Verdict::Refused(task.constraints.len() as u32);
        }
        Verdict::Fits
    }
}

export_matcher!(AttributeMatcher);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{constraint, plugin};

    use super::*;

    #[test]
    fn unknown_operators_are_reported_by_validate() {
        let matcher = plugin::<AttributeMatcher>("{}").unwrap();
        let errors = matcher.validate(&[
            constraint("disk", "IS", Some("ssd")),
            constraint("rack", "NEAR", None),
        ]);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].constraint, 1);
    }
}
