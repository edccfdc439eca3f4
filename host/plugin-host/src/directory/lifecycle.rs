//! The lifecycle of a plugin's versions: activation, shadowing, rollback and disabling, each with
//! its record, log line and event.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    Directory, ScanMode,
    background::{Admission, Completion, FinishedTask, PendingRollback},
    files::{Fingerprint, fingerprint},
};
use crate::{
    admission::{AdmissionContext, AdmissionError, Admitted, Again},
    admission_record::{AdmissionRecord, Outcome},
    error::CommandError,
    executor::{BlockingTaskError, run_blocking},
    health::{Generation, Health, HealthAction, HealthEvent},
    manifest::{Rollout, ShadowPlan},
    metrics::VersionMetrics,
    origin::{Files, Origin},
    shadow::ShadowStats,
    status::Change,
    table::{Disabled, Serving, Table},
    text::{hex, shown},
    version_context::{VersionTelemetry, seconds_now},
    version_store::VersionStore,
};

/// One plugin's versions.
#[derive(Default)]
pub(crate) struct PluginState {
    /// Of the files last read, whose admission may be in progress; none if they were unreadable.
    pub(super) fingerprint: Option<Fingerprint>,
    /// Of the files that were admitted or refused last.
    pub(super) decided: Option<Fingerprint>,
    /// When to retry them without a change.
    pub(super) again: Option<Again>,
    /// The serving version, or the last one before it was disabled.
    pub(super) current: Option<Admitted>,
    generation: Option<Generation>,
    /// The version to restore on a fault, and until when.
    previous: Option<(Admitted, Instant)>,
    /// The shadow version.
    shadow: Option<(Admitted, Generation)>,
}

/// The result of an admission.
pub(super) struct AdmissionResult {
    /// After a restart: the recorded version that serves instead of the files in the directory.
    restored: Option<Result<Admitted, CommandError>>,
    /// None: they are ignored, since that version serves.
    files: Option<Result<Admitted, AdmissionError>>,
}

/// An admission, executed in a background task.
struct PendingAdmission {
    admission_context: AdmissionContext,
    version_store: VersionStore,
    name: String,
    files: Files,
    before: Option<Vec<String>>,
    /// The record of a version to admit first, and whether the files follow as its shadow.
    active_record: Option<(AdmissionRecord, bool)>,
    metrics: VersionMetrics,
}

impl PendingAdmission {
    async fn run(self) -> AdmissionResult {
        let restored = match &self.active_record {
            Some((record, compared)) => {
                let admitted = admit_record(
                    &self.admission_context,
                    &self.version_store,
                    &self.name,
                    record,
                    self.metrics.clone(),
                )
                .await;
                if admitted.is_ok() && !compared {
                    return AdmissionResult {
                        restored: Some(admitted),
                        files: None,
                    };
                }
                Some(admitted)
            }
            None => None,
        };
        let PendingAdmission {
            admission_context,
            version_store,
            name,
            files,
            before,
            metrics,
            ..
        } = self;
        let admitted = admission_context
            .admit(&name, &files, before.as_deref(), metrics)
            .await;
        if admitted.is_ok() {
            // `save` logs its errors; they do not prevent serving.
            // A shutdown may cancel it.
            let _ = run_blocking(move || version_store.save(&files)).await;
        }
        AdmissionResult {
            restored,
            files: Some(admitted),
        }
    }
}

/// Admits the files of a record again. Its imports were granted when it served.
async fn admit_record(
    admission_context: &AdmissionContext,
    version_store: &VersionStore,
    name: &str,
    record: &AdmissionRecord,
    metrics: VersionMetrics,
) -> Result<Admitted, CommandError> {
    let owned = || name.to_owned();
    let digests = record.digest.clone().zip(record.manifest.clone());
    let version_store = version_store.clone();
    let taken = run_blocking(move || {
        let (component, manifest) = digests.ok_or("the record names no files")?;
        version_store.load(&component, &manifest)
    });
    let taken = taken.await.map_err(|_| CommandError::Stopped)?;
    let files = taken.map_err(|message| CommandError::NotKept {
        name: owned(),
        record: record.sequence,
        message,
    })?;
    let admitted = admission_context.admit(name, &files, None, metrics).await;
    admitted.map_err(|refused| CommandError::Refused {
        name: owned(),
        reason: refused.to_string(),
    })
}

impl Directory {
    /// Starts to admit the files in the directory. Files that a rollback replaced stay ignored,
    /// also after a restart.
    pub(super) fn admit(&mut self, name: &str, files: Files, found: Fingerprint) {
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.fingerprint = Some(found);
        plugin.again = None;
        let before = self.imports_before(name);
        let origin = match &files.origin {
            // Not the signature: it may be long.
            Origin::File { .. } => Origin::File { signature: None },
            image @ Origin::Image(_) => image.clone(),
        };
        let pending = PendingAdmission {
            admission_context: self.admission_context.clone(),
            version_store: self.version_store.clone(),
            name: name.to_owned(),
            files,
            before: before.clone(),
            active_record: self.active_record(name, found),
            metrics: self.metrics.trial(name),
        };
        let task = self.spawn_task(name, async { Completion::AdmissionResult(pending.run().await) });
        let admission = Admission {
            task,
            files: found,
            origin,
            before,
        };
        self.admissions.insert(name.to_owned(), admission);
        self.admitting(name);
    }

    /// Shows that the admission of a plugin's files is in progress.
    pub(super) fn admitting(&self, name: &str) {
        self.change_table(|table| {
            let _ = table.admitting.insert(name.to_owned(), seconds_now());
        });
    }

    /// Applies the result of a background task to the table.
    pub(super) async fn finish_task(&mut self, finished: FinishedTask) {
        let FinishedTask {
            name,
            number,
            completion,
        } = finished;
        if completion.is_none() && self.runtime().token.is_cancelled() {
            // The host is stopping: unfinished tasks are not reported.
            return;
        }
        if self.admissions.get(&name).is_some_and(|it| it.task.is(number)) {
            let admission = self.admissions.remove(&name);
            self.change_table(|table| {
                let _ = table.admitting.remove(&name);
            });
            if let Some(admission) = admission {
                let result = match completion {
                    Some(Completion::AdmissionResult(result)) => result,
                    _ => AdmissionResult {
                        restored: None,
                        files: Some(Err(AdmissionError::BlockingTaskError(
                            BlockingTaskError::Panicked,
                        ))),
                    },
                };
                self.finish_admission(&name, admission, result).await;
            }
        } else if self.rollbacks.get(&name).is_some_and(|it| it.task.is(number))
            && let Some(command) = self.rollbacks.remove(&name)
        {
            let admitted = match completion {
                Some(Completion::Returned(admitted)) => admitted,
                _ => Err(CommandError::Stopped),
            };
            self.returned(&name, command, admitted).await;
        }
        // Otherwise it was cancelled.
    }

    async fn finish_admission(&mut self, name: &str, admission: Admission, result: AdmissionResult) {
        if self.imports_before(name) != admission.before {
            // Another version serves now than the one whose imports were compared: repeat, from the
            // cache.
            self.defer(name, ScanMode::Immediate);
            return;
        }
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.decided = Some(admission.files);
        match result.restored {
            Some(Ok(admitted)) => {
                let info = admitted.info.clone();
                self.start_serving(name, admitted, None);
                self.publish(Change::Admitted {
                    name: name.to_owned(),
                    version: info.version,
                    digest: info.digest,
                });
            }
            Some(Err(error)) => tracing::error!(
                plugin = name,
                "cannot restore the version that served before the restart, admitting the files in the directory: {error}"
            ),
            None => {}
        }
        let refused = match result.files {
            Some(Ok(admitted)) => self.serve(name, admitted).await.err(),
            Some(Err(refused)) => Some(refused),
            None => None,
        };
        match refused {
            Some(refused) => {
                if let Some(plugin) = self.plugins.get_mut(name) {
                    plugin.again = refused.again();
                }
                self.refused(name, &refused, false).await;
            }
            None => {
                if let Origin::Image(image) = &admission.origin {
                    self.sources.admitted(image).await;
                }
            }
        }
    }

    /// Activates an admitted version, or starts it as a shadow.
    async fn serve(&mut self, name: &str, admitted: Admitted) -> Result<(), AdmissionError> {
        let serving = self.serving(name);
        match (admitted.manifest.rollout, serving) {
            (Rollout::Immediate, serving) => {
                self.activate(name, admitted, serving, "directory", None).await;
            }
            // There is no version to compare it with.
            (_, None) => {
                self.activate(name, admitted, None, "directory", None).await;
            }
            (Rollout::Shadow(plan), Some(_)) => self.start_shadow(name, admitted, plan, true).await?,
            (Rollout::ShadowManual(plan), Some(_)) => self.start_shadow(name, admitted, plan, false).await?,
        }
        Ok(())
    }

    /// Activates a version, records and publishes it.
    async fn activate(
        &mut self,
        name: &str,
        admitted: Admitted,
        predecessor: Option<Admitted>,
        by: &str,
        reason: Option<&str>,
    ) -> Change {
        let mut record =
            AdmissionRecord::of(Outcome::Admitted, by, &admitted).with_files(self.files_of(name));
        record.reason = reason.map(str::to_owned);
        let info = admitted.info.clone();
        // A restart with the same files adds no record.
        let newest = self.history.newest(name);
        let news = newest.is_none_or(|it| !it.serves() || !it.is_of(&admitted) || it.files != record.files);
        self.start_serving(name, admitted, predecessor);
        if news {
            self.history.add(name, record).await;
        }
        self.publish(Change::Admitted {
            name: name.to_owned(),
            version: info.version,
            digest: info.digest,
        })
    }

    /// Starts a version as the shadow of the serving one.
    async fn start_shadow(
        &mut self,
        name: &str,
        admitted: Admitted,
        plan: ShadowPlan,
        auto: bool,
    ) -> Result<(), AdmissionError> {
        // Its faults do not count for the plugin and send no health events.
        let health = Health::new(admitted.manifest.probation, false, None);
        let generation = health.generation;
        let shadow = admitted.start(VersionTelemetry {
            metrics: VersionMetrics::unseen(),
            health,
        });
        let stats = Arc::new(ShadowStats::new(
            plan,
            auto,
            generation,
            self.metrics.shadow(name),
        ));
        let table = self.table.load_full();
        let active = table
            .serving
            .get(name)
            .and_then(|it| it.with_shadow(&shadow, self.runtime(), &stats, &self.health_events))
            .ok_or(AdmissionError::OtherWorld)?;
        self.change_table(|table| {
            table.refusals.remove(name);
            table.serving.insert(name.to_owned(), active);
        });
        let info = admitted.info.clone();
        let record =
            AdmissionRecord::of(Outcome::Shadowing, "directory", &admitted).with_files(self.files_of(name));
        if let Some(plugin) = self.plugins.get_mut(name) {
            plugin.shadow = Some((admitted, generation));
        }
        let newest = self.history.newest(name);
        if newest.is_none_or(|it| it.outcome != Outcome::Shadowing || it.files != record.files) {
            self.history.add(name, record).await;
        }
        self.publish(Change::Shadowing {
            name: name.to_owned(),
            version: info.version,
            digest: info.digest,
        });
        Ok(())
    }

    /// Promotes the shadow version. `asked`: only if it has that generation.
    pub(super) async fn promote(
        &mut self,
        name: &str,
        by: &str,
        asked: Option<(Generation, &str)>,
    ) -> Result<Change, CommandError> {
        let name_owned = || name.to_owned();
        let plugin = self
            .plugins
            .get_mut(name)
            .ok_or_else(|| CommandError::Unknown { name: name_owned() })?;
        let (admitted, _) = plugin
            .shadow
            .take_if(|(_, it)| asked.is_none_or(|(generation, _)| generation == *it))
            .ok_or_else(|| CommandError::NoShadow { name: name_owned() })?;
        let serving = self.serving(name);
        let reason = asked.map(|(_, reason)| reason);
        Ok(self.activate(name, admitted, serving, by, reason).await)
    }

    /// After a restart: the recorded version that serves if it is not the one in the directory.
    /// After a rollback the files in the directory are ignored; if they ran as a shadow (true),
    /// they do so again.
    fn active_record(&self, name: &str, found: Fingerprint) -> Option<(AdmissionRecord, bool)> {
        if self
            .plugins
            .get(name)
            .is_some_and(|plugin| plugin.current.is_some())
        {
            return None;
        }
        let active_record = self.history.active_record(name)?;
        let files = Some(format!("sha256:{}", hex(&found)));
        let rolled_back = active_record.outcome == Outcome::RolledBack && active_record.files == files;
        let newest = self.history.newest(name)?;
        let compared = newest.outcome == Outcome::Shadowing && newest.files == files;
        (rolled_back || compared).then_some((active_record, compared))
    }

    /// The imports of the previous version, which serves, is disabled, or served before the
    /// restart.
    fn imports_before(&self, name: &str) -> Option<Vec<String>> {
        let current = self.plugins.get(name).and_then(|plugin| plugin.current.as_ref());
        let now = current.map(|it| it.info.imports.clone());
        now.or_else(|| self.history.active_record(name).map(|it| it.imports))
    }

    /// The serving version, if any.
    fn serving(&self, name: &str) -> Option<Admitted> {
        let serves = self.table.load().serving.contains_key(name);
        let current = self.plugins.get(name)?.current.clone();
        current.filter(|_| serves)
    }

    /// Puts a version into the table. With a predecessor it is on probation.
    fn start_serving(&mut self, name: &str, admitted: Admitted, predecessor: Option<Admitted>) {
        let rule = admitted.manifest.probation;
        let health = Health::new(rule, predecessor.is_some(), Some(self.health_events.clone()));
        let generation = health.generation;
        let metrics = self.metrics.of(name, &admitted.info.label());
        let serving = admitted.start(VersionTelemetry { metrics, health });
        let mut before = None;
        self.change_table(|table| {
            table.refusals.remove(name);
            table.disabled.remove(name);
            before = table.serving.insert(name.to_owned(), serving);
        });
        self.metrics.admitted(name, before.is_some());
        self.metrics.disabled(name, false);
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.current = Some(admitted);
        plugin.generation = Some(generation);
        plugin.previous = predecessor.map(|it| (it, Instant::now() + rule.window));
        if plugin.shadow.take().is_some() {
            tracing::warn!(
                plugin = name,
                "shadow version dropped: another version serves now"
            );
        }
    }

    /// Drops versions whose successors have passed probation.
    pub(super) fn drop_predecessors(&mut self) {
        // Longer than the window, so that a health event in the queue still finds the version.
        let grace = Duration::from_secs(10);
        for plugin in self.plugins.values_mut() {
            plugin
                .previous
                .take_if(|(_, until)| Instant::now() > *until + grace);
        }
    }

    /// Handles a health event: reverts, disables or promotes.
    pub(super) async fn on_health_event(&mut self, event: HealthEvent) {
        let name = event.plugin.as_str();
        if event.action == HealthAction::Promote {
            // A shadow that was replaced in the meantime is not promoted.
            let asked = Some((event.generation, event.reason.as_str()));
            drop(self.promote(name, "shadow", asked).await);
            return;
        }
        let Some(plugin) = self.plugins.get_mut(name) else {
            return;
        };
        if plugin.generation != Some(event.generation) {
            // It was replaced in the meantime.
            return;
        }
        let previous = plugin.previous.take().map(|(previous, _)| previous);
        match (event.action, previous) {
            (HealthAction::Revert, Some(previous)) => {
                self.revert_to(name, previous, "probation", &event.reason).await;
            }
            _ => self.disable(name, &event.reason).await,
        }
    }

    /// Activates an earlier version permanently: the files in the directory are ignored until they
    /// change.
    async fn revert_to(&mut self, name: &str, to: Admitted, by: &str, reason: &str) -> Change {
        let serving = self.serving(name);
        let from = serving.map(|it| it.info.digest);
        let record = AdmissionRecord::of(Outcome::RolledBack, by, &to)
            .because(reason)
            .with_files(self.files_of(name));
        let info = to.info.clone();
        self.start_serving(name, to, None);
        self.metrics.rolled_back(name);
        self.history.add(name, record).await;
        self.publish(Change::RolledBack {
            name: name.to_owned(),
            version: info.version,
            digest: info.digest,
            from,
            reason: reason.to_owned(),
        })
    }

    async fn disable(&mut self, name: &str, reason: &str) {
        let Some(admitted) = self.plugins.get(name).and_then(|plugin| plugin.current.clone()) else {
            return;
        };
        let table = self.table.load_full();
        let Some((context, info)) = table.serving.get(name).map(Serving::parts) else {
            return;
        };
        let disabled = Arc::new(Disabled {
            info: info.clone(),
            reason: reason.to_owned(),
            context: Arc::clone(context),
        });
        if let Some(plugin) = self.plugins.get_mut(name) {
            // There is no version left to compare it with.
            plugin.shadow = None;
        }
        self.change_table(|table| {
            table.serving.remove(name);
            table.disabled.insert(name.to_owned(), Arc::clone(&disabled));
        });
        self.metrics.disabled(name, true);
        let record = AdmissionRecord::of(Outcome::Disabled, "probation", &admitted)
            .because(reason)
            .with_files(self.files_of(name));
        self.history.add(name, record).await;
        self.publish(Change::Disabled {
            name: name.to_owned(),
            digest: admitted.info.digest,
            reason: reason.to_owned(),
        });
    }

    /// Starts a rollback. `record` none: the newest record of another version.
    pub(super) async fn rollback(
        &mut self,
        name: &str,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    ) {
        let record = match self.record_of(name, record) {
            Ok(record) => record,
            Err(error) => {
                drop(answer.send(Err(error)));
                return;
            }
        };
        // The current files are ignored, also those that are being admitted.
        let waits = self.waiting.contains_key(name);
        let mut interrupted = self.cancel_pending(name);
        if waits {
            let dir = self.config.dir.clone();
            let files = self.files(&dir, name).await.ok().flatten();
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
        let (admission_context, version_store) = (self.rollback_context.clone(), self.version_store.clone());
        let (owned, metrics) = (name.to_owned(), self.metrics.trial(name));
        let task = self.spawn_task(name, async move {
            Completion::Returned(
                admit_record(&admission_context, &version_store, &owned, &record, metrics).await,
            )
        });
        let command = PendingRollback {
            task,
            record: sequence,
            by,
            answer,
            interrupted,
        };
        self.rollbacks.insert(name.to_owned(), command);
    }

    /// The record of the version to roll back to.
    fn record_of(&self, name: &str, record: Option<u64>) -> Result<AdmissionRecord, CommandError> {
        let records = self.history.of(name);
        let owned = || name.to_owned();
        if records.is_empty() && !self.plugins.contains_key(name) {
            return Err(CommandError::Unknown { name: owned() });
        }
        let current = self.serving(name);
        let mut served = records.iter().filter(|it| it.serves());
        // An explicit record may also be of a shadow version: it was admitted, too.
        let admitted = |it: &&AdmissionRecord| it.serves() || it.outcome == Outcome::Shadowing;
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
                .find(|it| !current.as_ref().is_some_and(|current| it.is_of(current)))
                .ok_or_else(|| CommandError::NothingBefore { name: owned() })?,
        };
        Ok(found.clone())
    }

    /// Finishes a rollback.
    async fn returned(
        &mut self,
        name: &str,
        command: PendingRollback,
        admitted: Result<Admitted, CommandError>,
    ) {
        let PendingRollback {
            record,
            by,
            answer,
            interrupted,
            ..
        } = command;
        let done = match admitted {
            Ok(admitted) => {
                let reason = format!("rollback to record {record} by {by}");
                Ok(self.revert_to(name, admitted, &by, &reason).await)
            }
            Err(error) => {
                if interrupted {
                    // The cancelled admission continues.
                    self.defer(name, ScanMode::Immediate);
                }
                Err(error)
            }
        };
        drop(answer.send(done));
    }

    /// Publishes a refusal. `unreadable`: the files are read at each scan, so repeated refusals are
    /// not published.
    pub(super) async fn refused(&mut self, name: &str, refused: &AdmissionError, unreadable: bool) {
        // It may quote the files.
        let reason = shown(&refused.to_string()).into_owned();
        let mut said = None;
        self.change_table(|table| said = table.refusals.insert(name.to_owned(), reason.clone()));
        if unreadable && said.as_ref() == Some(&reason) {
            return;
        }
        self.metrics.refused(name);
        let record = AdmissionRecord::new(Outcome::Refused, "directory")
            .because(&reason)
            .with_files(self.files_of(name));
        self.history.add(name, record).await;
        self.publish(Change::Refused {
            name: name.to_owned(),
            reason,
        });
    }

    /// Refuses files with invalid names, shown escaped and without records.
    pub(super) fn refuse_misnamed(&mut self, found: BTreeSet<String>) {
        for name in self.misnamed.difference(&found) {
            self.change_table(|table| drop(table.refusals.remove(name)));
            self.metrics.forget(name);
        }
        for name in found.difference(&self.misnamed).cloned().collect::<Vec<_>>() {
            let reason = AdmissionError::Name.to_string();
            self.change_table(|table| drop(table.refusals.insert(name.clone(), reason.clone())));
            self.metrics.refused(&name);
            self.publish(Change::Refused { name, reason });
        }
        self.misnamed = found;
    }

    /// The files, or the manifest, were removed.
    pub(super) async fn removed(&mut self, name: &str) {
        self.cancel_pending(name);
        self.plugins.remove(name);
        self.change_table(|table| {
            table.serving.remove(name);
            table.disabled.remove(name);
            table.refusals.remove(name);
        });
        self.metrics.forget(name);
        let record = AdmissionRecord::new(Outcome::Removed, "directory");
        self.history.add(name, record).await;
        self.publish(Change::Removed {
            name: name.to_owned(),
        });
    }

    pub(super) fn change_table(&self, change: impl FnOnce(&mut Table)) {
        let mut table = Table::clone(&self.table.load());
        change(&mut table);
        self.table.store(Arc::new(table));
    }

    fn publish(&mut self, change: Change) -> Change {
        match &change {
            Change::Admitted {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "plugin admitted");
            }
            Change::Refused { name, reason } => {
                let table = self.table.load();
                let still = table.serving.get(name).map(|it| it.info().version.as_str());
                let serving = still.unwrap_or("none");
                tracing::error!(plugin = name, serving, "plugin refused: {reason}");
            }
            Change::Shadowing {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "shadow version started");
            }
            Change::Removed { name } => tracing::warn!(plugin = name, "plugin removed"),
            Change::RolledBack {
                name,
                version,
                digest,
                from,
                reason,
            } => {
                let from = from.as_deref().unwrap_or("none");
                tracing::warn!(
                    plugin = name,
                    version,
                    digest,
                    from,
                    "plugin rolled back: {reason}"
                );
            }
            Change::Disabled { name, digest, reason } => {
                tracing::error!(plugin = name, digest, "plugin disabled, calls fail: {reason}");
            }
        }
        // There may be no subscribers.
        drop(self.changes.send(change.clone()));
        for waiter in &mut self.waiters {
            if waiter
                .pending
                .as_ref()
                .is_none_or(|it| it.contains(change.plugin()))
            {
                waiter.changes.push(change.clone());
            }
        }
        change
    }
}
