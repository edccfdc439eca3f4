//! The model from the operator stream: a snapshot first, then one event after the other.

use transom_cluster::operator::{Agent, Event, Framework as WireFramework, Snapshot, TaskUpdated};
use transom_cluster::v1::{FrameworkInfo, Task as WireTask, TaskState, TaskStatus};
use transom_cluster::{AgentId, FrameworkId, TaskId};

use super::addresses::Status;
use super::{
    Addresses, Cluster, Discovery, Endpoint, Framework, Host, Ordered, Task, is_about_to_run, newest_health,
    weights,
};
use crate::map::Map;

/// Whose records may differ after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nobody's.
    Same,
    /// A task's.
    Task(FrameworkId, TaskId),
    /// A framework's and its tasks'.
    Framework(FrameworkId),
    /// An agent's and its tasks'.
    Agent(AgentId),
}

/// The snapshot that the stream begins with. It does not say who leads.
impl Snapshot for Cluster {
    fn agent(&mut self, agent: &Agent) {
        self.put_agent(agent);
    }

    fn framework(&mut self, framework: &WireFramework) {
        self.put_framework(framework);
    }

    fn task(&mut self, task: &WireTask) {
        self.put_task(task);
    }

    fn unreadable(&mut self) {
        self.skipped += 1;
    }
}

impl Cluster {
    /// Follows one event.
    pub fn apply(&mut self, event: &Event) -> Effect {
        match event {
            Event::TaskAdded(task) => self.put_task(task),
            Event::TaskUpdated(update) => self.update_task(update),
            Event::FrameworkAdded(framework) | Event::FrameworkUpdated(framework) => {
                self.put_framework(framework)
            }
            Event::FrameworkRemoved(info) => self.remove_framework(info),
            Event::AgentAdded(agent) => self.put_agent(agent),
            Event::AgentRemoved(id) => effect(self.agents.remove(id).is_some(), || Effect::Agent(id.clone())),
            // A stream begins with its snapshot, which is read then, and has no other.
            Event::Subscribed(_) | Event::Heartbeat | Event::Unknown(_) => Effect::Same,
        }
    }

    /// Removes the agent that an update of one of its tasks shows to be gone. The stream says so in no other way when an
    /// agent became unreachable or was marked gone; it sends `AGENT_ADDED` when the agent is back.
    pub fn remove_lost_agent(&mut self, event: &Event) -> Effect {
        let Event::TaskUpdated(update) = event else {
            return Effect::Same;
        };
        match &update.status.agent_id {
            Some(id) if says_agent_is_gone(update) => {
                effect(self.agents.remove(id).is_some(), || Effect::Agent(id.clone()))
            }
            _ => Effect::Same,
        }
    }

    fn put_agent(&mut self, agent: &Agent) -> Effect {
        let Some((id, endpoint)) = located(agent) else {
            self.skipped += 1;
            return Effect::Same;
        };
        let changed = self.agents.insert(id.clone(), endpoint.clone()) != Some(endpoint);
        effect(changed, || Effect::Agent(id))
    }

    fn put_framework(&mut self, wire: &WireFramework) -> Effect {
        let info = &wire.framework_info;
        let Some(id) = info.id.clone() else {
            self.skipped += 1;
            return Effect::Same;
        };
        let framework = described(info);
        let changed = self.frameworks.insert(id.clone(), framework.clone()) != Some(framework);
        effect(changed, || Effect::Framework(id))
    }

    fn remove_framework(&mut self, info: &FrameworkInfo) -> Effect {
        let Some(id) = &info.id else { return Effect::Same };
        let had_tasks = self.tasks.remove(id).is_some();
        let was_there = self.frameworks.remove(id).is_some();
        effect(had_tasks || was_there, || Effect::Framework(id.clone()))
    }

    fn put_task(&mut self, wire: &WireTask) -> Effect {
        if has_left(&wire.state) {
            return self.remove_task(&wire.framework_id, &wire.task_id);
        }
        let mut task = read_task(wire);
        // One text for all tasks of an agent.
        if let Some(agent) = self.agents.key(&task.agent) {
            task.agent = agent.clone();
        }
        let tasks = self.tasks.entry(wire.framework_id.clone()).or_default();
        let old = tasks.insert(wire.task_id.clone(), task.clone());
        let relevant = task.matters() || old.as_ref().is_some_and(Task::matters);
        effect(relevant && old != Some(task), || {
            Effect::Task(wire.framework_id.clone(), wire.task_id.clone())
        })
    }

    fn update_task(&mut self, update: &TaskUpdated) -> Effect {
        let id = &update.status.task_id;
        if has_left(&update.state) {
            return self.remove_task(&update.framework_id, id);
        }
        let Some(task) = self
            .tasks
            .get_mut(&update.framework_id)
            .and_then(|tasks| tasks.get_mut(id))
        else {
            return Effect::Same;
        };
        let before = task.clone();
        task.running = update.state == TaskState::Running;
        task.about_to_run = is_about_to_run(&update.state);
        if update.status.healthy.is_some() {
            task.healthy = update.status.healthy;
        }
        // Updates without a container (health and check results from the master) say nothing about addresses.
        if update.status.state == TaskState::Running
            && (update.status.container_status.is_some() || update.status.labels.is_some())
        {
            task.addresses = Addresses::of(&status(&update.status));
        }
        let changed = (task.matters() || before.matters()) && *task != before;
        effect(changed, || Effect::Task(update.framework_id.clone(), id.clone()))
    }

    fn remove_task(&mut self, framework: &FrameworkId, id: &TaskId) -> Effect {
        let removed = remove(&mut self.tasks, framework, id);
        effect(removed.is_some_and(|task| task.matters()), || {
            Effect::Task(framework.clone(), id.clone())
        })
    }
}

/// Whether the master lists a task in this state no more among those that may run. An unreachable task that comes back
/// is told by `TASK_ADDED`.
fn has_left(state: &TaskState) -> bool {
    state.is_terminal() || *state == TaskState::Unreachable
}

/// Whether the master made this update because it removed the task's agent from its list. An agent that is only
/// disconnected (`REASON_AGENT_DISCONNECTED`) is still in it.
fn says_agent_is_gone(update: &TaskUpdated) -> bool {
    let reason = update.status.reason.as_deref();
    update.status.state == TaskState::Unreachable
        || matches!(
            reason,
            Some("REASON_AGENT_REMOVED" | "REASON_AGENT_REMOVED_BY_OPERATOR")
        )
}

fn remove(
    tasks: &mut Map<FrameworkId, Ordered<TaskId, Task>>,
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

fn effect(changed: bool, whose: impl FnOnce() -> Effect) -> Effect {
    if changed { whose() } else { Effect::Same }
}

/// An agent's place: from its process id, as ever; without one from its host name and port.
fn located(agent: &Agent) -> Option<(AgentId, Endpoint)> {
    let id = agent.agent_info.id.clone()?;
    let by_pid = agent.pid.as_deref().and_then(Endpoint::from_pid);
    let by_name = || {
        let hostname = &agent.agent_info.hostname;
        (!hostname.is_empty()).then(|| Endpoint {
            host: Host::parse(hostname),
            port: agent.agent_info.port,
        })
    };
    Some((id, by_pid.or_else(by_name)?))
}

/// The operator API has no process ids of frameworks: they have an address and no port.
fn described(info: &FrameworkInfo) -> Framework {
    let hostname = info.hostname.as_deref().filter(|hostname| !hostname.is_empty());
    let endpoint = hostname.map(|hostname| Endpoint {
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
        about_to_run: is_about_to_run(&task.state),
        healthy: newest_health(
            task.statuses
                .iter()
                .map(|it| (it.timestamp.unwrap_or_default(), it.healthy)),
        ),
        weights: weights(labels.filter_map(|label| Some((&*label.key, label.value.as_deref()?)))),
        twin: None,
    }
}
