//! The state document: the master that it is read from, compression, and the login for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{Server, Step, json_answer, text_answer};
use transom_cluster::{Client, Config, Error, ServiceAccount, Tls};

const LEADER: &str = "master@127.0.0.1:1";

fn client(masters: &[&Server]) -> Client {
    Client::new(config(masters)).unwrap()
}

fn config(masters: &[&Server]) -> Config {
    Config {
        masters: masters.iter().map(|server| server.name()).collect(),
        connect_timeout: Duration::from_secs(5),
        state_timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

async fn master(id: &'static str) -> Server {
    Server::start(move |_| json_answer(&json!({"id": id, "leader": LEADER}))).await
}

#[tokio::test]
async fn each_document_is_requested_on_a_new_connection() {
    let server = master("good").await;
    let client = client(&[&server]);
    for _ in 0..3 {
        client.state().await.unwrap();
    }
    let mut connections: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.connection)
        .collect();
    connections.dedup();
    assert_eq!(connections.len(), 3, "each has its own connection");
}

#[tokio::test]
async fn masters_are_tried_in_listed_order_for_every_document() {
    let valid = master("good").await;
    for invalid in [
        "503 Service Unavailable",
        "500 Internal Server Error",
        "404 Not Found",
        "401 Unauthorized",
    ] {
        let invalid =
            Server::start(move |_| text_answer(invalid, r#"{"id": "odd", "leader": "master@127.0.0.1:1"}"#))
                .await;
        let client = client(&[&invalid, &valid]);
        for count in 1..=2 {
            assert_eq!(client.state().await.unwrap().id, "good");
            assert_eq!(
                invalid.requests().len(),
                count,
                "the first master is tried first every time"
            );
        }
    }
    for invalid in ["{\"leader\": ", "", "[]", "{}", r#"{"leader": ""}"#] {
        let invalid = Server::start(move |_| text_answer("200 OK", invalid)).await;
        assert_eq!(client(&[&invalid, &valid]).state().await.unwrap().id, "good");
    }
    let leaderless = Server::start(|_| json_answer(&json!({"slaves": []}))).await;
    let error = client(&[&leaderless]).state().await.unwrap_err();
    assert!(
        matches!(&error, Error::NotReady { body, .. } if body.contains("names no leader")),
        "{error:?}"
    );
}

fn zipped(document: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(document.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zipped_answer(body: &[u8]) -> Vec<Step> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::Trickle([head.as_bytes(), body].concat(), 17)]
}

#[tokio::test]
async fn document_may_be_compressed() {
    let body = zipped(&json!({"id": "z", "leader": LEADER, "hostname": "h".repeat(10_000)}));
    let server = Server::start(move |_| zipped_answer(&body)).await;
    assert_eq!(client(&[&server]).state().await.unwrap().hostname.len(), 10_000);
    assert_eq!(server.requests()[0].header("accept-encoding"), Some("gzip"));
    let server = Server::start(|_| zipped_answer(b"no gzip")).await;
    let error = client(&[&server]).state().await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { .. }), "{error:?}");
}

fn account(login: &Server, key: &[u8]) -> ServiceAccount {
    ServiceAccount {
        uid: "dns".into(),
        private_key: key.to_vec(),
        login_endpoint: format!("http://{}/acs/login", login.name()),
        tls: Tls::default(),
    }
}

const KEY: &[u8] = include_bytes!("login/key.pem");
const OLDER_KEY: &[u8] = include_bytes!("login/key-pkcs1.pem");
const PUBLIC: &[u8] = include_bytes!("login/public.der");

/// Verifies the signature of a login and returns its claims.
fn login_of(body: &Value) -> Value {
    assert_eq!(body["uid"], "dns");
    let token = body["token"].as_str().unwrap();
    let (signing_input, signature) = token.rsplit_once('.').unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, PUBLIC);
    key.verify(signing_input.as_bytes(), &signature).unwrap();
    let (head, claims) = signing_input.split_once('.').unwrap();
    let read =
        |part| -> Value { serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    assert_eq!(read(head)["alg"], "RS256");
    read(claims)
}

#[tokio::test]
async fn a_service_account_logs_in_for_each_document() {
    for key in [KEY, OLDER_KEY] {
        let count = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&count);
        let login = Server::start(move |_| {
            json_answer(&json!({"token": format!("t{}", counting.fetch_add(1, Ordering::Relaxed))}))
        })
        .await;
        let server = master("m").await;
        let config = Config {
            service_account: Some(account(&login, key)),
            ..config(&[&server])
        };
        assert!(!format!("{config:?}").contains("PRIVATE"));
        let client = Client::new(config).unwrap();
        for token in ["token=t0", "token=t1"] {
            client.state().await.unwrap();
            assert_eq!(
                server.requests().last().unwrap().header("authorization"),
                Some(token)
            );
        }
        let request = &login.requests()[0];
        assert_eq!(request.line, "POST /acs/login");
        let claims = login_of(&request.json());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(claims["uid"], "dns");
        assert!(
            (now + 3500..=now + 3600).contains(&claims["exp"].as_u64().unwrap()),
            "{claims}"
        );
        // A call uses the present token.
        drop(client.get_tasks().await);
        assert_eq!(
            server.requests().last().unwrap().header("authorization"),
            Some("token=t1")
        );
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn rejected_login_is_an_error_and_no_master_is_contacted() {
    let server = master("m").await;
    let login = Server::start(|_| text_answer("401 Unauthorized", "who are you")).await;
    let config = Config {
        service_account: Some(account(&login, KEY)),
        ..config(&[&server])
    };
    let error = Client::new(config).unwrap().state().await.unwrap_err();
    assert!(
        matches!(&error, Error::Rejected { call, status: 401, body } if call.contains("the login of \"dns\"") && body == "who are you"),
        "{error:?}"
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn client_creation_fails_for_an_invalid_service_account() {
    let login = Server::start(|_| json_answer(&json!({}))).await;
    let server = master("m").await;
    for (key, endpoint, expected) in [
        (&b"nothing"[..], "http://h/", "not in PEM format"),
        (include_bytes!("tls/key.pem"), "http://h/", "not an RSA key"),
        (KEY, "h", "must be an http or https URL"),
        (KEY, "ftp://h/", "must be an http or https URL"),
    ] {
        let account = ServiceAccount {
            login_endpoint: endpoint.into(),
            ..account(&login, key)
        };
        let config = Config {
            service_account: Some(account),
            ..config(&[&server])
        };
        let error = Client::new(config).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("\"dns\""), "{error}");
    }
}

#[tokio::test]
async fn tls_check_rejects_invalid_certificates() {
    let pair = [&include_bytes!("tls/cert.pem")[..], include_bytes!("tls/key.pem")].concat();
    let with = |identity: &[u8]| Tls {
        identity: Some(identity.to_vec()),
        ..Tls::default()
    };
    with(&pair).check().unwrap();
    for identity in [&b"nothing"[..], include_bytes!("tls/cert.pem")] {
        let error = with(identity).check().unwrap_err();
        assert!(matches!(&error, Error::Config { .. }), "{error:?}");
    }
    let authorities = Tls {
        authorities: Some(b"nothing".to_vec()),
        ..Tls::default()
    };
    assert!(authorities.check().is_err());
}
