//! The cluster without listeners, processes and a clock of its own, for simulations: the same state
//! and rules, driven by the caller.
//!
//! Only the scheduler API is served. The caller passes the time, delivers answers and events, and
//! runs the tasks ([`Cluster::orders`], [`Cluster::report`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use tokio::sync::mpsc;

use crate::config::{AgentConfig, Config, Registry};
use crate::state::{
    self, AgentId, AgentUpdate, Effect, FrameworkId, Gate, Master, Port, Restart, State, TaskKey, TaskState,
    VERSION, epoch, validate_scheduler_call,
};
use crate::wire::{json as doc, messages, schema};

pub use crate::wire::recordio::ConnectionCut;

/// A cluster with one master.
#[derive(Debug)]
pub struct Cluster {
    state: State,
    master: SocketAddr,
    agents: Vec<SocketAddr>,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The connection is refused.
    Refused,
    /// A complete answer.
    Complete(StatusCode, String),
    /// An event stream; an error is the end of its connection.
    Stream(Subscription),
}

/// An open event stream.
#[derive(Debug)]
pub struct Subscription {
    /// The header `Mesos-Stream-Id`.
    pub stream_id: String,
    /// The framework's id; `None` if the stream has only an error.
    pub framework: Option<String>,
    /// The records.
    pub events: mpsc::Receiver<Result<Bytes, ConnectionCut>>,
}

/// A task, among all frameworks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// The framework's id.
    pub framework: String,
    /// The task's id.
    pub id: String,
}

/// What an agent has to do.
#[derive(Clone, Debug)]
pub enum Order {
    /// Run a task.
    Launch {
        /// The task.
        task: Task,
        /// The number of its agent.
        agent: usize,
    },
    /// Kill a task.
    Kill(Task),
}

/// What became of a task's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// `TASK_STARTING`
    Starting,
    /// `TASK_RUNNING`
    Running,
    /// `TASK_FINISHED`
    Finished,
    /// `TASK_FAILED`
    Failed,
    /// `TASK_KILLED`
    Killed,
}

impl Cluster {
    /// A cluster with `agents` agents of 4 CPUs and 4096 MB.
    pub fn new(agents: u8, now: Instant) -> Self {
        let master = SocketAddr::from(([10, 0, 0, 1], 5050));
        let addrs: Vec<SocketAddr> = (1..=agents)
            .map(|number| SocketAddr::from(([10, 0, 1, number], 5051)))
            .collect();
        let config = Config {
            agents: addrs.iter().map(agent_config).collect(),
            ..Config::three_agents(PathBuf::from("/simulated"))
        };
        let identity = Master {
            id: state::new_uuid().to_string(),
            hostname: master.ip().to_string(),
            cluster: "simulated".to_owned(),
            addr: master,
            started: epoch(),
        };
        let mut state = State::new(config.clone(), identity, None, now);
        for (config, addr) in config.agents.into_iter().zip(&addrs) {
            let id = state.new_agent_id();
            state.add_agent(id, config, *addr, PathBuf::from("/simulated"), now);
        }
        Self {
            state,
            master,
            agents: addrs,
        }
    }

    /// The master's address.
    pub fn master(&self) -> SocketAddr {
        self.master
    }

    /// Answers a request to the master.
    pub fn answer(&mut self, path: &str, stream_id: Option<&str>, body: &[u8], now: Instant) -> Answer {
        let state = &mut self.state;
        if state.gate(&Port::Master(self.master), now) == Gate::Closed {
            return Answer::Refused;
        }
        let text = |status, text: &str| Answer::Complete(status, text.to_owned());
        if state.is_starting(self.master, now) {
            return text(StatusCode::NOT_FOUND, "");
        }
        state.recover(now);
        match path {
            "/version" | "/master/version" => {
                return Answer::Complete(StatusCode::OK, json!({"version": VERSION}).to_string());
            }
            "/api/v1/scheduler" => {}
            _ => return text(StatusCode::NOT_FOUND, ""),
        }
        if state.is_recovering() {
            return text(
                StatusCode::SERVICE_UNAVAILABLE,
                "Master has not finished recovery",
            );
        }
        let call = match schema::read_body(&messages::SCHEDULER_CALL, "Call", body) {
            Ok(call) => call,
            Err(why) => return Answer::Complete(StatusCode::BAD_REQUEST, why),
        };
        if let Err(why) = validate_scheduler_call(&call, None) {
            return Answer::Complete(StatusCode::BAD_REQUEST, why);
        }
        if doc::text(&call, &["type"]) == Some("SUBSCRIBE") {
            let subscribed = state.subscribe(&call, now);
            return Answer::Stream(Subscription {
                stream_id: subscribed.stream_id,
                framework: subscribed.framework.map(|id| id.as_str().to_owned()),
                events: subscribed.events,
            });
        }
        let reply = state.scheduler_call(&call, stream_id, None, now);
        let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Answer::Complete(status, reply.body)
    }

    /// The client of a stream has disconnected.
    pub fn stream_closed(&mut self, framework: &str, stream_id: &str, now: Instant) {
        self.state
            .stream_closed(&FrameworkId::from(framework.to_owned()), stream_id, now);
    }

    /// Performs what is due.
    pub fn tick(&mut self, now: Instant) {
        self.state.tick(now);
    }

    /// What agents have to do since the last call.
    pub fn orders(&mut self) -> Vec<Order> {
        let effects = std::mem::take(&mut self.state.effects).into_iter();
        let orders = effects.filter_map(|effect| match effect {
            Effect::Launch(launch) => Some(Order::Launch {
                agent: self.agents.iter().position(|addr| *addr == launch.agent_addr)?,
                task: Task::of(&launch.key),
            }),
            Effect::Kill(key, _) => Some(Order::Kill(Task::of(&key))),
            _ => None,
        });
        orders.collect()
    }

    /// An agent's report of a task. After one of an end, its process no longer runs.
    pub fn report(&mut self, task: &Task, report: Report, now: Instant) {
        let state = match report {
            Report::Starting => TaskState::Starting,
            Report::Running => TaskState::Running,
            Report::Finished => TaskState::Finished,
            Report::Failed => TaskState::Failed,
            Report::Killed => TaskState::Killed,
        };
        let key = task.key();
        self.state.agent_update(&key, &AgentUpdate::new(state), now);
        if state.is_terminal() {
            self.state.process_ended(&key);
        }
    }

    /// Breaks the connection between the master and an agent, whose tasks continue.
    pub fn disconnect_agent(&mut self, agent: usize, now: Instant) {
        if let Some(id) = self.agent_id(agent) {
            self.state.disconnect_agent(&id, now);
        }
    }

    /// Connects the agent again.
    pub fn reconnect_agent(&mut self, agent: usize, now: Instant) {
        if let Some(id) = self.agent_id(agent) {
            self.state.reconnect_agent(&id, now);
        }
    }

    /// Kills the master, and starts it again after `down`. It keeps its list of agents.
    pub fn restart_master(&mut self, down: Duration, now: Instant) {
        let restart = Restart {
            registry: Registry::ReplicatedLog,
            down,
            election: Duration::ZERO,
            starting: Duration::from_millis(200),
            recovery: Duration::from_millis(800),
            swaps_leader: false,
        };
        self.state.restart_master(restart, now);
    }

    /// Loses the next `count` updates of agents on their way to the master.
    pub fn lose_updates(&mut self, count: u64) {
        self.state.lose_updates(count);
    }

    fn agent_id(&self, agent: usize) -> Option<AgentId> {
        self.state.agent_id_at(*self.agents.get(agent)?)
    }
}

impl Task {
    fn of(key: &TaskKey) -> Self {
        Self {
            framework: key.framework.as_str().to_owned(),
            id: key.task.as_str().to_owned(),
        }
    }

    fn key(&self) -> TaskKey {
        TaskKey {
            framework: FrameworkId::from(self.framework.clone()),
            task: self.id.clone().into(),
        }
    }
}

fn agent_config(addr: &SocketAddr) -> AgentConfig {
    AgentConfig {
        ip: Ipv4Addr::UNSPECIFIED.into(),
        port: addr.port(),
        hostname: format!("agent-{}", addr.ip()),
        cpus: 4.0,
        mem: 4096.0,
        disk: 10_000.0,
        disks: Vec::new(),
        ports: (31_000, 31_100),
        attributes: Vec::new(),
    }
}
