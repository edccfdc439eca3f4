//! Clients of the daemons' APIs, which repeat requests until they have an answer, and what they
//! expect.

mod apps;
mod events;
mod groups;
mod jobs;
mod kubernetes;

use std::time::Duration;

use http::{Method, StatusCode};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::agents::Agents;
use crate::http::{Answer, Http, Port};
use crate::store::Server;

/// How long a client waits for an answer before it sends its request again.
const PATIENCE: Duration = Duration::from_secs(70);

/// The rejection of a change while too many others are under way, after which it is sent again.
const TOO_MANY: &str = "running deployments is achieved";

/// What clients see of the world when they act.
pub(crate) struct ClientContext<'w> {
    pub(crate) now: Duration,
    /// How long there have been no faults.
    pub(crate) calm: Duration,
    /// Whether faults will come before long, so that clients change something.
    pub(crate) is_stormy: bool,
    /// Whether calls of plugins of some daemon fail.
    pub(crate) do_plugins_fail: bool,
    /// The addresses of the daemons' hosts.
    pub(crate) hosts: &'w [String],
    pub(crate) http: &'w Http,
    pub(crate) server: &'w Server,
    pub(crate) agents: &'w Agents,
    pub(crate) rng: &'w mut StdRng,
    pub(crate) trace: &'w mut dyn FnMut(&str),
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    apps: apps::Clients,
    jobs: jobs::Clients,
    events: events::Client,
    groups: groups::Client,
    kubernetes: kubernetes::Client,
}

impl Clients {
    /// Those of `apps` apps of up to `instances` instances, of jobs, of events, and of a Kubernetes cluster
    /// on `agents` agents.
    pub(crate) fn new(apps: u32, instances: u32, agents: u16) -> Self {
        Self {
            apps: apps::Clients::new(apps, instances),
            jobs: jobs::Clients::default(),
            events: events::Client::default(),
            groups: groups::Client::default(),
            kubernetes: kubernetes::Client::new(u32::from(agents)),
        }
    }

    /// The number of jobs that ran to their end.
    pub(crate) fn finished(&self) -> u64 {
        self.jobs.finished
    }

    /// The number of changes of apps that were accepted.
    pub(crate) fn changes(&self) -> u64 {
        self.apps.changes
    }

    /// The number of events that were received.
    pub(crate) fn events(&self) -> u64 {
        self.events.received
    }

    /// Sends what is due, and checks the answers and what must hold.
    pub(crate) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        self.jobs.step(world)?;
        self.apps.step(world)?;
        self.events.step(world)?;
        self.groups.step(world)?;
        self.kubernetes.step(world)
    }
}

/// A request that is repeated until it has a definite answer.
#[derive(Debug)]
struct Request {
    method: Method,
    port: Port,
    path: String,
    body: String,
    /// The last attempt, and when it is given up.
    attempt: Option<(oneshot::Receiver<Answer>, Duration)>,
    next: Duration,
    /// Whether an attempt had no answer, so that it may still be carried out.
    is_unsure: bool,
}

impl Request {
    fn new(method: Method, port: Port, path: String, body: String) -> Self {
        Self {
            method,
            port,
            path,
            body,
            attempt: None,
            next: Duration::ZERO,
            is_unsure: false,
        }
    }

    /// Sends the request to some daemon if that is due. Returns the status and the body of an answer
    /// that is definite: not that of a daemon that could not carry it out.
    fn step(&mut self, world: &mut ClientContext<'_>) -> Result<Option<(StatusCode, String)>, String> {
        let now = world.now;
        if let Some((answer, until)) = &mut self.attempt {
            let answer = match answer.try_recv() {
                Ok(Ok(answer)) => Some(answer),
                Err(TryRecvError::Empty) if now < *until => return Ok(None),
                _ => None,
            };
            self.attempt = None;
            self.next = now + Duration::from_millis(world.rng.random_range(500..5_000));
            let Some(answer) = answer else {
                self.is_unsure = true;
                return Ok(None);
            };
            let (status, body) = (
                answer.status(),
                String::from_utf8_lossy(answer.body()).into_owned(),
            );
            (world.trace)(&format!("{} {}: {status}", self.method, self.path));
            if status.is_server_error() {
                self.is_unsure = true;
                if status == StatusCode::INTERNAL_SERVER_ERROR {
                    return Err(format!("{} {}: {status} {body}", self.method, self.path));
                }
                return Ok(None);
            }
            let is_busy = status == StatusCode::FORBIDDEN && body.contains(TOO_MANY);
            return Ok(Some((status, body)).filter(|_| !is_busy));
        }
        if self.next <= now {
            let host = &world.hosts[world.rng.random_range(0..world.hosts.len())];
            (world.trace)(&format!(
                "a client sends {} {} {} to {host}",
                self.method, self.path, self.body
            ));
            let sent = world
                .http
                .call(&self.port.of(host), &self.method, &self.path, &self.body);
            let answer = sent.map_err(|error| format!("{}: {error}", self.path))?;
            self.attempt = Some((answer, now + PATIENCE));
        }
        Ok(None)
    }
}
