//! Handles requests that change definitions, and those that stop deployments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_replicas::{Condition, LaunchBackoff};
use uuid::Uuid;

use super::Core;
use super::app_state::AppState;
use super::command::{Change, Command, Origin, Refusal, Written};
use super::persist::{AppRecord, Changes, MAX_VERSIONS};
use crate::bus::shapes;
use crate::deploy::{Deployment, plan};
use crate::ids::{AppId, InstanceId};
use crate::instance::Instance;
use crate::model::{App, AppUpdate, Effect, Invalid, VersionInfo, ports, rules};
use crate::time::Moment;
use transom_web::Problems;

/// The result of a request for one app.
struct Next {
    /// The new definition; `None` deletes the app.
    app: Option<App>,
    restart: Restart,
}

/// Whether instances are replaced although their definition is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restart {
    /// As far as earlier requests for a restart were not carried out yet.
    AsBefore,
    /// All of them.
    All,
    /// None; an earlier request is withdrawn.
    Withdrawn,
}

impl Core {
    pub(super) async fn command(&mut self, command: Command) {
        // Snapshot and events are published before the reply, so that a client reads what it wrote.
        // A client that has disconnected changes nothing.
        match command {
            Command::Write {
                app,
                change,
                force,
                origin,
                reply,
            } => {
                let outcome = self.write(app, change, force, &origin).await;
                self.publish();
                let _ = reply.send(outcome);
            }
            Command::Kill {
                app,
                which,
                scale,
                wipe,
                force,
                reply,
            } => {
                let outcome = self.kill(&app, &which, scale, wipe, force).await;
                self.publish();
                let _ = reply.send(outcome);
            }
            Command::KillGiven {
                tasks,
                scale,
                wipe,
                force,
                reply,
            } => {
                let outcome = self.kill_given(&tasks, scale, wipe, force).await;
                self.publish();
                let _ = reply.send(outcome);
            }
            Command::Cancel { deployment, reply } => {
                let outcome = self.cancel(&deployment).await;
                self.publish();
                let _ = reply.send(outcome);
            }
        }
    }

    /// Changes an app: validates, stores, publishes events and starts the deployment.
    async fn write(
        &mut self,
        id: AppId,
        change: Change,
        force: bool,
        origin: &Origin,
    ) -> Result<Written, Refusal> {
        // A restart and a revert are no changes of the app's resource.
        let origin = Some(origin).filter(|_| !matches!(change, Change::Restart | Change::Revert(_)));
        let prepared = self.prepare(id, change, force)?;
        self.store(std::slice::from_ref(&prepared)).await?;
        self.begin(prepared, origin, &[]).await
    }

    /// Computes the change without any effect.
    pub(super) fn prepare(&mut self, id: AppId, change: Change, force: bool) -> Result<Prepared, Refusal> {
        let present = self
            .apps
            .get(&id)
            .filter(|state| !state.record.gone)
            .map(|state| Arc::clone(&state.record.app));
        let version = self.new_version();
        let Next { app: target, restart } = self.next(&id, present.as_ref(), change, version)?;
        if let Some(lock) = self.deployments.get(&id).filter(|_| !force) {
            let refusal = Refusal::Locked(vec![lock.id.clone()]);
            self.drafts.push(shapes::group_changed(
                &id,
                version,
                Some("App is locked by one or more deployments."),
            ));
            return Err(refusal);
        }
        if present.is_none() {
            self.check_new_id(&id)?;
        }
        let target = target.map(|target| Arc::new(self.finish(target, present.as_deref(), restart)));
        let record = self.record(&id, target.clone(), restart);
        let steps = self.plan(&id, present.as_deref(), target.as_deref(), record.as_ref())?;
        let deployment = Deployment {
            id: Uuid::new_v4().to_string(),
            version,
            app: id.clone(),
            steps,
            current: 0,
            original: present.as_deref().cloned(),
        };
        Ok(Prepared {
            id,
            present,
            record,
            deployment,
        })
    }

    /// A group has the id of the part before a slash, so no app may have that one.
    fn check_new_id(&self, id: &AppId) -> Result<(), Refusal> {
        let below = |group: &AppId, app: &AppId| {
            let rest = app.as_str().strip_prefix(group.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let others = self.apps.iter().filter(|(_, state)| !state.record.gone);
        let mut ids = others.map(|(other, _)| other);
        if ids.any(|other| below(id, other) || below(other, id)) {
            let text = "Groups and Applications may not have the same identifier.";
            return Err(Refusal::Invalid(Invalid::Rules(Problems::one("/id", text))));
        }
        Ok(())
    }

    /// Stores changes, all of them or none.
    pub(super) async fn store(&mut self, prepared: &[Prepared]) -> Result<(), Refusal> {
        let mut changes = Changes::default();
        for one in prepared {
            if let Some(record) = &one.record {
                changes.put_app(record)?;
            }
            changes.put_deployment(&one.deployment)?;
            if let Some(replaced) = self.deployments.get(&one.id) {
                changes.delete_deployment(&replaced.id);
            }
        }
        Ok(self.commit(changes).await?)
    }

    /// Starts the deployment of a stored change. `origin` is the client in the `api_post_event`.
    /// `sentenced` instances are removed first.
    pub(super) async fn begin(
        &mut self,
        prepared: Prepared,
        origin: Option<&Origin>,
        sentenced: &[InstanceId],
    ) -> Result<Written, Refusal> {
        let Prepared {
            id,
            present,
            record,
            deployment,
        } = prepared;
        self.cancelled(&id, "The deployment was cancelled by a forced deployment.");
        let (created, version) = (present.is_none(), deployment.version);
        let shown = self
            .take_over(&id, record, present.as_ref())
            .ok_or_else(|| Refusal::NoApp(id.clone()))?;
        if let Some(origin) = origin {
            self.drafts
                .push(shapes::api_post(&origin.client, &origin.uri, &shown));
        }
        self.drafts.push(shapes::group_changed(&id, version, None));
        let written = Written {
            deployment: deployment.id.clone(),
            version,
            app: shown,
            created,
        };
        if deployment.step().is_some() {
            self.drafts.push(shapes::deployment_step(
                "deployment_info",
                &deployment,
                self.plan_form,
            ));
        }
        self.deployments.insert(id.clone(), deployment);
        for instance in sentenced {
            self.decommission(&id, instance);
        }
        self.reconcile(&id).await;
        Ok(written)
    }

    /// The app after the change.
    fn next(
        &self,
        id: &AppId,
        present: Option<&Arc<App>>,
        change: Change,
        version: Moment,
    ) -> Result<Next, Refusal> {
        let missing = || Refusal::NoApp(id.clone());
        let next = |app| {
            Ok(Next {
                app: Some(app),
                restart: Restart::AsBefore,
            })
        };
        match change {
            Change::Create(_) if present.is_some() => Err(Refusal::Exists(id.clone())),
            Change::Create(update) => next(self.apply(*update, id, None, version)?),
            Change::Update { create: false, .. } if present.is_none() => Err(missing()),
            Change::Update {
                update,
                partial,
                restart,
                ..
            } => {
                let base = present.filter(|_| partial).map(AsRef::as_ref);
                let app = self.apply(*update, id, base, version)?;
                let restart = if restart { Restart::All } else { Restart::AsBefore };
                Ok(Next {
                    app: Some(app),
                    restart,
                })
            }
            Change::Rollback(to) => {
                present.ok_or_else(missing)?;
                let past = self
                    .apps
                    .get(id)
                    .and_then(|state| state.record.versions.iter().find(|app| app.version == to));
                let past = past.ok_or_else(|| Refusal::NoVersion(id.clone(), to))?;
                next(App {
                    version,
                    ..past.as_ref().clone()
                })
            }
            Change::Delete => present
                .map(|_| Next {
                    app: None,
                    restart: Restart::AsBefore,
                })
                .ok_or_else(missing),
            Change::Restart => {
                let app = App {
                    version,
                    ..present.ok_or_else(missing)?.as_ref().clone()
                };
                Ok(Next {
                    app: Some(app),
                    restart: Restart::All,
                })
            }
            Change::Revert(deployment) => {
                let running = self
                    .deployments
                    .get(id)
                    .filter(|running| running.id == deployment);
                let running = running.ok_or(Refusal::NoDeployment(deployment))?;
                let app = running.original.clone().map(|app| App { version, ..app });
                Ok(Next {
                    app,
                    restart: Restart::Withdrawn,
                })
            }
        }
    }

    fn apply(
        &self,
        mut update: AppUpdate,
        id: &AppId,
        base: Option<&App>,
        version: Moment,
    ) -> Result<App, Refusal> {
        let app = update.apply(id.clone(), base, &self.role, version);
        let mut problems = std::mem::take(&mut update.broken);
        problems.extend(rules::check(&app, &self.role));
        if problems.is_empty() {
            Ok(app)
        } else {
            Err(Refusal::Invalid(Invalid::Rules(problems)))
        }
    }

    /// Fills in computed fields: service ports and the time of the last change.
    fn finish(&self, mut app: App, present: Option<&App>, restart: Restart) -> App {
        let others = self
            .apps
            .iter()
            .filter(|(id, state)| **id != app.id && !state.record.gone);
        let used: BTreeSet<u16> = others
            .flat_map(|(_, state)| &state.record.app.port_definitions)
            .map(|definition| definition.port)
            .collect();
        ports::assign(
            &mut app,
            present.map_or(&[], |present| &present.port_definitions),
            &used,
        );
        let Some(present) = present else {
            app.version_info = Some(VersionInfo {
                last_scaling_at: app.version,
                last_config_change_at: app.version,
            });
            return app;
        };
        let same_number = App {
            instances: present.instances,
            ..app.clone()
        };
        let configured =
            restart == Restart::All || present.effect_of(&same_number, self.launch.checks) != Effect::Nothing;
        if !configured && present.instances == app.instances {
            return present.clone();
        }
        let last_config_change_at = if configured {
            app.version
        } else {
            present.config_version()
        };
        app.version_info = Some(VersionInfo {
            last_scaling_at: app.version,
            last_config_change_at,
        });
        app
    }

    /// The steps to the target. Instances that a cancelled deployment left with another
    /// configuration are replaced, even if the definition does not change.
    fn plan(
        &self,
        id: &AppId,
        present: Option<&App>,
        target: Option<&App>,
        record: Option<&AppRecord>,
    ) -> Result<Vec<plan::Step>, Refusal> {
        let others = self
            .apps
            .iter()
            .filter(|(other, state)| *other != id && !state.record.gone);
        let mut before: BTreeMap<AppId, &App> = others
            .map(|(id, state)| (id.clone(), state.record.app.as_ref()))
            .collect();
        let mut after = before.clone();
        before.extend(present.map(|app| (id.clone(), app)));
        after.extend(target.map(|app| (id.clone(), app)));
        let outdated = record.is_some_and(|record| self.has_outdated(record));
        let checks = self.launch.checks;
        let effect = |old: &App, new: &App| {
            if new.id != *id {
                Effect::Nothing
            } else if outdated {
                Effect::Replace
            } else {
                old.effect_of(new, checks)
            }
        };
        plan::steps(&before, &after, effect).map_err(|cycle| {
            let mut problems = Problems::default();
            problems.add("/dependencies", cycle.to_string());
            Refusal::Invalid(Invalid::Rules(problems))
        })
    }

    /// Whether any instance of the app has to be replaced under this record.
    fn has_outdated(&self, record: &AppRecord) -> bool {
        let instances = self
            .apps
            .get(&record.app.id)
            .map(|state| state.instances.values());
        let wanted = instances
            .into_iter()
            .flatten()
            .filter(|instance| instance.replica.is_wanted());
        let versions: BTreeSet<Moment> = wanted.map(Instance::version).collect();
        versions
            .into_iter()
            .any(|version| record.is_outdated(version, self.launch.checks))
    }

    /// The record to store: the new definition with the past ones, or the last one marked as
    /// deleted.
    fn record(&self, id: &AppId, target: Option<Arc<App>>, restart: Restart) -> Option<AppRecord> {
        let state = self.apps.get(id);
        let present = state.map(|state| &state.record);
        let Some(app) = target else {
            return present.map(|record| AppRecord {
                gone: true,
                ..record.clone()
            });
        };
        let mut versions = present.map(|record| record.versions.clone()).unwrap_or_default();
        if versions.last().is_none_or(|last| last.version != app.version) {
            versions.push(Arc::clone(&app));
        }
        // Versions of instances are kept: without one it is unknown what the instance runs.
        let used: BTreeSet<Moment> = state
            .into_iter()
            .flat_map(|state| state.instances.values().map(Instance::version))
            .collect();
        let mut excess = versions.len().saturating_sub(MAX_VERSIONS);
        versions.retain(|past| {
            let surplus = excess > 0 && past.version != app.version && !used.contains(&past.version);
            excess -= usize::from(surplus);
            !surplus
        });
        let restarted_at = match restart {
            Restart::AsBefore => present.and_then(|record| record.restarted_at),
            Restart::All => Some(app.version),
            Restart::Withdrawn => None,
        };
        Some(AppRecord {
            last_failure: present.and_then(|record| record.last_failure.clone()),
            app,
            versions,
            gone: false,
            restarted_at,
        })
    }

    /// Applies the stored definition. Returns the definition for events and replies: the new one,
    /// or the last one of a deleted app.
    fn take_over(
        &mut self,
        id: &AppId,
        record: Option<AppRecord>,
        present: Option<&Arc<App>>,
    ) -> Option<Arc<App>> {
        self.dirty.insert(id.clone());
        let record = record?;
        let app = Arc::clone(&record.app);
        let state = self
            .apps
            .entry(id.clone())
            .or_insert_with(|| AppState::new(record.clone(), &self.launch));
        if present.is_none_or(|present| present.config_version() != app.config_version()) {
            state.backoff = LaunchBackoff::default();
        }
        let before = Arc::clone(&state.record.app);
        let gone = record.gone;
        state.set_record(record, &self.launch);
        // Unlaunched instances are launched from the new definition, unless the deployment replaces
        // them.
        let waiting: Vec<InstanceId> = state
            .instances
            .values()
            .filter(|instance| instance.condition() == Condition::Scheduled && !state.is_outdated(instance))
            .map(|instance| instance.id.clone())
            .collect();
        let mut requests = Vec::new();
        for instance in waiting {
            if let Some(known) = state.instances.get_mut(&instance) {
                known.replica.version = app.version;
            }
            if let Some(known) = state.instances.get(&instance) {
                requests.push(state.wanted(known));
            }
        }
        self.scheduler.submit(requests);
        self.definition_changed(id, present.map(|_| &*before), Some(&*app).filter(|_| !gone));
        Some(app)
    }

    /// Stops the app's deployment, if there is one, in its current step; instances are left
    /// unchanged.
    fn cancelled(&mut self, id: &AppId, reason: &str) {
        if let Some(deployment) = self.deployments.remove(id) {
            self.drafts.push(shapes::deployment_step(
                "deployment_step_failure",
                &deployment,
                self.plan_form,
            ));
            self.drafts.push(shapes::deployment_ended(
                &deployment,
                self.plan_form,
                Some(reason),
            ));
        }
    }

    async fn cancel(&mut self, deployment: &str) -> Result<(), Refusal> {
        let id = self
            .deployments
            .iter()
            .find(|(_, running)| running.id == deployment)
            .map(|(id, _)| id.clone());
        let id = id.ok_or_else(|| Refusal::NoDeployment(deployment.to_owned()))?;
        let mut changes = Changes::default();
        changes.delete_deployment(deployment);
        // An app that was being deleted exists again: its removal stops.
        let revived = self
            .apps
            .get(&id)
            .filter(|state| state.record.gone)
            .map(|state| AppRecord {
                gone: false,
                ..state.record.clone()
            });
        if let Some(record) = &revived {
            changes.put_app(record)?;
        }
        self.commit(changes).await?;
        if let (Some(record), Some(state)) = (revived, self.apps.get_mut(&id)) {
            state.set_record(record, &self.launch);
        }
        self.cancelled(&id, "The deployment was cancelled.");
        self.reconcile(&id).await;
        Ok(())
    }
}

/// A validated and planned change of an app.
pub(super) struct Prepared {
    id: AppId,
    /// The current definition; `None` for a new app.
    present: Option<Arc<App>>,
    record: Option<AppRecord>,
    deployment: Deployment,
}
