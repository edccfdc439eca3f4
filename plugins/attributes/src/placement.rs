//! Evaluates a task's constraints on agents: a verdict for each candidate, a choice for several
//! instances, and the instances to kill when a task is scaled down.
//!
//! Every test only gets stricter as instances are placed, so an agent that is refused once stays
//! refused within a call.

use std::collections::{BTreeMap, BTreeSet};

use transom_sdk::matcher::{Candidate, Constraint, Task};

use crate::agents::{AgentProperties, Agents};
use crate::constraint::{AgentTest, Found, PlacedTest, Rule, Spread, Test};
use crate::expression::Expression;
use crate::fields::{Field, FieldTest};
use crate::pattern::Cache;

/// The name in a task's `extensions` of the agents in `placed` whose instance is being ended:
/// handles with spaces between them.
const ENDING: &str = "ending";

/// A task's constraints, ready, with what is placed counted.
#[derive(Debug)]
pub struct Question<'agents> {
    constraints: Vec<Ready<'agents>>,
    /// Where the task has to stay, unless it names a region or zone itself.
    home_region: Option<HomeRegion>,
}

/// The field `@region`, and the home region's value of it, if an agent has it.
#[derive(Debug)]
struct HomeRegion {
    field: usize,
    value: Option<usize>,
}

#[derive(Debug)]
enum Ready<'agents> {
    /// Not understood; refuses everything.
    Broken,
    Expression(Expression<'agents>),
    Agent(FieldTest<'agents, AgentTest>),
    /// No agent has the field: whether they pass.
    Without(bool),
    Placed(Tally),
}

/// How the placed instances are spread over the values of a field.
#[derive(Debug)]
struct Tally {
    /// The field's number, if an agent has the field.
    field: Option<usize>,
    /// By the value's number.
    counts: BTreeMap<usize, u32>,
    limit: Limit,
}

#[derive(Debug)]
enum Limit {
    Fewer(u32),
    /// The first placed instance's value.
    Together(Option<usize>),
    Spread(Spread),
}

impl<'agents> Question<'agents> {
    /// Makes a task's constraints ready for these agents.
    pub fn new(agents: &'agents Agents, task: &Task, patterns: &Cache) -> Self {
        let known = |handles: &[u32]| -> Vec<&'agents AgentProperties> {
            handles.iter().filter_map(|handle| agents.get(*handle)).collect()
        };
        let placed = known(&task.placed);
        // Ending instances are among the placed ones, but a spread counts only those that stay.
        let staying = known(&staying(task));
        let mut names_domain = false;
        let mut open = Vec::new();
        let mut constraints = Vec::new();
        for constraint in &task.constraints {
            constraints.push(match constraint {
                Constraint::Expression(text) => {
                    Ready::Expression(Expression::parse(text, &task.constraints, agents.fields()))
                }
                Constraint::Field(constraint) => match Rule::parse(constraint, patterns) {
                    Err(_) => Ready::Broken,
                    Ok(Rule { field, test }) => {
                        names_domain |= field.is_fault_domain();
                        match test {
                            Test::Agent(test) => Ready::agent(test, &field, agents),
                            Test::Placed(test) => {
                                if test == PlacedTest::Spread(None) {
                                    open.push(constraints.len());
                                }
                                let counted = match test {
                                    PlacedTest::Spread(_) => &staying,
                                    PlacedTest::Fewer(_) | PlacedTest::Together => &placed,
                                };
                                let field = agents.fields().find(&field);
                                Ready::Placed(Tally::new(field, test, counted, task.instances))
                            }
                        }
                    }
                },
            });
        }
        let home_region = if names_domain {
            None
        } else {
            HomeRegion::of(agents)
        };
        let mut question = Self {
            constraints,
            home_region,
        };
        for index in open {
            question.count_groups(index, agents, task.instances);
        }
        question
    }

    /// `GROUP_BY` without a number spreads over the values that there are: those of the agents that
    /// the task could run on as far as the agents alone decide it, and those in use.
    fn count_groups(&mut self, index: usize, agents: &'agents Agents, instances: u32) {
        let Some(Ready::Placed(tally)) = self.constraints.get(index) else {
            return;
        };
        let possible = agents.all().filter(|agent| self.agent_alone(agent));
        let mut values: BTreeSet<usize> = possible.filter_map(|agent| tally.value(agent)).collect();
        values.extend(tally.counts.keys());
        let groups = u32::try_from(values.len()).unwrap_or(u32::MAX);
        if let Some(Ready::Placed(tally)) = self.constraints.get_mut(index) {
            tally.limit = Limit::Spread(Spread::new(groups, instances));
        }
    }

    /// The index that stands for a refusal by no constraint: the home region's, or an unknown
    /// agent's.
    pub fn no_constraint(&self) -> u32 {
        u32::try_from(self.constraints.len()).unwrap_or(u32::MAX)
    }

    /// Whether one more instance may go there; else the index of the constraint that refuses.
    pub fn evaluate(&self, agent: &AgentProperties) -> Result<(), u32> {
        if !self.in_home_region(agent) {
            return Err(self.no_constraint());
        }
        match (0..)
            .zip(&self.constraints)
            .find(|(_, constraint)| !constraint.passes(agent))
        {
            Some((index, _)) => Err(index),
            None => Ok(()),
        }
    }

    /// Agents for up to `count` instances, as if placed one after the other: each goes to the first
    /// candidate that passes. With `GROUP_BY` it goes to one whose group has the fewest.
    pub fn place(
        mut self,
        mut candidates: Vec<(Candidate, &'agents AgentProperties)>,
        count: u32,
    ) -> Vec<u32> {
        let spreads = self
            .tallies()
            .any(|tally| matches!(tally.limit, Limit::Spread(_)));
        candidates.retain(|(candidate, agent)| candidate.capacity > 0 && self.evaluate(agent).is_ok());
        let mut chosen = Vec::new();
        let mut next = 0;
        while chosen.len() < count as usize {
            if spreads {
                candidates.retain(|(candidate, agent)| candidate.capacity > 0 && self.still_passes(agent));
                let fewest = candidates
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, (_, agent))| self.load(agent));
                let Some((index, _)) = fewest else { break };
                next = index;
            }
            let Some((candidate, agent)) = candidates.get_mut(next) else {
                break;
            };
            if candidate.capacity == 0 || !self.still_passes(agent) {
                next += 1;
                continue;
            }
            candidate.capacity -= 1;
            chosen.push(candidate.agent);
            let agent = *agent;
            self.add(agent);
        }
        chosen
    }

    /// Which `count` of the placed instances to kill, as indices: one after the other, each the first
    /// in a group that has the most. Without `GROUP_BY` the order of the host stands.
    pub fn select_kills(mut self, placed: Vec<Option<&'agents AgentProperties>>, count: u32) -> Vec<u32> {
        let spreads = |constraint: &Ready| matches!(constraint, Ready::Placed(tally) if matches!(tally.limit, Limit::Spread(_)));
        self.constraints.retain(spreads);
        let mut chosen = Vec::new();
        if self.constraints.is_empty() {
            return chosen;
        }
        let mut left: Vec<(u32, &AgentProperties)> = (0..)
            .zip(placed)
            .filter_map(|(index, agent)| Some((index, agent?)))
            .collect();
        while chosen.len() < count as usize {
            // Of equals the last that `max_by_key` sees, which is the first of the host's order.
            let most = left
                .iter()
                .enumerate()
                .rev()
                .max_by_key(|(_, (_, agent))| self.load(agent));
            let Some((position, (index, agent))) = most.map(|(position, it)| (position, *it)) else {
                break;
            };
            left.remove(position);
            chosen.push(index);
            for constraint in &mut self.constraints {
                if let Ready::Placed(tally) = constraint {
                    tally.remove(agent);
                }
            }
        }
        chosen
    }

    /// An agent without a region is not known to be elsewhere.
    fn in_home_region(&self, agent: &AgentProperties) -> bool {
        self.home_region.as_ref().is_none_or(|home| {
            let region = agent.value(home.field);
            region.is_none() || region == home.value
        })
    }

    fn agent_alone(&self, agent: &AgentProperties) -> bool {
        self.in_home_region(agent)
            && self
                .constraints
                .iter()
                .all(|constraint| matches!(constraint, Ready::Placed(_)) || constraint.passes(agent))
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.constraints.iter().filter_map(|constraint| match constraint {
            Ready::Placed(tally) => Some(tally),
            _ => None,
        })
    }

    fn still_passes(&self, agent: &AgentProperties) -> bool {
        self.tallies().all(|tally| tally.passes(agent))
    }

    /// How many instances the agent's groups have.
    fn load(&self, agent: &AgentProperties) -> u64 {
        let spreads = self
            .tallies()
            .filter(|tally| matches!(tally.limit, Limit::Spread(_)));
        spreads
            .map(|tally| u64::from(tally.value(agent).map_or(0, |value| tally.count(value))))
            .sum()
    }

    fn add(&mut self, agent: &AgentProperties) {
        for constraint in &mut self.constraints {
            if let Ready::Placed(tally) = constraint {
                tally.add(agent);
            }
        }
    }
}

/// The agents of the instances that are not being ended.
fn staying(task: &Task) -> Vec<u32> {
    let mut staying = task.placed.clone();
    let ending = task.extensions.iter().find(|(name, _)| name == ENDING);
    let handles = ending.map_or("", |(_, handles)| handles.as_str());
    for handle in handles
        .split_whitespace()
        .filter_map(|handle| handle.parse::<u32>().ok())
    {
        if let Some(at) = staying.iter().position(|placed| *placed == handle) {
            staying.remove(at);
        }
    }
    staying
}

impl HomeRegion {
    /// None if the master has no region or no agent has one.
    fn of(agents: &Agents) -> Option<Self> {
        let home = Found::name(agents.home_region()?.to_owned());
        let field = agents.fields().find(&Field::Region)?;
        let value = agents.fields().values(field)?.get_index_of(&home);
        Some(Self { field, value })
    }
}

impl<'agents> Ready<'agents> {
    fn agent(test: AgentTest, field: &Field, agents: &'agents Agents) -> Self {
        let without = test.passes_without();
        let field = agents.fields().find(field);
        field
            .and_then(|field| FieldTest::new(agents.fields(), field, test))
            .map_or(Self::Without(without), Self::Agent)
    }

    fn passes(&self, agent: &AgentProperties) -> bool {
        match self {
            Self::Broken => false,
            Self::Expression(expression) => expression.matches(agent),
            Self::Agent(test) => match agent.value(test.field) {
                Some(value) => test.passes(value),
                None => test.test.passes_without(),
            },
            Self::Without(passes) => *passes,
            Self::Placed(tally) => tally.passes(agent),
        }
    }
}

impl Tally {
    fn new(field: Option<usize>, test: PlacedTest, placed: &[&AgentProperties], instances: u32) -> Self {
        let limit = match test {
            PlacedTest::Fewer(count) => Limit::Fewer(count),
            PlacedTest::Together => Limit::Together(None),
            PlacedTest::Spread(groups) => Limit::Spread(Spread::new(groups.unwrap_or(0), instances)),
        };
        let mut tally = Self {
            field,
            counts: BTreeMap::new(),
            limit,
        };
        for agent in placed {
            tally.add(agent);
        }
        tally
    }

    fn add(&mut self, agent: &AgentProperties) {
        let Some(value) = self.value(agent) else {
            return;
        };
        *self.counts.entry(value).or_default() += 1;
        if let Limit::Together(first @ None) = &mut self.limit {
            *first = Some(value);
        }
    }

    fn remove(&mut self, agent: &AgentProperties) {
        if let Some(value) = self.value(agent)
            && let Some(count) = self.counts.get_mut(&value)
        {
            *count = count.saturating_sub(1);
        }
    }

    fn value(&self, agent: &AgentProperties) -> Option<usize> {
        agent.value(self.field?)
    }

    fn count(&self, value: usize) -> u32 {
        self.counts.get(&value).copied().unwrap_or(0)
    }

    fn passes(&self, agent: &AgentProperties) -> bool {
        let Some(value) = self.value(agent) else {
            return false;
        };
        match self.limit {
            Limit::Fewer(limit) => self.count(value) < limit,
            Limit::Together(first) => first.is_none_or(|first| first == value),
            Limit::Spread(spread) => spread.allows(self.count(value), self.counts.values().copied()),
        }
    }
}
