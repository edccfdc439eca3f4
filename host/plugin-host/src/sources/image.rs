//! A fetched component with its origin and its signatures.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::oci_manifest::{self, digest_of};

/// A fetched component.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) image: Arc<Image>,
    pub(crate) component: Arc<Vec<u8>>,
}

/// The origin of a component. Stored with the component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    /// `oci://…`, as in the plugin's manifest.
    pub(crate) source: String,
    /// The image manifest as the registry has it.
    pub(crate) manifest: String,
    /// Looked for where keys are configured.
    pub(crate) signatures: Vec<Signature>,
}

/// One signature of cosign's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signature {
    /// The document that is signed, which names the image manifest by its digest.
    pub(crate) payload: String,
    /// Base64.
    pub(crate) signature: String,
}

impl Image {
    /// `sha256:…` of the image manifest.
    pub(crate) fn digest(&self) -> String {
        digest_of(self.manifest.as_bytes())
    }

    /// The source with the digest of the image manifest.
    pub(crate) fn at(&self) -> String {
        if self.source.contains('@') {
            self.source.clone()
        } else {
            format!("{}@{}", self.source, self.digest())
        }
    }

    /// Whether the image manifest is about this component. `component`: hexadecimal SHA-256.
    pub(crate) fn is_of(&self, component: &str) -> bool {
        oci_manifest::image_manifest(self.manifest.as_bytes())
            .and_then(|it| oci_manifest::component_layer(&it))
            .is_ok_and(|layer| layer.digest == component)
    }
}

/// The manifest's text of a registry's answer.
pub(super) fn text(manifest: &Bytes) -> Result<String, oci_manifest::NoComponent> {
    String::from_utf8(manifest.to_vec())
        .map_err(|_| oci_manifest::NoComponent::Manifest("it is not UTF-8".to_owned()))
}
