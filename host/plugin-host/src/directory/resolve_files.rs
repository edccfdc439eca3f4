//! Resolves the files of a plugin whose component comes from a registry.

use std::path::Path;

use super::{
    Directory,
    files::{FoundFiles, read},
};
use crate::{
    admission::AdmissionError,
    manifest::Manifest,
    origin::{Files, Origin},
    sources::{FetchRequest, FetchState},
};

impl Directory {
    /// The files of a plugin; none while its component is being fetched.
    pub(super) async fn files(&self, dir: &Path, name: &str) -> Result<Option<Files>, AdmissionError> {
        let text = match read(dir, name, self.admission_context.trust.is_enabled()).await? {
            FoundFiles::Files(files) => {
                self.sources.forget(name);
                return Ok(Some(files));
            }
            FoundFiles::Manifest(text) => text,
        };
        let manifest = Manifest::parse(&text, &self.config.limits, self.config.probation)?;
        let Some(source) = manifest.source else {
            // The manifest has just changed; the next scan reads it again.
            return Ok(None);
        };
        let from = source.to_string();
        let request = FetchRequest {
            source,
            limit: manifest.limits.size,
            pinned: manifest.digest,
        };
        match self.sources.want(name, request).await {
            FetchState::Fetched(fetched) => Ok(Some(Files {
                component: fetched.component,
                manifest: Some(text),
                origin: Origin::Image(fetched.image),
            })),
            FetchState::Pending => Ok(None),
            FetchState::Failed(error) => Err(AdmissionError::NotFetched { from, error }),
        }
    }

    /// Its component is being fetched: the serving version stays active, and an earlier refusal no
    /// longer applies.
    pub(super) fn on_fetching(&self, name: &str) {
        if self.table.load().refusals.contains_key(name) {
            self.change_table(|table| {
                table.refusals.remove(name);
            });
        }
    }
}
