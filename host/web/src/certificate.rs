//! A port's certificate and its key, from files or from memory.
//!
//! Files are read again when they change; if they are then invalid, the last valid certificate
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
use transom_common::{Secret, error_chain};

use crate::{Error, Result};

/// The maximum size of a file; chains and keys have a few thousand bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A certificate chain and its key in memory, for settings that contain the PEM texts and not file
/// names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPem {
    /// The settings of certificate and key, for messages.
    pub settings: [&'static str; 2],
    /// The certificate chain, PEM, the server's own first.
    pub certificate: String,
    /// Its key, PEM.
    pub key: Secret,
}

impl TlsPem {
    /// Returns every fault of the two texts. The errors contain neither text.
    pub fn problems(&self) -> Vec<Error> {
        let (texts, names) = self.parts();
        let chain = chain(&texts, &names).err();
        let key = key(&texts, &names).err();
        let faults: Vec<Error> = chain.into_iter().chain(key).collect();
        if faults.is_empty() {
            let certified_key = parse_certified_key(&texts, &names, &ring::default_provider());
            return certified_key.err().into_iter().collect();
        }
        faults
    }

    fn parts(&self) -> (PemTexts, ErrorNames) {
        let [certificate, key] = self.settings;
        let texts = PemTexts {
            certificate: self.certificate.as_bytes().to_vec(),
            key: self.key.reveal().as_bytes().to_vec(),
        };
        let names = ErrorNames {
            certificate: (certificate, String::new()),
            key: (key, String::new()),
            chain: "the certificate".to_owned(),
        };
        (texts, names)
    }
}

/// A certificate chain and the key of its first certificate.
#[derive(Debug)]
pub struct Certificate {
    source: Source,
    /// The digest of the files when they were last read.
    digest: u64,
    current: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
}

/// Where the certificate came from.
#[derive(Debug)]
enum Source {
    Files(Files),
    /// The chain, PEM; it does not change.
    Memory(Vec<u8>),
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
        let (digest, texts) = files.texts().await?;
        let names = files.names();
        Self::new(Source::Files(files), digest, &texts, &names, protocol)
    }

    /// A certificate in memory. `protocol`: as in [`read`](Self::read).
    ///
    /// # Errors
    /// [`Error::Certificate`] when a text is no PEM of its kind, or the key does not match.
    pub fn from_pem(pem: &TlsPem, protocol: &[u8]) -> Result<Self> {
        let (texts, names) = pem.parts();
        let source = Source::Memory(texts.certificate.clone());
        Self::new(source, 0, &texts, &names, protocol)
    }

    fn new(
        source: Source,
        digest: u64,
        texts: &PemTexts,
        names: &ErrorNames,
        protocol: &[u8],
    ) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let certified = parse_certified_key(texts, names, &provider)?;
        let current = Arc::new(CurrentCertificate(ArcSwap::from_pointee(certified)));
        let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let versions = versions.map_err(|error| invalid_setting(names.certificate.0, error.to_string()))?;
        let mut config = versions
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as _);
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self {
            source,
            digest,
            current,
            config: Arc::new(config),
        })
    }

    /// Performs handshakes with the present certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// The certificates, as PEM: the trust anchors for a client of this port only.
    ///
    /// # Errors
    /// [`Error::Certificate`] when the file cannot be read.
    pub async fn issuers(&self) -> Result<Vec<u8>> {
        match &self.source {
            Source::Files(files) => read("tls_certificate", &files.certificate).await,
            Source::Memory(chain) => Ok(chain.clone()),
        }
    }

    /// Checks whether the files have changed. Valid new contents are used for new connections;
    /// invalid ones are logged once for each change.
    pub async fn reload_if_changed(&mut self) {
        let Source::Files(files) = &self.source else {
            return;
        };
        let reloaded = match files.texts().await {
            Ok((digest, _)) if digest == self.digest => return,
            Ok((digest, texts)) => {
                self.digest = digest;
                parse_certified_key(&texts, &files.names(), self.config.crypto_provider())
            }
            // 0 differs from the digest of any files, so that they are read again once they are
            // readable.
            Err(_) if self.digest == 0 => return,
            Err(error) => {
                self.digest = 0;
                Err(error)
            }
        };
        match reloaded {
            Ok(certified) => {
                self.current.0.store(Arc::new(certified));
                tracing::info!(file = %files.certificate.display(), "certificate reloaded");
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

/// The texts of the certificate chain and the key, in PEM.
struct PemTexts {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// How errors name the certificate and the key: the setting, and a prefix of the fault.
struct ErrorNames {
    certificate: (&'static str, String),
    key: (&'static str, String),
    /// The name of the certificate that the key has to match.
    chain: String,
}

impl Files {
    /// Reads the texts of the files, with a digest that detects changes without keeping the key.
    async fn texts(&self) -> Result<(u64, PemTexts)> {
        let texts = PemTexts {
            certificate: read("tls_certificate", &self.certificate).await?,
            key: read("tls_key", &self.key).await?,
        };
        let digest = self.hasher.hash_one((&texts.certificate, &texts.key)) | 1;
        Ok((digest, texts))
    }

    fn names(&self) -> ErrorNames {
        ErrorNames {
            certificate: ("tls_certificate", format!("{}: ", self.certificate.display())),
            key: ("tls_key", format!("{}: ", self.key.display())),
            chain: self.certificate.display().to_string(),
        }
    }
}

fn chain(texts: &PemTexts, names: &ErrorNames) -> Result<Vec<CertificateDer<'static>>> {
    let unusable = |what: String| unusable(&names.certificate, &what);
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&texts.certificate).collect();
    let chain = chain.map_err(|error| unusable(format!("is not PEM: {error}")))?;
    if chain.is_empty() {
        let what = "has no certificate; expected PEM, the server's own first";
        return Err(unusable(what.to_owned()));
    }
    Ok(chain)
}

fn key(texts: &PemTexts, names: &ErrorNames) -> Result<PrivateKeyDer<'static>> {
    // The error omits the text: it may be part of the key.
    PrivateKeyDer::from_pem_slice(&texts.key).map_err(|_| {
        let what = "has no private key; expected one in PEM, not encrypted";
        unusable(&names.key, what)
    })
}

fn parse_certified_key(
    texts: &PemTexts,
    names: &ErrorNames,
    provider: &CryptoProvider,
) -> Result<CertifiedKey> {
    let (chain, key) = (chain(texts, names)?, key(texts, names)?);
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            unusable(&names.key, &format!("is not the key of {}", names.chain))
        }
        error => unusable(&names.certificate, &format!("cannot be used: {error}")),
    })
}

fn unusable((setting, prefix): &(&'static str, String), what: &str) -> Error {
    invalid_setting(setting, format!("{prefix}{what}"))
}

async fn read(key: &'static str, file: &Path) -> Result<Vec<u8>> {
    let unreadable = |error| invalid_setting(key, format!("{} cannot be read: {error}", file.display()));
    let size = tokio::fs::metadata(file).await.map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        let what = format!(
            "{} has {size} bytes; expected a PEM file of less than {MAX_FILE_BYTES}",
            file.display()
        );
        return Err(invalid_setting(key, what));
    }
    tokio::fs::read(file).await.map_err(unreadable)
}

fn invalid_setting(key: &'static str, what: String) -> Error {
    Error::Certificate { key, what }
}
