//! The processes of tasks on the agents.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use transom_minicluster::simulated::{Cluster, Order, Report, Task};

/// A process, and what it reports next.
#[derive(Debug)]
struct Process {
    agent: usize,
    /// Reports that are to come, with their times.
    reports: Vec<(Duration, Report)>,
}

/// All processes.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    running: BTreeMap<Task, Process>,
    /// The ids of all tasks that were ever started, and how their processes ended.
    pub(crate) started: BTreeMap<String, Option<Report>>,
    /// The ids of tasks that were killed, or whose machine was reset.
    pub(crate) disturbed: BTreeSet<String>,
}

impl Agents {
    /// Carries out the orders of the master, and reports what is due. Returns a violation.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        cluster: &mut Cluster,
        time: Instant,
        rng: &mut StdRng,
        mut trace: impl FnMut(&str),
    ) -> Result<(), String> {
        for order in cluster.orders() {
            match order {
                Order::Launch { task, agent } => {
                    trace(&format!("agent-{agent} starts {}", task.id));
                    if self.started.insert(task.id.clone(), None).is_some() {
                        return Err(format!("{} was started twice", task.id));
                    }
                    let at = now + Duration::from_millis(rng.random_range(20..500));
                    // Some take a minute or more.
                    let runs = Duration::from_millis(rng.random_range(10..20_000_u64).pow(2) / 2_000);
                    let end = if rng.random_bool(0.8) {
                        Report::Finished
                    } else {
                        Report::Failed
                    };
                    let reports = vec![(at + runs, end), (at, Report::Running), (at, Report::Starting)];
                    self.running.insert(task, Process { agent, reports });
                }
                Order::Kill(task) => {
                    if let Some(process) = self.running.get_mut(&task) {
                        trace(&format!("agent-{} kills {}", process.agent, task.id));
                        self.disturbed.insert(task.id.clone());
                        let at = now + Duration::from_millis(rng.random_range(5..3_000));
                        process.reports = vec![(at, Report::Killed)];
                    }
                }
            }
        }
        let mut ended = Vec::new();
        for (task, process) in &mut self.running {
            while process.reports.last().is_some_and(|(at, _)| *at <= now) {
                let Some((_, report)) = process.reports.pop() else {
                    break;
                };
                trace(&format!("agent-{}: {} is {report:?}", process.agent, task.id));
                cluster.report(task, report, time);
                if process.reports.is_empty() {
                    ended.push((task.clone(), report));
                }
            }
        }
        for (task, report) in ended {
            self.running.remove(&task);
            self.started.insert(task.id, Some(report));
        }
        Ok(())
    }

    /// Ends all processes of an agent, as when its machine is reset.
    pub(crate) fn reset(&mut self, agent: usize, now: Duration) {
        for (task, process) in &mut self.running {
            if process.agent == agent {
                self.disturbed.insert(task.id.clone());
                process.reports = vec![(now, Report::Failed)];
            }
        }
    }

    /// The tasks whose processes run.
    pub(crate) fn running(&self) -> impl Iterator<Item = &str> {
        self.running.keys().map(|task| task.id.as_str())
    }
}
