use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;

fn registered() -> (Registry, Versions) {
    let (mut registry, versions) = (Registry::default(), Versions::default());
    registry.register_collector(Box::new(versions.clone()));
    (registry, versions)
}

fn version(versions: &Versions, plugin: &str, label: &str) -> VersionMetrics {
    let metrics = versions.create_version(plugin);
    metrics.export_as(label);
    metrics
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[test]
fn every_call_outcome_is_counted_under_its_name() {
    let (registry, versions) = registered();
    let metrics = version(&versions, "p", "1.0+ab");
    for &ending in CallOutcome::ALL {
        metrics.count_call(ending);
    }
    let text = encoded(&registry);
    for outcome in ["ok", "error", "trap", "timeout", "busy", "disabled"] {
        let line = format!("calls_total{{plugin=\"p\",version=\"1.0+ab\",outcome=\"{outcome}\"}} 1\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert_eq!(
        (metrics.calls(), metrics.traps(), metrics.timeouts()),
        (4, 1, 1),
        "calls that were not executed do not count"
    );
}

#[test]
fn table_and_metrics_show_the_same_measurements() {
    let (registry, versions) = registered();
    let metrics = version(&versions, "p", "1");
    for millis in 1..=100 {
        metrics.record_duration(Duration::from_millis(millis), Duration::from_micros(millis));
    }
    metrics.record_wait(Duration::from_micros(3));
    metrics.add_cpu(Duration::from_millis(250));
    metrics.raise_memory_peak(1 << 20);
    let text = encoded(&registry);
    for line in [
        "call_duration_seconds_count{plugin=\"p\",version=\"1\"} 100\n",
        "call_duration_seconds_sum{plugin=\"p\",version=\"1\"} 5.05\n",
        "call_duration_seconds_bucket{le=\"+Inf\",plugin=\"p\",version=\"1\"} 100\n",
        "call_duration_seconds_bucket{le=\"0.033554432\",plugin=\"p\",version=\"1\"} 33\n",
        "queue_wait_seconds_bucket{le=\"0.000008192\",plugin=\"p\",version=\"1\"} 1\n",
        "cpu_seconds_total{plugin=\"p\",version=\"1\"} 0.25\n",
        "memory_peak_bytes{plugin=\"p\",version=\"1\"} 1048576\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let p50 = metrics.duration().at(500).unwrap();
    assert!((50..=63).contains(&p50.as_millis()), "{p50:?}");
    assert_eq!(metrics.memory_peak(), 1 << 20);
    assert_eq!(metrics.cpu(), Duration::from_millis(250));
}

#[test]
fn a_thousand_swaps_leave_the_series_of_one_version() {
    let (registry, versions) = registered();
    let mut serving = version(&versions, "p", "0+0");
    let lines = encoded(&registry).lines().count();
    for n in 1..=1000 {
        let next = version(&versions, "p", &format!("{n}+{n:08x}"));
        next.count_call(CallOutcome::Answered);
        next.record_duration(Duration::from_millis(1), Duration::from_millis(1));
        next.record_wait(Duration::from_millis(1));
        next.add_cpu(Duration::from_millis(1));
        next.raise_memory_peak(1 << 20);
        let present = (next.instance(), next.in_flight(), next.queued());
        next.count_denial();
        next.count_log_drop();
        serving = next;
        drop(present);
    }
    let text = encoded(&registry);
    assert_eq!(text.lines().count(), lines, "{text}");
    assert!(text.contains("version=\"1000+000003e8\"") && !text.contains("version=\"999"));
    assert_eq!(serving.calls(), 1, "each earlier version had separate counts");
    drop(serving);
    assert!(!encoded(&registry).contains("plugin=\"p\""));
    assert!(versions.plugins().is_empty());
}

#[test]
fn versions_under_one_label_share_its_series() {
    let (registry, versions) = registered();
    let one = version(&versions, "p", "1");
    one.count_call(CallOutcome::Answered);
    // The same component with another manifest has the same label.
    let other = version(&versions, "p", "1");
    let leaving = (one.in_flight(), one);
    other.count_call(CallOutcome::Answered);
    let line = |value| format!("calls_total{{plugin=\"p\",version=\"1\",outcome=\"ok\"}} {value}\n");
    assert!(encoded(&registry).contains(&line(2)));
    assert_eq!(versions.in_flight_and_instances("p"), (1, 0));
    drop(leaving);
    other.count_call(CallOutcome::Answered);
    assert!(encoded(&registry).contains(&line(3)), "{}", encoded(&registry));
    assert_eq!(other.calls(), 2, "only the calls of this version");
    assert_eq!(versions.in_flight_and_instances("p"), (0, 0));
}

#[test]
fn trial_instance_is_shown_among_the_instances_and_has_no_series() {
    let (registry, versions) = registered();
    let trial = versions.create_version("p");
    let instance = trial.instance();
    trial.count_call(CallOutcome::Answered);
    assert_eq!(versions.in_flight_and_instances("p"), (0, 1));
    assert!(!encoded(&registry).contains("plugin=\"p\""));
    trial.export_as("1");
    assert!(encoded(&registry).contains("instances{plugin=\"p\",version=\"1\"} 1\n"));
    drop((instance, trial));
    assert!(!encoded(&registry).contains("plugin=\"p\""));
}
