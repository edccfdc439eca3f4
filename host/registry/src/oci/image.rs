//! A fetched component with its origin and its signatures.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::image_manifest::{self, digest_of};
use crate::attestations::Attestations;

/// Maximum bytes of a component, whatever a manifest allows.
pub const MAX_COMPONENT_SIZE: u64 = 256 << 20;

/// A fetched component.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Its origin.
    pub image: Arc<Image>,
    /// Its bytes.
    pub component: Arc<Vec<u8>>,
}

/// The origin of a component. Stored with the component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// `oci://…`, as in the plugin's manifest.
    pub source: String,
    /// The image manifest, byte for byte as the registry sent it.
    pub manifest: String,
    /// The signatures under the image's tag; fetched only if keys are configured.
    pub signatures: Vec<Signature>,
    /// Sigstore bundles that are signatures, as the registry sent them; fetched only if keys are
    /// configured.
    #[serde(default)]
    pub bundles: Vec<String>,
    /// The attestations that the registry had when the image was fetched.
    #[serde(default)]
    pub attestations: Attestations,
}

/// One signature by cosign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The signed document, which names the image manifest by its digest.
    pub payload: String,
    /// Base64.
    pub signature: String,
}

impl Image {
    /// `sha256:…` of the image manifest.
    pub fn digest(&self) -> String {
        digest_of(self.manifest.as_bytes())
    }

    /// The source with the digest of the image manifest.
    pub fn pinned_source(&self) -> String {
        if self.source.contains('@') {
            self.source.clone()
        } else {
            format!("{}@{}", self.source, self.digest())
        }
    }

    /// Whether the image manifest describes this component. `component`: hexadecimal SHA-256.
    pub fn has_component(&self, component: &str) -> bool {
        image_manifest::image_manifest(self.manifest.as_bytes())
            .and_then(|it| image_manifest::component_layer(&it))
            .is_ok_and(|layer| layer.digest == component)
    }
}

/// Decodes an image manifest that a registry sent.
pub(crate) fn text(manifest: &Bytes) -> Result<String, image_manifest::NoComponent> {
    String::from_utf8(manifest.to_vec())
        .map_err(|_| image_manifest::NoComponent::Manifest("it is not UTF-8".to_owned()))
}
