//! The cost of plugins, and the effect of a hostile one on others. Prints one JSON document. Run by
//! `cargo xtask bench plugins`.
//!
//! If the same work can be done natively, both are measured alternately in one run, so that their
//! ratio does not depend on the machine as the times do. The times are those of the release
//! profile, on two worker threads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod agent_set;
mod calls;
mod events;
mod figures;
mod guests;
mod hostile;
mod life;
mod recording;
mod site;

use serde_json::json;

/// The daemon's allocator.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Whether the arguments select this part.
fn wanted(name: &str) -> bool {
    let only = std::env::var("TRANSOM_BENCH_ONLY").ok();
    only.is_none_or(|only| only.split(',').any(|it| it == name))
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // In a task: a thread that blocks on the runtime is woken from another thread, which takes
    // longer than a call.
    let measuring = runtime.spawn(async {
        let mut document = json!({});
        if wanted("calls") {
            document["calls"] = calls::measure().await;
        }
        if wanted("agent_set") {
            document["agent_set"] = agent_set::measure().await;
        }
        if wanted("events") {
            document["events"] = events::measure().await;
        }
        if wanted("recording") {
            document["recording"] = recording::measure().await;
        }
        if wanted("admission") {
            document["admission"] = life::admission().await;
        }
        if wanted("swap") {
            document["swap"] = life::swap().await;
        }
        if wanted("memory") {
            document["memory"] = life::memory().await;
        }
        if wanted("endless_loop") {
            document["endless_loop"] = hostile::endless_loop().await;
        }
        if wanted("neighbours") {
            document["neighbours"] = hostile::neighbours().await;
        }
        document
    });
    let mut document = runtime.block_on(measuring).unwrap();
    // This part queries a daemon over HTTP.
    if wanted("ports") {
        document["ports"] = runtime.block_on(hostile::ports());
    }
    if wanted("guests") {
        document["guests"] = runtime.block_on(guests::measure());
    }
    println!("{document:#}");
}
