//! Subscriptions against a server that sends awkward bytes: split anywhere, silent, truncated,
//! redirecting, rejecting.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::time::Duration;
use support::{
    LAST_CHUNK, ReceivedRequest, Server, Step, chunk, document, files, record_chunk, recorded, redirect,
    stream_head, text_answer,
};
use transom_cluster::scheduler::Event;
use transom_cluster::v1::{
    Capability, CapabilityType, Filters, FrameworkInfo, Operation, TaskInfo, TaskState, TaskStatus,
};
use transom_cluster::{AgentId, Client, Config, Credentials, Error, FrameworkId, OfferId, TaskId};

fn client(masters: &[&str]) -> Client {
    Client::new(config(masters)).unwrap()
}

fn config(masters: &[&str]) -> Config {
    Config {
        masters: masters.iter().map(|&master| master.to_owned()).collect(),
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

fn info() -> FrameworkInfo {
    FrameworkInfo {
        user: "root".into(),
        name: "alpha".into(),
        roles: vec!["alpha".into()],
        capabilities: vec![Capability::from(CapabilityType::MultiRole)],
        ..FrameworkInfo::default()
    }
}

fn subscribed(interval: f64) -> Value {
    json!({"type": "SUBSCRIBED", "subscribed": {
        "framework_id": {"value": "f-1"}, "heartbeat_interval_seconds": interval, "master_info": {"id": "m"},
    }})
}

fn heartbeat() -> Value {
    json!({"type": "HEARTBEAT"})
}

/// A server that accepts a subscription with these bytes after the head, and every call.
async fn master(after_head: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Server {
    Server::master(move |request: &ReceivedRequest| {
        if request.json()["type"] == "SUBSCRIBE" {
            let mut steps = vec![Step::Send(stream_head())];
            steps.extend(after_head());
            steps
        } else {
            text_answer("202 Accepted", "")
        }
    })
    .await
}

async fn all_events(events: &mut transom_cluster::scheduler::Stream) -> Vec<Event> {
    let mut received = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        received.push(event);
    }
    received
}

#[tokio::test]
async fn subscribe_sends_headers_principal_and_framework_id() {
    let server = master(|| vec![Step::Send(record_chunk(&subscribed(15.0))), Step::Silence]).await;
    let credentials = Some(Credentials {
        username: "ops".into(),
        password: "s3cret".into(),
    });
    let mut config = Config {
        principal: Some("ops".into()),
        credentials,
        ..config(&[&server.name()])
    };
    config.call_timeout = Duration::from_secs(10);
    let info = FrameworkInfo {
        id: Some("f-1".into()),
        ..info()
    };
    let subscription = Client::new(config).unwrap().subscribe(&info).await.unwrap();

    let request = &server.requests()[0];
    assert_eq!(request.line, "POST /api/v1/scheduler");
    assert_eq!(request.header("accept"), Some("application/json"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), Some("Basic b3BzOnMzY3JldA=="));
    assert_eq!(request.header("mesos-stream-id"), None);
    let expected = json!({"type": "SUBSCRIBE", "framework_id": {"value": "f-1"}, "subscribe": {"framework_info": {
        "user": "root", "name": "alpha", "id": {"value": "f-1"}, "roles": ["alpha"], "principal": "ops",
        "capabilities": [{"type": "MULTI_ROLE"}],
    }}});
    assert_eq!(request.json(), expected);
    assert_eq!(
        subscription.caller.framework_id(),
        Some(&FrameworkId::from("f-1"))
    );
    assert_eq!(subscription.caller.master(), format!("http://{}", server.name()));
}

#[tokio::test]
async fn event_is_returned_with_its_last_byte_while_the_stream_stays_open() {
    let offers = json!({"type": "OFFERS", "offers": {"offers": []}});
    let server = master(move || {
        let bytes = [record_chunk(&subscribed(15.0)), record_chunk(&offers)].concat();
        vec![Step::Trickle(bytes, 1), Step::Silence]
    })
    .await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    assert!(matches!(events.next().await.unwrap(), Some(Event::Subscribed(_))));
    assert_eq!(events.next().await.unwrap(), Some(Event::Offers(Vec::new())));
}

#[tokio::test]
async fn recorded_streams_are_read_in_small_and_large_chunks() {
    let mut count = 0;
    for path in files("stream.http.bin") {
        let bytes = std::fs::read(&path).unwrap();
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).to_lowercase();
        if !head.contains("mesos-stream-id") || bytes.len() > 40_000 {
            continue;
        }
        let name = path.to_str().unwrap();
        let recorded = document(name.replace(".http.bin", ".events.json").as_ref());
        // The recording ended some streams early; others were ended by the master.
        let ended = bytes.ends_with(LAST_CHUNK);
        for size in [7, 1000] {
            let bytes = bytes.clone();
            let server = Server::master(move |_| vec![Step::Trickle(bytes.clone(), size), Step::Close]).await;
            let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
            let mut seen = 0;
            let end = loop {
                match events.next().await {
                    Ok(Some(_)) => seen += 1,
                    Ok(None) => break true,
                    Err(Error::Broken { .. } | Error::Truncated { .. }) => break false,
                    Err(error) => panic!("{name}: {error:?}"),
                }
            };
            assert_eq!(
                (seen, end),
                (recorded.as_array().unwrap().len(), ended),
                "{name} by {size}"
            );
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} streams");
}

#[tokio::test]
async fn records_may_share_a_chunk_or_span_several() {
    let server = master(|| {
        let record = |event: &Value| transom_cluster::recordio::encode(event.to_string().as_bytes());
        let bytes = [
            record(&subscribed(15.0)),
            record(&heartbeat()),
            record(&heartbeat()),
        ]
        .concat();
        let (begin, end) = bytes.split_at(bytes.len() - 10);
        vec![Step::Send(
            [chunk(begin), chunk(end), LAST_CHUNK.to_vec()].concat(),
        )]
    })
    .await;
    let mut subscription = client(&[&server.name()]).subscribe(&info()).await.unwrap();
    let events = all_events(&mut subscription.events).await;
    assert_eq!(events.len(), 3);
    assert_eq!(events[2], Event::Heartbeat);
    // After the end further calls return none.
    assert_eq!(subscription.events.next().await.unwrap(), None);
}

#[tokio::test]
async fn silence_beyond_the_advertised_interval_is_an_error() {
    let server = master(|| vec![Step::Send(record_chunk(&subscribed(0.1))), Step::Silence]).await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    events.next().await.unwrap();
    let error = events.next().await.unwrap_err();
    assert!(
        matches!(error, Error::Silent { for_, .. } if for_ == Duration::from_millis(250)),
        "{error:?}"
    );
    assert!(error.is_transient());
    assert_eq!(
        error.to_string(),
        format!(
            "heartbeat timeout: http://{} has sent nothing for 0.25 s",
            server.name()
        )
    );
    assert_eq!(events.next().await.unwrap(), None);
}

#[tokio::test]
async fn silence_is_detected_by_repeated_short_polls() {
    let server = master(|| vec![Step::Send(record_chunk(&subscribed(0.1))), Step::Silence]).await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    events.next().await.unwrap();
    let polling = async {
        loop {
            // Each poll is shorter than the heartbeat timeout.
            if let Ok(outcome) = tokio::time::timeout(Duration::from_millis(20), events.next()).await {
                break outcome;
            }
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(10), polling)
        .await
        .unwrap();
    assert!(matches!(outcome, Err(Error::Silent { .. })), "{outcome:?}");
}

#[tokio::test]
async fn heartbeats_keep_a_stream_alive() {
    let server = master(|| {
        let mut steps = vec![Step::Send(record_chunk(&subscribed(0.4)))];
        for _ in 0..8 {
            steps.extend([
                Step::Wait(Duration::from_millis(150)),
                Step::Send(record_chunk(&heartbeat())),
            ]);
        }
        steps.push(Step::Send(LAST_CHUNK.to_vec()));
        steps
    })
    .await;
    // The stream lasts 1,200 ms, longer than the heartbeat timeout of 1,000 ms.
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    assert_eq!(all_events(&mut events).await.len(), 9);
}

#[tokio::test]
async fn truncated_stream_is_an_error() {
    let half = record_chunk(&heartbeat());
    for (last_bytes, within_record) in [(Vec::new(), false), (half[..half.len() / 2].to_vec(), true)] {
        let server = master(move || {
            vec![
                Step::Send(record_chunk(&subscribed(15.0))),
                Step::Send(last_bytes.clone()),
                Step::Close,
            ]
        })
        .await;
        let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
        events.next().await.unwrap();
        let error = events.next().await.unwrap_err();
        assert!(
            matches!(error, Error::Broken { .. }),
            "{within_record}: {error:?}"
        );
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn an_end_within_a_record_is_an_error() {
    let server = master(|| {
        vec![Step::Send(
            [chunk(b"20\n{\"type\""), LAST_CHUNK.to_vec()].concat(),
        )]
    })
    .await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    assert!(matches!(events.next().await, Err(Error::Truncated { have: 7 })));
}

#[tokio::test]
async fn stream_without_recordio_framing_ends_with_an_error() {
    let server = master(|| {
        vec![Step::Send(
            [chunk(b"<html>"), record_chunk(&heartbeat()), LAST_CHUNK.to_vec()].concat(),
        )]
    })
    .await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    assert!(matches!(events.next().await, Err(Error::BadRecordLength { .. })));
    assert_eq!(events.next().await.unwrap(), None);
}

#[tokio::test]
async fn invalid_event_does_not_end_the_stream() {
    let server = master(|| {
        let events = [subscribed(15.0), json!({"type": "UPDATE"}), heartbeat()];
        vec![Step::Send(
            [
                events.iter().flat_map(record_chunk).collect(),
                LAST_CHUNK.to_vec(),
            ]
            .concat(),
        )]
    })
    .await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    events.next().await.unwrap();
    assert!(matches!(events.next().await, Err(Error::Incomplete { .. })));
    assert_eq!(events.next().await.unwrap(), Some(Event::Heartbeat));
    assert_eq!(events.next().await.unwrap(), None);
}

#[tokio::test]
async fn rejected_framework_gets_an_error_event_with_the_reason() {
    let server =
        Server::master(|_| vec![Step::Send(recorded("1-main/13-resubscribe-removed.http.bin"))]).await;
    let mut events = client(&[&server.name()]).subscribe(&info()).await.unwrap().events;
    assert_eq!(
        all_events(&mut events).await,
        [Event::Error("Framework has been removed".into())]
    );
}

#[tokio::test]
async fn subscription_without_a_stream_id_is_an_error() {
    let server = Server::master(|_| {
        vec![Step::Send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        )]
    })
    .await;
    let error = client(&[&server.name()]).subscribe(&info()).await.unwrap_err();
    assert!(
        error.to_string().ends_with("lacks the header Mesos-Stream-Id"),
        "{error}"
    );
}

#[tokio::test]
async fn calls_carry_the_stream_id_on_separate_connections() {
    let server = master(|| vec![Step::Send(record_chunk(&subscribed(15.0))), Step::Silence]).await;
    let mut subscription = client(&[&server.name()]).subscribe(&info()).await.unwrap();
    let caller = subscription.caller.clone();
    let early = caller.revive().await.unwrap_err();
    assert!(
        matches!(early, Error::NotSubscribed { call: "REVIVE" }),
        "{early:?}"
    );
    subscription.events.next().await.unwrap();

    let status = TaskStatus {
        task_id: "t".into(),
        state: TaskState::Running,
        agent_id: Some("a".into()),
        uuid: Some("1j28FfutT3eTzOJQizI0cQ==".into()),
        ..TaskStatus::default()
    };
    let task = TaskInfo {
        name: "t".into(),
        task_id: "t".into(),
        agent_id: "a".into(),
        ..TaskInfo::default()
    };
    let offers = || vec![OfferId::from("o-1"), OfferId::from("o-2")];
    let (task_id, agent_id) = (TaskId::from("t"), AgentId::from("a"));
    let second = Filters::refuse(Duration::from_secs(1));
    caller
        .accept(offers(), vec![Operation::launch(vec![task])], second.clone())
        .await
        .unwrap();
    caller.decline(offers(), second).await.unwrap();
    caller.revive().await.unwrap();
    caller.suppress().await.unwrap();
    let roles = ["a/b".to_owned()];
    caller.revive_roles(&roles).await.unwrap();
    caller.suppress_roles(&roles).await.unwrap();
    let wider = FrameworkInfo {
        roles: vec!["a".to_owned(), "a/b".to_owned()],
        ..info()
    };
    caller.update_framework(&wider, &roles).await.unwrap();
    caller.kill(task_id.clone(), None, None).await.unwrap();
    caller
        .kill(
            task_id.clone(),
            Some(agent_id.clone()),
            Some(Duration::from_secs(3)),
        )
        .await
        .unwrap();
    caller.acknowledge(&status).await.unwrap();
    caller
        .acknowledge(&TaskStatus {
            uuid: None,
            ..status.clone()
        })
        .await
        .unwrap();
    caller
        .reconcile(vec![(task_id.clone(), Some(agent_id)), (task_id, None)])
        .await
        .unwrap();
    caller.reconcile(Vec::new()).await.unwrap();
    caller.teardown().await.unwrap();

    let offer_ids = json!([{"value": "o-1"}, {"value": "o-2"}]);
    let task = json!({"name": "t", "task_id": {"value": "t"}, "agent_id": {"value": "a"}});
    let expected = [
        json!({"type": "ACCEPT", "accept": {"offer_ids": offer_ids, "filters": {"refuse_seconds": 1.0},
            "operations": [{"type": "LAUNCH", "launch": {"task_infos": [task]}}]}}),
        json!({"type": "DECLINE", "decline": {"offer_ids": offer_ids, "filters": {"refuse_seconds": 1.0}}}),
        json!({"type": "REVIVE"}),
        json!({"type": "SUPPRESS"}),
        json!({"type": "REVIVE", "revive": {"roles": ["a/b"]}}),
        json!({"type": "SUPPRESS", "suppress": {"roles": ["a/b"]}}),
        json!({"type": "UPDATE_FRAMEWORK", "update_framework": {
            "framework_info": FrameworkInfo { id: Some("f-1".into()), ..wider },
            "suppressed_roles": ["a/b"]}}),
        json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}}),
        json!({"type": "KILL", "kill": {"task_id": {"value": "t"}, "agent_id": {"value": "a"},
            "kill_policy": {"grace_period": {"nanoseconds": 3_000_000_000_u64}}}}),
        json!({"type": "ACKNOWLEDGE", "acknowledge": {"agent_id": {"value": "a"}, "task_id": {"value": "t"},
            "uuid": "1j28FfutT3eTzOJQizI0cQ=="}}),
        json!({"type": "RECONCILE", "reconcile": {"tasks": [
            {"task_id": {"value": "t"}, "agent_id": {"value": "a"}}, {"task_id": {"value": "t"}}]}}),
        json!({"type": "RECONCILE", "reconcile": {"tasks": []}}),
        json!({"type": "TEARDOWN"}),
    ];
    let requests = server.requests();
    assert_eq!(requests.len(), 1 + expected.len());
    let stream = requests[0].connection;
    for (request, mut expected) in requests[1..].iter().zip(expected) {
        expected["framework_id"] = json!({"value": "f-1"});
        assert_eq!(request.json(), expected);
        assert_eq!(request.line, "POST /api/v1/scheduler");
        assert_eq!(request.header("mesos-stream-id"), Some("stream-7"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_ne!(
            request.connection, stream,
            "a call used the subscription's connection"
        );
    }
}

#[tokio::test]
async fn dropping_a_subscription_closes_its_connection() {
    let server = master(|| vec![Step::Send(record_chunk(&subscribed(15.0))), Step::Silence]).await;
    let mut subscription = client(&[&server.name()]).subscribe(&info()).await.unwrap();
    subscription.events.next().await.unwrap();
    drop(subscription);
    server.closed(1).await;
}

#[tokio::test]
async fn rejected_call_returns_status_and_text() {
    for (file, status, text) in [
        (
            "1-main/12-disconnected-call.raw",
            403,
            "Framework is not subscribed",
        ),
        ("5-misc/ack-bad-uuid.raw", 400, "Not a valid UUID"),
        (
            "3-auth/call-other-principal.raw",
            400,
            "Authenticated principal 'ops' does not match",
        ),
    ] {
        let rejection = recorded(file);
        let server = Server::master(move |request| {
            if request.json()["type"] == "SUBSCRIBE" {
                return vec![
                    Step::Send([stream_head(), record_chunk(&subscribed(15.0))].concat()),
                    Step::Silence,
                ];
            }
            vec![Step::Send(rejection.clone())]
        })
        .await;
        let mut subscription = client(&[&server.name()]).subscribe(&info()).await.unwrap();
        subscription.events.next().await.unwrap();
        let error = subscription.caller.revive().await.unwrap_err();
        let Error::Rejected {
            call,
            status: found,
            body,
        } = &error
        else {
            panic!("{file}: {error:?}")
        };
        assert_eq!((call.as_str(), *found), ("REVIVE", status));
        assert!(body.contains(text), "{file}: {body}");
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn call_to_a_former_leader_returns_not_leader() {
    let server = Server::master(|request| {
        if request.json()["type"] == "SUBSCRIBE" {
            return vec![
                Step::Send([stream_head(), record_chunk(&subscribed(15.0))].concat()),
                Step::Silence,
            ];
        }
        redirect("//localhost:5060/master/api/v1/scheduler")
    })
    .await;
    let mut subscription = client(&[&server.name()]).subscribe(&info()).await.unwrap();
    subscription.events.next().await.unwrap();
    let error = subscription.caller.revive().await.unwrap_err();
    let leader = "//localhost:5060/master/api/v1/scheduler";
    assert!(
        matches!(&error, Error::NotLeader { leader: found, .. } if found == leader),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_leader_is_found_by_redirect_and_gets_the_calls() {
    let leader = Server::master(|request| {
        if request.json()["type"] == "SUBSCRIBE" {
            return vec![
                Step::Send([stream_head(), record_chunk(&subscribed(15.0))].concat()),
                Step::Silence,
            ];
        }
        text_answer("202 Accepted", "")
    })
    .await;
    let location = format!("//{}/master/api/v1/scheduler", leader.name());
    let follower = Server::master(move |_| redirect(&location)).await;
    let mut subscription = client(&[&follower.name()]).subscribe(&info()).await.unwrap();
    subscription.events.next().await.unwrap();
    subscription.caller.revive().await.unwrap();
    assert_eq!(follower.requests().len(), 1);
    let lines: Vec<_> = leader
        .requests()
        .into_iter()
        .map(|request| request.line)
        .collect();
    assert_eq!(
        lines,
        ["POST /master/api/v1/scheduler", "POST /master/api/v1/scheduler"]
    );
}
