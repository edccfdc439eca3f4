//! The Kubernetes cluster that the processes of the service's tasks form: data, APIs and nodes, and what
//! must hold when one of them starts or is killed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use transom_common::HostPort;
use transom_kubernetes::Kind;
use transom_kubernetes::simulation::{Change, Node, World};

use crate::agents::address;
use crate::services::{DRAIN_TIMEOUT, KUBERNETES};
use crate::store::lock;

/// How long a request may be carried out after its answer to another attempt.
const LATE: Duration = Duration::from_mins(4);
/// After this time the leader knows a running task or a node.
const KNOWN: Duration = Duration::from_mins(5);
/// How long a jump of a clock may have effects.
const JUMP: Duration = Duration::from_mins(10);
/// The deadline of a drain is this much earlier than the end of the time since its first call.
const CALL: Duration = Duration::from_secs(1);

/// A task of the service.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) kind: Kind,
    agent: usize,
    pub(crate) launched: Duration,
    /// When its process began to run.
    running: Option<Duration>,
    /// How long a server or an agent takes to start.
    start: Duration,
    /// The names at which containers reach it.
    names: Vec<String>,
    /// The name of the server that an agent joins.
    joins: String,
    port: u16,
    volume: String,
    /// When a server's API first answered, or an agent joined.
    up: Option<Duration>,
}

/// A node in the datastore.
#[derive(Debug, Default)]
struct Entry {
    cordoned: bool,
    /// When its drain began.
    draining: Option<Duration>,
    drained: bool,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    /// The daemons that reach neither agents nor servers.
    cut_off: Vec<usize>,
    members: BTreeMap<String, Member>,
    /// The agents with the data of datastores, by volume.
    data: BTreeMap<String, usize>,
    /// The nodes, by task.
    nodes: BTreeMap<String, Entry>,
    has_had_datastore: bool,
    /// When an API last listed the nodes.
    listed: Duration,
    /// When a client last sent a request to restart the datastore.
    restart: Option<Duration>,
    /// When a daemon's clock last jumped.
    jumped: Option<Duration>,
    events: Vec<String>,
}

/// The cluster, as the world sees it.
#[derive(Debug, Default)]
pub(crate) struct Orchestrator(Arc<Mutex<State>>);

impl Orchestrator {
    /// One daemon's view.
    pub(crate) fn connect(&self, daemon: usize) -> Arc<dyn World> {
        let state = Arc::clone(&self.0);
        Arc::new(Link { daemon, state })
    }

    /// Lets time pass. Returns what has happened.
    pub(crate) fn step(&self, now: Duration, cut_off: Vec<usize>) -> Vec<String> {
        let mut state = lock(&self.0);
        (state.now, state.cut_off) = (now, cut_off);
        state.start_members();
        std::mem::take(&mut state.events)
    }

    /// Adds a task that an agent starts; `false`: it is not one of the service.
    pub(crate) fn launch(
        &self,
        task: &str,
        info: &Value,
        agent: usize,
        start: Duration,
    ) -> Result<bool, String> {
        let mut state = lock(&self.0);
        let name = info["name"].as_str().and_then(|name| name.split_once(':'));
        let Some((KUBERNETES, name)) = name else {
            return Ok(false);
        };
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.as_str() == name) else {
            return Ok(false);
        };
        let member = Member::new(kind, info, agent, state.now, start);
        match kind {
            Kind::Datastore => {
                let home = *state.data.get(&member.volume).unwrap_or(&agent);
                if home != agent {
                    return Err(format!(
                        "the datastore {task} starts on agent-{agent}, and its data are on agent-{home}"
                    ));
                }
            }
            Kind::Server if !state.has_had_datastore => {
                return Err(format!("the server {task} starts before any datastore"));
            }
            Kind::Server | Kind::Agent => {}
        }
        state.members.insert(task.to_owned(), member);
        Ok(true)
    }

    /// The process of a task runs.
    pub(crate) fn run(&self, task: &str) {
        let mut state = lock(&self.0);
        let now = state.now;
        if let Some(member) = state.members.get_mut(task) {
            member.running = Some(now);
            state.has_had_datastore |= member.kind == Kind::Datastore;
        }
    }

    /// The process of a task has ended.
    pub(crate) fn end(&self, task: &str) {
        lock(&self.0).members.remove(task);
    }

    /// An agent is told to kill a task.
    pub(crate) fn kill(&self, task: &str) -> Result<(), String> {
        let state = lock(&self.0);
        let Some(member) = state.members.get(task) else {
            return Ok(());
        };
        if member.running.is_none_or(|since| since + KNOWN > state.now) {
            return Ok(());
        }
        match member.kind {
            Kind::Datastore if state.restart.is_none_or(|at| at + LATE < member.launched) => {
                Err(format!("the datastore {task} is killed, and nobody asked for it"))
            }
            Kind::Agent if state.interrupts_drain(task, member) => {
                Err(format!("the agent {task} is killed before its node is drained"))
            }
            _ => Ok(()),
        }
    }

    /// Whether an agent has the data of a datastore.
    pub(crate) fn has_data(&self, agent: usize) -> bool {
        lock(&self.0).data.values().any(|home| *home == agent)
    }

    /// A client asks for a restart of the datastore.
    pub(crate) fn restart_requested(&self, now: Duration) {
        lock(&self.0).restart = Some(now);
    }

    /// The clock of a daemon jumps.
    pub(crate) fn clock_jumped(&self, now: Duration) {
        lock(&self.0).jumped = Some(now);
    }

    /// The tasks that run, with their ids, and whether their nodes are ready.
    pub(crate) fn members(&self) -> Vec<(String, Member, bool)> {
        let state = lock(&self.0);
        let running = state
            .members
            .iter()
            .filter(|(_, member)| member.running.is_some());
        running
            .map(|(task, member)| (task.clone(), member.clone(), state.is_ready(task)))
            .collect()
    }

    /// A node whose task has ended.
    pub(crate) fn orphan(&self) -> Option<String> {
        let state = lock(&self.0);
        let mut nodes = state.nodes.keys();
        nodes.find(|task| !state.members.contains_key(*task)).cloned()
    }
}

impl Member {
    fn new(kind: Kind, info: &Value, agent: usize, launched: Duration, start: Duration) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let container = &info["container"];
        let parameters = container["docker"]["parameters"].as_array().into_iter().flatten();
        let aliases = parameters.filter(|parameter| parameter["key"] == "network-alias");
        let aliases = aliases.map(|parameter| text(&parameter["value"]));
        let variables = &info["command"]["environment"]["variables"];
        let mut variables = variables.as_array().into_iter().flatten();
        let url = variables.find(|variable| variable["name"] == "K3S_URL");
        let url = url.map(|variable| text(&variable["value"])).unwrap_or_default();
        let joins = url.trim_start_matches("https://").split(':').next();
        let port = container["docker"]["port_mappings"][0]["host_port"].as_u64();
        Self {
            kind,
            agent,
            launched,
            running: None,
            start,
            names: aliases.chain([text(&container["hostname"])]).collect(),
            joins: joins.unwrap_or_default().to_owned(),
            port: port.and_then(|port| port.try_into().ok()).unwrap_or_default(),
            volume: text(&container["volumes"][0]["source"]["docker_volume"]["name"]),
            up: None,
        }
    }

    fn has_started(&self, now: Duration) -> bool {
        self.running.is_some_and(|since| since + self.start <= now)
    }
}

impl State {
    /// The datastore that runs, with the data if there are some.
    fn datastore(&self) -> Option<&Member> {
        let mut running = self.members.values().filter(|member| member.running.is_some());
        running.find(|member| {
            let home = self.data.get(&member.volume);
            member.kind == Kind::Datastore && home.is_none_or(|home| *home == member.agent)
        })
    }

    fn start_members(&mut self) {
        let now = self.now;
        let mut members = self.members.values();
        if !members.any(|member| member.up.is_none() && member.has_started(now)) {
            return;
        }
        let Some(datastore) = self.datastore() else {
            return;
        };
        let (volume, home) = (datastore.volume.clone(), datastore.agent);
        let servers = self.members.values().filter(|member| member.kind == Kind::Server);
        let up = servers.filter(|member| member.up.is_some());
        let served: Vec<String> = up.flat_map(|member| member.names.clone()).collect();
        let mut started = Vec::new();
        for (task, member) in &mut self.members {
            let may_start = match member.kind {
                Kind::Datastore => false,
                Kind::Server => true,
                Kind::Agent => served.contains(&member.joins),
            };
            if may_start && member.up.is_none() && member.has_started(now) {
                member.up = Some(now);
                started.push((task.clone(), member.kind));
            }
        }
        for (task, kind) in started {
            self.events.push(format!("the node of {kind} {task} is ready"));
            self.nodes.insert(task, Entry::default());
            // From now on there are data worth keeping.
            self.data.entry(volume.clone()).or_insert(home);
        }
    }

    fn is_ready(&self, task: &str) -> bool {
        let member = self.members.get(task);
        self.nodes.contains_key(task) && member.is_some_and(|member| member.up.is_some())
    }

    /// Whether the API of a server answers a daemon.
    fn answers(&self, daemon: usize, api: &HostPort) -> bool {
        let mut servers = self
            .members
            .values()
            .filter(|member| member.kind == Kind::Server && member.up.is_some());
        let is_there = servers.any(|member| {
            let host = format!("agent-{}", address(member.agent));
            *api == HostPort::new(&host, member.port)
        });
        is_there && self.datastore().is_some() && !self.cut_off.contains(&daemon)
    }

    /// Whether a kill of an agent now takes the time from the drain of its node.
    fn interrupts_drain(&self, task: &str, member: &Member) -> bool {
        let Some(node) = self.nodes.get(task) else {
            return false;
        };
        let is_known = member.up.is_some_and(|up| up + KNOWN <= self.now);
        let is_silent = self.listed + DRAIN_TIMEOUT <= self.now + CALL;
        let is_over = node.drained
            || node
                .draining
                .is_some_and(|began| began + DRAIN_TIMEOUT <= self.now + CALL);
        // Whoever decides may believe that an hour has passed.
        let has_jumped = self.jumped.is_some_and(|at| at + JUMP > self.now);
        is_known && !is_silent && !is_over && !has_jumped
    }
}

/// One daemon's way to agents and servers.
#[derive(Debug)]
struct Link {
    daemon: usize,
    state: Arc<Mutex<State>>,
}

impl World for Link {
    fn client_config(&self, task: &str) -> Option<Option<String>> {
        let state = lock(&self.state);
        let member = state.members.get(task);
        let member = member.filter(|_| !state.cut_off.contains(&self.daemon))?;
        let written = member.up.is_some();
        Some(written.then(|| "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:6443'}}]".to_owned()))
    }

    fn nodes(&self, api: &HostPort) -> Option<Vec<Node>> {
        let mut state = lock(&self.state);
        if !state.answers(self.daemon, api) {
            return None;
        }
        state.listed = state.now;
        let nodes = state.nodes.iter().map(|(task, node)| Node {
            task: task.clone(),
            ready: state.is_ready(task),
            cordoned: node.cordoned,
            draining: node.draining.is_some(),
        });
        Some(nodes.collect())
    }

    fn change(&self, api: &HostPort, node: &str, change: Change) -> Option<()> {
        let mut state = lock(&self.state);
        if !state.answers(self.daemon, api) {
            return None;
        }
        let event = format!("daemon-{}: {change:?} of the node {node}", self.daemon);
        let now = state.now;
        state.events.push(event);
        if change == Change::Remove {
            state.nodes.remove(node);
        } else if let Some(entry) = state.nodes.get_mut(node) {
            match change {
                Change::Cordon(cordoned) => {
                    *entry = Entry {
                        cordoned,
                        ..Entry::default()
                    };
                }
                Change::BeginDrain => {
                    entry.cordoned = true;
                    entry.draining.get_or_insert(now);
                }
                _ => entry.drained = true,
            }
        }
        Some(())
    }
}
