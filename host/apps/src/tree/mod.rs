//! All definitions: apps, and the groups that they lie in.
//!
//! A [`Tree`] is a persistent map of apps and one of groups, both by path: a clone is cheap, the
//! edit of one app costs the logarithm of their number, and a group is a range of paths. Every
//! group that an app or a group lies in exists, too. [`edit`] changes a tree, [`revert`] undoes a
//! change in a tree that others have changed since. Both are pure.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

pub(crate) mod edit;
pub(crate) mod revert;
mod rules;

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::ids::{AppId, GroupId};
use crate::model::App;
use crate::time::Moment;

/// A group's own definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    /// The time of the last change of this definition.
    pub(crate) version: Moment,
    /// Apps and groups that all apps of this group depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dependencies: Vec<AppId>,
}

impl Group {
    pub(crate) fn new(id: GroupId, version: Moment) -> Self {
        Self {
            id,
            version,
            dependencies: Vec::new(),
        }
    }
}

/// The definitions of all apps and groups, without apps that are being deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    apps: OrdMap<AppId, Arc<App>>,
    /// Without the root group, unless it has a definition.
    groups: OrdMap<GroupId, Arc<Group>>,
    /// The number of apps that have each service port.
    service_ports: OrdMap<u16, u32>,
}

impl Tree {
    pub(crate) fn app(&self, id: &AppId) -> Option<&Arc<App>> {
        self.apps.get(id)
    }

    /// The number of apps.
    pub(crate) fn len(&self) -> usize {
        self.apps.len()
    }

    /// A group's definition; none for the root group if nobody has defined it.
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

    /// The apps below a group, at any depth.
    pub(crate) fn apps_below(&self, group: &GroupId) -> impl Iterator<Item = &Arc<App>> + use<'_> {
        let (from, to) = range(group);
        let bounds = (Bound::Excluded(from.as_str()), Bound::Excluded(to.as_str()));
        self.apps.range::<_, str>(bounds).map(|(_, app)| app)
    }

    /// The groups below a group, at any depth.
    pub(crate) fn groups_below(&self, group: &GroupId) -> impl Iterator<Item = &Arc<Group>> + use<'_> {
        let (from, to) = range(group);
        let bounds = (Bound::Excluded(from.as_str()), Bound::Excluded(to.as_str()));
        self.groups.range::<_, str>(bounds).map(|(_, group)| group)
    }

    /// The apps that a path names: the app with this id, or all apps below that group.
    pub(crate) fn apps_at(&self, path: &AppId) -> impl Iterator<Item = &Arc<App>> + use<'_> {
        let one = self.apps.get(path);
        one.into_iter().chain(self.apps_below(&GroupId::from(path)))
    }

    /// Adds or replaces an app, and adds the groups that it lies in.
    pub(crate) fn insert(&mut self, app: Arc<App>) {
        self.remove(&app.id);
        for port in service_ports(&app) {
            *self.service_ports.entry(port).or_default() += 1;
        }
        self.add_groups(&app.id.group(), app.version);
        self.apps.insert(app.id.clone(), app);
    }

    /// Removes an app. The group that it lies in stays.
    pub(crate) fn remove(&mut self, id: &AppId) -> Option<Arc<App>> {
        let app = self.apps.remove(id)?;
        for port in service_ports(&app) {
            match self.service_ports.get_mut(&port) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.service_ports.remove(&port)),
            }
        }
        Some(app)
    }

    /// Adds or replaces a group, and adds the groups that it lies in.
    pub(crate) fn insert_group(&mut self, group: Arc<Group>) {
        if let Some(parent) = group.id.parent() {
            self.add_groups(&parent, group.version);
        }
        self.groups.insert(group.id.clone(), group);
    }

    /// Removes the definition of a group.
    pub(crate) fn remove_group(&mut self, id: &GroupId) -> Option<Arc<Group>> {
        self.groups.remove(id)
    }

    /// Whether an app has this service port.
    pub(crate) fn has_service_port(&self, port: u16) -> bool {
        self.service_ports.contains_key(&port)
    }

    fn add_groups(&mut self, innermost: &GroupId, version: Moment) {
        for id in innermost.with_ancestors() {
            if self.has_group(&id) {
                return;
            }
            self.groups.insert(id.clone(), Arc::new(Group::new(id, version)));
        }
    }
}

/// What all paths below a group lie between.
fn range(group: &GroupId) -> (String, String) {
    let from = group.prefix();
    // The character after the slash.
    let to = format!("{}0", &from[..from.len() - 1]);
    (from, to)
}

fn service_ports(app: &App) -> impl Iterator<Item = u16> + use<'_> {
    app.service_ports().filter(|port| *port != 0)
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
            tree.insert(Arc::new(app(&json!({"id": id, "cmd": "sleep 1"}))));
        }
        tree
    }

    #[test]
    fn ranges_of_a_group_end_with_the_group() {
        let tree = tree(&["/a", "/a-b/x", "/b/c", "/b/d/e", "/b0", "/c"]);
        let below = |id: &str| -> Vec<String> {
            tree.apps_below(&group(id))
                .map(|app| app.id.to_string())
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
    fn service_port_is_used_until_its_last_app_has_gone() {
        let mut tree = Tree::default();
        for id in ["/a", "/b"] {
            let ports = json!({"id": id, "cmd": "sleep 1", "portDefinitions": [{"port": 10_100}]});
            tree.insert(Arc::new(app(&ports)));
        }
        assert!(tree.has_service_port(10_100));
        tree.remove(&AppId::parse("/a").unwrap()).unwrap();
        assert!(tree.has_service_port(10_100));
        tree.remove(&AppId::parse("/b").unwrap()).unwrap();
        assert!(!tree.has_service_port(10_100));
        assert!(!tree.has_service_port(0));
    }
}
