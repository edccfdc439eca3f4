//! Evaluates a task's constraints on agents: a verdict for each candidate, a choice for several
//! instances, and the instances to kill when a task is scaled down.
//!
//! Every test only gets stricter as instances are placed, so an agent that is refused once stays
//! refused within a call.

use std::collections::{BTreeMap, BTreeSet};

use transom_sdk::matcher::{Candidate, Constraint, Task, Verdict};

use crate::agents::Agents;
use crate::constraint::{AgentTest, ParsedConstraint, PlacedTest, Spread, Test};
use crate::expression::Expression;
use crate::fields::{Field, FieldTest};
use crate::pattern::PatternCache;
use crate::properties::{AgentProperties, FieldSearch};
use crate::value::FieldValue;

/// The key in a task's `extensions` of the agents in `placed` whose instance is being ended. Its value
/// is a list of handles with spaces between them.
const ENDING: &str = "ending";

/// A task's constraints, prepared for the loaded agents, with the placed instances counted.
#[derive(Debug)]
pub struct TaskConstraints<'agents> {
    constraints: Vec<PreparedConstraint<'agents>>,
    /// The region to which the task is limited. None if one of its constraints names a region or zone,
    /// or if the home region is unknown.
    home_region: Option<HomeRegion<'agents>>,
}

/// The field `@region`, and the home region's value of it, if an agent has it.
#[derive(Debug)]
struct HomeRegion<'agents> {
    field: FieldSearch<'agents>,
    value: Option<usize>,
}

#[derive(Debug)]
enum PreparedConstraint<'agents> {
    /// An invalid constraint. It refuses every agent.
    Invalid,
    Expression(Expression<'agents>),
    Agent(FieldSearch<'agents>, FieldTest<'agents, AgentTest>),
    /// A constraint on a field that no agent has; the value is whether every agent passes.
    NoAgentHasField(bool),
    Placed(Tally<'agents>),
}

/// The number of placed instances for each value of a field, and its limit.
#[derive(Debug)]
struct Tally<'agents> {
    /// The field, if an agent has it.
    field: Option<FieldSearch<'agents>>,
    /// The placed instances by the value's number.
    counts: BTreeMap<usize, u32>,
    limit: Limit,
}

#[derive(Debug)]
enum Limit {
    FewerThan(u32),
    /// All instances have the value of the first placed instance. None while no instance is placed.
    SameValue(Option<usize>),
    Spread(Spread),
}

impl<'agents> TaskConstraints<'agents> {
    /// Prepares a task's constraints for these agents.
    pub fn new(agents: &'agents Agents, task: &Task, patterns: &PatternCache) -> Self {
        let agents_of = |handles: &[u32]| -> Vec<&'agents AgentProperties> {
            handles.iter().filter_map(|handle| agents.get(*handle)).collect()
        };
        let placed = agents_of(&task.placed);
        // The placed instances include the ending ones, but a spread counts only the others.
        let placed_not_ending = agents_of(&placed_not_ending(task));
        let mut names_fault_domain = false;
        let mut spreads_without_groups = Vec::new();
        let mut constraints = Vec::new();
        for constraint in &task.constraints {
            constraints.push(match constraint {
                Constraint::Expression(text) => {
                    PreparedConstraint::Expression(Expression::parse(text, &task.constraints, agents))
                }
                Constraint::Field(constraint) => match ParsedConstraint::parse(constraint, patterns) {
                    Err(_) => PreparedConstraint::Invalid,
                    Ok(ParsedConstraint { field, test }) => {
                        names_fault_domain |= field.is_fault_domain();
                        match test {
                            Test::Agent(test) => PreparedConstraint::agent(test, &field, agents),
                            Test::Placed(test) => {
                                if test == PlacedTest::Spread(None) {
                                    spreads_without_groups.push(constraints.len());
                                }
                                let counted = match test {
                                    PlacedTest::Spread(_) => &placed_not_ending,
                                    PlacedTest::FewerThan(_) | PlacedTest::SameValue => &placed,
                                };
                                let field = agents.fields().find(&field);
                                let field = field.map(|field| FieldSearch::new(agents.field_lists(), field));
                                PreparedConstraint::Placed(Tally::new(field, test, counted, task.instances))
                            }
                        }
                    }
                },
            });
        }
        let home_region = if names_fault_domain {
            None
        } else {
            HomeRegion::find(agents)
        };
        let mut prepared = Self {
            constraints,
            home_region,
        };
        for index in spreads_without_groups {
            prepared.count_groups(index, agents, task.instances);
        }
        prepared
    }

    /// Counts the groups for a `GROUP_BY` without a number: the values of the agents that pass all tests
    /// that do not depend on placed instances, and the values of the placed instances.
    fn count_groups(&mut self, index: usize, agents: &'agents Agents, instances: u32) {
        let Some(PreparedConstraint::Placed(tally)) = self.constraints.get(index) else {
            return;
        };
        let usable = agents.all().filter(|agent| self.passes_agent_tests(agent));
        let mut values: BTreeSet<usize> = usable.filter_map(|agent| tally.value(agent)).collect();
        values.extend(tally.counts.keys());
        let groups = u32::try_from(values.len()).unwrap_or(u32::MAX);
        if let Some(PreparedConstraint::Placed(tally)) = self.constraints.get_mut(index) {
            tally.limit = Limit::Spread(Spread::new(groups, instances));
        }
    }

    /// The index for a refusal that no constraint causes: the agent is outside the home region, or is
    /// unknown.
    fn no_constraint_index(&self) -> u32 {
        u32::try_from(self.constraints.len()).unwrap_or(u32::MAX)
    }

    /// Checks for each agent whether one more instance may go to it. None is an agent that is not
    /// known. A refusal has the index of the first constraint that refuses the agent.
    ///
    /// Each constraint checks all agents before the next one does, because short loops are much faster
    /// in a component than calls for each agent and constraint.
    pub fn evaluate(&self, agents: &[Option<&AgentProperties>]) -> Vec<Verdict> {
        let no_constraint = self.no_constraint_index();
        let unknown = Verdict::Refused(no_constraint);
        let verdict = |agent: &Option<_>| if agent.is_some() { Verdict::Fits } else { unknown };
        let mut verdicts: Vec<_> = agents.iter().map(verdict).collect();
        if let Some(home) = &self.home_region {
            refuse_unless(&mut verdicts, agents, no_constraint, |agent| home.allows(agent));
        }
        for (index, constraint) in (0..).zip(&self.constraints) {
            match constraint {
                PreparedConstraint::Agent(field, test) => {
                    let without_field = test.value_test.passes_without_field();
                    refuse_unless(&mut verdicts, agents, index, |agent| {
                        let value = field.value(agent);
                        value.map_or(without_field, |value| test.passes(value))
                    });
                }
                other => refuse_unless(&mut verdicts, agents, index, |agent| other.passes(agent)),
            }
        }
        verdicts
    }

    /// Selects agents for up to `count` instances, as if they were placed one after the other: each goes
    /// to the first candidate that passes. With `GROUP_BY` it goes to the first one that passes and
    /// whose groups have the fewest instances.
    pub fn place(
        mut self,
        mut candidates: Vec<(Candidate, &'agents AgentProperties)>,
        count: u32,
    ) -> Vec<u32> {
        let has_spread = self
            .tallies()
            .any(|tally| matches!(tally.limit, Limit::Spread(_)));
        candidates.retain(|(candidate, agent)| candidate.capacity > 0 && self.passes(agent));
        let mut chosen = Vec::new();
        let mut next = 0;
        while chosen.len() < count as usize {
            if has_spread {
                candidates.retain(|(candidate, agent)| candidate.capacity > 0 && self.passes_tallies(agent));
                let least_loaded = candidates
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, (_, agent))| self.group_load(agent));
                let Some((index, _)) = least_loaded else { break };
                next = index;
            }
            let Some((candidate, agent)) = candidates.get_mut(next) else {
                break;
            };
            if candidate.capacity == 0 || !self.passes_tallies(agent) {
                next += 1;
                continue;
            }
            candidate.capacity -= 1;
            chosen.push(candidate.agent);
            let agent = *agent;
            self.count_instance(agent);
        }
        chosen
    }

    /// Selects `count` of the placed instances to kill, as indices. They are selected one after the
    /// other: each is the first, in the host's order, of those whose groups have the most instances.
    /// Without `GROUP_BY` none is selected, and the host kills in its own order.
    pub fn select_kills(mut self, placed: Vec<Option<&'agents AgentProperties>>, count: u32) -> Vec<u32> {
        let is_spread = |constraint: &PreparedConstraint| matches!(constraint, PreparedConstraint::Placed(tally) if matches!(tally.limit, Limit::Spread(_)));
        self.constraints.retain(is_spread);
        let mut chosen = Vec::new();
        if self.constraints.is_empty() {
            return chosen;
        }
        let mut remaining: Vec<(u32, &AgentProperties)> = (0..)
            .zip(placed)
            .filter_map(|(index, agent)| Some((index, agent?)))
            .collect();
        while chosen.len() < count as usize {
            // `max_by_key` returns the last of equal elements: in reverse order the first one of the
            // host's order.
            let most_loaded = remaining
                .iter()
                .enumerate()
                .rev()
                .max_by_key(|(_, (_, agent))| self.group_load(agent));
            let Some((position, (index, agent))) =
                most_loaded.map(|(position, instance)| (position, *instance))
            else {
                break;
            };
            remaining.remove(position);
            chosen.push(index);
            for constraint in &mut self.constraints {
                if let PreparedConstraint::Placed(tally) = constraint {
                    tally.remove(agent);
                }
            }
        }
        chosen
    }

    fn in_home_region(&self, agent: &AgentProperties) -> bool {
        self.home_region.as_ref().is_none_or(|home| home.allows(agent))
    }

    /// Whether one more instance may go to the agent.
    fn passes(&self, agent: &AgentProperties) -> bool {
        self.in_home_region(agent) && self.constraints.iter().all(|constraint| constraint.passes(agent))
    }

    /// Whether the agent passes all tests that do not depend on placed instances.
    fn passes_agent_tests(&self, agent: &AgentProperties) -> bool {
        self.in_home_region(agent)
            && self.constraints.iter().all(|constraint| {
                matches!(constraint, PreparedConstraint::Placed(_)) || constraint.passes(agent)
            })
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally<'agents>> {
        self.constraints.iter().filter_map(|constraint| match constraint {
            PreparedConstraint::Placed(tally) => Some(tally),
            _ => None,
        })
    }

    fn passes_tallies(&self, agent: &AgentProperties) -> bool {
        self.tallies().all(|tally| tally.passes(agent))
    }

    /// The number of instances in the agent's groups, summed over all `GROUP_BY` constraints.
    fn group_load(&self, agent: &AgentProperties) -> u64 {
        let spreads = self
            .tallies()
            .filter(|tally| matches!(tally.limit, Limit::Spread(_)));
        spreads
            .map(|tally| u64::from(tally.value(agent).map_or(0, |value| tally.count(value))))
            .sum()
    }

    fn count_instance(&mut self, agent: &AgentProperties) {
        for constraint in &mut self.constraints {
            if let PreparedConstraint::Placed(tally) = constraint {
                tally.add(agent);
            }
        }
    }
}

/// Refuses the agents that fit so far and do not pass, with this index of a constraint.
///
/// It is not inlined, so that its few variables stay in registers.
#[inline(never)]
fn refuse_unless(
    verdicts: &mut [Verdict],
    agents: &[Option<&AgentProperties>],
    index: u32,
    passes: impl Fn(&AgentProperties) -> bool,
) {
    for (verdict, agent) in verdicts.iter_mut().zip(agents) {
        if let (Verdict::Fits, Some(agent)) = (&*verdict, agent)
            && !passes(agent)
        {
            *verdict = Verdict::Refused(index);
        }
    }
}

/// Returns the agents of the placed instances that are not being ended.
fn placed_not_ending(task: &Task) -> Vec<u32> {
    let mut remaining = task.placed.clone();
    let ending = task.extensions.iter().find(|(name, _)| name == ENDING);
    let handles = ending.map_or("", |(_, handles)| handles.as_str());
    for handle in handles
        .split_whitespace()
        .filter_map(|handle| handle.parse::<u32>().ok())
    {
        if let Some(index) = remaining.iter().position(|placed| *placed == handle) {
            remaining.remove(index);
        }
    }
    remaining
}

impl<'agents> HomeRegion<'agents> {
    /// None if the master has no region or no agent has one.
    fn find(agents: &'agents Agents) -> Option<Self> {
        let home = FieldValue::from_text(agents.home_region()?.to_owned());
        let field = agents.fields().find(&Field::Region)?;
        let value = agents.fields().values(field)?.get_index_of(&home);
        Some(Self {
            field: FieldSearch::new(agents.field_lists(), field),
            value,
        })
    }

    /// Whether the home region allows the agent. An agent without a region is allowed, because it may
    /// be in the home region.
    fn allows(&self, agent: &AgentProperties) -> bool {
        let region = self.field.value(agent);
        region.is_none() || region == self.value
    }
}

impl<'agents> PreparedConstraint<'agents> {
    fn agent(test: AgentTest, field: &Field, agents: &'agents Agents) -> Self {
        let passes_without_field = test.passes_without_field();
        let test = agents
            .fields()
            .find(field)
            .and_then(|field| FieldTest::new(agents.fields(), field, test));
        test.map_or(Self::NoAgentHasField(passes_without_field), |test| {
            Self::Agent(FieldSearch::new(agents.field_lists(), test.field), test)
        })
    }

    fn passes(&self, agent: &AgentProperties) -> bool {
        match self {
            Self::Invalid => false,
            Self::Expression(expression) => expression.matches(agent),
            Self::Agent(field, test) => match field.value(agent) {
                Some(value) => test.passes(value),
                None => test.value_test.passes_without_field(),
            },
            Self::NoAgentHasField(passes) => *passes,
            Self::Placed(tally) => tally.passes(agent),
        }
    }
}

impl<'agents> Tally<'agents> {
    fn new(
        field: Option<FieldSearch<'agents>>,
        test: PlacedTest,
        placed: &[&AgentProperties],
        instances: u32,
    ) -> Self {
        let limit = match test {
            PlacedTest::FewerThan(count) => Limit::FewerThan(count),
            PlacedTest::SameValue => Limit::SameValue(None),
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
        if let Limit::SameValue(first @ None) = &mut self.limit {
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
        self.field.as_ref()?.value(agent)
    }

    fn count(&self, value: usize) -> u32 {
        self.counts.get(&value).copied().unwrap_or(0)
    }

    fn passes(&self, agent: &AgentProperties) -> bool {
        let Some(value) = self.value(agent) else {
            return false;
        };
        match self.limit {
            Limit::FewerThan(limit) => self.count(value) < limit,
            Limit::SameValue(first) => first.is_none_or(|first| first == value),
            Limit::Spread(spread) => spread.allows(self.count(value), self.counts.values().copied()),
        }
    }
}
