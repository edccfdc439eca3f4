//! Discovery and a scheduler at the size of the largest clusters: memory, and the cost of changes.
//! Prints one JSON document. Run by `cargo xtask bench scale`.
//!
//! Each part runs in its own process (this executable, started again), so that their memory is
//! measured separately. `TRANSOM_BENCH_AGENTS` and `TRANSOM_BENCH_TASKS` change the size (50000,
//! 1000000), `TRANSOM_BENCH_PARTS` the parts (`discovery,scheduler`).

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark that fails may panic, and prints its figures"
)]

mod simulation;

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::simulation::Sizes;

/// The daemon's allocator.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The environment variable with the part that this process measures.
const PART: &str = "TRANSOM_BENCH_PART";

fn main() {
    let sizes = Sizes {
        agents: number("TRANSOM_BENCH_AGENTS", 50_000),
        tasks: number("TRANSOM_BENCH_TASKS", 1_000_000),
        updates: 200,
        batches: 20,
        batch: 1000,
        sustained: Duration::from_secs(10),
        settling: Duration::from_secs(12),
    };
    let Ok(part) = std::env::var(PART) else {
        println!("{:#}", all(sizes));
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let figures = match part.as_str() {
        "discovery" => runtime.block_on(simulation::discovery(sizes)),
        "scheduler" => runtime.block_on(simulation::scheduler(sizes)),
        other => panic!("no part is called `{other}`; there are discovery and scheduler"),
    };
    println!("{figures}");
}

fn all(sizes: Sizes) -> Value {
    let mut figures = json!({"agents": sizes.agents, "tasks": sizes.tasks});
    let parts = std::env::var("TRANSOM_BENCH_PARTS").unwrap_or_else(|_| "discovery,scheduler".to_owned());
    for part in parts.split(',') {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .env(PART, part)
            .stderr(Stdio::inherit())
            .output()
            .expect("this program starts");
        assert!(output.status.success(), "{part}: {}", output.status);
        figures[part] = serde_json::from_slice(&output.stdout).expect("a JSON document");
    }
    figures
}

fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: `{text}` is not a valid number of agents or tasks"))
    })
}
