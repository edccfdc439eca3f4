//! Handles requests about tasks: to kill them, or to launch them without a delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_cluster::TaskId;
use transom_common::trace::TraceContext;
use transom_replicas::{Condition, Input, LaunchBackoff};

use super::Core;
use super::batch::{Batch, Request};
use super::command::{Edit, KillOptions, KillResult, KilledTasks, Rejection, Reply, TaskSelection};
use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;
use crate::model::AppUpdate;

impl Core {
    /// The instances of an app or pod that a request selects.
    pub(super) fn select(
        &self,
        id: &SpecId,
        selection: &TaskSelection,
    ) -> Result<Vec<KilledTasks>, Rejection> {
        let state = self
            .specs
            .get(id)
            .filter(|state| !state.record.deleted && state.record.spec.is_pod() == selection.is_of_pod())
            .ok_or_else(|| selection.missing(id))?;
        let selected = |instance: &&Arc<Instance>| match selection {
            TaskSelection::All => true,
            TaskSelection::OnHost(host) => instance
                .record()
                .is_some_and(|record| record.agent.hostname == *host),
            TaskSelection::One(task) => instance.has_id(task),
            TaskSelection::OfPod(ids) => ids.contains(instance.id.as_str()),
        };
        let launched = state
            .instances()
            .values()
            .filter(|instance| may_be_killed(instance));
        let instances: Vec<Arc<Instance>> = launched.filter(selected).cloned().collect();
        if let (TaskSelection::One(task), true) = (selection, instances.is_empty()) {
            return Err(Rejection::NoTask(task.clone()));
        }
        Ok(vec![KilledTasks {
            spec: state.record.spec.clone(),
            instances,
        }])
    }

    /// The instances with these tasks, by app; unknown tasks and those of pods are skipped.
    pub(super) fn select_tasks(&self, tasks: &[String]) -> Vec<KilledTasks> {
        let mut killed: BTreeMap<SpecId, KilledTasks> = BTreeMap::new();
        let mut selected = BTreeSet::new();
        for task in tasks.iter().collect::<BTreeSet<_>>() {
            let instance = InstanceId::of_task(&TaskId::from(task.as_str())).map(|(instance, _)| instance);
            let Some(id) = instance.or_else(|| InstanceId::parse(task)) else {
                continue;
            };
            let Some(app) = id.spec() else { continue };
            let Some(state) = self
                .specs
                .get(&app)
                .filter(|state| !state.record.deleted && !state.record.spec.is_pod())
            else {
                continue;
            };
            let instance = state.instances().get(&id);
            let Some(instance) = instance.filter(|instance| may_be_killed(instance) && instance.has_id(task))
            else {
                continue;
            };
            let of_app = killed.entry(app).or_insert_with(|| KilledTasks {
                spec: state.record.spec.clone(),
                instances: Vec::new(),
            });
            // The list may contain both the id of an instance and that of its task.
            if selected.insert(&instance.id) {
                of_app.instances.push(Arc::clone(instance));
            }
        }
        killed.into_values().collect()
    }

    /// Kills the tasks of these instances. With `scale` one deployment reduces the number of
    /// instances of their apps. With `wipe` new instances replace the killed ones.
    pub(super) async fn kill(
        &mut self,
        batch: &mut Batch,
        selected: Result<Vec<KilledTasks>, Rejection>,
        options: KillOptions,
        reply: Reply<KillResult>,
    ) {
        let apps = match selected {
            Ok(apps) => apps,
            Err(rejection) => {
                return self.publisher.reply(move || drop(reply.send(Err(rejection))));
            }
        };
        if !options.scale || apps.is_empty() {
            for (app, instance) in removals(&apps) {
                if options.wipe {
                    self.decommission(&app, &instance);
                } else {
                    self.step(&app, &instance, Input::Restart);
                }
            }
            let killed = KillResult {
                specs: apps,
                deployment: None,
            };
            return self.publisher.reply(move || drop(reply.send(Ok(killed))));
        }
        let updates = apps
            .iter()
            .map(|killed| AppUpdate::scaling(killed.spec.id().clone(), killed.remaining_instances()));
        let request = Request {
            edit: Edit::Apps {
                updates: updates.collect(),
                partial: true,
                create: false,
            },
            options: options.change,
            origin: None,
            removals: removals(&apps).collect(),
            trace: TraceContext::default(),
        };
        let respond = move |outcome: Result<_, Rejection>| {
            let killed = outcome.map(|started| KillResult {
                specs: apps,
                deployment: Some(started),
            });
            drop(reply.send(killed));
        };
        self.add_to_batch(batch, request, Box::new(respond)).await;
    }
}

fn removals(apps: &[KilledTasks]) -> impl Iterator<Item = (SpecId, InstanceId)> {
    let of_app = |killed: &KilledTasks| {
        let app = killed.spec.id().clone();
        let instances = killed.instances.iter();
        instances
            .map(move |instance| (app.clone(), instance.id.clone()))
            .collect::<Vec<_>>()
    };
    apps.iter().flat_map(of_app)
}

impl KilledTasks {
    /// The number of instances after the kill. Instances that are being killed already, or were
    /// given up, are not subtracted, because others replace them.
    fn remaining_instances(&self) -> u32 {
        let places = self.instances.iter().filter(|instance| {
            !matches!(
                instance.condition(),
                Condition::Killing | Condition::UnreachableInactive
            )
        });
        self.spec.instances().saturating_sub(places.count() as u32)
    }
}

impl Core {
    /// Resets the backoff of an app or pod, and launches its waiting instances.
    pub(super) fn reset_delay(&mut self, id: &SpecId) -> Result<(), Rejection> {
        let state = self.specs.get_mut(id).filter(|state| !state.record.deleted);
        let state = state.ok_or_else(|| Rejection::NotWaiting(id.clone()))?;
        state.backoff = LaunchBackoff::default();
        let waiting = state.instances().values();
        let waiting = waiting.filter(|instance| instance.condition() == Condition::Scheduled);
        let requests: Vec<_> = waiting.map(|instance| state.task_request(instance)).collect();
        if requests.is_empty() {
            return Err(Rejection::NotWaiting(id.clone()));
        }
        self.scheduler.submit(requests);
        self.publisher.changed(id);
        Ok(())
    }
}

/// Whether the instance is launched and not being removed.
fn may_be_killed(instance: &Instance) -> bool {
    instance.condition() != Condition::Scheduled && instance.replica.is_wanted()
}
