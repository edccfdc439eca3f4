//! The service's metrics. Their names begin with `transom_kubernetes_`; the label `framework`
//! distinguishes instances.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::backup::OperationKind;
use crate::kind::Kind;
use crate::view::View;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// `up` or `down`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

impl KindLabel {
    fn of(kind: Kind) -> Self {
        Self { kind: kind.as_str() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationKindLabel {
    operation: &'static str,
}

transom_common::metrics! {
    /// Counters continue from one term as leader to the next. Clones share them.
    pub(crate) struct Metrics {
        tasks_started: Family<KindLabel, Counter>
            => "tasks_started", "Tasks started";
        tasks_wanted: Family<KindLabel, Gauge>
            => "tasks_wanted", "Tasks wanted";
        tasks_running: Family<KindLabel, Gauge>
            => "tasks_running", "Tasks that run";
        tasks_waiting: Family<KindLabel, Gauge>
            => "tasks_waiting", "Tasks that wait for an offer";
        nodes_ready: Gauge
            => "nodes_ready", "Nodes of the orchestrator that are ready";
        nodes_cordoned: Gauge
            => "nodes_cordoned", "Nodes of the orchestrator that are cordoned";
        nodes: Gauge
            => "nodes", "Nodes of the orchestrator";
        orchestrator_up: Gauge
            => "orchestrator_up", "Whether the orchestrator's API answers";
        settled: Gauge
            => "settled", "Whether every wanted task runs and every node is ready";
        autoscaled: Family<DirectionLabel, Counter>
            => "autoscale_changes", "Changes of the count of agents by the autoscaler";
        unschedulable_pods: Gauge
            => "unschedulable_pods", "Pods that are unschedulable, while the agents are autoscaled";
        idle_agents: Gauge
            => "idle_agents",
            "Idle agents, on which no pod runs that would have to move, while the agents are autoscaled";
        operations: Family<OperationLabels, Counter>
            => "operations", "Backups and restores that have ended";
        operation_running: Family<OperationKindLabel, Gauge>
            => "operation_running", "Whether a backup or a restore is under way";
        last_backup_time: Gauge
            => "last_backup_timestamp_seconds", "When the last successful backup ended; 0: never";
        last_backup_bytes: Gauge
            => "last_backup_bytes", "Size of the last successful backup";
    }
}

impl Metrics {
    /// `registry` labels the metrics with the framework.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self::registered(registry.sub_registry_with_prefix("transom_kubernetes"))
    }

    /// Counts a backup or a restore that has ended.
    pub(crate) fn record_operation_end(&self, kind: OperationKind, success: bool) {
        let labels = OperationLabels {
            operation: kind.as_str(),
            result: if success { "success" } else { "failure" },
        };
        self.operations.get_or_create(&labels).inc();
    }

    pub(crate) fn record_task_start(&self, kind: Kind) {
        self.tasks_started.get_or_create(&KindLabel::of(kind)).inc();
    }

    /// Counts a change of the count of agents by the autoscaler.
    pub(crate) fn record_autoscaling(&self, up: bool) {
        let direction = if up { "up" } else { "down" };
        self.autoscaled.get_or_create(&DirectionLabel { direction }).inc();
    }

    pub(crate) fn update(&self, view: &View) {
        for kind in Kind::ALL {
            let label = KindLabel::of(kind);
            let wanted = i64::from(*view.wanted.of(kind));
            self.tasks_wanted.get_or_create(&label).set(wanted);
            let running = i64::try_from(view.running(kind)).unwrap_or(i64::MAX);
            self.tasks_running.get_or_create(&label).set(running);
            let waiting = view
                .tasks
                .of(kind)
                .iter()
                .filter(|task| task.state.is_none())
                .count();
            let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
            self.tasks_waiting.get_or_create(&label).set(waiting);
        }
        let nodes = view.orchestrator.as_ref().map(|orchestrator| &orchestrator.nodes);
        let all = nodes.map_or(0, Vec::len);
        let ready = nodes.map_or(0, |nodes| nodes.iter().filter(|node| node.ready).count());
        let cordoned = nodes.map_or(0, |nodes| nodes.iter().filter(|node| node.cordoned).count());
        self.nodes_cordoned
            .set(i64::try_from(cordoned).unwrap_or(i64::MAX));
        self.nodes.set(i64::try_from(all).unwrap_or(i64::MAX));
        self.nodes_ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
        self.orchestrator_up.set(i64::from(view.orchestrator.is_some()));
        self.settled.set(i64::from(view.ready));
        let autoscale = view.autoscale.as_ref();
        let (pods, agents) = autoscale.map_or((0, 0), |it| (it.unschedulable_pods, it.idle_agents));
        self.unschedulable_pods
            .set(i64::try_from(pods).unwrap_or(i64::MAX));
        self.idle_agents.set(i64::try_from(agents).unwrap_or(i64::MAX));
        let running = view.backup.operation.as_ref().map(|operation| operation.kind);
        for kind in [OperationKind::Backup, OperationKind::Restore] {
            let label = OperationKindLabel {
                operation: kind.as_str(),
            };
            let runs = i64::from(running == Some(kind));
            self.operation_running.get_or_create(&label).set(runs);
        }
        let last = view.backup.last_success;
        let time = last.map_or(0, |last| last.ended.as_second());
        self.last_backup_time.set(time);
        let bytes = last.map_or(0, |last| i64::try_from(last.size).unwrap_or(i64::MAX));
        self.last_backup_bytes.set(bytes);
    }

    /// Clears the gauges, because the metrics of another daemon, the next leader, are valid now.
    pub(crate) fn clear_gauges(&self) {
        self.update(&View::default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use prometheus_client::encoding::text::encode;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/framework.md");

    /// The metrics with their labels, as the documentation writes them, and their help texts.
    fn registered() -> BTreeMap<String, String> {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        // A family without a series has no labels.
        metrics.record_task_start(Kind::Server);
        metrics.record_operation_end(OperationKind::Backup, true);
        metrics.record_autoscaling(true);
        metrics.update(&View::default());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let (mut found, mut help) = (BTreeMap::new(), "");
        for line in text.lines() {
            if let Some(text) = line.strip_prefix("# HELP ") {
                help = text.split_once(' ').unwrap().1;
            } else if !line.starts_with('#') {
                let (series, _) = line.rsplit_once(' ').unwrap();
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                let labels: Vec<&str> = labels
                    .split(',')
                    .filter_map(|label| Some(label.split_once('=')?.0))
                    .collect();
                let labels = labels.join(",");
                let shown = if labels.is_empty() {
                    name.to_owned()
                } else {
                    format!("{name}{{{labels}}}")
                };
                found.insert(shown, help.trim_end_matches('.').to_owned());
            }
        }
        let families = text.matches("# TYPE ").count();
        assert_eq!(found.len(), families, "a family has no series here: add one");
        found
    }

    #[test]
    fn metrics_are_those_of_the_documentation() {
        let registered = registered();
        let (_, table) = PAGE.split_once("| metric | |\n|---|---|\n").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let documented: BTreeSet<String> = table
            .lines()
            .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(", "))
            .map(|name| name.trim().trim_matches('`').to_owned())
            .collect();
        let missing: Vec<String> = registered
            .iter()
            .filter(|(name, _)| !documented.contains(*name))
            .map(|(name, help)| format!("| `{name}` | {help} |"))
            .collect();
        let unknown: Vec<&String> = documented
            .iter()
            .filter(|name| !registered.contains_key(*name))
            .collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "docs/framework.md: add\n{}\nand remove {unknown:?}",
            missing.join("\n")
        );
    }
}
