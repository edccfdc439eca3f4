//! Counts of instances, kept up to date with each change, so that no reader counts all instances.

use std::collections::BTreeMap;

use transom_replicas::Condition;

use crate::instance::Instance;

/// The instances of an app or pod, or of all, by condition and health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceCounts {
    /// In the order of the conditions.
    conditions: [u32; Condition::ALL.len()],
    pub(crate) healthy: u32,
    pub(crate) unhealthy: u32,
    /// The instances with a check that has no result, or with a readiness check that fails.
    pub(crate) unchecked: u32,
}

impl InstanceCounts {
    /// The instances in a condition.
    pub(crate) fn of(&self, condition: Condition) -> u32 {
        self.conditions[condition as usize]
    }

    /// The number of instances in each condition that any has, by its name.
    pub(crate) fn by_condition(&self) -> BTreeMap<&'static str, u32> {
        let all = Condition::ALL.into_iter();
        let counts = all.map(|condition| (condition.as_str(), self.of(condition)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The instances whose task is launched and does not run yet.
    pub(crate) fn launching(&self) -> u32 {
        Condition::LAUNCHING
            .into_iter()
            .map(|condition| self.of(condition))
            .sum()
    }

    /// The instances whose condition depends on the time alone.
    pub(super) fn time_limited(&self) -> u32 {
        let unreachable = [Condition::Unreachable, Condition::UnreachableInactive];
        let unreachable = unreachable.into_iter().map(|condition| self.of(condition));
        unreachable.sum::<u32>() + self.launching()
    }

    pub(crate) fn add(&mut self, instance: &Instance) {
        self.add_all(&Self::of_one(instance));
    }

    /// Removes an instance that has not changed since it was added.
    pub(crate) fn remove(&mut self, instance: &Instance) {
        self.remove_all(&Self::of_one(instance));
    }

    fn of_one(instance: &Instance) -> Self {
        #[cfg(test)]
        crate::testing::operations::count();
        let mut counts = Self::default();
        counts.conditions[instance.condition() as usize] = 1;
        match instance.is_healthy() {
            Some(true) => counts.healthy = 1,
            Some(false) => counts.unhealthy = 1,
            None => {}
        }
        counts.unchecked = instance.is_unchecked().into();
        counts
    }

    pub(super) fn add_all(&mut self, others: &Self) {
        self.combine(others, |count, other| count + other);
    }

    pub(super) fn remove_all(&mut self, others: &Self) {
        self.combine(others, |count, other| count - other);
    }

    fn combine(&mut self, others: &Self, operation: impl Fn(u32, u32) -> u32) {
        for (count, other) in self.conditions.iter_mut().zip(others.conditions) {
            *count = operation(*count, other);
        }
        self.healthy = operation(self.healthy, others.healthy);
        self.unhealthy = operation(self.unhealthy, others.unhealthy);
        self.unchecked = operation(self.unchecked, others.unchecked);
    }
}
