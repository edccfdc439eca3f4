//! Restricts agents with the attribute `dedicated:/group` to the tasks of that group.
//!
//! It is one matcher of a chain, after a matcher that evaluates constraints: this one accepts every
//! constraint.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::rc::Rc;

use transom_sdk::export_matcher;
use transom_sdk::matcher::{
    Agent, AgentSet, Candidate, Constraint, ConstraintError, Matcher, Task, Value, Verdict,
};

/// The plugin. It takes no configuration.
#[derive(Debug)]
pub struct Dedicated;

transom_sdk::plugin!(Dedicated);

impl Matcher for Dedicated {
    type AgentSet = Agents;

    fn validate(&self, _constraints: &[Constraint]) -> Vec<ConstraintError> {
        Vec::new()
    }

    fn agent_set(self: Rc<Self>, _home_region: Option<String>) -> Agents {
        Agents::default()
    }
}

/// The values of the dedicated agents by handle.
#[derive(Debug, Default)]
pub struct Agents(HashMap<u32, Value>);

impl AgentSet for Agents {
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        for agent in changed {
            match agent.attributes.into_iter().find(|it| it.name == "dedicated") {
                Some(attribute) => self.0.insert(agent.handle, attribute.value),
                None => self.0.remove(&agent.handle),
            };
        }
        self.0.retain(|handle, _| !gone.contains(handle));
    }

    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict> {
        // An index after the last constraint stands for a rule of the matcher itself.
        let rejected = Verdict::Refused(task.constraints.len() as u32);
        let verdict = |it: &Candidate| {
            if self.takes(it.agent, task) {
                Verdict::Fits
            } else {
                rejected
            }
        };
        candidates.iter().map(verdict).collect()
    }

    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32> {
        let open = candidates.iter().filter(|it| self.takes(it.agent, task));
        let places = open.flat_map(|it| (0..it.capacity).map(|_| it.agent));
        places.take(count as usize).collect()
    }
}

impl Agents {
    fn takes(&self, agent: u32, task: &Task) -> bool {
        match self.0.get(&agent) {
            None => true,
            Some(Value::Text(group)) => {
                let below = task.run_spec.strip_prefix(group.as_str());
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Some(_) => false,
        }
    }
}

export_matcher!(Dedicated);
