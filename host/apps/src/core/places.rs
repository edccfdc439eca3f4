//! Where tasks run: the users of each port, the hosts, and the apps and pods on each agent. Kept up to
//! date with each change, so that no reader looks at every instance.

use std::sync::Arc;

use imbl::OrdMap;
use transom_cluster::AgentId;
use transom_scheduler::TaskRecord;

use crate::ids::SpecId;
use crate::instance::Instance;
use crate::time::Moment;

/// The places of all tasks that have not ended, each with the number of its tasks. A clone is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    ports: OrdMap<u16, OrdMap<PortUser, u32>>,
    hosts: OrdMap<Arc<str>, u32>,
    agents: OrdMap<AgentId, OrdMap<SpecId, u32>>,
}

/// An app or pod that uses a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortUser {
    pub(crate) id: SpecId,
    pub(crate) host: Arc<str>,
    /// The definition that its task was launched from.
    pub(crate) version: Option<Moment>,
}

/// An instance before and after a change.
pub(crate) type Moved = (Option<Arc<Instance>>, Option<Arc<Instance>>);

impl Places {
    /// The users of a port.
    pub(crate) fn users(&self, port: u16) -> impl Iterator<Item = &PortUser> {
        self.ports.get(&port).into_iter().flat_map(OrdMap::keys)
    }

    /// Whether a task runs on a host with this name.
    pub(crate) fn has_host(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// The apps and pods with tasks on an agent.
    pub(super) fn on_agent(&self, agent: &AgentId) -> impl Iterator<Item = &SpecId> {
        self.agents.get(agent).into_iter().flat_map(OrdMap::keys)
    }

    /// Moves an instance of an app or pod.
    pub(crate) fn change(&mut self, id: &SpecId, (before, after): &Moved) {
        for record in records(after.as_ref()) {
            let agents = self.agents.entry(record.agent.id.clone()).or_default();
            add(agents, id.clone());
            let host = self.host(record);
            add(&mut self.hosts, Arc::clone(&host));
            for port in &record.host_ports {
                let users = self.ports.entry(*port).or_default();
                add(users, port_user(id, &host, record));
            }
        }
        for record in records(before.as_ref()) {
            remove_from(&mut self.agents, &record.agent.id, id);
            let host = self.host(record);
            remove(&mut self.hosts, &host);
            for port in &record.host_ports {
                remove_from(&mut self.ports, port, &port_user(id, &host, record));
            }
        }
    }

    /// The only copy of a host's name.
    fn host(&self, record: &TaskRecord) -> Arc<str> {
        let name = record.agent.hostname.as_str();
        let known = self.hosts.get_key_value(name);
        known.map_or_else(|| name.into(), |(known, _)| Arc::clone(known))
    }
}

/// Whether an instance has moved.
pub(super) fn has_moved((before, after): &Moved) -> bool {
    !records(before.as_ref())
        .map(place)
        .eq(records(after.as_ref()).map(place))
}

fn place(record: &TaskRecord) -> (&AgentId, &[u16], &str) {
    (&record.agent.id, &record.host_ports, &record.version)
}

fn records(instance: Option<&Arc<Instance>>) -> impl Iterator<Item = &TaskRecord> {
    let tasks = instance.into_iter().flat_map(|instance| &instance.tasks);
    let records = tasks.map(|task| &*task.record);
    records.filter(|record| !record.state.is_terminal())
}

fn port_user(id: &SpecId, host: &Arc<str>, record: &TaskRecord) -> PortUser {
    PortUser {
        id: id.clone(),
        host: Arc::clone(host),
        version: record.version.parse().ok(),
    }
}

fn add<K: Ord + Clone>(counts: &mut OrdMap<K, u32>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn remove<K: Ord + Clone>(counts: &mut OrdMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn remove_from<P: Ord + Clone, K: Ord + Clone>(counts: &mut OrdMap<P, OrdMap<K, u32>>, place: &P, key: &K) {
    if let Some(of_place) = counts.get_mut(place) {
        remove(of_place, key);
        if of_place.is_empty() {
            counts.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::BTreeMap;

    use transom_cluster::v1::TaskState;
    use transom_scheduler::AgentLocation;

    use super::*;
    use crate::testing;

    #[test]
    fn places_are_those_of_all_instances_after_every_change() {
        let ids = ["/a", "/b", "/c"].map(|id| SpecId::parse(id).unwrap());
        let mut instances: BTreeMap<usize, Arc<Instance>> = BTreeMap::new();
        let mut places = Places::default();
        for step in 0..300 {
            let (slot, agent) = (step * 7 % 20, step % 4);
            let id = &ids[slot % 3];
            let after = (step % 5 != 4).then(|| {
                let mut instance = Instance::new(id, Moment::now(), Moment::now());
                let ended = step % 11 == 0;
                instance.set_record(&Arc::new(TaskRecord {
                    agent: Arc::new(AgentLocation {
                        id: format!("agent{agent}").as_str().into(),
                        hostname: format!("host{}", agent / 2),
                        ..testing::agent()
                    }),
                    host_ports: vec![80, 8000 + (step % 3) as u16],
                    state: if ended {
                        TaskState::Finished
                    } else {
                        TaskState::Running
                    },
                    ..testing::record(instance.task())
                }));
                Arc::new(instance)
            });
            let before = match &after {
                Some(after) => instances.insert(slot, Arc::clone(after)),
                None => instances.remove(&slot),
            };
            let moved = (before, after);
            assert!(!has_moved(&(moved.0.clone(), moved.0.clone())));
            if has_moved(&moved) {
                places.change(id, &moved);
            }
            let mut expected = Places::default();
            for (slot, instance) in &instances {
                expected.change(&ids[slot % 3], &(None, Some(Arc::clone(instance))));
            }
            assert_eq!(places, expected, "step {step}");
        }
        assert!(places.users(80).count() > 3 && places.has_host("host0") && !places.has_host("host7"));
        assert!(places.on_agent(&"agent1".into()).count() > 1);
    }
}
