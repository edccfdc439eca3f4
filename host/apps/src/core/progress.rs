//! Progress of apps, pods and deployments: the next actions of each, and the end of steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use transom_common::error_chain;
use transom_replicas::Directive;
use transom_store::limits::MAX_CHANGES;
use transom_store::typed;

use super::Core;
use super::deployments::Held;
use super::history::History;
use super::metrics::DeploymentEnd;
use super::persist::Changes;
use super::spec_state::SharedTrace;
use crate::bus::shapes;
use crate::deploy::{self, ActionKind, Canary, Deployment};
use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;
use crate::model::Spec;
use crate::time::Moment;

/// How many times one app or pod is reconciled before the core continues with other work; much more
/// than any plan needs.
const MAX_PASSES: usize = 100;
/// The number of instances of one app or pod that are started, removed or restarted in a turn, so that
/// an app with very many instances does not delay other work. A turn that has reconciled as many apps,
/// pods and instances leaves the others to the next one.
const MAX_ACTIONS: u32 = 1000;

impl Core {
    /// Locks the apps and pods of a deployment, and begins or continues its current step.
    pub(super) fn run_deployment(&mut self, deployment: Deployment) {
        let trace = SharedTrace::default();
        for app in deployment.specs() {
            self.publisher.changed(app);
            if let Some(state) = self.specs.get_mut(app) {
                state.trace = Arc::clone(&trace);
            }
        }
        let running = self.deployments.begin(deployment, trace);
        self.reconcile_queue.extend(running.unfinished.keys().cloned());
    }

    /// Ends a deployment and unlocks its apps and pods.
    pub(super) fn end_deployment(&mut self, id: &str, ending: DeploymentEnd<'_>) -> Option<Arc<Deployment>> {
        let deployment = self.deployments.end(id)?;
        self.metrics.record_end(&deployment, ending);
        for app in deployment.specs() {
            if let Some(state) = self.specs.get_mut(app) {
                state.trace = SharedTrace::default();
            }
            self.reconcile_queue.insert(app.clone());
            self.publisher.changed(app);
        }
        Some(deployment)
    }

    /// Carries out the next actions of the apps and pods that changed, and continues the deployments
    /// whose steps are done, until there is nothing left to do, a write of the store has failed, or the
    /// turn has done enough.
    pub(super) async fn reconcile_pending(&mut self) {
        let mut actions = 0;
        while self.reconcile_specs(&mut actions) && self.deployments.has_finished() && self.next_steps().await
        {
        }
    }

    /// Carries out the next actions of the apps and pods that changed, and counts them. Returns false
    /// if the turn has done enough.
    pub(super) fn reconcile_specs(&mut self, actions: &mut usize) -> bool {
        while let Some(id) = self.reconcile_queue.next() {
            *actions += self.reconcile(&id);
            if *actions >= MAX_ACTIONS as usize {
                #[cfg(test)]
                crate::testing::operations::note_turn(*actions);
                self.reconcile_queue.postpone_all();
                return false;
            }
        }
        true
    }

    /// The definition that a later step of a deployment replaces; `None` if the app or pod is new or
    /// being deleted.
    fn replaced_definition(&self, id: &SpecId) -> Option<Spec> {
        let before = self.deployments.replaced_version(id)?;
        let state = self.specs.get(id).filter(|state| !state.record.deleted)?;
        state.definition(before).cloned()
    }

    /// Continues the current action of an app or pod in its deployment. Without one, keeps its
    /// number of instances. Returns the number of actions, of which this is one.
    fn reconcile(&mut self, id: &SpecId) -> usize {
        let mut actions = 1;
        self.publisher.changed(id);
        // Tasks that run later begin their checks with their updates.
        if self.deployments.take_newly_locked(id) {
            self.update_readiness(id);
        }
        let running = self.deployments.of(id);
        let action = running.and_then(|running| running.unfinished.get(id).copied());
        // A later step handles it: the definition is already the new one, but until then the earlier
        // one determines the instances.
        let waits = self.deployments.held(id) == Some(Held::Waits);
        let replaced = if waits { self.replaced_definition(id) } else { None };
        if waits && replaced.is_none() {
            return actions;
        }
        let canary = running.and_then(|running| running.deployment.canary);
        let canary = canary.filter(|canary| !canary.continued);
        for _ in 0..MAX_PASSES {
            let directive = self.next_directive(id, action, canary, replaced.as_ref());
            let mut directive = self.with_selected_kills(id, directive);
            let continues = self.limit_to_turn(id, &mut directive);
            self.execute_directive(id, &directive, replaced.as_ref());
            actions += actions_of(&directive);
            if continues {
                self.reconcile_queue.postpone(id.clone());
                break;
            }
            if canary.is_some() {
                self.set_canary_healthy(id, directive.canaries_healthy);
            }
            if action.is_some() && directive.done {
                self.deployments.finish_action(id);
                break;
            }
            // Another action may be possible immediately after an unlaunched instance was removed
            // or a new one was started.
            if directive.decommission.is_empty() && directive.restart.is_empty() && directive.start == 0 {
                break;
            }
        }
        // The actions above marked it as pending again.
        self.reconcile_queue.remove(id);
        actions
    }

    /// The next actions on the instances of an app or pod. `action` and `canary` are those of its
    /// deployment; `replaced` is the definition that a later step replaces.
    fn next_directive(
        &mut self,
        id: &SpecId,
        action: Option<ActionKind>,
        canary: Option<Canary>,
        replaced: Option<&Spec>,
    ) -> Directive<InstanceId> {
        let Some(state) = self.specs.get_mut(id) else {
            return Directive::done();
        };
        let instances = deploy::Instances {
            counts: state.replica_counts(&self.leaving),
            first_old: |count| state.first_old(count),
            members: || state.members(),
        };
        let spec = &state.record.spec;
        match (action, replaced) {
            (Some(action), _) => {
                let canary = canary.map(|canary| canary.amount.of(spec.instances()));
                deploy::advance(action, canary, spec, instances)
            }
            (None, _) if state.record.deleted => Directive::done(),
            (None, Some(replaced)) => deploy::keep_count_before(replaced, spec, instances),
            (None, None) => deploy::keep_count(spec, instances),
        }
    }

    /// Limits the actions to those of one turn. Returns whether others remain.
    fn limit_to_turn(&mut self, id: &SpecId, directive: &mut Directive<InstanceId>) -> bool {
        let actions = |directive: &Directive<InstanceId>| {
            let removed = directive.decommission.len();
            (directive.start, removed, directive.restart.len())
        };
        let all = actions(directive);
        directive.start = directive.start.min(MAX_ACTIONS);
        directive.restart.truncate(MAX_ACTIONS as usize);
        directive.decommission.truncate(MAX_ACTIONS as usize);
        if let Some(state) = self.specs.get_mut(id) {
            state.take_selected(&directive.decommission);
        }
        actions(directive) != all
    }

    /// Removes, restarts and starts instances. `replaced` is the definition of new ones, if it is not
    /// the current one.
    fn execute_directive(&mut self, id: &SpecId, directive: &Directive<InstanceId>, replaced: Option<&Spec>) {
        for instance in &directive.decommission {
            self.decommission(id, instance);
        }
        for instance in &directive.restart {
            self.restart_in_place(id, instance);
        }
        let Some(state) = self.specs.get_mut(id) else {
            return;
        };
        let version = replaced.unwrap_or(&state.record.spec).version();
        let mut requests = Vec::new();
        for _ in 0..directive.start {
            let instance = Instance::new(id, version, Moment::now());
            requests.push(state.task_request(&instance));
            state.insert_instance(instance);
        }
        self.scheduler.submit(requests);
    }

    /// Stores the progress of all deployments whose steps are done, and continues them. Returns
    /// false if the store failed.
    async fn next_steps(&mut self) -> bool {
        let finished = self.deployments.take_finished();
        let mut history = self.definitions.history.clone();
        let stored = self.store_progress(&finished, &mut history).await;
        if let Err(error) = stored {
            tracing::warn!(
                deployments = finished.len(),
                error = error_chain(&error),
                "storing the progress of deployments failed; retrying"
            );
            self.deployments.put_back_finished(&finished);
            return false;
        }
        self.definitions.history = history;
        for deployment in finished {
            self.next_step(&deployment);
        }
        true
    }

    async fn store_progress(
        &mut self,
        finished: &[Arc<Deployment>],
        history: &mut History,
    ) -> typed::Result<()> {
        for changes in self.progress_changes(finished, history)? {
            self.commit(changes).await?;
        }
        Ok(())
    }

    /// The changes of the store after the current steps of these deployments, in batches that every
    /// store accepts. A deployment ends after its apps are removed, and a repeated removal changes
    /// nothing, so the work can be interrupted between two batches.
    fn progress_changes(
        &self,
        finished: &[Arc<Deployment>],
        history: &mut History,
    ) -> typed::Result<Vec<Changes>> {
        let mut batches = Vec::new();
        let mut removed = BTreeSet::new();
        for app in finished.iter().flat_map(|deployment| removed_specs(deployment)) {
            let mut changes = Changes::default();
            changes.delete_spec(app);
            let versions = self.specs.get(app).map(|state| state.record.versions());
            for version in versions.into_iter().flatten() {
                if !history.refers_to(app, version) {
                    changes.delete_version(app, version);
                }
            }
            changes.append_to(&mut batches, MAX_CHANGES);
            removed.insert(app);
        }
        let ending = |deployment: &Deployment| deployment.current + 1 >= deployment.steps.len();
        for deployment in finished {
            let mut changes = Changes::default();
            if ending(deployment) {
                changes.delete_deployment(&deployment.id);
                for (id, version) in history.release(&deployment.change) {
                    if removed.contains(&id) {
                        changes.delete_version(&id, version);
                    } else {
                        self.delete_version_if_unused(&mut changes, &id, version);
                    }
                }
            } else {
                // The step is stored, so that a restarted daemon does not report it again.
                changes.put_step(&deployment.id, deployment.current + 1)?;
            }
            changes.append_to(&mut batches, MAX_CHANGES);
        }
        Ok(batches)
    }

    /// Deletes a past definition that no change refers to, unless it is one of its app's versions.
    pub(super) fn delete_version_if_unused(&self, changes: &mut Changes, id: &SpecId, version: Moment) {
        let kept = self.specs.get(id).map(|state| state.record.versions());
        if !kept.into_iter().flatten().any(|kept| kept == version) {
            changes.delete_version(id, version);
        }
    }

    /// Begins the next step after a completed and stored one, or ends the deployment.
    fn next_step(&mut self, deployment: &Deployment) {
        for app in removed_specs(deployment) {
            if let Some(mut state) = self.specs.remove(app) {
                for moved in state.take_moved() {
                    self.publisher.next.places.change(app, &moved);
                }
            }
            self.publisher.changed(app);
            self.publisher.event(shapes::app_terminated(app));
        }
        if deployment.step().is_some() {
            let kind = "deployment_step_success";
            self.publisher
                .event(shapes::deployment_step(kind, deployment, self.settings.plan_form));
        }
        if deployment.current + 1 >= deployment.steps.len() {
            self.publisher.event(shapes::deployment_ended(
                deployment,
                self.settings.plan_form,
                None,
            ));
            self.end_deployment(&deployment.id, DeploymentEnd::Succeeded);
            return;
        }
        let next = Deployment {
            current: deployment.current + 1,
            ..deployment.clone()
        };
        self.publisher.event(shapes::deployment_step(
            "deployment_info",
            &next,
            self.settings.plan_form,
        ));
        let running = self.deployments.begin_next_step(next);
        self.reconcile_queue.extend(running.unfinished.keys().cloned());
    }
}

/// The number of instances that a directive starts, removes and restarts.
fn actions_of(directive: &Directive<InstanceId>) -> usize {
    directive.start as usize + directive.decommission.len() + directive.restart.len()
}

/// The apps and pods that the current step removes.
fn removed_specs(deployment: &Deployment) -> impl Iterator<Item = &SpecId> {
    let actions = deployment.step().into_iter().flat_map(|step| &step.actions);
    actions
        .filter(|action| action.kind == ActionKind::Stop)
        .map(|action| &action.id)
}
