//! Streams without HTTP.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;

use super::*;
use crate::testing::{Components, PATIENCE, until};

fn bus(components: &Arc<Components>) -> Bus {
    let policies: Arc<dyn Policies> = components.clone();
    Bus::new(
        7,
        policies,
        Metrics::default(),
        TaskTracker::new(),
        CancellationToken::new(),
    )
}

fn wish(expression: Option<&str>) -> Wish {
    let query = Query {
        expression: expression.map(str::to_owned),
        ..Query::default()
    };
    Wish {
        query,
        light: false,
        ids: true,
    }
}

fn listener() -> Listener {
    Listener {
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
        light: None,
    }
}

async fn next(subscription: &mut Subscription) -> Option<Bytes> {
    tokio::time::timeout(PATIENCE, subscription.next())
        .await
        .expect("nothing comes")
        .map(Result::unwrap)
}

/// Reads until so many frames came; returns the text.
async fn frames(subscription: &mut Subscription, count: usize) -> String {
    let mut text = String::new();
    while text.matches("event: ").count() < count {
        text.push_str(std::str::from_utf8(&next(subscription).await.expect("the stream ended")).unwrap());
    }
    text
}

#[tokio::test]
async fn everybody_gets_everything_in_order_through_one_view() {
    let components = Components::new();
    let bus = bus(&components);
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(bus.attach(wish(None), listener()).await.unwrap());
    }
    for number in 0..50 {
        bus.publish(draft(number));
    }
    for (index, stream) in streams.iter_mut().enumerate() {
        // Each sees its own arrival first, then those of later ones.
        let attached = 3 - index;
        let text = frames(stream, attached + 50).await;
        let ids: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("id: 7-"))
            .collect();
        let expected: Vec<String> = (index + 1..=53).map(|id| id.to_string()).collect();
        assert_eq!(ids, expected, "ids grow by one");
        assert!(text.contains("\"number\":49"));
    }
    assert_eq!(components.views.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_event_that_is_published_while_the_first_stream_attaches_reaches_it_whole() {
    let components = Components::new();
    let bus = bus(&components);
    let event = draft(1);
    // Nobody listens yet, so there is no text; then somebody attaches, and only then is the event sent.
    let texts = bus.is_heard().then(|| Texts::of(&event));
    assert!(texts.is_none());
    let mut stream = bus.attach(wish(None), listener()).await.unwrap();
    bus.number_and_send(event, texts);
    let text = frames(&mut stream, 2).await;
    assert!(text.contains("\"number\":1"), "{text}");
}

#[tokio::test]
async fn thousands_of_events_go_through_in_batches() {
    const EVENTS: usize = 5000;
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(wish(None), listener()).await.unwrap();
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
        "the component is asked about batches"
    );
}

#[tokio::test]
async fn who_reads_too_slowly_is_told_and_closed() {
    let components = Components::new();
    let bus = bus(&components);
    let mut slow = bus.attach(wish(None), listener()).await.unwrap();
    let mut other = bus
        .attach(
            Wish {
                ids: false,
                ..wish(None)
            },
            listener(),
        )
        .await
        .unwrap();
    let mut heard = 0;
    for number in 0..3000 {
        bus.publish(draft(number));
        if number % 100 == 99 {
            heard += frames(&mut other, 50).await.matches("event: ").count();
        }
    }
    until("the slow one is closed", async || {
        bus.shared.metrics.closed.get() == 1
    })
    .await;
    let mut text = String::new();
    while let Some(bytes) = next(&mut slow).await {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    let frames = text.matches("event: ").count();
    assert!(
        (2..=stream::MOST_WAITING + 256).contains(&frames),
        "{frames} were kept for it"
    );
    assert!(
        text.ends_with("\r\n\r\n") && text.contains(": this client reads too slowly"),
        "it is told why"
    );
    assert!(heard >= 1500, "nobody else suffers");
}

#[tokio::test]
async fn replacements_keep_kind_and_time() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(wish(Some("replace")), listener()).await.unwrap();
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
async fn leaving_is_told_to_those_who_stay() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stays = bus.attach(wish(None), listener()).await.unwrap();
    let leaves = bus.attach(wish(None), listener()).await.unwrap();
    frames(&mut stays, 2).await;
    drop(leaves);
    assert!(frames(&mut stays, 1).await.contains("event_stream_detached"));
    drop(stays);
    until("nothing is left", async || {
        bus.state().groups.is_empty() && bus.shared.events.receiver_count() == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_shows_that_it_lives() {
    let components = Components::new();
    let bus = bus(&components);
    let mut stream = bus.attach(wish(None), listener()).await.unwrap();
    frames(&mut stream, 1).await;
    let began = tokio::time::Instant::now();
    assert_eq!(next(&mut stream).await.unwrap(), "\r\n");
    assert_eq!(began.elapsed().as_secs(), 10);
}

/// What a subscriber of `query` gets of the kinds `published`, after its own arrival.
async fn received(query: &[&str], light: bool, published: &[&'static str]) -> Vec<String> {
    let components = Components::new();
    let bus = bus(&components);
    let event_types = query.iter().map(|kind| (*kind).to_owned()).collect();
    let wish = Wish {
        query: Query {
            event_types,
            ..Query::default()
        },
        light,
        ids: false,
    };
    let stream = bus.attach(wish, listener()).await.unwrap();
    for kind in published {
        bus.publish(Draft { kind, ..draft(0) });
    }
    until("all is decided", async || {
        bus.shared.metrics.published.get() == published.len() as u64 + 1 && bus.shared.events.is_empty()
    })
    .await;
    // The group may still be at its last batch; stopping waits for it and ends the stream.
    bus.shared.token.cancel();
    bus.shared.tracker.close();
    tokio::time::timeout(PATIENCE, bus.shared.tracker.wait())
        .await
        .unwrap();
    let text: Vec<Bytes> = stream.map(Result::unwrap).collect().await;
    let text = String::from_utf8(text.concat()).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("event: ").map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn fixtures() {
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
                assert_eq!(light, plain, "it changes plans only, never which events come");
            }
            // Status, content type and the first event are replayed over HTTP, with the API's tests; the keep-alive above.
            "sse/frame" => {
                let components = Components::new();
                let bus = bus(&components);
                let mut stream = bus
                    .attach(
                        Wish {
                            ids: false,
                            ..wish(None)
                        },
                        listener(),
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
