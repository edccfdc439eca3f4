//! Where a component came from, and who signed it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{attestations::Attestation, oci::Image};

/// The origin of a component, with its signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A file in the directory.
    File {
        /// The content of `NAME.wasm.sig`; read if keys are configured.
        signature: Option<Vec<u8>>,
    },
    /// A registry.
    Image(Arc<Image>),
}

/// The source and the signer of an admitted component, as in records.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// `oci://…@sha256:…`; none for a file in the directory.
    pub source: Option<String>,
    /// The key's name and digest; none if no signature is required.
    pub signed_by: Option<String>,
    /// The attestations that the registry has for the image.
    pub attestations: Vec<Attestation>,
}
