//! Evaluates a task's constraints on agents: a verdict for each candidate, a choice for several
//! instances, and the instances to kill when a task is scaled down.
//!
//! Every test only gets stricter as instances are placed, so an agent that is rejected once stays
//! rejected within a call.

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use rustc_hash::FxBuildHasher;
use transom_sdk::matcher::{Candidate, Constraint, Task, Verdict};

use crate::agents::Agents;
use crate::classes::Classes;
use crate::constraint::{AgentTest, ParsedConstraint, PlacedTest, Test};
use crate::expression::Expression;
use crate::fields::{Field, FieldTest};
use crate::pattern::PatternCache;
use crate::properties::{AgentProperties, FieldSearch};
use crate::tally::Tally;
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
    /// An invalid constraint. It rejects every agent.
    Invalid,
    Expression(Expression<'agents>),
    Agent(FieldSearch<'agents>, FieldTest<'agents, AgentTest>),
    /// A constraint on a field that no agent has; the value is whether every agent passes.
    NoAgentHasField(bool),
    Placed(Tally<'agents>),
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
        let mut values: HashSet<usize, FxBuildHasher> =
            usable.filter_map(|agent| tally.value(agent)).collect();
        values.extend(tally.counted_values());
        let groups = u32::try_from(values.len()).unwrap_or(u32::MAX);
        if let Some(PreparedConstraint::Placed(tally)) = self.constraints.get_mut(index) {
            tally.spread_over(groups, instances);
        }
    }

    /// The index for a rejection that no constraint causes: the agent is outside the home region, or is
    /// unknown.
    fn no_constraint_index(&self) -> u32 {
        u32::try_from(self.constraints.len()).unwrap_or(u32::MAX)
    }

    /// Checks for each agent whether one more instance may go to it. None is an agent that is not
    /// known. A rejection has the index of the first constraint that rejects the agent.
    ///
    /// Each constraint checks all agents before the next one does, because short loops are much faster
    /// in a component than calls for each agent and constraint.
    pub fn evaluate(&self, agents: &[Option<&AgentProperties>]) -> Vec<Verdict> {
        let no_constraint = self.no_constraint_index();
        let unknown = Verdict::Refused(no_constraint);
        let verdict = |agent: &Option<_>| if agent.is_some() { Verdict::Fits } else { unknown };
        let mut verdicts: Vec<_> = agents.iter().map(verdict).collect();
        if let Some(home) = &self.home_region {
            reject_unless(&mut verdicts, agents, no_constraint, |agent| home.allows(agent));
        }
        for (index, constraint) in (0..).zip(&self.constraints) {
            match constraint {
                PreparedConstraint::Agent(field, test) => {
                    let without_field = test.value_test.passes_without_field();
                    reject_unless(&mut verdicts, agents, index, |agent| {
                        let value = field.value(agent);
                        value.map_or(without_field, |value| test.passes(value))
                    });
                }
                other => reject_unless(&mut verdicts, agents, index, |agent| other.passes(agent)),
            }
        }
        verdicts
    }

    /// Selects agents for up to `count` instances, as if they were placed one after the other: each goes
    /// to the first candidate that passes. With `GROUP_BY` it goes to the first one that passes and
    /// whose groups have the fewest instances.
    ///
    /// The work grows with the candidates and the instances, not with their product: candidates in the
    /// same groups are in one class, and a heap has the class with the fewest instances first.
    pub fn place(mut self, candidates: &[(Candidate, &'agents AgentProperties)], count: u32) -> Vec<u32> {
        let mut classes = Classes::default();
        for (index, (candidate, agent)) in candidates.iter().enumerate() {
            if candidate.capacity > 0 && self.passes(agent) {
                classes.add(self.groups_of(agent), index);
            }
        }
        let mut capacities: Vec<u32> = candidates
            .iter()
            .map(|(candidate, _)| candidate.capacity)
            .collect();
        let mut fewest_first: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
        for (class, index) in classes.firsts() {
            if let Some((_, agent)) = candidates.get(index) {
                fewest_first.push(Reverse((self.group_load(agent), index, class)));
            }
        }
        let mut chosen = Vec::new();
        while chosen.len() < count as usize {
            let Some(Reverse((load, index, class))) = fewest_first.pop() else {
                break;
            };
            let (Some((candidate, agent)), Some(capacity)) =
                (candidates.get(index), capacities.get_mut(index))
            else {
                break;
            };
            // The number of instances only increases, and a rejected agent stays rejected.
            let mut next = Some(index);
            if self.group_load(agent) == load {
                if *capacity > 0 && self.passes_tallies(agent) {
                    *capacity -= 1;
                    chosen.push(candidate.agent);
                    self.count_instance(agent);
                } else {
                    next = classes.next(class);
                }
            }
            if let Some(index) = next
                && let Some((_, agent)) = candidates.get(index)
            {
                fewest_first.push(Reverse((self.group_load(agent), index, class)));
            }
        }
        chosen
    }

    /// Selects `count` of the placed instances to kill, as indices. They are selected one after the
    /// other: each is the first, in the host's order, of those whose groups have the most instances.
    /// Without `GROUP_BY` none is selected, and the host kills in its own order.
    ///
    /// As in [`Self::place`], the work grows with the instances.
    pub fn select_kills(mut self, placed: &[Option<&'agents AgentProperties>], count: u32) -> Vec<u32> {
        let is_spread = |constraint: &PreparedConstraint| matches!(constraint, PreparedConstraint::Placed(tally) if tally.is_spread());
        self.constraints.retain(is_spread);
        let mut chosen = Vec::new();
        if self.constraints.is_empty() {
            return chosen;
        }
        let agent_at = |index: usize| placed.get(index).copied().flatten();
        let mut classes = Classes::default();
        for index in 0..placed.len() {
            if let Some(agent) = agent_at(index) {
                classes.add(self.groups_of(agent), index);
            }
        }
        let mut most_first: BinaryHeap<(u64, Reverse<usize>, usize)> = BinaryHeap::new();
        for (class, index) in classes.firsts() {
            if let Some(agent) = agent_at(index) {
                most_first.push((self.group_load(agent), Reverse(index), class));
            }
        }
        while chosen.len() < count as usize {
            let Some((load, Reverse(index), class)) = most_first.pop() else {
                break;
            };
            let Some(agent) = agent_at(index) else { break };
            let mut next = Some(index);
            if self.group_load(agent) == load {
                chosen.push(u32::try_from(index).unwrap_or(u32::MAX));
                for constraint in &mut self.constraints {
                    if let PreparedConstraint::Placed(tally) = constraint {
                        tally.remove(agent);
                    }
                }
                next = classes.next(class);
            }
            if let Some(index) = next
                && let Some(agent) = agent_at(index)
            {
                most_first.push((self.group_load(agent), Reverse(index), class));
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

    /// The agent's groups, one for each `GROUP_BY`.
    fn groups_of(&self, agent: &AgentProperties) -> Vec<Option<usize>> {
        let spreads = self.tallies().filter(|tally| tally.is_spread());
        spreads.map(|tally| tally.value(agent)).collect()
    }

    /// The number of instances in the agent's groups, summed over all `GROUP_BY` constraints.
    fn group_load(&self, agent: &AgentProperties) -> u64 {
        let spreads = self.tallies().filter(|tally| tally.is_spread());
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

/// Rejects the agents that fit so far and do not pass, with this index of a constraint.
///
/// It is not inlined, so that its few variables stay in registers.
#[inline(never)]
fn reject_unless(
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
    let ending = task.extensions.iter().find(|(name, _)| name == ENDING);
    let handles = ending.map_or("", |(_, handles)| handles.as_str());
    let mut ending: HashMap<u32, u32, FxBuildHasher> = HashMap::default();
    for handle in handles
        .split_whitespace()
        .filter_map(|handle| handle.parse().ok())
    {
        *ending.entry(handle).or_default() += 1;
    }
    let mut is_ending = |handle: &u32| match ending.get_mut(handle) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    };
    task.placed
        .iter()
        .copied()
        .filter(|handle| !is_ending(handle))
        .collect()
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
