//! The certificate of encrypted DNS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

/// A protocol within TLS, by its ALPN ids as registered with IANA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS, either version.
    Https,
}

impl Protocol {
    fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Tls => &[b"dot"],
            Self::Https => &[b"h2", b"http/1.1"],
        }
    }
}

/// A chain of certificates and the key to its first, from two PEM files, for one protocol.
#[derive(Debug)]
pub struct Certificate {
    files: transom_web::Certificate,
    config: Arc<ServerConfig>,
}

impl Certificate {
    /// Reads the files: `certificate` begins with the server's own, the rest of the chain follows.
    ///
    /// # Errors
    /// [`Error::Config`] if a file cannot be read or is invalid, or the key does not match.
    pub async fn read(certificate: &Path, key: &Path, protocol: Protocol) -> Result<Self> {
        let alpn = protocol.alpn();
        let read = transom_web::Certificate::read(certificate, key, alpn[0]).await;
        let files = read.map_err(|error| match error {
            transom_web::Error::Certificate { key, what } => Error::Config { key, what },
            other => Error::Config {
                key: "tls_certificate",
                what: other.to_string(),
            },
        })?;
        // The copy shares the certificate resolver, so it uses reloaded certificates as well.
        let mut config = ServerConfig::clone(files.acceptor().config());
        config.alpn_protocols = alpn.iter().map(|id| id.to_vec()).collect();
        Ok(Self {
            files,
            config: Arc::new(config),
        })
    }

    /// An acceptor with the current certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Reloads the files when they have changed, until the token is cancelled.
    pub(in crate::dns::listeners) async fn keep_current(
        &mut self,
        check_interval: Duration,
        token: &CancellationToken,
    ) {
        let mut tick = interval(check_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while token.run_until_cancelled(tick.tick()).await.is_some() {
            self.files.reload_if_changed().await;
        }
    }
}
