//! A restart of the master, or a change of the leading master: which state the master loses, and
//! how the agents restore it.
//!
//! The master has frameworks, tasks and offers in memory only. Agents and tasks keep running: they
//! are stored in [`State::awaited_agents`] and [`State::forgotten_frameworks`] until the agents
//! register again.
//!
//! A real master, as recorded with three masters, `--registry=replicated_log` and
//! `--zk_session_timeout=10secs`, whose leader was killed: for 8.5 s the others redirect to the dead
//! one; for 0.8 s they answer 503, `No leader elected`. ZooKeeper's node of the new leader is older
//! than that, so a client that reads it is redirected to the dead master by the leader itself.
//! Then the new leader rejects calls, `Master has not finished recovery`, while its `/state` and
//! `/slaves` are 200 with empty lists, `recovered_slaves` too. When it has recovered, it lists the
//! agents of its registry as recovered, without their tasks, until each of them registers: 0.2 s
//! later with ZooKeeper, 73 s with a fixed address, and in any order, because an agent waits for a
//! random time, doubled from 1 s to at most a minute with each attempt. Operators are told
//! `AGENT_ADDED` and `TASK_ADDED` for each of them. An agent that does not return in 10 minutes
//! (`--agent_reregister_timeout`) is unreachable then, which no event of operators tells.
//!
//! The same happens here, in this order and in shorter times.

use super::{
    AgentId, Effect, Executor, Framework, FrameworkId, State, Task, TaskId, TaskKey, epoch,
    faults::{DownMaster, Election},
    frameworks::failover_timeout,
    model::ExecutorKey,
};
use crate::{config::Registry, state::operator_views, wire::recordio::ConnectionCut};
use serde_json::json;
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// The phases of a restart of the master.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    pub(crate) registry: Registry,
    /// Duration in which all connections to it fail. The standby still redirects to it.
    pub(crate) down: Duration,
    /// Duration after that in which no master leads.
    pub(crate) election: Duration,
    /// Duration after that in which it answers 404 to everything.
    pub(crate) starting: Duration,
    /// Duration after that in which it rejects calls.
    pub(crate) recovery: Duration,
    /// Whether another master leads afterwards.
    pub(crate) swaps_leader: bool,
    /// How long it is down if it leads no longer, at least until the election; absent: until the
    /// other one has recovered.
    pub(crate) away: Option<Duration>,
}

/// The part of a framework that is on one agent.
struct AgentPart {
    tasks: BTreeMap<TaskId, Task>,
    executors: BTreeMap<ExecutorKey, Executor>,
    completed: VecDeque<Task>,
}

impl State {
    /// Kills the leading master: streams are cut, and everything but its agents is forgotten.
    pub(crate) fn restart_master(&mut self, restart: Restart, now: Instant) {
        self.cut_all_streams();
        for offer in std::mem::take(&mut self.offers).into_values() {
            self.free_resources(&offer.agent, &offer.resources);
        }
        self.forget_frameworks();
        self.completed_frameworks.clear();
        for (id, mut agent) in std::mem::take(&mut self.agents) {
            agent.deactivated = false;
            agent.drain = None;
            self.awaited_agents.insert(id, agent);
        }
        self.forget_orders();
        self.faults.remembers_agents = restart.registry == Registry::ReplicatedLog;
        self.maintenance.restart(self.faults.remembers_agents);
        if !self.faults.remembers_agents {
            self.unreachable_agents.clear();
            self.gone_agents.clear();
        }
        self.master.id = super::new_uuid().to_string();
        self.master.started = epoch();
        (self.next_framework, self.next_offer) = (0, 0);
        let noticed = now + restart.down;
        let elected = noticed + restart.election;
        let started = elected + restart.starting;
        let recovered = started + restart.recovery;
        self.faults.down = Some(DownMaster {
            addr: self.master.addr,
            until: match restart.away {
                _ if !restart.swaps_leader => noticed,
                Some(away) => elected.max(now + away),
                None => recovered,
            },
        });
        self.faults.election = restart.swaps_leader.then_some(Election {
            noticed,
            elected,
            started,
        });
        self.faults.starting = (!restart.swaps_leader).then_some((self.master.addr, started));
        self.faults.recovering_until = Some(recovered);
        self.schedule_returns(recovered + self.config.reregister);
        self.recover(now);
    }

    /// Lets the agents register one after the other, from that time on and for as long again as the
    /// first one has waited.
    fn schedule_returns(&mut self, first: Instant) {
        let agents = self.awaited_agents.len().max(1) as u32;
        let step = self.config.reregister / agents;
        self.faults.readmit_at = Some(first);
        self.faults.returns = self
            .awaited_agents
            .keys()
            .cloned()
            .zip((0..).map(|n| first + step * n))
            .collect();
    }

    fn cut_all_streams(&mut self) {
        let streams = self
            .frameworks
            .values_mut()
            .filter_map(|framework| framework.stream.take())
            .map(|stream| stream.events);
        let watchers = std::mem::take(&mut self.watchers).into_iter();
        for events in streams.chain(watchers.map(|watcher| watcher.events)) {
            // Queued, so that the events before it are still delivered. A full or closed stream
            // ends anyway.
            let _ = events.try_send(Err(ConnectionCut));
        }
    }

    fn forget_frameworks(&mut self) {
        for (id, mut framework) in std::mem::take(&mut self.frameworks) {
            framework.failover_deadline = None;
            framework.filters.clear();
            framework.inverse_filters.clear();
            for task in std::mem::take(&mut framework.unreachable_tasks) {
                framework.tasks.insert(task.key.task.clone(), task);
            }
            for task in framework.tasks.values_mut() {
                task.in_flight = None;
            }
            match self.forgotten_frameworks.get_mut(&id) {
                Some(known) => {
                    known.tasks.append(&mut framework.tasks);
                    known.executors.append(&mut framework.executors);
                    known.completed_tasks.append(&mut framework.completed_tasks);
                }
                None if is_empty(&framework) => {}
                None => {
                    self.forgotten_frameworks.insert(id, framework);
                }
            }
        }
    }

    /// Drops orders that the master has not delivered, as its memory is lost: the tasks of queued
    /// launches never existed. Only kills of processes whose task is unknown remain.
    fn forget_orders(&mut self) {
        for (agent, effect) in std::mem::take(&mut self.faults.queued_orders) {
            match effect {
                Effect::Launch(launch) => {
                    let task = self
                        .forgotten_frameworks
                        .get_mut(&launch.key.framework)
                        .and_then(|framework| framework.tasks.remove(&launch.key.task));
                    let Some(task) = task else { continue };
                    if !task.released {
                        self.free_resources(&agent, &task.resources);
                    }
                    if let Some(executor) = task.executor_key() {
                        self.drop_planned(&task.key.framework, &executor);
                    }
                }
                Effect::Kill(key, order) if self.task_mut(&key).is_none() => {
                    self.faults.queued_orders.push((agent, Effect::Kill(key, order)));
                }
                _ => {}
            }
        }
    }

    /// Continues a restart: the master comes up, then the agents register, then the missing ones
    /// become unreachable.
    pub(crate) fn recover(&mut self, now: Instant) {
        self.faults.down = self.faults.down.filter(|down| down.until > now);
        if let Some(election) = self.faults.election.take_if(|election| election.elected <= now)
            && let Some((hostname, addr)) = self.standbys.pop_front()
        {
            let master = &mut self.master;
            let hostname = std::mem::replace(&mut master.hostname, hostname);
            let former = (hostname, std::mem::replace(&mut master.addr, addr));
            self.standbys.push_back(former);
            self.faults.starting = Some((addr, election.started));
        }
        self.faults.starting = self.faults.starting.filter(|(_, until)| *until > now);
        self.faults.recovering_until = self.faults.recovering_until.filter(|until| *until > now);
        let Some(readmit_at) = self.faults.readmit_at.filter(|at| *at <= now) else {
            return;
        };
        let returning: Vec<AgentId> = self
            .awaited_agents
            .values()
            .filter(|agent| agent.fault.is_none())
            .filter(|agent| self.faults.returns.get(&agent.id).is_none_or(|at| *at <= now))
            .map(|agent| agent.id.clone())
            .collect();
        for id in returning {
            self.faults.returns.remove(&id);
            self.readmit(&id, now);
        }
        self.start_stopped_agents(now);
        if self.faults.remembers_agents && readmit_at + self.config.agent_timeout <= now {
            for id in self.awaited_agents.keys() {
                self.unreachable_agents.entry(id.clone()).or_insert_with(epoch);
            }
        }
    }

    /// Registers an agent with a restarted master, with its running tasks.
    fn readmit(&mut self, id: &AgentId, now: Instant) {
        let Some(mut agent) = self.awaited_agents.remove(id) else {
            return;
        };
        if self.maintenance.is_down(&agent) {
            self.awaited_agents.insert(id.clone(), agent);
            return self.reject_agent(id);
        }
        agent.connection = super::Connection::Connected;
        agent.registered = epoch();
        self.agents.insert(id.clone(), agent);
        let was_unreachable = self.unreachable_agents.remove(id).is_some();
        self.announce_agent(id);
        let frameworks: Vec<FrameworkId> = self.forgotten_frameworks.keys().cloned().collect();
        for framework in frameworks {
            self.readmit_framework(&framework, id, now);
        }
        for key in self.tasks_on(id) {
            if was_unreachable {
                self.report_returned_task(&key);
            } else {
                self.announce_task(&key);
            }
        }
        self.send_queued_orders(id);
        for key in self.tasks_on(id) {
            self.forward(&key, now);
        }
        self.allocate(now);
    }

    /// Restores the agent's part of one framework. If the framework was removed meanwhile, that
    /// part ends on the agent too.
    fn readmit_framework(&mut self, id: &FrameworkId, agent: &AgentId, now: Instant) {
        let Some(framework_part) = self.forgotten_frameworks.get_mut(id) else {
            return;
        };
        let part = take_agent_part(framework_part, agent);
        let info = framework_part.info.clone();
        if is_empty(framework_part) {
            self.forgotten_frameworks.remove(id);
        }
        if part.tasks.is_empty() && part.executors.is_empty() && part.completed.is_empty() {
            return;
        }
        let removed = self
            .completed_frameworks
            .iter()
            .position(|framework| framework.id == *id);
        if let Some(framework) = removed.and_then(|at| self.completed_frameworks.remove(at)) {
            self.frameworks.insert(id.clone(), framework);
        }
        if !self.frameworks.contains_key(id) {
            let deadline = now + failover_timeout(&info);
            let framework = Framework {
                recovered: true,
                failover_deadline: Some(deadline),
                ..Framework::new(id.clone(), info, json!({}))
            };
            self.frameworks.insert(id.clone(), framework);
            self.announce_framework(id, "FRAMEWORK_ADDED", "framework_added");
        }
        if let Some(framework) = self.frameworks.get_mut(id) {
            framework.tasks.extend(part.tasks);
            framework.executors.extend(part.executors);
            framework.completed_tasks.extend(part.completed);
        }
        if removed.is_some() {
            self.remove_framework(id);
        }
    }

    /// Drops the state of an agent that a restarted master will never receive.
    pub(super) fn drop_forgotten(&mut self, agent: &AgentId) {
        self.forgotten_frameworks.retain(|_, framework| {
            take_agent_part(framework, agent);
            !is_empty(framework)
        });
    }

    fn announce_task(&mut self, key: &TaskKey) {
        if let Some(task) = self.task(key) {
            let task = operator_views::task(task);
            self.announce(&json!({"type": "TASK_ADDED", "task_added": {"task": task}}));
        }
    }
}

fn is_empty(framework: &Framework) -> bool {
    framework.tasks.is_empty() && framework.executors.is_empty() && framework.completed_tasks.is_empty()
}

/// Removes the agent's part from a framework and returns it. The master adopts the agent's states
/// of the tasks.
fn take_agent_part(framework: &mut Framework, agent: &AgentId) -> AgentPart {
    let mut tasks: BTreeMap<TaskId, Task> = framework
        .tasks
        .extract_if(.., |_, task| task.agent == *agent)
        .collect();
    for task in tasks.values_mut() {
        task.state = task.agent_state;
        task.statuses = task.agent_statuses.last().cloned().into_iter().collect();
    }
    let executors = framework
        .executors
        .extract_if(.., |(on, _), _| on == agent)
        .collect();
    let (completed, remaining) = std::mem::take(&mut framework.completed_tasks)
        .into_iter()
        .partition(|task| task.agent == *agent);
    framework.completed_tasks = remaining;
    AgentPart {
        tasks,
        executors,
        completed,
    }
}
