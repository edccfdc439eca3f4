//! The model from the operator stream: a snapshot, then events.

use transom_cluster::operator::{Agent, Event, Framework as WireFramework, Snapshot, TaskUpdated};
use transom_cluster::v1::{AgentInfo, FrameworkInfo, Task as WireTask, TaskState, TaskStatus};
use transom_cluster::{AgentId, FrameworkId, TaskId};

use super::PersistentMap;
use super::addresses::Status;
use super::{
    Addresses, ClusterModel, Discovery, Framework, Host, Location, Task, Tasks, is_staging, newest_health,
    weights,
};

/// The entry whose records may differ after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None.
    Unchanged,
    /// A task.
    Task(FrameworkId, TaskId),
    /// A framework and its tasks.
    Framework(FrameworkId),
    /// An agent and its tasks.
    Agent(AgentId),
}

/// The snapshot at the start of the stream. It lacks the leader.
impl Snapshot for ClusterModel {
    fn agent(&mut self, agent: &Agent) {
        self.put_agent(agent);
    }

    fn framework(&mut self, framework: &WireFramework) {
        self.put_framework(framework);
    }

    fn task(&mut self, task: &WireTask) {
        self.put_task(task);
    }

    fn recovered_agent(&mut self, agent: &AgentInfo) {
        self.recovered.extend(agent.id.clone());
    }

    fn unreadable(&mut self) {
        self.invalid_entries += 1;
    }
}

impl ClusterModel {
    /// Applies one event.
    pub fn apply(&mut self, event: &Event) -> Effect {
        match event {
            Event::TaskAdded(task) => self.put_task(task),
            Event::TaskUpdated(update) => self.update_task(update),
            Event::FrameworkAdded(framework) | Event::FrameworkUpdated(framework) => {
                self.put_framework(framework)
            }
            Event::FrameworkRemoved(info) => self.remove_framework(info),
            Event::AgentAdded(agent) => self.put_agent(agent),
            Event::AgentRemoved(id) => {
                self.recovered.remove(id);
                effect(self.agents.remove(id).is_some(), || Effect::Agent(id.clone()))
            }
            // The snapshot at the start is handled separately.
            Event::Subscribed(_) | Event::Heartbeat | Event::Unknown(_) => Effect::Unchanged,
        }
    }

    /// Removes an agent if the update of one of its tasks shows that it is lost. The stream has no
    /// other event for agents that became unreachable or were marked gone; it sends `AGENT_ADDED`
    /// when they return.
    pub fn remove_lost_agent(&mut self, event: &Event) -> Effect {
        let Event::TaskUpdated(update) = event else {
            return Effect::Unchanged;
        };
        match &update.status.agent_id {
            Some(id) if reports_agent_gone(update) => {
                effect(self.agents.remove(id).is_some(), || Effect::Agent(id.clone()))
            }
            _ => Effect::Unchanged,
        }
    }

    fn put_agent(&mut self, agent: &Agent) -> Effect {
        let Some((id, endpoint)) = agent_location(agent) else {
            self.invalid_entries += 1;
            return Effect::Unchanged;
        };
        self.recovered.remove(&id);
        let changed = self.agents.insert(id.clone(), endpoint.clone()) != Some(endpoint);
        effect(changed, || Effect::Agent(id))
    }

    fn put_framework(&mut self, wire: &WireFramework) -> Effect {
        let info = &wire.framework_info;
        let Some(id) = info.id.clone() else {
            self.invalid_entries += 1;
            return Effect::Unchanged;
        };
        let framework = read_framework(info);
        let changed = self.frameworks.insert(id.clone(), framework.clone()) != Some(framework);
        effect(changed, || Effect::Framework(id))
    }

    fn remove_framework(&mut self, info: &FrameworkInfo) -> Effect {
        let Some(id) = &info.id else {
            return Effect::Unchanged;
        };
        let had_tasks = self.tasks.remove(id).is_some();
        let was_there = self.frameworks.remove(id).is_some();
        effect(had_tasks || was_there, || Effect::Framework(id.clone()))
    }

    fn put_task(&mut self, wire: &WireTask) -> Effect {
        if has_left(&wire.state) {
            return self.remove_task(&wire.framework_id, &wire.task_id);
        }
        let mut task = read_task(wire);
        // All tasks of an agent share one string.
        if let Some(agent) = self.agents.key(&task.agent) {
            task.agent = agent.clone();
        }
        let tasks = self.tasks.entry(wire.framework_id.clone()).or_default();
        let old = tasks.insert(wire.task_id.clone(), task.clone());
        let relevant = task.is_publishable() || old.as_ref().is_some_and(Task::is_publishable);
        effect(relevant && old != Some(task), || {
            Effect::Task(wire.framework_id.clone(), wire.task_id.clone())
        })
    }

    fn update_task(&mut self, update: &TaskUpdated) -> Effect {
        let id = &update.status.task_id;
        if has_left(&update.state) {
            return self.remove_task(&update.framework_id, id);
        }
        let Some(tasks) = self.tasks.get_mut(&update.framework_id) else {
            return Effect::Unchanged;
        };
        let Some(before) = tasks.get(id).cloned() else {
            return Effect::Unchanged;
        };
        let mut task = before.clone();
        task.running = update.state == TaskState::Running;
        task.is_staging = is_staging(&update.state);
        if update.status.healthy.is_some() {
            task.healthy = update.status.healthy;
        }
        // Updates without a container (health and check results from the master) have no addresses.
        if update.status.state == TaskState::Running
            && (update.status.container_status.is_some() || update.status.labels.is_some())
        {
            task.addresses = Addresses::of(&status(&update.status));
        }
        let changed = (task.is_publishable() || before.is_publishable()) && task != before;
        tasks.insert(id.clone(), task);
        effect(changed, || Effect::Task(update.framework_id.clone(), id.clone()))
    }

    fn remove_task(&mut self, framework: &FrameworkId, id: &TaskId) -> Effect {
        let removed = remove(&mut self.tasks, framework, id);
        effect(removed.is_some_and(|task| task.is_publishable()), || {
            Effect::Task(framework.clone(), id.clone())
        })
    }
}

/// Whether the master no longer lists a task in this state. An unreachable task that returns comes
/// with `TASK_ADDED`.
fn has_left(state: &TaskState) -> bool {
    state.is_terminal() || *state == TaskState::Unreachable
}

/// Whether the master sent this update because it removed the task's agent from its list. A
/// disconnected agent (`REASON_AGENT_DISCONNECTED`) is still in the list.
fn reports_agent_gone(update: &TaskUpdated) -> bool {
    let reason = update.status.reason.as_deref();
    update.status.state == TaskState::Unreachable
        || matches!(
            reason,
            Some("REASON_AGENT_REMOVED" | "REASON_AGENT_REMOVED_BY_OPERATOR")
        )
}

fn remove(
    tasks: &mut PersistentMap<FrameworkId, Tasks>,
    framework: &FrameworkId,
    id: &TaskId,
) -> Option<Task> {
    let of_framework = tasks.get_mut(framework)?;
    let task = of_framework.remove(id);
    if of_framework.is_empty() {
        tasks.remove(framework);
    }
    task
}

fn effect(changed: bool, effect_of_change: impl FnOnce() -> Effect) -> Effect {
    if changed {
        effect_of_change()
    } else {
        Effect::Unchanged
    }
}

/// An agent's location: from its process id, else from its host name and port.
fn agent_location(agent: &Agent) -> Option<(AgentId, Location)> {
    let id = agent.agent_info.id.clone()?;
    let by_pid = agent.pid.as_deref().and_then(Location::from_pid);
    let by_name = || {
        let hostname = &agent.agent_info.hostname;
        (!hostname.is_empty()).then(|| Location {
            host: Host::parse(hostname),
            port: agent.agent_info.port,
        })
    };
    Some((id, by_pid.or_else(by_name)?))
}

/// The operator API has no process ids of frameworks, so they have no port.
fn read_framework(info: &FrameworkInfo) -> Framework {
    let hostname = info.hostname.as_deref().filter(|hostname| !hostname.is_empty());
    let endpoint = hostname.map(|hostname| Location {
        host: Host::parse(hostname),
        port: None,
    });
    Framework {
        name: info.name.clone(),
        endpoint,
    }
}

fn status(status: &TaskStatus) -> Status<'_> {
    Status {
        state: &status.state,
        timestamp: status.timestamp.unwrap_or_default(),
        labels: status.labels.as_ref().map_or(&[], |labels| &labels.labels),
        container: status.container_status.as_ref(),
    }
}

fn read_task(task: &WireTask) -> Task {
    let ports = task.resources.iter().filter(|resource| resource.name == "ports");
    let labels = task.labels.iter().flat_map(|labels| &labels.labels);
    Task {
        name: task.name.as_str().into(),
        agent: task.agent_id.clone(),
        running: task.state == TaskState::Running,
        ports: ports
            .flat_map(transom_cluster::v1::Resource::port_ranges)
            .collect(),
        discovery: task
            .discovery
            .as_ref()
            .and_then(Discovery::from_wire)
            .map(Box::new),
        addresses: Addresses::newest(task.statuses.iter().map(status)),
        is_staging: is_staging(&task.state),
        healthy: newest_health(
            task.statuses
                .iter()
                .map(|it| (it.timestamp.unwrap_or_default(), it.healthy)),
        ),
        weights: weights(labels.filter_map(|label| Some((&*label.key, label.value.as_deref()?)))),
        duplicate_id: None,
    }
}
