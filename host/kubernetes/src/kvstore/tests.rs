//! The client against a scripted member.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;

use super::*;

/// Starts a member that answers every call with this status and body. Returns its address.
async fn member(status: StatusCode, body: String) -> HostPort {
    let answer = move || std::future::ready((status, body.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/v3/{*path}", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    HostPort::new("127.0.0.1", address.port())
}

async fn ok(body: &str) -> HostPort {
    member(StatusCode::OK, body.to_owned()).await
}

#[tokio::test]
async fn recorded_answers_are_read() {
    let gateway = EtcdGateway::new().unwrap();
    let status = r#"{"header":{"cluster_id":"12101053776118486841","member_id":"16014052154023597784"},
        "version":"3.4.23","leader":"15985099378392235387","isLearner":true}"#;
    let expected = MemberStatus {
        id: 16_014_052_154_023_597_784,
        has_leader: true,
    };
    assert_eq!(gateway.status(&ok(status).await).await.unwrap(), expected);
    let alone = r#"{"header":{"member_id":"7"},"errors":["etcdserver: no leader"]}"#;
    let expected = MemberStatus {
        id: 7,
        has_leader: false,
    };
    assert_eq!(gateway.status(&ok(alone).await).await.unwrap(), expected);

    let list = r#"{"header":{},"members":[
        {"ID":"15985099378392235387","name":"a","peerURLs":["http://127.0.0.1:12380"],"clientURLs":["http://127.0.0.1:1"]},
        {"ID":"16014052154023597784","peerURLs":["http://127.0.0.1:12390"],"isLearner":true}]}"#;
    let found = gateway.members(&ok(list).await).await.unwrap();
    let member = |id, name: &str, learner| EtcdMember {
        id,
        name: name.to_owned(),
        learner,
    };
    let expected = [
        member(15_985_099_378_392_235_387, "a", false),
        member(16_014_052_154_023_597_784, "", true),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn removing_an_unknown_member_succeeds() {
    let gateway = EtcdGateway::new().unwrap();
    let rejection = |status| member(status, r#"{"message":"etcdserver: no"}"#.to_owned());
    let gone = rejection(StatusCode::NOT_FOUND).await;
    gateway.remove(&gone, 7).await.unwrap();
    let rejected = rejection(StatusCode::SERVICE_UNAVAILABLE).await;
    let error = gateway.remove(&rejected, 7).await.unwrap_err();
    assert!(
        error.to_string().ends_with("status 503: etcdserver: no"),
        "{error}"
    );
}

#[tokio::test]
async fn invalid_and_too_large_answers_are_errors_with_the_url() {
    let gateway = EtcdGateway::new().unwrap();
    for (body, expected) in [
        ("nonsense".to_owned(), "an invalid document"),
        (
            r#"{"header":{"member_id":"x"}}"#.to_owned(),
            "an invalid document",
        ),
        (" ".repeat(MAX_ANSWER_BYTES + 1), "more than 1048576 bytes"),
    ] {
        let address = ok(&body).await;
        let error = gateway.status(&address).await.unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains(&address.to_string()),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_silent_member_does_not_hide_the_others() {
    let gateway = EtcdGateway::new().unwrap();
    // One document that is valid as the answer to both calls.
    let both = r#"{"header":{"member_id":"7"},"leader":"7","members":[{"ID":"7","name":"a"}]}"#;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = HostPort::new("127.0.0.1", listener.local_addr().unwrap().port());
    drop(listener);
    let silent = (TaskId::from("silent"), closed);
    let answering = (TaskId::from("t"), ok(both).await);
    let seen = observe(&gateway, &[silent.clone(), answering]).await.unwrap();
    assert_eq!(seen.members.len(), 1);
    assert_eq!(seen.answers.keys().map(TaskId::as_str).collect::<Vec<_>>(), ["t"]);
    let error = observe(&gateway, &[silent]).await.unwrap_err();
    assert!(matches!(error, KvstoreError::Call { .. }), "{error}");
}
