//! The cost of exported traces: look-ups per second of two daemons, one of which exports a span for
//! each to a stand-in for a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use transom_tests::site::Site;

use super::client::Jobs;
use super::{SECTION, job, measure_lookup_rate};

/// Number of measurements. The daemons alternate, so that both run under the same conditions.
const ROUNDS: usize = 5;
/// The job that is looked up.
const JOB: &str = "rate1";

/// Measures the rates of both daemons. The ratio is the median of the rounds; below 1 it shows the
/// cost of traces.
pub(crate) async fn measure() -> Value {
    // The collector only reads the spans, so that it uses little of the processor time.
    let received = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let collector = listener.local_addr().expect("an address");
    let count = Arc::clone(&received);
    let receive = async move |body: Bytes| {
        count.fetch_add(body.len() as u64, Ordering::Relaxed);
    };
    let router = Router::new().route("/v1/traces", post(receive));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });

    let telemetry = format!("[telemetry]\notlp_endpoint = \"http://{collector}\"\n");
    let (off, on) = (start("").await, start(&telemetry).await);
    let (mut rates_off, mut rates_on, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let without = measure_lookup_rate(&off.1).await;
        let with = measure_lookup_rate(&on.1).await;
        ratios.push(with / without);
        rates_off.push(without);
        rates_on.push(with);
    }
    for (site, _) in [off, on] {
        site.cluster.stop_after(site.daemon);
    }
    serving.abort();
    let exported = received.load(Ordering::Relaxed);
    assert!(exported > 0, "no span was exported");
    json!({
        "look_ups_per_second_off": median(rates_off),
        "look_ups_per_second_on": median(rates_on),
        "ratio": median(ratios),
        "exported_mib": exported as f64 / f64::from(1 << 20),
    })
}

/// A daemon with a job that has ended.
async fn start(more: &str) -> (Site, Jobs) {
    let site = Site::start_with(&format!("{SECTION}{more}")).await;
    let jobs = Jobs::new(format!("http://{}", site.addresses["workflow"]));
    let since = jobs.last().await;
    jobs.queue(&job(JOB)).await;
    jobs.wait_until_ended(since, 1).await;
    (site, jobs)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
