//! Two frameworks on one port.

use std::collections::BTreeMap;

use axum::Router;
use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use transom_store::Leadership;
use transom_web::{AccessRules, PortConfig};

use super::site::{Site, authorization, running, with_credentials};
use crate::api::instances;
use crate::testing::config;

/// Two frameworks: `a`, whose router contains the routes of both, and `b`.
fn two(port: &PortConfig) -> (Site, Site) {
    let (mut a, b) = (Site::with(port), Site::with(port));
    for site in [&a, &b] {
        site.views.publish(running());
    }
    a.router = shared(port, &[("/a", &a), ("/b", &b)]);
    (a, b)
}

fn shared(port: &PortConfig, sites: &[(&str, &Site)]) -> Router {
    let routes = |(path, site): &(&str, &Site)| ((*path).to_owned(), site.routes.clone());
    let routes: BTreeMap<_, _> = sites.iter().map(routes).collect();
    port.protect(instances::router(routes), instances::access_rules())
}

#[tokio::test]
async fn each_framework_receives_the_requests_below_its_path() {
    let (a, b) = two(&config().port);
    for prefix in ["/api/fw/v0", "/api/m3s/v0"] {
        assert_eq!(a.put(&format!("/a{prefix}/agent/scale/4")).await.status, 200);
        assert_eq!((a.received_commands().len(), b.received_commands().len()), (1, 0));
        assert_eq!(a.get(&format!("/b{prefix}/agent/scale/4")).await.status, 200);
        assert_eq!((a.received_commands().len(), b.received_commands().len()), (0, 1));
    }
    let script = b.scripts.add("x", b"#!/bin/sh\n".as_slice().into()).unwrap();
    assert_eq!(a.get(&format!("/b{script}")).await.status, 200);
    a.get(&format!("/a{script}")).await.is_error(&script, 404);
    let answer = a.get("//b/api//fw/v0/agent/scale?x=y").await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("location")),
        (301, Some("/b/api/fw/v0/agent/scale?x=y"))
    );
    let document = a.get("/b/api/fw/v0/openapi.json").await.json();
    assert_eq!(document["servers"], json!([{"url": "/b"}]));
}

#[tokio::test]
async fn routes_of_one_instance_are_called_without_its_path() {
    let (mut a, b) = two(&config().port);
    a.router = instances::below(a.router.clone(), "/b");
    assert_eq!(a.put("/api/fw/v0/agent/scale/4").await.status, 200);
    assert_eq!((a.received_commands().len(), b.received_commands().len()), (0, 1));
}

#[tokio::test]
async fn request_for_an_unknown_instance_returns_the_list_of_instances() {
    let right = authorization("user");
    let headers = [("authorization", right.as_str())];
    for port in [config().port, with_credentials()] {
        let (a, b) = two(&port);
        let call = "/c/api/fw/v0/agent/scale/1";
        for path in [
            "/",
            "/c",
            call,
            "/api/fw/v0/agent/scale/1",
            "/%61/api/fw/v0/agent/scale",
            "/A/",
        ] {
            let answer = a.ask_with(Method::PUT, path, &headers).await;
            answer.is_error(path, 404);
            let expected = format!("Not found: {path}. The instances on this port are at /a, /b");
            assert_eq!(answer.json()["message"], expected);
        }
        // If the rest of the path is a call, credentials are required as for the call.
        let status = if port.credentials.is_some() { 401 } else { 404 };
        a.put(call).await.is_error(call, status);
        // Errors on the alias have no body here either.
        let alias = "/api/m3s/v0/agent/scale";
        let path = format!("/c{alias}");
        let answer = a.ask_with(Method::GET, &path, &headers).await;
        answer.is_error(alias, 404);
        for (path, status) in [
            ("/a", 404),
            ("/b/nosuch", 404),
            ("/b/api/fw/v0/agent/cordon", 405),
        ] {
            let answer = a.get(path).await;
            answer.is_error(path, status);
            let message = answer.json()["message"].to_string();
            assert!(message.contains(path), "{message}");
        }
        assert_eq!(
            (a.received_commands(), b.received_commands()),
            (Vec::new(), Vec::new())
        );
    }
}

#[tokio::test]
async fn access_rules_are_the_same_as_on_a_port_with_one_framework() {
    let (a, b) = two(&with_credentials());
    let (right, reader) = (authorization("user"), authorization("reader"));
    for path in ["/b/api/fw/v0/agent/scale/2", "/b/api/m3s/v0/agent/scale/2"] {
        let own = path.trim_start_matches("/b");
        a.get(path).await.is_error(own, 401);
        let answer = a.ask_with(Method::GET, path, &[("authorization", &reader)]).await;
        answer.is_error(own, 403);
        assert_eq!(b.received_commands(), [""; 0]);
        let answer = a.ask_with(Method::GET, path, &[("authorization", &right)]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(b.received_commands().len(), 1);
    }
    let (a, b) = two(&config().port);
    let page = [("host", "localhost"), ("origin", "https://evil.example")];
    let answer = a.ask_with(Method::GET, "/b/api/fw/v0/agent/scale/2", &page).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(b.received_commands(), [""; 0]);
}

#[tokio::test]
async fn standby_forwards_the_path_as_it_was_sent() {
    let leader = Router::new()
        .fallback(async |request: axum::extract::Request| format!("{} {}", request.method(), request.uri()));
    let mut port = config().port;
    (port.port, port.hostname) = (0, "127.0.0.1".to_owned());
    let bound = port.bind().await.unwrap();
    let (address, token) = (bound.advertised(), CancellationToken::new());
    let serving = tokio::spawn(bound.serve(leader, AccessRules::default(), token.clone()));
    // This daemon leads a, and another one leads b.
    let port = config().port;
    let mut a = Site::with(&port);
    let b = Site::with_leadership(&port, Leadership::Follower(address));
    a.router = shared(&port, &[("/a", &a), ("/b", &b)]);
    let path = "/b/api/fw/v0/agent/scale/3?x=y";
    assert_eq!(a.put(path).await.text, format!("PUT {path}"));
    assert_eq!(a.put("/a/api/fw/v0/agent/scale/3").await.status, 200);
    assert_eq!(a.received_commands().len(), 1);
    token.cancel();
    serving.await.unwrap().unwrap();
}
