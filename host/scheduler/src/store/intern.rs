//! Interning: equal parts of records (agents with their attributes, metadata) are stored in memory
//! once.
//!
//! A cluster has far fewer agents than tasks, and the metadata of a service is often equal. Unused
//! values are dropped when the table has doubled in size.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use transom_cluster::v1::{Attribute, TaskStatus};
use transom_cluster::{AgentId, TaskId};

use crate::{AgentLocation, TaskRecord};

/// Smaller tables are not swept.
const MIN_SWEEP: usize = 256;

/// An agent as in its latest record.
#[derive(Debug)]
struct Agent {
    location: Arc<AgentLocation>,
    attributes: Arc<[Attribute]>,
}

/// The shared values.
#[derive(Debug)]
pub(crate) struct Interner {
    agents: HashMap<AgentId, Agent>,
    metadata: HashSet<Arc<Value>>,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            agents: HashMap::new(),
            metadata: HashSet::new(),
            sweep_at: MIN_SWEEP,
        }
    }
}

impl Interner {
    /// Returns the same record with equal parts shared with earlier records.
    pub(crate) fn intern(&mut self, mut record: TaskRecord) -> TaskRecord {
        self.sweep();
        if let Some(agent) = self.agents.get_mut(&record.agent.id) {
            reuse(&mut agent.location, &mut record.agent);
            reuse(&mut agent.attributes, &mut record.agent_attributes);
        } else {
            let agent = Agent {
                location: Arc::clone(&record.agent),
                attributes: Arc::clone(&record.agent_attributes),
            };
            self.agents.insert(record.agent.id.clone(), agent);
        }
        if let Some(metadata) = self.metadata.get(&record.metadata) {
            record.metadata = Arc::clone(metadata);
        } else {
            self.metadata.insert(Arc::clone(&record.metadata));
        }
        record.host_ports.shrink_to_fit();
        if let Some(status) = &mut record.status {
            shrink(status, &record.id, &record.agent.id);
        }
        record
    }

    fn sweep(&mut self) {
        if self.agents.len() + self.metadata.len() < self.sweep_at {
            return;
        }
        let is_used = |agent: &Agent| Arc::strong_count(&agent.location) > 1;
        self.agents.retain(|_, agent| is_used(agent));
        self.metadata.retain(|metadata| Arc::strong_count(metadata) > 1);
        self.sweep_at = MIN_SWEEP.max(2 * (self.agents.len() + self.metadata.len()));
    }
}

/// Makes both share one value. If they differ, the newer value is the one to share from now on.
fn reuse<T: PartialEq + ?Sized>(shared: &mut Arc<T>, new: &mut Arc<T>) {
    if *shared == *new {
        *new = Arc::clone(shared);
    } else {
        *shared = Arc::clone(new);
    }
}

/// Frees unused memory: ids that the record also contains are shared with it, and lists lose their
/// spare capacity (a decoder reserves four entries in each).
pub(crate) fn shrink(status: &mut TaskStatus, task: &TaskId, agent: &AgentId) {
    if status.task_id == *task {
        status.task_id = task.clone();
    }
    if status.agent_id.as_ref() == Some(agent) {
        status.agent_id = Some(agent.clone());
    }
    if let Some(labels) = &mut status.labels {
        labels.labels.shrink_to_fit();
    }
    if let Some(container) = &mut status.container_status {
        container.network_infos.shrink_to_fit();
        for network in &mut container.network_infos {
            network.ip_addresses.shrink_to_fit();
            network.groups.shrink_to_fit();
            network.port_mappings.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    /// A record as read from the store, which shares nothing with others.
    fn on(agent: &str, rack: &str, metadata: u32) -> TaskRecord {
        TaskRecord {
            agent: Arc::new(AgentLocation {
                id: agent.into(),
                ..AgentLocation::clone(&record("t").agent)
            }),
            agent_attributes: Arc::new([Attribute::text("rack", rack)]),
            metadata: Arc::new(serde_json::json!({"incarnation": metadata})),
            ..record("t")
        }
    }

    fn same(one: &TaskRecord, other: &TaskRecord) -> [bool; 3] {
        [
            Arc::ptr_eq(&one.agent, &other.agent),
            Arc::ptr_eq(&one.agent_attributes, &other.agent_attributes),
            Arc::ptr_eq(&one.metadata, &other.metadata),
        ]
    }

    #[test]
    fn intern_shares_equal_values_and_keeps_different_ones() {
        let mut interner = Interner::default();
        let first = interner.intern(on("a", "r1", 1));
        let table = [
            (on("a", "r1", 1), [true, true, true]),
            (on("b", "r1", 1), [false, false, true]),
            (on("a", "r1", 2), [true, true, false]),
            (on("a", "r2", 1), [true, false, true]),
        ];
        for (record, expected) in table {
            let shared = interner.intern(record.clone());
            assert_eq!(shared, record, "sharing does not change the record");
            assert_eq!(same(&first, &shared), expected, "{record:?}");
        }
        let again = interner.intern(on("a", "r2", 1));
        let newest = interner.intern(on("a", "r2", 1));
        assert_eq!(
            same(&again, &newest),
            [true; 3],
            "the newer attributes are shared now"
        );
    }

    #[test]
    fn status_shares_the_ids_of_its_record() {
        let mut record = on("a", "r", 1);
        record.status = Some(TaskStatus {
            task_id: "t".into(),
            agent_id: Some("a".into()),
            ..TaskStatus::default()
        });
        let shared = Interner::default().intern(record.clone());
        assert_eq!(shared, record);
        let status = shared.status.as_ref().unwrap();
        assert!(std::ptr::eq(status.task_id.as_str(), shared.id.as_str()));
        let agent = status.agent_id.as_ref().unwrap();
        assert!(std::ptr::eq(agent.as_str(), shared.agent.id.as_str()));
    }

    #[test]
    fn sweep_drops_values_that_no_record_uses() {
        let mut interner = Interner::default();
        let kept: Vec<_> = (0..10)
            .map(|n| interner.intern(on(&format!("kept-{n}"), "r", n)))
            .collect();
        for n in 0..10 * MIN_SWEEP {
            interner.intern(on(&format!("gone-{n}"), "r", 1000 + n as u32));
            assert!(
                interner.agents.len() + interner.metadata.len() <= MIN_SWEEP + 1,
                "{n}"
            );
        }
        for (n, kept) in (0..).zip(&kept) {
            let again = interner.intern(on(&format!("kept-{n}"), "r", n));
            assert_eq!(same(kept, &again), [true; 3]);
        }
    }
}
