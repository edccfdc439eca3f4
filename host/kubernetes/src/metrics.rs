//! The service's metrics. Names begin with `transom_kubernetes_`; the label `framework` tells
//! instances apart.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::kind::Kind;
use crate::view::View;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

impl KindLabel {
    fn of(kind: Kind) -> Self {
        Self { kind: kind.as_str() }
    }
}

/// Counters continue from one term as leader to the next. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    tasks_started: Family<KindLabel, Counter>,
    tasks_wanted: Family<KindLabel, Gauge>,
    tasks_running: Family<KindLabel, Gauge>,
    nodes_ready: Gauge,
    nodes: Gauge,
    orchestrator_up: Gauge,
    settled: Gauge,
}

impl Metrics {
    /// `registry` labels the metrics with the framework.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            tasks_started: Family::default(),
            tasks_wanted: Family::default(),
            tasks_running: Family::default(),
            nodes_ready: Gauge::default(),
            nodes: Gauge::default(),
            orchestrator_up: Gauge::default(),
            settled: Gauge::default(),
        };
        let name = |name: &str| format!("transom_kubernetes_{name}");
        registry.register(
            name("tasks_started"),
            "Tasks started",
            metrics.tasks_started.clone(),
        );
        registry.register(name("tasks_wanted"), "Tasks wanted", metrics.tasks_wanted.clone());
        registry.register(
            name("tasks_running"),
            "Tasks that run",
            metrics.tasks_running.clone(),
        );
        registry.register(name("nodes"), "Nodes of the orchestrator", metrics.nodes.clone());
        registry.register(
            name("nodes_ready"),
            "Nodes of the orchestrator that are ready",
            metrics.nodes_ready.clone(),
        );
        registry.register(
            name("orchestrator_up"),
            "Whether the orchestrator's API answers",
            metrics.orchestrator_up.clone(),
        );
        registry.register(
            name("settled"),
            "Whether every wanted task runs and every node is ready",
            metrics.settled.clone(),
        );
        metrics
    }

    pub(crate) fn started(&self, kind: Kind) {
        self.tasks_started.get_or_create(&KindLabel::of(kind)).inc();
    }

    pub(crate) fn show(&self, view: &View) {
        for kind in Kind::ALL {
            let label = KindLabel::of(kind);
            let wanted = i64::from(*view.wanted.of(kind));
            self.tasks_wanted.get_or_create(&label).set(wanted);
            let running = i64::try_from(view.running(kind)).unwrap_or(i64::MAX);
            self.tasks_running.get_or_create(&label).set(running);
        }
        let nodes = view.orchestrator.as_ref().map(|orchestrator| &orchestrator.nodes);
        let all = nodes.map_or(0, Vec::len);
        let ready = nodes.map_or(0, |nodes| nodes.iter().filter(|node| node.ready).count());
        self.nodes.set(i64::try_from(all).unwrap_or(i64::MAX));
        self.nodes_ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
        self.orchestrator_up.set(i64::from(view.orchestrator.is_some()));
        self.settled.set(i64::from(view.ready));
    }

    /// Another daemon leads: its metrics are the valid ones.
    pub(crate) fn step_down(&self) {
        self.show(&View::default());
    }
}
