//! Requests are counted by route.

use axum::Router;
use axum::routing::{get, post};
use http::{StatusCode, header};
use prometheus_client::registry::Registry;
use transom_web::{PortConfig, RequestMetrics, json_errors, with_fallbacks};

use super::Port;

#[tokio::test]
async fn requests_count_by_template_method_and_status() {
    let mut registry = Registry::default();
    let metrics = RequestMetrics::register(&mut registry, "transom_test");
    let stream = async || ([(header::CONTENT_TYPE, "text/event-stream")], "data: 1\n\n");
    let router = Router::new()
        .route(
            "/apps/{*id}",
            get(async || "an app").delete(async || StatusCode::CONFLICT),
        )
        .route("/apps", post(async || StatusCode::CREATED))
        .route("/events", get(stream));
    let router = metrics.around(json_errors(with_fallbacks(router)));
    let port = Port::start(PortConfig::new("apps", 0), router).await;
    for (method, path) in [
        ("GET", "/apps/a"),
        ("GET", "/apps/b/c?embed=apps.tasks"),
        ("DELETE", "/apps/a"),
        ("POST", "/apps"),
        ("PUT", "/apps"),
        ("BREW", "/apps"),
        ("GET", "/absent/1"),
        ("GET", "/absent/2"),
        ("GET", "/events"),
    ] {
        port.ask(method, path).send().await.unwrap();
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let mut found: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("transom_test_api_requests_total"))
        .collect();
    found.sort_unstable();
    let expected = [
        r#"{route="/apps",method="POST",status="201"} 1"#,
        r#"{route="/apps",method="PUT",status="405"} 1"#,
        r#"{route="/apps",method="other",status="405"} 1"#,
        r#"{route="/apps/{*id}",method="DELETE",status="409"} 1"#,
        r#"{route="/apps/{*id}",method="GET",status="200"} 2"#,
        r#"{route="/events",method="GET",status="200"} 1"#,
        r#"{route="unmatched",method="GET",status="404"} 2"#,
    ];
    assert_eq!(found, expected, "{text}");
    for line in [
        r#"transom_test_api_seconds_count{route="/apps/{*id}"} 3"#,
        r#"transom_test_api_seconds_count{route="unmatched"} 2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    port.stop().await;
}
