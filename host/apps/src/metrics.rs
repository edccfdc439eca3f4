//! Gauges of the state that the API shows, counted at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::core::snapshot::Snapshot;
use crate::time::Moment;

/// Counts apps, pods, groups, instances and deployments. A standby counts what it reads from the
/// store, without health.
#[derive(Debug)]
pub(crate) struct StateMetrics(pub(crate) Arc<ArcSwap<Snapshot>>);

impl Collector for StateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.load_full();
        let mut instances: BTreeMap<&'static str, u64> = BTreeMap::new();
        let (mut unhealthy, mut delayed) = (0, 0);
        let now = Moment::now();
        for view in snapshot.specs.values().chain(snapshot.deleted.values()) {
            delayed += usize::from(view.is_delayed(now));
            for instance in view.instances.values() {
                *instances.entry(instance.condition().as_str()).or_default() += 1;
                unhealthy += u64::from(instance.is_healthy() == Some(false));
            }
        }
        let waiting = instances.get("Scheduled").copied().unwrap_or_default();
        let pods = snapshot.pods().count();
        let gauges = [
            ("transom_apps_apps", "Apps", snapshot.specs.len() - pods),
            ("transom_apps_pods", "Pods", pods),
            (
                "transom_apps_groups",
                "Groups that have a definition of their own",
                snapshot.groups.len(),
            ),
            (
                "transom_apps_deployments_running",
                "Running deployments",
                snapshot.deployments.len(),
            ),
            (
                "transom_apps_unhealthy",
                "Instances that fail a health check",
                unhealthy as usize,
            ),
            (
                "transom_apps_queue_waiting",
                "Instances that wait for their launch",
                waiting as usize,
            ),
            (
                "transom_apps_queue_backoff",
                "Apps and pods whose instances wait for the delay after failures",
                delayed,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as f64);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "transom_apps_instances",
            "Instances of apps and pods, by condition",
            None,
            MetricType::Gauge,
        )?;
        for (condition, count) in instances {
            let gauge = ConstGauge::new(count as f64);
            gauge.encode(family.encode_family(&[("condition", condition)])?)?;
        }
        Ok(())
    }
}
