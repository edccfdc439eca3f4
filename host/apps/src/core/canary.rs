//! Restarts that a canary holds: when they continue, and when their deployments are rolled back.

use std::sync::Arc;

use transom_common::error_chain;

use super::Core;
use super::command::Rejection;
use super::persist::Changes;
use crate::bus::shapes;
use crate::deploy::{ActionKind, Deployment};
use crate::ids::SpecId;
use crate::time::Moment;

impl Core {
    /// Records whether the restart of an app or pod waits with healthy new instances.
    pub(super) fn set_canary_healthy(&mut self, id: &SpecId, healthy: bool) {
        let Some(running) = self.deployments.of_mut(id) else {
            return;
        };
        if healthy == running.healthy_canaries.contains_key(id) {
            return;
        }
        if healthy {
            running.healthy_canaries.insert(id.clone(), Moment::now());
        } else {
            running.healthy_canaries.remove(id);
        }
        let since = running.held_since();
        if since == running.deployment.held_since {
            return;
        }
        Arc::make_mut(&mut running.deployment).held_since = since;
        let deployment = Arc::clone(&running.deployment);
        if since.is_some() {
            tracing::info!(
                deployment = deployment.id,
                "canary is healthy; the restart is held"
            );
            self.publisher
                .event(shapes::canary_held(&deployment, self.settings.plan_form));
        }
        self.deployments.show(&deployment);
    }

    /// Allows the restarts of a deployment to replace all instances.
    pub(super) async fn continue_canary(&mut self, id: &str) -> Result<(), Rejection> {
        let running = self.deployments.get(id);
        let running = running.ok_or_else(|| Rejection::NoDeployment(id.to_owned()))?;
        let mut deployment = Deployment::clone(&running.deployment);
        match &mut deployment.canary {
            Some(canary) if !canary.continued => canary.continued = true,
            _ => return Err(Rejection::NoCanary(id.to_owned())),
        }
        deployment.held_since = None;
        let mut changes = Changes::default();
        changes.put_deployment(&deployment)?;
        self.commit(changes).await?;
        tracing::info!(
            deployment = id,
            "canary continued; the restart replaces all instances"
        );
        let deployment = Arc::new(deployment);
        if let Some(running) = self.deployments.get_mut(id) {
            running.deployment = Arc::clone(&deployment);
            running.healthy_canaries.clear();
            self.reconcile_queue.extend(running.unfinished.keys().cloned());
        }
        self.deployments.show(&deployment);
        Ok(())
    }

    /// Records that a new instance failed. If a canary holds the restart, the next tick rolls the
    /// deployment back.
    pub(super) fn canary_failed(&mut self, id: &SpecId, what: &str) {
        let Some(running) = self.deployments.of(id) else {
            return;
        };
        let begins = running.deployment.canary.is_some_and(|canary| !canary.continued);
        if begins && running.unfinished.get(id) == Some(&ActionKind::Restart) {
            let reason = format!("The deployment was rolled back: a new instance of {id} {what}.");
            let deployment = running.deployment.id.clone();
            self.deployments.fail_canary(deployment, reason);
        }
    }

    /// Rolls back the deployments whose canaries failed. If a revert cannot be stored, the next
    /// tick tries again.
    pub(super) async fn roll_back_failed_canaries(&mut self) {
        for (deployment, reason) in self.deployments.take_failed_canaries() {
            tracing::warn!(deployment, reason, "canary failed; rolling the deployment back");
            if let Err(rejection) = self.roll_back(&deployment, reason.clone()).await {
                tracing::warn!(
                    deployment,
                    error = error_chain(&rejection),
                    "rolling a deployment back failed; retrying"
                );
                self.deployments.fail_canary(deployment, reason);
            }
        }
    }

    /// Continues the restarts whose canaries have been healthy for long enough.
    pub(super) async fn continue_proven_canaries(&mut self) {
        let now = Moment::now();
        let proven: Vec<String> = self
            .deployments
            .values()
            .filter(|running| {
                let canary = running.deployment.canary;
                let seconds = canary
                    .filter(|canary| !canary.continued)
                    .and_then(|canary| canary.seconds);
                let (Some(seconds), Some(since)) = (seconds, running.held_since()) else {
                    return false;
                };
                let long_enough = since.plus_millis(i64::from(seconds) * 1000) <= now;
                long_enough && running.unfinished.keys().all(|id| self.checks_succeed(id))
            })
            .map(|running| running.deployment.id.clone())
            .collect();
        for deployment in proven {
            if let Err(rejection) = self.continue_canary(&deployment).await {
                tracing::warn!(
                    deployment,
                    error = error_chain(&rejection),
                    "continuing a canary failed; retrying"
                );
            }
        }
    }

    /// Whether the last results of the checks of all new instances are successes. Only canaries
    /// depend on this; checks have no effect otherwise.
    fn checks_succeed(&self, id: &SpecId) -> bool {
        let Some(state) = self.specs.get(id) else {
            return true;
        };
        let spec = &state.record.spec;
        let checked: Vec<usize> = (0..spec.check_count())
            .filter(|index| spec.check(*index).is_some())
            .collect();
        let new = state
            .instances()
            .values()
            .filter(|instance| !state.is_outdated(instance));
        new.into_iter().all(|instance| {
            checked.iter().all(|index| {
                let task = instance.checked_task(spec, *index);
                let instance_task = task.and_then(|task| instance.instance_task(&task.id));
                instance_task.is_some_and(|instance_task| {
                    instance_task.check_failure.is_none()
                        && instance_task.check_result().is_some_and(|it| it.is_success())
                })
            })
        })
    }
}
