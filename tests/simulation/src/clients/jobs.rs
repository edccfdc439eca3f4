//! Clients of the workflow service: they queue jobs, kill some, and wait until each has ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use http::{Method, StatusCode};
use rand::Rng;
use serde_json::{Value, json};
use transom_minicluster::simulated::Report;

use super::{ClientContext, Request};
use crate::agents::Agents;
use crate::faults::Faults;
use crate::http::Port;
use crate::services::WORKFLOW;

/// The mean time between two jobs.
const MEAN_INTERVAL: Duration = Duration::from_secs(20);
/// One of so many jobs is killed.
const KILLED: u32 = 8;
/// The time between two look-ups of a job.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How long after the last fault a job that was accepted before it may still run: the longest run, and
/// the longest time between two attempts of an agent to send an update.
const CONVERGENCE: Duration = Duration::from_mins(15);
/// How long a task may run on after the end of its job was seen, when there are no faults.
const MAX_ORPHANED: Duration = Duration::from_mins(5);
/// How long after its end a job is looked up again.
const SECOND_LOOK: Duration = Duration::from_mins(20);

#[derive(Debug)]
enum Stage {
    Queueing,
    Waiting,
    Killing,
}

#[derive(Debug)]
struct Job {
    stage: Stage,
    request: Request,
    accepted: Option<Duration>,
    is_killed: bool,
}

/// A job that has ended, with the state that a client saw.
#[derive(Debug)]
struct Ended {
    id: String,
    state: String,
    at: Duration,
    look: Request,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    jobs: BTreeMap<String, Job>,
    ended: VecDeque<Ended>,
    next: Duration,
    sent: u64,
    pub(super) finished: u64,
}

impl Clients {
    pub(super) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        if Faults::is_busy(world.now) && self.next <= world.now {
            self.next = world.now + MEAN_INTERVAL.mul_f64(world.rng.random_range(0.0..2.0));
            self.sent += 1;
            let id = format!("job-{}", self.sent);
            self.jobs.insert(id.clone(), Job::new(&id));
        }
        let mut ended = Vec::new();
        for (id, job) in &mut self.jobs {
            if let Some(state) = job.step(id, world)? {
                check_end(id, &state, job.is_killed, world.agents)?;
                ended.push((id.clone(), state));
            }
        }
        for (id, state) in ended {
            self.jobs.remove(&id);
            self.finished += 1;
            let mut look = look_up(&id);
            look.next = world.now + SECOND_LOOK;
            let at = world.now;
            self.ended.push_back(Ended { id, state, at, look });
        }
        self.look_again(world)?;
        if world.calm >= MAX_ORPHANED && world.now.as_millis().is_multiple_of(1_000) {
            let long_ago = |ended: &&Ended| ended.at + MAX_ORPHANED <= world.now;
            let mut ended = self.ended.iter().filter(long_ago);
            if let Some(orphan) = ended.find(|ended| world.agents.runs(&ended.id)) {
                return Err(format!("{} runs, although it ended long ago", orphan.id));
            }
        }
        Ok(())
    }

    /// A final state never changes.
    fn look_again(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        let Some(first) = self.ended.front_mut() else {
            return Ok(());
        };
        if first.look.next > world.now && first.look.attempt.is_none() {
            return Ok(());
        }
        if let Some((_, body)) = first.look.step(world)? {
            let state = state(&body);
            if state.as_deref() != Some(&first.state) {
                return Err(format!("{} was {} and is now {state:?}", first.id, first.state));
            }
            self.ended.pop_front();
        }
        Ok(())
    }
}

impl Job {
    fn new(id: &str) -> Self {
        let body = json!({
            "airflow_task_id": id, "command": ["true"], "request_key": id, "cpus": 0.5, "mem_limit": "100m",
            "disk": 0,
        });
        let path = "/v0/queue_command".to_owned();
        Self {
            stage: Stage::Queueing,
            request: Request::new(Method::POST, Port::Workflow, path, body.to_string()),
            accepted: None,
            is_killed: false,
        }
    }

    /// Returns the final state.
    fn step(&mut self, id: &str, world: &mut ClientContext<'_>) -> Result<Option<String>, String> {
        if let Some(accepted) = self.accepted
            && accepted + CONVERGENCE <= world.now
            && world.calm >= CONVERGENCE
        {
            return Err(format!("{id} was accepted and has not ended"));
        }
        let Some((status, body)) = self.request.step(world)? else {
            return Ok(None);
        };
        let is_ok = status == StatusCode::OK;
        match self.stage {
            Stage::Queueing if is_ok => {
                if !world.server.contains(&format!("{WORKFLOW}/jobs/{id}")) {
                    return Err(format!("{id} was accepted and is not in the store"));
                }
                self.accepted = Some(world.now);
                if world.rng.random_ratio(1, KILLED) {
                    (self.stage, self.is_killed) = (Stage::Killing, true);
                    self.request = Request::new(
                        Method::DELETE,
                        Port::Workflow,
                        format!("/v0/task/{id}"),
                        String::new(),
                    );
                    self.request.next = world.now + Duration::from_secs(world.rng.random_range(0..60));
                } else {
                    self.look_later(id, world.now);
                }
            }
            Stage::Killing if is_ok => self.look_later(id, world.now),
            Stage::Waiting if is_ok => match state(&body) {
                None => return Err(format!("{id} was accepted and is unknown: {body}")),
                Some(state) if is_final(&state) => return Ok(Some(state)),
                Some(_) => self.look_later(id, world.now),
            },
            _ => return Err(format!("{id}: {:?} was answered by {status}: {body}", self.stage)),
        }
        Ok(None)
    }

    fn look_later(&mut self, id: &str, now: Duration) {
        self.stage = Stage::Waiting;
        self.request = look_up(id);
        self.request.next = now + POLL_INTERVAL;
    }
}

fn look_up(id: &str) -> Request {
    Request::new(
        Method::GET,
        Port::Workflow,
        format!("/v0/task/{id}"),
        String::new(),
    )
}

fn state(body: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(body).ok()?;
    Some(answer["status"]["state"].as_str()?.to_owned())
}

fn is_final(state: &str) -> bool {
    !matches!(state, "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING")
}

/// Checks that the state is what became of the process.
fn check_end(id: &str, state: &str, is_killed: bool, agents: &Agents) -> Result<(), String> {
    let expected = match agents.started.get(id) {
        Some(Some(Report::Finished)) => "TASK_FINISHED",
        Some(Some(Report::Failed)) => "TASK_FAILED",
        Some(Some(Report::Killed)) => "TASK_KILLED",
        Some(_) => "no end",
        None if is_killed => return Ok(()),
        // The launch got lost.
        None => "TASK_LOST",
    };
    if state != expected && !agents.disturbed.contains(id) {
        return Err(format!("{id} has {expected}, and clients see {state}"));
    }
    Ok(())
}
