//! Requests that are stored together.
//!
//! A request is prepared against the definitions that result from the requests before it, without
//! any effect. All prepared requests are committed in one write of the store; then each takes
//! effect, in order. If the commit fails, all of them are rejected and nothing has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::Instrument;
use transom_common::error_chain;
use transom_common::trace::{TARGET, TraceContext};
use transom_framework::ActorError;
use transom_replicas::{Condition, LaunchBackoff};

use super::Core;
use super::command::{AppEdit, Command, Edit, Options, Origin, Rejection, StartedDeployment};
use super::metrics::DeploymentEnd;
use super::persist::{Changes, SpecRecord};
use super::planning::{Definitions, PlannedChange, PreparedChange};
use super::spec_state::SpecState;
use crate::bus::{Draft, shapes};
use crate::deploy::Deployment;
use crate::ids::{GroupId, InstanceId, SpecId};
use crate::model::Spec;
use crate::settings::OnDeadline;
use crate::time::Moment;
use crate::tree::edit::EditedSpec;

/// The reasons why deployments end because of a client's request.
const CANCELLED: DeploymentEnd<'static> = DeploymentEnd::Cancelled("The deployment was cancelled.");
const FORCED: DeploymentEnd<'static> =
    DeploymentEnd::Cancelled("The deployment was cancelled by a forced deployment.");

/// Sends a reply; called once the change is visible.
pub(super) type Respond = Box<dyn FnOnce(Result<StartedDeployment, Rejection>) + Send + Sync>;

/// A client's change of definitions.
pub(super) struct Request {
    pub(super) edit: Edit,
    pub(super) options: Options,
    /// The client in `api_post_event`; `None` for changes that post none.
    pub(super) origin: Option<Origin>,
    /// Instances that are removed before the deployment begins.
    pub(super) removals: Vec<(SpecId, InstanceId)>,
    /// The trace context of the client's request.
    pub(super) trace: TraceContext,
}

/// Prepared requests, and the definitions that result from them.
pub(super) struct Batch {
    pub(super) definitions: Definitions,
    pub(super) changes: Changes,
    pub(super) prepared: Vec<AcceptedRequest>,
    /// The apps and pods that they change.
    pub(super) ids: BTreeSet<SpecId>,
}

/// A prepared request with everything that is needed to carry it out once it is stored.
pub(super) struct AcceptedRequest {
    pub(super) prepared: PreparedChange,
    /// The events of the deployment's beginning.
    events: Vec<Draft>,
    origin: Option<Origin>,
    removals: Vec<(SpecId, InstanceId)>,
    respond: Respond,
}

impl Batch {
    /// The number of deployments that run once the batch is stored.
    fn deployments(&self) -> usize {
        let deployments = self.prepared.iter().map(|accepted| &accepted.prepared.deployment);
        deployments
            .filter(|deployment| !deployment.steps.is_empty())
            .count()
    }
}

impl Core {
    /// Carries out the requests of a turn, in order.
    pub(super) async fn handle_requests(&mut self, commands: Vec<Command>) {
        let mut batch = self.new_batch();
        for command in commands {
            // Replies to clients that have disconnected are dropped; their requests take effect.
            match command {
                Command::Write {
                    edit,
                    options,
                    origin,
                    trace,
                    reply,
                } => {
                    let origin = Some(origin).filter(|_| posts_api_events(&edit));
                    let request = Request {
                        edit,
                        options,
                        origin,
                        removals: Vec::new(),
                        trace,
                    };
                    let respond = Box::new(move |outcome| drop(reply.send(outcome)));
                    self.add_to_batch(&mut batch, request, respond).await;
                }
                Command::Plan { edit, reply } => {
                    let options = Options {
                        force: true,
                        dry_run: true,
                        ..Options::default()
                    };
                    let trace = TraceContext::default();
                    let planned = self.planned(&batch, edit, options, trace).await;
                    let steps = planned.map(|planned| planned.prepared.deployment.steps.to_vec());
                    self.publisher.reply(move || drop(reply.send(steps)));
                }
                Command::Kill {
                    id,
                    selection,
                    options,
                    reply,
                } => {
                    self.commit_batch(&mut batch).await;
                    let selected = self.select(&id, &selection);
                    self.kill(&mut batch, selected, options, reply).await;
                }
                Command::KillTasks {
                    tasks,
                    options,
                    reply,
                } => {
                    self.commit_batch(&mut batch).await;
                    let selected = Ok(self.select_tasks(&tasks));
                    self.kill(&mut batch, selected, options, reply).await;
                }
                Command::ResetDelay { id, reply } => {
                    let outcome = self.reset_delay(&id);
                    self.publisher.reply(move || drop(reply.send(outcome)));
                }
                Command::Continue { deployment, reply } => {
                    let outcome = self.continue_canary(&deployment).await;
                    self.publisher.reply(move || drop(reply.send(outcome)));
                }
                Command::Cancel { deployment, reply } => {
                    self.commit_batch(&mut batch).await;
                    let outcome = self.cancel_deployment(&deployment, CANCELLED).await;
                    batch = self.new_batch();
                    self.publisher.reply(move || drop(reply.send(outcome)));
                }
                Command::RunSpec { id, reply } => {
                    let state = self.specs.get(&id);
                    let run_spec = state.map(|state| Arc::clone(&state.run_spec));
                    drop(reply.send(run_spec.ok_or(Rejection::NoApp(id))));
                }
                Command::Probes { task, reply } => drop(reply.send(self.probes_of(&task))),
            }
        }
        self.commit_batch(&mut batch).await;
    }

    /// Reverts or stops the deployments that are not done at their deadlines.
    pub(super) async fn expire_deployments(&mut self) {
        let now = Moment::now();
        let due: Vec<Arc<Deployment>> = self
            .deployments
            .values()
            .map(|running| &running.deployment)
            .filter(|deployment| deployment.due().is_some_and(|due| due <= now))
            .cloned()
            .collect();
        for deployment in due {
            let Some(deadline) = deployment.deadline else {
                continue;
            };
            let seconds = deadline.seconds;
            let reason = format!("The deployment was not done within {seconds} s, its deadline.");
            tracing::warn!(
                deployment = deployment.id,
                seconds,
                "deployment missed its deadline"
            );
            let ended = match deadline.on_deadline {
                OnDeadline::Fail => {
                    self.cancel_deployment(&deployment.id, DeploymentEnd::Failed(&reason))
                        .await
                }
                OnDeadline::Rollback => self.roll_back(&deployment.id, reason).await,
            };
            if let Err(rejection) = ended {
                tracing::warn!(
                    deployment = deployment.id,
                    error = error_chain(&rejection),
                    "ending a deployment at its deadline failed; retrying"
                );
            }
        }
    }

    /// Reverts a deployment, or stops it if that is not possible.
    pub(super) async fn roll_back(&mut self, deployment: &str, reason: String) -> Result<(), Rejection> {
        let batch = self.new_batch();
        let options = Options {
            force: true,
            ..Options::default()
        };
        let edit = Edit::Revert(deployment.to_owned());
        let trace = TraceContext::default();
        let planned = match self.planned(&batch, edit, options, trace).await {
            Ok(planned) => planned,
            // The store is unavailable, so the caller tries again later.
            Err(rejection @ Rejection::Actor(_)) => return Err(rejection),
            Err(rejection) => {
                tracing::warn!(
                    deployment,
                    error = error_chain(&rejection),
                    "deployment cannot be reverted; stopped"
                );
                return self
                    .cancel_deployment(deployment, DeploymentEnd::Failed(&reason))
                    .await;
            }
        };
        self.commit(planned.changes).await?;
        self.definitions = planned.after;
        self.begin_deployment(
            planned.prepared,
            planned.events,
            None,
            &[],
            DeploymentEnd::Failed(&reason),
        );
        Ok(())
    }

    fn new_batch(&self) -> Batch {
        Batch {
            definitions: self.definitions.clone(),
            changes: Changes::default(),
            prepared: Vec::new(),
            ids: BTreeSet::new(),
        }
    }

    /// Adds a request to the batch, or rejects it immediately.
    pub(super) async fn add_to_batch(&mut self, batch: &mut Batch, request: Request, respond: Respond) {
        let Request {
            edit,
            options,
            origin,
            removals,
            trace,
        } = request;
        // Requests share a batch only if they change different apps and pods. Any other request is
        // prepared after the batch is stored, because it depends on the result.
        let needs_own_batch = match &edit {
            Edit::App { id, .. } | Edit::Pod { id, .. } => {
                batch.ids.contains(id) || options.force && self.deployments.lock(id).is_some()
            }
            _ => true,
        };
        if needs_own_batch {
            self.commit_batch(batch).await;
        }
        let group = group_of(&edit, self);
        let span = trace.child(|| {
            let group = tracing::field::display(&group);
            tracing::info_span!(target: TARGET, "edit", group, trace_id = tracing::field::Empty)
        });
        match self.planned(batch, edit, options, trace).instrument(span).await {
            Ok(PlannedChange {
                prepared,
                changes,
                after,
                events,
            }) => {
                let specs = prepared.deployment.change.specs.iter();
                batch.ids.extend(specs.map(|spec| spec.id.clone()));
                batch.changes.extend(changes);
                batch.definitions = after;
                batch.prepared.push(AcceptedRequest {
                    prepared,
                    events,
                    origin,
                    removals,
                    respond,
                });
            }
            Err(rejection) => {
                let (version, reason) = (self.new_version(), rejection.to_string());
                self.publisher
                    .event(shapes::group_changed(&group, version, Some(&reason)));
                self.publisher.reply(move || respond(Err(rejection)));
            }
        }
    }

    /// Plans a change from the definitions after the requests of the batch, in a task of its own if it
    /// is large.
    async fn planned(
        &mut self,
        batch: &Batch,
        edit: Edit,
        options: Options,
        trace: TraceContext,
    ) -> Result<PlannedChange, Rejection> {
        let (planner, version) = (self.planner(batch.deployments()), self.new_version());
        let before = batch.definitions.clone();
        let is_large = planner.is_large(&before, &edit);
        let work = async move { planner.plan_change(&before, edit, options, version, trace).await };
        if !is_large {
            return work.await;
        }
        match self.meanwhile(tokio::spawn(work.in_current_span())).await {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The daemon ends.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Commits the batch and carries out its requests; then it is empty.
    pub(super) async fn commit_batch(&mut self, batch: &mut Batch) {
        let next = Batch {
            changes: Changes::default(),
            prepared: Vec::new(),
            ids: BTreeSet::new(),
            definitions: batch.definitions.clone(),
        };
        let done = std::mem::replace(batch, next);
        if done.prepared.is_empty() {
            return;
        }
        match self.commit(done.changes).await {
            Ok(()) => {
                self.definitions = done.definitions;
                for accepted in done.prepared {
                    let (origin, respond) = (accepted.origin, accepted.respond);
                    let started = self.begin_deployment(
                        accepted.prepared,
                        accepted.events,
                        origin.as_ref(),
                        &accepted.removals,
                        FORCED,
                    );
                    self.publisher.reply(move || respond(Ok(started)));
                }
            }
            Err(error) => {
                *batch = self.new_batch();
                let error = Arc::new(error);
                for AcceptedRequest { respond, .. } in done.prepared {
                    let rejection = Rejection::Actor(ActorError::Store(Arc::clone(&error)));
                    self.publisher.reply(move || respond(Err(rejection)));
                }
            }
        }
    }

    /// Starts the deployment of a stored change. `origin` is the client in `api_post_event`;
    /// `removals` are the instances to remove first; `ending` is the outcome of the deployments
    /// that it cancels.
    fn begin_deployment(
        &mut self,
        prepared: PreparedChange,
        events: Vec<Draft>,
        origin: Option<&Origin>,
        removals: &[(SpecId, InstanceId)],
        ending: DeploymentEnd<'_>,
    ) -> StartedDeployment {
        for cancelled in &prepared.cancels {
            self.stop_deployment(cancelled, ending);
        }
        for record in prepared.records {
            self.apply_record(record);
        }
        let deployment = prepared.deployment;
        let spec = match prepared.specs.as_slice() {
            [only] => only.latest().cloned(),
            _ => None,
        };
        if let Some(origin) = origin {
            self.publisher.events(
                prepared
                    .specs
                    .iter()
                    .filter_map(|edited| api_event(edited, origin)),
            );
        }
        let (group, version) = (&deployment.change.group, deployment.version);
        self.publisher.event(shapes::group_changed(group, version, None));
        let started = StartedDeployment {
            deployment: deployment.id.clone(),
            version,
            spec,
            created: prepared.created,
        };
        self.publisher.events(events);
        if deployment.steps.is_empty() {
            self.reconcile_queue.extend(deployment.specs().cloned());
        } else {
            self.run_deployment(deployment);
        }
        for (app, instance) in removals {
            self.decommission(app, instance);
        }
        started
    }

    /// Applies a stored definition to the app or pod.
    fn apply_record(&mut self, mut record: SpecRecord) {
        let id = record.spec.id().clone();
        self.publisher.changed(&id);
        self.reconcile_queue.insert(id.clone());
        let spec = record.spec.clone();
        let Some(state) = self.specs.get_mut(&id) else {
            let state = SpecState::new(record, &self.launch, &self.past_bytes);
            self.specs.insert(id.clone(), state);
            return self.handle_definition_change(&id, None, Some(&spec), &BTreeSet::new());
        };
        if state.record.spec.config_version() == spec.config_version() {
            record.failures.clone_from(&state.record.failures);
        } else {
            state.backoff = LaunchBackoff::default();
        }
        let (before, existed) = (state.record.spec.clone(), !state.record.deleted);
        let kept_before = state.current_versions.clone();
        // Tasks may have ended since the change was planned.
        record.last_failure.clone_from(&state.record.last_failure);
        record.terminations.clone_from(&state.record.terminations);
        let exists = !record.deleted;
        state.set_record(record, &self.launch);
        // Instances that are not launched yet use the new definition, unless the deployment
        // replaces them.
        let waiting: Vec<InstanceId> = state
            .instances()
            .values()
            .filter(|instance| instance.condition() == Condition::Scheduled && !state.is_outdated(instance))
            .map(|instance| instance.id.clone())
            .collect();
        let mut requests = Vec::new();
        for instance_id in waiting {
            if let Some(instance) = state.instance_mut(&instance_id) {
                instance.replica.version = spec.version();
            }
            if let Some(instance) = state.instances().get(&instance_id) {
                requests.push(state.task_request(instance));
            }
        }
        self.scheduler.submit(requests);
        let (before, after) = (Some(&before), Some(&spec));
        let (before, after) = (before.filter(|_| existed), after.filter(|_| exists));
        self.handle_definition_change(&id, before, after, &kept_before);
    }

    /// Stops a deployment in its current step; instances are left unchanged.
    fn stop_deployment(&mut self, id: &str, ending: DeploymentEnd<'_>) {
        if let Some(deployment) = self.end_deployment(id, ending) {
            let kind = "deployment_step_failure";
            self.publisher.event(shapes::deployment_step(
                kind,
                &deployment,
                self.settings.plan_form,
            ));
            let ended = shapes::deployment_ended(&deployment, self.settings.plan_form, ending.reason());
            self.publisher.event(ended);
        }
    }

    async fn cancel_deployment(
        &mut self,
        deployment: &str,
        ending: DeploymentEnd<'_>,
    ) -> Result<(), Rejection> {
        let running = self.deployments.get(deployment);
        let running = running.ok_or_else(|| Rejection::NoDeployment(deployment.to_owned()))?;
        let mut changes = Changes::default();
        changes.delete_deployment(deployment);
        let mut after = self.definitions.clone();
        for (id, version) in after.history.release(&running.deployment.change) {
            self.delete_version_if_unused(&mut changes, &id, version);
        }
        let revived = self.planner(0).revived(&[deployment.to_owned()], &[]);
        for record in &revived {
            changes.put_spec(record)?;
            after.tree.insert(record.spec.clone());
        }
        self.commit(changes).await?;
        self.definitions = after;
        for record in revived {
            self.apply_record(record);
        }
        self.stop_deployment(deployment, ending);
        Ok(())
    }
}

/// Whether a request posts events about apps and pods. A restart or a revert is not a change of an
/// app's resource, and changes of groups post no such event.
fn posts_api_events(edit: &Edit) -> bool {
    match edit {
        Edit::App { edit, .. } => !matches!(edit, AppEdit::Restart),
        Edit::Apps { .. } | Edit::Pod { .. } => true,
        Edit::Group { .. } | Edit::Revert(_) => false,
    }
}

/// The event for the request that created, updated or deleted an app or pod.
fn api_event(edited: &EditedSpec, origin: &Origin) -> Option<Draft> {
    Some(match edited.latest()? {
        Spec::App(app) => shapes::api_post(&origin.client, &origin.uri, app),
        Spec::Pod(pod) => {
            let kind = match (&edited.before, &edited.after) {
                (None, _) => "pod_created_event",
                (_, Some(_)) => "pod_updated_event",
                (_, None) => "pod_deleted_event",
            };
            shapes::pod_changed(kind, &origin.client, &origin.uri, &pod.id)
        }
    })
}

/// The group that events report if the change fails.
fn group_of(edit: &Edit, core: &Core) -> GroupId {
    match edit {
        Edit::App { id, .. } | Edit::Pod { id, .. } => id.group(),
        Edit::Apps { .. } => GroupId::root(),
        Edit::Group { id, .. } => id.clone(),
        Edit::Revert(deployment) => core
            .deployments
            .get(deployment)
            .map_or_else(GroupId::root, |running| running.deployment.change.group.clone()),
    }
}
