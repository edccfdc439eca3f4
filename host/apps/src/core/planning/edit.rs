//! Computes the definitions that result from a request.

use std::collections::{BTreeMap, BTreeSet};

use super::{Definitions, EditOutcome, Planner, away_from_serving};
use crate::core::command::{AppEdit, Edit, GroupEdit, PodEdit, Rejection};
use crate::ids::{GroupId, SpecId};
use crate::model::{Invalid, Spec, VERSION_WITH_OTHERS};
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::{EditContext, Editor, Restart};
use crate::tree::revert::revert;

impl Planner {
    /// Computes the definitions that result from a request. Past definitions are read from the
    /// store.
    pub(super) async fn edit(
        &self,
        before: &Definitions,
        edit: Edit,
        force: bool,
        version: Moment,
    ) -> Result<EditOutcome, Rejection> {
        let tree = &before.tree;
        let context = EditContext {
            definitions: &self.settings.definitions,
            force,
            max_instances: self.settings.max_instances,
            service_ports: &self.settings.service_ports,
            checks: self.settings.checks,
            version,
        };
        let mut editor = Editor::new(tree, context);
        let (group, created) = match edit {
            Edit::App { id, edit } => {
                let created = tree.spec(&id).is_none();
                let group = id.group();
                self.edit_app(&mut editor, tree, id, edit).await?;
                (group, created)
            }
            Edit::Pod { id, edit } => {
                let created = tree.spec(&id).is_none();
                let group = id.group();
                edit_pod(&mut editor, tree, id, edit)?;
                (group, created)
            }
            Edit::Apps {
                updates,
                partial,
                create,
            } => {
                let (mut seen, mut puts) = (BTreeSet::new(), Vec::with_capacity(updates.len()));
                for (index, mut update) in updates.into_iter().enumerate() {
                    let path = format!("/({index})");
                    let Some(id) = update.id.clone() else {
                        let broken = std::mem::take(&mut update.broken);
                        if broken.is_empty() {
                            editor.problem(format!("{path}/id"), "is undefined: an app needs its id");
                        }
                        editor.problems(broken.below(&path));
                        continue;
                    };
                    if !seen.insert(id.clone()) {
                        editor.problem(format!("{path}/id"), format!("{id} is given twice"));
                    }
                    if app(tree, &id).is_none() && !create {
                        return Err(Rejection::NoApp(id));
                    }
                    // A complete replacement ignores the version.
                    match update.version.filter(|_| partial && app(tree, &id).is_some()) {
                        Some(to) if update.is_version_alone => {
                            self.roll_back_app(&mut editor, tree, id, to).await?;
                        }
                        Some(_) => editor.problem(format!("{path}/version"), VERSION_WITH_OTHERS),
                        None => puts.push((id, update, path)),
                    }
                }
                away_from_serving(puts.len(), || {
                    for (id, update, path) in puts {
                        editor.put(id, update, partial, false, &path);
                    }
                });
                (GroupId::root(), false)
            }
            Edit::Group { id, edit } => {
                let created = !tree.has_group(&id);
                self.edit_group(&mut editor, before, &id, edit).await?;
                (id, created)
            }
            Edit::Revert(deployment) => {
                let running = self.deployment(&deployment);
                let running = running.ok_or(Rejection::NoDeployment(deployment))?;
                let change = &running.change;
                let before = change.specs.iter().map(|spec| (spec.id.clone(), spec.before));
                let apps = self.definitions(tree, before.collect()).await?;
                revert(&mut editor, &apps, &change.groups, Restart::Withdrawn);
                (change.group.clone(), false)
            }
        };
        let definitions = editor.len();
        let finish = || {
            editor.check_relations();
            editor.finish()
        };
        let edited = away_from_serving(definitions, finish).map_err(Rejection::Invalid)?;
        Ok(EditOutcome {
            edited,
            group,
            created,
        })
    }

    async fn edit_app(
        &self,
        editor: &mut Editor<'_>,
        tree: &Tree,
        id: SpecId,
        edit: AppEdit,
    ) -> Result<(), Rejection> {
        let present = app(tree, &id);
        let missing = || Rejection::NoApp(id.clone());
        match edit {
            AppEdit::Create(_) if tree.spec(&id).is_some() => return Err(already_exists(tree, id)),
            AppEdit::Create(update) => editor.put(id, *update, false, false, ""),
            AppEdit::Update { create: false, .. } if present.is_none() => return Err(missing()),
            AppEdit::Update {
                update,
                partial,
                restart,
                ..
            } => match update.version.filter(|_| partial && present.is_some()) {
                Some(to) if update.is_version_alone => self.roll_back_app(editor, tree, id, to).await?,
                Some(_) => editor.problem("/version", VERSION_WITH_OTHERS),
                // A complete replacement ignores the version.
                None => editor.put(id, *update, partial, restart, ""),
            },
            AppEdit::Delete => {
                present.ok_or_else(missing)?;
                editor.remove(&id);
            }
            AppEdit::Restart => editor.restart(present.ok_or_else(missing)?),
        }
        Ok(())
    }

    /// Restores the definition of a kept version.
    async fn roll_back_app(
        &self,
        editor: &mut Editor<'_>,
        tree: &Tree,
        id: SpecId,
        to: Moment,
    ) -> Result<(), Rejection> {
        app(tree, &id).ok_or_else(|| Rejection::NoApp(id.clone()))?;
        let mut kept = self.view(&id).into_iter().flat_map(|view| view.record.versions());
        if !kept.any(|version| version == to) {
            return Err(Rejection::NoVersion(id, to));
        }
        let wanted = BTreeMap::from([(id, Some(to))]);
        let found = self.definitions(tree, wanted).await?;
        for definition in found.values().flatten() {
            editor.restore(definition, Restart::AsBefore);
        }
        Ok(())
    }

    async fn edit_group(
        &self,
        editor: &mut Editor<'_>,
        before: &Definitions,
        id: &GroupId,
        edit: GroupEdit,
    ) -> Result<(), Rejection> {
        let tree = &before.tree;
        let exists = || {
            let exists = tree.has_group(id);
            exists.then_some(()).ok_or_else(|| Rejection::NoGroup(id.clone()))
        };
        match edit {
            GroupEdit::Create(update) => {
                if tree.has_group(id) {
                    return Err(Rejection::GroupExists(id.clone()));
                }
                if SpecId::parse(id.as_str()).is_ok_and(|id| tree.spec(&id).is_some()) {
                    return Err(Rejection::AppHasPath(id.clone()));
                }
                away_from_serving(usize::MAX, || editor.put_group(*update));
            }
            GroupEdit::Update(update) => away_from_serving(usize::MAX, || editor.put_group(*update)),
            GroupEdit::Scale(factor) => {
                exists()?;
                away_from_serving(usize::MAX, || editor.scale_group(id, factor));
            }
            GroupEdit::Rollback(to) => {
                exists()?;
                let since = before.history.since(id, to);
                let since = since.ok_or_else(|| Rejection::NoGroupVersion(id.clone(), to))?;
                let apps = self.definitions(tree, since.specs).await?;
                revert(editor, &apps, &since.groups, Restart::AsBefore);
            }
            GroupEdit::Delete => {
                exists()?;
                editor.remove_group(id);
            }
        }
        Ok(())
    }

    /// The definitions of these versions, from memory or from the store.
    async fn definitions(
        &self,
        tree: &Tree,
        wanted: BTreeMap<SpecId, Option<Moment>>,
    ) -> Result<BTreeMap<SpecId, Option<Spec>>, Rejection> {
        let mut found = BTreeMap::new();
        let mut stored = Vec::new();
        for (id, version) in wanted {
            let Some(version) = version else {
                found.insert(id, None);
                continue;
            };
            let present = tree.spec(&id).filter(|spec| spec.version() == version);
            let known = present.or_else(|| self.view(&id)?.kept_definition(version));
            match known {
                Some(known) => drop(found.insert(id, Some(known.clone()))),
                None => stored.push((id, version)),
            }
        }
        let mut read = self.repository.definitions(stored.iter().cloned()).await?;
        for (id, version) in stored {
            let Some(definition) = read.remove(&(id.clone(), version)) else {
                return Err(Rejection::NoVersion(id, version));
            };
            found.insert(id, Some(definition));
        }
        Ok(found)
    }
}

fn edit_pod(editor: &mut Editor<'_>, tree: &Tree, id: SpecId, edit: PodEdit) -> Result<(), Rejection> {
    let present = tree.spec(&id).filter(|spec| spec.is_pod());
    match edit {
        PodEdit::Create(_) if tree.spec(&id).is_some() => return Err(already_exists(tree, id)),
        PodEdit::Create(input) => editor.put_pod(id, *input),
        _ if present.is_none() => return Err(Rejection::NoPod(id)),
        PodEdit::Replace(input) => editor.put_pod(id, *input),
        PodEdit::Delete => editor.remove(&id),
    }
    Ok(())
}

/// Finds the app with this id; `None` for a pod.
fn app<'a>(tree: &'a Tree, id: &SpecId) -> Option<&'a Spec> {
    tree.spec(id).filter(|spec| !spec.is_pod())
}

/// The rejection of a new definition whose id is in use.
fn already_exists(tree: &Tree, id: SpecId) -> Rejection {
    if app(tree, &id).is_some() {
        Rejection::AppExists(id)
    } else {
        Rejection::PodExists(id)
    }
}

impl From<Invalid> for Rejection {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}
