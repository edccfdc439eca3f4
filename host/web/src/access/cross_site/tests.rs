#![allow(clippy::unwrap_used, reason = "tests may panic")]

use axum::body::Body;
use axum::routing::any;
use tower::ServiceExt;

use super::*;
use crate::text::MAX_CHARS;

const JSON: (&str, &str) = ("content-type", "application/json");

fn router() -> Router {
    let access = Access::new(
        "apps",
        vec![
            "marathon.mesos".parse().unwrap(),
            "*.example.com".parse().unwrap(),
        ],
        vec!["https://ui.example.org".parse().unwrap()],
    );
    let access = access.named("node1.internal").named("not a name");
    let answer = async || ([("transom-next-offset", "1")], "done");
    guarded(Router::new().route("/", any(answer)), access)
}

/// Sends a request over a connection to 10.1.2.3.
async fn ask(method: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut request = Request::builder().method(method).uri("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let local: SocketAddr = "10.1.2.3:8080".parse().unwrap();
    let request = request.extension(LocalAddr(local));
    let request = request.body(Body::from(body.to_owned())).unwrap();
    router().oneshot(request).await.unwrap()
}

async fn status(method: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    ask(method, headers, body).await.status().as_u16()
}

async fn message(response: Response) -> String {
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    body["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn requests_for_unknown_host_names_are_rejected() {
    for (host, expected) in [
        ("localhost", 200),
        ("localhost:1", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3:8080", 200),
        ("[::ffff:10.1.2.3]", 200),
        ("node1.internal:8080", 200),
        ("NODE1.internal.", 200),
        ("marathon.mesos:80", 200),
        ("a.example.com", 200),
        ("", 200),
        ("10.1.2.4:8080", 421),
        ("evil.test:8080", 421),
        ("localhost.evil.test", 421),
        ("node1.internal.evil.test", 421),
        ("example.com", 421),
        ("evil.test@localhost", 421),
        ("not a name", 421),
    ] {
        assert_eq!(status("GET", &[("host", host)], "").await, expected, "{host}");
        assert_eq!(status("POST", &[("host", host)], "").await, expected, "{host}");
    }
    // HTTP/1.0 clients, such as health checkers, may send no `Host`.
    assert_eq!(status("GET", &[], "").await, 200);
    // Every name must be valid; one valid name is not enough.
    let two = [("host", "localhost"), ("host", "evil.test")];
    assert_eq!(status("GET", &two, "").await, 421);
    let rejected = ask("GET", &[("host", "evil.test")], "").await;
    let text = message(rejected).await;
    assert!(
        text.contains("\"evil.test\"") && text.contains("`apps.allowed_hosts`"),
        "{text}"
    );
}

/// The messages are logged, too.
#[tokio::test]
async fn messages_repeat_only_the_beginning_of_a_header() {
    let long = "x".repeat(10_000);
    let (origin, kind) = (format!("http://{long}"), format!("text/{long}"));
    for (header, body) in [
        (("host", long.as_str()), ""),
        (("origin", origin.as_str()), ""),
        (("sec-fetch-site", long.as_str()), ""),
        (("content-type", kind.as_str()), "x"),
    ] {
        let text = message(ask("POST", &[("host", "localhost"), header], body).await).await;
        let repeated = text.matches('x').count();
        assert!(
            (MAX_CHARS - 50..MAX_CHARS + 50).contains(&repeated),
            "{header:?}: {text}"
        );
    }
}

#[tokio::test]
async fn host_of_an_absolute_target_is_checked_too() {
    for (target, expected) in [("http://localhost:8080/", 200), ("http://evil.test/", 421)] {
        let request = Request::builder().uri(target).header("host", "localhost");
        let answer = router()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{target}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_are_rejected() {
    let host = ("host", "localhost:8080");
    for (headers, expected) in [
        (&[("origin", "http://localhost:8080")][..], 200),
        // A proxy in front of this port may terminate TLS.
        (&[("origin", "https://localhost:8080")], 200),
        (&[("origin", "https://ui.example.org")], 200),
        (
            &[
                ("origin", "https://ui.example.org"),
                ("sec-fetch-site", "cross-site"),
            ],
            200,
        ),
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("sec-fetch-site", "none")], 200),
        (&[("origin", "http://localhost:3000")], 403),
        (&[("origin", "http://127.0.0.1:8080")], 403),
        (&[("origin", "http://ui.example.org")], 403),
        (&[("origin", "http://evil.test")], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("sec-fetch-site", "something new")], 403),
        (
            &[
                ("origin", "http://localhost:8080"),
                ("sec-fetch-site", "cross-site"),
            ],
            403,
        ),
        (
            &[
                ("origin", "https://ui.example.org"),
                ("origin", "http://evil.test"),
            ],
            403,
        ),
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let headers = [&[host], headers].concat();
            assert_eq!(
                status(method, &headers, "").await,
                expected,
                "{method} {headers:?}"
            );
        }
    }
    // A page whose own name resolves to this port has that name in both headers.
    let rebound = [("host", "evil.test:8080"), ("origin", "http://evil.test:8080")];
    assert_eq!(status("POST", &rebound, "").await, 421);
    for header in [("origin", "http://evil.test"), ("sec-fetch-site", "cross-site")] {
        let text = message(ask("GET", &[host, header], "").await).await;
        assert!(
            text.contains(header.1) && text.contains("`apps.allowed_origins`"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_link_to_a_get_that_changes_something_is_rejected() {
    let access = Access::new("kubernetes", Vec::new(), Vec::new());
    let access = access.with_changes(|_, path| path == "/scale/3");
    let router = guarded(Router::new().fallback(any(async || "done")), access);
    for (path, expected) in [("/scale", 200), ("/scale/3", 403)] {
        let request = Request::get(path)
            .header("host", "localhost")
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", "document");
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{path}");
    }
}

/// Over plain HTTP and to an address, browsers send neither `Origin` nor `Sec-Fetch-Site` if a page
/// loads an image.
#[tokio::test]
async fn a_page_cannot_cause_a_get_that_changes_something() {
    const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/150.0");
    let origins = vec!["https://ui.example.org".parse().unwrap()];
    let access = Access::new("kubernetes", Vec::new(), origins);
    let access = access.with_changes(|_, path| path == "/scale/3");
    let router = guarded(Router::new().fallback(any(async || "done")), access);
    let referer = |url| ("referer", url);
    for (headers, expected) in [
        // Programs.
        (&[][..], 200),
        (&[("user-agent", "curl/8.5.0")], 200),
        (&[("user-agent", "python-requests/2.32.3")], 200),
        (&[("user-agent", "Python-urllib/3.12")], 200),
        // Pages of this port and of an allowed site.
        (&[BROWSER, referer("http://10.1.2.3:10000/ui/#/agents")], 200),
        (&[BROWSER, referer("https://10.1.2.3:10000/")], 200),
        (&[BROWSER, referer("https://ui.example.org/?page=1")], 200),
        (&[BROWSER, ("origin", "http://10.1.2.3:10000")], 200),
        (&[BROWSER, ("sec-fetch-site", "same-origin")], 200),
        (&[BROWSER, ("sec-fetch-site", "none")], 200),
        // Pages of other sites, and of unknown ones.
        (&[BROWSER], 403),
        (&[BROWSER, referer("")], 403),
        (&[BROWSER, referer("http://evil.test/page")], 403),
        (&[referer("http://evil.test/page")], 403),
        (&[BROWSER, referer("http://10.1.2.3:8080/")], 403),
        (&[BROWSER, referer("http://10.1.2.3:10000.evil.test/")], 403),
        (&[BROWSER, referer("http://10.1.2.3:10000@evil.test/")], 403),
        (
            &[BROWSER, referer("http://evil.test/http://10.1.2.3:10000/")],
            403,
        ),
        (&[BROWSER, referer("http://evil.test?://10.1.2.3:10000")], 403),
        (&[BROWSER, referer("about:client")], 403),
        (
            &[
                BROWSER,
                referer("http://10.1.2.3:10000/"),
                referer("http://evil.test/"),
            ],
            403,
        ),
    ] {
        for method in ["GET", "HEAD"] {
            for (path, expected) in [("/scale/3", expected), ("/scale", 200)] {
                let mut request = Request::builder().method(method).uri(path);
                for (name, value) in [&[("host", "10.1.2.3:10000")], headers].concat() {
                    request = request.header(name, value);
                }
                let local: SocketAddr = "10.1.2.3:10000".parse().unwrap();
                let request = request.extension(LocalAddr(local)).body(Body::empty()).unwrap();
                let response = router.clone().oneshot(request).await.unwrap();
                let found = response.status().as_u16();
                assert_eq!(found, expected, "{method} {path} {headers:?}");
            }
        }
    }
    for (headers, part) in [
        (&[BROWSER][..], "such as curl"),
        (&[referer("http://evil.test/")], "`kubernetes.allowed_origins`"),
    ] {
        let mut request = Request::get("/scale/3").header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let text = message(router.clone().oneshot(request).await.unwrap()).await;
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn links_from_other_sites_may_be_followed() {
    let link = [
        ("host", "localhost"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert_eq!(status("GET", &link, "").await, 200);
    assert_eq!(status("HEAD", &link, "").await, 200);
    // Rejected: a submitted form, a frame, and a script, which lacks the navigation headers.
    assert_eq!(status("POST", &link, "").await, 403);
    let frame = [&link[..3], &[("sec-fetch-dest", "iframe")]].concat();
    assert_eq!(status("GET", &frame, "").await, 403);
    assert_eq!(status("GET", &link[..2], "").await, 403);
}

#[tokio::test]
async fn bodies_must_be_json_or_have_no_content_type() {
    for (kind, expected) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/merge-patch+json", 200),
        ("text/plain", 415),
        ("text/plain; x=application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        ("", 415),
    ] {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(
                status(method, &[("content-type", kind)], "{}").await,
                expected,
                "{method} {kind}"
            );
            // Without a body the content type does not matter.
            assert_eq!(
                status(method, &[("content-type", kind)], "").await,
                200,
                "{method} {kind}"
            );
        }
        assert_eq!(
            status("GET", &[("content-type", kind)], "{}").await,
            200,
            "{kind}"
        );
    }
    assert_eq!(status("POST", &[], "{}").await, 200);
    assert_eq!(
        status("POST", &[JSON, ("content-type", "text/plain")], "{}").await,
        415
    );
    let text = message(ask("POST", &[("content-type", "text/plain")], "{}").await).await;
    assert!(
        text.contains("\"text/plain\"") && text.contains("application/json"),
        "{text}"
    );
}

#[tokio::test]
async fn pages_of_allowed_origins_may_read_answers() {
    let origin = ("origin", "https://ui.example.org");
    let answer = ask("GET", &[("host", "marathon.mesos"), origin], "").await;
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("access-control-allow-origin"), origin.1);
    assert_eq!(header("access-control-allow-credentials"), "true");
    assert!(header("access-control-expose-headers").contains("transom-next-offset"));
    assert_eq!(header("vary"), "origin");

    let preflight_headers = [
        origin,
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "content-type"),
    ];
    let answer = ask("OPTIONS", &preflight_headers, "").await;
    assert_eq!(answer.status().as_u16(), 204);
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("access-control-allow-origin"), origin.1);
    assert_eq!(header("access-control-allow-headers"), "content-type");
    assert!(header("access-control-allow-methods").contains("PUT"));

    // Answers to the port's own pages have no CORS headers.
    let same_origin = ask(
        "GET",
        &[("host", "localhost"), ("origin", "http://localhost")],
        "",
    )
    .await;
    assert!(!same_origin.headers().contains_key("access-control-allow-origin"));
}
