//! Requests that are stored together.
//!
//! A request is prepared on the definitions as the requests before it leave them, without any
//! effect. All prepared requests are committed at once; then each takes effect, in order. If the
//! commit fails, all of them are rejected and nothing has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use transom_common::error_chain;
use transom_framework::ActorError;
use transom_replicas::{Condition, LaunchBackoff};

use super::Core;
use super::app_state::AppState;
use super::command::{AppEdit, Command, Edit, Options, Origin, Refusal, Written};
use super::history::History;
use super::persist::{AppRecord, Changes};
use crate::bus::shapes;
use crate::config::OnDeadline;
use crate::deploy::Deployment;
use crate::ids::{AppId, GroupId, InstanceId};
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::{Edited, EditedApp, EditedGroup};

/// Sends a reply; called once the change is visible.
pub(super) type Respond = Box<dyn FnOnce(Result<Written, Refusal>) + Send + Sync>;

/// A change of definitions that a client asks for.
pub(super) struct Request {
    pub(super) edit: Edit,
    pub(super) options: Options,
    /// The client in `api_post_event`; `None` for changes that post none.
    pub(super) origin: Option<Origin>,
    /// Instances that are removed first.
    pub(super) sentenced: Vec<(AppId, InstanceId)>,
    /// Why it cancels deployments, if nobody asks for it.
    pub(super) reason: Option<String>,
}

/// Prepared requests, and the definitions after them.
pub(super) struct Batch {
    pub(super) tree: Tree,
    pub(super) history: History,
    pub(super) changes: Changes,
    pub(super) prepared: Vec<(Prepared, Respond)>,
    /// The apps that they change.
    pub(super) apps: BTreeSet<AppId>,
}

/// A validated and planned change.
pub(super) struct Prepared {
    pub(super) request: Rest,
    pub(super) apps: Vec<EditedApp>,
    pub(super) groups: Vec<EditedGroup>,
    /// The records of the changed apps.
    pub(super) records: Vec<AppRecord>,
    pub(super) tree: Tree,
    pub(super) deployment: Deployment,
    /// Deployments that it cancels.
    pub(super) cancels: Vec<String>,
    /// Whether the app or group is new.
    pub(super) created: bool,
}

/// The part of a request that does not change definitions.
#[derive(Default)]
pub(super) struct Rest {
    pub(super) origin: Option<Origin>,
    pub(super) sentenced: Vec<(AppId, InstanceId)>,
    pub(super) reason: Option<String>,
}

/// The definitions after a request.
pub(super) struct Outcome {
    pub(super) edited: Edited,
    /// The group of which events tell that it was changed.
    pub(super) group: GroupId,
    pub(super) created: bool,
}

impl Core {
    /// Carries out the requests of a turn, in order.
    pub(super) async fn requests(&mut self, commands: Vec<Command>) {
        let mut batch = self.batch();
        for command in commands {
            // A client that has disconnected changes nothing.
            match command {
                Command::Write {
                    edit,
                    options,
                    origin,
                    reply,
                } => {
                    let origin = Some(origin).filter(|_| posts(&edit));
                    let request = Request {
                        edit,
                        options,
                        origin,
                        sentenced: Vec::new(),
                        reason: None,
                    };
                    let respond = Box::new(move |outcome| drop(reply.send(outcome)));
                    self.add(&mut batch, request, respond).await;
                }
                Command::Plan { edit, reply } => {
                    let options = Options {
                        force: true,
                        ..Options::default()
                    };
                    let planned = self.prepare(&batch, edit, options).await;
                    let steps = planned.map(|prepared| prepared.deployment.steps);
                    self.replies.push(Box::new(move || drop(reply.send(steps))));
                }
                Command::Kill {
                    app,
                    which,
                    manner,
                    reply,
                } => {
                    self.flush(&mut batch).await;
                    let meant = self.meant(&app, &which);
                    self.kill(&mut batch, meant, manner, reply).await;
                }
                Command::KillGiven { tasks, manner, reply } => {
                    self.flush(&mut batch).await;
                    let meant = Ok(self.given(&tasks));
                    self.kill(&mut batch, meant, manner, reply).await;
                }
                Command::ResetDelay { app, reply } => {
                    let outcome = self.reset_delay(&app);
                    self.replies.push(Box::new(move || drop(reply.send(outcome))));
                }
                Command::Cancel { deployment, reply } => {
                    self.flush(&mut batch).await;
                    let outcome = self.cancel(&deployment, "The deployment was cancelled.").await;
                    batch = self.batch();
                    self.replies.push(Box::new(move || drop(reply.send(outcome))));
                }
            }
        }
        self.flush(&mut batch).await;
    }

    /// Gives up the deployments that are not done at their deadlines.
    pub(super) async fn expire(&mut self) {
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
            if deadline.on_deadline == OnDeadline::Fail {
                if let Err(refusal) = self.cancel(&deployment.id, &reason).await {
                    not_expired(&deployment.id, &refusal);
                }
                continue;
            }
            let id = deployment.id.clone();
            let request = Request {
                edit: Edit::Revert(deployment.id.clone()),
                options: Options {
                    force: true,
                    ..Options::default()
                },
                origin: None,
                sentenced: Vec::new(),
                reason: Some(reason),
            };
            let respond = move |outcome: Result<Written, Refusal>| {
                if let Err(refusal) = outcome {
                    not_expired(&id, &refusal);
                }
            };
            let mut batch = self.batch();
            self.add(&mut batch, request, Box::new(respond)).await;
            self.flush(&mut batch).await;
        }
    }

    fn batch(&self) -> Batch {
        Batch {
            tree: self.tree.clone(),
            history: self.history.clone(),
            changes: Changes::default(),
            prepared: Vec::new(),
            apps: BTreeSet::new(),
        }
    }

    /// Adds a request to the batch, or answers it at once if it is rejected.
    pub(super) async fn add(&mut self, batch: &mut Batch, request: Request, respond: Respond) {
        let Request {
            edit,
            options,
            origin,
            sentenced,
            reason,
        } = request;
        // Only requests about different apps share a batch: each sees what the one before did.
        let alone = match &edit {
            Edit::App { id, .. } => batch.apps.contains(id) || options.force && self.locks.contains_key(id),
            _ => true,
        };
        if alone {
            self.flush(batch).await;
        }
        let group = group_of(&edit, self);
        let added = match self.prepare(batch, edit, options).await {
            Ok(mut prepared) => {
                prepared.request = Rest {
                    origin,
                    sentenced,
                    reason,
                };
                self.store(batch, prepared)
            }
            Err(refusal) => Err(refusal),
        };
        match added {
            Ok(prepared) => batch.prepared.push((prepared, respond)),
            Err(refusal) => {
                let (version, reason) = (self.new_version(), refusal.to_string());
                self.drafts
                    .push(shapes::group_changed(&group, version, Some(&reason)));
                self.replies.push(Box::new(move || respond(Err(refusal))));
            }
        }
    }

    /// Commits the batch and carries out its requests; then it is empty.
    pub(super) async fn flush(&mut self, batch: &mut Batch) {
        let next = Batch {
            changes: Changes::default(),
            prepared: Vec::new(),
            apps: BTreeSet::new(),
            tree: batch.tree.clone(),
            history: batch.history.clone(),
        };
        let done = std::mem::replace(batch, next);
        if done.prepared.is_empty() {
            return;
        }
        match self.commit(done.changes).await {
            Ok(()) => {
                (self.tree, self.history) = (done.tree, done.history);
                for (prepared, respond) in done.prepared {
                    let written = self.begin(prepared);
                    self.replies.push(Box::new(move || respond(Ok(written))));
                }
            }
            Err(error) => {
                *batch = self.batch();
                let error = Arc::new(error);
                for (_, respond) in done.prepared {
                    let refusal = Refusal::Actor(ActorError::Store(Arc::clone(&error)));
                    self.replies.push(Box::new(move || respond(Err(refusal))));
                }
            }
        }
    }

    /// Starts the deployment of a stored change.
    fn begin(&mut self, prepared: Prepared) -> Written {
        for cancelled in &prepared.cancels {
            let reason = prepared.request.reason.as_deref();
            let forced = "The deployment was cancelled by a forced deployment.";
            self.cancelled(cancelled, reason.unwrap_or(forced));
        }
        for record in prepared.records {
            self.take_over(record);
        }
        let deployment = prepared.deployment;
        let app = match prepared.apps.as_slice() {
            [only] => only.after.clone().or_else(|| only.before.clone()),
            _ => None,
        };
        if let Some(origin) = &prepared.request.origin {
            for edited in &prepared.apps {
                if let Some(shown) = edited.after.as_ref().or(edited.before.as_ref()) {
                    self.drafts
                        .push(shapes::api_post(&origin.client, &origin.uri, shown));
                }
            }
        }
        let (group, version) = (&deployment.change.group, deployment.version);
        self.drafts.push(shapes::group_changed(group, version, None));
        let written = Written {
            deployment: deployment.id.clone(),
            version,
            app,
            created: prepared.created,
        };
        self.announce(&deployment);
        if deployment.steps.is_empty() {
            self.pending.extend(deployment.apps().cloned());
        } else {
            self.run(deployment);
        }
        for (app, instance) in &prepared.request.sentenced {
            self.decommission(app, instance);
        }
        written
    }

    /// The events of a deployment that begins. Steps before its current one have nothing to do.
    fn announce(&mut self, deployment: &Deployment) {
        if deployment.steps.is_empty() {
            return self
                .drafts
                .push(shapes::deployment_ended(deployment, self.plan_form, None));
        }
        for current in 0..=deployment.current {
            let at = Deployment {
                current,
                ..deployment.clone()
            };
            let mut kinds = vec!["deployment_info"];
            if current < deployment.current {
                kinds.push("deployment_step_success");
            }
            for kind in kinds {
                self.drafts
                    .push(shapes::deployment_step(kind, &at, self.plan_form));
            }
        }
    }

    /// Applies the stored definition of an app.
    fn take_over(&mut self, record: AppRecord) {
        let id = record.app.id.clone();
        self.dirty.insert(id.clone());
        self.pending.insert(id.clone());
        let app = Arc::clone(&record.app);
        let Some(state) = self.apps.get_mut(&id) else {
            self.apps.insert(id.clone(), AppState::new(record, &self.launch));
            return self.definition_changed(&id, None, Some(&app));
        };
        if state.record.app.config_version() != app.config_version() {
            state.backoff = LaunchBackoff::default();
        }
        let (before, existed) = (Arc::clone(&state.record.app), !state.record.gone);
        let exists = !record.gone;
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
            if let Some(known) = state.instance_mut(&instance) {
                known.replica.version = app.version;
            }
            if let Some(known) = state.instances.get(&instance) {
                requests.push(state.wanted(known));
            }
        }
        self.scheduler.submit(requests);
        let (before, after) = (Some(&*before), Some(&*app));
        self.definition_changed(&id, before.filter(|_| existed), after.filter(|_| exists));
    }

    /// Stops a deployment in its current step; instances are left unchanged.
    fn cancelled(&mut self, id: &str, reason: &str) {
        if let Some(deployment) = self.end(id) {
            let kind = "deployment_step_failure";
            self.drafts
                .push(shapes::deployment_step(kind, &deployment, self.plan_form));
            let ended = shapes::deployment_ended(&deployment, self.plan_form, Some(reason));
            self.drafts.push(ended);
        }
    }

    async fn cancel(&mut self, deployment: &str, reason: &str) -> Result<(), Refusal> {
        let running = self.deployments.get(deployment);
        let running = running.ok_or_else(|| Refusal::NoDeployment(deployment.to_owned()))?;
        let mut changes = Changes::default();
        changes.delete_deployment(deployment);
        let (mut history, mut tree) = (self.history.clone(), self.tree.clone());
        for (id, version) in history.release(&running.deployment.change) {
            self.delete_unused(&mut changes, &id, version);
        }
        let revived = self.revived(&[deployment.to_owned()], &[]);
        for record in &revived {
            changes.put_app(record)?;
            tree.insert(Arc::clone(&record.app));
        }
        self.commit(changes).await?;
        (self.history, self.tree) = (history, tree);
        for record in revived {
            self.take_over(record);
        }
        self.cancelled(deployment, reason);
        Ok(())
    }
}

fn not_expired(deployment: &str, refusal: &Refusal) {
    tracing::warn!(
        deployment,
        error = error_chain(refusal),
        "giving up a deployment at its deadline failed; retrying"
    );
}

/// A restart and a revert are no changes of an app's resource, and those of groups post no event.
fn posts(edit: &Edit) -> bool {
    match edit {
        Edit::App { edit, .. } => !matches!(edit, AppEdit::Restart),
        Edit::Apps { .. } => true,
        Edit::Group { .. } | Edit::Revert(_) => false,
    }
}

/// The group of which events tell that its change failed.
fn group_of(edit: &Edit, core: &Core) -> GroupId {
    match edit {
        Edit::App { id, .. } => id.group(),
        Edit::Apps { .. } => GroupId::root(),
        Edit::Group { id, .. } => id.clone(),
        Edit::Revert(deployment) => core
            .deployments
            .get(deployment)
            .map_or_else(GroupId::root, |running| running.deployment.change.group.clone()),
    }
}
