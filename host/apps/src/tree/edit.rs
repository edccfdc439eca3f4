//! Edits of a tree: they compute the definitions that result from a request.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_web::Problems;

use super::{Group, Tree, rules as tree_rules};
use crate::ids::{GroupId, SpecId, length_problem};
use crate::model::pod::{PodInput, rules as pod_rules};
use crate::model::{
    AppUpdate, DefinitionSettings, Effect, GroupUpdate, Invalid, Size, Spec, VersionInfo, ports, rules,
};
use crate::settings::Checks;
use crate::time::Moment;

/// Maximum bytes of an app's or pod's definition as JSON with all defaults.
const MAX_DEFINITION_BYTES: u64 = 4 << 20;

/// The settings of an edit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EditContext<'a> {
    /// The settings that definitions depend on.
    pub(crate) definitions: &'a DefinitionSettings,
    /// Whether the role of an app or pod with persistent volumes may change.
    pub(crate) force: bool,
    /// The number of instances that an app or pod may have.
    pub(crate) max_instances: u32,
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
    /// Only if an earlier request for a restart is not completed.
    AsBefore,
    /// All instances are replaced.
    All,
    /// No instance is replaced; an earlier request is withdrawn.
    Withdrawn,
}

/// An app or pod that an edit names. It may be unchanged.
#[derive(Clone, Debug)]
pub(crate) struct EditedSpec {
    pub(crate) id: SpecId,
    /// `None`: it is new.
    pub(crate) before: Option<Spec>,
    /// `None`: it is deleted.
    pub(crate) after: Option<Spec>,
    pub(crate) restart: Restart,
}

impl EditedSpec {
    /// The definition after the edit; the last one if it was deleted.
    pub(crate) fn latest(&self) -> Option<&Spec> {
        self.after.as_ref().or(self.before.as_ref())
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.latest().is_some_and(Spec::is_pod)
    }
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
    pub(crate) specs: Vec<EditedSpec>,
    /// In the order of their ids.
    pub(crate) groups: Vec<EditedGroup>,
    /// Whether an app got no service port, because all of the range are in use.
    pub(crate) lacks_service_ports: bool,
}

/// An edit in progress. Problems are gathered and reported together at the end.
pub(crate) struct Editor<'a> {
    before: &'a Tree,
    tree: Tree,
    context: EditContext<'a>,
    specs: BTreeMap<SpecId, EditedSpec>,
    groups: BTreeSet<GroupId>,
    /// The paths in the request that name an app, pod or group, for problems with ids.
    paths: BTreeMap<String, String>,
    problems: Problems,
    /// The last service port that was assigned.
    last_port: u16,
    /// Whether a search found no free service port, and none was released since.
    service_ports_are_full: bool,
    lacks_service_ports: bool,
}

impl<'a> Editor<'a> {
    pub(crate) fn new(before: &'a Tree, context: EditContext<'a>) -> Self {
        Self {
            before,
            tree: before.clone(),
            context,
            specs: BTreeMap::new(),
            groups: BTreeSet::new(),
            paths: BTreeMap::new(),
            problems: Problems::default(),
            last_port: *context.service_ports.end(),
            service_ports_are_full: false,
            lacks_service_ports: false,
        }
    }

    /// Creates or updates an app. With `partial`, fields that the update omits are kept. `path` is
    /// the place of the definition in the request: empty, or `/apps(1)`.
    pub(crate) fn put(
        &mut self,
        id: SpecId,
        mut update: AppUpdate,
        partial: bool,
        restart: bool,
        path: &str,
    ) {
        let present = self.before.spec(&id).cloned();
        let present = present.as_ref();
        let base = present.and_then(Spec::app).filter(|_| partial).map(|app| &**app);
        let settings = self.settings(&id, present);
        let app = update.apply(id, base, &settings, self.context.version);
        let mut problems = std::mem::take(&mut update.broken);
        problems.extend(rules::check(&app, &settings));
        match present {
            Some(Spec::App(present)) => {
                problems.extend(rules::check_update(present, &app, self.context.force));
            }
            Some(Spec::Pod(_)) => problems.add("/id", tree_rules::SAME_AS_POD),
            None => check_length(&app.id, &mut problems),
        }
        let before = present.map_or(0, Spec::instances);
        self.check_instances(before, app.instances, "/instances", &mut problems);
        let restart = if restart { Restart::All } else { Restart::AsBefore };
        self.put_checked(app.into(), restart, problems, path);
    }

    /// Creates a pod, or replaces its definition.
    pub(crate) fn put_pod(&mut self, id: SpecId, mut input: PodInput) {
        let mut problems = std::mem::take(&mut input.broken);
        let settings = self.settings(&id, self.before.spec(&id));
        let pod = input.pod(id, &settings, self.context.version);
        problems.extend(pod_rules::check(&pod, &settings));
        match self.before.spec(&pod.id) {
            Some(Spec::Pod(present)) => {
                problems.extend(pod_rules::check_update(present, &pod, self.context.force));
            }
            Some(Spec::App(_)) => problems.add("/id", tree_rules::SAME_AS_POD),
            None => check_length(&pod.id, &mut problems),
        }
        let before = self.before.spec(&pod.id).map_or(0, Spec::instances);
        self.check_instances(before, pod.instances(), "/scaling/instances", &mut problems);
        self.put_checked(pod.into(), Restart::AsBefore, problems, "");
    }

    /// The settings for a definition. The role of its top-level group is allowed, and may be
    /// enforced by that group; an existing definition with another role may keep it.
    fn settings(&self, id: &SpecId, present: Option<&Spec>) -> Cow<'a, DefinitionSettings> {
        let settings = self.context.definitions;
        match self.tree.enforced_role(id) {
            Some(role) if present.is_none_or(|present| present.role() == role) => {
                Cow::Owned(settings.with_enforced_role(role))
            }
            _ => {
                let group = id.top_level_group().map(str::to_owned);
                let present = present.map(|present| present.role().to_owned());
                let others = group.into_iter().chain(present).collect();
                Cow::Owned(settings.with_other_roles(others))
            }
        }
    }

    /// Adds the problem of too many instances. A number that was accepted under another limit may
    /// stay or become smaller.
    fn check_instances(&self, before: u32, after: u32, path: &str, problems: &mut Problems) {
        let max = self.context.max_instances;
        if after > max && after > before {
            problems.add(path, too_many_instances(after.into(), max));
        }
    }

    fn put_checked(&mut self, spec: Spec, restart: Restart, mut problems: Problems, path: &str) {
        let before = self.before.spec(spec.id());
        problems.extend(check_size(before, &spec));
        if !problems.is_empty() {
            return self.problems.extend(problems.below(path));
        }
        self.paths.insert(spec.id().to_string(), format!("{path}/id"));
        self.set(spec, restart);
    }

    /// Replaces all instances of an app or pod.
    pub(crate) fn restart(&mut self, spec: &Spec) {
        self.set(spec.with_version(self.context.version), Restart::All);
    }

    /// Restores an earlier definition of an app or pod.
    pub(crate) fn restore(&mut self, definition: &Spec, restart: Restart) {
        self.set(definition.with_version(self.context.version), restart);
    }

    /// Deletes an app or pod.
    pub(crate) fn remove(&mut self, id: &SpecId) {
        if let Some(before) = self.tree.remove(id) {
            self.service_ports_are_full &= before.service_ports().next().is_none();
            let edited = EditedSpec {
                id: id.clone(),
                before: self.before.spec(id).cloned().or(Some(before)),
                after: None,
                restart: Restart::AsBefore,
            };
            self.specs.insert(id.clone(), edited);
        }
    }

    /// Creates or updates a group with all members of the update. Lists replace all apps or groups
    /// of the group.
    pub(crate) fn put_group(&mut self, update: GroupUpdate) {
        let id = update.id.clone();
        self.paths.insert(id.to_string(), format!("{}/id", update.path));
        self.check_commands(&update);
        self.problems.extend(update.broken);
        let present = self.tree.group(&id).cloned();
        let dependencies = update
            .dependencies
            .or_else(|| present.as_ref().map(|group| group.dependencies.clone()));
        let dependencies = dependencies.unwrap_or_default();
        let before = present.as_ref().is_some_and(|group| group.enforce_role);
        let enforce_role = update.enforce_role.unwrap_or(before);
        let changed = present
            .as_ref()
            .is_none_or(|group| group.dependencies != dependencies || group.enforce_role != enforce_role);
        if changed && (!id.is_root() || !dependencies.is_empty() || present.is_some()) {
            self.set_group(Group {
                dependencies,
                enforce_role,
                ..Group::new(id.clone(), self.context.version)
            });
        }
        if let Some(apps) = update.apps {
            let listed: BTreeSet<SpecId> = apps.iter().filter_map(|app| app.id.clone()).collect();
            let direct = |spec: &&Spec| !spec.is_pod() && spec.id().group() == id;
            let dropped: Vec<SpecId> = self
                .tree
                .specs_below(&id)
                .filter(direct)
                .map(|app| app.id().clone())
                .filter(|app| !listed.contains(app))
                .collect();
            for app in &dropped {
                self.remove(app);
            }
            for (index, mut app) in apps.into_iter().enumerate() {
                let path = format!("{}/apps({index})", update.path);
                let present = app.id.as_ref().and_then(|id| self.before.spec(id));
                if let Some(present) = present.filter(|present| !present.is_pod()) {
                    app.keep_instances(present.instances());
                }
                match app.id.clone() {
                    Some(app_id) => {
                        if self.specs.get(&app_id).is_some_and(|known| known.after.is_some()) {
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
            let listed: BTreeSet<&GroupId> = groups.iter().map(|group| &group.id).collect();
            let direct = |group: &&Arc<Group>| group.id.parent().as_ref() == Some(&id);
            let dropped: Vec<GroupId> = self
                .tree
                .groups_below(&id)
                .filter(direct)
                .map(|group| group.id.clone())
                .filter(|group| !listed.contains(group))
                .collect();
            for group in &dropped {
                self.remove_group(group);
            }
            for group in groups {
                self.put_group(group);
            }
        }
    }

    /// Adds the problems of `version` and `scaleBy` in a document that defines a group. The version
    /// of the group as it is has no effect, so that a document can be sent back as it was read.
    fn check_commands(&mut self, update: &GroupUpdate) {
        let (id, path) = (&update.id, &update.path);
        if let Some(version) = update.version {
            let present = self.before.has_group(id).then(|| self.before.group_version(id));
            match present {
                Some(present) if present == version => {}
                Some(present) => self.problems.add(
                    format!("{path}/version"),
                    format!(
                        "got {version}, expected {present}, the present version of {id}: a document with another \
                         version and further fields is not applied. Omit the version to apply the document, or \
                         the other fields to roll the group back"
                    ),
                ),
                None => self.problems.add(
                    format!("{path}/version"),
                    format!("there is no group {id} that has a version; omit the version to create the group"),
                ),
            }
        }
        if update.scale_by.is_some() {
            self.problems.add(
                format!("{path}/scaleBy"),
                "may only be combined with the 'id' field, in the document of the group that is scaled: expected \
                 either scaleBy or a definition",
            );
        }
    }

    /// Adds the problems of what a client's request may not combine: dependencies that it adds and
    /// that name nothing, and another `enforceRole` of a group beside changes of its apps and pods.
    pub(crate) fn check_relations(&mut self) {
        let mut problems = Problems::default();
        for id in &self.groups {
            let (Some(before), Some(after)) = (self.before.group(id), self.tree.group(id)) else {
                continue;
            };
            let is_changed = |spec: &EditedSpec| {
                let version = |spec: &Option<Spec>| spec.as_ref().map(Spec::version);
                id.is_above(spec.id.as_str()) && version(&spec.before) != version(&spec.after)
            };
            if before.enforce_role != after.enforce_role && self.specs.values().any(is_changed) {
                let path = self.paths.get(id.as_str()).map_or("", String::as_str);
                problems.add(
                    format!("{}/enforceRole", path.strip_suffix("/id").unwrap_or(path)),
                    "cannot change in a request that adds, removes or modifies apps or pods of the group: change it \
                     in a request of its own",
                );
            }
        }
        for (id, path) in &self.paths {
            let path = path.strip_suffix("/id").unwrap_or(path);
            let (after, before) = (self.tree.dependencies_at(id), self.before.dependencies_at(id));
            let before: BTreeSet<&SpecId> = before.iter().filter(|on| !self.before.exists(on)).collect();
            for (index, on) in after.iter().enumerate() {
                // One that named nothing before is no reason to reject a change of something else.
                if !self.tree.exists(on) && !before.contains(on) {
                    let text = format!(
                        "{on} does not exist: expected an app, pod or group. A relative id is relative to the \
                         group in a document of a group, else to the app's own id"
                    );
                    problems.add(format!("{path}/dependencies({index})"), text);
                }
            }
        }
        self.problems.extend(problems);
    }

    /// Sets the definition of a group.
    pub(crate) fn set_group(&mut self, group: Group) {
        self.groups.extend(group.id.with_ancestors());
        self.tree.insert_group(Arc::new(group));
    }

    /// Deletes a group with everything below it.
    pub(crate) fn remove_group(&mut self, id: &GroupId) {
        let specs = self.tree.specs_below(id);
        let specs: Vec<SpecId> = specs.map(|spec| spec.id().clone()).collect();
        for spec in &specs {
            self.remove(spec);
        }
        let groups: Vec<GroupId> = self.tree.groups_below(id).map(|group| group.id.clone()).collect();
        for group in groups.iter().chain([id]) {
            self.tree.remove_group(group);
            self.groups.insert(group.clone());
        }
    }

    /// Deletes the definition of a group if nothing is below it; returns whether it did.
    pub(crate) fn remove_empty_group(&mut self, id: &GroupId) -> bool {
        let empty = self.tree.specs_below(id).next().is_none() && self.tree.groups_below(id).next().is_none();
        if empty {
            self.tree.remove_group(id);
            self.groups.insert(id.clone());
        }
        empty
    }

    /// Multiplies the number of instances of all apps below a group, rounded up. As in upstream,
    /// pods keep their number.
    pub(crate) fn scale_group(&mut self, id: &GroupId, factor: f64) {
        let apps = self.tree.specs_below(id).filter(|spec| !spec.is_pod());
        let apps: Vec<Spec> = apps.cloned().collect();
        for app in apps {
            let instances = (f64::from(app.instances()) * factor).ceil();
            let max = self.context.max_instances;
            if instances > f64::from(max.max(app.instances())) {
                let text = format!("{}: {}", app.id(), too_many_instances(instances, max));
                return self.problems.add("/scaleBy", text);
            }
            let update = AppUpdate::scaling(app.id().clone(), instances as u32);
            self.put(app.id().clone(), update, true, false, "");
        }
    }

    /// The number of apps and pods that the edit names.
    pub(crate) fn len(&self) -> usize {
        self.specs.len()
    }

    /// The tree with the edits made so far.
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
        let new_specs: BTreeSet<SpecId> = self
            .specs
            .values()
            .filter(|spec| spec.after.is_some() && self.before.spec(&spec.id).is_none())
            .map(|spec| spec.id.clone())
            .collect();
        for spec in &new_specs {
            self.groups.extend(spec.group().with_ancestors());
        }
        let new_groups: BTreeSet<GroupId> = self
            .groups
            .iter()
            .filter(|id| self.tree.has_group(id) && !self.before.has_group(id))
            .cloned()
            .collect();
        let path = |id: &str| self.paths.get(id).cloned().unwrap_or_else(|| "/id".to_owned());
        let mut problems = tree_rules::check(&self.tree, &new_specs, &new_groups, path);
        let edited = self.specs.values().filter_map(|spec| spec.after.as_ref());
        problems.extend(tree_rules::check_external_volumes(&self.tree, edited, path));
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
            specs: self.specs.into_values().collect(),
            lacks_service_ports: self.lacks_service_ports,
        })
    }

    /// Sets a valid definition, and fills in computed fields: service ports and the times of the
    /// last changes.
    fn set(&mut self, mut spec: Spec, restart: Restart) {
        let before = self.before.spec(spec.id()).cloned();
        self.assign_ports(&mut spec, before.as_ref());
        let spec = if let Some(before) = &before {
            with_version_info(spec, before, restart, self.context.checks)
        } else {
            spec.set_version_info(VersionInfo {
                last_scaling_at: spec.version(),
                last_config_change_at: spec.version(),
            });
            spec
        };
        let id = spec.id().clone();
        let has_ports = |spec: &Spec| spec.service_ports().next().is_some();
        self.service_ports_are_full &= !before.as_ref().is_some_and(has_ports);
        self.tree.insert(spec.clone());
        let edited = EditedSpec {
            id: id.clone(),
            before,
            after: Some(spec),
            restart,
        };
        self.specs.insert(id, edited);
    }

    /// Assigns service ports to an app.
    fn assign_ports(&mut self, spec: &mut Spec, before: Option<&Spec>) {
        let Spec::App(app) = spec else { return };
        let app = Arc::make_mut(app);
        let before = before.and_then(Spec::app).map(|app| &**app);
        let (tree, last, range) = (&self.tree, &mut self.last_port, self.context.service_ports);
        let (is_full, lacks) = (&mut self.service_ports_are_full, &mut self.lacks_service_ports);
        // The search continues after the last assigned port, and it is not repeated when there is no
        // free one, so that a request with many new apps does not search all used ports for each.
        let free = || {
            let (from, to) = (*range.start(), *range.end());
            let after = (*last).saturating_add(1)..=to;
            let mut ports = after.chain(from..=to).filter(|_| !*is_full);
            let free_port = ports.find(|port| !tree.has_service_port(*port));
            (*is_full, *lacks) = (free_port.is_none(), *lacks || free_port.is_none());
            *last = free_port?;
            free_port
        };
        ports::assign(app, before, range, free);
    }
}

fn too_many_instances(instances: f64, max: u32) -> String {
    format!("{instances} instances are more than {max}, the maximum (`apps.max_instances`)")
}

/// The problem of a definition that is too large. One that was accepted earlier may become smaller.
fn check_size(before: Option<&Spec>, after: &Spec) -> Problems {
    let bytes = Size::of(after).text;
    if bytes <= MAX_DEFINITION_BYTES || before.is_some_and(|before| Size::of(before).text >= bytes) {
        return Problems::default();
    }
    let text = format!(
        "has {bytes} bytes with all defaults; expected at most {MAX_DEFINITION_BYTES}: fetch large files instead"
    );
    Problems::one("/", text)
}

/// Adds the problem of a new id that is too long.
fn check_length(id: &SpecId, problems: &mut Problems) {
    if let Some(text) = length_problem(id.as_str()) {
        problems.add("/id", text);
    }
}

/// The definition with the times of the last changes; the earlier one if nothing has changed.
fn with_version_info(mut spec: Spec, before: &Spec, restart: Restart, checks: Checks) -> Spec {
    let same_number = spec.with_instances(before.instances());
    let configured = restart == Restart::All || before.effect_of(&same_number, checks) != Effect::Nothing;
    if !configured && before.instances() == spec.instances() {
        return before.clone();
    }
    let last_config_change_at = if configured {
        spec.version()
    } else {
        before.config_version()
    };
    spec.set_version_info(VersionInfo {
        last_scaling_at: spec.version(),
        last_config_change_at,
    });
    spec
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
