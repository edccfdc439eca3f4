//! Pushes a component to a registry for `transom plugin push`.
//!
//! It uses `oci-client` and writes the format that the registry crate accepts. The same
//! component with the same annotations gives the same image.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use oci_client::{
    Client, Reference, RegistryOperation,
    client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol},
    errors::OciDistributionError,
    manifest::{IMAGE_CONFIG_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest},
    secrets::RegistryAuth,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;

use transom_common::{error_chain, text::one_line};
use transom_registry::{CONFIG, LAYER, Registries, SIGNATURE_ANNOTATION, SIMPLE_SIGNING, Source, digest_of};

use crate::sign::Signer;

/// The component to push, and how to annotate and sign it.
#[derive(Clone, Debug, Default)]
pub struct Push {
    /// The component.
    pub component: Vec<u8>,
    /// Annotations of its image manifest, such as `org.opencontainers.image.version`.
    pub annotations: BTreeMap<String, String>,
    /// PEM (PKCS#8) of the private key to sign it with.
    pub key: Option<Vec<u8>>,
}

/// Why a component was not pushed to a registry.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The destination is missing or incomplete.
    #[error("{found:?} is not a push destination; expected \"oci://registry/repository:tag\"")]
    Destination {
        /// The destination as it was given.
        found: String,
    },
    /// The private key cannot be used.
    #[error("invalid private key: {message}")]
    Key {
        /// The error, and the expected form.
        message: String,
    },
    /// The registry rejected the push.
    #[error("{registry} rejected the push: {message}")]
    Registry {
        /// Its name.
        registry: String,
        /// Its error.
        message: String,
    },
    /// The push exceeded its timeout.
    #[error("push to {registry} timed out after {timeout:?}")]
    TimedOut {
        /// Its name.
        registry: String,
        /// The timeout.
        timeout: std::time::Duration,
    },
}

impl Push {
    /// Pushes to `oci://registry/repository:tag`. Returns the source with the digest of the image
    /// manifest, in the form of a plugin's manifest.
    pub async fn to(self, destination: &str, registries: &Registries) -> Result<String, PushError> {
        let source = Source::parse(destination)
            .filter(|it| it.digest().is_none())
            .ok_or_else(|| PushError::Destination {
                found: destination.to_owned(),
            })?;
        let signer = self.key.as_deref().map(Signer::parse).transpose();
        let signer = signer.map_err(|message| PushError::Key { message })?;
        let registry = source.registry().to_owned();
        // The client needs a default provider for the process. The call fails if there already is
        // one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let timeout = registries.timeout;
        let work = self.push(&source, registries, signer.as_ref());
        match tokio::time::timeout(timeout, work).await {
            Err(_elapsed) => Err(PushError::TimedOut { registry, timeout }),
            Ok(Err(error)) => Err(PushError::Registry {
                registry,
                message: one_line(&error_chain(&error)),
            }),
            Ok(Ok(digest)) => Ok(source.at(&digest)),
        }
    }

    async fn push(
        self,
        source: &Source,
        registries: &Registries,
        signer: Option<&Signer>,
    ) -> Result<String, OciDistributionError> {
        let client = Client::try_from(client_config(registries, source.registry()))?;
        let auth = match registries.login(source.registry()) {
            Some(login) => RegistryAuth::Basic(login.user.clone(), login.password.clone()),
            None => RegistryAuth::Anonymous,
        };
        let to = source.reference();
        client.auth(to, &auth, RegistryOperation::Push).await?;
        let layer = digest_of(&self.component);
        let config = json!({"architecture": "wasm", "os": "wasip2", "layerDigests": [layer]}).to_string();
        let manifest = OciImageManifest {
            config: push_blob(&client, to, CONFIG, config.into()).await?,
            layers: vec![push_blob(&client, to, LAYER, self.component).await?],
            annotations: Some(self.annotations).filter(|it| !it.is_empty()),
            ..empty_manifest()
        };
        let digest = push_manifest(&client, to, &manifest).await?;
        if let Some(signer) = signer {
            sign(&client, &auth, source, &digest, signer).await?;
        }
        Ok(digest)
    }
}

/// Adds a signature to the existing ones, as cosign does.
async fn sign(
    client: &Client,
    auth: &RegistryAuth,
    source: &Source,
    digest: &str,
    signer: &Signer,
) -> Result<(), OciDistributionError> {
    let name = format!("{}/{}", source.registry(), source.repository());
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string();
    let signature = signer.sign(payload.as_bytes());
    let to = source.reference();
    let signature_reference = Reference::with_tag(
        to.registry().to_owned(),
        to.repository().to_owned(),
        format!("{}.sig", digest.replace(':', "-")),
    );
    let mut manifest = match client.pull_image_manifest(&signature_reference, auth).await {
        Ok((manifest, _)) => manifest,
        // There is no signature manifest, or it cannot be extended.
        Err(_) => OciImageManifest {
            config: push_blob(client, to, IMAGE_CONFIG_MEDIA_TYPE, b"{}".to_vec()).await?,
            ..empty_manifest()
        },
    };
    let mut layer = push_blob(client, to, SIMPLE_SIGNING, payload.into()).await?;
    layer.annotations = Some(BTreeMap::from([(SIGNATURE_ANNOTATION.to_owned(), signature)]));
    manifest.layers.push(layer);
    push_manifest(client, &signature_reference, &manifest)
        .await
        .map(drop)
}

async fn push_blob(
    client: &Client,
    to: &Reference,
    media_type: &str,
    content: Vec<u8>,
) -> Result<OciDescriptor, OciDistributionError> {
    let digest = digest_of(&content);
    let size = i64::try_from(content.len()).unwrap_or(i64::MAX);
    if !client.blob_exists(to, &digest).await.unwrap_or(false) {
        client.push_blob(to, content, &digest).await?;
    }
    Ok(OciDescriptor {
        media_type: media_type.to_owned(),
        digest,
        size,
        ..OciDescriptor::default()
    })
}

async fn push_manifest(
    client: &Client,
    to: &Reference,
    manifest: &OciImageManifest,
) -> Result<String, OciDistributionError> {
    let body = serde_json::to_vec(manifest)?;
    let digest = digest_of(&body);
    let kind = http::HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
    client.push_manifest_raw(to, body, kind).await?;
    Ok(digest)
}

fn empty_manifest() -> OciImageManifest {
    OciImageManifest {
        media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
        ..OciImageManifest::default()
    }
}

/// Whether a registry is on loopback, where a proxy does not reach it.
fn is_on_loopback(registry: &str) -> bool {
    let host = match registry.parse::<SocketAddr>() {
        Ok(address) => return address.ip().to_canonical().is_loopback(),
        Err(_) => registry.split(':').next().unwrap_or(registry),
    };
    host == "localhost" || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}

fn client_config(registries: &Registries, registry: &str) -> ClientConfig {
    // A proxy that is set here replaces those of the environment; all names and addresses are
    // excluded from it.
    let unused = is_on_loopback(registry).then(|| "http://localhost".to_owned());
    let authorities = CertificateDer::pem_slice_iter(&registries.authorities).flatten();
    ClientConfig {
        protocol: ClientProtocol::HttpsExcept(registries.plain_http.clone()),
        extra_root_certificates: authorities
            .map(|it| Certificate {
                encoding: CertificateEncoding::Der,
                data: it.to_vec(),
            })
            .collect(),
        connect_timeout: Some(registries.idle_timeout),
        read_timeout: Some(registries.idle_timeout),
        user_agent: concat!("transom/", env!("CARGO_PKG_VERSION")),
        no_proxy: unused.as_ref().map(|_| "*,0.0.0.0/0,::/0".to_owned()),
        http_proxy: unused.clone(),
        https_proxy: unused,
        ..ClientConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_on_loopback_are_reached_without_a_proxy() {
        for (registry, expected) in [
            ("127.0.0.1:5000", true),
            ("127.0.0.2", true),
            ("[::1]:5000", true),
            ("localhost:5000", true),
            ("localhost", true),
            ("registry.example", false),
            ("localhost.example:5000", false),
            ("10.0.0.1:5000", false),
        ] {
            let config = client_config(&Registries::default(), registry);
            assert_eq!(config.no_proxy.is_some(), expected, "{registry}");
            assert_eq!(config.https_proxy.is_some(), expected, "{registry}");
        }
    }
}
