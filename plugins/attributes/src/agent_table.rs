//! A table of agents, sorted by their handles.
//!
//! The host numbers agents in the order of their arrival, so that new ones are appended, and it
//! lists candidates mostly by ascending handles.

/// Agents by their handles.
#[derive(Debug)]
pub struct AgentTable<Agent> {
    /// In ascending order.
    handles: Vec<u32>,
    /// The agents, in the order of their handles.
    agents: Vec<Agent>,
}

impl<Agent> Default for AgentTable<Agent> {
    fn default() -> Self {
        Self {
            handles: Vec::new(),
            agents: Vec::new(),
        }
    }
}

impl<Agent> AgentTable<Agent> {
    /// The number of agents.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Whether there are no agents.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// All agents, by ascending handles.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter()
    }

    /// All agents, by ascending handles.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Agent> {
        self.agents.iter_mut()
    }

    /// Returns the agent with this handle.
    pub fn get(&self, handle: u32) -> Option<&Agent> {
        self.agents.get(self.handles.binary_search(&handle).ok()?)
    }

    /// Removes the agents with these handles.
    pub fn remove(&mut self, mut removed: Vec<u32>) {
        if removed.is_empty() {
            return;
        }
        removed.sort_unstable();
        let is_removed = |handle: &u32| removed.binary_search(handle).is_ok();
        let mut handles = self.handles.iter();
        self.agents.retain(|_| !handles.next().is_some_and(is_removed));
        self.handles.retain(|handle| !is_removed(handle));
    }

    /// A search for several agents.
    pub fn search(&self) -> AgentSearch<'_, Agent> {
        AgentSearch { table: self, next: 0 }
    }
}

impl<Agent: Default> AgentTable<Agent> {
    /// Passes the agent with this handle to `change`, and whether it is new. A new agent has its default
    /// value.
    pub fn change_or_add(&mut self, handle: u32, change: impl FnOnce(&mut Agent, bool)) {
        let found = if self.handles.last().is_none_or(|last| *last < handle) {
            Err(self.handles.len())
        } else {
            self.handles.binary_search(&handle)
        };
        if let Err(index) = found {
            self.handles.insert(index, handle);
            self.agents.insert(index, Agent::default());
        }
        let (Ok(index) | Err(index)) = found;
        if let Some(agent) = self.agents.get_mut(index) {
            change(agent, found.is_err());
        }
    }
}

/// A search for several agents. It is fast if most handles are higher than the one before.
#[derive(Debug)]
pub struct AgentSearch<'table, Agent> {
    table: &'table AgentTable<Agent>,
    /// The index after the last agent that was found.
    next: usize,
}

impl<'table, Agent> AgentSearch<'table, Agent> {
    /// Returns the agent with this handle.
    #[inline]
    pub fn get(&mut self, handle: u32) -> Option<&'table Agent> {
        let index = if self.table.handles.get(self.next) == Some(&handle) {
            self.next
        } else {
            self.find(handle)?
        };
        self.next = index + 1;
        self.table.agents.get(index)
    }

    /// Searches forward from the last agent in steps of increasing width; from the first agent if the
    /// handle is not higher than that of the last one.
    #[inline(never)]
    fn find(&self, handle: u32) -> Option<usize> {
        let handles = &self.table.handles;
        let last = self.next.checked_sub(1).and_then(|last| handles.get(last));
        let start = if last.is_some_and(|last| *last < handle) {
            self.next
        } else {
            0
        };
        let remaining = handles.get(start..)?;
        let mut width = 1;
        while remaining.get(width).is_some_and(|passed| *passed < handle) {
            width *= 2;
        }
        let searched = remaining.get(..=width).unwrap_or(remaining);
        Some(start + searched.binary_search(&handle).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A table of the agents whose value is their handle.
    fn table(handles: impl IntoIterator<Item = u32>) -> AgentTable<u32> {
        let mut table = AgentTable::default();
        for handle in handles {
            table.change_or_add(handle, |agent, _| *agent = handle);
        }
        table
    }

    #[test]
    fn table_has_the_agents_of_a_map_after_the_same_changes() {
        let mut expected = BTreeMap::new();
        let mut table = AgentTable::<u32>::default();
        // Not in order, some twice, the largest possible one.
        let added = [5, 9, 7, 1, 7, 0, 1000, 999, u32::MAX, 5];
        for (value, handle) in (0..).zip(added) {
            table.change_or_add(handle, |agent, is_new| {
                *agent = value;
                assert_eq!(is_new, expected.insert(handle, value).is_none());
            });
        }
        for removed in [vec![], vec![9, 3, 0], vec![u32::MAX, 5, 5], vec![1, 7, 999, 1000]] {
            for handle in &removed {
                expected.remove(handle);
            }
            table.remove(removed);
            assert!(table.iter().eq(expected.values()));
            for handle in [0, 1, 5, 7, 8, 9, 999, 1000, u32::MAX] {
                assert_eq!(table.get(handle), expected.get(&handle));
            }
        }
        assert!(table.is_empty());
    }

    #[test]
    fn search_finds_agents_in_any_order_of_handles() {
        let table = table((0..200).map(|n| n * 3));
        let ascending: Vec<u32> = (0..600).collect();
        let descending: Vec<u32> = ascending.iter().rev().copied().collect();
        let distant: Vec<u32> = (0..600).step_by(59).chain((1..600).step_by(97)).collect();
        let repeated = vec![3, 3, 0, 0, 597, 597, 600, u32::MAX, 0];
        for handles in [ascending, descending, distant, repeated] {
            let mut search = table.search();
            for handle in handles {
                assert_eq!(search.get(handle), table.get(handle));
                assert_eq!(table.get(handle).is_some(), handle < 600 && handle % 3 == 0);
            }
        }
    }

    #[test]
    fn empty_table_has_no_agents() {
        let table = table([]);
        assert_eq!(table.search().get(0), None);
        assert_eq!(table.get(0), None);
    }
}
