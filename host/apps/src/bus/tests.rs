//! The event bus without HTTP.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use transom_testkit::{WAIT_TIMEOUT, wait_for};

use super::*;
use crate::deploy::PlanTexts;
use crate::settings::PlanForm;
use crate::testing::Components;

mod resume;

fn bus(components: &Arc<Components>) -> Bus {
    bus_with(components, &Events::default())
}

fn bus_with(components: &Arc<Components>, settings: &Events) -> Bus {
    let policies: Arc<dyn Policies> = components.clone();
    Bus::new(
        7,
        settings,
        policies,
        Metrics::default(),
        TaskTracker::new(),
        CancellationToken::new(),
    )
}

fn key(expression: Option<&str>) -> StreamKey {
    let query = Query {
        expression: expression.map(str::to_owned),
        ..Query::default()
    };
    StreamKey {
        query,
        light: false,
        ids: true,
    }
}

fn listener() -> Listener {
    Listener {
        disconnect: Disconnect::default(),
        owner: Owner::Full,
        client: "127.0.0.1".to_owned(),
        url: "/v2/events".to_owned(),
    }
}

fn draft(number: usize) -> Draft {
    let body = json!({"eventType": "status_update_event", "timestamp": "t", "number": number, "text": "x".repeat(300)});
    Draft {
        kind: "status_update_event",
        subject: None,
        body,
        plan: None,
        bodies: None,
    }
}

async fn next(subscription: &mut Subscription) -> Option<Bytes> {
    tokio::time::timeout(WAIT_TIMEOUT, subscription.next())
        .await
        .expect("the stream sends no data")
        .map(Result::unwrap)
}

/// Reads until the stream ends.
async fn rest(subscription: &mut Subscription) -> String {
    let mut text = String::new();
    while let Some(bytes) = next(subscription).await {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    text
}

/// Reads until `count` frames have arrived; returns the text.
async fn frames(subscription: &mut Subscription, count: usize) -> String {
    let mut text = String::new();
    while text.matches("event: ").count() < count {
        text.push_str(std::str::from_utf8(&next(subscription).await.expect("the stream ended")).unwrap());
    }
    text
}

#[tokio::test]
async fn equal_streams_get_all_events_in_order_from_one_view() {
    let components = Components::new();
    let bus = bus(&components);
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(bus.attach(key(None), listener(), None).await.unwrap());
    }
    for number in 0..50 {
        bus.publish(draft(number));
    }
    for (index, stream) in streams.iter_mut().enumerate() {
        // Each stream sees its own attach event first, then those of later ones.
        let attached = 3 - index;
        let text = frames(stream, attached + 50).await;
        let ids: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("id: 7-"))
            .collect();
        let expected: Vec<String> = (index + 1..=53).map(|id| id.to_string()).collect();
        assert_eq!(ids, expected, "ids increase by one");
        assert!(text.contains("\"number\":49"));
    }
    assert_eq!(components.views.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn thousands_of_events_go_through_in_batches() {
    const EVENTS: usize = 5000;
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(key(None), listener(), None).await.unwrap();
    let began = std::time::Instant::now();
    let publisher = bus.clone();
    let publishing = tokio::spawn(async move {
        for number in 0..EVENTS {
            publisher.publish(draft(number));
            if number % 200 == 199 {
                tokio::task::yield_now().await;
            }
        }
    });
    frames(&mut stream, EVENTS + 1).await;
    publishing.await.unwrap();
    let rate = EVENTS as f64 / began.elapsed().as_secs_f64();
    assert!(rate > 1000.0, "only {rate:.0} events a second");
    assert!(
        components.batches.load(Ordering::SeqCst) < EVENTS / 4,
        "events are decided in batches"
    );
}

#[tokio::test]
async fn slow_reader_is_disconnected_with_reason() {
    let components = Components::new();
    let bus = bus(&components);
    let mut slow = bus.attach(key(None), listener(), None).await.unwrap();
    let mut other = bus
        .attach(
            StreamKey {
                ids: false,
                ..key(None)
            },
            listener(),
            None,
        )
        .await
        .unwrap();
    let mut heard = 0;
    let published = stream::MAX_QUEUED_EVENTS + 1000;
    for number in 0..published {
        bus.publish(draft(number));
        if number % 100 == 99 {
            heard += frames(&mut other, 50).await.matches("event: ").count();
        }
    }
    wait_for("the slow one is closed", async || {
        bus.shared.metrics.closed.get() == 1
    })
    .await;
    let text = rest(&mut slow).await;
    assert!(
        text.starts_with(": slow client") && text.ends_with("\r\n\r\n"),
        "the reason is sent immediately, not after the queued events: {text}"
    );
    assert!(heard >= published / 2, "other streams keep receiving events");
}

#[tokio::test]
async fn replacements_keep_kind_and_time() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(key(Some("replace")), listener(), None).await.unwrap();
    bus.publish(draft(1));
    let text = frames(&mut stream, 2).await;
    let last = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back()
        .unwrap();
    let data: Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        data,
        json!({"eventType": "status_update_event", "timestamp": "t", "replaced": true})
    );
}

#[tokio::test]
async fn remaining_streams_get_an_event_when_a_stream_detaches() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stays = bus.attach(key(None), listener(), None).await.unwrap();
    let leaves = bus.attach(key(None), listener(), None).await.unwrap();
    frames(&mut stays, 2).await;
    drop(leaves);
    assert!(frames(&mut stays, 1).await.contains("event_stream_detached"));
    drop(stays);
    wait_for("nothing is left", async || {
        bus.state().groups.is_empty() && bus.shared.latest.receiver_count() == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn idle_stream_gets_a_keep_alive_after_ten_seconds() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(key(None), listener(), None).await.unwrap();
    frames(&mut stream, 1).await;
    let began = tokio::time::Instant::now();
    assert_eq!(next(&mut stream).await.unwrap(), "\r\n");
    assert_eq!(began.elapsed().as_secs(), 10);
}

/// The number of events that were dropped for a reason.
fn lost(bus: &Bus, why: LossReason) -> u64 {
    bus.shared.metrics.lost.get_or_create(&why.into()).get()
}

fn draft_with(text: &str) -> Draft {
    let body = json!({"eventType": "status_update_event", "timestamp": "t", "text": text});
    Draft { body, ..draft(0) }
}

fn numbers(text: &str) -> Vec<u64> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str::<Value>(data).unwrap()["number"].as_u64())
        .collect()
}

#[tokio::test]
async fn oversized_event_is_dropped_and_reported_by_event_too_large_event() {
    let components = Components::new();
    let bus = bus(&components);
    let mut plain = bus.attach(key(None), listener(), None).await.unwrap();
    let naming = StreamKey {
        query: Query {
            event_types: vec!["event_too_large_event".to_owned()],
            ..Query::default()
        },
        ..key(None)
    };
    let mut told = bus.attach(naming, listener(), None).await.unwrap();
    frames(&mut plain, 2).await;
    let large = Draft {
        subject: Some("/large".to_owned()),
        ..draft_with(&"x".repeat(MAX_EVENT_BYTES))
    };
    // The light form is limited too.
    let lighter = Draft {
        plan: Some(Arc::new(PlanTexts {
            form: PlanForm::default(),
            body: "{}".to_owned(),
            light: json!("x".repeat(MAX_EVENT_BYTES)).to_string(),
        })),
        ..draft(1)
    };
    bus.publish(draft(1));
    bus.publish(large);
    bus.publish(lighter);
    bus.publish(draft(2));
    let text = frames(&mut plain, 2).await;
    assert_eq!(numbers(&text), [1, 2], "the others are sent");
    assert!(text.len() < 2000, "{}", text.len());
    let text = frames(&mut told, 2).await;
    let first = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let data: Value = serde_json::from_str(first).unwrap();
    assert_eq!(
        (&data["droppedEventType"], &data["subject"], &data["maxBytes"]),
        (
            &json!("status_update_event"),
            &json!("/large"),
            &json!(MAX_EVENT_BYTES)
        ),
        "{data}"
    );
    assert!(data["bytes"].as_u64().unwrap() > MAX_EVENT_BYTES as u64);
    assert_eq!(lost(&bus, LossReason::TooLarge), 2);
    // An event at the limit is sent.
    let frame = EventBodies::of(&draft_with("")).unwrap().body.len();
    bus.publish(draft_with(&"x".repeat(MAX_EVENT_BYTES - frame)));
    let text = frames(&mut plain, 1).await;
    assert!(text.len() > MAX_EVENT_BYTES, "{}", text.len());
    assert_eq!(lost(&bus, LossReason::TooLarge), 2);
    assert_eq!(bus.shared.metrics.closed.get(), 0);
}

/// The position of the bad events in a batch does not matter: the others arrive in order, once
/// each.
#[tokio::test]
async fn event_that_traps_the_component_is_dropped_and_others_are_sent() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(key(None), listener(), None).await.unwrap();
    frames(&mut stream, 1).await;
    *components.traps_on.lock().unwrap() = Some("poison".to_owned());
    // There is no await between these: they are one batch.
    for number in 0..40 {
        bus.publish(draft(number));
        if number % 10 == 3 {
            bus.publish(draft_with("poison"));
        }
    }
    let text = frames(&mut stream, 40).await;
    assert_eq!(numbers(&text), (0..40).collect::<Vec<u64>>());
    assert!(!text.contains("poison"));
    assert_eq!(lost(&bus, LossReason::Undecided), 4);
    // A bad event that is alone in its batch, several times; the stream continues.
    for number in 40..43 {
        bus.publish(draft_with("poison"));
        wait_for("it is dropped", async || {
            lost(&bus, LossReason::Undecided) == number - 35
        })
        .await;
        bus.publish(draft(number as usize));
        assert_eq!(numbers(&frames(&mut stream, 1).await), [number]);
    }
    assert_eq!(bus.shared.metrics.closed.get(), 0);
}

#[tokio::test]
async fn failing_component_closes_its_streams_with_reason() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(key(None), listener(), None).await.unwrap();
    frames(&mut stream, 1).await;
    components.broken.store(true, Ordering::SeqCst);
    let before = components.batches.load(Ordering::SeqCst);
    for number in 0..50 {
        bus.publish(draft(number));
    }
    let text = rest(&mut stream).await;
    assert!(text.starts_with(": ") && text.contains("unreachable"), "{text}");
    let asked = components.batches.load(Ordering::SeqCst) - before;
    assert!(asked <= 5, "the component was called {asked} times");
    assert_eq!(lost(&bus, LossReason::Undecided), 0);
}

/// The memory for events is bounded while the component does not answer.
#[tokio::test]
async fn streams_of_a_stuck_component_are_closed_when_its_events_are_dropped() {
    let components = Components::new();
    let settings = Events {
        buffer_events: NonZeroUsize::new(1000).unwrap(),
        buffer_bytes: 4 * MAX_EVENT_BYTES,
        ..Events::default()
    };
    let bus = bus_with(&components, &settings);
    let mut stream = bus.attach(key(None), listener(), None).await.unwrap();
    frames(&mut stream, 1).await;
    components.stuck.store(true, Ordering::SeqCst);
    bus.publish(draft(1));
    wait_for("the component is asked", async || {
        components.batches.load(Ordering::SeqCst) == 2
    })
    .await;
    let text = "x".repeat(MAX_EVENT_BYTES / 2);
    for _ in 0..50 {
        bus.publish(draft_with(&text));
        let state = bus.state();
        assert!(state.ring.next() - state.ring.oldest() <= 10);
    }
    assert_eq!(bus.shared.metrics.closed.get(), 0);
    components.stuck.store(false, Ordering::SeqCst);
    let last = rest(&mut stream).await;
    assert!(last.contains("the events component is too slow"), "{last}");
    assert_eq!(bus.shared.metrics.closed.get(), 1);
    // New subscribers are served.
    let mut other = bus.attach(key(None), listener(), None).await.unwrap();
    bus.publish(draft(7));
    assert_eq!(numbers(&frames(&mut other, 2).await), [7]);
}

#[tokio::test]
async fn only_the_stream_over_its_queue_limit_in_bytes_is_closed() {
    let components = Components::new();
    let bus = bus(&components);
    let mut slow = bus.attach(key(None), listener(), None).await.unwrap();
    let other = StreamKey {
        ids: false,
        ..key(None)
    };
    let mut other = bus.attach(other, listener(), None).await.unwrap();
    frames(&mut other, 1).await;
    let text = "x".repeat(MAX_EVENT_BYTES / 2);
    for _ in 0..2 * stream::MAX_QUEUED_BYTES / text.len() {
        bus.publish(draft_with(&text));
        frames(&mut other, 1).await;
    }
    wait_for("the slow one is closed", async || {
        bus.shared.metrics.closed.get() == 1
    })
    .await;
    let last = rest(&mut slow).await;
    assert!(last.contains("bytes of events are queued"), "{last}");
    assert!(last.len() < 200, "{}", last.len());
}

/// The events of the kinds `published` that a subscriber of `query` receives after its own attach
/// event.
async fn received(query: &[&str], light: bool, published: &[&'static str]) -> Vec<String> {
    let components = Components::new();
    let bus = bus(&components);
    let event_types = query.iter().map(|kind| (*kind).to_owned()).collect();
    let key = StreamKey {
        query: Query {
            event_types,
            ..Query::default()
        },
        light,
        ids: false,
    };
    let stream = bus.attach(key, listener(), None).await.unwrap();
    for kind in published {
        bus.publish(Draft { kind, ..draft(0) });
    }
    wait_for("all is decided", async || {
        bus.state().ring.next() == published.len() as u64 + 2
            && components.decided.load(Ordering::SeqCst) == published.len() + 1
    })
    .await;
    // Stopping delivers the decided events and ends the stream.
    bus.shared.token.cancel();
    bus.shared.tracker.close();
    tokio::time::timeout(WAIT_TIMEOUT, bus.shared.tracker.wait())
        .await
        .unwrap();
    let text: Vec<Bytes> = stream.map(Result::unwrap).collect().await;
    let text = String::from_utf8(text.concat()).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("event: ").map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn event_streams_match_the_sse_fixtures() {
    let suite: Value = serde_json::from_str(include_str!("../../tests/fixtures/sse.json")).unwrap();
    for case in suite["cases"].as_array().unwrap() {
        match case["id"].as_str().unwrap() {
            "sse/no-filter-all" => {
                let published = ["subscribe_event", "unsubscribe_event"];
                let mut expected = vec![json!("event_stream_attached")];
                expected.extend(case["expect"]["received"].as_array().unwrap().clone());
                assert_eq!(
                    json!(received(&[], false, &published).await),
                    Value::Array(expected)
                );
            }
            "sse/filter-deployment-success" => {
                let all = ["deployment_info", "deployment_success"];
                assert_eq!(
                    received(&["deployment_success"], false, &all).await[0],
                    case["expect"]["first_received"]
                );
            }
            "sse/unknown-event-type" => {
                assert_eq!(
                    json!(received(&["no_such"], false, &["deployment_success"]).await),
                    case["expect"]["received"]
                );
            }
            "sse/plan-format-ignored" => {
                let kinds = ["deployment_info", "deployment_success"];
                let (light, plain) = (
                    received(&kinds[1..], true, &kinds).await,
                    received(&kinds[1..], false, &kinds).await,
                );
                assert_eq!(
                    light, plain,
                    "the parameter changes the form of plans, not the selection of events"
                );
            }
            // Status, content type and the first event are compared over HTTP in the tests of the
            // API; the test of the keep-alive is above.
            "sse/frame" => {
                let components = Components::new();
                let bus = bus(&components);
                let mut stream = bus
                    .attach(
                        StreamKey {
                            ids: false,
                            ..key(None)
                        },
                        listener(),
                        None,
                    )
                    .await
                    .unwrap();
                let text = frames(&mut stream, 1).await;
                let (head, data) = text.split_once("\r\n").unwrap();
                assert_eq!(
                    head,
                    format!("event: {}", case["expect"]["first_event"].as_str().unwrap())
                );
                assert!(
                    data.starts_with("data: {") && data.ends_with("}\r\n\r\n"),
                    "{data}"
                );
            }
            other => panic!("{other} is not covered"),
        }
    }
}

#[tokio::test]
async fn distinct_queries_of_open_streams_are_limited() {
    let components = Components::new();
    let bus = bus(&components);
    let attach = async |number: usize| {
        let mut key = key(None);
        key.query.event_types = vec![format!("kind_{number}_event")];
        bus.attach(key, listener(), None).await
    };
    let mut streams = Vec::new();
    for number in 0..MAX_QUERIES {
        streams.push(attach(number).await.unwrap());
    }
    let rejected = attach(MAX_QUERIES).await.unwrap_err();
    assert!(matches!(rejected, AttachError::TooManyQueries), "{rejected}");
    let again = attach(0).await.unwrap();
    drop((streams.swap_remove(1), again));
    attach(MAX_QUERIES).await.unwrap();
}

#[tokio::test]
async fn the_read_only_user_leaves_queries_for_others() {
    let components = Components::new();
    let bus = bus(&components);
    let attach = async |number: usize, owner: Owner| {
        let mut key = key(None);
        key.query.event_types = vec![format!("kind_{number}_event")];
        let listener = Listener { owner, ..listener() };
        bus.attach(key, listener, None).await
    };
    let mut streams = Vec::new();
    let mut number = 0;
    let mut open = async |owner| {
        let mut count = 0;
        loop {
            match attach(number, owner).await {
                Ok(stream) => streams.push(stream),
                Err(rejected) => {
                    assert!(matches!(rejected, AttachError::TooManyQueries), "{rejected}");
                    return count;
                }
            }
            (count, number) = (count + 1, number + 1);
        }
    };
    assert_eq!(open(Owner::Reader).await, MAX_QUERIES / 2);
    assert_eq!(open(Owner::Anonymous).await, MAX_QUERIES / 4);
    assert_eq!(open(Owner::Full).await, MAX_QUERIES / 4);
    // A stream with the query of an open one needs no place.
    attach(0, Owner::Reader).await.unwrap();
}
