//! Admission, swaps under load, and the memory after a thousand swaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_plugin_host::{Change, Plugins, events::Query};
use transom_tests::{plugin::Plugin, process::components as components_dir};

use crate::{
    events::batch,
    figures::{CallTimes, millis, ratio},
    site::Host,
};

const ADMISSIONS: u64 = 30;
/// Number of admissions of the large component, whose compilation takes half a minute.
const LARGE_ADMISSIONS: u64 = 3;
const SWAPS: u64 = 100;
const CALLERS: u64 = 4;
/// Time between swaps that are not made as fast as possible.
const SWAP_INTERVAL: Duration = Duration::from_millis(100);
/// Numbers of swaps after which memory is read.
const FIRST_MEMORY_SWAPS: u64 = 50;
const LAST_MEMORY_SWAPS: u64 = 1_000;

/// Replaces the filter with `plugin` under this stamp; returns the time until the new version
/// served.
async fn replace(host: &Host, plugin: &Plugin, stamp: u64) -> Duration {
    let (plugin, dir) = (plugin.clone(), host.dir().to_owned());
    // Not on a thread that calls need, because an operator's files are written by another process.
    let install = move || {
        let plugin = plugin.stamped(stamp);
        let start = Instant::now();
        plugin.install(&dir, "events");
        start
    };
    let start = tokio::task::spawn_blocking(install).await.unwrap();
    let changes = host.plugins.rescan().await;
    let duration = start.elapsed();
    // The watch of the directory may have replaced the filter already.
    for change in changes {
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    }
    assert_eq!(host.plugins.list()[0].refusal, None);
    duration
}

pub(crate) async fn admission() -> Value {
    eprintln!("admission");
    let mut components = vec![
        ("first-party", Plugin::first_party("events"), ADMISSIONS),
        ("smallest", Plugin::example("smallest"), ADMISSIONS),
    ];
    // A Python component, which only `cargo xtask plugins --all` builds.
    if components_dir().join("examples/redact.wasm").exists() {
        components.push(("python", Plugin::example("redact"), LARGE_ADMISSIONS));
    }
    let mut document = json!({});
    for (name, plugin, times) in components {
        document[name] = admissions(&plugin, times).await;
    }
    document
}

/// Measures `times` first admissions of an event filter, and as many from the cache.
async fn admissions(plugin: &Plugin, times: u64) -> Value {
    let host = Host::with(&[("events", plugin)]).await;
    let mut cold = CallTimes::default();
    for stamp in 0..times {
        cold.push(replace(&host, plugin, stamp).await);
    }
    let mut cached = CallTimes::default();
    for stamp in 0..times {
        cached.push(replace(&host, plugin, times - 1 - stamp % 2).await);
    }
    host.stop().await;
    json!({
        "component_bytes": plugin.wasm.len(),
        "cold_ms": millis(cold.median()),
        "cached_ms": millis(cached.median()),
    })
}

/// Callers of the filter that call without a pause.
struct Load {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<CallTimes>>,
}

impl Load {
    async fn start(plugins: &Plugins) -> Load {
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for caller in 0..CALLERS {
            let query = Query {
                principal: Some(format!("caller-{caller}")),
                ..Query::default()
            };
            let view = plugins.open_view(query).await.unwrap();
            let (stop, failed) = (Arc::clone(&stop), Arc::clone(&failed));
            let events = batch(0);
            tasks.push(tokio::spawn(async move {
                let mut times = CallTimes::default();
                while !stop.load(Relaxed) {
                    let start = Instant::now();
                    if view.decide(&events).await.is_err() {
                        failed.fetch_add(1, Relaxed);
                    }
                    times.push(start.elapsed());
                    tokio::task::yield_now().await;
                }
                times
            }));
        }
        Load { stop, failed, tasks }
    }

    /// Stops the callers; returns the times and the number of failures.
    async fn stop(self) -> (CallTimes, u64) {
        self.stop.store(true, Relaxed);
        let mut times = CallTimes::default();
        for task in self.tasks {
            times.extend(task.await.unwrap());
        }
        (times, self.failed.load(Relaxed))
    }
}

pub(crate) async fn swap() -> Value {
    eprintln!("swaps under load");
    let events = Plugin::first_party("events");
    let host = Host::with(&[("events", &events)]).await;
    let load = Load::start(&host.plugins).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, failed_before) = load.stop().await;

    let load = Load::start(&host.plugins).await;
    for stamp in 0..SWAPS {
        replace(&host, &events, stamp).await;
    }
    let (cold, failed_cold) = load.stop().await;

    let load = Load::start(&host.plugins).await;
    let mut pace = tokio::time::interval(SWAP_INTERVAL);
    for stamp in 0..SWAPS {
        pace.tick().await;
        replace(&host, &events, SWAPS - 1 - stamp % 2).await;
    }
    let (paced, failed_paced) = load.stop().await;

    let load = Load::start(&host.plugins).await;
    for stamp in 0..SWAPS {
        replace(&host, &events, SWAPS - 1 - stamp % 2).await;
    }
    let (cached, failed_cached) = load.stop().await;
    host.stop().await;
    let during = |times: &CallTimes, failed: u64| {
        json!({
            "swaps": SWAPS,
            "calls_failed": failed,
            "times": times.to_json(),
            "p99_to_before": ratio(times.quantile(990), before.quantile(990)),
        })
    };
    json!({
        "callers": CALLERS,
        "before": {"calls_failed": failed_before, "times": before.to_json()},
        "during_cold_swaps": during(&cold, failed_cold),
        "during_ten_cached_swaps_a_second": during(&paced, failed_paced),
        "during_cached_swaps": during(&cached, failed_cached),
    })
}

/// The resident memory of this process in KiB.
fn resident() -> u64 {
    transom_testkit::usage::resident_kib(std::process::id())
}

pub(crate) async fn memory() -> Value {
    eprintln!("memory over {LAST_MEMORY_SWAPS} swaps");
    let events = Plugin::first_party("events");
    let host = Host::with(&[("events", &events)]).await;
    let view = host.plugins.open_view(Query::default()).await.unwrap();
    let question = batch(0);
    let mut early = 0;
    let mut by_hundreds = Vec::new();
    for stamp in 0..LAST_MEMORY_SWAPS {
        if stamp == FIRST_MEMORY_SWAPS {
            early = resident();
        }
        if stamp % 100 == 0 {
            by_hundreds.push(resident());
        }
        replace(&host, &events, stamp).await;
        view.decide(&question).await.unwrap();
    }
    let late = resident();
    host.stop().await;
    json!({
        "after_50_swaps_kib": early,
        "after_1000_swaps_kib": late,
        "after_every_100_kib": by_hundreds,
        "growth_per_cent": crate::figures::rounded((late as f64 / early as f64 - 1.0) * 100.0),
    })
}
