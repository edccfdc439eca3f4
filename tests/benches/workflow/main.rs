//! Figures of the workflow service, measured from outside on the real binary and the embedded
//! cluster: one JSON document.
//!
//! Run by `cargo xtask bench workflow`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark that fails may panic, and prints its figures"
)]

mod client;
mod traces;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};
use transom_tests::site::Site;

use client::{Jobs, unix_seconds};

/// A job that runs nothing and is so small that many run concurrently.
fn job(id: &str) -> Value {
    json!({"workflow_task_id": id, "command": ["true"], "cpus": 0.05, "mem_limit": 8, "disk": 1})
}

/// A job that stays pending: no agent satisfies its constraint.
fn waiting(id: &str) -> Value {
    json!({"workflow_task_id": id, "command": ["true"], "attributes": ["nobody:ever"]})
}

/// Number of jobs that are measured one after the other, for a latency.
const LATENCY_JOBS: usize = 100;
/// Number of jobs that are measured together, for a rate.
const RATE_JOBS: usize = 2_000;
/// Number of ended jobs whose memory is measured.
const ENDED_JOBS: usize = 100_000;

const SECTION: &str = "[workflow]\nport = 0\ncontainers = false\nmax_jobs = 200000\n";

#[tokio::main]
async fn main() {
    println!("{:#}", measure().await);
}

async fn measure() -> Value {
    let site = Site::start_with(SECTION).await;
    let jobs = Jobs::new(format!("http://{}", site.addresses["workflow"]));
    eprintln!("jobs per second");
    let rate = measure_rate(&jobs).await;
    eprintln!("from an update to its being visible");
    let visible = measure_visibility_delay(&jobs, &site).await;
    eprintln!("look-ups");
    let look_ups = measure_lookup_rate(&jobs).await;
    let mut latencies = BTreeMap::new();
    let mut queued = 0;
    for waiting_jobs in [1, 100, 10_000] {
        eprintln!("latency with {waiting_jobs} waiting jobs");
        jobs.queue_all((queued..waiting_jobs).map(|number| waiting(&format!("waits{number}"))))
            .await;
        queued = waiting_jobs;
        let figures = measure_latency(&jobs, &site, waiting_jobs).await;
        latencies.insert(waiting_jobs.to_string(), figures);
    }
    site.cluster.stop_after(site.daemon);
    eprintln!("look-ups with traces off and on");
    let traces = traces::measure().await;
    eprintln!("memory");
    json!({
        "jobs_per_second": rate,
        "update_to_visible_ms": visible,
        "look_ups_per_second": look_ups,
        "latency_ms_by_waiting_jobs": latencies,
        "memory": memory().await,
        "traces": traces,
    })
}

/// Jobs per second from the first one's queueing to the last one's end.
async fn measure_rate(jobs: &Jobs) -> f64 {
    let since = jobs.last().await;
    let begun = Instant::now();
    let queueing = jobs.queue_all((0..RATE_JOBS).map(|number| job(&format!("rate{number}"))));
    let (ended, ()) = tokio::join!(jobs.wait_until_ended(since, RATE_JOBS), queueing);
    let finished = ended
        .values()
        .filter(|(state, _)| state == "TASK_FINISHED")
        .count();
    assert_eq!(finished, RATE_JOBS, "not every job finished");
    RATE_JOBS as f64 / begun.elapsed().as_secs_f64()
}

/// Measures the delay from a job's end in the agent's journal until a polling client receives it.
async fn measure_visibility_delay(jobs: &Jobs, site: &Site) -> Value {
    let mut seen = BTreeMap::new();
    for number in 0..LATENCY_JOBS {
        let since = jobs.last().await;
        let id = format!("visible{number}");
        jobs.queue(&job(&id)).await;
        seen.extend(jobs.wait_until_ended(since, 1).await);
    }
    let exits = journal_times(site, "exit");
    let mut delays: Vec<f64> = seen
        .iter()
        .filter_map(|(id, (_, at))| Some((at - exits.get(id)?) * 1000.0))
        .collect();
    quantiles(&mut delays)
}

/// The times of launches or ends in the agents' journals, in seconds since 1970, by task.
fn journal_times(site: &Site, event: &str) -> BTreeMap<String, f64> {
    let mut noted = BTreeMap::new();
    for journal in site.cluster.journals() {
        let text = fs::read_to_string(journal).unwrap_or_default();
        for line in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            if let (true, Some(task), Some(at)) =
                (line["event"] == event, line["task"].as_str(), line["at"].as_f64())
            {
                noted.insert(task.to_owned(), at);
            }
        }
    }
    noted
}

/// Measures the rate of look-ups by four concurrent clients.
async fn measure_lookup_rate(jobs: &Jobs) -> f64 {
    let begun = Instant::now();
    let limit = Duration::from_secs(3);
    let clients = (0..4).map(|_| async {
        let mut count = 0_u64;
        while begun.elapsed() < limit {
            jobs.state("rate1").await;
            count += 1;
        }
        count
    });
    let counts: Vec<u64> = futures::stream::iter(clients).buffer_unordered(4).collect().await;
    counts.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64()
}

/// Measures the times until a request to queue is answered, until an agent starts the job, and
/// until the client receives its end.
async fn measure_latency(jobs: &Jobs, site: &Site, mark: usize) -> Value {
    let (mut answered, mut finished, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..LATENCY_JOBS {
        let since = jobs.last().await;
        let (begun, id) = (Instant::now(), format!("latency{mark}-{number}"));
        asked.push((id.clone(), unix_seconds()));
        jobs.queue(&job(&id)).await;
        answered.push(begun.elapsed().as_secs_f64() * 1000.0);
        jobs.wait_until_ended(since, 1).await;
        finished.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    let begun = journal_times(site, "launch");
    let mut launched: Vec<f64> = asked
        .iter()
        .filter_map(|(id, at)| Some((begun.get(id)? - at) * 1000.0))
        .collect();
    json!({
        "answered": quantiles(&mut answered),
        "launched": quantiles(&mut launched),
        "finished": quantiles(&mut finished),
    })
}

/// Measures the memory of ended jobs. The jobs end because they may not be pending for any time.
async fn memory() -> Value {
    let site = Site::start_with(SECTION).await;
    let jobs = Jobs::new(format!("http://{}", site.addresses["workflow"]));
    let pid = site.daemon.as_ref().expect("a daemon").pid();
    let before = resident(pid);
    let since = jobs.last().await;
    let bodies = (0..ENDED_JOBS).map(|number| {
        let mut body = waiting(&format!("airflow.some_dag.some_task.{number}"));
        body["max_wait"] = json!(0);
        body
    });
    let (ended, ()) = tokio::join!(jobs.wait_until_ended(since, ENDED_JOBS), jobs.queue_all(bodies));
    let after = resident(pid);
    site.cluster.stop_after(site.daemon);
    json!({"ended_jobs": ended.len(), "resident_mib_before": before, "resident_mib": after})
}

/// The resident memory of a process in megabytes.
fn resident(pid: u32) -> f64 {
    transom_testkit::usage::resident_kib(pid) as f64 / 1024.0
}

fn quantiles(values: &mut [f64]) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1)) - 1;
        values.get(index).copied()
    };
    json!({"count": values.len(), "p50": at(0.5), "p99": at(0.99), "max": at(1.0)})
}
