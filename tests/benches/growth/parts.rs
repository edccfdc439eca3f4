//! Discovery and the scheduler without a daemon around them: the simulation of `bench scale`, in a
//! process of its own for each size, because processor time and memory are those of the process.

#[path = "../scale/simulation/mod.rs"]
mod simulation;

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::meter::Cost;
use simulation::Sizes;

/// The environment variables with the part that a process measures, and its size.
const PART: &str = "TRANSOM_BENCH_PART";
const TASKS: &str = "TRANSOM_BENCH_TASKS";
const TASKS_PER_AGENT: u32 = 10;
/// Tasks that are launched together, and as many agents as have room for all of them.
const BATCH: u32 = 50;
const MIN_AGENTS: u32 = 4 * BATCH;
/// How long tasks begin and end without a pause.
const SUSTAINED: Duration = Duration::from_secs(10);

fn sizes(tasks: u32) -> Sizes {
    Sizes {
        agents: (tasks / TASKS_PER_AGENT).max(MIN_AGENTS),
        tasks,
        updates: 20,
        batches: 40,
        batch: BATCH,
        sustained: SUSTAINED,
        settling: Duration::ZERO,
    }
}

/// The figures of the part that this process was started for.
pub(crate) async fn measure_in_this_process() -> Option<Value> {
    let part = std::env::var(PART).ok()?;
    let tasks = std::env::var(TASKS).expect("a number of tasks");
    let sizes = sizes(tasks.parse().expect("a number of tasks"));
    Some(match part.as_str() {
        "discovery" => simulation::discovery(sizes).await,
        "scheduler" => simulation::scheduler(sizes).await,
        other => panic!("no part is called `{other}`"),
    })
}

async fn measure(part: &str, tasks: usize) -> Value {
    let output = tokio::process::Command::new(std::env::current_exe().expect("this program"))
        .env(PART, part)
        .env(TASKS, tasks.to_string())
        .stderr(Stdio::inherit())
        .output()
        .await
        .expect("this program starts");
    assert!(output.status.success(), "{part}: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("a JSON document")
}

/// The cost in a figure, which is in `unit`s and that of one of `operations`.
fn cost(figures: &Value, pointer: &str, unit: Duration, operations: u32, peak_mib: &Value) -> Cost {
    let one = figures.pointer(pointer).and_then(Value::as_f64);
    let one = one.unwrap_or_else(|| panic!("no {pointer} in {figures:#}"));
    let kib = peak_mib.as_u64().unwrap_or_default() * 1024;
    Cost {
        cpu: unit.mul_f64(one * f64::from(operations)),
        operations,
        elapsed: Duration::ZERO,
        peak_kib: kib,
        added_kib: kib,
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MICROSECOND: Duration = Duration::from_micros(1);

pub(crate) async fn discovery(tasks: usize) -> Vec<Cost> {
    let figures = measure("discovery", tasks).await;
    let sizes = sizes(tasks as u32);
    let peak = &figures["peak_mib"];
    let changes = figures["a_thousand_tasks_begin_per_second"]["changes"].as_u64();
    let changes = changes.expect("a number of changes");
    vec![
        cost(&figures, "/from_nothing/cpu_s", SECOND, 1, peak),
        cost(
            &figures,
            "/batch/cpu_us_per_task",
            MICROSECOND,
            sizes.batches * sizes.batch,
            &Value::Null,
        ),
        cost(
            &figures,
            "/a_thousand_tasks_begin_per_second/cpu_us_per_change",
            MICROSECOND,
            changes as u32,
            &Value::Null,
        ),
        cost(
            &figures,
            "/reconnect_with_full_comparison/cpu_s",
            SECOND,
            1,
            &figures["peak_with_full_comparison_mib"],
        ),
    ]
}

pub(crate) async fn scheduler(tasks: usize) -> Vec<Cost> {
    let figures = measure("scheduler", tasks).await;
    let sizes = sizes(tasks as u32);
    vec![
        cost(&figures, "/load/cpu_s", SECOND, 1, &figures["peak_mib"]),
        cost(&figures, "/reconciliation/cpu_s", SECOND, 1, &Value::Null),
        cost(
            &figures,
            "/status_updates/cpu_us",
            MICROSECOND,
            sizes.batches * sizes.batch,
            &Value::Null,
        ),
        cost(
            &figures,
            "/matching/0/together_cpu_s",
            SECOND,
            1,
            &figures["peak_with_matching_mib"],
        ),
    ]
}
