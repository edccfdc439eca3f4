//! Handles requests about tasks: to kill them, or to launch them without a delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_cluster::TaskId;
use transom_replicas::{Condition, Input, LaunchBackoff};

use super::Core;
use super::batch::{Batch, Request};
use super::command::{Edit, Killed, KilledOfApp, Manner, Refusal, Reply, Which};
use crate::ids::{AppId, InstanceId};
use crate::instance::Instance;
use crate::model::AppUpdate;

impl Core {
    /// The instances of an app that a request means.
    pub(super) fn meant(&self, id: &AppId, which: &Which) -> Result<Vec<KilledOfApp>, Refusal> {
        let state = self
            .apps
            .get(id)
            .filter(|state| !state.record.gone)
            .ok_or_else(|| Refusal::NoApp(id.clone()))?;
        let meant = |instance: &&Arc<Instance>| match which {
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
        let instances: Vec<Arc<Instance>> = launched.filter(meant).cloned().collect();
        if let (Which::One(task), true) = (which, instances.is_empty()) {
            return Err(Refusal::NoTask(task.clone()));
        }
        Ok(vec![KilledOfApp {
            app: Arc::clone(&state.record.app),
            instances,
        }])
    }

    /// The instances with these tasks, by app; unknown ones are skipped.
    pub(super) fn given(&self, tasks: &[String]) -> Vec<KilledOfApp> {
        let mut killed: BTreeMap<AppId, KilledOfApp> = BTreeMap::new();
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
            let of_app = killed.entry(app).or_insert_with(|| KilledOfApp {
                app: Arc::clone(&state.record.app),
                instances: Vec::new(),
            });
            // An instance may be named by its own id or by its task's.
            if of_app.instances.iter().all(|instance| instance.id != id) {
                of_app.instances.push(Arc::clone(known));
            }
        }
        killed.into_values().collect()
    }

    /// Kills the tasks of these instances. With `scale` their apps get fewer instances, by one
    /// deployment. With `wipe` new instances take their places.
    pub(super) async fn kill(
        &mut self,
        batch: &mut Batch,
        meant: Result<Vec<KilledOfApp>, Refusal>,
        manner: Manner,
        reply: Reply<Killed>,
    ) {
        let apps = match meant {
            Ok(apps) => apps,
            Err(refusal) => {
                return self
                    .replies
                    .push(Box::new(move || drop(reply.send(Err(refusal)))));
            }
        };
        if !manner.scale || apps.is_empty() {
            for (app, instance) in sentenced(&apps) {
                if manner.wipe {
                    self.decommission(&app, &instance);
                } else {
                    self.step(&app, &instance, Input::Restart);
                }
            }
            let killed = Killed {
                apps,
                deployment: None,
            };
            return self.replies.push(Box::new(move || drop(reply.send(Ok(killed)))));
        }
        let updates = apps
            .iter()
            .map(|killed| AppUpdate::scaling(killed.app.id.clone(), killed.left()));
        let request = Request {
            edit: Edit::Apps {
                updates: updates.collect(),
                partial: true,
                create: false,
            },
            options: manner.options,
            origin: None,
            reason: None,
            sentenced: sentenced(&apps).collect(),
        };
        let respond = move |outcome: Result<_, Refusal>| {
            let killed = outcome.map(|written| Killed {
                apps,
                deployment: Some(written),
            });
            drop(reply.send(killed));
        };
        self.add(batch, request, Box::new(respond)).await;
    }
}

fn sentenced(apps: &[KilledOfApp]) -> impl Iterator<Item = (AppId, InstanceId)> {
    let of_app = |killed: &KilledOfApp| {
        let app = killed.app.id.clone();
        let instances = killed.instances.iter();
        instances
            .map(move |instance| (app.clone(), instance.id.clone()))
            .collect::<Vec<_>>()
    };
    apps.iter().flat_map(of_app)
}

impl KilledOfApp {
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

impl Core {
    /// Forgets the failures of an app, and launches its waiting instances.
    pub(super) fn reset_delay(&mut self, id: &AppId) -> Result<(), Refusal> {
        let state = self.apps.get_mut(id).filter(|state| !state.record.gone);
        let state = state.ok_or_else(|| Refusal::NotWaiting(id.clone()))?;
        state.backoff = LaunchBackoff::default();
        let waiting = state.instances.values();
        let waiting = waiting.filter(|instance| instance.condition() == Condition::Scheduled);
        let requests: Vec<_> = waiting.map(|instance| state.wanted(instance)).collect();
        if requests.is_empty() {
            return Err(Refusal::NotWaiting(id.clone()));
        }
        self.scheduler.submit(requests);
        Ok(())
    }
}

/// Launched and not being removed.
fn may_be_killed(instance: &Instance) -> bool {
    instance.condition() != Condition::Scheduled && instance.replica.is_wanted()
}
