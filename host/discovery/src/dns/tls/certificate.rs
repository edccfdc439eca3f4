//! The certificate that DNS over TLS shows.

use std::path::Path;

use tokio_rustls::TlsAcceptor;

use crate::{Error, Result};

/// What the protocol is called in a handshake (RFC 7858, section 3.1, as registered with IANA).
const ALPN: &[u8] = b"dot";

/// A chain of certificates and the key to its first, from two PEM files.
#[derive(Debug)]
pub struct Certificate(transom_web::Certificate);

impl Certificate {
    /// Reads the files: `certificate` begins with the server's own, the rest of the chain follows.
    ///
    /// # Errors
    /// [`Error::Config`] when a file cannot be read, has nothing of its kind, or the key is another's.
    pub async fn read(certificate: &Path, key: &Path) -> Result<Self> {
        let read = transom_web::Certificate::read(certificate, key, ALPN).await;
        read.map(Self).map_err(|error| match error {
            transom_web::Error::Certificate { key, what } => Error::Config { key, what },
            other => Error::Config {
                key: "tls_certificate",
                what: other.to_string(),
            },
        })
    }

    /// Shakes hands with whatever is shown at the time.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.0.acceptor()
    }

    /// Looks whether the files have changed.
    pub(super) async fn look(&mut self) {
        self.0.look().await;
    }
}
