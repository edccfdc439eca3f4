//! Scans the directory: finds the files, those that changed, and the components that have to be
//! fetched first.

use std::collections::{BTreeMap, BTreeSet};

use transom_registry::{FetchRequest, FetchState, Origin};

use super::{
    Directory, ScanMode, dir_watcher,
    files::{FoundFiles, MAX_COMPONENTS, fingerprint, names, read, read_manifest},
};
use crate::{
    error::Error,
    lifecycle::admission::{AdmissionError, Retry},
    manifest::files::{Files, ManifestFile},
    observe::status::Change,
};

impl Directory {
    pub(super) async fn scan_or_log(&mut self, mode: ScanMode) {
        if let Err(error) = self.scan(mode).await {
            let error = transom_common::error_chain(&error);
            tracing::error!("plugin directory scan failed, serving versions stay active: {error}");
        }
    }

    /// Scans the directory, and starts the admission of changed files.
    pub(super) async fn scan(&mut self, mode: ScanMode) -> Result<(), Error> {
        let dir = &self.config.dir;
        let found = names(dir).await.map_err(|source| Error::Directory {
            path: dir.clone(),
            source,
        })?;
        self.retry_rejected(Retry::AtNextScan);
        let mut manifests = self.manifests_with_source(found.manifests).await;
        let names: BTreeSet<String> = found
            .components
            .into_iter()
            .chain(manifests.keys().cloned())
            .collect();
        let removed: Vec<String> = self
            .plugins
            .keys()
            // A plugin with a rollback in progress is removed afterwards.
            .filter(|name| !names.contains(*name) && !self.rollbacks.contains_key(*name))
            .cloned()
            .collect();
        for name in removed {
            self.remove(&name).await;
        }
        self.sources.keep_only(&names);
        self.reject_misnamed(found.misnamed);
        let mut names: Vec<String> = names.into_iter().collect();
        self.sort_bound_first(&mut names);
        // Known plugins come first, so that new files do not displace serving plugins.
        let (known, new): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| {
            self.plugins
                .get(name)
                .is_some_and(|plugin| plugin.fingerprint.is_some())
        });
        for (position, name) in known.into_iter().chain(new).enumerate() {
            if position >= MAX_COMPONENTS {
                let rejected = Err(AdmissionError::TooMany(MAX_COMPONENTS));
                self.check_files(&name, rejected, mode).await;
                continue;
            }
            let found = match manifests.remove(&name) {
                Some(manifest) => manifest.map(FoundFiles::Manifest),
                None => self.read(&name).await,
            };
            self.check_plugin(&name, found, mode).await;
        }
        Ok(())
    }

    /// Returns the manifests without a component that name a source. An unreadable manifest is
    /// included, so that it is rejected with the reason.
    async fn manifests_with_source(
        &self,
        names: BTreeSet<String>,
    ) -> BTreeMap<String, Result<ManifestFile, AdmissionError>> {
        let mut found = BTreeMap::new();
        for name in names {
            let manifest = read_manifest(&self.config, &name).await;
            if manifest.as_ref().map_or(true, ManifestFile::names_source) {
                found.insert(name, manifest);
            }
        }
        found
    }

    pub(super) async fn read(&self, name: &str) -> Result<FoundFiles, AdmissionError> {
        read(&self.config, name, self.admission_context.trust.is_enabled()).await
    }

    /// Checks whether a plugin's files changed.
    pub(super) async fn check_plugin(
        &mut self,
        name: &str,
        found: Result<FoundFiles, AdmissionError>,
        mode: ScanMode,
    ) {
        let files = match found {
            Ok(found) => self.with_component(name, found).await,
            Err(rejected) => Err(rejected),
        };
        match files.transpose() {
            Some(files) => self.check_files(name, files, mode).await,
            None => self.on_fetching(name),
        }
    }

    /// Returns the files of a plugin, with a component from a registry if the manifest names one.
    /// `None` while the component is being fetched.
    pub(super) async fn with_component(
        &self,
        name: &str,
        found: FoundFiles,
    ) -> Result<Option<Files>, AdmissionError> {
        let file = match found {
            FoundFiles::Files(files) => {
                self.sources.forget(name);
                return Ok(Some(files));
            }
            FoundFiles::Manifest(file) => file,
        };
        let manifest = file.manifest()?;
        let Some(source) = manifest.source.clone() else {
            // The component was removed in the meantime; the next scan notices it.
            return Ok(None);
        };
        let from = source.to_string();
        let request = FetchRequest {
            source,
            limit: manifest.limits.size,
            pinned: manifest.digest.clone(),
        };
        match self.sources.request(name, request).await {
            FetchState::Fetched(fetched) => Ok(Some(Files {
                component: fetched.component,
                manifest: Some(file),
                origin: Origin::Image(fetched.image),
            })),
            FetchState::Pending => Ok(None),
            FetchState::Failed(error) => Err(AdmissionError::NotFetched { from, error }),
        }
    }

    /// Handles a component that is being fetched: the serving version stays active, and an earlier
    /// rejection no longer applies.
    fn on_fetching(&self, name: &str) {
        if self.table.load().rejections.contains_key(name) {
            self.change_table(|table| {
                table.rejections.remove(name);
            });
        }
    }

    async fn check_files(&mut self, name: &str, files: Result<Files, AdmissionError>, mode: ScanMode) {
        let found = files.as_ref().ok().map(fingerprint);
        let plugin = self.plugins.get(name);
        if plugin.is_some_and(|plugin| plugin.fingerprint == found) && found.is_some() {
            return;
        }
        // This check follows the reading, so that files that pass it were complete when they were
        // read.
        if mode == ScanMode::Debounced && dir_watcher::is_recently_modified(&self.config.dir, name).await {
            self.has_skipped_files = true;
            return;
        }
        // After a restart the kept image is admitted first. If the registry has a newer one, which
        // replaced this admission and was rejected, nothing would serve.
        let is_first = plugin.is_none_or(|plugin| plugin.state.current().is_none());
        if is_first && self.is_admitting_image(name) {
            self.defer(name, mode);
            return;
        }
        // Removing the manifest removes its grants.
        let is_manifest_removed = matches!(&files, Ok(Files { manifest: None, .. }))
            && plugin.is_some_and(|plugin| plugin.state.current().is_some());
        if is_manifest_removed {
            self.remove(name).await;
        }
        // The admission in progress has outdated files.
        self.cancel_pending(name);
        let files = match files {
            Ok(files) => files,
            Err(rejected) => {
                self.plugins.entry(name.to_owned()).or_default().fingerprint = None;
                self.reject(name, &rejected, true).await;
                return;
            }
        };
        match found {
            Some(found) if self.has_capacity() && !self.rollbacks.contains_key(name) => {
                self.admit(name, files, found);
            }
            _ => self.defer(name, mode),
        }
    }

    /// Retries components that were rejected for temporary reasons.
    pub(super) fn retry_rejected(&mut self, when: Retry) {
        for plugin in self.plugins.values_mut() {
            let due = plugin.retry.take_if(|it| *it == Retry::AtNextScan || *it == when);
            if due.is_some() {
                plugin.fingerprint = None;
            }
        }
    }

    /// Rejects files with invalid names. The names are shown in escaped form, and no record is
    /// added.
    fn reject_misnamed(&mut self, found: BTreeSet<String>) {
        for name in self.misnamed.difference(&found) {
            self.change_table(|table| drop(table.rejections.remove(name)));
            self.metrics.forget(name);
        }
        for name in found.difference(&self.misnamed).cloned().collect::<Vec<_>>() {
            let reason = AdmissionError::Name.to_string();
            self.change_table(|table| drop(table.rejections.insert(name.clone(), reason.clone())));
            self.metrics.count_rejection(&name);
            self.publish(Change::Rejected { name, reason });
        }
        self.misnamed = found;
    }
}
