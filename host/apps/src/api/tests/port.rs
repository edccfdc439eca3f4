//! What the port adds: the client of a forwarded request, and the limit of concurrent requests.

use serde_json::json;
use transom_testkit::wait_for;
use transom_web::Credentials;

use super::sleeper;
use crate::Config;
use crate::testing::World;

/// A standby sends the address of its client in a header, with a proof. The header of anybody else is
/// ignored.
#[tokio::test]
async fn api_post_event_has_the_sender_when_no_daemon_proves_another_client() {
    let credentials = Credentials {
        username: "u".to_owned(),
        password: "p".into(),
    };
    let authorization = format!("Authorization: {}\r\n", credentials.authorization());
    for (with, authorization) in [(false, ""), (true, authorization.as_str()), (true, "")] {
        let mut config = Config::default();
        config.port.credentials = with.then(|| credentials.clone());
        let world = World::start_with(config).await;
        let mut events = world.listen("?event_type=api_post_event").await;
        let headers =
            format!("{authorization}X-Transom-Client: 203.0.113.9\r\nX-Marathon-Via: other:8080\r\n");
        let created = world.send_with("POST", "/v2/apps", &headers, sleeper("/a")).await;
        assert_eq!(created.status, 201, "{created:?}");
        let posted = events.next_of("api_post_event").await;
        assert_eq!(posted["clientIp"], "127.0.0.1", "credentials: {with}");
        world.stop().await;
    }
}

#[tokio::test]
async fn requests_beyond_the_maximum_get_503_and_event_streams_do_not_count() {
    let mut config = Config::default();
    config.port.limits.max_requests = Some(1);
    let world = World::start_with(config).await;
    let _streams = (world.listen("").await, world.listen("?event_type=none").await);
    world.store.hold_after(0);
    let pending = async {
        loop {
            let answer = world.send("POST", "/v2/apps", sleeper("/a")).await;
            // A request of the loop below may have taken the only place.
            if answer.status != 503 {
                break answer;
            }
        }
    };
    let rejected = async {
        wait_for("a request is refused", async || {
            let answer = world.call("GET", "/v2/apps", None).await;
            let expected = json!({"message": "Too many concurrent requests! Allowed: 1."});
            answer.status == 503 && answer.body == expected
        })
        .await;
        let _stream = world.listen("?event_type=other").await;
        world.store.release();
    };
    let (created, ()) = tokio::join!(pending, rejected);
    assert_eq!(created.status, 201, "{created:?}");
    wait_for("requests are answered again", async || {
        world.call("GET", "/v2/apps", None).await.status == 200
    })
    .await;
    world.stop().await;
}
