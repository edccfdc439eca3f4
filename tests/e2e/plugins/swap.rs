//! The `events` component is replaced a hundred times under load. No event is lost, duplicated or
//! out of order, and each version continues after the last event of the previous one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use transom_tests::events::{Events, Frame};
use transom_tests::plugin::Plugin;
use transom_tests::site::Site;

const SWAPS: u64 = 100;
/// The number of different components among the versions.
const COMPONENTS: u64 = 10;
/// Requests per second. Each one causes at least five events: of the request, of a deployment from
/// start to end, and of a group change.
const REQUESTS: u64 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_swaps_under_load_lose_nothing() {
    let site = Arc::new(Site::start().await);
    site.post_app(&json!({"id": "/load", "cmd": "true", "instances": 0}))
        .await;

    let (frames, received) = tokio::sync::oneshot::channel();
    let mut stream = Events::open(&site.http, &site.apps("/v2/events?ids=true")).await;
    let reader = tokio::spawn(async move {
        let mut seen: Vec<Frame> = Vec::new();
        loop {
            let frame = stream
                .next()
                .await
                .expect("the stream stays open over every swap");
            let last = frame.event == "api_post_event" && frame.data["appDefinition"]["id"] == "/last";
            seen.push(frame);
            if last {
                break;
            }
        }
        let _ = frames.send(seen);
    });

    let stop = Arc::new(AtomicBool::new(false));
    let posted = Arc::new(AtomicU64::new(0));
    let load = tokio::spawn(post(site.clone(), stop.clone(), posted.clone()));

    let faulty = Plugin::test_guest("faulty-events");
    for version in 0..SWAPS {
        // An additional custom section changes the digest, as a rebuild would. Compiling takes most
        // of the time, so most versions differ in their configuration only.
        faulty
            .stamped(version % COMPONENTS)
            .config(&format!("mark = \"{version}\""))
            .install(&site.plugins(), "events");
        site.rescan().await;
        let status = site
            .get(&site.admin("/v1/plugins/events"))
            .await
            .expect("a status");
        assert_eq!(status["refusal"], Value::Null, "{status}");
    }
    stop.store(true, Ordering::Relaxed);
    load.await.expect("the load ran");
    site.post_app(&json!({"id": "/last", "cmd": "true", "instances": 0}))
        .await;

    let seen = tokio::time::timeout(Duration::from_mins(1), received)
        .await
        .expect("in time")
        .expect("frames");
    reader.await.expect("the reader ended");
    assert_contiguous(&seen);
    assert_versions_in_order(&seen);
    let requests = posted.load(Ordering::Relaxed);
    assert!(
        requests >= SWAPS,
        "only {requests} requests ran during {SWAPS} swaps"
    );
    assert!(
        seen.len() as u64 > requests * 5,
        "{} events of {requests} requests",
        seen.len()
    );
    println!("{SWAPS} swaps, {requests} requests, {} events", seen.len());
}

/// Changes the app repeatedly, [`REQUESTS`] times per second.
async fn post(site: Arc<Site>, stop: Arc<AtomicBool>, posted: Arc<AtomicU64>) {
    let mut pace = tokio::time::interval(Duration::from_millis(1000 / REQUESTS));
    let url = site.apps("/v2/apps/load?force=true");
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let number = posted.fetch_add(1, Ordering::Relaxed);
        let body = json!({"env": {"N": number.to_string()}});
        let answer = site.http.put(&url).json(&body).send().await.expect("an answer");
        assert_eq!(
            answer.status().as_u16(),
            200,
            "{}",
            answer.text().await.unwrap_or_default()
        );
    }
}

fn assert_contiguous(seen: &[Frame]) {
    for pair in seen.windows(2) {
        assert_eq!(
            pair[1].sequence(),
            pair[0].sequence() + 1,
            "{:?} then {:?}",
            pair[0].id,
            pair[1].id
        );
    }
}

/// The version that decided about a frame.
fn mark(frame: &Frame) -> Option<u64> {
    frame.data["mark"].as_str()?.parse().ok()
}

/// Requires that the versions never go back, and that the last one decided at the end.
fn assert_versions_in_order(seen: &[Frame]) {
    let marks: Vec<u64> = seen.iter().filter_map(mark).collect();
    assert!(marks.is_sorted(), "an older version answered after a newer one");
    assert_eq!(seen.last().and_then(mark), Some(SWAPS - 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_manifest_takes_over_while_streams_are_open() {
    let site = Site::start().await;
    let mut stream = Events::open(&site.http, &site.apps("/v2/events?ids=true")).await;
    site.post_app(&json!({"id": "/before", "cmd": "true", "instances": 0}))
        .await;
    stream.next_of("deployment_success").await;

    let quiet = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/plugins/quiet/events.toml"
    );
    std::fs::copy(quiet, site.plugins().join("events.toml")).expect("copied");
    site.rescan().await;
    // Events from before the replacement may still be queued; those after the next request come
    // from the new version.
    site.post_app(&json!({"id": "/after", "cmd": "true", "instances": 0}))
        .await;
    while stream.next_of("api_post_event").await.data["appDefinition"]["id"] != "/after" {}
    site.post_app(&json!({"id": "/last", "cmd": "true", "instances": 0}))
        .await;
    loop {
        let frame = stream.next().await.expect("the stream stays open");
        assert!(!frame.event.starts_with("deployment_"), "{frame:?}");
        if frame.event == "api_post_event" && frame.data["appDefinition"]["id"] == "/last" {
            break;
        }
    }
    // The quiet configuration does not apply to subscribers that name a kind.
    let url = site.apps("/v2/events?event_type=deployment_success");
    let mut named = Events::open(&site.http, &url).await;
    site.post_app(&json!({"id": "/named", "cmd": "true", "instances": 0}))
        .await;
    named.next_of("deployment_success").await;
    site.cluster.stop_after(site.daemon);
}
