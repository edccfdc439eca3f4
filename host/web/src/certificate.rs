//! The certificate that a port shows, and its key.
//!
//! It is read again when its files change; one that cannot be used then leaves the one before it in service.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::{Error, Result};

/// Bytes of a file at most; chains and keys have a few thousand.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A chain of certificates and the key to its first, from two PEM files.
#[derive(Debug)]
pub struct Certificate {
    files: Files,
    /// What the files had when they were looked at last.
    seen: u64,
    shown: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    hasher: RandomState,
}

/// The certificate of new connections.
#[derive(Debug)]
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads the files: `certificate` begins with the server's own, the rest of the chain follows. `protocol`: what a
    /// handshake calls what is spoken (ALPN).
    ///
    /// # Errors
    /// [`Error::Certificate`] when a file cannot be read, has nothing of its kind, or the key is another's.
    pub async fn read(certificate: &Path, key: &Path, protocol: &[u8]) -> Result<Self> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            hasher: RandomState::new(),
        };
        let (seen, texts) = files.texts().await?;
        let provider = Arc::new(ring::default_provider());
        let shown = Arc::new(CurrentCertificate(ArcSwap::from_pointee(
            files.parsed(&texts, &provider)?,
        )));
        let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let versions = versions.map_err(|error| wrong("tls_certificate", error.to_string()))?;
        let mut config = versions
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as _);
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self {
            files,
            seen,
            shown,
            config: Arc::new(config),
        })
    }

    /// Shakes hands with whatever is shown at the time.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// The certificates of the file, as PEM: what those trust who are to trust this port and no other.
    ///
    /// # Errors
    /// [`Error::Certificate`] when the file cannot be read.
    pub async fn issuers(&self) -> Result<Vec<u8>> {
        read("tls_certificate", &self.files.certificate).await
    }

    /// Looks whether the files have changed. What they have then is shown from now on, if it can be used; if not, that is
    /// logged once for each change.
    pub async fn reload_if_changed(&mut self) {
        let looked = match self.files.texts().await {
            Ok((seen, _)) if seen == self.seen => return,
            Ok((seen, texts)) => {
                self.seen = seen;
                self.files.parsed(&texts, self.config.crypto_provider())
            }
            // Nothing that any file's text has, so that it is looked at again when it is back.
            Err(_) if self.seen == 0 => return,
            Err(error) => {
                self.seen = 0;
                Err(error)
            }
        };
        match looked {
            Ok(certified) => {
                self.shown.0.store(Arc::new(certified));
                tracing::info!(file = %self.files.certificate.display(), "certificate reloaded");
            }
            Err(error) => {
                tracing::warn!(%error, "the new certificate is invalid; keeping the old one");
            }
        }
    }
}

/// What the two files have.
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Their texts, and what tells them from others without keeping the key.
    async fn texts(&self) -> Result<(u64, Texts)> {
        let texts = Texts {
            certificate: read("tls_certificate", &self.certificate).await?,
            key: read("tls_key", &self.key).await?,
        };
        let seen = self.hasher.hash_one((&texts.certificate, &texts.key)) | 1;
        Ok((seen, texts))
    }

    fn parsed(&self, texts: &Texts, provider: &CryptoProvider) -> Result<CertifiedKey> {
        let unusable = |key, file: &Path, what: &str| wrong(key, format!("{}: {what}", file.display()));
        let chain: std::result::Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&texts.certificate).collect();
        let chain = chain.map_err(|error| {
            unusable(
                "tls_certificate",
                &self.certificate,
                &format!("is no PEM file: {error}"),
            )
        })?;
        if chain.is_empty() {
            let what = "has no certificate; expected PEM, the server's own first";
            return Err(unusable("tls_certificate", &self.certificate, what));
        }
        // What is wrong is not quoted: it may be part of the key.
        let key = PrivateKeyDer::from_pem_slice(&texts.key).map_err(|_| {
            unusable(
                "tls_key",
                &self.key,
                "has no private key; expected one in PEM, not encrypted",
            )
        })?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let file = self.certificate.display();
                unusable("tls_key", &self.key, &format!("is not the key of {file}"))
            }
            error => unusable(
                "tls_certificate",
                &self.certificate,
                &format!("cannot be used: {error}"),
            ),
        })
    }
}

async fn read(key: &'static str, file: &Path) -> Result<Vec<u8>> {
    let unreadable = |error| wrong(key, format!("{} cannot be read: {error}", file.display()));
    let size = tokio::fs::metadata(file).await.map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        let what = format!(
            "{} has {size} bytes; expected a PEM file of less than {MAX_FILE_BYTES}",
            file.display()
        );
        return Err(wrong(key, what));
    }
    tokio::fs::read(file).await.map_err(unreadable)
}

fn wrong(key: &'static str, what: String) -> Error {
    Error::Certificate { key, what }
}
