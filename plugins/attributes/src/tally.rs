//! The placed instances of a task, counted by the values of a field.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::constraint::{PlacedTest, Spread, SpreadTotals};
use crate::properties::{AgentProperties, FieldSearch};

/// The number of placed instances for each value of a field, and its limit.
#[derive(Debug)]
pub struct Tally<'agents> {
    /// The field, if an agent has it.
    field: Option<FieldSearch<'agents>>,
    /// The placed instances by the value's number.
    counts: HashMap<usize, u32, FxBuildHasher>,
    limit: Limit,
}

#[derive(Debug)]
enum Limit {
    FewerThan(u32),
    /// All instances have the value of the first placed instance. None while no instance is placed.
    SameValue(Option<usize>),
    Spread(Spread, SpreadTotals),
}

impl<'agents> Tally<'agents> {
    /// Counts the placed instances.
    pub fn new(
        field: Option<FieldSearch<'agents>>,
        test: PlacedTest,
        placed: &[&AgentProperties],
        instances: u32,
    ) -> Self {
        let limit = match test {
            PlacedTest::FewerThan(count) => Limit::FewerThan(count),
            PlacedTest::SameValue => Limit::SameValue(None),
            PlacedTest::Spread(groups) => Limit::Spread(
                Spread::new(groups.unwrap_or(0), instances),
                SpreadTotals::default(),
            ),
        };
        let mut tally = Self {
            field,
            counts: HashMap::default(),
            limit,
        };
        for agent in placed {
            tally.add(agent);
        }
        tally
    }

    /// Whether the limit is that of `GROUP_BY`.
    pub fn is_spread(&self) -> bool {
        matches!(self.limit, Limit::Spread(..))
    }

    /// Spreads over this number of groups.
    pub fn spread_over(&mut self, groups: u32, instances: u32) {
        let spread = Spread::new(groups, instances);
        self.limit = Limit::Spread(spread, spread.totals(self.counts.values().copied()));
    }

    /// Counts an instance.
    pub fn add(&mut self, agent: &AgentProperties) {
        let Some(value) = self.value(agent) else {
            return;
        };
        let count = self.counts.entry(value).or_default();
        match &mut self.limit {
            Limit::SameValue(first @ None) => *first = Some(value),
            Limit::Spread(spread, totals) => spread.add_instance(*count, totals),
            Limit::SameValue(_) | Limit::FewerThan(_) => {}
        }
        *count += 1;
    }

    /// Counts one instance less. Only [`Self::count`] may be called afterwards.
    pub fn remove(&mut self, agent: &AgentProperties) {
        if let Some(value) = self.value(agent)
            && let Some(count) = self.counts.get_mut(&value)
        {
            *count = count.saturating_sub(1);
        }
    }

    /// The agent's value of the field, by its number.
    pub fn value(&self, agent: &AgentProperties) -> Option<usize> {
        #[cfg(test)]
        lookups::add();
        self.field.as_ref()?.value(agent)
    }

    /// The instances with this value.
    pub fn count(&self, value: usize) -> u32 {
        self.counts.get(&value).copied().unwrap_or(0)
    }

    /// The values with instances.
    pub fn counted_values(&self) -> impl Iterator<Item = usize> {
        self.counts.keys().copied()
    }

    /// Whether one more instance may go to the agent.
    pub fn passes(&self, agent: &AgentProperties) -> bool {
        let Some(value) = self.value(agent) else {
            return false;
        };
        match self.limit {
            Limit::FewerThan(limit) => self.count(value) < limit,
            Limit::SameValue(first) => first.is_none_or(|first| first == value),
            Limit::Spread(spread, totals) => spread.allows(self.count(value), totals),
        }
    }
}

/// The number of lookups of agents' values, for tests of the work that a call does.
#[cfg(test)]
pub(crate) mod lookups {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add() {
        COUNT.set(COUNT.get() + 1);
    }

    pub(crate) fn take() -> usize {
        COUNT.take()
    }
}
