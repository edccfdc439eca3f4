//! Unknown paths and methods, credentials, and requests of web pages.

use std::io;
use std::sync::{Arc, Mutex};

use http::Method;
use tracing_subscriber::fmt::MakeWriter;

use super::site::{PREFIXES, Site, authorization, running, with_credentials};

#[tokio::test]
async fn unknown_paths_and_methods_need_no_credentials() {
    for site in [Site::start(), Site::with(&with_credentials())] {
        for prefix in PREFIXES {
            for path in [
                "",
                "/",
                "/nosuch",
                "/server/scale/",
                "/agent/scale/1/",
                "/versions",
                "/nosuch/scale",
                "/nosuch/scale/1",
                "/cluster/scale",
                "/agent/gpus/1",
                "/%61gent/scale/1",
                "/agent%2Fscale/1",
                "/status",
                "/status/",
                "/server/version/",
            ] {
                let path = format!("{prefix}{path}");
                for method in [Method::GET, Method::PUT, Method::DELETE] {
                    site.ask(method, &path).await.is_error(&path, 404);
                }
                assert_eq!(site.ask(Method::HEAD, &path).await.status, 404, "{path}");
            }
            for (method, path, allowed) in [
                (Method::HEAD, "/server/scale", "GET"),
                (Method::HEAD, "/agent/scale/3", "GET, PUT, POST"),
                (Method::DELETE, "/agent/scale/3", "GET, PUT, POST"),
                (Method::HEAD, "/status/fw", "GET"),
                (Method::POST, "/server/config", "GET"),
                (Method::GET, "/agent/cordon", "PUT"),
                (Method::GET, "/cluster/restart", "PUT"),
                (Method::GET, "/agent/cpus/1", "PUT"),
                (Method::GET, "/framework", "DELETE"),
                (Method::OPTIONS, "/agent/scale/1", "GET, PUT, POST"),
            ] {
                let path = format!("{prefix}{path}");
                let answer = site.ask(method.clone(), &path).await;
                assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
                // The response to a HEAD has no body.
                if method != Method::HEAD {
                    answer.is_error(&path, 405);
                }
                assert_eq!(answer.header("allow"), Some(allowed), "{path}");
            }
        }
        for path in ["/", "/api", "/api/fw", "/api/m3s", "/api/fw/v1/server/scale"] {
            site.get(path).await.is_error(path, 404);
        }
        assert_eq!(site.received_commands(), [""; 0]);
    }
}

#[tokio::test]
async fn empty_segments_are_redirected_to_the_clean_path() {
    let site = Site::with(&with_credentials());
    for (path, expected) in [
        ("/api/m3s//v0/server/scale", "/api/m3s/v0/server/scale"),
        ("//api/fw/v0///server/scale?a=b", "/api/fw/v0/server/scale?a=b"),
        ("/api/fw/v0/server/scale//", "/api/fw/v0/server/scale/"),
        ("//evil.example/x", "/evil.example/x"),
        ("///", "/"),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 301, "{path}");
        assert_eq!(answer.header("location"), Some(expected), "{path}");
    }
}

// The delay after wrong credentials takes no time.
#[tokio::test(start_paused = true)]
async fn credentials_are_required_even_on_loopback() {
    let site = Site::with(&with_credentials());
    site.views.publish(running());
    let (right, reader, wrong) = (authorization("user"), authorization("reader"), authorization("x"));
    for prefix in PREFIXES {
        for (method, path) in [
            (Method::GET, "/server/scale"),
            (Method::GET, "/agent/scale/2"),
            (Method::PUT, "/agent/scale/2"),
            (Method::GET, "/server/config"),
            (Method::GET, "/server/version"),
            (Method::GET, "/status/fw"),
            (Method::GET, "/status/m3s"),
            (Method::GET, "/status/orch"),
            (Method::GET, "/capabilities"),
            (Method::PUT, "/cluster/stop"),
            (Method::PUT, "/agent/cpus/2"),
            (Method::DELETE, "/framework"),
        ] {
            let path = format!("{prefix}{path}");
            site.ask(method.clone(), &path).await.is_error(&path, 401);
            let headers = [("authorization", wrong.as_str())];
            let answer = site.ask_with(method.clone(), &path, &headers).await;
            answer.is_error(&path, 401);
            assert_eq!(site.received_commands(), [""; 0], "{path}");
            // The read-only user cannot set a count with GET.
            let changes = method != Method::GET || path.ends_with("/2");
            let headers = [("authorization", reader.as_str())];
            let answer = site.ask_with(method.clone(), &path, &headers).await;
            if changes {
                answer.is_error(&path, 403);
                assert_eq!(site.received_commands(), [""; 0], "{path}");
            } else {
                assert_eq!(answer.status, 200, "{path}: {answer:?}");
            }
            let headers = [("authorization", right.as_str())];
            let answer = site.ask_with(method, &path, &headers).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(site.received_commands().len(), usize::from(changes), "{path}");
        }
    }
    let script = site.scripts.add("a", b"#!/bin/sh\n".as_slice().into()).unwrap();
    for open in ["/api/fw/versions", "/api/m3s/versions", &script] {
        assert_eq!(site.get(open).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn credentials_of_the_datastore_need_full_credentials() {
    let site = Site::with(&with_credentials());
    let path = "/api/fw/v0/datastore/credentials";
    let (right, reader) = (authorization("user"), authorization("reader"));
    for method in [Method::GET, Method::PUT] {
        site.ask(method.clone(), path).await.is_error(path, 401);
        let headers = [("authorization", reader.as_str())];
        site.ask_with(method, path, &headers).await.is_error(path, 403);
    }
    assert_eq!(site.received_commands(), [""; 0]);
    let headers = [("authorization", right.as_str())];
    let answer = site.ask_with(Method::GET, path, &headers).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("cache-control")),
        (200, Some("no-store"))
    );
    let document = answer.json();
    assert_eq!(
        (&document["username"], &document["password"]),
        (&"root".into(), &"stored".into())
    );
    let answer = site.ask_with(Method::PUT, path, &headers).await;
    assert_eq!((answer.status.as_u16(), site.received_commands().len()), (200, 2));
    let path = "/api/fw/v0/server/token";
    site.ask(Method::GET, path).await.is_error(path, 401);
    let read_only = [("authorization", reader.as_str())];
    let answer = site.ask_with(Method::GET, path, &read_only).await;
    answer.is_error(path, 403);
    let answer = site.ask_with(Method::GET, path, &headers).await;
    assert_eq!(answer.text, crate::testing::secrets().token.reveal());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    // The alias is upstream's API, which has no such call.
    let alias = "/api/m3s/v0/datastore/credentials";
    site.ask(Method::GET, alias).await.is_error(alias, 404);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_set_a_count() {
    let site = Site::start();
    let link = [
        ("host", "localhost"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    let page = [("host", "localhost"), ("origin", "https://evil.example")];
    let image = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
    let rebound = [("host", "evil.example")];
    for prefix in PREFIXES {
        let path = format!("{prefix}/agent/scale/3");
        for (headers, status) in [(&link[..], 403), (&page, 403), (&image, 403), (&rebound, 421)] {
            for method in [Method::GET, Method::PUT, Method::POST] {
                let answer = site.ask_with(method, &path, headers).await;
                assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
            }
        }
        // A link on another site may lead to a call that only reads.
        let status = site
            .ask_with(Method::GET, &format!("{prefix}/status/fw"), &link)
            .await;
        assert_eq!(status.status, 200, "{status:?}");
    }
    assert_eq!(site.received_commands(), [""; 0]);
}

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn audit_log_contains_counts_that_are_set_with_get() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false);
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    // A second dispatcher keeps the event enabled. While only one exists, `tracing` disables an event
    // for all threads if the first thread that emits it has no subscriber, and threads of other tests
    // emit the same event.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let site = Site::with(&with_credentials());
    let right = authorization("user");
    let headers = [("authorization", right.as_str())];
    for path in ["/api/m3s/v0/agent/scale/3", "/api/fw/v0/agent/scale"] {
        assert_eq!(site.ask_with(Method::GET, path, &headers).await.status, 200);
    }
    let path = "/api/fw/v0/agent/cordon";
    assert_eq!(site.ask_with(Method::PUT, path, &headers).await.status, 200);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let audited: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("transom::audit"))
        .collect();
    assert_eq!(audited.len(), 2, "{text}");
    assert!(
        audited[0].contains("/api/m3s/v0/agent/scale/3") && audited[0].contains("GET"),
        "{text}"
    );
    assert!(audited[1].contains("/api/fw/v0/agent/cordon"), "{text}");
}

#[tokio::test]
async fn requests_are_counted_by_route() {
    let site = Site::start();
    site.get("/api/fw/v0/agent/scale/3").await;
    site.get("/api/fw/v0/nosuch").await;
    site.get("/api/fw/v0/nosuch/scale").await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &site.registry).unwrap();
    for expected in [
        r#"transom_kubernetes_api_requests_total{route="/api/fw/v0/{kind}/scale/{count}",method="GET",status="200"} 1"#,
        r#"transom_kubernetes_api_requests_total{route="unmatched",method="GET",status="404"} 1"#,
    ] {
        assert!(text.contains(expected), "{text}");
    }
}
