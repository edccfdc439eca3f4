//! DNS over TLS and over HTTPS, with real clients and with misbehaving ones.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

#[path = "../common/mod.rs"]
mod common;
mod https;
mod https_limits;
mod same_answers;
mod tls;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use transom_discovery::dns::respond::{Client, Reply, Respond};

use common::WAIT_TIMEOUT;

/// Answers every query with one fixed address. The first label of a name can change that: `slow` is
/// answered after the gate has a permit, `transfer` with three messages, and `limited` exceeds the
/// rate limit.
pub(crate) struct FixedResponder {
    pub(crate) gate: Arc<Semaphore>,
}

impl Default for FixedResponder {
    fn default() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
        }
    }
}

impl Respond for FixedResponder {
    fn respond(&self, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply {
        assert!(client.ip.is_loopback());
        let Ok(mut message) = Message::from_vec(packet) else {
            return Reply::Silence;
        };
        message.metadata.message_type = MessageType::Response;
        let Some(name) = message.queries.first().map(|question| question.name().clone()) else {
            return Reply::Silence;
        };
        message.add_answer(Record::from_rdata(
            name.clone(),
            60,
            RData::A(A([10, 0, 0, 1].into())),
        ));
        let answer = message.to_vec().unwrap();
        match name.iter().next() {
            Some(b"slow") => {
                let gate = Arc::clone(&self.gate);
                Reply::Later(Box::pin(async move {
                    gate.acquire().await.unwrap().forget();
                    answer
                }))
            }
            Some(b"transfer") => {
                let mut remaining = 3;
                Reply::Messages(Box::new(move || {
                    remaining -= 1;
                    (remaining >= 0).then(|| answer.clone())
                }))
            }
            _ => {
                out.extend(answer);
                Reply::Written
            }
        }
    }

    fn is_within_rate(&self, _: Client, answer: &[u8]) -> bool {
        !answer.windows(7).any(|label| label == b"limited")
    }
}

/// Writes a new certificate and its key to two files in a folder, and returns the certificate.
pub(crate) fn certify(dir: &Path) -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["dns.test".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    // Written to a temporary file and renamed, so that a reader sees the whole file or none.
    for (name, text) in [("key.pem", key.serialize_pem()), ("cert.pem", certificate.pem())] {
        std::fs::write(dir.join("new"), text).unwrap();
        std::fs::rename(dir.join("new"), dir.join(name)).unwrap();
    }
    certificate.der().clone()
}

/// Opens a TLS connection as a client that trusts only this certificate.
pub(crate) async fn connect(
    addr: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("dns.test").unwrap();
    let connector = TlsConnector::from(Arc::new(client_config(trusted, alpn)));
    let handshake = connector.connect(name, stream);
    timeout(WAIT_TIMEOUT, handshake).await.unwrap()
}

pub(crate) fn client_config(trusted: &CertificateDer<'static>, alpn: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// Runs a program and returns its standard output and standard error.
pub(crate) async fn run(program: &str, package: &str, args: &[String]) -> String {
    let output = Command::new(program).args(args).kill_on_drop(true).output();
    let output = timeout(WAIT_TIMEOUT, output).await.unwrap();
    let output = output.unwrap_or_else(|error| panic!("this test needs {program} from {package}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
