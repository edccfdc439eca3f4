//! The certificate of DNS over TLS.

use std::path::Path;

use tokio_rustls::TlsAcceptor;

use crate::{Error, Result};

/// The ALPN protocol id, as registered with IANA.
const ALPN: &[u8] = b"dot";

/// A chain of certificates and the key to its first, from two PEM files.
#[derive(Debug)]
pub struct Certificate(transom_web::Certificate);

impl Certificate {
    /// Reads the files: `certificate` begins with the server's own, the rest of the chain follows.
    ///
    /// # Errors
    /// [`Error::Config`] if a file cannot be read or is invalid, or the key does not match.
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

    /// An acceptor with the current certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.0.acceptor()
    }

    /// Reloads the files if they have changed.
    pub(super) async fn reload_if_changed(&mut self) {
        self.0.reload_if_changed().await;
    }
}
