//! Gauges of the state that the API shows, read at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use transom_replicas::Condition;

use super::snapshot::Snapshot;
use crate::core::failing::{Failing, KINDS};
use crate::time::Moment;

/// The counts of apps, pods, groups, instances and deployments. A standby counts what it reads from the
/// store, without health.
#[derive(Debug)]
pub(crate) struct StateMetrics(pub(crate) Arc<ArcSwap<Snapshot>>);

impl Collector for StateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.load_full();
        let totals = &snapshot.totals;
        let now = Moment::now();
        let delayed = totals.delayed.values().filter(|view| view.is_delayed(now));
        let delayed = delayed.count();
        let waiting = totals.instances.of(Condition::Scheduled);
        let pods = totals.pods as usize;
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
                totals.instances.unhealthy as usize,
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
        for (condition, count) in totals.instances.by_condition() {
            let gauge = ConstGauge::new(f64::from(count));
            gauge.encode(family.encode_family(&[("condition", condition)])?)?;
        }
        let mut failing: BTreeMap<_, u32> = KINDS.iter().map(|kind| (*kind, 0)).collect();
        for one in totals.failing.values().filter_map(|view| Failing::of(view, now)) {
            *failing.entry(one.kind).or_default() += 1;
        }
        let mut family = encoder.encode_descriptor(
            "transom_apps_failing",
            "Apps and pods whose tasks or checks fail, by the kind of the problem",
            None,
            MetricType::Gauge,
        )?;
        for (kind, count) in failing {
            let gauge = ConstGauge::new(f64::from(count));
            gauge.encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}
