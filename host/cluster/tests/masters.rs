//! Requests to masters: lists, redirects, elections, documents, credentials, deadlines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::json;
use std::time::Duration;
use support::{Server, Step, config, error_text, json_answer, recorded, redirect, text_answer};
use transom_cluster::{Client, Config, Credentials, Error};

fn client(masters: &[String]) -> Client {
    Client::new(config(masters)).unwrap()
}

/// An address without a listener.
async fn unused_address() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn unreachable_master_is_reported_with_its_address_and_a_hint() {
    let unused_address = unused_address().await;
    let error = client(std::slice::from_ref(&unused_address))
        .version()
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { source, .. } if source.is_connect()),
        "{error:?}"
    );
    assert!(error.is_transient());
    let text = error_text(&error);
    assert!(
        text.starts_with(&format!(
            "http://{unused_address} cannot be reached; check that the address is right"
        )),
        "{text}"
    );
    assert!(text.contains("Connection refused"), "{text}");
}

#[tokio::test]
async fn masters_are_tried_in_turn_and_the_working_one_first_next_time() {
    let server = Server::start(|_| json_answer(&json!({"version": "1.11.0"}))).await;
    let busy = Server::with_answer(recorded("10-zookeeper/noleader-POST_api_v1.raw")).await;
    let client = client(&[unused_address().await, busy.name(), server.name()]);
    assert_eq!(client.version().await.unwrap(), "1.11.0");
    assert_eq!(client.clone().version().await.unwrap(), "1.11.0");
    assert_eq!((busy.requests().len(), server.requests().len()), (1, 2));
}

#[tokio::test]
async fn error_names_all_masters_when_none_is_reachable() {
    let masters = [unused_address().await, unused_address().await];
    let error = client(&masters).get_agents().await.unwrap_err();
    assert!(error.is_transient());
    let text = error_text(&error);
    for master in &masters {
        assert!(text.contains(master.as_str()), "{text}");
    }
    assert!(text.contains("check [cluster] master"), "{text}");
}

#[tokio::test]
async fn missing_leader_and_recovery_are_transient_errors() {
    for (file, text) in [
        ("10-zookeeper/noleader-POST_api_v1.raw", "No leader elected"),
        (
            "10-zookeeper/recovering-POST_api_v1.raw",
            "Master has not finished recovery",
        ),
    ] {
        let server = Server::with_answer(recorded(file)).await;
        let error = client(&[server.name()]).get_state().await.unwrap_err();
        assert!(
            matches!(&error, Error::NotReady { body, .. } if body.contains(text)),
            "{error:?}"
        );
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn response_404_is_a_transient_error_and_the_next_master_is_tried() {
    let starting = Server::with_answer(recorded("1-main/07-err-unknown-path.raw")).await;
    let alone = client(&[starting.name()]);
    let info = transom_cluster::v1::FrameworkInfo::default();
    let errors = [
        alone.get_state().await.unwrap_err(),
        alone.watch().await.unwrap_err(),
        alone.subscribe(&info).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_transient() && error.is_not_found(), "{error:?}");
        let text = error_text(&error);
        let named = format!("http://{} answers 404 to ", starting.name());
        assert!(
            text.starts_with(&named) && text.contains("still starting"),
            "{text}"
        );
    }
    let server = Server::start(|_| json_answer(&json!({"version": "1.11.0"}))).await;
    let both = client(&[starting.name(), server.name()]);
    assert_eq!(both.version().await.unwrap(), "1.11.0");
}

#[tokio::test]
async fn error_of_several_masters_prefers_not_ready_over_not_found() {
    let starting = Server::with_answer(recorded("1-main/07-err-unknown-path.raw")).await;
    let recovering = Server::with_answer(recorded("10-zookeeper/recovering-POST_api_v1.raw")).await;
    let (unused_address, starting, recovering) = (unused_address().await, starting.name(), recovering.name());
    for (masters, not_ready, not_found) in [
        ([&starting, &unused_address], false, true),
        ([&unused_address, &starting], false, true),
        ([&recovering, &unused_address], true, false),
        ([&recovering, &starting], true, false),
        ([&starting, &recovering], true, false),
    ] {
        let error = client(&masters.map(Clone::clone)).get_state().await.unwrap_err();
        assert!(matches!(error, Error::NoMaster { .. }), "{error:?}");
        assert_eq!(
            (error.is_not_ready(), error.is_not_found()),
            (not_ready, not_found),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn documents_are_read_as_recorded() {
    let server = Server::start(|request| {
        let file = match (request.line.as_str(), request.body.is_empty()) {
            ("GET /state", _) => "1-main/05-2fw_state.raw",
            ("GET /version", _) => "1-main/01-0fw_version.raw",
            ("POST /api/v1", false) => match request.json()["type"].as_str().unwrap() {
                "GET_STATE" => "1-main/05-2fw-v1-GET_STATE.raw",
                "GET_AGENTS" => "1-main/05-2fw-v1-GET_AGENTS.raw",
                "GET_TASKS" => "1-main/05-2fw-v1-GET_TASKS.raw",
                other => panic!("unexpected call: {other}"),
            },
            other => panic!("unexpected request: {other:?}"),
        };
        vec![Step::Trickle(recorded(file), 997)]
    })
    .await;
    let client = client(&[server.name()]);
    assert_eq!(client.version().await.unwrap(), "1.11.0");
    let state = client.state().await.unwrap();
    assert_eq!(
        (state.leader.as_deref(), state.slaves.len()),
        (Some("master@127.0.0.1:5050"), 1)
    );
    assert_eq!(
        state
            .frameworks
            .iter()
            .map(|framework| &*framework.name)
            .collect::<Vec<_>>(),
        ["beta", "alpha"]
    );
    let agents = client.get_agents().await.unwrap().agents;
    assert_eq!(agents[0].pid.as_deref(), Some("slave(1)@127.0.0.1:5051"));
    let tasks = client.get_tasks().await.unwrap();
    let all = client.get_state().await.unwrap();
    assert!(!tasks.tasks.is_empty());
    assert_eq!(all.get_tasks.unwrap().tasks.len(), tasks.tasks.len());
}

#[tokio::test]
async fn old_masters_are_rejected() {
    let server = Server::start(move |_| json_answer(&json!({"version": "1.11.0"}))).await;
    let found = client(&[server.name()]).supported_version().await;
    assert_eq!(found.unwrap(), "1.11.0");

    // The follower redirects to the leader, which is too old.
    let leader = Server::start(move |_| json_answer(&json!({"version": "1.5.3"}))).await;
    let location = format!("//{}/master/api/v1/scheduler", leader.name());
    let follower = Server::master(move |_| redirect(&location)).await;
    let expected = format!(
        "the cluster manager at http://{} has version 1.5.3; the minimum is 1.6.0",
        leader.name()
    );
    let error = client(&[leader.name()]).supported_version().await.unwrap_err();
    assert_eq!(error.to_string(), expected);
    let info = transom_cluster::v1::FrameworkInfo::default();
    let error = client(&[follower.name()]).subscribe(&info).await.unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_transient());
    // The leader has received no request except for its version.
    assert!(
        leader
            .requests()
            .iter()
            .all(|request| request.line == "GET /version")
    );
}

#[tokio::test]
async fn version_of_a_master_is_requested_once() {
    let server =
        Server::master(|_| text_answer("503 Service Unavailable", "Master has not finished recovery")).await;
    let client = client(&[server.name()]);
    let info = transom_cluster::v1::FrameworkInfo::default();
    for _ in 0..3 {
        assert!(client.clone().subscribe(&info).await.unwrap_err().is_transient());
    }
    assert_eq!((server.requests().len(), server.version_requests()), (3, 1));
}

#[tokio::test]
async fn a_redirect_is_followed_with_credentials() {
    let leader = Server::start(|_| json_answer(&json!({"id": "m", "leader": "master@127.0.0.1:1"}))).await;
    let location = format!("//{}/master/state", leader.name());
    let follower = Server::start(move |_| redirect(&location)).await;
    let credentials = Some(Credentials {
        username: "ops".into(),
        password: "s3cret".into(),
    });
    let client = Client::new(Config {
        credentials,
        ..config(&[follower.name()])
    })
    .unwrap();
    assert_eq!(client.state().await.unwrap().id, "m");
    let requests = leader.requests();
    assert_eq!(requests[0].line, "GET /master/state");
    assert_eq!(
        requests[0].header("authorization"),
        Some("Basic b3BzOnMzY3JldA==")
    );
}

#[tokio::test]
async fn recorded_redirect_is_followed_to_its_location() {
    // The recorded leader is on another port without a listener, which the error names.
    let raw = String::from_utf8(recorded("10-zookeeper/nonleader-GET_state.raw")).unwrap();
    let leader = unused_address().await;
    assert!(raw.contains("//localhost:5060/"));
    let server = Server::with_answer(raw.replace("localhost:5060", &leader).into_bytes()).await;
    let error = client(&[server.name()]).state().await.unwrap_err();
    let expected = format!("http://{leader}");
    assert!(
        matches!(&error, Error::Unreachable { address, .. } if *address == expected),
        "{error:?}"
    );
}

#[tokio::test]
async fn redirects_to_another_scheme_or_with_credentials_are_rejected() {
    for (location, why) in [
        ("https://elsewhere:1/", "between http and https"),
        ("//u:p@elsewhere:1/", "no credentials"),
    ] {
        let server = Server::start(move |_| redirect(location)).await;
        let error = client(&[server.name()]).state().await.unwrap_err();
        assert!(
            matches!(&error, Error::Redirect { why: found, .. } if found.contains(why)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn redirect_loop_ends_with_an_error() {
    let server = Server::start(|_| redirect("/state")).await;
    let error = client(&[server.name()]).state().await.unwrap_err();
    assert!(
        matches!(&error, Error::NotReady { body, .. } if body.contains("name each other")),
        "{error:?}"
    );
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn rejection_returns_status_and_text_and_no_other_master_is_tried() {
    let other = Server::start(|_| json_answer(&json!({}))).await;
    let server =
        Server::start(|_| text_answer("415 Unsupported Media Type", "Expecting 'Content-Type'")).await;
    let error = client(&[server.name(), other.name()])
        .get_tasks()
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET_TASKS was rejected with 415: Expecting 'Content-Type'"
    );
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn text_of_a_long_rejection_is_truncated() {
    let server = Server::start(|_| text_answer("400 Bad Request", &"x".repeat(100_000))).await;
    let error = client(&[server.name()]).get_tasks().await.unwrap_err();
    assert!(
        matches!(&error, Error::Rejected { body, .. } if body.len() == 4096),
        "{}",
        error.to_string().len()
    );
}

#[tokio::test]
async fn missing_credentials_are_reported_with_the_keys_to_set() {
    let server = Server::with_answer(recorded("3-auth/get_state-noauth.raw")).await;
    let error = client(&[server.name()]).state().await.unwrap_err();
    assert!(
        matches!(&error, Error::Unauthorized { sent: false, .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("http://{} answered ", server.name())),
        "{text}"
    );
    assert!(
        text.ends_with(
            "with 401: credentials are required and none are configured; set `username` and `password` in [cluster]"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn rejected_credentials_are_reported_with_their_configuration_keys() {
    let server = Server::with_answer(recorded("3-auth/get_state-noauth.raw")).await;
    let client = Client::new(Config {
        credentials: Some(Credentials {
            username: "ops".into(),
            password: "s3cret".into(),
        }),
        credential_keys: "`user` and `word` in [somewhere]".into(),
        ..config(&[server.name()])
    })
    .unwrap();
    let text = client.state().await.unwrap_err().to_string();
    assert!(
        text.ends_with(
            "the credentials of this daemon were rejected; check `user` and `word` in [somewhere]"
        ),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn invalid_or_incomplete_response_is_an_error() {
    let server = Server::start(|_| json_answer(&json!({"version": 7}))).await;
    let error = client(&[server.name()]).version().await.unwrap_err();
    let text = error_text(&error);
    assert!(
        text.contains(&format!(
            "the answer of http://{} to /version is invalid",
            server.name()
        )),
        "{text}"
    );
    assert!(
        text.contains("invalid type: integer `7`, expected a string"),
        "{text}"
    );
    let server = Server::start(|_| json_answer(&json!({"type": "GET_TASKS"}))).await;
    let error = client(&[server.name()]).get_tasks().await.unwrap_err();
    assert!(matches!(&error, Error::Incomplete { .. }), "{error:?}");
}

#[tokio::test]
async fn request_to_a_silent_master_times_out() {
    for steps in ["no head", "half a body"] {
        let server = Server::start(move |_| match steps {
            "no head" => vec![Step::Silence],
            _ => vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec()),
                Step::Silence,
            ],
        })
        .await;
        let config = Config {
            call_timeout: Duration::from_millis(200),
            state_timeout: Duration::from_millis(200),
            ..config(&[server.name()])
        };
        let error = Client::new(config).unwrap().state().await.unwrap_err();
        assert!(
            matches!(&error, Error::TimedOut { call, .. } if call == "/state"),
            "{steps}: {error:?}"
        );
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn connection_closed_early_is_an_error() {
    let server = Server::start(|_| vec![Step::Close]).await;
    let error = client(&[server.name()]).state().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { .. }), "{error:?}");
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
    let server = Server::start(move |_| vec![Step::Send(half.clone()), Step::Close]).await;
    let error = client(&[server.name()]).state().await.unwrap_err();
    assert!(matches!(&error, Error::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn subscription_carries_credentials_and_the_principal() {
    let server = Server::master(|_| text_answer("401 Unauthorized", "401 Unauthorized.")).await;
    let credentials = Some(Credentials {
        username: "ops".into(),
        password: "s3cret".into(),
    });
    let client = Client::new(Config {
        credentials,
        principal: Some("ops".into()),
        ..config(&[server.name()])
    })
    .unwrap();
    let error = client
        .subscribe(&transom_cluster::v1::FrameworkInfo::default())
        .await
        .unwrap_err();
    assert!(matches!(&error, Error::Unauthorized { .. }), "{error:?}");
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some("Basic b3BzOnMzY3JldA=="));
    assert_eq!(request.json()["subscribe"]["framework_info"]["principal"], "ops");
}

/// Tasks use the client, so every future must be `Send`.
#[tokio::test]
async fn futures_can_move_between_threads() {
    fn movable<T: Send>(future: T) -> T {
        future
    }
    let client = client(&[unused_address().await]);
    let info = transom_cluster::v1::FrameworkInfo::default();
    assert!(movable(client.subscribe(&info)).await.is_err());
    assert!(movable(client.watch()).await.is_err());
    assert!(movable(client.get_state()).await.is_err());
    assert!(movable(client.state()).await.is_err());
    assert!(
        tokio::spawn(async move { client.version().await })
            .await
            .unwrap()
            .is_err()
    );
}
