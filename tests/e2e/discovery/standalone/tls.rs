//! Masters over TLS that require a client certificate, by the keys of mesos-dns's file:
//! `MesosHTTPSOn`, `CACertFile`, `CertFile` and `KeyFile`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use transom_testkit::eventually;

use super::{Lookups, STATE_A, WEB_ADDRESS_A};

/// A file of the tests' certificates and keys.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/discovery/tls")
        .join(name)
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file(name)).unwrap()
}

/// A master that rejects clients without a certificate of its authority.
struct MutualTlsMaster {
    address: SocketAddr,
    /// The number of requests for the state by trusted clients.
    state_requests: Arc<AtomicUsize>,
    /// The error of the last rejected handshake.
    handshake_error: Arc<Mutex<Option<String>>>,
    server_stop: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl MutualTlsMaster {
    fn start() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca.pem")).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let key = PrivateKeyDer::from_pem_file(file("master-key.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate("master.pem")], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut master = Self {
            address: listener.local_addr().unwrap(),
            state_requests: Arc::default(),
            handshake_error: Arc::default(),
            server_stop: Arc::default(),
            serving: None,
        };
        let (state_requests, handshake_error, server_stop) = (
            Arc::clone(&master.state_requests),
            Arc::clone(&master.handshake_error),
            Arc::clone(&master.server_stop),
        );
        let config = Arc::new(config);
        master.serving = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if server_stop.load(Ordering::SeqCst) {
                    return;
                }
                if let Err(error) = serve(stream.unwrap(), Arc::clone(&config), &state_requests) {
                    *handshake_error.lock().unwrap() = Some(error.to_string());
                }
            }
        }));
        master
    }

    fn handshake_error(&self) -> Option<String> {
        self.handshake_error.lock().unwrap().take()
    }
}

impl Drop for MutualTlsMaster {
    fn drop(&mut self) {
        self.server_stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// Answers one request: 200 with the state, or 404 for another path. Fails if the TLS handshake
/// fails.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, state_requests: &AtomicUsize) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let (status, body) = if head.starts_with(b"GET /state ") {
        state_requests.fetch_add(1, Ordering::SeqCst);
        ("200 OK", STATE_A)
    } else {
        ("404 Not Found", "")
    };
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// mesos-dns's keys for this master: `authority` verifies the master, `client_certificate` names the client's
/// certificate and key.
fn keys(master: &MutualTlsMaster, authority: &str, client_certificate: Option<&str>) -> Value {
    let mut keys = json!({
        "masters": [master.address.to_string()], "mesosHTTPSOn": true, "CACertFile": file(authority),
    });
    if let Some(name) = client_certificate {
        keys["CertFile"] = json!(file(&format!("{name}.pem")));
        keys["KeyFile"] = json!(file(&format!("{name}-key.pem")));
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_presented_to_the_master() {
    let master = MutualTlsMaster::start();
    let lookups = Lookups::start(&keys(&master, "ca.pem", Some("client")));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
    assert!(master.state_requests.load(Ordering::SeqCst) > 0);
    let (status, output) = lookups.daemon.interrupt();
    assert!(status.success(), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn master_is_not_queried_with_wrong_certificates() {
    for (authority, client_certificate, why) in [
        // The client presents no certificate, or one whose authority the master does not trust.
        ("ca.pem", None, "certificate"),
        ("ca.pem", Some("stranger"), "certificate"),
        // The master's certificate is not signed by the authority in the file.
        ("other-ca.pem", Some("client"), "alert"),
    ] {
        let master = MutualTlsMaster::start();
        let lookups = Lookups::start(&keys(&master, authority, client_certificate));
        for _ in 0..2 {
            eventually("an attempt that is rejected", || async {
                match master.handshake_error() {
                    Some(handshake_error) if handshake_error.to_lowercase().contains(why) => Ok(()),
                    handshake_error => {
                        Err(format!("{authority} {client_certificate:?}: {handshake_error:?}"))
                    }
                }
            })
            .await;
        }
        assert_eq!(
            lookups.web().await.0,
            ResponseCode::ServFail,
            "{authority} {client_certificate:?}"
        );
        assert_eq!(master.state_requests.load(Ordering::SeqCst), 0);
        assert_eq!(lookups.status("/v1/hosts/web.marathon.mesos").await, 503);
    }
}
