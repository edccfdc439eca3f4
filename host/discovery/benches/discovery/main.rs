//! Discovery under load, compared with NSD with the same names. Prints one JSON document. Run by
//! `cargo xtask bench discovery`; needs the Debian packages `dnsperf`, `nsd`, `wrk` and
//! `bind9-dnsutils`.
//!
//! Discovery runs in a separate process (this executable, started again), so that its CPU and
//! memory are measured alone. The master is this process. `TRANSOM_BENCH_SIZES` has the numbers of
//! tasks (`1000,10000,100000`), `TRANSOM_BENCH_SECONDS` the duration of each load (5).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that fails may panic"
)]

mod changes;
#[path = "../../tests/common/mod.rs"]
mod common;
mod load;
mod nsd;
mod site;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Load;
use crate::nsd::Nsd;
use crate::site::Site;

/// The allocator of the daemon.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::main]
async fn main() {
    if let Some(master) = std::env::var_os(site::MASTER) {
        return site::serve(master.to_str().unwrap().to_owned()).await;
    }
    let sizes = std::env::var("TRANSOM_BENCH_SIZES").unwrap_or_else(|_| "1000,10000,100000".to_owned());
    let seconds = std::env::var("TRANSOM_BENCH_SECONDS").map_or(5, |text| text.parse().unwrap());
    let empty = Site::start(0, LOOPBACK).await;
    let nothing = empty.resident();
    empty.stop().await;
    let mut figures = Vec::new();
    for size in sizes.split(',').map(|size| size.parse().unwrap()) {
        figures.push(measure(size, nothing, Duration::from_secs(seconds)).await);
    }
    println!(
        "{:#}",
        json!({ "resident_without_tasks_kib": nothing, "sizes": figures })
    );
}

async fn measure(tasks: u32, nothing: u64, seconds: Duration) -> Value {
    eprintln!("{tasks} tasks");
    let site = Site::start(tasks, LOOPBACK).await;
    let resident = site.resident();
    let names = site.names().await;
    eprintln!("  {} records", names.records);
    let load = Load::new(&names, seconds);
    let ours = load.dns(site.dns(), site.pid()).await;
    let over_https = load.over_https(site.https(), site.pid()).await;
    let http = load.services(site.http(), site.pid()).await;
    let nsd = Nsd::start(&names.zone).await;
    let theirs = load.dns(nsd.addr(), nsd.pid()).await;
    // A listener on all addresses, which is the default, under the same load.
    let on_all = Site::start(tasks, Ipv4Addr::UNSPECIFIED.into()).await;
    let all = load.dns(on_all.dns(), on_all.pid()).await;
    on_all.stop().await;
    nsd.stop();
    let changes = changes::measure(&site, &load).await;
    let after = site.resident();
    let (built, cpu) = site.built();
    site.stop().await;
    let ratios = |measured: &Value| {
        let ratio = |kind: &str| {
            let per_core = |it: &Value| it[kind]["per_core_second"].as_f64().unwrap();
            (per_core(measured) / per_core(&theirs) * 100.0).round() / 100.0
        };
        json!({"a": ratio("a"), "srv": ratio("srv"), "nxdomain": ratio("nxdomain"), "a_tcp": ratio("a_tcp")})
    };
    json!({
        "tasks": tasks,
        "records": names.records,
        "from_nothing_ms": built,
        "from_nothing_cpu_ms": cpu.as_millis() as u64,
        "resident_kib": resident,
        "resident_bytes_a_task": (resident.saturating_sub(nothing)) * 1024 / u64::from(tasks),
        "resident_after_load_kib": after,
        "queries": ours,
        "nsd": theirs,
        "queries_listening_on_all_addresses": all,
        "per_core_second_to_nsd": ratios(&ours),
        "per_core_second_to_nsd_listening_on_all_addresses": ratios(&all),
        "a_over_https": over_https,
        "services_over_http": http,
        "changes": changes,
    })
}
