//! A component with its manifest and its origin.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sources::image::Image;

/// A component and its manifest as they were read.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) component: Arc<Vec<u8>>,
    pub(crate) manifest: Option<String>,
    pub(crate) origin: Origin,
}

/// The origin of a component, with its signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
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
pub(crate) struct Provenance {
    /// `oci://…@sha256:…`; none for a file in the directory.
    pub(crate) source: Option<String>,
    /// The key's name and digest; none if no signature is required.
    pub(crate) signed_by: Option<String>,
}
