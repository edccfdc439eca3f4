//! Resumed streams: from the same daemon and after a restart.

use std::time::Duration;

use serde_json::{Value, json};
use transom_tests::events::Events;
use transom_tests::site::Site;

async fn post(site: &Site, number: usize) {
    let app = json!({"id": format!("/a{number}"), "cmd": "exec sleep 1000", "instances": 0});
    site.post_app(&app).await;
}

fn app_of(event: &Value) -> &str {
    event["appDefinition"]["id"].as_str().expect("an id")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_resumes_without_lost_or_duplicate_events_and_reports_a_gap_after_a_restart() {
    let mut site = Site::start().await;
    let url = "/v2/events?event_type=api_post_event";
    let mut events = Events::open(&site.http, &site.apps(&format!("{url}&ids=true"))).await;
    post(&site, 0).await;
    let first = events.next().await.expect("an event");
    drop(events);
    // Events that happen while no stream is open are not lost.
    let mut last = first.id.clone().expect("an id");
    for round in 0..5 {
        for number in 0..3 {
            post(&site, 1 + 3 * round + number).await;
        }
        let mut events = Events::resume(&site.http, &site.apps(url), &last).await;
        for number in 0..3 {
            let event = events.next().await.expect("an event");
            assert_eq!(app_of(&event.data), format!("/a{}", 1 + 3 * round + number));
            assert!(event.sequence() > first.sequence());
            last = event.id.expect("an id");
        }
        let more = events.next_within(Duration::from_millis(200)).await;
        assert!(more.is_none(), "no event is sent twice: {more:?}");
    }

    site.kill_daemon();
    site.start_daemon().await;
    let mut events = Events::resume(&site.http, &site.apps(url), &last).await;
    let gap = events.next().await.expect("an event");
    assert_eq!(gap.event, "event_stream_gap");
    assert_eq!(gap.data["from"], last.as_str());
    assert_eq!(gap.data["to"], gap.id.as_deref().expect("an id"));
    assert!(
        gap.data["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("term")),
        "{gap:?}"
    );
    // A stream can be resumed from the id of the gap event.
    post(&site, 90).await;
    let mut again = Events::resume(&site.http, &site.apps(url), gap.id.as_deref().expect("an id")).await;
    for events in [&mut events, &mut again] {
        let event = events.next().await.expect("an event");
        assert_eq!(
            (event.event.as_str(), app_of(&event.data)),
            ("api_post_event", "/a90")
        );
    }
    // Streams without `Last-Event-ID` receive no gap event, and their events have no ids.
    let mut plain = Events::open(&site.http, &site.apps("/v2/events")).await;
    let attached = plain.next().await.expect("an event");
    assert_eq!(
        (attached.event.as_str(), attached.id),
        ("event_stream_attached", None)
    );
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buffer_and_streams_are_limited_by_the_settings() {
    let site =
        Site::start_with("[apps.events]\nbuffer_events = 50\nmax_streams = 2\nparameters = [\"tenant\"]\n")
            .await;
    let url = "/v2/events?event_type=api_post_event&ids=true";
    let mut events = Events::open(&site.http, &site.apps(url)).await;
    post(&site, 0).await;
    let first = events.next().await.expect("an event").id.expect("an id");
    drop(events);
    for number in 1..40 {
        post(&site, number).await;
    }
    let mut resumed = Events::resume(&site.http, &site.apps(url), &first).await;
    let gap = resumed.next().await.expect("an event");
    assert_eq!(gap.event, "event_stream_gap");
    assert!(
        gap.data["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("no longer in the buffer")),
        "{gap:?}"
    );
    let next = resumed.next().await.expect("an event");
    assert_eq!(next.event, "api_post_event");
    assert!(
        next.sequence() > gap.sequence() && app_of(&next.data) != "/a1",
        "{next:?}"
    );
    let _second = Events::open(&site.http, &site.apps(url)).await;
    let rejected = Events::try_open(&site.http, &site.apps(url)).await;
    let rejected = rejected.err().expect("a rejection");
    assert!(
        rejected.contains("503") && rejected.contains("maximum number of event streams"),
        "{rejected}"
    );
    // Requests are not counted as event streams.
    post(&site, 91).await;
    site.cluster.stop();
}
