//! Metrics of the daemon itself: its version, its process, and the state of its services.
//!
//! The metrics of the process have the names of Prometheus' own client libraries, so that common
//! dashboards and alerting rules apply.

use std::fmt::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::process;
use crate::service::Services;

/// Registers the metrics. Must be called once, after the services have started.
pub(super) fn register(registry: &mut Registry, services: &Services) {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("transom_build", "Version of the daemon", version);
    transom_web::register_port_metrics(registry);
    let start = SystemTime::now();
    registry.register_collector(Box::new(Process { start }));
    registry.register_collector(Box::new(ServiceStates(Arc::clone(services))));
}

/// The process metrics, read at each scrape. Values that the operating system does not report are left
/// out.
#[derive(Debug)]
struct Process {
    start: SystemTime,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let usage = process::usage();
        let counter = ConstCounter::new(usage.cpu_seconds);
        counter.encode(encoder.encode_descriptor(
            "process_cpu",
            "User and system processor time of the process",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?)?;
        let start = self.start.duration_since(UNIX_EPOCH).ok();
        let number = |value: Option<u64>| value.map(|value| value as f64);
        for (name, help, unit, value) in [
            (
                "process_resident_memory",
                "Resident memory of the process",
                Some(Unit::Bytes),
                number(usage.resident_bytes),
            ),
            (
                "process_virtual_memory",
                "Virtual memory of the process",
                Some(Unit::Bytes),
                number(usage.virtual_bytes),
            ),
            (
                "process_threads",
                "Threads of the process",
                None,
                number(usage.threads),
            ),
            (
                "process_open_fds",
                "Open file descriptors",
                None,
                number(usage.open_files),
            ),
            (
                "process_max_fds",
                "Limit of open file descriptors",
                None,
                number(usage.open_files_limit),
            ),
            (
                "process_start_time",
                "Start of the daemon, in seconds since 1970",
                Some(Unit::Seconds),
                start.map(|start| start.as_secs_f64()),
            ),
        ] {
            let descriptor = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            if let Some(value) = value {
                ConstGauge::new(value).encode(descriptor)?;
            }
        }
        Ok(())
    }
}

/// The states that `/ready` shows, read at each scrape.
struct ServiceStates(Services);

impl std::fmt::Debug for ServiceStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceStates").finish_non_exhaustive()
    }
}

impl Collector for ServiceStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let states: Vec<_> = self.0.iter().map(|it| (it.name(), it.readiness())).collect();
        let mut ready = encoder.encode_descriptor(
            "transom_service_ready",
            "1 while the service can answer, 0 otherwise; as in `/ready`",
            None,
            MetricType::Gauge,
        )?;
        for (service, state) in &states {
            let gauge = ConstGauge::new(i64::from(state.ready));
            gauge.encode(ready.encode_family(&[("service", *service)])?)?;
        }
        let frameworks: Vec<_> = states
            .iter()
            .filter_map(|(_, state)| state.framework.as_ref())
            .collect();
        let mut leading = encoder.encode_descriptor(
            "transom_framework_leading",
            "1 while this daemon is the leader of the framework",
            None,
            MetricType::Gauge,
        )?;
        for framework in &frameworks {
            let gauge = ConstGauge::new(i64::from(framework.leading));
            gauge.encode(leading.encode_family(&[("framework", framework.name.as_str())])?)?;
        }
        let mut leader_known = encoder.encode_descriptor(
            "transom_framework_leader_known",
            "1 while this daemon knows a leader of the framework, itself or another one",
            None,
            MetricType::Gauge,
        )?;
        for framework in &frameworks {
            let gauge = ConstGauge::new(i64::from(framework.leader.is_some()));
            gauge.encode(leader_known.encode_family(&[("framework", framework.name.as_str())])?)?;
        }
        Ok(())
    }
}
