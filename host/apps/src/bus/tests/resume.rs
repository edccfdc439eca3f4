//! Streams that resume, alone and thousands at a time.

use super::*;

/// The ids of frames, without the term.
fn ids(text: &str) -> Vec<u64> {
    let ids = text.lines().filter_map(|line| line.strip_prefix("id: 7-"));
    ids.map(|id| id.parse().unwrap()).collect()
}

#[tokio::test]
async fn resumed_stream_gets_each_missed_event_once() {
    let components = Components::new();
    let bus = bus(&components);
    // No stream is open.
    for number in 0..600 {
        bus.publish(draft(number));
    }
    let mut live = bus.attach(key(None), listener(), None).await.unwrap();
    frames(&mut live, 1).await;
    for last in [0, 1, 299, 300, 599, 600] {
        let last_id = format!("7-{last}");
        let mut stream = bus.attach(key(None), listener(), Some(&last_id)).await.unwrap();
        for number in 0..10 {
            bus.publish(draft(number));
        }
        let until = bus.state().ring.next();
        let text = frames(&mut stream, (until - last - 1) as usize).await;
        assert_eq!(ids(&text), (last + 1..until).collect::<Vec<_>>(), "{last}");
        drop(stream);
    }
    let until = bus.state().ring.next();
    assert_eq!(
        ids(&frames(&mut live, (until - 602) as usize).await),
        (602..until).collect::<Vec<_>>()
    );
    assert_eq!(bus.shared.metrics.gaps.get(), 0);
}

/// Streams end after any event and resume, while events are published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_streams_that_resume_get_each_event_exactly_once() {
    const EVENTS: usize = 3000;
    const STREAMS: usize = 20;
    let components = Components::new();
    let bus = bus(&components);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..STREAMS {
        let bus = bus.clone();
        clients.spawn(async move {
            let mut seen = Vec::new();
            let mut last = "7-0".to_owned();
            let mut breaks = 0;
            while seen.len() < EVENTS {
                let mut stream = bus.attach(key(None), listener(), Some(&last)).await.unwrap();
                for _ in 0..=((breaks * 7 + client) % 5) {
                    let text = String::from_utf8(next(&mut stream).await.unwrap().to_vec()).unwrap();
                    seen.append(&mut numbers(&text));
                    if let Some(id) = ids(&text).last() {
                        last = format!("7-{id}");
                    }
                    if seen.len() >= EVENTS {
                        break;
                    }
                }
                breaks += 1;
            }
            seen
        });
    }
    for number in 0..EVENTS {
        bus.publish(draft(number));
        if number % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let expected: Vec<u64> = (0..EVENTS as u64).collect();
    while let Some(seen) = clients.join_next().await {
        assert_eq!(seen.unwrap(), expected);
    }
    assert_eq!(bus.shared.metrics.gaps.get(), 0);
}

#[tokio::test]
async fn stream_that_cannot_resume_begins_with_a_gap() {
    let components = Components::new();
    let settings = Events {
        buffer_events: NonZeroUsize::new(10).unwrap(),
        ..Events::default()
    };
    let bus = bus_with(&components, &settings);
    for number in 1..=30 {
        bus.publish(draft(number));
    }
    for (last, reason, now) in [
        ("7-5", "no longer in the buffer", false),
        ("6-25", "its term is 6, this one is 7", true),
        ("nonsense", "is not valid", true),
    ] {
        let next = bus.state().ring.next();
        let mut stream = bus.attach(key(None), listener(), Some(last)).await.unwrap();
        let first = if now { next } else { bus.state().ring.oldest() };
        let text = frames(&mut stream, 2).await;
        let gap = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let gap: Value = serde_json::from_str(gap).unwrap();
        let to = format!("7-{}", first - 1);
        assert_eq!(
            (&gap["eventType"], &gap["from"], &gap["to"]),
            (&json!("event_stream_gap"), &json!(last), &json!(to)),
            "{gap}"
        );
        assert!(gap["reason"].as_str().unwrap().contains(reason), "{gap}");
        assert!(gap["timestamp"].is_string());
        // The id of the gap itself is valid for the next attempt to resume.
        assert_eq!(ids(&text)[..2], [first - 1, first], "{text}");
    }
    assert_eq!(bus.shared.metrics.gaps.get(), 3);
    let mut plain = bus.attach(key(None), listener(), None).await.unwrap();
    assert!(!frames(&mut plain, 1).await.contains("event_stream_gap"));
}

/// A slow client receives past events at its own pace, and a gap for events that were evicted in
/// the meantime.
#[tokio::test]
async fn slow_resume_is_paced_and_reports_events_evicted_meanwhile() {
    let components = Components::new();
    let settings = Events {
        buffer_events: NonZeroUsize::new(20_000).unwrap(),
        ..Events::default()
    };
    let bus = bus_with(&components, &settings);
    for number in 0..20_000 {
        bus.publish(draft(number));
    }
    let mut stream = bus.attach(key(None), listener(), Some("7-1")).await.unwrap();
    wait_for("its queue is full", async || {
        bus.shared.metrics.delivered.get() as usize > stream::MAX_QUEUED_EVENTS - 512
    })
    .await;
    assert_eq!(
        bus.shared.metrics.closed.get(),
        0,
        "a stream that replays past events is not closed as slow"
    );
    let delivered = bus.shared.metrics.delivered.get();
    // All events that were not sent to it yet are evicted.
    for number in 0..20_000 {
        bus.publish(draft(number));
        if number % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let text = frames(&mut stream, delivered as usize + 1).await;
    let (before, after) = text.split_once("event: event_stream_gap").unwrap();
    let last = *ids(before).iter().rev().nth(1).unwrap();
    assert!(after.contains(&format!("\"from\":\"7-{last}\"")), "{after}");
    assert_eq!(bus.shared.metrics.gaps.get(), 1);
}

#[tokio::test]
async fn storm_of_streams_is_announced_at_most_ten_times_a_second() {
    let components = Components::new();
    let bus = bus(&components);
    let mut streams = Vec::new();
    let began = std::time::Instant::now();
    for _ in 0..1000 {
        streams.push(bus.attach(key(None), listener(), None).await.unwrap());
    }
    let seconds = began.elapsed().as_secs() + 1;
    let announced = bus.state().ring.next() - 1;
    assert!(
        announced >= 110 && announced <= 100 + 10 * (seconds + 1),
        "{announced}"
    );
    assert_eq!(bus.shared.metrics.unannounced.get(), 1000 - announced);
    assert_eq!(bus.shared.metrics.streams.get(), 1000);
    bus.publish(draft(1));
    for stream in &mut streams {
        while !next(stream)
            .await
            .is_some_and(|bytes| bytes.windows(10).any(|part| part == b"\"number\":1"))
        {}
    }
    drop(streams);
    assert_eq!(bus.shared.metrics.streams.get(), 0);
}

/// 5,000 clients resume together, as after an interruption of the network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_that_resume_together_share_the_decisions() {
    const STREAMS: u64 = 5000;
    let components = Components::new();
    let bus = bus(&components);
    for number in 0..1000 {
        bus.publish(draft(number));
    }
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        let last = format!("7-{}", 900 + index % 100);
        streams.push((
            index,
            bus.attach(key(None), listener(), Some(&last)).await.unwrap(),
        ));
    }
    for (index, stream) in &mut streams {
        let first = 901 + *index % 100;
        let text = frames(stream, (1001 - first) as usize).await;
        assert!(
            ids(&text)
                .into_iter()
                .take(2000)
                .eq(first..first + ids(&text).len() as u64)
        );
    }
    let batches = components.batches.load(Ordering::SeqCst);
    assert!(
        batches < STREAMS as usize / 4,
        "the component was called {batches} times"
    );
}
