//! Starts and finishes admissions and rollbacks.

use tokio::sync::oneshot;
use transom_common::text::hex;
use transom_registry::Origin;

use super::{
    Directory, ScanMode,
    background::{Admission, Completion, FinishedTask, MAX_ADMISSIONS, PendingRollback},
    files::{Fingerprint, fingerprint},
    pending_admission::{ActiveRecord, AdmissionResult, PendingAdmission, RestoreResult, admit_record},
};
use crate::{
    error::CommandError,
    lifecycle::{
        admission::{AdmissionError, ServingVersion},
        state::{Event, FilesFrom},
    },
    manifest::files::Files,
    observe::status::Change,
    runtime::{
        executor::{BlockingTaskError, Priority},
        version_context::seconds_now,
    },
    storage::admission_record::{AdmissionOutcome, AdmissionRecord},
};

impl Directory {
    /// Whether another admission may start now.
    pub(super) fn has_capacity(&self) -> bool {
        self.admissions.len() < MAX_ADMISSIONS
    }

    /// Moves the plugins that are bound to an extension point to the front, so that no other one
    /// delays their admission.
    pub(super) fn sort_bound_first(&self, names: &mut [String]) {
        names.sort_by_key(|name| !self.config.bindings.contains(name));
    }

    /// Whether the admission of a plugin's files is in progress or queued.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.admissions.contains_key(name) || self.waiting.contains_key(name)
    }

    /// Whether the admission of an image from a registry is in progress.
    pub(super) fn is_admitting_image(&self, name: &str) -> bool {
        let admission = self.admissions.get(name);
        admission.is_some_and(|it| matches!(it.origin, Origin::Image(_)))
    }

    /// Cancels the admission of a plugin's files. Returns whether there was one.
    pub(super) fn cancel_pending(&mut self, name: &str) -> bool {
        let was_pending = self.is_pending(name);
        if was_pending {
            self.admissions.remove(name);
            self.waiting.remove(name);
            self.hide_admitting(name);
        }
        was_pending
    }

    /// Starts the admission of the files in the directory. Files that a rollback replaced stay
    /// ignored, even after a restart.
    pub(super) fn admit(&mut self, name: &str, files: Files, found: Fingerprint) {
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.fingerprint = Some(found);
        plugin.retry = None;
        let previous_imports = self.previous_imports(name);
        let origin = match &files.origin {
            // The signature is left out because it may be long.
            Origin::File { .. } => Origin::File { signature: None },
            image @ Origin::Image(_) => image.clone(),
        };
        let (admission_context, priority) = if self.is_starting {
            (&self.interactive_context, Priority::Interactive)
        } else {
            (&self.admission_context, Priority::Background)
        };
        let pending = PendingAdmission {
            admission_context: admission_context.clone(),
            version_store: self.version_store.clone(),
            name: name.to_owned(),
            files,
            previous_imports: previous_imports.clone(),
            serving: self.serving_version(name),
            active_record: self.active_record(name, found),
            metrics: [
                self.metrics.create_version(name),
                self.metrics.create_version(name),
            ],
        };
        let work = async { Completion::Admission(pending.run().await) };
        let task = self
            .tasks
            .spawn(&self.admission_context.runtime, name, priority, work);
        let admission = Admission {
            task,
            files: found,
            origin,
            previous_imports,
        };
        self.admissions.insert(name.to_owned(), admission);
        self.show_admitting(name);
    }

    /// Queues a plugin's files for a later admission.
    pub(super) fn defer(&mut self, name: &str, mode: ScanMode) {
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.fingerprint = None;
        self.waiting.insert(name.to_owned(), mode);
        self.show_admitting(name);
    }

    /// Shows that the admission of a plugin's files is in progress.
    fn show_admitting(&self, name: &str) {
        self.change_table(|table| {
            table.admitting.insert(name.to_owned(), seconds_now());
        });
    }

    fn hide_admitting(&self, name: &str) {
        self.change_table(|table| {
            table.admitting.remove(name);
        });
    }

    /// After the result of an admission is published, so that a call in between does not fail as if
    /// there were no such plugin.
    fn hide_unless_pending(&self, name: &str) {
        if !self.is_pending(name) {
            self.hide_admitting(name);
        }
    }

    /// Handles a finished background task, then starts queued admissions.
    pub(super) async fn on_task_finished(&mut self, finished: FinishedTask) {
        self.finish_task(finished).await;
        let mut waiting: Vec<String> = self.waiting.keys().cloned().collect();
        self.sort_bound_first(&mut waiting);
        for name in waiting {
            if !self.has_capacity() {
                return;
            }
            if self.rollbacks.contains_key(&name) {
                continue;
            }
            if let Some(mode) = self.waiting.remove(&name) {
                let found = self.read(&name).await;
                self.check_plugin(&name, found, mode).await;
                self.hide_unless_pending(&name);
            }
        }
    }

    async fn finish_task(&mut self, finished: FinishedTask) {
        let FinishedTask {
            name,
            number,
            completion,
        } = finished;
        if completion.is_none() && self.runtime().token.is_cancelled() {
            // The host is stopping, so an unfinished task is not reported.
            return;
        }
        if self.admissions.get(&name).is_some_and(|it| it.task.is(number)) {
            if let Some(admission) = self.admissions.remove(&name) {
                let result = match completion {
                    Some(Completion::Admission(result)) => result,
                    _ => AdmissionResult {
                        restored: None,
                        files: Some(Err(AdmissionError::BlockingTaskError(
                            BlockingTaskError::Panicked,
                        ))),
                    },
                };
                self.finish_admission(&name, admission, result).await;
            }
            self.hide_unless_pending(&name);
        } else if self.rollbacks.get(&name).is_some_and(|it| it.task.is(number))
            && let Some(rollback) = self.rollbacks.remove(&name)
        {
            let admitted = match completion {
                Some(Completion::Rollback(admitted)) => admitted,
                _ => Err(CommandError::Stopped),
            };
            self.finish_rollback(&name, rollback, admitted).await;
        }
        // A task that is not known here was cancelled.
    }

    async fn finish_admission(&mut self, name: &str, admission: Admission, result: AdmissionResult) {
        if self.previous_imports(name) != admission.previous_imports {
            // The serving version has changed since its imports were compared. The admission is
            // repeated, with the compiled component from the cache.
            self.defer(name, ScanMode::Immediate);
            return;
        }
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.decided = Some(admission.files);
        match result.restored {
            Some(Ok(version)) => {
                self.apply(name, Event::Restored { version }).await;
            }
            Some(Err(error)) => tracing::error!(
                plugin = name,
                "cannot restore the version that served before the restart, admitting the files in the directory: {error}"
            ),
            None => {}
        }
        let admitted = match result.files {
            Some(Ok(version)) => {
                let candidate_kind = version.manifest.rollout.plan().map(|it| it.kind());
                let serving = self.plugins.get(name).and_then(|it| it.state.serving());
                if candidate_kind.is_some()
                    && serving.is_some_and(|it| it.version.info.world != version.info.world)
                {
                    Err(AdmissionError::OtherWorld)
                } else {
                    let by = self.files_from(name);
                    self.apply(
                        name,
                        Event::Admitted {
                            version,
                            candidate_kind,
                            by,
                        },
                    )
                    .await;
                    Ok(())
                }
            }
            Some(Err(rejected)) => Err(rejected),
            None => Ok(()),
        };
        match (admitted, &admission.origin) {
            (Err(rejected), _) => {
                if let Some(plugin) = self.plugins.get_mut(name) {
                    plugin.retry = rejected.retry();
                }
                self.reject(name, &rejected, false).await;
            }
            (Ok(()), Origin::Image(image)) => self.sources.admitted(image).await,
            (Ok(()), Origin::File { .. }) => {}
        }
    }

    /// The origin of the files that were admitted or rejected last.
    pub(super) fn files_from(&self, name: &str) -> FilesFrom {
        let uploaded = self
            .plugins
            .get(name)
            .is_some_and(|plugin| plugin.uploaded.is_some() && plugin.uploaded == plugin.decided);
        if uploaded {
            FilesFrom::Upload
        } else {
            FilesFrom::Directory
        }
    }

    /// After a restart: the recorded version that serves, if it is not the one in the directory.
    /// After a rollback or an abort the files in the directory are ignored. If they ran alongside
    /// the serving version, they do so again.
    fn active_record(&self, name: &str, found: Fingerprint) -> Option<ActiveRecord> {
        if self
            .plugins
            .get(name)
            .is_some_and(|plugin| plugin.state.current().is_some())
        {
            return None;
        }
        let records = self.history.records(name);
        let record = self.history.active_record(name)?;
        let files = Some(format!("sha256:{}", hex(&found)));
        let rolled_back = record.outcome == AdmissionOutcome::RolledBack && record.files == files;
        // The newest later record of a candidate with these files.
        let candidate_record = records
            .iter()
            .take_while(|it| it.sequence > record.sequence)
            .find(|it| it.is_of_candidate() && it.files == files);
        let aborted = candidate_record.is_some_and(|it| it.outcome == AdmissionOutcome::Aborted);
        let newest = records.first()?;
        let files_are_candidate = !aborted && newest.is_of_candidate() && newest.files == files;
        (rolled_back || aborted || files_are_candidate).then_some(ActiveRecord {
            record,
            files_are_candidate,
        })
    }

    /// The serving version.
    fn serving_version(&self, name: &str) -> Option<ServingVersion> {
        let serving = self.plugins.get(name)?.state.serving()?;
        let info = &serving.version.info;
        Some(ServingVersion {
            digest: info.digest.clone(),
            manifest: info.manifest.clone(),
            world: info.world,
        })
    }

    /// The imports of the previous version: the one that serves, that is disabled, or that served
    /// before the restart.
    fn previous_imports(&self, name: &str) -> Option<Vec<String>> {
        let current = self.plugins.get(name).and_then(|plugin| plugin.state.current());
        let now = current.map(|it| it.info.imports.clone());
        now.or_else(|| self.history.active_record(name).map(|it| it.imports))
    }

    /// Starts a rollback. If `record` is `None`, it takes the newest record of another version.
    pub(super) async fn start_rollback(
        &mut self,
        name: &str,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    ) {
        let record = match self.rollback_record(name, record) {
            Ok(record) => record,
            Err(error) => {
                drop(answer.send(Err(error)));
                return;
            }
        };
        // The current files are ignored, even if their admission is in progress or queued.
        let was_queued = self.waiting.contains_key(name);
        let mut interrupted = self.cancel_pending(name);
        if was_queued {
            let files = match self.read(name).await {
                Ok(found) => self.with_component(name, found).await.ok().flatten(),
                Err(_) => None,
            };
            if let Some(plugin) = self.plugins.get_mut(name) {
                plugin.fingerprint = files.as_ref().map(fingerprint);
            }
        }
        if let Some(earlier) = self.rollbacks.remove(name) {
            interrupted |= earlier.interrupted;
            let name = name.to_owned();
            drop(earlier.answer.send(Err(CommandError::Overtaken { name })));
        }
        let sequence = record.sequence;
        let (admission_context, version_store) =
            (self.interactive_context.clone(), self.version_store.clone());
        let (owned, metrics) = (name.to_owned(), self.metrics.create_version(name));
        let work = async move {
            Completion::Rollback(
                admit_record(&admission_context, &version_store, &owned, &record, metrics).await,
            )
        };
        let runtime = &self.admission_context.runtime;
        let task = self.tasks.spawn(runtime, name, Priority::Interactive, work);
        let rollback = PendingRollback {
            task,
            record: sequence,
            by,
            answer,
            interrupted,
        };
        self.rollbacks.insert(name.to_owned(), rollback);
    }

    /// The record of the version to roll back to.
    fn rollback_record(&self, name: &str, record: Option<u64>) -> Result<AdmissionRecord, CommandError> {
        let records = self.history.records(name);
        let owned = || name.to_owned();
        let plugin = self.plugins.get(name);
        if records.is_empty() && plugin.is_none() {
            return Err(CommandError::Unknown { name: owned() });
        }
        let serving = plugin.and_then(|it| it.state.serving());
        let mut served = records.iter().filter(|it| it.activates());
        // An explicit record may belong to a shadow or a canary, because these were admitted, too.
        let admitted = |it: &&AdmissionRecord| it.activates() || it.is_of_candidate();
        let found = match record {
            Some(sequence) => records
                .iter()
                .filter(admitted)
                .find(|it| it.sequence == sequence)
                .ok_or_else(|| CommandError::NoRecord {
                    name: owned(),
                    record: sequence,
                })?,
            None => served
                .find(|it| !serving.is_some_and(|serving| it.describes(&serving.version.info)))
                .ok_or_else(|| CommandError::NothingBefore { name: owned() })?,
        };
        Ok(found.clone())
    }

    async fn finish_rollback(&mut self, name: &str, rollback: PendingRollback, admitted: RestoreResult) {
        let PendingRollback {
            record,
            by,
            answer,
            interrupted,
            ..
        } = rollback;
        let done = match admitted {
            Ok(version) => {
                let reason = format!("rollback to record {record} by {by}");
                let event = Event::RolledBack { version, by, reason };
                self.apply(name, event).await.ok_or(CommandError::Stopped)
            }
            Err(error) => {
                if interrupted {
                    // The admission that this rollback cancelled starts again.
                    self.defer(name, ScanMode::Immediate);
                }
                Err(error)
            }
        };
        drop(answer.send(done));
    }
}
