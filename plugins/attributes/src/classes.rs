//! Agents in classes: those of a class are in the same groups.

use std::collections::VecDeque;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Indices of agents, grouped by the groups that the agents are in. Each class keeps the order in which
/// its agents were added.
#[derive(Debug, Default)]
pub struct Classes(IndexMap<Vec<Option<usize>>, VecDeque<usize>, FxBuildHasher>);

impl Classes {
    /// Adds an agent that is in these groups.
    pub fn add(&mut self, groups: Vec<Option<usize>>, index: usize) {
        self.0.entry(groups).or_default().push_back(index);
    }

    /// Each class with its first agent.
    pub fn firsts(&self) -> impl Iterator<Item = (usize, usize)> {
        let firsts = self.0.values().map(VecDeque::front).enumerate();
        firsts.filter_map(|(class, first)| Some((class, *first?)))
    }

    /// Removes the first agent of a class and returns the next one.
    pub fn next(&mut self, class: usize) -> Option<usize> {
        let (_, agents) = self.0.get_index_mut(class)?;
        agents.pop_front();
        agents.front().copied()
    }
}
