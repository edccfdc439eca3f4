//! How costs grow: each row is measured at three sizes, on the real binary and a master without
//! bounds, and the exponent of the last step is compared with its bound. One JSON document.
//!
//! Run by `cargo xtask bench growth`; arguments select rows by a part of their name, `--quick`
//! divides all sizes by ten.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark that fails may panic, and prints its figures"
)]

mod apps;
mod checks;
mod kubernetes;
mod meter;
mod parts;
mod plugins;
mod rows;
mod workflow;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use transom_tests::load::rounded;

use crate::meter::Cost;
use crate::rows::{Figure, ROWS, Row};

/// The daemon's allocator, for the parts that this process runs itself.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Divisor of the sizes of a quick run.
const QUICK: usize = 10;
/// Sizes below this are not divided.
const MIN_DIVIDED: usize = 100;
/// Timeout of a row at one size.
const TIMEOUT: Duration = Duration::from_mins(20);
/// Costs below this have no exponent: Linux counts processor time in steps of 10 ms.
const MIN_CPU_SECONDS: f64 = 0.1;
/// Growth of memory that counts as none, and the limit below which it has no exponent.
const MIN_MEMORY_MIB: f64 = 16.0;

fn main() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit of open files");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Some(figures) = runtime.block_on(parts::measure_in_this_process()) {
        println!("{figures}");
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let divisor = if arguments.iter().any(|one| one == "--quick") {
        QUICK
    } else {
        1
    };
    let filters: Vec<&String> = arguments.iter().filter(|one| !one.starts_with('-')).collect();
    let wanted = |row: &&Row| filters.is_empty() || filters.iter().any(|part| row.name.contains(*part));
    let mut measured = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        measured.extend(measure(&runtime, row, divisor));
    }
    assert!(!measured.is_empty(), "no row has a name with {filters:?}");
    let above = measured.iter().filter(|row| row["above_bound"] == true);
    let above: Vec<&Value> = above.map(|row| &row["figure"]).collect();
    println!(
        "{:#}",
        json!({
            "sizes_divided_by": divisor,
            "program": std::env::var("TRANSOM_BIN").ok(),
            "above_bound": above,
            "rows": measured,
        })
    );
}

/// Measures a row at its three sizes, each with a new cluster and daemon. A row that fails, such as
/// by a wait that never ends, is above its bound.
fn measure(runtime: &tokio::runtime::Runtime, row: &Row, divisor: usize) -> Vec<Value> {
    let divisor = if row.sizes[2] < MIN_DIVIDED { 1 } else { divisor };
    let sizes = row.sizes.map(|size| (size / divisor).max(1));
    let mut measured = Vec::new();
    for size in sizes {
        eprintln!("{}: {size} {}", row.name, row.of);
        let measuring = || {
            let measuring = async { tokio::time::timeout(TIMEOUT, (row.measure)(size)).await };
            runtime.block_on(measuring).expect("the end of a measurement")
        };
        let Ok(costs) = std::panic::catch_unwind(AssertUnwindSafe(measuring)) else {
            eprintln!("    {}: failed with {size} {}: ABOVE ITS BOUND", row.name, row.of);
            return vec![json!({"figure": row.name, "of": row.of, "failed_with": size, "above_bound": true})];
        };
        assert_eq!(costs.len(), row.figures.len(), "the figures of {}", row.name);
        measured.push(costs);
    }
    let figures = row.figures.iter().enumerate();
    figures
        .map(|(index, figure)| {
            let costs = [0, 1, 2].map(|size: usize| measured[size][index]);
            let row = describe(row, figure, sizes, costs);
            print_line(&row);
            row
        })
        .collect()
}

fn describe(row: &Row, figure: &Figure, sizes: [usize; 3], costs: [Cost; 3]) -> Value {
    let bound = figure.growth.bound();
    // As if as many operations had been measured at each size.
    let operations = f64::from(costs[2].operations.max(1));
    let cpu = costs.map(|cost| cost.cpu_ms() / 1e3 * operations);
    let exponent = exponent(sizes, cpu, MIN_CPU_SECONDS);
    let memory = self::exponent(
        sizes,
        costs.map(|cost| cost.added_kib as f64 / 1024.0),
        MIN_MEMORY_MIB,
    );
    let above = |exponent: Option<f64>, bound: f64| exponent.is_some_and(|exponent| exponent > bound);
    json!({
        "figure": format!("{}, {}", row.name, figure.name),
        "of": row.of,
        "sizes": sizes,
        "operations": costs[2].operations,
        "cpu_ms": costs.map(|cost| rounded(cost.cpu_ms())),
        "elapsed_s": costs.map(|cost| rounded(cost.elapsed.as_secs_f64())),
        "peak_mib": costs.map(|cost| cost.peak_kib / 1024),
        "exponent": exponent.map(rounded),
        "memory_exponent": memory.map(rounded),
        "bound": bound,
        "above_bound": above(exponent, bound) || above(memory, figure.growth.memory_bound()),
    })
}

/// The exponent of the last step; none where the cost is too small to tell.
fn exponent(sizes: [usize; 3], costs: [f64; 3], minimum: f64) -> Option<f64> {
    if costs[2] < minimum {
        return None;
    }
    // A small cost before is rounded up, which makes the exponent smaller rather than noise.
    let before = costs[1].max(minimum / 2.0);
    Some((costs[2] / before).ln() / (sizes[2] as f64 / sizes[1] as f64).ln())
}

fn print_line(row: &Value) {
    let verdict = match (row["above_bound"].as_bool(), row["exponent"].as_f64()) {
        (Some(true), _) => "ABOVE ITS BOUND",
        (_, None) => "too small to tell",
        _ => "within its bound",
    };
    eprintln!(
        "    {}: sizes {}, ms {}, peak MiB {}, exponent {} (memory {}), bound {}: {verdict}",
        row["figure"].as_str().unwrap_or_default(),
        row["sizes"],
        row["cpu_ms"],
        row["peak_mib"],
        row["exponent"],
        row["memory_exponent"],
        row["bound"],
    );
}
