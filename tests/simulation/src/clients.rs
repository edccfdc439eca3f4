//! Clients: they send jobs until these are accepted, and expect each to end.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use transom_minicluster::simulated::Report;

use crate::agents::Agents;
use crate::candidate::Board;
use crate::jobs::ENDED;
use crate::store::Server;

/// The mean time between two jobs.
const MEAN_INTERVAL: Duration = Duration::from_secs(20);
/// The probability that a job is killed in a step of the simulation.
const KILLS_PER_STEP: f64 = 0.00002;
/// How long a client waits for an answer before it sends a job again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after the last fault a job that was accepted before it may still run: the longest run, and
/// the longest time between two attempts of an agent to send an update.
const CONVERGENCE: Duration = Duration::from_mins(15);
/// How long a task may run on after the end of its job was stored, when there are no faults.
const MAX_ORPHANED: Duration = Duration::from_mins(5);

#[derive(Debug)]
struct Job {
    sent: Option<Duration>,
    accepted: Option<Duration>,
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// The jobs that have not ended.
    jobs: BTreeMap<String, Job>,
    /// Jobs whose end is stored, with the time at which it was seen.
    ended: BTreeMap<String, Duration>,
    next: Duration,
    sent: u64,
    finished: u64,
}

impl Clients {
    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// Sends jobs to the leader.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        leader: Option<&Board>,
        rng: &mut StdRng,
        mut trace: impl FnMut(&str),
    ) {
        if self.next <= now {
            self.next = now + MEAN_INTERVAL.mul_f64(rng.random_range(0.0..2.0));
            self.sent += 1;
            let job = Job {
                sent: None,
                accepted: None,
            };
            self.jobs.insert(format!("job-{}", self.sent), job);
        }
        let Some(leader) = leader else {
            return;
        };
        for (id, job) in &mut self.jobs {
            let is_due = job.sent.is_none_or(|sent| sent + PATIENCE <= now);
            if job.accepted.is_none() && is_due {
                job.sent = Some(now);
                trace(&format!("a client sends {id}"));
                leader.with(|observed| observed.requested.push(id.clone()));
            } else if job.accepted.is_some() && rng.random_bool(KILLS_PER_STEP) {
                trace(&format!("a client kills {id}"));
                leader.with(|observed| observed.killed.push(id.clone()));
            }
        }
    }

    pub(crate) fn accepted(&mut self, id: &str, now: Duration) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.accepted.get_or_insert(now);
        }
    }

    /// Checks what must hold. `calm`: how long there have been no faults.
    pub(crate) fn check(
        &mut self,
        now: Duration,
        calm: Duration,
        server: &Server,
        agents: &Agents,
    ) -> Result<(), String> {
        // Not with each step, because it looks at all jobs.
        if !now.as_millis().is_multiple_of(1_000) {
            return Ok(());
        }
        let mut ended = Vec::new();
        for (id, job) in &self.jobs {
            if let Some(state) = server.get(&format!("{ENDED}{id}")) {
                ended.push((id.clone(), String::from_utf8_lossy(state).into_owned()));
            } else if job.accepted.is_some_and(|at| at + CONVERGENCE <= now) && calm >= CONVERGENCE {
                return Err(format!("{id} was accepted and has not ended"));
            }
        }
        for (id, state) in ended {
            check_end(&id, &state, agents)?;
            self.jobs.remove(&id);
            self.finished += 1;
            self.ended.insert(id, now);
        }
        if calm >= MAX_ORPHANED {
            for id in agents.running() {
                if self.ended.get(id).is_some_and(|at| *at + MAX_ORPHANED <= now) {
                    return Err(format!("{id} runs, although its end was stored long ago"));
                }
            }
        }
        Ok(())
    }
}

/// Checks that the stored end is what became of the process.
fn check_end(id: &str, state: &str, agents: &Agents) -> Result<(), String> {
    let Some(process) = agents.started.get(id) else {
        return Ok(());
    };
    let expected = match process {
        Some(Report::Finished) => "TASK_FINISHED",
        Some(Report::Failed) => "TASK_FAILED",
        Some(Report::Killed) => "TASK_KILLED",
        _ => "no end",
    };
    if state != expected && !agents.disturbed.contains(id) {
        return Err(format!("{id} has {expected}, but {state} was stored"));
    }
    Ok(())
}
