//! Calls are recorded: with their answers or faults, without secrets, and within limits.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use transom_plugin_host::{
    CallRecord, CommandError, Config, RecordedCalls, Recording,
    events::{Event, OpenError, Query},
};

use crate::support::Site;

/// The folder of the log. Scans of the plugin directory ignore it.
pub(crate) const LOG: &str = ".calls";

/// Records all calls.
pub(crate) fn record(config: &mut Config) {
    config.recording = Some(Recording {
        sample_percent: 100,
        ..Recording::new(config.dir.join(LOG))
    });
}

pub(crate) fn manifest(more: &str) -> String {
    format!("world = \"event-filter\"\n{more}\n[limits]\nmemory = \"16MiB\"\ninstances = 1\n")
}

pub(crate) const NAME: &str = "faulty-events";
pub(crate) const SOURCE: &str = "tests/faulty-events";

/// A plugin host with a recorded filter.
pub(crate) async fn filter(more: &str, change: impl FnOnce(&mut Config)) -> Site {
    let set = |config: &mut Config| {
        record(config);
        change(config);
    };
    Site::with_config(&[(SOURCE, NAME, Some(&manifest(more)))], set).await
}

pub(crate) fn event(sequence: u64, kind: &str, body: &Value) -> Event {
    Event {
        sequence,
        kind: kind.to_owned(),
        subject: Some("/shop/web".to_owned()),
        body: body.to_string(),
    }
}

/// Makes the filter decide one event of each kind.
pub(crate) async fn decide(site: &Site, kinds: &[&str]) -> Result<usize, OpenError> {
    let view = site.plugins.open_view(Query::default()).await?;
    let events: Vec<Event> = (1..)
        .zip(kinds)
        .map(|(at, kind)| event(at, kind, &json!({"a": 1})))
        .collect();
    Ok(view.decide(&events).await?.len())
}

pub(crate) async fn calls(site: &Site) -> RecordedCalls {
    let hour = Duration::from_hours(1);
    site.plugins.recorded_calls(NAME, hour, 1000).await.unwrap()
}

fn names(calls: &RecordedCalls) -> Vec<&str> {
    calls.calls.iter().map(|it| it.call.as_str()).collect()
}

fn results(site: &Site, result: &str) -> u64 {
    let label = format!("result=\"{result}\"");
    site.sum("transom_plugins_recorded_calls_total", &[&label])
}

/// All files of the log as one text.
fn text_of(dir: &Path) -> String {
    let folder = dir.join(LOG).join(NAME);
    let files = std::fs::read_dir(folder).unwrap();
    files
        .map(|it| std::fs::read_to_string(it.unwrap().path()).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_recorded_with_their_answers_and_faults() {
    let site = filter("config = { trap_on = [\"b\"], mark = \"v1\" }", |_| ()).await;
    assert_eq!(decide(&site, &["a", "c"]).await, Ok(2));
    assert!(decide(&site, &["b"]).await.is_err());
    let rejected = Query {
        expression: Some("reject".to_owned()),
        ..Query::default()
    };
    assert!(site.plugins.open_view(rejected).await.is_err());
    let recorded = calls(&site).await;
    assert_eq!(names(&recorded), ["open", "decide", "open", "decide", "open"]);
    assert_eq!((recorded.damaged, recorded.more), (0, false));
    let [opened, decided, _, trapped, rejected] = recorded.calls.as_slice() else {
        panic!("{recorded:?}");
    };
    assert_eq!(Value::Object(opened.case.clone()), json!({"expect": []}));
    assert_eq!(decided.case["events"][1]["kind"], "c");
    assert_eq!(decided.case["expect"][0]["replace"]["mark"], "v1");
    let status = site.status(NAME);
    let CallRecord {
        plugin,
        digest,
        version,
        world,
        interface,
        ..
    } = decided;
    assert_eq!(
        (plugin.as_str(), Some(digest), Some(version)),
        (NAME, status.digest.as_ref(), status.version.as_ref())
    );
    assert_eq!((world.as_str(), interface.as_str()), ("event-filter", "0.1.0"));
    assert!(decided.micros > 0 && decided.memory > 0, "{decided:?}");
    assert!(
        trapped.fault.as_ref().is_some_and(|it| it.contains("trapped")),
        "{trapped:?}"
    );
    assert!(!trapped.case.contains_key("expect"), "{trapped:?}");
    assert_eq!(rejected.case["refused"], true);
    assert_eq!(results(&site, "recorded"), 5);

    // After a restart the records still exist. Calls of another name do not include them.
    let site = site.restart(|_| (), record).await;
    assert_eq!(calls(&site).await.calls.len(), 5);
    let unknown = site
        .plugins
        .recorded_calls("../faulty-events", Duration::from_hours(1), 9)
        .await;
    assert!(
        matches!(unknown, Err(CommandError::Unknown { .. })),
        "{unknown:?}"
    );
    let newest = site
        .plugins
        .recorded_calls(NAME, Duration::from_hours(1), 2)
        .await
        .unwrap();
    assert_eq!((names(&newest), newest.more), (vec!["decide", "open"], true));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_not_in_the_log() {
    const SECRET: &str = "hunter2-hunter2";
    let site = filter(&format!("config = {{ token = \"{SECRET}\" }}"), |_| ()).await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    // Three cases: the secret is in an answer, under the name of its property, and as its value in
    // another text.
    view.decide(&[event(1, "a", &json!({"a": 1}))]).await.unwrap();
    view.decide(&[event(
        2,
        "b",
        &json!({"env": {"TOKEN": "another-secret"}, "eventType": "b", "timestamp": "t"}),
    )])
    .await
    .unwrap();
    view.decide(&[event(3, "c", &json!({"cmd": format!("run --with {SECRET}")}))])
        .await
        .unwrap();
    let recorded = calls(&site).await;
    let [_, answer, by_name, by_value] = recorded.calls.as_slice() else {
        panic!("{recorded:?}");
    };
    assert_eq!(answer.case["expect"][0]["replace"]["mark"], "********");
    assert!(answer.masked_answer && !answer.masked_call, "{answer:?}");
    assert_eq!(by_name.case["events"][0]["body"]["env"]["TOKEN"], "********");
    assert!(by_name.masked_call && by_value.masked_call);
    let text = text_of(site.dir.path());
    assert!(text.contains("********") && text.contains("run --with"), "{text}");
    assert!(
        !text.contains("hunter2") && !text.contains("another-secret"),
        "{text}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_can_be_off_for_a_plugin_and_for_all() {
    let site = filter("record = false", |_| ()).await;
    decide(&site, &["a"]).await.unwrap();
    let hour = Duration::from_hours(1);
    let rejected = site.plugins.recorded_calls(NAME, hour, 10).await.unwrap_err();
    assert!(
        rejected.to_string().contains("record = false in its manifest"),
        "{rejected}"
    );
    // Recording is on from the next version.
    site.replace(SOURCE, NAME, &manifest("record = true")).await;
    decide(&site, &["a"]).await.unwrap();
    assert_eq!(calls(&site).await.calls.len(), 2);
    let site = site.restart(|_| (), |config| config.recording = None).await;
    let rejected = site.plugins.recorded_calls(NAME, hour, 10).await.unwrap_err();
    assert!(
        rejected.to_string().contains("plugins.recording.enabled"),
        "{rejected}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_sample_and_large_ones_are_not_recorded() {
    let site = filter("", |config| {
        let recording = config.recording.as_mut().unwrap();
        recording.sample_percent = 50;
        recording.max_record = 4 << 10;
    })
    .await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    for sequence in 1..100 {
        view.decide(&[event(sequence, "a", &json!({}))]).await.unwrap();
    }
    assert_eq!(calls(&site).await.calls.len(), 50);
    // One body is too large before it is queued. The other one becomes too large in the record,
    // where it is escaped.
    for body in ["x".repeat(5 << 10), "\u{1}".repeat(620)] {
        for sequence in 0..2 {
            view.decide(&[event(sequence, "a", &json!({"a": body}))])
                .await
                .unwrap();
        }
    }
    assert_eq!(calls(&site).await.calls.len(), 50);
    assert_eq!((results(&site, "too-large"), results(&site, "recorded")), (2, 50));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn size_of_the_log_is_limited() {
    let site = filter("", |config| {
        let recording = config.recording.as_mut().unwrap();
        recording.max_size = Recording::MIN_SIZE;
    })
    .await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    let body = json!({"a": "x".repeat(20_000)});
    for sequence in 0..150 {
        view.decide(&[event(sequence, "a", &body)]).await.unwrap();
        // The queue is smaller than the number of calls, so that it is flushed in between.
        if sequence % 50 == 0 {
            calls(&site).await;
        }
    }
    let recorded = calls(&site).await;
    let written = text_of(site.dir.path()).len() as u64;
    assert!(
        written <= Recording::MIN_SIZE && written > Recording::MIN_SIZE / 2,
        "{written}"
    );
    let newest = recorded.calls.last().unwrap();
    assert_eq!(newest.case["events"][0]["sequence"], 149);
    assert!(recorded.calls.len() < 60, "{}", recorded.calls.len());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwritable_log_does_not_fail_calls() {
    let site = filter("", |config| {
        let recording = config.recording.as_mut().unwrap();
        std::fs::write(config.dir.join("no-folder"), "").unwrap();
        recording.dir = config.dir.join("no-folder");
    })
    .await;
    assert_eq!(decide(&site, &["a"]).await, Ok(1));
    // Reading waits until the call is written.
    let rejected = site
        .plugins
        .recorded_calls(NAME, Duration::from_hours(1), 10)
        .await;
    assert!(
        matches!(rejected, Err(CommandError::Unreadable { .. })),
        "{rejected:?}"
    );
    assert_eq!((results(&site, "failed"), results(&site, "recorded")), (2, 0));
    site.stop().await;
}
