//! An agent's own documents: `/state`, `/containers`, and the responses of its `POST /api/v1`.

use crate::{
    master::{flags, operator_views, state_views},
    state::{Agent, AgentId, Executor, Framework, State, Task, VERSION, epoch},
    wire::{
        json as doc,
        resources::{Bundle, Form},
    },
};
use serde_json::{Map, Value, json};

/// The resources of a command task's executor, which are added to the task's.
fn command_executor() -> Bundle {
    Bundle::total(0.1, 32.0, 0.0, (1, 0))
}

/// An executor on the agent with its tasks: the executor of a task group, a custom executor, or
/// that of a command task.
struct Running<'a> {
    framework: &'a Framework,
    id: String,
    container: &'a str,
    directory: String,
    resources: Bundle,
    role: &'a str,
    /// `None` for a command task.
    own: Option<&'a Executor>,
    tasks: Vec<&'a Task>,
    /// Tasks that wait until the executor subscribes.
    queued: Vec<&'a Task>,
    pid: Option<u32>,
}

impl Running<'_> {
    /// The name of a command task's executor describes the command. Other executors have the name
    /// that the framework gave them, if any.
    fn name(&self) -> String {
        if let Some(executor) = self.own {
            return doc::text(&executor.info, &["name"])
                .unwrap_or_default()
                .to_owned();
        }
        let Some(task) = self.tasks.first() else {
            return String::new();
        };
        let command = &task.info["command"];
        let value = doc::text(command, &["value"]).unwrap_or_default();
        let shown = if command["shell"] == false {
            value.to_owned()
        } else {
            format!("sh -c '{value}'")
        };
        format!("Command Executor (Task: {}) (Command: {shown})", self.id)
    }

    fn source(&self) -> &str {
        match self.own {
            Some(executor) => doc::text(&executor.info, &["source"]).unwrap_or_default(),
            None => &self.id,
        }
    }
}

fn executors<'a>(state: &'a State, agent: &Agent) -> Vec<Running<'a>> {
    let mut running = Vec::new();
    for framework in state.frameworks_of_agents() {
        let here = || {
            framework
                .tasks
                .values()
                .chain(&framework.unreachable_tasks)
                .filter(|task| task.agent == agent.id)
        };
        for ((_, id), executor) in framework.executors.iter().filter(|((on, _), _)| *on == agent.id) {
            let tasks = here().filter(|task| task.executor.as_ref() == Some(id));
            let mut resources = executor.resources.clone();
            let tasks = tasks.inspect(|task| resources.add(&task.resources));
            let (queued, tasks): (Vec<&Task>, Vec<&Task>) = tasks.partition(|task| state.is_queued(task));
            let custom = executor.custom.as_ref();
            running.push(Running {
                framework,
                id: id.clone(),
                container: &executor.container,
                directory: executor.directory.display().to_string(),
                resources,
                role: &executor.role,
                own: Some(executor),
                pid: match custom {
                    Some(custom) => custom.pid,
                    None => tasks.iter().find_map(|task| task.pid),
                },
                tasks,
                queued,
            });
        }
        for task in here().filter(|task| task.executor.is_none()) {
            let mut resources = task.resources.clone();
            resources.add(&command_executor());
            running.push(Running {
                framework,
                id: task.key.task.to_string(),
                container: &task.container,
                directory: task.directory.display().to_string(),
                resources,
                role: &task.role,
                own: None,
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
    let mut used = Bundle::default();
    for executor in executors(state, agent) {
        used.add(&executor.resources);
    }
    let unreserved_full = agent.total.unreserved().messages(Form::Both, None);
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
    let mut shown = Vec::new();
    for framework in state.frameworks_of_agents().chain(&state.completed) {
        let here: Vec<&Running<'_>> = running
            .iter()
            .filter(|executor| std::ptr::eq(executor.framework, framework))
            .collect();
        let past: Vec<&Task> = framework
            .completed_tasks
            .iter()
            .filter(|task| task.agent == agent.id)
            .collect();
        let wanted = if completed {
            here.is_empty() && !past.is_empty()
        } else {
            !here.is_empty()
        };
        if !wanted {
            continue;
        }
        let mut document = doc::object(json!({
            "id": framework.id.as_str(),
            "name": framework.info["name"],
            "user": framework.info["user"],
            "failover_timeout": framework.info["failover_timeout"],
            "checkpoint": framework.info["checkpoint"],
            "hostname": framework.info.get("hostname").cloned().unwrap_or_else(|| json!("")),
            "executors": here.iter().map(|one| executor(one)).collect::<Vec<_>>(),
            "completed_executors": past.iter().map(|task| completed_executor(task)).collect::<Vec<_>>(),
        }));
        state_views::add_roles(framework, &mut document);
        shown.push(Value::Object(document));
    }
    shown
}

fn executor(running: &Running<'_>) -> Value {
    let shown = |tasks: &[&Task]| -> Vec<Value> {
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
        "tasks": shown(&running.tasks),
        "queued_tasks": shown(&running.queued),
        "completed_tasks": [],
    }));
    let info = match running.own {
        Some(executor) => Some(&executor.info),
        None => running.tasks.first().map(|task| &task.info),
    };
    let labels = info.and_then(|info| doc::find(info, &["labels", "labels"]));
    doc::put(&mut document, "labels", labels.cloned());
    if let Some(executor) = running.own {
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
        "resources": Bundle::default().summary(),
        "role": task.role,
        "tasks": [],
        "queued_tasks": [],
        "completed_tasks": [state_views::task_in(task, task.agent_state, &task.agent_statuses)],
    })
}

/// The statistics that need no isolator: the limits, and the resident memory of the executor's
/// process.
fn statistics(running: &Running<'_>) -> Map<String, Value> {
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

fn container_status(running: &Running<'_>) -> Value {
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
    let part = match kind {
        "GET_HEALTH" => json!({"healthy": true}),
        "GET_FLAGS" => flags::listed(&flags::agent(state, agent)),
        "GET_VERSION" => json!({"version_info": state_views::version()}),
        "GET_METRICS" => crate::master::metrics::listed(&metrics(state, agent)),
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
    let mut answer = Map::new();
    answer.insert("type".to_owned(), json!(kind));
    answer.insert(kind.to_ascii_lowercase(), part);
    Some(Value::Object(answer))
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
    for framework in state.frameworks_of_agents().chain(&state.completed) {
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
            let info = running.own.map_or_else(
                || command_executor_info(running),
                |executor| executor.info.clone(),
            );
            json!({ "executor_info": info })
        })
        .collect();
    json!({"executors": executors, "completed_executors": []})
}

/// The executor that an agent generates for a command task.
fn command_executor_info(running: &Running<'_>) -> Value {
    let mut info = doc::object(json!({
        "executor_id": doc::id(&running.id),
        "framework_id": doc::id(running.framework.id.as_str()),
        "command": {"shell": false, "value": "mesos-executor", "arguments": ["mesos-executor"]},
        "resources": command_executor().messages(Form::Refined, Some(running.role)),
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
    let here = |framework: &&Framework| {
        running
            .iter()
            .any(|executor| std::ptr::eq(executor.framework, *framework))
    };
    let info = |framework: &Framework| json!({"framework_info": framework.info});
    json!({
        "frameworks": state.frameworks_of_agents().filter(here).map(info).collect::<Vec<_>>(),
        "completed_frameworks": state
            .completed
            .iter()
            .filter(|framework| framework.completed_tasks.iter().any(|task| task.agent == agent.id))
            .map(info)
            .collect::<Vec<_>>(),
    })
}

/// GET /metrics/snapshot of an agent.
pub(crate) fn metrics(state: &State, agent: &Agent) -> Value {
    let running = executors(state, agent);
    let mut used = Bundle::default();
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
    crate::master::metrics::usage(&agent.total, &used, put);
    Value::Object(metrics)
}
