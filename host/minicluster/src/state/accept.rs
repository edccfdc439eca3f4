//! ACCEPT: turns offers into tasks, or rejects them with a status update.

use super::{
    AgentId, Effect, Executor, FrameworkId, Launch, OfferId, State, Task, TaskGroup, TaskId, TaskKey,
    TaskState,
    accepted::{Accepted, is_valid_id, with_framework},
    epoch,
    executors::incompatible_error,
    model::ExecutorKey,
    offers::refuse_duration,
};
use crate::wire::{
    json as doc,
    resources::{Resources, allocated_to},
};
use serde_json::{Value, json};
use std::{collections::VecDeque, net::SocketAddr, path::PathBuf, time::Instant};

/// The executor of a task group, or a custom executor, as its tasks need it.
pub(super) struct TaskExecutor {
    id: String,
    is_custom: bool,
    executor: TaskGroup,
}

impl State {
    /// Runs the operations of an ACCEPT in order. Errors are reported by events, and the call
    /// itself is accepted.
    pub(super) fn accept(&mut self, id: &FrameworkId, accept: &Value, now: Instant) {
        let offer_ids: Vec<OfferId> = doc::list(accept, &["offer_ids"])
            .iter()
            .map(|offer| OfferId::from(offer["value"].as_str().unwrap_or_default()))
            .collect();
        let invalid = self.invalid_offers(id, &offer_ids);
        let mut accepted: Option<Accepted> = None;
        for offer_id in &offer_ids {
            if self
                .offers
                .get(offer_id)
                .is_none_or(|offer| offer.framework != *id)
            {
                continue;
            }
            let Some(offer) = self.offers.remove(offer_id) else {
                continue;
            };
            if invalid.is_some() {
                self.free_resources(&offer.agent, &offer.resources);
                continue;
            }
            let accepted = accepted.get_or_insert_with(|| Accepted {
                framework: id.clone(),
                agent: offer.agent.clone(),
                role: offer.role.clone(),
                remaining: Resources::default(),
            });
            accepted.remaining.add(&offer.resources);
        }
        let operations = doc::list(accept, &["operations"]);
        let Some(mut accepted) = accepted else {
            let why = invalid.unwrap_or_else(|| "No offers specified".to_owned());
            self.drop_tasks(
                id,
                operations,
                &format!("Task launched with invalid offers: {why}"),
            );
            return;
        };
        for operation in operations {
            self.run_operation(&mut accepted, operation);
        }
        self.add_decline_filter(
            id,
            &accepted.agent,
            &accepted.role,
            accepted.remaining.clone(),
            refuse_duration(&accept["filters"]),
            now,
        );
        self.free_resources(&accepted.agent, &accepted.remaining);
    }

    /// The reason why these offers cannot be used, if there is one.
    fn invalid_offers(&self, id: &FrameworkId, offer_ids: &[OfferId]) -> Option<String> {
        let mut agent: Option<&AgentId> = None;
        for (index, offer_id) in offer_ids.iter().enumerate() {
            let Some(offer) = self.offers.get(offer_id).filter(|offer| offer.framework == *id) else {
                return Some(format!("Offer {offer_id} is no longer valid"));
            };
            if offer_ids[..index].contains(offer_id) {
                return Some(format!("Duplicate offer {offer_id} in offer list"));
            }
            if agent.is_some_and(|agent| *agent != offer.agent) {
                return Some(format!(
                    "Aggregated offers must belong to one single agent. Offer {offer_id} uses agent {}",
                    offer.agent
                ));
            }
            agent = Some(&offer.agent);
        }
        None
    }

    fn drop_tasks(&mut self, id: &FrameworkId, operations: &[Value], message: &str) {
        let tasks = operations.iter().flat_map(|operation| {
            doc::list(operation, &["launch", "task_infos"])
                .iter()
                .chain(doc::list(operation, &["launch_group", "task_group", "tasks"]))
        });
        for task in tasks {
            self.reject_task(id, task, TaskState::Dropped, "REASON_INVALID_OFFERS", message);
        }
    }

    fn run_operation(&mut self, accepted: &mut Accepted, operation: &Value) {
        match doc::text(operation, &["type"]).unwrap_or_default() {
            "LAUNCH" => {
                for task in doc::list(operation, &["launch", "task_infos"]) {
                    self.launch(accepted, task);
                }
            }
            "LAUNCH_GROUP" => self.launch_group(accepted, &operation["launch_group"]),
            other => self.run_resource_operation(accepted, operation, other),
        }
    }

    fn launch(&mut self, accepted: &mut Accepted, task: &Value) {
        if let Some(why) = missing_isolator(task) {
            return self.drop_limited(&accepted.framework, task, why);
        }
        if let Err(why) = self.try_launch(accepted, task) {
            let reason = "REASON_TASK_INVALID";
            self.reject_task(&accepted.framework, task, TaskState::Error, reason, &why);
        }
    }

    fn try_launch(&mut self, accepted: &mut Accepted, task: &Value) -> Result<(), String> {
        let resources = self.check_task(accepted, task, false)?;
        let executor = task
            .get("executor")
            .map(|info| self.plan_executor(accepted, info))
            .transpose()?;
        let mut needed = resources.clone();
        if let Some(executor) = &executor {
            needed.add(&executor.resources);
            if needed.port_count() < resources.port_count() + executor.resources.port_count() {
                return Err(format!(
                    "There are overlapping resources in the task resources {} and executor resources {}",
                    resources.describe(&accepted.role),
                    executor.resources.describe(&accepted.role)
                ));
            }
            if executor.exists {
                needed = resources.clone();
            }
        }
        if !accepted.remaining.contains(&needed) {
            return Err(format!(
                "Total resources {} required by task and its executor is more than available {}",
                needed.describe(&accepted.role),
                accepted.remaining.describe(&accepted.role)
            ));
        }
        accepted.remaining.subtract(&needed);
        let Some(executor) = executor else {
            self.start_task(accepted, task, resources, None);
            return Ok(());
        };
        let mut info = task.clone();
        info["executor"].clone_from(&executor.info);
        let key = (accepted.agent.clone(), executor.id);
        let task_executor = self.executor_of_tasks(accepted, executor.info, &key, executor.resources, true);
        self.start_task(accepted, &info, resources, Some(&task_executor));
        Ok(())
    }

    /// Launches a group, as a whole or not at all.
    fn launch_group(&mut self, accepted: &mut Accepted, group: &Value) {
        let tasks = doc::list(group, &["task_group", "tasks"]);
        if let Some(why) = tasks.iter().find_map(missing_isolator) {
            for task in tasks {
                self.drop_limited(&accepted.framework, task, why);
            }
            return;
        }
        if let Err(why) = self.try_launch_group(accepted, &group["executor"], tasks) {
            for task in tasks {
                self.reject_task(
                    &accepted.framework,
                    task,
                    TaskState::Error,
                    "REASON_TASK_GROUP_INVALID",
                    &why,
                );
            }
        }
    }

    fn try_launch_group(
        &mut self,
        accepted: &mut Accepted,
        executor: &Value,
        tasks: &[Value],
    ) -> Result<(), String> {
        if tasks.is_empty() {
            return Err("Task group cannot be empty".to_owned());
        }
        let id = doc::text(executor, &["executor_id", "value"])
            .unwrap_or_default()
            .to_owned();
        let key = (accepted.agent.clone(), id.clone());
        let known = self
            .frameworks
            .get(&accepted.framework)
            .and_then(|framework| framework.executors.get(&key));
        if let Some(known) = known.filter(|known| known.custom.is_some()) {
            return Err(incompatible_error(&known.info, executor));
        }
        let known = known.is_some();
        if doc::text(executor, &["type"]) != Some("DEFAULT") {
            return Err("Only the DEFAULT executor can run task groups in this cluster".to_owned());
        }
        if !is_valid_id(&id) {
            return Err(format!("Executor ID '{id}' is not a valid path component"));
        }
        let executor_resources = Resources::parse(doc::list(executor, &["resources"]))?;
        let mut needed = if known {
            Resources::default()
        } else {
            executor_resources.clone()
        };
        let mut task_resources = Vec::with_capacity(tasks.len());
        for (index, task) in tasks.iter().enumerate() {
            let prefix = format!(
                "Task '{}' is invalid: ",
                doc::text(task, &["task_id", "value"]).unwrap_or_default()
            );
            let resources = self
                .check_task(accepted, task, true)
                .map_err(|why| prefix.clone() + &why)?;
            if tasks[..index]
                .iter()
                .any(|other| other["task_id"] == task["task_id"])
            {
                return Err(format!("{prefix}its ID is used twice in the group"));
            }
            needed.add(&resources);
            task_resources.push(resources);
        }
        // If two tasks of the group request the same port, the sum has fewer ports than the tasks
        // together.
        let requested_ports: u64 = task_resources.iter().map(Resources::port_count).sum();
        if !accepted.remaining.contains(&needed) || needed.port_count() < requested_ports {
            return Err(format!(
                "Total resources {} required by task group and its executor are more than available {}",
                needed.describe(&accepted.role),
                accepted.remaining.describe(&accepted.role)
            ));
        }
        accepted.remaining.subtract(&needed);
        let info = with_framework(executor, &accepted.framework);
        let group = self.executor_of_tasks(accepted, info, &key, executor_resources, false);
        for (task, resources) in tasks.iter().zip(task_resources) {
            self.start_task(accepted, task, resources, Some(&group));
        }
        Ok(())
    }

    /// The running executor with this key, or a new one.
    fn executor_of_tasks(
        &mut self,
        accepted: &Accepted,
        info: Value,
        key: &ExecutorKey,
        resources: Resources,
        is_custom: bool,
    ) -> TaskExecutor {
        let root = self.framework_dir(&accepted.agent, &accepted.framework);
        let container = super::new_uuid().to_string();
        let new_executor = Executor {
            info,
            agent: accepted.agent.clone(),
            directory: root.join("executors").join(&key.1).join("runs").join(&container),
            container,
            role: accepted.role.clone(),
            resources,
            custom: is_custom.then(super::model::CustomExecutor::default),
        };
        let executor = match self.frameworks.get_mut(&accepted.framework) {
            Some(framework) => framework
                .executors
                .entry(key.clone())
                .or_insert(new_executor)
                .clone(),
            None => new_executor,
        };
        TaskExecutor {
            id: key.1.clone(),
            is_custom,
            executor: TaskGroup {
                volumes: self.volume_links(&executor.agent, &executor.resources),
                info: executor.info,
                container: executor.container,
                directory: executor.directory,
            },
        }
    }

    /// Checks a task and returns its resources. The error is the reason why it cannot run.
    fn check_task(&self, accepted: &Accepted, task: &Value, in_group: bool) -> Result<Resources, String> {
        let id = doc::text(task, &["task_id", "value"]).unwrap_or_default();
        if !is_valid_id(id) {
            return Err(format!("Task ID '{id}' is not a valid path component"));
        }
        if self
            .frameworks
            .get(&accepted.framework)
            .is_some_and(|framework| framework.tasks.contains_key(&TaskId::from(id)))
        {
            return Err(format!("Task has duplicate ID: {id}"));
        }
        let agent = doc::text(task, &["agent_id", "value"]).unwrap_or_default();
        if agent != accepted.agent.as_str() {
            return Err(format!(
                "Task uses invalid agent {agent} while agent {} is expected",
                accepted.agent
            ));
        }
        let (command, executor) = (task.get("command").is_some(), task.get("executor").is_some());
        if in_group && executor {
            return Err("'TaskInfo.executor' must not be set".to_owned());
        }
        if in_group && !doc::list(task, &["container", "network_infos"]).is_empty() {
            return Err("NetworkInfos must not be set on the task".to_owned());
        }
        if in_group && doc::text(task, &["container", "type"]) == Some("DOCKER") {
            return Err("Docker ContainerInfo is not supported on the task".to_owned());
        }
        if command == executor {
            return Err(
                "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present"
                    .to_owned(),
            );
        }
        let resources = Resources::parse(doc::list(task, &["resources"]))?;
        if resources.is_empty() {
            return Err("Task uses no resources".to_owned());
        }
        Ok(resources)
    }

    fn drop_limited(&mut self, id: &FrameworkId, task: &Value, why: &str) {
        self.reject_task(id, task, TaskState::Dropped, "REASON_TASK_INVALID", why);
    }

    /// Sends the update of a task that was never started.
    fn reject_task(&mut self, id: &FrameworkId, task: &Value, state: TaskState, reason: &str, message: &str) {
        let Some(framework) = self.frameworks.get(id) else {
            return;
        };
        let state = state.for_framework(framework.is_partition_aware());
        let status = json!({
            "task_id": task["task_id"],
            "state": state.as_str(),
            "message": message,
            "source": "SOURCE_MASTER",
            "reason": reason,
            "agent_id": task["agent_id"],
            "timestamp": epoch(),
        });
        self.send(id, &json!({"type": "UPDATE", "update": {"status": status}}));
    }

    /// The framework's directory in the agent's work directory, in the layout of a real agent.
    fn framework_dir(&self, agent: &AgentId, framework: &FrameworkId) -> PathBuf {
        let work_dir = self
            .agents
            .get(agent)
            .map(|agent| agent.work_dir.clone())
            .unwrap_or_default();
        work_dir
            .join("slaves")
            .join(agent.as_str())
            .join("frameworks")
            .join(framework.as_str())
    }

    fn start_task(
        &mut self,
        accepted: &Accepted,
        info: &Value,
        resources: Resources,
        task_executor: Option<&TaskExecutor>,
    ) {
        let task_id = TaskId::from(doc::text(info, &["task_id", "value"]).unwrap_or_default());
        let key = TaskKey {
            framework: accepted.framework.clone(),
            task: task_id,
        };
        let group = task_executor
            .filter(|task_executor| !task_executor.is_custom)
            .map(|task_executor| &task_executor.executor);
        let mut container = super::new_uuid().to_string();
        let directory = match task_executor {
            Some(task_executor) if task_executor.is_custom => {
                container.clone_from(&task_executor.executor.container);
                task_executor.executor.directory.clone()
            }
            Some(task_executor) => task_executor
                .executor
                .directory
                .join("containers")
                .join(&container),
            None => {
                let executor = self
                    .framework_dir(&accepted.agent, &accepted.framework)
                    .join("executors")
                    .join(key.task.as_str());
                executor.join("runs").join(&container)
            }
        };
        let task = Task {
            key: key.clone(),
            agent: accepted.agent.clone(),
            info: with_role(info, &accepted.role),
            role: accepted.role.clone(),
            resources,
            executor: task_executor.map(|task_executor| task_executor.id.clone()),
            container,
            parent: group.map(|group| group.container.clone()),
            directory,
            pid: None,
            state: TaskState::Staging,
            statuses: Vec::new(),
            agent_state: TaskState::Staging,
            agent_statuses: Vec::new(),
            pending: VecDeque::new(),
            in_flight: None,
            released: false,
        };
        let launch = self.task_launch(&task, group.cloned());
        self.announce(
            &json!({"type": "TASK_ADDED", "task_added": {"task": crate::state::operator_views::task(&task)}}),
        );
        if let Some(framework) = self.frameworks.get_mut(&accepted.framework) {
            framework.tasks.insert(key.task.clone(), task);
            let agent = launch.agent.clone();
            self.send_order(&agent, Effect::Launch(Box::new(launch)));
        }
    }

    fn task_launch(&self, task: &Task, group: Option<TaskGroup>) -> Launch {
        let agent = self.agents.get(&task.agent);
        let framework = self.frameworks.get(&task.key.framework);
        let user = doc::text(&task.info, &["command", "user"])
            .or_else(|| framework.and_then(|framework| doc::text(&framework.info, &["user"])))
            .unwrap_or_default();
        Launch {
            key: task.key.clone(),
            agent: task.agent.clone(),
            agent_addr: agent.map_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)), |agent| agent.addr),
            info: task.info.clone(),
            executor_id: task.executor_id().to_owned(),
            container: task.container.clone(),
            directory: task.directory.clone(),
            user: user.to_owned(),
            volumes: self.volume_links(&task.agent, &task.resources),
            supports_killing_state: framework
                .is_some_and(|framework| framework.has_capability("TASK_KILLING_STATE")),
            group,
            in_executor: task.is_custom(),
            is_executor: false,
            variables: Vec::new(),
        }
    }
}

/// Why an agent drops a task with limits. A real agent does so with these texts, although the master
/// accepts the task, unless its flag `isolation` contains the isolator that enforces the limit; its
/// default and the agents here have neither. Docker containers need none. The status of a real agent is
/// to be acknowledged; here the master sends it in the agent's place.
fn missing_isolator(task: &Value) -> Option<&'static str> {
    if doc::text(task, &["container", "type"]) == Some("DOCKER") {
        return None;
    }
    let limited = |name| doc::find(task, &["limits", name]).is_some();
    match (limited("cpus"), limited("mem")) {
        (true, _) => Some(
            "CPU limits can only be set on tasks launched in Mesos containers when the agent has loaded the \
             'cgroups/cpu' isolator",
        ),
        (_, true) => Some(
            "Memory limits can only be set on tasks launched in Mesos containers when the agent has loaded the \
             'cgroups/mem' isolator",
        ),
        _ => None,
    }
}

/// The task's resources with the role they are allocated to, as in every document.
pub(super) fn with_role(info: &Value, role: &str) -> Value {
    let mut info = info.clone();
    allocated_to(&mut info["resources"], role);
    info
}
