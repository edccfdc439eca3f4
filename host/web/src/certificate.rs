//! A port's certificate and its key.
//!
//! The files are read again when they change; if they are then invalid, the last valid certificate
//! stays in use.

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
use transom_common::error_chain;

use crate::{Error, Result};

/// The maximum size of a file; chains and keys have a few thousand bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A certificate chain and the key of its first certificate, from two PEM files.
#[derive(Debug)]
pub struct Certificate {
    files: Files,
    /// The digest of the files when they were last read.
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

/// The certificate for new connections.
#[derive(Debug)]
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads the files: `certificate` begins with the server's own, the rest of the chain follows.
    /// `protocol`: the ALPN name of the protocol.
    ///
    /// # Errors
    /// [`Error::Certificate`] when a file cannot be read, contains no certificate or key, or the
    /// key does not match.
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

    /// Performs handshakes with the present certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// The certificates of the file, as PEM: the trust anchors for a client of this port only.
    ///
    /// # Errors
    /// [`Error::Certificate`] when the file cannot be read.
    pub async fn issuers(&self) -> Result<Vec<u8>> {
        read("tls_certificate", &self.files.certificate).await
    }

    /// Checks whether the files have changed. Valid new contents are used for new connections;
    /// invalid ones are logged once for each change.
    pub async fn reload_if_changed(&mut self) {
        let looked = match self.files.texts().await {
            Ok((seen, _)) if seen == self.seen => return,
            Ok((seen, texts)) => {
                self.seen = seen;
                self.files.parsed(&texts, self.config.crypto_provider())
            }
            // Differs from the text of any file, so that the file is read again when it is back.
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
                tracing::warn!(
                    error = error_chain(&error),
                    "the new certificate is invalid; keeping the old one"
                );
            }
        }
    }
}

/// The contents of the two files.
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Their texts, and a digest that detects changes without keeping the key.
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
        // The error omits the text: it may be part of the key.
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
