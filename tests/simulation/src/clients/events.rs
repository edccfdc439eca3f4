//! A client of the event stream of apps, which resumes after the last event that it has received. It is
//! the loop of a load balancer: after each event it reads the tasks again, and never without one.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use rand::Rng;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::ClientContext;
use crate::http::{Answer, Port, Stream};

/// How long the client waits before it connects again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the events of a time in which plugins failed are on their way.
const LATE: Duration = Duration::from_mins(2);
/// One of so many steps cuts the connection, while faults happen.
const CUT_STEPS: u32 = 10_000;

/// The shortest time between two reads of the tasks.
const INTERVAL: Duration = Duration::from_secs(1);
/// After this time without faults, the tasks that were read last are those that run.
const CALM: Duration = Duration::from_mins(3);
/// How long the end or the begin of a task may take to be seen then.
const DELAY: Duration = Duration::from_secs(90);

/// The id of an event: the number of the term, and that of the event.
type Id = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Client {
    stream: Option<Stream>,
    /// The end of what has been received, without a complete frame.
    rest: String,
    last: Option<Id>,
    /// The address of the leader, to which a daemon has sent the client.
    leader: Option<String>,
    next: Duration,
    /// When calls of plugins last failed.
    failed: Option<Duration>,
    balancer: Balancer,
    pub(super) received: u64,
}

impl Client {
    pub(super) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        if world.do_plugins_fail {
            self.failed = Some(world.now);
        }
        let Some(stream) = &self.stream else {
            if self.next <= world.now {
                let hosts = world.hosts;
                let host = world.rng.random_range(0..hosts.len());
                let to = self.leader.take().unwrap_or_else(|| Port::Apps.of(&hosts[host]));
                let last = self.last.map(|(term, number)| format!("{term}-{number}"));
                (world.trace)(&format!("a client opens /v2/events at {to} after {last:?}"));
                let opened = world.http.open(&to, "/v2/events?ids=true", last.as_deref());
                self.stream = Some(opened.map_err(|error| error.to_string())?);
                self.balancer.connected(to);
                self.rest.clear();
            }
            return Ok(());
        };
        let received = stream.take();
        self.rest.push_str(&received.text);
        if received.has_ended || (world.is_stormy && world.rng.random_ratio(1, CUT_STEPS)) {
            self.stream = None;
            self.next = world.now + PAUSE;
            if let Some(leader) = received.location.as_deref().and_then(host_and_port) {
                (self.leader, self.next) = (Some(leader), world.now);
            }
            self.balancer.disconnected();
        }
        while let Some(end) = self.rest.find("\r\n\r\n") {
            let frame: String = self.rest.drain(..end + 4).collect();
            self.received(&frame, world.now)?;
        }
        // Whoever knows that events may be lacking reads without one.
        if self.failed.is_some_and(|at| at + LATE == world.now) {
            self.balancer.is_outdated = true;
        }
        self.balancer.step(world)
    }

    /// Within a term every event follows the one before, unless a gap is reported, or the filter has
    /// failed on an event, which is then not sent.
    fn received(&mut self, frame: &str, now: Duration) -> Result<(), String> {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        let (Some(id), Some(kind)) = (field("id: "), field("event: ")) else {
            return Ok(());
        };
        let id = id.split_once('-');
        let id: Option<Id> = id.and_then(|(term, number)| Some((term.parse().ok()?, number.parse().ok()?)));
        let id = id.ok_or_else(|| format!("an event has the id {id:?}"))?;
        self.received += 1;
        let may_lack = self.failed.is_some_and(|at| at + LATE >= now);
        let is_next = match self.last {
            Some((term, number)) if term == id.0 => id.1 == number + 1 || may_lack && id.1 > number,
            Some((term, _)) => term < id.0,
            None => true,
        };
        if !is_next && kind != "event_stream_gap" {
            return Err(format!(
                "event {id:?}, {kind}, follows {:?} on the stream",
                self.last
            ));
        }
        self.last = Some(id);
        let data = field("data: ").and_then(|data| serde_json::from_str(data).ok());
        self.balancer.received(&data.unwrap_or_default());
        Ok(())
    }
}

/// The tasks that get requests.
#[derive(Debug, Default)]
struct Balancer {
    /// The daemon that the stream comes from.
    at: Option<String>,
    is_outdated: bool,
    /// The read that is under way, and the ended tasks that were reported before it.
    read: Option<(oneshot::Receiver<Answer>, BTreeSet<String>)>,
    next: Duration,
    /// The running tasks by the last answer; `None` before the first one.
    running: Option<BTreeSet<String>>,
    /// Tasks that ended by the stream of this connection.
    ended: BTreeSet<String>,
}

impl Balancer {
    fn connected(&mut self, at: String) {
        self.at = Some(at);
        self.is_outdated = true;
    }

    fn disconnected(&mut self) {
        (self.at, self.read) = (None, None);
        self.ended.clear();
    }

    fn received(&mut self, event: &Value) {
        self.is_outdated = true;
        let (task, state) = (event["taskId"].as_str(), event["taskStatus"].as_str());
        if let (Some(task), Some(state)) = (task, state)
            && !matches!(
                state,
                "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING" | "TASK_UNREACHABLE"
            )
        {
            self.ended.insert(task.to_owned());
        }
    }

    fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        if let Some((answer, ended)) = &mut self.read {
            let answer = match answer.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Ok(Ok(answer)) if answer.status().is_success() => Some(answer),
                _ => None,
            };
            let ended = std::mem::take(ended);
            self.read = None;
            let Some(answer) = answer else {
                (self.is_outdated, self.next) = (true, world.now + PAUSE);
                return Ok(());
            };
            let running = running(&serde_json::from_slice(answer.body()).unwrap_or_default());
            if let Some(stale) = running.intersection(&ended).next() {
                return Err(format!("{stale} ended by the events, and was listed afterwards"));
            }
            (self.running, self.next) = (Some(running), world.now + INTERVAL);
        }
        if let Some(at) = self
            .at
            .as_ref()
            .filter(|_| self.is_outdated && self.next <= world.now)
        {
            self.is_outdated = false;
            let sent = world.http.call(at, &Method::GET, "/v2/tasks", "");
            let sent = sent.map_err(|error| error.to_string())?;
            self.read = Some((sent, self.ended.clone()));
        }
        if world.calm >= CALM && world.now.as_millis().is_multiple_of(1_000) {
            return self.check(world);
        }
        Ok(())
    }

    /// Nothing else makes it read: an event that was not sent is an error until the next one.
    fn check(&self, world: &ClientContext<'_>) -> Result<(), String> {
        let Some(known) = &self.running else {
            return Err("a load balancer has read no tasks".to_owned());
        };
        let tasks = world.agents.apps();
        let unknown = tasks.filter(|(task, process)| {
            let long = process.running.is_some_and(|since| since + DELAY <= world.now);
            long && !process.is_disturbed && !known.contains(*task)
        });
        if let Some((task, _)) = unknown.take(1).next() {
            return Err(format!("a load balancer does not know {task}, which runs"));
        }
        let stale = known.iter().find(|task| {
            let end = world.agents.end_of(task);
            end.is_some_and(|at| at + DELAY <= world.now)
        });
        stale.map_or(Ok(()), |task| {
            Err(format!("a load balancer uses {task}, which has ended"))
        })
    }
}

fn running(document: &Value) -> BTreeSet<String> {
    let tasks = document["tasks"].as_array().into_iter().flatten();
    let running = tasks.filter(|task| task["state"] == "TASK_RUNNING");
    running
        .filter_map(|task| Some(task["id"].as_str()?.to_owned()))
        .collect()
}

fn host_and_port(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    Some(uri.authority()?.to_string())
}
