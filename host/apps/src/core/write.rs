//! What a request makes of the definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Core;
use super::batch::Outcome;
use super::command::{AppEdit, Edit, GroupEdit, Refusal};
use crate::ids::{AppId, GroupId};
use crate::model::{App, Invalid};
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::{Editor, Restart, Site};
use crate::tree::revert::revert;

impl Core {
    /// Computes the definitions after a request. Past definitions are read from the store.
    pub(super) async fn edit(
        &self,
        tree: &Tree,
        edit: Edit,
        force: bool,
        version: Moment,
    ) -> Result<Outcome, Refusal> {
        let site = Site {
            definitions: &self.definitions,
            force,
            service_ports: &self.service_ports,
            checks: self.launch.checks,
            version,
        };
        let mut editor = Editor::new(tree, site);
        let (group, created) = match edit {
            Edit::App { id, edit } => {
                let created = tree.app(&id).is_none();
                let group = id.group();
                self.edit_app(&mut editor, tree, id, edit).await?;
                (group, created)
            }
            Edit::Apps {
                updates,
                partial,
                create,
            } => {
                let mut seen = BTreeSet::new();
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
                    if tree.app(&id).is_none() && !create {
                        return Err(Refusal::NoApp(id));
                    }
                    editor.put(id, update, partial, false, &path);
                }
                (GroupId::root(), false)
            }
            Edit::Group { id, edit } => {
                let created = !tree.has_group(&id);
                self.edit_group(&mut editor, tree, &id, edit).await?;
                (id, created)
            }
            Edit::Revert(deployment) => {
                let running = self.deployments.get(&deployment);
                let running = running.ok_or(Refusal::NoDeployment(deployment))?;
                let change = &running.deployment.change;
                let before = change.apps.iter().map(|app| (app.id.clone(), app.before));
                let apps = self.definitions(tree, before.collect()).await?;
                revert(&mut editor, &apps, &change.groups, Restart::Withdrawn);
                (change.group.clone(), false)
            }
        };
        let edited = editor.finish().map_err(Refusal::Invalid)?;
        Ok(Outcome {
            edited,
            group,
            created,
        })
    }

    async fn edit_app(
        &self,
        editor: &mut Editor<'_>,
        tree: &Tree,
        id: AppId,
        edit: AppEdit,
    ) -> Result<(), Refusal> {
        let present = tree.app(&id);
        let missing = || Refusal::NoApp(id.clone());
        match edit {
            AppEdit::Create(_) if present.is_some() => return Err(Refusal::AppExists(id)),
            AppEdit::Create(update) => editor.put(id, *update, false, false, ""),
            AppEdit::Update { create: false, .. } if present.is_none() => return Err(missing()),
            AppEdit::Update {
                update,
                partial,
                restart,
                ..
            } => editor.put(id, *update, partial, restart, ""),
            AppEdit::Rollback(to) => {
                present.ok_or_else(missing)?;
                let state = self.apps.get(&id);
                let mut kept = state.into_iter().flat_map(|state| state.record.versions());
                if !kept.any(|version| version == to) {
                    return Err(Refusal::NoVersion(id, to));
                }
                let wanted = BTreeMap::from([(id.clone(), Some(to))]);
                let found = self.definitions(tree, wanted).await?;
                for definition in found.values().flatten() {
                    editor.restore(definition, Restart::AsBefore);
                }
            }
            AppEdit::Delete => {
                present.ok_or_else(missing)?;
                editor.remove(&id);
            }
            AppEdit::Restart => editor.restart(present.ok_or_else(missing)?),
        }
        Ok(())
    }

    async fn edit_group(
        &self,
        editor: &mut Editor<'_>,
        tree: &Tree,
        id: &GroupId,
        edit: GroupEdit,
    ) -> Result<(), Refusal> {
        let exists = || {
            let exists = tree.has_group(id);
            exists.then_some(()).ok_or_else(|| Refusal::NoGroup(id.clone()))
        };
        match edit {
            GroupEdit::Create(update) => {
                if tree.has_group(id) {
                    return Err(Refusal::GroupExists(id.clone()));
                }
                if AppId::parse(id.as_str()).is_ok_and(|app| tree.app(&app).is_some()) {
                    return Err(Refusal::AppHasPath(id.clone()));
                }
                editor.put_group(*update);
            }
            GroupEdit::Update(update) => editor.put_group(*update),
            GroupEdit::Scale(factor) => {
                exists()?;
                editor.scale_group(id, factor);
            }
            GroupEdit::Rollback(to) => {
                exists()?;
                let since = self.history.since(id, to);
                let since = since.ok_or_else(|| Refusal::NoGroupVersion(id.clone(), to))?;
                let apps = self.definitions(tree, since.apps).await?;
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
        wanted: BTreeMap<AppId, Option<Moment>>,
    ) -> Result<BTreeMap<AppId, Option<Arc<App>>>, Refusal> {
        let mut found = BTreeMap::new();
        let mut stored = Vec::new();
        for (id, version) in wanted {
            let Some(version) = version else {
                found.insert(id, None);
                continue;
            };
            let present = tree.app(&id).filter(|app| app.version == version);
            let known = present.or_else(|| self.apps.get(&id)?.definition(version));
            match known {
                Some(known) => drop(found.insert(id, Some(Arc::clone(known)))),
                None => stored.push((id, version)),
            }
        }
        let mut read = self.repository.definitions(stored.iter().cloned()).await?;
        for (id, version) in stored {
            let Some(definition) = read.remove(&(id.clone(), version)) else {
                return Err(Refusal::NoVersion(id, version));
            };
            found.insert(id, Some(definition));
        }
        Ok(found)
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}
