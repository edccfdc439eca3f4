//! An agent's own documents: `/state`, `/containers`, and the responses of its `POST /api/v1`.

use crate::{
    master::{flags, state_views},
    state::{Agent, AgentId, Executor, Framework, State, Task, VERSION, epoch, operator_views},
    wire::{
        json as doc,
        resources::{ReservationFormat, Resources},
    },
};
use serde_json::{Map, Value, json};

/// The resources of a command task's executor, which are added to the task's.
fn command_executor_resources() -> Resources {
    Resources::total(0.1, 32.0, 0.0, (1, 0))
}

/// An executor on the agent with its tasks: the executor of a task group, a custom executor, or
/// that of a command task.
struct ExecutorView<'a> {
    framework: &'a Framework,
    id: String,
    container: &'a str,
    directory: String,
    resources: Resources,
    role: &'a str,
    /// `None` for a command task.
    executor: Option<&'a Executor>,
    tasks: Vec<&'a Task>,
    /// Tasks that wait until the executor subscribes.
    queued: Vec<&'a Task>,
    pid: Option<u32>,
}

impl ExecutorView<'_> {
    /// The name of a command task's executor describes the command. Other executors have the name
    /// that the framework gave them, if any.
    fn name(&self) -> String {
        if let Some(executor) = self.executor {
            return doc::text(&executor.info, &["name"])
                .unwrap_or_default()
                .to_owned();
        }
        let Some(task) = self.tasks.first() else {
            return String::new();
        };
        let command = &task.info["command"];
        let value = doc::text(command, &["value"]).unwrap_or_default();
        let command_text = if command["shell"] == false {
            value.to_owned()
        } else {
            format!("sh -c '{value}'")
        };
        format!("Command Executor (Task: {}) (Command: {command_text})", self.id)
    }

    fn source(&self) -> &str {
        match self.executor {
            Some(executor) => doc::text(&executor.info, &["source"]).unwrap_or_default(),
            None => &self.id,
        }
    }
}

fn executors<'a>(state: &'a State, agent: &Agent) -> Vec<ExecutorView<'a>> {
    let mut running = Vec::new();
    for framework in state.frameworks_of_agents() {
        let on_agent = || {
            framework
                .tasks
                .values()
                .chain(&framework.unreachable_tasks)
                .filter(|task| task.agent == agent.id)
        };
        for ((_, id), executor) in framework.executors.iter().filter(|((on, _), _)| *on == agent.id) {
            let tasks = on_agent().filter(|task| task.executor.as_ref() == Some(id));
            let mut resources = executor.resources.clone();
            let tasks = tasks.inspect(|task| resources.add(&task.resources));
            let (queued, tasks): (Vec<&Task>, Vec<&Task>) = tasks.partition(|task| state.is_queued(task));
            let custom = executor.custom.as_ref();
            running.push(ExecutorView {
                framework,
                id: id.clone(),
                container: &executor.container,
                directory: executor.directory.display().to_string(),
                resources,
                role: &executor.role,
                executor: Some(executor),
                pid: match custom {
                    Some(custom) => custom.pid,
                    None => tasks.iter().find_map(|task| task.pid),
                },
                tasks,
                queued,
            });
        }
        for task in on_agent().filter(|task| task.executor.is_none()) {
            let mut resources = task.resources.clone();
            resources.add(&command_executor_resources());
            running.push(ExecutorView {
                framework,
                id: task.key.task.to_string(),
                container: &task.container,
                directory: task.directory.display().to_string(),
                resources,
                role: &task.role,
                executor: None,
                tasks: vec![task],
                queued: Vec::new(),
                pid: task.pid,
            });
        }
    }
    running
}

/// GET /state of an agent.
pub(crate) fn state(state: &State, agent: &Agent) -> Value {
    let mut used = Resources::default();
    for executor in executors(state, agent) {
        used.add(&executor.resources);
    }
    let unreserved_full = agent.total.unreserved().messages(ReservationFormat::Both, None);
    json!({
        "version": VERSION,
        "build_date": state_views::BUILD_DATE,
        "build_time": state_views::BUILD_TIME,
        "build_user": "",
        "start_time": agent.registered,
        "id": agent.id.as_str(),
        "pid": agent.pid(),
        "hostname": agent.config.hostname,
        "capabilities": operator_views::AGENT_CAPABILITIES,
        "resources": agent.total.summary(),
        "reserved_resources": state_views::summaries(&agent.total),
        "unreserved_resources": agent.total.unreserved().summary(),
        "reserved_resources_full": state_views::reserved_full(&agent.total),
        "unreserved_resources_full": unreserved_full,
        "reserved_resources_allocated": state_views::summaries(&used),
        "unreserved_resources_allocated": used.unreserved().summary(),
        "resource_providers": [],
        "attributes": agent.attributes_plain,
        "master_hostname": state.master.hostname,
        "flags": flags::agent(state, agent),
        "frameworks": frameworks(state, agent, false),
        "completed_frameworks": frameworks(state, agent, true),
    })
}

/// Frameworks on the agent: those with tasks or executors or, if `completed`, those with only
/// completed tasks.
fn frameworks(state: &State, agent: &Agent, completed: bool) -> Vec<Value> {
    let running = executors(state, agent);
    let mut documents = Vec::new();
    for framework in state.frameworks_of_agents().chain(&state.completed_frameworks) {
        let on_agent: Vec<&ExecutorView<'_>> = running
            .iter()
            .filter(|executor| std::ptr::eq(executor.framework, framework))
            .collect();
        let completed_tasks: Vec<&Task> = framework
            .completed_tasks
            .iter()
            .filter(|task| task.agent == agent.id)
            .collect();
        let is_listed = if completed {
            on_agent.is_empty() && !completed_tasks.is_empty()
        } else {
            !on_agent.is_empty()
        };
        if !is_listed {
            continue;
        }
        let mut document = doc::object(json!({
            "id": framework.id.as_str(),
            "name": framework.info["name"],
            "user": framework.info["user"],
            "failover_timeout": framework.info["failover_timeout"],
            "checkpoint": framework.info["checkpoint"],
            "hostname": framework.info.get("hostname").cloned().unwrap_or_else(|| json!("")),
            "executors": on_agent.iter().map(|view| executor(view)).collect::<Vec<_>>(),
            "completed_executors": completed_tasks.iter().map(|task| completed_executor(task)).collect::<Vec<_>>(),
        }));
        state_views::add_roles(framework, &mut document);
        documents.push(Value::Object(document));
    }
    documents
}

fn executor(running: &ExecutorView<'_>) -> Value {
    let task_documents = |tasks: &[&Task]| -> Vec<Value> {
        let tasks = tasks.iter();
        tasks
            .map(|task| state_views::task_in(task, task.agent_state, &task.agent_statuses))
            .collect()
    };
    let mut document = doc::object(json!({
        "id": running.id,
        "name": running.name(),
        "source": running.source(),
        "container": running.container,
        "directory": running.directory,
        "resources": running.resources.summary(),
        "role": running.role,
        "tasks": task_documents(&running.tasks),
        "queued_tasks": task_documents(&running.queued),
        "completed_tasks": [],
    }));
    let info = match running.executor {
        Some(executor) => Some(&executor.info),
        None => running.tasks.first().map(|task| &task.info),
    };
    let labels = info.and_then(|info| doc::find(info, &["labels", "labels"]));
    doc::put(&mut document, "labels", labels.cloned());
    if let Some(executor) = running.executor {
        doc::copy(&executor.info, &mut document, &["type"]);
    }
    Value::Object(document)
}

fn completed_executor(task: &Task) -> Value {
    json!({
        "id": task.executor_id(),
        "name": "",
        "source": task.key.task.as_str(),
        "container": task.container,
        "directory": task.directory.display().to_string(),
        "resources": Resources::default().summary(),
        "role": task.role,
        "tasks": [],
        "queued_tasks": [],
        "completed_tasks": [state_views::task_in(task, task.agent_state, &task.agent_statuses)],
    })
}

/// The statistics that need no isolator: the limits, and the resident memory of the executor's
/// process.
fn statistics(running: &ExecutorView<'_>) -> Map<String, Value> {
    let bytes = (running.resources.scalar("mem") * 1_048_576.0) as u64;
    doc::object(json!({
        "timestamp": epoch(),
        "cpus_soft_limit": running.resources.scalar("cpus"),
        "cpus_system_time_secs": 0.0,
        "cpus_user_time_secs": 0.0,
        "mem_limit_bytes": bytes,
        "mem_soft_limit_bytes": bytes,
        "mem_rss_bytes": running.pid.map_or(0, resident_bytes),
    }))
}

/// Resident memory of a process; zero if it does not exist.
fn resident_bytes(pid: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok();
    pages
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

fn container_status(running: &ExecutorView<'_>) -> Value {
    let mut status = doc::object(json!({"container_id": doc::id(running.container)}));
    doc::put(&mut status, "executor_pid", running.pid.map(|pid| json!(pid)));
    Value::Object(status)
}

/// GET /containers and GET /monitor/statistics.
pub(crate) fn containers(state: &State, agent: &Agent, with_status: bool) -> Value {
    executors(state, agent)
        .iter()
        .map(|running| {
            let mut document = doc::object(json!({
                "executor_id": running.id,
                "executor_name": running.name(),
                "framework_id": running.framework.id.as_str(),
                "source": running.source(),
                "statistics": statistics(running),
            }));
            if with_status {
                document.insert("container_id".to_owned(), json!(running.container));
                document.insert("status".to_owned(), container_status(running));
            }
            Value::Object(document)
        })
        .collect()
}

/// The response to a read-only call; `None` for unknown calls.
pub(crate) fn get_call(state: &State, agent: &Agent, kind: &str) -> Option<Value> {
    let body = match kind {
        "GET_HEALTH" => json!({"healthy": true}),
        "GET_FLAGS" => flags::to_list(&flags::agent(state, agent)),
        "GET_VERSION" => json!({"version_info": state_views::version()}),
        "GET_METRICS" => crate::master::metrics::to_list(&metrics(state, agent)),
        "GET_LOGGING_LEVEL" => json!({"level": 0}),
        "GET_AGENT" => json!({"agent_info": operator_views::agent_info(agent, false)}),
        "GET_CONTAINERS" => get_containers(state, agent),
        "GET_TASKS" => get_tasks(state, &agent.id),
        "GET_EXECUTORS" => get_executors(state, agent),
        "GET_FRAMEWORKS" => get_frameworks(state, agent),
        "GET_OPERATIONS" => json!({}),
        "GET_STATE" => json!({
            "get_tasks": get_tasks(state, &agent.id),
            "get_executors": get_executors(state, agent),
            "get_frameworks": get_frameworks(state, agent),
        }),
        _ => return None,
    };
    let mut response = Map::new();
    response.insert("type".to_owned(), json!(kind));
    response.insert(kind.to_ascii_lowercase(), body);
    Some(Value::Object(response))
}

fn get_containers(state: &State, agent: &Agent) -> Value {
    let containers: Vec<Value> = executors(state, agent)
        .iter()
        .map(|running| {
            json!({
                "framework_id": doc::id(running.framework.id.as_str()),
                "executor_id": doc::id(&running.id),
                "executor_name": running.name(),
                "container_id": doc::id(running.container),
                "container_status": container_status(running),
                "resource_statistics": statistics(running),
            })
        })
        .collect();
    json!({ "containers": containers })
}

fn get_tasks(state: &State, agent: &AgentId) -> Value {
    let (mut queued, mut launched) = (Vec::new(), Vec::new());
    let (mut terminated, mut completed) = (Vec::new(), Vec::new());
    for framework in state.frameworks_of_agents().chain(&state.completed_frameworks) {
        for task in framework
            .tasks
            .values()
            .chain(&framework.unreachable_tasks)
            .filter(|task| task.agent == *agent)
        {
            let list = if task.agent_state.is_terminal() {
                &mut terminated
            } else if state.is_queued(task) {
                &mut queued
            } else {
                &mut launched
            };
            list.push(operator_views::task(task));
        }
        completed.extend(
            framework
                .completed_tasks
                .iter()
                .filter(|task| task.agent == *agent)
                .map(operator_views::task),
        );
    }
    json!({
        "pending_tasks": [],
        "queued_tasks": queued,
        "launched_tasks": launched,
        "terminated_tasks": terminated,
        "completed_tasks": completed,
    })
}

fn get_executors(state: &State, agent: &Agent) -> Value {
    let executors: Vec<Value> = executors(state, agent)
        .iter()
        .map(|running| {
            let info = running.executor.map_or_else(
                || command_executor_info(running),
                |executor| executor.info.clone(),
            );
            json!({ "executor_info": info })
        })
        .collect();
    json!({"executors": executors, "completed_executors": []})
}

/// The executor that an agent generates for a command task.
fn command_executor_info(running: &ExecutorView<'_>) -> Value {
    let mut info = doc::object(json!({
        "executor_id": doc::id(&running.id),
        "framework_id": doc::id(running.framework.id.as_str()),
        "command": {"shell": false, "value": "mesos-executor", "arguments": ["mesos-executor"]},
        "resources": command_executor_resources().messages(ReservationFormat::Refined, Some(running.role)),
        "name": running.name(),
        "source": running.source(),
    }));
    if let Some(task) = running.tasks.first() {
        doc::copy(&task.info, &mut info, &["discovery", "labels"]);
        if let (Some(environment), Some(Value::Object(command))) = (
            doc::find(&task.info, &["command", "environment"]),
            info.get_mut("command"),
        ) {
            command.insert("environment".to_owned(), environment.clone());
        }
    }
    Value::Object(info)
}

fn get_frameworks(state: &State, agent: &Agent) -> Value {
    let running = executors(state, agent);
    let on_agent = |framework: &&Framework| {
        running
            .iter()
            .any(|executor| std::ptr::eq(executor.framework, *framework))
    };
    let info = |framework: &Framework| json!({"framework_info": framework.info});
    json!({
        "frameworks": state.frameworks_of_agents().filter(on_agent).map(info).collect::<Vec<_>>(),
        "completed_frameworks": state
            .completed_frameworks
            .iter()
            .filter(|framework| framework.completed_tasks.iter().any(|task| task.agent == agent.id))
            .map(info)
            .collect::<Vec<_>>(),
    })
}

/// GET /metrics/snapshot of an agent.
pub(crate) fn metrics(state: &State, agent: &Agent) -> Value {
    let running = executors(state, agent);
    let mut used = Resources::default();
    for executor in &running {
        used.add(&executor.resources);
    }
    let mut metrics = Map::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("slave/{name}"), json!(value));
    };
    put("registered", 1.0);
    put("uptime_secs", epoch() - agent.registered);
    put("executors_running", running.len() as f64);
    put(
        "tasks_running",
        running.iter().map(|executor| executor.tasks.len()).sum::<usize>() as f64,
    );
    crate::master::metrics::add_usage(&agent.total, &used, put);
    Value::Object(metrics)
}
