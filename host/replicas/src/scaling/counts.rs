//! Counts of the replicas of a run spec, and the order in which a restart removes them. A service keeps
//! both up to date with each change, so that the next actions rarely need a look at every replica.

use std::collections::BTreeSet;

use super::restart::{self, Allowance, Progress};
use super::{Action, Directive, Member, ScalingPolicy};
use crate::{Condition, KillSelection};

/// The counts of all replicas, and the old ones in the order of removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaIndex<I> {
    counts: ReplicaCounts,
    /// Replicas of older configurations that count towards the number: whether they are healthy, their
    /// weights, ages and ids.
    old: BTreeSet<(bool, u8, i128, I)>,
    selection: KillSelection,
}

impl<I: Clone + Ord> ReplicaIndex<I> {
    /// An index without replicas. `selection` is that of the definition.
    pub fn new(selection: KillSelection) -> Self {
        Self {
            counts: ReplicaCounts::default(),
            old: BTreeSet::new(),
            selection,
        }
    }

    /// Adds a replica.
    pub fn add(&mut self, member: &Member<I>) {
        self.counts.add(member);
        self.old.extend(self.place(member));
    }

    /// Removes a replica with the properties with which it was added.
    pub fn remove(&mut self, member: &Member<I>) {
        self.counts.remove(member);
        if let Some(place) = self.place(member) {
            self.old.remove(&place);
        }
    }

    /// The counts.
    pub fn counts(&self) -> ReplicaCounts {
        self.counts
    }

    /// The old replicas that a restart removes first. Those that leave their agents, or that were
    /// selected, do not come first here.
    pub fn first_old(&self, count: usize) -> Vec<I> {
        let first = self.old.iter().take(count);
        first.map(|(.., id)| id.clone()).collect()
    }

    fn place(&self, member: &Member<I>) -> Option<(bool, u8, i128, I)> {
        let since = member.since.as_nanosecond();
        let age = match self.selection {
            KillSelection::YoungestFirst => -since,
            KillSelection::OldestFirst => since,
        };
        let weight = member.condition.kill_weight();
        (member.old && member.is_counted()).then(|| (member.healthy, weight, age, member.id.clone()))
    }
}

/// How many replicas have each of the properties that [`super::advance`] uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts([u32; PROPERTIES]);

const PROPERTIES: usize = 15;

/// The properties of a replica. All but `Any`, `Ending`, `Unreached` and `LostAndOld` are those of
/// replicas that count towards the number.
#[derive(Clone, Copy)]
enum Property {
    Any,
    Ending,
    Unreached,
    LostAndOld,
    Counted,
    Healthy,
    HealthyInPlace,
    Leaving,
    Old,
    OldInPlace,
    OldIdle,
    NewHealthy,
    /// It is to be replaced: it is old or leaving.
    Replaced,
    ReplacedUnlaunched,
    ReplacedUnhealthy,
}

impl ReplicaCounts {
    /// Adds a replica.
    pub fn add<I: Clone + PartialEq>(&mut self, member: &Member<I>) {
        for (count, has) in self.0.iter_mut().zip(properties(member)) {
            *count += u32::from(has);
        }
    }

    /// Removes a replica with the properties with which it was added.
    pub fn remove<I: Clone + PartialEq>(&mut self, member: &Member<I>) {
        for (count, has) in self.0.iter_mut().zip(properties(member)) {
            *count -= u32::from(has);
        }
    }

    /// The replicas that count towards the number.
    pub fn counted(&self) -> u32 {
        self.of(Property::Counted)
    }

    fn of(&self, property: Property) -> u32 {
        self.0[property as usize]
    }
}

impl<'a, I: Clone + PartialEq + 'a> FromIterator<&'a Member<I>> for ReplicaCounts {
    fn from_iter<T: IntoIterator<Item = &'a Member<I>>>(members: T) -> Self {
        let mut counts = Self::default();
        for member in members {
            counts.add(member);
        }
        counts
    }
}

/// In the order of [`Property`].
fn properties<I: Clone + PartialEq>(member: &Member<I>) -> [bool; PROPERTIES] {
    let counted = member.is_counted();
    let (old, replaced) = (counted && member.old, counted && (member.old || member.leaving));
    let in_place = !member.restarting;
    [
        true,
        !member.wanted,
        !(member.wanted && (member.has_been_healthy || !counted)),
        member.is_lost_and_old(),
        counted,
        counted && member.healthy,
        counted && member.healthy && in_place,
        counted && member.leaving,
        old,
        old && in_place,
        old && in_place && member.condition != Condition::Running,
        counted && !member.old && member.healthy,
        replaced,
        replaced && member.condition == Condition::Scheduled,
        replaced && !member.healthy,
    ]
}

/// The next actions, as [`super::advance`] computes them, if they follow from the counts and the order of
/// the old replicas. `None`: some replicas have to be selected among all. `first_old`: see
/// [`ReplicaIndex::first_old`]; it returns `None` if some replicas are selected to be removed first.
pub fn advance_by_counts<I>(
    action: Action,
    policy: &ScalingPolicy,
    counts: &ReplicaCounts,
    first_old: impl FnOnce(usize) -> Option<Vec<I>>,
) -> Option<Directive<I>> {
    match action {
        Action::Stop => (counts.of(Property::Any) == counts.of(Property::Ending)).then(|| Directive {
            done: counts.of(Property::Any) == 0,
            ..Directive::default()
        }),
        Action::Scale => scale(policy, counts),
        Action::Restart => replace_all(policy, counts, first_old),
        Action::Canary(replicas) => canary(replicas, policy, counts, first_old),
    }
}

fn scale<I>(policy: &ScalingPolicy, counts: &ReplicaCounts) -> Option<Directive<I>> {
    let counted = counts.counted();
    let has_leaving = !policy.resident && counts.of(Property::Leaving) > 0;
    if has_leaving || counted > policy.replicas {
        return None;
    }
    Some(Directive {
        done: counted == policy.replicas && counts.of(Property::Unreached) == 0,
        start: policy.replicas - counted,
        ..Directive::default()
    })
}

fn replace_all<I>(
    policy: &ScalingPolicy,
    counts: &ReplicaCounts,
    first_old: impl FnOnce(usize) -> Option<Vec<I>>,
) -> Option<Directive<I>> {
    if counts.of(Property::LostAndOld) > 0 {
        return None;
    }
    if counts.of(Property::Old) == 0 {
        return scale(policy, counts);
    }
    if policy.resident {
        return replace_in_place(policy, counts);
    }
    let (old, counted) = (counts.of(Property::Replaced), counts.counted());
    let new = counted - old;
    let (allowance, ending) = (
        allow(policy, counts, old, Property::Healthy),
        counts.of(Property::Ending),
    );
    let missing = policy.replicas.saturating_sub(new);
    let free = |kill: u32| allowance.capacity.saturating_sub(counted - kill + ending);
    let unlaunched = counts.of(Property::ReplacedUnlaunched);
    let mut kill = allowance.kill.max(unlaunched).min(old);
    if missing > 0 && free(kill) == 0 && kill == 0 && ending == 0 {
        kill = counts.of(Property::ReplacedUnhealthy).min(1);
    }
    let decommission = match kill {
        0 => Vec::new(),
        // Those that leave their agents come first.
        _ if counts.of(Property::Leaving) > 0 => return None,
        _ => first_old(kill as usize)?,
    };
    // Unlaunched replicas come first.
    let launched_kills = kill.saturating_sub(unlaunched);
    Some(Directive {
        decommission,
        start: missing.min(free(kill).saturating_sub(launched_kills)),
        ..Directive::default()
    })
}

fn replace_in_place<I>(policy: &ScalingPolicy, counts: &ReplicaCounts) -> Option<Directive<I>> {
    if counts.counted() != policy.replicas {
        let scaled = scale(policy, counts)?;
        return Some(Directive {
            done: false,
            ..scaled
        });
    }
    let allowance = allow(policy, counts, counts.of(Property::Old), Property::HealthyInPlace);
    let restarts = allowance.kill.max(counts.of(Property::OldIdle));
    let none = restarts == 0 || counts.of(Property::OldInPlace) == 0;
    none.then(Directive::default)
}

fn canary<I>(
    replicas: u32,
    policy: &ScalingPolicy,
    counts: &ReplicaCounts,
    first_old: impl FnOnce(usize) -> Option<Vec<I>>,
) -> Option<Directive<I>> {
    let canaries = replicas.min(policy.replicas);
    if counts.of(Property::Old) == 0 || policy.replicas == canaries {
        return replace_all(policy, counts, first_old);
    }
    if counts.of(Property::LostAndOld) > 0 {
        return None;
    }
    let mut next: Directive<I> = replace_all(policy, counts, first_old)?;
    let old = counts.of(Property::Old);
    let new = counts.counted() - old;
    let replaceable = old.saturating_sub(policy.replicas - canaries);
    next.decommission.truncate(replaceable as usize);
    let start = next.start.min(canaries.saturating_sub(new));
    let healthy = counts.of(Property::NewHealthy);
    Some(Directive {
        start,
        canaries_healthy: next.decommission.is_empty()
            && start == 0
            && new >= canaries
            && healthy >= canaries,
        ..next
    })
}

fn allow(policy: &ScalingPolicy, counts: &ReplicaCounts, running: u32, healthy: Property) -> Allowance {
    let progress = Progress {
        wanted: policy.replicas,
        running,
        healthy: counts.of(healthy),
        resident: policy.resident,
    };
    restart::allow(progress, policy.upgrade)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::advance;
    use super::*;
    use crate::UpgradeStrategy;

    /// A sequence of numbers that is the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % bound
        }

        fn is(&mut self, percent: u64) -> bool {
            self.below(100) < percent
        }
    }

    /// A replica that runs and is settled, but for properties that are `rare` (in percent).
    fn member(id: u32, numbers: &mut Numbers, rare: u64) -> Member<u32> {
        let conditions = [
            Condition::Scheduled,
            Condition::Staging,
            Condition::Killing,
            Condition::UnreachableInactive,
        ];
        let other = conditions[numbers.below(4) as usize];
        let condition = if numbers.is(rare) {
            other
        } else {
            Condition::Running
        };
        let healthy = condition == Condition::Running && !numbers.is(rare);
        Member {
            id,
            condition,
            since: Timestamp::constant(numbers.below(3).cast_signed(), 0),
            wanted: !numbers.is(rare),
            old: numbers.is(rare),
            leaving: numbers.is(rare / 4),
            restarting: numbers.is(rare / 4),
            selected: false,
            healthy,
            has_been_healthy: healthy || numbers.is(50),
        }
    }

    #[test]
    fn actions_by_counts_are_those_by_all_replicas() {
        let mut numbers = Numbers(7);
        let (mut decided, mut selected) = (0, 0);
        for round in 0..40_000 {
            let rare = [0, 5, 25, 60][round % 4];
            let count = numbers.below(7) as u32;
            let members: Vec<_> = (0..count).map(|id| member(id, &mut numbers, rare)).collect();
            let policy = ScalingPolicy {
                replicas: numbers.below(7) as u32,
                kill_selection: if numbers.is(50) {
                    KillSelection::YoungestFirst
                } else {
                    KillSelection::OldestFirst
                },
                upgrade: UpgradeStrategy {
                    maximum_over_capacity: numbers.below(3) as f64 / 2.0,
                    minimum_health_capacity: numbers.below(3) as f64 / 2.0,
                },
                resident: numbers.is(25),
            };
            let mut index = ReplicaIndex::new(policy.kill_selection);
            for member in &members {
                index.add(member);
            }
            for action in [
                Action::Stop,
                Action::Scale,
                Action::Restart,
                Action::Canary(numbers.below(4) as u32),
            ] {
                let first_old = |count| Some(index.first_old(count));
                let found = advance_by_counts(action, &policy, &index.counts(), first_old);
                let Some(found) = found else {
                    continue;
                };
                decided += 1;
                selected += u32::from(!found.decommission.is_empty());
                let expected = advance(action, &policy, &members);
                assert_eq!(found, expected, "{action:?} {policy:?} {members:#?}");
            }
        }
        assert!(decided > 40_000, "{decided} of 160,000 decided by counts");
        assert!(selected > 4_000, "{selected} of them with a removal");
    }

    #[test]
    fn index_without_replicas_is_empty() {
        let mut numbers = Numbers(11);
        let members: Vec<_> = (0..50).map(|id| member(id, &mut numbers, 40)).collect();
        let empty = ReplicaIndex::new(KillSelection::YoungestFirst);
        let mut index = empty.clone();
        for member in &members {
            index.add(member);
        }
        assert!(index != empty && index.first_old(50).len() > 1);
        for member in &members {
            index.remove(member);
        }
        assert_eq!(index, empty);
    }
}
