//! One instance of an app or pod. It has one task after another; an instance of a pod has one group
//! of tasks after another.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_cluster::v1::TaskState;
use transom_cluster::{AgentId, TaskId};
use transom_plugin_host::probe::{Failure, Outcome};
use transom_replicas::{Condition, Fitness, Member, Replica, TaskView};
use transom_scheduler::{LocalVolume, Reservation, TaskRecord};

use crate::bus::shapes::TaskFacts;
use crate::check_result::CheckResult;
use crate::health::{HealthState, NoResult};
use crate::ids::{InstanceId, SpecId};
use crate::model::Spec;
use crate::time::Moment;

/// An instance: the lifecycle of a replica, and what the service knows about its current tasks.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Its condition and current task. The version is that of the definition from which the task is
    /// launched.
    pub(crate) replica: Replica<Moment>,
    /// Its persistent volumes, once they are reserved.
    pub(crate) volumes: Arc<[LocalVolume]>,
    /// Its tasks, once they are launched: one of an app, one for each container of a pod.
    pub(crate) tasks: Vec<InstanceTask>,
    /// The results of each health check of its definition; empty without health checks.
    pub(crate) health: Vec<HealthState>,
    /// The result of its readiness check, since the first attempt.
    pub(crate) readiness: Option<Arc<Readiness>>,
    /// Since when its current task is wanted; `None` once it runs, or if an earlier leader
    /// requested it.
    wanted_since: Option<Moment>,
}

/// A launched task of an instance.
#[derive(Clone, Debug)]
pub(crate) struct InstanceTask {
    /// The scheduler's record.
    pub(crate) record: Arc<TaskRecord>,
    /// The last result of this daemon's check.
    pub(crate) check_outcome: Option<Outcome>,
    /// The attempts of this daemon's check since the last result.
    pub(crate) check_failure: Option<NoResult>,
}

/// The result of a readiness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// The name of the check.
    pub(crate) name: String,
    /// Whether the response meant that the task is ready.
    pub(crate) ready: bool,
    /// The last response, if the check shows it.
    pub(crate) response: Option<Response>,
    /// The attempts in a row that found it not ready.
    pub(crate) failures: Option<NoResult>,
}

/// A response to a readiness check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReadinessCheckHttpResponse")]
pub(crate) struct Response {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) content_type: String,
    #[serde(default)]
    pub(crate) body: String,
}

impl Response {
    /// The response in the result of a readiness check. As in upstream, an error has the status
    /// 504.
    pub(crate) fn of(result: &Result<Outcome, Failure>) -> Self {
        let failed = |cause: &str| Self {
            status: 504,
            content_type: "text/plain".to_owned(),
            body: format!("Marathon could not query URL: {cause}"),
        };
        match result {
            Ok(Outcome::Custom(document)) => serde_json::from_str(document)
                .unwrap_or_else(|_| failed("the component did not report a response")),
            // The component reports only the status.
            Ok(Outcome::Http(status)) => Self {
                status: *status,
                content_type: String::new(),
                body: String::new(),
            },
            Ok(Outcome::Tcp(_) | Outcome::Command(_)) => failed("the component did not report a response"),
            Err(failure) => failed(&failure.message),
        }
    }
}

impl Instance {
    /// A new instance without a task.
    pub(crate) fn new(spec: &SpecId, version: Moment, now: Moment) -> Self {
        Self {
            id: InstanceId::new(spec),
            replica: Replica::new(version, now.timestamp()),
            volumes: Arc::default(),
            tasks: Vec::new(),
            health: Vec::new(),
            readiness: None,
            wanted_since: Some(now),
        }
    }

    /// Restores an instance from the stored tasks of one request.
    pub(crate) fn of_records(records: &[Arc<TaskRecord>]) -> Option<Self> {
        let first = records.first()?;
        let (id, incarnation) = InstanceId::of_task(&first.id)?;
        let version = first.version.parse().ok()?;
        let tasks: Vec<InstanceTask> = records.iter().map(InstanceTask::new).collect();
        Some(Self {
            id,
            replica: Replica::of_task(version, incarnation, &view(&tasks)?),
            volumes: Arc::default(),
            tasks,
            health: Vec::new(),
            readiness: None,
            wanted_since: None,
        })
    }

    /// Restores an instance without a task from its reservation. Its next task is not launched yet.
    pub(crate) fn of_reservation(reservation: &Reservation, version: Moment, now: Moment) -> Option<Self> {
        let last = reservation.task.as_ref().and_then(InstanceId::of_task);
        let mut replica = Replica::new(version, now.timestamp());
        replica.incarnation = last.map_or(1, |(_, incarnation)| incarnation + 1);
        Some(Self {
            id: InstanceId::parse(&reservation.key)?,
            replica,
            volumes: reservation.volumes.as_slice().into(),
            tasks: Vec::new(),
            health: Vec::new(),
            readiness: None,
            wanted_since: None,
        })
    }

    /// The record of its task; for a pod, of the first one.
    pub(crate) fn record(&self) -> Option<&Arc<TaskRecord>> {
        self.tasks.first().map(|instance_task| &instance_task.record)
    }

    /// The agent of its tasks.
    pub(crate) fn agent(&self) -> Option<&AgentId> {
        self.record().map(|record| &record.agent.id)
    }

    /// The record of a task that has ended; of a pod's tasks, the one whose condition ranks first.
    pub(crate) fn failed_record(&self) -> Option<&Arc<TaskRecord>> {
        let ended = self
            .tasks
            .iter()
            .filter(|instance_task| instance_task.record.is_terminal());
        let failed = ended.min_by_key(|instance_task| {
            let killed_by_check = view_of(&instance_task.record).is_killed_by_check();
            (rank(instance_task.condition()), !killed_by_check)
        });
        failed.map(|instance_task| &instance_task.record)
    }

    /// The part with this task.
    pub(crate) fn instance_task(&self, task: &TaskId) -> Option<&InstanceTask> {
        self.tasks
            .iter()
            .find(|instance_task| instance_task.record.id == *task)
    }

    /// The task of a container of a pod.
    pub(crate) fn container(&self, name: &str) -> Option<&InstanceTask> {
        let is = |instance_task: &&InstanceTask| {
            instance_task
                .record
                .group
                .as_ref()
                .is_some_and(|group| group.member == name)
        };
        self.tasks.iter().find(is)
    }

    /// The task that is probed by the check with this index.
    pub(crate) fn checked_task(&self, spec: &Spec, index: usize) -> Option<&Arc<TaskRecord>> {
        match spec {
            Spec::App(_) => self.record(),
            Spec::Pod(pod) => {
                let instance_task = self.container(&pod.containers.get(index)?.name)?;
                Some(&instance_task.record)
            }
        }
    }

    /// The part with this task, to be changed.
    pub(crate) fn instance_task_mut(&mut self, task: &TaskId) -> Option<&mut InstanceTask> {
        self.tasks
            .iter_mut()
            .find(|instance_task| instance_task.record.id == *task)
    }

    /// Adds or replaces the record of a current task.
    pub(crate) fn set_record(&mut self, record: &Arc<TaskRecord>) {
        match self.instance_task_mut(&record.id) {
            Some(instance_task) => instance_task.record = Arc::clone(record),
            None => self.tasks.push(InstanceTask::new(record)),
        }
    }

    /// The condition of the instance.
    pub(crate) fn condition(&self) -> Condition {
        self.replica.condition
    }

    /// The version of the definition from which the current task is launched.
    pub(crate) fn version(&self) -> Moment {
        self.replica.version
    }

    /// The id of the current task, or of the group of a pod's current tasks.
    pub(crate) fn task(&self) -> TaskId {
        let launched = self.record().map(|record| record.request_id().clone());
        launched.unwrap_or_else(|| self.id.task(self.replica.incarnation))
    }

    /// The id of the task with that incarnation, or of the group of a pod's tasks.
    pub(crate) fn task_of(&self, incarnation: u32) -> TaskId {
        if incarnation == self.replica.incarnation {
            self.task()
        } else {
            self.id.task(incarnation)
        }
    }

    /// Whether `name` is the id of this instance or of its current task.
    pub(crate) fn has_id(&self, name: &str) -> bool {
        self.id.as_str() == name || self.task().as_str() == name
    }

    /// Replaces the replica. If it has a new task, the results of the earlier task are dropped.
    pub(crate) fn set_replica(&mut self, replica: Replica<Moment>) {
        if replica.incarnation != self.replica.incarnation {
            self.tasks = Vec::new();
            self.health = Vec::new();
            self.readiness = None;
            self.wanted_since = Some(replica.since.into());
        }
        self.replica = replica;
    }

    /// Returns since when the task was wanted, once it runs, and only the first time.
    pub(crate) fn take_wanted_since(&mut self) -> Option<Moment> {
        self.wanted_since
            .take_if(|_| self.replica.condition == Condition::Running)
    }

    /// The instance as deployments see it. `outdated`: its configuration is not the current one.
    pub(crate) fn member(&self, outdated: bool, fitness: Fitness) -> Member<InstanceId> {
        self.replica.member(self.id.clone(), outdated, fitness)
    }

    /// Whether all its health checks succeed. `None` if there are none, or if some have no result
    /// yet and the others succeed.
    pub(crate) fn is_healthy(&self) -> Option<bool> {
        if self.record().is_some_and(|record| record.group.is_some()) {
            return self.is_group_healthy();
        }
        let mut known = self.health.iter().filter(|state| state.is_known());
        if known.any(|state| !state.is_alive()) {
            return Some(false);
        }
        let all = !self.health.is_empty() && self.health.iter().all(HealthState::is_alive);
        all.then_some(true)
    }

    /// Whether all containers of a pod that reported a health result are healthy. `None` as long as
    /// none has reported one.
    fn is_group_healthy(&self) -> Option<bool> {
        let mut results = self
            .tasks
            .iter()
            .filter_map(|instance_task| instance_task.record.healthy());
        results.clone().next()?;
        Some(results.all(|healthy| healthy))
    }

    /// The last answer to a health check that fails, or the error.
    pub(crate) fn health_answer(&self) -> Option<&str> {
        let mut failing = self
            .health
            .iter()
            .filter(|state| state.is_known() && !state.is_alive());
        failing.find_map(|state| state.last_failure_cause.as_deref())
    }

    /// Whether a check has no result, or its readiness check fails.
    pub(crate) fn is_unchecked(&self) -> bool {
        self.health.iter().any(|state| state.no_result.is_some())
            || self
                .tasks
                .iter()
                .any(|instance_task| instance_task.check_failure.is_some())
            || self
                .readiness
                .as_ref()
                .is_some_and(|readiness| readiness.failures.is_some())
    }

    /// Whether all its health checks have succeeded under this leader.
    fn is_found_healthy(&self) -> bool {
        self.is_healthy() == Some(true) && self.health.iter().all(|state| !state.is_restored)
    }

    /// Its id, if its task has health results and is not that of the next replica.
    pub(crate) fn ended_health(&self, next: Option<&Replica<Moment>>) -> Option<InstanceId> {
        let ends = next.is_none_or(|next| next.incarnation != self.replica.incarnation);
        (ends && self.health.iter().any(HealthState::is_known)).then(|| self.id.clone())
    }

    /// Whether its readiness check has succeeded.
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.as_ref().is_some_and(|readiness| readiness.ready)
    }

    /// Whether a deployment may count it, by the checks of this definition. `new`: the readiness
    /// check counts too.
    pub(crate) fn fitness(&self, definition: &Spec, new: bool) -> Fitness {
        let health = definition.has_health_checks();
        let readiness = new && !definition.readiness_checks().is_empty();
        if !health && !readiness {
            return Fitness::Unchecked;
        }
        let healthy = !health
            || match definition {
                Spec::App(_) => self.is_found_healthy(),
                Spec::Pod(pod) => {
                    let checked = pod.containers.iter().filter(|it| it.health_check.is_some());
                    let healthy = |name: &str| {
                        self.container(name)
                            .and_then(|instance_task| instance_task.record.healthy())
                    };
                    checked
                        .map(|it| healthy(&it.name))
                        .all(|healthy| healthy == Some(true))
                }
            };
        if healthy && (!readiness || self.is_ready()) {
            Fitness::Fit
        } else {
            Fitness::Unfit
        }
    }

    /// The fields of its events. `version` is the version as text, which the caller owns.
    pub(crate) fn facts<'a>(&'a self, app: &'a SpecId, version: &'a str) -> TaskFacts<'a> {
        self.facts_of(self.record().map(|record| &**record), app, version)
    }

    /// The fields of events about one of its tasks.
    pub(crate) fn facts_of<'a>(
        &'a self,
        record: Option<&'a TaskRecord>,
        app: &'a SpecId,
        version: &'a str,
    ) -> TaskFacts<'a> {
        TaskFacts {
            app,
            instance: &self.id,
            version,
            agent: record.map(|record| record.agent.id.as_str()),
            host: record.map(|record| record.agent.hostname.as_str()),
            ports: record.map_or(&[], |record| &record.host_ports),
        }
    }
}

impl InstanceTask {
    fn new(record: &Arc<TaskRecord>) -> Self {
        Self {
            record: Arc::clone(record),
            check_outcome: None,
            check_failure: None,
        }
    }

    /// The last check result, of this daemon or of the agent.
    pub(crate) fn check_result(&self) -> Option<CheckResult> {
        if let Some(outcome) = &self.check_outcome {
            return Some(outcome.into());
        }
        let status = self.record.status.as_ref()?;
        status.check_status.as_ref().and_then(CheckResult::of_agent)
    }

    /// The condition of this task alone.
    pub(crate) fn condition(&self) -> Condition {
        view_of(&self.record).condition()
    }
}

/// Combines the tasks of an instance into the view that the replica needs. For a pod it has the
/// state of the task that comes first in upstream's order. If that task has ended and others have
/// not, the state is `Killing`, because the executor ends the others. A container that finishes
/// does not end the others: `Running` comes before `Finished`.
pub(crate) fn view(tasks: &[InstanceTask]) -> Option<TaskView<'_>> {
    static KILLING: TaskState = TaskState::Killing;
    let views = tasks.iter().map(|instance_task| view_of(&instance_task.record));
    // An unhealthy container is the cause of the end of the others.
    let mut all = views.min_by_key(|view| (rank(view.condition()), !view.is_killed_by_check()))?;
    let records = || tasks.iter().map(|instance_task| &instance_task.record);
    let terminal = records().all(|record| record.is_terminal());
    if all.terminal && !terminal {
        all.state = &KILLING;
    }
    all.terminal = terminal;
    all.killing = records().any(|record| record.killing);
    all.restarting = records().any(|record| record.restarting);
    all.updated_at = records()
        .map(|record| record.updated_at)
        .max()
        .unwrap_or(all.updated_at);
    let started = records().map(|record| record.started_at);
    // The instance runs since the last of its tasks runs.
    all.started_at = started
        .max()
        .flatten()
        .filter(|_| records().all(|it| it.started_at.is_some()));
    Some(all)
}

/// Upstream's order: the condition of an instance is the first of the conditions of its tasks.
fn rank(condition: Condition) -> usize {
    let order = [
        Condition::Error,
        Condition::Failed,
        Condition::Gone,
        Condition::Dropped,
        Condition::Unreachable,
        Condition::Killing,
        Condition::Starting,
        Condition::Staging,
        Condition::Unknown,
        Condition::Provisioned,
        Condition::Running,
        Condition::Finished,
        Condition::Killed,
    ];
    let place = order.iter().position(|one| *one == condition);
    place.unwrap_or(order.len())
}

fn view_of(record: &TaskRecord) -> TaskView<'_> {
    TaskView {
        state: &record.state,
        status: record.status.as_ref(),
        terminal: record.is_terminal(),
        started_at: record.started_at,
        updated_at: record.updated_at,
        killing: record.killing,
        restarting: record.restarting,
    }
}
