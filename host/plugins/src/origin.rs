//! A component with its manifest, and where it is from.

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

/// Where a component is from, and what shows who signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// A file in the directory.
    File {
        /// What lies beside it as `NAME.wasm.sig`; looked for where keys are configured.
        signature: Option<Vec<u8>>,
    },
    /// A registry.
    Image(Arc<Image>),
}

/// Where an admitted component is from, and who signed it: as records say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Provenance {
    /// `oci://…@sha256:…`; none for a file in the directory.
    pub(crate) source: Option<String>,
    /// The key's name and digest; none where nobody had to.
    pub(crate) signed_by: Option<String>,
}
