//! A summary of discovery for operators, read from the zone and the counters.

use serde::Serialize;

use crate::handle::Discovery;

/// The state of discovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The domain of the zone; none before the first zone.
    pub domain: Option<String>,
    /// Names with records.
    pub names: u64,
    /// Records.
    pub records: u64,
    /// Tasks of the cluster that the records are made of.
    pub tasks: u64,
    /// Agents of the cluster.
    pub agents: u64,
    /// Invalid agents, frameworks and tasks, which have no records.
    pub invalid_entries: u64,
    /// Seconds since the cluster last confirmed the records.
    pub age_seconds: f64,
    /// Why records are missing, if any are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// DNS queries answered since the daemon started.
    pub queries: u64,
}

impl Discovery {
    /// The present state.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            age_seconds: self.shared.confirmed.age().as_secs_f64(),
            queries: self.metrics.answered(),
            problem: self.problem().map(|problem| problem.to_string()),
            ..Summary::default()
        };
        if let Some(zone) = self.zone() {
            let cluster = &zone.inputs().cluster;
            summary.domain = Some(zone.apex().to_owned());
            summary.names = zone.names();
            summary.records = zone.records() as u64;
            summary.tasks = cluster.tasks.values().map(|tasks| tasks.len() as u64).sum();
            summary.agents = cluster.agents.len() as u64;
            summary.invalid_entries = zone.invalid_entries();
        }
        summary
    }
}
