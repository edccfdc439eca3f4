//! Tests of the destinations to which a probe may connect.

use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use transom_plugin_host::{Reserved, probe::Kind};

use crate::support::{Server, Site, custom, logged, read_head, request, response};

async fn odd(grants: &str) -> Site {
    let manifest = format!("world = \"check-probe\"\n[grants]\n{grants}\n[limits]\nmemory = \"16MiB\"\n");
    Site::with(&[("tests/faulty-probe", "odd", Some(&manifest))]).await
}

/// The same plugin in a daemon with reserved destinations.
async fn odd_beside(grants: &str, reserved: &Reserved) -> Site {
    let manifest = format!("world = \"check-probe\"\n[grants]\n{grants}\n[limits]\nmemory = \"16MiB\"\n");
    Site::with_config(&[("tests/faulty-probe", "odd", Some(&manifest))], |config| {
        config.reserved = reserved.clone();
    })
    .await
}

fn connect(host: &str, port: u16) -> String {
    format!(r#"{{"do":"connect","host":"{host}","port":{port}}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_grant_allows_only_the_ports_of_the_task() {
    let site = odd("network = [\"task\"]").await;
    let own = Server::new(|_| async {}).await;
    let other = Server::new(|_| async {}).await;
    let (port, other) = (own.endpoint.port, other.endpoint.port);
    for (host, port, result) in [
        ("127.0.0.1", port, "ok"),
        ("127.0.0.1", other, "denied"),
        ("127.0.0.2", port, "denied"),
        ("169.254.169.254", 80, "denied"),
    ] {
        let found = site.probe("odd", &connect(host, port), Some(&own.endpoint)).await;
        assert_eq!(
            found,
            Ok(custom(&format!(r#"{{"connect": "{result}"}}"#))),
            "{host}:{port}"
        );
    }
    assert_eq!(site.plugins.list()[0].denials, 3);
    assert_eq!(site.sum("transom_plugins_denials_total", &["plugin=\"odd\""]), 3);
    let log_field = format!("wanted=\"127.0.0.1:{other}\"");
    assert!(logged(&[
        "plugin=\"odd\"",
        "run_spec=\"/shop/web\"",
        &log_field,
        "not granted"
    ]));
    site.stop().await;
}

/// By default a probe may connect to its task's own ports. A host name is resolved, and its
/// addresses are checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_default_to_the_task_and_resolve_names() {
    let server = Server::new(|_| async {}).await;
    let port = server.endpoint.port;
    for (grants, host, result) in [
        ("", "127.0.0.1", "ok"),
        ("", "127.0.0.2", "denied"),
        ("network = [\"127.0.0.0/8\"]", "localhost", "ok"),
        ("network = [\"10.0.0.0/8\"]", "localhost", "denied"),
        ("network = [\"localhost:*\"]", "LOCALHOST", "ok"),
        ("network = [\"localhost:*\"]", "127.0.0.1", "denied"),
    ] {
        let site = odd(grants).await;
        let found = site
            .probe("odd", &connect(host, port), Some(&server.endpoint))
            .await;
        let expected = Ok(custom(&format!(r#"{{"connect": "{result}"}}"#)));
        assert_eq!(found, expected, "{grants:?} {host}");
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn network_patterns_grant_destinations_and_an_empty_list_none() {
    let server = Server::new(|_| async {}).await;
    let port = server.endpoint.port;
    for (grants, result) in [
        ("network = [\"127.0.0.0/8\"]".to_owned(), "ok"),
        (format!("network = [\"127.0.0.1:{port}\"]"), "ok"),
        ("network = [\"127.0.0.1:1\"]".to_owned(), "denied"),
        ("network = []".to_owned(), "denied"),
    ] {
        let site = odd(&grants).await;
        let found = site.probe("odd", &connect("127.0.0.1", port), None).await;
        assert_eq!(
            found,
            Ok(custom(&format!(r#"{{"connect": "{result}"}}"#))),
            "{grants}"
        );
        site.stop().await;
    }
}

/// A grant for a network that contains loopback addresses does not allow them, in whatever form
/// they are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broad_grant_does_not_allow_loopback() {
    let server = Server::new(|_| async {}).await;
    let port = server.endpoint.port;
    let site = odd("network = [\"0.0.0.0/0\", \"::/0\", \"task\"]").await;
    for host in [
        "127.0.0.1",
        "127.0.0.2",
        "127.1",
        "localhost",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "0.0.0.0",
        "::",
    ] {
        let found = site.probe("odd", &connect(host, port), None).await;
        assert_eq!(found, Ok(custom(r#"{"connect": "denied"}"#)), "{host}");
    }
    let log_field = format!("wanted=\"127.0.0.1:{port}\"");
    let why = "127.0.0.1: it is a loopback address, which only an entry of grants.network";
    assert!(logged(&["plugin=\"odd\"", &log_field, why]));
    // The task's own port on loopback is allowed, because agents may run on this machine.
    let found = site
        .probe("odd", &connect("127.0.0.1", port), Some(&server.endpoint))
        .await;
    assert_eq!(found, Ok(custom(r#"{"connect": "ok"}"#)));
    site.stop().await;
}

/// Only a grant with exactly its address and port allows a port of the daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_of_the_daemon_its_store_and_masters_need_exact_grants() {
    let [admin, apps, store, master] = [
        Server::new(|_| async {}).await,
        Server::new(|_| async {}).await,
        Server::new(|_| async {}).await,
        Server::new(|_| async {}).await,
    ];
    let reserved = Reserved::default();
    let port = |server: &Server| server.endpoint.port;
    reserved.listener(
        "the admin port of this daemon",
        ([127, 0, 0, 1], port(&admin)).into(),
    );
    reserved.listener("the apps port of this daemon", ([0, 0, 0, 0], port(&apps)).into());
    let servers = [("localhost", &store), ("127.0.0.1", &master)];
    for (host, server) in servers {
        let server = (host.to_owned(), port(server));
        reserved.servers("a server of this daemon", move || vec![server.clone()]);
    }
    let all = [
        (&admin, "the admin port of this daemon"),
        (&apps, "the apps port of this daemon"),
        (&store, "a server of this daemon"),
        (&master, "a server of this daemon"),
    ];
    let broad = r#""0.0.0.0/0", "127.0.0.0/8", "127.0.0.1:*", "task""#.to_owned();
    let exact = all.map(|(server, _)| format!("\"127.0.0.1:{}\"", port(server)));
    for (grants, result) in [(broad, "denied"), (exact.join(", "), "ok")] {
        let site = odd_beside(&format!("network = [{grants}]"), &reserved).await;
        for (server, what) in all {
            let port = port(server);
            // The grant "task" does not allow it, although the task claims the port.
            let at = Some(&server.endpoint);
            let found = site.probe("odd", &connect("127.0.0.1", port), at).await;
            let expected = Ok(custom(&format!(r#"{{"connect": "{result}"}}"#)));
            assert_eq!(found, expected, "{grants} {what}");
            let log_field = format!("wanted=\"127.0.0.1:{port}\"");
            let is_logged = logged(&["plugin=\"odd\"", &log_field, what]);
            assert!(is_logged, "{what}");
        }
        let denied = if result == "denied" { all.len() as u64 } else { 0 };
        assert_eq!(site.status("odd").denials, denied, "{grants}");
        site.stop().await;
    }
}

/// A redirect to a port of the daemon is denied. The log names the target and not the server that
/// redirects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_does_not_lead_to_a_port_of_the_daemon() {
    let (arrived, mut admin_requests) = tokio::sync::mpsc::unbounded_channel();
    let admin = Server::http(move |line| {
        let arrived = arrived.clone();
        async move {
            let _ = arrived.send(line);
            response(200, "", "secret")
        }
    })
    .await;
    let port = admin.endpoint.port;
    let reserved = Reserved::default();
    reserved.listener("the admin port of this daemon", ([127, 0, 0, 1], port).into());
    let own = Server::http(move |line| async move {
        let host = line.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        response(307, &format!("Location: http://{host}:{port}/\r\n"), "")
    })
    .await;
    let site = odd_beside("network = [\"task\", \"127.0.0.0/8\", \"0.0.0.0/0\"]", &reserved).await;
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "localhost"] {
        let settings =
            format!(r#"{{"do":"http","method":"POST","path":"/{host}","redirects":3,"max_body":9}}"#);
        let found = site.probe("odd", &settings, Some(&own.endpoint)).await;
        assert_eq!(found, Ok(custom(r#"{"http": "denied"}"#)), "{host}");
    }
    assert!(
        admin_requests.try_recv().is_err(),
        "no request reaches the admin port"
    );
    let log_field = format!("wanted=\"127.0.0.1:{port}\"");
    assert!(logged(&[
        "plugin=\"odd\"",
        &log_field,
        "the admin port of this daemon"
    ]));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_checked_again() {
    let site = odd("network = [\"task\"]").await;
    let elsewhere = Server::http(|_| async { response(200, "", "secret") }).await;
    let away = elsewhere.endpoint.port;
    let own = Server::http(move |line| async move {
        match line.split(' ').nth(1).unwrap() {
            "/away" => response(302, &format!("Location: http://127.0.0.1:{away}/\r\n"), ""),
            "/near" => response(302, "Location: end\r\n", ""),
            "/round" => response(302, "Location: /round\r\n", ""),
            "/file" => response(302, "Location: file:///etc/passwd\r\n", ""),
            _ => response(200, "", "0123456789"),
        }
    })
    .await;
    for (path, redirects, result) in [
        ("/near", 1, r#"{"status": 200, "bytes": 5}"#),
        ("/near", 0, r#"{"status": 302, "bytes": 0}"#),
        ("/away", 1, r#"{"http": "denied"}"#),
        ("/away", 0, r#"{"status": 302, "bytes": 0}"#),
        ("/round", 3, r#"{"status": 302, "bytes": 0}"#),
        ("/file", 3, r#"{"http": "protocol"}"#),
    ] {
        let settings = format!(r#"{{"do":"http","path":"{path}","redirects":{redirects},"max_body":5}}"#);
        let found = site.probe("odd", &settings, Some(&own.endpoint)).await;
        assert_eq!(found, Ok(custom(result)), "{path} {redirects}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_and_responses_are_io_errors() {
    let site = odd("network = [\"task\"]").await;
    let silent = Server::new(|_| async {}).await;
    let garbage = Server::http(|_| async { "SSH-2.0-nothing\r\n\r\n".to_owned() }).await;
    let huge =
        Server::http(|_| async { format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)) }).await;
    for (server, settings, result) in [
        (&silent, r#"{"do":"http","path":"/"}"#, "closed"),
        (&garbage, r#"{"do":"http","path":"/"}"#, "protocol"),
        (&huge, r#"{"do":"http","path":"/"}"#, "protocol"),
        (&silent, r#"{"do":"http","path":"no-slash"}"#, "protocol"),
        (
            &silent,
            r#"{"do":"http","path":"/","method":"GET / HTTP/1.1\r\nX: y"}"#,
            "protocol",
        ),
    ] {
        let found = site.probe("odd", settings, Some(&server.endpoint)).await;
        assert_eq!(
            found,
            Ok(custom(&format!(r#"{{"http": "{result}"}}"#))),
            "{settings}"
        );
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_need_their_own_grant() {
    let site = odd("network = [\"task\"]").await;
    let mut probe_request = request(None);
    probe_request.settings = r#"{"do":"run","command":"true"}"#.into();
    let found = site
        .plugins
        .probe(Kind::Named("odd".into()), probe_request.clone(), None)
        .await;
    assert_eq!(found, Ok(custom(r#"{"run": "denied"}"#)));
    assert_eq!(site.status("odd").denials, 1);
    assert!(logged(&["plugin=\"odd\"", "wanted=\"a command\"", "not granted"]));
    site.stop().await;
    let site = odd("command = true").await;
    let found = site
        .plugins
        .probe(Kind::Named("odd".into()), probe_request, None)
        .await;
    assert_eq!(found, Ok(custom(r#"{"run": "unavailable"}"#)));
    site.stop().await;
}

/// With its own `Host`, a guest could reach another virtual host than the granted one; with its own
/// length, it could smuggle a second request behind the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn framing_headers_are_rejected() {
    let site = odd("network = [\"task\"]").await;
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let server = Server::new(move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            let head = read_head(&mut stream).await;
            seen.lock().unwrap().push(head);
            // The peer may have closed the connection.
            let _ = stream.write_all(response(200, "", "").as_bytes()).await;
        }
    })
    .await;
    let at = Some(&server.endpoint);
    let ask =
        |name: &str, value: &str| format!(r#"{{"do":"http","path":"/","headers":[["{name}","{value}"]]}}"#);
    for (name, value) in [
        ("Host", "admin.example"),
        ("host", ""),
        ("Content-Length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Upgrade", "websocket"),
    ] {
        let found = site.probe("odd", &ask(name, value), at).await;
        assert_eq!(found, Ok(custom(r#"{"http": "protocol"}"#)), "{name}");
    }
    assert_eq!(*heads.lock().unwrap(), Vec::<String>::new(), "nothing was sent");
    let found = site.probe("odd", &ask("X-Other", "fine"), at).await;
    assert_eq!(found, Ok(custom(r#"{"status": 200, "bytes": 0}"#)));
    let heads = heads.lock().unwrap().clone();
    let head = heads[0].to_ascii_lowercase();
    assert!(head.contains("x-other: fine"), "{head}");
    let host = format!("host: 127.0.0.1:{}\r\n", server.endpoint.port);
    assert!(head.contains(&host), "{head}");
    site.stop().await;
}
