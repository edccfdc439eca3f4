//! Handles requests that kill tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_cluster::TaskId;
use transom_replicas::{Condition, Input};

use super::Core;
use super::command::{Change, Killed, Refusal, Which};
use crate::ids::{AppId, InstanceId};
use crate::instance::Instance;
use crate::model::AppUpdate;

impl Core {
    pub(super) async fn kill(
        &mut self,
        id: &AppId,
        which: &Which,
        scale: bool,
        wipe: bool,
        force: bool,
    ) -> Result<Killed, Refusal> {
        let state = self
            .apps
            .get(id)
            .filter(|state| !state.record.gone)
            .ok_or_else(|| Refusal::NoApp(id.clone()))?;
        let app = Arc::clone(&state.record.app);
        let meant = |instance: &&Instance| match which {
            Which::All => true,
            Which::OnHost(host) => instance
                .record
                .as_ref()
                .is_some_and(|record| record.agent.hostname == *host),
            Which::One(task) => instance.is_called(task),
        };
        let launched = state
            .instances
            .values()
            .filter(|instance| may_be_killed(instance));
        let instances: Vec<Instance> = launched.filter(meant).cloned().collect();
        if let (Which::One(task), true) = (which, instances.is_empty()) {
            return Err(Refusal::NoTask(task.clone()));
        }
        let killed = Killed {
            app,
            instances,
            deployment: None,
        };
        let killed = self.end_tasks(vec![killed], scale, wipe, force).await?;
        killed
            .into_iter()
            .next()
            .ok_or_else(|| Refusal::NoApp(id.clone()))
    }

    pub(super) async fn kill_given(
        &mut self,
        tasks: &[String],
        scale: bool,
        wipe: bool,
        force: bool,
    ) -> Result<Vec<Killed>, Refusal> {
        let mut killed: BTreeMap<AppId, Killed> = BTreeMap::new();
        for task in tasks.iter().collect::<BTreeSet<_>>() {
            let instance = InstanceId::of_task(&TaskId::from(task.as_str())).map(|(instance, _)| instance);
            let Some(id) = instance.or_else(|| InstanceId::parse(task)) else {
                continue;
            };
            let Some(app) = id.app() else { continue };
            let Some(state) = self.apps.get(&app).filter(|state| !state.record.gone) else {
                continue;
            };
            let known = state.instances.get(&id);
            let Some(known) = known.filter(|known| may_be_killed(known) && known.is_called(task)) else {
                continue;
            };
            let of_app = killed.entry(app).or_insert_with(|| Killed {
                app: Arc::clone(&state.record.app),
                instances: Vec::new(),
                deployment: None,
            });
            // An instance may be named by its own id or by its task's.
            if of_app.instances.iter().all(|instance| instance.id != id) {
                of_app.instances.push(known.clone());
            }
        }
        self.end_tasks(killed.into_values().collect(), scale, wipe, force)
            .await
    }

    /// Kills the tasks of these instances. With `scale` their apps get fewer instances: all of the
    /// apps, or none. With `wipe` new instances take their places.
    async fn end_tasks(
        &mut self,
        mut killed: Vec<Killed>,
        scale: bool,
        wipe: bool,
        force: bool,
    ) -> Result<Vec<Killed>, Refusal> {
        if scale {
            let locks: Vec<String> = killed
                .iter()
                .filter_map(|one| self.deployments.get(&one.app.id))
                .map(|deployment| deployment.id.clone())
                .collect();
            if killed.len() > 1 && !locks.is_empty() && !force {
                return Err(Refusal::Locked(locks));
            }
            let mut prepared = Vec::with_capacity(killed.len());
            for one in &killed {
                let update = AppUpdate::scaling(one.left());
                let change = Change::Update {
                    update: Box::new(update),
                    partial: true,
                    create: false,
                    restart: false,
                };
                prepared.push(self.prepare(one.app.id.clone(), change, force)?);
            }
            self.store(&prepared).await?;
            for (one, prepared) in killed.iter_mut().zip(prepared) {
                let sentenced: Vec<InstanceId> =
                    one.instances.iter().map(|instance| instance.id.clone()).collect();
                one.deployment = Some(self.begin(prepared, None, &sentenced).await?);
            }
            return Ok(killed);
        }
        for one in &killed {
            let app = &one.app.id;
            for instance in &one.instances {
                if wipe {
                    self.decommission(app, &instance.id);
                } else {
                    self.step(app, &instance.id, Input::Restart);
                }
            }
            self.reconcile(app).await;
        }
        Ok(killed)
    }
}

impl Killed {
    /// The number of instances that remain without the killed ones. Those whose places are already
    /// free, or soon will be, are not subtracted again.
    fn left(&self) -> u32 {
        let places = self.instances.iter().filter(|instance| {
            !matches!(
                instance.condition(),
                Condition::Killing | Condition::UnreachableInactive
            )
        });
        self.app.instances.saturating_sub(places.count() as u32)
    }
}

/// Launched and not being removed.
fn may_be_killed(instance: &Instance) -> bool {
    instance.condition() != Condition::Scheduled && instance.replica.is_wanted()
}
