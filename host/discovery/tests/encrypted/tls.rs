//! DNS over TLS, from the handshake to the end of the connection.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use transom_discovery::dns::listeners::connection::{ConnectionLimits, serve_connection};
use transom_discovery::dns::listeners::tls::{Certificate, ListenerLimits, Protocol, serve};
use transom_web::ConnectionSlot;

use crate::common::{WAIT_TIMEOUT, query, wait_until};
use crate::{FixedResponder, certify, connect};

async fn read(dir: &Path) -> transom_discovery::Result<Certificate> {
    Certificate::read(&dir.join("cert.pem"), &dir.join("key.pem"), Protocol::Tls).await
}

struct Port {
    addr: SocketAddr,
    token: CancellationToken,
    serving: JoinHandle<()>,
}

impl Port {
    async fn open(dir: &TempDir, limits: ListenerLimits) -> Self {
        Self::with_connection_limits(dir, limits, ConnectionLimits::default()).await
    }

    async fn with_connection_limits(
        dir: &TempDir,
        limits: ListenerLimits,
        connection: ConnectionLimits,
    ) -> Self {
        let certificate = read(dir.path()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, token) = (listener.local_addr().unwrap(), CancellationToken::new());
        let stopping = token.clone();
        let converse = move |stream, client, slot: ConnectionSlot| {
            let stopping = stopping.clone();
            async move {
                let responder = FixedResponder::default();
                serve_connection(stream, client, &responder, connection, &slot, &stopping).await;
            }
        };
        let serving = tokio::spawn(serve(
            "dns-tls",
            listener,
            certificate,
            limits,
            converse,
            token.clone(),
        ));
        Self { addr, token, serving }
    }

    async fn connect(
        &self,
        trusted: &CertificateDer<'static>,
        alpn: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.addr, trusted, alpn).await
    }

    async fn close(self) {
        self.token.cancel();
        timeout(WAIT_TIMEOUT, self.serving).await.unwrap().unwrap();
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>, name: &str) -> Message {
    let query = query(name, RecordType::A).to_vec().unwrap();
    stream.write_u16(query.len() as u16).await.unwrap();
    stream.write_all(&query).await.unwrap();
    stream.flush().await.unwrap();
    let size = timeout(WAIT_TIMEOUT, stream.read_u16()).await.unwrap().unwrap();
    let mut answer = vec![0; size.into()];
    stream.read_exact(&mut answer).await.unwrap();
    Message::from_vec(&answer).unwrap()
}

/// Checks that the server ends the connection with `close_notify`, which distinguishes it from one that
/// an attacker truncated.
async fn ends(mut stream: TlsStream<TcpStream>) {
    assert_eq!(
        timeout(WAIT_TIMEOUT, stream.read(&mut [0]))
            .await
            .unwrap()
            .unwrap(),
        0
    );
}

#[tokio::test]
async fn queries_are_answered_over_tls() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let port = Port::open(&dir, ListenerLimits::default()).await;
    let mut stream = port.connect(&trusted, &[b"dot"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"dot"[..]));
    for name in ["web.marathon.mesos.", "other.marathon.mesos."] {
        let answer = ask(&mut stream, name).await;
        assert_eq!(answer.answers[0].name.to_string(), name);
    }
    // A client without ALPN is accepted; one that offers only other protocols is not.
    let mut plain = port.connect(&trusted, &[]).await.unwrap();
    ask(&mut plain, "web.marathon.mesos.").await;
    assert!(port.connect(&trusted, &[b"h2"]).await.is_err());
    port.close().await;
    ends(stream).await;
    ends(plain).await;
}

#[tokio::test]
async fn dig_gets_answers_over_tls() {
    let dir = TempDir::new().unwrap();
    certify(dir.path());
    let port = Port::open(&dir, ListenerLimits::default()).await;
    let run = Command::new("dig")
        .args([
            "@127.0.0.1",
            "-p",
            &port.addr.port().to_string(),
            "+tls",
            "+time=5",
            "+tries=1",
        ])
        .args([
            format!("+tls-ca={}", dir.path().join("cert.pem").display()),
            "+tls-hostname=dns.test".into(),
        ])
        .args(["web.marathon.mesos", "A"])
        .output();
    let output = run
        .await
        .unwrap_or_else(|error| panic!("this test needs dig from the package dnsutils: {error}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("10.0.0.1") && text.contains("(TLS)"), "{text}");
    port.close().await;
}

#[tokio::test]
async fn valid_new_certificate_is_loaded_and_invalid_one_is_not() {
    let dir = TempDir::new().unwrap();
    let first = certify(dir.path());
    let limits = ListenerLimits {
        reload_interval: Duration::from_millis(10),
        ..ListenerLimits::default()
    };
    let port = Port::open(&dir, limits).await;
    let mut open = port.connect(&first, &[b"dot"]).await.unwrap();
    let second = certify(dir.path());
    wait_until("the second certificate", async || {
        port.connect(&second, &[b"dot"]).await.is_ok()
    })
    .await;
    assert!(port.connect(&first, &[b"dot"]).await.is_err());
    // The reload does not end open connections.
    ask(&mut open, "web.marathon.mesos.").await;

    // The second certificate stays in service while the files have another certificate's key, then an
    // invalid certificate, then none.
    let other_dir = TempDir::new().unwrap();
    certify(other_dir.path());
    std::fs::copy(other_dir.path().join("key.pem"), dir.path().join("key.pem")).unwrap();
    port.connect(&second, &[b"dot"]).await.unwrap();
    std::fs::write(dir.path().join("cert.pem"), "rubbish").unwrap();
    port.connect(&second, &[b"dot"]).await.unwrap();
    std::fs::remove_file(dir.path().join("cert.pem")).unwrap();
    port.connect(&second, &[b"dot"]).await.unwrap();
    // The files are still checked for changes.
    let third = certify(dir.path());
    wait_until("the third certificate", async || {
        port.connect(&third, &[b"dot"]).await.is_ok()
    })
    .await;
    port.close().await;
}

#[tokio::test]
async fn start_fails_for_invalid_certificates() {
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    certify(other.path());
    let secret = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n";
    for (chain, private, expected) in [
        (None, None, "[discovery] tls_certificate: "),
        (Some(""), Some(""), "cert.pem: has no certificate; expected PEM"),
        (Some("good"), None, "[discovery] tls_key: "),
        (
            Some("good"),
            Some(""),
            "key.pem: has no private key; expected one in PEM",
        ),
        (
            Some("good"),
            Some(secret),
            "key.pem: has no private key; expected one in PEM",
        ),
        (Some("good"), Some("other"), "key.pem: is not the key of "),
        (
            Some("-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n"),
            Some("good"),
            "cert.pem: cannot be used",
        ),
    ] {
        certify(dir.path());
        for (file, text) in [(&cert, chain), (&key, private)] {
            match text {
                None => std::fs::remove_file(file).unwrap(),
                Some("good") => {}
                Some("other") => drop(std::fs::copy(other.path().join("key.pem"), file).unwrap()),
                Some(text) => std::fs::write(file, text).unwrap(),
            }
        }
        let error = read(dir.path()).await.unwrap_err().to_string();
        assert!(
            error.contains(expected) && !error.contains("c2VjcmV0"),
            "{error}, not {expected}"
        );
    }
}

#[tokio::test]
async fn slow_handshakes_and_clients_are_disconnected() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let short = Duration::from_millis(100);
    let limits = ListenerLimits {
        max_connections: 1,
        handshake_timeout: short,
        ..ListenerLimits::default()
    };
    let connection = ConnectionLimits {
        query_timeout: short,
        ..ConnectionLimits::default()
    };
    let port = Port::with_connection_limits(&dir, limits, connection).await;
    // One client sends nothing, one no TLS, and one nothing after the handshake.
    let mut silent = TcpStream::connect(port.addr).await.unwrap();
    assert_eq!(
        timeout(WAIT_TIMEOUT, silent.read(&mut [0]))
            .await
            .unwrap()
            .unwrap_or(0),
        0
    );
    let mut plaintext = TcpStream::connect(port.addr).await.unwrap();
    plaintext.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut alert = Vec::new();
    // A reset has ended the connection as well.
    let _ = timeout(WAIT_TIMEOUT, plaintext.read_to_end(&mut alert))
        .await
        .unwrap();
    let accepted = port.connect(&trusted, &[b"dot"]).await.unwrap();
    ends(accepted).await;
    // Every ended connection has freed the only place.
    let mut last = port.connect(&trusted, &[b"dot"]).await.unwrap();
    ask(&mut last, "web.marathon.mesos.").await;
    // A further connection replaces the idle one, which ends with `close_notify`.
    let (waiting, ()) = tokio::join!(port.connect(&trusted, &[b"dot"]), ends(last));
    ask(&mut waiting.unwrap(), "web.marathon.mesos.").await;
    port.close().await;
}

#[tokio::test]
async fn certificate_file_may_have_a_chain() {
    let dir = TempDir::new().unwrap();
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::CertifiedIssuer::self_signed(authority, authority_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["dns.test".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    std::fs::write(dir.path().join("cert.pem"), leaf.pem() + &issuer.pem()).unwrap();
    std::fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
    let port = Port::open(&dir, ListenerLimits::default()).await;
    let trusted = CertificateDer::from_pem_slice(issuer.pem().as_bytes()).unwrap();
    let mut stream = port.connect(&trusted, &[b"dot"]).await.unwrap();
    ask(&mut stream, "web.marathon.mesos.").await;
    assert_eq!(stream.get_ref().1.peer_certificates().unwrap().len(), 2);
    port.close().await;
}
