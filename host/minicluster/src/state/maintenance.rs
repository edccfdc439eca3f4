//! Maintenance: the schedule, the machines in it, and the agents of machines that are down.
//!
//! A machine in the schedule is draining: offers of its agents contain its unavailability, and
//! frameworks that use the agents receive inverse offers ([`super::inverse_offers`]). When an
//! operator starts its maintenance, the machine is down: its agents are removed with their tasks,
//! and none can register until the maintenance is stopped. Then the agents start like new
//! processes: with new ids, and with the reservations and volumes in their work directories.
//!
//! A master with a replicated log keeps the schedule and the modes across a restart.

use super::{
    Agent, AgentId, Connection, Effect, FrameworkId, InverseOffer, OfferId, Reply, State, TaskKey, epoch,
    machines::{Machine, MachineId, MachineMode, check_machines, parse_schedule},
};
use crate::wire::json as doc;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, net::SocketAddr, time::Instant};

/// The cause in the status updates of tasks whose machine goes down for maintenance.
const MACHINE_DOWN_CAUSE: &str = "Operator initiated 'Machine DOWN'";

/// The maintenance schedule and the state that depends on it.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// `Window`s, as the operator sent them.
    windows: Vec<Value>,
    /// The machines in the schedule.
    machines: BTreeMap<MachineId, Machine>,
    /// Agents of machines that are down. Their processes have ended.
    stopped: BTreeMap<AgentId, Agent>,
    /// Outstanding inverse offers.
    pub(crate) inverse_offers: BTreeMap<OfferId, InverseOffer>,
    /// `InverseOfferStatus`, the last answer of each framework for each agent.
    pub(super) answers: BTreeMap<AgentId, BTreeMap<FrameworkId, Value>>,
}

impl Maintenance {
    /// `Schedule`.
    pub(crate) fn schedule(&self) -> Value {
        if self.windows.is_empty() {
            json!({})
        } else {
            json!({ "windows": self.windows })
        }
    }

    /// The machine of an agent, if it is in the schedule.
    fn machine_of(&self, agent: &Agent) -> Option<&Machine> {
        self.machines.get(&MachineId::of(agent))
    }

    /// The planned unavailability of an agent.
    pub(super) fn unavailability(&self, agent: &Agent) -> Option<&Value> {
        self.machine_of(agent).map(|machine| &machine.unavailability)
    }

    /// Whether an agent cannot register, because its machine is down.
    pub(super) fn is_down(&self, agent: &Agent) -> bool {
        self.machine_of(agent)
            .is_some_and(|machine| machine.mode == MachineMode::Down)
    }

    /// Why an agent in the schedule cannot also be drained; `None` if it is not in the schedule.
    pub(super) fn drain_rejection(&self, agent: &Agent) -> Option<String> {
        let machine = self.machine_of(agent)?;
        let field = |name: &str| doc::text(&machine.id, &[name]).unwrap_or_default();
        Some(format!(
            "Agent {} is part of a maintenance schedule under Machine {} ({})",
            agent.id,
            field("hostname"),
            field("ip")
        ))
    }

    /// Whether the process of the agent with this address has ended.
    pub(super) fn has_stopped(&self, addr: SocketAddr) -> bool {
        self.stopped.values().any(|agent| agent.addr == addr)
    }

    /// Removes machines from the schedule.
    fn remove(&mut self, ids: &[MachineId]) {
        self.machines.retain(|id, _| !ids.contains(id));
        for window in &mut self.windows {
            if let Some(Value::Array(machines)) = window.get_mut("machine_ids") {
                machines.retain(|id| !ids.contains(&MachineId::parse(id)));
            }
        }
        self.windows
            .retain(|window| !doc::list(window, &["machine_ids"]).is_empty());
    }

    /// Drops what a restarted master does not know: everything, or everything except the schedule.
    pub(super) fn restart(&mut self, remembers: bool) {
        self.inverse_offers.clear();
        self.answers.clear();
        if !remembers {
            self.windows.clear();
            self.machines.clear();
        }
    }
}

impl State {
    /// `ClusterStatus`.
    pub(crate) fn maintenance_status(&self) -> Value {
        let machines = || self.maintenance.machines.iter();
        let draining: Vec<Value> = machines()
            .filter(|(_, machine)| machine.mode == MachineMode::Draining)
            .map(|(id, machine)| {
                let mut draining = doc::object(json!({"id": machine.id}));
                let statuses = self.answers_on(id);
                doc::put(
                    &mut draining,
                    "statuses",
                    (!statuses.is_empty()).then(|| json!(statuses)),
                );
                Value::Object(draining)
            })
            .collect();
        let down: Vec<&Value> = machines()
            .filter(|(_, machine)| machine.mode == MachineMode::Down)
            .map(|(_, machine)| &machine.id)
            .collect();
        let mut status = Map::new();
        if !draining.is_empty() {
            status.insert("draining_machines".to_owned(), json!(draining));
        }
        if !down.is_empty() {
            status.insert("down_machines".to_owned(), json!(down));
        }
        Value::Object(status)
    }

    /// The frameworks' answers for the agents of a machine.
    fn answers_on(&self, id: &MachineId) -> Vec<&Value> {
        self.listed_agents()
            .filter(|agent| MachineId::of(agent) == *id)
            .filter_map(|agent| self.maintenance.answers.get(&agent.id))
            .flat_map(BTreeMap::values)
            .collect()
    }

    /// `UPDATE_MAINTENANCE_SCHEDULE`: replaces the schedule.
    pub(crate) fn update_schedule(&mut self, schedule: &Value, now: Instant) -> Reply {
        match parse_schedule(schedule, &self.maintenance.machines) {
            Ok(machines) => self.maintenance.machines = machines,
            Err(why) => return Reply::bad_request(why),
        }
        self.maintenance.windows = doc::list(schedule, &["windows"]).to_vec();
        // As a real master does, this also rescinds the offers of agents whose machines are not in
        // the schedule.
        let agents: Vec<AgentId> = self.agents.keys().cloned().collect();
        for id in agents {
            self.rescind_offers_on(&id);
            self.forget_answers(&id);
        }
        self.allocate(now);
        Reply::ok()
    }

    /// `START_MAINTENANCE`: takes machines down and removes their agents.
    pub(crate) fn start_maintenance(&mut self, machines: &[Value]) -> Reply {
        let ids = match self.machines_in(machines, MachineMode::Draining, "brought down") {
            Ok(ids) => ids,
            Err(why) => return Reply::bad_request(why),
        };
        for id in ids {
            let agents: Vec<AgentId> = self
                .listed_agents()
                .filter(|agent| MachineId::of(agent) == id)
                .map(|agent| agent.id.clone())
                .collect();
            for agent in agents {
                if let Some(agent) = self.remove_agent(&agent, MACHINE_DOWN_CAUSE) {
                    self.stop_agent(agent);
                }
            }
            if let Some(machine) = self.maintenance.machines.get_mut(&id) {
                machine.mode = MachineMode::Down;
            }
        }
        Reply::ok()
    }

    /// `STOP_MAINTENANCE`: removes machines from the schedule and starts their agents.
    pub(crate) fn stop_maintenance(&mut self, machines: &[Value], now: Instant) -> Reply {
        match self.machines_in(machines, MachineMode::Down, "brought up") {
            Ok(ids) => self.maintenance.remove(&ids),
            Err(why) => return Reply::bad_request(why),
        }
        self.start_stopped_agents(now);
        Reply::ok()
    }

    /// Parses a list of machines, all of which must have this mode.
    fn machines_in(
        &self,
        machines: &[Value],
        mode: MachineMode,
        what: &str,
    ) -> Result<Vec<MachineId>, String> {
        check_machines(machines)?;
        let mut ids = Vec::with_capacity(machines.len());
        for machine in machines {
            let id = MachineId::parse(machine);
            let current_mode = self.maintenance.machines.get(&id).map(|machine| machine.mode);
            if current_mode.is_none() && !self.has_agent_on(&id) {
                return Err(format!(
                    "Machine '{machine}' is not part of a maintenance schedule"
                ));
            }
            if current_mode != Some(mode) {
                return Err(format!(
                    "Machine '{machine}' is not in {} mode and cannot be {what}",
                    mode.as_str()
                ));
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// Whether the master knows an agent of the machine. Such a machine is up even if it is not in
    /// the schedule.
    fn has_agent_on(&self, id: &MachineId) -> bool {
        self.agents
            .values()
            .chain(self.maintenance.stopped.values())
            .any(|agent| MachineId::of(agent) == *id)
    }

    /// Rejects an agent that tries to register while its machine is down. Its process ends, and
    /// with it its tasks; the master receives no update of their end.
    pub(super) fn reject_agent(&mut self, id: &AgentId) {
        let known = self.agents.contains_key(id) || self.faults.remembers_agents;
        let Some(agent) = self.agents.remove(id).or_else(|| self.awaited_agents.remove(id)) else {
            return;
        };
        let tasks: Vec<TaskKey> = self
            .frameworks_of_agents()
            .flat_map(|framework| framework.tasks.values().chain(&framework.unreachable_tasks))
            .filter(|task| task.agent == *id)
            .map(|task| task.key.clone())
            .collect();
        for key in tasks {
            self.end_with_agent(&key);
        }
        self.dismiss_executors_on(id, |_| true);
        self.drop_forgotten(id);
        if known {
            self.unreachable_agents.entry(id.clone()).or_insert_with(epoch);
        }
        self.stop_agent(agent);
    }

    /// Ends the process of an agent that is no longer registered.
    fn stop_agent(&mut self, mut agent: Agent) {
        self.drop_queued_orders(&agent.id);
        agent.fault = None;
        agent.connection = Connection::Connected;
        agent.deactivated = false;
        agent.drain = None;
        self.maintenance.stopped.insert(agent.id.clone(), agent);
    }

    /// Starts the stopped agents that may register.
    pub(super) fn start_stopped_agents(&mut self, now: Instant) {
        let maintenance = &mut self.maintenance;
        if maintenance.stopped.is_empty() {
            return;
        }
        let (stopped, returning) = std::mem::take(&mut maintenance.stopped)
            .into_iter()
            .partition(|(_, agent)| maintenance.is_down(agent));
        maintenance.stopped = stopped;
        let returning: BTreeMap<AgentId, Agent> = returning;
        for agent in returning.into_values() {
            self.start_agent(agent, now);
        }
    }

    fn start_agent(&mut self, mut agent: Agent, now: Instant) {
        let previous_id = agent.id.clone();
        agent.id = self.new_agent_id();
        agent.registered = epoch();
        agent.available = agent.total.clone();
        // Processes that are still ending occupy their ports.
        let lingering = self.lingering.values_mut().map(|(on, resources)| (on, resources));
        let ending = self.ending_executors.values_mut();
        let ending = ending.map(|ending| (&mut ending.agent, &mut ending.resources));
        for (on, resources) in lingering.chain(ending).filter(|(on, _)| **on == previous_id) {
            on.clone_from(&agent.id);
            agent.available.subtract(resources);
        }
        self.effects.push(Effect::ContinueJournal {
            previous: previous_id,
            current: agent.id.clone(),
        });
        self.register(agent, now);
    }
}
