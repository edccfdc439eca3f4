//! `GET /v1/history`: the last hour of some series, for the plots of the dashboard.
//!
//! Every [`STEP`] the values are read from the registry of `/metrics`; the amounts of the cluster come from
//! the overview. The newest document is published as a snapshot, so a request neither waits nor reads a
//! metric. The hour starts again with the daemon; longer times are the work of a metrics database.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::overview::Overviews;

/// The time between two values.
const STEP: Duration = Duration::from_secs(10);
/// The maximum number of values of a series: an hour.
const LENGTH: usize = 360;

/// A series that `/v1/history` offers.
struct Series {
    name: &'static str,
    unit: &'static str,
    source: Source,
}

/// Samples of a metric: its full name and, if it is not empty, the values of one label that count.
type Samples = (&'static str, &'static str, &'static [&'static str]);

/// Where the values of a series come from.
enum Source {
    /// The sum of gauges.
    Gauge(&'static [Samples]),
    /// The increase of counters, as a number in this many seconds.
    Rate(&'static [Samples], f64),
    /// The mean of the values that a histogram has received since the last reading.
    Mean(&'static str),
    /// A resource of the cluster: all of it, or what is used.
    Total(&'static str),
    Used(&'static str),
    ActiveAgents,
}

const fn all(name: &'static str) -> Samples {
    (name, "", &[])
}

const MINUTE: f64 = 60.0;
const STATUS: &str = "status";

/// The offered series.
#[rustfmt::skip]
const SERIES: &[Series] = &[
    gauge("tasks", "tasks", &[all("transom_scheduler_tasks")]),
    gauge("tasks_waiting", "tasks", &[all("transom_scheduler_pending_tasks")]),
    gauge("apps", "apps", &[all("transom_apps_apps")]),
    gauge("instances_running", "tasks", &[("transom_apps_instances", "condition", &["Running"])]),
    gauge("instances_staging", "tasks", &[("transom_apps_instances", "condition", &["Provisioned", "Staging", "Starting"])]),
    gauge("instances_waiting", "tasks", &[all("transom_apps_queue_waiting")]),
    gauge("instances_unhealthy", "tasks", &[all("transom_apps_unhealthy")]),
    gauge("apps_delayed", "apps", &[all("transom_apps_queue_backoff")]),
    gauge("deployments", "deployments", &[all("transom_apps_deployments_running")]),
    rate("launches", "1/min", &[all("transom_scheduler_launches_total")], MINUTE),
    rate("failures", "1/min", &[("transom_scheduler_task_states_total", "state", &["TASK_FAILED", "TASK_ERROR", "TASK_LOST", "TASK_DROPPED", "TASK_GONE"])], MINUTE),
    rate("killed", "1/min", &[("transom_scheduler_task_states_total", "state", &["TASK_KILLED"])], MINUTE),
    rate("finished", "1/min", &[("transom_scheduler_task_states_total", "state", &["TASK_FINISHED"])], MINUTE),
    mean("start_seconds", "transom_scheduler_start_seconds"),
    rate("offers", "1/min", &[all("transom_scheduler_offers_total")], MINUTE),
    gauge("jobs_running", "jobs", &[all("transom_workflow_jobs_running")]),
    gauge("jobs_waiting", "jobs", &[all("transom_workflow_jobs_pending")]),
    gauge("kubernetes_tasks", "tasks", &[all("transom_kubernetes_tasks_running")]),
    rate("dns_queries", "1/s", &[all("transom_discovery_queries_total")], 1.0),
    rate("dns_errors", "1/s", &[("transom_discovery_queries_total", "rcode", &["SERVFAIL", "REFUSED", "FORMERR", "NOTIMP", "other"])], 1.0),
    mean("dns_seconds", "transom_discovery_answer_seconds"),
    gauge("dns_records", "records", &[all("transom_discovery_zone_records")]),
    gauge("dns_age", "s", &[all("transom_discovery_zone_age_seconds")]),
    rate("api_requests", "1/s", &[
        all("transom_admin_api_requests_total"), all("transom_apps_api_requests_total"), all("transom_workflow_api_requests_total"),
        all("transom_kubernetes_api_requests_total"), all("transom_discovery_http_requests_total"),
    ], 1.0),
    rate("api_errors", "1/s", &[
        ("transom_admin_api_requests_total", STATUS, FAILED), ("transom_apps_api_requests_total", STATUS, FAILED),
        ("transom_workflow_api_requests_total", STATUS, FAILED), ("transom_kubernetes_api_requests_total", STATUS, FAILED),
        ("transom_discovery_http_requests_total", "code", FAILED),
    ], 1.0),
    mean("api_seconds", "transom_apps_api_seconds"),
    rate("events", "1/s", &[all("transom_apps_events_total")], 1.0),
    rate("events_delivered", "1/s", &[all("transom_apps_events_delivered_total")], 1.0),
    rate("events_dropped", "1/min", &[all("transom_apps_events_dropped_total"), ("transom_apps_callback_events_total", "outcome", &["dropped"])], MINUTE),
    mean("turn_seconds", "transom_apps_turn_seconds"),
    rate("plugin_calls", "1/s", &[all("transom_plugins_calls_total")], 1.0),
    rate("plugin_faults", "1/min", &[("transom_plugins_calls_total", "outcome", &["trap", "timeout", "busy", "disabled"])], MINUTE),
    mean("store_seconds", "transom_store_operation_seconds"),
    rate("store_errors", "1/min", &[all("transom_store_errors_total")], MINUTE),
    rate("process_cpu", "cpus", &[all("process_cpu_seconds_total")], 1.0),
    gauge("process_memory", "bytes", &[all("process_resident_memory_bytes")]),
    gauge("open_files", "files", &[all("process_open_fds")]),
    Series { name: "agents_active", unit: "agents", source: Source::ActiveAgents },
    Series { name: "cpus_used", unit: "cpus", source: Source::Used("cpus") },
    Series { name: "cpus_total", unit: "cpus", source: Source::Total("cpus") },
    Series { name: "mem_used", unit: "MB", source: Source::Used("mem") },
    Series { name: "mem_total", unit: "MB", source: Source::Total("mem") },
    Series { name: "disk_used", unit: "MB", source: Source::Used("disk") },
    Series { name: "disk_total", unit: "MB", source: Source::Total("disk") },
];

/// The statuses of requests that the daemon failed to answer.
const FAILED: &[&str] = &["500", "501", "502", "503", "504"];

const fn gauge(name: &'static str, unit: &'static str, samples: &'static [Samples]) -> Series {
    let source = Source::Gauge(samples);
    Series { name, unit, source }
}

const fn rate(name: &'static str, unit: &'static str, samples: &'static [Samples], seconds: f64) -> Series {
    let source = Source::Rate(samples, seconds);
    Series { name, unit, source }
}

const fn mean(name: &'static str, histogram: &'static str) -> Series {
    let (unit, source) = ("s", Source::Mean(histogram));
    Series { name, unit, source }
}

/// The values of all series at one time; NaN where there is none.
type Row = [f32; SERIES.len()];

/// Readings of the metrics, and the values that were made of them. A pure ring: it knows no clock.
struct Ring {
    rows: VecDeque<Row>,
    /// The last reading of each series that is a rate or a mean: sum and count.
    last: Vec<Option<(f64, f64)>>,
}

impl Ring {
    fn new() -> Self {
        Self {
            rows: VecDeque::with_capacity(LENGTH),
            last: vec![None; SERIES.len()],
        }
    }

    fn push(&mut self, row: Row) {
        if self.rows.len() == LENGTH {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }

    /// Adds the values at `steps` steps after the last ones. The steps between them have none.
    fn add(&mut self, steps: usize, metrics: &str, cluster: impl Fn(&Source) -> Option<f64>) {
        for _ in 1..steps.min(LENGTH) {
            self.push([f32::NAN; SERIES.len()]);
        }
        let seconds = STEP.as_secs_f64() * steps.max(1) as f64;
        let mut row = [f32::NAN; SERIES.len()];
        for ((value, series), last) in row.iter_mut().zip(SERIES).zip(&mut self.last) {
            let read = match &series.source {
                Source::Gauge(samples) => sum(metrics, samples),
                Source::Rate(samples, unit) => {
                    let now = sum(metrics, samples).map(|sum| (sum, 0.0));
                    let before = std::mem::replace(last, now);
                    increase(before, now).map(|(sum, _)| sum / seconds * unit)
                }
                Source::Mean(histogram) => {
                    let part = |ending: &str| sum_of(metrics, &format!("{histogram}{ending}"), "", &[]);
                    let now = part("_sum").zip(part("_count"));
                    let before = std::mem::replace(last, now);
                    let increase = increase(before, now).filter(|(_, count)| *count > 0.0);
                    increase.map(|(sum, count)| sum / count)
                }
                amount => cluster(amount),
            };
            *value = read.map_or(f32::NAN, |read| read as f32);
        }
        self.push(row);
    }

    /// The document; `end`: the time of the last row.
    fn document(&self, end: i64) -> Value {
        let columns = SERIES.iter().enumerate().map(|(at, series)| {
            let values = self.rows.iter().map(|row| rounded(row[at])).collect();
            let series_document = json!({"unit": series.unit, "values": Value::Array(values)});
            (series.name.to_owned(), series_document)
        });
        let before = STEP * self.rows.len().saturating_sub(1) as u32;
        let start = end - i64::try_from(before.as_secs()).unwrap_or_default();
        json!({"start": start, "step": STEP.as_secs(), "series": columns.collect::<Map<_, _>>()})
    }
}

/// The increase of a sum and a count. There is none if one has become smaller: it began again.
fn increase(before: Option<(f64, f64)>, now: Option<(f64, f64)>) -> Option<(f64, f64)> {
    let ((sum_before, count_before), (sum, count)) = before.zip(now)?;
    let increase = (sum - sum_before, count - count_before);
    (increase.0 >= 0.0 && increase.1 >= 0.0).then_some(increase)
}

/// A value with five digits; whole numbers have no decimal point.
fn rounded(value: f32) -> Value {
    let value = f64::from(value);
    if !value.is_finite() {
        return Value::Null;
    }
    let digits = if value == 0.0 {
        0
    } else {
        4 - value.abs().log10().floor() as i32
    };
    let scale = 10_f64.powi(digits);
    let value = (value * scale).round() / scale;
    if value.fract() == 0.0 {
        return json!(value as i64);
    }
    json!(value)
}

/// The sum of samples; `None` if there is no sample of the metrics at all, as without their service.
fn sum(metrics: &str, samples: &[Samples]) -> Option<f64> {
    let sums = samples
        .iter()
        .filter_map(|(name, label, values)| sum_of(metrics, name, label, values));
    sums.reduce(|a, b| a + b)
}

/// The sum of a metric's samples whose label has one of these values. It is 0 if only others have samples,
/// or if the metric is described and has no sample yet.
fn sum_of(metrics: &str, name: &str, label: &str, values: &[&str]) -> Option<f64> {
    let family = ["_total", "_sum", "_count"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending));
    let described = |line: &str| {
        let help = line.strip_prefix("# HELP ");
        help.and_then(|help| help.split(' ').next()) == Some(family.unwrap_or(name))
    };
    let mut total = None;
    for line in metrics.lines() {
        if described(line) {
            total.get_or_insert(0.0);
        }
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ").unwrap_or_default(),
            None => ("", rest.strip_prefix(' ').unwrap_or_default()),
        };
        let Ok(value) = value.trim().parse::<f64>() else {
            continue;
        };
        let has = |wanted: &&str| labels.contains(&format!("{label}=\"{wanted}\""));
        let counts = values.is_empty() || values.iter().any(has);
        *total.get_or_insert(0.0) += if counts { value } else { 0.0 };
    }
    total
}

/// The history. Cheap to clone.
#[derive(Clone)]
pub(super) struct History(Arc<ArcSwap<Bytes>>);

impl History {
    pub(super) fn new() -> Self {
        let empty = Ring::new().document(Timestamp::now().as_second());
        Self(Arc::new(ArcSwap::from_pointee(empty.to_string().into())))
    }

    pub(super) fn routes(&self) -> Router {
        let document = async |State(history): State<History>| {
            let document = Bytes::clone(&history.0.load());
            ([(header::CONTENT_TYPE, "application/json")], document).into_response()
        };
        let router = Router::new().route("/v1/history", get(document));
        router.with_state(self.clone())
    }

    /// Reads the metrics every [`STEP`], until it is dropped.
    pub(super) async fn keep_current(&self, registry: Arc<Registry>, overviews: Overviews) -> Infallible {
        let mut ring = Ring::new();
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut last: Option<Instant> = None;
        loop {
            let now = ticks.tick().await;
            let steps = last.map_or(1, |last| {
                ((now - last).as_secs_f64() / STEP.as_secs_f64()).round() as usize
            });
            last = Some(now);
            let (registry, overviews) = (Arc::clone(&registry), overviews.clone());
            // Writing all metrics takes milliseconds in a large cluster, and counting open files blocks.
            let read = tokio::task::spawn_blocking(move || {
                let mut metrics = String::new();
                // An error is one of the registry's collectors; what was written so far counts.
                let _ = prometheus_client::encoding::text::encode(&mut metrics, &registry);
                ring.add(steps, &metrics, amounts(&overviews));
                let document = ring.document(Timestamp::now().as_second()).to_string();
                (ring, Bytes::from(document))
            });
            match read.await {
                Ok((returned, document)) => {
                    ring = returned;
                    self.0.store(Arc::new(document));
                }
                Err(_) => ring = Ring::new(),
            }
        }
    }
}

/// The amounts of the cluster; none before the master has answered, and while it does not.
fn amounts(overviews: &Overviews) -> impl Fn(&Source) -> Option<f64> + use<> {
    let cluster = overviews.cluster();
    move |source| {
        if cluster.reachable != Some(true) {
            return None;
        }
        match source {
            Source::Total(name) => Some(cluster.resources.get(*name)?.total),
            Source::Used(name) => Some(cluster.resources.get(*name)?.used),
            Source::ActiveAgents => Some(cluster.agents.active as f64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a series in a document.
    fn values<'a>(document: &'a Value, name: &str) -> &'a [Value] {
        let values = document["series"][name]["values"].as_array();
        values.map_or(&[], |values| values)
    }

    const METRICS: &str = "# HELP transom_scheduler_tasks Tasks.\n\
        # HELP transom_scheduler_task_states Changes of tasks.\n\
        transom_scheduler_tasks{framework=\"a\"} 3\ntransom_scheduler_tasks{framework=\"b} \"} 4\n\
        transom_scheduler_tasks_other 100\n\
        transom_apps_instances{condition=\"Running\"} 2\ntransom_apps_instances{condition=\"Staging\"} 1\n\
        process_resident_memory_bytes 123456789\n";

    #[test]
    fn values_are_sums_rates_and_means_of_the_metrics() {
        let mut ring = Ring::new();
        let readings = [(10, 1.0, 2), (40, 2.0, 6), (40, 2.0, 6), (5, 2.5, 7)];
        for (launches, sum, count) in readings {
            let metrics = format!(
                "{METRICS}transom_scheduler_launches_total{{framework=\"a\"}} {launches}\n\
                 transom_scheduler_start_seconds_sum{{framework=\"a\"}} {sum}\n\
                 transom_scheduler_start_seconds_count{{framework=\"a\"}} {count}\n"
            );
            ring.add(1, &metrics, |source| {
                matches!(source, Source::Used("cpus")).then_some(1.5)
            });
        }
        let document = ring.document(1_000_030);
        assert_eq!(document["start"], 1_000_000);
        assert_eq!(document["step"], 10);
        let null = Value::Null;
        for (name, unit, expected) in [
            ("tasks", "tasks", vec![json!(7), json!(7), json!(7), json!(7)]),
            (
                "instances_running",
                "tasks",
                vec![json!(2), json!(2), json!(2), json!(2)],
            ),
            (
                "instances_staging",
                "tasks",
                vec![json!(1), json!(1), json!(1), json!(1)],
            ),
            // 30 launches in 10 seconds; the counter that became smaller began again.
            (
                "launches",
                "1/min",
                vec![null.clone(), json!(180), json!(0), null.clone()],
            ),
            (
                "start_seconds",
                "s",
                vec![null.clone(), json!(0.25), null.clone(), json!(0.5)],
            ),
            // Described, without a sample.
            (
                "failures",
                "1/min",
                vec![null.clone(), json!(0), json!(0), json!(0)],
            ),
            (
                "cpus_used",
                "cpus",
                vec![json!(1.5), json!(1.5), json!(1.5), json!(1.5)],
            ),
            ("cpus_total", "cpus", vec![null.clone(); 4]),
            // There is no discovery.
            ("dns_queries", "1/s", vec![null; 4]),
        ] {
            let found: Vec<_> = values(&document, name).iter().map(Value::as_f64).collect();
            let expected: Vec<_> = expected.iter().map(Value::as_f64).collect();
            assert_eq!(found, expected, "{name}");
            assert_eq!(document["series"][name]["unit"], unit, "{name}");
        }
    }

    #[test]
    fn an_hour_is_kept_and_missed_steps_have_no_values() {
        let mut ring = Ring::new();
        let add = |ring: &mut Ring, steps| ring.add(steps, METRICS, |_| Some(1e9));
        add(&mut ring, 1);
        add(&mut ring, 3);
        let document = ring.document(100);
        assert_eq!(document["start"], 70);
        assert_eq!(
            values(&document, "tasks"),
            [json!(7), Value::Null, Value::Null, json!(7)]
        );
        // The machine slept for a day.
        add(&mut ring, 8640);
        for _ in 0..400 {
            add(&mut ring, 1);
        }
        let document = ring.document(10_000);
        assert_eq!(document["start"], 10_000 - 3590);
        for series in SERIES {
            assert_eq!(values(&document, series.name).len(), LENGTH, "{}", series.name);
        }
        let names: std::collections::BTreeSet<_> = SERIES.iter().map(|series| series.name).collect();
        assert_eq!(names.len(), SERIES.len());
        let bytes = size_of::<Row>() * LENGTH + document.to_string().len();
        assert!(bytes < 1 << 20, "{bytes} bytes");
    }
}
