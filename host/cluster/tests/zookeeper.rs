//! Detection of the leader with a real ZooKeeper. These tests need the Debian packages `zookeeper` and a
//! Java runtime, and fail without them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Server, Step, json_answer, record_chunk, redirect, stream_head, text_answer};
use tokio::time::timeout;
use transom_cluster::v1::FrameworkInfo;
use transom_cluster::{Client, Config, Error, LeaderChanges, Master, operator, scheduler};
use transom_testkit::zookeeper::{ZooKeeper, create, create_path, register};
use zookeeper_client::{Acl, Acls, AuthId, Permission};

/// The maximum time for a change to be reported before a test fails; the actual time is printed.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

fn config(masters: String) -> Config {
    Config {
        masters: vec![masters],
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(10),
        zookeeper_timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

fn client(server: &ZooKeeper, path: &str) -> Client {
    Client::new(config(format!("zk://{}{path}", server.address()))).unwrap()
}

async fn finish_in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let Ok(done) = timeout(WAIT_TIMEOUT, future).await else {
        panic!("{what}: not within {} s", WAIT_TIMEOUT.as_secs());
    };
    println!("{what}: {:.1} ms", began.elapsed().as_secs_f64() * 1000.0);
    done
}

async fn next_leader(what: &str, changes: &mut LeaderChanges) -> Arc<Master> {
    finish_in_time(what, changes.next()).await
}

#[tokio::test]
async fn lowest_registration_leads_in_both_formats_and_changes_are_reported() {
    let server = ZooKeeper::start().await;
    let client = client(&server, "/a/mesos");
    let mut changes = client.leader_changes();
    assert_eq!(client.leader(), None);

    // The path does not exist yet, and a request fails with that reason.
    let error = client.version().await.unwrap_err();
    assert!(error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains("no leading master is known from zk://127.0.0.1:"),
        "{text}"
    );
    assert!(text.ends_with("/a/mesos does not exist in ZooKeeper"), "{text}");

    let masters = server.client().await;
    create_path(&masters, "/a", Acls::anyone_all()).await;
    create_path(&masters, "/a/mesos", Acls::anyone_all()).await;
    let first = register(&masters, "/a/mesos", 5060).await;
    let leader = next_leader("the first leader appears", &mut changes).await;
    assert_eq!((&leader.node, leader.port), (&first, 5060));

    // Masters that register later, and other nodes, do not change the leader.
    create_path(&masters, "/a/mesos/log_replicas", Acls::anyone_all()).await;
    let protobuf = b"\x0a\x01m\x10\xff\x80\x80\x08\x18\xba\x27\x2a\x09localhost";
    let second = create(&masters, "/a/mesos/info_", protobuf, Acls::anyone_all()).await;
    let third = register(&masters, "/a/mesos", 5070).await;
    finish_in_time("all masters are known", async {
        while client.registered_masters().len() != 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(client.leader().unwrap().node, first);

    masters.delete(&format!("/a/mesos/{first}"), None).await.unwrap();
    let leader = next_leader("a protobuf master follows", &mut changes).await;
    assert_eq!((&leader.node, leader.port), (&second, 5050));
    assert_eq!(leader.to_string(), "127.0.0.1:5050");

    masters.delete(&format!("/a/mesos/{second}"), None).await.unwrap();
    let leader = next_leader("a JSON master follows", &mut changes).await;
    assert_eq!((&leader.node, leader.port), (&third, 5070));

    // No leader, then a leader again.
    masters.delete(&format!("/a/mesos/{third}"), None).await.unwrap();
    finish_in_time("no master leads", async {
        while client.leader().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let text = client.version().await.unwrap_err().to_string();
    assert!(text.ends_with("no master is registered at /a/mesos"), "{text}");
    let fourth = register(&masters, "/a/mesos", 5080).await;
    assert_eq!(
        next_leader("a master leads again", &mut changes).await.node,
        fourth
    );

    // If the leader's registration is invalid, the next master does not count as the leader.
    masters.delete(&format!("/a/mesos/{fourth}"), None).await.unwrap();
    create(&masters, "/a/mesos/json.info_", b"{}", Acls::anyone_all()).await;
    register(&masters, "/a/mesos", 5090).await;
    finish_in_time("the next master is known", async {
        while client.registered_masters().is_empty() || client.leader().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(client.registered_masters()[0].port, 5090);

    finish_in_time("the client closes", client.close()).await;
    assert!(timeout(Duration::from_millis(50), changes.next()).await.is_err());
}

#[tokio::test]
async fn last_leader_is_kept_during_an_outage_and_expired_session_reopened() {
    let mut server = ZooKeeper::start().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    let first = register(&masters, "/mesos", 5060).await;
    let client = Client::new(Config {
        // ZooKeeper without its data rejects clients that have seen later transactions; they give
        // up after this timeout.
        zookeeper_timeout: Duration::from_secs(3),
        ..config(format!("zk://{}/mesos", server.address()))
    })
    .unwrap();
    let mut changes = client.leader_changes();
    let leader = match client.leader() {
        Some(leader) => leader,
        None => next_leader("the leader is found", &mut changes).await,
    };
    assert_eq!(leader.node, first);

    // ZooKeeper stops and starts again with the same sessions.
    server.stop().await;
    assert_eq!(client.leader().unwrap().node, first);
    server.start_again().await;
    register(&masters, "/mesos", 5070).await;
    finish_in_time("a change is seen after ZooKeeper was away", async {
        while client.registered_masters().len() != 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(client.leader().unwrap().node, first);

    // ZooKeeper starts again without its sessions and nodes.
    server.stop().await;
    server.delete_data();
    assert_eq!(client.leader().unwrap().node, first);
    server.start_again().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    // Another master registers with a number that an earlier registration had.
    create(&masters, "/mesos/x_", b"", Acls::anyone_all()).await;
    let registered_again = register(&masters, "/mesos", 5090).await;
    assert_ne!(registered_again, first);
    finish_in_time("the leader is found in a new session", async {
        while client.leader().is_none_or(|leader| leader.port != 5090) {
            changes.next().await;
        }
    })
    .await;

    // ZooKeeper stays unavailable, and the last known leader stays in use.
    server.stop().await;
    let error = client.version().await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { .. } | Error::NoMaster { .. }),
        "{error:?}"
    );
    assert_eq!(client.leader().unwrap().node, registered_again);
    finish_in_time("the client closes", client.close()).await;
}

#[tokio::test]
async fn credentials_in_the_address_give_access_to_nodes_with_an_acl() {
    let server = ZooKeeper::start().await;
    let masters = server.client().await;
    masters.auth("digest", b"ops:s3cret").await.unwrap();
    let acls = [Acl::new(Permission::ALL, AuthId::authed())];
    create_path(&masters, "/mesos", Acls::from(&acls[..])).await;
    let info = json!({"id": "m", "hostname": "localhost", "port": 5060, "ip": 16_777_343}).to_string();
    let node = create(
        &masters,
        "/mesos/json.info_",
        info.as_bytes(),
        Acls::from(&acls[..]),
    )
    .await;

    let at = |credentials: &str| {
        let mut config = config(format!("zk://{credentials}{}/mesos", server.address()));
        config.connect_timeout = Duration::from_secs(2);
        Client::new(config).unwrap()
    };
    let client = at("ops:s3cret@");
    let leader = match client.leader() {
        Some(leader) => leader,
        None => next_leader("the leader is found", &mut client.leader_changes()).await,
    };
    assert_eq!(leader.node, node);
    let debug_text = format!("{client:?} {:?}", client.config());
    assert!(
        debug_text.contains("ops:***@") && !debug_text.contains("s3cret"),
        "{debug_text}"
    );
    client.close().await;

    for credentials in ["", "ops:wr0ng@"] {
        let client = at(credentials);
        let error = client.version().await.unwrap_err();
        let text = format!("{error} {error:?} {client:?}");
        assert!(
            text.contains("denies reading /mesos; check user and password"),
            "{text}"
        );
        assert!(!text.contains("wr0ng"), "{text}");
        client.close().await;
    }
}

/// A leading master: it accepts every subscription and sends nothing more.
async fn leading() -> Server {
    Server::master(|request| match request.line.as_str() {
        "POST /api/v1/scheduler" | "POST /master/api/v1/scheduler" => {
            let subscribed = json!({"type": "SUBSCRIBED", "subscribed": {
                "framework_id": {"value": "f-1"}, "heartbeat_interval_seconds": 15.0, "master_info": {"id": "m"}}});
            accept(&subscribed)
        }
        "POST /api/v1" | "POST /master/api/v1" => {
            accept(&json!({"type": "SUBSCRIBED", "subscribed": {"get_state": {}, "heartbeat_interval_seconds": 15.0}}))
        }
        "GET /state" => json_answer(&json!({"id": "m", "leader": "master@127.0.0.1:1"})),
        _ => text_answer("404 Not Found", ""),
    })
    .await
}

fn accept(subscribed: &Value) -> Vec<Step> {
    vec![
        Step::Send(stream_head()),
        Step::Send(record_chunk(subscribed)),
        Step::Silence,
    ]
}

async fn subscribe(client: &Client) -> (scheduler::Stream, operator::Stream) {
    let info = FrameworkInfo {
        user: "root".into(),
        name: "alpha".into(),
        ..FrameworkInfo::default()
    };
    let mut events = client.subscribe(&info).await.unwrap().events;
    assert!(matches!(
        events.next().await,
        Ok(Some(scheduler::Event::Subscribed(_)))
    ));
    let mut watched = client.watch().await.unwrap();
    assert!(matches!(
        watched.next().await,
        Ok(Some(operator::Event::Subscribed(_)))
    ));
    (events, watched)
}

#[tokio::test]
async fn subscriptions_end_when_the_leader_moves_and_find_the_new_one() {
    let server = ZooKeeper::start().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    let (first, second) = (leading().await, leading().await);
    let node = register(&masters, "/mesos", first.address.port()).await;
    register(&masters, "/mesos", second.address.port()).await;
    let client = client(&server, "/mesos");
    let (mut events, mut watched) = subscribe(&client).await;
    assert_eq!((first.requests().len(), second.requests().len()), (2, 0));

    masters.delete(&format!("/mesos/{node}"), None).await.unwrap();
    let error = finish_in_time("the scheduler stream ends", events.next())
        .await
        .unwrap_err();
    let expected = format!(
        "the leading master changed from http://{} to {}",
        first.address, second.address
    );
    assert!(matches!(error, Error::LeaderMoved { .. }), "{error:?}");
    assert_eq!(error.to_string(), expected);
    assert!(error.is_transient());
    let error = finish_in_time("the operator stream ends", watched.next())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(matches!(events.next().await, Ok(None)));
    drop((events, watched));

    let (mut events, _watched) = subscribe(&client).await;
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2));
    // The version of each master was requested once.
    assert_eq!((first.version_requests(), second.version_requests()), (1, 1));

    // A new registration of the same master does not end the streams.
    let lowest = client.leader().unwrap().node.clone();
    register(&masters, "/mesos", second.address.port()).await;
    let mut changes = client.leader_changes();
    masters.delete(&format!("/mesos/{lowest}"), None).await.unwrap();
    next_leader("the same master leads again", &mut changes).await;
    assert!(timeout(Duration::from_millis(100), events.next()).await.is_err());
    client.close().await;
}

#[tokio::test]
async fn a_master_named_by_zookeeper_may_redirect() {
    let server = ZooKeeper::start().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    let leader = leading().await;
    let location = format!("//localhost:{}/master", leader.address.port());
    // This master is no longer the leader, and ZooKeeper has not reported that yet.
    let follower = Server::master(move |request| {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        redirect(&format!("{location}{path}"))
    })
    .await;
    let stale = register(&masters, "/mesos", follower.address.port()).await;
    let client = client(&server, "/mesos");
    let (mut events, _watched) = subscribe(&client).await;
    assert_eq!((follower.requests().len(), leader.requests().len()), (2, 2));

    // ZooKeeper reports the new leader, to which the streams are already connected.
    register(&masters, "/mesos", leader.address.port()).await;
    let mut changes = client.leader_changes();
    masters.delete(&format!("/mesos/{stale}"), None).await.unwrap();
    next_leader("the leader is named", &mut changes).await;
    assert!(timeout(Duration::from_millis(100), events.next()).await.is_err());
    client.close().await;
}

#[tokio::test]
async fn request_to_a_hanging_master_is_sent_to_the_next_leader() {
    let server = ZooKeeper::start().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    let (hanging, leader) = (Server::start(|_| vec![Step::Silence]).await, leading().await);
    let node = register(&masters, "/mesos", hanging.address.port()).await;
    let client = client(&server, "/mesos");
    let version = {
        let client = client.clone();
        tokio::spawn(async move { client.state().await.map(|state| state.id) })
    };
    finish_in_time("the master receives the request", async {
        while hanging.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    register(&masters, "/mesos", leader.address.port()).await;
    masters.delete(&format!("/mesos/{node}"), None).await.unwrap();
    let answer = finish_in_time("the next leader answers", version).await.unwrap();
    assert_eq!(answer.unwrap(), "m");
    client.close().await;
}
