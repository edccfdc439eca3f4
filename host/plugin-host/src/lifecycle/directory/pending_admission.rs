//! The work of one admission in a background task: it admits the files in the directory, or the
//! recorded version that served before a restart.

use transom_registry::Origin;

use crate::{
    error::CommandError,
    lifecycle::admission::{AdmissionContext, AdmissionError, Admitted, ServingVersion},
    manifest::files::{Files, ManifestFile},
    observe::version_metrics::VersionMetrics,
    runtime::executor::run_blocking,
    storage::{admission_record::AdmissionRecord, version_store::VersionStore},
};

/// A recorded version that is admitted again.
pub(super) type RestoreResult = Result<Admitted, CommandError>;

/// The result of an admission.
pub(super) struct AdmissionResult {
    /// After a restart: the recorded version that serves instead of the files in the directory.
    pub(super) restored: Option<RestoreResult>,
    /// `None`: the files are ignored, because the restored version serves.
    pub(super) files: Option<Result<Admitted, AdmissionError>>,
}

/// The recorded version to admit first.
pub(super) struct ActiveRecord {
    pub(super) record: AdmissionRecord,
    /// Whether the files then run alongside it, as a shadow or a canary.
    pub(super) files_are_candidate: bool,
}

/// An admission, executed in a background task.
pub(super) struct PendingAdmission {
    pub(super) admission_context: AdmissionContext,
    pub(super) version_store: VersionStore,
    pub(super) name: String,
    pub(super) files: Files,
    /// The imports of the previous version.
    pub(super) previous_imports: Option<Vec<String>>,
    /// The serving version, whose recorded calls are replayed on the files.
    pub(super) serving: Option<ServingVersion>,
    pub(super) active_record: Option<ActiveRecord>,
    /// Metrics of the version in `active_record`, and of the version in the files.
    pub(super) metrics: [VersionMetrics; 2],
}

impl PendingAdmission {
    pub(super) async fn run(self) -> AdmissionResult {
        let [of_record, of_files] = self.metrics;
        let restored = match &self.active_record {
            Some(ActiveRecord {
                record,
                files_are_candidate,
            }) => {
                let admitted = admit_record(
                    &self.admission_context,
                    &self.version_store,
                    &self.name,
                    record,
                    of_record,
                )
                .await;
                if admitted.is_ok() && !files_are_candidate {
                    return AdmissionResult {
                        restored: Some(admitted),
                        files: None,
                    };
                }
                Some(admitted)
            }
            None => None,
        };
        let admitted = self
            .admission_context
            .admit(
                &self.name,
                &self.files,
                self.previous_imports.as_deref(),
                self.serving.as_ref(),
                of_files,
            )
            .await;
        if admitted.is_ok() {
            let (version_store, files) = (self.version_store, self.files);
            // `save` logs its errors, which do not prevent serving. A shutdown may cancel it.
            let _ = run_blocking(move || version_store.save(&files)).await;
        }
        AdmissionResult {
            restored,
            files: Some(admitted),
        }
    }
}

/// Admits the files of a record again. Its imports were granted when it served before.
pub(super) async fn admit_record(
    admission_context: &AdmissionContext,
    version_store: &VersionStore,
    name: &str,
    record: &AdmissionRecord,
    metrics: VersionMetrics,
) -> RestoreResult {
    let cannot_restore = |message: String| CommandError::NotKept {
        name: name.to_owned(),
        record: record.sequence,
        message,
    };
    let digests = record.digest.clone().zip(record.manifest.clone());
    let version_store = version_store.clone();
    let stored = run_blocking(move || {
        let (component, manifest) = digests.ok_or("the record names no files")?;
        version_store.load(&component, &manifest)
    });
    let stored = stored
        .await
        .map_err(|_| CommandError::Stopped)?
        .map_err(cannot_restore)?;
    let config = &admission_context.config;
    let manifest = ManifestFile::parse(stored.manifest, &config.limits, config.probation);
    if stored.origin.is_none() && manifest.names_source() {
        return Err(cannot_restore(
            "the source that it was fetched from is unknown".to_owned(),
        ));
    }
    let files = Files {
        component: stored.component,
        manifest: Some(manifest),
        origin: stored.origin.unwrap_or(Origin::File { signature: None }),
    };
    let admitted = admission_context.admit(name, &files, None, None, metrics).await;
    admitted.map_err(|rejected| CommandError::Rejected {
        name: name.to_owned(),
        reason: rejected.to_string(),
    })
}
