//! What the core does about requests: definitions change, deployments begin and end, tasks are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::command::{Change, Command, Killed, Origin, Refusal, Which, Written};
use super::persist::{AppRecord, Changes, MOST_VERSIONS};
use super::{AppState, Core};
use crate::bus::shapes;
use crate::condition::Condition;
use crate::deploy::{Deployment, plan};
use crate::ids::{AppId, InstanceId};
use crate::instance::Instance;
use crate::model::{App, AppUpdate, Invalid, VersionInfo, ports, rules};
use crate::problems::Problems;
use crate::time::Moment;

/// What a request makes of an app.
struct Next {
    /// The definition to be; `None`: deleted.
    app: Option<App>,
    /// Instances restart although nothing else changes.
    restart: bool,
}

impl Core {
    pub(super) async fn command(&mut self, command: Command) {
        // Who asked may have gone: what was asked is done all the same.
        match command {
            Command::Write {
                app,
                change,
                force,
                origin,
                reply,
            } => {
                let _ = reply.send(self.write(app, change, force, &origin, &[]).await);
            }
            Command::Kill {
                app,
                which,
                scale,
                wipe,
                force,
                origin,
                reply,
            } => {
                let _ = reply.send(self.kill(app, &which, (scale, wipe), force, &origin).await);
            }
            Command::Cancel { deployment, reply } => {
                let _ = reply.send(self.cancel(&deployment).await);
            }
        }
    }

    /// Changes an app: checks, stores, tells, begins the deployment. `sentenced` instances are the first to go.
    async fn write(
        &mut self,
        id: AppId,
        change: Change,
        force: bool,
        origin: &Origin,
        sentenced: &[InstanceId],
    ) -> Result<Written, Refusal> {
        let present = self
            .apps
            .get(&id)
            .filter(|state| !state.record.gone)
            .map(|state| Arc::clone(&state.record.app));
        let version = self.new_version();
        let Next { app: target, restart } = self.next(&id, present.as_ref(), change, version)?;
        if let Some(lock) = self.deployments.get(&id).filter(|_| !force) {
            let refusal = Refusal::Locked(vec![lock.id.clone()]);
            self.bus.publish(shapes::group_changed(
                &id,
                version,
                Some("App is locked by one or more deployments."),
            ));
            return Err(refusal);
        }
        let target = target.map(|target| self.finish(target, present.as_deref(), restart));
        let steps = self.plan(&id, present.as_deref(), target.as_ref())?;
        let deployment = Deployment {
            id: Uuid::new_v4().to_string(),
            version,
            app: id.clone(),
            steps,
            current: 0,
            original: present.as_deref().cloned(),
        };
        let record = self.record(&id, target.map(Arc::new));
        self.store(&id, record.as_ref(), &deployment).await?;

        self.cancelled(
            &id,
            "The deployment was cancelled by a later one that was forced.",
        );
        let created = present.is_none();
        let shown = self
            .take_over(&id, record, present.as_ref())
            .ok_or_else(|| Refusal::NoApp(id.clone()))?;
        self.bus
            .publish(shapes::api_post(&origin.client, &origin.uri, &shown));
        self.bus.publish(shapes::group_changed(&id, version, None));
        let written = Written {
            deployment: deployment.id.clone(),
            version,
            app: shown,
            created,
        };
        if deployment.step().is_some() {
            self.bus.publish(shapes::deployment_step(
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

    /// What the app would be after the change.
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
                restart: false,
            })
        };
        match change {
            Change::Create(_) if present.is_some() => Err(Refusal::Exists(id.clone())),
            Change::Create(update) => next(self.apply(*update, id, None, version)?),
            Change::Update { create: false, .. } if present.is_none() => Err(missing()),
            Change::Update { update, partial, .. } => {
                let base = present.filter(|_| partial).map(AsRef::as_ref);
                next(self.apply(*update, id, base, version)?)
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
                    restart: false,
                })
                .ok_or_else(missing),
            Change::Restart => {
                let app = App {
                    version,
                    ..present.ok_or_else(missing)?.as_ref().clone()
                };
                Ok(Next {
                    app: Some(app),
                    restart: true,
                })
            }
            Change::Revert(deployment) => {
                let running = self
                    .deployments
                    .get(id)
                    .filter(|running| running.id == deployment);
                let running = running.ok_or(Refusal::NoDeployment(deployment))?;
                let app = running.original.clone().map(|app| App { version, ..app });
                Ok(Next { app, restart: false })
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

    /// Gives a definition what it does not bring itself: service ports, and when it last changed.
    fn finish(&self, mut app: App, present: Option<&App>, restart: bool) -> App {
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
        let upgrade = restart || present.is_upgrade_to(&app);
        if !upgrade && present.instances == app.instances {
            return present.clone();
        }
        let last_config_change_at = if upgrade {
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

    fn plan(
        &self,
        id: &AppId,
        present: Option<&App>,
        target: Option<&App>,
    ) -> Result<Vec<plan::Step>, Refusal> {
        let others = self
            .apps
            .iter()
            .filter(|(other, state)| *other != id && !state.record.gone);
        let mut before: BTreeMap<AppId, &App> = others
            .map(|(id, state)| (id.clone(), state.record.app.as_ref()))
            .collect();
        let mut after = before.clone();
        let unfinished = target.and_then(|target| self.unfinished(id, present?, target));
        before.extend(unfinished.as_ref().or(present).map(|app| (id.clone(), app)));
        after.extend(target.map(|app| (id.clone(), app)));
        plan::steps(&before, &after).map_err(|cycle| {
            let mut problems = Problems::default();
            problems.add("/dependencies", cycle.to_string());
            Refusal::Invalid(Invalid::Rules(problems))
        })
    }

    /// What an app still is in part, when it has instances of a configuration before the one that is to be: a deployment
    /// that would have replaced them was cancelled. Without this a change that only scales would keep them for good.
    fn unfinished(&self, id: &AppId, present: &App, target: &App) -> Option<App> {
        let instances = self.apps.get(id)?.instances.values();
        let oldest = instances
            .filter(|instance| instance.wanted)
            .map(|instance| instance.version)
            .min()?;
        (oldest < target.config_version()).then(|| App {
            version_info: Some(VersionInfo {
                last_scaling_at: present.version,
                last_config_change_at: oldest,
            }),
            ..present.clone()
        })
    }

    /// The record to be stored: the new definition with the past ones, or the last one marked as gone.
    fn record(&self, id: &AppId, target: Option<Arc<App>>) -> Option<AppRecord> {
        let present = self.apps.get(id).map(|state| &state.record);
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
        let excess = versions.len().saturating_sub(MOST_VERSIONS);
        versions.drain(..excess);
        let last_failure = present.and_then(|record| record.last_failure.clone());
        Some(AppRecord {
            app,
            versions,
            gone: false,
            last_failure,
        })
    }

    async fn store(
        &self,
        id: &AppId,
        record: Option<&AppRecord>,
        deployment: &Deployment,
    ) -> Result<(), Refusal> {
        let mut changes = Changes::default();
        if let Some(record) = record {
            self.shelf.put_app(&mut changes, record);
        }
        self.shelf.put_deployment(&mut changes, deployment);
        if let Some(replaced) = self.deployments.get(id) {
            self.shelf.delete_deployment(&mut changes, &replaced.id);
        }
        self.shelf
            .commit(changes)
            .await
            .map_err(|error| Refusal::Store(Arc::new(error)))
    }

    /// Works with the stored definition from now on. Returns what events and answers show: the new one, or what it was.
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
        state.record = record;
        if present.is_none_or(|present| present.config_version() != app.config_version()) {
            state.backoff = crate::backoff::Backoff::default();
        }
        state.spec = crate::task::run_spec(&app, &self.launch);
        // Those that wait already are launched from the new definition, unless they are to be replaced by it.
        let config = app.config_version();
        let waiting: Vec<InstanceId> = state
            .instances
            .values()
            .filter(|instance| instance.condition == Condition::Scheduled && instance.version >= config)
            .map(|instance| instance.id.clone())
            .collect();
        for instance in waiting {
            if let Some(known) = state.instances.get_mut(&instance) {
                known.version = app.version;
            }
            if let Some(known) = state.instances.get(&instance) {
                self.demands.want(state.wanted(known));
            }
        }
        Some(app)
    }

    /// Ends the deployment of an app where it stands, if there is one; instances are left as they are.
    fn cancelled(&mut self, id: &AppId, reason: &str) {
        if let Some(deployment) = self.deployments.remove(id) {
            self.bus.publish(shapes::deployment_step(
                "deployment_step_failure",
                &deployment,
                self.plan_form,
            ));
            self.bus.publish(shapes::deployment_ended(
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
        self.shelf.delete_deployment(&mut changes, deployment);
        // An app that was being deleted is there again: nothing stops it any more.
        let revived = self
            .apps
            .get(&id)
            .filter(|state| state.record.gone)
            .map(|state| AppRecord {
                gone: false,
                ..state.record.clone()
            });
        if let Some(record) = &revived {
            self.shelf.put_app(&mut changes, record);
        }
        self.shelf
            .commit(changes)
            .await
            .map_err(|error| Refusal::Store(Arc::new(error)))?;
        if let (Some(record), Some(state)) = (revived, self.apps.get_mut(&id)) {
            state.record = record;
        }
        self.cancelled(&id, "The deployment was cancelled.");
        self.reconcile(&id).await;
        Ok(())
    }

    async fn kill(
        &mut self,
        id: AppId,
        which: &Which,
        (scale, wipe): (bool, bool),
        force: bool,
        origin: &Origin,
    ) -> Result<Killed, Refusal> {
        let state = self
            .apps
            .get(&id)
            .filter(|state| !state.record.gone)
            .ok_or_else(|| Refusal::NoApp(id.clone()))?;
        let app = Arc::clone(&state.record.app);
        let meant = |instance: &&Instance| match which {
            Which::All => true,
            Which::OnHost(host) => instance
                .record
                .as_ref()
                .is_some_and(|record| record.agent.hostname == *host),
            Which::One(task) => instance.task().as_str() == task || instance.id.as_str() == task,
        };
        let launched = state
            .instances
            .values()
            .filter(|instance| instance.condition != Condition::Scheduled && instance.wanted);
        let instances: Vec<Instance> = launched.filter(meant).cloned().collect();
        if let (Which::One(task), true) = (which, instances.is_empty()) {
            return Err(Refusal::NoTask(task.clone()));
        }
        let ids: Vec<InstanceId> = instances.iter().map(|instance| instance.id.clone()).collect();
        if scale {
            let fewer = app.instances.saturating_sub(ids.len() as u32);
            let update = AppUpdate::scaling(fewer);
            let change = Change::Update {
                update: Box::new(update),
                partial: true,
                create: false,
            };
            let deployment = self.write(id, change, force, origin, &ids).await?;
            return Ok(Killed {
                app,
                instances,
                deployment: Some(deployment),
            });
        }
        for instance in &ids {
            if wipe {
                self.decommission(&id, instance);
            } else if let Some(known) = self
                .apps
                .get_mut(&id)
                .and_then(|state| state.instances.get_mut(instance))
            {
                known.killed = true;
                self.demands.release(known.task());
            }
        }
        self.reconcile(&id).await;
        Ok(Killed {
            app,
            instances,
            deployment: None,
        })
    }
}
