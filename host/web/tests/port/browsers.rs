//! Pages of other sites: the same list of origins decides whether a request passes and whether its
//! answer has CORS headers.

use axum::Router;
use axum::routing::any;
use transom_web::{LoopbackTrust, PortConfig};

use super::{Port, user};

async fn port(origins: &[&str]) -> Port {
    let config = PortConfig {
        credentials: Some(user("full")),
        loopback_trust: LoopbackTrust::UnlessBoth,
        allowed_origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(),
        ..PortConfig::new("apps", 0)
    };
    Port::start(config, Router::new().route("/v2/apps", any(async || "[]"))).await
}

#[tokio::test]
async fn only_pages_of_allowed_origins_pass_and_read_answers() {
    let (listed, other) = ("https://ui.example", "https://evil.example");
    for (origins, origin, allowed) in [
        (&[][..], listed, false),
        (&[listed][..], listed, true),
        (&[listed][..], other, false),
    ] {
        let port = port(origins).await;
        for method in ["GET", "POST", "DELETE"] {
            let preflight = port
                .ask("OPTIONS", "/v2/apps")
                .header("origin", origin)
                .header("access-control-request-method", method)
                .header("access-control-request-headers", "content-type");
            let request = port
                .ask(method, "/v2/apps")
                .header("origin", origin)
                .header("sec-fetch-site", "cross-site");
            for (what, request, status) in [("preflight", preflight, 204), ("request", request, 200)] {
                let answer = request.send().await.unwrap();
                let case = format!("{what} {method} {origins:?} {origin}");
                let expected = if allowed { status } else { 403 };
                assert_eq!(answer.status().as_u16(), expected, "{case}");
                let readable = answer.headers().get("access-control-allow-origin");
                let readable = readable.map(|value| value.to_str().unwrap());
                assert_eq!(readable, allowed.then_some(origin), "{case}");
            }
        }
        // A program, not a page: no CORS headers.
        let answer = port.ask("GET", "/v2/apps").send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let headers = answer.headers().keys();
        let cors: Vec<_> = headers
            .filter(|name| name.as_str().starts_with("access-control"))
            .collect();
        assert!(cors.is_empty(), "{cors:?}");
        port.stop().await;
    }
}
