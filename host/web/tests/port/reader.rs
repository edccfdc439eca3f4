//! The user who may only read.

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use http::header;
use transom_web::{LoopbackTrust, PortConfig};

use super::{Port, user};

#[tokio::test]
async fn the_reader_gets_403_with_a_message_for_changes() {
    let config = PortConfig {
        credentials: Some(user("full")),
        reader: Some(user("reader")),
        loopback_trust: LoopbackTrust::UnlessCredentials,
        ..PortConfig::new("apps", 0)
    };
    let method = async |request: Request| request.method().to_string();
    let port = Port::start(config, Router::new().route("/", any(method))).await;
    for (name, method, expected) in [
        ("reader", "GET", 200),
        ("reader", "HEAD", 200),
        ("reader", "OPTIONS", 200),
        ("reader", "POST", 403),
        ("reader", "PUT", 403),
        ("reader", "PATCH", 403),
        ("reader", "DELETE", 403),
        ("full", "DELETE", 200),
        ("other", "GET", 401),
    ] {
        let answer = port
            .ask(method, "/")
            .header(header::AUTHORIZATION, user(name).authorization());
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{name} {method}");
        if expected == 403 {
            let body: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
            let text = body["message"].as_str().unwrap();
            assert!(text.starts_with("This user may only read."), "{text}");
            assert!(text.contains("`apps.api_username`"), "{text}");
        }
    }
    port.stop().await;
}
