//! The processes of tasks on the agents.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;
use transom_apps::simulation::Check;
use transom_minicluster::simulated::{Cluster, Order, Report, Task, agent_address};

use crate::faults::Faults;
use crate::orchestrator::Orchestrator;
use crate::store::lock;

/// The mean time from the start of an app's process to its crash, or until its checks fail.
const MEAN_CRASH: Duration = Duration::from_mins(30);
/// The mean time to the crash of a member of the Kubernetes cluster.
const MEAN_MEMBER_CRASH: Duration = Duration::from_mins(25);
/// One of so many KILLs gets lost between master and agent, while faults happen.
const LOST_KILLS: u32 = 10;

/// A process, and what it reports next.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) agent: usize,
    /// Its name in a zone, if zones are compared with it.
    name: Option<String>,
    /// The tag of the definition that it was started with; empty unless it is of an app.
    pub(crate) tag: String,
    /// Reports that are to come, with their times, the next one last.
    reports: Vec<(Duration, Report)>,
    /// When it reported that it runs.
    pub(crate) running: Option<Duration>,
    /// When it begins to fail its checks.
    unhealthy: Option<Duration>,
    /// Whether it was told to end, or its agent was disturbed.
    pub(crate) is_disturbed: bool,
    /// Whether it was told to end.
    is_killed: bool,
}

/// All processes.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    running: BTreeMap<Task, Process>,
    /// The ids of all jobs that were ever started, and how their processes ended.
    pub(crate) started: BTreeMap<String, Option<Report>>,
    /// The ids of jobs that were killed, or whose machine was reset.
    pub(crate) disturbed: BTreeSet<String>,
    /// The tasks that pass their checks.
    healthy: Arc<Mutex<BTreeSet<String>>>,
    /// When the processes of apps ended, by task.
    ended_apps: BTreeMap<String, Duration>,
    /// When a process with a name on an agent last ended.
    ended: BTreeMap<(String, usize), Duration>,
    /// When something is to happen next, so that not every step looks at all processes.
    due: Duration,
    pub(crate) orchestrator: Orchestrator,
}

/// The address of an agent.
pub(crate) fn address(agent: usize) -> Ipv4Addr {
    agent_address(u16::try_from(agent).unwrap_or(u16::MAX))
}

/// The agent with an address.
pub(crate) fn agent(address: Ipv4Addr) -> usize {
    let [.., high, low] = address.octets();
    usize::from(u16::from_be_bytes([high, low]))
}

/// The app of a task, by its id; none of a job.
fn app(task: &str) -> Option<&str> {
    Some(task.split_once(".instance-")?.0)
}

/// The name in a zone of a task that is no member of the Kubernetes cluster.
fn name(task: &str) -> String {
    match app(task) {
        Some(app) => format!("{app}.marathon.mesos."),
        None => format!("{task}.airflow.mesos."),
    }
}

fn tag(info: &Value) -> String {
    let variables = &info["command"]["environment"]["variables"];
    let mut variables = variables.as_array().into_iter().flatten();
    let tag = variables.find(|variable| variable["name"] == "TAG");
    tag.map_or("", |tag| tag["value"].as_str().unwrap_or_default())
        .to_owned()
}

impl Agents {
    /// The checks of the processes, as a daemon sees them.
    pub(crate) fn check(&self) -> Check {
        let healthy = Arc::clone(&self.healthy);
        Arc::new(move |task| lock(&healthy).contains(task))
    }

    /// Carries out the orders of the master, and reports what is due. Returns a violation.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        is_stormy: bool,
        cluster: &mut Cluster,
        time: Instant,
        rng: &mut StdRng,
        mut trace: impl FnMut(&str),
    ) -> Result<(), String> {
        for order in cluster.orders() {
            self.due = now;
            match order {
                Order::Launch { task, agent, info } => {
                    trace(&format!("agent-{agent} starts {}", task.id));
                    if self.started.insert(task.id.clone(), None).is_some() {
                        return Err(format!("{} was started twice", task.id));
                    }
                    let start = Duration::from_millis(rng.random_range(3_000..15_000));
                    let is_member = self.orchestrator.launch(&task.id, &info, agent, start)?;
                    self.start((task, &info), agent, is_member, now, is_stormy, rng);
                }
                Order::Kill(task) => {
                    let Some(process) = self.running.get_mut(&task) else {
                        continue;
                    };
                    if !std::mem::replace(&mut process.is_killed, true) {
                        self.orchestrator.kill(&task.id)?;
                    }
                    process.is_disturbed = true;
                    if is_stormy && rng.random_ratio(1, LOST_KILLS) {
                        trace(&format!("a KILL of {} gets lost", task.id));
                        continue;
                    }
                    trace(&format!("agent-{} kills {}", process.agent, task.id));
                    self.disturbed.insert(task.id.clone());
                    let at = now + Duration::from_millis(rng.random_range(5..3_000));
                    process.reports = vec![(at, Report::Killed)];
                }
            }
        }
        if now < self.due {
            return Ok(());
        }
        self.due = Duration::MAX;
        let mut ended = Vec::new();
        for (task, process) in &mut self.running {
            while process.reports.last().is_some_and(|(at, _)| *at <= now) {
                let Some((_, report)) = process.reports.pop() else {
                    break;
                };
                trace(&format!("agent-{}: {} is {report:?}", process.agent, task.id));
                cluster.report(task, report, time);
                if report == Report::Running {
                    process.running = Some(now);
                    self.orchestrator.run(&task.id);
                    lock(&self.healthy).insert(task.id.clone());
                }
                if !matches!(report, Report::Starting | Report::Running) {
                    ended.push((task.clone(), report));
                }
            }
            if process.unhealthy.is_some_and(|at| at <= now) {
                process.unhealthy = None;
                trace(&format!("agent-{}: {} is unhealthy", process.agent, task.id));
                lock(&self.healthy).remove(&task.id);
            }
            let report = process.reports.last().map(|(at, _)| *at);
            for at in report.into_iter().chain(process.unhealthy) {
                self.due = self.due.min(at);
            }
        }
        for (task, report) in ended {
            let process = self.running.remove(&task);
            self.orchestrator.end(&task.id);
            lock(&self.healthy).remove(&task.id);
            if let Some((name, agent)) = process.and_then(|process| Some((process.name?, process.agent))) {
                self.ended.insert((name, agent), now);
            }
            if app(&task.id).is_some() {
                self.ended_apps.insert(task.id.clone(), now);
            }
            self.started.insert(task.id, Some(report));
        }
        Ok(())
    }

    fn start(
        &mut self,
        (task, info): (Task, &Value),
        agent: usize,
        is_member: bool,
        now: Duration,
        is_stormy: bool,
        rng: &mut StdRng,
    ) {
        let at = now + Duration::from_millis(rng.random_range(20..500));
        let mut reports = vec![(at, Report::Running), (at, Report::Starting)];
        let mut unhealthy = None;
        if is_member {
            let crash = at + MEAN_MEMBER_CRASH.mul_f64(rng.random_range(0.01..2.0));
            if Faults::is_stormy(now) && Faults::is_stormy(crash) {
                reports.insert(0, (crash, Report::Failed));
            }
        } else if app(&task.id).is_none() {
            // Some run for a minute or more.
            let runs = Duration::from_millis(rng.random_range(10..20_000_u64).pow(2) / 2_000);
            let end = if rng.random_bool(0.8) {
                Report::Finished
            } else {
                Report::Failed
            };
            reports.insert(0, (at + runs, end));
        } else if is_stormy {
            let fails = at + MEAN_CRASH.mul_f64(rng.random_range(0.01..2.0));
            match rng.random_bool(0.5) {
                _ if !Faults::is_stormy(fails) => {}
                true => reports.insert(0, (fails, Report::Failed)),
                false => unhealthy = Some(fails),
            }
        }
        let process = Process {
            agent,
            name: (!is_member).then(|| name(&task.id)),
            tag: tag(info),
            reports,
            running: None,
            unhealthy,
            is_disturbed: false,
            is_killed: false,
        };
        self.running.insert(task, process);
    }

    /// Ends all processes of an agent, as when its machine is reset.
    pub(crate) fn reset(&mut self, agent: usize, now: Duration) {
        self.due = now;
        for (task, process) in &mut self.running {
            if process.agent == agent {
                self.disturbed.insert(task.id.clone());
                process.reports = vec![(now, Report::Failed)];
            }
        }
    }

    /// The agent is away from the master.
    pub(crate) fn disturb(&mut self, agent: usize) {
        let there = self.running.values_mut().filter(|process| process.agent == agent);
        for process in there {
            process.is_disturbed = true;
        }
    }

    /// Whether the process of a task runs.
    pub(crate) fn runs(&self, id: &str) -> bool {
        self.started.get(id).is_some_and(Option::is_none)
    }

    /// The processes that zones are compared with, with their names and the ids of their tasks.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &str, &Process)> {
        let running = self.running.iter();
        running.filter_map(|(task, process)| Some((process.name.as_deref()?, task.id.as_str(), process)))
    }

    /// The processes of all apps, with the ids of their tasks.
    pub(crate) fn apps(&self) -> impl Iterator<Item = (&str, &Process)> {
        let tasks = self
            .running
            .iter()
            .map(|(task, process)| (task.id.as_str(), process));
        tasks.filter(|(task, _)| app(task).is_some())
    }

    /// The processes of an app.
    pub(crate) fn instances(&self, id: &str) -> impl Iterator<Item = &Process> {
        let tasks = self.apps().filter(move |(task, _)| app(task) == Some(id));
        tasks.map(|(_, process)| process)
    }

    /// When the process of an app's task ended, if it has.
    pub(crate) fn end_of(&self, task: &str) -> Option<Duration> {
        self.ended_apps.get(task).copied()
    }

    /// When a process with the name on the agent last ended.
    pub(crate) fn last_end(&self, name: &str, agent: usize) -> Option<Duration> {
        self.ended.get(&(name.to_owned(), agent)).copied()
    }
}
