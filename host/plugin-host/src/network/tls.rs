//! TLS connections of probes. Certificates are verified against the system's authorities, unless
//! the manifest grants unverified connections.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{net::TcpStream, sync::OnceCell};
use tokio_rustls::TlsConnector;
use transom_common::text::{clip, one_line};

use super::{Connection, io_error};
use crate::worlds::{
    probe::{Endpoint, IoError},
    step::Tls,
};

/// The TLS configuration that verifies certificates. The authorities are read from disk once, on
/// first use.
static VERIFIED: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();

pub(super) async fn handshake(stream: TcpStream, to: &Endpoint, tls: &Tls) -> Result<Connection, IoError> {
    let name = if tls.server_name.is_empty() {
        &to.host
    } else {
        &tls.server_name
    };
    let name = ServerName::try_from(name.clone())
        .map_err(|_| IoError::Tls(format!("{:?} is not a server name", clip(name, 200))))?;
    let config = if tls.verify {
        VERIFIED.get_or_try_init(verified).await?.clone()
    } else {
        unverified()?
    };
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(
            match error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            {
                Some(error) => IoError::Tls(one_line(&error.to_string())),
                None => io_error(&error),
            },
        ),
    }
}

async fn verified() -> Result<Arc<ClientConfig>, IoError> {
    let loaded = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs)
        .await
        .map_err(|_| IoError::Tls("cannot read the system's certificates".into()))?;
    let mut roots = RootCertStore::empty();
    let (added, _unusable) = roots.add_parsable_certificates(loaded.certs);
    if added == 0 {
        tracing::warn!(
            "no certificate authorities found on this system: TLS peers of probes cannot be verified"
        );
    }
    let config = builder()?.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

fn unverified() -> Result<Arc<ClientConfig>, IoError> {
    let verifier = Arc::new(AnyCertificate(provider()));
    let config = builder()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, IoError> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| IoError::Tls(one_line(&error.to_string())))
}

/// Accepts any certificate, but verifies that the peer holds its private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
