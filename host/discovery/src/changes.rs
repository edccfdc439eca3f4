//! Applies changes of the cluster to the zone.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use transom_cluster::{AgentId, FrameworkId, TaskId};

use crate::cluster::{ClusterModel, Tasks};
use crate::records::{InvalidEntry, RecordOrPtr, of_agent, of_framework, of_masters, of_task};
use crate::zone::{Record, Zone, ZoneBuilder, ZoneInputs};

/// Entries of the cluster that changed since the zone was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    tasks: HashSet<(FrameworkId, TaskId)>,
    agents: HashSet<AgentId>,
    frameworks: HashSet<FrameworkId>,
    masters: bool,
    /// Anything may have changed; the zone is rebuilt.
    everything: bool,
}

impl Changes {
    /// Anything may have changed.
    pub(crate) fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    pub(crate) fn add_task(&mut self, framework: FrameworkId, task: TaskId) {
        self.tasks.insert((framework, task));
    }

    pub(crate) fn add_agent(&mut self, agent: AgentId) {
        self.agents.insert(agent);
    }

    pub(crate) fn add_framework(&mut self, framework: FrameworkId) {
        self.frameworks.insert(framework);
    }

    pub(crate) fn add_masters(&mut self) {
        self.masters = true;
    }

    pub(crate) fn add_everything(&mut self) {
        self.everything = true;
    }

    /// Whether anything may have changed.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether the cluster may have other host names.
    pub(crate) fn may_change_hosts(&self) -> bool {
        self.everything || self.masters || !self.agents.is_empty() || !self.frameworks.is_empty()
    }

    /// The entries that differ between two models.
    pub(crate) fn between(old: &ClusterModel, new: &ClusterModel) -> Self {
        let mut changes = Self {
            masters: old.leader != new.leader || old.masters != new.masters,
            ..Self::default()
        };
        for (one, other) in [(old, new), (new, old)] {
            for (id, agent) in one.agents.iter() {
                if other.agents.get(id) != Some(agent) {
                    changes.add_agent(id.clone());
                }
            }
            for (id, framework) in one.frameworks.iter() {
                if other.frameworks.get(id) != Some(framework) {
                    changes.add_framework(id.clone());
                }
            }
            for (framework, tasks) in &one.tasks {
                let other_tasks = other.tasks.get(framework);
                for (id, task) in tasks.iter() {
                    let is_same = other_tasks
                        .and_then(|other_tasks| other_tasks.get(id))
                        .is_some_and(|other| other == task);
                    if !is_same {
                        changes.add_task(framework.clone(), id.clone());
                    }
                }
            }
        }
        changes
    }

    /// How many entries differ.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len() + self.agents.len() + self.frameworks.len() + usize::from(self.masters)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.everything
    }

    /// Whether building the zone is slow enough for a blocking thread.
    pub(crate) fn is_large(&self) -> bool {
        /// About two milliseconds: a task's records take some ten microseconds.
        const LARGE_CHANGE: usize = 200;
        self.everything || self.len() > LARGE_CHANGE || !self.agents.is_empty() || !self.frameworks.is_empty()
    }
}

/// The number of entries that differ between the model and a snapshot although the stream should
/// have reported them. Agents missing from the snapshot do not count: the stream reports a lost agent only
/// through updates of its tasks.
pub(crate) fn missed_changes(model: &ClusterModel, snapshot: &ClusterModel) -> usize {
    let differing = Changes::between(model, snapshot);
    let lost_agents = differing
        .agents
        .iter()
        .filter(|id| snapshot.agents.get(id).is_none());
    differing.len() - lost_agents.count()
}

/// The zone after changes. `journal_records`: the size of the journal for transfers.
pub(crate) fn apply(
    zone: &Zone,
    to: ZoneInputs,
    changes: Changes,
    serial: u32,
    journal_records: usize,
) -> Zone {
    if changes.everything {
        return rebuild(to, serial);
    }
    let from = zone.inputs();
    let changes = with_dependents(changes, &from.cluster, &to.cluster);
    // Records that exist before and after cancel out.
    let mut differs: HashMap<RecordOrPtr, i64> = HashMap::new();
    let before = emit_records(&changes, from, |line| *differs.entry(line).or_default() -= 1);
    let now = emit_records(&changes, &to, |line| *differs.entry(line).or_default() += 1);
    let mut builder = ZoneBuilder::of(zone, journal_records);
    for (line, by) in differs {
        for _ in 0..by.unsigned_abs() {
            match (&line, by > 0) {
                (RecordOrPtr::Record(record), true) => builder.add(record),
                (RecordOrPtr::Record(record), false) => builder.remove(record),
                (RecordOrPtr::Ptr(name, ip), true) => builder.add_ptr(*ip, name),
                (RecordOrPtr::Ptr(name, ip), false) => builder.remove_ptr(*ip, name),
            }
        }
    }
    builder.count_invalid(before, now);
    builder.build(to, serial)
}

/// A full rebuild. The journal starts empty, so secondaries need a full transfer.
fn rebuild(to: ZoneInputs, serial: u32) -> Zone {
    let empty = Zone::empty(Arc::clone(&to.zone_config));
    let changes = Changes {
        masters: true,
        ..Changes::between(&empty.inputs().cluster, &to.cluster)
    };
    let mut builder = ZoneBuilder::of(&empty, 0);
    let invalid_entries = emit_records(&changes, &to, |line| match line {
        RecordOrPtr::Record(record) => builder.add(&record),
        RecordOrPtr::Ptr(name, ip) => builder.add_ptr(ip, &name),
    });
    builder.count_invalid(0, invalid_entries);
    builder.build(to, serial)
}

/// Adds the tasks of changed agents and frameworks, whose records may change too.
fn with_dependents(mut changes: Changes, old: &ClusterModel, new: &ClusterModel) -> Changes {
    if changes.agents.is_empty() && changes.frameworks.is_empty() {
        return changes;
    }
    let Changes {
        tasks,
        agents,
        frameworks,
        ..
    } = &mut changes;
    for cluster in [old, new] {
        for framework in frameworks.iter() {
            let of_framework = cluster.tasks.get(framework).into_iter().flat_map(Tasks::iter);
            tasks.extend(of_framework.map(|(id, _)| (framework.clone(), id.clone())));
        }
        for (framework, of_framework) in &cluster.tasks {
            let of_agents = agents.iter().flat_map(|agent| of_framework.of_agent(agent));
            tasks.extend(of_agents.map(|id| (framework.clone(), id.clone())));
        }
    }
    changes
}

/// Emits the records of the changed entries in one model. Returns the number of invalid entries.
fn emit_records(changes: &Changes, model: &ZoneInputs, mut line: impl FnMut(RecordOrPtr)) -> u64 {
    let ZoneInputs {
        cluster,
        hosts,
        zone_config,
    } = model;
    let mut invalid_entries = cluster.invalid_entries;
    let mut emit_all =
        |records: Vec<Record>| records.into_iter().map(RecordOrPtr::Record).for_each(&mut line);
    if changes.masters {
        emit_all(of_masters(zone_config, hosts, cluster));
    }
    for framework in changes
        .frameworks
        .iter()
        .filter_map(|id| cluster.frameworks.get(id))
    {
        emit_all(of_framework(zone_config, hosts, framework));
    }
    for agent in changes.agents.iter().filter_map(|id| cluster.agents.get(id)) {
        match of_agent(zone_config, hosts, agent) {
            Ok(Some(records)) => emit_all(records),
            Ok(None) => {}
            Err(InvalidEntry) => invalid_entries += 1,
        }
    }
    for (framework, id) in &changes.tasks {
        let task = cluster.tasks.get(framework).and_then(|tasks| tasks.get(id));
        let (Some(task), Some(owner)) = (task, cluster.frameworks.get(framework)) else {
            continue;
        };
        match of_task(model, &zone_config.framework_labels(&owner.name), id, task) {
            Ok(Some(lines)) => lines.into_iter().for_each(&mut line),
            Ok(None) => {}
            Err(InvalidEntry) => invalid_entries += 1,
        }
    }
    invalid_entries
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
