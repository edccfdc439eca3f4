//! The layers of apps and pods: those of a layer depend only on those of lower layers.
//!
//! A dependency may name a group, and a group's dependencies apply to everything below it, so a few
//! words of a document may stand for a dependency of each of a thousand apps on each of a thousand
//! others. Such dependencies are not enumerated: groups are nodes of the graph, too. The cost grows
//! with the number of apps, pods and groups and with the length of their lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{GroupId, SpecId};
use crate::model::Spec;
use crate::tree::Tree;

/// A cycle in the dependencies of apps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are cyclic dependencies between {}", .0.iter().map(SpecId::as_str).collect::<Vec<_>>().join(", "))]
pub(crate) struct Cycle(BTreeSet<SpecId>);

/// The layers of apps and pods: one more than the greatest layer of their dependencies.
pub(super) struct Layers<'a> {
    tree: &'a Tree,
    /// The known heights of nodes.
    heights: BTreeMap<Node, u32>,
    /// The dependencies of groups that have some.
    inherited: BTreeMap<GroupId, Arc<Inherited>>,
}

/// A node of the graph of dependencies. Its height is the least layer of what depends on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Spec(SpecId),
    /// All apps and pods below a group.
    Below(GroupId),
    /// The apps, pods and groups that a group depends on, without those of
    /// [`Inherited::overlapping`].
    Needs(GroupId),
}

/// The dependencies of a group, which apply to everything below it.
struct Inherited {
    /// The apps and pods of dependencies that overlap with the group: an app below the group may be
    /// one of them, and does not depend on itself. If there are two such apps, they form a cycle,
    /// so the list is enumerated only a few times.
    overlapping: Vec<SpecId>,
    /// The dependencies that do not overlap with the group.
    others: Vec<SpecId>,
}

/// A node whose dependencies are being visited.
struct Visit {
    node: Node,
    dependencies: std::vec::IntoIter<Node>,
    /// The greatest height of the dependencies.
    height: u32,
}

impl<'a> Layers<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            heights: BTreeMap::new(),
            inherited: BTreeMap::new(),
        }
    }

    /// The layer of an app or pod. Visits only its dependencies. It is not recursive, because
    /// chains of dependencies may be long.
    pub(super) fn layer(&mut self, spec: &SpecId) -> Result<u32, Cycle> {
        let spec = Node::Spec(spec.clone());
        if let Some(height) = self.heights.get(&spec) {
            return Ok(height - 1);
        }
        let mut path = vec![self.visit(spec.clone())];
        let mut on_path = BTreeSet::from([spec.clone()]);
        while let Some(visit) = path.last_mut() {
            let Some(next) = visit.dependencies.next() else {
                let is_spec = matches!(visit.node, Node::Spec(_));
                let (node, height) = (visit.node.clone(), visit.height + u32::from(is_spec));
                path.pop();
                on_path.remove(&node);
                self.heights.insert(node, height);
                if let Some(dependent) = path.last_mut() {
                    dependent.height = dependent.height.max(height);
                }
                continue;
            };
            if let Some(height) = self.heights.get(&next) {
                visit.height = visit.height.max(*height);
            } else if on_path.contains(&next) {
                let cycle = path.iter().map(|visit| &visit.node);
                let specs = cycle
                    .skip_while(|node| **node != next)
                    .filter_map(|node| match node {
                        Node::Spec(id) => Some(id.clone()),
                        Node::Below(_) | Node::Needs(_) => None,
                    });
                return Err(Cycle(specs.collect()));
            } else {
                on_path.insert(next.clone());
                path.push(self.visit(next));
            }
        }
        Ok(self.heights.get(&spec).map_or(0, |height| height - 1))
    }

    fn visit(&mut self, node: Node) -> Visit {
        let dependencies = match &node {
            Node::Spec(id) => self.dependencies(id),
            Node::Below(group) => {
                let specs = self.tree.specs_below(group);
                specs.map(|spec| Node::Spec(spec.id().clone())).collect()
            }
            Node::Needs(group) => {
                let inherited = self.inherited(group);
                let paths = inherited.iter().flat_map(|inherited| &inherited.others);
                paths.flat_map(|path| self.at(path)).collect()
            }
        };
        Visit {
            dependencies: dependencies.into_iter(),
            node,
            height: 0,
        }
    }

    /// The nodes that an app or pod depends on, because of its own dependencies and those of its
    /// groups. Dependencies that do not exist are ignored.
    fn dependencies(&mut self, id: &SpecId) -> Vec<Node> {
        let own = self.tree.spec(id).into_iter().flat_map(Spec::dependencies);
        let mut nodes = Vec::new();
        for path in own.collect::<BTreeSet<_>>() {
            if GroupId::from(path).is_above(id.as_str()) {
                let specs = self.tree.specs_at(path);
                nodes.extend(specs.map(|spec| Node::Spec(spec.id().clone())));
            } else {
                nodes.extend(self.at(path));
            }
        }
        for group in id.group().with_ancestors() {
            if let Some(inherited) = self.inherited(&group) {
                nodes.extend(inherited.overlapping.iter().cloned().map(Node::Spec));
                nodes.push(Node::Needs(group));
            }
        }
        let is_itself = |node: &Node| matches!(node, Node::Spec(on) if on == id);
        nodes.retain(|node| !is_itself(node));
        nodes
    }

    /// The nodes of a path: an app or pod, and everything below the group with this path.
    fn at(&self, path: &SpecId) -> impl Iterator<Item = Node> + use<> {
        let spec = self.tree.spec(path).map(|_| Node::Spec(path.clone()));
        let group = GroupId::from(path);
        let is_empty = self.tree.specs_below(&group).next().is_none();
        spec.into_iter().chain((!is_empty).then_some(Node::Below(group)))
    }

    /// The dependencies of a group; `None` if it has none.
    fn inherited(&mut self, group: &GroupId) -> Option<Arc<Inherited>> {
        let paths = &self.tree.group(group)?.dependencies;
        if paths.is_empty() {
            return None;
        }
        if let Some(known) = self.inherited.get(group) {
            return Some(Arc::clone(known));
        }
        let overlaps = |path: &&SpecId| {
            let other = GroupId::from(*path);
            other == *group || other.is_above(group.as_str()) || group.is_above(path.as_str())
        };
        let (overlapping, others): (Vec<&SpecId>, Vec<&SpecId>) = paths.iter().partition(overlaps);
        let overlapping: BTreeSet<SpecId> = overlapping
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .flat_map(|path| self.tree.specs_at(path))
            .map(|spec| spec.id().clone())
            .collect();
        let inherited = Arc::new(Inherited {
            overlapping: overlapping.into_iter().collect(),
            others: others.into_iter().cloned().collect(),
        });
        self.inherited.insert(group.clone(), Arc::clone(&inherited));
        Some(inherited)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;
    use crate::testing::app;
    use crate::time::Moment;
    use crate::tree::Group;

    fn id(text: &str) -> SpecId {
        SpecId::parse(text).unwrap()
    }

    fn tree(apps: &[(&str, &[&str])], groups: &[(&str, &[&str])]) -> Tree {
        let mut tree = Tree::default();
        for (id, dependencies) in apps {
            tree.insert(app(&json!({"id": id, "cmd": "sleep 1", "dependencies": dependencies})).into());
        }
        for (group, dependencies) in groups {
            let group = Group::new(GroupId::parse(group).unwrap(), Moment::now());
            tree.insert_group(Arc::new(Group {
                dependencies: dependencies.iter().map(|on| id(on)).collect(),
                ..group
            }));
        }
        tree
    }

    /// The layers by the definition, each dependency enumerated; `None`: there is a cycle.
    fn enumerated(tree: &Tree) -> Option<BTreeMap<SpecId, u32>> {
        let specs: Vec<&Spec> = tree.specs_below(&GroupId::root()).collect();
        let on = |spec: &Spec| -> Vec<SpecId> {
            let groups = spec.id().group().with_ancestors();
            let inherited = groups
                .filter_map(|group| tree.group(&group))
                .flat_map(|group| &group.dependencies);
            let paths = spec.dependencies().iter().chain(inherited);
            let all = paths
                .flat_map(|path| tree.specs_at(path))
                .map(|spec| spec.id().clone());
            all.filter(|on| on != spec.id()).collect()
        };
        let mut layers = BTreeMap::new();
        for _ in 0..=specs.len() {
            for spec in &specs {
                let below: Option<Vec<u32>> = on(spec).iter().map(|on| layers.get(on).copied()).collect();
                if let Some(below) = below {
                    layers.insert(
                        spec.id().clone(),
                        below.into_iter().max().map_or(0, |layer| layer + 1),
                    );
                }
            }
        }
        (layers.len() == specs.len()).then_some(layers)
    }

    fn found(tree: &Tree) -> Option<BTreeMap<SpecId, u32>> {
        let mut layers = Layers::new(tree);
        let specs = tree.specs_below(&GroupId::root());
        specs
            .map(|spec| Some((spec.id().clone(), layers.layer(spec.id()).ok()?)))
            .collect()
    }

    type Dependencies<'a> = &'a [(&'a str, &'a [&'a str])];

    #[test]
    fn layers_are_those_of_all_single_dependencies() {
        let apps: Dependencies<'_> = &[
            ("/g/a", &["/h"]),
            ("/g/b", &["/h/x", "/none"]),
            ("/g/k/c", &["/g/a"]),
            ("/h/x", &[]),
            ("/h/y", &["/h/x"]),
            ("/z", &["/g"]),
        ];
        let cases: &[(Dependencies<'_>, bool)] = &[
            (&[], true),
            (&[("/g", &["/h", "/none"])], true),
            (&[("/g/k", &["/h", "/g/a"])], true),
            (&[("/", &["/h/x"])], true),
            (&[("/h", &["/h/x"])], true),
            (&[("/g/k", &["/g"])], true),
            (&[("/g", &["/g"])], false),
            (&[("/h", &["/g"])], false),
            (&[("/h", &["/z"])], false),
            (&[("/g", &["/g/b", "/g/a"])], false),
            (&[("/h", &["/h"])], false),
        ];
        for (groups, is_possible) in cases {
            let tree = tree(apps, groups);
            assert_eq!(found(&tree), enumerated(&tree), "{groups:?}");
            assert_eq!(found(&tree).is_some(), *is_possible, "{groups:?}");
        }
    }

    #[test]
    fn cycle_names_the_apps_and_not_the_groups() {
        let tree = tree(&[("/g/a", &["/h"]), ("/h/b", &["/g"]), ("/z", &["/h"])], &[]);
        let cycle = Layers::new(&tree).layer(&id("/z")).unwrap_err();
        assert_eq!(
            cycle.to_string(),
            "there are cyclic dependencies between /g/a, /h/b"
        );
    }
}
