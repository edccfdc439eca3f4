//! All definitions: apps and pods, and the groups that contain them.
//!
//! A [`Tree`] consists of a persistent map of apps and pods, and one of groups, both by path. A
//! clone is cheap, the cost of an edit is logarithmic, and a group is a range of paths. Every group
//! that contains one of these exists in the tree, too. [`edit`] changes a tree; [`revert`] undoes a
//! change in a tree that has changed since. Both are pure.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

pub(crate) mod edit;
pub(crate) mod revert;
mod rules;

use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::ids::{GroupId, SpecId};
use crate::model::{Size, Spec};
use crate::time::Moment;

/// A group's own definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    /// The time of the last change of this definition.
    pub(crate) version: Moment,
    /// Apps, pods and groups that all apps and pods of this group depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dependencies: Vec<SpecId>,
    /// Whether the group's name is the role of new apps and pods below it. Only used for top-level
    /// groups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) enforce_role: bool,
}

impl Group {
    pub(crate) fn new(id: GroupId, version: Moment) -> Self {
        Self {
            id,
            version,
            dependencies: Vec::new(),
            enforce_role: false,
        }
    }

    /// Approximate bytes in memory.
    fn bytes(&self) -> u64 {
        let dependencies = self.dependencies.iter().map(|id| id.as_str().len() + 48);
        (GROUP_BYTES + 2 * self.id.as_str().len() + dependencies.sum::<usize>()) as u64
    }
}

/// The memory of a group besides its texts.
const GROUP_BYTES: usize = 256;

/// The definitions of all apps, pods and groups, without those that are being deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// With the bytes of each in memory.
    specs: OrdMap<SpecId, (Spec, u64)>,
    /// The groups. The root group is in it only if it has a definition.
    groups: OrdMap<GroupId, Arc<Group>>,
    /// The number of apps that have each service port.
    service_ports: OrdMap<u16, u32>,
    /// The apps that have each exclusive volume of a driver.
    volumes: OrdMap<Arc<str>, OrdSet<SpecId>>,
    /// The bytes of all definitions in memory.
    bytes: u64,
}

impl Tree {
    pub(crate) fn spec(&self, id: &SpecId) -> Option<&Spec> {
        self.specs.get(id).map(|(spec, _)| spec)
    }

    /// The app or pod whose id is this path.
    pub(crate) fn spec_with_path(&self, path: &str) -> Option<&Spec> {
        self.specs.get(path).map(|(spec, _)| spec)
    }

    /// The number of apps and pods.
    pub(crate) fn len(&self) -> usize {
        self.specs.len()
    }

    /// The approximate bytes of all definitions in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A group's definition; `None` for the root group as long as it has none.
    pub(crate) fn group(&self, id: &GroupId) -> Option<&Arc<Group>> {
        self.groups.get(id)
    }

    /// Whether there is such a group. The root group always exists.
    pub(crate) fn has_group(&self, id: &GroupId) -> bool {
        id.is_root() || self.groups.contains_key(id)
    }

    /// All groups that are defined.
    pub(crate) fn groups(&self) -> &OrdMap<GroupId, Arc<Group>> {
        &self.groups
    }

    /// The apps and pods below a group, at any depth.
    pub(crate) fn specs_below(&self, group: &GroupId) -> impl Iterator<Item = &Spec> + use<'_> {
        let (from, to) = range(group);
        let bounds = (Bound::Excluded(from.as_str()), Bound::Excluded(to.as_str()));
        self.specs.range::<_, str>(bounds).map(|(_, (spec, _))| spec)
    }

    /// The groups below a group, at any depth.
    pub(crate) fn groups_below(&self, group: &GroupId) -> impl Iterator<Item = &Arc<Group>> + use<'_> {
        let (from, to) = range(group);
        let bounds = (Bound::Excluded(from.as_str()), Bound::Excluded(to.as_str()));
        self.groups.range::<_, str>(bounds).map(|(_, group)| group)
    }

    /// Whether an app, a pod or a group has this path.
    pub(crate) fn exists(&self, path: &SpecId) -> bool {
        self.specs.contains_key(path) || self.groups.contains_key(path.as_str())
    }

    /// The dependencies of the app or group with this path.
    pub(crate) fn dependencies_at(&self, path: &str) -> &[SpecId] {
        match (self.spec_with_path(path), self.groups.get(path)) {
            (Some(spec), _) => spec.dependencies(),
            (None, Some(group)) => &group.dependencies,
            (None, None) => &[],
        }
    }

    /// The version that the document of a group has: the latest one of its definition and of the apps
    /// and pods below it.
    pub(crate) fn group_version(&self, id: &GroupId) -> Moment {
        let own = self.group(id).map(|group| group.version);
        let below = self.specs_below(id).map(Spec::version);
        let latest = own.into_iter().chain(below).max();
        latest.unwrap_or_else(|| Moment::from(jiff::Timestamp::UNIX_EPOCH))
    }

    /// The apps and pods at a path: the one with this id, or all below the group with this path.
    pub(crate) fn specs_at(&self, path: &SpecId) -> impl Iterator<Item = &Spec> + use<'_> {
        let one = self.spec(path);
        one.into_iter().chain(self.specs_below(&GroupId::from(path)))
    }

    /// Adds or replaces an app or pod, and adds the groups that it lies in.
    pub(crate) fn insert(&mut self, spec: Spec) {
        // A request's definitions are added twice: when it is prepared, and when it is stored.
        if self.spec(spec.id()).is_some_and(|present| present.is_same(&spec)) {
            return;
        }
        self.remove(spec.id());
        for port in service_ports(&spec) {
            *self.service_ports.entry(port).or_default() += 1;
        }
        for name in rules::exclusive_volumes(&spec) {
            let users = self.volumes.entry(name.into()).or_default();
            users.insert(spec.id().clone());
        }
        self.add_groups(&spec.id().group(), spec.version());
        let bytes = Size::of(&spec).memory;
        self.bytes += bytes;
        self.specs.insert(spec.id().clone(), (spec, bytes));
    }

    /// Removes an app or pod. The group that it lies in stays.
    pub(crate) fn remove(&mut self, id: &SpecId) -> Option<Spec> {
        let (spec, bytes) = self.specs.remove(id)?;
        self.bytes -= bytes;
        for port in service_ports(&spec) {
            match self.service_ports.get_mut(&port) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.service_ports.remove(&port)),
            }
        }
        for name in rules::exclusive_volumes(&spec) {
            if let Some(users) = self.volumes.get_mut(name) {
                users.remove(id);
                if users.is_empty() {
                    self.volumes.remove(name);
                }
            }
        }
        Some(spec)
    }

    /// The apps with this exclusive volume of a driver.
    pub(crate) fn users_of_volume(&self, name: &str) -> impl Iterator<Item = &SpecId> {
        let users = self.volumes.get(name).into_iter().flatten();
        #[cfg(test)]
        let users = users.inspect(|_| crate::testing::operations::count());
        users
    }

    /// Adds or replaces a group, and adds the groups that it lies in.
    pub(crate) fn insert_group(&mut self, group: Arc<Group>) {
        if let Some(parent) = group.id.parent() {
            self.add_groups(&parent, group.version);
        }
        self.put_group(group);
    }

    /// Removes the definition of a group.
    pub(crate) fn remove_group(&mut self, id: &GroupId) -> Option<Arc<Group>> {
        let removed = self.groups.remove(id)?;
        self.bytes -= removed.bytes();
        Some(removed)
    }

    /// The role of apps and pods in the group of `id`, if the top-level group enforces it.
    pub(crate) fn enforced_role(&self, id: &SpecId) -> Option<&str> {
        let path = format!("/{}", id.top_level_group()?);
        let group = self.groups.get(path.as_str())?;
        group.enforce_role.then(|| group.id.as_str().strip_prefix('/'))?
    }

    /// Whether an app has this service port.
    pub(crate) fn has_service_port(&self, port: u16) -> bool {
        #[cfg(test)]
        crate::testing::operations::count();
        self.service_ports.contains_key(&port)
    }

    fn add_groups(&mut self, innermost: &GroupId, version: Moment) {
        for id in innermost.with_ancestors() {
            if self.has_group(&id) {
                return;
            }
            self.put_group(Arc::new(Group::new(id, version)));
        }
    }

    fn put_group(&mut self, group: Arc<Group>) {
        self.remove_group(&group.id);
        self.bytes += group.bytes();
        self.groups.insert(group.id.clone(), group);
    }
}

/// The bounds of the paths below a group.
fn range(group: &GroupId) -> (String, String) {
    let from = group.prefix();
    // `0` is the character after the slash.
    let to = format!("{}0", &from[..from.len() - 1]);
    (from, to)
}

fn service_ports(spec: &Spec) -> impl Iterator<Item = u16> + use<'_> {
    spec.service_ports().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;
    use crate::testing::app;

    fn group(text: &str) -> GroupId {
        GroupId::parse(text).unwrap()
    }

    fn tree(ids: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for id in ids {
            tree.insert(app(&json!({"id": id, "cmd": "sleep 1"})).into());
        }
        tree
    }

    #[test]
    fn ranges_of_a_group_end_with_the_group() {
        let tree = tree(&["/a", "/a-b/x", "/b/c", "/b/d/e", "/b0", "/c"]);
        let below = |id: &str| -> Vec<String> {
            tree.specs_below(&group(id))
                .map(|app| app.id().to_string())
                .collect()
        };
        assert_eq!(below("/b"), ["/b/c", "/b/d/e"]);
        assert_eq!(below("/b/d"), ["/b/d/e"]);
        assert_eq!(below("/a"), Vec::<String>::new());
        assert_eq!(below("/").len(), 6);
        let groups: Vec<&str> = tree
            .groups_below(&GroupId::root())
            .map(|group| group.id.as_str())
            .collect();
        assert_eq!(groups, ["/a-b", "/b", "/b/d"]);
    }

    #[test]
    fn bytes_grow_and_shrink_with_the_definitions() {
        let mut tree = Tree::default();
        let spec = |cmd: &str| Spec::from(app(&json!({"id": "/g/a", "cmd": cmd})));
        tree.insert(spec("x"));
        let small = tree.bytes();
        let long = spec(&"x".repeat(101));
        for _ in 0..2 {
            tree.insert(long.clone());
            assert_eq!(tree.bytes(), small + 100);
        }
        tree.remove(long.id()).unwrap();
        let with_group = tree.bytes();
        assert!((1..small).contains(&with_group), "{with_group}");
        tree.insert_group(Arc::clone(tree.group(&group("/g")).unwrap()));
        assert_eq!(tree.bytes(), with_group);
        tree.remove_group(&group("/g")).unwrap();
        assert_eq!(tree.bytes(), 0);
    }

    #[test]
    fn service_port_is_used_until_its_last_app_is_removed() {
        let mut tree = Tree::default();
        for id in ["/a", "/b"] {
            let ports = json!({"id": id, "cmd": "sleep 1", "portDefinitions": [{"port": 10_100}]});
            tree.insert(app(&ports).into());
        }
        assert!(tree.has_service_port(10_100));
        tree.remove(&SpecId::parse("/a").unwrap()).unwrap();
        assert!(tree.has_service_port(10_100));
        tree.remove(&SpecId::parse("/b").unwrap()).unwrap();
        assert!(!tree.has_service_port(10_100));
        assert!(!tree.has_service_port(0));
    }
}
