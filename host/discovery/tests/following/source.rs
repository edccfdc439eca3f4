//! Where records come from: the event stream or polls of the state document.

use std::time::Duration;

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use transom_discovery::source::StreamTimeouts;
use transom_discovery::{Config, Settings, Source};

use crate::common::{Master, MasterScript, query, wait_until};
use crate::{document, every_second, snapshot, started, task};

#[tokio::test]
async fn master_without_stream_is_polled() {
    // A master that forbids the stream, and one that is too old.
    for rejection in [403, 404] {
        let mut state: Value = serde_json::from_str(include_str!("../fixtures/state-fixture.json")).unwrap();
        state["leader"] = json!("master@127.0.0.1:15050");
        let master = Master::start(MasterScript {
            document: Some(state),
            rejection,
            ..MasterScript::default()
        })
        .await;
        let discovery = master
            .followed(Config {
                settings: every_second(),
                stream_timeouts: StreamTimeouts {
                    not_found: Duration::ZERO,
                    ..StreamTimeouts::default()
                },
                ..Config::default()
            })
            .await;
        discovery.ready().await;
        assert_eq!(discovery.a("car-store.marathon.mesos.").await, ["1.2.3.11"]);
        master.set(|script| script.document = Some(document()));
        wait_until("the next document", async || {
            discovery.a("car-store.marathon.mesos.").await.is_empty()
        })
        .await;
        // The stream is not requested again with each poll.
        assert_eq!(master.subscribe_requests(), 1, "{rejection}");
        assert_eq!(discovery.sources(), [("stream", false), ("polling", true)]);
        discovery.stop().await;
    }
}

#[tokio::test]
async fn restarting_master_is_followed_again_without_polling() {
    let (master, discovery) = started(snapshot(1, &[task(0, "TASK_RUNNING")]), Settings::default()).await;
    assert_eq!(discovery.discovery.source(), Source::Stream);
    // The restarting master already serves a state document, which has no agents yet.
    master.set(|script| (script.snapshot, script.rejection) = (None, 404));
    let read = master.document_requests();
    master.hang_up();
    for (rejection, attempts) in [(404, 2), (503, 1)] {
        master.set(|script| script.rejection = rejection);
        let before = master.subscribe_requests();
        wait_until("more attempts", async || {
            master.subscribe_requests() >= before + attempts
        })
        .await;
        assert_eq!(
            discovery.a("web.marathon.mesos.").await,
            ["10.0.0.10"],
            "{rejection}"
        );
        assert_eq!(discovery.discovery.source(), Source::None);
        assert_eq!(discovery.sources(), [("stream", false), ("polling", false)]);
    }
    assert_eq!(
        master.document_requests(),
        read,
        "the state document was requested"
    );
    let back = snapshot(2, &[task(0, "TASK_RUNNING")]);
    master.set(|script| script.snapshot = Some(back));
    wait_until("the stream", async || {
        discovery.discovery.source() == Source::Stream
    })
    .await;
    assert_eq!(discovery.sources(), [("stream", true), ("polling", false)]);
    wait_until("the other agent", async || {
        discovery.a("slave.mesos.").await.len() == 2
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn master_that_keeps_answering_404_is_polled_until_it_has_a_stream() {
    let config = Config {
        settings: every_second(),
        stream_timeouts: StreamTimeouts {
            not_found: Duration::from_millis(500),
            retry: Duration::from_millis(300),
            ..StreamTimeouts::default()
        },
        ..Config::default()
    };
    let (master, discovery) = started(snapshot(1, &[]), config).await;
    let mut older = document();
    older["slaves"] = json!([{"id": "c1d2-S7", "pid": "slave(1)@10.0.0.17:5051", "hostname": "a"}]);
    master.set(|script| (script.snapshot, script.rejection, script.document) = (None, 404, Some(older)));
    master.hang_up();
    wait_until("a poll", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.17"]
    })
    .await;
    assert_eq!(discovery.discovery.source(), Source::Polling);
    assert_eq!(discovery.sources(), [("stream", false), ("polling", true)]);
    // The stream is retried during polling, which continues after each failed attempt.
    let before = master.subscribe_requests();
    wait_until("more attempts", async || {
        master.subscribe_requests() >= before + 2
    })
    .await;
    assert_eq!(discovery.discovery.source(), Source::Polling);
    master.set(|script| script.snapshot = Some(snapshot(1, &[])));
    wait_until("the stream", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert_eq!(discovery.discovery.source(), Source::Stream);
    assert_eq!(discovery.sources(), [("stream", true), ("polling", false)]);
    discovery.stop().await;
}

#[tokio::test]
async fn last_zone_stays_in_service_during_an_outage() {
    let (master, discovery) = started(snapshot(1, &[task(0, "TASK_RUNNING")]), Settings::default()).await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    master.set(|script| (script.snapshot, script.rejection, script.document) = (None, 503, None));
    master.hang_up();
    wait_until("attempts to follow again", async || {
        master.subscribe_requests() >= 3
    })
    .await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    assert_eq!(discovery.get("/v1/hosts/leader.mesos").await.0, 200);
    // The master returns with another task, which was added during the outage.
    let back = snapshot(1, &[task(0, "TASK_RUNNING"), task(1, "TASK_RUNNING")]);
    master.set(|script| (script.snapshot, script.document) = (Some(back), Some(document())));
    let services = async || {
        discovery
            .udp(&query("_web._tcp.marathon.mesos.", RecordType::SRV))
            .await
            .answers
            .len()
    };
    wait_until("the other task", async || services().await == 2).await;
    assert!(
        discovery
            .metrics()
            .contains("transom_discovery_reconnects_total 1"),
        "{}",
        discovery.metrics()
    );
    discovery.stop().await;
}
