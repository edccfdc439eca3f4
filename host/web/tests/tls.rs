//! A port that speaks TLS, over real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderName;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_web::{ApiError, Certificate, Error, Forwarder, Limits, Listener, TlsPem, serve};

const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
const LIMITS: Limits = Limits {
    max_body: 1 << 20,
    max_head: 64 << 10,
    header_timeout: Duration::from_millis(300),
    body_idle_timeout: Duration::from_secs(20),
    body_timeout: Duration::from_secs(20),
    max_connections: 16,
    write_timeout: Duration::from_secs(20),
    max_streams: 10,
    max_requests: None,
};

/// Certificate and key in two files, and the certificate as PEM.
fn certify() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    std::fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("cert.pem"), certificate.pem()).unwrap();
    (dir, certificate.pem())
}

async fn read(dir: &TempDir) -> transom_web::Result<Certificate> {
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    Certificate::read(&certificate, &key, b"http/1.1").await
}

struct Server {
    addr: SocketAddr,
    token: CancellationToken,
    task: JoinHandle<transom_web::Result<()>>,
}

impl Server {
    fn start(certificate: Certificate, router: Router) -> Self {
        Self::start_with(certificate, router, LIMITS)
    }

    fn start_with(certificate: Certificate, router: Router, limits: Limits) -> Self {
        let listener = Listener::bind("secured", ([127, 0, 0, 1], 0).into()).unwrap();
        let (addr, token) = (listener.local_addr(), CancellationToken::new());
        let listener = listener.with_certificate(certificate);
        let task = tokio::spawn(serve(listener, router, limits, token.clone(), SHUTDOWN_GRACE));
        Self { addr, token, task }
    }

    async fn stop(self) {
        self.token.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// A client that trusts one certificate, or none.
fn client(trusted: Option<&str>) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = trusted.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only(trusted)
        .build()
        .unwrap()
}

fn hello() -> Router {
    Router::new().route(
        "/",
        get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("hello {}", peer.ip())),
    )
}

#[tokio::test]
async fn port_with_a_certificate_accepts_tls_only() {
    let (dir, pem) = certify();
    let server = Server::start(read(&dir).await.unwrap(), hello());
    let url = |scheme: &str| format!("{scheme}://{}/", server.addr);
    let trusting = client(Some(&pem));
    for _ in 0..2 {
        let answer = trusting.get(url("https")).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "hello 127.0.0.1");
    }
    // A client without the certificate rejects the connection, and a plain HTTP client gets no
    // answer.
    assert!(client(None).get(url("https")).send().await.is_err());
    assert!(trusting.get(url("http")).send().await.is_err());
    // A silent connection is closed.
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut rest)).await;
    assert_eq!(closed.unwrap().unwrap(), 0);
    server.stop().await;
}

#[tokio::test]
async fn handshakes_of_accepted_connections_end_while_the_port_stops() {
    let (dir, pem) = certify();
    let limits = Limits {
        header_timeout: Duration::from_secs(20),
        ..LIMITS
    };
    let server = Server::start_with(read(&dir).await.unwrap(), hello(), limits);
    let accepted = TcpStream::connect(server.addr).await.unwrap();
    // Connections are accepted in the order of their arrival.
    let url = format!("https://{}/", server.addr);
    client(Some(&pem)).get(url).send().await.unwrap();
    server.token.cancel();

    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = "localhost".try_into().unwrap();
    let mut stream = connector.connect(name, accepted).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello 127.0.0.1"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn requests_are_passed_on_within_tls() {
    let (dir, pem) = certify();
    let leader = Server::start(read(&dir).await.unwrap(), hello());
    let certificate = read(&dir).await.unwrap();
    let issuers = certificate.issuers().await.unwrap();
    let via = HeaderName::from_static("x-via");
    let forwarding_router = |forwarder: Forwarder, leader: SocketAddr| {
        Router::new().fallback(async move |request: Request| -> Response {
            let (head, _) = request.into_parts();
            match forwarder
                .forward(&leader.to_string(), &head, bytes::Bytes::new())
                .await
            {
                Ok(response) => response,
                Err(error) => ApiError::from(error).into_response(),
            }
        })
    };
    let secured = Forwarder::secured(via.clone(), "own:1", &issuers).unwrap();
    let standby = Server::start(certificate, forwarding_router(secured, leader.addr));
    let url = format!("https://{}/", standby.addr);
    let answer = client(Some(&pem)).get(&url).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.text().await.unwrap().as_str()),
        (200, "hello 127.0.0.1")
    );
    standby.stop().await;

    // A client sends nothing to a server with another certificate.
    let (other, _) = certify();
    let other_issuers = read(&other).await.unwrap().issuers().await.unwrap();
    let distrusting = Forwarder::secured(via.clone(), "own:1", &other_issuers).unwrap();
    let standby = Server::start(
        read(&dir).await.unwrap(),
        forwarding_router(distrusting, leader.addr),
    );
    let url = format!("https://{}/", standby.addr);
    let answer = client(Some(&pem)).get(&url).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 502);
    standby.stop().await;
    leader.stop().await;
    assert!(matches!(
        Forwarder::secured(via, "own:1", b"-----BEGIN CERTIFICATE-----\n"),
        Err(Error::Forwarder { .. })
    ));
}

#[tokio::test]
async fn certificate_errors_name_the_cause() {
    let (dir, _) = certify();
    let (other, _) = certify();
    let replace = |file: &str, with: &std::path::Path| {
        std::fs::copy(with, dir.path().join(file)).unwrap();
    };
    let assert_served = async |expected: &str| {
        let error = read(&dir).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    replace("key.pem", &other.path().join("key.pem"));
    assert_served("is not the key of").await;
    replace("key.pem", &dir.path().join("cert.pem"));
    assert_served("`tls_key`").await;
    std::fs::remove_file(dir.path().join("cert.pem")).unwrap();
    assert_served("cannot be read").await;
}

#[tokio::test]
async fn certificate_in_memory_is_served_and_its_faults_are_named() {
    let ((dir, pem), (other, _)) = (certify(), certify());
    let text = |dir: &TempDir, name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let with = |certificate: &str, key: &str| TlsPem {
        settings: ["crt", "key"],
        certificate: certificate.to_owned(),
        key: key.into(),
    };
    let (certificate, key) = (text(&dir, "cert.pem"), text(&dir, "key.pem"));
    let valid = with(&certificate, &key);
    assert!(valid.problems().is_empty());
    assert!(!format!("{valid:?}").contains("PRIVATE KEY"));
    for (invalid, expected) in [
        (
            with(&certificate, &text(&other, "key.pem")),
            "`key`: is not the key of the certificate",
        ),
        (with("none", &key), "`crt`: has no certificate"),
        (
            with("none", "none"),
            "`crt`: has no certificate\n`key`: has no private key",
        ),
    ] {
        let problems: Vec<String> = invalid.problems().iter().map(ToString::to_string).collect();
        let all: Vec<&str> = problems.iter().map(|it| it.split(';').next().unwrap()).collect();
        assert_eq!(all.join("\n"), expected);
        assert!(Certificate::from_pem(&invalid, b"http/1.1").is_err());
    }
    let server = Server::start(Certificate::from_pem(&valid, b"http/1.1").unwrap(), hello());
    let url = format!("https://{}/", server.addr);
    let answer = client(Some(&pem)).get(&url).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "hello 127.0.0.1");
    let other_certificate = text(&other, "cert.pem");
    assert!(client(Some(&other_certificate)).get(&url).send().await.is_err());
    server.stop().await;
}
