//! Carries out the requests of the service.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_common::ambient;

use super::Actor;
use crate::api::request_queue::{Kill, LastStep, Requests};
use crate::store::transition;
use crate::subscription::roles;
use crate::{Build, DiskKind, Error, Event, Result, RunSpec, TaskRecord, TaskRequest};

impl Actor {
    /// Carries out all added requests. A purge that the store does not accept is kept, together
    /// with the later steps of its task, and repeated.
    pub(super) async fn carry_out_requests(&mut self) {
        let added = self.shared.requests.take();
        self.requests.append(added);
        if self.requests.is_empty() {
            return;
        }
        for role in std::mem::take(&mut self.requests.roles) {
            match roles::invalid_name(&role) {
                Some(wrong) => tracing::error!(role, wrong, "invalid role ignored"),
                None => self.add_role(&role),
            }
        }
        for key in std::mem::take(&mut self.requests.releases) {
            self.release_reservation(&key);
        }
        self.explanations.append(&mut self.requests.explanations);
        for (id, choice) in std::mem::take(&mut self.requests.kill_choices) {
            self.kill_choices.retain(|queued| queued.spec.id != id);
            self.kill_choices.push_back(choice);
        }
        let (mut purges, mut after_purge) = (Vec::new(), Requests::default());
        for (task, steps) in std::mem::take(&mut self.requests) {
            self.take_due_status_updates().await;
            if let Some(kill) = steps.kill_before_purge {
                self.kill(&task, kill);
            }
            if steps.purge && self.may_purge(&task) {
                after_purge.purge(&task);
                purges.push(task.clone());
            }
            match steps.last {
                Some(last) if after_purge.contains(&task) => after_purge.add(&task, last),
                Some(LastStep::Submit(request)) => self.submit(request),
                Some(LastStep::Kill(kill)) => self.kill(&task, kill),
                None => {}
            }
        }
        if purges.is_empty() {
            return;
        }
        if self.store_retry.is_backing_off(Instant::now()) || !self.purge(&purges).await {
            self.requests = after_purge;
            return;
        }
        for (task, steps) in after_purge {
            match steps.last {
                Some(LastStep::Submit(request)) => self.submit(request),
                Some(LastStep::Kill(kill)) => self.kill(&task, kill),
                None => {}
            }
        }
    }

    fn add_role(&mut self, role: &str) {
        if self.roles.add(role) {
            tracing::info!(role, "adding a role to the framework");
        }
    }

    fn submit(&mut self, request: TaskRequest) {
        let members = match members(&request) {
            Ok(members) => members,
            Err(error) => return self.reject(request.id, error),
        };
        let is_known = members.iter().any(|task| self.ledger.get(task).is_some());
        if is_known || self.ledger.group(&request.id).is_some() {
            tracing::debug!(task = %request.id, "submitted task is already in the store; ignored");
            return;
        }
        if let Some(role) = &request.spec.role {
            if let Some(wrong) = roles::invalid_name(role) {
                let (role, task) = (role.clone(), request.id);
                return self.reject(task.clone(), Error::BadRole { task, role, wrong });
            }
            self.add_role(&role.clone());
        }
        if let Some(wrong) = volumes_error(&request.spec, &self.default_roles) {
            let task = request.id;
            return self.reject(task.clone(), Error::BadVolumes { task, wrong });
        }
        self.queue.push(request, ambient::now());
        self.offer_demand.request_revive_now();
        self.pending_changed = true;
    }

    /// Kills a task with its group, or a group; a pending one is dropped.
    fn kill(&mut self, id: &TaskId, kill: Kill) {
        if self.queue.remove(id).is_some() {
            return self.never_launched(id.clone());
        }
        let record = self.ledger.get(id);
        let group = match record {
            Some(record) => record.group.as_ref().map(|group| &group.id),
            None => Some(id),
        };
        let members = group.and_then(|group| self.ledger.group(group));
        if record.is_none() && members.is_none() && kill.replaces_submission {
            return self.never_launched(id.clone());
        }
        for task in members.map_or_else(|| vec![id.clone()], |tasks| tasks.iter().cloned().collect()) {
            self.kill_task(task, kill);
        }
    }

    fn kill_task(&mut self, task: TaskId, kill: Kill) {
        let now = Instant::now();
        let Some(record) = self.ledger.get(&task) else {
            self.orphans.entry(task.clone()).or_default().grace = kill.grace;
            if !self.kills.contains(&task) {
                self.kills.schedule(task, now);
            }
            return;
        };
        if transition::has_ended(&record.state) {
            return;
        }
        // A terminal task that may still be running is marked too, in case it reports again.
        if !record.is_terminal() {
            self.kills.schedule(task, now);
        }
        let killed = TaskRecord {
            killing: true,
            kill_grace: kill.grace,
            restarting: kill.restarting,
            ..TaskRecord::clone(record)
        };
        self.ledger.mark_dirty(killed);
    }

    /// Drops a pending task for good. The service is notified when the published snapshot no longer
    /// contains it.
    pub(super) fn never_launched(&mut self, task: TaskId) {
        self.pending_changed = true;
        self.after_publish.push(Event::NeverLaunched(task));
    }

    fn reject(&mut self, task: TaskId, reason: Error) {
        let reason = Arc::new(reason);
        self.after_publish.push(Event::Rejected { task, reason });
    }

    /// Whether a task, or all tasks of a group, are terminal or unknown.
    fn may_purge(&mut self, id: &TaskId) -> bool {
        let is_alive = |task: &&TaskId| self.ledger.get(task).is_some_and(|record| !record.is_terminal());
        let alive = match self.ledger.group(id) {
            Some(members) => members.iter().find(is_alive).cloned(),
            None => is_alive(&id).then(|| id.clone()),
        };
        let Some(task) = alive else { return true };
        self.reject(id.clone(), Error::NotTerminal { task });
        false
    }

    /// Deletes records. Returns false if the store failed; the purge is then repeated.
    async fn purge(&mut self, ids: &[TaskId]) -> bool {
        let mut tasks = Vec::with_capacity(ids.len());
        for id in ids {
            match self.ledger.group(id) {
                Some(members) => tasks.extend(members.iter().cloned()),
                None => tasks.push(id.clone()),
            }
        }
        match self.ledger.remove(&tasks).await {
            Ok(has_deleted) => {
                if has_deleted {
                    self.store_succeeded();
                }
                true
            }
            Err(error) => {
                self.store_failed(&error);
                false
            }
        }
    }
}

/// The reason why no cluster can provide the volumes of a run spec; `None` if the volumes are valid.
fn volumes_error(spec: &RunSpec, default_roles: &[String]) -> Option<&'static str> {
    if spec.volumes.is_empty() {
        return None;
    }
    if spec.reservation_role(default_roles) == "*" {
        return Some("has volumes, but its role is `*`, for which nothing can be reserved");
    }
    let paths: BTreeSet<&str> = spec
        .volumes
        .iter()
        .map(|volume| volume.container_path.as_str())
        .collect();
    if paths.len() < spec.volumes.len() || paths.contains("") {
        return Some("has two volumes with the same path, or one without a path");
    }
    spec.volumes.iter().find_map(|volume| match volume.disk {
        _ if volume.size == 0 => Some("has a volume without a size"),
        DiskKind::Root if !volume.constraints.is_empty() => {
            Some("has path constraints for a volume on the root disk")
        }
        DiskKind::Mount {
            max_size: Some(most), ..
        } if most < volume.size => Some("has a volume whose maximum size is less than its size"),
        _ => None,
    })
}

/// The ids of the tasks in a request.
fn members(request: &TaskRequest) -> Result<Vec<TaskId>> {
    let Build::Group(group) = &request.spec.build else {
        return Ok(vec![request.id.clone()]);
    };
    let group_error = |wrong| Error::BadGroup {
        group: request.id.clone(),
        wrong,
    };
    let count = group.members.len();
    let ids: Vec<TaskId> = (0..count)
        .map(|member| group.build.task_id(&request.id, member))
        .collect();
    if ids.is_empty() {
        return Err(group_error("has no members"));
    }
    if ids.iter().collect::<BTreeSet<_>>().len() < count {
        return Err(group_error("gives two of its members the same task id"));
    }
    Ok(ids)
}
