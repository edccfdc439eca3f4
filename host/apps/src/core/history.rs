//! The last changes of definitions, and which past definitions they need.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, Vector};

use crate::deploy::{Change, ChangedSpec};
use crate::ids::{GroupId, SpecId};
use crate::time::Moment;
use crate::tree::edit::EditedGroup;

/// The number of changes that are kept.
const MAX_CHANGES: usize = 50;
/// The apps, pods and groups that all kept changes may name together. A change that is larger is kept
/// until the next one.
const MAX_NAMED: usize = 250_000;

/// The changes below a group since one of its versions.
#[derive(Debug, PartialEq)]
pub(crate) struct ChangesSince {
    /// The versions of the changed apps and pods at that time; `None` for those that did not exist.
    pub(crate) specs: BTreeMap<SpecId, Option<Moment>>,
    /// The changed groups, with their definitions at that time and now.
    pub(crate) groups: Vec<EditedGroup>,
}

/// The kept changes, oldest first, and the number of references to each past definition from these
/// changes and from running deployments. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    changes: Vector<Arc<Change>>,
    /// The number of apps, pods and groups that they name.
    named: usize,
    references: OrdMap<(SpecId, Moment), u32>,
}

impl History {
    /// Adds the newest change. Returns the oldest ones that are no longer kept.
    pub(super) fn push(&mut self, change: Arc<Change>) -> Vec<Arc<Change>> {
        self.retain(&change);
        self.named += named(&change);
        self.changes.push_back(change);
        let mut dropped = Vec::new();
        while self.changes.len() > MAX_CHANGES || self.named > MAX_NAMED && self.changes.len() > 1 {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.named -= named(&oldest);
            dropped.push(oldest);
        }
        dropped
    }

    /// The kept change that made this version.
    pub(super) fn change(&self, version: Moment) -> Option<&Arc<Change>> {
        self.changes.iter().find(|change| change.version == version)
    }

    /// Adds references to the past definitions that a revert of the change needs.
    pub(super) fn retain(&mut self, change: &Change) {
        for reference in references(change) {
            *self.references.entry(reference).or_default() += 1;
        }
    }

    /// Removes the references of a change that is no longer kept, or whose deployment has ended.
    /// Returns the past definitions without further references.
    pub(super) fn release(&mut self, change: &Change) -> Vec<(SpecId, Moment)> {
        let mut unused = Vec::new();
        for reference in references(change) {
            match self.references.get_mut(&reference) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    self.references.remove(&reference);
                    unused.push(reference);
                }
            }
        }
        unused
    }

    /// Whether a kept change or a running deployment refers to a past definition.
    pub(super) fn refers_to(&self, id: &SpecId, version: Moment) -> bool {
        self.references.contains_key(&(id.clone(), version))
    }

    /// The times of the kept changes of a group, newest first.
    pub(crate) fn versions(&self, group: &GroupId) -> Vec<Moment> {
        let changes = self.changes.iter().rev();
        changes
            .filter(|change| change.concerns(group))
            .map(|change| change.version)
            .collect()
    }

    /// Combines the changes below a group after `version` into one change, for a rollback. `None`
    /// if the group has no such version.
    pub(crate) fn since(&self, group: &GroupId, version: Moment) -> Option<ChangesSince> {
        if !self.versions(group).contains(&version) {
            return None;
        }
        let (mut specs, mut groups) = (BTreeMap::new(), BTreeMap::<GroupId, EditedGroup>::new());
        // The state before is that of the oldest change, the state after is that of the newest.
        for change in self.changes.iter().filter(|change| change.version > version) {
            let below = |spec: &&ChangedSpec| group.is_above(spec.id.as_str());
            for spec in change.specs.iter().filter(below) {
                specs.entry(spec.id.clone()).or_insert(spec.before);
            }
            for edited in &change.groups {
                let Some(id) = edited
                    .after
                    .as_ref()
                    .or(edited.before.as_ref())
                    .map(|one| &one.id)
                else {
                    continue;
                };
                if id != group && !group.is_above(id.as_str()) {
                    continue;
                }
                match groups.get_mut(id) {
                    Some(known) => known.after.clone_from(&edited.after),
                    None => drop(groups.insert(id.clone(), edited.clone())),
                }
            }
        }
        let groups = groups.into_values();
        Some(ChangesSince {
            specs,
            groups: groups.filter(|group| group.before != group.after).collect(),
        })
    }
}

fn named(change: &Change) -> usize {
    change.specs.len() + change.groups.len()
}

/// The past definitions that a revert of the change restores.
fn references(change: &Change) -> impl Iterator<Item = (SpecId, Moment)> {
    let specs = change.specs.iter();
    specs.filter_map(|spec| Some((spec.id.clone(), spec.before?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn moment(number: u32) -> Moment {
        "2020-01-01T00:00:00Z"
            .parse::<Moment>()
            .unwrap()
            .plus_millis(i64::from(number))
    }

    fn id(text: &str) -> SpecId {
        SpecId::parse(text).unwrap()
    }

    /// A change of one app from one version to another; 0 stands for no definition.
    fn change(app: &str, before: u32, after: u32) -> Change {
        let version = |number: u32| (number > 0).then(|| moment(number));
        Change {
            version: moment(before.max(after)),
            group: id(app).group(),
            specs: vec![ChangedSpec {
                id: id(app),
                before: version(before),
                after: version(after),
            }],
            groups: Vec::new(),
        }
    }

    #[test]
    fn past_definition_is_kept_while_a_change_or_a_deployment_refers_to_it() {
        let mut history = History::default();
        let first = change("/a", 1, 2);
        history.retain(&first);
        assert_eq!(history.push(Arc::new(first.clone())), Vec::new());
        assert!(history.refers_to(&id("/a"), moment(1)));
        assert_eq!(history.release(&first), Vec::new(), "the deployment has ended");
        for number in 2..=MAX_CHANGES as u32 {
            assert_eq!(
                history.push(Arc::new(change("/a", number, number + 1))),
                Vec::new()
            );
        }
        let dropped = history.push(Arc::new(change("/b", 0, 1000)));
        assert_eq!(dropped, [Arc::new(first)]);
        assert_eq!(history.release(&dropped[0]), [(id("/a"), moment(1))]);
        assert!(!history.refers_to(&id("/a"), moment(1)));
    }

    #[test]
    fn large_changes_are_kept_for_a_shorter_time() {
        let mut history = History::default();
        let large = |version: u32| {
            let one = change("/a", version, version + 1);
            Change {
                specs: vec![one.specs[0].clone(); MAX_NAMED / 2],
                ..one
            }
        };
        for version in 1..=2 {
            assert!(history.push(Arc::new(large(version))).is_empty());
        }
        let dropped = history.push(Arc::new(large(3)));
        assert_eq!(dropped.len(), 1);
        assert_eq!(dropped[0].version, moment(2));
        let largest = Change {
            specs: vec![change("/a", 4, 5).specs[0].clone(); MAX_NAMED + 1],
            ..change("/a", 4, 5)
        };
        assert_eq!(
            history.push(Arc::new(largest)).len(),
            2,
            "only the newest is kept"
        );
    }

    #[test]
    fn group_rollback_restores_the_versions_before_later_changes() {
        let mut history = History::default();
        for change in [
            change("/g/a", 0, 1),
            change("/g/b", 0, 2),
            change("/h/c", 0, 3),
            change("/g/a", 1, 4),
            change("/g/a", 4, 5),
            change("/g/b", 2, 0),
        ] {
            history.push(Arc::new(change));
        }
        let group = GroupId::parse("/g").unwrap();
        let found: Vec<Moment> = history.versions(&group);
        assert_eq!(found, [2, 5, 4, 2, 1].map(moment));
        let ChangesSince { specs, groups } = history.since(&group, moment(1)).unwrap();
        assert_eq!(
            specs,
            BTreeMap::from([(id("/g/a"), Some(moment(1))), (id("/g/b"), None)])
        );
        assert!(groups.is_empty());
        assert_eq!(
            history.since(&group, moment(3)),
            None,
            "a change of another group"
        );
    }
}
