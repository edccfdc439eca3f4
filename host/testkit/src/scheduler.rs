//! A scripted scheduler for tests of services: the test decides when tasks are launched and how
//! they end, without a master.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use transom_cluster::v1::{ContainerStatus, TaskInfo, TaskState, TaskStatus};
use transom_cluster::{FrameworkId, TaskId};
use transom_plugin_host::explain::MatcherExplanation;
use transom_scheduler::{
    AgentLocation, Build, Event, Events, Group, GroupPlacement, InGroup, KillChoice, Member, MemberPlacement,
    PendingExplanation, PendingSnapshot, Phase, Placement, PlacementOf, Reasons, Reservation, Reservations,
    SchedulerApi, SubscriptionStatus, TaskRecord, TaskRequest, Tasks,
};

use crate::WAIT_TIMEOUT;

/// Capacity of the event queue: events that a test may send before the service reads them.
const MAX_EVENTS: usize = 65_536;
/// The first host port of the first task.
const FIRST_HOST_PORT: u16 = 31_000;
/// The framework's id.
const FRAMEWORK_ID: &str = "fw-1";

/// A scheduler with one agent.
#[derive(Debug)]
pub struct ScriptedScheduler {
    agent: Arc<AgentLocation>,
    scripted: Mutex<ScriptedState>,
    events: Mutex<mpsc::Sender<Event>>,
    changed: watch::Sender<()>,
    immediate_launches: AtomicBool,
    immediate_kills: AtomicBool,
    reasons: Mutex<Arc<Reasons>>,
    holds_kill_choices: AtomicBool,
    unregistered: AtomicBool,
}

#[derive(Debug, Default)]
struct ScriptedState {
    submitted: BTreeMap<TaskId, TaskRequest>,
    /// The most tasks in one call of `submit`.
    largest_submission: usize,
    tasks: Tasks,
    launched: Vec<TaskInfo>,
    purged: Vec<TaskId>,
    roles: BTreeSet<String>,
    reservations: Reservations,
    kill_choices: BTreeMap<String, Arc<KillChoice>>,
    used_ports: u16,
}

impl ScriptedScheduler {
    /// A scheduler that launches and kills tasks only when the test calls it.
    pub fn new(agent: AgentLocation) -> Arc<Self> {
        Arc::new(Self {
            agent: Arc::new(agent),
            scripted: Mutex::default(),
            events: Mutex::new(mpsc::channel(1).0),
            changed: watch::Sender::new(()),
            immediate_launches: AtomicBool::new(false),
            immediate_kills: AtomicBool::new(false),
            reasons: Mutex::default(),
            holds_kill_choices: AtomicBool::new(false),
            unregistered: AtomicBool::new(false),
        })
    }

    /// Sets whether submitted tasks run immediately, without a call by the test.
    pub fn set_immediate_launches(&self, immediate: bool) {
        self.immediate_launches.store(immediate, Ordering::SeqCst);
    }

    /// Sets whether killed tasks end immediately, without a call by the test.
    pub fn set_immediate_kills(&self, immediate: bool) {
        self.immediate_kills.store(immediate, Ordering::SeqCst);
    }

    /// Sets whether the framework has no id yet, because no master was reached.
    pub fn set_unregistered(&self, unregistered: bool) {
        self.unregistered.store(unregistered, Ordering::SeqCst);
    }

    /// Sets whether a kill selection waits for [`ScriptedScheduler::answer_kills`]. Otherwise the
    /// answer is empty, and the service uses its own order.
    pub fn set_hold_kill_choices(&self, hold: bool) {
        self.holds_kill_choices.store(hold, Ordering::SeqCst);
    }

    /// Waits until the service requests a kill selection for a run spec.
    pub async fn wait_for_kill_choice(&self, run_spec: &str) -> Arc<KillChoice> {
        self.wait_until(
            &format!("the question which instances of {run_spec} to kill"),
            |scripted| scripted.kill_choices.get(run_spec).cloned(),
        )
        .await
    }

    /// Answers a kill selection.
    pub fn answer_kills(&self, choice: Arc<KillChoice>, kills: Vec<TaskId>) {
        self.lock().kill_choices.remove(&choice.spec.id);
        self.send(Event::KillsSelected { choice, kills });
    }

    /// Sets the reasons of pending tasks.
    pub fn set_reasons(&self, reasons: Reasons) {
        *self.reasons.lock().unwrap() = Arc::new(reasons);
    }

    /// Connects a service, which receives all later events. Pending tasks of the previous service
    /// are dropped, because a scheduler does not store them; its task records stay.
    pub fn attach(&self) -> Events {
        let (events, receiver) = mpsc::channel(MAX_EVENTS);
        *self.events.lock().unwrap() = events;
        let mut scripted = self.lock();
        scripted.submitted.clear();
        scripted.kill_choices.clear();
        drop(scripted);
        receiver.into()
    }

    /// Sends an event, if a service is running.
    pub fn send(&self, event: Event) {
        let _ = self.events.lock().unwrap().try_send(event);
    }

    /// The tasks that are pending.
    pub fn submitted(&self) -> Vec<TaskRequest> {
        self.lock().submitted.values().cloned().collect()
    }

    /// The most tasks that the service submitted together.
    pub fn largest_submission(&self) -> usize {
        self.lock().largest_submission
    }

    /// Waits until `count` tasks are pending. Returns their ids.
    pub async fn wait_until_submitted(&self, count: usize) -> Vec<TaskId> {
        self.wait_until(&format!("{count} pending tasks"), |scripted| {
            let ids: Vec<TaskId> = scripted.submitted.keys().cloned().collect();
            (ids.len() == count).then_some(ids)
        })
        .await
    }

    /// Waits until a task or group is pending and launches it. Returns the launched task, the first
    /// one of a group.
    pub async fn launch(&self, task: &str) -> TaskInfo {
        let task = TaskId::from(task);
        let request = self
            .wait_until(&format!("the pending task {task}"), |scripted| {
                scripted.submitted.remove(&task)
            })
            .await;
        self.launch_request(&request)
    }

    /// Launches all pending tasks; they run.
    pub fn launch_all(&self) {
        let submitted = std::mem::take(&mut self.lock().submitted);
        for request in submitted.values() {
            self.launch_request(request);
            self.update(request.id.as_str(), TaskState::Running, None);
        }
    }

    /// Sends a status update of a task, or of all tasks of a group. An unknown task is ignored.
    #[expect(clippy::needless_pass_by_value, reason = "tests name the state in the call")]
    pub fn update(&self, task: &str, state: TaskState, message: Option<&str>) {
        let members = self.lock().members(&TaskId::from(task));
        for member in members {
            self.update_task(&member, &state, message, None);
        }
    }

    /// Ends a task with `TASK_FAILED`, a message and a reason of the cluster manager.
    pub fn fail(&self, task: &str, message: &str, reason: &str) {
        self.update_task(
            &TaskId::from(task),
            &TaskState::Failed,
            Some(message),
            Some(reason),
        );
    }

    fn update_task(&self, task: &TaskId, state: &TaskState, message: Option<&str>, reason: Option<&str>) {
        let mut scripted = self.lock();
        let Some(record) = scripted.tasks.get_mut(task) else {
            return;
        };
        let changed = Arc::make_mut(record);
        changed.status = Some(TaskStatus {
            task_id: changed.id.clone(),
            state: state.clone(),
            message: message.map(str::to_owned),
            reason: reason.map(str::to_owned),
            agent_id: Some(self.agent.id.clone()),
            uuid: Some("dXVpZA==".to_owned()),
            container_status: Some(ContainerStatus {
                container_id: Some("c1".into()),
                ..ContainerStatus::default()
            }),
            ..TaskStatus::default()
        });
        changed.phase = if state.is_terminal() || *state == TaskState::Unknown {
            Phase::Terminal
        } else {
            Phase::Launched
        };
        changed.updated_at = Timestamp::now();
        if *state == TaskState::Running {
            changed.started_at = Some(changed.updated_at);
        }
        changed.state = state.clone();
        let record = Arc::clone(record);
        drop(scripted);
        self.send(Event::Updated(record));
    }

    /// Sends the update of a running task whose agent an operator drains: the task is being killed.
    pub fn drain(&self, task: &str) {
        self.change(task, |changed| {
            changed.state = TaskState::Killing;
            if let Some(status) = &mut changed.status {
                status.state = TaskState::Killing;
                status.reason = Some("REASON_AGENT_DRAINING".to_owned());
            }
        });
    }

    /// Sends a result of the agent's health check of a running task.
    pub fn report_health(&self, task: &str, healthy: bool) {
        self.change(task, |changed| {
            if let Some(status) = &mut changed.status {
                status.healthy = Some(healthy);
                status.reason = Some("REASON_TASK_HEALTH_CHECK_STATUS_UPDATED".to_owned());
            }
        });
    }

    /// Ends a task as its agent does when the agent's health check has failed too often.
    pub fn kill_unhealthy(&self, task: &str) {
        self.report_health(task, false);
        self.change(task, |changed| {
            changed.state = TaskState::Killed;
            changed.phase = Phase::Terminal;
            if let Some(status) = &mut changed.status {
                status.state = TaskState::Killed;
                status.reason = None;
                status.message = Some("Command terminated with signal Terminated".to_owned());
            }
        });
    }

    /// Changes the record of a task and sends the update. An unknown task is ignored.
    fn change(&self, task: &str, change: impl FnOnce(&mut TaskRecord)) {
        let mut scripted = self.lock();
        let Some(record) = scripted.tasks.get_mut(&TaskId::from(task)) else {
            return;
        };
        let changed = Arc::make_mut(record);
        changed.updated_at = Timestamp::now();
        change(changed);
        let record = Arc::clone(record);
        drop(scripted);
        self.send(Event::Updated(record));
    }

    /// The ids of the running tasks.
    pub fn running(&self) -> Vec<TaskId> {
        let scripted = self.lock();
        let running = scripted
            .tasks
            .values()
            .filter(|record| record.state == TaskState::Running);
        running.map(|record| record.id.clone()).collect()
    }

    /// Adds or changes a reservation.
    pub fn set_reservation(&self, reservation: Reservation) {
        let (key, reservation) = (reservation.key.clone(), Arc::new(reservation));
        let stored = Arc::clone(&reservation);
        self.lock().reservations.insert(key.clone(), stored);
        self.send(Event::ReservationChanged {
            key,
            reservation: Some(reservation),
        });
    }

    /// Adds the task record of a task that another scheduler launched.
    pub fn take_over(&self, record: TaskRecord) {
        self.lock().tasks.insert(record.id.clone(), Arc::new(record));
    }

    /// The roles that the service added to the framework, including those of submitted specs.
    pub fn roles(&self) -> BTreeSet<String> {
        self.lock().roles.clone()
    }

    /// The tasks as they were launched, in order.
    pub fn launched(&self) -> Vec<TaskInfo> {
        self.lock().launched.clone()
    }

    /// How many tasks were launched.
    pub fn launches(&self) -> usize {
        self.lock().launched.len()
    }

    /// Waits until the service kills a launched task or group.
    pub async fn wait_until_killed(&self, task: &str) {
        let task = TaskId::from(task);
        self.wait_until(&format!("the kill of {task}"), |scripted| {
            let first = scripted.members(&task).into_iter().next()?;
            scripted.tasks[&first].killing.then_some(())
        })
        .await;
    }

    /// Waits until the service purges a task or group.
    pub async fn wait_until_purged(&self, task: &str) {
        let task = TaskId::from(task);
        self.wait_until(&format!("the purge of {task}"), |scripted| {
            scripted.purged.contains(&task).then_some(())
        })
        .await;
    }

    async fn wait_until<T>(
        &self,
        what: &str,
        mut condition: impl FnMut(&mut ScriptedState) -> Option<T>,
    ) -> T {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(value) = condition(&mut self.lock()) {
                    return value;
                }
                changed.changed().await.unwrap();
            }
        };
        let result = tokio::time::timeout(WAIT_TIMEOUT, waiting).await;
        result.unwrap_or_else(|_| panic!("timed out waiting for {what}; {:?}", self.lock()))
    }

    fn launch_request(&self, request: &TaskRequest) -> TaskInfo {
        let mut launched = match &request.spec.build {
            Build::Task(build) => {
                let placement = Placement {
                    task: request.id.clone(),
                    agent: AgentLocation::clone(&self.agent),
                    host_ports: self.lock().take_ports(request.spec.ports.len()),
                };
                let task = build.build(&placement).unwrap();
                let metadata = build.metadata(&placement);
                vec![self.launch_task(request, None, &request.id, task, placement.host_ports, metadata)]
            }
            Build::Group(group) => self.launch_group(request, group),
        };
        launched.swap_remove(0)
    }

    fn launch_group(&self, request: &TaskRequest, group: &Group) -> Vec<TaskInfo> {
        let indexed_members = group.members.iter().enumerate();
        let member_placement = |(index, member): (usize, &Member)| MemberPlacement {
            task: group.build.task_id(&request.id, index),
            host_ports: self.lock().take_ports(member.ports.len()),
        };
        let members = indexed_members.map(member_placement).collect();
        let placement = GroupPlacement {
            group: request.id.clone(),
            agent: AgentLocation::clone(&self.agent),
            host_ports: self.lock().take_ports(request.spec.ports.len()),
            members,
        };
        let executor = group.build.executor(&placement);
        let launch = |index: usize| {
            let membership = InGroup {
                id: request.id.clone(),
                executor: executor.executor_id.clone(),
                member: group.members[index].name.clone(),
            };
            let task = group.build.task(&placement, index);
            let metadata = group.build.metadata(&placement, index);
            let member = &placement.members[index];
            let ports = member.host_ports.clone();
            self.launch_task(request, Some(membership), &member.task, task, ports, metadata)
        };
        (0..group.members.len()).map(launch).collect()
    }

    fn launch_task(
        &self,
        request: &TaskRequest,
        group: Option<InGroup>,
        id: &TaskId,
        task: TaskInfo,
        host_ports: Vec<u16>,
        metadata: serde_json::Value,
    ) -> TaskInfo {
        let now = Timestamp::now();
        let record = Arc::new(TaskRecord {
            id: id.clone(),
            run_spec: request.spec.id.clone(),
            version: request.spec.version.clone(),
            group,
            agent: Arc::clone(&self.agent),
            agent_attributes: Arc::default(),
            metadata: Arc::new(metadata),
            host_ports,
            phase: Phase::Launched,
            state: TaskState::Staging,
            status: None,
            intended_at: now,
            staged_at: Some(now),
            started_at: None,
            updated_at: now,
            killing: false,
            kill_grace: None,
            restarting: false,
        });
        let mut scripted = self.lock();
        scripted.tasks.insert(id.clone(), Arc::clone(&record));
        scripted.launched.push(task.clone());
        drop(scripted);
        self.send(Event::Launched(record));
        task
    }

    fn lock(&self) -> MutexGuard<'_, ScriptedState> {
        self.scripted.lock().unwrap()
    }
}

impl ScriptedScheduler {
    fn kill_all(&self, tasks: Vec<TaskId>, grace: Option<Duration>, restarting: bool) {
        for task in tasks {
            let mut scripted = self.lock();
            if scripted.submitted.remove(&task).is_some() {
                drop(scripted);
                self.send(Event::NeverLaunched(task));
                continue;
            }
            for member in scripted.members(&task) {
                if let Some(record) = scripted.tasks.get_mut(&member) {
                    let record = Arc::make_mut(record);
                    (record.killing, record.kill_grace) = (true, grace);
                    record.restarting = restarting;
                }
            }
            drop(scripted);
            if self.immediate_kills.load(Ordering::SeqCst) {
                self.update(task.as_str(), TaskState::Killed, None);
            }
        }
        self.changed.send_replace(());
    }
}

impl ScriptedState {
    /// The tasks that a request launched.
    fn members(&self, request: &TaskId) -> Vec<TaskId> {
        let records = self.tasks.values();
        let matching = records.filter(|record| record.id == *request || record.request_id() == request);
        matching.map(|record| record.id.clone()).collect()
    }

    /// The next ports of the agent.
    fn take_ports(&mut self, count: usize) -> Vec<u16> {
        let (first, count) = (FIRST_HOST_PORT + self.used_ports, count as u16);
        self.used_ports += count;
        (first..first + count).collect()
    }
}

impl SchedulerApi for ScriptedScheduler {
    fn submit(&self, tasks: Vec<TaskRequest>) {
        let mut scripted = self.lock();
        scripted.largest_submission = scripted.largest_submission.max(tasks.len());
        for request in tasks {
            scripted.roles.extend(request.spec.role.clone());
            if scripted.members(&request.id).is_empty() {
                scripted.submitted.insert(request.id.clone(), request);
            }
        }
        drop(scripted);
        if self.immediate_launches.load(Ordering::SeqCst) {
            self.launch_all();
        }
        self.changed.send_replace(());
    }

    fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>) {
        self.kill_all(tasks, grace, false);
    }

    fn restart(&self, tasks: Vec<TaskId>, grace: Option<Duration>) {
        self.kill_all(tasks, grace, true);
    }

    /// The explanation contains no agents, and the run spec's id in place of its constraints.
    fn explain(&self, placement: PlacementOf) -> oneshot::Receiver<Option<PendingExplanation>> {
        let spec = match placement {
            PlacementOf::RunSpec(spec) => Some(spec),
            PlacementOf::Pending(task) => {
                let scripted = self.lock();
                scripted
                    .submitted
                    .get(&task)
                    .map(|request| Arc::clone(&request.spec))
            }
        };
        let explanation = spec.map(|spec| {
            PendingExplanation::new(std::future::ready(MatcherExplanation {
                constraints: vec![spec.id.clone()],
                instances: spec.instances,
                ..MatcherExplanation::default()
            }))
        });
        let (sender, explanation_receiver) = oneshot::channel();
        let _ = sender.send(explanation);
        explanation_receiver
    }

    fn select_kills(&self, choice: KillChoice) {
        let choice = Arc::new(choice);
        if self.holds_kill_choices.load(Ordering::SeqCst) {
            let id = choice.spec.id.clone();
            self.lock().kill_choices.insert(id, choice);
            self.changed.send_replace(());
        } else {
            self.answer_kills(choice, Vec::new());
        }
    }

    fn purge(&self, tasks: Vec<TaskId>) {
        let mut scripted = self.lock();
        for task in tasks {
            for member in scripted.members(&task) {
                let record = scripted.tasks.remove(&member).unwrap();
                assert!(record.is_terminal(), "{member} is purged while it runs");
            }
            scripted.purged.push(task);
        }
        drop(scripted);
        self.changed.send_replace(());
    }

    fn add_role(&self, role: &str) {
        self.lock().roles.insert(role.to_owned());
    }

    fn release_reservation(&self, key: &str) {
        self.lock().reservations.remove(key);
        self.send(Event::ReservationChanged {
            key: key.to_owned(),
            reservation: None,
        });
        self.changed.send_replace(());
    }

    fn reservations(&self) -> Arc<Reservations> {
        Arc::new(self.lock().reservations.clone())
    }

    fn tasks(&self) -> Arc<Tasks> {
        Arc::new(self.lock().tasks.clone())
    }

    fn pending(&self) -> Arc<PendingSnapshot> {
        let (reasons, now) = (Arc::clone(&self.reasons.lock().unwrap()), Timestamp::now());
        let requests = self.submitted().into_iter().map(|request| (request, now));
        Arc::new(PendingSnapshot::of(requests, &reasons))
    }

    fn subscription(&self) -> SubscriptionStatus {
        let registered = !self.unregistered.load(Ordering::SeqCst);
        SubscriptionStatus {
            framework_id: registered.then(|| FrameworkId::from(FRAMEWORK_ID)),
            connected: registered,
            master: Some("127.0.0.1:5050".to_owned()),
            since: Timestamp::now(),
        }
    }
}
