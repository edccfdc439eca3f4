//! The simulation of `cargo xtask bench scale` with few agents and tasks: every figure is measured.

use std::time::Duration;

use serde_json::Value;

#[path = "../../benches/scale/simulation/mod.rs"]
mod simulation;

use simulation::Sizes;

const SMALL: Sizes = Sizes {
    agents: 50,
    tasks: 400,
    updates: 5,
    batches: 2,
    batch: 20,
    sustained: Duration::from_millis(200),
    settling: Duration::ZERO,
};

/// Requires a number above zero at each JSON pointer.
fn assert_measured(figures: &Value, pointers: &[&str]) {
    for pointer in pointers {
        let figure = figures.pointer(pointer).and_then(Value::as_f64);
        assert!(
            figure.is_some_and(|figure| figure > 0.0),
            "{pointer} in {figures:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_simulation_measures_discovery() {
    let figures = simulation::discovery(SMALL).await;
    assert_measured(
        &figures,
        &[
            "/snapshot_bytes",
            "/from_nothing/s",
            "/memory/after_mib",
            "/event_to_answer_ms/p50",
            "/batch/to_last_answer_ms/p99",
            "/a_thousand_tasks_begin_per_second/cpu_us_per_change",
            "/lookup_ms/p50",
            "/lookup_while_a_thousand_tasks_begin_per_second_ms/p99",
            "/reconnect_with_full_comparison/s",
        ],
    );
    // Each recorded task adds more than a thousand bytes to the snapshot.
    assert!(figures["snapshot_bytes"].as_u64() > Some(400_000), "{figures:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_simulation_measures_the_scheduler() {
    let figures = simulation::scheduler(SMALL).await;
    assert_measured(
        &figures,
        &[
            "/load/s",
            "/record_bytes",
            "/memory/after_mib",
            "/reconciliation/s",
            "/status_updates/single_ms/p50",
            "/status_updates/stored_bytes",
            "/read_ms/p50",
            "/matching/0/together_ms/p50",
            "/matching/1/one_ms/p99",
        ],
    );
    let requested = figures["reconciliation"]["tasks_requested"].as_u64();
    assert!(requested >= Some(400), "{figures:#}");
}
