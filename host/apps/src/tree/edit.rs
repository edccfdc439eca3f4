//! Edits of a tree: what a request makes of the definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_web::Problems;

use super::{Group, Tree, rules as tree_rules};
use crate::config::Checks;
use crate::ids::{AppId, GroupId};
use crate::model::{App, AppUpdate, Effect, GroupUpdate, Invalid, Settings, VersionInfo, ports, rules};
use crate::time::Moment;

/// What an edit needs to know besides the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// The settings that definitions depend on.
    pub(crate) definitions: &'a Settings,
    /// Whether changes that lose something are allowed.
    pub(crate) force: bool,
    /// The range of service ports.
    pub(crate) service_ports: &'a RangeInclusive<u16>,
    /// Where checks run.
    pub(crate) checks: Checks,
    /// The version of the definitions that the edit changes.
    pub(crate) version: Moment,
}

/// Whether instances are replaced although their definition is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// As far as earlier requests for a restart were not carried out yet.
    AsBefore,
    /// All of them.
    All,
    /// None; an earlier request is withdrawn.
    Withdrawn,
}

/// An app that an edit names. It may be unchanged.
#[derive(Clone, Debug)]
pub(crate) struct EditedApp {
    pub(crate) id: AppId,
    /// `None`: the app is new.
    pub(crate) before: Option<Arc<App>>,
    /// `None`: the app is deleted.
    pub(crate) after: Option<Arc<App>>,
    pub(crate) restart: Restart,
}

/// A group whose definition an edit changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EditedGroup {
    /// `None`: the group is new.
    pub(crate) before: Option<Arc<Group>>,
    /// `None`: the group is deleted.
    pub(crate) after: Option<Arc<Group>>,
}

/// The result of an edit.
#[derive(Clone, Debug)]
pub(crate) struct Edited {
    pub(crate) tree: Tree,
    /// In the order of their ids.
    pub(crate) apps: Vec<EditedApp>,
    /// In the order of their ids.
    pub(crate) groups: Vec<EditedGroup>,
}

/// An edit in progress. Problems are gathered and reported together at the end.
pub(crate) struct Editor<'a> {
    before: &'a Tree,
    tree: Tree,
    site: Site<'a>,
    apps: BTreeMap<AppId, EditedApp>,
    groups: BTreeSet<GroupId>,
    /// Where the request names an app or group, for problems with ids.
    paths: BTreeMap<String, String>,
    problems: Problems,
    /// The last service port that was assigned.
    last_port: u16,
}

impl<'a> Editor<'a> {
    pub(crate) fn new(before: &'a Tree, site: Site<'a>) -> Self {
        Self {
            before,
            tree: before.clone(),
            site,
            apps: BTreeMap::new(),
            groups: BTreeSet::new(),
            paths: BTreeMap::new(),
            problems: Problems::default(),
            last_port: *site.service_ports.end(),
        }
    }

    /// Creates or updates an app; with `partial`, fields that the update does not have stay. `path`
    /// is where the request has the definition: empty, or `/apps(1)`.
    pub(crate) fn put(&mut self, id: AppId, mut update: AppUpdate, partial: bool, restart: bool, path: &str) {
        let present = self.before.app(&id).cloned();
        let base = present.as_deref().filter(|_| partial);
        let app = update.apply(id, base, self.site.definitions, self.site.version);
        let mut problems = std::mem::take(&mut update.broken);
        problems.extend(rules::check(&app, self.site.definitions));
        if let Some(present) = &present {
            problems.extend(rules::check_update(present, &app, self.site.force));
        }
        if !problems.is_empty() {
            return self.problems.extend(problems.below(path));
        }
        let restart = if restart { Restart::All } else { Restart::AsBefore };
        self.paths.insert(app.id.to_string(), format!("{path}/id"));
        self.set(app, restart);
    }

    /// Replaces all instances of an app.
    pub(crate) fn restart(&mut self, app: &App) {
        let version = self.site.version;
        self.set(
            App {
                version,
                ..app.clone()
            },
            Restart::All,
        );
    }

    /// Gives an app an earlier definition.
    pub(crate) fn restore(&mut self, definition: &App, restart: Restart) {
        let version = self.site.version;
        self.set(
            App {
                version,
                ..definition.clone()
            },
            restart,
        );
    }

    /// Deletes an app.
    pub(crate) fn remove(&mut self, id: &AppId) {
        if let Some(before) = self.tree.remove(id) {
            let edited = EditedApp {
                id: id.clone(),
                before: self.before.app(id).cloned().or(Some(before)),
                after: None,
                restart: Restart::AsBefore,
            };
            self.apps.insert(id.clone(), edited);
        }
    }

    /// Creates or updates a group with everything that the update has: lists replace all apps or
    /// groups of the group.
    pub(crate) fn put_group(&mut self, update: GroupUpdate) {
        let id = update.id.clone();
        self.paths.insert(id.to_string(), format!("{}/id", update.path));
        self.problems.extend(update.broken);
        let present = self.tree.group(&id).cloned();
        let dependencies = update
            .dependencies
            .or_else(|| present.as_ref().map(|group| group.dependencies.clone()));
        let dependencies = dependencies.unwrap_or_default();
        let changed = present
            .as_ref()
            .is_none_or(|group| group.dependencies != dependencies);
        if changed && (!id.is_root() || !dependencies.is_empty() || present.is_some()) {
            self.set_group(Group {
                dependencies,
                ..Group::new(id.clone(), self.site.version)
            });
        }
        if let Some(apps) = update.apps {
            let kept: BTreeSet<AppId> = apps.iter().filter_map(|app| app.id.clone()).collect();
            let direct = |app: &&Arc<App>| app.id.group() == id;
            let dropped: Vec<AppId> = self
                .tree
                .apps_below(&id)
                .filter(direct)
                .map(|app| app.id.clone())
                .filter(|app| !kept.contains(app))
                .collect();
            for app in &dropped {
                self.remove(app);
            }
            for (index, app) in apps.into_iter().enumerate() {
                let path = format!("{}/apps({index})", update.path);
                match app.id.clone() {
                    Some(app_id) => {
                        if self.apps.get(&app_id).is_some_and(|known| known.after.is_some()) {
                            self.problems
                                .add(format!("{path}/id"), format!("{app_id} is given twice"));
                        }
                        self.put(app_id, app, false, false, &path);
                    }
                    None => self.problems.extend(app.broken.below(&path)),
                }
            }
        }
        if let Some(groups) = update.groups {
            let kept: BTreeSet<&GroupId> = groups.iter().map(|group| &group.id).collect();
            let direct = |group: &&Arc<Group>| group.id.parent().as_ref() == Some(&id);
            let dropped: Vec<GroupId> = self
                .tree
                .groups_below(&id)
                .filter(direct)
                .map(|group| group.id.clone())
                .filter(|group| !kept.contains(group))
                .collect();
            for group in &dropped {
                self.remove_group(group);
            }
            for group in groups {
                self.put_group(group);
            }
        }
    }

    /// Sets the definition of a group.
    pub(crate) fn set_group(&mut self, group: Group) {
        self.groups.extend(group.id.with_ancestors());
        self.tree.insert_group(Arc::new(group));
    }

    /// Deletes a group with everything below it.
    pub(crate) fn remove_group(&mut self, id: &GroupId) {
        let apps: Vec<AppId> = self.tree.apps_below(id).map(|app| app.id.clone()).collect();
        for app in &apps {
            self.remove(app);
        }
        let groups: Vec<GroupId> = self.tree.groups_below(id).map(|group| group.id.clone()).collect();
        for group in groups.iter().chain([id]) {
            self.tree.remove_group(group);
            self.groups.insert(group.clone());
        }
    }

    /// Deletes the definition of a group with nothing below it; returns whether it did.
    pub(crate) fn remove_empty_group(&mut self, id: &GroupId) -> bool {
        let empty = self.tree.apps_below(id).next().is_none() && self.tree.groups_below(id).next().is_none();
        if empty {
            self.tree.remove_group(id);
            self.groups.insert(id.clone());
        }
        empty
    }

    /// Multiplies the number of instances of all apps below a group, rounded up.
    pub(crate) fn scale_group(&mut self, id: &GroupId, factor: f64) {
        let apps: Vec<Arc<App>> = self.tree.apps_below(id).cloned().collect();
        for app in apps {
            let instances = (f64::from(app.instances) * factor).ceil();
            if instances > f64::from(i32::MAX) {
                let text = format!("{} would get {instances:?} instances", app.id);
                return self.problems.add("/scaleBy", text);
            }
            let update = AppUpdate::scaling(app.id.clone(), instances as u32);
            self.put(app.id.clone(), update, true, false, "");
        }
    }

    /// The tree in its present state.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Adds a problem with the request.
    pub(crate) fn problem(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.problems.add(path, text);
    }

    /// Adds problems with the request.
    pub(crate) fn problems(&mut self, problems: Problems) {
        self.problems.extend(problems);
    }

    /// Checks the rules between definitions and returns the result.
    pub(crate) fn finish(mut self) -> Result<Edited, Invalid> {
        let new_apps: BTreeSet<AppId> = self
            .apps
            .values()
            .filter(|app| app.after.is_some() && self.before.app(&app.id).is_none())
            .map(|app| app.id.clone())
            .collect();
        for app in &new_apps {
            self.groups.extend(app.group().with_ancestors());
        }
        let new_groups: BTreeSet<GroupId> = self
            .groups
            .iter()
            .filter(|id| self.tree.has_group(id) && !self.before.has_group(id))
            .cloned()
            .collect();
        let path = |id: &str| self.paths.get(id).cloned().unwrap_or_else(|| "/id".to_owned());
        let problems = tree_rules::check(&self.tree, &new_apps, &new_groups, path);
        self.problems.extend(problems);
        if !self.problems.is_empty() {
            return Err(Invalid::Rules(self.problems));
        }
        let changed = self.groups.iter().map(|id| EditedGroup {
            before: self.before.group(id).cloned(),
            after: self.tree.group(id).cloned(),
        });
        let groups = changed.filter(|group| group.before != group.after).collect();
        Ok(Edited {
            groups,
            tree: self.tree,
            apps: self.apps.into_values().collect(),
        })
    }

    /// Sets a valid definition, and fills in computed fields: service ports and the times of the
    /// last changes.
    fn set(&mut self, mut app: App, restart: Restart) {
        let before = self.before.app(&app.id).cloned();
        self.assign_ports(&mut app, before.as_deref());
        let app = if let Some(before) = &before {
            dated(app, before, restart, self.site.checks)
        } else {
            app.version_info = Some(VersionInfo {
                last_scaling_at: app.version,
                last_config_change_at: app.version,
            });
            Arc::new(app)
        };
        let id = app.id.clone();
        self.tree.insert(Arc::clone(&app));
        let edited = EditedApp {
            id: id.clone(),
            before,
            after: Some(app),
            restart,
        };
        self.apps.insert(id, edited);
    }

    fn assign_ports(&mut self, app: &mut App, before: Option<&App>) {
        let (tree, last, range) = (&self.tree, &mut self.last_port, self.site.service_ports);
        // Continues after the last one, so that many new apps do not each search all used ports.
        let free = || {
            let (from, to) = (*range.start(), *range.end());
            let after = (*last).saturating_add(1)..=to;
            let found = after
                .chain(from..=to)
                .find(|port| !tree.has_service_port(*port))?;
            *last = found;
            Some(found)
        };
        ports::assign(app, before, range, free);
    }
}

/// The definition with the times of the last changes; the one before if nothing changes.
fn dated(mut app: App, before: &Arc<App>, restart: Restart, checks: Checks) -> Arc<App> {
    let same_number = App {
        instances: before.instances,
        ..app.clone()
    };
    let configured = restart == Restart::All || before.effect_of(&same_number, checks) != Effect::Nothing;
    if !configured && before.instances == app.instances {
        return Arc::clone(before);
    }
    let last_config_change_at = if configured {
        app.version
    } else {
        before.config_version()
    };
    app.version_info = Some(VersionInfo {
        last_scaling_at: app.version,
        last_config_change_at,
    });
    Arc::new(app)
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
