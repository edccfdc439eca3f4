//! Connections to other daemons, over TLS if their ports use it.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::util::BoxCloneSyncService;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects to the host and port of a URI.
pub(super) type Connector = BoxCloneSyncService<http::Uri, TokioIo<Box<dyn Stream>>, BoxError>;

/// The bytes of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection for Box<dyn Stream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// `issuers`: for TLS, the certificates (PEM) that daemons have, or that have issued theirs. A
/// connection is given up after `limit`.
pub(super) fn new(issuers: Option<&[u8]>, limit: Duration) -> Result<Connector, BoxError> {
    let tls = issuers.map(tls).transpose()?;
    Ok(BoxCloneSyncService::new(tower::service_fn(
        move |uri: http::Uri| {
            let tls = tls.clone();
            async move { timeout(limit, connect(&uri, tls)).await? }
        },
    )))
}

fn tls(issuers: &[u8]) -> Result<TlsConnector, BoxError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(issuers) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

async fn connect(uri: &http::Uri, tls: Option<TlsConnector>) -> Result<TokioIo<Box<dyn Stream>>, BoxError> {
    let authority = uri.authority().ok_or("no host")?;
    let stream = TcpStream::connect(authority.as_str()).await?;
    stream.set_nodelay(true)?;
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned())?;
            Box::new(tls.connect(name, stream).await?)
        }
    };
    Ok(TokioIo::new(stream))
}
