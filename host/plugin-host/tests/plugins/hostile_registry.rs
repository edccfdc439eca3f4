//! Hostile registries: redirects, token servers and responses are bounded and checked.

use std::time::Duration;

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::mpsc};
use transom_plugin_host::{Change, FetchStatus, Registries, State};

use crate::{
    sources::{CONFIG, LAYER, manifest, rejected, serving, sha256, site, variant},
    support::{Server, Site, TIMEOUT, read_head, write_file},
};

/// A registry refers to a token server. The password is only sent there if the settings name that
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_is_not_sent_to_an_unnamed_token_server() {
    let (image, blob) = small_image();
    let (sender, mut token_requests) = mpsc::unbounded_channel();
    let tokens = Server::new(move |mut stream: TcpStream| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(read_head(&mut stream).await.to_lowercase());
            let answer = crate::support::response(200, "", r#"{"token": "sesame"}"#);
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let token_authority = format!("127.0.0.1:{}", tokens.endpoint.port);
    let realm =
        format!("WWW-Authenticate: Bearer realm=\"http://{token_authority}/token\",service=\"s\"\r\n");
    let server = Server::new(move |mut stream: TcpStream| {
        let (realm, image, blob) = (realm.clone(), image.clone(), blob.clone());
        async move {
            let head = read_head(&mut stream).await.to_lowercase();
            let (status, headers, body) = match (
                head.contains("authorization: bearer sesame"),
                head.contains("/blobs/"),
            ) {
                (false, _) => (401, realm, Vec::new()),
                (true, true) => (200, String::new(), blob),
                (true, false) => (200, String::new(), image),
            };
            answer(&mut stream, status, &headers, &body).await;
        }
    })
    .await;
    let address = format!("127.0.0.1:{}", server.endpoint.port);
    let text = manifest(&format!("oci://{address}/team/odd:v1"), "");
    let settings = |login: Option<Option<&str>>, plain: &[&String]| Registries {
        plain_http: plain.iter().map(|it| (*it).clone()).collect(),
        logins: login
            .map(|token_server| transom_plugin_host::Login {
                registry: address.clone(),
                user: "reader".to_owned(),
                password: "hunter2".to_owned(),
                token_server: token_server.map(str::to_owned),
            })
            .into_iter()
            .collect(),
        ..Registries::default()
    };
    for (settings, expected) in [
        (settings(Some(None), &[&address, &token_authority]), "auth_server"),
        (
            settings(Some(Some("auth.example")), &[&address, &token_authority]),
            "auth_server",
        ),
        (settings(Some(Some(&token_authority)), &[&address]), "has no TLS"),
    ] {
        let site = site(&text, settings).await;
        let why = rejected(&site).await;
        assert!(why.contains(expected) && why.contains(&token_authority), "{why}");
        assert!(
            token_requests.try_recv().is_err(),
            "no request reaches the token server"
        );
        site.stop().await;
    }
    for (login, has_password) in [(Some(Some(token_authority.as_str())), true), (None, false)] {
        let site = site(&text, settings(login, &[&address, &token_authority])).await;
        serving(&site).await;
        let head = token_requests.recv().await.unwrap();
        assert!(
            head.starts_with("get /token?scope=repository%3ateam%2fodd%3apull&service=s"),
            "{head}"
        );
        assert_eq!(head.contains("authorization: basic"), has_password, "{head}");
        site.stop().await;
    }
}

async fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) {
    let first = format!(
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
        body.len()
    );
    // The peer may have closed the connection.
    let _ = stream.write_all(first.as_bytes()).await;
    let _ = stream.write_all(body).await;
}

/// A hostile registry that requires a login. `answers` returns status, headers and body for a path.
async fn hostile<A>(answers: A) -> (Server, mpsc::UnboundedReceiver<String>)
where
    A: Fn(&str) -> (u16, String, Vec<u8>) + Clone + Send + 'static,
{
    let (sender, heads) = mpsc::unbounded_channel();
    let server = Server::new(move |mut stream: TcpStream| {
        let (answers, sender) = (answers.clone(), sender.clone());
        async move {
            let head = read_head(&mut stream).await;
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let (status, headers, body) = answers(&path);
            let (status, headers) = if head.to_lowercase().contains("authorization: basic") {
                (status, headers)
            } else {
                (401, "WWW-Authenticate: Basic realm=\"x\"\r\n".to_owned())
            };
            let _ = sender.send(head);
            answer(&mut stream, status, &headers, &body).await;
        }
    })
    .await;
    (server, heads)
}

fn small_image() -> (Vec<u8>, Vec<u8>) {
    let component = variant(7);
    let document = json!({
        "schemaVersion": 2,
        "config": {"mediaType": CONFIG, "digest": sha256(b"{}"), "size": 2},
        "layers": [{"mediaType": LAYER, "digest": sha256(&component), "size": component.len()}],
    });
    (document.to_string().into_bytes(), component)
}

/// A registry may redirect the download of a blob. The redirect is followed without the password,
/// and to a server without TLS only if the settings name that server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_is_not_sent_to_a_redirect_target() {
    let (image, blob) = small_image();
    let (sender, mut target_requests) = mpsc::unbounded_channel();
    let target_server = Server::new(move |mut stream: TcpStream| {
        let (sender, blob) = (sender.clone(), blob.clone());
        async move {
            let head = read_head(&mut stream).await;
            let _ = sender.send(head);
            answer(&mut stream, 200, "", &blob).await;
        }
    })
    .await;
    let target = format!("127.0.0.1:{}", target_server.endpoint.port);
    let location = format!("Location: http://{target}/somewhere\r\n");
    let (server, mut registry_requests) = hostile(move |path| {
        if path.contains("/blobs/") {
            (307, location.clone(), Vec::new())
        } else {
            (200, String::new(), image.clone())
        }
    })
    .await;
    let address = format!("127.0.0.1:{}", server.endpoint.port);
    let login = transom_plugin_host::Login {
        registry: address.clone(),
        user: "reader".to_owned(),
        password: "hunter2".to_owned(),
        token_server: None,
    };
    let settings = |plain: &[&String]| Registries {
        plain_http: plain.iter().map(|it| (*it).clone()).collect(),
        logins: vec![login.clone()],
        ..Registries::default()
    };
    let text = manifest(&format!("oci://{address}/team/odd:v1"), "");
    let strict = site(&text, settings(&[&address])).await;
    let why = rejected(&strict).await;
    assert!(why.contains("redirects to a server without TLS"), "{why}");
    assert!(
        target_requests.try_recv().is_err(),
        "no request reaches the redirect's target"
    );
    strict.stop().await;

    let site = site(&text, settings(&[&address, &target])).await;
    serving(&site).await;
    let head = target_requests.recv().await.unwrap().to_lowercase();
    assert!(
        head.starts_with("get /somewhere") && !head.contains("authorization"),
        "{head}"
    );
    let mut with_password = 0;
    while let Ok(head) = registry_requests.try_recv() {
        with_password += usize::from(head.to_lowercase().contains("authorization: basic"));
    }
    assert!(with_password >= 2, "the registry itself receives the password");
    site.stop().await;
}

/// Neither a redirect of a registry nor its token server can lead to a guarded server that the
/// operator did not name: not to loopback, and not to the daemon's own ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_redirect_to_a_guarded_server_is_rejected() {
    let (image, blob) = small_image();
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let admin = Server::new(move |mut stream: TcpStream| {
        let (arrived, blob) = (arrived.clone(), blob.clone());
        async move {
            let _ = arrived.send(read_head(&mut stream).await);
            answer(&mut stream, 200, "", &blob).await;
        }
    })
    .await;
    let port = admin.endpoint.port;
    // TLS makes no difference: the address is checked before anything is sent.
    for (guarded_url, at, expected) in [
        (
            format!("https://127.0.0.1:{port}/"),
            "redirect",
            "a loopback address",
        ),
        (
            format!("https://localhost:{port}/"),
            "redirect",
            "a loopback address",
        ),
        (
            format!("https://127.0.0.1:{port}/"),
            "token",
            "a loopback address",
        ),
        (
            format!("https://[::ffff:127.0.0.1]:{port}/"),
            "token",
            "a loopback address",
        ),
        (
            format!("https://127.0.0.1:{port}/"),
            "own",
            "the admin port of this daemon",
        ),
        (
            "https://169.254.169.254/".to_owned(),
            "redirect",
            "a link-local address",
        ),
    ] {
        let token = at == "token";
        let (image, url) = (image.clone(), guarded_url.clone());
        let server = Server::new(move |mut stream: TcpStream| {
            let (image, guarded_url) = (image.clone(), url.clone());
            async move {
                let head = read_head(&mut stream).await;
                let (status, headers, body) = if token {
                    let realm = format!("WWW-Authenticate: Bearer realm=\"{guarded_url}\"\r\n");
                    (401, realm, Vec::new())
                } else if head.contains("/blobs/") {
                    (307, format!("Location: {guarded_url}\r\n"), Vec::new())
                } else {
                    (200, String::new(), image)
                };
                answer(&mut stream, status, &headers, &body).await;
            }
        })
        .await;
        let address = format!("127.0.0.1:{}", server.endpoint.port);
        let text = manifest(&format!("oci://{address}/team/odd:v1"), "");
        let site = Site::with_config(&[], |config| {
            config.registries.plain_http = vec![address.clone()];
            if at == "own" {
                let admin = ([127, 0, 0, 1], port).into();
                config.reserved.listener("the admin port of this daemon", admin);
            }
            write_file(&config.dir, "odd.toml", text.as_bytes());
        })
        .await;
        let why = rejected(&site).await;
        assert!(
            why.contains(expected) && why.contains("plugins.oci"),
            "{guarded_url}: {why}"
        );
        assert!(arrivals.try_recv().is_err(), "a request reached {guarded_url}");
        site.stop().await;
    }
}

/// Neither an endless manifest nor a layer that is longer than its declared size fills the daemon's
/// memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_responses_are_not_read() {
    let (image, mut blob) = small_image();
    blob.extend_from_slice(&[0; 100]);
    for (long_manifest, expected) in [(true, "the image manifest from"), (false, "the component from")] {
        let (image, blob) = (image.clone(), blob.clone());
        let (server, _requests) = hostile(move |path| match (path.contains("/blobs/"), long_manifest) {
            (true, _) => (200, String::new(), blob.clone()),
            (false, true) => (200, String::new(), vec![b' '; 3 << 20]),
            (false, false) => (200, String::new(), image.clone()),
        })
        .await;
        let address = format!("127.0.0.1:{}", server.endpoint.port);
        let settings = Registries {
            plain_http: vec![address.clone()],
            logins: vec![transom_plugin_host::Login {
                registry: address.clone(),
                user: "u".to_owned(),
                password: "p".to_owned(),
                token_server: None,
            }],
            ..Registries::default()
        };
        let site = site(&manifest(&format!("oci://{address}/team/odd:v1"), ""), settings).await;
        let why = rejected(&site).await;
        assert!(why.contains(expected) && why.contains("has more than"), "{why}");
        site.stop().await;
    }
}

/// A registry that does not answer delays no other plugin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetching_blocks_no_other_plugin() {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let silent = Server::new(move |stream: TcpStream| {
        let arrived = arrived.clone();
        async move {
            let _ = arrived.send(());
            std::future::pending::<()>().await;
            drop(stream);
        }
    })
    .await;
    let address = format!("127.0.0.1:{}", silent.endpoint.port);
    let settings = Registries {
        plain_http: vec![address.clone()],
        idle_timeout: TIMEOUT,
        timeout: Duration::from_millis(500),
        refresh: Duration::from_hours(1),
        ..Registries::default()
    };
    let text = manifest(&format!("oci://{address}/team/odd:v1"), "");
    let slow = Registries {
        timeout: TIMEOUT,
        ..settings.clone()
    };
    let waiting = site(&text, slow).await;
    arrivals.recv().await.unwrap();
    let status = waiting.status("odd");
    assert_eq!((status.state, status.refusal), (State::Fetching, None));
    assert_eq!(status.source.unwrap().state, FetchStatus::Pending);
    let plain = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[config]\nmark = \"p\"\n";
    let change = waiting.replace("tests/faulty-probe", "other", plain).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert!(waiting.probe("other", "{}", None).await.is_ok());
    assert!(waiting.plugins.rollback("odd", None, "x").await.is_err());
    let stop = tokio::time::timeout(TIMEOUT / 2, waiting.stop());
    stop.await.expect("stopping the host cancels the fetch");

    let site = site(&text, settings).await;
    let why = rejected(&site).await;
    assert!(why.contains("took longer than 500ms"), "{why}");
    site.stop().await;
}
