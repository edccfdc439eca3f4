//! A plugin's files, where some of them are fetched.

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
    /// What is to be looked at of a plugin; nothing while its component is still being fetched.
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
            // It named one a moment ago, and will be looked at again.
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

    /// Its component is being fetched: what served goes on serving, and what was refused before is not what is asked for now.
    pub(super) fn on_fetching(&self, name: &str) {
        if self.table.load().refusals.contains_key(name) {
            self.change_table(|table| {
                table.refusals.remove(name);
            });
        }
    }
}
