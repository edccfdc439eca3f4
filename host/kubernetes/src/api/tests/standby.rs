//! A daemon that does not lead.

use axum::Router;
use http::Method;
use tokio_util::sync::CancellationToken;
use transom_store::Leadership;
use transom_web::AccessRules;

use super::site::Site;
use crate::testing::config;

#[tokio::test]
async fn standby_forwards_all_but_local_calls_to_the_leader() {
    // A leader whose responses contain the method and the path of the request.
    let leader = Router::new().fallback(async |request: axum::extract::Request| {
        format!("{} {}", request.method(), request.uri().path())
    });
    let mut port = config().port;
    (port.port, port.hostname) = (0, "127.0.0.1".to_owned());
    let port = port.bind().await.unwrap();
    let (address, token) = (port.advertised(), CancellationToken::new());
    let serving = tokio::spawn(port.serve(leader, AccessRules::default(), token.clone()));
    let site = Site::with_leadership(&config().port, Leadership::Follower(address));
    for (method, path) in [
        (Method::GET, "/api/fw/v0/agent/scale"),
        (Method::GET, "/api/m3s/v0/agent/scale/3"),
        (Method::GET, "/api/fw/v0/server/config"),
        (Method::GET, "/api/m3s/v0/server/version"),
        (Method::GET, "/api/fw/v0/status/fw"),
        (Method::GET, "/api/fw/v0/explain"),
        (Method::PUT, "/api/fw/v0/cluster/stop"),
        (Method::DELETE, "/api/fw/v0/framework"),
        (Method::GET, "/bootstrap/a/b"),
    ] {
        let answer = site.ask(method.clone(), path).await;
        assert_eq!(answer.text, format!("{method} {path}"), "{answer:?}");
    }
    assert_eq!(site.received_commands(), [""; 0]);
    for (path, status) in [
        ("/api/fw/versions", 200),
        ("/api/fw/v0/openapi.json", 200),
        ("/api/m3s/v0/capabilities", 200),
        ("/api/fw/v0/nosuch", 404),
        ("/api/fw/v0/agent/cordon", 405),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(!answer.text.starts_with("GET "), "{answer:?}");
    }
    token.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_are_rejected_without_a_store() {
    let site = Site::with_leadership(&config().port, Leadership::StoreUnavailable);
    tokio::time::pause();
    for path in ["/api/fw/v0/agent/scale", "/api/m3s/v0/agent/scale/3"] {
        site.get(path).await.is_error(path, 503);
    }
}
