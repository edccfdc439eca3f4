//! From what changed in the cluster to what changes in the zone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use transom_cluster::{AgentId, FrameworkId, TaskId};

use crate::cluster::Cluster;
use crate::records::{Line, Made, of_agent, of_framework, of_masters, of_task};
use crate::zone::{Edit, MadeFrom, Record, Zone};

/// Entries of the cluster that are not what they were when the zone was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    tasks: HashSet<(FrameworkId, TaskId)>,
    agents: HashSet<AgentId>,
    frameworks: HashSet<FrameworkId>,
    masters: bool,
    /// Anything may have changed, or how records are made from it.
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

    pub(crate) fn task(&mut self, framework: FrameworkId, task: TaskId) {
        self.tasks.insert((framework, task));
    }

    pub(crate) fn agent(&mut self, agent: AgentId) {
        self.agents.insert(agent);
    }

    pub(crate) fn framework(&mut self, framework: FrameworkId) {
        self.frameworks.insert(framework);
    }

    pub(crate) fn masters(&mut self) {
        self.masters = true;
    }

    pub(crate) fn all(&mut self) {
        self.everything = true;
    }

    /// Whether anything may have changed.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// How two models differ.
    pub(crate) fn between(old: &Cluster, new: &Cluster) -> Self {
        let mut changes = Self {
            masters: old.leader != new.leader || old.masters != new.masters,
            ..Self::default()
        };
        for (one, other) in [(old, new), (new, old)] {
            for (id, agent) in one.agents.iter() {
                if other.agents.get(id) != Some(agent) {
                    changes.agent(id.clone());
                }
            }
            for (id, framework) in one.frameworks.iter() {
                if other.frameworks.get(id) != Some(framework) {
                    changes.framework(id.clone());
                }
            }
            for (framework, tasks) in &one.tasks {
                let others = other.tasks.get(framework);
                for (id, task) in tasks.iter() {
                    let same = others
                        .and_then(|others| others.get(id))
                        .is_some_and(|other| other == task);
                    if !same {
                        changes.task(framework.clone(), id.clone());
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

    /// Whether making the zone takes so long that it is not done beside other work.
    pub(crate) fn is_large(&self) -> bool {
        /// A task's records take some ten microseconds.
        const MANY: usize = 200;
        self.everything || self.len() > MANY || !self.agents.is_empty() || !self.frameworks.is_empty()
    }
}

/// How many entries of a snapshot differ from the model that followed the stream, although the stream should have told.
/// It does not tell of an agent that left without tasks, and tells of the others by their tasks' updates alone: agents
/// that are missing from the snapshot do not count.
pub(crate) fn drift(model: &Cluster, seen: &Cluster) -> usize {
    let differing = Changes::between(model, seen);
    let left = differing.agents.iter().filter(|id| seen.agents.get(id).is_none());
    differing.len() - left.count()
}

/// The zone after changes. `kept`: how many records of the last changes are remembered for transfers.
pub(crate) fn apply(zone: &Zone, to: MadeFrom, changes: Changes, serial: u32, kept: usize) -> Zone {
    if changes.everything {
        return anew(to, serial);
    }
    let from = zone.made_from();
    let changes = with_dependants(changes, &from.cluster, &to.cluster);
    // What is there before and after is not touched.
    let mut differs: HashMap<Line, i64> = HashMap::new();
    let before = turn(&changes, from, |line| *differs.entry(line).or_default() -= 1);
    let now = turn(&changes, &to, |line| *differs.entry(line).or_default() += 1);
    let mut edit = Edit::of(zone, kept);
    for (line, by) in differs {
        for _ in 0..by.unsigned_abs() {
            match (&line, by > 0) {
                (Line::Record(record), true) => edit.put(record),
                (Line::Record(record), false) => edit.take(record),
                (Line::Pointer(name, ip), true) => edit.put_name(*ip, name),
                (Line::Pointer(name, ip), false) => edit.take_name(*ip, name),
            }
        }
    }
    edit.skip(before, now);
    edit.done(to, serial)
}

/// A zone from nothing. Those who follow by transfers have to begin again.
fn anew(to: MadeFrom, serial: u32) -> Zone {
    let nothing = Zone::empty(Arc::clone(&to.rules));
    let changes = Changes {
        masters: true,
        ..Changes::between(&nothing.made_from().cluster, &to.cluster)
    };
    let mut edit = Edit::of(&nothing, 0);
    let skipped = turn(&changes, &to, |line| match line {
        Line::Record(record) => edit.put(&record),
        Line::Pointer(name, ip) => edit.put_name(ip, &name),
    });
    edit.skip(0, skipped);
    edit.done(to, serial)
}

/// With an agent or a framework, the records of its tasks may change.
fn with_dependants(mut changes: Changes, old: &Cluster, new: &Cluster) -> Changes {
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
        for (framework, of_framework) in &cluster.tasks {
            let whole = frameworks.contains(framework);
            let dependants = of_framework
                .iter()
                .filter(|(_, task)| whole || agents.contains(&task.agent));
            tasks.extend(dependants.map(|(id, _)| (framework.clone(), id.clone())));
        }
    }
    changes
}

/// Everything that the changed entries have in one model. How many entries make no sense there.
fn turn(changes: &Changes, model: &MadeFrom, mut line: impl FnMut(Line)) -> u64 {
    let MadeFrom {
        cluster,
        hosts,
        rules,
    } = model;
    let mut skipped = cluster.skipped;
    let mut all = |records: Vec<Record>| records.into_iter().map(Line::Record).for_each(&mut line);
    if changes.masters {
        all(of_masters(rules, hosts, cluster));
    }
    for framework in changes
        .frameworks
        .iter()
        .filter_map(|id| cluster.frameworks.get(id))
    {
        all(of_framework(rules, hosts, framework));
    }
    for agent in changes.agents.iter().filter_map(|id| cluster.agents.get(id)) {
        match of_agent(rules, hosts, agent) {
            Made::Records(records) => all(records),
            Made::Nothing => {}
            Made::Nonsense => skipped += 1,
        }
    }
    for (framework, id) in &changes.tasks {
        let task = cluster.tasks.get(framework).and_then(|tasks| tasks.get(id));
        let (Some(task), Some(owner)) = (task, cluster.frameworks.get(framework)) else {
            continue;
        };
        match of_task(model, &rules.part(&owner.name), id, task) {
            Made::Records(lines) => lines.into_iter().for_each(&mut line),
            Made::Nothing => {}
            Made::Nonsense => skipped += 1,
        }
    }
    skipped
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
