//! The cluster without listeners, processes and a clock of its own, for simulations: the same state
//! and rules, driven by the caller.
//!
//! The masters' APIs and documents are served, without the routes for maintenance and teardown. The
//! caller passes the time, delivers answers and events, and runs the tasks ([`Cluster::orders`],
//! [`Cluster::report`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::http::Response;
use ::http::request::Parts;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::config::{AgentConfig, Config, Registry};
use crate::http::{complete, json, not_found};
use crate::master::http;
use crate::state::{
    self, AgentId, AgentUpdate, Effect, FrameworkId, Gate, Master, Port, Restart, State, TaskKey, TaskState,
    epoch,
};

pub use crate::wire::recordio::ConnectionCut;

/// A restart of the leading master.
const RESTART: Restart = Restart {
    registry: Registry::ReplicatedLog,
    down: Duration::ZERO,
    election: Duration::ZERO,
    starting: Duration::from_millis(200),
    recovery: Duration::from_millis(800),
    swaps_leader: false,
    away: None,
};
/// How long masters redirect to the dead one although ZooKeeper names another one.
const UNAWARE: Duration = Duration::from_millis(300);
/// How long after that they know of no leader.
const ELECTING: Duration = Duration::from_millis(300);

/// A cluster with one or more masters, one of which leads.
#[derive(Debug)]
pub struct Cluster {
    state: State,
    masters: Vec<SocketAddr>,
    agents: Vec<SocketAddr>,
    /// In the order of their numbers.
    registrations: Vec<Registration>,
}

/// A master's registration in ZooKeeper.
#[derive(Debug)]
struct Registration {
    number: u64,
    master: SocketAddr,
    from: Instant,
    until: Option<Instant>,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The connection is refused.
    Refused,
    /// A complete answer.
    Complete(Response<Bytes>),
    /// An event stream; an error is the end of its connection.
    Stream(Subscription),
}

/// An open event stream.
#[derive(Debug)]
pub struct Subscription {
    /// The header `Mesos-Stream-Id`; `None` for an operator's stream.
    pub stream_id: Option<String>,
    /// The framework's id; `None` if the stream has only an error, or is an operator's.
    pub framework: Option<String>,
    /// The records. Dropping this ends an operator's stream.
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
        /// Its description by the framework.
        info: Value,
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
    /// A cluster with `agents` agents of 4 CPUs and 4096 MB, at [`agent_address`] with port 5051, and
    /// that many masters, at 10.0.0.1:5050 and so on.
    pub fn new(agents: u16, masters: u8, now: Instant) -> Self {
        let masters: Vec<SocketAddr> = (1..=masters.max(1))
            .map(|number| SocketAddr::from(([10, 0, 0, number], 5050)))
            .collect();
        let leader = masters[0];
        let addrs: Vec<SocketAddr> = (0..agents)
            .map(|number| SocketAddr::from((agent_address(number), 5051)))
            .collect();
        let config = Config {
            agents: addrs.iter().map(agent_config).collect(),
            ..Config::three_agents(PathBuf::from("/simulated"))
        };
        let identity = Master {
            id: state::new_uuid().to_string(),
            hostname: leader.ip().to_string(),
            cluster: "simulated".to_owned(),
            addr: leader,
            started: epoch(),
        };
        let standbys = masters[1..].iter().map(|addr| (addr.ip().to_string(), *addr));
        let mut state = State::new(config.clone(), identity, standbys.collect(), now);
        // As with `--max_completed_tasks_per_framework=10`: with the default, most of the time of a
        // simulation goes into documents about tasks that have ended.
        state.max_completed_tasks = 10;
        for (config, addr) in config.agents.into_iter().zip(&addrs) {
            let id = state.new_agent_id();
            state.add_agent(id, config, *addr, PathBuf::from("/simulated"), now);
        }
        Self {
            state,
            registrations: (0..)
                .zip(&masters)
                .map(|(number, master)| Registration {
                    number,
                    master: *master,
                    from: now,
                    until: None,
                })
                .collect(),
            masters,
            agents: addrs,
        }
    }

    /// The masters' addresses. The first one leads from the start.
    pub fn masters(&self) -> &[SocketAddr] {
        &self.masters
    }

    /// The masters' registrations in ZooKeeper, with their numbers. The first one leads.
    pub fn registered(&self, now: Instant) -> Vec<(u64, SocketAddr)> {
        let current = self.registrations.iter().filter(|registration| {
            registration.from <= now && registration.until.is_none_or(|until| now < until)
        });
        current
            .map(|registration| (registration.number, registration.master))
            .collect()
    }

    /// The master that ZooKeeper names as the leader.
    pub fn leader_by_zookeeper(&self, now: Instant) -> Option<SocketAddr> {
        self.registered(now).first().map(|(_, master)| *master)
    }

    /// Answers a request that is sent to `address`. At an agent's address nothing is found.
    pub fn answer(&mut self, address: SocketAddr, head: &Parts, body: &[u8], now: Instant) -> Answer {
        if self.agents.contains(&address) {
            return Answer::Complete(complete(not_found().into_response()));
        }
        let is_closed = self.state.gate(&Port::Master(address), now) == Gate::Closed;
        if is_closed || !self.masters.contains(&address) {
            return Answer::Refused;
        }
        match http::answer(&mut self.state, address, head, body, now) {
            Ok(http::Answer::Complete(response)) => Answer::Complete(complete(response)),
            Ok(http::Answer::Document(document)) => Answer::Complete(complete(json(&document))),
            Ok(http::Answer::Framework(subscribed)) => Answer::Stream(Subscription {
                stream_id: Some(subscribed.stream_id),
                framework: subscribed.framework.map(|id| id.as_str().to_owned()),
                events: subscribed.events,
            }),
            Ok(http::Answer::Operator(events)) => Answer::Stream(Subscription {
                stream_id: None,
                framework: None,
                events,
            }),
            Err(rejection) => Answer::Complete(complete(rejection.into_response())),
        }
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
                info: launch.info,
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

    /// Connects an agent whose machine has lost its disk: it has another id.
    pub fn replace_agent(&mut self, agent: usize, now: Instant) {
        if let Some(id) = self.agent_id(agent) {
            self.state.replace_agent(&id, now);
        }
    }

    /// Kills the leading master, and starts it again after `down`. It keeps its list of agents, and
    /// its session with ZooKeeper. Does nothing while no master leads.
    pub fn restart_master(&mut self, down: Duration, now: Instant) {
        self.state.recover(now);
        if !self.state.is_electing() {
            let restart = Restart { down, ..RESTART };
            self.state.restart_master(restart, now);
        }
    }

    /// Kills the leading master. After `election` ZooKeeper names another one, which learns of it
    /// later. The killed one is started again after `down`, but not before the other one leads, and
    /// then follows. Does nothing while no master leads.
    ///
    /// One master at a time can be down: an earlier one is up again.
    pub fn fail_over(&mut self, down: Duration, election: Duration, now: Instant) {
        self.state.recover(now);
        if self.state.is_electing() {
            return;
        }
        let (leader, named) = (self.state.master.addr, now + election);
        let restart = Restart {
            down: election + UNAWARE,
            election: ELECTING,
            swaps_leader: true,
            away: Some(down),
            ..RESTART
        };
        self.state.restart_master(restart, now);
        let number = self.registrations.last().map_or(0, |last| last.number + 1);
        self.registrations
            .retain(|registration| registration.until.is_none());
        for registration in &mut self.registrations {
            registration.until = (registration.master == leader).then_some(named);
        }
        self.registrations.push(Registration {
            number,
            master: leader,
            from: (named + UNAWARE + ELECTING).max(now + down),
            until: None,
        });
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

/// The address of an agent, by its number: 10.1.0.0 and so on.
pub fn agent_address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 1, high, low)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Images;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use transom_replay::client::{self, Request};

    fn ask(
        cluster: &mut Cluster,
        master: SocketAddr,
        path: &str,
        call: Option<&Value>,
        now: Instant,
    ) -> Answer {
        let request = ::http::Request::builder().uri(path);
        let request = match call {
            Some(_) => request.method("POST").header("content-type", "application/json"),
            None => request,
        };
        let (head, ()) = request.body(()).unwrap().into_parts();
        let body = call.map(Value::to_string).unwrap_or_default();
        cluster.answer(master, &head, body.as_bytes(), now)
    }

    /// The document with types in place of values.
    fn form(document: &Value) -> Value {
        match document {
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (key.clone(), form(value)))
                .collect(),
            Value::Array(items) => items.iter().map(form).collect(),
            Value::String(_) => json!("text"),
            Value::Number(_) => json!("number"),
            other => other.clone(),
        }
    }

    #[tokio::test]
    async fn operator_answers_have_the_form_of_those_of_the_http_server() {
        let now = Instant::now();
        let mut cluster = Cluster::new(2, 1, now);
        let leader = cluster.masters()[0];
        let (work_dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let agent = |number: u8| AgentConfig {
            ip: Ipv4Addr::new(127, 0, 0, number).into(),
            ..agent_config(&SocketAddr::from(([127, 0, 0, number], 0)))
        };
        let config = Config {
            agents: [1, 2].map(agent).to_vec(),
            images: Images::Process,
            ..Config::new(work_dir.path())
        };
        let server = config.start(token.clone()).await.unwrap();
        let paths = [
            "/state",
            "/master/state",
            "/state-summary",
            "/slaves",
            "/master/slaves",
            "/frameworks",
            "/tasks",
            "/roles",
            "/flags",
            "/version",
            "/health",
            "/redirect",
            "/metrics/snapshot",
            "/nothing",
        ];
        let calls = [
            "GET_HEALTH",
            "GET_STATE",
            "GET_AGENTS",
            "GET_FRAMEWORKS",
            "GET_TASKS",
            "GET_MASTER",
            "GET_ROLES",
            "GET_MAINTENANCE_SCHEDULE",
            "GET_NOTHING",
        ];
        let documents = paths.map(|path| (path, None));
        let calls = calls.map(|call| ("/api/v1", Some(json!({"type": call}))));
        for (path, call) in documents.into_iter().chain(calls) {
            let request = match &call {
                Some(call) => Request::post(path, call),
                None => Request::get(path),
            };
            let expected = client::exchange(server.master(), &request).await.unwrap();
            let Answer::Complete(answer) = ask(&mut cluster, leader, path, call.as_ref(), now) else {
                panic!("{path} is a document");
            };
            assert_eq!(answer.status().as_u16(), expected.head.code(), "{path} {call:?}");
            let document = |body: &[u8]| serde_json::from_slice(body).map(|body| form(&body)).ok();
            assert_eq!(
                document(answer.body()),
                document(expected.text().as_bytes()),
                "{path} {call:?}"
            );
        }
        token.cancel();
        server.stopped().await;
    }

    #[test]
    fn an_operators_stream_has_the_state_and_the_changes_until_it_is_dropped() {
        let now = Instant::now();
        let mut cluster = Cluster::new(1, 1, now);
        let leader = cluster.masters()[0];
        let subscribe = json!({"type": "SUBSCRIBE"});
        let Answer::Stream(mut stream) = ask(&mut cluster, leader, "/api/v1", Some(&subscribe), now) else {
            panic!("it is a stream");
        };
        let mut next = || String::from_utf8(stream.events.try_recv().unwrap().unwrap().to_vec()).unwrap();
        assert!(next().contains(r#""hostname":"agent-10.1.0.0""#));
        assert!(next().contains("HEARTBEAT"));
        assert_eq!((&stream.stream_id, &stream.framework), (&None, &None));
        cluster.tick(now);
        assert_eq!(cluster.state.watchers.len(), 1);
        drop(stream);
        cluster.tick(now);
        assert_eq!(cluster.state.watchers.len(), 0);
    }

    #[test]
    fn another_master_leads_after_a_fail_over() {
        let began = Instant::now();
        let mut cluster = Cluster::new(1, 3, began);
        let [a, b, c] = *cluster.masters() else {
            panic!("three masters");
        };
        cluster.fail_over(Duration::from_mins(1), Duration::from_secs(10), began);
        let health = json!({"type": "GET_HEALTH"});
        let redirect = |to: SocketAddr| format!("307 //{to}/master/api/v1");
        let no_leader = || "503 No leader elected".to_owned();
        for (millis, named, [of_a, of_b, of_c]) in [
            (0, a, [String::new(), redirect(a), redirect(a)]),
            (9_999, a, [String::new(), redirect(a), redirect(a)]),
            (10_000, b, [String::new(), redirect(a), redirect(a)]),
            (10_300, b, [String::new(), no_leader(), no_leader()]),
            (
                10_600,
                b,
                [String::new(), "404 404 Not Found.".to_owned(), redirect(b)],
            ),
            (
                10_800,
                b,
                [
                    String::new(),
                    "503 Master has not finished recovery".to_owned(),
                    redirect(b),
                ],
            ),
            (11_600, b, [String::new(), "200".to_owned(), redirect(b)]),
            (60_000, b, [redirect(b), "200".to_owned(), redirect(b)]),
        ] {
            let now = began + Duration::from_millis(millis);
            assert_eq!(cluster.leader_by_zookeeper(now), Some(named), "{millis}");
            for (master, expected) in [(a, of_a), (b, of_b), (c, of_c)] {
                let answer = match ask(&mut cluster, master, "/api/v1", Some(&health), now) {
                    Answer::Refused => String::new(),
                    Answer::Complete(answer) => {
                        let text = match answer.headers().get("location") {
                            Some(location) => location.to_str().unwrap(),
                            None if answer.status() == 200 => "",
                            None => std::str::from_utf8(answer.body()).unwrap(),
                        };
                        format!("{} {text}", answer.status().as_u16()).trim().to_owned()
                    }
                    Answer::Stream(_) => panic!("it is a document"),
                };
                assert_eq!(answer, expected, "{master} after {millis} ms");
            }
        }
        let numbers = cluster.registered(began + Duration::from_mins(1));
        assert_eq!(numbers, [(1, b), (2, c), (3, a)]);
    }
}
