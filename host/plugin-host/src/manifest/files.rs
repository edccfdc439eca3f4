//! A plugin's files as they were read: the component, the manifest, and where they came from.

use std::sync::Arc;

use transom_registry::Origin;

use super::{Manifest, ManifestError, limits::Limits, table};
use crate::manifest::probation::Probation;

/// A component and its manifest as they were read.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) component: Arc<Vec<u8>>,
    /// `None` if there is no manifest.
    pub(crate) manifest: Option<ManifestFile>,
    pub(crate) origin: Origin,
}

/// A manifest's text, parsed once.
#[derive(Clone, Debug)]
pub(crate) struct ManifestFile {
    text: Arc<str>,
    names_source: bool,
    parsed: Result<Arc<Manifest>, ManifestError>,
}

impl ManifestFile {
    /// Parses a manifest's text. `defaults` and `probation` are the default values.
    pub(crate) fn parse(text: String, defaults: &Limits, probation: Probation) -> ManifestFile {
        let table = table(&text);
        ManifestFile {
            text: text.into(),
            names_source: table.as_ref().map_or(true, |table| table.contains_key("source")),
            parsed: table
                .and_then(|table| Manifest::from_table(table, defaults, probation))
                .map(Arc::new),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the manifest has the key `source`, valid or not. True for invalid TOML, so that the
    /// error is reported.
    pub(crate) fn names_source(&self) -> bool {
        self.names_source
    }

    /// The manifest, if it is valid.
    pub(crate) fn manifest(&self) -> Result<&Arc<Manifest>, ManifestError> {
        self.parsed.as_ref().map_err(Clone::clone)
    }
}
